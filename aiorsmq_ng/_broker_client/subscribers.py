"""Whose queues the queues of topics are."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from .._protocol.shards import TOPIC_MARK
from .._protocol.topic_names import unescape
from ..rpc import v1_pb2 as pb

#: Subscriptions of which it is remembered whose they are.
_MOST_KNOWN = 10_000
#: What no part of a queue's name contains unless it was too long and was cut.
_CUT = "_h"


class Subscribers:
    """Whose queue is whose: names may be cut, and then they cannot be read out of a queue's."""

    def __init__(self) -> None:
        self._known: OrderedDict[str, Any] = OrderedDict()

    def learn(self, queue: str, subscriber: Any) -> None:
        """Take note of who owns a queue."""
        self._known[queue] = subscriber
        self._known.move_to_end(queue)
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)

    def find(self, queue: str) -> Any | None:
        """Return who owns a queue, as far as is known or its name tells."""
        if queue in self._known:
            return self._known[queue]
        parts = queue.split(TOPIC_MARK)
        if is_cut(queue) or len(parts) not in (2, 3):
            return None
        topic, consumer, *peer = map(unescape, parts)
        mode = pb.MODE_EACH if peer else pb.MODE_SHARED
        return pb.Subscriber(topic=topic, consumer=consumer, mode=mode, peer="".join(peer))


def is_cut(queue: str) -> bool:
    """Tell whether names cannot be read out of the name of a queue."""
    return _CUT in queue
