"""A history that breaks a rule is found out, and one that keeps them all is not."""

import asyncio
import re
from importlib.resources import files

import pytest

from aiorsmq_ng import RSMQ
from aiorsmq_ng.testing import FaultProxy, operation, temporary_client
from tools.lab import (
    History,
    Inventory,
    RecordedQueue,
    ResourceSnapshot,
    StoredQueue,
    check,
    inventory,
)

from ..support.deadlines import hurrying


class Clock:
    """A clock that is set by hand."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def history(clock):
    return History(clock=clock)


def sent(history, key, id=None):
    history.sending(key)
    history.acked(key, id or f"id-{key}")


def received(history, clock, key, rc=1, *, id=None, holder="h", vt=10.0, took=0.1):
    call = history.receiving(holder)
    begun = clock.now
    clock.now += took
    history.received(call, id or f"id-{key}", rc, key, holder=holder, begun=begun, vt=vt)


def settled(history, clock, key, rc=1, how="ack", took=0.1):
    begun = clock.now
    history.settling(f"id-{key}", rc, how)
    clock.now += took
    history.settled(f"id-{key}", rc, how, begun=begun)


def stock(*keys, sent=0, received=0, marks=()):
    return StoredQueue(
        {f"id-{k}": 0.0 for k in keys},
        {f"id-{k}": k.encode() for k in keys},
        frozenset(marks),
        sent,
        received,
    )


def broken(history, state, **settings):
    """The rules that a check finds broken."""
    return sorted({v.oracle for v in check(history, state, **settings).violations})


def test_plain_history_breaks_no_rule(history, clock):
    sent(history, "a")
    sent(history, "b")
    sent(history, "c")
    received(history, clock, "a")
    settled(history, clock, "a")
    received(history, clock, "b")
    settled(history, clock, "b", how="reject")
    state = Inventory(stock("c", sent=3, received=2), stock("b", marks=["id-b:rc", "id-b:fr"]))

    verdict = check(history, state, strict=True)

    verdict.require()
    assert verdict.ok
    assert (verdict.acked, verdict.delivered, verdict.redelivered) == (3, 2, 0)
    assert str(verdict).startswith("3 acked, 0 unknown, 0 failed, 2 delivered")


# O1


def test_acked_message_that_is_nowhere_is_lost(history):
    sent(history, "a")
    sent(history, "b")
    state = Inventory(stock("a", sent=2))

    verdict = check(history, state)

    assert verdict.lost == 1
    assert [v.oracle for v in verdict.violations] == ["O1"]
    with pytest.raises(AssertionError, match="1 acked messages are lost: id-b"):
        verdict.require()


def test_body_that_no_id_leads_to_is_lost(history):
    sent(history, "a")
    state = Inventory(StoredQueue({}, {"id-a": b"a"}, totalsent=1))

    assert broken(history, state) == ["O1", "O3"]


def test_pop_whose_reply_was_lost_may_have_destroyed_one_message(history):
    sent(history, "a")
    call = history.popping("h")
    history.unclaimed(call)

    assert broken(history, Inventory(stock(sent=1, received=1))) == []
    sent(history, "b")
    assert broken(history, Inventory(stock(sent=2, received=1))) == ["O1"]


def test_message_stored_twice_is_a_copy(history, clock):
    sent(history, "a")
    received(history, clock, "a", id="id-other")
    state = Inventory(stock("a", sent=2, received=1))
    history.settling("id-other", 1, "ack")

    verdict = check(history, state)

    assert verdict.copies == 1
    assert {v.oracle for v in verdict.violations} == {"O1"}


@pytest.mark.parametrize("there", [True, False])
def test_send_of_unknown_fate_is_stored_or_not_unless_the_check_is_strict(history, there):
    history.sending("a")
    history.unknown("a")
    state = Inventory(stock("a", sent=1) if there else stock())

    assert broken(history, state) == []
    assert check(history, state).unknown == 1
    assert broken(history, state, strict=True) == ["O1"]


def test_send_that_its_process_did_not_survive_is_of_unknown_fate(history):
    history.sending("a")

    assert check(history, Inventory()).unknown == 1
    assert broken(history, Inventory(stock("a", sent=1))) == []


def test_send_that_failed_and_is_stored_all_the_same_is_found(history):
    history.sending("a")
    history.failed("a")

    assert broken(history, Inventory()) == []
    assert broken(history, Inventory(stock("a", sent=1))) == ["O1"]


# O2


def test_second_holder_under_a_valid_lease_is_found(history, clock):
    sent(history, "a")
    received(history, clock, "a", 1, holder="first", vt=10)
    clock.now += 5
    received(history, clock, "a", 2, holder="second", vt=10)

    verdict = check(history, Inventory(stock("a", sent=1, received=2)))

    assert verdict.overlaps == 1
    (violation,) = verdict.violations
    assert violation.oracle == "O2"
    assert str(violation).endswith("id-a went to 'second' under the lease of 'first'")


@pytest.mark.parametrize("end", ["lease over", "released", "slow reply"])
def test_second_holder_after_the_lease_of_the_first_is_none(history, clock, end):
    sent(history, "a")
    received(history, clock, "a", 1, vt=10)
    if end == "released":
        settled(history, clock, "a", how="release")
    if end == "lease over":
        clock.now += 10
    # The reply may have been on its way until the lease had ended.
    received(history, clock, "a", 2, took=10 if end == "slow reply" else 0.1)

    assert broken(history, Inventory(stock("a", sent=1, received=2))) == []


def test_second_holder_within_an_extended_lease_is_found(history, clock):
    sent(history, "a")
    received(history, clock, "a", 1, vt=10)
    clock.now += 5
    history.extended("id-a", 1, begun=clock.now, vt=20)
    clock.now += 15
    received(history, clock, "a", 2)

    assert broken(history, Inventory(stock("a", sent=1, received=2))) == ["O2"]


def test_delivery_that_two_callers_got_is_found(history, clock):
    sent(history, "a")
    received(history, clock, "a", 1, vt=1)
    clock.now += 10
    received(history, clock, "a", 1, vt=1)

    assert broken(history, Inventory(stock("a", sent=1, received=2))) == ["O2"]


@pytest.mark.parametrize("how", ["ack", "release", "extend"])
def test_stale_receipt_that_was_accepted_is_found(history, clock, how):
    sent(history, "a")
    received(history, clock, "a", 1, vt=1)
    clock.now += 2
    received(history, clock, "a", 2, vt=1)
    clock.now += 2
    if how == "extend":
        history.extended("id-a", 1, begun=clock.now, vt=1)
    else:
        settled(history, clock, "a", 1, how=how)
    left = () if how == "ack" else ("a",)

    assert broken(history, Inventory(stock(*left, sent=1, received=2))) == ["O2"]


def test_stale_receipt_that_was_refused_is_as_it_should_be(history, clock):
    sent(history, "a")
    received(history, clock, "a", 1, vt=1)
    clock.now += 2
    received(history, clock, "a", 2, vt=1)
    history.lost("id-a", 1, "ack", begun=clock.now)
    settled(history, clock, "a", 2)

    verdict = check(history, Inventory(stock(sent=1, received=2)))

    assert verdict.ok
    assert verdict.refused == 1


# O3


def test_message_that_vanished_without_an_ack_is_found(history, clock):
    sent(history, "a")
    received(history, clock, "a")
    state = Inventory(stock(sent=1, received=1))

    assert broken(history, state) == ["O3"]
    history.settling("id-a", 1, "ack")  # its reply was lost: it may have been done
    assert broken(history, state) == []


def test_message_that_is_there_after_its_ack_is_found(history, clock):
    sent(history, "a")
    received(history, clock, "a")
    settled(history, clock, "a")

    assert broken(history, Inventory(stock("a", sent=1, received=1))) == ["O3"]


def test_message_that_is_delivered_after_its_ack_is_found(history, clock):
    sent(history, "a")
    received(history, clock, "a")
    settled(history, clock, "a")
    clock.now += 1
    received(history, clock, "a", 2)

    assert broken(history, Inventory(stock(sent=1, received=2))) == ["O3"]


@pytest.mark.parametrize(
    "left",
    [
        StoredQueue({"id-x": 0.0}, {}),
        StoredQueue({}, {}, frozenset({"id-x:rc"})),
        StoredQueue({}, {}, frozenset({"id-x:fr"})),
    ],
    ids=["id without body", "leaked rc", "leaked fr"],
)
def test_what_is_left_over_is_found(history, left):
    assert broken(history, Inventory(left)) == ["O3"]
    assert broken(history, Inventory(dead=left)) == ["O3"]


# O4


@pytest.mark.parametrize(("count", "rules"), [(0, ["O4"]), (1, []), (2, ["O4"])])
def test_counter_of_sends_that_drifted_is_found(history, count, rules):
    sent(history, "a")
    state = Inventory(stock("a", sent=count))

    assert broken(history, state) == rules
    assert check(history, state).drift == count - 1
    assert broken(history, state, skip=["O4"]) == []


@pytest.mark.parametrize(("count", "rules"), [(0, ["O4"]), (1, []), (2, ["O4"])])
def test_counter_of_deliveries_that_drifted_is_found(history, clock, count, rules):
    sent(history, "a")
    received(history, clock, "a")

    assert broken(history, Inventory(stock("a", sent=1, received=count))) == rules


# O5


def test_reply_of_another_request_is_found(history, clock):
    sent(history, "a")
    sent(history, "b")
    received(history, clock, "b", id="id-a")

    assert "O5" in broken(history, Inventory(stock("a", "b", sent=2, received=1)))


def test_body_that_was_never_sent_is_found(history):
    assert "O5" in broken(history, Inventory(stock("a", sent=1)))


# O7


def test_lease_without_holder_is_stranded(history):
    sent(history, "a")
    history.unclaimed(history.receiving("h"))
    state = Inventory(stock("a", sent=1, received=1))

    assert broken(history, state) == []
    assert check(history, state).stranded == 1
    assert broken(history, state, strict=True) == ["O7"]


def test_receive_that_its_process_did_not_survive_may_have_taken_a_message(history):
    sent(history, "a")
    history.receiving("h", count=2)

    assert broken(history, Inventory(stock("a", sent=1, received=2))) == []
    assert broken(history, Inventory(stock("a", sent=1, received=3))) == ["O4"]


def test_queue_that_is_not_drained_as_it_is_said_to_be_is_found(history, clock):
    sent(history, "a")
    history.fault_over()
    clock.now += 7
    history.drained()

    assert broken(history, Inventory(stock("a", sent=1))) == ["O7"]
    received(history, clock, "a")
    settled(history, clock, "a")
    done = Inventory(stock(sent=1, received=1))
    assert broken(history, done) == []
    assert broken(history, done, drain_within_s=7) == []
    assert broken(history, done, drain_within_s=6) == ["O7"]
    assert broken(History(), Inventory(), drain_within_s=6) == ["O7"]


# O8


def test_exception_that_is_not_documented_is_found(history):
    from aiorsmq_ng import Unavailable

    history.escaped(Unavailable("gone"))
    assert broken(history, Inventory()) == []

    history.escaped(AttributeError("writelines"))
    assert [v.what for v in check(history, Inventory()).violations] == [
        "AttributeError: writelines"
    ]


# Writing, reading, recording


def test_history_is_read_as_it_was_written(history, clock, tmp_path):
    sent(history, "a")
    received(history, clock, "a")
    settled(history, clock, "a")
    history.write(tmp_path / "all.jsonl")

    assert list(History.read(tmp_path / "all.jsonl")) == list(history)


def test_histories_of_several_processes_are_put_together(clock, tmp_path):
    paths = [tmp_path / "1", tmp_path / "2"]
    one, two = (History(clock=clock, name=path.name, path=path) for path in paths)
    sent(one, "a")
    clock.now += 1
    received(two, clock, "a")
    clock.now += 1
    one.receiving("h")
    one.close()
    two.close()
    with paths[1].open("a") as file:
        file.write('{"kind": "rec')  # killed while it wrote

    both = History.read(*paths)

    assert [e.kind for e in both] == ["sending", "acked", "receiving", "received", "receiving"]
    assert len({e.call for e in both.of("receiving")}) == 2
    assert broken(both, Inventory(stock("a", sent=1, received=2))) == []


@pytest.fixture(params=["memory", "server"])
async def rsmq(request):
    url = "memory://" if request.param == "memory" else request.getfixturevalue("server_url")
    async with temporary_client(url) as client:
        yield client


def test_inventory_takes_the_same_fields_for_a_queues_own_as_the_scripts_do():
    text = files("aiorsmq_ng._protocol.scripts").joinpath("shared/_queue_fields.lua").read_text()

    assert set(re.findall(r"'([^']+)'", text.partition("{")[2])) == inventory._ATTRIBUTES


async def test_recorded_queue_and_its_inventory_keep_all_rules(rsmq):
    history = History()
    queue = await rsmq.create_queue("jobs")
    recorded = RecordedQueue(queue, history, "me")
    for key in "abcdef":
        assert await recorded.send(key)
    await recorded.ack(await recorded.receive())
    await recorded.reject(await recorded.receive(), "no")
    assert await recorded.release(await recorded.receive(), 60)
    held = await recorded.receive(vt=30)
    assert await recorded.extend(held, 60)
    assert (await recorded.pop()).text == "e"
    again = await recorded.receive()
    await queue.change_visibility(again.id, 0)
    assert (await recorded.receive()).rc == again.rc + 1
    assert not await recorded.ack(again)

    state = await Inventory.read(queue)
    verdict = check(history, state)

    assert set(state.queue.bodies.values()) == {b"c", b"d", b"f"}
    assert set(state.dead.bodies.values()) == {b"b"}
    assert (verdict.acked, verdict.delivered, verdict.refused) == (6, 6, 1)
    # The lease was shortened by id, as other clients do: the one thing that is wrong here.
    assert [v.oracle for v in verdict.violations] == ["O2"]


async def test_lost_replies_are_recorded_as_what_they_are(server_url, ns):
    history = History()
    async with FaultProxy(server_url) as proxy, RSMQ(proxy.url, ns=ns) as rsmq:
        queue = await rsmq.create_queue("jobs")
        recorded = RecordedQueue(queue, history, "me")
        await recorded.send("a")
        await recorded.ack(await recorded.receive())
        await recorded.send("b")
        await recorded.send("c")
        proxy.drop_reply(operation("pop"))
        assert await recorded.pop() is None  # the script is missing, and nothing runs
        await recorded.pop()
        await recorded.send("d")
        proxy.drop_reply(operation("pop"))
        assert await recorded.pop() is None

        verdict = check(history, await Inventory.read(queue))
        verdict.require()
        assert verdict.stranded >= 1


async def test_send_that_certainly_did_not_run_is_recorded_as_failed(server_url, ns):
    history = History()
    async with FaultProxy(server_url) as proxy, RSMQ(proxy.url, ns=ns) as rsmq:
        queue = await rsmq.create_queue("jobs", maxsize=1024)
        await proxy.refuse()
        await asyncio.sleep(0.05)  # until the client sees that its connection is closed
        recorded = RecordedQueue(queue, history)
        with hurrying(rsmq):
            assert await recorded.send("a") is None
            assert await recorded.receive() is None
            assert await recorded.pop() is None
        await proxy.resume()
        assert await recorded.send("x" * 2000) is None

        verdict = check(history, await Inventory.read(queue), strict=True)
    verdict.require()
    assert verdict.failed == 2


async def test_cancelled_calls_are_of_unknown_outcome(rsmq):
    history = History()
    queue = await rsmq.create_queue("jobs")
    recorded = RecordedQueue(queue, history)
    calls = [recorded.send("a"), recorded.receive(wait=10), recorded.pop()]
    tasks = [asyncio.create_task(call) for call in calls]
    # All have begun, and no reply can be there yet.
    await asyncio.sleep(0)
    for task in tasks:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)

    assert [type(outcome) for outcome in outcomes] == [asyncio.CancelledError] * 3
    kinds = sorted(e.kind for e in history if "ing" not in e.kind)
    assert kinds == ["unclaimed"] * 2 + ["unknown"]
    check(history, await Inventory.read(queue)).require()


async def test_census_tells_what_has_grown(server_url, ns):
    async with RSMQ(server_url, ns=ns) as rsmq:
        before = await ResourceSnapshot.take(rsmq)
        assert (await ResourceSnapshot.take(rsmq)).growth(before) == []

        other = await RSMQ(server_url, ns=ns).open()
        tasks, connections = (await ResourceSnapshot.take(rsmq)).growth(before)
        assert tasks.startswith("tasks: ")
        assert connections.startswith("connections: ")
        await other.aclose()

    assert ResourceSnapshot(1, 100, 1).growth(ResourceSnapshot(1, 96, 1)) == []
    assert ResourceSnapshot(1, 106, 1).growth(ResourceSnapshot(1, 100, 1)) == [
        "memory: 100 bytes, now 106"
    ]
    assert ResourceSnapshot(1, None, 1).growth(ResourceSnapshot(1, 100, 1)) == []
