"""RedisMQ's verbs run on a server, on a cluster and through a broker, as the contract does."""

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
