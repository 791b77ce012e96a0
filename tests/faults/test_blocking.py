"""The blocking runner: what ran, ran once; what may be repeated, is."""

import asyncio
import os
import threading

import pytest
from redis import Redis

from aiorsmq_ng import AccessDenied, InvalidValue, QueueNotFound, Unavailable
from aiorsmq_ng._common.ids import suffixes
from aiorsmq_ng._protocol import messages, queues
from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.spark import bulk
from aiorsmq_ng._transport.blocking import BlockingRunner, shared_runner
from aiorsmq_ng.testing import FaultProxy
from tools.lab import SentinelGroup


@pytest.fixture
def keys(ns):
    return Namespace(ns).queue("jobs")


@pytest.fixture
def redis(server_url):
    with Redis.from_url(server_url) as client:
        yield client


@pytest.fixture
async def proxied(server_url, keys):
    async with FaultProxy(server_url) as proxy:
        runner = BlockingRunner(proxy.url, deadline_s=3)

        def run(operation):
            return asyncio.to_thread(runner.run, operation)

        run.close = lambda: asyncio.to_thread(runner.close)
        await run(queues.create(keys, vt=30, delay=0, maxsize=1024))
        yield proxy, run
        await run.close()


def send_once(keys):
    return messages.send(keys, [b"x"], delay_ms=0, entropy=os.urandom(22), channel=keys.wake)


def bulk_send(keys, job):
    rows = bulk.Rows(suffixes(os.urandom(22)), [-1], [b"marked"])
    return bulk.send(keys, rows, bulk.Place(job, "0"), ttl_s=60, oversize="fail")


async def test_send_whose_reply_is_lost_is_repeated_and_stored_once(proxied, keys, redis):
    proxy, run = proxied
    await run(send_once(keys))  # the server has the script from now on
    proxy.drop_reply(keys.hash.encode())

    [id] = await run(send_once(keys))

    assert redis.zcard(keys.zset) == 2
    assert redis.hexists(keys.hash, id)


async def test_pop_whose_reply_is_lost_is_not_repeated(proxied, keys, redis):
    proxy, run = proxied
    await run(messages.pop(keys, 1))  # the server has the script from now on
    for _ in range(2):
        await run(send_once(keys))
    proxy.drop_reply(keys.hash.encode())

    with pytest.raises(Unavailable) as caught:
        await run(messages.pop(keys, 1))

    assert caught.value.executed is None
    assert redis.zcard(keys.zset) == 1


async def test_bulk_send_whose_reply_is_lost_is_repeated_and_stored_once(proxied, keys, redis):
    proxy, run = proxied
    await run(bulk_send(keys, "other"))  # the server has the script from now on
    proxy.drop_reply(b"marked")

    sent = await run(bulk_send(keys, "job"))

    assert sent.skipped == 1
    assert redis.zcard(keys.zset) == 2


async def test_short_outage_is_not_noticed(proxied, keys):
    proxy, run = proxied
    await proxy.refuse()
    call = asyncio.create_task(run(send_once(keys)))
    await asyncio.sleep(0.3)
    await proxy.resume()

    assert len(await call) == 1


async def test_long_outage_ends_with_one_sentence(tmp_path, keys):
    runner = BlockingRunner(f"unix://{tmp_path}/none.sock", deadline_s=0.3)

    with pytest.raises(Unavailable, match="redis is not reachable") as caught:
        runner.run(queues.attributes(keys))
    assert caught.value.transient


async def test_flushed_scripts_are_not_noticed(proxied, keys, redis):
    _, run = proxied
    redis.script_flush()

    assert (await run(queues.attributes(keys))).msgs == 0


def test_code_words_and_merged_replies_are_understood(server_url, keys):
    runner = BlockingRunner(server_url, deadline_s=2)

    with pytest.raises(QueueNotFound):
        runner.run(send_once(keys))
    runner.run(queues.create(keys, vt=30, delay=0, maxsize=1024))
    (id,) = runner.run(send_once(keys))
    assert runner.run(messages.delete(keys, [id])) == [id]
    runner.close()


def test_threads_take_turns_on_one_connection(server_url, keys):
    runner = BlockingRunner(server_url, deadline_s=5)
    runner.run(queues.create(keys, vt=30, delay=0, maxsize=1024))
    threads = [
        threading.Thread(target=lambda: [runner.run(send_once(keys)) for _ in range(50)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert runner.run(queues.attributes(keys)).totalsent == 200
    runner.close()


def test_wrong_password_is_said_at_once(tmp_path, server_url, keys):
    runner = BlockingRunner(server_url, deadline_s=30, password="wrong")

    with pytest.raises(AccessDenied, match="refused access"):
        runner.run(queues.attributes(keys))


@pytest.mark.parametrize("url", ["memory://", "redis+cluster://h", "http://h", "redis://h:port"])
def test_url_it_cannot_use_is_refused_without_showing_it(url, keys):
    with pytest.raises(InvalidValue) as caught:
        BlockingRunner(url, deadline_s=1).run(queues.attributes(keys))
    assert "\n" not in str(caught.value)


def test_embedded_server_is_started_and_left(tmp_path, keys):
    runner = BlockingRunner(f"embedded://{tmp_path}/data", deadline_s=20)

    assert runner.run(queues.create(keys, vt=30, delay=0, maxsize=1024))
    runner.close()


def test_closing_takes_away_what_the_server_remembers(server_url, keys, redis):
    runner = BlockingRunner(server_url, deadline_s=5)
    runner.run(queues.create(keys, vt=30, delay=0, maxsize=1024))
    runner.run(send_once(keys))
    assert redis.keys(keys.memory("*"))

    runner.close()

    assert redis.keys(keys.memory("*")) == []


async def test_closing_leaves_what_an_attempt_on_its_way_must_find(proxied, keys, redis):
    proxy, run = proxied
    await run(send_once(keys))  # the server has the script from now on
    proxy.drop_reply(keys.hash.encode())
    await run(send_once(keys))
    await run(send_once(keys))

    await run.close()

    assert len(redis.keys(keys.memory("*"))) == 1


def test_process_shares_one_runner_per_url(server_url):
    assert shared_runner(server_url, deadline_s=1) is shared_runner(server_url, deadline_s=1)
    assert shared_runner(server_url, deadline_s=1) is not shared_runner(server_url, deadline_s=2)


PASSWORDS = ("redis://u:p@db.example", "redis+sentinel://h1/m?sentinel_password=p")


@pytest.mark.parametrize("url", PASSWORDS)
def test_password_is_not_sent_to_another_machine_in_clear_text_unless_that_is_allowed(url):
    with pytest.raises(InvalidValue, match="plainPassword") as caught:
        BlockingRunner(url, deadline_s=1)

    assert "example" not in str(caught.value)
    BlockingRunner(url, deadline_s=1, plain_password=True)
    BlockingRunner(url.replace("redis", "rediss", 1), deadline_s=1)


def test_password_from_elsewhere_is_guarded_like_one_in_the_url():
    with pytest.raises(InvalidValue, match="rediss://"):
        BlockingRunner("redis://db.example", deadline_s=1, password="p")

    for url in ("redis://127.0.0.1", "redis://localhost", "unix:///run/redis.sock"):
        BlockingRunner(url, deadline_s=1, password="p")


async def test_sentinels_lead_to_the_master_also_to_the_next_one(keys):
    async with SentinelGroup(replicas=1, sentinels=1) as group:
        runner = BlockingRunner(group.url, deadline_s=60)

        def run(operation):
            return asyncio.to_thread(runner.run, operation)

        await run(queues.create(keys, vt=30, delay=0, maxsize=1024))
        assert await group.master.command("WAIT", "1", "30000") == 1
        group.master.kill()
        await group.failed_over()
        await run(bulk_send(keys, "after"))

        assert (await run(queues.attributes(keys))).msgs == 1
        await asyncio.to_thread(runner.close)
        nobody = group.url.replace(group.service, "nobody")
        with pytest.raises(Unavailable, match="no sentinel names a master"):
            lost = BlockingRunner(nobody, deadline_s=1)
            await asyncio.to_thread(lost.run, queues.attributes(keys))
