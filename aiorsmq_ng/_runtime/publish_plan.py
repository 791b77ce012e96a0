"""Publish plans: which subscriptions a publish goes to, cached per topic."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence

from .._protocol.operation import Operation
from .._protocol.operations import topics
from .._protocol.operations.message_values import Dedup
from .._protocol.operations.topics import Plan, TopicKeys
from .._protocol.topic_state import TopicState
from ..errors import InvalidValue, SendToken

#: Copies that one call may make, in about a second of the server's time.
MAX_COPIES = 300_000
#: Size limit of the cache of plans.
_PLANS = 1024


#: Submit the operation that reads the state of a topic.
Ask = Callable[[Operation[TopicState]], asyncio.Future[TopicState]]


class Plans:
    """Cache of the plans of topics, as this client knows them."""

    def __init__(self) -> None:
        self._plans: OrderedDict[TopicKeys, Plan] = OrderedDict()
        self._reads: dict[TopicKeys, asyncio.Future[TopicState]] = {}

    async def renew(self, stale: Plan, ask: Ask) -> Plan:
        """Return a newer plan than *stale*; concurrent callers share one read."""
        keys = stale.keys
        plan = self.get(keys)
        if plan is not stale:
            return plan
        read = self._reads.get(keys)
        if read is None:
            read = self._reads[keys] = ask(topics.read(keys))
            read.add_done_callback(lambda _: self._reads.pop(keys, None))
        state = await asyncio.shield(read)
        plan = self.get(keys)
        return plan if plan is not stale else self.put(Plan(keys, state))

    def get(self, keys: TopicKeys) -> Plan:
        """Return the cached plan of a topic, or an empty one for an unknown topic."""
        plan = self._plans.get(keys)
        if plan is None:
            return self.put(Plan(keys, TopicState()))
        self._plans.move_to_end(keys)
        return plan

    def put(self, plan: Plan) -> Plan:
        """Cache a plan; if the cache is full, the least recently used one is dropped."""
        self._plans[plan.keys] = plan
        self._plans.move_to_end(plan.keys)
        if len(self._plans) > _PLANS:
            self._plans.popitem(last=False)
        return plan


class Publication:
    """The arguments of a publish, kept so that it can be repeated with another plan."""

    def __init__(
        self,
        bodies: list[bytes],
        delay_ms: int,
        dedup: Dedup | None,
        headers: Sequence[bytes] = (),
    ) -> None:
        self.bodies = bodies
        self.delay_ms = delay_ms
        self.dedup = dedup
        self.headers = headers

    def under(self, plan: Plan) -> Operation[list[str]]:
        """Return the operation that publishes it to the subscriptions of *plan*."""
        if len(self.bodies) * plan.copies > MAX_COPIES:
            raise InvalidValue(
                f"{len(self.bodies)} messages for {plan.copies} subscriptions are more than "
                f"{MAX_COPIES} copies in one call; publish fewer at a time"
            )
        return topics.publish(
            plan,
            self.bodies,
            delay_ms=self.delay_ms,
            dedup=self.dedup,
            headers=self.headers,
        )


class PublishToken(SendToken):
    """Stands for a publish whose outcome is not known."""

    __slots__ = ("publication", "token", "topic")

    def __init__(self, topic: TopicKeys, publication: Publication, token: SendToken) -> None:
        self.topic = topic
        self.publication = publication
        self.token = token
