"""Bodies as text: readable, harmless, exact."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aiorsmq_ng.dashboard.bodies import hexadecimal, pretty, preview, visible

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@settings(max_examples=50)
@given(JSON)
def test_pretty_json_means_the_same(value):
    text = json.dumps(value)

    assert json.loads(pretty(text.encode())) == value


def test_pretty_keeps_every_digit_and_every_key():
    body = b'{"id":9223372036854775808123,"x":1.10e400,"a":[],"a":{},"b":[1,[2]]}'

    assert " ".join(pretty(body).split()) == (
        '{ "id": 9223372036854775808123, "x": 1.10e400, "a": [], "a": {}, "b": [ 1, [ 2 ] ] }'
    )


@pytest.mark.parametrize("body", [b"plain", b"\xff", b"[" * 100_000, b"[" * 300 + b"]" * 300, b""])
def test_what_cannot_be_indented_is_left_alone(body):
    assert pretty(body) is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\u202eb", "a\\u{202e}b"),
        ("\x1b[31mred", "\\u{1b}[31mred"),
        ("\x00", "\\u{0}"),
        ("tab\tand\nline", "tab\tand\nline"),
        ("é漢😀", "é漢😀"),
        ("\u2028", "\\u{2028}"),
    ],
)
def test_control_and_direction_characters_are_written_as_numbers(text, shown):
    assert visible(text) == shown


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"hello\nworld", "hello world"),
        (b"\xff\x00", "0xff00"),
        (b"a" * 500, "a" * 120 + "…"),
        ("é".encode() * 500, "é" * 120 + "…"),
        (b"x" + "é".encode() * 500, "x" + "é" * 119 + "…"),
    ],
)
def test_preview_is_one_short_line(body, shown):
    assert preview(body) == shown


@settings(max_examples=50)
@given(st.binary(max_size=600))
def test_any_body_has_a_preview_and_a_hexadecimal_view(body):
    assert "\n" not in preview(body)
    rows = hexadecimal(body).split("\n") if body else []
    assert bytes.fromhex("".join(row[10:57] for row in rows)) == body
