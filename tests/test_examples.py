"""Every example runs, says what it promises, and leaves nothing behind."""

import ast
import asyncio
import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from redis import Redis

from aiorsmq_ng import RSMQ, Options
from aiorsmq_ng.testing import PrivateServer

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


def promised(example: Path) -> str:
    """Return the last line that the docstring of *example* promises."""
    docstring = ast.get_docstring(ast.parse(example.read_text())) or ""
    promise = re.search(r"Its last\s+line is: (.+)\Z", docstring)
    assert promise, f"{example.name} does not promise a last line"
    return promise[1]


def example_queues(server_url: str) -> set[bytes]:
    with Redis.from_url(server_url) as redis:
        return {name for name in redis.smembers("rsmq:QUEUES") if name.startswith(b"example-")}


def test_there_are_examples():
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=[e.stem for e in EXAMPLES])
def test_example_runs_and_prints_what_it_promises(example, server_url):
    before = example_queues(server_url)
    result = subprocess.run(
        [sys.executable, "-W", "error", example],
        cwd=ROOT,
        env={**os.environ, "RSMQ_URL": server_url},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines()[-1] == promised(example)
    assert example_queues(server_url) <= before


@pytest.mark.parametrize("trouble", ["queue deleted", "server gone"])
async def test_service_of_the_example_answers_503_when_its_worker_cannot_work(trouble, monkeypatch):
    async with PrivateServer() as server:
        service = runpy.run_path(str(ROOT / "examples" / "fastapi_service.py"))
        monkeypatch.setitem(service["create_app"].__globals__, "URL", server.url)
        app = service["create_app"]("orders")
        web = httpx.ASGITransport(app=app)
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=web, base_url="http://service") as client,
        ):

            async def answered(status):
                async with asyncio.timeout(60):
                    while (answer := await client.get("/health")).status_code != status:
                        await asyncio.sleep(0.05)
                return answer.json()

            await answered(200)
            if trouble == "server gone":
                server.kill()
                assert (await answered(503))["server_away"]
            else:
                async with RSMQ(server.url) as rsmq:
                    await rsmq.delete_queue("orders")
                said = await answered(503)
                assert (said["state"], "QueueNotFound" in said["failure"]) == ("stopped", True)


async def test_order_for_the_example_is_answered_by_503_while_redis_is_away():
    service = runpy.run_path(str(ROOT / "examples" / "fastapi_service.py"))["create_app"]()
    away = RSMQ("unix:///nonexistent/redis.sock", options=Options(deadline=0.2))
    service.state.orders = away.queue("orders")
    transport = httpx.ASGITransport(app=service)
    async with httpx.AsyncClient(transport=transport, base_url="http://service") as client:
        response = await client.post("/orders", json={"item": "lamp", "count": 1})
    await away.aclose()

    assert response.status_code == 503
    assert "retry-after" in response.headers
