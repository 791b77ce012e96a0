"""Publish through the broker with nothing but gRPC: the same calls in any language.

Run a broker first (``rsmqctl serve grpc``), then ``python examples/grpc/publisher.py [ADDRESS]``.
"""

import sys
import uuid

import grpc

from aiorsmq_ng.rpc import v1_pb2 as pb
from aiorsmq_ng.rpc.v1_pb2_grpc import TopicsStub


def main(address: str = "127.0.0.1:10001") -> None:
    with grpc.insecure_channel(address) as channel:
        topics = TopicsStub(channel)
        for number in range(10):
            request = pb.PublishRequest(
                topic="example-news",
                bodies=[f"event {number}".encode()],
                # Repeated under the same id, also at another broker, it is published once.
                request=pb.RequestId(id=uuid.uuid4().hex, durable=True),
            )
            response = topics.Publish(request, timeout=10, wait_for_ready=True)
            print(f"published {response.ids[0]}")
    print("published 10 events")


if __name__ == "__main__":
    main(*sys.argv[1:])
