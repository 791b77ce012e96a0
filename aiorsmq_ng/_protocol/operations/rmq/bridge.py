"""Operations that move messages between a queue of rmq and one of RSMQ on the same server."""

from __future__ import annotations

from typing import NamedTuple

from ...keys import QueueKeys
from ...operation import Kind, Operation, QueueRequest
from ...rmq_keys import RmqKeys


class Bridged(NamedTuple):
    """What one step did."""

    moved: int
    #: To RSMQ: payloads that are too long, and were rejected. From it: messages looked at.
    others: int


class ToRsmqRequest(QueueRequest, frozen=True):
    """Move up to *count* ready payloads of *source* to the queue, in order."""

    source: RmqKeys
    count: int
    #: Channel on which the arrival is announced.
    channel: str


class FromRsmqRequest(QueueRequest, frozen=True):
    """Move up to *count* ready messages of the queue to *target*, in order."""

    target: RmqKeys
    count: int


RMQ_TO_RSMQ: Kind[Bridged] = Kind(name="rmq_to_rsmq", numbered=True)
RMQ_FROM_RSMQ: Kind[Bridged] = Kind(name="rmq_from_rsmq", numbered=True)


def to_rsmq(source: RmqKeys, target: QueueKeys, count: int, channel: str) -> Operation[Bridged]:
    """Move up to *count* ready payloads of *source* to *target*."""
    return Operation(RMQ_TO_RSMQ, ToRsmqRequest(target, source, count, channel))


def from_rsmq(source: QueueKeys, target: RmqKeys, count: int) -> Operation[Bridged]:
    """Move up to *count* ready messages of *source* to *target*."""
    return Operation(RMQ_FROM_RSMQ, FromRsmqRequest(source, target, count))
