"""A client belongs to one event loop of one process; elsewhere it is refused before it writes."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import textwrap

import pytest

from aiorsmq_ng import RSMQ, ClientClosed, UsageError, WrongContext
from aiorsmq_ng.broker import Broker, BrokerOptions

pytestmark = pytest.mark.filterwarnings(
    "ignore:unclosed:ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


def elsewhere(coroutine):
    """Run a coroutine in an event loop of another thread, and return what it raises."""

    def run():
        try:
            return asyncio.run(coroutine)
        except Exception as error:
            return error

    return asyncio.to_thread(run)


async def counted(queue):
    """Return what any write to the queue would change."""
    now = await queue.attributes()
    return now.totalsent, now.totalrecv, now.ready, now.leased


CALLS = {
    "send": lambda rsmq, queue, message: queue.send("x"),
    "send_many": lambda rsmq, queue, message: queue.send_many(["x", "y"]),
    "receive": lambda rsmq, queue, message: queue.receive(),
    "long poll": lambda rsmq, queue, message: queue.receive(wait=5),
    "consume": lambda rsmq, queue, message: anext(queue.consume(prefetch=4)),
    "ack": lambda rsmq, queue, message: message.ack(),
    "extend": lambda rsmq, queue, message: message.extend(60),
    "block": lambda rsmq, queue, message: message.__aenter__(),
    "ack_many": lambda rsmq, queue, message: queue.ack_many([message]),
    "watch": lambda rsmq, queue, message: anext(rsmq.watch("jobs")),
    "attributes": lambda rsmq, queue, message: queue.attributes(),
    "open": lambda rsmq, queue, message: rsmq.open(),
    "aclose": lambda rsmq, queue, message: rsmq.aclose(),
}


@pytest.mark.parametrize("call", CALLS)
async def test_call_from_another_loop_is_refused_and_changes_nothing(rsmq, queue, call):
    await queue.send_many(["a", "b"])
    message = await queue.receive(vt=600)
    before = await counted(queue)

    for _ in range(3):
        error = await elsewhere(CALLS[call](rsmq, queue, message))
        assert isinstance(error, WrongContext)
        assert isinstance(error, UsageError)
        assert "another event loop; create one client per event loop" in str(error)

    assert await counted(queue) == before
    await message.ack()  # its own loop goes on
    assert (await queue.receive()).text == "b"


async def test_consumer_that_another_loop_wants_to_close_can_still_be_closed_by_its_own(queue):
    await queue.send_many(["a"] * 8)
    consumer = queue.consume(prefetch=4, vt=600)
    await (await anext(consumer)).ack()

    for call in (consumer.aclose, consumer.__anext__):
        assert isinstance(await elsewhere(call()), WrongContext)

    await consumer.aclose()
    async with asyncio.timeout(20):
        while (await queue.attributes()).leased:
            await asyncio.sleep(0.01)


async def test_call_by_a_broker_from_another_loop_is_refused_and_changes_nothing(rsmq, queue):
    options = BrokerOptions(listen=("127.0.0.1:0",), grace=0.2)
    async with (
        Broker(rsmq, options) as broker,
        RSMQ(f"grpc://{broker.addresses[0]}", ns=rsmq.ns) as remote,
    ):
        await remote.queue("jobs").send("a")

        assert isinstance(await elsewhere(remote.queue("jobs").send("b")), WrongContext)

    assert (await queue.attributes()).msgs == 1


def test_client_whose_loop_has_ended_says_so_in_the_next_one(server_url, ns):
    def two_loops():
        rsmq = RSMQ(server_url, ns=ns)

        async def first():
            await rsmq.create_queue("jobs")

        async def second():
            for call in (rsmq.queue("jobs").send("x"), rsmq.open()):
                with pytest.raises(WrongContext, match="an event loop that has ended"):
                    await call
            with pytest.raises(WrongContext):
                async with rsmq:
                    pass
            await rsmq.aclose()
            async with RSMQ(server_url, ns=ns) as own:
                assert (await own.queue("jobs").attributes()).msgs == 0

        asyncio.run(first())
        asyncio.run(second())

    two_loops()
    gc.collect()  # what its connections say about their end belongs to this test


def test_client_that_was_closed_says_that_in_the_next_loop(server_url, ns):
    rsmq = RSMQ(server_url, ns=ns)

    async def first():
        async with rsmq:
            await rsmq.create_queue("jobs")

    async def second():
        with pytest.raises(ClientClosed, match="the client is closed") as caught:
            await rsmq.queue("jobs").send("x")
        assert not isinstance(caught.value, WrongContext)

    asyncio.run(first())
    asyncio.run(second())


def test_client_that_was_made_before_a_fork_and_used_after_it_works(server_url, ns):
    told = in_a_process(
        server_url, ns,
        """
        rsmq = RSMQ(url, ns=ns)

        async def send():
            async with rsmq:
                await rsmq.create_queue("jobs", exist_ok=True)
                consumer = rsmq.queue("jobs").consume()
                waiting = asyncio.create_task(anext(consumer))
                await rsmq.queue("jobs").send("x")
                await (await waiting).ack()
                print(rsmq._presence.name, flush=True)

        children = [fork(lambda: asyncio.run(send())) for _ in range(2)]
        for child in children:
            print(os.waitpid(child, 0)[1])
        """,
    )  # fmt: skip

    assert told[-2:] == ["0", "0"]
    assert told[0] != told[1]


INHERITED = {
    "used": "asyncio.run(use())",
    "used on the same loop": "loop.run_until_complete(use())",
    "closed": "asyncio.run(rsmq.aclose())",
    "dropped": "asyncio.run(drop())",
}


@pytest.mark.parametrize("how", INHERITED)
def test_child_of_a_fork_does_not_touch_the_connections_of_its_parent(server_url, ns, how):
    """The parent's calls go on, on the connections they have: nothing is tried again in time."""
    told = in_a_process(
        server_url, ns,
        f"""
        async def begin():
            await rsmq.open()
            await rsmq.create_queue("jobs")
            consumer = rsmq.queue("jobs").consume(prefetch=4)
            await queue.send("first")
            await (await anext(consumer)).ack()
            return consumer

        async def use():
            for call in (queue.send("x"), anext(consumer), rsmq.open()):
                try:
                    await call
                except WrongContext as error:
                    assert f"opened in process {{os.getppid()}}" in str(error)
                else:
                    raise AssertionError("it was not refused")
            await rsmq.aclose()

        async def drop():
            global rsmq, queue, consumer, loop, beside
            del rsmq, queue, consumer, loop, beside
            gc.collect()

        async def go_on():
            async with asyncio.timeout(30):
                for n in range(20):
                    await queue.send(str(n))
                    message = await anext(consumer)
                    assert message.text == str(n)
                    await message.ack()
            await rsmq.aclose()

        async def on_its_own():
            async with RSMQ(url, ns=ns) as own:
                await own.queue("jobs").attributes()

        def child():
            {INHERITED[how]}
            asyncio.run(on_its_own())

        rsmq = RSMQ(url, ns=ns, options=Options(deadline=600))
        queue = rsmq.queue("jobs")
        loop = asyncio.new_event_loop()
        consumer = loop.run_until_complete(begin())
        beside = [consumer]
        beside.append(beside)
        print(os.waitpid(fork(child), 0)[1])
        loop.run_until_complete(go_on())
        """,
    )  # fmt: skip

    assert told == ["0"]


def test_child_of_a_fork_never_collects_a_client_of_its_parent(server_url, ns):
    """Closing its connections would take them out of the selector that both processes share."""
    told = in_a_process(
        server_url, ns,
        """
        import weakref
        from aiorsmq_ng._transport.loop_guard import LoopGuard

        class Owner:
            async def begin(self):
                self.home = LoopGuard(self)
                self.home.settle()

        def drop():
            global owner
            del owner
            gc.collect()
            print(seen() is not None, flush=True)

        owner = Owner()
        asyncio.run(owner.begin())
        seen = weakref.ref(owner)
        os.waitpid(fork(drop), 0)
        drop()
        """,
    )  # fmt: skip

    assert told == ["True", "False"]


@pytest.fixture
async def broker_url(rsmq, queue):
    options = BrokerOptions(listen=("127.0.0.1:0",), grace=0.2)
    async with Broker(rsmq, options) as broker:
        yield f"grpc://{broker.addresses[0]}"


BY_A_BROKER = """
        async def own():
            async with RSMQ(url, ns=ns) as client:
                return await client.queue("jobs").send("own")

        def refused(client=None):
            async def call():
                for work in (own, made.open, made.queue("jobs").send("x"), client and client.open):
                    try:
                        await (work() if callable(work) else work) if work else None
                    except WrongContext as error:
                        told = str(error)
                        assert "spawn" in told or "opened in process" in told, told
                    else:
                        assert not work, "it was not refused"
                await made.aclose()
            asyncio.run(call())

        def collect():
            global used, made
            del used, made
            gc.collect()

        made = RSMQ(url, ns=ns)
        """

FORKS_OF_A_GRPC_PROCESS = {
    "after a client that was closed": """
        asyncio.run(own())
        print(os.waitpid(fork(refused), 0)[1])
        asyncio.run(own())
        """,
    "after a client whose loop has ended": """
        used = RSMQ(url, ns=ns)
        asyncio.run(used.queue("jobs").send("x"))
        print(os.waitpid(fork(lambda: refused(used)), 0)[1])
        print(os.waitpid(fork(collect), 0)[1])
        asyncio.run(own())
        """,
    "while a client is open": """
        async def main():
            async with RSMQ(url, ns=ns) as client:
                await client.queue("jobs").send("x")
                print(os.waitpid(fork(lambda: refused(client), os._exit), 0)[1])
                await client.queue("jobs").send("y")
        asyncio.run(main())
        """,
    "of a child that was refused": """
        asyncio.run(own())
        def child():
            global made
            refused()
            made = RSMQ(url, ns=ns)
            assert os.waitpid(fork(refused, os._exit), 0)[1] == 0
        print(os.waitpid(fork(child), 0)[1])
        """,
    "of a process that serves": """
        from aiorsmq_ng.broker import Broker, BrokerOptions

        def serve():
            async def start():
                async with Broker(RSMQ("memory://"), BrokerOptions(listen=("127.0.0.1:0",))):
                    pass
            try:
                asyncio.run(start())
            except WrongContext:
                return
            raise AssertionError("it was not refused")

        async def main():
            async with (
                RSMQ("memory://") as client,
                Broker(client, BrokerOptions(listen=("127.0.0.1:0",), grace=0.2)),
            ):
                for work in (refused, serve):
                    print(os.waitpid(fork(work, os._exit), 0)[1])
        asyncio.run(main())
        """,
}


@pytest.mark.parametrize("when", FORKS_OF_A_GRPC_PROCESS)
async def test_child_of_a_process_that_used_grpc_is_refused_and_does_not_crash(
    broker_url, rsmq, when
):
    code = textwrap.dedent(BY_A_BROKER) + textwrap.dedent(FORKS_OF_A_GRPC_PROCESS[when])

    told = await asyncio.to_thread(in_a_process, broker_url, rsmq.ns, code)

    assert told
    assert set(told) == {"0"}


async def test_fork_before_grpc_is_used_leaves_it_to_parent_and_children(broker_url, rsmq, queue):
    code = """
        go, begin = os.pipe()
        children = [fork(lambda: (os.read(go, 1), asyncio.run(made.queue("jobs").send("x"))))]
        children.append(fork(lambda: (os.read(go, 1), asyncio.run(own()))))
        asyncio.run(own())
        os.write(begin, b"..")
        print(*(os.waitpid(child, 0)[1] for child in children))
        """

    told = await asyncio.to_thread(
        in_a_process, broker_url, rsmq.ns, textwrap.dedent(BY_A_BROKER) + textwrap.dedent(code)
    )

    assert told == ["0", "0"]
    assert (await queue.attributes()).msgs == 3


def in_a_process(url: str, ns: str, code: str) -> list[str]:
    """Run *code* in a process of its own, which may fork, and return what it prints."""
    head = """
        import asyncio, gc, os, sys, traceback
        from aiorsmq_ng import RSMQ, Options, WrongContext

        url, ns = sys.argv[1:]

        def fork(work, leave=sys.exit):
            pid = os.fork()
            if pid:
                return pid
            try:
                work()
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            leave(0)  # by default through the end of the interpreter, which collects everything
        """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(head) + textwrap.dedent(code),
         url, ns],
        capture_output=True, text=True, timeout=60, check=False, env=dict(os.environ),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.split()
