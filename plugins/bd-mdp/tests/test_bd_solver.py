"""Benders, from each of its starts, against column generation and the whole model."""

from __future__ import annotations

import time

import numpy as np
import pytest
from attrs import evolve
from helpers.grids import often
from hypothesis import given, settings
from hypothesis import strategies as st

from bd_mdp_paper.sources import gaussian
from privopt.backends import get
from privopt.decompose.split import cut_of, split_form
from privopt.errors import SolverError
from privopt.execution import memory
from privopt.execution.clock import limit
from privopt.search.incumbent import Incumbent
from privopt_bd_mdp.model import PMO, PathRows
from privopt_bd_mdp.partition import make_partition
from privopt_bd_mdp.partitioners import Records, partition
from privopt_bd_mdp.problem import PARTITIONS, Decomposition
from privopt_bd_mdp.solver import Parts, decompose, partition_of
from privopt_metric_dp.solvers import interior_point, solve
from privopt_metric_dp.solvers.auto import InDoubles, search
from privopt_metric_dp.solvers.column_generation import ColumnGeneration
from privopt_metric_dp.solvers.instance import dual_bound


def check(instance, options, context, optimum):
    solution = decompose(instance, options, context)
    assert solution.status == "optimal"
    assert optimum - 1e-7 <= solution.objective <= optimum / (1 - context.gap) + 1e-7  # the gap is a share of the loss
    assert solution.lower_bound <= optimum + 1e-7
    assert np.allclose(solution.z.sum(axis=1), 1)
    bound, _ = dual_bound(instance, solution.multipliers)
    assert bound >= optimum * (1 - context.gap) - 1e-7
    assert bound <= optimum + 1e-7
    for _, lower, upper in solution.trajectory:
        assert lower <= optimum + 1e-7 <= upper + 2e-7
    return solution


@often("kind", PARTITIONS, ("minimum-boundary", "records"))
def test_classical_benders_from_a_cold_start_closes_small_grids(make_grid, make_context, kind):
    instance = make_grid(2, 6, 1.0)
    optimum = solve(instance, method=ColumnGeneration()).objective
    options = Decomposition(partition=kind, subsets=2, start="cold")
    [part] = check(instance, options, make_context(), optimum).details["parts"]
    assert part["rounds"] > 0
    assert 0 < part["boundary"] <= part["boundary_both_sides"]


@settings(max_examples=6)
@given(
    rows=st.integers(1, 3),
    cols=st.integers(2, 4),
    epsilon=st.sampled_from([0.3, 0.7, 1.5]),
    seed=st.integers(0, 99),
    kind=st.sampled_from(PARTITIONS),
    subsets=st.integers(1, 3),
    start=st.sampled_from(["auto", "star", "cold"]),
)
def test_full_benders_and_column_generation_agree(
    make_grid, make_context, rows, cols, epsilon, seed, kind, subsets, start
):
    instance = make_grid(rows, cols, epsilon, seed=seed)
    form = PMO.of(instance).form
    full = get("highs").solve(form).objective
    assert get("cbc").solve(form).objective == pytest.approx(full, rel=1e-6)
    assert solve(instance, method=ColumnGeneration()).objective == pytest.approx(full, rel=1e-6)
    options = Decomposition(partition=kind, subsets=subsets, start=start)
    check(instance, options, make_context(gap=2e-2), full)


sizes = st.tuples(st.integers(2, 8), st.integers(5, 8))
larger = {
    "size": sizes,
    "outputs": st.integers(2, 8),
    "epsilon": st.sampled_from([0.3, 0.7, 1.5, 3.0]),
    "seed": st.integers(0, 99),
    "kind": st.sampled_from(PARTITIONS),
    "start": st.sampled_from(["auto", "star", "cold"]),
}


def every_way_agrees(make_grid, make_context, size, outputs, epsilon, seed, kind, start):
    whole = make_grid(*size, epsilon, seed=seed)
    instance = evolve(whole, cost=whole.cost[:, np.random.default_rng(seed).permutation(whole.outputs)[:outputs]])
    form = PMO.of(instance).form
    full = get("highs").solve(form).objective
    assert get("cbc").solve(form).objective == pytest.approx(full, rel=1e-6)
    assert solve(instance, method=ColumnGeneration()).objective == pytest.approx(full, rel=1e-6)
    options = Decomposition(partition=kind, subsets=4, start=start)
    check(instance, options, make_context(), full)


@settings(max_examples=4)
@given(**larger)
def test_every_way_agrees_on_up_to_64_records(make_grid, make_context, **drawn):
    every_way_agrees(make_grid, make_context, **drawn)


@pytest.mark.slow
@settings(max_examples=10)  # forty took 25 minutes
@given(**{**larger, "outputs": st.integers(2, 64)})
def test_every_way_agrees_on_up_to_64_records_and_outputs(make_grid, make_context, **drawn):
    every_way_agrees(make_grid, make_context, **drawn)


def test_the_printed_cut_counts_the_boundary_twice_and_cuts_off_the_optimum(make_grid):
    """Equation (15) and the cut below it add c_Y z_Y, which the master's objective has already."""
    instance = make_grid(2, 5, 1.0)
    form = PMO.of(instance).form
    made = partition_of(instance, Decomposition(partition="minimum-boundary"), 2)
    split = split_form(form, [PMO.of(instance).columns_of(members) for members in made.members()])
    whole = get("highs").solve(form)
    z, boundary_cost = whole.x[split.outer], float(split.outer_form.c @ whole.x[split.outer])
    assert boundary_cost > 0
    for piece in split.pieces:
        inside = float(piece.form.c @ whole.x[piece.columns])
        cut = cut_of(piece, whole.duals[piece.rows] * split.scale)
        assert cut.value(z) == pytest.approx(inside, abs=1e-7)
        assert cut.value(z) + boundary_cost > inside + 1e-3


def test_one_end_of_each_crossing_pair_is_boundary_enough(make_grid):
    """The master is smaller than with the paper's Definition 3.2, and the blocks still fall apart."""
    instance = make_grid(10, 20, 1.0)
    made = partition_of(instance, Decomposition(partition="minimum-boundary"), 4)
    assert made.boundary.sum() <= 0.6 * made.border_count
    assert all(
        made.border_count <= partition_of(instance, Decomposition(partition=other), 4).border_count
        for other in PARTITIONS
    )
    inside = instance.pairs[~made.boundary[instance.pairs].any(axis=1)]
    assert (made.block[inside[:, 0]] == made.block[inside[:, 1]]).all()
    assert len(made.count_neighbours(instance.pairs)) == len(made.sizes)


def test_cbc_and_highs_agree_on_64_records(make_grid, make_context):
    instance = make_grid(8, 8, 1.0)
    optimum = solve(instance, method=ColumnGeneration()).objective
    for backend in ("cbc", "highs"):
        check(instance, Decomposition(subsets=4), make_context(solver=backend), optimum)


def test_the_limit_is_honoured_inside_a_pricing_step(make_grid, make_context):
    decompose(make_grid(3, 3, 0.5), Decomposition(), make_context())  # compiles what there is to compile
    instance, spent = make_grid(30, 30, 0.2), time.process_time()
    context = make_context(gap=1e-9)
    with limit(600.0):
        offers = Incumbent(InDoubles(instance), 1e-9)
        with limit(0.3) as scope:
            search(instance, offers, lambda: 1e12, Parts(instance, Decomposition(), context))
        assert scope.expired
        while offers.certify() or offers.prove():
            pass
    assert time.process_time() - spent < 60
    assert offers.best_proved.bound < offers.best_certified.value
    assert np.allclose(offers.best_certified.release.sum(axis=1), 1)


def test_where_the_star_is_no_mechanism_the_interior_point_begins_at_once(make_context):
    found = decompose(gaussian(60).instance(0.5), Decomposition(), make_context(gap=1e-4))
    assert found.status == "optimal"
    assert "interior-point" in found.details["path"]
    assert "column-generation" not in found.details["path"]


def test_where_columns_do_not_help_the_interior_point_begins(make_grid, make_context):
    instance = make_grid(8, 8, 1.0)
    optimum = solve(instance, method=ColumnGeneration()).objective
    found = check(instance, Decomposition(), make_context(gap=1e-4), optimum)
    assert "column-generation (a round left more than 0.5 of the gap), interior-point" in found.details["path"]


def test_where_the_interior_point_breaks_down_rounds_begin(make_context, monkeypatch):
    instance = gaussian(30).instance(0.5)
    optimum = solve(instance, method=ColumnGeneration()).objective

    def fails(*_arguments, **_keywords):
        raise SolverError("broken down")

    monkeypatch.setattr(interior_point, "_iterate", fails)
    failed = check(instance, Decomposition(), make_context(gap=1e-2), optimum)
    assert "interior-point (broken down), benders" in failed.details["path"]


def test_an_interior_point_that_does_not_fit_is_not_begun(make_context, monkeypatch):
    monkeypatch.setattr(interior_point.InteriorPoint, "peak_bytes", lambda *_given: 1e9)
    room = max(memory.resident(), memory.PROGRAM_BYTES) + 5e8
    found = decompose(gaussian(60).instance(0.5), Decomposition(), make_context(gap=0.5, memory=room))
    assert "interior-point (needs 1 GB of " in found.details["path"]


def test_an_interrupt_of_the_interior_point_leaves_its_mechanism(make_context):
    instance = gaussian(60).instance(0.5)
    optimum = solve(instance, method=ColumnGeneration()).objective
    seen = []

    def stop(phase, iteration, lower, upper):
        seen.append(phase)
        if seen.count("interior-point") == 4:
            raise KeyboardInterrupt

    found = decompose(instance, Decomposition(), make_context(gap=1e-6, progress=stop))
    assert found.status == "stopped"
    assert found.lower_bound - 1e-7 <= optimum <= found.objective + 1e-7
    assert np.allclose(found.z.sum(axis=1), 1)


def test_what_is_not_connected_is_solved_apart(make_grid, make_context):
    one = make_grid(2, 3, 1.0)
    instance = type(one)(
        cost=np.kron(np.eye(2), one.cost) + np.kron(1 - np.eye(2), np.full(one.cost.shape, 5.0)) / 6,
        pairs=np.concatenate([one.pairs, one.pairs + 6]),
        distances=np.tile(one.distances, 2),
        epsilon=1.0,
    )
    optimum = 2 * solve(one, method=ColumnGeneration()).objective
    options = Decomposition(subsets=4, start="cold", partition="minimum-boundary")
    assert len(check(instance, options, make_context(), optimum).details["parts"]) == 2


def test_path_rows_are_proved_by_the_rows_along_the_path(make_grid):
    instance = make_grid(2, 5, 0.8, within=1.0)
    pmo = PMO.of(instance)
    made = make_partition([0, 0, 1, 1, 2] * 2, instance.pairs)
    rng = np.random.default_rng(0)
    z = rng.uniform(size=(int(made.boundary.sum()), instance.outputs))
    rows = PathRows(pmo, made)(z.ravel())
    assert rows is not None
    outer = pmo.columns_of(np.flatnonzero(made.boundary))
    combined = -(rows.proof @ pmo.form.A).toarray()
    wide = np.zeros((len(rows), pmo.form.shape[1]))
    wide[:, outer] = rows.matrix.toarray()
    assert (rows.proof.toarray() <= 0).all()
    assert np.allclose(combined, wide, atol=1e-12)
    assert (rows.matrix @ z.ravel() > 0).all()


@pytest.mark.parametrize("kind", PARTITIONS)
def test_partitions_are_a_function_of_the_problem(make_grid, kind):
    instance = make_grid(6, 6, 1.0)
    records = Records(edges=instance.pairs, lengths=instance.distances, count=36, coordinates=instance.coordinates)
    labels = partition(kind, records, 4)
    assert labels.shape == (36,)
    assert (partition(kind, records, 4) == labels).all()
    assert 1 < len(np.unique(labels)) <= 4
    assert len(np.unique(partition(kind, records, 99))) <= 36
