"""What an error of a call through a broker means: not run, not known, answered, refused."""

import pytest

grpc = pytest.importorskip("grpc")

from grpc import StatusCode  # noqa: E402

from aiorsmq_ng import (  # noqa: E402
    AccessDenied,
    ClientClosed,
    DurabilityUnmet,
    InvalidValue,
    LeaseLost,
    MessageTooLong,
    NoAttributeSupplied,
    NotSupported,
    QueueCorrupt,
    QueueExists,
    QueueNotFound,
    SendUnknown,
    ServerError,
    ServerOutOfMemory,
    Unavailable,
    errors,
)
from aiorsmq_ng._broker_client.status_to_error import Answered, Forgotten, RedisAway, call_error  # noqa: E402
from aiorsmq_ng._transport.driver import NotExecuted, ReplyLost  # noqa: E402
from aiorsmq_ng.broker.error_to_status import STATUS, error_status  # noqa: E402
from aiorsmq_ng.rpc.error_details import rebuild  # noqa: E402


class RpcError:
    """As much of ``grpc.aio.AioRpcError`` as is looked at."""

    def __init__(self, status, text="", metadata=()):
        self._said = status, text, metadata

    def code(self):
        return self._said[0]

    def details(self):
        return self._said[1]

    def trailing_metadata(self):
        return self._said[2]


def met(error, method="Receive"):
    """Return what a client makes of an error that the broker met."""
    said = error_status(error)
    return call_error(method, RpcError(said.status, said.message, said.metadata))


def said(code, text, method="Send"):
    """Return what a client makes of a code of the broker."""
    return call_error(method, RpcError(STATUS.get(code), text, (("rsmq-code", code),)))


@pytest.mark.parametrize(
    "error",
    [
        QueueExists("jobs", "rsmq"),
        QueueNotFound("jobs", "rsmq"),
        MessageTooLong("jobs", 9, 5),
        NoAttributeSupplied("jobs"),
        LeaseLost("jobs", "id", gone=True),
        ServerOutOfMemory("full"),
        QueueCorrupt("jobs", "vt is no number"),
        DurabilityUnmet("fsynced", "memory", ["a", "b"]),
        InvalidValue("no"),
        InvalidValue("no", code="invalidFormat"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_error_that_the_broker_met_is_the_same_error_here(error):
    found = met(error)

    assert isinstance(found, Answered)
    assert type(found.error) is type(error)
    assert (str(found.error), found.error.code) == (str(error), error.code)
    assert {"code": error.code} | vars(found.error) == {"code": error.code} | vars(error)


@pytest.mark.parametrize(
    "kind",
    [kind for kind in vars(errors).values() if isinstance(kind, type) and hasattr(kind, "code")],
)
def test_every_error_of_the_library_is_rebuilt_as_itself(kind):
    error = rebuild(kind.code, "said", {"queue": "jobs"})

    assert type(error) is kind
    assert (str(error), error.code, vars(error)["queue"]) == ("said", kind.code, "jobs")


def test_error_of_a_newer_broker_keeps_its_code():
    error = said("somethingNew", "odd").error

    assert (type(error), error.code) == (ServerError, "somethingNew")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Unavailable("away", executed=False, transient=True), RedisAway),
        (Unavailable("away", executed=None, transient=True), ReplyLost),
        (Unavailable("no such socket", executed=False), Unavailable),
        (AccessDenied("wrong password"), AccessDenied),
        (NotSupported("unknown command"), NotSupported),
        (ClientClosed(), NotExecuted),
        (SendUnknown("lost"), ReplyLost),
    ],
)
def test_redis_that_is_away_from_the_broker_is_away_from_us(error, kind):
    assert type(met(error)) is kind


@pytest.mark.parametrize("code", ["stopping", "tooManyCalls"])
def test_call_that_the_broker_turns_away_did_not_run(code):
    assert isinstance(said(code, "later"), NotExecuted)


@pytest.mark.parametrize(
    ("code", "kind", "words"),
    [
        ("unauthenticated", AccessDenied, "RSMQ_TOKEN"),
        (
            "forbidden",
            AccessDenied,
            "the broker refused the call: token 'x' is not for queue 'jobs'",
        ),
        ("requestForgotten", Forgotten, "does not remember"),
    ],
)
def test_refusal_is_final_and_says_what_is_wrong(code, kind, words):
    text = "token 'x' is not for queue 'jobs'"
    error = said(code, text)

    assert type(error) is kind
    assert not getattr(error, "transient", False)
    assert words in str(error)


@pytest.mark.parametrize(("method", "kind"), [("Send", SendUnknown), ("Pop", Unavailable)])
def test_fault_of_the_broker_leaves_open_what_it_did_and_is_not_repeated(method, kind):
    found = said("internal", "oops", method)

    assert type(found.error) is kind
    assert found.error.executed is None


@pytest.mark.parametrize(
    ("status", "text", "kind"),
    [
        (StatusCode.UNAVAILABLE, "failed to connect to all addresses; last error: x", NotExecuted),
        (StatusCode.UNAVAILABLE, "DNS resolution failed for nowhere", NotExecuted),
        # The request may have been written before these.
        (StatusCode.UNAVAILABLE, "Socket closed", ReplyLost),
        (StatusCode.UNAVAILABLE, "recvmsg:Connection reset by peer", ReplyLost),
        (StatusCode.UNAVAILABLE, "", ReplyLost),
        (StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", ReplyLost),
        (StatusCode.CANCELLED, "", ReplyLost),
        (StatusCode.INTERNAL, "Received RST_STREAM with error code 2", ReplyLost),
        (StatusCode.UNKNOWN, "", ReplyLost),
        (StatusCode.RESOURCE_EXHAUSTED, "out of something", ReplyLost),
        (StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max (9 vs. 5)", InvalidValue),
        (StatusCode.UNIMPLEMENTED, "Method not found!", NotSupported),
        (StatusCode.PERMISSION_DENIED, "403", AccessDenied),
        (StatusCode.UNAUTHENTICATED, "401", AccessDenied),
    ],
)
def test_error_that_is_not_the_brokers_own(status, text, kind):
    assert isinstance(call_error("Send", RpcError(status, text)), kind)


def test_details_that_cannot_be_read_are_left_out():
    said = (("rsmq-code", "serverOutOfMemory"), ("rsmq-details", "{"), ("bin-bin", b"\0"))

    error = call_error("Send", RpcError(StatusCode.RESOURCE_EXHAUSTED, "full", said))

    assert type(error.error) is ServerOutOfMemory
