"""Names of a topic's queues: readable, allowed everywhere, and never the same for two."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aiorsmq_ng import InvalidValue
from aiorsmq_ng._protocol import redis_codecs as redis
from aiorsmq_ng._protocol.argument_checks import check_name
from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.operations import topics
from aiorsmq_ng._protocol.operations.topics import BROADCAST, Joining, Plan, TopicKeys
from aiorsmq_ng._protocol.shards import Shards
from aiorsmq_ng._protocol.topic_names import check_part, escape, queue_name, unescape
from aiorsmq_ng._protocol.topic_state import Ending, Member, TopicState

PART = st.text(min_size=1, max_size=60).filter(lambda t: not re.search("[\ud800-\udfff]", t))
PARTS = st.lists(PART, min_size=1, max_size=3).map(tuple)


@pytest.mark.parametrize(
    ("parts", "name"),
    [
        (("news",), "news__"),
        (("news", "billing"), "news__billing"),
        (("A", "B_C"), "A__B_5fC"),
        (("A_B", "C"), "A_5fB__C"),
        (("news", "web-1", "10.0.0.1:80"), "news__web-1__10_2e0_2e0_2e1_3a80"),
        (("snow \u2603",), "snow_20_e2_98_83__"),
        (("news", "billing-dead"), "news__billing_2ddead"),
    ],
)
def test_names_can_be_read(parts, name):
    assert queue_name(*parts) == name


@given(PARTS, PARTS)
@example(("A", "B_C"), ("A_B", "C"))
@example(("a",), ("a", "_"))
@example(("a", "b"), ("a", "b-dead"))
@example(("a" * 48,), ("a" * 49,))
@example(("a" * 200, "x"), ("a" * 201, "x"))
def test_different_parts_have_different_queues_and_dead_letter_queues(one, other):
    names = {queue_name(*one), f"{queue_name(*one)}-dead"}
    others = {queue_name(*other), f"{queue_name(*other)}-dead"}

    assert all(map(check_name, names | others))
    assert (names & others == set()) == (one != other)


@given(PART)
def test_part_is_read_back(text):
    assert unescape(escape(text)) == text


@given(PART, PART, PART)
def test_all_queues_of_a_topic_lie_in_one_namespace(topic, consumer, peer):
    shards = Shards.of(["a", "b", "c", "d", "e"], nested=False)
    names = [queue_name(topic), queue_name(topic, consumer), queue_name(topic, consumer, peer)]
    names += [f"{name}-dead" for name in names]

    assert len({shards.queue(name).namespace for name in names}) == 1


@pytest.mark.parametrize("name", [None, "", 5, "x" * 1001, "\ud800"])
def test_what_is_no_name_is_refused(name):
    with pytest.raises(InvalidValue):
        check_part("topic", name)


def member(peer, *, state="on", since=0, keeper=False, heard="100000"):
    return Member(f"t__c__{peer}", "c", BROADCAST, peer, 30_000, since, state, keeper, heard)


def peers(*members, clock=100_000):
    return TopicState(members=members, clocks={"c": clock})


def test_keeper_is_the_one_that_is_called_so_or_else_the_oldest():
    old, new, called = member("1", since=1), member("2", since=2), member("3", keeper=True, since=3)

    assert peers(new, old, called).keeper("c") is called
    assert peers(new, old, called._replace(state="left")).keeper("c") is old
    assert peers(new, old).keeper("other") is None


def test_keeper_adopts_what_others_left_and_those_that_are_silent_end():
    keeper, me = member("1", keeper=True), member("2")
    silent, left = member("3", heard="69999 5"), member("4", state="left", heard="1")
    state = peers(keeper, me, silent, left)

    assert state.left(me) == (keeper, [left])
    assert state.dead(me).members == [silent]
    assert state.leaving("c", "2").spare == [me]


def test_peer_that_finds_the_keeper_silent_takes_its_place():
    keeper, me = member("1", keeper=True, heard="69999"), member("2")
    left = member("4", state="left")

    assert peers(keeper, me, left).left(me) == (me, [keeper, left])
    assert peers(keeper, me, left, clock=99_999).left(me) == (keeper, [left])
    assert not peers(keeper, me).dead(me).members


def test_keeper_that_leaves_is_followed_by_the_one_heard_of_last():
    keeper, one, two = member("1", keeper=True), member("2", heard="99000"), member("3")
    state = peers(keeper, one, two)

    assert state.leaving("c", "1") == Ending([keeper], [], two.queue, [], consumer="c", peer="1")
    assert state.leaving("c", "2") == Ending([one], [one], "", [], consumer="c", peer="2")
    assert state.leaving("c", None) == Ending(
        [keeper, one, two], [one, two], "", ["clock:c"], consumer="c"
    )


def test_plan_names_the_keys_and_channels_of_all_that_are_subscribed():
    keys = TopicKeys("t", Namespace("ns").queue("t__"), lambda queue: queue.wake)
    members = (member("1"), member("2"), member("3", state="left"))
    plan = Plan(keys, TopicState(version="v", members=members))

    call = redis.encode([topics.publish(plan, [b"x"], delay_ms=-1)], None, bytes)
    assert call.keys[4:] == [
        *("ns:t__", "ns:t__:Q"),
        *("ns:t__c__1", "ns:t__c__1:Q", "ns:t__c__2", "ns:t__c__2:Q"),
    ]
    assert call.args[:5] == ["t", "t__", "ns:t__:ng:wake", "v", 2]
    assert call.args[5:] == [
        *("t__c__1", "ns:t__c__1:ng:wake"),
        *("t__c__2", "ns:t__c__2:ng:wake"),
        *(-1, 0, 1, b"A" * 22, b"x"),
    ]
    assert plan.copies == 2


def test_record_of_a_subscription_has_no_space_in_its_names():
    joining = Joining("a consumer", BROADCAST, "a peer", 30_000, 30, 0, 65536)

    assert joining.record(keeper=True) == "broadcast 30000 1 a_20consumer a_20peer"
