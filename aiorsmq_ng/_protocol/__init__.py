"""RSMQ as values: every operation is built and its reply is read here, without any I/O.

Nothing in this package touches a socket, a clock or a source of chance; the transport runs what
is built here.
"""
