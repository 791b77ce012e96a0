"""What the pages say can be read as it was meant, and agrees with what it is about."""

import builtins
import dataclasses
import inspect
import re
import runpy
import tomllib
import typing
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

import aiorsmq_ng
import aiorsmq_ng.errors
from aiorsmq_ng import Options, Retry
from aiorsmq_ng._broker_client import attempt
from aiorsmq_ng._broker_client.message_calls import MAX_BYTES
from aiorsmq_ng._protocol import argument_checks
from aiorsmq_ng._protocol.operation import Kind
from aiorsmq_ng._protocol.operations import messages, queues, recovery, topics
from aiorsmq_ng._protocol.scripts import names
from aiorsmq_ng._runtime import prefetch
from aiorsmq_ng._transport import batching, redis_driver, send_tokens
from aiorsmq_ng.broker import Limits
from aiorsmq_ng.broker.idempotency import REMEMBERED_S

from .support.pages import (
    DOCS,
    FENCE,
    IDS,
    LINK,
    NOW,
    NOW_AND_CHANGES,
    NOW_IDS,
    PAGES,
    ROOT,
    prose,
)

#: What most clients use.
DEFAULTS = Options()
LIMITS = Limits()
WORDS = {4: "four", 5: "five"}
#: Files that pages ask their readers to make.
TO_BE_MADE = {"first.py", "shop.py", "aiorsmq_ng/_protocol/scripts/queue/touch.lua"}


def anchors(page: Path) -> set[str]:
    titles = re.findall(r"^#+ (.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_link_leads_somewhere(page):
    broken = []
    for target in LINK.findall(prose(page)):
        if target.startswith(("http://", "https://", "mailto:")):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(target)
    assert broken == []


def test_architecture_names_every_layer_of_the_contract_from_top_to_bottom():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(c["layers"] for c in contracts["contracts"] if c["type"] == "layers")
    height = {name: at for at, line in enumerate(layers) for name in re.split(r"[|: ]+", line)}
    text = (ROOT / "docs/explanation/architecture.md").read_text()
    table = text[text.index("| layer | does") :].split("\n\n")[0]
    named = [re.findall(r"`(\w+)`", row.split("|")[1]) for row in table.split("\n")[2:]]

    assert {name for row in named for name in row} == set(height)
    heights = [[height[name] for name in row] for row in named]
    assert all(max(above) < min(below) for above, below in pairwise(heights))


def test_every_decision_has_status_and_date_and_is_in_the_index():
    """If it fails: ``python tools/docs/make_decisions.py``."""
    script = runpy.run_path(str(ROOT / "tools/docs/make_decisions.py"))

    assert script["page"]() == (ROOT / "docs/decisions/README.md").read_text()


def test_page_of_scripts_is_made_from_the_headers_of_the_scripts():
    """If it fails: ``python tools/docs/make_scripts.py``."""
    script = runpy.run_path(str(ROOT / "tools/docs/make_scripts.py"))

    assert script["page"]() == (ROOT / "docs/reference/scripts.md").read_text()
    assert {name for name in names() if f"\n### {name}\n" not in script["page"]()} == set()


def test_every_page_is_in_the_index():
    index = ROOT / "docs/README.md"
    linked = {(index.parent / target).resolve() for target in LINK.findall(index.read_text())}
    pages = [page for page in PAGES if page.is_relative_to(ROOT / "docs") and page != index]

    assert [
        str(page.relative_to(ROOT))
        for page in pages
        if page not in linked and page.parent / "README.md" not in linked
    ] == []


def test_every_example_is_in_the_index_of_examples():
    folder = ROOT / "examples"
    linked = Counter(LINK.findall((folder / "README.md").read_text()))
    files = [f for kind in ("py", "js") for f in folder.rglob(f"*.{kind}")]

    assert linked == {str(file.relative_to(folder)): 1 for file in files}


def test_every_test_that_a_page_names_exists():
    """A page names tests as *file* `test`, the file from ``tests/``."""
    missing = []
    for page in PAGES:
        if page.name == "CHANGELOG.md":
            continue
        file = ""
        for word in re.findall(r"[\w/]*test_\w+(?:\.py)?", page.read_text()):
            if word.endswith(".py"):
                file = word.removeprefix("tests/")
                if not (ROOT / "tests" / file).exists():
                    missing.append(word)
            elif file and word not in (ROOT / "tests" / file).read_text():
                missing.append(f"{file} {word}")
    assert missing == []


def text_of(page: str) -> str:
    return re.sub(r"\s+", " ", (DOCS / page).read_text())


def rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below *heading*."""
    text = (DOCS / page).read_text()
    table = re.search(r"(?:^\|.*\n)+", text[text.index(heading) :], re.MULTILINE)
    return [re.split(r"\s*(?<!\\)\|\s*", row)[1:-1] for row in table[0].splitlines()[2:]]


def has(owner: type, name: str) -> bool:
    if hasattr(owner, name) or name in getattr(owner, "__annotations__", {}):
        return True
    return any(
        re.search(rf"\bself\.{name}(:|,| =)", inspect.getsource(kind))
        for kind in owner.__mro__
        if kind.__module__.startswith("aiorsmq_ng")
    )


@pytest.mark.parametrize("page", NOW_AND_CHANGES, ids=[*NOW_IDS, "CHANGELOG.md"])
def test_every_member_of_a_public_class_that_a_page_names_exists(page):
    missing = []
    for owner, name in re.findall(r"`([A-Z]\w+)\.([a-z_]\w*)", page.read_text()):
        if owner in aiorsmq_ng.__all__ and not has(getattr(aiorsmq_ng, owner), name):
            missing.append(f"{owner}.{name}")
    assert missing == []


#: Heads of tables whose first column is in the words of another package.
OTHERS = {"npm rsmq", "PyRSMQ", "SQS", "Celery", "arq", "rmq (Go)", "aiorsmq", "RedisMQ", "GOMQ"}
#: Classes that are neither ours nor Python's.
FOREIGN = {
    *("AuthenticationError", "ConnectionError", "DataError", "OutOfMemoryError", "ResponseError"),
    *("Redis", "RedisCluster", "SparkSession", "TypeAdapter", "UnsupportedClassVersionError"),
    *("PyRSMQ", "RedisMQ", "RouteGuide", "Health", "Bearer", "TimeoutStopSec"),
    *("ScaledObject", "StreamMetricSpec", "LogRecord"),
}
DEFINED = {
    name
    for kind in ("py", "proto")
    for folder in ("aiorsmq_ng", "tools")
    for file in (ROOT / folder).rglob(f"*.{kind}")
    for name in re.findall(
        r"^\s*(?:(?:class|message|rpc|service|enum) )?(\w+)", file.read_text(), re.MULTILINE
    )
}


def own_words(text: str) -> str:
    """Return *text* without code blocks, and without what tables quote of other packages."""
    lines, theirs = [], False
    for line in FENCE.sub("", text).splitlines():
        cells = line.split("|")
        first = cells[1].strip() if len(cells) > 2 else ""
        theirs = first in OTHERS or (theirs and bool(first))
        lines.append("|".join(cells[2:]) if theirs else line)
    return "\n".join(lines)


def unknown_classes(text: str) -> set[str]:
    """Return names in code spans that look like classes, and are none that a reader can find."""
    spans = " ".join(re.findall(r"`([^`]+)`", own_words(text)))
    named = set(re.findall(r"(?<![\w./'\"-])([A-Z][a-z]+[A-Z]\w*)", spans))
    return {
        n for n in named - DEFINED - FOREIGN if not hasattr(builtins, n) and not hasattr(typing, n)
    }


@pytest.mark.parametrize("page", NOW_AND_CHANGES, ids=[*NOW_IDS, "CHANGELOG.md"])
def test_every_class_that_a_page_names_exists(page):
    assert unknown_classes(page.read_text()) == set()


def test_class_that_does_not_exist_is_found():
    assert unknown_classes("the `TicketBook` of `Queue`") == {"TicketBook"}
    assert unknown_classes(
        "| rmq (Go) | here |\n|---|---|\n| `SetPushQueue` | `PushQueue` |\n"
    ) == {"PushQueue"}


LOGGERS = {
    name
    for file in (ROOT / "aiorsmq_ng").rglob("*.py")
    for name in re.findall(r"getLogger\(\"(aiorsmq_ng[\w.]+)\"\)", file.read_text())
}


def is_defined(dotted: str) -> bool:
    """Return True if a name such as ``aiorsmq_ng.spark.finalize`` is in the package; no import."""
    path, parts = ROOT, dotted.split(".")
    while parts and any(path.glob(f"{parts[0]}.py")) | (path / parts[0]).is_dir():
        path /= parts.pop(0)
    module = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return not parts or parts[0] in re.findall(r"\w+", module.read_text())


@pytest.mark.parametrize("page", NOW_AND_CHANGES, ids=[*NOW_IDS, "CHANGELOG.md"])
def test_every_dotted_name_of_the_package_on_a_page_exists(page):
    named = set(re.findall(r"`(aiorsmq_ng(?:\.\w+)+)", page.read_text())) - LOGGERS

    assert {name for name in named if not is_defined(name)} == set()


def test_dotted_name_that_does_not_exist_is_found():
    assert is_defined("aiorsmq_ng.compat.redismq.ReliableQueue")
    assert not is_defined("aiorsmq_ng.reliable.ReliableQueue")


def test_page_of_the_architecture_lists_every_logger():
    text = (DOCS / "explanation/architecture.md").read_text()
    listed = re.findall(
        r"`([\w.]+)`", text[text.index("below `aiorsmq_ng`: ") + 20 :].split(". ")[0]
    )

    assert {f"aiorsmq_ng.{name}" for name in listed} == LOGGERS


#: What pages call an object of a class.
CALLED = {
    "rsmq": aiorsmq_ng.RSMQ,
    "queue": aiorsmq_ng.Queue,
    "message": aiorsmq_ng.Delivery,
    "delivery": aiorsmq_ng.Delivery,
    "worker": aiorsmq_ng.Worker,
    "worker.health": aiorsmq_ng.WorkerHealth,
    "rsmq.server_status": aiorsmq_ng.ServerStatus,
    "topic": aiorsmq_ng.Topic,
    "subscription": aiorsmq_ng.Subscription,
}


@pytest.mark.parametrize("page", NOW_AND_CHANGES, ids=[*NOW_IDS, "CHANGELOG.md"])
def test_every_member_of_an_object_that_a_page_names_exists(page):
    """As in ``worker.health.ok``; a page on another package's queue has another ``queue``."""
    named = re.findall(
        r"`@?([a-z]+(?:\.[a-z_]+)?)\.([a-z_]+)\b(?![/.]\w)", own_words(page.read_text())
    )
    missing = {f"{o}.{n}" for o, n in named if o in CALLED and not has(CALLED[o], n)}

    assert {
        one for one in missing if page.name != "reliable-queue.md" and one[-3:] != ".py"
    } == set()


INNERMOST = re.compile(r"(?<![\w.@])([A-Z]\w+)(?:\.([a-z_]\w*))?\(([^()]*)\)")


def unknown_arguments(text: str) -> list[str]:
    """Return named arguments in code spans that the public name called there does not take."""
    unknown = []
    rest = " ".join(re.findall(r"`([^`]+)`", text))
    while call := INNERMOST.search(rest):
        owner, name, words = call.groups()
        rest = rest[: call.start()] + "_" + rest[call.end() :]
        if owner in aiorsmq_ng.__all__:
            target = getattr(aiorsmq_ng, owner)
            known = inspect.signature(getattr(target, name) if name else target).parameters
            named = re.findall(r"(\w+)=", words)
            unknown += [f"{call[0]}: {word}" for word in named if word not in known]
    return unknown


@pytest.mark.parametrize("page", NOW_AND_CHANGES, ids=[*NOW_IDS, "CHANGELOG.md"])
def test_every_argument_by_which_a_page_calls_a_public_name_exists(page):
    assert unknown_arguments(FENCE.sub("", page.read_text())) == []


def test_argument_that_a_call_does_not_take_is_found():
    text = "`RSMQ.queue(name, retry=Retry(tries=5), vt=3)` and `Worker(threads=2)`"

    assert unknown_arguments(text) == ["Retry(tries=5): tries", "Worker(threads=2): threads"]


@pytest.mark.parametrize("page", NOW, ids=NOW_IDS)
def test_every_module_that_a_page_names_exists(page):
    """As ``_transport/urls.py`` or with the folder in front; a name alone may be anywhere."""
    missing = []
    for path in re.findall(r"`([\w./-]+\.(?:py|lua|proto)|_[a-z]+/[\w/]*)`", page.read_text()):
        places = [ROOT / path, ROOT / "aiorsmq_ng" / path, ROOT / "tests" / path]
        alone = "/" not in path and any((ROOT / "aiorsmq_ng").rglob(path))
        if path not in TO_BE_MADE and not alone and not any(p.exists() for p in places):
            missing.append(path)
    assert missing == []


def test_page_of_the_broker_lists_every_code_with_its_status():
    from aiorsmq_ng.broker.error_to_status import STATUS

    listed = {
        code: status
        for codes, status, _ in rows("reference/grpc.md", "## Errors")
        for code in re.findall(r"`(\w+)`", codes)
    }

    assert listed == {code: status.name for code, status in STATUS.items()}


def test_page_of_options_lists_every_environment_variable_that_is_read():
    listed = {
        row[0].strip("`")
        for row in rows("reference/url-and-options.md", "## Environment variables")
    }
    source = "".join(file.read_text() for file in (ROOT / "aiorsmq_ng").rglob("*.py"))
    pages = "".join(page.read_text() for page in NOW)

    assert listed == set(re.findall(r'"((?:RSMQ|AIORSMQ|REDIS)_[A-Z_]+)"', source))
    named = set(re.findall(r"\b(?:AIO)?RSMQ_[A-Z_]+\b", pages))
    assert named - {"RSMQ_CONFORMANCE_URL"} <= listed  # that one is of another package


def test_page_of_options_lists_every_option_with_its_default():
    listed = {
        name.strip("`"): default.strip("`")
        for name, default, _ in rows("reference/url-and-options.md", "\n## Options\n")
    }
    defaults = {
        one.name: f'"{one.default}"' if isinstance(one.default, str) else str(one.default)
        for one in dataclasses.fields(Options)
    }

    assert listed == defaults


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        (
            "explanation/architecture.md",
            f"at most {batching.MAX_WEIGHT} messages or {batching.MAX_SIZE >> 10} KiB of bodies",
        ),
        (
            "decisions/0002-operations-as-values.md",
            f"bounded ({batching.MAX_WEIGHT} messages, {batching.MAX_SIZE >> 10} KiB)",
        ),
        ("explanation/architecture.md", f"no call is in flight, {batching.SPLIT_FROM} operations"),
        ("explanation/guarantees.md", f"(token {send_tokens.TOKEN_S / 60:.0f} min,"),
        ("explanation/guarantees.md", f"and for {send_tokens.TOKEN_S / 60:.0f} minutes."),
        ("reference/errors.md", f"within {send_tokens.TOKEN_S / 60:.0f} minutes: no second copy"),
        ("explanation/guarantees.md", f"default {DEFAULTS.dedup_window / 60:.0f} min"),
        ("explanation/guarantees.md", f"`Options.deadline` ({DEFAULTS.deadline:.0f} s)"),
        ("explanation/guarantees.md", f"within `Options.poll_cap` ({DEFAULTS.poll_cap:.0f} s)"),
        ("explanation/architecture.md", f"`poll_base` ({DEFAULTS.poll_base} s)"),
        ("explanation/architecture.md", f"runners (up to {redis_driver._JOINED} for each"),
        ("reference/protocol.md", f"| count | 1 to {argument_checks.MAX_COUNT} |"),
        (
            "guides/consumers-and-workers.md",
            f"`worker.alone` seconds ({aiorsmq_ng.Worker().alone:.0f})",
        ),
        (
            "guides/consumers-and-workers.md",
            f"follows within {prefetch.IDLE_S} s the consumer rests",
        ),
        (
            "guides/grpc-client.md",
            f"for {WORDS[REMEMBERED_S / 60]} minutes. The client repeats within",
        ),
        ("guides/grpc-client.md", f"The client repeats within {WORDS[attempt.REMEMBERED_S / 60]}."),
        ("guides/grpc-client.md", f"more than {MAX_BYTES >> 20} MiB cannot be received"),
        ("reference/grpc.md", f"| one request | {LIMITS.message_bytes >> 20} MiB |"),
        ("reference/grpc.md", f"receipts in a request | {LIMITS.batch} |"),
        ("reference/grpc.md", f"| calls in flight | {LIMITS.calls} |"),
        ("reference/grpc.md", f"| streams and waiting calls | {LIMITS.streams} |"),
        ("reference/grpc.md", f"streams of one connection | {LIMITS.connection_streams} |"),
        (
            "reference/grpc.md",
            f"worked on, together | {LIMITS.receiving_bytes >> 20} MiB, at least",
        ),
        ("reference/grpc.md", f"a request must arrive | {LIMITS.arrival:.0f} s (`tooSlow`) |"),
        ("reference/grpc.md", f"may ask for more, up to {LIMITS.reply_bytes >> 20} MiB"),
        (
            "reference/grpc.md",
            f"not read yet, together | {LIMITS.unread_bytes >> 20} MiB, at least",
        ),
        ("reference/grpc.md", f"| calls of the health service | {LIMITS.probes}, of one"),
        ("reference/grpc.md", f"| longest wait of a Receive | {LIMITS.wait:.0f} s |"),
        ("reference/grpc.md", f"| unsettled messages of a Consume | {LIMITS.unsettled} |"),
        ("reference/grpc.md", f"| subscriptions of a topic | {LIMITS.subscriptions}; more are"),
    ],
)
def test_figure_on_a_page_is_that_of_the_code(page, sentence):
    assert sentence in text_of(page)


def test_table_of_retries_is_that_of_the_code():
    text = (DOCS / "guides/consumers-and-workers.md").read_text()
    assert (
        eval(
            re.findall(r"^(Retry\(.*\))   # the defaults$", text, re.MULTILINE)[0], {"Retry": Retry}
        )
        == Retry()
    )
    head = next(re.finditer(r"^\| delay after delivery \| (.*) \|$", text, re.MULTILINE))[1]
    numbers = [int(cell.split()[0]) for cell in head.split(" | ")]
    found = re.findall(r"^\| `(Retry\(.*?\))`[^|]*\| (.* s|.* h) \|$", text, re.MULTILINE)

    assert len(found) == 4
    for call, cells in found:
        retry = dataclasses.replace(eval(call, {"Retry": Retry}), jitter=False)
        shown = [cell.replace("1 h", "3600 s").split()[0] for cell in cells.split(" | ")]
        assert [float(cell) for cell in shown] == [retry.delay(number) for number in numbers]


def test_docstring_of_a_send_of_unknown_outcome_tells_how_long_its_token_is_good():
    minutes = f"{send_tokens.TOKEN_S / 60:.0f} minutes"

    assert minutes in (aiorsmq_ng.errors.SendUnknown.__doc__ or "")


def test_page_of_the_client_of_a_broker_lists_every_call_with_a_number():
    text = text_of("guides/grpc-client.md")
    listed = set(re.findall(r"`(\w+)`", text[text.index("request id: ") :].split(". ")[0]))
    kinds = {
        kind.name
        for module in (messages, queues, recovery, topics)
        for kind in vars(module).values()
        if isinstance(kind, Kind) and kind.numbered
    }
    public = {"receive_first": "receive", "purge_all": "purge", "visibility": "change_visibility"}

    assert listed == {public.get(name, name) for name in kinds}


API = runpy.run_path(str(ROOT / "tools/docs/make_api.py"))


def test_api_reference_is_that_of_the_docstrings():
    """If it fails: ``python tools/docs/make_api.py``."""
    folder = DOCS / "reference" / "api"

    assert {page.name: page.read_text() for page in folder.glob("*.md")} == API["pages"]()


SHOWN = {
    heading: part
    for page in API["pages"]().values()
    for heading, _, part in (part.partition("\n") for part in page.split("\n## ")[1:])
}
PUBLIC_NAMES = [
    *((name, "") for name in aiorsmq_ng.__all__),
    *((name, owner) for owner, names in API["PUBLIC"].items() for name in names),
]

#: Of a lease, for the client itself.
BOOKKEEPING = {"keys", "owned", "pauses", "renew_at", "renew_from", "renewing"}


@pytest.mark.parametrize(("name", "owner"), sorted(set(PUBLIC_NAMES)))
def test_public_name_stands_on_a_page_with_its_fields_and_methods(name, owner):
    """A class that users make has its signature; every field has a description."""
    target = API["named"](f"{owner}:{name}")
    section = SHOWN[name]
    if not isinstance(target, type):
        assert re.search(rf"```python\n(async )?(def )?{name}\b", section)
        assert len(section.split("```")[2].strip()) > 10
        return
    if name in {*API["MADE_BY_USERS"], "RSMQ", "Worker", "Broker", "Gomq", "ReliableQueue"}:
        assert f"```python\nclass {name}(" in section
    described = API["_attributes"](target)
    assert [field for field, text in described.items() if re.fullmatch("`[^`]*`", text)] == []
    fields = getattr(target, "__dataclass_fields__", None) or getattr(target, "_fields", ())
    slots = [s for s in getattr(target, "__slots__", ()) if not s.startswith("_")]
    missing = [f for f in (*fields, *slots) if not re.search(rf"\b{f}` \||\.{f}\b", section)]
    exempt = BOOKKEEPING if name == "Lease" else set()
    assert {f for f in missing if not f.startswith("_")} == exempt


def test_every_argument_of_a_public_call_is_described():
    """In the section ``Args``, or by name; decorators take nothing but the function."""
    names = (f"{owner}:{name}" for owner, names in API["PUBLIC"].items() for name in names)
    missing = [
        f"{call}: {argument}"
        for target in map(API["named"], names)
        for call, arguments, described in API["arguments"](target)
        for argument in arguments
        if argument not in described and argument != "function"
    ]
    assert missing == []


DIALECT = r"anew|(?:any|every|no|some)body|whoever|so many"
#: On pages that people write; the docstrings behind the generated ones have some of them left.
MORE = rf"{DIALECT}|whatever|whom?|told|tells? whether"
#: Not those that a program makes of measurements.
READ = [page for page in PAGES if page.name not in ("performance.md", "fault-report.md")]


@pytest.mark.parametrize("page", READ, ids=lambda page: str(page.relative_to(ROOT)))
def test_page_is_in_plain_english(page):
    """CONTRIBUTING.md has the rules, and quotes words that it forbids; tests have names."""
    text = re.sub(r'never "who" or "nobody"|`test_\w+`', "", page.read_text())
    words = DIALECT if "<!-- Made" in text else MORE

    assert re.findall(rf"\b(?:{words})\b", text, re.IGNORECASE) == []


CALLS = re.findall(
    r"^\| `(\w+)\.(\w+)\((.*?)\)` \|", (DOCS / "reference/topics.md").read_text(), re.MULTILINE
)
OWNERS = {
    "rsmq": aiorsmq_ng.RSMQ,
    "topic": aiorsmq_ng.Topic,
    "subscription": aiorsmq_ng.Subscription,
}


@pytest.mark.parametrize(("owner", "name", "arguments"), CALLS)
def test_signature_on_the_page_of_topics_is_that_of_the_code(owner, name, arguments):
    given = inspect.signature(getattr(OWNERS[owner], name)).parameters
    named = [re.split(r"[=:]", part)[0].strip() for part in arguments.split(",")]

    assert [part for part in named if part not in ("", "*")] == list(given)[1:]


#: Words without a named actor, and predicates that do not begin with "Return True if".
VAGUE = re.compile(
    rf"\b(?:{DIALECT}|takes? note|(?:is|are|was|were|be|been) told"
    r"|(?:tells?|says?) (?:whether|if)|(?:callers?|clients?|servers?|those) who)\b"
    r'|"""(?:Tell|Say) (?:whether|if)\b',
    re.IGNORECASE,
)
#: In names of functions, of tests above all.
VAGUE_NAME = re.compile(r"\bdef (\w*(?:nobod|somebod|anybod|everybod|whoever|_anew|_told)\w*)")


def test_code_is_in_plain_english():
    """Docstrings, comments, messages and names; not names of constants, nor this file."""
    parts = ("aiorsmq_ng", "benchmarks", "examples", "tests", "tools")
    files = [
        file
        for part in parts
        for kind in ("py", "proto", "lua")
        for file in (ROOT / part).rglob(f"*.{kind}")
    ]
    found = [
        f"{file.relative_to(ROOT)}: {match[0]}"
        for file in (*files, ROOT / "noxfile.py")
        if file != Path(__file__)
        for pattern in (VAGUE, VAGUE_NAME)
        for match in pattern.finditer(file.read_text())
        if not match[0].isupper()
    ]

    assert found == []


def test_readme_has_the_command_that_the_checks_of_a_change_run():
    script = ROOT / ".ci/run"
    if not script.exists():
        pytest.skip("a source distribution does not have it")

    command = script.read_text().splitlines()[-1]
    assert f"```sh\n{command}\n```" in (ROOT / "README.md").read_text()
