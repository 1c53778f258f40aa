"""Round a linear program's solution to a set of photos, using an integer program over the core variables.

The core of a linear program over 0/1 variables consists of the variables with the smallest reduced costs (Balas and
Zemel, *An algorithm for large zero-one knapsack problems*, Operations Research 28, 1980). All other variables are fixed
at their rounded values. Exchanging core variables hardly changes the objective. With many photos, there are so many
possible exchanges that one of them usually attains the linear program's value, rounded down, or misses it by one photo
(see :data:`CORE`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from privopt.arrays import Bools, Floats, Ints
from privopt.backends.highs import new_solver
from privopt.execution.clock import clock
from privopt_photo_censor.album import Alternates
from privopt_photo_censor.solver.bounds import Photos

__all__ = ["round_core"]

CORE: Final = 30
"""The number of photos in the core.

In 27 programs (128 to 10,000 photos, 5 to 20 locations), a core of 30 missed the rounded-down value of the program 15
times: once by two photos, and otherwise by one. A core of 60 missed it 17 times and took longer.
"""
NODES: Final = 500
"""The maximum number of nodes in HiGHS's search. With this limit, a search took up to 0.8 s. A time limit alone would
make results vary."""
ROW_MARGIN: Final = 1e-8
"""The amount by which each scaled row must exceed 0 to keep a location protected despite HiGHS's tolerance."""


def round_core(
    data: Alternates, rows: Ints, weights: Floats, values: Floats, photos: Photos, counts: tuple[int, int]
) -> Bools | None:
    """Round a linear program's solution to a nearby set of photos that protects the program's locations.

    Args:
        data: The album.
        rows: (r,) The locations to protect.
        weights: (N,) The photos' terms in the Lagrangian sum: 1 plus the multipliers times the advantages. Their
            absolute values are the reduced costs.
        values: (N,) The photos' values in the linear program, from 0 to 1.
        photos: The photos that must be kept, and the photos that may be kept.
        counts: The smallest useful number of retained photos, and the number at which the search may stop.

    Returns:
        An (N,) mask of at least ``counts[0]`` photos to retain, or None if no such set was found. The caller must check
        the exact rank for this set.
    """
    least, enough = counts
    free = np.flatnonzero(photos.may & ~photos.must)
    core = np.sort(free[np.argsort(np.abs(weights[free]), kind="stable")[:CORE]])
    n = len(core)
    retained = photos.may & (photos.must | (values > 0.5))
    retained[core] = False
    fixed_count = int(retained.sum())
    if not n or enough < least or least > fixed_count + n or clock().left == 0.0:
        return None
    diff = data.diff[rows]
    # Rows are scaled to 1, as in the linear program.
    scale = np.maximum(np.abs(diff).max(axis=1), 1e-300)
    columns = np.arange(n, dtype=np.int32)
    solver: Any = new_solver(tolerance=1e-9)
    options = {"mip_max_nodes": NODES, "mip_abs_gap": 0.99, "objective_target": float(fixed_count - enough)}
    for name, value in options.items():
        solver.setOptionValue(name, value)
    solver.setOptionValue("time_limit", float(min(clock().left, 1e9)))
    solver.addVars(n, np.zeros(n), np.ones(n))
    solver.changeColsCost(n, columns, -np.ones(n))
    # In HiGHS, 1 stands for an integer variable.
    solver.changeColsIntegrality(n, columns, np.ones(n, dtype=np.uint8))
    for row, total, size in zip(diff[:, core], diff[:, retained].sum(axis=1), scale, strict=True):
        # The photos fixed as retained contribute `total` to the row, so the core must make up for it.
        solver.addRow(ROW_MARGIN - total / size, np.inf, n, columns, row / size)
    solver.addRow(float(least - fixed_count), np.inf, n, columns, np.ones(n))
    solver.run()
    shares = np.array(solver.getSolution().col_value)
    if not solver.getSolution().value_valid:
        return None
    retained[core] = shares > 0.5
    return retained
