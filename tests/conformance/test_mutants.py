"""Every scenario is kept by the reference client and broken by a mutant of it."""

import time

import pytest

from rsmq_conformance.reference import Reference
from rsmq_conformance.scenarios import Scenario

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


def test_scenario_is_begun_again_if_the_machine_was_too_slow_for_it(kit_url):
    class SlowAtFirst(Reference):
        slept = False

        def popMessage(self, qname):
            if not SlowAtFirst.slept:
                SlowAtFirst.slept = True
                time.sleep(1.1)
            return super().popMessage(qname)

    scenario = Scenario.of(
        {
            "name": "hurry",
            "level": "L2",
            "rule": "",
            "harm": "",
            "steps": [
                {"plant": {"queue": "q"}},
                {"role": "sender", "verb": "sendMessage", "call": "sending", "reply": {"is": "any"}}
                | {"args": {"qname": "q", "message": "x", "delay": 1}},
                {"role": "sender", "verb": "popMessage", "args": {"qname": "q"}, "reply": None}
                | {"within": {"of": "sending", "ms": 1000}},
            ],
        }
    )
    (outcome,) = played(kit_url, [(SlowAtFirst, scenario)]).values()

    assert SlowAtFirst.slept
    assert outcome.state == "passed"


def test_reference_client_keeps_every_rule_and_every_advice(kit_url):
    outcomes = played(kit_url, [(Reference, scenario) for scenario in SCENARIOS.values()])

    assert {name: o.detail for (_, name), o in outcomes.items() if o.state != "passed"} == {}
