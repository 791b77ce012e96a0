-- Defines: OWN_FIELDS, what a queue's hash holds of the queue itself; all other fields are of its messages.
local OWN_FIELDS = {'vt', 'delay', 'maxsize', 'totalrecv', 'totalsent', 'created', 'modified', 'ng:incarnation'}
