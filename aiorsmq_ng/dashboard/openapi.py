"""The OpenAPI document of the JSON API, made from the routes and the types of their values."""

from __future__ import annotations

from typing import Any

import msgspec

import aiorsmq_ng

from .access import WRITE_HEADER
from .routes import ACTS, LOOKS

API = "/api/v1"
_QUERY = {
    "text": "text that is in the body",
    "where": "a condition, such as body.type == 'invoice' and rc > 3",
    "state": "ready, delayed or leased",
    "after": "where the page before ended: its next",
    "count": "messages of a page",
    "queue": "the queue; by default all",
    "target": "messages of the backlog for one replica; the reply has the replicas desired",
    "due": "seconds before a delayed message is due at which it is due soon; by default 10",
}
_WRITE = {
    WRITE_HEADER: "any value; a write without a bearer token needs it",
    "origin": "scheme and host of this dashboard; a write without a bearer token needs it",
}


def document(*, read_only: bool) -> dict[str, Any]:
    """Return the document; one that is read-only has no writing operations."""
    acts = () if read_only else ACTS
    types = {look.result for look in LOOKS if look.result is not None}
    types |= {kind for act in acts for kind in (act.given, act.result)}
    ordered = sorted(types, key=lambda kind: str(kind.__name__))
    schemas, components = msgspec.json.schema_components(
        ordered, ref_template="#/components/schemas/{name}"
    )
    schema_of = dict(zip(ordered, schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for look in LOOKS:
        reply: dict[str, Any] = {"description": "found"}
        if look.result is not None:
            reply["content"] = {"application/json": {"schema": schema_of[look.result]}}
        operation = _operation(look.handler, look.api, look.query, reply)
        paths.setdefault(look.api, {})["get"] = operation
    for act in acts:
        reply = {
            "description": "done; with 'accept: application/x-ndjson' long actions report progress",
            "content": {"application/json": {"schema": schema_of[act.result]}},
        }
        operation = _operation(act.handler, act.api, (), reply)
        operation["parameters"] += [
            {"name": name, "in": "header", "description": said, "schema": {"type": "string"}}
            for name, said in _WRITE.items()
        ]
        body = {"application/json": {"schema": schema_of[act.given]}}
        operation["requestBody"] = {"required": True, "content": body}
        paths.setdefault(act.api, {})[act.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {"title": "aiorsmq-ng dashboard", "version": aiorsmq_ng.__version__},
        "servers": [{"url": "."}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{"token": []}],
    }


def _operation(handler: Any, path: str, query: tuple[str, ...], reply: Any) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in ("queue", "id")
        if f"{{{name}}}" in path
    ] + [
        {"name": name, "in": "query", "description": _QUERY[name], "schema": {"type": "string"}}
        for name in query
    ]
    failed = {"description": "an object with the field error"}
    return {
        "operationId": f"{handler.__module__.rpartition('.')[2]}_{handler.__name__}",
        "summary": (handler.__doc__ or "").strip().splitlines()[0],
        "parameters": parameters,
        "responses": {"200": reply, "default": failed},
    }
