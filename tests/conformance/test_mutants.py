"""Every scenario is kept by the reference client and broken by a mutant of it."""

import pytest

from rsmq_conformance.reference import Reference

from .conftest import SCENARIOS, played
from .mutants import MUTANTS

CAUGHT = [(mutant, name) for mutant, kind in MUTANTS.items() for name in kind.caught_by]


@pytest.fixture(scope="module")
def outcomes(kit_url):
    wanted = [(MUTANTS[mutant], SCENARIOS[name]) for mutant, name in CAUGHT]
    return played(kit_url, wanted)


@pytest.mark.parametrize(("mutant", "scenario"), CAUGHT)
def test_scenario_catches_the_mutant(outcomes, mutant, scenario):
    outcome = outcomes[mutant, scenario]

    assert outcome.state == "failed"
    assert outcome.detail.startswith("step ")


def test_no_scenario_is_without_a_mutant_that_it_catches():
    assert {name for _, name in CAUGHT} == set(SCENARIOS)


def test_no_mutant_is_without_a_scenario_that_catches_it():
    assert len(MUTANTS) > 60
    assert [mutant for mutant, kind in MUTANTS.items() if not kind.caught_by] == []


def test_reference_client_keeps_every_rule_and_every_advice(kit_url):
    outcomes = played(kit_url, [(Reference, scenario) for scenario in SCENARIOS.values()])

    assert {name: o.detail for (_, name), o in outcomes.items() if o.state != "passed"} == {}
