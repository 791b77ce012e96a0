"""KEDA's side of its interface, made from its proto alone: nothing of this package is imported.

Run as a program. Each line of its input is a call, an object of JSON with ``id``, ``address``,
``method`` and ``metadata``; each line of its output is a reply with that ``id``. A stream has many.
"""

import json
import sys
import tempfile
import threading
from pathlib import Path

import grpc
from google.protobuf.json_format import MessageToDict
from grpc_tools import protoc

#: Package, service, names, numbers and types are those of KEDA 2.20.
PROTO = """
syntax = "proto3";
package externalscaler;
service ExternalScaler {
  rpc IsActive(ScaledObjectRef) returns (IsActiveResponse) {}
  rpc StreamIsActive(ScaledObjectRef) returns (stream IsActiveResponse) {}
  rpc GetMetricSpec(ScaledObjectRef) returns (GetMetricSpecResponse) {}
  rpc GetMetrics(GetMetricsRequest) returns (GetMetricsResponse) {}
  rpc StreamMetricSpec(ScaledObjectRef) returns (stream GetMetricSpecResponse) {}
}
message ScaledObjectRef {
  string name = 1;
  string namespace = 2;
  map<string, string> scalerMetadata = 3;
}
message IsActiveResponse { bool result = 1; }
message GetMetricSpecResponse { repeated MetricSpec metricSpecs = 1; }
message MetricSpec { string metricName = 1; int64 targetSize = 2; double targetSizeFloat = 3; }
message GetMetricsRequest { ScaledObjectRef scaledObjectRef = 1; string metricName = 2; }
message GetMetricsResponse { repeated MetricValue metricValues = 1; }
message MetricValue { string metricName = 1; int64 metricValue = 2; double metricValueFloat = 3; }
"""
WRITING = threading.Lock()


def generate(folder):
    (Path(folder) / "keda.proto").write_text(PROTO)
    words = [f"--proto_path={folder}", f"--python_out={folder}", f"--grpc_python_out={folder}"]
    assert protoc.main(["protoc", *words, "keda.proto"]) == 0
    sys.path.insert(0, folder)


def show(id, reply):
    with WRITING:
        sys.stdout.write(json.dumps({"id": id, **reply}) + "\n")
        sys.stdout.flush()


def as_dict(message):
    return MessageToDict(message, always_print_fields_with_no_presence=True)


def play(call, stubs):
    import keda_pb2 as pb
    from keda_pb2_grpc import ExternalScalerStub

    address = call["address"]
    if address not in stubs:
        stubs[address] = ExternalScalerStub(grpc.insecure_channel(address))
    method = call["method"]
    ref = pb.ScaledObjectRef(name="shop", namespace="prod", scalerMetadata=call["metadata"])
    request = ref
    if method == "GetMetrics":
        request = pb.GetMetricsRequest(scaledObjectRef=ref, metricName=call["metric"])
    try:
        reply = getattr(stubs[address], method)(request)
        if method.startswith("Stream"):
            for one in reply:
                show(call["id"], as_dict(one))
        else:
            show(call["id"], as_dict(reply))
    except grpc.RpcError as error:
        show(call["id"], {"status": error.code().name, "sentence": error.details()})


def main():
    stubs = {}
    with tempfile.TemporaryDirectory() as folder:
        generate(folder)
        for line in sys.stdin:
            threading.Thread(target=play, args=(json.loads(line), stubs), daemon=True).start()


if __name__ == "__main__":
    main()
