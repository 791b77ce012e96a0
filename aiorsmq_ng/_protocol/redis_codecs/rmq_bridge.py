"""Codecs of the moves between queues of rmq and of RSMQ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..._common.message_ids import SUFFIX_LENGTH, suffix
from ..operation import Operation
from ..operations.rmq import bridge
from ..operations.rmq.bridge import Bridged, FromRsmqRequest, ToRsmqRequest
from .codec import Codec, Entropy, Words


def _to_rsmq(operations: Sequence[Operation[Any]], entropy: Entropy) -> Words:
    request: ToRsmqRequest = operations[0].request
    source, target = request.source, request.keys
    suffixes = suffix(entropy(SUFFIX_LENGTH * request.count))
    keys = [source.ready, source.rejected, target.zset, target.hash]
    return keys, [request.channel, request.count, suffixes]


TO_RSMQ: Codec[ToRsmqRequest, Bridged] = Codec(
    kind=bridge.RMQ_TO_RSMQ,
    script="rmq_to_rsmq",
    keys=lambda r: (r.source.ready,),
    decode=lambda _, reply: Bridged(*reply),
    encode_all=_to_rsmq,
)
FROM_RSMQ: Codec[FromRsmqRequest, Bridged] = Codec(
    kind=bridge.RMQ_FROM_RSMQ,
    script="rmq_from_rsmq",
    keys=lambda r: (*r.keys.with_deliveries, r.target.ready),
    args=lambda r: (r.count,),
    decode=lambda _, reply: Bridged(*reply),
)

CODECS: tuple[Codec[Any, Any], ...] = (TO_RSMQ, FROM_RSMQ)
