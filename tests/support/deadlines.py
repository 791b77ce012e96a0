"""Short deadlines where a fault lasts, and time enough before and after it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from aiorsmq_ng import RSMQ, Options
from aiorsmq_ng._transport.call_retries import PATIENCE

#: For a client that only has to be there: the machine may stall for more than two seconds.
PATIENT = Options(connect_timeout=30)


@contextmanager
def hurrying(rsmq: RSMQ, deadline_s: float = 0.4, *, resumes: bool = True) -> Iterator[None]:
    """Let calls that are made meanwhile end after *deadline_s*.

    A client with so short a deadline would fail wherever the machine stalls. Without *resumes*,
    what is asked for again or called back afterwards has as much time as ever.
    """
    transport = rsmq._transport
    calls, retries = transport._calls, transport._retries
    long_s, patience_s = transport._deadline_s, retries._patience_s
    transport._deadline_s, retries._patience_s = deadline_s, deadline_s * PATIENCE
    if resumes:
        calls._deadline_s = deadline_s
    try:
        yield
    finally:
        transport._deadline_s = calls._deadline_s = long_s
        retries._patience_s = patience_s
