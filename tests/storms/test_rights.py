"""Workers with few rights on a full server, for a moment."""

from __future__ import annotations

import pytest

from tools.storms import rights


@pytest.mark.timeout(300)
@pytest.mark.parametrize("scene", [rights.by_acl, rights.by_token])
async def test_workers_start_drain_and_dead_letter_with_the_rights_of_a_consumer(scene):
    figures, verdict = await scene(2)

    assert verdict is not None
    verdict.require()
    assert figures["refused for want of memory"] > 0
    assert figures["dead letters"] > 0
