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


@pytest.fixture(params=list(PORTS))
def port(request):
    """Return the name of another client, and the command of its driver."""
    try:
        return request.param, PORTS[request.param]()
    except NotInstalled as reason:
        pytest.skip(f"{request.param} cannot be installed: {reason}")


def failed(found):
    """Return the names of scenarios that failed, and why."""
    return {r.scenario.name: r.outcome.detail for r in found if r.failed}


def reported(rows):
    return {row["scenario"] for row in rows if row["state"] == "failed"}


def report_of(name):
    (client,) = [client for client in DATA["clients"] if client["name"] == name]
    return reported(client["results"])


def test_client_breaks_the_rules_that_the_report_says_and_no_others(port, kit_url):
    name, command = port
    with started([command], kit_url) as (client,):
        seen = failed(play(kit_url, alone(load(), client), True, "", lambda *_: None))

    assert seen.keys() - BY_CHANCE == report_of(name) - BY_CHANCE, seen
    assert seen.keys() >= KNOWN[name]


def test_pair_with_ours_fails_only_where_the_other_client_breaks_a_rule(port, kit_url):
    name, command = port
    with started([ours(), command], kit_url) as pair:
        played = play(kit_url, together(load(), *pair), True, "", lambda *_: None)
    (row,) = [
        row
        for row in DATA["pairs"]
        if {each.rpartition(" ")[0] for each in row["clients"]} == {"aiorsmq-ng", name}
    ]
    seen = failed(played)

    assert seen.keys() == reported(row["results"]), seen
    assert len(played) == row["played"]
    assert len([result for result in played if result.passed]) > 20
    # Attributes in another unit fail only when the queue is shared.
    assert seen.keys() <= report_of(name) | {"attributes-shared"}


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
