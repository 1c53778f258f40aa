"""The kit's own linear program: a feasible mechanism for small metric problems, certified, found by SciPy."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privopt_metric_dp.problem.data import MetricData

__all__ = ["best_loss", "optimum"]


def best_loss(data: MetricData) -> float:
    """Return the exact loss of the best of a few mechanisms that certainly keep the guarantee.

    The constant ones always do. The optimum of the LP, solved by SciPy with epsilon a hair smaller, counts only where
    its repaired integers certify.

    Args:
        data: a :class:`privopt_metric_dp.problem.data.MetricData`, small.
    """
    weighted = np.asarray(data.weighted)
    constant = min(float(sum(map(Fraction, column))) for column in weighted.T.tolist())
    optimum_loss = _repaired_optimum(data, weighted)
    return constant if optimum_loss is None else min(constant, optimum_loss)


def _repaired_optimum(data: Any, weighted: NDArray[np.float64]) -> float | None:
    from privopt.errors import PrivoptError
    from privopt_metric_dp.matrix.certify import certify
    from privopt_metric_dp.matrix.repair import repair

    z = optimum(weighted, np.asarray(data.pairs), np.asarray(data.distances), float(data.epsilon))
    if z is None:
        return None
    try:
        weights = repair(z, data.pairs, data.distances, data.epsilon, loss=weighted).weights
    except PrivoptError:
        return None
    if not certify(weights, data.pairs, data.distances, data.epsilon).holds:
        return None
    rows = zip(weights.tolist(), weighted.tolist(), strict=True)
    total = sum((int(w) * Fraction(c) for row, costs in rows for w, c in zip(row, costs, strict=True)), Fraction(0))
    return float(total / 2**63)


def optimum(
    weighted: NDArray[np.float64], pairs: NDArray[np.int64], distances: NDArray[np.float64], epsilon: float
) -> NDArray[np.float64] | None:
    """Solve the whole LP to SciPy's tolerance for its (N, K) optimum; None if SciPy finds none.

    Args:
        weighted: (N, K) prior times cost.
        pairs: (P, 2) required pairs.
        distances: (P,) their distances; factors above e^30 are cut to it, which is stricter.
        epsilon: per unit of distance.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_matrix

    n, k = weighted.shape
    with np.errstate(over="ignore"):
        growth = np.exp(np.minimum(epsilon * distances, 30.0))
    rows, columns, values, row = [], [], [], 0
    for (i, j), e in zip(pairs.tolist(), growth.tolist(), strict=True):
        for row_record, column_record in ((i, j), (j, i)):
            for output in range(k):
                rows += [row, row]
                columns += [row_record * k + output, column_record * k + output]
                values += [1.0, -e]
                row += 1
    mass = coo_matrix((np.ones(n * k), (np.repeat(np.arange(n), k), np.arange(n * k))), shape=(n, n * k))
    privacy = coo_matrix((values, (rows, columns)), shape=(row, n * k)) if row else None
    solved = linprog(
        weighted.ravel(),
        A_ub=privacy,
        b_ub=np.zeros(row) if row else None,
        A_eq=mass,
        b_eq=np.ones(n),
        method="highs",
    )
    return solved.x.reshape(n, k) if solved.status == 0 else None
