"""Codecs: what goes in comes out, and nothing that comes in does harm."""

import ast
import json
import tracemalloc
import zlib
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Annotated, Any

import msgspec
import pydantic
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aiorsmq_ng
from aiorsmq_ng import Compressed, InvalidValue, Message
from aiorsmq_ng.codec import COMPRESSED, JSON, from_body, reader, to_body

PACKAGE = Path(aiorsmq_ng.__file__).parent
MIB = 1024 * 1024
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=20,
)


@dataclass
class Order:
    number: int


class Color(Enum):
    RED = "red"


class Form(pydantic.BaseModel):
    number: int


class Strict(msgspec.Struct, forbid_unknown_fields=True):
    number: int


def bomb(factor, size=MIB):
    """Return a small body that opens to *factor* times *size* bytes."""
    packer, packed = zlib.compressobj(9), [COMPRESSED]
    packed += [packer.compress(bytes(size)) for _ in range(factor)]
    return b"".join([*packed, packer.flush()])


@given(value=json_values, level=st.integers(0, 9), min_size=st.sampled_from([0, 10, 512]))
def test_value_comes_back_whether_it_was_compressed_or_not(value, level, min_size):
    codec = Compressed(level=level, min_size=min_size)

    assert codec.decode(codec.encode(value)) == value


def test_body_is_compressed_only_if_that_makes_it_smaller():
    codec = Compressed()
    long = {"text": "word " * 1000}

    assert codec.encode(long).startswith(COMPRESSED)
    assert len(codec.encode(long)) < 200
    assert codec.encode({"a": 1}) == b'{"a":1}'
    assert codec.decode(b'{"a":1}') == {"a": 1}
    assert codec.decode(codec.encode(long)) == long


def test_text_and_bytes_go_on_the_wire_as_they_are():
    assert to_body("x" * 10_000, Compressed()) == b"x" * 10_000
    assert to_body(COMPRESSED, Compressed()) == COMPRESSED


def test_inner_codec_whose_bodies_look_compressed_is_recognised():
    class Odd:
        def encode(self, value: Any) -> bytes:
            return COMPRESSED + value

        def decode(self, body: bytes, type: Any) -> Any:
            return body.removeprefix(COMPRESSED)

    codec = Compressed(Odd())

    assert codec.decode(codec.encode(b"x")) == b"x"


def test_body_larger_than_the_limit_is_refused_when_it_is_sent():
    with pytest.raises(InvalidValue, match="exceeds the max_size of 100 bytes"):
        to_body(["x" * 100], Compressed(max_size=100))


def test_limit_itself_is_allowed():
    codec = Compressed(max_size=1000, min_size=0)
    value = "x" * 998

    assert codec.decode(codec.encode(value)) == value
    with pytest.raises(InvalidValue, match="holds more than"):
        Compressed(max_size=999).decode(codec.encode(value))


@pytest.mark.parametrize(
    "settings", [{"level": 10}, {"level": -1}, {"max_size": 0}, {"min_size": -1}]
)
def test_codec_with_settings_that_cannot_be_meant_is_refused(settings):
    with pytest.raises(InvalidValue):
        Compressed(**settings)


def test_bomb_is_refused_before_it_takes_memory():
    small, limit = bomb(200), MIB
    assert len(small) < 300_000
    codec = Compressed(max_size=limit)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidValue, match="holds more than the max_size of 1048576 bytes"):
            codec.decode(small)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak < 3 * limit


def test_bomb_inside_a_bomb_is_refused_too():
    inner = bomb(50)
    outer = COMPRESSED + zlib.compress(inner)

    with pytest.raises(InvalidValue):
        Compressed(Compressed(max_size=MIB), max_size=MIB).decode(outer)


@given(cut=st.integers(0, 400), noise=st.binary(max_size=20))
def test_damaged_frame_is_refused(cut, noise):
    whole = Compressed(min_size=0).encode([str(i) for i in range(300)])
    damaged = whole[:-cut] + noise if cut else whole + noise
    if damaged == whole:
        return
    with pytest.raises(InvalidValue):
        Compressed().decode(damaged)


HOSTILE = [
    b"[" * 100_000,
    b"[" * 100_000 + b"]" * 100_000,
    b'{"a":' * 100_000,
    b"1" * 20_000,
    b"-" + b"1" * 20_000,
    b"[" + b"9" * 20_000 + b"]",
    b"1e999999999",
    b"\xff\xfe",
    b'"\xff"',
    b'"\\ud800"',
    b"\x00",
    b"",
    b"NaN",
    COMPRESSED,
    COMPRESSED + b"x",
    bomb(20),
]


@settings(max_examples=200)
@given(
    body=st.binary(max_size=200)
    | st.sampled_from(HOSTILE)
    | st.binary(max_size=100).map(lambda noise: COMPRESSED + noise)
    | st.binary(max_size=100).map(lambda noise: COMPRESSED + zlib.compress(noise)),
    wanted=st.sampled_from([Any, int, float, dict, list[int], Order, Color, Form, Strict, str]),
)
@example(body=b"1" * 20_000, wanted=Any)
@example(body=b"[" * 100_000, wanted=Any)
def test_only_invalid_value_escapes_from_reading_a_body(body, wanted):
    message = Message("x" * 32, body, 1, 1)
    for read in (
        message.json,
        lambda: message.json(wanted),
        lambda: reader(wanted, JSON)(message.body),
        lambda: reader(wanted, Compressed(max_size=MIB))(message.body),
    ):
        try:
            read()
        except InvalidValue as error:
            # What the decoder said may hold the body.
            assert error.__cause__ is None
            assert error.__context__ is None


@pytest.mark.parametrize(
    ("body", "wanted"),
    [
        ('"canary"', Color),
        ('{"number": 1, "canary": 2}', Strict),
        ('{"number": "canary"}', Strict),
        ('{"number": "canary"}', Form),
        ('{"number": "canary"}', Order),
        ("canary", Any),
        ('"canary', dict),
        (b"canary\xff", str),
        (b'"canary\xff"', Any),
    ],
)
def test_error_about_a_body_does_not_quote_it(body, wanted):
    stored = body if isinstance(body, bytes) else body.encode()
    with pytest.raises(InvalidValue) as caught:
        reader(wanted, JSON)(stored)

    assert "canary" not in f"{caught.value} {caught.value!r} {caught.value.__context__!r}"


def test_error_about_a_value_that_cannot_be_sent_does_not_quote_it():
    for value in ("canary\ud800", {"canary": object()}, {"x": "canary\ud800"}):
        with pytest.raises(InvalidValue) as caught:
            to_body(value, JSON)
        assert "canary" not in f"{caught.value} {caught.value.__context__!r}"


def test_form_is_read_from_a_compressed_body():
    body = Compressed(min_size=0).encode({"number": 7, "rest": "x" * 100})

    assert body.startswith(COMPRESSED)
    assert reader(Form, Compressed())(body).number == 7
    assert json.loads(Compressed().open(body))["number"] == 7


class Line(pydantic.BaseModel):
    count: pydantic.PositiveInt = pydantic.Field(alias="quantity", default=1)
    next: "Line | None" = None


class Basket(pydantic.BaseModel):
    lines: list[Line] = []
    by_name: dict[str, Line] = {}
    either: Line | int = 1


@dataclass
class Holder:
    line: Line


@pytest.mark.parametrize(
    ("wanted", "body", "told"),
    [
        (Basket, '{"lines": [{}, {"quantity": 0}]}', "Basket: lines.1.quantity: greater_than"),
        (Basket, '{"by_name": {"canary": {"quantity": 0}}}', "by_name.*.quantity: greater_than"),
        (Basket, '{"either": {"quantity": 0}}', "either.Line.quantity: greater_than"),
        (Line, '{"next": {"next": {"quantity": "canary"}}}', "next.next.quantity: int_parsing"),
        (Holder, '{"line": {"quantity": 0}}', "Holder: quantity: greater_than - at `$.line`"),
        (list[Holder], '[{"line": 0}]', "Holder]: model_type - at `$[0].line`"),
        (Line, "canary", "Line: json_invalid"),
        (list[Line], "[1, 2, 3, 4, 5, 6, 7]", "4: model_type, 2 more"),
        (Strict, '{"number": "canary"}', "body does not fit Strict: Expected `int`"),
        (Order, "{}", "body does not fit Order: "),
    ],
)
def test_error_says_where_a_body_does_not_fit_and_not_what_stands_there(wanted, body, told):
    with pytest.raises(InvalidValue) as caught:
        reader(wanted, JSON)(body.encode())

    assert told in str(caught.value)
    assert "canary" not in str(caught.value)


class Packed:
    """A codec of the user's own: MessagePack, which knows nothing of pydantic."""

    def encode(self, value):
        return msgspec.msgpack.encode(value, enc_hook=lambda x: x.model_dump(by_alias=True))

    def decode(self, body, type):
        return msgspec.msgpack.decode(body, type=type)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        (Form(number=1), Form),
        ([Form(number=1), Form(number=2)], list[Form]),
        ({"form": Form(number=1)}, dict[str, Form]),
        (Line(quantity=3, next=Line(quantity=4)), Line),
        (Line(quantity=3), Line | None),
        (Holder(Line(quantity=3)), Holder),
        (Order(2), Order),
        ([Order(2)], list[Order] | None),
        ("plain text", str),
        (b"\xff\x00", bytes),
        ([1, 2], Annotated[list[int], {"unhashable": 1}]),
    ],
    ids=lambda x: str(x)[:30],
)
@pytest.mark.parametrize("codec", [JSON, Compressed(min_size=0), Packed(), Compressed(Packed())])
def test_what_is_sent_is_read_as_the_type_that_it_was(value, wanted, codec):
    body = to_body(value, codec)

    assert from_body(body, wanted, codec) == value
    message = Message("x" * 32, body, 1, 1).with_codec(codec)
    assert message.decode(wanted) == value


def test_body_that_does_not_fit_is_refused_each_time_it_is_decoded():
    for _ in range(2):
        with pytest.raises(InvalidValue, match="does not fit Form"):
            from_body(b"{}", Form, JSON)
        with pytest.raises(InvalidValue, match="cannot be read as"):
            from_body(b"{}", Packed, JSON)


def test_nothing_in_the_package_can_run_what_it_reads():
    forbidden = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle", "yaml"}
    calls = {"eval", "exec", "compile", "__import__"}
    found = []
    for module in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(module.read_text())):
            names = set()
            if isinstance(node, ast.Import):
                names = {alias.name.split(".")[0] for alias in node.names} & forbidden
            elif isinstance(node, ast.ImportFrom):
                names = {(node.module or "").split(".")[0]} & forbidden
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                names = {node.func.id} & calls
            found += [(module.name, name) for name in names]

    assert found == []


class Mixed(msgspec.Struct):
    form: Form


def test_a_union_of_a_model_and_a_struct_is_refused_with_what_is_possible():
    with pytest.raises(InvalidValue, match=r"use models, or use a msgspec\.Struct") as caught:
        from_body(b'{"form": {"number": 1}}', Form | Mixed, JSON)

    assert "arbitrary_types_allowed" not in str(caught.value)


@pytest.mark.parametrize("wanted", [Form, list[Form]])
def test_json_of_a_model_names_the_call_that_reads_it(wanted):
    body = b'{"number": 1}' if wanted is Form else b'[{"number": 1}]'
    message = Message("x" * 32, body, 1, 0)

    with pytest.raises(InvalidValue, match=r"use decode\(\)"):
        message.json(wanted)
    assert message.decode(wanted) in (Form(number=1), [Form(number=1)])
