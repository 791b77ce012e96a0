"""RSMQ as values: every operation is built here, and its reply is decoded here, without any I/O.

This package is pure: no sockets, no clock, no randomness. The transport runs what is built here.
"""
