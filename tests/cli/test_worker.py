"""``rsmqctl worker run``: a worker as a process."""

import asyncio
import os
import signal
import sys

import pytest

from aiorsmq_ng import RSMQ
from aiorsmq_ng.testing import PrivateServer

from ..support.waiting import until
from .ctl import NOWHERE

MODULE = """
import asyncio
from aiorsmq_ng import RSMQ, Worker

worker = Worker(RSMQ(ns={ns!r}), concurrency=100, grace={grace})

def make_worker():
    return worker

@worker.handler("jobs", vt=60)
async def handle(body: str) -> None:
    while body == "stubborn":
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass
    await asyncio.sleep(0 if body == "quick" else {sleep})
"""


async def start(
    tmp_path,
    server_url,
    ns,
    *,
    grace=30,
    sleep=0.5,
    target="jobs_module:worker",
    then="",
    more=(),
    options=(),
    wait=None,
):
    code = MODULE.format(ns=ns, grace=grace, sleep=sleep)
    (tmp_path / "jobs_module.py").write_text(f"{code}    {then}\n")
    limit = () if wait is None else ("--wait-for-server", str(wait))
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "aiorsmq_ng.cli", "-r", server_url, *more,
        "worker", "run", *limit, *options, target,
        cwd=tmp_path, stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "RSMQ_URL": ""},
    )  # fmt: skip


async def read_until(process, words):
    """Read the log of *process* up to the line with *words*."""
    log = ""
    async with asyncio.timeout(60):
        while words not in log:
            line = await process.stderr.readline()
            assert line, log
            log += line.decode()
    return log


async def test_sigterm_with_a_hundred_handlers_running_loses_nothing(
    tmp_path, server_url, ns, queue
):
    await queue.send_many([str(i) for i in range(250)])
    process = await start(tmp_path, server_url, ns)

    async def busy():
        return (await queue.attributes()).leased >= 100

    await until(busy)
    process.send_signal(signal.SIGTERM)
    _, log = await process.communicate()

    attributes = await queue.attributes()
    assert process.returncode == 0
    assert b" starting <Worker of jobs, new>\n" in log
    done = 250 - attributes.msgs
    assert f" stopped; messages done: {done}, failed: 0, rejected: 0, " in log.decode()
    assert attributes.leased == 0
    assert attributes.ready == attributes.msgs < 250


async def test_second_signal_ends_at_once_and_gives_back(tmp_path, server_url, ns, queue):
    await queue.send("slow")
    process = await start(tmp_path, server_url, ns, grace=3600, sleep=3600)

    async def busy():
        return (await queue.attributes()).leased == 1

    await until(busy)
    process.send_signal(signal.SIGINT)
    await asyncio.sleep(0.2)
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(20):
        await process.communicate()

    assert (await queue.attributes()).ready == 1


async def test_handler_that_ignores_cancellation_does_not_keep_the_process(
    tmp_path, server_url, ns, queue
):
    await queue.send("stubborn")
    process = await start(tmp_path, server_url, ns, grace=0.1)

    async def busy():
        return (await queue.attributes()).leased == 1

    await until(busy)
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(30):
        await process.communicate()

    assert process.returncode == 0


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("jobs_module", "not of the form MODULE:NAME"),
        ("no_such_module:worker", "no module 'no_such_module'"),
        ("jobs_module:nothing", "no Worker called 'nothing'"),
        ("jobs_module:asyncio", "no Worker called 'asyncio': that is a module"),
        (
            "jobs_module:make_worker",
            "that is a function; add worker = make_worker() to the module and give jobs_module:w",
        ),
        (".jobs_module:worker", "not of the form MODULE:NAME"),
    ],
)
async def test_target_that_is_no_worker_is_said_in_one_sentence(
    tmp_path, server_url, ns, target, sentence
):
    process = await start(tmp_path, server_url, ns, target=target)
    _, err = await process.communicate()

    assert process.returncode == 2
    assert sentence in err.decode()
    assert "Traceback" not in err.decode()


@pytest.mark.parametrize(
    ("code", "what"),
    [
        ("import no_such_module", "ModuleNotFoundError: No module named 'no_such_module'"),
        ("worker = (", "SyntaxError: '(' was never closed"),
        ("raise RuntimeError('no settings')", "RuntimeError: no settings"),
    ],
)
async def test_module_that_cannot_be_imported_is_said_in_one_sentence(
    tmp_path, server_url, ns, code, what
):
    (tmp_path / "broken_module.py").write_text(code)
    process = await start(tmp_path, server_url, ns, target="broken_module:worker")
    _, err = await process.communicate()

    assert process.returncode == 1
    (sentence,) = err.decode().splitlines()
    assert sentence.startswith(f"rsmqctl: module 'broken_module' cannot be imported: {what}")


async def test_namespace_that_the_program_does_not_use_is_refused(tmp_path, server_url, ns):
    process = await start(tmp_path, server_url, ns, more=("--ns", "another"))
    _, err = await process.communicate()

    assert process.returncode == 2
    assert f"works in namespace {ns!r}, also with --ns" in err.decode()


async def test_error_that_quotes_a_message_does_not_steer_the_terminal(
    tmp_path, server_url, ns, queue
):
    await queue.send("\x1b[2Jgone")
    process = await start(tmp_path, server_url, ns, then="raise ValueError(body)")
    assert process.stderr is not None
    async with asyncio.timeout(60):
        while b"ValueError: " not in (line := await process.stderr.readline()):
            pass
    process.send_signal(signal.SIGTERM)
    await process.communicate()

    assert line == b"ValueError: \\u001b[2Jgone\n"


async def test_worker_waits_for_its_server_and_goes_on_through_an_outage(tmp_path, ns):
    async with PrivateServer(persistence="always") as server:
        url = server.url
        server.kill()
        process = await start(tmp_path, url, ns)
        log = await read_until(process, "the server does not answer, waiting for it")
        await server.start()
        log += await read_until(process, "the server answers again")
        async with RSMQ(url, ns=ns) as rsmq:
            await until(rsmq.queue("jobs").exists)
            await rsmq.queue("jobs").send("quick")

            async def done():
                return (await rsmq.queue("jobs").attributes()).msgs == 0

            await until(done)
        server.kill()
        log += await read_until(process, "the server does not answer, waiting for it")
        await server.start()
        log += await read_until(process, "the server answers again")
        process.send_signal(signal.SIGTERM)
        _, rest = await process.communicate()

    log += rest.decode()
    assert process.returncode == 0
    # One line for each change.
    assert log.count("does not answer") == log.count("answers again") == 2, log
    assert "Traceback" not in log


async def test_signal_while_it_waits_for_the_server_ends_it_with_0(tmp_path, ns):
    process = await start(tmp_path, NOWHERE, ns)
    await read_until(process, "the server does not answer, waiting for it")
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(20):
        _, log = await process.communicate()

    assert process.returncode == 0
    assert "Traceback" not in log.decode()


async def test_worker_without_a_server_exits_with_4_and_one_sentence(tmp_path, ns):
    process = await start(tmp_path, NOWHERE, ns, wait=0)
    _, err = await process.communicate()

    assert process.returncode == 4
    sentence = err.decode().splitlines()[-1]
    assert sentence.startswith("rsmqctl: redis cannot be reached: ")
    assert sentence.endswith("check that the server runs and that -r or RSMQ_URL names it")
    assert "Traceback" not in err.decode()


ADDRESSES = {
    "plain-password": "redis://:secret@db.example",
    "insecure-tls": "rediss://db.example?ssl_cert_reqs=none",
}
PLAIN_WORKER = """
from aiorsmq_ng import RSMQ, Worker
worker = Worker(RSMQ())
print("made", flush=True)
raise SystemExit(7)
"""


@pytest.mark.parametrize("way", ["flag", "environment", "neither"])
@pytest.mark.parametrize("what", ADDRESSES)
async def test_worker_without_options_obeys_what_the_operator_allows(tmp_path, what, way):
    (tmp_path / "plain_module.py").write_text(PLAIN_WORKER)
    variable = f"RSMQ_{what.replace('-', '_').upper()}"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "aiorsmq_ng.cli", *([f"--{what}"] if way == "flag" else []),
        "worker", "run", "plain_module:worker",
        cwd=tmp_path, stderr=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "RSMQ_URL": ADDRESSES[what], variable: str(int(way == "environment"))},
    )  # fmt: skip
    out, err = await process.communicate()

    if way == "neither":
        assert (process.returncode, out) == (1, b"")
        assert err.decode().count(f"{variable}=1 in the environment or --{what};") == 1
    else:
        assert (process.returncode, out) == (7, b"made\n")
        assert err.decode().count(f"WARNING aiorsmq_ng.transport: {variable}=1: ") == 1
    assert b"secret" not in err
