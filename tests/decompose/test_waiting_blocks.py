"""Blocks that wait for each other do not each take the whole time that is left."""

from __future__ import annotations

import time
from itertools import pairwise

from privopt.decompose import blocks, split_form
from privopt.decompose.state import State
from privopt.execution.clock import clock, limit
from privopt.interfaces import SolveContext


def test_a_block_that_waited_has_less_time(shared_model, monkeypatch):
    """A round of Benders on 500 records ended minutes late: each of its blocks had been given all that was left."""
    form, members = shared_model
    asked = []

    def slow(_token, _piece, _solver):
        asked.append(clock().left)
        time.sleep(0.2)
        return blocks.BlockAnswer(outcome=blocks.Outcome.OPTIMAL)

    monkeypatch.setattr(blocks, "relax_block", slow)
    made = blocks.Blocks(split_form(form, members), "highs", SolveContext(method="benders", solver="highs"))
    with limit(60.0):
        made.relax(State.begin(len(made)))
    assert len(asked) == len(made) > 1
    assert all(later <= earlier - 0.19 for earlier, later in pairwise(asked))
