"""The mixed-integer program of the paper, tight (section 4; mathematics P4), through privopt's DSL.

``h_j = 1`` says that alternate j must not fall behind the true location: then ``sum_i z_i d_ij >= 0``. The row is an
indicator whose big-M is the least that the row itself allows, one for each location; the published rule (one huge T)
makes solvers call infeasible sets optimal. Alternates that cannot help are dropped by P3, and the others carry the
number of photos that can stay with them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
from scipy import sparse

from privopt.arrays import Bools
from privopt.backends import Outcome, get
from privopt.dsl.solution import SolveInterrupt
from privopt.execution.clock import OutOfTime, granted
from privopt_photo_censor.solver.incumbent import Incumbent

if TYPE_CHECKING:
    from privopt.dsl import Model
else:
    Model = Any

__all__ = ["build", "improve"]

MAX_CUTS: Final = 200
"""Sets that the exact rank refuses and that are cut off one by one before the program is given up."""
ROW_LEEWAY: Final = 1e-7
"""Relative leeway of a row, so that a tie that doubles miss is not cut off: the exact rank decides."""


def build(incumbent: Incumbent, refused: list[Bools]) -> Model:
    """Return the model of what must still be beaten.

    Args:
        incumbent: what was found, and what a better set must do.
        refused: sets that met the rows and failed the exact rank.
    """
    from privopt.dsl import Ge, Index, IndexSet, Le, Model, implies, total

    data, k, need, reach = incumbent.album.reduced, incumbent.k, incumbent.need, incumbent.reach
    active = np.flatnonzero(reach >= need)
    photos, alternates = IndexSet("photos", incumbent.album.photos), IndexSet("locations", active.size)
    i, j = Index("i", photos), Index("j", alternates)
    scale = np.maximum(np.abs(data.diff[active]).max(axis=1, initial=0.0), 1e-300)
    m = Model("photo-censor")
    z = m.variable("z", photos, kind="binary", lower=data.keep.astype(np.float64))
    h = m.variable("h", alternates, kind="binary")
    d = m.param("d", data.diff[active] / scale[:, None])
    m.require("level", implies(h[j], Ge(total(d[j, i] * z[i], over=i), -ROW_LEEWAY)), forall=j)
    if data.kills[active].any():
        m.require("ruled out", Le(h[j] + z[i], 1), forall=(j, i), where=np.argwhere(data.kills[active]))
    m.require("stay", Ge(total(z[i], over=i), need))
    m.require("top-k", Ge(total(h[j], over=j), min(k, active.size)))
    if incumbent.task.budget is not None:
        m.maximize(total(h[j], over=j))
    else:
        most = int(np.sort(reach)[-k])
        less = m.param("less", np.maximum(most - reach[active], 0).astype(np.float64))
        if (reach[active] < most).any():
            m.require("own optimum", Le(total(z[i], over=i) + less[j] * h[j], most), forall=j)
        m.maximize(total(z[i], over=i))
    if refused:
        kept = np.array(refused)
        rows = sparse.csr_matrix(np.where(kept, -1.0, 1.0))
        m.add_block("refused by the exact rank", rows, columns=z, lower=1.0 - kept.sum(axis=1))
    return m


def improve(incumbent: Incumbent, solver: str) -> tuple[str, int]:
    """Solve for something better than the incumbent until nothing is, or the limit comes.

    Args:
        incumbent: takes what is found.
        solver: backend.

    Returns:
        Name and version of the backend, and its iterations.
    """
    refused: list[Bools] = []
    name, iterations = "", 0
    while (incumbent.reach >= incumbent.need).sum() >= incumbent.k and len(refused) <= MAX_CUTS:
        form = build(incumbent, refused).compile()
        z = form.variable("z")
        photos = slice(z.start, z.start + incumbent.album.photos)
        try:
            result = get(solver).solve(form, time_limit=granted(), gap=0.0)
        except OutOfTime:  # the incumbent stands
            break
        except SolveInterrupt as interrupt:
            incumbent.offer(np.asarray(interrupt.result.x)[photos] > 0.5)
            raise
        name, iterations = result.solver, iterations + result.iterations
        if result.x is None:
            break
        kept = result.x[photos] > 0.5
        better = incumbent.offer(kept)
        if not better:
            refused.append(kept)
        elif result.outcome is Outcome.OPTIMAL:
            break
    return name, iterations
