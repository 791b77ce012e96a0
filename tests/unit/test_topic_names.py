"""Names of a topic's queues: readable, allowed everywhere, and never the same for two."""

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aiorsmq_ng import InvalidValue
from aiorsmq_ng.protocol.keys import Namespace
from aiorsmq_ng.protocol.limits import check_name
from aiorsmq_ng.protocol.shards import Shards
from aiorsmq_ng.protocol.topic_names import check_part, escape, queue_name, unescape
from aiorsmq_ng.protocol.topic_state import Member, TopicState, heritage, orphans
from aiorsmq_ng.protocol.topics import EACH, Joining, Plan, TopicKeys

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


def member(peer, *, state="on", since=0, heir=False, heard="0"):
    return Member(f"t__c__{peer}", "c", EACH, peer, 30_000, since, state, heir, heard)


def test_newcomer_takes_over_from_the_one_that_was_silent_longest():
    members = (
        member("alive", heard="99000"),
        member("off", state="off", heard="50000"),
        member("silent", heard="40000"),
        member("gone", state="gone", heard="1"),
    )
    state = TopicState(now_ms=100_000, members=members)

    assert heritage("c", state) is members[2]
    assert heritage("other", state) is None


def test_only_one_peer_is_taken_over_whole():
    me = member("me", since=60_000_000, heard="99000")
    left = [member("1", state="off", heard="50000"), member("2", state="left", heard="50000")]
    older = member("3", state="off", heard="70000")
    state = TopicState(now_ms=100_000, members=(me, *left, older))

    assert orphans(me, state) == [(left[0], True), (left[1], False), (older, False)]
    assert not any(whole for _, whole in orphans(me._replace(heir=True), state))


def test_plan_names_every_key_and_groups_the_peers_of_a_consumer():
    keys = TopicKeys("t", Namespace("ns").queue("t__"), lambda queue: queue.wake)
    members = (member("1"), member("2"), member("3", state="off"))
    plan = Plan(keys, TopicState(version="v", members=members))

    assert plan.names[4:] == (
        *("ns:t__", "ns:t__:Q"),
        *("ns:t__c__1", "ns:t__c__1:Q", "ns:t__c__2", "ns:t__c__2:Q"),
    )
    assert plan.head[:5] == ("t", "t__", "ns:t__:ng:wake", "v", 2)
    assert plan.head[5:] == (
        *("t__c__1", "ns:t__c__1:ng:wake", "c", 30_000),
        *("t__c__2", "ns:t__c__2:ng:wake", "c", 30_000),
    )
    assert plan.copies == 2


def test_record_of_a_subscription_has_no_space_in_its_names():
    joining = Joining("a consumer", EACH, "a peer", 30_000, 30, 0, 65536)

    assert joining.record(heir=True) == "each 30000 1 a_20consumer a_20peer"
