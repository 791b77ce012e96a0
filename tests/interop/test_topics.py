"""A subscription is a queue like any other for every RSMQ client."""

from __future__ import annotations

import pytest

from aiorsmq_ng import RSMQ, QueueNotFound

from .peers import Foreign


async def test_foreign_client_reads_and_deletes_what_was_published(
    foreign: Foreign, rsmq: RSMQ
) -> None:
    topic = rsmq.topic("news of today")
    early = await topic.publish("early")
    subscription = await topic.subscribe("billing 1")
    await topic.subscribe("mail")
    late = await topic.publish("late")

    assert subscription.name in await foreign.list()
    got = [await foreign.receive(subscription.name) for _ in range(2)]
    assert [(m.id, m.body, m.rc) for m in got if m] == [(early, "early", 1), (late, "late", 1)]
    for id in (early, late):
        assert await foreign.delete(subscription.name, id)
    assert (await subscription.attributes()).msgs == 0


async def test_foreign_client_may_send_to_a_subscription_and_end_it(
    foreign: Foreign, rsmq: RSMQ
) -> None:
    topic = rsmq.topic("news")
    ended, stays = await topic.subscribe("a"), await topic.subscribe("b")
    await foreign.send(ended.name, "only here")
    assert [m.text for m in await ended.observe()] == ["only here"]
    await foreign.delete_queue(ended.name)
    await topic.publish("x")

    assert [m.text for m in await stays.observe()] == ["x"]
    with pytest.raises(QueueNotFound):
        await ended.observe()
    info = await topic.describe()
    assert ([s.consumer for s in info.subscriptions], info.lost) == (["b"], 1)
