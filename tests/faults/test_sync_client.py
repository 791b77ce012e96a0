"""The client for code without an event loop: outages, threads, forks, signals, exit."""

import asyncio
import os
import pickle
import socket
import subprocess
import sys
import threading

import pytest
from redis import Redis

from aiorsmq_ng import (
    AccessDenied,
    InvalidValue,
    Options,
    QueueNotFound,
    RSMQError,
    Unavailable,
    WrongContext,
)
from aiorsmq_ng._common.message_ids import suffixes
from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.operations import messages, queues
from aiorsmq_ng._protocol.operations.spark import bulk_send
from aiorsmq_ng._runtime import sync_client
from aiorsmq_ng._runtime.sync_client import SyncClient, shared_client
from aiorsmq_ng.testing import FaultProxy, PrivateServer
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
        client = SyncClient(proxy.url, Options(deadline=3))

        def run(operation):
            return asyncio.to_thread(client.run, operation)

        run.close = lambda: asyncio.to_thread(client.close)
        await run(queues.create(keys, vt=30, delay=0, maxsize=1024))
        yield proxy, run
        await run.close()


def send_once(keys):
    return messages.send(keys, [b"x"], delay_ms=0, channel=keys.wake)


def send_rows(keys, job):
    rows = bulk_send.Rows(suffixes(os.urandom(22)), [-1], [b"marked"])
    return bulk_send.send(keys, rows, bulk_send.Place(job, "0"), ttl_s=60, oversize="fail")


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
    await run(send_rows(keys, "other"))  # the server has the script from now on
    proxy.drop_reply(b"marked")

    sent = await run(send_rows(keys, "job"))

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
    client = SyncClient(f"unix://{tmp_path}/none.sock", Options(deadline=0.3))

    with pytest.raises(Unavailable, match="redis cannot be reached") as caught:
        client.run(queues.attributes(keys))
    assert caught.value.transient


async def test_flushed_scripts_are_not_noticed(proxied, keys, redis):
    _, run = proxied
    redis.script_flush()

    assert (await run(queues.attributes(keys))).msgs == 0


def test_code_words_and_merged_replies_are_understood(server_url, keys):
    client = SyncClient(server_url, Options(deadline=2))

    with pytest.raises(QueueNotFound):
        client.run(send_once(keys))
    client.run(queues.create(keys, vt=30, delay=0, maxsize=1024))
    (id,) = client.run(send_once(keys))
    assert client.run(messages.delete(keys, [id])) == [id]
    client.close()


def test_threads_take_turns_on_one_connection(server_url, keys):
    client = SyncClient(server_url, Options(deadline=5))
    client.run(queues.create(keys, vt=30, delay=0, maxsize=1024))
    threads = [
        threading.Thread(target=lambda: [client.run(send_once(keys)) for _ in range(50)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert client.run(queues.attributes(keys)).totalsent == 200
    client.close()


def test_wrong_password_is_said_at_once(tmp_path, server_url, keys):
    client = SyncClient(server_url, Options(deadline=30), password="wrong")

    with pytest.raises(AccessDenied, match="refused access"):
        client.run(queues.attributes(keys))


@pytest.mark.parametrize("url", ["http://h", "redis://h:port"])
def test_url_it_cannot_use_is_refused_without_showing_it(url):
    with pytest.raises(InvalidValue) as caught:
        SyncClient(url, Options())
    assert "\n" not in str(caught.value)


def test_embedded_server_is_started_and_left(tmp_path, keys):
    client = SyncClient(f"embedded://{tmp_path}/data", Options(deadline=20))

    assert client.run(queues.create(keys, vt=30, delay=0, maxsize=1024))
    client.close()


def test_closing_takes_away_what_the_server_remembers(server_url, keys, redis):
    client = SyncClient(server_url, Options(deadline=5))
    client.run(queues.create(keys, vt=30, delay=0, maxsize=1024))
    client.run(send_once(keys))
    assert redis.keys(keys.call_record("*"))

    client.close()

    assert redis.keys(keys.call_record("*")) == []


async def test_closing_leaves_what_an_attempt_on_its_way_must_find(proxied, keys, redis):
    proxy, run = proxied
    await run(send_once(keys))  # the server has the script from now on
    proxy.drop_reply(keys.hash.encode())
    await run(send_once(keys))
    await run(send_once(keys))

    await run.close()

    assert len(redis.keys(keys.call_record("*"))) == 1


def test_process_shares_one_client_for_the_same_settings(server_url):
    slow, quick = Options(deadline=9), Options(deadline=1)

    assert shared_client(server_url, slow) is shared_client(server_url, slow)
    assert shared_client(server_url, slow) is not shared_client(server_url, quick)


def test_clients_of_a_process_share_one_event_loop_thread(server_url, keys):
    clients = [SyncClient(server_url, Options()) for _ in range(3)]
    for client in clients:
        client.run(queues.exists(keys))

    names = [thread.name for thread in threading.enumerate()]
    assert names.count("aiorsmq-ng event loop") == 1
    for client in clients:
        client.close()


def test_closed_client_refuses_operations_and_closes_twice(server_url, keys):
    client = SyncClient(server_url, Options())
    client.run(queues.exists(keys))
    client.close()
    client.close()

    with pytest.raises(RSMQError, match="closed"):
        client.run(queues.exists(keys))


def test_operations_run_in_order_with_the_next_one_in_flight(server_url, keys):
    client, made = SyncClient(server_url, Options(deadline=5)), []
    client.run(queues.create(keys, vt=30, delay=0, maxsize=1024))

    def sends():
        for number in range(5):
            made.append(number)
            yield send_once(keys)

    results = client.run_ahead(sends())
    first = next(results)
    assert made == [0, 1]
    ids = [first, *results]

    assert client.run(queues.attributes(keys)).msgs == len(ids) == 5
    assert list(client.run_ahead([])) == []
    client.close()


def test_operation_of_a_chain_is_made_from_the_result_before_it(server_url, keys):
    client, seen = SyncClient(server_url, Options(deadline=5)), []
    client.run(queues.create(keys, vt=30, delay=0, maxsize=1024))

    def following(ids):
        seen.append(ids)
        return send_once(keys) if len(seen) < 3 else None

    results = client.run_chain(send_once(keys), following)
    first = next(results)
    assert seen == [first]
    rest = list(results)

    assert [first, *rest] == seen
    assert client.run(queues.attributes(keys)).msgs == 3
    client.close()


def test_operation_that_fails_ends_those_behind_it(server_url, keys):
    client = SyncClient(server_url, Options(deadline=5))
    client.run(queues.create(keys, vt=30, delay=0, maxsize=1024))
    missing = Namespace(keys.namespace.name).queue("missing")
    results = client.run_ahead([send_once(keys), send_once(missing), send_once(keys)])

    assert len(next(results)) == 1
    with pytest.raises(QueueNotFound):
        next(results)
    assert client.run(queues.attributes(keys)).msgs == 1
    client.close()


def in_child(work):
    """Run *work* in a forked child and return what it returns."""
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            result = work()
        except BaseException as error:
            result = error
        os.write(write_end, pickle.dumps(result))
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as pipe:
        result = pickle.load(pipe)
    os.waitpid(child, 0)
    return result


def test_forked_child_has_an_event_loop_thread_and_connections_of_its_own(server_url, keys, redis):
    options = Options(deadline=5)
    shared_client(server_url, options).run(queues.create(keys, vt=30, delay=0, maxsize=1024))

    def work():
        inherited = [thread.name for thread in threading.enumerate()]
        (id,) = shared_client(server_url, options).run(send_once(keys))
        return inherited, id, [thread.name for thread in threading.enumerate()]

    inherited, sent, threads = in_child(work)

    assert "aiorsmq-ng event loop" not in inherited
    assert threads.count("aiorsmq-ng event loop") == 1
    assert redis.hexists(keys.hash, sent)
    # The parent's connection was not touched.
    assert shared_client(server_url, options).run(queues.attributes(keys)).msgs == 1


def test_client_of_the_parent_is_refused_in_a_forked_child(server_url, keys):
    client = SyncClient(server_url, Options(deadline=5))
    client.run(queues.exists(keys))

    refusal = in_child(lambda: client.run(queues.exists(keys)))

    assert isinstance(refusal, WrongContext)
    assert "one client per process" in str(refusal)
    assert in_child(client.close) is None
    assert client.run(queues.exists(keys)) is False
    client.close()


def test_client_that_was_not_used_before_the_fork_can_be_used_after_it(server_url, keys):
    client = SyncClient(server_url, Options(deadline=5))

    assert in_child(lambda: client.run(queues.exists(keys))) is False


def test_client_that_was_made_before_the_fork_is_closed_when_the_child_exits(
    server_url, keys, redis
):
    """What the server remembers of its calls is removed then."""
    client = SyncClient(server_url, Options(deadline=5))
    used = SyncClient(server_url, Options(deadline=5))
    used.run(queues.create(keys, vt=30, delay=0, maxsize=1024))

    before = set(redis.keys(f"{keys.zset}:ng:call:*"))

    def work():
        client.run(send_once(keys))
        remembered = Redis.from_url(server_url).keys(f"{keys.zset}:ng:call:*")
        sync_client._close_all()
        return set(remembered)

    assert in_child(work) > before
    assert set(redis.keys(f"{keys.zset}:ng:call:*")) == before
    # That of the parent goes on.
    assert used.run(queues.attributes(keys)).msgs == 1
    used.close()


INTERRUPTED = """
import signal, sys
from aiorsmq_ng import Options
from aiorsmq_ng._protocol.operations import queues
from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._runtime.sync_client import SyncClient

signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
client = SyncClient(sys.argv[1], Options(deadline=600, connect_timeout=600))
client.run(queues.exists(Namespace("rsmq").queue("jobs")))
"""


def test_signal_that_ends_the_process_ends_a_call_that_waits(tmp_path):
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(f"{tmp_path}/silent.sock")
        silent.listen()
        child = subprocess.Popen(
            [sys.executable, "-c", INTERRUPTED, f"unix://{tmp_path}/silent.sock"],
            stderr=subprocess.PIPE,
        )
        peer, _ = silent.accept()
        with peer:
            assert peer.recv(1)  # the child waits for a reply from now on
            child.terminate()
            _, errors = child.communicate()

    assert child.returncode == 143
    assert b"Traceback" not in errors


# A machine under load makes the client log that it waits; and closing must not give up there.
LEFT_OPEN = """
import logging, sys
from aiorsmq_ng import Options
from aiorsmq_ng._protocol.operations import messages, queues
from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._runtime.sync_client import SyncClient
from aiorsmq_ng._transport import call_runner, transport

logging.basicConfig(level=logging.ERROR)
transport.CLOSE_S = call_runner.FORGET_S = 600
keys = Namespace(sys.argv[2]).queue("jobs")
client = SyncClient(sys.argv[1], Options(deadline=600, connect_timeout=600))
client.run(queues.create(keys, vt=30, delay=0, maxsize=1024))
client.run(messages.send(keys, [b"x"], delay_ms=0, channel=keys.wake))
"""


def leave_open(url, ns):
    """Exit an interpreter with a client that is not closed; return exit code and standard error."""
    ended = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", LEFT_OPEN, url, ns],
        capture_output=True,
        check=False,
    )
    return ended.returncode, ended.stderr


def test_exit_of_the_interpreter_closes_clients(server_url, ns, keys, redis):
    assert leave_open(server_url, ns) == (0, b"")

    assert redis.zcard(keys.zset) == 1
    # What the server kept for repetitions was removed, as closing does.
    assert redis.keys(keys.call_record("*")) == []


def test_exit_of_the_interpreter_releases_an_embedded_server(tmp_path, ns):
    assert leave_open(f"embedded://{tmp_path}/data", ns) == (0, b"")


async def test_server_that_evicts_queues_is_refused_unless_allowed(keys):
    async with PrivateServer("--maxmemory-policy", "allkeys-lru") as server:
        refused, allowed = (
            SyncClient(server.url, Options(allow_eviction=allow)) for allow in (False, True)
        )
        with pytest.raises(RSMQError, match="maxmemory-policy"):
            await asyncio.to_thread(refused.run, queues.exists(keys))
        assert await asyncio.to_thread(allowed.run, queues.exists(keys)) is False
        for client in (refused, allowed):
            await asyncio.to_thread(client.close)


PASSWORDS = ("redis://u:p@db.example", "redis+sentinel://h1/m?sentinel_password=p")


@pytest.mark.parametrize("url", PASSWORDS)
def test_password_is_not_sent_to_another_machine_in_clear_text_unless_that_is_allowed(url):
    with pytest.raises(InvalidValue, match="plain_password") as caught:
        SyncClient(url, Options(deadline=1))

    assert "example" not in str(caught.value)
    SyncClient(url, Options(plain_password=True))
    SyncClient(url.replace("redis", "rediss", 1), Options())


def test_password_from_elsewhere_is_guarded_like_one_in_the_url():
    with pytest.raises(InvalidValue, match="rediss://"):
        SyncClient("redis://db.example", Options(deadline=1), password="p")

    for url in ("redis://127.0.0.1", "redis://localhost", "unix:///run/redis.sock"):
        SyncClient(url, Options(deadline=1), password="p")


async def test_sentinels_lead_to_the_master_also_to_the_next_one(keys):
    async with SentinelGroup(replicas=1, sentinels=1) as group:
        client = SyncClient(group.url, Options(deadline=60))

        def run(operation):
            return asyncio.to_thread(client.run, operation)

        await run(queues.create(keys, vt=30, delay=0, maxsize=1024))
        assert await group.master.command("WAIT", "1", "30000") == 1
        group.master.kill()
        await group.failed_over()
        await run(send_rows(keys, "after"))

        assert (await run(queues.attributes(keys))).msgs == 1
        await asyncio.to_thread(client.close)
        unknown = group.url.replace(group.service, "unknown")
        with pytest.raises(Unavailable, match="no master found"):
            lost = SyncClient(unknown, Options(deadline=1))
            await asyncio.to_thread(lost.run, queues.attributes(keys))
