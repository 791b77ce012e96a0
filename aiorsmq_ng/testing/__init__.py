"""Help for the tests of programs that use queues: clients that clean up, and time that passes.

The fixtures for pytest are in ``aiorsmq_ng.testing.plugin``, which pytest finds by itself.
"""

from .clients import temporary_client, unique_namespace
from .clock import TimeMachine

__all__ = ["TimeMachine", "temporary_client", "unique_namespace"]
