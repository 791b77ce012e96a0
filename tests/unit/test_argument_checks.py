"""What is let in, and what is refused before anything is sent."""

from datetime import timedelta

import pytest

from aiorsmq_ng import RSMQ, InvalidValue, Options
from aiorsmq_ng._protocol import argument_checks

LONGEST = "a" * 160


@pytest.mark.parametrize("name", ["jobs", "a", "A-b_9", LONGEST, "vt", "rt", "ng"])
def test_name_allowed_by_rsmq_is_accepted(name):
    assert argument_checks.check_name(name) == name


@pytest.mark.parametrize(
    ("name", "code"),
    [
        (None, "missingParameter"),
        ("", "missingParameter"),
        ("QUEUES", "invalidFormat"),
        ("jobs\n", "invalidFormat"),
        ("a:b", "invalidFormat"),
        ("a b", "invalidFormat"),
        ("ü", "invalidFormat"),
        ("{a}", "invalidFormat"),
        (LONGEST + "a", "invalidFormat"),
        (5, "invalidFormat"),
        (b"jobs", "invalidFormat"),
    ],
)
def test_name_outside_rsmqs_rule_is_refused(name, code):
    with pytest.raises(InvalidValue) as caught:
        argument_checks.check_name(name)

    assert caught.value.code == code


@pytest.mark.parametrize("name", ["a.b", "with space", "ü"])
def test_foreign_name_is_accepted_only_on_request(name):
    assert argument_checks.check_name(name, foreign=True) == name
    with pytest.raises(InvalidValue):
        argument_checks.check_name(name)


@pytest.mark.parametrize("name", ["a:b", "a\n", "QUEUES", "a\x00"])
def test_foreign_name_never_reaches_another_key(name):
    with pytest.raises(InvalidValue):
        argument_checks.check_name(name, foreign=True)


@pytest.mark.parametrize("ns", ["", "a b", "a:b", "a\n", "x" * 161, None, 3])
def test_namespace_that_could_reach_other_keys_is_refused(ns):
    with pytest.raises(InvalidValue, match="namespace"):
        RSMQ(ns=ns)


def test_namespace_with_braces_or_colon_on_request_is_accepted():
    assert RSMQ(ns="{rsmq}").ns == "{rsmq}"
    assert RSMQ(ns="app:rsmq", options=Options(nested_ns=True)).ns == "app:rsmq"


@pytest.mark.parametrize("id", ["a" * 32, "a" * 30, "g73zkl38qz" + "x:" * 11])
def test_id_of_any_rsmq_client_is_accepted(id):
    assert argument_checks.check_id(id) == id


@pytest.mark.parametrize(
    "id", ["vt", "totalsent", "", None, 7, "a" * 19, "a" * 65, "a" * 29 + ":rc", "a" * 31 + "\n"]
)
def test_id_that_could_name_another_field_is_refused(id):
    with pytest.raises(InvalidValue):
        argument_checks.check_id(id)


@pytest.mark.parametrize(
    ("value", "expected_ms"),
    [(0, 0), (30, 30_000), (0.25, 250), (timedelta(minutes=1), 60_000), (9_999_999, 9_999_999_000)],
)
def test_duration_per_call_becomes_milliseconds(value, expected_ms):
    assert argument_checks.seconds_to_ms("vt", value) == expected_ms


@pytest.mark.parametrize(
    "value",
    [-1, -0.001, 10_000_000, float("nan"), float("inf"), "5", True, timedelta(seconds=-1), b"1"],
)
def test_duration_out_of_range_is_refused(value):
    with pytest.raises(InvalidValue, match="vt must be"):
        argument_checks.seconds_to_ms("vt", value)


def test_duration_not_given_means_the_stored_one():
    assert argument_checks.optional_ms("vt", None) == -1
    assert argument_checks.optional_ms("vt", 0) == 0


@pytest.mark.parametrize("value", [2.5, 0.0001, timedelta(milliseconds=1500)])
def test_stored_duration_must_be_whole_seconds(value):
    with pytest.raises(InvalidValue, match="whole seconds"):
        argument_checks.whole_seconds("vt", value)


@pytest.mark.parametrize("value", [2, 2.0, timedelta(seconds=2)])
def test_stored_duration_of_whole_seconds_is_an_integer(value):
    assert repr(argument_checks.whole_seconds("vt", value)) == "2"


@pytest.mark.parametrize("value", [1024, 65536, -1])
def test_maxsize_of_rsmq_is_accepted(value):
    assert argument_checks.check_maxsize(value) == value


@pytest.mark.parametrize("value", [0, 1023, 65537, -2, 2048.0, "2048", True, None])
def test_maxsize_outside_rsmqs_rule_is_refused(value):
    with pytest.raises(InvalidValue, match="maxsize"):
        argument_checks.check_maxsize(value)


@pytest.mark.parametrize("value", [0, -1, 1.0, "3", True, argument_checks.MAX_COUNT + 1])
def test_count_that_makes_no_sense_is_refused(value):
    with pytest.raises(InvalidValue, match="count"):
        argument_checks.check_count(value)


@pytest.mark.parametrize(
    "settings",
    [{"deadline": 0}, {"max_connections": 0}, {"poll_base": 2, "poll_cap": 1}, {"poll_cap": -1}],
)
def test_options_that_make_no_sense_are_refused(settings):
    with pytest.raises(InvalidValue):
        Options(**settings)


def test_url_of_unknown_scheme_is_refused_without_showing_it():
    with pytest.raises(InvalidValue) as caught:
        RSMQ("amqp://user:secret@host")

    assert "secret" not in str(caught.value)
    assert "redis://" in str(caught.value)


def test_repr_hides_the_password():
    assert "secret" not in repr(RSMQ("redis://user:secret@localhost"))
