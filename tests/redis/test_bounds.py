"""How much one call of a script does, and what it leaves to its caller."""

from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.operations import messages


def phantoms(count):
    return {f"phantom{i:025d}": 1 for i in range(count)}


async def test_call_gets_past_a_few_ids_without_a_body_by_itself(rsmq, queue, raw, ns):
    await raw.zadd(f"{ns}:jobs", phantoms(5))
    await queue.send("real")

    popped = await rsmq._transport.run(messages.pop(Namespace(ns).queue("jobs"), 1))

    assert [m.text for m in popped.messages] == ["real"]


async def test_call_clears_a_bounded_number_of_ids_without_a_body(rsmq, queue, raw, ns):
    await raw.zadd(f"{ns}:jobs", phantoms(5000))

    popped = await rsmq._transport.run(messages.pop(Namespace(ns).queue("jobs"), 1))

    assert popped.again
    assert await raw.zcard(f"{ns}:jobs") == 4000
