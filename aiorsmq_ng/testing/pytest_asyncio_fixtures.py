"""Client fixtures for the event loops of pytest-asyncio; loaded by the plugin if it is in use.

A client belongs to one event loop. A test may run on its own loop, or on one that it shares with
its class, module, package or session, so there is a fixture for each scope.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Literal

import pytest_asyncio

if TYPE_CHECKING:
    from ..client import RSMQ


def _client_on(scope: Literal["function", "class", "module", "package", "session"]) -> Any:
    async def client(rsmq_url: str, rsmq_ns: str) -> AsyncIterator[RSMQ]:
        from .temporary_clients import temporary_client

        async with temporary_client(rsmq_url, ns=rsmq_ns) as rsmq:
            yield rsmq

    # A fixture of pytest-asyncio, so that it also works in strict mode.
    return pytest_asyncio.fixture(client, loop_scope=scope, name=f"_rsmq_client_of_{scope}_loop")


of_function_loop = _client_on("function")
of_class_loop = _client_on("class")
of_module_loop = _client_on("module")
of_package_loop = _client_on("package")
of_session_loop = _client_on("session")
