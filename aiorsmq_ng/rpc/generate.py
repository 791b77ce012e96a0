"""Generates the modules of the protos: ``nox -s protos``; ``nox -s lint`` compares them."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

#: The protos of this package; each becomes three modules beside it.
PROTOS = ("v1", "routeguide", "externalscaler")
ROOT = Path(__file__).resolve().parents[2]


def generate(target: Path = ROOT) -> None:
    """Generate the modules of every proto under *target*."""
    from grpc_tools import protoc  # noqa: PLC0415 - a tool for developers, not a dependency

    sources = [f"aiorsmq_ng/rpc/{name}.proto" for name in PROTOS]
    words = [f"--{kind}_out={target}" for kind in ("python", "pyi", "grpc_python")]
    # Found from the root of the sources, so that the modules import each other by their full names.
    if protoc.main(["protoc", f"--proto_path={ROOT}", *words, *sources]):
        sys.exit("the protos cannot be compiled")


def outdated() -> list[str]:
    """Return the names of the generated modules that are not those of the protos."""
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        made = {p.name: p.read_text() for p in Path(folder, "aiorsmq_ng", "rpc").iterdir()}
    kept = {p.name: p.read_text() for p in here.glob("*_pb2*.py*")}
    return sorted(name for name in made.keys() | kept.keys() if made.get(name) != kept.get(name))


if __name__ == "__main__":
    if sys.argv[1:] != ["--check"]:
        generate()
    elif names := outdated():
        sys.exit(f"not what the protos say: {', '.join(names)}; run: nox -s protos")
