"""The storm on the broker, in short and in calm weather; the long form is a program."""

import pytest

from tools.storms import broker_streams, slow_readers
from tools.storms.broker import SUBSCRIPTIONS, storm
from tools.storms.gomq import GomqStorm


async def test_in_calm_weather_every_subscription_gets_every_message_once():
    report = await storm(1500, kill=False)

    assert report.lost == report.doubled == dict.fromkeys(SUBSCRIPTIONS, 0)


@pytest.mark.parametrize("messages", [1500, pytest.param(20_000, marks=pytest.mark.long)])
async def test_in_a_storm_no_subscription_misses_a_message(messages):
    report = await storm(messages, kill=True)

    assert report.lost == dict.fromkeys(SUBSCRIPTIONS, 0)
    assert report.left_in_queues == 0
    assert len(report.broker_stops) == 3


@pytest.mark.long
async def test_in_a_storm_no_client_of_gomq_misses_a_message():
    report = await storm(5000, kill=True, kind=GomqStorm)

    assert report.lost == dict.fromkeys(SUBSCRIPTIONS, 0)
    assert report.left_in_queues == 0


@pytest.mark.long
async def test_two_thousand_streams_at_once_are_served():
    found = await broker_streams.run(2000)

    assert (found["lost"], found["doubled"], found["left"]) == (0, 0, 0)
    assert found["broker_exit"] == 0


@pytest.mark.long
async def test_clients_that_do_not_read_cost_the_broker_little():
    found = await slow_readers.run(50)

    assert found["given_back"] == found["messages"]
    assert found["broker_rss_mb_with_readers"] - found["broker_rss_mb_before"] < 50 * 5
