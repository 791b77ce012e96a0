-- Go on when the server is out of memory. It then refuses commands that may take memory, unless the
-- script has written already; this writes nothing. What follows frees memory sooner or later.
-- Reads: hash.
redis.call('HDEL', hash, '')
