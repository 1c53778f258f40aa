"""Intervals that hold for every number of reports: Clopper-Pearson on each output, then linear programs.

With probability 1 - alpha every output's probability lies between its bounds [L_k, U_k] (Clopper-Pearson, each at
confidence 1 - alpha / K); then the truth is among the shares pi >= 0, sum 1, L_k <= (pi Z)_k <= U_k, and the least and
the greatest h . pi there hold for every h at once. The programs stand in the modelling language. Whatever y is, the
least h . pi is at least sum_k min(L_k y_k, U_k y_k) + min_i (h - Z y)_i: with a program's multipliers for y that is its
value, whatever the solver's tolerance; where the programs are too many or too large, y from ridge regressions comes
near.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from privopt.arrays import Floats
from privopt.errors import SolverError
from privopt.interfaces import Progress

__all__ = ["clopper_pearson", "finite_sample"]

LARGEST_PROGRAM: Final = 90_000
"""Entries of a channel up to which each interval is its own pair of programs."""
MOST_WORK: Final = 20_000_000
"""Entries times intervals, likewise: 10 s."""
RIDGES: Final = (1e-1, 1e-3, 1e-5)
"""Of the regressions, relative to the mean of the diagonal."""


def clopper_pearson(counts: Floats, total: float, alpha: float) -> tuple[Floats, Floats]:
    """Two-sided bounds of binomial probabilities, each at confidence 1 - alpha.

    Args:
        counts: (K,) hits.
        total: trials of each.
        alpha: in (0, 1).

    Returns:
        Lower and upper, (K,) each.
    """
    from scipy.special import betaincinv

    rest = total - counts
    low = np.where(counts > 0, betaincinv(np.maximum(counts, 1), rest + 1, alpha / 2), 0.0)
    high = np.where(rest > 0, betaincinv(counts + 1, np.maximum(rest, 1), 1 - alpha / 2), 1.0)
    return low, high


def finite_sample(
    columns: Floats, low: Floats, high: Floats, functionals: Floats, progress: Progress | None = None
) -> tuple[Floats, Floats] | None:
    """The least and greatest h . pi for each functional; None where no shares are within all bounds.

    Args:
        columns: (N, K) probability of each output given each record.
        low, high: (K,) bounds of the outputs' probabilities.
        functionals: (G, N), entries in [0, 1].
        progress: told how many are done.

    Returns:
        Lower and upper bounds, (G,) each, in [0, 1].
    """
    size = columns.size
    if size <= LARGEST_PROGRAM and size * len(functionals) <= MOST_WORK:
        return _by_programs(columns, low, high, functionals, progress)
    return _by_duality(columns, low, high, functionals, progress)


def _by_programs(
    columns: Floats, low: Floats, high: Floats, functionals: Floats, progress: Progress | None
) -> tuple[Floats, Floats] | None:
    """Each by its two programs, the last basis the next one's start."""
    from privopt.backends.choose import get
    from privopt.backends.outcome import Outcome
    from privopt.dsl import Eq, Ge, Index, IndexSet, Le, Model, total

    count, outputs = columns.shape
    m = Model("intervals")
    X, Y = IndexSet("X", count), IndexSet("Y", outputs)
    i, k = Index("i", X), Index("k", Y)
    pi, z = m.variable("pi", X, lower=0), m.param("z", columns)
    m.minimize(total(m.param("h", functionals[0])[i] * pi[i], over=i))
    m.require("mass", Eq(total(pi[i], over=i), 1))
    m.require("at least", Ge(total(z[i, k] * pi[i], over=i), m.param("L", low)[k]), forall=k)
    m.require("at most", Le(total(z[i, k] * pi[i], over=i), m.param("U", high)[k]), forall=k)
    session = get("highs").session(m.compile())
    ends = np.zeros((2, len(functionals)))
    every = np.arange(count)
    for side, sign in enumerate((1.0, -1.0)):
        for row, h in enumerate(functionals):
            session.change_costs(every, sign * h)
            found = session.solve()
            if found.outcome is Outcome.INFEASIBLE:
                return None
            if found.duals is None:
                raise SolverError(f"an interval's program ended {found.outcome.name.lower()}")
            y = np.asarray(found.duals)[1:].reshape(2, outputs).sum(axis=0)
            ends[side, row] = sign * _least(columns, low, high, sign * h[None], y[:, None])[0]
            if progress is not None:
                progress(f"interval {side * len(functionals) + row + 1:,} of {2 * len(functionals):,}", row, None, None)
    return np.clip(ends[0], 0.0, 1.0), np.clip(ends[1], 0.0, 1.0)


def _by_duality(
    columns: Floats, low: Floats, high: Floats, functionals: Floats, progress: Progress | None
) -> tuple[Floats, Floats] | None:
    """Bounds on all of them by weak duality, the best of a few multipliers each: wider, and no less sure."""
    from scipy.linalg import cho_factor, cho_solve

    least, most = functionals.min(axis=1), functionals.max(axis=1)  # y = 0
    with np.errstate(divide="ignore"):  # y = one output's, scaled so that its record's own share is all there is
        most = np.minimum(most, functionals @ np.where(columns > 0, high / columns, np.inf).min(axis=1).clip(0, 1))
    scaled = columns / (high - low)
    square = scaled @ scaled.T
    mean = float(square.diagonal().mean())
    for step, ridge in enumerate(RIDGES):
        if progress is not None:
            progress(f"intervals by duality: ridge {step + 1} of {len(RIDGES)}", step, None, None)
        factor = cho_factor(square + ridge * mean * np.eye(len(square)), lower=True, check_finite=False)
        width = max(1, (1 << 24) // len(columns))
        for first in range(0, len(functionals), width):
            part = slice(first, first + width)
            h = functionals[part]
            y = (scaled.T @ cho_solve(factor, h.T, check_finite=False)) / (high - low)[:, None]
            least[part] = np.maximum(least[part], _least(columns, low, high, h, y))
            most[part] = np.minimum(most[part], -_least(columns, low, high, -h, -y))
    least, most = np.clip(least, 0.0, 1.0), np.clip(most, 0.0, 1.0)
    return None if (least > most).any() else (least, most)


def _least(columns: Floats, low: Floats, high: Floats, h: Floats, y: Floats) -> Floats:
    """(G,) what multipliers y (K, G) prove of the least h . pi, h (G, N); less what rounding may have added."""
    found: Floats = low @ np.maximum(y, 0.0) + high @ np.minimum(y, 0.0) + (h.T - columns @ y).min(axis=0)
    found -= 1e-13 * (1.0 + np.abs(y).sum(axis=0))
    return found
