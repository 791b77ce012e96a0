"""What a scenario expects of a value, and what a value lacks of it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

ID = re.compile(r"[0-9a-z]{10}[0-9A-Za-z]{22}")
_NAME = re.compile(r"\{(\w+)\}")
_PER_UNIT_US = {"s": 1_000_000, "ms": 1_000}


class Mismatch(Exception):
    """A client or the stored data are not as expected; the text says how."""


@dataclass
class Scope:
    """Names that a scenario has saved, and when its calls ran by the clock of the server."""

    names: dict[str, Any] = field(default_factory=dict)
    #: Name of a call -> (before, after) in microseconds; ``last`` is the newest one.
    calls: dict[str, tuple[int, int]] = field(default_factory=dict)

    def filled(self, value: Any) -> Any:
        """Return *value* with ``{name}`` replaced by what was saved, and long texts written out."""
        if isinstance(value, str):
            return _NAME.sub(lambda m: str(self.names.get(m[1], m[0])), value)
        if isinstance(value, list):
            return [self.filled(each) for each in value]
        if isinstance(value, dict):
            if set(value) == {"text", "times"}:
                return value["text"] * value["times"]
            return {self.filled(key): self.filled(each) for key, each in value.items()}
        return value


def compare(expected: Any, seen: Any, scope: Scope, where: str) -> None:
    """Raise ``Mismatch`` unless *seen* is what *expected* describes.

    An object expects the fields that it names, a list every element; ``{"is": ...}`` stands for
    one of the kinds below; anything else is compared as it is.
    """
    if isinstance(expected, dict) and "is" in expected:
        _KINDS[expected["is"]](expected, seen, scope, where)
    elif isinstance(expected, dict):
        if not isinstance(seen, dict):
            raise Mismatch(f"{where}: expected an object, got {shown(seen)}")
        for name, each in expected.items():
            compare(each, seen.get(name), scope, f"{where}.{name}")
    elif isinstance(expected, list):
        if not isinstance(seen, list) or len(seen) != len(expected):
            raise Mismatch(f"{where}: expected {shown(expected)}, got {shown(seen)}")
        for at, each in enumerate(expected):
            compare(each, seen[at], scope, f"{where}[{at}]")
    elif seen != expected or isinstance(seen, bool) != isinstance(expected, bool):
        raise Mismatch(f"{where}: expected {shown(expected)}, got {shown(seen)}")


def _any(_: dict[str, Any], __: Any, ___: Scope, ____: str) -> None:
    """Accept everything."""


def _one_of(expected: dict[str, Any], seen: Any, scope: Scope, where: str) -> None:
    for each in expected["values"]:
        try:
            return compare(each, seen, scope, where)
        except Mismatch:
            continue
    raise Mismatch(f"{where}: expected one of {shown(expected['values'])}, got {shown(seen)}")


def _unordered(expected: dict[str, Any], seen: Any, _: Scope, where: str) -> None:
    if not isinstance(seen, list) or sorted(map(str, seen)) != sorted(expected["values"]):
        raise Mismatch(f"{where}: expected {shown(expected['values'])}, got {shown(seen)}")


def _id(expected: dict[str, Any], seen: Any, scope: Scope, where: str) -> None:
    if not isinstance(seen, str):
        raise Mismatch(f"{where}: expected an id, got {shown(seen)}")
    if not ID.fullmatch(seen):
        raise Mismatch(
            f"{where}: expected an id of 10 base36 digits and 22 letters or digits, "
            f"got {len(seen)} characters: {shown(seen)}"
        )
    before, after = scope.calls[expected.get("of", "last")]
    if not before <= int(seen[:10], 36) <= after:
        raise Mismatch(
            f"{where}: the first 10 characters of {seen!r} are {int(seen[:10], 36)}, which is no "
            f"time of the server in microseconds during the call ({before} to {after})"
        )


def _moment(expected: dict[str, Any], seen: Any, scope: Scope, where: str) -> None:
    """Expect a whole number: the time of a call in *unit*, and *plus* more of them."""
    unit, plus = expected.get("unit", "ms"), expected.get("plus", 0)
    before, after = scope.calls[expected.get("of", "last")]
    low, high = (at // _PER_UNIT_US[unit] + plus for at in (before, after))
    number = _number(seen, where)
    if number != int(number) and not expected.get("fraction"):
        raise Mismatch(f"{where}: expected a whole number, got {shown(seen)}")
    if not low <= number < high + 1:
        raise Mismatch(
            f"{where}: expected {low} to {high} (the time of the call in {unit}"
            f"{f' + {plus}' if plus else ''}), got {shown(seen)}, "
            f"which is {number - low:+.15g}"
        )


def _number(seen: Any, where: str) -> float:
    """Return what is stored as a number; text of a number counts, as Redis stores nothing else."""
    if isinstance(seen, bool) or not isinstance(seen, int | float | str):
        raise Mismatch(f"{where}: expected a number, got {shown(seen)}")
    try:
        return float(seen)
    except ValueError:
        raise Mismatch(f"{where}: expected a number, got {shown(seen)}") from None


def _same(expected: dict[str, Any], seen: Any, scope: Scope, where: str) -> None:
    """Expect the number or text that was saved under a name."""
    saved = scope.names[expected["as"]]
    if isinstance(saved, str) and not isinstance(seen, str):
        raise Mismatch(f"{where}: expected {shown(saved)}, got {shown(seen)}")
    alike = seen == saved if isinstance(saved, str) else _number(seen, where) == float(saved)
    if not alike:
        raise Mismatch(f"{where}: expected {shown(saved)} as before, got {shown(seen)}")


_KINDS = {
    "any": _any,
    "one of": _one_of,
    "unordered": _unordered,
    "id": _id,
    "moment": _moment,
    "same": _same,
}


def shown(value: Any) -> str:
    """Return *value* for a sentence, long texts shortened."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 120 else f"{text[:80]}...{text[-20:]} ({len(text)} characters)"
