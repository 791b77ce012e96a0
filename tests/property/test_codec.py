"""What a handler may be annotated with is read as it was sent, or refused when it is registered."""

import dataclasses
import datetime as dt
import enum
import itertools
import uuid
from decimal import Decimal
from typing import Annotated, Any, Literal, NamedTuple, NewType, Optional, TypedDict, Union

import msgspec
import pydantic
import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from aiorsmq_ng import Compressed, InvalidValue
from aiorsmq_ng.codec import JSON, from_body, reader, to_body

NUMBER = itertools.count()
KEYS = ("alpha", "beta", "gamma")


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Word(enum.StrEnum):
    YES = "yes"
    NULL = "null"


class Point(NamedTuple):
    x: int
    y: int


UserId = NewType("UserId", str)
Size = NewType("Size", int)

moments = st.datetimes(timezones=st.just(dt.UTC), min_value=dt.datetime(1970, 1, 2))
LEAVES = {
    int: st.integers(-(2**53), 2**53),
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False, width=32),
    str: st.text(st.characters(codec="utf-8")),
    bytes: st.binary(),
    Decimal: st.decimals(-1000, 1000, places=2),
    uuid.UUID: st.uuids(),
    dt.datetime: moments,
    dt.date: st.dates(),
    dt.timedelta: st.timedeltas(dt.timedelta(0), dt.timedelta(days=9)),
    Color: st.sampled_from(Color),
    Level: st.sampled_from(Level),
    Word: st.sampled_from(Word),
    Point: st.builds(Point, st.integers(0, 9), st.integers(0, 9)),
    Size: st.integers(0, 9),
    UserId: st.text(max_size=5),
    Literal["a", "null"]: st.sampled_from(["a", "null"]),
    Annotated[int, "marked"]: st.integers(0, 9),
}


def model(fields):
    try:
        return pydantic.create_model(f"Model{next(NUMBER)}", **{k: (t, ...) for k, t in fields})
    except pydantic.errors.PydanticUserError:  # it does not know structs
        return None


MAKERS = {
    "struct": lambda fields: msgspec.defstruct(f"Struct{next(NUMBER)}", fields),
    "tagged": lambda fields: msgspec.defstruct(f"Tagged{next(NUMBER)}", fields, tag=True),
    "dataclass": lambda fields: dataclasses.make_dataclass(f"Data{next(NUMBER)}", fields),
    "typed dict": lambda fields: TypedDict(f"Typed{next(NUMBER)}", dict(fields)),
    "model": model,
}


@st.composite
def classes(draw, inner):
    parts = draw(st.lists(inner, min_size=1, max_size=3))
    maker = draw(st.sampled_from(sorted(MAKERS)))
    made = MAKERS[maker]([(key, t) for key, (t, _) in zip(KEYS, parts, strict=False)])
    if made is None:
        return parts[0]
    return made, st.builds(made, **{k: v for k, (_, v) in zip(KEYS, parts, strict=False)})


def united(sides):
    """Return a union if its sides are distinct; models of one shape cannot."""
    (left, of_left), (right, of_right) = sides
    either = Union[left, right]  # noqa: UP007 - of variables
    try:
        msgspec.json.Decoder(either)
    except TypeError:
        return left, of_left
    return either, of_left | of_right


def combined(inner):
    return st.one_of(
        inner.map(lambda x: (list[x[0]], st.lists(x[1], max_size=3))),
        inner.map(lambda x: (dict[str, x[0]], st.dictionaries(st.text(), x[1], max_size=3))),
        inner.map(lambda x: (Optional[x[0]], st.none() | x[1])),  # noqa: UP045 - of a variable
        st.tuples(inner, inner).map(united),
        classes(inner),
    )


leaves = st.sampled_from(sorted(LEAVES.items(), key=lambda leaf: str(leaf[0])))
typed_values = st.recursive(leaves, combined, max_leaves=6)


@settings(
    max_examples=400, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
@given(data=st.data(), typed=typed_values, codec=st.sampled_from([JSON, Compressed(min_size=0)]))
def test_what_is_sent_is_read_or_refused_at_once(data, typed, codec):
    wanted, values = typed
    try:
        read = reader(wanted, codec)
    except InvalidValue:
        event("refused when it is registered")
        return
    value = data.draw(values)
    try:
        body = to_body(value, codec)
    except InvalidValue:
        event("refused when it is sent")
        return
    event("read")
    assert read(body) == value
    assert from_body(body, wanted, codec) == value


class Form(pydantic.BaseModel):
    number: int
    raw: bytes = b""


class Other(pydantic.BaseModel):
    name: str


class Area(pydantic.BaseModel, extra="forbid"):
    side: int

    @pydantic.computed_field
    @property
    def area(self) -> int:
        return self.side**2


class Held(msgspec.Struct):
    form: Form
    raw: bytes = b"\x00\xff"


@dataclasses.dataclass
class Data:
    forms: list[Form]
    raw: bytes = b"\x00\xff"


class Typed(TypedDict):
    held: Held


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (Held(Form(number=1)), Held),
        ([Held(Form(number=1)), None], list[Held | None]),
        (Typed(held=Held(Form(number=1))), Typed),
        (Data([Form(number=1)]), Data),
        ({"a": Data([Form(number=1)])}, dict[str, Data]),
        ([Form(number=1), Other(name="x")], list[Form | Other]),
        (Area(side=3), Area),
        ([Area(side=3)], list[Area]),
        ("x", UserId),
        ("null", Literal["a", "null"]),
        (Word.NULL, Word),
        ("x", Annotated[str, "marked"]),
        (bytearray(b"\xff"), bytearray),
    ],
    ids=str,
)
def test_nested_mixtures_come_back_equal(value, wanted):
    found = from_body(to_body(value, JSON), wanted, JSON)

    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    "wanted", [Form | Held, list[Form | Data], str | None, str | int, Literal["a", 1], bytes | None]
)
def test_ambiguous_type_is_refused_when_it_is_registered(wanted):
    with pytest.raises(InvalidValue, match="cannot be read as"):
        reader(wanted, JSON)


def test_error_of_a_model_in_a_struct_does_not_quote_the_body():
    with pytest.raises(InvalidValue, match=r"number: int_parsing.*form") as caught:
        from_body(b'{"form": {"number": "canary"}}', Held, JSON)

    assert "canary" not in str(caught.value)
    assert caught.value.__context__ is None


def test_any_reads_json_values():
    assert from_body(to_body([1, {"a": None}], JSON), Any, JSON) == [1, {"a": None}]
