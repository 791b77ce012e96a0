"""The manifests for Kubernetes: valid, in agreement with each other and with this library."""

import re
import shlex
import sys
import tomllib
from pathlib import Path
from urllib.parse import urlsplit

import click
import kubernetes_validate
import pytest
import yaml
from redis.asyncio import Redis
from starlette.routing import Match

from aiorsmq_ng.broker.keda import Trigger
from aiorsmq_ng.cli.app import cli
from aiorsmq_ng.cli.global_options import Settings
from aiorsmq_ng.cli.worker import load
from aiorsmq_ng.dashboard import dashboard
from aiorsmq_ng.scaling import Scale

from .test_doc_blocks import blocks

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples" / "kubernetes"
VERSIONS = ["1.31", "1.37"]
OBJECTS = [
    (file.name, one)
    for file in sorted(FOLDER.glob("*.yaml"))
    for one in yaml.safe_load_all(file.read_text())
]
IDS = [f"{name}-{one['kind']}" for name, one in OBJECTS]
DEPLOYMENTS = {one["metadata"]["name"]: one for _, one in OBJECTS if one["kind"] == "Deployment"}
SERVICES = {one["metadata"]["name"]: one for _, one in OBJECTS if one["kind"] == "Service"}
SCALED = [one for _, one in OBJECTS if one["kind"] == "ScaledObject"]
AUTHENTICATIONS = {
    one["metadata"]["name"]: one for _, one in OBJECTS if one["kind"] == "TriggerAuthentication"
}
#: Fields of a ScaledObject, and keys of the metadata of its triggers, by KEDA 2.20.
SCALED_FIELDS = {
    *("scaleTargetRef", "minReplicaCount", "maxReplicaCount", "pollingInterval", "cooldownPeriod"),
    "triggers",
}
REQUIRED = {
    "external-push": {"scalerAddress"},
    "metrics-api": {"url", "valueLocation", "targetValue"},
    "prometheus": {"serverAddress", "query", "threshold"},
}
OPTIONAL = {"metrics-api": {"authMode"}, "prometheus": {"ignoreNullValues"}}


def pod(deployment):
    return deployment["spec"]["template"]["spec"]


def container(deployment):
    (found,) = pod(deployment)["containers"]
    return found


def parameters(words, monkeypatch):
    """Return the parameters that ``rsmqctl`` reads from a command line."""
    seen = []
    monkeypatch.setattr(click.Command, "invoke", lambda self, context: seen.append(context.params))
    assert words[0] == "rsmqctl"
    cli.main(words[1:], "rsmqctl", standalone_mode=False, obj=Settings())
    return seen[-1]


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("one", [one for _, one in OBJECTS], ids=IDS)
def test_object_fits_the_schema_of_kubernetes(one, version):
    if one["apiVersion"].startswith("keda.sh/"):
        assert one["apiVersion"] == "keda.sh/v1alpha1"
        return
    kubernetes_validate.validate(one, version, strict=True)


def test_object_that_does_not_fit_is_found():
    wrong = yaml.safe_load((FOLDER / "worker.yaml").read_text())
    wrong["spec"]["template"]["spec"]["terminationGraceSeconds"] = 3

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_probes_and_ports_are_those_of_the_command(name, monkeypatch):
    deployment = DEPLOYMENTS[name]
    main = container(deployment)
    given = parameters([*main["command"], *main.get("args", ())], monkeypatch)
    ports = {port["name"]: port["containerPort"] for port in main["ports"]}

    assert ports.pop("health") == given["health_port"]
    listen = given.get("listen")
    listen = [listen] if isinstance(listen, str) else list(listen or ())
    assert [int(address.rpartition(":")[2]) for address in listen] == list(ports.values())
    for probe, path in (
        ("startupProbe", "/startupz"),
        ("livenessProbe", "/livez"),
        ("readinessProbe", "/readyz"),
    ):
        assert main[probe]["httpGet"] == {"path": path, "port": "health"}
        # A readiness probe waits a second for the server.
        assert main[probe]["timeoutSeconds"] > 1
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert selector == deployment["spec"]["template"]["metadata"]["labels"]


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_pod_has_longer_to_stop_than_its_program(name, monkeypatch):
    main = container(DEPLOYMENTS[name])
    given = parameters([*main["command"], *main.get("args", ())], monkeypatch)
    grace = given.get("grace", 5)  # that of the dashboard
    if "target" in given:
        monkeypatch.syspath_prepend(FOLDER)
        monkeypatch.delitem(sys.modules, "jobs", raising=False)
        worker = load(given["target"])
        grace = worker._grace + 10  # cancelled handlers, give-backs, replies to acks

    assert pod(DEPLOYMENTS[name])["terminationGracePeriodSeconds"] > grace


@pytest.mark.parametrize("name", DEPLOYMENTS)
def test_volumes_hold_the_files_that_the_command_names(name, monkeypatch):
    spec, main = pod(DEPLOYMENTS[name]), container(DEPLOYMENTS[name])
    volumes = {volume["name"] for volume in spec.get("volumes", ())}
    mounts = {mount["mountPath"]: mount["name"] for mount in main.get("volumeMounts", ())}
    given = parameters([*main["command"], *main.get("args", ())], monkeypatch)
    files = [given[key] for key in ("tokens", "cert", "key", "receipt_key") if given.get(key)]

    assert set(mounts.values()) == volumes
    assert {str(Path(file).parent) for file in files} == set(mounts)


def test_services_lead_to_pods():
    for name, service in SERVICES.items():
        ports = {
            port["name"]: port["containerPort"] for port in container(DEPLOYMENTS[name])["ports"]
        }
        assert service["spec"]["selector"] == {"app": name}
        for port in service["spec"]["ports"]:
            assert ports[port["targetPort"]] == port["port"]


@pytest.mark.parametrize("one", SCALED, ids=[one["spec"]["triggers"][0]["type"] for one in SCALED])
def test_scaled_object_has_the_fields_of_keda(one):
    spec = one["spec"]
    (trigger,) = spec["triggers"]
    kind, metadata = trigger["type"], trigger["metadata"]

    assert set(spec) <= SCALED_FIELDS
    assert spec["scaleTargetRef"]["name"] in DEPLOYMENTS
    assert spec["cooldownPeriod"] > 60  # the timeout of the handler
    assert all(isinstance(value, str) for value in metadata.values())
    assert metadata.keys() >= REQUIRED[kind]
    if kind in OPTIONAL:
        assert metadata.keys() <= REQUIRED[kind] | OPTIONAL[kind]
    if "authenticationRef" in trigger:
        assert trigger["authenticationRef"]["name"] in AUTHENTICATIONS


def trigger_of(kind):
    found = [one["spec"]["triggers"][0] for one in SCALED]
    (trigger,) = [one for one in found if one["type"] == kind]
    return trigger["metadata"]


def test_broker_accepts_the_trigger():
    metadata = trigger_of("external-push")
    host, _, port = metadata["scalerAddress"].rpartition(":")

    assert Trigger.read(metadata).queue == "jobs"
    assert [one["port"] for one in SERVICES[host]["spec"]["ports"]] == [int(port)]
    environment = {one["name"] for one in container(DEPLOYMENTS["jobs-worker"])["env"]}
    assert metadata["tokenFromEnv"] in environment


def test_dashboard_has_the_address_of_the_trigger(rsmq):
    metadata = trigger_of("metrics-api")
    url = urlsplit(metadata["url"])
    scope = {"type": "http", "method": "GET", "path": url.path}
    (route,) = [one for one in dashboard(rsmq).routes if one.matches(scope)[0] == Match.FULL]

    assert route.path == "/api/v1/queues/{queue}/scale"
    assert metadata["valueLocation"] in Scale.__struct_fields__
    assert [one["port"] for one in SERVICES[url.hostname]["spec"]["ports"]] == [url.port]


def test_triggers_on_the_page_are_those_of_the_manifests():
    page = ROOT / "docs" / "guides" / "probes-and-autoscaling.md"
    shown = {
        one["type"]: one["metadata"]
        for text in blocks(page, "yaml")
        for one in yaml.safe_load(text)["triggers"]
    }

    assert shown.keys() == {*REQUIRED, "redis"}
    for kind in REQUIRED:
        assert shown[kind].items() <= trigger_of(kind).items()


async def test_length_of_the_sorted_set_is_the_number_of_messages(queue, ns, server_url):
    """KEDA's type ``redis`` asks for it."""
    await queue.send_many(["a", "b"])
    await queue.send("later", delay=60)
    await queue.receive(vt=60)

    async with Redis.from_url(server_url) as redis:
        length = await redis.zcard(f"{ns}:jobs")
    assert length == (await queue.attributes()).msgs == 3


def test_secrets_are_those_of_the_page():
    text = "".join(file.read_text() for file in FOLDER.glob("*.yaml"))
    used = set(re.findall(r"name: ([\w-]+), key: ([\w.-]+)", text))
    page = (FOLDER / "README.md").read_text()
    listed = {
        (name, key)
        for name, keys in re.findall(r"^\| `([\w-]+)` \| (`[^|]+) \|", page, re.MULTILINE)
        for key in re.findall(r"`([\w.-]+)`", keys)
    }
    volumes = set(re.findall(r"secretName: ([\w-]+)", text))

    assert used <= listed
    assert {name for name, _ in listed} == volumes | {name for name, _ in used}


def test_page_names_every_file():
    named = set(re.findall(r"\]\(([\w.-]+)\)", (FOLDER / "README.md").read_text()))

    assert named == {one.name for one in FOLDER.iterdir() if one.is_file()} - {"README.md"}


def test_image_has_the_extras_and_files_that_it_needs(monkeypatch):
    text = (FOLDER / "Dockerfile").read_text()
    extras = re.search(r"aiorsmq-ng\[([\w,]+)\]", text)[1].split(",")
    known = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

    assert set(extras) <= set(known["optional-dependencies"])
    assert all((FOLDER / name).exists() for name in re.findall(r"^COPY (\S+)", text, re.MULTILINE))
    for words in re.findall(r"CMD (\[.*\])$", text, re.MULTILINE):
        parameters(yaml.safe_load(words), monkeypatch)
    port = re.search(r"RSMQ_HEALTH_LISTEN=\S+:(\d+)", text)[1]
    assert int(port) == container(DEPLOYMENTS["jobs-worker"])["ports"][0]["containerPort"]


def test_command_line_in_the_readme_is_one(monkeypatch):
    for command in re.findall(r"`(rsmqctl [^`]+)`", (FOLDER / "README.md").read_text()):
        if command != "rsmqctl":
            parameters(shlex.split(command), monkeypatch)
