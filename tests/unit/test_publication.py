"""What a client remembers of topics."""

import asyncio

import pytest

from aiorsmq_ng import InvalidValue
from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.operations.topics import Plan, TopicKeys
from aiorsmq_ng._protocol.topic_state import Member, TopicState
from aiorsmq_ng._runtime.publish_plan import MAX_COPIES, Plans, Publication


def keys(name="t"):
    return TopicKeys(name, Namespace("ns").queue(f"{name}__"), lambda queue: queue.wake)


class Line:
    """A transport that replies when the test lets it."""

    def __init__(self):
        self.asked = []

    def submit(self, operation):
        self.asked.append(asyncio.get_running_loop().create_future())
        return self.asked[-1]


async def test_publishers_that_need_a_newer_plan_ask_once():
    plans, line = Plans(), Line()
    stale = plans.get(keys())
    waiting = [asyncio.create_task(plans.renew(stale, line.submit)) for _ in range(5)]
    await asyncio.sleep(0)
    waiting[0].cancel()
    line.asked[0].set_result(TopicState(version="2"))
    await asyncio.wait(waiting)

    assert waiting[0].cancelled()
    assert {task.result().version for task in waiting[1:]} == {"2"}
    assert len(line.asked) == 1
    assert await plans.renew(stale, line.submit) is plans.get(keys())
    assert len(line.asked) == 1


def test_plans_that_were_not_used_for_longest_are_forgotten():
    plans = Plans()
    first = plans.get(keys("first"))
    for number in range(1024):
        plans.get(keys(f"t{number}"))

    assert plans.get(keys("first")) is not first


def test_too_many_copies_for_one_call_are_refused():
    members = tuple(
        Member(f"t__{n}", str(n), "shared", None, 30_000, 0, "on", False, "") for n in range(101)
    )
    plan = Plan(keys(), TopicState(members=members))
    publication = Publication([b""] * (MAX_COPIES // 100), -1, None)

    with pytest.raises(InvalidValue, match="publish fewer at a time"):
        publication.under(plan)
