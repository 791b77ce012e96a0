"""The calls of aiorsmq.v1.Queues, over a real connection."""

import asyncio
import json

import grpc
import pytest

from aiorsmq_ng import RSMQ, Queue
from aiorsmq_ng.rpc import v1_pb2 as pb

JOBS = [pb.Source(queue="jobs")]


@pytest.fixture(autouse=True)
async def _jobs(rsmq: RSMQ) -> None:
    await rsmq.create_queue("jobs")


async def receive(queues, count=10, **fields):
    return await queues.Receive(pb.ReceiveRequest(sources=JOBS, count=count, **fields))


def receipts(response):
    return [delivery.receipt for delivery in response.deliveries]


async def failure(call):
    with pytest.raises(grpc.RpcError) as caught:
        await call
    error = caught.value
    metadata = dict(tuple(error.trailing_metadata()))
    details = json.loads(metadata.get("rsmq-details", "{}"))
    return error.code(), metadata.get("rsmq-code"), details


async def test_what_is_sent_is_received_in_order_and_acked(queues, rsmq):
    sent = await queues.Send(pb.SendRequest(queue="jobs", bodies=[b"a", b"\xff", b""]))

    got = await receive(queues)
    assert [(d.id, d.body) for d in got.deliveries] == list(
        zip(sent.ids, [b"a", b"\xff", b""], strict=True)
    )
    assert {(d.queue, d.rc, d.vt_ms) for d in got.deliveries} == {("jobs", 1, 30_000)}
    acked = await queues.Ack(pb.AckRequest(receipts=receipts(got)))
    assert list(acked.outcomes) == [pb.OUTCOME_DONE] * 3
    assert (await rsmq.queue("jobs").attributes()).msgs == 0


async def test_a_stale_receipt_changes_nothing(queues):
    await queues.Send(pb.SendRequest(queue="jobs", bodies=[b"a"]))
    first = await receive(queues)
    await queues.Release(pb.ReleaseRequest(receipts=receipts(first)))
    second = await receive(queues)

    stale = await queues.Ack(pb.AckRequest(receipts=receipts(first)))
    assert list(stale.outcomes) == [pb.OUTCOME_RECEIVED_SINCE]
    done = await queues.Ack(pb.AckRequest(receipts=receipts(second)))
    assert list(done.outcomes) == [pb.OUTCOME_DONE]
    gone = await queues.Ack(pb.AckRequest(receipts=receipts(second)))
    assert list(gone.outcomes) == [pb.OUTCOME_GONE]


async def test_a_receipt_that_was_changed_in_any_place_is_refused(queues, rsmq):
    await queues.Send(pb.SendRequest(queue="jobs", bodies=[b"a"]))
    (receipt,) = receipts(await receive(queues))
    flipped = [
        receipt[:at] + ("A" if receipt[at] != "A" else "B") + receipt[at + 1 :]
        for at in range(0, len(receipt.rstrip("=")) - 1, 7)
    ]

    done = await queues.Ack(pb.AckRequest(receipts=[*flipped, "", "x" * 5000, "é"]))

    assert set(done.outcomes) == {pb.OUTCOME_BAD_RECEIPT}
    assert (await rsmq.queue("jobs").attributes()).leased == 1


async def test_reject_and_forward_move_and_tell_the_reason(queues, rsmq):
    await rsmq.create_queue("later")
    await queues.Send(pb.SendRequest(queue="jobs", bodies=[b"bad", b"other"]))
    bad, other = receipts(await receive(queues))

    await queues.Reject(pb.RejectRequest(receipts=[bad], reason="broken"))
    await queues.Forward(pb.ForwardRequest(receipts=[other], target="later"))

    (dead,) = await rsmq.queue("jobs-dead").peek()
    assert dead.body == b"bad"
    reason = await queues.GetReason(pb.GetReasonRequest(queue="jobs-dead", id=dead.id))
    assert reason.reason == "broken"
    assert (await rsmq.queue("later").pop()).body == b"other"


async def test_forward_into_a_missing_queue_fails_alone_and_says_why(queues):
    await queues.Send(pb.SendRequest(queue="jobs", bodies=[b"a"]))
    got = await receive(queues)

    moved = await queues.Forward(pb.ForwardRequest(receipts=receipts(got), target="nowhere"))

    assert list(moved.outcomes) == [pb.OUTCOME_FAILED]
    assert [(e.index, e.error.code) for e in moved.errors] == [(0, "queueNotFound")]


async def test_a_waiting_receive_gets_what_comes(queues):
    waiting = asyncio.ensure_future(receive(queues, wait_ms=20_000))
    await asyncio.sleep(0.05)
    await queues.Send(pb.SendRequest(queue="jobs", bodies=[b"a"]))

    assert [d.body for d in (await waiting).deliveries] == [b"a"]


async def test_a_wait_ends_before_the_calls_deadline(queues):
    request = pb.ReceiveRequest(sources=JOBS, wait_ms=60_000)

    # Long enough for a stalled machine: the broker leaves a tenth of it for the reply.
    assert not (await queues.Receive(request, timeout=3)).deliveries


async def test_an_empty_receive_tells_when_the_next_message_is_due(queues):
    assert not (await receive(queues)).HasField("next_visible_ms")
    await queues.Send(pb.SendRequest(queue="jobs", bodies=[b"a"], delay_ms=60_000))

    assert 50_000 < (await receive(queues)).next_visible_ms <= 60_001


async def test_receive_takes_from_several_queues_in_order(queues, rsmq):
    urgent = await rsmq.create_queue("urgent")
    await queues.Send(pb.SendRequest(queue="jobs", bodies=[b"b"]))
    await urgent.send("a")

    got = await queues.Receive(
        pb.ReceiveRequest(sources=[pb.Source(queue="urgent"), pb.Source(queue="jobs")], count=5)
    )

    assert [(d.queue, d.body) for d in got.deliveries] == [("urgent", b"a"), ("jobs", b"b")]


async def test_a_source_with_a_limit_moves_poison_away(queues, rsmq):
    await queues.Send(pb.SendRequest(queue="jobs", bodies=[b"a"]))
    source = pb.Source(queue="jobs", max_receives=1, dead_letter="graves", vt_ms=0)
    request = pb.ReceiveRequest(sources=[source])

    assert len((await queues.Receive(request)).deliveries) == 1
    assert not (await queues.Receive(request)).deliveries
    assert (await rsmq.queue("graves").pop()).body == b"a"


async def test_a_reply_stays_below_the_size_that_clients_take(queues, rsmq):
    await rsmq.create_queue("big", maxsize=-1)
    await rsmq.queue("big").send_many([bytes(1_500_000)] * 4)
    request = pb.ReceiveRequest(sources=[pb.Source(queue="big")], count=10)

    first = await queues.Receive(request)
    second = await queues.Receive(request)

    assert [len(first.deliveries), len(second.deliveries)] == [2, 2]
    assert {d.rc for r in (first, second) for d in r.deliveries} == {1}


async def test_a_body_too_large_for_a_reply_is_left_out_and_can_be_settled(queues, rsmq):
    await rsmq.create_queue("big", maxsize=-1)
    await rsmq.queue("big").send(bytes(5_000_000))

    got = await queues.Receive(pb.ReceiveRequest(sources=[pb.Source(queue="big")]))

    (delivery,) = got.deliveries
    assert (delivery.body, delivery.omitted_bytes) == (b"", 5_000_000)
    done = await queues.Reject(pb.RejectRequest(receipts=[delivery.receipt]))
    assert list(done.outcomes) == [pb.OUTCOME_DONE]


async def test_extend_holds_longer(queues):
    await queues.Send(pb.SendRequest(queue="jobs", bodies=[b"a"]))
    got = await receive(queues, vt_ms=1000)

    await queues.Extend(pb.ExtendRequest(receipts=receipts(got), vt_ms=50_000))

    assert (await receive(queues)).next_visible_ms > 40_000


async def test_recover_takes_over_and_the_former_holder_is_fenced(queues):
    await queues.Send(pb.SendRequest(queue="jobs", bodies=[b"a"]))
    first = await receive(queues)

    taken = await queues.Recover(pb.RecoverRequest(source=JOBS[0], count=5, idle_ms=0))

    assert [d.rc for d in taken.deliveries] == [2]
    stale = await queues.Ack(pb.AckRequest(receipts=receipts(first)))
    assert list(stale.outcomes) == [pb.OUTCOME_RECEIVED_SINCE]


async def test_queues_are_made_described_changed_and_deleted(queues):
    made = pb.CreateQueueRequest(queue="new", vt_ms=5000, delay_ms=1000, maxsize=2048)
    assert (await queues.CreateQueue(made)).created
    assert await failure(queues.CreateQueue(made)) == (
        grpc.StatusCode.ALREADY_EXISTS,
        "queueExists",
        {"queue": "new", "ns": (await queues.GetInfo(pb.GetInfoRequest())).namespace},
    )
    made.exist_ok = True
    assert not (await queues.CreateQueue(made)).created
    assert list((await queues.ListQueues(pb.ListQueuesRequest())).queues) == ["jobs", "new"]
    stored = await queues.SetAttributes(pb.SetAttributesRequest(queue="new", vt_ms=7000))
    assert (stored.vt, stored.delay, stored.maxsize) == (7, 1, 2048)
    assert stored == await queues.GetAttributes(pb.GetAttributesRequest(queue="new"))
    await queues.DeleteQueue(pb.DeleteQueueRequest(queue="new"))
    status, code, _ = await failure(queues.GetAttributes(pb.GetAttributesRequest(queue="new")))
    assert (status, code) == (grpc.StatusCode.NOT_FOUND, "queueNotFound")


async def test_messages_are_looked_at_deleted_and_hidden_by_id(queues):
    ids = (await queues.Send(pb.SendRequest(queue="jobs", bodies=[b"a", b"b", b"c"]))).ids
    await receive(queues, count=1)

    peeked = await queues.Peek(pb.PeekRequest(queue="jobs", count=10))
    pending = await queues.ListPending(pb.ListPendingRequest(queue="jobs", count=10))
    assert [m.id for m in peeked.messages] == list(ids[1:])
    assert [m.message.id for m in pending.messages] == [ids[0]]
    hidden = pb.ChangeVisibilityRequest(queue="jobs", id=ids[1], vt_ms=60_000)
    assert (await queues.ChangeVisibility(hidden)).changed
    popped = await queues.Pop(pb.PopRequest(queue="jobs", count=5))
    assert [m.body for m in popped.messages] == [b"c"]
    deleted = await queues.DeleteMessages(pb.DeleteMessagesRequest(queue="jobs", ids=ids))
    assert sorted(deleted.ids) == sorted(ids[:2])


async def test_scan_walks_in_pages(queues):
    ids = (await queues.Send(pb.SendRequest(queue="jobs", bodies=[b"x"] * 7))).ids
    found, request = [], pb.ScanRequest(queue="jobs", count=3)
    for _ in range(3):
        page = await queues.Scan(request)
        found += [(m.message.id, m.state) for m in page.messages]
        if page.HasField("next"):
            request.after.CopyFrom(page.next)

    assert found == [(id, "ready") for id in ids]
    assert not page.HasField("next")


async def test_redrive_and_purge_tell_how_many(queues, rsmq):
    dead = await rsmq.create_queue("jobs-dead")
    ids = await dead.send_many(["a", "b", "c"])

    some = pb.RedriveRequest(source="jobs-dead", target="jobs", ids=[ids[1]])
    assert (await queues.Redrive(some)).moved == 1
    rest = pb.RedriveRequest(source="jobs-dead", target="jobs")
    assert (await queues.Redrive(rest)).moved == 2
    await receive(queues, count=1)
    assert (await queues.Purge(pb.PurgeRequest(queue="jobs"))).removed == 2
    assert (await queues.Purge(pb.PurgeRequest(queue="jobs", leased=True))).removed == 1


async def test_stats_tell_who_consumes(queues):
    await queues.Announce(
        pb.AnnounceRequest(queue="jobs", name="host:1", consumers=2, holding=["x"])
    )

    stats = await queues.GetStats(pb.GetStatsRequest(queue="jobs"))

    (consumer,) = stats.consumers
    assert (consumer.name, consumer.consumers) == ("anonymous/host:1", 2)


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (pb.SendRequest(queue="jobs"), "invalidValue"),
        (pb.SendRequest(queue="a b", bodies=[b"x"]), "invalidFormat"),
        (pb.SendRequest(bodies=[b"x"]), "missingParameter"),
        (pb.SendRequest(queue="jobs", bodies=[b"x"], delay_ms=-5), "invalidValue"),
        (pb.SendRequest(queue="jobs", bodies=[b"x"] * 1001), "invalidValue"),
        (pb.SendRequest(queue="jobs", bodies=[bytes(70_000)]), "messageTooLong"),
        (pb.SendRequest(queue="jobs", bodies=[b"x", b"y"], dedup_key="k"), "invalidValue"),
        (pb.SendRequest(queue="jobs", bodies=[b"x"], request=pb.RequestId(id="a")), "invalidValue"),
    ],
)
async def test_what_cannot_be_sent_is_refused_with_a_reason(queues, request_, code):
    status, word, _ = await failure(queues.Send(request_))

    assert (status, word) == (grpc.StatusCode.INVALID_ARGUMENT, code)


@pytest.mark.parametrize("max_bytes", [-1, 64 * 1024 * 1024 + 1, 10**12])
async def test_a_reply_of_no_sensible_size_is_refused(queues, max_bytes):
    request = pb.ReceiveRequest(sources=[pb.Source(queue="jobs")], max_bytes=max_bytes)
    status, word, _ = await failure(queues.Receive(request))

    assert (status, word) == (grpc.StatusCode.INVALID_ARGUMENT, "invalidValue")


async def test_watch_names_queues_in_which_something_arrives(queues, rsmq):
    await rsmq.create_queue("other")
    watching = queues.Watch(pb.WatchRequest(queues=["jobs", "other"]))
    assert list((await watching.read()).queues) == ["jobs", "other"]
    while True:  # until the broker has its subscriptions
        await queues.Send(pb.SendRequest(queue="other", bodies=[b"x"]))
        if list((await watching.read()).queues) == ["other"]:
            break
    watching.cancel()


READS = {
    "peek": lambda queues, **place: queues.Peek(pb.PeekRequest(queue="jobs", **place)),
    "pending": lambda queues, **place: queues.ListPending(
        pb.ListPendingRequest(queue="jobs", **place)
    ),
}


def ids_of(response):
    return [getattr(one, "message", one).id for one in response.messages]


@pytest.mark.parametrize("verb", READS)
async def test_large_messages_are_read_in_pages_of_about_one_reply(queues, rsmq, verb, monkeypatch):
    jobs = rsmq.queue("jobs")
    ids = [id for _ in range(4) for id in await jobs.send_many([b"x" * 60_000] * 50)]
    if verb == "pending":
        await jobs.receive_many(200)
    read, pages = getattr(Queue, verb), []

    async def watched(*place):
        pages.append(await read(*place))
        return pages[-1]

    monkeypatch.setattr(Queue, verb, watched)
    found = await READS[verb](queues, count=200)

    assert ids_of(found) == ids[:66]
    assert found.more
    in_memory = sum(len(one.body) for page in pages for one in page)
    assert in_memory < 5_000_000


@pytest.mark.parametrize("verb", READS)
async def test_small_messages_are_read_as_many_as_asked_for(queues, rsmq, verb):
    jobs = rsmq.queue("jobs")
    ids = await jobs.send_many([b"x"] * 300)
    if verb == "pending":
        await jobs.receive_many(300)

    for start, count, wanted in (
        (0, 200, ids[:200]),
        (150, 300, ids[150:]),
        (-200, 150, ids[-200:-50]),
        (-70, 300, ids[-70:]),
        (-350, 300, ids[:250]),
    ):
        found = await READS[verb](queues, start=start, count=count)
        assert (ids_of(found), found.more) == (wanted, False)
