"""The Lua scripts as texts: contracts, parts, includes, names."""

import re
from pathlib import Path

import pytest

from aiorsmq_ng._common.message_ids import HEADERS_MARK
from aiorsmq_ng._protocol import scripts

FOLDER = Path(scripts.__file__).parent
FILES = sorted(FOLDER.rglob("*.lua"))
PARTS = [path for path in FILES if path.name.startswith("_")]
FIELDS = ("KEYS", "ARGV", "Returns", "Errors", "Cost")

#: What a server's Lua offers, as far as scripts use it.
LIBRARIES = ("redis", "string", "math", "table", "cjson")
FUNCTIONS = ("tonumber", "tostring", "type", "unpack", "ipairs", "pairs", "next", "error", "pcall")
KEYWORDS = (
    *("and", "break", "do", "else", "elseif", "end", "false", "for", "function", "if", "in"),
    *("local", "nil", "not", "or", "repeat", "return", "then", "true", "until", "while"),
)


def code(text):
    """Return Lua text without comments and without the content of its strings."""
    text = re.sub(r"^\s*--.*\n", "", text, flags=re.MULTILINE)
    return re.sub(r"'(?:[^'\\]|\\.)*'", "''", text)


def unknown_names(text):
    """Return the names that Lua text uses and does not declare; they would be global."""
    text = code(text)
    declared = set()
    for names in re.findall(r"\blocal (?!function)([\w, ]+?)(?= =|\n|$)", text):
        declared.update(names.split(", "))
    for name, parameters in re.findall(r"\bfunction ?(\w*)\(([\w, .]*)\)", text):
        declared.update({name, *parameters.split(", ")})
    for names in re.findall(r"\bfor ([\w, ]+?) (?:=|in) ", text):
        declared.update(names.split(", "))
    without_table_keys = re.sub(r"([{,]\s*)\w+ = ", r"\1", text)
    used = set(re.findall(r"(?<![\w.])[A-Za-z_]\w*", without_table_keys))
    return used - declared - {*KEYWORDS, *LIBRARIES, *FUNCTIONS}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file_uses_no_name_that_it_does_not_declare_or_include(path):
    """A part is given arguments: it knows no names of the scripts that include it."""
    text = scripts._expand(path.stem, set(), ())

    allowed = set() if path in PARTS else {"KEYS", "ARGV"}
    assert unknown_names(text) - allowed == set()


@pytest.mark.parametrize("path", PARTS, ids=lambda path: path.stem)
def test_part_only_defines_functions_and_constants(path):
    """Nothing in a part runs, or returns, at the place where it is included."""
    literal = r"(?:-?\d+|'[^'\n]*'|\{[^(){}]*\})"
    statement = re.compile(
        r"local function \w+\([\w, .]*\)(?: [^\n]* end\n|\n(?:(?:  .*)?\n)*?end\n)"
        rf"|local [\w, ]+ = {literal}(?:, {literal})*\n"
    )
    text = re.sub(r"^--.*\n", "", path.read_text(), flags=re.MULTILINE)

    assert re.match(r"local ", text)
    assert statement.sub("", text) == ""


@pytest.mark.parametrize("name", scripts.names())
def test_script_defines_each_function_once(name):
    defined = re.findall(r"^local function (\w+)", scripts.load(name).source.decode(), re.MULTILINE)

    assert len(defined) == len(set(defined))


@pytest.mark.parametrize("name", scripts.names())
def test_script_is_constant_and_declares_what_it_touches(name):
    source = scripts.load(name).source.decode()

    assert "@include" not in source
    assert "--" not in source
    assert scripts.load(name) is scripts.load(name)
    # Keys are never built inside a script: only what is in KEYS may be touched.
    assert not re.search(r"KEYS\[\d+\]\s*\.\.", source)
    assert source.count("redis.call('TIME')") <= 1


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_includes_stand_before_the_first_statement(path):
    """An include in the middle of a function would define its functions at every call."""
    assert "@include" not in code(path.read_text())
    before, _, after = path.read_text().partition("\nlocal ")
    assert "@include" not in after
    assert len(re.findall("@include", before)) == len(
        re.findall(r"^-- @include \w+$", before, re.MULTILINE)
    )


@pytest.mark.parametrize(
    "path", [path for path in FILES if path not in PARTS], ids=lambda path: path.stem
)
def test_script_file_opens_with_its_contract(path):
    header = re.match(r"(?:--.*\n)+", path.read_text())[0]
    fields = re.findall(r"^-- ([A-Z]\w+): ", header, re.MULTILINE)

    assert not header.startswith(("-- KEYS", "-- @"))
    assert tuple(fields) == FIELDS


def test_names_of_nowhere_are_noticed():
    text = "local function f(a)\n  return g(a) + b\nend\nlocal t = {zset = a}\nreturn f(c)\n"

    assert unknown_names(text) == {"g", "b", "c"}


def test_scripts_and_clients_mark_ids_of_messages_with_headers_alike():
    mark = f"local HEADERS_MARK = '{HEADERS_MARK.decode()}'\n"

    assert mark in (FOLDER / "shared" / "_headers.lua").read_text()
    assert len(HEADERS_MARK) == 2  # scripts compare two characters


def test_names_are_unique_across_folders():
    names = [path.stem for path in FILES]

    assert len(names) == len(set(names))
    assert set(scripts.names()) == {path.stem for path in FILES if path not in PARTS}


def test_every_part_is_included_somewhere():
    included = set(re.findall(r"@include (\w+)", "".join(path.read_text() for path in FILES)))

    assert included == {path.stem[1:] for path in PARTS}


@pytest.fixture
def texts(monkeypatch):
    """Texts that the loader reads instead of files."""
    known = {}
    monkeypatch.setattr(scripts, "_read", known.__getitem__)
    return known


def test_part_is_emitted_once_however_often_it_is_included(texts):
    texts["one"] = "-- @include a\n-- @include b\n-- @include a\nreturn a() + b()\n"
    texts["_a"] = "local function a() return 1 end\n"
    texts["_b"] = "-- @include a\nlocal function b() return a() end\n"

    assert scripts._expand("one", set(), ()) == (
        "local function a() return 1 end\nlocal function b() return a() end\nreturn a() + b()\n"
    )


@pytest.mark.parametrize("inner", ["a", "b"])
def test_circular_include_is_an_error(texts, inner):
    texts["one"] = "-- @include a\nreturn 1\n"
    texts["_a"] = f"-- @include {inner}\nlocal A = 1\n"
    texts["_b"] = "-- @include a\nlocal B = 1\n"

    with pytest.raises(RuntimeError, match="circular include of Lua parts: one -> _a -> "):
        scripts._expand("one", set(), ())
