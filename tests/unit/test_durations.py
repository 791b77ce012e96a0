"""Durations: seconds as a number or a timedelta, everywhere; times as aware datetimes."""

import dataclasses
import pickle
from datetime import UTC, datetime, timedelta

import pytest

from aiorsmq_ng import InvalidValue, Message, Options, ScannedMessage
from aiorsmq_ng.models import PendingMessage


@pytest.mark.parametrize(
    "name", ["deadline", "connect_timeout", "poll_base", "poll_cap", "dedup_window"]
)
@pytest.mark.parametrize("value", [4, 4.0, timedelta(seconds=4)])
def test_options_take_a_duration_in_any_form_and_are_read_as_seconds(name, value):
    options = Options(**{"poll_base": 0.01, name: value})

    assert getattr(options, name) == 4.0
    assert options == Options(**{"poll_base": 0.01, name: 4})
    assert pickle.loads(pickle.dumps(options)) == options
    assert getattr(dataclasses.replace(options, max_connections=2), name) == 4.0
    assert f"{name}=4" in repr(options)


@pytest.mark.parametrize("value", ["4", True, float("nan"), None, 0, -1, timedelta(0)])
def test_options_refuse_what_is_no_duration(value):
    with pytest.raises(InvalidValue, match="deadline"):
        Options(deadline=value)


def test_options_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Options().deadline = 3
    assert Options().deadline == 10.0


def test_times_of_messages_are_aware_datetimes_beside_the_raw_milliseconds():
    at = datetime(2026, 11, 18, 4, 0, 0, 123000, tzinfo=UTC)
    ms = round(at.timestamp() * 1000)
    message = Message("x" * 32, b"", 1, ms)

    assert (message.fr, message.first_received_at) == (ms, at)
    assert Message("x" * 32, b"", 0, 0).first_received_at is None
    pending = PendingMessage("x" * 32, b"", 1, ms, ms, 1500)
    assert (pending.delivered_at, pending.idle) == (at, 1.5)
    scanned = ScannedMessage("x" * 32, b"", 1, ms, visible_at=float(ms), state="leased")
    assert (scanned.score, scanned.visible_at, scanned.state) == (ms, at, "leased")
    assert ScannedMessage("x" * 32, b"", 0, 0, visible_at=9e18, state="delayed").visible_at is None
