"""Newton's method, cores and weaker bounds, which large albums need, on small albums by brute force."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from privopt.errors import InfeasibleError
from privopt.execution.clock import limit
from privopt_photo_censor.album import Album, Task
from privopt_photo_censor.rank import protected_k
from privopt_photo_censor.solver import bounds, optimal, search
from privopt_photo_censor.solver.bounds import Photos, Program
from privopt_photo_censor.solver.descent import minimise_bound
from privopt_photo_censor.solver.incumbent import Incumbent
from privopt_photo_censor.solver.optimal import prove_weaker_bounds, solve
from privopt_photo_censor.solver.proof import make_claim
from privopt_photo_censor.solver.rounding import round_core
from privopt_photo_censor.solver.search import NONE, Search


def all_photos(album):
    return Photos(album.keep, np.ones(album.photos, dtype=np.bool_))


@pytest.fixture
def as_large(monkeypatch):
    """Take small albums through all that is meant for large ones."""
    monkeypatch.setattr(bounds, "MANY_PHOTOS", 0)
    monkeypatch.setattr(optimal, "FIRST_WORK", 0)
    monkeypatch.setattr(search, "CORE_WORK", 0)


@pytest.mark.parametrize("by_photos", [True, False])
def test_matches_brute_force(by_photos, as_large, draw_album, truth, monkeypatch):
    monkeypatch.setattr(Search, "_fewer_photos", lambda search: by_photos)
    rng = np.random.default_rng([15, by_photos])
    for _ in range(60):
        exact = truth(draw_album(rng, 8))
        album = exact.album
        for task in (
            Task(top_k=int(rng.integers(1, album.locations))),
            Task(budget=int(rng.integers(album.photos + 1))),
        ):
            expected = exact.best(task)
            try:
                plan = solve(album, task)
            except InfeasibleError:
                assert expected is None
                continue
            assert plan.proved
            assert plan.protected == exact.of_set(plan.retained)
            assert plan.retained[album.keep].all()
            assert (plan.deleted_count if task.budget is None else plan.protected) == expected
            assert plan.bound == (plan.retained.sum() if task.budget is None else expected)
            assert plan.tree.fault(album, *make_claim(album, task, plan.bound)) is None


def test_newton_bounds_are_those_of_the_linear_program(draw_exposed):
    album = draw_exposed(np.random.default_rng(16), 1500, 40)
    program, photos = Program(album.alternates), all_photos(album)
    rng = np.random.default_rng(17)
    for size in (1, 2, 5, 10):
        rows = rng.choice(39, size, replace=False)
        exact, _, _ = program.solve(rows, photos)
        near = program.bound_locations(rows, photos, NONE, 0.0)
        assert exact.bound - 1e-6 <= near.bound <= exact.bound * (1.0 + 1e-4)
        assert (near.force >= 0.0).all()


@pytest.mark.parametrize("enough", [0.0, 1.0])
def test_newton_without_photos_keeps_its_start(enough):
    start = np.array([1.0, 2.0])
    assert np.array_equal(minimise_bound(np.zeros((2, 0)), np.zeros(0, dtype=bool), start, enough), start)


def test_newton_respects_fixed_photos(draw_exposed):
    album = draw_exposed(np.random.default_rng(18), 1200, 20)
    program = Program(album.alternates)
    must, may = np.zeros(1200, dtype=np.bool_), np.ones(1200, dtype=np.bool_)
    must[:30], may[30:400] = True, False
    rows = np.array([2, 5, 11])
    exact, _, _ = program.solve(rows, Photos(must, may))
    near = program.bound_locations(rows, Photos(must, may), NONE, 0.0)
    assert exact.bound - 1e-6 <= near.bound <= exact.bound * (1.0 + 1e-4)


def test_cores_are_rounded_to_the_best_photos():
    rng = np.random.default_rng(19)
    for _ in range(40):
        scores = rng.normal(0, 1, (10, 5))
        scores[:, 0] += 0.7
        album = Album(scores=scores, true=0)
        data, rows, photos = album.alternates, np.array([0, 2]), all_photos(album)
        best = 0
        for bits in itertools.product((False, True), repeat=10):
            sums = data.diff[rows][:, np.array(bits)].sum(axis=1)
            best = max(best, sum(bits) if (sums >= 1e-6).all() else 0)
        certificate, values, _ = Program(data).solve(rows, photos)
        weights = 1.0 + certificate.force @ data.diff[rows]
        # With 10 photos the core is the whole album.
        if best:
            retained = round_core(data, rows, weights, values, photos, (1, 10))
            assert retained.sum() == best
            assert protected_k(album, retained) >= 2
        assert round_core(data, rows, weights, values, photos, (best + 1, 10)) is None


def test_cores_leave_fixed_photos_alone():
    rng = np.random.default_rng(20)
    album = Album(scores=rng.normal(0, 1, (200, 6)), true=0)
    must, may = np.zeros(200, dtype=np.bool_), np.ones(200, dtype=np.bool_)
    must[:5], may[5:12] = True, False
    photos, rows = Photos(must, may), np.array([0, 1])
    certificate, values, _ = Program(album.alternates).solve(rows, photos)
    weights = 1.0 + certificate.force @ album.alternates.diff[rows]
    retained = round_core(album.alternates, rows, weights, values, photos, (1, int(certificate.bound)))
    assert retained[:5].all()
    assert not retained[5:12].any()
    assert retained.sum() <= certificate.bound


@pytest.mark.parametrize("task", [Task(top_k=6), Task(budget=14)])
def test_weaker_bounds_fall_and_are_proved(task, draw_exposed):
    album = draw_exposed(np.random.default_rng(3), 30, 60)
    best = solve(album, task)
    incumbent = Incumbent(album, task)
    incumbent.start()
    proofs = list(prove_weaker_bounds(Search(album, incumbent)))
    stated_bounds = [bound for bound, _ in proofs]
    assert stated_bounds
    assert stated_bounds == sorted(set(stated_bounds), reverse=True)
    for bound, tree in proofs:
        assert bound >= best.bound
        assert tree.fault(album, *make_claim(album, task, bound)) is None
    assert stated_bounds[-1] <= incumbent.value + 1


def test_large_albums_are_proved_and_repeat(draw_exposed):
    album = draw_exposed(np.random.default_rng(21), 1500, 24)
    task = Task(top_k=2)
    first, second = (solve(album, task) for _ in range(2))
    assert first.proved
    assert first.bound == first.retained.sum()
    assert first.tree.fault(album, *make_claim(album, task, first.bound)) is None
    assert (first.retained == second.retained).all()
    assert first.programs == second.programs


def test_large_albums_stop_in_time_with_a_proved_bound(draw_exposed):
    album = draw_exposed(np.random.default_rng(22), 1500, 120)
    task = Task(top_k=40)
    with limit(1.0):
        plan = solve(album, task)
    assert plan.protected >= 40
    assert plan.bound >= plan.retained.sum()
    assert plan.tree.fault(album, *make_claim(album, task, plan.bound)) is None
