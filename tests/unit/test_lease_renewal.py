"""Leases in hand: when they are renewed, when they are let go, what follows what on the wire."""

import asyncio
import time
from collections import Counter
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import count

import pytest

from aiorsmq_ng import LeaseLost, QueueNotFound, Unavailable
from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.operations import messages
from aiorsmq_ng._protocol.operations.message_values import Leased
from aiorsmq_ng._runtime.dead_letter_listeners import DeadLetterReports
from aiorsmq_ng._runtime.lease_renewal import LeaseKeeper, lose
from aiorsmq_ng._runtime.prefetch import Prefetch, still_leased
from aiorsmq_ng._runtime.presence import Presence
from aiorsmq_ng.consumer import Consumer
from aiorsmq_ng.delivery import Delivery, QueueContext

from ..support.driver import ScriptedDriver, transport_on
from ..support.waiting import until

NAMESPACE = Namespace("rsmq")
RENEWAL, SEND = messages.VISIBILITY, messages.SEND
LEASE_S = 30


@pytest.fixture
def quick_close(monkeypatch):
    """Closing does not wait long for calls that are never answered."""
    monkeypatch.setattr("aiorsmq_ng._transport.transport.CLOSE_S", 0.01)


class Scene:
    """A transport on a scripted driver, with a keeper and deliveries on top."""

    def __init__(self, answer):
        self.driver = ScriptedDriver(answer)
        self.transport = transport_on(self.driver, deadline_s=60)
        self.keeper = LeaseKeeper(self.transport)
        self._ids = count()

    def origin(self, queue="jobs"):
        return QueueContext(
            keys=NAMESPACE.queue(queue),
            transport=self.transport,
            keeper=self.keeper,
            presence=Presence(self.transport, self.keeper),
            letters=DeadLetterReports(),
            sibling=NAMESPACE.queue,
            channel=lambda keys: keys.wake,
            dead_letter="dead",
        )

    def delivery(self, queue="jobs", *, lease_s=LEASE_S, used_s=0.0, body=b"x"):
        """Return a delivery of which *used_s* of the lease are gone."""
        id = f"{next(self._ids):032d}"
        leased = Leased(id, body, 1, 17, NAMESPACE.queue(queue), int(lease_s * 1000))
        return Delivery(leased, self.origin(queue), now() + lease_s - used_s)

    def due(self, queue="jobs"):
        """Return a delivery whose renewal is due, with plenty of time to renew it."""
        return self.delivery(queue, used_s=LEASE_S / 3)

    def sent(self, kind):
        """Return the commands written so far that are of one kind."""
        return [c for c in self.driver.commands if c.kind is kind]


def now():
    return asyncio.get_running_loop().time()


def gate():
    return asyncio.get_running_loop().create_future()


def fine(command):
    """Answer that every receipt held."""
    return [[1]] if command.kind in (messages.ACK, messages.ACK_MANY, messages.DELETE) else [1]


async def settle_down():
    """Let everything run that can run without a reply."""
    for _ in range(50):
        await asyncio.sleep(0)


@asynccontextmanager
async def scene(answer=fine):
    it = Scene(answer)
    await it.transport.start()
    try:
        yield it
    finally:
        for lease in it.keeper.kept():
            it.keeper.drop(lease)
        await it.transport.aclose()


async def test_renewal_that_succeeds_moves_the_end_of_the_lease_on():
    async with scene() as s:
        delivery = s.due()
        before = delivery.lease.expires_at
        delivery.hold()
        await until(lambda: delivery.lease.expires_at != before)

    assert delivery.lease.expires_at > before + LEASE_S / 4
    assert not delivery.lease_lost


async def test_renewal_that_succeeds_is_followed_by_the_next_only_when_that_is_due():
    async with scene() as s:
        delivery = s.due()
        delivery.hold()
        await until(lambda: s.sent(RENEWAL))
        await asyncio.sleep(0.1)

        assert len(s.sent(RENEWAL)) == 1


async def test_renewal_that_fails_is_tried_again():
    def answer(command):
        if len(s.sent(RENEWAL)) == 1:
            raise Unavailable("redis refused it")
        return fine(command)

    async with scene(answer) as s:
        delivery = s.delivery(lease_s=4, used_s=2)
        delivery.hold()
        await until(lambda: len(s.sent(RENEWAL)) == 2)

        assert delivery.lease in s.keeper.kept()
        assert not delivery.lease_lost


async def test_renewal_that_fails_waits_for_its_time_before_it_is_tried_again(caplog):
    def answer(command):
        raise Unavailable("redis refused it")

    async with scene(answer) as s:
        held = [s.due() for _ in range(20)]
        for delivery in held:
            delivery.hold()
        await until(lambda: s.sent(RENEWAL))
        for _ in range(10):
            await settle_down()

        tried = Counter(r.id for c in s.sent(RENEWAL) for r in c.requests)
        assert tried == {delivery.id: 1 for delivery in held}
        assert all(delivery.lease.renew_at > now() for delivery in held)
        assert [r.levelname for r in caplog.records].count("WARNING") == 1


async def test_lease_in_a_queue_that_is_gone_is_lost():
    def answer(command):
        raise QueueNotFound("jobs", "rsmq")

    async with scene(answer) as s:
        delivery = s.due()
        told = []
        delivery.hold(lambda: told.append(delivery.id))
        await until(lambda: told)

        assert delivery.lease_lost
        assert len(s.sent(RENEWAL)) == 1
        assert s.keeper.kept() == []


async def test_callback_for_a_lost_lease_that_raises_is_logged_and_the_client_goes_on(caplog):
    def refuse():
        raise ZeroDivisionError("a fault of the program")

    async with scene() as s:
        over, well = s.delivery(used_s=LEASE_S - 2), s.due()
        over.hold(refuse)
        well.hold()
        await until(lambda: over.lease_lost and s.sent(RENEWAL))
        await settle_down()
        await over.ack()

        assert well.lease in s.keeper.kept()
        assert "a fault of the program" in caplog.text


@pytest.mark.usefixtures("quick_close")
async def test_renewal_without_an_answer_does_not_hold_up_the_others():
    def answer(command):
        return gate() if command.key == "rsmq:stuck" else fine(command)

    async with scene(answer) as s:
        stuck, well = s.due("stuck"), s.delivery("well", lease_s=0.3)
        stuck.hold()
        well.hold()
        await until(lambda: len(s.sent(RENEWAL)) >= 5 or well.lease_lost)

        assert not well.lease_lost
        assert stuck.lease in s.keeper.kept()


@pytest.mark.usefixtures("quick_close")
async def test_renewal_without_a_reply_is_reported_before_the_lease_ends():
    async with scene(lambda _: gate()) as s:
        delivery = s.delivery(used_s=LEASE_S - 3.01)
        told = []
        delivery.hold(lambda: told.append(now()))
        await until(lambda: told)

    assert told[0] < delivery.lease.expires_at
    assert delivery.lease_lost


async def test_lease_of_no_length_is_not_kept():
    async with scene() as s:
        delivery = s.delivery(lease_s=0)
        delivery.hold()

        assert delivery.lease not in s.keeper.kept()


SETTLING = {
    "ack": lambda d: d.ack(),
    "release": lambda d: d.release(),
    "reject": lambda d: d.reject(),
    "forward": lambda d: d.forward("next"),
}


def settled(command):
    return 1 if command.kind in (messages.REJECT, messages.FORWARD) else fine(command)


@pytest.mark.parametrize("verb", SETTLING)
async def test_settling_ends_the_renewals(verb):
    async with scene(settled) as s:
        delivery = s.delivery()
        delivery.hold()
        await SETTLING[verb](delivery)

        assert delivery.lease not in s.keeper.kept()


@pytest.mark.parametrize("verb", SETTLING)
async def test_settling_that_fails_goes_on_with_the_renewals(verb):
    def answer(command):
        raise Unavailable("redis refused it")

    async with scene(answer) as s:
        delivery = s.delivery()
        delivery.hold()
        with pytest.raises(Unavailable):
            await SETTLING[verb](delivery)

        assert delivery.lease in s.keeper.kept()
        assert not delivery.settled


async def test_settling_that_fails_starts_no_renewals_where_there_were_none():
    def answer(command):
        raise Unavailable("redis refused it")

    async with scene(answer) as s:
        delivery = s.delivery()
        with pytest.raises(Unavailable):
            await delivery.ack()

        assert delivery.lease not in s.keeper.kept()


@pytest.mark.parametrize("verb", ["release", "extend"])
async def test_change_of_visibility_is_not_written_before_the_renewal_under_way_is_answered(verb):
    renewing = gate()

    def answer(command):
        return renewing if len(s.sent(RENEWAL)) == 1 else [1]

    async with scene(answer) as s:
        delivery = s.due()
        delivery.hold()
        await until(lambda: s.sent(RENEWAL))
        changing = asyncio.create_task(
            delivery.release() if verb == "release" else delivery.extend(60)
        )
        await settle_down()
        written = len(s.driver.commands)
        renewing.set_result([1])
        await changing

        assert written == 1
        assert s.driver.commands[1].requests[-1].vt_ms == (0 if verb == "release" else 60_000)


@pytest.mark.usefixtures("quick_close")
async def test_release_after_the_lease_was_given_up_still_follows_the_renewal_under_way():
    """The renewal may reach the server late; overtaking the release it would hide the message."""
    renewing = gate()

    def answer(command):
        return renewing if len(s.sent(RENEWAL)) == 1 else [1]

    async with scene(answer) as s:
        delivery = s.delivery(used_s=LEASE_S - 3.01)
        delivery.hold()
        await until(lambda: delivery.lease_lost)
        releasing = asyncio.create_task(delivery.release())
        await settle_down()
        written = len(s.driver.commands)
        renewing.set_result([1])
        await releasing

        assert written == 1
        assert s.driver.commands[1].requests[-1].vt_ms == 0


async def test_release_follows_an_extension_whose_caller_was_cancelled():
    """The extension may reach the server late; overtaking the release it would hide the message."""
    extending = gate()

    def answer(command):
        return extending if len(s.sent(RENEWAL)) == 1 else [1]

    async with scene(answer) as s:
        delivery = s.delivery()
        delivery.hold()
        extension = asyncio.create_task(delivery.extend(600))
        await until(lambda: s.sent(RENEWAL))
        extension.cancel()
        releasing = asyncio.create_task(delivery.release())
        await settle_down()
        written = len(s.driver.commands)
        extending.set_result([1])
        await releasing

        assert extension.cancelled()
        assert written == 1
        assert s.driver.commands[1].requests[-1].vt_ms == 0
        assert s.keeper.kept() == []


async def test_ack_does_not_wait_for_the_renewal_under_way():
    async with scene(lambda c: gate() if c.kind is RENEWAL else fine(c)) as s:
        delivery = s.due()
        delivery.hold()
        await until(lambda: s.sent(RENEWAL))
        async with asyncio.timeout(10):
            await delivery.ack()

        assert delivery.settled


async def test_renewal_that_is_answered_after_the_ack_reports_no_lost_lease():
    renewing = gate()
    async with scene(lambda c: renewing if c.kind is RENEWAL else fine(c)) as s:
        delivery = s.due()
        delivery.hold()
        await until(lambda: s.sent(RENEWAL))
        await delivery.ack()
        renewing.set_result([0])  # the message is gone, as it should be
        await settle_down()

        assert not delivery.lease_lost


async def test_extend_decides_the_length_and_the_end_of_the_lease():
    async with scene() as s:
        delivery = s.delivery()
        before = now()
        await delivery.extend(120)

        assert delivery.lease.vt == 120
        assert before + 120 <= delivery.lease.expires_at <= now() + 120


async def test_extend_decides_how_long_the_renewals_after_it_are():
    async with scene() as s:
        delivery = s.delivery()
        delivery.hold()
        await delivery.extend(0.3)
        await until(lambda: len(s.sent(RENEWAL)) == 2)

        assert [r.vt_ms for c in s.sent(RENEWAL) for r in c.requests] == [300, 300]


async def test_extend_inside_a_block_outlives_the_renewal_under_way():
    """The renewal's reply comes first and must not shorten what the extension granted."""
    renewing = gate()

    def answer(command):
        return renewing if len(s.sent(RENEWAL)) == 1 else fine(command)

    async with scene(answer) as s:
        async with s.due() as delivery:
            await until(lambda: s.sent(RENEWAL))
            extending = asyncio.create_task(delivery.extend(600))
            await settle_down()
            renewing.set_result([1])
            await extending
            await settle_down()

            assert delivery.lease.expires_at > now() + 590
            assert delivery.lease in s.keeper.kept()
        assert [r.vt_ms for c in s.sent(RENEWAL) for r in c.requests] == [LEASE_S * 1000, 600_000]


async def test_extend_that_fails_leaves_the_lease_as_it_was():
    def answer(command):
        raise Unavailable("redis refused it")

    async with scene(answer) as s:
        delivery = s.delivery()
        delivery.hold()
        before = delivery.lease.vt, delivery.lease.expires_at
        with pytest.raises(Unavailable):
            await delivery.extend(600)

        assert (delivery.lease.vt, delivery.lease.expires_at) == before
        assert delivery.lease in s.keeper.kept()


async def test_extend_to_nothing_inside_a_block_ends_the_renewals():
    async with scene() as s:
        delivery = s.delivery()
        delivery.hold()
        await delivery.extend(0)

        assert delivery.lease not in s.keeper.kept()


async def test_renewal_that_falls_due_during_close_does_not_break_the_calls_under_way():
    sending = gate()

    def answer(command):
        return sending if command.kind is SEND else fine(command)

    async with scene(answer) as s:
        operation = messages.send(NAMESPACE.queue("jobs"), [b"x"], delay_ms=-1, channel="w")
        call = asyncio.create_task(s.transport.run(operation))
        await until(lambda: s.sent(SEND))
        delivery = s.delivery(lease_s=0.3)
        delivery.hold()
        closing = asyncio.create_task(s.transport.aclose())
        await until(lambda: not s.keeper._running)
        sending.set_result([[b"0" * 32]])
        await closing

        assert await call == ["0" * 32]


async def prefetch_of(s, *bodies, size=5):
    """Return a prefetch that holds messages, and those messages."""
    held = [s.delivery(body=body) for body in bodies]
    batches = [held]

    async def receive(count):
        return batches.pop() if batches else await gate()

    prefetch = Prefetch(receive, s.origin(), size)
    s.transport.spawn(prefetch.fill)
    await until(lambda: len(prefetch._messages) == len(held))
    return prefetch, held


async def test_message_that_waits_in_the_prefetch_is_kept():
    async with scene() as s:
        prefetch, held = await prefetch_of(s, b"a", b"b")

        assert s.keeper.kept() == [d.lease for d in held]
        prefetch.close()


async def test_message_that_is_taken_from_the_prefetch_is_no_longer_kept():
    async with scene() as s:
        prefetch, held = await prefetch_of(s, b"a", b"b")
        await prefetch.take()

        assert [d.lease in s.keeper.kept() for d in held] == [False, True]
        prefetch.close()


async def test_message_lost_while_it_waits_in_the_prefetch_is_not_handed_out():
    async with scene() as s:
        prefetch, held = await prefetch_of(s, b"a", b"b")
        lose(held[0].lease)

        assert (await prefetch.take()).body == b"b"
        prefetch.close()


async def test_message_given_back_from_the_prefetch_is_no_longer_kept():
    async with scene() as s:
        prefetch, held = await prefetch_of(s, b"a", b"b")
        await asyncio.wait(prefetch.close())

        assert s.keeper.kept() == []
        assert [r.vt_ms for c in s.sent(RENEWAL) for r in c.requests] == [0, 0]


async def test_reply_that_was_there_when_the_prefetch_closed_is_given_back():
    """AnyIO does not cancel a task that waits for a future which is done."""
    async with scene() as s:
        reply, late = gate(), [s.delivery(body=b"a"), s.delivery(body=b"b")]

        async def receive(count):
            return await reply

        prefetch = Prefetch(receive, s.origin(), 5)
        s.transport.spawn(prefetch.fill)
        await settle_down()
        reply.set_result(late)
        assert prefetch.close() == []
        await until(lambda: s.sent(RENEWAL))

        assert s.keeper.kept() == []
        assert [r.vt_ms for c in s.sent(RENEWAL) for r in c.requests] == [0, 0]


async def test_prefetch_that_is_closed_before_it_is_filled_stays_empty():
    async with scene() as s:

        async def receive(count):
            raise AssertionError("no caller wants a message")

        prefetch = Prefetch(receive, s.origin(), 5)
        s.transport.spawn(prefetch.fill)
        prefetch.close()
        await settle_down()

        assert s.transport.closers == set()


async def test_message_put_back_into_a_closed_prefetch_is_given_back():
    async with scene() as s:
        prefetch, _ = await prefetch_of(s, b"a")
        taken = await prefetch.take_many(1, 0)
        prefetch.close()
        prefetch.put_back(taken)
        await until(lambda: s.sent(RENEWAL))

        assert s.keeper.kept() == []
        assert [r.vt_ms for c in s.sent(RENEWAL) for r in c.requests] == [0]


async def test_closing_gives_each_message_back_once_and_begun_ones_as_such():
    """First those that wait in the prefetch, then what the keeper still has."""
    async with scene() as s:
        s.transport.close_last = s.keeper.close
        prefetch, held = await prefetch_of(s, b"a", b"b", b"c")
        (begun,) = await prefetch.take_many(1, 0)
        await s.transport.aclose()

        released = [(r.id, r.vt_ms, r.how) for c in s.sent(RENEWAL) for r in c.requests]
        assert sorted(released) == [
            (begun.id, 0, "r"), (held[1].id, 0, "u"), (held[2].id, 0, "u"),
        ]  # fmt: skip
        assert s.keeper.kept() == []


async def test_waiting_for_a_message_ends_when_the_prefetch_is_closed():
    async with scene() as s:
        prefetch, _ = await prefetch_of(s)
        waiting = asyncio.create_task(prefetch.take())
        await settle_down()
        prefetch.close()

        async with asyncio.timeout(10):
            with pytest.raises(StopAsyncIteration):
                await waiting


@pytest.mark.parametrize("verb", ["extend", "ack"])
async def test_verb_that_ends_after_its_block_does_not_renew_the_lease_again(verb):
    def answer(command):
        return slow if len(s.driver.commands) == 1 else fine(command)

    async with scene(answer) as s:
        slow = gate()
        delivery = s.delivery()
        with pytest.raises(KeyError):
            async with delivery:
                call = delivery.extend(60) if verb == "extend" else delivery.ack()
                late = asyncio.create_task(call)
                await until(lambda: s.driver.commands)
                # The end of the block waits for an extension, and not for an ack.
                refusal = Unavailable("redis refused it")
                asyncio.get_running_loop().call_later(0.05, slow.set_exception, refusal)
                raise KeyError
        with pytest.raises(Unavailable):
            await late

        assert s.keeper.kept() == []


@pytest.mark.parametrize("granted", [True, False])
async def test_extension_that_is_answered_after_its_block_does_not_keep_the_message(granted):
    """The block acks, which need not wait for it: the message is gone when it is answered."""

    def answer(command):
        return slow if command.kind is RENEWAL else fine(command)

    async with scene(answer) as s:
        slow, delivery = gate(), s.delivery()
        async with delivery:
            late = asyncio.create_task(delivery.extend(60))
            await until(lambda: s.driver.commands)
        assert delivery.outcome == "acked"
        assert not late.done()
        slow.set_result([1 if granted else 0])
        if granted:
            await late
        else:
            with pytest.raises(LeaseLost):
                await late
        await settle_down()

        assert s.keeper.kept() == []
        assert delivery.lease.pauses == 0
        assert [len(s.sent(kind)) for kind in (RENEWAL, messages.ACK)] == [1, 1]


async def test_extension_of_a_message_that_is_given_back_meanwhile_does_not_keep_it():
    def answer(command):
        return slow if len(s.driver.commands) == 1 else fine(command)

    async with scene(answer) as s:
        slow, delivery = gate(), s.delivery()
        delivery.hold()
        late = asyncio.create_task(delivery.extend(60))
        await until(lambda: s.driver.commands)
        delivery.release_nowait(unseen=True)
        slow.set_result([1])
        await late

        assert s.keeper.kept() == []


async def test_block_of_a_coroutine_that_is_thrown_away_gives_the_message_back():
    async with scene() as s:
        delivery = s.delivery()

        async def work():
            async with delivery:
                await asyncio.sleep(100)

        thrown = work()
        thrown.send(None)
        assert s.keeper.kept() == [delivery.lease]
        await asyncio.to_thread(thrown.close)
        await until(lambda: s.sent(RENEWAL))

        assert s.keeper.kept() == []
        assert [r.vt_ms for c in s.sent(RENEWAL) for r in c.requests] == [0]


async def test_closing_a_consumer_can_be_cancelled_and_gives_back_all_the_same(quick_close):
    def answer(command):
        return server if command.kind is RENEWAL else fine(command)

    async with scene(answer) as s:
        server, batches = gate(), [[s.delivery(), s.delivery()]]

        async def receive(count):
            return batches.pop() if batches else await gate()

        consumer = Consumer(s.origin(), receive, 5)
        await anext(consumer)
        closing = asyncio.create_task(consumer.aclose())
        await until(lambda: s.sent(RENEWAL))
        closing.cancel()
        async with asyncio.timeout(10):
            await asyncio.wait([closing])

        assert closing.cancelled()
        assert s.transport._lanes.busy
        server.set_result([1])
        await until(lambda: not s.transport._lanes.busy)


@pytest.mark.parametrize("prefetch", [1, 5])
async def test_consumer_hands_out_no_message_whose_lease_has_ended(prefetch, caplog):
    """As after a stall, in which nothing could notice it."""
    async with scene() as s:
        batches = [[s.delivery(body=b"fresh")], [s.delivery(body=b"over", used_s=LEASE_S + 3)]]

        async def receive(count):
            return batches.pop() if batches else await gate()

        consumer = Consumer(s.origin(), receive, prefetch)

        assert (await anext(consumer)).body == b"fresh"
        assert "blocked for more than 3." in caplog.text
        assert "work on 1 messages of queue 'jobs' is not begun" in caplog.text
        await until(lambda: s.sent(RENEWAL))
        assert [r.vt_ms for c in s.sent(RENEWAL) for r in c.requests] == [0]
        await consumer.aclose()


async def test_message_without_a_lease_is_handed_out_however_late():
    async with scene() as s:
        delivery = s.delivery(lease_s=0, used_s=10)

        assert still_leased([delivery]) == [delivery]


async def test_stall_that_is_longer_than_the_pause_between_renewals_is_logged(caplog):
    async with scene() as s:
        s.delivery(lease_s=0.9).hold()
        await settle_down()
        time.sleep(1.2)  # noqa: ASYNC251 - the point of it
        await settle_down()

        assert "the event loop was blocked, or the process stopped" in caplog.text


async def test_keeper_that_looks_in_time_logs_no_stall(caplog):
    async with scene() as s:
        delivery = s.due()
        before = delivery.lease.expires_at
        delivery.hold()
        await until(lambda: delivery.lease.expires_at != before)

        assert "blocked" not in caplog.text


class Registry:
    """Counts how often each lease is registered with a keeper, and removed."""

    def __init__(self, keeper):
        self.kept, self.dropped = Counter(), Counter()
        for name, counter in (("keep", self.kept), ("drop", self.dropped)):
            setattr(keeper, name, self._counting(getattr(keeper, name), counter))

    @staticmethod
    def _counting(method, counter):
        def call(*leases):
            counter.update(lease.id for lease in leases)
            return method(*leases)

        return call


@pytest.mark.parametrize("prefetch", [1, 5])
async def test_lease_is_registered_once_and_removed_once_by_a_consumer(prefetch):
    async with scene() as s:
        registry = Registry(s.keeper)
        waiting = [s.delivery() for _ in range(6)]
        ids = [delivery.id for delivery in waiting]

        async def receive(count):
            taken, waiting[:count] = waiting[:count], []
            return taken or await gate()

        consumer = Consumer(s.origin(), receive, prefetch)
        for _ in ids:
            async with await anext(consumer):
                await asyncio.sleep(0)
        await consumer.aclose()

        assert registry.kept == registry.dropped == dict.fromkeys(ids, 1)
        assert s.keeper._kept == {}


async def test_message_that_is_handed_over_and_not_taken_up_is_not_renewed():
    async with scene() as s:
        delivery = s.delivery(lease_s=0.3)
        delivery.hold()
        s.keeper.hand_over(delivery.lease)
        await until(lambda: not s.keeper._kept)

        assert s.sent(RENEWAL) == []
        assert not delivery.lease_lost


async def test_message_that_is_handed_over_is_renewed_inside_its_block():
    async with scene() as s:
        delivery = s.delivery(lease_s=0.3)
        delivery.hold()
        s.keeper.hand_over(delivery.lease)
        async with delivery:
            await until(lambda: len(s.sent(RENEWAL)) >= 2)

        assert not delivery.lease_lost


async def test_lease_whose_holder_is_at_work_on_it_is_not_renewed_beside():
    async with scene() as s:
        paused, other = s.delivery(lease_s=0.3), s.delivery(lease_s=0.3)
        paused.hold()
        s.keeper.pause(paused.lease)
        other.hold()
        await until(lambda: len(s.sent(RENEWAL)) >= 3)

        renewed = {request.id for command in s.sent(RENEWAL) for request in command.requests}
        assert renewed == {other.id}
        assert paused.lease.renewing is None
        assert paused.lease.expires_at < other.lease.expires_at
        assert not paused.lease_lost


async def test_visible_at_is_the_end_of_the_lease_as_an_aware_datetime():
    async with scene() as s:
        left = s.delivery(used_s=10).visible_at - datetime.now(UTC)

        assert LEASE_S - 11 < left.total_seconds() <= LEASE_S - 10


async def test_messages_are_not_compared_with_each_other_to_sort_out_the_late_ones():
    class Compared:
        def __init__(self, lease):
            self.lease = lease

        def __eq__(self, other):
            raise AssertionError("one comparison for each pair takes too long after a stall")

        __hash__ = None

        def release_nowait(self, *, unseen):
            return None

    async with scene() as s:
        used = [0.0, LEASE_S + 1, 0.0, LEASE_S + 1]
        held = [Compared(s.delivery(used_s=used_s).lease) for used_s in used]
        left = still_leased(held)

        assert [message.lease for message in left] == [held[0].lease, held[2].lease]
