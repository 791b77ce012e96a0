"""tests/typing has every public member of the main classes, with every argument."""

import ast
import inspect
from pathlib import Path

import pytest

import aiorsmq_ng
from aiorsmq_ng import Message, Queue

PAGE = Path(__file__).parents[1] / "typing" / "members.py"
CHECKED = {
    function.args.args[0].arg: function
    for function in ast.parse(PAGE.read_text()).body
    if isinstance(function, ast.AsyncFunctionDef) and function.name.endswith("_members")
}
CLASSES = {
    "rsmq": aiorsmq_ng.RSMQ,
    "queue": Queue,
    "message": Message,
    "delivery": aiorsmq_ng.Delivery,
    "worker": aiorsmq_ng.Worker,
    "topic": aiorsmq_ng.Topic,
    "subscription": aiorsmq_ng.Subscription,
    "consumer": aiorsmq_ng.Consumer,
    "gateway": aiorsmq_ng.Gateway,
}


def own_members(owner: type) -> list[str]:
    """Return the public members that *owner* defines or redefines."""
    bases = {aiorsmq_ng.Subscription: Queue, aiorsmq_ng.Delivery: Message}
    base = bases.get(owner, object)
    return [
        name
        for name in dir(owner)
        if not name.startswith("_")
        and inspect.getattr_static(owner, name) is not inspect.getattr_static(base, name, None)
    ]


def given_arguments(variable: str, method: str, signature: inspect.Signature) -> set[str]:
    """Return the parameters of a method that its calls in members.py give."""
    found: set[str] = set()
    for node in ast.walk(CHECKED[variable]):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == f"{variable}.{method}":
            names = [n for n in signature.parameters if n != "self"]
            by_place = names[: len(node.args)] if node.args else []
            found |= {*by_place, *(keyword.arg or "" for keyword in node.keywords)}
    return found


@pytest.mark.parametrize("variable", CLASSES)
def test_every_member_and_argument_is_in_the_typing_page(variable):
    owner = CLASSES[variable]
    used = {
        node.attr
        for node in ast.walk(CHECKED[variable])
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == variable
    }
    members = own_members(owner)
    assert [name for name in members if name not in used] == []

    missing = []
    for name in members:
        method = inspect.getattr_static(owner, name)
        if inspect.isfunction(method):
            signature = inspect.signature(method)
            given = given_arguments(variable, name, signature)
            missing += [f"{name}: {p}" for p in signature.parameters if p not in {*given, "self"}]
    assert missing == []
