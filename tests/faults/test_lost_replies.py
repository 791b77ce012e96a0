"""The reply that never came: every call answers as if nothing had happened, and acts once."""

import asyncio

import pytest

from aiorsmq_ng import RSMQ, InvalidValue, Options, SendUnknown, Unavailable
from aiorsmq_ng.testing import FaultProxy

from ..support.deadlines import hurrying
from ..support.keys import lasting_keys


@pytest.fixture
async def proxied(server_url, ns):
    options = Options(deadline=30.0, connect_timeout=5.0)
    async with (
        FaultProxy(server_url) as proxy,
        RSMQ(proxy.url, ns=ns, options=options) as rsmq,
    ):
        yield proxy, await rsmq.create_queue("jobs"), rsmq


def lose_the_next_reply(proxy):
    proxy.drop_reply(b"EVALSHA")


async def test_send_is_stored_once_and_returns_its_id(proxied):
    proxy, queue, _ = proxied
    await queue.send("warm up")
    lose_the_next_reply(proxy)
    id = await queue.send("precious")

    received = await queue.receive_many(5)
    assert [m.text for m in received] == ["warm up", "precious"]
    assert received[1].id == id
    assert (await queue.attributes()).totalsent == 2


async def test_sends_that_shared_the_call_are_stored_once_each(proxied):
    proxy, queue, _ = proxied
    await queue.send("warm up")
    lose_the_next_reply(proxy)
    ids = await asyncio.gather(*(queue.send(f"{i}") for i in range(50)))

    assert len(set(ids)) == 50
    assert (await queue.attributes()).totalsent == 51


async def test_receive_returns_the_message_that_was_taken(proxied):
    proxy, queue, _ = proxied
    await queue.send_many(["a", "b"])
    lose_the_next_reply(proxy)
    message = await queue.receive()

    assert message.text == "a"
    assert message.rc == 1
    attributes = await queue.attributes()
    assert (attributes.totalrecv, attributes.ready) == (1, 1)
    await message.ack()


async def test_receive_over_two_queues_returns_the_message_that_was_taken(proxied):
    proxy, queue, rsmq = proxied
    other = await rsmq.create_queue("other")
    await other.send_many(["a", "b"])
    lose_the_next_reply(proxy)
    message = await rsmq.receive(queue, other)

    assert message.text == "a"
    assert (await other.attributes()).totalrecv == 1


async def test_recover_returns_what_was_taken_over(proxied):
    proxy, queue, _ = proxied
    await queue.send("a")
    await queue.receive()
    lose_the_next_reply(proxy)
    [message] = await queue.recover(5, 0)

    assert message.rc == 2
    assert (await queue.attributes()).totalrecv == 2


async def test_settling_verbs_succeed(proxied):
    proxy, queue, rsmq = proxied
    target = await rsmq.create_queue("target")
    await queue.send_many(["ack", "reject", "forward", "release", "extend"])
    ack, reject, forward, release, extend = await queue.receive_many(5)
    for settle in (
        ack.ack,
        lambda: reject.reject("bad"),
        lambda: forward.forward("target"),
        release.release,
        lambda: extend.extend(60),
    ):
        lose_the_next_reply(proxy)
        await settle()

    assert [m.text for m in await target.peek()] == ["forward"]
    assert [m.text for m in await rsmq.queue("jobs-dead").peek()] == ["reject"]
    assert [m.text for m in await queue.peek()] == ["release"]
    assert [m.text for m in await queue.pending()] == ["extend"]


async def test_delete_tells_that_it_deleted(proxied):
    proxy, queue, _ = proxied
    id = await queue.send("a")
    lose_the_next_reply(proxy)

    assert await queue.delete(id)
    assert not await queue.delete(id)


async def test_queues_are_created_purged_and_deleted_once(proxied, raw, ns):
    proxy, queue, rsmq = proxied
    lose_the_next_reply(proxy)
    other = await rsmq.create_queue("other")  # without exist_ok
    await other.send_many(["a", "b"])
    lose_the_next_reply(proxy)
    assert await other.purge(leased=True) == 2
    await other.send_many(["a", "b", "c"])
    lose_the_next_reply(proxy)
    assert await queue.redrive(other) == 3
    lose_the_next_reply(proxy)
    await rsmq.delete_queue("other")

    assert await rsmq.list_queues() == ["jobs"]
    assert not [key for key in await lasting_keys(raw, ns) if b":other" in key]


async def test_pop_says_that_its_outcome_is_not_known(proxied):
    proxy, queue, _ = proxied
    await queue.pop()  # the server knows the script from now on
    await queue.send_many(["a", "b"])
    lose_the_next_reply(proxy)

    with pytest.raises(Unavailable) as caught:
        await queue.pop()
    assert caught.value.executed is None
    assert [m.text for m in await queue.peek()] == ["b"]


@pytest.fixture
async def patient(server_url, ns):
    options = Options(deadline=30, connect_timeout=5)
    async with (
        FaultProxy(server_url) as proxy,
        RSMQ(proxy.url, ns=ns, options=options) as rsmq,
    ):
        yield proxy, await rsmq.create_queue("jobs"), rsmq


async def test_send_unknown_at_the_deadline_can_be_resumed_without_a_second_copy(patient):
    proxy, queue, rsmq = patient
    await queue.send("warm up")
    proxy.half_open()
    with hurrying(rsmq):
        with pytest.raises(SendUnknown) as caught:
            await queue.send("precious")
        with pytest.raises(SendUnknown) as still:
            await queue.resend(caught.value.token)
    assert still.value.token is caught.value.token
    await proxy.resume()
    await proxy.cut()
    await queue.send("another")  # takes no notice of what is still open

    [id] = await queue.resend(caught.value.token)
    assert [m.text for m in await queue.receive_many(5)] == ["warm up", "precious", "another"]
    assert await queue.resend(caught.value.token) == [id]
    assert (await queue.attributes()).totalsent == 3


async def test_send_that_never_reached_the_server_is_stored_when_it_is_resumed(patient, server_url):
    proxy, queue, rsmq = patient
    await queue.send("warm up")
    proxy.black_hole()
    with hurrying(rsmq), pytest.raises(SendUnknown) as caught:
        await asyncio.gather(queue.send("a"), queue.send("b"))
    await proxy.cut()
    await proxy.resume()

    await queue.resend(caught.value.token)
    # Both shared the call; they are decided together.
    assert [m.text for m in await queue.receive_many(5)] == ["warm up", "a", "b"]


async def test_token_of_another_client_is_refused(patient, server_url, ns):
    proxy, queue, rsmq = patient
    await queue.send("warm up")
    proxy.half_open()
    with hurrying(rsmq), pytest.raises(SendUnknown) as caught:
        await queue.send("x")

    async with RSMQ(server_url, ns=ns) as other:
        with pytest.raises(InvalidValue, match="not of a send by this client"):
            await other.queue("jobs").resend(caught.value.token)


async def test_receive_unknown_at_the_deadline_is_given_back_when_the_server_answers(
    patient, server_url, ns
):
    proxy, queue, rsmq = patient
    await queue.send("a")
    proxy.half_open()
    with hurrying(rsmq, resumes=False), pytest.raises(Unavailable) as caught:
        await queue.receive(vt=600)
    assert caught.value.executed is None
    await proxy.resume()
    await proxy.cut()

    async with RSMQ(server_url, ns=ns) as other:
        assert (await other.queue("jobs").receive(wait=20)).rc == 2
