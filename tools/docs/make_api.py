"""Write docs/reference/api from signatures and docstrings: ``python tools/docs/make_api.py``.

A page shows, for every public class and function: its signature as it stands in the source, its
docstring, its arguments (section ``Args`` of the docstring) and its documented attributes.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import aiorsmq_ng
import aiorsmq_ng.broker
import aiorsmq_ng.compat.gomq
import aiorsmq_ng.embedded
import aiorsmq_ng.gateway
import aiorsmq_ng.rmq
import aiorsmq_ng.telemetry
import aiorsmq_ng.testing

FOLDER = Path(__file__).parents[2] / "docs" / "reference" / "api"
WIDTH = 100
NOTE = "<!-- Made by tools/docs/make_api.py from the docstrings; change them, then run `nox -s docs`. -->"

INTRODUCTION = """\
Every public name, with its signature, its arguments and what it promises. Durations are seconds: `int`, `float` or
`timedelta` (`Seconds` in signatures). `None` means the value that is stored on the queue, unless an argument says
otherwise. Names are imported from `aiorsmq_ng`; `ReliableQueue` from `aiorsmq_ng.compat.redismq`, clients of rmq from `aiorsmq_ng.rmq`, probes from `aiorsmq_ng.probes` and `aiorsmq_ng.worker`, the dashboard from `aiorsmq_ng.dashboard`, the broker from
`aiorsmq_ng.broker` and `aiorsmq_ng.compat.gomq`, embedded servers from `aiorsmq_ng.embedded`, outlets for metrics
from `aiorsmq_ng.telemetry`, and help for tests from `aiorsmq_ng.testing`. Spark's options: [spark.md](../spark.md). The drop-in for aiorsmq has the names and arguments of that
package: [migration-from-aiorsmq.md](../../guides/migration-from-aiorsmq.md)."""

#: Page -> title and names. Public names that are on none of them are put on ``errors`` or
#: ``results``.
PAGES: dict[str, tuple[str, list[str]]] = {
    "client": ("The client", ["RSMQ"]),
    "queue": ("Queues", ["Queue"]),
    "messages": (
        "Messages and deliveries",
        ["Message", "Delivery", "PendingMessage", "ScannedMessage", "DeadLetter", "Sent"],
    ),
    "workers": ("Consumers and workers", ["Consumer", "Worker", "WorkerHealth", "Retry"]),
    "probes": (
        "Probes",
        ["worker:WorkerProbes", "probes:Probes", "probes:ProbeAnswer", "probes:ProbeServer"],
    ),
    "topics": ("Topics", ["Topic", "Subscription", "TopicInfo", "SubscriptionInfo", "PeerInfo"]),
    "settings": ("Settings and codecs", ["Options", "Codec", "Compressed"]),
    "results": ("Other results", []),
    "types": ("Types in signatures", []),
    "errors": ("Errors", ["RSMQError"]),
    "reliable-queue": ("Reliable queue", ["compat.redismq:ReliableQueue"]),
    "rmq": ("Queues of rmq", []),
    "broker": (
        "The broker",
        [
            *("broker:Broker", "broker:BrokerOptions", "broker:Limits", "broker:Tls"),
            *("broker:Tokens", "broker:Keda", "compat.gomq:Gomq"),
        ],
    ),
    "dashboard": ("The dashboard", ["dashboard:dashboard", "dashboard:Caller"]),
    "gateway": (
        "Calls for servers",
        ["Gateway", "gateway:PurgedPage", "gateway:RecoverPlace"],
    ),
    "embedded": ("Embedded servers", []),
    "telemetry": ("Telemetry", []),
    "testing": ("Help for tests", []),
}
#: Pages with all names of a module.
WHOLE = {
    "embedded": aiorsmq_ng.embedded,
    "rmq": aiorsmq_ng.rmq,
    "telemetry": aiorsmq_ng.telemetry,
    "testing": aiorsmq_ng.testing,
}
#: Public names that are classes, and those that stand for a type.
CLASSES = [n for n in aiorsmq_ng.__all__ if isinstance(getattr(aiorsmq_ng, n), type)]
ALIASES = [n for n in aiorsmq_ng.__all__ if n not in CLASSES]
#: Module -> public names whose arguments are described, a test checks it.
PUBLIC = {
    "": CLASSES,
    "broker": aiorsmq_ng.broker.__all__,
    "compat.gomq": ["Gomq"],
    "compat.redismq": ["ReliableQueue"],
    "dashboard": ["dashboard", "Caller"],
    "embedded": aiorsmq_ng.embedded.__all__,
    "gateway": aiorsmq_ng.gateway.__all__,
    "probes": ["ProbeAnswer", "ProbeServer", "Probes"],
    "rmq": aiorsmq_ng.rmq.__all__,
    "telemetry": ["Telemetry"],
    "testing": aiorsmq_ng.testing.__all__,
    "worker": ["WorkerProbes"],
}
#: Data classes that users make, and that are therefore shown as a call.
MADE_BY_USERS = {"Options", "Retry", "BrokerOptions", "Limits", "Tls"}
#: Special methods that users call by syntax, and that syntax.
SYNTAX = {
    "__aenter__": "async with {}",
    "__aiter__": "async for ... in {}",
    "__anext__": "anext({})",
    "__await__": "await {}",
}


def pages() -> dict[str, str]:
    """Return the text of every page by its file name."""
    contents = {page: [named(name) for name in names] for page, (_, names) in PAGES.items()}
    placed = {target.__name__ for targets in contents.values() for target in targets}
    for name in CLASSES:
        if name not in placed:
            target = getattr(aiorsmq_ng, name)
            failed = isinstance(target, type) and issubclass(target, Exception)
            contents["errors" if failed else "results"].append(target)
    for page, module in WHOLE.items():
        targets = [getattr(module, name) for name in module.__all__]
        contents[page] = [t for t in targets if inspect.isclass(t) or inspect.isfunction(t)]
    made = {
        f"{page}.md": "\n\n".join(
            [f"# {title}", NOTE, *(_fixtures() if page == "testing" else [])]
            + ([_alias(name) for name in ALIASES] if page == "types" else [])
            + [_section(target) for target in contents[page]]
        )
        + "\n"
        for page, (title, _) in PAGES.items()
    }
    made["README.md"] = _index(contents)
    return made


def arguments(target: type | object) -> Iterator[tuple[str, list[str], set[str]]]:
    """Yield every public call of *target*: its name, its parameters and those it describes.

    In the section ``Args``, or as ``*name*`` in its sentences.
    """
    own = target.__name__  # type: ignore[attr-defined]
    if not isinstance(target, type):
        node = _function(target)
        yield own, _parameters(node), _known(_doc(node))
        return
    for owner, name, nodes in _members(target):
        node = nodes[-1]
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not _is_property(node):
            yield f"{own}.{name}", _parameters(node), _known(_doc(node))
        del owner
    made = _constructor(target)
    if made is not None:
        known = _known(inspect.getdoc(target) or "") | _known(_doc(made))
        yield own, _parameters(made), known


def named(name: str) -> type:
    """Return what is called *name*: ``Queue``, or ``compat.redismq:ReliableQueue``."""
    module, _, attribute = name.rpartition(":")
    found: type = getattr(
        import_module(f"aiorsmq_ng.{module}") if module else aiorsmq_ng, attribute
    )
    return found


def _index(contents: dict[str, list[type]]) -> str:
    parts = [
        "# API reference",
        NOTE,
        INTRODUCTION,
    ]
    for page, (title, _) in PAGES.items():
        rows = [f"## [{title}]({page}.md)", "", "| name | |", "|---|---|"]
        for target in contents[page]:
            summary = _prose((inspect.getdoc(target) or "").split("\n\n")[0])
            rows.append(
                f"| [`{target.__name__}`]({page}.md#{target.__name__.lower()}) | {summary} |"
            )
        if page == "types":
            rows += [
                f"| [`{name}`]({page}.md#{name.lower()}) | {_prose(_definition(name)[1])} |"
                for name in ALIASES
            ]
        parts.append("\n".join(rows))
    return "\n\n".join(parts) + "\n"


def _alias(name: str) -> str:
    """Return the section of a name that stands for a type."""
    definition, comment = _definition(name)
    return f"## {name}\n\n```python\n{definition}\n```\n\n{_prose(comment)}"


def _definition(name: str) -> tuple[str, str]:
    """Return the statement that defines an alias, and the comment above it."""
    root = Path(aiorsmq_ng.__file__)
    imports = [n for n in ast.walk(ast.parse(root.read_text())) if isinstance(n, ast.ImportFrom)]
    home = next(str(n.module) for n in imports if name in [alias.name for alias in n.names])
    place = root.parent / home.replace(".", "/")
    for module in place.glob("*.py") if place.is_dir() else [place.with_suffix(".py")]:
        text = module.read_text()
        for node in ast.parse(text).body:
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name:
                shown = ast.get_source_segment(text, node) or ""
                return shown, _comment(text.splitlines(), node)
    raise LookupError(name)


def _section(target: type | object) -> str:
    name = target.__name__  # type: ignore[attr-defined]
    if not isinstance(target, type):
        node = _function(target)
        return "\n\n".join([f"## {name}", *_described(name, [node])])
    doc, args = _arguments(inspect.getdoc(target) or "")
    parts = [f"## {name}"]
    made = _constructor(target)
    if made is not None:
        init_doc, init_args = _arguments(_doc(made))
        doc, args = "\n\n".join(filter(None, (doc, init_doc))), {**args, **init_args}
        parts.append(_code(f"class {name}", made, returns=False))
    elif name in MADE_BY_USERS:
        parts.append(_data_class(target))
    parts += [*_based_on(target), _prose(doc), *_table("argument", args)]
    parts += _table("attribute", _attributes(target))
    for _, member, nodes in _members(target):
        shown = SYNTAX.get(member, "{}").format(name.lower()) if member in SYNTAX else member
        parts += [f"### {name}.{member}" if shown == member else f"### {shown}"]
        parts += _described(member, nodes)
    return "\n\n".join(part for part in parts if part)


def _data_class(target: type) -> str:
    """Return the call that makes a data class, as its fields have it."""
    fields = [n for n in _class(target).body if isinstance(n, ast.AnnAssign)]
    marks = [ast.unparse(d) for d in _class(target).decorator_list]
    keywords = "    *,\n" if any("kw_only=True" in mark for mark in marks) else ""
    lines = [
        f"    {ast.unparse(n.target)}: {ast.unparse(n.annotation)}{_default(n.value)},\n"
        for n in fields
    ]
    return f"```python\nclass {target.__name__}(\n{keywords}{''.join(lines)})\n```"


def _default(value: ast.expr | None) -> str:
    if value is None:
        return ""
    made = re.search(r"default(?:_factory)?=(\w+)", ast.unparse(value))
    if made is None or not ast.unparse(value).startswith("field("):
        return "" if ast.unparse(value).startswith("field(") else f" = {ast.unparse(value)}"
    return f" = {made[1]}" + ("()" if "factory" in made[0] else "")


def _based_on(target: type) -> Iterator[str]:
    """Say which public classes *target* is a kind of; their members are not repeated."""
    bases = [b.__name__ for b in target.__mro__[1:] if _is_public(b) or b in (ValueError, str)]
    if bases:
        yield "Also a " + ", ".join(f"`{base}`" for base in bases) + "."


def _is_public(target: type) -> bool:
    return target.__module__.startswith("aiorsmq_ng") and target.__name__ in aiorsmq_ng.__all__


def _described(name: str, nodes: list[ast.stmt]) -> list[str]:
    *overloads, last = nodes
    assert isinstance(last, ast.FunctionDef | ast.AsyncFunctionDef)
    text, args = _arguments(_doc(last))
    if _is_property(last):
        returns = f"`{ast.unparse(last.returns)}`. " if last.returns else ""
        return [returns + _prose(text)]
    shown = "\n".join(_signature(f"{_prefix(node)}{name}", node) for node in overloads or [last])
    return [f"```python\n{shown}\n```", _prose(text), *_table("argument", args)]


def _members(target: type) -> Iterator[tuple[type, str, list[ast.stmt]]]:
    """Yield the public methods and properties of a class, those of internal bases included."""
    seen = set()
    for owner in target.__mro__:
        if not owner.__module__.startswith("aiorsmq_ng") or (
            owner is not target and _is_public(owner)
        ):
            continue
        found: dict[str, list[ast.stmt]] = {}
        for node in _class(owner).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found.setdefault(node.name, []).append(node)
        for name, nodes in found.items():
            public = not name.startswith("_") or (name in SYNTAX and _doc(nodes[-1]))
            setter = any("setter" in ast.unparse(d) for d in nodes[-1].decorator_list)
            if public and name not in seen:
                seen.add(name)
                yield owner, name, nodes[:1] if setter else nodes


def _attributes(target: type) -> dict[str, str]:
    """Return the annotated or ``#:``-documented attributes of a class and of internal bases."""
    found: dict[str, str] = {}
    for owner in reversed(target.__mro__):
        if not owner.__module__.startswith("aiorsmq_ng") or (
            owner is not target and _is_public(owner)
        ):
            continue
        lines = Path(inspect.getsourcefile(owner) or "").read_text().splitlines()
        for node in _class(owner).body:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                shown, comment = node.target.id, _comment(lines, node)
                if not shown.startswith("_") and "ClassVar" not in ast.unparse(node.annotation):
                    default = f" = {ast.unparse(node.value)}" if _is_shown(node.value) else ""
                    kind = f"`{ast.unparse(node.annotation)}{default}`"
                    found[shown] = f"{kind}. {comment}" if comment else kind
            elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                if (comment := _comment(lines, node)) and not node.targets[0].id.startswith("_"):
                    found[node.targets[0].id] = comment
            elif isinstance(node, ast.FunctionDef) and node.name == "__init__":
                found |= dict(_assigned(node, lines, named_too=issubclass(owner, Exception)))
    return found


def _assigned(
    made: ast.FunctionDef, lines: list[str], *, named_too: bool
) -> Iterator[tuple[str, str]]:
    """Yield the documented attributes; with *named_too*, also those with a parameter's name."""
    kinds = {
        a.arg: ast.unparse(a.annotation)
        for a in made.args.args + made.args.kwonlyargs
        if a.annotation
    }
    for node in ast.walk(made):
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(targets[0], ast.Attribute):
            name, comment = targets[0].attr, _comment(lines, node)
            if comment and not name.startswith("_"):
                yield name, comment
            elif name in kinds and named_too and not name.startswith("_"):
                yield name, f"`{kinds[name]}`"


def _comment(lines: list[str], node: ast.stmt) -> str:
    """Return the ``#:`` comment above a statement, or behind it."""
    behind = re.search(r"#: (.*)$", lines[node.lineno - 1])
    if behind:
        return behind[1]
    above: list[str] = []
    at = node.lineno - 2
    while at >= 0 and lines[at].strip().startswith("#:"):
        above.insert(0, lines[at].strip()[2:].strip())
        at -= 1
    return " ".join(above)


def _is_shown(value: ast.expr | None) -> bool:
    return value is not None and "field(" not in ast.unparse(value)


def _fixtures() -> list[str]:
    plugin = Path(import_module("aiorsmq_ng.testing.plugin").__file__ or "")
    parts = ["## Fixtures", "pytest finds these by itself."]
    for node in ast.parse(plugin.read_text()).body:
        marks = [ast.unparse(d) for d in getattr(node, "decorator_list", [])]
        if any("fixture" in mark for mark in marks) and not node.name.startswith("_"):  # type: ignore[attr-defined]
            scope = "session" if any("session" in mark for mark in marks) else "test"
            parts += [f"### {node.name}", f"Scope: {scope}. {_prose(_doc(node))}"]  # type: ignore[attr-defined]
    return parts


def _class(owner: type) -> ast.ClassDef:
    tree = ast.parse(Path(inspect.getsourcefile(owner) or "").read_text())
    return next(
        n for n in ast.walk(tree) if isinstance(n, ast.ClassDef) and n.name == owner.__name__
    )


def _function(target: object) -> ast.FunctionDef | ast.AsyncFunctionDef:
    function = inspect.unwrap(target)  # type: ignore[arg-type]
    tree = ast.parse(Path(inspect.getsourcefile(function) or "").read_text())
    return next(
        n
        for n in tree.body
        if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef) and n.name == function.__name__
    )


def _constructor(target: type) -> ast.FunctionDef | None:
    """Return ``__init__`` if users may call it: it is documented by the class docstring."""
    for node in _class(target).body:
        if isinstance(node, ast.FunctionDef) and node.name == "__init__":
            return (
                node if "Args:" in (inspect.getdoc(target) or "") or "Args:" in _doc(node) else None
            )
    return None


def _doc(node: ast.AST) -> str:
    return ast.get_docstring(node) or ""  # type: ignore[arg-type]


def _is_property(node: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    return any(re.search(r"property", ast.unparse(d)) for d in node.decorator_list)


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    given = node.args
    names = [a.arg for a in (*given.posonlyargs, *given.args)]
    names += [given.vararg.arg] if given.vararg else []
    names += [a.arg for a in given.kwonlyargs]
    names += [given.kwarg.arg] if given.kwarg else []
    return [name for name in names if name not in ("self", "cls")]


def _prefix(node: ast.stmt) -> str:
    marks = [ast.unparse(d) for d in node.decorator_list]  # type: ignore[attr-defined]
    kinds = "".join(f"@{m}\n" for m in marks if m in ("staticmethod", "classmethod"))
    # An async generator, and a context manager, is called without await.
    awaited = isinstance(node, ast.AsyncFunctionDef) and not _yields(node)
    return kinds + ("async def " if awaited else "def ")


def _yields(node: ast.stmt) -> bool:
    return any(isinstance(part, ast.Yield | ast.YieldFrom) for part in ast.walk(node))


def _returned(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    """Return the type that a call of *node* returns to its caller."""
    returns = ast.unparse(node.returns) if node.returns else ""
    marks = {ast.unparse(d).rpartition(".")[2] for d in node.decorator_list}
    for mark, kind in (
        ("contextmanager", "AbstractContextManager"),
        ("asynccontextmanager", "AbstractAsyncContextManager"),
    ):
        if mark in marks:
            return re.sub(r"^(Async)?(Iterator|Generator)\b", kind, returns)
    return returns


def _code(head: str, node: ast.FunctionDef, *, returns: bool) -> str:
    return f"```python\n{_signature(head, node, returns=returns)}\n```"


def _signature(head: str, node: ast.stmt, *, returns: bool = True) -> str:
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    shown = list(_shown_parameters(node.args))
    end = f" -> {_returned(node)}" if returns and node.returns else ""
    line = f"{head}({', '.join(shown)}){end}"
    if len(line.rsplit("\n", maxsplit=1)[-1]) <= WIDTH:
        return line
    return f"{head}(\n" + "".join(f"    {part},\n" for part in shown) + f"){end}"


def _shown_parameters(given: ast.arguments) -> Iterator[str]:
    places = [*given.posonlyargs, *given.args]
    defaults = [None] * (len(places) - len(given.defaults)) + given.defaults
    for argument, default in zip(places, defaults, strict=True):
        if argument.arg not in ("self", "cls"):
            yield _parameter(argument, default)
        if given.posonlyargs and argument is given.posonlyargs[-1] and argument.arg != "self":
            yield "/"
    if given.vararg:
        yield "*" + _parameter(given.vararg, None)
    elif given.kwonlyargs:
        yield "*"
    for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        yield _parameter(argument, default)
    if given.kwarg:
        yield "**" + _parameter(given.kwarg, None)


def _parameter(argument: ast.arg, default: ast.expr | None) -> str:
    kind = f": {ast.unparse(argument.annotation)}" if argument.annotation else ""
    return f"{argument.arg}{kind}" + (f" = {ast.unparse(default)}" if default else "")


def _known(doc: str) -> set[str]:
    """Return the arguments that a docstring describes."""
    named_in_prose = re.findall(r"(?<![\w*])\*(\w+)\*(?![\w*])", doc)
    return {*_arguments(doc)[1], *named_in_prose}


def _arguments(doc: str) -> tuple[str, dict[str, str]]:
    """Return a docstring without its section ``Args``, and that section by argument."""
    match = re.search(r"^Args:\n((?:[ ]+.*\n?|\n(?=[ ]))+)", doc, re.MULTILINE)
    if match is None:
        return doc, {}
    rest = (doc[: match.start()].rstrip() + "\n\n" + doc[match.end() :].lstrip()).strip()
    entries = re.findall(
        r"^(\*{0,2}\w+): (.*(?:\n[ ]+.*)*)", textwrap.dedent(match[1]), re.MULTILINE
    )
    return rest, {name.lstrip("*"): re.sub(r"\s+", " ", text) for name, text in entries}


def _table(head: str, rows: dict[str, str]) -> list[str]:
    if not rows:
        return []
    lines = [f"| {head} | |", "|---|---|"]
    for name, text in rows.items():
        cell = re.sub(r"`[^`]*`", lambda code: code[0].replace("|", "\\|"), _prose(text))
        lines.append(f"| `{name}` | {cell} |")
    return ["\n".join(lines)]


def _prose(text: str) -> str:
    """Return a docstring as Markdown: ``code`` and *argument* become `code`."""
    joined = re.sub(r"(?<!\n)\n(?!\n|[ ]|- )", " ", text.strip())
    joined = re.sub(r"``(.+?)``", r"`\1`", joined)
    return re.sub(r"(?<![\w`*])\*(\w+)\*(?![\w*])", r"`\1`", joined)


if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for old in FOLDER.glob("*.md"):
        old.unlink()
    for name, text in pages().items():
        (FOLDER / name).write_text(text)
