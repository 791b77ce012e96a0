"""Clients that are not ours, Node's rsmq and PyRSMQ, on a queue that Spark reads."""

import threading
import time

import pytest

from aiorsmq_ng._protocol.operations.spark import claims
from aiorsmq_ng.spark import release

from ..interop.conftest import FOREIGN, node_driver, pyrsmq_driver  # noqa: F401 - fixtures
from ..interop.drivers import Refused
from .support import QueryDriver, eventually


class Client:
    """A foreign client at work on one queue."""

    def __init__(self, driver, bench):
        self._driver, self._bench = driver, bench

    def call(self, op, **args):
        request = {"op": op, "args": {"qname": self._bench.name, **args}, "ns": self._bench.ns}
        return self._driver.ask(request | {"realtime": False})

    def send(self, number):
        return self.call("sendMessage", message=str(number))

    def receive(self, **args):
        """Return id and number of a message, or nothing."""
        try:
            got = self.call("receiveMessage", **args)
        except Refused as refusal:
            # PyRSMQ's word for it.
            assert refusal.code == "NoMessageInQueue", refusal
            return None
        return (got["id"], int(got["message"])) if got and got.get("id") else None

    def delete(self, id):
        return self.call("deleteMessage", id=id)


@pytest.fixture(params=FOREIGN)
def client(request, bench):
    return Client(request.getfixturevalue(f"{request.param}_driver"), bench)


@pytest.fixture
def clients(request, bench):
    names = ("node_driver", "pyrsmq_driver")
    return [Client(request.getfixturevalue(name), bench) for name in names]


@pytest.fixture
def claimant(bench):
    given = {**bench.options, "claimAhead": "false", "ackOn": "commit"}
    made = QueryDriver(given)
    yield made
    made.close()


def read(bench, claimant, end):
    """Return the page of all that was claimed up to *end*."""
    (piece,) = claimant.plan(claimant.origin, end)
    return bench.run(claims.read(piece.ledger, piece.claim, piece.start, piece.stop, bodies=True))


def test_claimed_messages_are_leased_for_others_and_what_they_delete_is_left_out(
    client, bench, claimant
):
    ids = [client.send(number) for number in range(5)]

    end = claimant.latest(claimant.origin, 100)
    assert client.receive() is None
    # PyRSMQ calls the deletion of a message that was never received a failure.
    client.delete(ids[1])
    assert bench.redis.zscore(bench.keys.zset, ids[1]) is None
    page = read(bench, claimant, end)
    claimant.commit(end)

    assert (page.taken, page.gone) == (0, 1)
    assert [body for body in page.bodies if body is not None] == [b"0", b"2", b"3", b"4"]
    assert [id.decode() for id in page.held] == [ids[0], *ids[2:]]
    assert bench.size == 0
    assert bench.redis.hlen(bench.keys.hash) == 7


def test_message_that_others_received_after_all_is_theirs(client, bench, claimant):
    ids = [client.send(number) for number in range(3)]
    end = claimant.latest(claimant.origin, 100)

    # As if the driver had been away for longer than its lease.
    bench.redis.zadd(bench.keys.zset, {ids[1]: 1})
    assert client.receive(vt=60) == (ids[1], 1)
    page = read(bench, claimant, end)
    claimant.commit(end)

    assert (page.taken, page.gone) == (1, 0)
    assert bench.redis.zrange(bench.keys.zset, 0, -1) == [ids[1].encode()]
    assert client.delete(ids[1])


def test_messages_that_are_given_back_are_received_by_others(client, bench):
    ids = [client.send(number) for number in range(3)]
    reader = QueryDriver({**bench.options, "ledger": "etl"})
    reader.latest(reader.origin, 100)
    assert client.receive() is None

    given = release(bench.name, "etl", url=bench.url, namespace=bench.ns)
    reader.close()

    assert given == 3
    assert [client.receive(vt=60) for _ in ids] == [(id, n) for n, id in enumerate(ids)]


def test_foreign_clients_send_receive_and_delete_while_a_query_runs(
    spark, bench, tmp_path, clients
):
    each = 150
    theirs: list[int] = []
    over = threading.Event()

    def work(client, first):
        sent = 0
        while not over.is_set():
            if sent < each:
                client.send(first + sent)
                sent += 1
            if sent % 3 == 0 and (got := client.receive(vt=600)):
                assert client.delete(got[0])
                theirs.append(got[1])
            time.sleep(0.01)

    stream = bench.stream(spark, maxMessagesPerTrigger="40").writeStream.format("parquet")
    stream = stream.option("path", str(tmp_path / "rows"))
    query = stream.option("checkpointLocation", str(tmp_path / "c")).start()
    threads = [
        threading.Thread(target=work, args=(client, each * n)) for n, client in enumerate(clients)
    ]
    for thread in threads:
        thread.start()
    total = b"%d" % (each * len(clients))
    eventually(lambda: bench.redis.hget(bench.keys.hash, "totalsent") == total and not bench.size)
    over.set()
    for thread in threads:
        thread.join()
    query.stop()

    ours = [int(row.body) for row in spark.read.parquet(str(tmp_path / "rows")).collect()]
    assert sorted(ours + theirs) == list(range(each * len(clients)))
    assert ours
    assert theirs
