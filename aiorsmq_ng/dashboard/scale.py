"""How much work a queue has, for autoscalers."""

from __future__ import annotations

from aiorsmq_ng import InvalidValue

from ..scaling import DUE_S, Scale, scale_of
from .request_context import Visit


async def scale(visit: Visit) -> Scale:
    """Return the work of one queue, and by a target the number of replicas for it."""
    target, due = _number(visit, "target"), _number(visit, "due")
    return await scale_of(visit.queue(), target=target, due=DUE_S if due is None else due)


def _number(visit: Visit, name: str) -> float | None:
    text = visit.text(name)
    try:
        return float(text) if text else None
    except ValueError:
        raise InvalidValue(f"{name} must be a number, not {text!r}") from None
