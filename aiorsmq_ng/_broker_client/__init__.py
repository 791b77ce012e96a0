"""A broker behind the Driver seam: every call becomes a call of ``aiorsmq.v1``.

Reached by the schemes ``grpc://`` and ``grpcs://`` only. Needs the extra ``grpc``.
"""
