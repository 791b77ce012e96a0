"""Promises about the public surface that no single call shows."""

import importlib
import inspect
import pkgutil
import typing

import aiorsmq_ng
from aiorsmq_ng import Queue, RSMQError

#: Caught inside of the package (`Forgotten` is caught as `Unavailable` outside of it); a broker
#: answers with a gRPC status instead of a `BrokerError`.
INTERNAL = {"TopicChanged", "BrokerError", "Forgotten"}


def every_error(kind=RSMQError):
    for found in kind.__subclasses__():
        yield found
        yield from every_error(found)


def test_every_error_that_can_be_raised_is_importable_from_the_root():
    for module in pkgutil.walk_packages(aiorsmq_ng.__path__, "aiorsmq_ng."):
        if "__main__" not in module.name and not module.name.startswith("aiorsmq_ng.spark"):
            importlib.import_module(module.name)
    ours = [e for e in every_error() if e.__module__.startswith("aiorsmq_ng")]

    assert len(ours) > 15
    assert {e.__name__ for e in ours} - {*aiorsmq_ng.__all__, *INTERNAL} == set()
    defined = vars(importlib.import_module("aiorsmq_ng.errors"))
    errors = {n for n, e in defined.items() if isinstance(e, type) and issubclass(e, Exception)}
    assert errors <= set(aiorsmq_ng.__all__)


def test_peek_pending_and_scan_page_by_the_same_arguments():
    pages = [inspect.signature(call).parameters for call in (Queue.peek, Queue.pending, Queue.scan)]

    assert [list(page)[:3] for page in pages] == [["self", "start", "count"]] * 3
    assert {page["start"].default for page in pages} == {0}


def test_where_there_are_a_few_words_the_type_names_them():
    from aiorsmq_ng.compat.gomq import Gomq
    from aiorsmq_ng.embedded import EmbeddedServer

    for call, argument in (
        (aiorsmq_ng.Topic.subscribe, "mode"),
        (aiorsmq_ng.Topic.subscription, "mode"),
        (aiorsmq_ng.SubscriptionInfo, "state"),
        (aiorsmq_ng.Finding, "kind"),
        (aiorsmq_ng.Finding, "severity"),
        (aiorsmq_ng.ScannedMessage.__init__, "state"),
        (aiorsmq_ng.WorkerHealth, "state"),
        (aiorsmq_ng.Worker.__init__, "order"),
        (EmbeddedServer.acquire, "fsync"),
        (Gomq.__init__, "mode"),
    ):
        assert typing.get_origin(typing.get_type_hints(call)[argument]) is typing.Literal, call
    assert typing.Literal in map(
        typing.get_origin, typing.get_args(typing.get_type_hints(aiorsmq_ng.Retry)["backoff"])
    )
