"""Operations on queues of rmq: on payloads, and on what rmq knows of connections.

These queues are lists and know nothing of RSMQ. They share the transport and its rules with it.
"""
