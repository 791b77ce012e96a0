"""A dedup key is the same key on a server and through its broker."""

import pytest


async def by_queue(client):
    return await client.queue("jobs").send("x", dedup_key="order-7")


async def by_topic(client):
    return await client.topic("news").publish("x", dedup_key="order-7")


@pytest.mark.parametrize("way", [by_queue, by_topic])
@pytest.mark.parametrize("direct_first", [True, False])
async def test_second_send_by_the_other_way_is_a_duplicate(rsmq, inner, way, direct_first):
    await inner.create_queue("jobs")
    first, second = (inner, rsmq) if direct_first else (rsmq, inner)

    sent = await way(first)
    again = await way(second)

    assert not sent.duplicate
    assert (again, again.duplicate) == (sent, True)
