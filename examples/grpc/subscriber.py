"""Consume a subscription through the broker; run two of these, and they share the messages.

Run a broker first (``rsmqctl serve grpc``), then
``python examples/grpc/subscriber.py [ADDRESS [CONSUMER [HOW MANY]]]``.
Another consumer gets its own copy of everything.
"""

import itertools
import sys

import grpc

from aiorsmq_ng.rpc import v1_pb2 as pb
from aiorsmq_ng.rpc.v1_pb2_grpc import QueuesStub, TopicsStub


def main(address: str = "127.0.0.1:10001", consumer: str = "billing", wanted: str = "10") -> None:
    subscriber = pb.Subscriber(topic="example-news", consumer=consumer)
    with grpc.insecure_channel(address) as channel:
        queues, topics = QueuesStub(channel), TopicsStub(channel)
        topics.Subscribe(
            pb.SubscribeRequest(subscriber=subscriber), timeout=10, wait_for_ready=True
        )
        # At most 5 in our hands; the broker renews their leases, and takes back what we leave.
        stream = queues.Consume(
            pb.ConsumeRequest(sources=[pb.Source(subscriber=subscriber)], max_unsettled=5)
        )
        deliveries = itertools.chain.from_iterable(event.deliveries for event in stream)
        for delivery in itertools.islice(deliveries, int(wanted)):
            print(f"{consumer} handles {delivery.body.decode()}")
            queues.Ack(pb.AckRequest(receipts=[delivery.receipt]), timeout=10)
        stream.cancel()
    print(f"{consumer} is done")


if __name__ == "__main__":
    main(*sys.argv[1:])
