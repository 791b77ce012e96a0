"""Finds damage in queues and dangerous settings of the server, and repairs the damage.

No repair relies on an earlier check: every repair is a script that checks again and changes what
is wrong at that moment, in one atomic step. So queues may be in use during an examination.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from .._protocol import argument_checks
from .._protocol.keys import Namespace, QueueKeys
from .._protocol.operations import doctor, queues
from .._runtime.name_listing import list_names
from .._transport.transport import Transport
from ..errors import InvalidValue, QueueCorrupt
from ..models import DoctorReport, Finding
from . import server_settings
from .finding_texts import finding, kinds
from .queue_examination import Examination, Orders, Progress

__all__ = ["Doctor", "Orders", "Progress", "kinds", "together"]


class Doctor:
    """Examines the queues of one namespace."""

    def __init__(
        self, transport: Transport, namespace: Namespace, channel: Callable[[QueueKeys], str]
    ) -> None:
        self._transport = transport
        self._namespace = namespace
        self._channel = channel

    async def examine_server(self) -> DoctorReport:
        """Examine the settings of the server, and no queue."""
        facts, findings = await server_settings.examine(self._transport, self._namespace)
        return DoctorReport(facts, [], findings)

    async def examine(self, names: list[str], orders: Orders) -> DoctorReport:
        """Examine the queues *names*, or all queues of the namespace if none is named."""
        facts, findings = await server_settings.examine(self._transport, self._namespace)
        found = list(dict.fromkeys(names))
        if not names:
            found, remarks = await self._find_queues(orders)
            findings += remarks
        for name in found:
            keys = self._namespace.queue(name)
            examination = Examination(self._transport, keys, self._channel(keys), orders)
            findings += await examination.run()
            if names and examination.nothing_there:
                findings.append(finding("absent", name))
        return DoctorReport(facts, found, _once(findings))

    async def _find_queues(self, orders: Orders) -> tuple[list[str], list[Finding]]:
        """Return the names of all queues, listed or not, and the findings about the list."""
        found, odd, remarks = set[str](), list[str](), list[Finding]()
        try:
            names = partial(queues.list_queues, self._namespace)
            for name in sorted(await list_names(self._transport, names)):
                (found.add if _usable(name) else odd.append)(name)
        except QueueCorrupt:
            fact = f"{self._namespace.index} is not a set"
            remarks.append(finding("wrong_type", what=fact))
        if odd:
            remarks.append(finding("odd_name", count=len(odd), ids=odd[:3]))
        cursor, pages = b"0", 0
        while True:
            page = await self._transport.run(doctor.keys(self._namespace, cursor))
            if page.refused:
                remarks.append(finding("scan_refused", what=page.refused))
                break
            found.update(filter(_usable, map(self._name_in, page.keys)))
            remarks += map(self._not_a_string, page.not_strings)
            pages += 1
            orders.report("search for queues", pages * doctor.KEYS_PAGE, 0)
            cursor = page.cursor
            if cursor == b"0":
                break
        return sorted(found), remarks

    def _not_a_string(self, key: bytes) -> Finding:
        """Return the finding about a side key of another type."""
        text = key.decode(errors="backslashreplace")
        queue = text.removeprefix(f"{self._namespace.name}:").partition(":ng:")[0]
        return finding("wrong_type", queue, what=f"{text} is not a string")

    def _name_in(self, key: bytes) -> str:
        """Return the queue name that *key* would contain as the sorted set or hash of a queue."""
        text = key.decode(errors="replace").removeprefix(f"{self._namespace.name}:")
        return text.removesuffix(":Q")


def together(reports: list[DoctorReport]) -> DoctorReport:
    """Merge the reports on several namespaces; facts about the server are those of the first."""
    first = reports[0]
    said = {(f.kind, f.detail) for f in first.findings if f.queue is None}
    found, findings = list(first.queues), list(first.findings)
    for report in reports[1:]:
        found += report.queues
        findings += [f for f in report.findings if f.queue or (f.kind, f.detail) not in said]
    return DoctorReport(first.server, sorted(found), findings)


def _usable(name: str) -> bool:
    """Return True if a queue can have this name, by the rules of PyRSMQ, which allow more."""
    try:
        argument_checks.check_name(name, foreign=True)
    except InvalidValue:
        return False
    return "\ufffd" not in name and "\\x" not in name


def _once(findings: list[Finding]) -> list[Finding]:
    """Remove duplicates: every queue reports the same wrong type of the list of queues."""
    seen: dict[tuple[str, str], Finding] = {}
    for found in findings:
        key = (found.kind, found.detail) if found.kind == "wrong_type" else ("", str(id(found)))
        seen.setdefault(key, found)
    return list(seen.values())
