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
from privopt.execution import resources
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
def test_classical_benders_closes_small_grids(make_grid, make_context, kind):
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
def test_full_benders_and_columns_agree(make_grid, make_context, rows, cols, epsilon, seed, kind, subsets, start):
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


def check_all_methods(make_grid, make_context, size, outputs, epsilon, seed, kind, start):
    grid = make_grid(*size, epsilon, seed=seed)
    instance = evolve(grid, cost=grid.cost[:, np.random.default_rng(seed).permutation(grid.outputs)[:outputs]])
    form = PMO.of(instance).form
    full = get("highs").solve(form).objective
    assert get("cbc").solve(form).objective == pytest.approx(full, rel=1e-6)
    assert solve(instance, method=ColumnGeneration()).objective == pytest.approx(full, rel=1e-6)
    options = Decomposition(partition=kind, subsets=4, start=start)
    check(instance, options, make_context(), full)


@settings(max_examples=4)
@given(**larger)
def test_methods_agree_up_to_64_records(make_grid, make_context, **drawn):
    check_all_methods(make_grid, make_context, **drawn)


@pytest.mark.slow
@settings(max_examples=10)  # forty took 25 minutes
@given(**{**larger, "outputs": st.integers(2, 64)})
def test_methods_agree_up_to_64_records_and_outputs(make_grid, make_context, **drawn):
    check_all_methods(make_grid, make_context, **drawn)


def test_printed_cut_cuts_off_the_optimum(make_grid):
    """Equation (15) and the cut below it add c_Y z_Y, which the master's objective has already."""
    instance = make_grid(2, 5, 1.0)
    form = PMO.of(instance).form
    partition = partition_of(instance, Decomposition(partition="minimum-boundary"), 2)
    split = split_form(form, [PMO.of(instance).columns_of(members) for members in partition.members()])
    solution = get("highs").solve(form)
    z, boundary_cost = solution.x[split.outer], float(split.outer_form.c @ solution.x[split.outer])
    assert boundary_cost > 0
    for piece in split.pieces:
        block_cost = float(piece.form.c @ solution.x[piece.columns])
        cut = cut_of(piece, solution.duals[piece.rows] * split.scale)
        assert cut.value(z) == pytest.approx(block_cost, abs=1e-7)
        assert cut.value(z) + boundary_cost > block_cost + 1e-3


def test_one_end_of_crossing_pairs_suffices(make_grid):
    """The master is smaller than with the paper's Definition 3.2, and the blocks still fall apart."""
    instance = make_grid(10, 20, 1.0)
    partition = partition_of(instance, Decomposition(partition="minimum-boundary"), 4)
    assert partition.boundary.sum() <= 0.6 * partition.border_count
    assert all(
        partition.border_count <= partition_of(instance, Decomposition(partition=partition_name), 4).border_count
        for partition_name in PARTITIONS
    )
    internal_pairs = instance.pairs[~partition.boundary[instance.pairs].any(axis=1)]
    assert (partition.block[internal_pairs[:, 0]] == partition.block[internal_pairs[:, 1]]).all()
    assert len(partition.count_neighbours(instance.pairs)) == len(partition.sizes)


def test_cbc_and_highs_agree_on_64_records(make_grid, make_context):
    instance = make_grid(8, 8, 1.0)
    optimum = solve(instance, method=ColumnGeneration()).objective
    for backend in ("cbc", "highs"):
        check(instance, Decomposition(subsets=4), make_context(solver=backend), optimum)


def test_pricing_step_honours_the_limit(make_grid, make_context):
    decompose(make_grid(3, 3, 0.5), Decomposition(), make_context())  # compiles what there is to compile
    instance, start_seconds = make_grid(30, 30, 0.2), time.process_time()
    context = make_context(gap=1e-9)
    with limit(600.0):
        offers = Incumbent(InDoubles(instance), 1e-9)
        with limit(0.3) as scope:
            search(instance, offers, lambda: 1e12, Parts(instance, Decomposition(), context))
        assert scope.expired
        while offers.certify() or offers.prove():
            pass
    assert time.process_time() - start_seconds < 60
    assert offers.best_proved.bound < offers.best_certified.value
    assert np.allclose(offers.best_certified.release.sum(axis=1), 1)


def test_interior_point_replaces_invalid_star(make_context):
    result = decompose(gaussian(60).instance(0.5), Decomposition(), make_context(gap=1e-4))
    assert result.status == "optimal"
    assert "interior-point" in result.details["path"]
    assert "column-generation" not in result.details["path"]


def test_interior_point_follows_slow_columns(make_grid, make_context):
    instance = make_grid(8, 8, 1.0)
    optimum = solve(instance, method=ColumnGeneration()).objective
    result = check(instance, Decomposition(), make_context(gap=1e-4), optimum)
    assert "of the gap open), interior-point" in result.details["path"]


def test_benders_follows_failed_interior_point(make_context, monkeypatch):
    instance = gaussian(30).instance(0.5)
    optimum = solve(instance, method=ColumnGeneration()).objective

    def fails(*_arguments, **_keywords):
        raise SolverError("broken down")

    monkeypatch.setattr(interior_point, "_iterate", fails)
    result = check(instance, Decomposition(), make_context(gap=1e-2), optimum)
    assert "(broken down), benders" in result.details["path"]


def test_skips_interior_point_that_does_not_fit(make_context, monkeypatch):
    monkeypatch.setattr(interior_point.InteriorPoint, "peak_bytes", lambda *_given: 1e9)
    memory_limit = max(resources.resident(), resources.PROGRAM_BYTES) + 5e8
    result = decompose(gaussian(60).instance(0.5), Decomposition(), make_context(gap=0.5, memory=memory_limit))
    assert "interior-point (needs 1 GB" in result.details["path"]


def test_interrupted_interior_point_keeps_mechanism(make_context):
    instance = gaussian(60).instance(0.5)
    optimum = solve(instance, method=ColumnGeneration()).objective
    phases = []

    def stop(phase, iteration, lower, upper):
        phases.append(phase)
        if phase == "interior-point" and phases.count(phase) == 4:
            raise KeyboardInterrupt

    result = decompose(instance, Decomposition(), make_context(gap=1e-6, progress=stop))
    assert result.status == "stopped"
    assert result.lower_bound - 1e-7 <= optimum <= result.objective + 1e-7
    assert np.allclose(result.z.sum(axis=1), 1)


def test_solves_unconnected_parts_separately(make_grid, make_context):
    grid = make_grid(2, 3, 1.0)
    instance = type(grid)(
        cost=np.kron(np.eye(2), grid.cost) + np.kron(1 - np.eye(2), np.full(grid.cost.shape, 5.0)) / 6,
        pairs=np.concatenate([grid.pairs, grid.pairs + 6]),
        distances=np.tile(grid.distances, 2),
        epsilon=1.0,
    )
    optimum = 2 * solve(grid, method=ColumnGeneration()).objective
    options = Decomposition(subsets=4, start="cold", partition="minimum-boundary")
    assert len(check(instance, options, make_context(), optimum).details["parts"]) == 2


def test_rows_along_path_prove_path_rows(make_grid):
    instance = make_grid(2, 5, 0.8, max_distance=1.0)
    pmo = PMO.of(instance)
    partition = make_partition([0, 0, 1, 1, 2] * 2, instance.pairs)
    rng = np.random.default_rng(0)
    z = rng.uniform(size=(int(partition.boundary.sum()), instance.outputs))
    rows = PathRows(pmo, partition)(z.ravel())
    assert rows is not None
    outer = pmo.columns_of(np.flatnonzero(partition.boundary))
    combined = -(rows.proof @ pmo.form.A).toarray()
    padded_rows = np.zeros((len(rows), pmo.form.shape[1]))
    padded_rows[:, outer] = rows.matrix.toarray()
    assert (rows.proof.toarray() <= 0).all()
    assert np.allclose(combined, padded_rows, atol=1e-12)
    assert (rows.matrix @ z.ravel() > 0).all()


@pytest.mark.parametrize("kind", PARTITIONS)
def test_partitions_depend_only_on_the_problem(make_grid, kind):
    instance = make_grid(6, 6, 1.0)
    records = Records(edges=instance.pairs, lengths=instance.distances, count=36, coordinates=instance.coordinates)
    labels = partition(kind, records, 4)
    assert labels.shape == (36,)
    assert (partition(kind, records, 4) == labels).all()
    assert 1 < len(np.unique(labels)) <= 4
    assert len(np.unique(partition(kind, records, 99))) <= 36
