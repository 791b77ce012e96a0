"""Our leases, fences and moves among clients that know nothing of them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from aiorsmq_ng import RSMQ, Delivery, LeaseLost, Queue

from .peers import Foreign
from .wire import Wire

HOURS_S = 10_000


async def leased(queue: Queue, vt: float | None = None) -> Delivery:
    await queue.send("work")
    delivery = await queue.receive(vt=vt)
    assert delivery
    return delivery


@pytest.mark.parametrize("verb", ["ack", "release", "reject", "extend", "forward"])
async def test_settle_after_other_client_received_is_refused(
    rsmq: RSMQ, queue: Queue, foreign: Foreign, wire: Wire, verb: str
) -> None:
    """If my lease ran out and another client has the message, I cannot take it from under it."""
    await rsmq.create_queue("other")
    delivery = await leased(queue, vt=0)
    taken = await foreign.receive("jobs", vt=HOURS_S)
    before = await wire.hash("jobs"), await wire.score("jobs", delivery.id)
    arguments = {"extend": (60,), "forward": ("other",)}.get(verb, ())

    with pytest.raises(LeaseLost) as lost:
        await getattr(delivery, verb)(*arguments)
    assert not lost.value.gone
    assert taken
    assert (await wire.hash("jobs"), await wire.score("jobs", delivery.id)) == before


async def test_ack_after_other_client_deleted_says_gone(queue: Queue, foreign: Foreign) -> None:
    """I get an error if the message I finished was deleted by another client."""
    delivery = await leased(queue)
    deleted = await foreign.delete("jobs", delivery.id)

    with pytest.raises(LeaseLost) as lost:
        await delivery.ack()
    assert deleted
    assert lost.value.gone


async def test_hold_delivery_hides_it_from_other_client(queue: Queue, foreign: Foreign) -> None:
    """While I work on a message no other client gets it; when I am done it is gone."""
    async with await leased(queue):
        meanwhile = await foreign.receive("jobs")

    assert meanwhile is None
    assert (await foreign.attributes("jobs"))["msgs"] == 0


async def test_release_message_is_received_by_other_client(queue: Queue, foreign: Foreign) -> None:
    """A message I give back goes to the client that asks next."""
    delivery = await leased(queue)
    await delivery.release()
    got = await foreign.receive("jobs")

    assert got
    assert (got.id, got.rc, got.fr) == (delivery.id, 2, delivery.fr)


async def test_reject_message_is_received_from_dead_letters_by_other_client(
    queue: Queue, foreign: Foreign
) -> None:
    """Dead letters lie in an ordinary queue that every client lists and reads."""
    delivery = await leased(queue)
    await delivery.reject("no good")
    listed = await foreign.list()
    got = await foreign.receive("jobs-dead")

    assert listed == ["jobs", "jobs-dead"]
    assert got
    assert got._replace(sent=delivery.sent) == (
        delivery.id,
        "work",
        2,
        delivery.fr,
        delivery.sent,
    )
    assert await foreign.delete("jobs-dead", got.id)


async def test_forward_message_of_other_client_starts_again(
    rsmq: RSMQ, queue: Queue, foreign: Foreign
) -> None:
    """A message I pass on is a new one for the other client, with its old id."""
    await foreign.create("next")
    id = await foreign.send("jobs", "work")
    delivery = await queue.receive()
    assert delivery
    await delivery.forward("next")
    got = await foreign.receive("next")

    assert got
    assert (got.id, got.body, got.rc) == (id, "work", 1)
    assert (await foreign.attributes("jobs"))["msgs"] == 0


async def test_ack_message_of_other_client_leaves_no_trace(
    queue: Queue, foreign: Foreign, wire: Wire
) -> None:
    """Acking is deleting, also for messages that another client has received before."""
    await foreign.send("jobs", "work")
    await foreign.receive("jobs", vt=0)
    delivery = await queue.receive()
    assert delivery
    await delivery.ack()

    assert delivery.rc == 2
    assert await wire.keys() == {"QUEUES": "set", "jobs:Q": "hash"}


async def test_show_pending_includes_leases_of_other_client(queue: Queue, foreign: Foreign) -> None:
    """I see what other clients hold, since when, and for the which time."""
    await foreign.send("jobs", "work")
    first = await foreign.receive("jobs")
    assert first
    held = await queue.pending()
    await queue.change_visibility(first.id, 0)
    await foreign.receive("jobs")
    held_again = await queue.pending()

    first_received_at = datetime.fromtimestamp(first.fr / 1000, UTC)
    assert [(m.id, m.text, m.deliveries, m.delivered_at) for m in held] == [
        (first.id, "work", 1, first_received_at)
    ]
    assert [(m.id, m.deliveries, m.fr) for m in held_again] == [(first.id, 2, first.fr)]
    assert held_again[0].delivered_at >= first_received_at


async def test_consume_messages_of_other_client_empties_queue(
    queue: Queue, foreign: Foreign
) -> None:
    """My loop over a queue gets what other clients send."""
    ids = [await foreign.send("jobs", f"body {n}") for n in range(5)]
    seen = []
    messages = queue.consume(prefetch=2)
    async for message in messages:
        async with message:
            seen.append(message.id)
        if len(seen) == len(ids):
            break
    await messages.aclose()

    assert seen == ids
    assert (await foreign.attributes("jobs"))["msgs"] == 0
