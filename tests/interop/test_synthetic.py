"""Queues as clients write them that cannot be run here, and as crashes leave them behind."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from aiorsmq_ng import RSMQ, MessageTooLong, QueueExists, QueueNotFound

from .peers import Foreign, Ours, Peer, refusal
from .wire import EMPTY_FIELDS, Wire

SOUND: dict[str, str | int] = {
    "vt": 30,
    "delay": 0,
    "maxsize": 65536,
    "created": 1645018248,
    "modified": 1645018248,
}
ID = "g73zkl38qzSBNq2NcnVVlCldqwqFXRJd"
NEXT_ID = "g73zkl38r0TBNq2NcnVVlCldqwqFXRJd"
#: Rust clients before version 16 wrote milliseconds in front, which are eight digits.
SHORT_ID = "kzpm4q2zSBNq2NcnVVlCldqwqFXRJd"


@pytest.mark.parametrize(
    "fields",
    [
        {"vt": 30000, "delay": 0, "maxsize": 65536, "created": 1, "modified": 1},
        {"vt": 30, "delay": 0, "maxsize": 65536},
        {"vt": "2.5", "delay": "0.0", "maxsize": 65565, "created": 1, "modified": 1},
        {"vt": 30, "delay": 0, "maxsize": 65535, "created": 1, "modified": 1645018248123},
        {"vt": 30, "delay": 0, "maxsize": -1, "created": 1, "modified": 1, "msgs": 0},
    ],
    ids=["rust", "rsmqx", "pyrsmq", "go", "ruby"],
)
async def test_use_queue_of_unusual_maker_works_for_all_clients(
    wire: Wire, sender: Peer, receiver: Peer, deleter: Peer, fields: dict[str, str | int]
) -> None:
    """Queues of Rust, Elixir, Go or Ruby clients serve me as any other."""
    await wire.plant("jobs", fields)
    id = await sender.send("jobs", "work")
    got = await receiver.receive("jobs")
    deleted = await deleter.delete("jobs", id)

    assert got
    assert (got.id, got.body, got.rc) == (id, "work", 1)
    assert deleted
    assert (await wire.hash("jobs")).keys() == fields.keys() | {"totalsent", "totalrecv"}


@pytest.mark.parametrize(
    "receiver", ["ours", pytest.param("node", marks=pytest.mark.node)], indirect=True
)
async def test_receive_from_rust_queue_takes_its_number_for_seconds(
    wire: Wire, receiver: Peer, ours: Ours
) -> None:
    """Whether a Rust client meant milliseconds cannot be seen, so we do as Node does."""
    await wire.plant("jobs", SOUND | {"vt": 30000})
    await ours.send("jobs", "work")
    got = await receiver.receive("jobs")

    assert got
    assert await wire.score("jobs", got.id) == str(got.fr + 30_000_000)


async def test_describe_queue_without_times_says_zero(wire: Wire, rsmq: RSMQ) -> None:
    """A queue of rsmqx, which writes no times, can be described."""
    await wire.plant("jobs", {"vt": 30, "delay": 0, "maxsize": 65536})
    told = await rsmq.queue("jobs").attributes()

    assert (told.vt, told.created, told.modified, told.totalsent) == (30, 0, 0, 0)


@pytest.mark.parametrize("receiver", ["ours", "pyrsmq"], indirect=True)
async def test_receive_from_queue_with_fractional_vt_honours_it(
    wire: Wire, rsmq: RSMQ, pyrsmq: Foreign, receiver: Peer
) -> None:
    """Two and a half seconds, which only PyRSMQ stores, are two and a half seconds."""
    await pyrsmq.create("jobs", vt=2.5, delay=0.25)
    stored = await wire.hash("jobs")
    await rsmq.queue("jobs").send("work", delay=0)
    got = await receiver.receive("jobs")
    told = await rsmq.queue("jobs").attributes()

    assert stored["vt"] == "2.5"
    assert got
    assert await wire.score("jobs", got.id) == str(got.fr + 2500)
    assert (told.vt, told.delay) == (2.5, 0.25)


@pytest.mark.parametrize("sender", ["ours", "pyrsmq"], indirect=True)
async def test_send_to_queue_with_fractional_delay_honours_it(
    wire: Wire, pyrsmq: Foreign, sender: Peer
) -> None:
    """A quarter of a second, which only PyRSMQ stores, is a quarter of a second."""
    await pyrsmq.create("jobs", delay=0.25)
    id = await sender.send("jobs", "work")

    assert await wire.score("jobs", id) == str(int(id[:10], 36) // 1000 + 250)


async def test_send_to_queue_of_pyrsmq_honours_its_odd_limit(rsmq: RSMQ, pyrsmq: Foreign) -> None:
    """PyRSMQ's default limit is beyond RSMQ's range; what is stored holds."""
    await pyrsmq.create("jobs")
    queue = rsmq.queue("jobs")
    await queue.send("x" * 65565)

    assert (await queue.attributes()).maxsize == 65565
    with pytest.raises(MessageTooLong):
        await queue.send("x" * 65566)


async def test_use_ghost_queue_is_refused(wire: Wire, ours: Ours) -> None:
    """A queue that is only half there is not there, and stays as it is."""
    await wire.plant("jobs", {"vt": 5, "modified": 1645018248}, listed=False)
    before = await wire.hash("jobs")

    assert await refusal(ours.send("jobs", "x")) == "queueNotFound"
    assert await refusal(ours.receive("jobs")) == "queueNotFound"
    assert await refusal(ours.attributes("jobs")) == "queueNotFound"
    assert await refusal(ours.set_attributes("jobs", vt=7)) == "queueNotFound"
    assert await wire.hash("jobs") == before


async def test_create_ghost_queue_of_pyrsmq_completes_it(
    rsmq: RSMQ, pyrsmq: Foreign, foreign: Foreign
) -> None:
    """Creating the queue that PyRSMQ left half-made makes it whole for all clients."""
    crash = await refusal(pyrsmq.set_attributes("jobs", vt=5))
    await rsmq.create_queue("jobs")
    id = await foreign.send("jobs", "work")
    got = await foreign.receive("jobs")
    told = await foreign.attributes("jobs")

    assert crash == "TypeError"
    assert await foreign.list() == ["jobs"]
    assert (told["vt"], told["delay"], told["maxsize"]) == (5, 0, 65536)
    assert got
    assert got.id == id


@pytest.mark.node
@pytest.mark.parametrize("exist_ok", [True, False])
async def test_create_queue_that_node_left_unlisted_lists_it(
    wire: Wire, rsmq: RSMQ, node: Foreign, exist_ok: bool
) -> None:
    """Node says that a ghost exists, completes it and never lists it; creating it lists it."""
    await wire.plant("jobs", {"vt": 5, "modified": 1645018248}, listed=False)
    refused = await refusal(node.create("jobs"))
    unlisted = await node.list()
    with nullcontext() if exist_ok else pytest.raises(QueueExists):
        await rsmq.create_queue("jobs", exist_ok=exist_ok)

    assert (refused, unlisted) == ("queueExists", [])
    assert await node.list() == ["jobs"]
    assert (await node.attributes("jobs"))["vt"] == 5


async def test_create_orphan_queue_brings_its_message_back(
    wire: Wire, rsmq: RSMQ, receiver: Peer
) -> None:
    """A message that came after the queue was deleted is there again when the queue is."""
    await wire.plant("jobs", {ID: "late", "totalsent": 1}, (ID,), listed=False)
    with pytest.raises(QueueNotFound):
        await rsmq.queue("jobs").receive()
    await rsmq.create_queue("jobs")
    got = await receiver.receive("jobs")

    assert await rsmq.list_queues() == ["jobs"]
    assert got
    assert (got.id, got.body, got.rc) == (ID, "late", 1)
    assert (await receiver.attributes("jobs"))["totalsent"] == 1


async def test_delete_orphan_queue_clears_it_away(wire: Wire, rsmq: RSMQ) -> None:
    """What is left of a queue can be deleted."""
    await wire.plant("jobs", {ID: "late", "totalsent": 1}, (ID,), listed=False)
    await rsmq.delete_queue("jobs")

    assert await wire.keys() == {}


@pytest.mark.parametrize("verb", ["receive", "pop"])
async def test_take_behind_phantom_gets_next_message(wire: Wire, ours: Ours, verb: str) -> None:
    """An id whose body is lost does not stand in the way of the messages behind it."""
    await wire.plant("jobs", SOUND | {f"{ID}:rc": 3, NEXT_ID: "work"}, (ID, NEXT_ID))
    got = await getattr(ours, verb)("jobs")

    assert got
    assert (got.id, got.body) == (NEXT_ID, "work")
    assert ID not in await wire.ids("jobs")
    assert f"{ID}:rc" not in await wire.hash("jobs")


@pytest.mark.node
async def test_receive_phantom_first_by_node_leaves_it_to_us_to_clear(
    wire: Wire, node: Foreign, ours: Ours
) -> None:
    """Node hands out the lost message as nothing; we clear it away when it comes back."""
    await wire.plant("jobs", dict(SOUND), (ID,))
    nothing = await node.receive("jobs", vt=0)
    got = await ours.receive("jobs")

    assert nothing
    assert (nothing.id, nothing.body) == (ID, None)
    assert got is None
    assert await wire.keys() == {"QUEUES": "set", "jobs:Q": "hash"}


async def test_receive_message_with_count_but_no_first_time_repairs_it(
    wire: Wire, ours: Ours, foreign: Foreign
) -> None:
    """A message that makes PyRSMQ stumble is whole again once we have received it."""
    await wire.plant("jobs", SOUND | {ID: "work", f"{ID}:rc": 2}, (ID,))
    before = await wire.now_ms()
    got = await ours.receive("jobs", vt=0)
    again = await foreign.receive("jobs")
    after = await wire.now_ms()

    assert got
    assert (got.id, got.body, got.rc) == (ID, "work", 3)
    assert before <= got.fr <= after
    assert again
    assert (again.rc, again.fr) == (4, got.fr)


@pytest.mark.parametrize("verb", ["delete", "pop", "ack", "purge"])
async def test_remove_message_with_metadata_removes_that_too(
    wire: Wire, rsmq: RSMQ, verb: str
) -> None:
    """The metadata that apalis keeps beside a message goes with it."""
    fields = SOUND | {"totalsent": 1, "totalrecv": 0, ID: "work", f"{ID}:meta": "{}"}
    await wire.plant("jobs", fields, (ID,))
    queue = rsmq.queue("jobs")
    if verb == "ack":
        delivery = await queue.receive()
        assert delivery
        await delivery.ack()
    elif verb == "delete":
        assert await queue.delete(ID)
    else:
        assert await getattr(queue, verb)()

    assert (await wire.hash("jobs")).keys() == EMPTY_FIELDS


async def test_receive_message_with_metadata_leaves_that_alone(wire: Wire, receiver: Peer) -> None:
    """The metadata that apalis keeps beside a message disturbs no client."""
    await wire.plant("jobs", SOUND | {ID: "work", f"{ID}:meta": "{}"}, (ID,))
    got = await receiver.receive("jobs")

    assert got
    assert (got.id, got.body, got.rc) == (ID, "work", 1)
    assert (await wire.hash("jobs"))[f"{ID}:meta"] == "{}"


@pytest.mark.parametrize("verb", ["ack", "delete", "extend", "change_visibility"])
async def test_settle_message_with_short_rust_id_works(wire: Wire, rsmq: RSMQ, verb: str) -> None:
    """Messages of old Rust clients can be received and settled; their send time is unknown."""
    await wire.plant("jobs", SOUND | {SHORT_ID: "work"}, (SHORT_ID,))
    queue = rsmq.queue("jobs")
    delivery = await queue.receive()
    assert delivery
    assert len(delivery.id) == 30
    assert (delivery.id, delivery.text, delivery.sent) == (SHORT_ID, "work", None)
    match verb:
        case "ack":
            await delivery.ack()
        case "delete":
            assert await queue.delete(delivery.id)
        case "extend":
            await delivery.extend(0)
        case _:
            assert await queue.change_visibility(delivery.id, 0)
    again = await queue.receive()

    assert (again is not None) == (verb in ("extend", "change_visibility"))


@pytest.mark.node
async def test_delete_message_with_short_rust_id_is_beyond_node(
    wire: Wire, node: Foreign, ours: Ours
) -> None:
    """Node receives the messages of old Rust clients but cannot delete them; we can."""
    await wire.plant("jobs", SOUND | {SHORT_ID: "work"}, (SHORT_ID,))
    got = await node.receive("jobs")
    refused = await refusal(node.delete("jobs", SHORT_ID))

    assert got
    assert got.id == SHORT_ID
    assert refused == "invalidFormat"
    assert await ours.delete("jobs", SHORT_ID)
