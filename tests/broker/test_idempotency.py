"""A call that is repeated under its request id acts once."""

import asyncio
import gc
import weakref
from types import SimpleNamespace

import grpc
import pytest

from aiorsmq_ng import (
    InvalidValue,
    MessageTooLong,
    QueueExists,
    SendToken,
    SendUnknown,
    Unavailable,
)
from aiorsmq_ng._protocol.argument_checks import digest
from aiorsmq_ng.broker.error_to_status import BrokerError
from aiorsmq_ng.broker.idempotency import IdempotentCalls, content_of
from aiorsmq_ng.broker.send import dedup_key_of
from aiorsmq_ng.broker.tokens import CALLER
from aiorsmq_ng.rpc import v1_pb2 as pb
from aiorsmq_ng.rpc.v1_pb2_grpc import QueuesStub, TopicsStub

from ..support.waiting import until
from .support import connected

ID = pb.RequestId(id="a-random-request-id")


class Answer(SimpleNamespace):
    """An answer of 100 bytes."""

    def SerializeToString(self):  # noqa: N802
        return f"{self.number:<100}".encode()


class Work:
    """Counts how often it is done."""

    def __init__(self, *outcomes):
        self.outcomes = list(outcomes)
        self.done = 0
        self.may_end = asyncio.Event()
        self.may_end.set()

    async def __call__(self, *_):
        self.done += 1
        await self.may_end.wait()
        outcome = self.outcomes.pop(0) if self.outcomes else Answer(number=self.done)
        if isinstance(outcome, Exception):
            raise outcome
        return outcome


def key(id=ID, who="me", method="Send"):
    return (who, method, id)


async def test_a_repeated_call_is_answered_as_the_first():
    requests, work = IdempotentCalls(), Work()

    first = await requests.once(key(), work)

    assert await requests.once(key(), work) is first
    assert work.done == 1
    for other in (key(who="you"), key(method="Purge"), key(pb.RequestId(id="another-request-id"))):
        await requests.once(other, work)
    await requests.once(key(pb.RequestId()), work)
    assert work.done == 5


async def test_an_error_is_remembered_unless_nothing_ran():
    requests = IdempotentCalls()
    exists = Work(QueueExists("jobs", "rsmq"))
    for _ in range(2):
        with pytest.raises(QueueExists):
            await requests.once(key(), exists)
    assert exists.done == 1

    away = Work(Unavailable("away", executed=False))
    with pytest.raises(Unavailable):
        await requests.once(key(method="Other"), away)
    await requests.once(key(method="Other"), away)
    assert away.done == 2


async def test_a_send_with_an_unknown_outcome_is_repeated():
    requests, work, again = IdempotentCalls(), Work(SendUnknown("lost")), Work()
    with pytest.raises(SendUnknown):
        await requests.once(key(), work, again=again)

    await requests.once(key(), work, again=again)

    assert (work.done, again.done) == (1, 1)


async def test_an_attempt_that_comes_while_the_first_runs_waits_for_its_answer():
    requests, work = IdempotentCalls(), Work()
    work.may_end.clear()
    first = asyncio.ensure_future(requests.once(key(), work))
    second = asyncio.ensure_future(requests.once(key(), work))
    await asyncio.sleep(0)
    first.cancel()  # its caller is gone; the call goes on
    work.may_end.set()

    assert int(await second) == 1
    assert work.done == 1


async def test_a_receive_is_abandoned_with_its_caller_and_begins_again_for_the_next():
    requests, work = IdempotentCalls(), Work()
    work.may_end.clear()
    first = asyncio.ensure_future(requests.once(key(), work, abandon=True))
    await asyncio.sleep(0.01)
    second = asyncio.ensure_future(requests.once(key(), work, abandon=True))
    await asyncio.sleep(0.01)
    first.cancel()
    await asyncio.sleep(0.01)
    work.may_end.set()

    assert int(await second) == 2


async def test_a_call_of_another_process_is_not_made_again():
    requests, work = IdempotentCalls(), Work()

    with pytest.raises(BrokerError, match="another process"):
        await requests.once(key(pb.RequestId(id=ID.id, broker="another")), work)
    await requests.once(key(pb.RequestId(id=ID.id, broker=requests.broker_id)), work)
    assert work.done == 1


async def test_what_is_remembered_is_bounded_in_time_and_bytes():
    now = 0.0
    requests, work = IdempotentCalls(lambda: now, most_bytes=250), Work()
    for number in range(3):
        await requests.once(key(pb.RequestId(id=f"request-number-{number}")), work)

    with pytest.raises(BrokerError, match="no longer kept"):
        await requests.once(key(pb.RequestId(id="request-number-0")), work)
    now = 301.0
    await requests.once(key(pb.RequestId(id="request-number-0")), work)
    assert work.done == 4


class Body:
    """Stands for the bodies of a request."""


async def test_an_error_that_is_remembered_does_not_hold_what_the_call_had():
    requests = IdempotentCalls()
    bodies = []

    async def work():
        body = Body()
        bodies.append(weakref.ref(body))
        raise MessageTooLong("jobs", 10, 5) from ValueError(body)

    async def attempt():
        body = Body()
        bodies.append(weakref.ref(body))
        await requests.once(key(), work)

    for number in range(3):
        with pytest.raises(MessageTooLong):
            await attempt()
        gc.collect()
        assert len(bodies) == number + 2
        assert not any(body() for body in bodies)


async def test_what_a_send_of_unknown_outcome_holds_is_counted():
    def unknown():
        error = SendUnknown("lost")
        error.token = SendToken()
        return error

    requests, again = IdempotentCalls(most_bytes=2500), Work()
    ids = [pb.RequestId(id=f"request-number-{number}") for number in range(3)]
    for id in ids:
        with pytest.raises(SendUnknown):
            await requests.once(key(id), Work(unknown()), again=again, holds=1000)

    with pytest.raises(BrokerError, match="no longer kept"):
        await requests.once(key(ids[0]), Work(), again=again)
    for id in ids[1:]:
        await requests.once(key(id), Work(), again=again)
    assert again.done == 2
    assert requests._bytes.taken == 200  # those of the answers


@pytest.mark.parametrize("request_id", [pb.RequestId(id="short"), pb.RequestId(id="x" * 200)])
async def test_an_id_that_others_might_draw_is_refused(request_id):
    with pytest.raises(InvalidValue, match="characters"):
        await IdempotentCalls().once(key(request_id), Work())


async def test_a_flood_of_one_callers_ids_evicts_no_other_callers_records():
    requests, work = IdempotentCalls(most_calls=100, most_bytes=10_000, divided=True), Work()
    honest = [key(pb.RequestId(id=f"honest-number-{n:04}", broker="")) for n in range(10)]
    for one in honest:
        await requests.once(one, work)
    for number in range(1000):
        await requests.once(key(pb.RequestId(id=f"hostile-number-{number}"), who="you"), work)
    assert work.done == 1010
    known = pb.RequestId(id="hostile-number-0", broker=requests.broker_id)

    for _, method, id in honest:
        id.broker = requests.broker_id
        await requests.once(("me", method, id), work)
    assert work.done == 1010
    with pytest.raises(BrokerError, match="too many calls"):
        await requests.once(key(known, who="you"), work)
    # What is new to an honest client is not taken for forgotten.
    await requests.once(key(pb.RequestId(id="another-of-mine-0", broker=requests.broker_id)), work)
    assert work.done == 1011


async def test_an_id_is_good_for_one_request_only(queues, queue):
    request = pb.SendRequest(queue="jobs", bodies=[b"a"], request=ID)
    await queues.Send(request)
    request.bodies[0] = b"b"

    with pytest.raises(grpc.RpcError) as refused:
        await queues.Send(request)

    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "another request" in refused.value.details()
    assert (await queue.attributes()).msgs == 1


async def test_a_later_attempt_may_wait_less(queues, queue):
    await queue.send("a")
    request = pb.ReceiveRequest(sources=[pb.Source(queue="jobs")], wait_ms=1000, request=ID)
    first = await queues.Receive(request)
    request.wait_ms = 10
    assert await queues.Receive(request) == first


async def test_another_body_under_a_durable_id_is_not_swallowed(queues, queue):
    durable = pb.RequestId(id=ID.id, durable=True)
    for body in (b"a", b"b", b"a"):
        await queues.Send(pb.SendRequest(queue="jobs", bodies=[body], request=durable))

    assert (await queue.attributes()).msgs == 2


def test_a_dedup_key_never_meets_that_of_a_durable_request():
    """Not even if it is the very text that the broker's own key is made of."""
    request = pb.SendRequest(
        queue="jobs", bodies=[b"a"], request=pb.RequestId(id=ID.id, durable=True)
    )
    token = CALLER.set(SimpleNamespace(identity="me"))
    try:
        own, durable = dedup_key_of(request)
    finally:
        CALLER.reset(token)

    assert durable
    text = f"me:{ID.id}:{content_of(request).hex()}"
    assert digest(own) != digest(text)
    assert digest(own) == own.removeprefix("digest:")


async def test_a_repeated_batch_is_stored_once(queues, queue):
    request = pb.SendRequest(queue="jobs", bodies=[b"a", b"b"], request=ID)

    assert await queues.Send(request) == await queues.Send(request)
    assert (await queue.attributes()).msgs == 2


async def test_a_durable_send_is_stored_once_by_two_brokers(serve, queue):
    request = pb.SendRequest(
        queue="jobs", bodies=[b"a"], request=pb.RequestId(id=ID.id, durable=True, broker="x")
    )
    publish = pb.PublishRequest(topic="news", bodies=[b"a"], request=request.request)
    answers = []
    for _ in range(2):
        async with serve() as broker, connected(broker) as channel:
            answers.append(await QueuesStub(channel).Send(request))
            answers.append(await TopicsStub(channel).Publish(publish))

    assert len({answer.ids[0] for answer in answers}) == 2
    assert not any(answer.duplicate for answer in answers)
    assert (await queue.attributes()).msgs == 1


async def test_a_repeated_receive_returns_the_same_deliveries(queues, queue):
    await queue.send_many(["a", "b", "c"])
    request = pb.ReceiveRequest(sources=[pb.Source(queue="jobs")], count=2, request=ID)

    first = await queues.Receive(request)

    assert await queues.Receive(request) == first
    assert (await queue.attributes()).leased == 2


async def test_an_attempt_at_another_broker_is_refused_as_forgotten(serve, queue):
    async with serve() as broker, connected(broker) as channel:
        first = QueuesStub(channel).Purge(pb.PurgeRequest(queue="jobs", request=ID))
        await first
        name = dict(tuple(await first.trailing_metadata()))["rsmq-broker"]
    async with serve() as broker, connected(broker) as channel:
        again = pb.PurgeRequest(queue="jobs", request=pb.RequestId(id=ID.id, broker=name))
        with pytest.raises(grpc.RpcError) as refused:
            await QueuesStub(channel).Purge(again)

    assert refused.value.code() is grpc.StatusCode.ABORTED
    assert dict(tuple(refused.value.trailing_metadata()))["rsmq-code"] == "requestForgotten"


async def test_a_waiting_receive_with_an_id_gives_back_when_its_client_goes(broker, queues, queue):
    request = pb.ReceiveRequest(sources=[pb.Source(queue="jobs")], wait_ms=30_000, request=ID)
    call = queues.Receive(request)
    await until(lambda: asyncio.sleep(0, broker.under_way))
    call.cancel()
    await until(lambda: asyncio.sleep(0, not broker.under_way))

    await queue.send("x")

    assert (await queue.attributes()).ready == 1
