"""Queues made, described, changed and deleted by one client, as the others see them."""

from __future__ import annotations

import pytest
from redis.asyncio import Redis

from aiorsmq_ng import RSMQ, Options

from .peers import Foreign, Ours, Peer, refusal
from .wire import Wire

HOURS_S = 10_000
ID = "g73zkl38qzSBNq2NcnVVlCldqwqFXRJd"


@pytest.mark.node
async def test_describe_queue_of_any_maker_agrees(
    maker: Peer, sender: Peer, receiver: Peer, all_peers: list[Peer]
) -> None:
    """All clients tell the same about a queue."""
    await maker.create("jobs", vt=HOURS_S, delay=3, maxsize=2000)
    await sender.send("jobs", "leased", delay=0)
    await sender.send("jobs", "delayed", delay=HOURS_S)
    await receiver.receive("jobs")
    told = [await peer.attributes("jobs") for peer in all_peers]

    assert told[0] == told[1] == told[2]
    assert told[0] | {"created": 0, "modified": 0} == {
        "vt": HOURS_S,
        "delay": 3,
        "maxsize": 2000,
        "totalrecv": 1,
        "totalsent": 2,
        "created": 0,
        "modified": 0,
        "msgs": 2,
        "hiddenmsgs": 2,
    }


@pytest.mark.node
@pytest.mark.parametrize(
    "change",
    [{"vt": 7}, {"delay": 8}, {"maxsize": 2048}, {"maxsize": -1}, {"vt": 0, "delay": 9999999}],
    ids=str,
)
async def test_set_attributes_by_one_client_is_seen_by_all(
    maker: Peer, deleter: Peer, all_peers: list[Peer], change: dict[str, int]
) -> None:
    """What one client changes on a queue holds for all."""
    await maker.create("jobs", vt=1, delay=2, maxsize=1024)
    await deleter.set_attributes("jobs", **change)
    told = [await peer.attributes("jobs") for peer in all_peers]

    assert told[0] == told[1] == told[2]
    assert {name: told[0][name] for name in ("vt", "delay", "maxsize")} == {
        "vt": 1,
        "delay": 2,
        "maxsize": 1024,
        **change,
    }


async def test_create_queue_of_other_maker_is_refused(maker: Peer, deleter: Peer) -> None:
    """I get an error if the queue exists already, whichever client made it."""
    await maker.create("jobs", vt=5)

    assert await refusal(deleter.create("jobs")) == "queueExists"
    assert (await deleter.attributes("jobs"))["vt"] == 5


async def test_create_queue_of_other_maker_with_exist_ok_keeps_it(
    maker: Peer, rsmq: RSMQ, wire: Wire
) -> None:
    """Accepting a queue that is there changes nothing on it."""
    await maker.create("jobs", vt=5)
    before = await wire.hash("jobs")
    await rsmq.create_queue("jobs", vt=60, exist_ok=True)

    assert await wire.hash("jobs") == before


@pytest.mark.node
async def test_list_queues_shows_those_of_every_maker(all_peers: list[Peer]) -> None:
    """Every client lists the queues of all."""
    for peer in all_peers:
        await peer.create(f"made-by-{peer.name}")

    assert [await peer.list() for peer in all_peers] == [
        ["made-by-node", "made-by-ours", "made-by-pyrsmq"]
    ] * 3


@pytest.mark.node
async def test_delete_queue_by_one_client_removes_it_for_all(
    maker: Peer, deleter: Peer, all_peers: list[Peer], wire: Wire
) -> None:
    """A deleted queue is gone for all clients, with its messages."""
    await maker.create("jobs")
    await maker.send("jobs", "lost")
    await deleter.delete_queue("jobs")

    assert await wire.keys() == {}
    assert [await peer.list() for peer in all_peers] == [[]] * 3
    assert [await refusal(peer.send("jobs", "x")) for peer in all_peers] == ["queueNotFound"] * 3
    assert [await refusal(peer.delete_queue("jobs")) for peer in all_peers] == ["queueNotFound"] * 3


@pytest.mark.parametrize(
    ("verb", "arguments"),
    [
        ("send", ("x",)),
        ("receive", ()),
        ("pop", ()),
        ("attributes", ()),
        ("change_visibility", (ID, 5)),
    ],
)
async def test_use_missing_queue_is_refused_with_same_word(
    receiver: Peer, verb: str, arguments: tuple[object, ...]
) -> None:
    """I need not know which client said it to understand that a queue is missing."""
    assert await refusal(getattr(receiver, verb)("nowhere", *arguments)) == "queueNotFound"


# PyRSMQ replaces what it does not like by a default, without a word.
@pytest.mark.parametrize(
    "maker", ["ours", pytest.param("node", marks=pytest.mark.node)], indirect=True
)
@pytest.mark.parametrize(
    ("name", "attributes", "code"),
    [
        ("a b", {}, "invalidFormat"),
        ("a.b", {}, "invalidFormat"),
        ("x" * 161, {}, "invalidFormat"),
        ("", {}, "missingParameter"),
        ("jobs", {"vt": -1}, "invalidValue"),
        ("jobs", {"vt": 10_000_000}, "invalidValue"),
        ("jobs", {"delay": -1}, "invalidValue"),
        ("jobs", {"maxsize": 1023}, "invalidValue"),
        ("jobs", {"maxsize": 65537}, "invalidValue"),
    ],
)
async def test_create_queue_beyond_limits_is_refused_with_same_word(
    maker: Peer, name: str, attributes: dict[str, int], code: str
) -> None:
    """Our limits and our words for them are RSMQ's."""
    assert await refusal(maker.create(name, **attributes)) == code


async def test_use_name_only_pyrsmq_allows_works_on_request(
    server_url: str, ns: str, pyrsmq: Foreign, ours: Ours
) -> None:
    """Queues that PyRSMQ gave names with dots, spaces or umlauts are within my reach."""
    name = "w\u00f6rk list.1"
    await pyrsmq.create(name)
    id = await pyrsmq.send(name, "work")
    refused = await refusal(ours.receive(name))
    async with RSMQ(server_url, ns=ns, options=Options(foreign_names=True)) as lax:
        delivery = await lax.queue(name).receive()
        assert delivery
        await delivery.ack()

    assert refused == "invalidFormat"
    assert delivery.id == id
    assert await ours.list() == [name]
    assert (await pyrsmq.attributes(name))["msgs"] == 0


async def test_purge_queue_of_other_client_leaves_it_usable(
    rsmq: RSMQ, foreign: Foreign, wire: Wire
) -> None:
    """After a purge the other clients find an empty queue with its counters."""
    await foreign.create("jobs")
    for n in range(3):
        await foreign.send("jobs", f"body {n}")
    await foreign.receive("jobs")
    free = await rsmq.queue("jobs").purge()
    rest = await rsmq.queue("jobs").purge(leased=True)
    told = await foreign.attributes("jobs")

    assert (free, rest) == (2, 1)
    assert (told["msgs"], told["totalsent"], told["totalrecv"]) == (0, 3, 1)
    assert await wire.keys() == {"QUEUES": "set", "jobs:Q": "hash"}


async def test_peek_at_messages_of_other_client_changes_nothing(
    rsmq: RSMQ, foreign: Foreign, wire: Wire
) -> None:
    """Looking at messages does not show in what other clients receive."""
    await foreign.create("jobs")
    id = await foreign.send("jobs", "work")
    before = await wire.hash("jobs"), await wire.score("jobs", id)
    peeked = await rsmq.queue("jobs").peek()

    assert [(m.id, m.text, m.rc) for m in peeked] == [(id, "work", 0)]
    assert (await wire.hash("jobs"), await wire.score("jobs", id)) == before


async def test_delete_by_other_client_leaves_only_what_expires(
    rsmq: RSMQ, foreign: Foreign, wire: Wire, raw: Redis
) -> None:
    """What we keep beside RSMQ's keys goes away by itself if others delete the queue."""
    queue = await rsmq.create_queue("jobs")
    await queue.send("work")
    for _ in range(2):
        await queue.receive(vt=0)
    await foreign.delete_queue("jobs")
    left = await wire.keys()
    lifetimes = [await raw.ttl(wire.key(key)) for key in left]

    assert all(":ng:" in key for key in left)
    assert all(0 < seconds <= 14 * 86400 for seconds in lifetimes)


async def test_dedup_keys_end_with_a_queue_that_another_client_makes_again(
    foreign: Foreign, rsmq: RSMQ
) -> None:
    """Our note in the hash disturbs no client, and is deleted with the queue, by any client."""
    await foreign.create("jobs")
    queue = rsmq.queue("jobs")
    before = await queue.send("x", dedup_key="k")
    told = await foreign.attributes("jobs")
    got = await foreign.receive("jobs")
    await foreign.delete_queue("jobs")
    await foreign.create("jobs")
    await foreign.send("jobs", "between")
    after = await queue.send("x", dedup_key="k")

    assert (told["msgs"], told["totalsent"]) == (1, 1)
    assert got is not None
    assert got.id == before
    assert (after.duplicate, (await queue.send("x", dedup_key="k")).duplicate) == (False, True)
    assert [m.text for m in await queue.peek()] == ["between", "x"]
