"""The dashboard in a real browser: every page, every action, outages, hostile data, other sites."""

import asyncio
import re
from pathlib import Path

import pytest
from redis.asyncio import Redis
from starlette.applications import Starlette
from starlette.responses import HTMLResponse
from starlette.routing import Route

from aiorsmq_ng import RSMQ, Options
from aiorsmq_ng.dashboard import Tokens, dashboard, live_sampler
from aiorsmq_ng.testing import PrivateServer

from ..support.waiting import until
from .browser import StrippingProxy, axe_source, chromium, served

playwright = pytest.importorskip("playwright.async_api", reason="needs Playwright: nox -s browser")
pytest.importorskip("axe_playwright_python", reason="needs axe: nox -s browser")
if chromium() is None:
    pytest.skip("needs Chromium, on the path or by RSMQ_CHROMIUM", allow_module_level=True)

expect = playwright.expect
expect.set_options(timeout=30_000)
HOSTILE = '</script><img src=x onerror="alert(1)">\u202e\x1b[31m'


@pytest.fixture(autouse=True)
def often(monkeypatch):
    monkeypatch.setattr(live_sampler, "INTERVAL_S", 0.2)


@pytest.fixture(scope="session")
async def browser():
    async with playwright.async_playwright() as driver:
        browser = await driver.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        yield browser
        await browser.close()


@pytest.fixture
async def page(browser):
    """A page that must stay without errors."""
    context = await browser.new_context()
    context.set_default_timeout(30_000)
    page = await context.new_page()
    faults = []
    page.on("pageerror", lambda error: faults.append(f"error: {error}"))
    page.on("console", lambda message: faults.append(f"console: {message.text}"))
    page.on("dialog", lambda dialog: faults.append(f"dialog: {dialog.message}"))
    yield page
    await context.close()
    assert faults == []


@pytest.fixture
async def site(rsmq):
    async with served(dashboard(rsmq, environment="production")) as address:
        yield address


@pytest.fixture
async def filled(rsmq, queue):
    """A queue with messages of every state, dead letters, a consumer and a topic."""
    await queue.send_many([{"n": n, "text": "é" * n} for n in range(8)])
    await queue.send("later", delay=600)
    taken = await queue.receive(vt=600)
    for n in range(3):
        await (await queue.receive()).reject(f"KeyError: {n}")
    await rsmq.gateway.announce(queue, "host-1", 1, [taken.id])
    topic = rsmq.topic("news")
    await topic.subscribe("mail", peer="a")
    await topic.publish("hello")
    return taken.id


async def messages(queue):
    return {m.body.decode(): m.state async for m in queue.scan()}


async def drawn(page, color):
    """Return True if the first chart has a line of that colour."""
    bytes_ = await page.locator(".chart canvas").first.evaluate(
        "(one) => [...one.getContext('2d').getImageData(0, 0, one.width, one.height).data]"
    )
    return color in zip(bytes_[::4], bytes_[1::4], bytes_[2::4], strict=True)


async def do(page, name, **fields):
    """Open a dialog, fill it in, start the action and return what it says."""
    await page.click(f"[data-dialog={name}]")
    dialog = page.locator(f"#dialog-{name}")
    for field, value in fields.items():
        place = dialog.locator(f"[name={field}]")
        await (place.set_checked(value) if isinstance(value, bool) else place.fill(value))
    await expect(dialog.locator(".go")).to_be_enabled()
    await dialog.locator(".go").click()
    result = dialog.locator(".result")
    await expect(result).to_have_text(re.compile(r"\.$|did not work"))
    return await result.text_content()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_page_is_open_to_everyone_at_three_widths(page, site, filled, scheme):
    source, found = axe_source(), {}
    await page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    for path in [
        *("/", "/q/jobs", "/q/jobs/messages", "/q/jobs/messages?text=n", f"/q/jobs/m/{filled}"),
        *("/q/jobs-dead/messages", "/dead", "/q/jobs/dead", "/consumers", "/topics", "/server"),
        "/audit",
    ]:
        await page.goto(site + path)
        await page.evaluate(source)
        for width in (360, 768, 1440):
            await page.set_viewport_size({"width": width, "height": 800})
            result = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
            assert result["passes"]
            faults = [v["id"] + " " + v["nodes"][0]["html"][:120] for v in result["violations"]]
            wide = await page.evaluate("document.documentElement.scrollWidth")
            if faults or wide > width:
                found[path, width] = faults, wide

    assert found == {}


async def test_open_dialogs_are_open_to_everyone(page, site, filled):
    await page.goto(f"{site}/q/jobs")
    await page.evaluate(axe_source())
    for name in ("send", "redrive", "attributes", "purge"):
        await page.click(f"[data-dialog={name}]")
        result = await page.evaluate("axe.run(document, {resultTypes: ['violations']})")
        assert [v["id"] for v in result["violations"]] == []
        await page.keyboard.press("Escape")
        await expect(page.locator(f"#dialog-{name}")).to_be_hidden()


async def test_overview_is_live(page, site, rsmq, queue):
    await page.goto(site)
    await expect(page.locator("#live")).to_have_text("live")
    ready = page.locator("tr[data-queue=jobs] [data-field=ready]")
    await expect(ready).to_have_text("0")

    await queue.send("x")
    other = await rsmq.create_queue("another")

    await expect(ready).to_have_text("1")
    await expect(page.locator("tr[data-queue=jobs] .trouble")).to_have_text("no consumers")
    await expect(page.locator("tr[data-queue=another]")).to_be_visible()
    await page.fill("#filter", "anoth")
    await expect(page.locator("tr[data-queue=jobs]")).to_be_hidden()
    await rsmq.delete_queue(other.name)
    await expect(page.locator("tr[data-queue=another]")).to_have_count(0)


async def test_queue_page_draws_charts_and_follows_the_figures(page, site, queue):
    await page.goto(f"{site}/q/jobs")
    await expect(page.locator(".chart canvas")).to_have_count(3)
    await queue.send("x")
    await expect(page.locator("[data-total=ready]")).to_have_text("1")
    await until(drawn, page, (11, 98, 196))
    await page.click("#theme")
    await until(drawn, page, (109, 179, 255))
    await expect(page.locator(".chart canvas")).to_have_count(3)


async def test_actions_of_a_queue(page, site, queue, filled):
    await page.goto(f"{site}/q/jobs")
    assert await do(page, "send", body='{"a": 1}', copies="3") == "3 messages sent."
    await page.locator("#dialog-send .close").click()
    counted = await do(page, "redrive", where="'Key' in reason", dry_run=True)
    assert counted.startswith("3 messages would be moved")
    await page.locator("#dialog-redrive .close").click()
    moved = await do(page, "redrive", where="", count="2", rate="1000", dry_run=False)
    assert moved.startswith("2 messages moved")
    await page.locator("#dialog-redrive .close").click()
    await page.wait_for_load_state()
    assert await do(page, "attributes", vt="77") == "Changed."
    await page.locator("#dialog-attributes .close").click()
    await page.wait_for_load_state()
    removed = await do(page, "purge", confirm="jobs")

    assert "removed" in removed
    assert set((await messages(queue)).values()) == {"leased"}
    found = await queue.stats()
    assert (found.attributes.vt, found.dead) == (77, 1)
    await page.goto(f"{site}/audit")
    await expect(page.locator("#audit tbody tr")).to_have_count(4)


async def test_redrive_by_keyboard_alone(page, site, queue, filled):
    await page.goto(f"{site}/q/jobs/dead")
    button = page.locator("[data-dialog=redrive]").first
    for _ in range(40):
        await page.keyboard.press("Tab")
        if await button.evaluate("(one) => one === document.activeElement"):
            break
    await page.keyboard.press("Enter")
    await page.keyboard.press("Enter")

    await expect(page.locator(".result")).to_have_text(re.compile("3 messages moved.*\\.$"))
    assert (await queue.stats()).dead == 0


async def test_actions_of_a_message(page, site, rsmq, queue, filled):
    other = await rsmq.create_queue("other")
    await page.goto(f"{site}/q/jobs/m/{filled}")
    await page.click("[data-view=hex]")
    await expect(page.locator("#view-hex")).to_contain_text("00000000  7b 22")
    await expect(page.locator("#view-pretty")).to_be_hidden()
    said = []
    for name, fields in [
        ("extend", {"seconds": "900"}),
        ("release", {}),
        ("move", {"target": "other"}),
    ]:
        said.append((await do(page, name, **fields)).split(",")[0])
        if name != "move":
            await page.locator(f"#dialog-{name} .close").click()
            await page.wait_for_load_state()
    await page.goto(f"{site}/q/other/m/{filled}")
    said.append((await do(page, "delete")).split(",")[0])

    assert said == [
        *("1 message extended", "1 message released", "1 message moved", "1 message deleted"),
    ]
    assert (await other.attributes()).msgs == 0


async def test_selection_and_all_that_match_are_deleted(page, site, queue):
    await queue.send_many([{"n": n} for n in range(60)])
    await page.goto(f"{site}/q/jobs/messages")
    for n in range(2):
        await page.locator("input[name=id]").nth(n).check()
    assert (await do(page, "delete")).startswith("2 messages deleted")
    await page.goto(f"{site}/q/jobs/messages?where=body.n+>+29")
    await expect(page.locator("#found")).to_have_text(re.compile("30 found.*done"))
    await page.check("#all")
    await page.click("[data-dialog=delete]")
    await expect(page.locator("#dialog-delete .how-many")).to_have_text("30 messages")
    await page.locator("#dialog-delete .go").click()
    await expect(page.locator("#dialog-delete .result")).to_have_text(
        re.compile("30 messages deleted")
    )

    assert (await queue.attributes()).msgs == 28


async def test_search_can_be_stopped_and_its_address_shared(page, site, queue):
    await queue.send_many([f"n{n}" for n in range(700)])
    await page.goto(f"{site}/q/jobs/messages")
    await page.fill("[name=text]", "n69")
    await page.click("#search button")
    await expect(page.locator("#messages tbody tr")).to_have_count(11)
    await expect(page.locator("#found")).to_have_text(re.compile("11 found, 700 of 700 looked at"))
    shared = page.url
    await page.goto(site)
    await page.goto(shared)

    await expect(page.locator("#messages tbody tr")).to_have_count(11)


async def test_doctor_examines_all_queues(page, site, rsmq, queue, raw):
    await raw.zadd(f"{rsmq.ns}:jobs", {"g73zkl38qzSBNq2NcnVVlCldqwqFXRJd": 1})
    await page.goto(f"{site}/server")
    await page.click("#examine")

    await expect(page.locator("#findings")).to_contain_text("phantom")
    await expect(page.locator("#found")).to_contain_text("1 queues examined")


async def test_outage_is_said_and_ends(page):
    async with (
        PrivateServer(persistence="always") as server,
        RSMQ(server.url, options=Options(connect_timeout=30, deadline=2)) as rsmq,
        served(dashboard(rsmq)) as site,
    ):
        queue = await rsmq.create_queue("jobs")
        await page.goto(site)
        await expect(page.locator("#live")).to_have_text("live")
        server.kill()
        await expect(page.locator("#trouble")).to_contain_text("The server is away")
        await server.start()
        await expect(page.locator("#trouble")).to_be_hidden()
        await queue.send("x")
        await expect(page.locator("tr[data-queue=jobs] [data-field=ready]")).to_have_text("1")


async def test_hostile_data_is_text_everywhere(page, server_url, ns):
    raw = Redis.from_url(server_url)
    options = Options(foreign_names=True, connect_timeout=30)
    name = '"><img src=x onerror=alert(1)>'
    async with RSMQ(server_url, ns=ns, options=options) as rsmq, served(dashboard(rsmq)) as site:
        queue = await rsmq.create_queue(name)
        await raw.sadd(f"{ns}:QUEUES", HOSTILE)
        bodies = [HOSTILE, b"\xff\x00", '{"__proto__": {"x": 9223372036854775808}}', "x" * 70_000]
        await rsmq.queue(name).set_attributes(maxsize=-1)
        ids = await queue.send_many(bodies)
        await rsmq.gateway.announce(queue, HOSTILE, 1, ids)
        await rsmq.topic(HOSTILE).subscribe(HOSTILE, peer=HOSTILE)
        await (await queue.receive()).reject(HOSTILE)
        await page.goto(site)
        await expect(page.locator("#live")).to_have_text("live")
        await page.locator("th a", has_text="onerror=alert").first.click()
        await expect(page.locator("h1")).to_contain_text("<img src=x")
        await expect(page.locator("#consumers")).to_contain_text("</script>")
        await page.click("text=Messages and search")
        rows = page.locator("#messages tbody tr")
        await expect(rows).to_have_count(3)
        for n in range(3):
            await rows.nth(n).locator("a").click()
            await expect(page.locator("pre:visible")).to_have_count(1)
            await page.go_back()
        await page.fill("[name=text]", "x")
        await page.click("#search button")
        await expect(page.locator("#found")).to_have_text(re.compile("done"))
        for path in ("/dead", "/consumers", "/topics", "/audit"):
            await page.goto(site + path)
            await expect(page.locator("main")).to_contain_text(
                "img src=x" if path != "/audit" else ""
            )
        await page.goto(f"{site}/dead")
        await page.click("text=by reason")
        await expect(page.locator("#reasons")).to_contain_text("</script>")
        await page.click("#reasons button")
        await expect(page.locator("dialog .reason")).to_contain_text("\\u{202e}\\u{1b}[")
        assert await page.locator("img").count() == 0
    await raw.aclose()


@pytest.mark.parametrize("how", ["mounted", "mounted deeper", "behind a proxy"])
async def test_pages_work_under_any_prefix(page, rsmq, queue, how):
    id = await queue.send("x")
    app = Starlette()
    prefix = {"mounted": "/queues", "mounted deeper": "/a/b", "behind a proxy": "/ops/q"}[how]
    if how == "behind a proxy":
        app = StrippingProxy(dashboard(rsmq), prefix)
    elif how == "mounted":
        app.mount(prefix, dashboard(rsmq))
    else:
        inner = Starlette()
        inner.mount("/b", dashboard(rsmq))
        app.mount("/a", inner)
    async with served(app) as site:
        await page.goto(f"{site}{prefix}/")
        await expect(page.locator("#live")).to_have_text("live")
        await page.click("text=jobs")
        await expect(page.locator("#live")).to_have_text("live")
        assert await do(page, "send", body="y") == "1 message sent."
        await page.goto(f"{site}{prefix}/q/jobs/m/{id}")
        await page.click("header >> text=Dead letters")
        await expect(page.locator("h1")).to_have_text("Dead letters")

    assert (await queue.attributes()).msgs == 2


async def test_page_of_another_origin_changes_nothing(browser, rsmq, queue, site):
    attack = f"""<!doctype html><title>x</title><form id=f method=post enctype="text/plain"
        action="{site}/api/v1/queues/jobs/messages"><input name='{{"body":"form","x":"' value='"}}'>
        </form><iframe name=i></iframe><script>
        const place = "{site}/api/v1/queues/jobs/messages";
        const tries = [
          fetch(place, {{method: "POST", mode: "no-cors", credentials: "include",
            body: '{{"body":"a"}}'}}),
          fetch(place, {{method: "POST", headers: {{"content-type": "application/json",
            "x-rsmq-dashboard": "1"}}, body: '{{"body":"b"}}'}}),
          fetch(place, {{method: "POST", headers: {{"authorization": "Bearer x"}}, body: "{{}}"}}),
        ];
        f.target = "i"; f.submit();
        Promise.allSettled(tries).then(() => document.title = "tried");
        </script>"""
    app = Starlette(routes=[Route("/", lambda request: HTMLResponse(attack))])
    async with served(app) as evil:
        page = await browser.new_page()
        await page.goto(evil.replace("127.0.0.1", "localhost"))
        await expect(page).to_have_title("tried")
        await asyncio.sleep(0.2)
        await page.close()

    assert (await queue.attributes()).totalsent == 0


async def test_login_by_an_invitation_and_logout(page, rsmq, queue):
    tokens = Tokens.single("0123456789abcdef")
    async with served(dashboard(rsmq, tokens=tokens)) as site:
        await page.goto(f"{site}/login#token=0123456789abcdef")
        await expect(page.locator("h1")).to_have_text("Overview")
        assert "token" not in page.url
        await page.click("#logout")
        await expect(page.locator("h1")).to_have_text("Log in")
        await page.goto(f"{site}/q/jobs")
        await page.fill("[name=token]", "0123456789abcdef")
        await page.keyboard.press("Enter")
        await expect(page.locator("h1")).to_have_text("Overview")


async def test_read_only_pages_offer_no_action(page, rsmq, queue, filled):
    async with served(dashboard(rsmq, read_only=True)) as site:
        for path in ("/q/jobs", "/q/jobs/messages", f"/q/jobs/m/{filled}", "/q/jobs/dead"):
            await page.goto(site + path)
            assert await page.locator("[data-dialog], dialog, input[name=id]").count() == 0


def resident_kb():
    """Return the memory of this process, in which the dashboard runs."""
    return int(re.search(r"VmRSS:\s+(\d+)", Path("/proc/self/status").read_text())[1])


@pytest.mark.long
async def test_queue_with_a_million_messages_is_looked_at_in_pages(page, site, rsmq, queue):
    for _ in range(100):
        await queue.send_many([f'{{"n": {n}, "text": "{"x" * 50}"}}' for n in range(10_000)])
    clock = asyncio.get_running_loop().time
    await page.goto(f"{site}/audit")
    before = resident_kb()

    began = clock()
    await page.goto(f"{site}/q/jobs/messages")
    await expect(page.locator("#messages tbody tr")).to_have_count(50)
    first_page_s = clock() - began
    began = clock()
    await page.goto(f"{site}/q/jobs/messages?where=body.n+==+7")
    await expect(page.locator("#messages tbody tr").first).to_be_visible()
    first_hit_s = clock() - began
    await expect(page.locator("#found")).to_have_text(
        re.compile("100 found.*done"), timeout=300_000
    )
    searched_s = clock() - began
    grown_kb = resident_kb() - before

    print(f"first page {first_page_s:.2f} s, first hit {first_hit_s:.2f} s, "  # noqa: T201
          f"all {searched_s:.1f} s, memory +{grown_kb} kB")  # fmt: skip
    assert max(first_page_s, first_hit_s) < 10  # a second on a machine that does nothing else
    assert grown_kb < 50_000
