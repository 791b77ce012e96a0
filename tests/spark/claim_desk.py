"""A queue whose messages are claimed, as the scripts see it; no Spark."""

import os
import uuid

from redis import Redis

from aiorsmq_ng._common.message_ids import suffixes
from aiorsmq_ng._protocol.keys import Namespace
from aiorsmq_ng._protocol.operations import messages, queues
from aiorsmq_ng._protocol.operations.message_values import Leased
from aiorsmq_ng._protocol.operations.spark import bulk_send, claims
from aiorsmq_ng._protocol.operations.spark.claims import Ledger
from aiorsmq_ng._runtime.sync_client import shared_client
from aiorsmq_ng.options import Options

LEASE_MS, TTL_S = 60_000, 600


class Desk:
    """A queue, a way to run operations, and shorthand for the ones tried here."""

    def __init__(self, url: str, ns: str) -> None:
        self.run = shared_client(url, Options(deadline=5)).run
        self.redis = Redis.from_url(url)
        self.keys = Namespace(ns).queue("jobs")
        self.run(queues.create(self.keys, vt=30, delay=0, maxsize=65536))

    def send(self, count: int, size: int = 0) -> None:
        bodies = [(b"body %d" % n).ljust(size) for n in range(count)]
        rows = bulk_send.Rows(suffixes(os.urandom(22 * count)), [-1] * count, bodies)
        self.run(
            bulk_send.send(
                self.keys,
                rows,
                bulk_send.Place(uuid.uuid4().hex, "0"),
                ttl_s=60,
                oversize="fail",
            )
        )

    def claim(
        self, ledger: Ledger, number: int = 1, *, create: bool = True, **changes: int
    ) -> claims.Claimed:
        terms = claims.Terms(1000, 100, LEASE_MS, TTL_S)._replace(**changes)
        return self.run(claims.claim(ledger, number, terms, create=create))

    def read(self, ledger: Ledger, count: int, number: int = 1) -> claims.ClaimPage:
        return self.run(claims.read(ledger, number, 0, count, bodies=True))

    def renew(self, ledger: Ledger, lease_ms: int = LEASE_MS) -> claims.Renewed:
        return self.run(claims.renew(ledger, 1, 0, count=100, lease_ms=lease_ms, ttl_s=TTL_S))

    def receive(self, count: int) -> list[Leased]:
        """Receive as any other client does."""
        receive_spec = messages.ReceiveSpec(self.keys)
        return self.run(messages.receive(receive_spec, count, vt_ms=30_000)).messages

    def give_back(self, leased: list[Leased], how: messages.How) -> None:
        for m in leased:
            back = {"vt_ms": 0, "channel": self.keys.wake, "receipt": m.receipt, "how": how}
            self.run(messages.visibility(self.keys, m.id, **back))

    def expire_leases(self, *claimants: Ledger) -> None:
        """Let the leases of other clients expire, and those of the first claims of *claimants*."""
        for ledger in claimants:
            self.renew(ledger, lease_ms=1)
        for id, score in self.redis.zrange(self.keys.zset, 0, -1, withscores=True):
            if score.is_integer():
                self.redis.zadd(self.keys.zset, {id: 1})
        while self.run(claims.backlog(self.keys)).hidden:
            pass

    @property
    def size(self) -> int:
        return self.redis.zcard(self.keys.zset)

    def side_keys(self) -> list[str]:
        keys = (k.decode().split(":ng:")[1] for k in self.redis.keys(f"{self.keys.zset}:ng:*"))
        return sorted(key for key in keys if not key.startswith("call:"))


def past(message):
    return message.rc, message.excused, message.strikes
