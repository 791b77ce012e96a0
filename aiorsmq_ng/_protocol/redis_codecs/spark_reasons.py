"""The codec of the reasons of many dead letters."""

from __future__ import annotations

from typing import Any

from ..operations.spark import reasons
from ..operations.spark.reasons import ReasonsRequest
from .codec import Codec

REASONS: Codec[ReasonsRequest, list[str]] = Codec(
    kind=reasons.REASONS,
    script="reasons",
    keys=lambda r: (r.keys.hash, r.keys.deliveries, *map(r.keys.reason, r.ids)),
    args=lambda r: r.ids,
    decode=lambda _, reply: [text.decode(errors="replace") for text in reply],
)

CODECS: tuple[Codec[Any, Any], ...] = (REASONS,)
