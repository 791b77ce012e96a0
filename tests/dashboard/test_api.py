"""The JSON API: the same handlers as the pages, and a document that describes it."""

import json

import pytest

from aiorsmq_ng.dashboard import dashboard
from aiorsmq_ng.dashboard.openapi import API

from .conftest import WRITE


@pytest.fixture
async def document(web, queue):
    return (await web.get(f"{API}/openapi.json")).json()


async def test_document_describes_every_route_of_the_api(rsmq, document):
    routes = {
        (route.path.removeprefix(API), method.lower())
        for route in dashboard(rsmq).routes
        if getattr(route, "path", "").startswith(API) and not route.path.endswith("openapi.json")
        for method in route.methods - {"HEAD"}
    }
    described = {(path, method) for path, item in document["paths"].items() for method in item}

    assert described == routes


async def test_every_reference_in_the_document_leads_somewhere(document):
    names = set(document["components"]["schemas"])
    text = json.dumps(document)
    used = {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}

    assert used == used & names
    operations = [one for item in document["paths"].values() for one in item.values()]
    ids = [one["operationId"] for one in operations]
    assert len(ids) == len(set(ids)) == 23
    assert all(one["summary"] for one in operations)


async def test_values_of_the_api_are_those_that_the_document_describes(web, queue, document):
    id = await queue.send("x")
    for path, item in document["paths"].items():
        content = item.get("get", {}).get("responses", {}).get("200", {}).get("content")
        if content is None:
            continue
        reply = await web.get(API + path.replace("{queue}", "jobs").replace("{id}", id))
        name = content["application/json"]["schema"]["$ref"].rpartition("/")[2]
        schema = document["components"]["schemas"][name]
        assert reply.status_code == 200, path
        assert set(schema["required"]) <= set(reply.json()) <= set(schema["properties"]), path


async def test_errors_of_the_api_are_objects_with_a_sentence(web, queue):
    for path, status in [("/queues/missing", 404), ("/queues/jobs/messages?state=x", 400)]:
        reply = await web.get(API + path)
        assert (reply.status_code, list(reply.json())) == (status, ["error"])


async def test_request_that_is_too_large_is_refused(web, queue):
    body = b'{"body": "' + b"x" * (1 << 20) + b'"}'
    reply = await web.post(
        f"{API}/queues/jobs/messages",
        content=body,
        headers={**WRITE, "content-type": "application/json"},
    )

    assert reply.status_code == 400


async def test_document_says_what_a_write_without_a_token_needs(web):
    paths = (await web.get("/api/v1/openapi.json")).json()["paths"]

    for path in paths.values():
        for method, operation in path.items():
            headers = {one["name"] for one in operation["parameters"] if one["in"] == "header"}
            assert headers == (set() if method == "get" else {"x-rsmq-dashboard", "origin"})
