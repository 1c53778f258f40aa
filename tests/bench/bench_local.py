"""Local columns, tried: each output's rows of privacy are kept within a radius of it, and dropped beyond.

Run as ``python tests/bench/bench_local.py [PLACES OUTPUTS EPSILON]`` on Rome's streets (``PRIVOPT_DATA``). What is left
is a relaxation, whose multipliers are 0 beyond the radius and prove its optimum (HiGHS, interior point). The mechanism
is continued beyond by the least that privacy allows, ``max_j exp(-eps d_ij) z_jk``, and its rows are scaled to sum to
one, for which it needs some epsilon more.
"""

from __future__ import annotations

import sys

import highspy
import numpy as np
from instances import Problem, streets
from rivals import whole_lp
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

RADII = (3.0, 4.0, 6.0, 8.0, np.inf)
"""Times 1 / epsilon."""


def optimum(problem: Problem, local: np.ndarray) -> tuple[float, np.ndarray]:
    """Return the optimum where ``local`` ``(P, K)`` rows alone are kept, both ways, and its mechanism."""
    model, _ = whole_lp(problem)
    is_required = np.r_[local.ravel(), local.ravel(), np.ones(len(problem["cost"]), dtype=bool)]
    model.row_upper_ = np.where(is_required, model.row_upper_, np.inf)
    solver = highspy.Highs()
    for option, value in (("output_flag", False), ("solver", "ipx"), ("run_crossover", "off")):
        solver.setOptionValue(option, value)
    solver.passModel(model)
    solver.run()
    z = np.array(solver.getSolution().col_value).reshape(problem["cost"].shape)
    return solver.getInfo().objective_function_value, z


def main() -> None:
    """Print a line for each radius."""
    places, outputs, epsilon = (float(value) for value in (sys.argv[1:] or ("300", "40", "10")))
    problem = streets(int(places), int(outputs), epsilon)
    assert problem is not None, "the streets of Rome are not there"
    cost, pairs, lengths = problem["cost"], problem["pairs"], problem["distances"]
    graph = csr_array((lengths, pairs.T), shape=(len(cost), len(cost)))
    distances = dijkstra(graph, directed=False)
    print(
        f"{len(cost)} places, {cost.shape[1]} outputs, diameter {distances.max() * epsilon:.0f} / epsilon", flush=True
    )
    print("| radius | rows kept | bound | loss of the mechanism | epsilon more, worst street | 99 % | median |")
    for radius in RADII:
        is_near = cost * len(cost) * epsilon <= radius
        bound, z = optimum(problem, (is_near[pairs[:, 0]] & is_near[pairs[:, 1]]))
        z = np.where(is_near, np.maximum(z, 1e-300), 0.0)
        z = np.stack([(np.exp(-epsilon * distances) * column).max(axis=1) for column in z.T], axis=1)
        sums = z.sum(axis=1)
        sum_ratios = np.abs(np.log(sums[pairs[:, 0]]) - np.log(sums[pairs[:, 1]])) / (epsilon * lengths)
        loss = float((cost * z / sums[:, None]).sum())
        kept_share = float((is_near[pairs[:, 0]] & is_near[pairs[:, 1]]).mean())
        spread = " | ".join(f"{100 * value:.2g} %" for value in np.quantile(sum_ratios, (1.0, 0.99, 0.5)))
        print(f"| {radius:g} | {100 * kept_share:.0f} % | {bound:.5f} | {loss:.5f} | {spread} |", flush=True)


if __name__ == "__main__":
    main()
