"""Telemetry on a server, a cluster and through a broker."""

from ..support.backends import (  # noqa: F401 - fixtures and a hook
    backend,
    cluster,
    ns,
    pytest_generate_tests,
    raw,
    rsmq,
    server_url,
    subscribed,
    telemetry,
)
