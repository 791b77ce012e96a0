"""The dashboard for Grafana, the alert rules and the guide name only metrics that there are."""

import json
import re
from itertools import chain
from pathlib import Path

import promql_parser
import pytest
import yaml

from aiorsmq_ng.telemetry.instruments import (
    ATTRIBUTES,
    STATES,
    Process,
    Queues,
    instruments,
)

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "monitoring"
GUIDE = ROOT / "docs" / "guides" / "metrics.md"
TABLE = list(chain(instruments(Queues), instruments(Process)))
#: Labels that Prometheus and histograms add.
ADDED = {"instance", "job", "le"}

BOARD = json.loads((FOLDER / "grafana" / "rsmq.json").read_text())
RULES = [
    rule
    for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
PANELS = [panel for panel in BOARD["panels"] if panel["type"] != "row"]


def series():
    """Return the labels of every series that is exposed, by its name."""
    found = {}
    for one in TABLE:
        suffixes = ("_bucket", "_sum", "_count") if one.kind == "histogram" else ("",)
        for suffix in suffixes:
            found[one.name + suffix] = {*one.labels, *ADDED}
    return found


SERIES = series()


def check(query):
    """Parse a query; every metric in it must exist, and have the labels that it names."""
    query = query.replace("$__rate_interval", "5m").replace("$__range", "1h")
    promql_parser.parse(query)
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', '""', query)
    names = set(re.findall(r"\brsmq_\w+", bare))
    assert names, query
    assert names <= set(SERIES), query
    for name, matchers in re.findall(r"\b(rsmq_\w+)\{([^}]*)\}", bare):
        labels = set(re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers))
        assert labels <= SERIES[name], (query, name)
    allowed = set.intersection(*(SERIES[name] for name in names))
    for listed in re.findall(r"\b(?:by|on)\s*\(([^)]*)\)", bare):
        assert {label.strip() for label in listed.split(",")} <= allowed, query


def queries_of_the_board():
    return [target["expr"] for panel in PANELS for target in panel["targets"]]


@pytest.mark.parametrize("query", queries_of_the_board())
def test_queries_of_the_grafana_dashboard(query):
    check(query)


def test_query_of_the_autoscaler():
    manifest = ROOT / "examples" / "kubernetes" / "scale-prometheus.yaml"
    (trigger,) = yaml.safe_load(manifest.read_text())["spec"]["triggers"]
    check(trigger["metadata"]["query"])
    guide = (ROOT / "docs" / "guides" / "probes-and-autoscaling.md").read_text()
    assert trigger["metadata"]["query"] in guide


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_alert_rules(rule):
    check(rule["expr"])
    assert rule["labels"]["severity"] in ("warning", "critical")
    assert rule["annotations"]["summary"]
    # An annotation can use only labels that the result of the expression has.
    used = set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"]))
    assert used <= {"namespace", "queue", "instance"}
    assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}


@pytest.mark.parametrize(
    "query",
    [
        "rsmq_queue_mesages",  # no such metric
        'rsmq_queue_messages{color="red"}',  # no such label
        "sum by (outcome) (rsmq_lease_lost_total)",
        "sum(rate(rsmq_lease_lost_total[5m])",  # no PromQL
        "rsmq_worker_wait_seconds",  # a histogram has no series of that name
    ],
)
def test_a_wrong_query_is_found(query):
    with pytest.raises((AssertionError, ValueError)):
        check(query)


def test_grafana_dashboard_is_plausible():
    assert BOARD["schemaVersion"] >= 30
    assert BOARD["uid"]
    assert BOARD["title"]
    ids = [panel["id"] for panel in BOARD["panels"]]
    assert len(set(ids)) == len(ids)
    variables = {variable["name"] for variable in BOARD["templating"]["list"]}
    assert variables == {"datasource", "namespace", "queue"}
    used = set(re.findall(r"\$\{?(\w+)", json.dumps(BOARD["panels"])))
    assert used <= variables | {"__rate_interval"}
    taken = set()
    for panel in BOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert place["x"] + place["w"] <= 24
        assert not cells & taken, panel["title"]
        taken |= cells
    for panel in PANELS:
        assert panel["type"] in ("timeseries", "stat")
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
        assert [t["refId"] for t in panel["targets"]] == list("ABC")[: len(panel["targets"])]


def test_every_alert_is_explained_in_the_guide():
    text = GUIDE.read_text()
    assert [rule["alert"] for rule in RULES if f"| {rule['alert']} |" not in text] == []


def test_every_query_of_the_guide():
    blocks = re.findall(r"```promql\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert blocks
    for block in blocks:
        check(re.sub(r"^#.*$", "", block, flags=re.MULTILINE).strip())


def test_tables_of_the_guide_are_those_of_the_instruments():
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in GUIDE.read_text().splitlines()
        if line.startswith("| `rsmq_")
    ]
    expected = []
    for one in TABLE:
        labels = ", ".join(f"`{label}`" for label in one.labels)
        row = [f"`{one.name}`", one.kind, labels, one.help.replace("|", "\\|")]
        expected.append([*row, f"`{one.otel}`"] if one.otel else row)
    assert rows == expected


def test_labels_have_attributes_and_instruments_have_names_by_the_rules():
    for one in TABLE:
        assert re.fullmatch(r"rsmq_[a-z_]+", one.name)
        assert (one.kind == "counter") == one.name.endswith("_total")
        assert bool(one.buckets) == (one.kind == "histogram")
        if one.otel:
            assert set(one.labels) <= set(ATTRIBUTES)
        if one.unit == "s":
            assert one.name.endswith("_seconds")
    assert len(STATES) == 3
