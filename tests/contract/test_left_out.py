"""What the lists of exceptions say is about tests that are there."""

import ast
from pathlib import Path

from . import left_out

TESTS = Path(__file__).parents[1]


def test_every_name_that_is_left_out_is_a_test():
    modules = [
        *TESTS.glob("contract/test_*.py"),
        *TESTS.glob("compat/*.py"),
        *TESTS.glob("doctor/*.py"),
    ]
    found = {
        node.name
        for module in modules
        for node in ast.parse(module.read_text()).body
        if isinstance(node, ast.AsyncFunctionDef | ast.FunctionDef)
    }
    named = [
        n
        for which in (left_out.CLUSTER, left_out.BROKER)
        for names in which.values()
        for n in names
    ]

    assert sorted({*named, *left_out.LONG} - found) == []
    assert len(named) == len(set(named)), "a test is left out in one place"


def test_few_are_left_out_on_a_cluster():
    assert sum(len(names) for names in left_out.CLUSTER.values()) <= 5


def test_few_are_left_out_through_a_broker():
    assert sum(len(names) for names in left_out.BROKER.values()) <= 5
