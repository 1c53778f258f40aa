"""Bounds from multipliers of a model hold whatever was rounded, also for a mechanism outside of metric DP."""

import mpmath
import numpy as np
import pytest

from privopt.dsl import Eq, Index, IndexSet, Le, Model, exp, total
from privopt.dsl.duality import dual_bound, rigorous_bound


def randomised_response(size, epsilon, sense="min"):
    """Return the linear program of the best local DP answer to a question with ``size`` answers."""
    answers = IndexSet("answers", list(range(size)))
    i, j, k = (Index(name, answers) for name in "ijk")
    model = Model("response")
    z = model.variable("z", answers, answers, lower=0)
    level = model.param("e", epsilon)
    cost = model.param("c", (1 - np.eye(size) if sense == "min" else np.eye(size)) / size)
    objective = total(cost[i, k] * z[i, k], over=(i, k))
    (model.minimize if sense == "min" else model.maximize)(objective)
    model.require("mass", Eq(total(z[i, k], over=k), 1), forall=i)
    pairs = np.array([(a, b) for a in range(size) for b in range(size) if a != b])
    model.require("dp", Le(z[i, k], exp(level) * z[j, k]), forall=(i, j, k), where=pairs)
    return model


@pytest.mark.parametrize("sense", ["min", "max"])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0, 20.0])
@pytest.mark.parametrize("size", [2, 5])
def test_bound_is_below_the_closed_form_and_near_it(size, epsilon, sense):
    solution = randomised_response(size, epsilon, sense).solve("highs")
    with mpmath.workdps(60):
        truth = mpmath.exp(mpmath.mpf(epsilon)) / (mpmath.exp(mpmath.mpf(epsilon)) + size - 1)
        optimum = 1 - truth if sense == "min" else truth
        bound = mpmath.mpf(solution.rigorous_bound)
        excess = bound - optimum if sense == "min" else optimum - bound
    assert excess <= 0
    assert excess >= -1e-7


def test_any_multipliers_prove_a_true_bound():
    rng = np.random.default_rng(3)
    solution = randomised_response(4, 1.0).solve("highs")
    optimum = 1 - np.e / (np.e + 3)
    for _ in range(200):
        noise = rng.normal(size=solution.duals.shape) * 10.0 ** rng.uniform(-12, 0)
        bound = rigorous_bound(solution.form, solution.duals + noise)
        assert bound <= optimum
        assert bound <= dual_bound(solution.form, solution.duals + noise)
    assert rigorous_bound(solution.form, np.full_like(solution.duals, np.nan)) == pytest.approx(0.0, abs=1e-300)


def test_exponents_beyond_doubles_prove_nothing_false():
    solution = randomised_response(3, 900.0).solve("highs")
    assert solution.rigorous_bound is None or solution.rigorous_bound <= 0.0


def test_free_column_gets_no_false_bound():
    model = Model("free")
    t = model.variable("t", lower=-np.inf)
    model.minimize(t)
    model.require("least", Le(1.5, t))
    solution = model.solve("highs")
    assert solution.rigorous_bound is None or solution.rigorous_bound <= 1.5
