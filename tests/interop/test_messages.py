"""Every client as sender, receiver and deleter, on queues made by each."""

from __future__ import annotations

import asyncio
import json
from itertools import permutations

import pytest

from aiorsmq_ng import RSMQ

from .peers import Foreign, Ours, Peer, refusal
from .wire import EMPTY_FIELDS, Wire, sent_ms

#: Bodies that every client can send and receive.
BODIES = ["Hello, World", "snow \u2603 and \U0001f600", "a\0b", "x" * 65536, '{"n": [1, "\u2603"]}']
UNKNOWN_ID = "g73zkl38qzSBNq2NcnVVlCldqwqFXRJd"
HOURS_S = 10_000


async def test_handle_messages_between_any_clients_leaves_no_trace(
    maker: Peer, sender: Peer, receiver: Peer, deleter: Peer, wire: Wire
) -> None:
    """My services may be written with different clients and still pass messages, in order."""
    await maker.create("jobs")
    ids = [await sender.send("jobs", body) for body in BODIES]
    got = [await receiver.receive("jobs") for _ in BODIES]
    more = await receiver.receive("jobs")
    deleted = [await deleter.delete("jobs", id) for id in ids]

    assert [(m.id, m.body, m.rc) for m in got if m] == [
        (id, body, 1) for id, body in zip(ids, BODIES, strict=True)
    ]
    assert more is None
    assert all(deleted)
    assert await wire.keys() == {"QUEUES": "set", "jobs:Q": "hash"}
    stored = await wire.hash("jobs")
    assert stored.keys() == EMPTY_FIELDS
    assert (stored["totalsent"], stored["totalrecv"]) == (str(len(BODIES)), str(len(BODIES)))


async def test_pop_messages_of_any_sender_leaves_no_trace(
    maker: Peer, sender: Peer, receiver: Peer, wire: Wire
) -> None:
    """Every client pops a message whole, and it is gone for all clients."""
    await maker.create("jobs")
    ids = [await sender.send("jobs", body) for body in BODIES]
    got = [await receiver.pop("jobs") for _ in BODIES]
    more = await receiver.pop("jobs")

    assert [(m.id, m.body, m.rc) for m in got if m] == [
        (id, body, 1) for id, body in zip(ids, BODIES, strict=True)
    ]
    assert more is None
    assert await wire.keys() == {"QUEUES": "set", "jobs:Q": "hash"}
    stored = await wire.hash("jobs")
    assert stored.keys() == EMPTY_FIELDS
    assert (stored["totalsent"], stored["totalrecv"]) == (str(len(BODIES)), str(len(BODIES)))


# PyRSMQ cannot send an empty body.
@pytest.mark.parametrize(
    "sender", ["ours", pytest.param("node", marks=pytest.mark.node)], indirect=True
)
async def test_send_empty_body_is_received_empty(maker: Peer, sender: Peer, receiver: Peer) -> None:
    """A message may consist of nothing but its arrival."""
    await maker.create("jobs")
    id = await sender.send("jobs", "")
    got = await receiver.receive("jobs")

    assert got
    assert (got.id, got.body) == (id, "")


async def test_send_bytes_that_are_no_text_are_received_as_they_are(
    maker: Peer, rsmq: RSMQ
) -> None:
    """My binary bodies survive in queues that other clients made."""
    await maker.create("jobs")
    body = b"\xff\xfe\x00ab" + bytes(range(256))
    await rsmq.queue("jobs").send(body)
    delivery = await rsmq.queue("jobs").receive()

    assert delivery
    assert delivery.body == body


async def test_send_body_as_long_as_allowed_is_received(
    maker: Peer, sender: Peer, receiver: Peer
) -> None:
    """I can use the whole size that a queue allows, whichever client made it."""
    await maker.create("jobs")
    body = "x" * (await maker.attributes("jobs"))["maxsize"]
    await sender.send("jobs", body)
    got = await receiver.receive("jobs")

    assert got
    assert got.body == body


# PyRSMQ stores a limit but never looks at it.
@pytest.mark.parametrize(
    "sender", ["ours", pytest.param("node", marks=pytest.mark.node)], indirect=True
)
async def test_send_body_longer_than_allowed_is_refused(
    maker: Peer, sender: Peer, wire: Wire
) -> None:
    """A body over the limit is refused with RSMQ's word for it, and nothing is stored."""
    await maker.create("jobs")
    body = "x" * ((await maker.attributes("jobs"))["maxsize"] + 1)

    assert await refusal(sender.send("jobs", body)) == "messageTooLong"
    assert await wire.ids("jobs") == []


async def test_receive_body_longer_than_allowed_is_received(
    maker: Peer, pyrsmq: Foreign, ours: Ours
) -> None:
    """I still get the message of a client that does not care about the limit."""
    await maker.create("jobs", maxsize=1024)
    body = "x" * 65537
    await pyrsmq.send("jobs", body)
    got = await ours.receive("jobs")

    assert got
    assert got.body == body


@pytest.mark.node
async def test_send_wide_characters_over_limit_in_bytes_is_refused(
    ours: Ours, node: Foreign
) -> None:
    """The limit is bytes for us; what Node lets through, as it counts otherwise, we receive."""
    await node.create("jobs")
    body = "\u2603" * 21846
    refused = await refusal(ours.send("jobs", body))
    await node.send("jobs", body)
    got = await ours.receive("jobs")

    assert refused == "messageTooLong"
    assert got
    assert got.body == body


async def test_send_over_64k_to_unlimited_queue_is_received(
    maker: Peer, sender: Peer, receiver: Peer
) -> None:
    """A queue made without a limit takes any size from any client."""
    await maker.create("jobs", maxsize=-1)
    body = "x" * 200_000
    await sender.send("jobs", body)
    got = await receiver.receive("jobs")

    assert got
    assert got.body == body


async def test_send_value_is_received_as_json(rsmq: RSMQ, foreign: Foreign) -> None:
    """Values I send are JSON for the other clients."""
    value = {"n": [1, 2.5, None, "\u2603"], "deep": {"yes": True}}
    await (await rsmq.create_queue("jobs")).send(value)
    got = await foreign.receive("jobs")

    assert got
    assert json.loads(got.body) == value


async def test_receive_json_of_other_client_gives_value(rsmq: RSMQ, foreign: Foreign) -> None:
    """JSON that another client sent comes out as the value it stands for."""
    value = {"n": [1, 2.5, None, "\u2603"], "deep": {"yes": True}}
    queue = await rsmq.create_queue("jobs")
    # PyRSMQ makes JSON of a value by itself.
    await foreign.send("jobs", value if foreign.name == "pyrsmq" else json.dumps(value))
    delivery = await queue.receive()

    assert delivery
    assert delivery.json() == value


@pytest.mark.parametrize(("options", "delay_s"), [({}, 100), ({"delay": 7}, 7), ({"delay": 0}, 0)])
async def test_send_with_delay_hides_for_exactly_that_long(
    maker: Peer, sender: Peer, wire: Wire, options: dict[str, float], delay_s: int
) -> None:
    """A delay, the queue's or my own, means the same time for every client."""
    await maker.create("jobs", delay=100)
    id = await sender.send("jobs", "later", **options)

    assert await wire.score("jobs", id) == str(sent_ms(id) + delay_s * 1000)


@pytest.mark.parametrize(("options", "vt_s"), [({}, 50), ({"vt": 7}, 7), ({"vt": 0}, 0)])
async def test_receive_with_vt_hides_for_exactly_that_long(
    maker: Peer, receiver: Peer, ours: Ours, wire: Wire, options: dict[str, float], vt_s: int
) -> None:
    """A lease, the queue's or my own, means the same time for every client."""
    await maker.create("jobs", vt=50)
    await ours.send("jobs", "work")
    got = await receiver.receive("jobs", **options)

    assert got
    assert await wire.score("jobs", got.id) == str(got.fr + vt_s * 1000)
    assert (await wire.hash("jobs"))[f"{got.id}:fr"] == str(got.fr)


@pytest.mark.node
@pytest.mark.parametrize("turns", list(permutations(range(3))), ids=str)
async def test_receive_again_by_other_client_counts_on(
    sender: Peer, all_peers: list[Peer], turns: tuple[int, ...]
) -> None:
    """Receive count and first receive are the message's, whichever client received it before."""
    await sender.create("jobs")
    id = await sender.send("jobs", "work")
    got = [await all_peers[turn].receive("jobs", vt=0) for turn in turns]
    popped = await all_peers[turns[0]].pop("jobs")

    assert popped
    assert [m.rc for m in [*got, popped] if m] == [1, 2, 3, 4]
    assert {m.fr for m in got if m} == {popped.fr}
    assert {m.sent for m in got if m} - {None} == {int(id[:10], 36) / 1000}


async def test_change_visibility_by_any_client_moves_the_end_of_the_lease(
    sender: Peer, receiver: Peer, deleter: Peer, wire: Wire
) -> None:
    """Any client can shorten or lengthen the lease of any other."""
    await sender.create("jobs")
    id = await sender.send("jobs", "work")
    await receiver.receive("jobs")
    before = await wire.now_ms()
    longer = await deleter.change_visibility("jobs", id, 600)
    score = int(await wire.score("jobs", id))
    after = await wire.now_ms()
    sooner = await deleter.change_visibility("jobs", id, 0)
    again = await receiver.receive("jobs")

    assert longer
    assert before <= score - 600_000 <= after
    assert sooner
    assert again
    assert (again.id, again.rc) == (id, 2)


async def test_change_visibility_of_delayed_message_makes_it_ready(
    sender: Peer, receiver: Peer, deleter: Peer
) -> None:
    """A delayed message can be called in early by any client."""
    await sender.create("jobs")
    id = await sender.send("jobs", "later", delay=HOURS_S)
    early = await receiver.receive("jobs")
    changed = await deleter.change_visibility("jobs", id, 0)
    got = await receiver.receive("jobs")

    assert early is None
    assert changed
    assert got
    assert got.id == id


async def test_change_visibility_of_unknown_message_says_so(maker: Peer, deleter: Peer) -> None:
    """Changing a message that is not there is no error, just in vain."""
    await maker.create("jobs")

    assert not await deleter.change_visibility("jobs", UNKNOWN_ID, 10)


async def test_delete_message_without_receive_leaves_no_trace(
    sender: Peer, deleter: Peer, receiver: Peer, wire: Wire
) -> None:
    """A message can be called off before any client has seen it."""
    await sender.create("jobs")
    id = await sender.send("jobs", "never mind")
    deleted = await deleter.delete("jobs", id)

    # PyRSMQ deletes it as well, but denies it.
    assert deleted or deleter.name == "pyrsmq"
    assert await receiver.receive("jobs") is None
    assert id not in await wire.hash("jobs")


async def test_delete_unknown_message_says_so(maker: Peer, deleter: Peer) -> None:
    """Deleting a message that is not there is no error, just in vain."""
    await maker.create("jobs")

    assert not await deleter.delete("jobs", UNKNOWN_ID)


async def test_send_many_is_received_in_order(rsmq: RSMQ, receiver: Peer) -> None:
    """A batch reaches every client in the order in which I wrote it."""
    bodies = [f"body {n}" for n in range(50)]
    ids = await (await rsmq.create_queue("jobs")).send_many(bodies)
    got = [await receiver.receive("jobs") for _ in bodies]

    assert [(m.id, m.body) for m in got if m] == list(zip(ids, bodies, strict=True))
    assert (await receiver.attributes("jobs"))["totalsent"] == 50


async def test_receive_many_of_other_client_keeps_order(rsmq: RSMQ, foreign: Foreign) -> None:
    """A batch I receive has the order in which another client sent it."""
    await foreign.create("jobs")
    bodies = [f"body {n}" for n in range(50)]
    ids = [await foreign.send("jobs", body) for body in bodies]
    got = await rsmq.queue("jobs").receive_many(100)

    assert [(m.id, m.text) for m in got] == list(zip(ids, bodies, strict=True))
    assert (await foreign.attributes("jobs"))["totalrecv"] == 50


@pytest.mark.node
async def test_receive_by_all_clients_at_once_shares_messages(
    all_peers: list[Peer], rsmq: RSMQ
) -> None:
    """Clients of all kinds on one queue never get the same message, and miss none."""
    queue = await rsmq.create_queue("jobs")
    ids = await queue.send_many([f"body {n}" for n in range(300)])

    async def drain(peer: Peer) -> list[str]:
        mine = []
        while got := await peer.receive("jobs"):
            mine.append(got.id)
        return mine

    shares = await asyncio.gather(*map(drain, all_peers))

    assert sorted(id for share in shares for id in share) == sorted(ids)
    assert all(shares)
