"""Several namespaces used as one: where queues lie, and what one call cannot reach."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aiorsmq_ng import RSMQ, InvalidValue, Retry
from aiorsmq_ng._protocol.shards import Shards

NS = ["{jobs-0}", "{jobs-1}", "{jobs-2}"]
SHARDS = Shards.of(NS, nested=False)


def place(name):
    return SHARDS.queue(name).namespace.name


def test_place_of_a_queue_never_changes():
    # Written down, because stored queues depend on it.
    places = ["{jobs-0}", "{jobs-2}", "{jobs-2}", "{jobs-0}", "{jobs-2}"]

    assert [place(name) for name in ("mail", "orders", "images", "a", "é")] == places


@given(name=st.text(min_size=1, max_size=20))
def test_dead_letter_queue_lies_beside_its_queue(name):
    assert place(name) == place(f"{name}-dead") == place(f"{name}-dead-dead")


def test_queues_spread_evenly():
    counts = [[place(f"queue-{i}") for i in range(3000)].count(ns) for ns in NS]

    assert min(counts) > 900


def test_one_namespace_is_as_ever():
    for ns in ("rsmq", ["rsmq"]):
        assert RSMQ(ns=ns).ns == "rsmq"
        assert RSMQ(ns=ns).queue("jobs")._context.keys.zset == "rsmq:jobs"
    assert RSMQ(ns="a,b").ns == "a,b"
    assert RSMQ(ns="a,b").queue("jobs")._context.keys.zset == "a,b:jobs"


@pytest.mark.parametrize("ns", [[], ["a", "a"], ["a", ""], ["a", "b:c"], ["a", None], [["a"]]])
def test_list_that_cannot_be_meant_is_refused(ns):
    with pytest.raises(InvalidValue):
        RSMQ(ns=ns)


def test_namespaces_are_shown_separated_by_commas():
    assert RSMQ(ns=NS).ns == "{jobs-0},{jobs-1},{jobs-2}"


def test_dead_letter_queue_that_lies_apart_is_refused_at_once():
    rsmq = RSMQ(ns=NS)

    assert place("mail") != place("orders")
    with pytest.raises(InvalidValue, match="lie in different namespaces"):
        rsmq.queue("mail", dead_letter="orders", retry=Retry())
