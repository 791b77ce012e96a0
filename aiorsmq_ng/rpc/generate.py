"""Write the generated modules anew: ``python -m aiorsmq_ng.rpc.generate`` (needs grpcio-tools)."""

from __future__ import annotations

import sys
from pathlib import Path

#: The protos of this package; each becomes three modules beside it.
PROTOS = ("v1", "routeguide")
ROOT = Path(__file__).resolve().parents[2]


def generate(target: Path = ROOT) -> None:
    """Generate the modules of every proto under *target*."""
    from grpc_tools import protoc  # noqa: PLC0415 - a tool for developers, not a dependency

    sources = [f"aiorsmq_ng/rpc/{name}.proto" for name in PROTOS]
    words = [f"--{kind}_out={target}" for kind in ("python", "pyi", "grpc_python")]
    # Found from the root of the sources, so that the modules import each other by their full names.
    if protoc.main(["protoc", f"--proto_path={ROOT}", *words, *sources]):
        sys.exit("the protos cannot be compiled")


if __name__ == "__main__":
    generate()
