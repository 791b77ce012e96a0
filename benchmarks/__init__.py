"""What aiorsmq-ng does with a server, beside its peers and beside the server's own limit.

``python -m benchmarks`` (or ``nox -s bench``) is the one command; ``--help`` names its options.
"""
