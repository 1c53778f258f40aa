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
        assert plan.deleted_count <= task.budget


def check_plan(task, truth):
    expected = truth.best(task)
    try:
        plan = solve(truth.album, task)
    except InfeasibleError:
        assert expected is None
        return
    check(plan, task, truth)
    assert plan.proved
    assert not plan.stopped
    assert plan.tree.fault(truth.album, *make_claim(truth.album, task, plan.bound)) is None
    if task.top_k is not None:
        assert plan.deleted_count == expected
        assert plan.bound == plan.retained.sum()
    else:
        assert plan.protected == expected == plan.bound


@first_alone("part", range(10))
def test_matches_brute_force_on_500_albums(part, draw_album, truth):
    rng = np.random.default_rng([12, part])
    for number in range(50):
        exact = truth(draw_album(rng, 12 if number % 5 == 0 else 7))
        for k in range(1, exact.album.locations):
            check_plan(Task(top_k=k), exact)
        for budget in {0, int(rng.integers(exact.album.photos + 1)), exact.album.photos}:
            check_plan(Task(budget=budget), exact)


@pytest.mark.parametrize("by_photos", [True, False])
def test_both_branchings_match_brute_force(by_photos, draw_album, truth, monkeypatch):
    monkeypatch.setattr(Search, "_fewer_photos", lambda search: by_photos)
    rng = np.random.default_rng([13, by_photos])
    for _ in range(40):
        exact = truth(draw_album(rng, 8))
        check_plan(Task(top_k=int(rng.integers(1, exact.album.locations))), exact)
        check_plan(Task(budget=int(rng.integers(exact.album.photos + 1))), exact)


def test_distinguishes_near_ties_exactly(truth, draw_album):
    rng = np.random.default_rng(14)
    for _ in range(60):
        album = draw_album(rng, 6)
        near_scores = album.scores + rng.integers(-2, 3, album.scores.shape) * np.spacing(
            np.where(np.isinf(album.scores), 0, album.scores)
        )
        exact = truth(Album(scores=near_scores, true=album.true, keep=album.keep, keep_at_least=album.keep_at_least))
        check_plan(Task(top_k=int(rng.integers(1, album.locations))), exact)
        check_plan(Task(budget=int(rng.integers(album.photos + 1))), exact)


def test_top_1_is_exact(draw_album, truth):
    rng = np.random.default_rng(5)
    for _ in range(150):
        exact = truth(draw_album(rng, 7))
        expected = exact.best(Task(top_k=1))
        try:
            plan = top_1(exact.album)
        except InfeasibleError:
            assert expected is None
        else:
            check(plan, Task(top_k=1), exact)
            assert plan.deleted_count == expected
    large = Album(scores=rng.normal(0, 1, (250, 512)) + 3.0 * (np.arange(512) == 9), true=9)
    start = time.process_time()
    assert top_1(large).protected >= 1
    assert time.process_time() - start < 60  # trying subsets would take for ever


def test_greedy_is_valid_with_a_true_bound(draw_album, truth):
    rng = np.random.default_rng(6)
    for _ in range(100):
        exact = truth(draw_album(rng, 6))
        album = exact.album
        k, budget = int(rng.integers(1, album.locations)), int(rng.integers(album.photos + 1))
        for task in (Task(top_k=k), Task(budget=budget)):
            expected = exact.best(task)
            try:
                plan = greedy(album, task)
            except InfeasibleError:
                assert expected is None
            except StoppedError:
                assert task.top_k is not None
            else:
                check(plan, task, exact)
                assert expected is not None
                if task.top_k is not None:
                    assert album.photos - plan.bound <= expected <= plan.deleted_count
                else:
                    assert plan.protected <= expected <= plan.bound


def test_deadline_leaves_a_proved_bound(draw_exposed):
    album = draw_exposed(np.random.default_rng(8), 60, 128)
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
def test_interrupted_search_proves_its_bound(task, draw_exposed, monkeypatch):
    album = draw_exposed(np.random.default_rng(3), 30, 60)
    best = solve(album, task)
    run = Program.solve
    for calls in (1, 70, 150, 290):
        remaining_calls = iter(range(calls))

        def run_interrupted(program, rows, photos, remaining=remaining_calls):
            if next(remaining, None) is None:
                raise KeyboardInterrupt
            return run(program, rows, photos)

        monkeypatch.setattr(Program, "solve", run_interrupted)
        plan = solve(album, task)
        assert plan.tree.fault(album, *make_claim(album, task, plan.bound)) is None
        assert plan.bound >= best.bound
        assert plan.stopped == (not plan.proved)


def test_runs_repeat(draw_exposed):
    album = draw_exposed(np.random.default_rng(9), 40, 64)
    first, second = (solve(album, Task(top_k=4)) for _ in range(2))
    assert (first.retained == second.retained).all()
    assert first.programs == second.programs


def test_budget_deletes_no_more_than_needed(draw_exposed):
    album = draw_exposed(np.random.default_rng(10), 18, 12)
    plan = solve(album, Task(budget=9))
    for i in np.flatnonzero(~plan.retained):
        is_kept = plan.retained.copy()
        is_kept[i] = True
        assert protected_k(album, is_kept) < plan.protected


def test_reports_that_every_photo_is_kept(draw_exposed):
    album = draw_exposed(np.random.default_rng(1), 14, keep=np.ones(14, dtype=bool))
    assert protected_k(album) < 9
    with pytest.raises(InfeasibleError, match=r"every photo is"):
        solve(album, Task(top_k=9))


def test_search_stays_within_stated_memory(draw_exposed):
    album = draw_exposed(np.random.default_rng(11), 500, 1200)
    tracemalloc.start()
    try:
        with limit(5.0):
            solve(album, Task(top_k=3))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes <= BYTES_PER_SCORE * album.scores.size
