"""Other clients of RSMQ do what the report says, and share queues with ours.

Each is installed by its own package manager, once, into ``.interop``; where that cannot be done,
its tests are skipped with the reason.
"""

import json

import pytest

from rsmq_conformance.run import alone, play, started, together
from rsmq_conformance.scenarios import load
from tools.conformance import page
from tools.conformance.installation import NotInstalled
from tools.conformance.ports import PORTS, ours

#: Compilers may be slow at the first run on a machine.
pytestmark = pytest.mark.timeout(1200)
DATA = json.loads(page.DATA.read_text())
#: Its result depends on the moment within a second for clients that do not follow it.
BY_CHANCE = {"hidden-exact"}
#: Faults of these clients that were known before there was a kit, from reading their sources.
KNOWN = {
    "npm rsmq": {"script-flush", "short-id", "name-reserved", "leftovers-meta"},
    "rsmq-worker": {"send-default-delay"},
    "PyRSMQ": {
        *("create-default", "body-empty", "message-sent", "delete-unreceived", "fr-missing"),
        *("set-missing-queue", "names-accepted", "names-refused", "values-refused", "size-limit"),
        *("set-nothing", "body-bytes", "script-flush"),
    },
    "aiorsmq": {"names-newline", "fraction-vt", "fr-missing"},
    "rsmq_async": {
        *("create-attributes", "send-default-delay", "receive-keys", "message-sent"),
        *("visibility-unknown", "phantom", "set-nothing", "script-flush"),
    },
    "go-rsmq": {"set-modified", "fraction-vt", "script-flush"},
}


@pytest.fixture(scope="module", params=list(PORTS))
def results(request):
    """Return the results of a client alone, and in a pair with ours."""
    try:
        command = PORTS[request.param]()
    except NotInstalled as reason:
        pytest.skip(f"{request.param} cannot be installed: {reason}")
    url = request.getfixturevalue("kit_url")
    scenarios = load()
    with started([ours(), command], url) as (us, them):
        solo = play(url, alone(scenarios, them), True, "", lambda *_: None)
        pair = play(url, together(scenarios, us, them), True, "", lambda *_: None)
    return request.param, solo, pair


def failed(found):
    """Return the names of scenarios that failed, and why."""
    return {r.scenario.name: r.outcome.detail for r in found if r.failed}


def reported(rows):
    return {row["scenario"] for row in rows if row["state"] == "failed"}


def test_client_breaks_the_rules_that_the_report_says_and_no_others(results):
    name, solo, _ = results
    (client,) = [client for client in DATA["clients"] if client["name"] == name]
    seen = failed(solo)

    assert seen.keys() - BY_CHANCE == reported(client["results"]) - BY_CHANCE, seen
    assert seen.keys() >= KNOWN[name]


def test_pair_with_ours_fails_only_where_the_other_client_breaks_a_rule(results):
    name, solo, pair = results
    (row,) = [
        pair
        for pair in DATA["pairs"]
        if {each.rpartition(" ")[0] for each in pair["clients"]} == {"aiorsmq-ng", name}
    ]

    assert failed(pair).keys() == reported(row["results"]), failed(pair)
    assert len([result for result in pair if result.passed]) > 20
    # Attributes in another unit fail only when the queue is shared.
    assert failed(pair).keys() <= failed(solo).keys() | {"attributes-shared"}


def test_page_and_pictures_are_made_from_the_data_of_the_run():
    """If it fails: ``python -m tools.conformance --page``."""
    assert page.PAGE.read_text() == page.page(DATA)
    for path, rows in page.pictures(DATA).items():
        assert path.read_text() == page.matrix(rows)


def test_report_has_every_scenario_and_every_client():
    assert [row["name"] for row in DATA["scenarios"]] == [s.name for s in load()]
    assert {client["name"] for client in DATA["clients"]} == {"aiorsmq-ng", *PORTS}
    assert len(DATA["pairs"]) == len(DATA["clients"]) * (len(DATA["clients"]) - 1) // 2


def test_our_client_keeps_every_rule_and_advice_in_the_report():
    ours_row = DATA["clients"][0]

    assert ours_row["name"] == "aiorsmq-ng"
    assert reported(ours_row["results"]) == set()


def test_report_holds_no_path_of_a_machine():
    assert "/srv" not in page.DATA.read_text() + page.PAGE.read_text()
    assert '"command"' not in page.DATA.read_text()
