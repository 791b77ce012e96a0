"""The driver by itself, with a link that answers as it is told."""

import pytest

from aiorsmq_ng import InvalidValue, Options, QueueNotFound, RSMQError, Unavailable
from aiorsmq_ng._broker_client.driver import TRANSLATIONS, BrokerDriver
from aiorsmq_ng._broker_client.errors import Answered, NoBroker
from aiorsmq_ng._broker_client.receipts import Receipts
from aiorsmq_ng._common.durability import Durability
from aiorsmq_ng._protocol import doctor, messages, queues
from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.messages import Dedup
from aiorsmq_ng._protocol.scripts import names
from aiorsmq_ng._transport.calls import Call, CallNumbers
from aiorsmq_ng._transport.driver import NotExecuted, ReplyLost
from aiorsmq_ng.broker.errors import BrokerError
from aiorsmq_ng.broker.idempotency import REMEMBERED_S, IdempotentCalls
from aiorsmq_ng.rpc import v1_pb2 as pb

KEYS = Namespace("rsmq").queue("jobs")


class Link:
    """Answers calls one after the other."""

    namespace, broker, info, most = "rsmq", "b", None, 1000

    def __init__(self, *answers):
        self.answers = list(answers)
        self.calls = []

    async def ready(self, *, anew=False):
        pass

    async def call(self, method, request, command):
        command.written = True
        self.calls.append((method, request))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def send(text, **how):
    return messages.send(KEYS, [text], delay_ms=-1, channel="c", **how)


def call_of(*operations):
    return Call(operations, CallNumbers().take() if operations[0].kind.numbered else None)


async def run(link, *operations):
    return await BrokerDriver(link).run(call_of(*operations))


async def test_call_of_which_a_part_has_run_is_not_said_to_have_not():
    parts = (send(b"a"), send(b"b", dedup=Dedup("d", 1000)))

    with pytest.raises(ReplyLost):
        await run(Link(pb.SendResponse(ids=["i" * 32]), NoBroker("gone")), *parts)
    with pytest.raises(NotExecuted):
        await run(Link(NoBroker("gone"), NoBroker("gone")), *parts)
    with pytest.raises(ReplyLost):
        await run(Link(NoBroker("gone"), ReplyLost("?")), *parts)
    with pytest.raises(Unavailable):
        await run(Link(Unavailable("refused"), Unavailable("refused")), *parts)


async def test_sends_without_dedup_keys_share_one_call():
    link = Link(pb.SendResponse(ids=["1", "2"]), pb.SendResponse(ids=["3"]))
    ways = ({}, {"dedup": Dedup("d", 1000)}, {})

    reply = await run(link, *(send(b"%d" % n, **how) for n, how in enumerate(ways)))

    assert reply == [["1"], ["3"], ["2"]]
    assert reply[1][0].duplicate is False
    (_, first), (_, second) = link.calls
    assert (list(first.bodies), first.dedup_key) == ([b"0", b"2"], "")
    assert (list(second.bodies), second.dedup_key) == ([b"1"], "digest:d")
    assert first.request.id != second.request.id


async def test_answer_that_is_an_error_is_the_reply_of_every_part():
    error = QueueNotFound("jobs", "rsmq")

    reply = await run(Link(Answered(error)), send(b"a"), send(b"b"))

    assert reply == [error, error]


async def test_repeated_call_has_the_same_id_and_names_who_was_asked_first():
    call = call_of(send(b"a"))
    link = Link(ReplyLost("?"), ReplyLost("?"), pb.SendResponse(ids=["1"]))
    driver = BrokerDriver(link)
    for _ in range(2):
        with pytest.raises(ReplyLost):
            await driver.run(call)
        call.doubt()
        link.broker = "another"
    await driver.run(call)

    first, second, third = (request.request for _, request in link.calls)
    assert first.id == second.id == third.id
    assert [r.broker for r in (first, second, third)] == ["", "b", "b"]


async def test_what_a_broker_does_not_offer_is_not_asked_for():
    link = Link()
    with pytest.raises(RSMQError, match="cannot be done through a broker"):
        await run(link, doctor.keys(KEYS.namespace, b"0"))

    assert await BrokerDriver(link).setting("appendfsync") is None
    assert link.calls == []


async def test_what_the_transport_asks_besides_calls_is_answered():
    driver = BrokerDriver(Link())

    await driver.ping()
    await driver.forget(["record"])
    assert await driver.check(Options(durability="fsynced")) == Durability.parse("fsynced")


@pytest.mark.parametrize(
    ("demanded", "told"),
    [
        ("replicated:2", "replicated:3"),
        ("replicated:2", "memory"),
        ("fsynced", "fsynced"),
        ("fsynced", "memory"),
    ],
)
async def test_durability_that_the_broker_reached_is_told(demanded, told):
    call = call_of(send(b"a"))
    call.durability, call.confirm_ms = Durability.parse(demanded), 100

    await BrokerDriver(Link(pb.SendResponse(ids=["1"], durability=told))).run(call)

    assert call.reached == told


async def test_queue_that_is_not_there_is_not_deleted():
    reply = await run(Link(Answered(QueueNotFound("jobs", "rsmq"))), queues.delete(KEYS))

    assert [type(error) for error in reply] == [QueueNotFound]


def test_receipts_are_bounded_and_the_longest_unused_goes_first():
    receipts = Receipts(most=2)
    keys = [("jobs", id, 1, 5) for id in "abc"]
    for queue, id, rc, fr in keys[:2]:
        receipts.keep(pb.Delivery(queue=queue, id=id, rc=rc, fr=fr, receipt=id * 3))
    assert receipts.find(keys[0]) == "aaa"
    receipts.keep(pb.Delivery(queue="jobs", id="c", rc=1, fr=5, receipt="ccc"))

    assert [receipts.find(keys[0]), receipts.find(keys[2])] == ["aaa", "ccc"]
    with pytest.raises(InvalidValue, match="was not received by this client"):
        receipts.find(keys[1])
    receipts.settle(keys[0])
    assert receipts.find(keys[0]) == "aaa"


async def test_broker_that_had_to_forget_calls_refuses_repetitions():
    now = 1000.0
    requests = IdempotentCalls(clock=lambda: now, most_calls=2)
    made = []

    async def work():
        made.append(1)
        return pb.SendResponse()

    async def call(id, broker=""):
        key = ("me", "Send", pb.RequestId(id=id * 16, broker=broker))
        return await requests.once(key, work)

    for id in "abcd":
        await call(id)
    with pytest.raises(BrokerError, match="too many calls"):
        await call("a", requests.broker_id)
    assert len(made) == 4
    # A first attempt is made, and once everything that was forgotten is old, so are others.
    await call("e")
    now += REMEMBERED_S
    await call("f", requests.broker_id)
    assert len(made) == 6


async def test_every_script_that_a_broker_can_do_has_a_translation():
    """What is left out: Spark's jobs, the doctor, waiters by name, and time travel for tests."""
    elsewhere = ("bulk_", "claim", "doctor_", "epoch_", "snapshot", "stage")
    missing = [
        name for name in names() if name not in TRANSLATIONS and not name.startswith(elsewhere)
    ]

    assert missing == ["backlog", "discard", "reasons", "test_shift_time", "unwait"]
