"""Every call of the protos has a rule and a handler."""

from aiorsmq_ng.broker.interceptor import RULES
from aiorsmq_ng.broker.server import QueuesService
from aiorsmq_ng.compat.gomq import Gomq
from aiorsmq_ng.rpc import routeguide_pb2, v1_pb2


def test_every_call_of_every_service_has_a_rule():
    calls = {
        f"/{service.full_name}/{method.name}"
        for service in v1_pb2.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    gomq = routeguide_pb2.DESCRIPTOR.services_by_name["RouteGuide"]

    assert calls == set(RULES)
    assert gomq.full_name == Gomq.name
    assert {method.name for method in gomq.methods} == set(Gomq.rules)


def test_every_call_on_queues_is_answered():
    methods = v1_pb2.DESCRIPTOR.services_by_name["Queues"].methods

    assert [m.name for m in methods if not hasattr(QueuesService, m.name)] == []
