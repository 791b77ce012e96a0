"""The storm on the broker, in short and in calm weather; the long form is a program."""

import pytest

from .broker import SUBSCRIPTIONS, storm
from .gomq import GomqStorm


@pytest.mark.long
async def test_in_calm_weather_every_subscription_gets_every_message_once():
    report = await storm(1500, kill=False)

    assert report.lost == report.doubled == dict.fromkeys(SUBSCRIPTIONS, 0)


@pytest.mark.long
async def test_in_a_storm_no_subscription_misses_a_message():
    report = await storm(20_000, kill=True)

    assert report.lost == dict.fromkeys(SUBSCRIPTIONS, 0)
    assert report.left_in_queues == 0
    assert len(report.broker_stops) == 3


@pytest.mark.long
async def test_in_a_storm_no_client_of_gomq_misses_a_message():
    report = await storm(5000, kill=True, kind=GomqStorm)

    assert report.lost == dict.fromkeys(SUBSCRIPTIONS, 0)
    assert report.left_in_queues == 0
