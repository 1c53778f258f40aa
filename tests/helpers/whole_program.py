"""The whole linear program of metric DP by a solver of SciPy's: shares no code with the package."""

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import csr_array, eye_array, kron

LARGEST = 1e12
"""Rows with a greater factor are left out: no mechanism worth its loss comes near them."""


def optimum(cost, pairs, exponents, *, even=False, tolerance=1e-10):
    """Return the least loss of rows z (N, K) that sum to 1 with ``z_ik <= exp(exponent) z_jk``, both ways of each pair.

    Args:
        cost: (N, K), prior included.
        pairs: (P, 2) of rows.
        exponents: (P,) epsilon times distance.
        even: whether both numbers of a row are of one size, which solvers bear up to factors of 1e24.
        tolerance: by which rows may be missed.
    """
    (n, outputs), x = cost.shape, np.tile(exponents, 2)
    directed_pairs = np.concatenate([pairs, pairs[:, ::-1]]).reshape(-1, 2)[
        is_finite := x < (1 + even) * np.log(LARGEST)
    ]
    rows, scales = np.arange(len(directed_pairs)), np.exp(x[is_finite] * (-0.5 if even else 0.0))
    left_rows = csr_array((scales, (rows, directed_pairs[:, 0])), shape=(len(directed_pairs), n))
    right_rows = csr_array(
        (scales * np.exp(x[is_finite]), (rows, directed_pairs[:, 1])), shape=(len(directed_pairs), n)
    )
    solution = linprog(
        cost.ravel(),
        A_ub=kron(left_rows - right_rows, eye_array(outputs), format="csr") if len(directed_pairs) else None,
        b_ub=np.zeros(len(directed_pairs) * outputs) if len(directed_pairs) else None,
        A_eq=kron(eye_array(n), np.ones((1, outputs)), format="csr"),
        b_eq=np.ones(n),
        method="highs",
        options={"primal_feasibility_tolerance": tolerance, "dual_feasibility_tolerance": tolerance},
    )
    assert solution.status == 0
    return float(solution.fun)
