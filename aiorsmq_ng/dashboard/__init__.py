"""The dashboard: queues, messages, dead letters and consumers on web pages, and as a JSON API.

``app.mount("/queues", dashboard(rsmq))`` in any ASGI application, or ``rsmqctl serve dashboard``.
Needs the extra ``dashboard``. The guide is docs/guides/dashboard.md.
"""

from __future__ import annotations

try:
    import jinja2 as _jinja2  # noqa: F401
    import starlette as _starlette  # noqa: F401
except ImportError as missing:
    raise ImportError(
        'the dashboard needs starlette and jinja2: pip install "aiorsmq-ng[dashboard]"'
    ) from missing

from ..broker.tokens import Caller, Tokens
from .app import dashboard

__all__ = ["Caller", "Tokens", "dashboard"]
