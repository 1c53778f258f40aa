"""Intervals that hold for every number of reports: Clopper-Pearson on outputs and sets of them, then linear programs.

With probability 1 - alpha the probability of every output, and of every set of outputs in a family that is fixed
beforehand, lies between its bounds [L_k, U_k] (Clopper-Pearson, each at confidence 1 - alpha / their number); then the
truth is among the shares pi >= 0, sum 1, L_k <= (pi Z)_k <= U_k, and the least and the greatest h . pi there hold for
every h at once. Sets are nested halves of outputs with like columns: over thousands of outputs bounds on single ones
add up to nothing, while that of a half is as sharp as n reports make it. The programs stand in the modelling language.
Whatever y is, the least h . pi is at least sum_k min(L_k y_k, U_k y_k) + min_i (h - Z y)_i: with a program's
multipliers for y that is its value, whatever the solver's tolerance; where the programs are too many or too large, y
from ridge regressions comes near.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from privopt.arrays import Floats, Ints, slices
from privopt.errors import SolverError
from privopt.interfaces import Progress

if TYPE_CHECKING:
    from scipy.sparse import csr_array
else:
    csr_array = Any

__all__ = ["finite_sample", "nested_sets"]

MOST_SETS: Final = 254
"""Sets of outputs: seven halvings of all."""
LARGEST_PROGRAM: Final = 90_000
"""Entries of a channel up to which a program holds every output; a larger one holds the sets alone."""
MOST_WORK: Final = 20_000_000
"""Entries of the programs, times intervals, up to which each interval is its own pair of programs."""
SMALL: Final = 1e-8
"""Share of a column's greatest entry below which a program leaves an entry out: its solver drops smaller ones."""
RIDGES: Final = (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
"""Of the regressions, relative to the mean of the diagonal."""


def nested_sets(columns: Floats) -> Floats:
    """(K, S) ones where an output belongs to a set: all outputs halved, and halved again, by how alike columns are.

    A function of the channel alone: sets may not depend on reports. Two outputs of a set that are farthest apart
    (Hellinger distance of columns, each scaled to sum 1) draw the others to their sides, half to each.

    Args:
        columns: (N, K) probability of each output given each record.
    """
    used = np.flatnonzero(columns.any(axis=0))
    roots = np.sqrt(columns[:, used] / columns[:, used].sum(axis=0)).T
    queue: list[Ints] = [np.arange(len(used))]
    found: list[Ints] = []
    for members in queue:  # breadth first
        if len(members) < 4 or len(found) >= MOST_SETS:
            continue
        part = roots[members]
        first = int((part @ part[0]).argmin())
        near = part @ part[first]
        order = np.argsort(part @ part[int(near.argmin())] - near, kind="stable")
        halves = [members[order[: len(order) // 2]], members[order[len(order) // 2 :]]]
        queue += halves
        found += halves
    made = np.zeros((columns.shape[1], len(found)))
    for place, members in enumerate(found):
        made[used[members], place] = 1.0
    return made


def finite_sample(
    columns: Floats, sets: Ints, low: Floats, high: Floats, functionals: csr_array, progress: Progress | None = None
) -> tuple[Floats, Floats] | None:
    """The least and greatest h . pi for each functional; None where no shares are within all bounds.

    Args:
        columns: (N, K) probability of each output, and of each set of outputs, given each record.
        sets: which of the columns are sets.
        low, high: (K,) bounds of their probabilities.
        functionals: (G, N), entries in [0, 1], sparse.
        progress: called with how many are done.

    Returns:
        Lower and upper bounds, (G,) each, in [0, 1].
    """
    some = slice(None) if columns.size <= LARGEST_PROGRAM or not len(sets) else sets
    small = columns[:, some]
    if small.size * functionals.shape[0] <= MOST_WORK:
        found = _by_programs(small, low[some], high[some], functionals, progress)
    else:
        found = _by_duality(small, low[some], high[some], functionals, progress)
    if found is None:
        return None
    with np.errstate(divide="ignore"):  # y = one output's, scaled so that its record's own share is all there is
        single = functionals @ np.where(columns > 0, high / columns, np.inf).min(axis=1).clip(0.0, 1.0)
    least, most = np.clip(found[0], 0.0, 1.0), np.clip(np.minimum(found[1], single), 0.0, 1.0)
    return None if (least > most).any() else (least, most)


def _by_programs(
    columns: Floats, low: Floats, high: Floats, functionals: csr_array, progress: Progress | None
) -> tuple[Floats, Floats] | None:
    """Each by its two programs, the last basis the next one's start."""
    from privopt.backends.choose import get
    from privopt.dsl import Eq, Ge, Index, IndexSet, Le, Model, total
    from privopt.dsl.outcome import Outcome

    count, outputs = columns.shape
    m = Model("intervals")
    X, Y = IndexSet("X", count), IndexSet("Y", outputs)
    i, k = Index("i", X), Index("k", Y)
    pi = m.variable("pi", X, lower=0)
    z = m.param("z", np.where(columns < SMALL * columns.max(axis=0), 0.0, columns))  # bounds are evaluated with all
    m.minimize(total(m.param("h", functionals[[0]].toarray()[0])[i] * pi[i], over=i))
    m.require("mass", Eq(total(pi[i], over=i), 1))
    m.require("at least", Ge(total(z[i, k] * pi[i], over=i), m.param("L", low - SMALL)[k]), forall=k)
    m.require("at most", Le(total(z[i, k] * pi[i], over=i), m.param("U", high + SMALL)[k]), forall=k)
    session = get("highs").session(m.compile())
    ends = np.zeros((2, functionals.shape[0]))
    every = np.arange(count)
    for side, sign in enumerate((1.0, -1.0)):
        for row in range(functionals.shape[0]):
            h = functionals[[row]].toarray()[0]
            session.change_costs(every, sign * h)
            found = session.solve()
            if found.outcome is Outcome.INFEASIBLE:
                return None
            if found.duals is None:
                raise SolverError(f"an interval's program ended {found.outcome.name.lower()}")
            y = np.asarray(found.duals)[1:].reshape(2, outputs).sum(axis=0)
            ends[side, row] = sign * _least(columns, low, high, sign * h[None], y[:, None])[0]
            if progress is not None:
                progress(f"interval {side * ends.shape[1] + row + 1:,} of {ends.size:,}", row, None, None)
    return ends[0], ends[1]


def _by_duality(
    columns: Floats, low: Floats, high: Floats, functionals: csr_array, progress: Progress | None
) -> tuple[Floats, Floats]:
    """Bounds on all of them by weak duality, the best of a few multipliers each: wider, and no less sure."""
    from scipy.linalg import cho_factor, cho_solve

    least, most = functionals.min(axis=1).toarray(), functionals.max(axis=1).toarray()  # y = 0
    scaled = columns / (high - low)
    square = scaled.T @ scaled
    mean = float(square.diagonal().mean())
    for step, ridge in enumerate(RIDGES):
        if progress is not None:
            progress(f"intervals by duality: {step + 1} of {len(RIDGES)}", step, None, None)
        factor = cho_factor(square + ridge * mean * np.eye(len(square)), lower=True, check_finite=False)
        for part in slices(len(least), len(columns), 1 << 24):
            h = functionals[part].toarray()
            y = cho_solve(factor, scaled.T @ h.T, check_finite=False) / (high - low)[:, None]
            least[part] = np.maximum(least[part], _least(columns, low, high, h, y))
            most[part] = np.minimum(most[part], -_least(columns, low, high, -h, -y))
    return least, most


def _least(columns: Floats, low: Floats, high: Floats, h: Floats, y: Floats) -> Floats:
    """(G,) what multipliers y (K, G) prove of the least h . pi, h (G, N); less what rounding may have added."""
    found: Floats = low @ np.maximum(y, 0.0) + high @ np.minimum(y, 0.0) + (h.T - columns @ y).min(axis=0)
    found -= 1e-13 * (1.0 + np.abs(y).sum(axis=0))
    return found
