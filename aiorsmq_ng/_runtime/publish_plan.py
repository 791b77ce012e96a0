"""What is published, and where a client believes that it goes."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable

from .._protocol import topics
from .._protocol.operation import Operation
from .._protocol.topic_state import TopicState
from .._protocol.topics import Plan, TopicKeys
from .._protocol.values import Dedup
from ..errors import InvalidValue, SendToken

#: Copies that one call may make; they keep the server busy for about a second.
MAX_COPIES = 300_000
#: Size limit of the cache of plans.
_PLANS = 1024


#: Send a question on its way.
Ask = Callable[[Operation[TopicState]], asyncio.Future[TopicState]]


class Plans:
    """Where the messages of topics go, as far as this client has heard."""

    def __init__(self) -> None:
        self._plans: OrderedDict[TopicKeys, Plan] = OrderedDict()
        self._asked: dict[TopicKeys, asyncio.Future[TopicState]] = {}

    async def renew(self, stale: Plan, ask: Ask) -> Plan:
        """Return a newer plan than *stale*; those who need one at the same time ask once."""
        keys = stale.keys
        plan = self.get(keys)
        if plan is not stale:
            return plan
        asked = self._asked.get(keys)
        if asked is None:
            asked = self._asked[keys] = ask(topics.read(keys))
            asked.add_done_callback(lambda _: self._asked.pop(keys, None))
        state = await asyncio.shield(asked)
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
        """Remember a plan, and forget the one that was not used for longest if there are many."""
        self._plans[plan.keys] = plan
        self._plans.move_to_end(plan.keys)
        if len(self._plans) > _PLANS:
            self._plans.popitem(last=False)
        return plan


class Publication:
    """What is published: all that is needed to do so again."""

    def __init__(self, bodies: list[bytes], delay_ms: int, dedup: Dedup | None) -> None:
        self.bodies = bodies
        self.delay_ms = delay_ms
        self.dedup = dedup

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
        )


class PublishToken(SendToken):
    """A publish whose outcome is not known."""

    __slots__ = ("publication", "token", "topic")

    def __init__(self, topic: TopicKeys, publication: Publication, token: SendToken) -> None:
        self.topic = topic
        self.publication = publication
        self.token = token
