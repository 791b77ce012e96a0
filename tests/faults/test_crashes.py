"""Worker processes are killed at random, and by messages: nothing is lost."""

import asyncio
import random
import signal
import sys
from collections import Counter

import pytest

from aiorsmq_ng import RSMQ, Delivery, Options

from ..support import crash_worker

MESSAGES, WORKERS, KILLS, POISONS = 20_000, 4, 30, 5


async def start(server_url, ns):
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        crash_worker.__name__,
        server_url,
        ns,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )


@pytest.mark.timeout(240)
async def test_killed_workers_lose_nothing_and_poisons_end_as_dead_letters(rsmq, server_url, ns):
    """20 000 messages, 4 processes, at least 30 random SIGKILLs, 5 messages that kill."""
    rng = random.Random(1)
    jobs = await rsmq.create_queue("jobs")
    done = await rsmq.create_queue("done")
    bodies = [str(i) for i in range(MESSAGES)] + [f"poison {i}" for i in range(POISONS)]
    rng.shuffle(bodies)
    for at in range(0, len(bodies), 1000):
        await jobs.send_many(bodies[at : at + 1000])
    workers = [await start(server_url, ns) for _ in range(WORKERS)]
    kills = 0
    try:
        while (await jobs.attributes()).msgs or kills < KILLS:
            await asyncio.sleep(rng.uniform(0.05, 0.4))
            if kills < KILLS:
                victim = rng.choice(workers)
                if victim.returncode is None:
                    victim.send_signal(signal.SIGKILL)
                    kills += 1
            for i, worker in enumerate(workers):
                if worker.returncode is not None:
                    workers[i] = await start(server_url, ns)
    finally:
        for worker in workers:
            if worker.returncode is None:
                worker.terminate()
        codes = [await worker.wait() for worker in workers]

    seen: Counter[str] = Counter()
    while batch := await done.pop_many(5000):
        seen.update(m.text for m in batch)
    dead = await rsmq.queue("jobs-dead").peek(0, 1000)
    assert kills >= KILLS
    assert 0 in codes
    assert (await jobs.attributes()).msgs == 0
    assert set(seen) | {m.text for m in dead} >= set(bodies)
    poisons = sorted((m.text, m.rc) for m in dead if m.text.startswith("poison"))
    assert poisons == [(f"poison {i}", crash_worker.MAX_RECEIVES) for i in range(POISONS)]
    # Some were handled and killed before their ack; that is what at least once means.
    assert sum(seen.values()) >= MESSAGES - len(dead) + POISONS


async def test_stopped_process_cannot_ack_after_its_lease(rsmq, queue, server_url, ns, tmp_path):
    """A process stopped for longer than its lease comes back, and its ack changes nothing."""
    script = tmp_path / "holder.py"
    script.write_text(
        "import asyncio, sys\n"
        "from aiorsmq_ng import RSMQ, LeaseLost\n"
        "async def main():\n"
        "    async with RSMQ(sys.argv[1], ns=sys.argv[2]) as rsmq:\n"
        "        try:\n"
        "            async with await rsmq.queue('jobs').receive(vt=0.5):\n"
        "                print('held', flush=True)\n"
        "                sys.stdin.readline()\n"  # blocks the loop: no renewals, as if stopped
        "        except LeaseLost:\n"
        "            print('lost', flush=True)\n"
        "asyncio.run(main())\n"
    )
    await queue.send("x")
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        script,
        server_url,
        ns,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert (await process.stdout.readline()).strip() == b"held"
    other = await queue.receive(wait=10)
    assert isinstance(other, Delivery)
    assert other.rc == 2
    process.stdin.write(b"go on\n")
    assert (await process.stdout.readline()).strip() == b"lost"
    await process.wait()
    process._transport.close()

    await other.ack()
    assert (await queue.attributes()).msgs == 0


async def test_fifty_messages_with_prefetch_ten_never_wait_for_the_poll(server_url, ns):
    """A look that slept between fetches (as rmq does) would take a minute here."""
    options = Options(poll_base=60, poll_cap=60)
    async with RSMQ(server_url, ns=ns, options=options) as rsmq:
        queue = await rsmq.create_queue("jobs")
        await queue.send_many([str(i) for i in range(50)])
        seen = []
        async with asyncio.timeout(30), queue.consume(prefetch=10) as consumer:
            async for message in consumer:
                async with message:
                    seen.append(message.text)
                if len(seen) == 50:
                    break

        assert sorted(map(int, seen)) == list(range(50))
        attributes = await queue.attributes()
        assert (attributes.msgs, attributes.leased) == (0, 0)
