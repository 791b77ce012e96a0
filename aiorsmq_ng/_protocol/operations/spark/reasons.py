"""Reasons of many dead letters at once."""

from __future__ import annotations

from collections.abc import Sequence

from ...keys import QueueKeys
from ...operation import Kind, Operation, QueueRequest


class ReasonsRequest(QueueRequest, frozen=True):
    """Read why messages were rejected into this queue; empty where no reason is known."""

    ids: Sequence[str]


REASONS: Kind[list[str]] = Kind(name="reasons", repeatable=True)


def read_reasons(keys: QueueKeys, ids: Sequence[str]) -> Operation[list[str]]:
    """Read why messages were rejected into this queue; empty where no reason is known."""
    return Operation(REASONS, ReasonsRequest(keys, ids))
