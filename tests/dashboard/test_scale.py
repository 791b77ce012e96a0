"""The endpoint for autoscalers: how much work a queue has, and how many replicas that makes."""

from types import SimpleNamespace

import pytest

from aiorsmq_ng import scaling
from aiorsmq_ng.broker import Tokens

API = "/api/v1/queues/jobs/scale"


async def test_states_of_the_queue_are_counted(web, queue):
    await queue.send_many(["a", "b", "c"])
    await queue.receive(vt=60)
    await queue.send("soon", delay=5)
    await queue.send("late", delay=3600)

    found = (await web.get(API, params={"target": "2"})).json()

    assert found.pop("oldest_age") >= 0
    assert found == {
        "ready": 2, "leased": 1, "delayed": 2, "due_soon": 1, "backlog": 3, "desired": 2,
    }  # fmt: skip
    assert (await web.get(API, params={"due": "0"})).json()["due_soon"] == 0
    assert (await web.get(API, params={"due": "7200"})).json()["due_soon"] == 2


async def test_messages_that_are_leased_do_not_hide_one_that_is_due_soon(web, queue):
    await queue.send_many([str(number) for number in range(150)])
    assert len(await queue.receive_many(150, vt=60)) == 150
    await queue.send("soon", delay=600)

    assert (await web.get(API, params={"due": "3600"})).json()["due_soon"] == 1


async def test_due_soon_goes_by_the_clock_of_the_server(web, queue, monkeypatch):
    await queue.send("soon", delay=600)
    monkeypatch.setattr(scaling, "time", SimpleNamespace(time=lambda: 0.0))

    assert (await web.get(API, params={"due": "3600"})).json()["due_soon"] == 1


async def test_empty_queue_needs_no_replicas(web, queue):
    found = (await web.get(API, params={"target": "0.5"})).json()

    assert (found["desired"], found["oldest_age"], found["backlog"]) == (0, None, 0)
    assert (await web.get(API)).json()["desired"] is None


@pytest.mark.parametrize(
    ("query", "sentence"),
    [
        ("target=0", "target must be more than 0 messages, not 0.0"),
        ("target=nan", "target must be more than 0 messages, not nan"),
        ("target=x", "target must be a number, not 'x'"),
        ("due=-1", "due must be at least 0 seconds, not -1.0"),
    ],
)
async def test_value_that_cannot_be_meant_is_named(web, queue, query, sentence):
    reply = await web.get(f"{API}?{query}")

    assert (reply.status_code, reply.json()["error"]) == (400, sentence)


async def test_token_sees_the_queues_that_it_names(visitor, queue):
    tokens = Tokens.read(
        '[keda]\ntoken = "scaler-token-16-or-more"\nroles = ["consumer"]\nqueues = ["jobs"]\n'
        '[other]\ntoken = "other-token-16-or-more"\nroles = ["admin"]\nqueues = ["x"]\n'
    )
    web = visitor(tokens=tokens)

    async def status(token):
        headers = {"authorization": f"Bearer {token}"} if token else {}
        return (await web.get(API, headers=headers)).status_code

    assert await status("scaler-token-16-or-more") == 200
    assert await status("other-token-16-or-more") == 404
    assert await status(None) == 401
