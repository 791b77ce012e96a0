"""However a consumer is left, under live traffic, nothing stays leased."""

from __future__ import annotations

import pytest

from aiorsmq_ng.broker import Broker, BrokerOptions
from tools.storms import leaving


@pytest.mark.parametrize("way", leaving.WAYS)
async def test_nothing_stays_leased_after_a_consumer_was_left(server_url, ns, way):
    figures = await leaving.leave(server_url, ns, way, rounds=40)

    assert figures["handed out"] > 0
    assert [figures[f"still {what}"] for what in ("leased", "renewed", "present")] == [0, 0, 0]


# Of a broker, only the client that received a message can settle it.
@pytest.mark.parametrize("way", [way for way in leaving.WAYS if way != "the client closed first"])
async def test_nothing_stays_leased_after_a_consumer_of_a_broker_was_left(rsmq, way):
    async with Broker(rsmq, BrokerOptions(listen=("127.0.0.1:0",), grace=0.2)) as broker:
        url = f"grpc://{broker.addresses[0]}"
        figures = await leaving.leave(url, rsmq.ns, way, rounds=20)

    assert [figures[f"still {what}"] for what in ("leased", "renewed", "present")] == [0, 0, 0]
    assert rsmq._keeper.kept() == []
