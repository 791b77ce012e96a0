"""A broker behind the Driver seam: every call becomes a call of ``aiorsmq.v1``.

Reached by the schemes ``grpc``, ``grpcs`` and ``grpc+unix`` only. Needs the extra ``grpc``.
"""
