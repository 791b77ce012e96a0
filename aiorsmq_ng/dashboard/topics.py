"""Topics, their subscriptions and what waits in them."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from aiorsmq_ng import SubscriptionInfo, TopicInfo

from .request_context import Visit

#: Topics on one page.
PAGE = 100


class TopicsView(Struct, kw_only=True):
    """Topics in the order of their names."""

    topics: list[TopicInfo]
    #: Name after which the next page begins; null after the last.
    next: str | None = None


async def topics(visit: Visit) -> TopicsView:
    """Return topics with their subscriptions, and what waits in them; ``after`` goes on."""
    rsmq, caller, after = visit.board.rsmq, visit.caller, visit.text("after")
    names = [name for name in await rsmq.list_topics() if caller.sees_topic(name) and name > after]
    page = names[:PAGE]
    found = await asyncio.gather(*(rsmq.topic(name).describe() for name in page))
    shown = [_seen(visit, topic) for topic in found]
    return TopicsView(topics=shown, next=page[-1] if len(names) > PAGE else None)


def _seen(visit: Visit, topic: TopicInfo) -> TopicInfo:
    """Return a topic without the subscriptions that the caller may not see."""

    def may_see(one: SubscriptionInfo) -> bool:
        return visit.caller.sees_subscription(topic.name, one.consumer)

    return TopicInfo(
        name=topic.name,
        queue=topic.queue,
        waiting=topic.waiting,
        max_length=topic.max_length,
        max_age=topic.max_age,
        trimmed=topic.trimmed,
        lost=topic.lost,
        subscriptions=tuple(one for one in topic.subscriptions if may_see(one)),
    )
