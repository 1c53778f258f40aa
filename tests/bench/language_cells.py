"""One tool's run of bench_language.py on a small model, from the start of the process to its end.

Run as ``python language_cells.py TOOL CELLS``; it prints one line of JSON with the optimum. The model is the optimal
mechanism of geo-indistinguishability over random points, with a row for each ordered pair of points and each output.
The caller measures the processor seconds of the whole process, imports and worker processes included.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

Points = tuple[Any, float]


def make_points(cells: int) -> Points:
    """Return the distances of random points, shape (cells, cells), and epsilon per unit of distance."""
    points = np.random.default_rng(0).random((cells, 2))
    return np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1)), 0.5 * cells**0.5


def run_privopt(points: Points, backend: str) -> float:
    """Privopt's language."""
    from privopt.dsl import Eq, Index, IndexSet, Le, Model, exp, total

    distances, epsilon = points
    m, n = Model("cells"), len(distances)
    X = IndexSet("X", n)
    i, j, k = Index("i", X), Index("j", X), Index("k", X)
    z, d = m.variable("z", X, X), m.param("d", distances)
    m.minimize(total(d[i, k] * z[i, k] / n, over=(i, k)))
    m.require("mass", Eq(total(z[i, k], over=k), 1), forall=i)
    others = np.argwhere(~np.eye(n, dtype=bool))
    m.require("privacy", Le(z[i, k], exp(epsilon * d[i, j]) * z[j, k]), forall=(i, j, k), where=others)
    return m.solve(backend).objective


def run_mip(points: Points, *, dual: bool) -> float:
    """python-mip with CBC, by its own choice of a method, or by the dual simplex method that privopt asks for."""
    import mip

    distances, epsilon = points
    n = len(distances)
    m = mip.Model(sense=mip.MINIMIZE, solver_name=mip.CBC)
    m.verbose = 0
    z = [[m.add_var(obj=distances[i, k] / n) for k in range(n)] for i in range(n)]
    for i in range(n):
        m += mip.xsum(z[i]) == 1
    factors = np.exp(epsilon * distances)
    for i in range(n):
        for j in range(n):
            factor = factors[i, j]
            for k in range(n if i != j else 0):
                m += z[i][k] - factor * z[j][k] <= 0
    if dual:
        m.lp_method = mip.LP_Method.DUAL
    m.optimize()
    return float(m.objective_value)


TOOLS: dict[str, Callable[[Points], float]] = {
    "privopt": lambda points: run_privopt(points, "highs"),
    "privopt, CBC": lambda points: run_privopt(points, "cbc"),
    "python-mip, CBC": lambda points: run_mip(points, dual=False),
    "python-mip, CBC, dual simplex": lambda points: run_mip(points, dual=True),
}


if __name__ == "__main__":
    print(json.dumps({"objective": TOOLS[sys.argv[1]](make_points(int(sys.argv[2])))}))
