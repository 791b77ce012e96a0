"""Settings of a broker that need no server."""

from datetime import timedelta

import pytest

from aiorsmq_ng import InvalidValue
from aiorsmq_ng.broker import BrokerOptions, Limits

DURATIONS = [(Limits, "arrival"), (Limits, "wait"), (BrokerOptions, "grace")]


@pytest.mark.parametrize(("kind", "name"), DURATIONS)
def test_a_duration_is_seconds_or_a_timedelta_and_is_read_as_seconds(kind, name):
    given = kind(**{name: timedelta(seconds=4)})

    assert getattr(given, name) == 4.0
    assert given == kind(**{name: 4})
    assert given != kind()


@pytest.mark.parametrize("value", ["4", True, float("nan"), float("inf"), timedelta(seconds=-1)])
@pytest.mark.parametrize(("kind", "name"), DURATIONS)
def test_what_is_no_duration_is_refused(kind, name, value):
    with pytest.raises(InvalidValue, match=name):
        kind(**{name: value})


@pytest.mark.parametrize("name", ["arrival", "wait"])
def test_a_limit_is_more_than_0_seconds(name):
    with pytest.raises(InvalidValue, match=name):
        Limits(**{name: timedelta(0)})
