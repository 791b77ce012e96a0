"""The queues that options select, by names or by a pattern."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._protocol.operations import queues

if TYPE_CHECKING:
    from .._protocol.keys import Namespace, QueueKeys
    from .options import ReadOptions, StreamReadOptions
    from .stream_claims import Calls


def selected_queues(options: ReadOptions) -> list[QueueKeys]:
    """Return the queues that *options* select now."""
    client = options.client()
    if not options.queues_pattern:
        return named_queues(options)
    found: list[QueueKeys] = []
    for namespace in options.shards.namespaces:
        found += client.call(matching_queues(client.transport, options, namespace))
    return found


def named_queues(options: ReadOptions | StreamReadOptions) -> list[QueueKeys]:
    """Return the queues that *options* name."""
    return [options.keys_of(name) for name in options.names]


async def matching_queues(
    transport: Calls, options: ReadOptions | StreamReadOptions, namespace: Namespace
) -> list[QueueKeys]:
    """Return the queues of *namespace* that the pattern of *options* selects."""
    names: set[str] = set()
    page = queues.NamesPage(queues.FIRST_PAGE, [])
    while True:
        page = await transport.run(queues.list_queues(namespace, page.cursor))
        names.update(page.names)
        if page.cursor == queues.FIRST_PAGE:
            break
    found = [namespace.queue(name) for name in sorted(names) if options.matches(name)]
    # One that its name puts into another namespace would be a queue that other clients never find.
    return [keys for keys in found if options.keys_of(keys.queue) == keys]
