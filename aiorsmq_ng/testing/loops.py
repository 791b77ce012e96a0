"""The client on the loops of pytest-asyncio; imported by the plugin where that is in use.

A client belongs to one event loop. A test may run on a loop of its own or on one that it shares
with its class, module, package or the whole run, so there is a fixture for each.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any, Literal

import pytest_asyncio

if TYPE_CHECKING:
    from ..client import RSMQ


def _client_on(scope: Literal["function", "class", "module", "package", "session"]) -> Any:
    async def client(rsmq_url: str, rsmq_ns: str) -> AsyncIterator[RSMQ]:
        from .clients import temporary_client

        async with temporary_client(rsmq_url, ns=rsmq_ns) as rsmq:
            yield rsmq

    # Marked for pytest-asyncio, so that its strict mode takes it too.
    return pytest_asyncio.fixture(client, loop_scope=scope, name=f"_rsmq_client_of_{scope}_loop")


of_function_loop = _client_on("function")
of_class_loop = _client_on("class")
of_module_loop = _client_on("module")
of_package_loop = _client_on("package")
of_session_loop = _client_on("session")
