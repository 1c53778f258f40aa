from __future__ import annotations

import time
import tracemalloc

import numpy as np
import pytest
from helpers.grids import first_alone

from privopt.errors import InfeasibleError, StoppedError
from privopt.execution.clock import limit
from privopt_photo_censor.album import Album, Task
from privopt_photo_censor.mechanism import BYTES_PER_SCORE
from privopt_photo_censor.rank import protected_k
from privopt_photo_censor.solver.baselines import greedy, top_1
from privopt_photo_censor.solver.bounds import Program
from privopt_photo_censor.solver.optimal import solve
from privopt_photo_censor.solver.proof import make_claim
from privopt_photo_censor.solver.search import Search


def check(plan, task, truth):
    album = truth.album
    assert plan.protected == truth.of_set(plan.retained)
    assert plan.retained[album.keep].all()
    assert plan.retained.sum() >= album.keep_at_least
    if task.top_k is not None:
        assert plan.protected >= task.top_k
    else:
        assert plan.deleted <= task.budget


def agree(task, truth):
    want = truth.best(task)
    try:
        plan = solve(truth.album, task)
    except InfeasibleError:
        assert want is None
        return
    check(plan, task, truth)
    assert plan.proved
    assert not plan.stopped
    assert plan.tree.fault(truth.album, *make_claim(truth.album, task, plan.bound)) is None
    if task.top_k is not None:
        assert plan.deleted == want
        assert plan.bound == plan.retained.sum()
    else:
        assert plan.protected == want == plan.bound


@first_alone("part", range(10))
def test_equals_brute_force_on_500_albums(part, draw_album, truth):
    rng = np.random.default_rng([12, part])
    for number in range(50):
        exact = truth(draw_album(rng, 12 if number % 5 == 0 else 7))
        for k in range(1, exact.album.locations):
            agree(Task(top_k=k), exact)
        for budget in {0, int(rng.integers(exact.album.photos + 1)), exact.album.photos}:
            agree(Task(budget=budget), exact)


@pytest.mark.parametrize("by_photos", [True, False])
def test_both_ways_to_branch_equal_brute_force(by_photos, draw_album, truth, monkeypatch):
    monkeypatch.setattr(Search, "_fewer_photos", lambda search: by_photos)
    rng = np.random.default_rng([13, by_photos])
    for _ in range(40):
        exact = truth(draw_album(rng, 8))
        agree(Task(top_k=int(rng.integers(1, exact.album.locations))), exact)
        agree(Task(budget=int(rng.integers(exact.album.photos + 1))), exact)


def test_sums_that_miss_a_tie_by_less_than_rounding_are_told_apart(truth, draw_album):
    rng = np.random.default_rng(14)
    for _ in range(60):
        album = draw_album(rng, 6)
        near = album.scores + rng.integers(-2, 3, album.scores.shape) * np.spacing(
            np.where(np.isinf(album.scores), 0, album.scores)
        )
        exact = truth(Album(scores=near, true=album.true, keep=album.keep, keep_at_least=album.keep_at_least))
        agree(Task(top_k=int(rng.integers(1, album.locations))), exact)
        agree(Task(budget=int(rng.integers(album.photos + 1))), exact)


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


def test_a_deadline_leaves_a_true_bound_with_its_proof(exposed):
    album = exposed(np.random.default_rng(8), 60, 128)
    task = Task(top_k=30)
    with limit(0.0):
        plan = solve(album, task)
    assert plan.stopped
    assert plan.protected >= 30
    assert plan.bound > plan.retained.sum()
    assert plan.tree.fault(album, *make_claim(album, task, plan.bound)) is None
    best = solve(album, Task(top_k=5))
    assert best.bound == best.retained.sum()


@pytest.mark.parametrize("task", [Task(top_k=6), Task(budget=14)])
def test_a_search_that_is_interrupted_anywhere_proves_what_it_has(task, exposed, monkeypatch):
    album = exposed(np.random.default_rng(3), 30, 60)
    best = solve(album, task)
    run = Program.solve
    for calls in (1, 70, 150, 290):
        left = iter(range(calls))

        def interrupted(program, rows, photos, left=left):
            if next(left, None) is None:
                raise KeyboardInterrupt
            return run(program, rows, photos)

        monkeypatch.setattr(Program, "solve", interrupted)
        plan = solve(album, task)
        assert plan.tree.fault(album, *make_claim(album, task, plan.bound)) is None
        assert plan.bound >= best.bound
        assert plan.stopped == (not plan.proved)


def test_runs_repeat(exposed):
    album = exposed(np.random.default_rng(9), 40, 64)
    first, second = (solve(album, Task(top_k=4)) for _ in range(2))
    assert (first.retained == second.retained).all()
    assert first.programs == second.programs


def test_a_budget_deletes_no_more_than_it_needs(exposed):
    album = exposed(np.random.default_rng(10), 18, 12)
    plan = solve(album, Task(budget=9))
    for i in np.flatnonzero(~plan.retained):
        kept = plan.retained.copy()
        kept[i] = True
        assert protected_k(album, kept) < plan.protected


def test_every_photo_kept_says_so(exposed):
    album = exposed(np.random.default_rng(1), 14, keep=np.ones(14, dtype=bool))
    assert protected_k(album) < 9
    with pytest.raises(InfeasibleError, match=r"cannot all hold \(every photo is kept"):
        solve(album, Task(top_k=9))


def test_the_search_takes_no_more_memory_than_the_mechanism_says(exposed):
    album = exposed(np.random.default_rng(11), 500, 1200)
    tracemalloc.start()
    try:
        with limit(5.0):
            solve(album, Task(top_k=3))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most <= BYTES_PER_SCORE * album.scores.size
