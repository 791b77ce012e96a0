"""All routes: each handler is a page, a part of the JSON API, or both."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from msgspec import Struct

from aiorsmq_ng import QueueAttributes

from ..scaling import Scale
from . import (
    actions,
    audit_page,
    consumers,
    dead_letters,
    live_events,
    messages,
    overview,
    queues,
    scale,
    server,
    topics,
)
from .request_context import Visit

Handler = Callable[[Visit], Awaitable[Any]]


class Look(NamedTuple):
    """A handler that only reads: its paths as a page and in the API, and its template."""

    handler: Handler
    api: str
    page: str | None = None
    template: str = ""
    result: Any = None
    query: tuple[str, ...] = ()


class Act(NamedTuple):
    """A handler that writes; its path is in the API only, for pages call it, too."""

    handler: Handler
    api: str
    given: type[Struct]
    result: Any
    method: str = "POST"


_QUEUE = "/queues/{queue}"
_SEARCH = ("text", "where", "state")

LOOKS = (
    Look(overview.overview, "/queues", "/", "overview.html", overview.Overview),
    Look(queues.queue, _QUEUE, "/q/{queue}", "queue.html", queues.QueueView),
    Look(
        messages.messages,
        f"{_QUEUE}/messages",
        "/q/{queue}/messages",
        "messages.html",
        messages.MessagesPage,
        (*_SEARCH, "after", "count"),
    ),
    Look(
        messages.message,
        f"{_QUEUE}/messages/{{id}}",
        "/q/{queue}/m/{id}",
        "message.html",
        messages.MessageView,
    ),
    Look(messages.body, f"{_QUEUE}/messages/{{id}}/body"),
    Look(messages.search, f"{_QUEUE}/search", query=_SEARCH),
    Look(
        dead_letters.reasons,
        f"{_QUEUE}/dead",
        "/q/{queue}/dead",
        "reasons.html",
        dead_letters.ReasonsView,
    ),
    Look(dead_letters.dead, "/dead", "/dead", "dead.html", dead_letters.DeadView),
    Look(
        consumers.consumers,
        "/consumers",
        "/consumers",
        "consumers.html",
        consumers.ConsumersView,
    ),
    Look(topics.topics, "/topics", "/topics", "topics.html", topics.TopicsView, ("after",)),
    Look(server.server, "/server", "/server", "server.html", server.ServerView),
    Look(server.doctor, "/doctor"),
    Look(audit_page.audit, "/audit", "/audit", "audit.html", audit_page.AuditView),
    Look(scale.scale, f"{_QUEUE}/scale", result=Scale, query=("target", "due")),
    Look(live_events.events, "/events", query=("queue",)),
)

ACTS = (
    Act(actions.send, f"{_QUEUE}/messages", actions.Sending, actions.Sent),
    Act(actions.change, _QUEUE, actions.Changing, QueueAttributes, "PATCH"),
    Act(actions.delete, f"{_QUEUE}/delete", actions.Chosen, actions.Progress),
    Act(actions.release, f"{_QUEUE}/release", actions.Chosen, actions.Progress),
    Act(actions.extend, f"{_QUEUE}/extend", actions.Extending, actions.Progress),
    Act(actions.move, f"{_QUEUE}/move", actions.Moving, actions.Progress),
    Act(actions.redrive, f"{_QUEUE}/redrive", actions.Redriving, actions.Progress),
    Act(actions.purge, f"{_QUEUE}/purge", actions.Purging, actions.Progress),
)
