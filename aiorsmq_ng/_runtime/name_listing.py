"""Lists all queues or topics page by page, so that other clients are not held up."""

from __future__ import annotations

from collections.abc import Callable

from .._protocol.operation import Operation
from .._protocol.operations.queues import FIRST_PAGE, NamesPage
from .._transport.transport import Transport


async def list_names(
    transport: Transport, page_after: Callable[[bytes], Operation[NamesPage]]
) -> set[str]:
    """Return every name that exists during the whole listing.

    A name that is created or deleted meanwhile may be listed or not. Up to some thousand names are
    one page.
    """
    found, cursor = set[str](), FIRST_PAGE
    while True:
        page = await transport.run(page_after(cursor))
        found.update(page.names)
        cursor = page.cursor
        if cursor == FIRST_PAGE:
            return found
