from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Iterable as _Iterable, Mapping as _Mapping, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Mode(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    MODE_UNSPECIFIED: _ClassVar[Mode]
    MODE_SHARED: _ClassVar[Mode]
    MODE_BROADCAST: _ClassVar[Mode]

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_DONE: _ClassVar[Outcome]
    OUTCOME_GONE: _ClassVar[Outcome]
    OUTCOME_RECEIVED_SINCE: _ClassVar[Outcome]
    OUTCOME_BAD_RECEIPT: _ClassVar[Outcome]
    OUTCOME_FAILED: _ClassVar[Outcome]
MODE_UNSPECIFIED: Mode
MODE_SHARED: Mode
MODE_BROADCAST: Mode
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_DONE: Outcome
OUTCOME_GONE: Outcome
OUTCOME_RECEIVED_SINCE: Outcome
OUTCOME_BAD_RECEIPT: Outcome
OUTCOME_FAILED: Outcome

class RequestId(_message.Message):
    __slots__ = ("id", "broker", "durable")
    ID_FIELD_NUMBER: _ClassVar[int]
    BROKER_FIELD_NUMBER: _ClassVar[int]
    DURABLE_FIELD_NUMBER: _ClassVar[int]
    id: str
    broker: str
    durable: bool
    def __init__(self, id: _Optional[str] = ..., broker: _Optional[str] = ..., durable: bool = ...) -> None: ...

class GetInfoRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetInfoResponse(_message.Message):
    __slots__ = ("broker", "version", "namespace", "identity", "max_message_bytes", "max_batch", "max_wait_ms", "max_unsettled")
    BROKER_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    NAMESPACE_FIELD_NUMBER: _ClassVar[int]
    IDENTITY_FIELD_NUMBER: _ClassVar[int]
    MAX_MESSAGE_BYTES_FIELD_NUMBER: _ClassVar[int]
    MAX_BATCH_FIELD_NUMBER: _ClassVar[int]
    MAX_WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_UNSETTLED_FIELD_NUMBER: _ClassVar[int]
    broker: str
    version: str
    namespace: str
    identity: str
    max_message_bytes: int
    max_batch: int
    max_wait_ms: int
    max_unsettled: int
    def __init__(self, broker: _Optional[str] = ..., version: _Optional[str] = ..., namespace: _Optional[str] = ..., identity: _Optional[str] = ..., max_message_bytes: _Optional[int] = ..., max_batch: _Optional[int] = ..., max_wait_ms: _Optional[int] = ..., max_unsettled: _Optional[int] = ...) -> None: ...

class CreateQueueRequest(_message.Message):
    __slots__ = ("queue", "vt_ms", "delay_ms", "maxsize", "exist_ok", "request")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    VT_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    MAXSIZE_FIELD_NUMBER: _ClassVar[int]
    EXIST_OK_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    queue: str
    vt_ms: int
    delay_ms: int
    maxsize: int
    exist_ok: bool
    request: RequestId
    def __init__(self, queue: _Optional[str] = ..., vt_ms: _Optional[int] = ..., delay_ms: _Optional[int] = ..., maxsize: _Optional[int] = ..., exist_ok: bool = ..., request: _Optional[_Union[RequestId, _Mapping]] = ...) -> None: ...

class CreateQueueResponse(_message.Message):
    __slots__ = ("created",)
    CREATED_FIELD_NUMBER: _ClassVar[int]
    created: bool
    def __init__(self, created: bool = ...) -> None: ...

class DeleteQueueRequest(_message.Message):
    __slots__ = ("queue", "request")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    queue: str
    request: RequestId
    def __init__(self, queue: _Optional[str] = ..., request: _Optional[_Union[RequestId, _Mapping]] = ...) -> None: ...

class DeleteQueueResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListQueuesRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListQueuesResponse(_message.Message):
    __slots__ = ("queues",)
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, queues: _Optional[_Iterable[str]] = ...) -> None: ...

class GetAttributesRequest(_message.Message):
    __slots__ = ("queue",)
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    queue: str
    def __init__(self, queue: _Optional[str] = ...) -> None: ...

class SetAttributesRequest(_message.Message):
    __slots__ = ("queue", "vt_ms", "delay_ms", "maxsize", "request")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    VT_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    MAXSIZE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    queue: str
    vt_ms: int
    delay_ms: int
    maxsize: int
    request: RequestId
    def __init__(self, queue: _Optional[str] = ..., vt_ms: _Optional[int] = ..., delay_ms: _Optional[int] = ..., maxsize: _Optional[int] = ..., request: _Optional[_Union[RequestId, _Mapping]] = ...) -> None: ...

class QueueAttributes(_message.Message):
    __slots__ = ("vt", "delay", "maxsize", "totalrecv", "totalsent", "created", "modified", "msgs", "hiddenmsgs", "ready", "delayed", "leased", "exact", "oldest_age_ms")
    VT_FIELD_NUMBER: _ClassVar[int]
    DELAY_FIELD_NUMBER: _ClassVar[int]
    MAXSIZE_FIELD_NUMBER: _ClassVar[int]
    TOTALRECV_FIELD_NUMBER: _ClassVar[int]
    TOTALSENT_FIELD_NUMBER: _ClassVar[int]
    CREATED_FIELD_NUMBER: _ClassVar[int]
    MODIFIED_FIELD_NUMBER: _ClassVar[int]
    MSGS_FIELD_NUMBER: _ClassVar[int]
    HIDDENMSGS_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    DELAYED_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    EXACT_FIELD_NUMBER: _ClassVar[int]
    OLDEST_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    vt: float
    delay: float
    maxsize: int
    totalrecv: int
    totalsent: int
    created: int
    modified: int
    msgs: int
    hiddenmsgs: int
    ready: int
    delayed: int
    leased: int
    exact: bool
    oldest_age_ms: int
    def __init__(self, vt: _Optional[float] = ..., delay: _Optional[float] = ..., maxsize: _Optional[int] = ..., totalrecv: _Optional[int] = ..., totalsent: _Optional[int] = ..., created: _Optional[int] = ..., modified: _Optional[int] = ..., msgs: _Optional[int] = ..., hiddenmsgs: _Optional[int] = ..., ready: _Optional[int] = ..., delayed: _Optional[int] = ..., leased: _Optional[int] = ..., exact: bool = ..., oldest_age_ms: _Optional[int] = ...) -> None: ...

class GetStatsRequest(_message.Message):
    __slots__ = ("queue", "dead_letter")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    queue: str
    dead_letter: str
    def __init__(self, queue: _Optional[str] = ..., dead_letter: _Optional[str] = ...) -> None: ...

class QueueStats(_message.Message):
    __slots__ = ("attributes", "dead", "consumers")
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    DEAD_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    attributes: QueueAttributes
    dead: int
    consumers: _containers.RepeatedCompositeFieldContainer[ConsumerInfo]
    def __init__(self, attributes: _Optional[_Union[QueueAttributes, _Mapping]] = ..., dead: _Optional[int] = ..., consumers: _Optional[_Iterable[_Union[ConsumerInfo, _Mapping]]] = ...) -> None: ...

class ConsumerInfo(_message.Message):
    __slots__ = ("name", "consumers", "holding", "idle_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    HOLDING_FIELD_NUMBER: _ClassVar[int]
    IDLE_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    consumers: int
    holding: _containers.RepeatedScalarFieldContainer[str]
    idle_ms: int
    def __init__(self, name: _Optional[str] = ..., consumers: _Optional[int] = ..., holding: _Optional[_Iterable[str]] = ..., idle_ms: _Optional[int] = ...) -> None: ...

class AnnounceRequest(_message.Message):
    __slots__ = ("queue", "name", "consumers", "holding")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    CONSUMERS_FIELD_NUMBER: _ClassVar[int]
    HOLDING_FIELD_NUMBER: _ClassVar[int]
    queue: str
    name: str
    consumers: int
    holding: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, queue: _Optional[str] = ..., name: _Optional[str] = ..., consumers: _Optional[int] = ..., holding: _Optional[_Iterable[str]] = ...) -> None: ...

class AnnounceResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PurgeRequest(_message.Message):
    __slots__ = ("queue", "leased", "at", "request")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    LEASED_FIELD_NUMBER: _ClassVar[int]
    AT_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    queue: str
    leased: bool
    at: int
    request: RequestId
    def __init__(self, queue: _Optional[str] = ..., leased: bool = ..., at: _Optional[int] = ..., request: _Optional[_Union[RequestId, _Mapping]] = ...) -> None: ...

class PurgeResponse(_message.Message):
    __slots__ = ("removed", "next", "before")
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    BEFORE_FIELD_NUMBER: _ClassVar[int]
    removed: int
    next: int
    before: int
    def __init__(self, removed: _Optional[int] = ..., next: _Optional[int] = ..., before: _Optional[int] = ...) -> None: ...

class RedriveRequest(_message.Message):
    __slots__ = ("source", "target", "count", "ids", "request")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    source: str
    target: str
    count: int
    ids: _containers.RepeatedScalarFieldContainer[str]
    request: RequestId
    def __init__(self, source: _Optional[str] = ..., target: _Optional[str] = ..., count: _Optional[int] = ..., ids: _Optional[_Iterable[str]] = ..., request: _Optional[_Union[RequestId, _Mapping]] = ...) -> None: ...

class RedriveResponse(_message.Message):
    __slots__ = ("moved",)
    MOVED_FIELD_NUMBER: _ClassVar[int]
    moved: int
    def __init__(self, moved: _Optional[int] = ...) -> None: ...

class SendRequest(_message.Message):
    __slots__ = ("queue", "bodies", "delay_ms", "dedup_key", "parts", "headers", "request")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    BODIES_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    DEDUP_KEY_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    queue: str
    bodies: _containers.RepeatedScalarFieldContainer[bytes]
    delay_ms: int
    dedup_key: str
    parts: _containers.RepeatedCompositeFieldContainer[SendPart]
    headers: _containers.RepeatedCompositeFieldContainer[Headers]
    request: RequestId
    def __init__(self, queue: _Optional[str] = ..., bodies: _Optional[_Iterable[bytes]] = ..., delay_ms: _Optional[int] = ..., dedup_key: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[SendPart, _Mapping]]] = ..., headers: _Optional[_Iterable[_Union[Headers, _Mapping]]] = ..., request: _Optional[_Union[RequestId, _Mapping]] = ...) -> None: ...

class SendPart(_message.Message):
    __slots__ = ("bodies", "delay_ms", "dedup_key", "headers")
    BODIES_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    DEDUP_KEY_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    bodies: _containers.RepeatedScalarFieldContainer[bytes]
    delay_ms: int
    dedup_key: str
    headers: _containers.RepeatedCompositeFieldContainer[Headers]
    def __init__(self, bodies: _Optional[_Iterable[bytes]] = ..., delay_ms: _Optional[int] = ..., dedup_key: _Optional[str] = ..., headers: _Optional[_Iterable[_Union[Headers, _Mapping]]] = ...) -> None: ...

class Headers(_message.Message):
    __slots__ = ("values",)
    class ValuesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    VALUES_FIELD_NUMBER: _ClassVar[int]
    values: _containers.ScalarMap[str, str]
    def __init__(self, values: _Optional[_Mapping[str, str]] = ...) -> None: ...

class SendOutcome(_message.Message):
    __slots__ = ("ids", "durability", "duplicate", "error")
    IDS_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    durability: str
    duplicate: bool
    error: Error
    def __init__(self, ids: _Optional[_Iterable[str]] = ..., durability: _Optional[str] = ..., duplicate: bool = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class Error(_message.Message):
    __slots__ = ("code", "message", "details")
    CODE_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DETAILS_FIELD_NUMBER: _ClassVar[int]
    code: str
    message: str
    details: str
    def __init__(self, code: _Optional[str] = ..., message: _Optional[str] = ..., details: _Optional[str] = ...) -> None: ...

class SendResponse(_message.Message):
    __slots__ = ("ids", "durability", "duplicate", "outcomes")
    IDS_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    durability: str
    duplicate: bool
    outcomes: _containers.RepeatedCompositeFieldContainer[SendOutcome]
    def __init__(self, ids: _Optional[_Iterable[str]] = ..., durability: _Optional[str] = ..., duplicate: bool = ..., outcomes: _Optional[_Iterable[_Union[SendOutcome, _Mapping]]] = ...) -> None: ...

class Source(_message.Message):
    __slots__ = ("queue", "max_receives", "dead_letter", "vt_ms", "subscriber")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    MAX_RECEIVES_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    VT_MS_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    queue: str
    max_receives: int
    dead_letter: str
    vt_ms: int
    subscriber: Subscriber
    def __init__(self, queue: _Optional[str] = ..., max_receives: _Optional[int] = ..., dead_letter: _Optional[str] = ..., vt_ms: _Optional[int] = ..., subscriber: _Optional[_Union[Subscriber, _Mapping]] = ...) -> None: ...

class Subscriber(_message.Message):
    __slots__ = ("topic", "consumer", "mode", "peer", "peer_timeout_ms")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    PEER_TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    consumer: str
    mode: Mode
    peer: str
    peer_timeout_ms: int
    def __init__(self, topic: _Optional[str] = ..., consumer: _Optional[str] = ..., mode: _Optional[_Union[Mode, str]] = ..., peer: _Optional[str] = ..., peer_timeout_ms: _Optional[int] = ...) -> None: ...

class ReceiveRequest(_message.Message):
    __slots__ = ("sources", "count", "vt_ms", "wait_ms", "max_bytes", "more", "request")
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    VT_MS_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    sources: _containers.RepeatedCompositeFieldContainer[Source]
    count: int
    vt_ms: int
    wait_ms: int
    max_bytes: int
    more: _containers.RepeatedCompositeFieldContainer[ReceiveShare]
    request: RequestId
    def __init__(self, sources: _Optional[_Iterable[_Union[Source, _Mapping]]] = ..., count: _Optional[int] = ..., vt_ms: _Optional[int] = ..., wait_ms: _Optional[int] = ..., max_bytes: _Optional[int] = ..., more: _Optional[_Iterable[_Union[ReceiveShare, _Mapping]]] = ..., request: _Optional[_Union[RequestId, _Mapping]] = ...) -> None: ...

class ReceiveShare(_message.Message):
    __slots__ = ("count", "vt_ms")
    COUNT_FIELD_NUMBER: _ClassVar[int]
    VT_MS_FIELD_NUMBER: _ClassVar[int]
    count: int
    vt_ms: int
    def __init__(self, count: _Optional[int] = ..., vt_ms: _Optional[int] = ...) -> None: ...

class ReceiveResponse(_message.Message):
    __slots__ = ("deliveries", "next_visible_ms", "dead_letters", "more")
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    NEXT_VISIBLE_MS_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[Delivery]
    next_visible_ms: int
    dead_letters: _containers.RepeatedCompositeFieldContainer[DeadLetter]
    more: _containers.RepeatedCompositeFieldContainer[ReceiveResponse]
    def __init__(self, deliveries: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ..., next_visible_ms: _Optional[int] = ..., dead_letters: _Optional[_Iterable[_Union[DeadLetter, _Mapping]]] = ..., more: _Optional[_Iterable[_Union[ReceiveResponse, _Mapping]]] = ...) -> None: ...

class Delivery(_message.Message):
    __slots__ = ("queue", "id", "body", "rc", "fr", "vt_ms", "receipt", "omitted_bytes", "strikes", "excused", "headers")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    RC_FIELD_NUMBER: _ClassVar[int]
    FR_FIELD_NUMBER: _ClassVar[int]
    VT_MS_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    OMITTED_BYTES_FIELD_NUMBER: _ClassVar[int]
    STRIKES_FIELD_NUMBER: _ClassVar[int]
    EXCUSED_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    id: str
    body: bytes
    rc: int
    fr: int
    vt_ms: int
    receipt: str
    omitted_bytes: int
    strikes: int
    excused: int
    headers: _containers.ScalarMap[str, str]
    def __init__(self, queue: _Optional[str] = ..., id: _Optional[str] = ..., body: _Optional[bytes] = ..., rc: _Optional[int] = ..., fr: _Optional[int] = ..., vt_ms: _Optional[int] = ..., receipt: _Optional[str] = ..., omitted_bytes: _Optional[int] = ..., strikes: _Optional[int] = ..., excused: _Optional[int] = ..., headers: _Optional[_Mapping[str, str]] = ...) -> None: ...

class DeadLetter(_message.Message):
    __slots__ = ("queue", "id", "body", "rc", "fr", "reason", "dead_letter", "headers")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    RC_FIELD_NUMBER: _ClassVar[int]
    FR_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    queue: str
    id: str
    body: bytes
    rc: int
    fr: int
    reason: str
    dead_letter: str
    headers: _containers.ScalarMap[str, str]
    def __init__(self, queue: _Optional[str] = ..., id: _Optional[str] = ..., body: _Optional[bytes] = ..., rc: _Optional[int] = ..., fr: _Optional[int] = ..., reason: _Optional[str] = ..., dead_letter: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ...) -> None: ...

class PopRequest(_message.Message):
    __slots__ = ("queue", "count")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    queue: str
    count: int
    def __init__(self, queue: _Optional[str] = ..., count: _Optional[int] = ...) -> None: ...

class PopResponse(_message.Message):
    __slots__ = ("messages",)
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    def __init__(self, messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ...) -> None: ...

class Message(_message.Message):
    __slots__ = ("id", "body", "rc", "fr", "headers")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    RC_FIELD_NUMBER: _ClassVar[int]
    FR_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    id: str
    body: bytes
    rc: int
    fr: int
    headers: _containers.ScalarMap[str, str]
    def __init__(self, id: _Optional[str] = ..., body: _Optional[bytes] = ..., rc: _Optional[int] = ..., fr: _Optional[int] = ..., headers: _Optional[_Mapping[str, str]] = ...) -> None: ...

class RecoverRequest(_message.Message):
    __slots__ = ("source", "count", "idle_ms", "vt_ms", "after", "request")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    IDLE_MS_FIELD_NUMBER: _ClassVar[int]
    VT_MS_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    source: Source
    count: int
    idle_ms: int
    vt_ms: int
    after: RecoverPlace
    request: RequestId
    def __init__(self, source: _Optional[_Union[Source, _Mapping]] = ..., count: _Optional[int] = ..., idle_ms: _Optional[int] = ..., vt_ms: _Optional[int] = ..., after: _Optional[_Union[RecoverPlace, _Mapping]] = ..., request: _Optional[_Union[RequestId, _Mapping]] = ...) -> None: ...

class RecoverResponse(_message.Message):
    __slots__ = ("deliveries", "dead_letters", "next")
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[Delivery]
    dead_letters: _containers.RepeatedCompositeFieldContainer[DeadLetter]
    next: RecoverPlace
    def __init__(self, deliveries: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ..., dead_letters: _Optional[_Iterable[_Union[DeadLetter, _Mapping]]] = ..., next: _Optional[_Union[RecoverPlace, _Mapping]] = ...) -> None: ...

class RecoverPlace(_message.Message):
    __slots__ = ("at", "started_ms")
    AT_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    at: int
    started_ms: int
    def __init__(self, at: _Optional[int] = ..., started_ms: _Optional[int] = ...) -> None: ...

class AckRequest(_message.Message):
    __slots__ = ("receipts",)
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, receipts: _Optional[_Iterable[str]] = ...) -> None: ...

class ExtendRequest(_message.Message):
    __slots__ = ("receipts", "vt_ms")
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    VT_MS_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedScalarFieldContainer[str]
    vt_ms: int
    def __init__(self, receipts: _Optional[_Iterable[str]] = ..., vt_ms: _Optional[int] = ...) -> None: ...

class ReleaseRequest(_message.Message):
    __slots__ = ("receipts", "delay_ms", "unseen")
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    UNSEEN_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedScalarFieldContainer[str]
    delay_ms: int
    unseen: bool
    def __init__(self, receipts: _Optional[_Iterable[str]] = ..., delay_ms: _Optional[int] = ..., unseen: bool = ...) -> None: ...

class RejectRequest(_message.Message):
    __slots__ = ("receipts", "reason", "dead_letter")
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTER_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    dead_letter: str
    def __init__(self, receipts: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ..., dead_letter: _Optional[str] = ...) -> None: ...

class ForwardRequest(_message.Message):
    __slots__ = ("receipts", "target", "delay_ms")
    RECEIPTS_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    receipts: _containers.RepeatedScalarFieldContainer[str]
    target: str
    delay_ms: int
    def __init__(self, receipts: _Optional[_Iterable[str]] = ..., target: _Optional[str] = ..., delay_ms: _Optional[int] = ...) -> None: ...

class SettleResponse(_message.Message):
    __slots__ = ("outcomes", "errors")
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    outcomes: _containers.RepeatedScalarFieldContainer[Outcome]
    errors: _containers.RepeatedCompositeFieldContainer[SettleError]
    def __init__(self, outcomes: _Optional[_Iterable[_Union[Outcome, str]]] = ..., errors: _Optional[_Iterable[_Union[SettleError, _Mapping]]] = ...) -> None: ...

class SettleError(_message.Message):
    __slots__ = ("index", "error")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    index: int
    error: Error
    def __init__(self, index: _Optional[int] = ..., error: _Optional[_Union[Error, _Mapping]] = ...) -> None: ...

class DeleteMessagesRequest(_message.Message):
    __slots__ = ("queue", "ids", "only_leased", "request")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    ONLY_LEASED_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    queue: str
    ids: _containers.RepeatedScalarFieldContainer[str]
    only_leased: bool
    request: RequestId
    def __init__(self, queue: _Optional[str] = ..., ids: _Optional[_Iterable[str]] = ..., only_leased: bool = ..., request: _Optional[_Union[RequestId, _Mapping]] = ...) -> None: ...

class DeleteMessagesResponse(_message.Message):
    __slots__ = ("ids",)
    IDS_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, ids: _Optional[_Iterable[str]] = ...) -> None: ...

class ChangeVisibilityRequest(_message.Message):
    __slots__ = ("queue", "id", "vt_ms", "request")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    VT_MS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    queue: str
    id: str
    vt_ms: int
    request: RequestId
    def __init__(self, queue: _Optional[str] = ..., id: _Optional[str] = ..., vt_ms: _Optional[int] = ..., request: _Optional[_Union[RequestId, _Mapping]] = ...) -> None: ...

class ChangeVisibilityResponse(_message.Message):
    __slots__ = ("changed",)
    CHANGED_FIELD_NUMBER: _ClassVar[int]
    changed: bool
    def __init__(self, changed: bool = ...) -> None: ...

class PeekRequest(_message.Message):
    __slots__ = ("queue", "start", "count")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    queue: str
    start: int
    count: int
    def __init__(self, queue: _Optional[str] = ..., start: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class PeekResponse(_message.Message):
    __slots__ = ("messages", "more")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[Message]
    more: bool
    def __init__(self, messages: _Optional[_Iterable[_Union[Message, _Mapping]]] = ..., more: bool = ...) -> None: ...

class ListPendingRequest(_message.Message):
    __slots__ = ("queue", "start", "count")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    queue: str
    start: int
    count: int
    def __init__(self, queue: _Optional[str] = ..., start: _Optional[int] = ..., count: _Optional[int] = ...) -> None: ...

class ListPendingResponse(_message.Message):
    __slots__ = ("messages", "more")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    MORE_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[PendingMessage]
    more: bool
    def __init__(self, messages: _Optional[_Iterable[_Union[PendingMessage, _Mapping]]] = ..., more: bool = ...) -> None: ...

class PendingMessage(_message.Message):
    __slots__ = ("message", "delivered", "idle_ms")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    DELIVERED_FIELD_NUMBER: _ClassVar[int]
    IDLE_MS_FIELD_NUMBER: _ClassVar[int]
    message: Message
    delivered: int
    idle_ms: int
    def __init__(self, message: _Optional[_Union[Message, _Mapping]] = ..., delivered: _Optional[int] = ..., idle_ms: _Optional[int] = ...) -> None: ...

class ScanRequest(_message.Message):
    __slots__ = ("queue", "start", "after", "count")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    COUNT_FIELD_NUMBER: _ClassVar[int]
    queue: str
    start: int
    after: ScanPlace
    count: int
    def __init__(self, queue: _Optional[str] = ..., start: _Optional[int] = ..., after: _Optional[_Union[ScanPlace, _Mapping]] = ..., count: _Optional[int] = ...) -> None: ...

class ScanPlace(_message.Message):
    __slots__ = ("visible_at", "id")
    VISIBLE_AT_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    visible_at: float
    id: str
    def __init__(self, visible_at: _Optional[float] = ..., id: _Optional[str] = ...) -> None: ...

class ScanResponse(_message.Message):
    __slots__ = ("messages", "next")
    MESSAGES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    messages: _containers.RepeatedCompositeFieldContainer[ScannedMessage]
    next: ScanPlace
    def __init__(self, messages: _Optional[_Iterable[_Union[ScannedMessage, _Mapping]]] = ..., next: _Optional[_Union[ScanPlace, _Mapping]] = ...) -> None: ...

class ScannedMessage(_message.Message):
    __slots__ = ("message", "visible_at", "state")
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    VISIBLE_AT_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    message: Message
    visible_at: float
    state: str
    def __init__(self, message: _Optional[_Union[Message, _Mapping]] = ..., visible_at: _Optional[float] = ..., state: _Optional[str] = ...) -> None: ...

class GetReasonRequest(_message.Message):
    __slots__ = ("queue", "id")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    queue: str
    id: str
    def __init__(self, queue: _Optional[str] = ..., id: _Optional[str] = ...) -> None: ...

class GetReasonResponse(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class ConsumeRequest(_message.Message):
    __slots__ = ("sources", "max_unsettled", "vt_ms", "no_renewal", "max_bytes")
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    MAX_UNSETTLED_FIELD_NUMBER: _ClassVar[int]
    VT_MS_FIELD_NUMBER: _ClassVar[int]
    NO_RENEWAL_FIELD_NUMBER: _ClassVar[int]
    MAX_BYTES_FIELD_NUMBER: _ClassVar[int]
    sources: _containers.RepeatedCompositeFieldContainer[Source]
    max_unsettled: int
    vt_ms: int
    no_renewal: bool
    max_bytes: int
    def __init__(self, sources: _Optional[_Iterable[_Union[Source, _Mapping]]] = ..., max_unsettled: _Optional[int] = ..., vt_ms: _Optional[int] = ..., no_renewal: bool = ..., max_bytes: _Optional[int] = ...) -> None: ...

class ConsumeResponse(_message.Message):
    __slots__ = ("deliveries", "lost", "dead_letters")
    DELIVERIES_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    DEAD_LETTERS_FIELD_NUMBER: _ClassVar[int]
    deliveries: _containers.RepeatedCompositeFieldContainer[Delivery]
    lost: _containers.RepeatedCompositeFieldContainer[LostLease]
    dead_letters: _containers.RepeatedCompositeFieldContainer[DeadLetter]
    def __init__(self, deliveries: _Optional[_Iterable[_Union[Delivery, _Mapping]]] = ..., lost: _Optional[_Iterable[_Union[LostLease, _Mapping]]] = ..., dead_letters: _Optional[_Iterable[_Union[DeadLetter, _Mapping]]] = ...) -> None: ...

class LostLease(_message.Message):
    __slots__ = ("queue", "id", "receipt")
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    RECEIPT_FIELD_NUMBER: _ClassVar[int]
    queue: str
    id: str
    receipt: str
    def __init__(self, queue: _Optional[str] = ..., id: _Optional[str] = ..., receipt: _Optional[str] = ...) -> None: ...

class WatchRequest(_message.Message):
    __slots__ = ("queues",)
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, queues: _Optional[_Iterable[str]] = ...) -> None: ...

class WatchResponse(_message.Message):
    __slots__ = ("queues",)
    QUEUES_FIELD_NUMBER: _ClassVar[int]
    queues: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, queues: _Optional[_Iterable[str]] = ...) -> None: ...

class ListTopicsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ListTopicsResponse(_message.Message):
    __slots__ = ("topics",)
    TOPICS_FIELD_NUMBER: _ClassVar[int]
    topics: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, topics: _Optional[_Iterable[str]] = ...) -> None: ...

class DescribeTopicRequest(_message.Message):
    __slots__ = ("topic", "without_attributes")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    WITHOUT_ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    topic: str
    without_attributes: bool
    def __init__(self, topic: _Optional[str] = ..., without_attributes: bool = ...) -> None: ...

class TopicDescription(_message.Message):
    __slots__ = ("topic", "queue", "waiting", "max_length", "max_age_ms", "trimmed", "lost", "subscriptions")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    MAX_LENGTH_FIELD_NUMBER: _ClassVar[int]
    MAX_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    TRIMMED_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    SUBSCRIPTIONS_FIELD_NUMBER: _ClassVar[int]
    topic: str
    queue: str
    waiting: int
    max_length: int
    max_age_ms: int
    trimmed: int
    lost: int
    subscriptions: _containers.RepeatedCompositeFieldContainer[Subscription]
    def __init__(self, topic: _Optional[str] = ..., queue: _Optional[str] = ..., waiting: _Optional[int] = ..., max_length: _Optional[int] = ..., max_age_ms: _Optional[int] = ..., trimmed: _Optional[int] = ..., lost: _Optional[int] = ..., subscriptions: _Optional[_Iterable[_Union[Subscription, _Mapping]]] = ...) -> None: ...

class PublishRequest(_message.Message):
    __slots__ = ("topic", "bodies", "delay_ms", "dedup_key", "parts", "headers", "request")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    BODIES_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    DEDUP_KEY_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    topic: str
    bodies: _containers.RepeatedScalarFieldContainer[bytes]
    delay_ms: int
    dedup_key: str
    parts: _containers.RepeatedCompositeFieldContainer[SendPart]
    headers: _containers.RepeatedCompositeFieldContainer[Headers]
    request: RequestId
    def __init__(self, topic: _Optional[str] = ..., bodies: _Optional[_Iterable[bytes]] = ..., delay_ms: _Optional[int] = ..., dedup_key: _Optional[str] = ..., parts: _Optional[_Iterable[_Union[SendPart, _Mapping]]] = ..., headers: _Optional[_Iterable[_Union[Headers, _Mapping]]] = ..., request: _Optional[_Union[RequestId, _Mapping]] = ...) -> None: ...

class PublishResponse(_message.Message):
    __slots__ = ("ids", "durability", "duplicate", "outcomes")
    IDS_FIELD_NUMBER: _ClassVar[int]
    DURABILITY_FIELD_NUMBER: _ClassVar[int]
    DUPLICATE_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    ids: _containers.RepeatedScalarFieldContainer[str]
    durability: str
    duplicate: bool
    outcomes: _containers.RepeatedCompositeFieldContainer[SendOutcome]
    def __init__(self, ids: _Optional[_Iterable[str]] = ..., durability: _Optional[str] = ..., duplicate: bool = ..., outcomes: _Optional[_Iterable[_Union[SendOutcome, _Mapping]]] = ...) -> None: ...

class SubscribeRequest(_message.Message):
    __slots__ = ("subscriber", "vt_ms", "delay_ms", "maxsize", "request")
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    VT_MS_FIELD_NUMBER: _ClassVar[int]
    DELAY_MS_FIELD_NUMBER: _ClassVar[int]
    MAXSIZE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    subscriber: Subscriber
    vt_ms: int
    delay_ms: int
    maxsize: int
    request: RequestId
    def __init__(self, subscriber: _Optional[_Union[Subscriber, _Mapping]] = ..., vt_ms: _Optional[int] = ..., delay_ms: _Optional[int] = ..., maxsize: _Optional[int] = ..., request: _Optional[_Union[RequestId, _Mapping]] = ...) -> None: ...

class Subscription(_message.Message):
    __slots__ = ("subscriber", "queue", "state", "peers", "attributes")
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    QUEUE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PEERS_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    subscriber: Subscriber
    queue: str
    state: str
    peers: _containers.RepeatedCompositeFieldContainer[Peer]
    attributes: QueueAttributes
    def __init__(self, subscriber: _Optional[_Union[Subscriber, _Mapping]] = ..., queue: _Optional[str] = ..., state: _Optional[str] = ..., peers: _Optional[_Iterable[_Union[Peer, _Mapping]]] = ..., attributes: _Optional[_Union[QueueAttributes, _Mapping]] = ...) -> None: ...

class Peer(_message.Message):
    __slots__ = ("name", "idle_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    IDLE_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    idle_ms: int
    def __init__(self, name: _Optional[str] = ..., idle_ms: _Optional[int] = ...) -> None: ...

class UnsubscribeRequest(_message.Message):
    __slots__ = ("topic", "consumer", "peer", "discard", "request")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    CONSUMER_FIELD_NUMBER: _ClassVar[int]
    PEER_FIELD_NUMBER: _ClassVar[int]
    DISCARD_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    topic: str
    consumer: str
    peer: str
    discard: bool
    request: RequestId
    def __init__(self, topic: _Optional[str] = ..., consumer: _Optional[str] = ..., peer: _Optional[str] = ..., discard: bool = ..., request: _Optional[_Union[RequestId, _Mapping]] = ...) -> None: ...

class UnsubscribeResponse(_message.Message):
    __slots__ = ("left",)
    LEFT_FIELD_NUMBER: _ClassVar[int]
    left: int
    def __init__(self, left: _Optional[int] = ...) -> None: ...

class KeepAliveRequest(_message.Message):
    __slots__ = ("subscriber",)
    SUBSCRIBER_FIELD_NUMBER: _ClassVar[int]
    subscriber: Subscriber
    def __init__(self, subscriber: _Optional[_Union[Subscriber, _Mapping]] = ...) -> None: ...

class KeepAliveResponse(_message.Message):
    __slots__ = ("subscribed",)
    SUBSCRIBED_FIELD_NUMBER: _ClassVar[int]
    subscribed: bool
    def __init__(self, subscribed: bool = ...) -> None: ...

class SetBacklogRequest(_message.Message):
    __slots__ = ("topic", "max_length", "max_age_ms", "maxsize", "request")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    MAX_LENGTH_FIELD_NUMBER: _ClassVar[int]
    MAX_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    MAXSIZE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    topic: str
    max_length: int
    max_age_ms: int
    maxsize: int
    request: RequestId
    def __init__(self, topic: _Optional[str] = ..., max_length: _Optional[int] = ..., max_age_ms: _Optional[int] = ..., maxsize: _Optional[int] = ..., request: _Optional[_Union[RequestId, _Mapping]] = ...) -> None: ...

class SetBacklogResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class DeleteTopicRequest(_message.Message):
    __slots__ = ("topic", "request")
    TOPIC_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    topic: str
    request: RequestId
    def __init__(self, topic: _Optional[str] = ..., request: _Optional[_Union[RequestId, _Mapping]] = ...) -> None: ...

class DeleteTopicResponse(_message.Message):
    __slots__ = ("deleted",)
    DELETED_FIELD_NUMBER: _ClassVar[int]
    deleted: bool
    def __init__(self, deleted: bool = ...) -> None: ...
