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
def newton_alone(monkeypatch):
    """Leave Newton's bounds as they are, however few photos stay."""
    monkeypatch.setattr(bounds, "SMOOTH_RATIO", 0)


@pytest.fixture(params=["Newton's bounds", "refined bounds"])
def as_large(request, monkeypatch):
    """Take small albums through all that is meant for large ones."""
    monkeypatch.setattr(bounds, "MANY_PHOTOS", 0)
    if request.param == "Newton's bounds":
        monkeypatch.setattr(bounds, "SMOOTH_RATIO", 0)
    # So few that some photos with positive weights are left out of the refining programs.
    monkeypatch.setattr(bounds, "REFINED_PHOTOS", 2)
    monkeypatch.setattr(bounds, "REFINED_SHARE", 0)
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


def test_newton_bounds_are_those_of_the_linear_program(draw_exposed, newton_alone):
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


def test_newton_respects_fixed_photos(draw_exposed, newton_alone):
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


@pytest.fixture(scope="module")
def few_stay():
    """Return an album of 1,000 photos of which 3 stay: 286 of the 511 other locations are favoured by no photo."""
    rng = np.random.default_rng(1_000)
    places = rng.normal(size=(512, 32))
    shown = places[17] + 1.6 * rng.normal(size=(1_000, 32))
    logits = shown @ places.T / 2.0
    logits -= logits.max(axis=1, keepdims=True)
    return Album(scores=logits - np.log(np.exp(logits).sum(axis=1, keepdims=True)), true=17)


@pytest.mark.parametrize(("top_k", "kept", "most_programs"), [(5, 3, 400), (10, 2, 1_500)])
def test_albums_of_which_few_photos_stay_take_few_programs(top_k, kept, most_programs, few_stay):
    plan = solve(few_stay, Task(top_k=top_k))
    assert plan.proved
    assert plan.retained.sum() == plan.bound == kept
    assert plan.programs <= most_programs


def test_first_bounds_are_tight_where_no_photo_favours_a_location(few_stay):
    incumbent = Incumbent(few_stay, Task(top_k=5))
    first_bounds = [certificate.bound for certificate in Search(few_stay, incumbent)._root.candidates.values()]
    # A linear program with one location has at most one fractional photo.
    assert (np.floor(first_bounds) == incumbent.reach).all()
    assert Search(few_stay, incumbent).make_proof()[0] == incumbent.cap


def test_a_bound_without_time_is_no_larger_than_the_album(few_stay):
    with limit(0.0):
        plan = solve(few_stay, Task(top_k=5))
    assert plan.retained.sum() <= plan.bound <= 15
    assert plan.tree.fault(few_stay, *make_claim(few_stay, Task(top_k=5), plan.bound)) is None


def test_extended_bounds_never_exceed_the_bound_they_extend(draw_exposed):
    rng = np.random.default_rng(23)
    for strength in (0.3, 1.0, 4.0, 30.0):
        album = draw_exposed(rng, 200, 30)
        scores = album.scores.copy()
        scores[:, album.true] += strength
        # Ties within rounding errors have tiny advantages, which call for large multipliers.
        scores[rng.random(200) < 0.2, 3] = scores[:, album.true].mean()
        scores[7, 5] = np.nextafter(scores[7, album.true], -np.inf)
        data = Album(scores=scores, true=album.true).alternates
        must, may = np.zeros(200, dtype=np.bool_), rng.random(200) < 0.9
        must[rng.choice(np.flatnonzero(may), 2, replace=False)] = True
        for photos in (all_photos(album), Photos(must, may)):
            program = Program(data)
            for rows in ([], [3], [2, 8]):
                certificate = program.solve(np.array(rows), photos)[0] if rows else NONE
                others = np.setdiff1d(np.arange(29), rows)
                extended, force = bounds.bound_extensions(data, certificate, others, photos)
                assert (extended <= min(certificate.bound, 200.0) + 1e-6).all()
                for j, bound, multiplier in zip(others.tolist(), extended.tolist(), force.tolist(), strict=True):
                    multipliers = np.append(certificate.force, multiplier)
                    stated = bounds.bound_photos(data, np.append(certificate.rows, j), multipliers, photos)
                    assert bound == pytest.approx(float(stated), abs=1e-6)


def test_bounds_of_few_photos_are_those_of_the_linear_program(few_stay):
    program, photos = Program(few_stay.alternates), all_photos(few_stay)
    reach = Incumbent(few_stay, Task(top_k=5)).reach
    best = np.argsort(-reach, kind="stable")[:12]
    rng = np.random.default_rng(24)
    for size in (2, 3, 5):
        rows = rng.choice(best, size, replace=False)
        start, _, _ = program.solve(rows[:-1], photos)
        exact, _, _ = program.solve(rows, photos)
        # From no multipliers, Newton's method comes first; from those of all but one location, it is left out.
        for beginning in (NONE, start):
            assert program.bound_locations(rows, photos, beginning, 0.0).bound == pytest.approx(exact.bound, abs=1e-6)
        # The multipliers that it started from are returned where they suffice.
        assert program.bound_locations(rows, photos, start, start.bound + 1.0).bound == start.bound
