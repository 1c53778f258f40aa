from __future__ import annotations

import numpy as np
import pytest

from privopt.errors import InfeasibleError
from privopt_photo_censor.optimal import solve
from privopt_photo_censor.scores import Task


def agree(album, task, engine, brute_best, brute_protected):
    want = brute_best(album, task)
    try:
        plan = solve(album, task, engines=[engine])
    except InfeasibleError:
        assert want is None
        return
    kept = tuple(np.flatnonzero(plan.kept).tolist())
    assert plan.protected == brute_protected(album, kept)
    assert plan.kept[album.keep].all()
    assert plan.kept.sum() >= album.keep_at_least
    assert plan.engine
    if task.top_k is not None:
        assert plan.deleted == want
        assert plan.protected >= task.top_k
        assert plan.bound == plan.kept.sum()
    else:
        assert plan.protected == want == plan.bound
        assert plan.deleted <= task.budget


@pytest.mark.parametrize("engine", ["enumeration", "alternates", "photos"])
def test_equals_brute_force(engine, draw_album, brute_best, brute_protected):
    rng = np.random.default_rng([7, len(engine)])
    for _ in range(170):
        album = draw_album(rng)
        for k in range(1, album.locations):
            agree(album, Task(top_k=k), engine, brute_best, brute_protected)
        agree(album, Task(budget=int(rng.integers(album.photos + 1))), engine, brute_best, brute_protected)
