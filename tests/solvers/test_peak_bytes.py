"""What solvers say that they take is at least what they take, and no more than five times as much."""

from __future__ import annotations

import tracemalloc

import pytest

from privopt.interfaces.offers import Alone
from privopt_metric_dp.solvers.column_generation import ColumnGeneration
from privopt_metric_dp.solvers.few_outputs import FewOutputs
from privopt_metric_dp.solvers.interior_point import InteriorPoint
from privopt_metric_dp.solvers.solver import Part
from privopt_metric_dp.solvers.star import StarSolver


@pytest.mark.parametrize(
    ("solver", "epsilon", "gap"),
    [
        (StarSolver(), 2.0, 0.5),
        (ColumnGeneration(), 2.0, 0.5),
        (InteriorPoint(symmetry=False, threads=1), 0.2, 0.01),
        (FewOutputs(40, InteriorPoint(symmetry=False, threads=1)), 0.2, 0.01),
    ],
    ids=lambda each: getattr(each, "name", None),
)
def test_a_solver_takes_what_it_says(grid_instance, solver, epsilon, gap):
    instance = grid_instance(20, "8nb", epsilon, located=False)
    solver.solve(Part(instance), Alone(gap))  # compiled and loaded
    part, offers = Part(instance), Alone(gap)
    tracemalloc.start()
    try:
        solver.solve(part, offers)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    said = solver.peak_bytes(part)
    assert peak <= 1.1 * said
    assert peak >= 0.2 * said
