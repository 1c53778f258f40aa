"""Benders against the whole model, solved by HiGHS: optima, bounds, infeasible and unbounded models."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.backends import Outcome, get
from privopt.decompose import blocks
from privopt.decompose.benders import Benders, Start
from privopt.decompose.block import solve_block
from privopt.dsl.form import StandardForm
from privopt.errors import InfeasibleError, ModelError, StoppedError, UnboundedError, UsageError
from privopt.execution.clock import Clock, clock
from privopt.interfaces import SolveContext

TOLERANCE = 1e-6


def context(**options):
    return SolveContext(method="benders", solver="highs", gap=options.pop("gap", 1e-7), **options)


def solve_both_ways(form, blocks, **options):
    """Solve both ways; the result of the decomposition where there is an optimum."""
    full_result = get("highs").solve(form)
    decomposer = Benders(rounds=400, **options)
    if full_result.outcome is Outcome.INFEASIBLE:
        with pytest.raises(InfeasibleError):
            decomposer.solve(form, blocks, context())
        return None
    if full_result.outcome is Outcome.UNBOUNDED:
        with pytest.raises(UnboundedError):
            decomposer.solve(form, blocks, context())
        return None
    result = decomposer.solve(form, blocks, context())
    size = 1 + abs(full_result.objective)
    # an optimum of exactly 0 leaves rounding, which no relative gap takes for nothing
    assert result.status == "optimal" or abs(result.objective - result.bound) <= 1e-12
    assert abs(result.objective - full_result.objective) <= TOLERANCE * size
    for _, lower, upper in result.trajectory:
        assert lower <= full_result.objective + TOLERANCE * size
        assert upper >= full_result.objective - TOLERANCE * size
        assert lower <= upper
    activity = form.A @ result.x
    assert (activity >= form.row_lower - TOLERANCE * size).all()
    assert (activity <= form.row_upper + TOLERANCE * size).all()
    return result


@settings(max_examples=20)
@given(seed=st.integers(0, 10**6))
def test_random_models_match_the_full_model(random_block_model, seed):
    solve_both_ways(*random_block_model(seed))


@pytest.mark.parametrize("seed", [1, 2, 9, 12])
def test_elastic_blocks_of_cbc_match_too(random_block_model, seed):
    solve_both_ways(*random_block_model(seed), solver="cbc")


def test_returned_multipliers_prove_the_bound(shared_model):
    from privopt.dsl.condition import dual_bound

    form, blocks = shared_model
    result = Benders().solve(form, blocks, context())
    assert dual_bound(form, result.duals) == pytest.approx(result.bound, abs=1e-9)


def test_gap_that_is_reached_in_the_last_round_is_optimal(shared_model):
    form, blocks = shared_model
    rounds = Benders().solve(form, blocks, context()).rounds
    assert rounds > 1
    result = Benders(rounds=rounds).solve(form, blocks, context())
    assert (result.status, result.rounds) == ("optimal", rounds)
    assert Benders(rounds=rounds - 1).solve(form, blocks, context()).status == "feasible"


def test_optimal_start_needs_no_round(shared_model):
    form, blocks = shared_model
    full_result = get("highs").solve(form)
    start = Start(x=full_result.x, multipliers=[full_result.duals])
    result = Benders().solve(form, blocks, context(), start=start)
    assert result.status == "optimal"
    assert result.rounds == 0


def test_wrong_multipliers_do_no_harm(shared_model):
    form, blocks = shared_model
    full_result = get("highs").solve(form)
    noise = np.random.default_rng(0).normal(size=form.shape[0])
    result = Benders().solve(
        form, blocks, context(), start=Start(multipliers=[noise, -full_result.duals, 3 * full_result.duals])
    )
    assert result.objective == pytest.approx(full_result.objective, rel=TOLERANCE)
    assert result.bound <= full_result.objective + TOLERANCE


def test_hook_may_offer_points_and_multipliers(shared_model):
    form, blocks = shared_model
    full_result = get("highs").solve(form)
    offers_seen = []

    def hook(duals, x):
        offers_seen.append((duals, x))
        return Start(x=full_result.x, multipliers=[full_result.duals]) if len(offers_seen) == 3 else None

    result = Benders().solve(form, blocks, context(gap=1e-9), improve=hook)
    assert result.status == "optimal"
    assert len(offers_seen) == 3


def test_refuses_infeasible_start(shared_model):
    form, blocks = shared_model
    with pytest.raises(UsageError, match="misses row"):
        Benders().solve(form, blocks, context(), start=Start(x=np.zeros(form.shape[1])))


def test_names_a_row_that_joins_two_blocks():
    form = StandardForm(
        c=[1, 1, 1],
        A=[[1, 1, 0]],
        row_lower=[1],
        row_upper=[2],
        col_lower=[0] * 3,
        col_upper=[1] * 3,
        integrality=[0] * 3,
    )
    with pytest.raises(ModelError, match=r"row 0.*0 and 1"):
        Benders().solve(form, [[0], [1]], context())
    with pytest.raises(ModelError, match="two blocks"):
        Benders().solve(form, [[0], [0]], context())


def test_refuses_integer_columns():
    form = StandardForm(
        c=[1, 1], A=[[1, 1]], row_lower=[1], row_upper=[2], col_lower=[0, 0], col_upper=[1, 1], integrality=[1, 0]
    )
    with pytest.raises(ModelError, match="integer"):
        Benders().solve(form, [[1]], context())


def test_names_the_column_that_is_outside():
    form = StandardForm(
        c=[1, 1], A=[[1, 1]], row_lower=[1], row_upper=[2], col_lower=[0, 0], col_upper=[1, 1], integrality=[0, 0]
    )
    with pytest.raises(ModelError, match="names column -1 of 2"):
        Benders().solve(form, [[1, -1]], context())


@pytest.mark.parametrize("solver", ["highs", "cbc"])
@pytest.mark.parametrize(("row_lower", "col_upper"), [([2, 2], [9, 2, 1]), ([2, 0], [9, -1, 1]), ([11, 0], [9, 2, 1])])
def test_crossed_bounds_have_no_solution(solver, row_lower, col_upper):
    form = StandardForm(
        c=[1, 2, 1],
        A=[[1, 1, 0], [0, 1, 1]],
        row_lower=row_lower,
        row_upper=[10, 1],
        col_lower=[0, 0, 0],
        col_upper=col_upper,
        integrality=[0, 0, 0],
    )
    with pytest.raises(InfeasibleError):
        Benders(solver=solver).solve(form, [[1, 2]], context())


def test_no_core_point_at_the_query_itself(monkeypatch):
    form = StandardForm(
        c=[-1, 2], A=[[1, 1]], row_lower=[2], row_upper=[9], col_lower=[0, 0], col_upper=[1.5, 9], integrality=[0, 0]
    )
    queries = []

    def record(token, piece, solver, z, core, basis):
        queries.append((z, core))
        return solve_block(token, piece, solver, z, core, basis)

    monkeypatch.setattr(blocks, "solve_block", record)
    result = Benders().solve(form, [[1]], context(), start=Start(x=np.array([1.5, 0.5])))
    assert result.objective == pytest.approx(-0.5)
    assert queries[0][0].tolist() == [1.5]
    assert queries[0][1] is None


def test_accepts_no_complicating_columns():
    form = StandardForm(
        c=[1, 2],
        A=[[1, 0], [0, 1]],
        row_lower=[1, 1],
        row_upper=[2, 2],
        col_lower=[0, 0],
        col_upper=[5, 5],
        integrality=[0, 0],
    )
    assert Benders().solve(form, [[0], [1]], context()).objective == pytest.approx(3.0)


def test_limit_needs_a_feasible_point(shared_model):

    form, blocks = shared_model
    expired_context = context(search_time=Clock(0.0, clock()))
    with pytest.raises(StoppedError):
        Benders().solve(form, blocks, expired_context)
    x = np.full(form.shape[1], 5.0)
    result = Benders().solve(form, blocks, expired_context, start=Start(x=x))
    assert result.status == "stopped"
    assert result.objective == pytest.approx(float(form.c @ x))
    assert result.bound is None or math.isfinite(result.bound)
