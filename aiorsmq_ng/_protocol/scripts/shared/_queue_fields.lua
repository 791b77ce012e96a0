-- QUEUE_FIELDS: the fields of a queue's hash that belong to the queue itself; all others belong to messages.
local QUEUE_FIELDS = {'vt', 'delay', 'maxsize', 'totalrecv', 'totalsent', 'created', 'modified', 'ng:incarnation'}
