"""A peer of a consumer, made from GOMQ's proto alone: ``gomq_peer.py ADDRESS CONSUMER FILE``.

Observes for ever without a pause and writes down what comes; nothing of this package is imported.
"""

import sys
import tempfile
import time
from pathlib import Path

import grpc

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "broker"))
from gomq_client import generate

OPTIONS = [("grpc.use_local_subchannel_pool", 1), ("grpc.max_reconnect_backoff_ms", 500)]


def main(address, consumer, file):
    import gomq_pb2 as pb
    import gomq_pb2_grpc

    request = pb.Identification(consumerID=consumer)
    with Path(file).open("ab", buffering=0) as notes:
        while True:
            with grpc.insecure_channel(address, OPTIONS) as channel:
                guide = gomq_pb2_grpc.RouteGuideStub(channel)
                try:
                    while True:
                        found = guide.Observe(request, wait_for_ready=True).records
                        notes.write(b"".join(r.value.payload + b"\n" for r in found))
                except grpc.RpcError:
                    time.sleep(0.1)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        generate(folder)
        main(*sys.argv[1:])
