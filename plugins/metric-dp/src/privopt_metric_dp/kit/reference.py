"""Reference losses for small metric problems, computed with SciPy independently of the mechanism under test."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privopt_metric_dp.problem.data import MetricData

__all__ = ["best_loss", "optimum"]


def best_loss(data: MetricData) -> float:
    """Return the smallest expected loss among a few mechanisms that satisfy metric DP.

    These are the constant mechanisms, which always report the same output, and the optimum of a linear program if it
    can be repaired and certified. A mechanism under test may have a smaller loss, but no valid lower bound exceeds the
    loss returned here.

    Args:
        data: The data of a small problem.

    Returns:
        The loss, evaluated exactly and rounded to a double.
    """
    weighted = np.asarray(data.weighted)
    constant = min(float(sum(map(Fraction, column))) for column in weighted.T.tolist())
    optimum_loss = _repaired_optimum(data, weighted)
    return constant if optimum_loss is None else min(constant, optimum_loss)


def _repaired_optimum(data: Any, weighted: NDArray[np.float64]) -> float | None:
    """Solve the linear program for metric DP, repair the optimum to integers, and return its loss.

    Args:
        data: The data of a small metric problem.
        weighted: Array of shape (n_records, n_outputs) with prior times cost.

    Returns:
        The loss, evaluated exactly and rounded to a double, or None if solving, repair or certification fails.
    """
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
    # The repair certifies its result, but the kit does not rely on that.
    if not certify(weights, data.pairs, data.distances, data.epsilon).holds:
        return None
    # Rows of weights sum to 2^63.
    rows = zip(weights.tolist(), weighted.tolist(), strict=True)
    total = sum((int(w) * Fraction(c) for row, costs in rows for w, c in zip(row, costs, strict=True)), Fraction(0))
    return float(total / 2**63)


def optimum(
    weighted: NDArray[np.float64], pairs: NDArray[np.int64], distances: NDArray[np.float64], epsilon: float
) -> NDArray[np.float64] | None:
    """Compute an obfuscation matrix that minimises the expected loss under metric DP, within SciPy's tolerance.

    Factors exp(epsilon d) above e^30 are replaced by e^30, which makes the constraints stricter.

    Args:
        weighted: Array of shape (n_records, n_outputs) with prior times cost.
        pairs: Array of shape (n_pairs, 2) with the required pairs, as record indices.
        distances: Array of shape (n_pairs,) with the distance between the records of each pair.
        epsilon: Epsilon per unit of distance.

    Returns:
        Array of shape (n_records, n_outputs) with output probabilities, or None if SciPy finds no optimum.
    """
    from scipy.optimize import linprog
    from scipy.sparse import coo_matrix

    n, k = weighted.shape
    with np.errstate(over="ignore"):
        # Larger coefficients would make the program badly scaled.
        growth = np.exp(np.minimum(epsilon * distances, 30.0))
    # Variable i * k + output is the entry for record i and the output. The inequalities are collected as entries of a
    # sparse matrix.
    rows, columns, values, row = [], [], [], 0
    for (i, j), e in zip(pairs.tolist(), growth.tolist(), strict=True):
        for row_record, column_record in ((i, j), (j, i)):
            # z_ik - exp(epsilon d) z_jk <= 0, in both directions.
            for output in range(k):
                rows += [row, row]
                columns += [row_record * k + output, column_record * k + output]
                values += [1.0, -e]
                row += 1
    # Each row of the obfuscation matrix must sum to 1.
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
