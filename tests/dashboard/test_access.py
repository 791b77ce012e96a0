"""Who may do what: hosts, other sites, logins, roles, patterns, read-only, redaction."""

import pytest
from starlette.applications import Starlette

from aiorsmq_ng import InvalidValue
from aiorsmq_ng.dashboard import Caller, Tokens, access, dashboard
from aiorsmq_ng.dashboard.access import HEADERS
from aiorsmq_ng.dashboard.sessions import FAILURES, PAUSE_S, SESSION_S, Sessions

from .conftest import WRITE

TOKENS = Tokens.read(
    """
    [boss]
    token = "boss-0123456789abcdef"
    roles = ["admin"]

    [shop]
    token = "shop-0123456789abcdef"
    roles = ["producer"]
    queues = ["shop-*"]

    [shopkeeper]
    token = "keeper-0123456789abcdef"
    roles = ["admin"]
    queues = ["shop-*"]
    """
)
SEND = "/api/v1/queues/jobs/messages"


def bearer(name):
    return {"authorization": f"Bearer {name}-0123456789abcdef"}


@pytest.fixture
async def queues(rsmq):
    return [await rsmq.create_queue(name) for name in ("jobs", "shop-orders")]


@pytest.mark.parametrize("path", ["/", "/q/jobs", "/nothing", "/api/v1/queues", "/api/v1/nothing"])
async def test_every_reply_has_the_security_headers(web, queue, path):
    reply = await web.get(path)

    assert {name: reply.headers.get(name) for name in HEADERS} == HEADERS
    assert "unsafe" not in reply.headers["content-security-policy"]


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "localhost.evil.example"])
async def test_foreign_host_name_is_refused(web, host):
    assert (await web.get("/", headers={"host": host})).status_code == 400


@pytest.mark.parametrize("host", ["localhost", "localhost:8710", "127.0.0.1:80", "[::1]:8710"])
async def test_names_of_this_machine_are_allowed(web, host):
    assert (await web.get("/", headers={"host": host})).status_code == 200


async def test_host_that_is_allowed_is_served(visitor):
    web = visitor(allowed_hosts=["queues.example"])

    assert (await web.get("/", headers={"host": "queues.example:8443"})).status_code == 200


async def test_without_a_login_other_machines_are_refused(visitor):
    web = visitor(address="192.0.2.7")

    page = await web.get("/")
    assert (page.status_code, page.headers["content-type"][:9]) == (403, "text/html")
    assert "own machine only" in page.text
    assert (await web.get("/api/v1/queues")).status_code == 403


async def test_without_a_login_what_a_proxy_forwards_is_refused(web):
    assert (await web.get("/", headers={"x-forwarded-for": "192.0.2.7"})).status_code == 403


JSON = {"content-type": "application/json"}
ORIGIN = {"origin": "http://localhost"}
MARK = {"x-rsmq-dashboard": "1"}


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({**JSON, **MARK, "sec-fetch-site": "same-origin"}, 200),
        ({**JSON, **MARK, **ORIGIN}, 200),
        ({**JSON, "authorization": "Bearer no browser adds this"}, 200),
        ({**JSON, **MARK}, 403),
        ({**JSON, "sec-fetch-site": "same-origin"}, 403),
        ({**JSON, **MARK, "sec-fetch-site": "cross-site"}, 403),
        ({**JSON, **MARK, "sec-fetch-site": "same-site", **ORIGIN}, 403),
        ({**JSON, **MARK, "sec-fetch-site": "none"}, 403),
        ({**JSON, **MARK, "origin": "http://evil.example"}, 403),
        ({**JSON, **MARK, "origin": "null"}, 403),
        ({**JSON, **MARK, "origin": "http://localhost:81"}, 403),
        ({**MARK, **ORIGIN, "content-type": "text/plain"}, 415),
        ({**MARK, **ORIGIN, "content-type": "application/x-www-form-urlencoded"}, 415),
    ],
)
async def test_write_of_another_site_is_refused(web, queue, headers, status):
    reply = await web.post(SEND, content=b'{"body": "x"}', headers=headers)

    assert reply.status_code == status
    assert (await queue.attributes()).msgs == (status == 200)


async def test_read_only_dashboard_has_no_route_that_writes(visitor, rsmq, queue):
    app = dashboard(rsmq, read_only=True)
    web = visitor(app)
    methods = {method for route in app.routes for method in getattr(route, "methods", None) or ()}

    assert methods <= {"GET", "HEAD"}
    for method, path in [("POST", SEND), ("PATCH", "/api/v1/queues/jobs"), ("POST", "/purge")]:
        reply = await web.request(method, path, json={"body": "x"}, headers=WRITE)
        assert reply.status_code in (404, 405)
    assert "data-dialog" not in (await web.get("/q/jobs")).text
    assert "post" not in str((await web.get("/api/v1/openapi.json")).json()["paths"])


async def test_page_without_a_login_leads_to_the_login(visitor, queues):
    web = visitor(tokens=TOKENS)

    assert (await web.get("/q/jobs")).headers["location"] == "../login"
    assert (await web.get("/")).headers["location"] == "./login"
    assert (await web.get("/login")).status_code == 200
    assert (await web.get("/api/v1/queues")).status_code == 401
    assert (await web.get("/api/v1/queues", headers=bearer("wrong"))).status_code == 401


async def test_login_opens_a_session_and_logout_ends_it(visitor, queues):
    web = visitor(tokens=TOKENS)

    entered = await web.post("/login", json={"token": "boss-0123456789abcdef"}, headers=WRITE)
    cookie = entered.headers["set-cookie"].lower()
    inside = await web.get("/q/jobs")
    kept = f"rsmq_session={web.cookies['rsmq_session']}"
    await web.post("/logout", json={}, headers=WRITE)
    outside = await web.get("/q/jobs", headers={"cookie": kept})

    assert inside.status_code == 200
    assert all(word in cookie for word in ("httponly", "samesite=strict", "path=/"))
    assert "boss" not in cookie
    assert outside.status_code == 303


async def test_login_over_tls_sets_a_secure_cookie(visitor):
    web = visitor(tokens=TOKENS, base="https://localhost")

    entered = await web.post("/login", json={"token": "boss-0123456789abcdef"}, headers=WRITE)

    assert "secure" in entered.headers["set-cookie"].lower()


async def test_login_is_slowed_down_after_failures(visitor):
    web = visitor(tokens=TOKENS)

    found = [
        (await web.post("/login", json={"token": "wrong"}, headers=WRITE)).status_code
        for _ in range(FAILURES + 1)
    ]
    right = await web.post("/login", json={"token": "boss-0123456789abcdef"}, headers=WRITE)

    assert found == [401] * FAILURES + [429]
    assert right.status_code == 429


async def test_wrong_bearer_tokens_are_logged_and_then_slowed_down(visitor, monkeypatch, caplog):
    pauses = []

    async def sleep(seconds):
        pauses.append(seconds)

    monkeypatch.setattr(access, "sleep", sleep)
    web = visitor(tokens=TOKENS)

    for _ in range(FAILURES + 2):
        assert (await web.get("/api/v1/queues", headers=bearer("wrong"))).status_code == 401
    assert (await web.get("/api/v1/queues", headers=bearer("boss"))).status_code == 200

    assert pauses == 3 * [access.WRONG_TOKEN_S]
    told = [r.getMessage() for r in caplog.records if r.name == "aiorsmq_ng.dashboard"]
    assert told == (FAILURES - 1) * ["a request from 127.0.0.1 had a token that is not known"]


def test_session_and_pause_end_with_time():
    now = [0.0]
    sessions = Sessions(lambda: now[0])
    name = sessions.begin(Caller("boss"))
    for _ in range(FAILURES):
        sessions.failed("host")

    assert (sessions.caller(name), sessions.must_wait("host")) == (Caller("boss"), True)
    now[0] = PAUSE_S
    assert not sessions.must_wait("host")
    now[0] = SESSION_S
    assert sessions.caller(name) is None


async def test_token_sees_the_queues_of_its_patterns_only(visitor, queues):
    web = visitor(tokens=TOKENS)

    listed = (await web.get("/api/v1/queues", headers=bearer("keeper"))).json()
    other = await web.get("/api/v1/queues/jobs", headers=bearer("keeper"))
    events = await web.get("/api/v1/events?queue=jobs", headers=bearer("keeper"))

    assert [row["name"] for row in listed["queues"]] == ["shop-orders"]
    assert (other.status_code, events.status_code) == (404, 404)


@pytest.mark.parametrize(
    ("method", "path", "value"),
    [
        ("GET", "/messages", None),
        ("GET", "/search", None),
        ("GET", "/dead", None),
        ("PATCH", "", {"vt": 5}),
        ("POST", "/purge", {"confirm": "shop-orders"}),
        ("POST", "/delete", {"match": {}}),
        ("POST", "/release", {"match": {}}),
        ("POST", "/extend", {"match": {}, "seconds": 1}),
        ("POST", "/move", {"match": {}, "target": "shop-orders"}),
        ("POST", "/redrive", {}),
    ],
)
async def test_token_without_the_role_is_refused(visitor, queues, method, path, value):
    web = visitor(tokens=TOKENS)

    reply = await web.request(
        method, f"/api/v1/queues/shop-orders{path}", json=value, headers=bearer("shop")
    )

    assert reply.status_code == 403
    assert "lacks the role admin" in reply.json()["error"]


async def test_producer_may_send_and_see_figures(visitor, queues):
    web = visitor(tokens=TOKENS)
    path = "/api/v1/queues/shop-orders"

    sent = await web.post(f"{path}/messages", json={"body": "x"}, headers=bearer("shop"))
    figures = await web.get(path, headers=bearer("shop"))

    assert sent.status_code == 200
    assert figures.json()["row"]["ready"] == 1


async def test_messages_are_not_moved_into_a_queue_that_the_token_may_not_see(visitor, queues):
    web = visitor(tokens=TOKENS)
    await queues[1].send("x")

    reply = await web.post(
        "/api/v1/queues/shop-orders/move",
        json={"match": {}, "target": "jobs"},
        headers=bearer("keeper"),
    )

    assert reply.status_code == 404
    assert (await queues[1].attributes()).msgs == 1


async def test_application_may_decide_who_its_callers_are(visitor, queues):
    async def auth(request):
        name = request.headers.get("x-user")
        return Caller(name, queues=("shop-*",)) if name else None

    web = visitor(auth=auth, address="192.0.2.7", base="http://queues.example")

    refused, answered = await web.get("/"), await web.get("/api/v1/queues")
    assert (refused.status_code, answered.status_code) == (401, 401)
    assert "not allowed by the application" in refused.text
    assert refused.headers["content-type"].startswith("text/html")
    assert answered.json() == {"error": "not allowed by the application"}
    page = await web.get("/", headers={"x-user": "ann"})
    assert "shop-orders" in page.text
    assert "jobs" not in page.text


#: Queues of a subscription, of a name that reads like one, and of no topic.
SUBSCRIPTION, LIKE_ONE, PLAIN = "news__mail", "__proto__", "shop-orders"


@pytest.mark.parametrize(
    ("lists", "seen"),
    [
        ({}, {SUBSCRIPTION, LIKE_ONE, PLAIN, "jobs"}),
        ({"queues": ("shop-*",)}, {PLAIN}),
        ({"queues": ["*"]}, {PLAIN, "jobs"}),
        ({"queues": ()}, set()),
        ({"topics": ("*",)}, set()),
        ({"consumers": ("*",)}, set()),
        ({"topics": ("news",), "consumers": ("mail",)}, {SUBSCRIPTION}),
        ({"topics": ("news",), "consumers": ("other",)}, set()),
        ({"queues": ("shop-*",), "topics": ("*",)}, {PLAIN}),
        ({"queues": ("shop-*",), "consumers": ("*",)}, {PLAIN}),
        ({"queues": ("shop-*",), "topics": ("n*",), "consumers": ("*",)}, {PLAIN, SUBSCRIPTION}),
    ],
)
async def test_list_that_an_application_leaves_out_means_none(visitor, rsmq, queues, lists, seen):
    await rsmq.create_queue(LIKE_ONE)
    await rsmq.topic("news").subscribe("mail")
    names = (SUBSCRIPTION, LIKE_ONE, PLAIN, "jobs")
    for name in names:
        await rsmq.queue(name).send("x")
    web = visitor(auth=lambda request: Caller("ann", roles=["admin"], **lists))

    shown = {row["name"] for row in (await web.get("/api/v1/queues")).json()["queues"]}
    read, purged = set(), set()
    for name in names:
        path = f"/api/v1/queues/{name}"
        replies = [
            await web.get(f"{path}/messages"),
            await web.post(f"{path}/purge", json={"confirm": name}, headers=WRITE),
        ]
        for reply, done in zip(replies, (read, purged), strict=True):
            assert reply.status_code in (200, 404)
            if reply.status_code == 200:
                done.add(name)
    left = {name for name in names if (await rsmq.queue(name).attributes()).msgs}

    assert (shown & set(names), read, purged) == (seen, seen, seen)
    assert left == set(names) - seen


@pytest.mark.parametrize(
    ("roles", "statuses"),
    [
        ({}, (200, 403, 403, 403)),
        ({"roles": ()}, (200, 403, 403, 403)),
        ({"roles": ["consumer"]}, (200, 403, 403, 403)),
        ({"roles": ["producer"]}, (200, 200, 403, 403)),
        ({"roles": {"admin"}}, (200, 200, 200, 200)),
    ],
)
async def test_caller_of_an_application_has_the_roles_that_it_names(
    visitor, queues, roles, statuses
):
    web = visitor(auth=lambda request: Caller("ann", queues=("shop-*",), **roles))
    path = "/api/v1/queues/shop-orders"

    replies = [
        await web.get(path),
        await web.post(f"{path}/messages", json={"body": "x"}, headers=WRITE),
        await web.get(f"{path}/messages"),
        await web.post(f"{path}/purge", json={"confirm": "shop-orders"}, headers=WRITE),
    ]

    assert tuple(reply.status_code for reply in replies) == statuses


@pytest.mark.parametrize(
    "wrong",
    [
        {"queues": "shop-*"},
        {"topics": "*"},
        {"consumers": b"*"},
        {"queues": [b"*"]},
        {"roles": "admin"},
        {"roles": ["boss"]},
    ],
)
def test_caller_with_a_text_as_list_or_an_unknown_role_is_refused(wrong):
    with pytest.raises(InvalidValue, match="caller 'ann' has"):
        Caller("ann", **wrong)


async def test_dashboard_works_mounted_at_two_depths(visitor, rsmq, queues):
    inner, outer = Starlette(), Starlette()
    inner.mount("/b", dashboard(rsmq, tokens=TOKENS))
    outer.mount("/a", inner)
    outer.mount("/queues", dashboard(rsmq))
    web = visitor(outer)

    assert (await web.get("/queues/q/jobs")).status_code == 200
    assert (await web.get("/a/b/q/jobs")).headers["location"] == "../login"
    entered = await web.post("/a/b/login", json={"token": "boss-0123456789abcdef"}, headers=WRITE)
    assert "path=/a/b;" in entered.headers["set-cookie"].lower()
    assert (await web.get("/a/b/q/jobs")).status_code == 200


async def test_redacted_bodies_are_nowhere_to_be_seen_or_found(visitor, queue):
    def redact(name, body):
        return None if b"secret" in body else body.replace(b"4711", b"****")

    web = visitor(redact=redact)
    hidden = await queue.send("secret plan")
    masked = await queue.send('{"card": "4711"}')

    seen = ""
    for path in (
        "/q/jobs/messages",
        f"/q/jobs/m/{hidden}",
        f"/q/jobs/m/{masked}",
        f"/api/v1/queues/jobs/messages/{hidden}/body",
        f"/api/v1/queues/jobs/messages/{masked}/body",
        "/api/v1/queues/jobs/search?text=plan",
        "/api/v1/queues/jobs/search?where=body.card%3D%3D'4711'",
    ):
        seen += (await web.get(path)).text

    assert "secret" not in seen
    assert "4711" not in seen.replace("where=", "").replace("'4711'", "")
    assert '"found":1' not in seen
