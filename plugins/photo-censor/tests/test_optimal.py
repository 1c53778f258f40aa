from __future__ import annotations

import time

import numpy as np
import pytest

from privopt.errors import InfeasibleError, StoppedError
from privopt_photo_censor.greedy import greedy
from privopt_photo_censor.optimal import solve
from privopt_photo_censor.rank import protected_k
from privopt_photo_censor.scores import Album, Task
from privopt_photo_censor.top1 import top_1


def check(plan, task, truth):
    album = truth.album
    assert plan.protected == truth.of_set(plan.kept)
    assert plan.kept[album.keep].all()
    assert plan.kept.sum() >= album.keep_at_least
    if task.top_k is not None:
        assert plan.protected >= task.top_k
    else:
        assert plan.deleted <= task.budget


def agree(task, truth, **how):
    want = truth.best(task)
    try:
        plan = solve(truth.album, task, **how)
    except InfeasibleError:
        assert want is None
        return
    check(plan, task, truth)
    assert plan.engine
    assert not plan.stopped
    if task.top_k is not None:
        assert plan.deleted == want
        assert plan.bound == plan.kept.sum()
    else:
        assert plan.protected == want == plan.bound


@pytest.mark.parametrize("part", range(5))
def test_equals_brute_force_on_500_albums(part, draw_album, truth):
    rng = np.random.default_rng([12, part])
    for number in range(100):
        exact = truth(draw_album(rng, 12 if number % 5 == 0 else 7))
        engines = ["alternates", "photos", "enumeration"]
        for k in range(1, exact.album.locations):
            agree(Task(top_k=k), exact, engines=[engines[(number + k) % 3]])
        for budget in {0, int(rng.integers(exact.album.photos + 1)), exact.album.photos}:
            agree(Task(budget=budget), exact, engines=[engines[int(rng.integers(3))]])


@pytest.mark.parametrize("solver", ["cbc", "highs"])
def test_milp_equals_brute_force(solver, draw_album, truth):
    rng = np.random.default_rng(77)
    for _ in range(8):
        exact = truth(draw_album(rng, 6))
        agree(Task(top_k=int(rng.integers(1, exact.album.locations))), exact, engines=["milp"], solver=solver)
        agree(Task(budget=int(rng.integers(exact.album.photos + 1))), exact, engines=["milp"], solver=solver)


def test_backends_and_searches_agree_on_a_larger_album(exposed):
    album = exposed(np.random.default_rng(4), 20, 16)
    for task in (Task(top_k=3), Task(budget=8)):
        plans = [solve(album, task, engines=[e]) for e in ("alternates", "photos")]
        plans += [solve(album, task, engines=["milp"], solver=s) for s in ("cbc", "highs")]
        assert len({plan.deleted if task.top_k else plan.protected for plan in plans}) == 1
        assert all(plan.engine for plan in plans)
        assert plans[3].solver.lower().startswith("highs")


def test_top_1_is_polynomial_and_exact(draw_album, truth):
    rng = np.random.default_rng(5)
    for _ in range(150):
        exact = truth(draw_album(rng, 7))
        want = exact.best(Task(top_k=1))
        try:
            plan = top_1(exact.album)
        except InfeasibleError:
            assert want is None
        else:
            check(plan, Task(top_k=1), exact)
            assert plan.deleted == want
    large = Album(scores=rng.normal(0, 1, (250, 512)) + 3.0 * (np.arange(512) == 9), true=9)
    start = time.process_time()
    assert top_1(large).protected >= 1
    assert time.process_time() - start < 60  # trying subsets would take for ever


def test_greedy_is_valid_and_its_bound_true(draw_album, truth):
    rng = np.random.default_rng(6)
    for _ in range(100):
        exact = truth(draw_album(rng, 6))
        album = exact.album
        k, budget = int(rng.integers(1, album.locations)), int(rng.integers(album.photos + 1))
        for task in (Task(top_k=k), Task(budget=budget)):
            want = exact.best(task)
            try:
                plan = greedy(album, task)
            except InfeasibleError:
                assert want is None
            except StoppedError:
                assert task.top_k is not None
            else:
                check(plan, task, exact)
                assert want is not None
                if task.top_k is not None:
                    assert album.photos - plan.bound <= want <= plan.deleted
                else:
                    assert plan.protected <= want <= plan.bound


@pytest.mark.parametrize("solver", ["alternates", "photos", "milp"])
def test_a_deadline_ends_every_engine_with_a_true_bound(solver, exposed):
    album = exposed(np.random.default_rng(8), 60, 128)
    plan = solve(album, Task(top_k=30), deadline=time.monotonic(), engines=[solver])
    assert plan.stopped
    assert plan.protected >= 30
    assert plan.bound > plan.kept.sum()
    best = solve(album, Task(top_k=5))
    assert best.bound == best.kept.sum()


def test_runs_repeat(exposed):
    album = exposed(np.random.default_rng(9), 40, 64)
    first, second = (solve(album, Task(top_k=4)) for _ in range(2))
    assert (first.kept == second.kept).all()
    assert first.programs == second.programs


def test_a_budget_deletes_no_more_than_it_needs(exposed):
    album = exposed(np.random.default_rng(10), 18, 12)
    plan = solve(album, Task(budget=9))
    for i in np.flatnonzero(~plan.kept):
        kept = plan.kept.copy()
        kept[i] = True
        assert protected_k(album, kept) < plan.protected


def test_every_photo_kept_says_so(exposed):
    album = exposed(np.random.default_rng(1), 14, keep=np.ones(14, dtype=bool))
    assert protected_k(album) < 9
    with pytest.raises(InfeasibleError, match=r"cannot all hold \(every photo is kept"):
        solve(album, Task(top_k=9))
