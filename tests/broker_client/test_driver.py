"""The driver by itself, with a scripted channel."""

import asyncio
import json

import pytest

from aiorsmq_ng import (
    DurabilityUnmet,
    InvalidValue,
    LeaseLost,
    MessageTooLong,
    Options,
    QueueNotFound,
    RSMQError,
    Unavailable,
)
from aiorsmq_ng._broker_client.driver import HANDLERS, BrokerDriver
from aiorsmq_ng._broker_client.status_to_error import Answered
from aiorsmq_ng._common.durability import Durability
from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.operation import Kind
from aiorsmq_ng._protocol.operations import doctor, inspection, messages, queues, recovery, topics
from aiorsmq_ng._protocol.operations.message_values import Dedup, Receipt
from aiorsmq_ng._transport.call import Call
from aiorsmq_ng._transport.call_numbers import CallNumbers
from aiorsmq_ng._transport.driver import NotExecuted, ReplyLost
from aiorsmq_ng.broker.error_to_status import BrokerError
from aiorsmq_ng.broker.idempotency import REMEMBERED_S, IdempotentCalls
from aiorsmq_ng.rpc import v1_pb2 as pb

KEYS = Namespace("rsmq").queue("jobs")


class Link:
    """Answers calls one after the other."""

    namespace, broker, max_batch = "rsmq", "b", 1000

    def __init__(self, *answers):
        self.answers = list(answers)
        self.calls = []

    async def ready(self, *, again=False):
        pass

    async def call(self, method, request):
        self.calls.append((method, request))
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def send(text, **how):
    return messages.send(KEYS, [text], delay_ms=-1, channel="c", **how)


def stored(**more):
    return pb.SendResponse(outcomes=[pb.SendOutcome(ids=["1"], **more)])


def call_of(*operations):
    return Call(operations, CallNumbers().take() if operations[0].kind.numbered else None)


async def run(link, *operations):
    return await BrokerDriver(link).run(call_of(*operations))


def hold(vt_ms, proof="p"):
    receipt = Receipt("i" * 32, 1, 5, proof)
    return messages.visibility(KEYS, receipt.id, vt_ms=vt_ms, channel="c", receipt=receipt)


async def test_call_of_which_a_part_has_run_is_not_said_to_have_not():
    parts = (hold(1), hold(2))  # two leases are two requests

    with pytest.raises(ReplyLost):
        await run(Link(pb.SettleResponse(outcomes=[1]), NotExecuted("gone")), *parts)
    with pytest.raises(NotExecuted):
        await run(Link(NotExecuted("gone"), NotExecuted("gone")), *parts)
    with pytest.raises(ReplyLost):
        await run(Link(NotExecuted("gone"), ReplyLost("?")), *parts)
    with pytest.raises(Unavailable):
        await run(Link(Unavailable("refused"), Unavailable("refused")), *parts)


async def test_sends_that_share_a_call_are_parts_of_one_request():
    error = pb.Error(code="messageTooLong", message="too long", details='{"queue": "jobs"}')
    outcomes = [{"ids": ["1"]}, {"ids": ["3"], "duplicate": True}, {"error": error}]
    link = Link(pb.SendResponse(outcomes=[pb.SendOutcome(**one) for one in outcomes]))
    ways = ({}, {"dedup": Dedup("d", 1000)}, {})

    reply = await run(link, *(send(b"%d" % n, **how) for n, how in enumerate(ways)))

    assert reply[:2] == [["1"], ["3"]]
    assert reply[1][0].duplicate is True
    assert isinstance(reply[2], MessageTooLong)
    ((_, request),) = link.calls
    assert [(list(p.bodies), p.dedup_key) for p in request.parts] == [
        ([b"0"], ""), ([b"1"], "digest:d"), ([b"2"], "")
    ]  # fmt: skip


def one_away(**details):
    away = pb.Error(code="unavailable", message="redis is away", details=json.dumps(details))
    return pb.SendResponse(outcomes=[pb.SendOutcome(ids=["1"]), pb.SendOutcome(error=away)])


async def test_send_that_did_not_run_beside_one_that_did_is_said_to_have_not():
    link = Link(one_away(executed=False, transient=True))

    ids, error = await run(link, send(b"a"), send(b"b"))

    assert ids == ["1"]
    assert type(error) is Unavailable
    assert (error.executed, error.transient) == (False, True)


async def test_send_of_unknown_outcome_leaves_its_call_to_be_repeated():
    with pytest.raises(ReplyLost):
        await run(Link(one_away(executed=None, transient=True)), send(b"a"), send(b"b"))


async def test_send_that_another_broker_did_not_make_may_have_been_made_by_the_first():
    dedup = {"dedup": Dedup("d", 1000)}
    call = call_of(send(b"a", **dedup), send(b"b", **dedup))
    link = Link(ReplyLost("?"), one_away(executed=False, transient=True))
    driver = BrokerDriver(link)
    with pytest.raises(ReplyLost):
        await driver.run(call)
    call.doubt()
    link.broker = "another"

    with pytest.raises(ReplyLost):
        await driver.run(call)


async def test_error_of_a_later_page_leaves_receipts_of_earlier_pages_settled():
    error = QueueNotFound("jobs", "rsmq")
    link = Link(pb.SettleResponse(outcomes=[pb.OUTCOME_DONE]), Answered(error))
    link.max_batch = 1
    receipts = [Receipt("i" * 32, 1, 5, "p"), Receipt("j" * 32, 1, 5, "q")]

    results = await run(link, *(messages.ack(KEYS, receipt) for receipt in receipts))

    assert results == [None, error]


async def test_repeated_delete_takes_an_id_for_deleted_by_every_operation_that_names_it():
    call = call_of(messages.delete(KEYS, ["1", "2"]), messages.delete(KEYS, ["2"]))
    link = Link(*[pb.DeleteMessagesResponse(ids=["1", "2"])] * 2)
    assert await BrokerDriver(link).run(call) == [["1", "2"], []]
    call.doubt()

    assert await BrokerDriver(link).run(call) == [["1", "2"], ["2"]]


async def test_receipt_without_the_broker_s_proof_is_refused():
    refused = pb.SettleResponse(outcomes=[pb.OUTCOME_BAD_RECEIPT])

    assert isinstance((await run(Link(refused), hold(1, proof="")))[0], InvalidValue)
    assert isinstance((await run(Link(refused), hold(1)))[0], LeaseLost)


async def test_receipts_that_are_settled_alike_need_no_task():
    makers = []

    class Recorder(Link):
        async def call(self, method, request):
            makers.append(asyncio.current_task())
            return await super().call(method, request)

    link = Recorder(pb.SettleResponse(outcomes=[pb.OUTCOME_DONE] * 2))

    assert await run(link, hold(1), hold(1)) == [True, True]
    assert makers == [asyncio.current_task()]


async def test_error_of_a_change_by_id_is_not_that_of_a_lease_beside_it():
    error = InvalidValue("no id")
    link = Link(Answered(error), pb.SettleResponse(outcomes=[pb.OUTCOME_DONE]))
    by_id = messages.visibility(KEYS, "i" * 32, vt_ms=1, channel="c")

    assert await run(link, by_id, hold(1)) == [error, True]


async def test_equal_changes_by_id_that_share_a_call_are_all_answered():
    link = Link(pb.ChangeVisibilityResponse(changed=True))
    by_id = messages.visibility(KEYS, "i" * 32, vt_ms=1, channel="c")

    assert await run(link, by_id, by_id) == [True, True]


async def test_answer_that_is_an_error_is_the_reply_of_every_part():
    error = QueueNotFound("jobs", "rsmq")

    reply = await run(Link(Answered(error)), send(b"a"), send(b"b"))

    assert reply == [error, error]


async def test_repeated_call_has_the_same_id_and_names_who_was_asked_first():
    call = call_of(send(b"a"))
    link = Link(ReplyLost("?"), ReplyLost("?"), stored())
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
async def test_durability_that_the_broker_reached_is_reported(demanded, told):
    call = call_of(send(b"a"))
    call.durability, call.confirm_ms = Durability.parse(demanded), 100

    await BrokerDriver(Link(stored(durability=told))).run(call)

    assert call.reached == [told]


async def test_each_of_the_sends_that_share_a_call_has_the_durability_it_reached():
    outcomes = [
        pb.SendOutcome(ids=["1"], durability="replicated:10"),
        pb.SendOutcome(ids=["2"], error=pb.Error(code="durabilityUnmet", message="too few")),
        pb.SendOutcome(ids=["3"], durability="replicated:9"),
    ]
    link = Link(pb.SendResponse(outcomes=outcomes))
    call = call_of(send(b"a"), send(b"b"), send(b"c"))
    call.durability = Durability.parse("replicated:9")

    results = await BrokerDriver(link).run(call)

    assert call.finish(0, results[0])[0].durability == "replicated:10"
    assert call.finish(2, results[2])[0].durability == "replicated:9"
    with pytest.raises(DurabilityUnmet) as caught:
        call.finish(1, results[1])
    assert (caught.value.reached, caught.value.ids) == ("memory", ("2",))


async def test_queue_that_is_not_there_is_not_deleted():
    reply = await run(Link(Answered(QueueNotFound("jobs", "rsmq"))), queues.delete(KEYS))

    assert [type(error) for error in reply] == [QueueNotFound]


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


def test_every_kind_of_operation_on_queues_and_topics_has_a_handler():
    """What is left out: Spark's claims and bulk jobs, the doctor, and time travel for tests.

    And ``find``: a broker shows no message by its id (docs/guides/grpc-client.md).
    """
    kinds = [
        kind
        for module in (messages, queues, recovery, inspection, topics)
        for kind in vars(module).values()
        if isinstance(kind, Kind)
    ]

    assert len(kinds) > 30
    assert [kind.name for kind in kinds if kind not in HANDLERS] == ["find"]


async def test_receipt_that_failed_has_its_own_error_and_an_outage_is_asked_for_again():
    def failed(code):
        one = pb.SettleError(index=1, error=pb.Error(code=code, message="no"))
        outcomes = [pb.OUTCOME_DONE, pb.OUTCOME_FAILED]
        return Link(pb.SettleResponse(outcomes=outcomes, errors=[one]))

    found = await run(failed("messageTooLong"), hold(1), hold(1))
    assert [type(outcome) for outcome in found] == [bool, MessageTooLong]
    for code in ("unavailable", "clientClosed", "internal"):
        with pytest.raises(ReplyLost):
            await run(failed(code), hold(1), hold(1))


async def test_messages_are_read_until_the_broker_says_that_there_are_no_more():
    rows = [pb.Message(id=str(n)) for n in range(5)]
    link = Link(
        pb.PeekResponse(messages=rows[:2], more=True),
        pb.PeekResponse(messages=rows[2:4], more=True),
        pb.PeekResponse(messages=rows[4:]),
    )

    ((*found,),) = await run(link, inspection.peek(KEYS, -5, 10))

    assert [message.id for message in found] == list("01234")
    assert [(r.start, r.count) for _, r in link.calls] == [(-5, 5), (-3, 3), (-1, 1)]
