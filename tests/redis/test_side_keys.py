"""Side keys that another program made, of another type: no verb minds, and no message is lost."""

import pytest

from aiorsmq_ng import RSMQ, Retry
from aiorsmq_ng._protocol.operations import presence

ID = "g73zkl38qz" + "x" * 22


async def plant(raw, key: str, kind: str) -> None:
    """Store something of *kind* under *key*."""
    await raw.delete(key)
    await {
        "string": lambda: raw.set(key, "not ours"),
        "list": lambda: raw.rpush(key, "not ours"),
        "set": lambda: raw.sadd(key, "not ours"),
        "hash": lambda: raw.hset(key, "not", "ours"),
        "zset": lambda: raw.zadd(key, {"not ours": 1}),
        "stream": lambda: raw.xadd(key, {"not": "ours"}),
    }[kind]()


def call_records(rsmq, keys) -> list[str]:
    """Return the keys under which the server remembers the client's first calls."""
    numbers = rsmq._transport._calls._numbers
    return [keys.call_record(f"{numbers._name}-{n}") for n in range(8)]


async def day(rsmq) -> list:
    """Run every verb that uses side keys; return what each of them returned."""
    queue = rsmq.queue("jobs", retry=Retry(max_receives=3))
    dead = rsmq.queue("jobs-dead")
    seen = []
    await queue.send("a")
    first = await queue.receive()
    await first.extend(60)
    await first.release()
    async with await queue.receive() as again:
        seen.append(again.text)
    seen.append((await queue.send("b", dedup_key="k")).duplicate)
    seen.append((await queue.send("b", dedup_key="k")).duplicate)
    await queue.send_many(["c", "d", "e"])
    rejected = await queue.receive()
    await rejected.reject("why")
    seen.append(await dead.reason(rejected.id))
    seen += [m.text for m in await dead.peek()]
    await queue._context.transport.run(presence.announce(queue._keys, "me", 1, []))
    seen.append((await queue.stats()).attributes.msgs)
    held = await queue.receive(vt=60)
    taken = await queue.recover(1, 0)
    seen += [m.text for m in taken]
    seen.append(held.id == taken[0].id)
    await taken[0].ack()
    seen.append(await queue.redrive())
    seen.append((await queue.receive(wait=5)).text)
    # Without notes it is not known that a holder returned a message: it comes alone.
    while more := await rsmq.receive_many(["jobs", "jobs-dead"], 10):
        seen += [m.text for m in more]
    seen.append(await queue.purge())
    seen.append(await queue.purge(leased=True))
    await queue.send("last")
    seen.append((await queue.pop()).text)
    topic = rsmq.topic("news")
    subscription = await topic.subscribe("one")
    await topic.publish_many(["x", "y"])
    await topic.publish("z", dedup_key="k")
    seen += [m.text for m in await subscription.receive_many(5)]
    return seen


@pytest.mark.parametrize("kind", ["string", "list", "set", "hash", "zset", "stream"])
async def test_verbs_return_what_they_do_without_them(server_url, raw, ns, kind):
    results = []
    for side in ("planted", "twin"):
        async with RSMQ(server_url, ns=f"{ns}-{side}") as rsmq:
            await rsmq.create_queue("jobs")
            await rsmq.create_queue("jobs-dead")
            if side == "planted":
                named = [rsmq.queue(name)._keys for name in ("jobs", "jobs-dead")]
                for keys in (*named, rsmq.topic("news")._keys.own):
                    for key in ("deliveries", "consumers", "waiters"):
                        await plant(raw, f"{keys.zset}:ng:{key}", kind)
                    for key in call_records(rsmq, keys):
                        await plant(raw, key, kind)
            results.append(await day(rsmq))

    assert results[0] == results[1]


@pytest.mark.parametrize("kind", ["list", "set", "hash", "zset", "stream"])
async def test_reason_of_another_type_is_none(queue, rsmq, raw, kind):
    await queue.send("a")
    delivery = await queue.receive()
    dead = rsmq.queue("jobs-dead")
    await plant(raw, dead._keys.reason(delivery.id), kind)
    await plant(raw, dead._keys.reason(ID), kind)

    assert await queue.reason(ID) is None
    await delivery.reject("why")
    assert await dead.reason(delivery.id) == "why"
    await plant(raw, dead._keys.reason(delivery.id), kind)
    assert await dead.reason(delivery.id) is None


@pytest.mark.parametrize("kind", ["string", "list", "set", "stream"])
async def test_doctor_names_side_keys_of_another_type(queue, rsmq, raw, ns, kind):
    for key in ("deliveries", "consumers", "waiters"):
        await plant(raw, f"{ns}:jobs:ng:{key}", kind)

    for fix in (False, True):
        found = [f for f in (await rsmq.doctor("jobs", fix=fix)).findings if f.queue == "jobs"]
        assert {(f.kind, f.severity, f.fixed) for f in found} == {("wrong_type", "error", False)}
        assert sorted(f.detail.split(";")[0] for f in found) == [
            f"{ns}:jobs:ng:consumers is not a hash",
            f"{ns}:jobs:ng:deliveries is not a hash",
            f"{ns}:jobs:ng:waiters is not a zset",
        ]


@pytest.mark.parametrize("kind", ["list", "set", "hash", "zset", "stream"])
async def test_doctor_names_records_reasons_and_markers_of_another_type(queue, rsmq, raw, ns, kind):
    """Only their owners know their names, so all keys of the namespace are looked at."""
    await queue.send("a", dedup_key="fine")
    planted = [f"{ns}:jobs:ng:{key}" for key in ("call:abc-0", f"reason:{ID}", "dedup:0f")]
    for key in planted:
        await plant(raw, key, kind)

    found = [f for f in (await rsmq.doctor(fix=True)).findings if f.kind == "wrong_type"]

    assert {(f.queue, f.severity, f.fixed) for f in found} == {("jobs", "error", False)}
    assert sorted(f.detail.split(";")[0] for f in found) == sorted(
        f"{key} is not a string" for key in planted
    )
    assert await raw.exists(*planted) == 3
