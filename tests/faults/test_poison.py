"""Real processes that a message kills: it goes to the dead letters alone. Long forms are storms."""

import pytest

from tools.storms import poison

from ..support import poison_worker


@pytest.mark.timeout(120)
async def test_one_poison_among_a_hundred_harms_no_other_message(rsmq, server_url, ns):
    """One worker with all defaults, started again by a supervisor whenever it dies."""
    outcome = await poison.run(server_url, ns, messages=100, poisons=1, processes=1, seed=1)

    assert outcome.dead == {"poison 0": poison_worker.MAX_RECEIVES}
    assert len(outcome.done) == 99
    assert outcome.deaths == poison_worker.MAX_RECEIVES
    assert all(r.startswith("received 3 times without being settled") for r in outcome.reasons)


@pytest.mark.timeout(180)
async def test_three_poisons_and_several_processes_harm_no_other_message(rsmq, server_url, ns):
    outcome = await poison.run(server_url, ns, messages=500, poisons=3, processes=4, seed=2)

    assert outcome.innocent == []
    assert sorted(outcome.dead) == ["poison 0", "poison 1", "poison 2"]
    assert len(outcome.done) == 497
