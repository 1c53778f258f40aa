"""Blocks that wait for each other do not each take the whole time that is left."""

from __future__ import annotations

import time
from itertools import pairwise

from attrs import evolve

from privopt.decompose import blocks, split_form
from privopt.decompose.limit import Limit
from privopt.decompose.state import State
from privopt.interfaces import SolveContext


def test_a_limit_counts_down_on_its_own_machine_alone():
    assert Limit.of(None).left() is None
    limit = Limit.of(0.05)
    time.sleep(0.06)
    assert limit.left() == 0.0
    assert evolve(limit, machine=limit.machine + "-other").left() == 0.05


def test_a_block_that_waited_has_less_time(shared_model, monkeypatch):
    """A round of Benders on 500 records ended minutes late: each of its blocks had been given all that was left."""
    form, members = shared_model
    asked = []

    def slow(_token, _piece, _solver, limit):
        asked.append(limit.left())
        time.sleep(0.2)
        return blocks.BlockAnswer(outcome=blocks.Outcome.OPTIMAL)

    monkeypatch.setattr(blocks, "relax_block", slow)
    context = SolveContext(method="benders", solver="highs", deadline=time.monotonic() + 60.0)
    split = split_form(form, members)
    made = blocks.Blocks(split, "highs", context)
    made.relax(State.begin(len(made)))
    assert len(asked) == len(made) > 1
    assert all(later <= earlier - 0.19 for earlier, later in pairwise(asked))
