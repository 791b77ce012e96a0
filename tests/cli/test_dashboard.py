"""``rsmqctl serve dashboard`` and ``rsmqctl dashboard``."""

import asyncio
import re
import signal

import httpx
import pytest

from .ctl import MODULE, python, shell


@pytest.fixture
async def start(server_url, ns):
    started = []

    async def start(*words):
        process = await asyncio.create_subprocess_exec(
            *(*MODULE, "-r", server_url, "--ns", ns, *words),
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def test_served_dashboard_shows_queues_and_stops_with_open_streams(start, rsmq):
    await rsmq.create_queue("jobs")
    process = await start("serve", "dashboard", "--listen", "127.0.0.1:0")
    line = (await process.stderr.readline()).decode()
    place = re.search(r"on (http://127.0.0.1:\d+/)", line)[1]

    async with httpx.AsyncClient(base_url=place, timeout=60) as web:
        page = await web.get("/q/jobs")
        async with web.stream("GET", "/api/v1/events") as stream:
            chunks = stream.aiter_text()
            await anext(chunks)
            process.send_signal(signal.SIGTERM)
            async for _ in chunks:
                pass
    _, log = await process.communicate()

    assert page.status_code == 200
    assert (process.returncode, b"Traceback" in log) == (0, False)


async def test_dashboard_prints_an_address_with_a_token(start, rsmq):
    process = await start("dashboard", "--no-browser", "--read-only")
    address = (await process.stdout.readline()).decode().strip()
    place, token = re.fullmatch(r"(http://127.0.0.1:\d+/)login#token=(\S+)", address).groups()

    async with httpx.AsyncClient(base_url=place, timeout=60) as web:
        outside = await web.get("/")
        inside = await web.get("/", headers={"authorization": f"Bearer {token}"})
    process.send_signal(signal.SIGINT)
    await process.communicate()

    assert (outside.status_code, inside.status_code) == (303, 200)
    assert "read-only" in inside.text
    assert process.returncode == 0


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["--listen", "0.0.0.0:0"], "needs --tokens"),
        (["--listen", "here"], "HOST:PORT"),
        (["--cert", "x.pem"], "belong together"),
    ],
)
def test_dashboard_that_others_could_reach_needs_a_login_and_tls(words, sentence):
    outcome = shell("serve", "dashboard", *words)

    assert outcome.status == 2
    assert sentence in outcome.err


def test_dashboard_for_others_with_tokens_needs_tls():
    outcome = shell(
        *("serve", "dashboard", "--listen", "0.0.0.0:0"), RSMQ_BROKER_TOKEN="0123456789abcdef"
    )

    assert outcome.status == 2
    assert "needs --cert, or --insecure" in outcome.err


def test_missing_extra_is_said_with_the_line_to_type():
    code = (
        "import sys; sys.modules['starlette'] = None; from aiorsmq_ng.cli import main; "
        "sys.exit(main(['serve', 'dashboard']))"
    )
    outcome = python(code)

    assert outcome.status == 1
    assert 'pip install "aiorsmq-ng[dashboard]"' in outcome.err
