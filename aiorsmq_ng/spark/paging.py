"""Reads messages page by page; how many fit into a page is known when it is there."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from .._protocol.operation import Operation
    from .._runtime.sync_client import SyncClient


class _Page(Protocol):
    @property
    def size(self) -> int: ...


P = TypeVar("P", bound=_Page)


def read_pages(
    client: SyncClient,
    start: int,
    stop: int,
    most: int,
    read: Callable[[int, int], Operation[P]],
) -> Iterator[P]:
    """Read the messages from *start* up to *stop*; the next page is in flight meanwhile.

    *read* makes the operation that reads a range. A page has up to *most* messages, fewer if their
    bodies are long. After such a page, up to twice as many are asked for, because the server looks
    at all messages of a range before it reads bodies.
    """
    at = start

    def following(page: P) -> Operation[P] | None:
        nonlocal at
        at += page.size
        if at >= stop or not page.size:
            return None
        return read(at, min(stop, at + min(most, 2 * page.size)))

    if start < stop:
        yield from client.run_chain(read(start, min(stop, start + most)), following)
