"""rsmqctl through a broker."""

import asyncio
import json

import pytest

from aiorsmq_ng.broker import Broker, BrokerOptions, Tokens

from ..cli.ctl import shell

TOKEN = "a-token-for-the-command-line"


@pytest.fixture
async def ctl(inner, ns, tmp_path, monkeypatch):
    """Run a command on a broker that wants a token, which lies in a file."""
    for name in ("RSMQ_TOKEN", "RSMQ_PASSWORD"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "token"
    file.write_text(f"{TOKEN}\nnot this\n")
    options = BrokerOptions(listen=("127.0.0.1:0",), grace=0.5)
    async with Broker(inner, options, Tokens.single(TOKEN)) as broker:

        async def ctl(*args, token=file, **env):
            given = ("--token-file", str(token)) if token else ()
            where = ("-r", f"grpc://{broker.addresses[0]}", "--ns", ns, *given)
            return await asyncio.to_thread(shell, *where, *args, **env)

        yield ctl


async def test_commands_work_as_on_a_server(ctl, inner):
    assert (await ctl("queue", "create", "-n", "jobs")).status == 0
    id = (await ctl("message", "send", "-n", "jobs", "-m", "hello")).out.strip()
    received = await ctl("message", "receive", "-n", "jobs")

    assert json.loads(received.out)["id"] == id
    assert json.loads((await ctl("queue", "list")).out) == ["jobs"]
    assert [m.id for m in await inner.queue("jobs").pending()] == [id]


async def test_token_of_the_environment(ctl):
    # A password that is set for servers is not for a broker.
    asked = await ctl("queue", "list", token=None, RSMQ_TOKEN=TOKEN, RSMQ_PASSWORD="x")

    assert (asked.status, json.loads(asked.out)) == (0, [])


async def test_refusals_are_one_sentence_without_the_token(ctl, tmp_path):
    wrong = tmp_path / "wrong"
    wrong.write_text("not-the-token-that-is-known")
    for token in (wrong, None):
        refused = await ctl("queue", "list", token=token)
        assert refused.status == 4
        assert "check --token-file or RSMQ_TOKEN" in refused.sentence
        assert "not-the-token" not in refused.err
    missing = await ctl("queue", "list", token=tmp_path / "missing")
    assert missing.status == 2
    assert "token file" in missing.err


async def test_a_handshake_that_fails_is_one_sentence(broker_url, ns):
    """The library below would add lines of its own."""
    url = broker_url.replace("grpc://", "grpcs://")
    refused = await asyncio.to_thread(shell, "-r", url, "--ns", ns, "queue", "list")

    assert refused.status == 4
    assert "does not speak TLS" in refused.sentence


async def test_what_a_broker_does_not_offer(ctl):
    refused = await ctl("doctor")

    assert refused.status == 1
    assert "cannot be done through a broker" in refused.err


async def test_demo_in_another_namespace_says_which_to_give(ctl, ns):
    refused = await ctl("--ns", "demo", "demo")

    assert refused.status == 2
    assert f"serves namespace {ns!r}, not 'demo'; give --ns {ns!r}" in refused.err
    assert (await ctl("--ns", ns, "demo", NO_COLOR="1")).status == 0


async def test_dead_letters_that_a_token_may_not_read_are_counted(inner, ns, tmp_path):
    file = tmp_path / "token"
    file.write_text(TOKEN)
    tokens = Tokens.read(f'[web]\ntoken = "{TOKEN}"\nroles = ["consumer"]\nqueues = ["jobs"]')
    queue = await inner.create_queue("jobs")
    await queue.send("x")
    await (await queue.receive()).reject("no")
    async with Broker(inner, BrokerOptions(listen=("127.0.0.1:0",), grace=0.5), tokens) as broker:
        where = ("-r", f"grpc://{broker.addresses[0]}", "--ns", ns, "--token-file", str(file))
        listed = await asyncio.to_thread(shell, *where, "dlq", "list")

    assert json.loads(listed.out) == [
        {"queue": "jobs", "dead_letter": "jobs-dead", "dead": 1, "oldest_age": None}
    ]
    assert listed.status == 0
    assert listed.err == "rsmqctl: queue 'jobs-dead' could not be read: its oldest_age is unknown\n"
