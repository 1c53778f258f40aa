"""The mixed-integer program of the paper, tight (section 4; mathematics P4), through privopt's DSL.

``h_j = 1`` says that alternate j must not fall behind the true location: then ``sum_i z_i d_ij >= 0``. The row is an
indicator whose big-M is the least that the row itself allows, one for each location; the published rule (one huge T)
makes solvers call infeasible sets optimal. Alternates that cannot help are dropped by P3, and the others carry the
number of photos that can stay with them.
"""

from __future__ import annotations

import time
from typing import Any, Final

import numpy as np
from scipy import sparse

from privopt.arrays import Bools
from privopt.backends import Outcome, get
from privopt.dsl.solution import Interrupted
from privopt_photo_censor.incumbent import Shared

__all__ = ["MilpSearch", "build"]

CUTS: Final = 200
"""Sets that the exact rank refuses and that are cut off one by one before the MILP is given up."""
PACE: Final = 10_000.0
"""Bounds that the searches solve in a second, about: what a turn's effort means for a solver."""
LEEWAY: Final = 1e-7
"""Relative leeway of a row, so that a tie that doubles miss is not cut off: the exact rank decides."""


def build(shared: Shared, refused: list[Bools]) -> tuple[Any, np.ndarray[Any, np.dtype[np.int64]]]:
    """The model for what must still be beaten, and the rows of the alternates in it.

    Args:
        shared: incumbent and need; `state` is [k, photos that must stay, ...].
        refused: sets that met the rows and failed the exact rank.
    """
    from privopt.dsl import Ge, Index, IndexSet, Le, Model, implies, total

    data, state = shared.data, shared.state
    k, need = int(state[0]), int(state[1])
    active = np.flatnonzero(shared.reach >= max(need, 1))
    photos, alternates = IndexSet("photos", shared.album.photos), IndexSet("locations", active.size)
    i, j = Index("i", photos), Index("j", alternates)
    scale = np.maximum(np.abs(data.diff[active]).max(axis=1, initial=0.0), 1e-300)
    m = Model("photo-censor")
    z = m.variable("z", photos, kind="binary", lower=data.keep.astype(np.float64))
    h = m.variable("h", alternates, kind="binary")
    d = m.param("d", data.diff[active] / scale[:, None])
    m.require("level", implies(h[j], Ge(total(d[j, i] * z[i], over=i), -LEEWAY)), forall=j)
    if data.kills[active].any():
        m.require("ruled out", Le(h[j] + z[i], 1), forall=(j, i), where=np.argwhere(data.kills[active]))
    m.require("stay", Ge(total(z[i], over=i), need))
    m.require("top-k", Ge(total(h[j], over=j), min(k, active.size)))
    if shared.budget:
        m.maximize(total(h[j], over=j))
    else:
        most = int(np.sort(shared.reach)[-k])
        less = m.param("less", np.maximum(most - shared.reach[active], 0).astype(np.float64))
        if (shared.reach[active] < most).any():
            m.require("own optimum", Le(total(z[i], over=i) + less[j] * h[j], most), forall=j)
        m.maximize(total(z[i], over=i))
    if refused:
        kept = np.array(refused)
        rows = sparse.csr_matrix(np.where(kept, -1.0, 1.0))
        m.add_block("refused by the exact rank", rows, columns=z, lower=1.0 - kept.sum(axis=1))
    return m, active


class MilpSearch:
    """The MILP as an engine: each turn a whole solve within the turn's time, until one ends by itself."""

    name = "milp"

    def __init__(self, shared: Shared, solver: str, *, alone: bool) -> None:
        self.alone = alone
        self.shared = shared
        self.solver = solver
        self.spent = False
        self.refused: list[Bools] = []
        self._cap = shared.cap

    def _seconds(self, effort: int) -> float | None:
        """Time limit of one solve: none where the MILP is alone and there is no deadline."""
        deadline = self.shared.deadline
        left = None if deadline is None else max(deadline - time.monotonic(), 0.01)
        if self.alone:
            return left
        return effort / PACE if left is None else min(effort / PACE, left)

    def turn(self, effort: int) -> bool:
        """Solve for something better than the incumbent; True where there is nothing."""
        shared = self.shared
        while not shared.late:
            if int((shared.reach >= max(int(shared.state[1]), 1)).sum()) < shared.state[0]:
                return True
            model, _ = build(shared, self.refused)
            form = model.compile()
            z = form.variable("z")
            try:
                result = get(self.solver).solve(form, time_limit=self._seconds(effort), gap=0.0)
            except Interrupted as interrupt:
                shared.offer(np.asarray(interrupt.result.x)[z.start : z.start + shared.album.photos] > 0.5)
                raise
            shared.solver = result.solver
            shared.state[4] += result.iterations
            if result.outcome is Outcome.INFEASIBLE:
                return True
            if result.bound is not None:
                self._cap = min(self._cap, int(np.floor(result.bound + 1e-6)))
            if result.x is None:
                return False
            kept = result.x[z.start : z.start + shared.album.photos] > 0.5
            if not shared.offer(kept):
                self.refused.append(kept)
                if len(self.refused) > CUTS:
                    self.spent = True
                    return False
                continue
            if result.outcome is not Outcome.OPTIMAL:
                return False
            if self._cap <= shared.value:
                return True
        return False

    def bound(self) -> int:
        """The solver's bound, or the incumbent's value where that is higher."""
        return max(self._cap, self.shared.value)
