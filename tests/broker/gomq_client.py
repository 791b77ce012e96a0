"""A client of GOMQ, made from its proto alone: nothing of this package is imported.

Run as a program: ``gomq_client.py ADDRESS MODE``. Publishes before any subscription, observes in
a tight loop from several peers at once, unsubscribes, publishes again and comes back. Prints what
every peer received, in order, as JSON.
"""

import json
import sys
import tempfile
import threading
import time
from pathlib import Path

import grpc
from grpc_tools import protoc

PROTO = """
syntax = "proto3";
package routeguide;
service RouteGuide {
  rpc Publish(PublishRecord) returns (Result) {}
  rpc Subscribe(Subscription) returns (Result) {}
  rpc Unsubscribe(Subscription) returns (Result) {}
  rpc Observe(Identification) returns (RecordSet) {}
}
message PublishRecord { string key = 1; bytes payload = 2; }
message Result { int32 code = 1; }
message Subscription { string key = 1; string consumerID = 2; }
message Identification { string consumerID = 1; }
message RecordSet { repeated Record records = 1; }
message Record { string key = 1; Message value = 2; }
message Message { string id = 1; string timestamp = 2; bytes payload = 3; }
"""
PUBLISHERS, PEERS, BEFORE, MEANWHILE, AFTER = 4, 3, 50, 150, 50
TOTAL = PUBLISHERS * (BEFORE + MEANWHILE + AFTER)


def generate(folder):
    (Path(folder) / "gomq.proto").write_text(PROTO)
    words = [f"--proto_path={folder}", f"--python_out={folder}", f"--grpc_python_out={folder}"]
    assert protoc.main(["protoc", *words, "gomq.proto"]) == 0
    sys.path.insert(0, folder)


class Peer:
    """A connection of its own."""

    def __init__(self, address):
        import gomq_pb2_grpc

        options = [("grpc.use_local_subchannel_pool", 1)]
        self.channel = grpc.insecure_channel(address, options)
        self.stub = gomq_pb2_grpc.RouteGuideStub(self.channel)
        self.records = []
        self.stop = threading.Event()

    def observe(self):
        """Observe without a pause, as GOMQ's own consumer does, until there is nothing more."""
        import gomq_pb2 as pb

        while not self.stop.is_set():
            found = self.stub.Observe(pb.Identification(consumerID="consumer")).records
            self.records += [(r.key, r.value.id, r.value.payload.decode()) for r in found]
            assert all(r.value.timestamp for r in found)


def together(*works):
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main(address, mode):
    import gomq_pb2 as pb

    publishers = [Peer(address) for _ in range(PUBLISHERS)]
    peers = [Peer(address) for _ in range(PEERS)]
    sent = [0] * PUBLISHERS

    def publish(number, count):
        for _ in range(count):
            record = pb.PublishRecord(key="news", payload=f"{number}:{sent[number]}".encode())
            assert publishers[number].stub.Publish(record).code == 0
            sent[number] += 1

    def publish_all(count):
        together(*(lambda n=n: publish(n, count) for n in range(PUBLISHERS)))

    def subscribe(peer):
        subscription = pb.Subscription(key="news", consumerID="consumer")
        assert peer.stub.Subscribe(subscription).code == 0

    def observe(until, meanwhile=lambda: None):
        """Observe from every peer at once until everything is there, and once more."""
        threads = [threading.Thread(target=peer.observe) for peer in peers]
        for peer, thread in zip(peers, threads, strict=True):
            peer.stop.clear()
            thread.start()
        meanwhile()
        limit = time.monotonic() + 60
        while not until() and time.monotonic() < limit:
            time.sleep(0.05)
        for peer in peers:
            peer.stop.set()
        for thread in threads:
            thread.join()

    def payloads(peer):
        return {payload for _, _, payload in list(peer.records)}

    def everything(count):
        return len(set().union(*map(payloads, peers))) >= count

    def all_have(count):
        return mode == "share" or all(len(payloads(peer)) >= count for peer in peers)

    publish_all(BEFORE)  # before any subscription
    for peer in peers:
        subscribe(peer)
    first, each = PUBLISHERS * (BEFORE + MEANWHILE), PUBLISHERS * MEANWHILE
    observe(lambda: everything(first) and all_have(each), lambda: publish_all(MEANWHILE))
    subscription = pb.Subscription(key="news", consumerID="consumer")
    assert peers[0].stub.Unsubscribe(subscription).code == 0
    publish_all(AFTER)  # after the last unsubscribe
    for peer in peers:
        subscribe(peer)
    observe(lambda: everything(TOTAL))
    sys.stdout.write(json.dumps([peer.records for peer in peers]))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        generate(folder)
        main(*sys.argv[1:])
