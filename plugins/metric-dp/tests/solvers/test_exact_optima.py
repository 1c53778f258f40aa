"""Solvers take the memory that they state, and their bounds lie about the exact optimum."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from privopt.run.task import read_problem
from privopt.search.offers import Offers
from privopt_metric_dp.mechanisms.optimal_lp import OptimalLP
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.proof.row_proof import Rows
from privopt_metric_dp.solvers import Instance, interior_point
from privopt_metric_dp.solvers.auto import solve
from privopt_metric_dp.solvers.column_generation import ColumnGeneration
from privopt_metric_dp.solvers.few_outputs import FewOutputs
from privopt_metric_dp.solvers.instance import dual_bound
from privopt_metric_dp.solvers.interior_point import InteriorPoint
from privopt_metric_dp.solvers.solver import Part
from privopt_metric_dp.solvers.star import StarSolver

NUMBERS = [range(8), pytest.param(range(8, 20), marks=pytest.mark.slow)]
GAPS = (5e-2, 1e-2, 2e-3)


def write_random_problem(folder, kind, chance):
    """Return a random problem of one kind, of at most 12 records."""
    epsilon = float(10.0 ** chance.uniform(-0.7, 0.7))
    records, distance, limit_line = 'points = "points.csv"', 'kind = "euclidean"', ""
    if kind == "grids":
        rows, cols = chance.integers(2, 4, 2)
        records = f"grid = {{ rows = {rows}, cols = {cols}, cell_km = {chance.uniform(0.2, 2):.3f} }}"
        limit_line = "neighbours_within = 3.0\n" if chance.random() < 0.5 else ""
    elif kind == "scattered":
        places = chance.random((int(chance.integers(3, 9)), 2))
        rows = "".join(f"{i},{x:.4f},{y:.4f}\n" for i, (x, y) in enumerate(places))
        (folder / "points.csv").write_text("id,x,y\n" + rows)
    else:
        count = int(chance.integers(4, 10 if kind == "streets" else 6))
        road_ends = [(int(chance.integers(j)), j) for j in range(1, count)]
        road_ends += [tuple(chance.choice(count, 2, replace=False).tolist()) for _ in range(2)]
        rows = "".join(f"{a},{b},{chance.integers(1, 30) / 16}\n" for a, b in road_ends)
        (folder / "edges.csv").write_text("from,to,km\n" + rows)
        (folder / "points.csv").write_text("id\n" + "".join(f"{j}\n" for j in range(count)))
        distance = 'kind = "graph"\nedges = "edges.csv"'
        limit_line = "everywhere = true\nsplit_km = 1.5\n" if kind == "everywhere" else ""
    text = f"[records]\n{records}\n[distance]\n{distance}\n[privacy]\nepsilon = {epsilon:.4f}\n{limit_line}"
    (folder / "problem.toml").write_text(f'{text}[utility]\nkind = "distance"\n')
    return folder / "problem.toml"


@pytest.mark.parametrize("kind", ["streets", "grids", "scattered", "everywhere"])
@pytest.mark.parametrize("numbers", NUMBERS, ids=["some", "more"])
def test_bound_and_loss_enclose_the_optimum(monkeypatch, tmp_path, full_optimum, excess, kind, numbers):
    monkeypatch.setattr(interior_point, "FORMED", 0)
    for number in numbers:
        data = MetricInstance.of(
            read_problem(OptimalLP(), write_random_problem(tmp_path, kind, np.random.default_rng(number)))
        ).data
        instance = Instance.of(data)
        optimum = full_optimum(instance)
        for gap in GAPS if number % 5 == 0 else GAPS[1:2]:
            answer = solve(instance, method=InteriorPoint(), gap=gap)
            bound = dual_bound(instance, answer.multipliers)[0]
            assert bound <= optimum * (1 + 1e-8) + 1e-12, (number, gap)
            assert instance.loss(answer.z) >= optimum * (1 - 1e-8) - 1e-12, (number, gap)
            assert bound >= (1 - 1.01 * gap) * instance.loss(answer.z) - 1e-12, (number, gap)
            assert excess(instance, answer.z) < 1e-9
            proof = Rows.of(answer.multipliers, data, data.weighted, over=data.needed)
            assert proof.bound(data, data.weighted) <= optimum * (1 + 1e-6) + 1e-12, (number, gap)


INTERIOR = InteriorPoint(symmetry=False, threads=1)


@pytest.mark.parametrize(
    ("solver", "epsilon", "gap", "size"),
    [
        (StarSolver(), 2.0, 0.5, 20),
        (ColumnGeneration(), 2.0, 0.5, 20),
        (INTERIOR, 0.2, 0.01, 15),
        pytest.param(INTERIOR, 0.2, 0.01, 20, marks=pytest.mark.slow),
        (FewOutputs(40, INTERIOR), 0.2, 0.01, 20),
    ],
    ids=lambda case: getattr(case, "name", None),
)
def test_solver_stays_within_stated_memory(grid_instance, solver, epsilon, gap, size):
    instance = grid_instance(size, "8nb", epsilon, located=False)
    solver.solve(Part(grid_instance(7, "8nb", epsilon, located=False)), Offers(gap))  # compiled and loaded
    part, offers = Part(instance), Offers(gap)
    tracemalloc.start()
    try:
        solver.solve(part, offers)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    stated_bytes = solver.peak_bytes(part)
    assert peak <= 1.1 * stated_bytes
    # What a session of the LP solver takes is stated whatever the size, so small cases take much less.
    assert peak >= (0.05 if isinstance(solver, ColumnGeneration) else 0.2) * stated_bytes
