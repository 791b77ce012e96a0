"""Commands with long bodies are packed without hiredis, and look the same."""

import hiredis
import pytest

from aiorsmq_ng._transport import packing
from aiorsmq_ng._transport.packing import LONG, pack


@pytest.mark.parametrize("last", [b"", b"x" * (LONG - 1), b"\r\n" * LONG, "x" * LONG, 7])
def test_command_is_the_same_whichever_way_it_is_packed(last):
    words = ("EVALSHA", b"\xff\x00", 2, "qu\u00e9ue", "", -1, b"y" * 3 * LONG, last)

    assert pack(words) == pack(list(words)) == hiredis.pack_command(words)


def test_command_that_ends_with_a_long_body_is_joined_at_once(monkeypatch):
    asked = []
    monkeypatch.setattr(
        packing.hiredis, "pack_command", lambda words: asked.append(words) or b"packed"
    )

    assert pack(("SET", "k", b"x" * LONG)).startswith(b"*3\r\n$3\r\nSET\r\n")
    assert asked == []
    assert pack(("SET", "k", b"x" * (LONG - 1))) == b"packed"
    assert len(asked) == 1


def test_name_that_is_not_utf_8_is_packed_as_its_bytes_beside_short_and_long_bodies():
    name = b"caf\xe9".decode("utf-8", "surrogateescape")

    for body in (b"x", b"x" * LONG):
        assert pack(("LPUSH", name, body)) == hiredis.pack_command(("LPUSH", b"caf\xe9", body))
