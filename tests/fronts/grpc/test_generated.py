"""The generated code is that of the protos, and every call has a rule and a handler."""

from pathlib import Path

import pytest

from aiorsmq_ng.broker.door import RULES
from aiorsmq_ng.broker.server import QueuesService
from aiorsmq_ng.rpc import generate, routeguide_pb2, v1_pb2

HERE = Path(generate.__file__).parent


def test_generated_modules_are_those_of_the_protos(tmp_path):
    pytest.importorskip("grpc_tools")

    generate.generate(tmp_path)

    made = {path.name: path.read_text() for path in (tmp_path / "aiorsmq_ng/rpc").iterdir()}
    assert sorted(made) == sorted(path.name for path in HERE.glob("*_pb2*.py*"))
    assert [name for name, text in made.items() if (HERE / name).read_text() != text] == []


def test_every_call_of_every_service_has_a_rule():
    calls = {
        f"/{service.full_name}/{method.name}"
        for module in (v1_pb2, routeguide_pb2)
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }

    assert calls == set(RULES)


def test_every_call_on_queues_is_answered():
    methods = v1_pb2.DESCRIPTOR.services_by_name["Queues"].methods

    assert [m.name for m in methods if not hasattr(QueuesService, m.name)] == []
