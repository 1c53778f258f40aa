"""Intervals that hold for any number of reports, computed from Clopper-Pearson bounds on outputs by linear programming.

Let pi be the true shares of the records, and Z the channel (Z_ik is the probability of output k given record i). Each
output k has Clopper-Pearson bounds L_k and U_k on its probability. Each of the m bounds has confidence 1 - alpha / m,
so that all of them hold with probability at least 1 - alpha. Then pi >= 0, sum pi = 1 and L_k <= (pi Z)_k <= U_k. The
smallest and largest pi_i among all shares that satisfy this therefore bound all true shares simultaneously. They are
found by solving linear programs, written in privopt's modelling language.

Let h be the vector with a 1 for each record of a group and 0 elsewhere, so that h . pi is the group's share. For every
vector y with one entry per output, the smallest h . pi is at least sum_k min(L_k y_k, U_k y_k) + min_i (h - Z y)_i. If
y contains the linear program's optimal dual multipliers, this bound equals the program's optimal value. It is valid for
any y, so the solver's tolerance does not matter.

:mod:`privopt.estimate.linear_intervals` is faster and handles more records. The intervals here are narrower for groups
that the reports hardly distinguish from others, because they use the bounds on all outputs together.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from scipy.sparse import csr_array

from privopt.arrays import Floats
from privopt.errors import SolverError
from privopt.interfaces import Progress

MOST_WORK: Final = 20_000_000
"""The maximum product of the channel's size and the number of intervals for which linear programs are solved."""
MIN_SHARE: Final = 1e-8
"""The smallest entry to include in a program, as a fraction of the largest entry in the same channel column.

The solver might drop or reject smaller entries.
"""


def is_affordable(records: int, outputs: int, intervals: int) -> bool:
    """Return whether the problem is small enough to solve two linear programs for each interval.

    Args:
        records, outputs: The number of records (rows) and the number of outputs (columns) of the channel.
        intervals: The number of intervals.
    """
    return records * outputs * intervals <= MOST_WORK


def finite_sample(
    columns: Floats, low: Floats, high: Floats, functionals: csr_array, progress: Progress | None = None
) -> tuple[Floats, Floats] | None:
    """Bound linear functionals over all shares that are consistent with bounds on the outputs' probabilities.

    Args:
        columns: (N, K) The probability of each output given each record.
        low, high: (K,) The lower and upper bounds on the outputs' probabilities.
        functionals: (G, N) A sparse matrix with entries in [0, 1]. For each row h, the product h . pi with the shares
            pi is bounded. If the row has a 1 at each of a group's records, h . pi is the group's share.
        progress: A function to call with the number of the current program, or None.

    Returns:
        The lower and upper bounds, each of shape (G,) with entries in [0, 1], or None if no shares are consistent with
        the bounds on the outputs' probabilities.
    """
    program_bounds = _solve_programs(columns, low, high, functionals, progress)
    if program_bounds is None:
        return None
    # A record's share times its probability of an output is at most the output's probability, which is at most high.
    # The multipliers y of a single output prove this bound.
    with np.errstate(divide="ignore"):
        single_output_bounds = functionals @ np.where(columns > 0, high / columns, np.inf).min(axis=1).clip(0.0, 1.0)
    lower, upper = (
        np.clip(program_bounds[0], 0.0, 1.0),
        np.clip(np.minimum(program_bounds[1], single_output_bounds), 0.0, 1.0),
    )
    return None if (lower > upper).any() else (lower, upper)


def _solve_programs(
    columns: Floats, low: Floats, high: Floats, functionals: csr_array, progress: Progress | None
) -> tuple[Floats, Floats] | None:
    """Solve two linear programs for each interval, each starting from the basis of the previous one.

    Args:
        columns: (N, K) The probability of each output given each record.
        low, high: (K,) The lower and upper bounds on the outputs' probabilities.
        functionals: (G, N) A sparse matrix with entries in [0, 1]. For each row h, an interval for h . pi is computed.
        progress: A function to call with the number of the current program, or None.

    Returns:
        The lower and upper bounds proved by the dual multipliers, each of shape (G,), or None if the programs are
        infeasible.

    Raises:
        SolverError: A program ended without multipliers.
    """
    from privopt.backends.choose import get
    from privopt.dsl import Eq, Index, IndexSet, Model, total
    from privopt.dsl.outcome import Outcome

    count, outputs = columns.shape
    m = Model("intervals")
    X, Y = IndexSet("X", count), IndexSet("Y", outputs)
    i, k = Index("i", X), Index("k", Y)
    pi = m.variable("pi", X, lower=0)
    # Small entries are omitted only from the program. The bounds below are evaluated with all entries.
    z = m.param("z", np.where(columns < MIN_SHARE * columns.max(axis=0), 0.0, columns))
    m.minimize(total(m.param("h", functionals[[0]].toarray()[0])[i] * pi[i], over=i))
    m.require("mass", Eq(total(pi[i], over=i), 1))
    # q is the probability of each output. Bounding q instead of writing two rows for each output halves the basis. The
    # bounds are widened by as much as the omitted entries can add.
    q = m.variable("q", Y, lower=low - MIN_SHARE, upper=high + MIN_SHARE)
    m.require("reported", Eq(total(z[i, k] * pi[i], over=i), q[k]), forall=k)
    session = get("highs").session(m.compile())
    bounds = np.zeros((2, functionals.shape[0]))
    all_records = np.arange(count)
    # Each program starts from the previous basis, because only the objective changes.
    for bound_number, sign in enumerate((1.0, -1.0)):
        for row in range(functionals.shape[0]):
            h = functionals[[row]].toarray()[0]
            session.change_costs(all_records, sign * h)
            answer = session.solve()
            if answer.outcome is Outcome.INFEASIBLE:
                return None
            if answer.duals is None:
                raise SolverError(f"an interval's program ended {answer.outcome.name.lower()}")
            # The first row is the mass. Its multiplier is not needed, because the bound takes the minimum over records
            # instead.
            y = np.asarray(answer.duals)[1:]
            bounds[bound_number, row] = sign * _lower_bounds(columns, low, high, sign * h[None], y[:, None])[0]
            if progress is not None:
                progress(f"interval {bound_number * bounds.shape[1] + row + 1:,} of {bounds.size:,}", row, None, None)
    return bounds[0], bounds[1]


def _lower_bounds(columns: Floats, low: Floats, high: Floats, h: Floats, y: Floats) -> Floats:
    """Return a lower bound on the minimum of h . pi for each functional h, as an array of shape (G,).

    The formula in the module's docstring gives valid bounds for any multipliers. Each bound is reduced by more than its
    rounding error.

    Args:
        columns: (N, K) The probability of each output given each record.
        low, high: (K,) The lower and upper bounds on the outputs' probabilities.
        h: (G, N) The functionals, one per row.
        y: (K, G) The dual multipliers of the outputs for each functional.
    """
    bounds: Floats = low @ np.maximum(y, 0.0) + high @ np.minimum(y, 0.0) + (h.T - columns @ y).min(axis=0)
    # All entries are in [0, 1], so a sum of K products with y errs by at most about K 2^-53 times the sum of |y|. There
    # are two such sums, one with the bounds low and high, and one in columns @ y.
    unit_error = max(1e-13, (len(y) + 4) * 2.0**-52)
    bounds -= unit_error * (1.0 + np.abs(y).sum(axis=0))
    return bounds
