"""What the paper prints, beside what is shipped: the reference form, and where it and Algorithm 1 fail."""

from __future__ import annotations

import highspy
import numpy as np
import pytest

from privopt.backends import Outcome, get
from privopt.dsl import Eq, Ge, Index, IndexSet, Le, Model, total
from privopt_photo_censor.album import Album, Task
from privopt_photo_censor.rank import protected_k
from privopt_photo_censor.solver.baselines import greedy, top_1
from privopt_photo_censor.solver.optimal import solve


def mccormick(album, k, constant):
    """Appendix C to the letter: w_j = h_j v_j linearised with one constant T = `big`."""
    d = album.alternates.diff
    photos, places = IndexSet("photos", album.photos), IndexSet("places", len(d))
    i, j = Index("i", photos), Index("j", places)
    m = Model("mccormick")
    z = m.variable("z", photos, kind="binary")
    h = m.variable("h", places, kind="binary")
    v = m.variable("v", places, lower=None)
    w = m.variable("w", places, lower=0.0)
    s = m.param("s", d)
    m.maximize(total(z[i], over=i))
    m.require("lead", Eq(v[j], total(s[j, i] * z[i], over=i)), forall=j)
    m.require("low", Ge(w[j], -constant * h[j]), forall=j)
    m.require("high", Le(w[j], constant * h[j]), forall=j)
    m.require("from below", Ge(w[j], v[j] - constant * (1 - h[j])), forall=j)
    m.require("from above", Le(w[j], v[j] + constant * (1 - h[j])), forall=j)
    m.require("top-k", Ge(total(h[j], over=j), k))
    form = m.compile()
    result = get("highs").solve(form, gap=0.0, time_limit=60.0)
    block = form.variable("z")
    return result, None if result.x is None else result.x[block.start : block.start + album.photos] > 0.5


def algorithm_1(album, turns):
    """As printed: d is never advanced, and the empty deletion set never tried."""
    d = 1
    for _ in range(turns):
        if not d < album.photos:
            return None
        for row in album.alternates.diff:
            order = np.argsort(row)  # ascending S^j - S^t
            if row[order[d:]].sum() > 0:
                is_kept = np.ones(album.photos, dtype=bool)
                is_kept[order[:d]] = False
                return is_kept
    return "never ends"


def test_reference_form_agrees_for_small_t(draw_exposed):
    rng = np.random.default_rng(2)
    for _ in range(5):
        album = draw_exposed(rng, 8, 7, keep_at_least=0)  # the printed form allows deleting all
        k = int(rng.integers(1, 5))
        result, is_kept = mccormick(album, k, float(np.abs(album.alternates.diff).sum()))
        assert result.outcome is Outcome.OPTIMAL
        assert int((~is_kept).sum()) == solve(album, Task(top_k=k)).deleted_count
        assert protected_k(album, is_kept) >= k


def solve_with_huge_t(album, k, constant):
    """Return the rows ``sum_i z_i d_ij >= -T (1 - h_j)`` with one T, given to HiGHS as they are."""
    d = album.alternates.diff
    m, n = d.shape
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("presolve", "off")  # presolve would find the tight T that the rule does not ask for
    z = [solver.addBinary() for _ in range(n)]
    h = [solver.addBinary() for _ in range(m)]
    for j in range(m):
        solver.addConstr(sum(float(d[j, i]) * z[i] for i in range(n)) - constant * h[j] >= -constant)
    solver.addConstr(sum(h) >= k)
    solver.addConstr(sum(z) >= 1)
    solver.maximize(sum(z))
    optimal = solver.getModelStatus() == highspy.HighsModelStatus.kOptimal
    return optimal, np.array(solver.getSolution().col_value)[:n] > 0.5


def test_huge_t_makes_unprotected_sets_optimal():
    rng = np.random.default_rng(11)
    wrong_count = 0
    for _ in range(2):
        scores = np.log(rng.dirichlet(np.full(40, 0.8), 16))
        true = int(rng.integers(40))
        scores[:, true] += 2.5
        album = Album(scores=scores, true=true)
        optimal, is_kept = solve_with_huge_t(album, 4, 1e9)
        correct_plan = solve(album, Task(top_k=4))
        assert correct_plan.protected >= 4
        wrong_count += (
            optimal and protected_k(album, is_kept) < 4 and int((~is_kept).sum()) < correct_plan.deleted_count
        )
    assert wrong_count


def test_algorithm_1_is_wrong_as_printed():
    album = Album(scores=np.array([[-1.0, -4.0, -9.0], [-1.0, -4.0, -9.0], [-1.0, -0.9, -9.0]]), true=0)
    assert algorithm_1(album, 1000) == "never ends"
    assert top_1(album).deleted_count == 2
    hidden = Album(scores=np.array([[-2.0, -1.0], [-2.0, -1.0]]), true=0)
    assert int((~algorithm_1(hidden, 1000)).sum()) == 1
    assert top_1(hidden).deleted_count == 0
    tie = Album(scores=np.array([[-1.0, -3.0], [-2.0, -2.0]]), true=0)
    assert algorithm_1(tie, 1000) == "never ends"  # it wants > 0; (2) counts a tie as protected
    assert top_1(tie).deleted_count == 1


@pytest.mark.parametrize("n", [1, 5, 40])
def test_greedy_deletes_uniform_photos_first(n):
    e = 0.1
    a = (1 / 3 - e) ** 2 * (1 / 3 - 2 * e) / (2 * (1 / 3 + e) ** 2)
    rows = [[1 / 3] * 3] * n
    rows += [[a, 2 / 3 + e - a, 1 / 3 - e], [2 / 3 + e - a, a, 1 / 3 - e], [1 / 3 + e, 1 / 3 + e, 1 / 3 - 2 * e]]
    scores = np.log(rows)
    np.testing.assert_allclose(np.exp(scores).sum(axis=1), 1.0)
    album = Album(scores=scores, true=2)
    assert protected_k(album) == 0
    baseline = greedy(album, Task(top_k=2))
    assert baseline.deleted_count > n
    assert not baseline.retained[:n].any()
    best = solve(album, Task(top_k=2))
    assert best.deleted_count == 2
    assert best.bound == n + 1
    assert sorted(np.flatnonzero(~best.retained).tolist()) == [n, n + 1]
