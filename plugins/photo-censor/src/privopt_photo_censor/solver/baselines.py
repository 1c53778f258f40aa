"""Methods greedy, the paper's baseline (section 3), and top-1, its polynomial algorithm (section 4; mathematics P3)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from privopt.errors import InfeasibleError, StoppedError
from privopt_photo_censor.album import Album, Task
from privopt_photo_censor.rank import protected_k
from privopt_photo_censor.solver.incumbent import Incumbent
from privopt_photo_censor.solver.optimal import Plan, clash, easy
from privopt_photo_censor.solver.single import best_for

__all__ = ["greedy", "greedy_order", "top_1"]


def greedy_order(album: Album) -> NDArray[np.int64]:
    """Return photos that may be deleted, highest S_it first, ties by place in the album."""
    order = np.argsort(-album.scores[:, album.true], kind="stable")
    return np.asarray(order[~album.keep[order]])


def greedy(album: Album, task: Task) -> Plan:
    """Select greedily: until the top-k is defeated, or exactly the budget.

    Its bound is the cheap one of P3: each alternate's own optimum.

    Raises:
        InfeasibleError: no set of photos at all will do, as the alternates' own optima show.
        StoppedError: greedy ran out of photos; another set may do.
    """
    kept = np.ones(album.photos, dtype=np.bool_)
    order = greedy_order(album)[: album.photos - album.required]
    if task.budget is not None:
        kept[order[: task.budget]] = False
        above = protected_k(album, kept)
        bound = album.locations - 1 if album.hidden or not kept.any() else max(Incumbent(album, task).cap, above)
        return Plan(kept=kept, protected=above, bound=bound)
    wanted = task.top_k or 1
    above = protected_k(album)
    for i in order:
        if above >= wanted:
            break
        kept[i] = False
        above = protected_k(album, kept)
    if above < wanted:
        incumbent = Incumbent(album, task)
        if album.required and incumbent.cap < incumbent.need:
            raise InfeasibleError(clash(incumbent))
        raise StoppedError("greedy ran out of photos that may be deleted; the method optimal may find a set")
    count = int(kept.sum())
    bound = count if album.hidden or count == album.photos else max(Incumbent(album, task).cap, count)
    return Plan(kept=kept, protected=above, bound=bound)


def top_1(album: Album) -> Plan:
    """Return the fewest deletions after which some location is at or above the true one.

    Raises:
        InfeasibleError: none can be brought there.
    """
    task = Task(top_k=1)
    trivial = easy(album, task)
    if trivial is not None:
        return trivial
    incumbent = Incumbent(album, task)
    best = int(incumbent.reach.max(initial=-1))
    if best >= incumbent.need:
        kept = best_for(album, int(incumbent.reach.argmax()), best)
    elif not album.required:
        kept = np.zeros(album.photos, dtype=np.bool_)
    else:
        raise InfeasibleError(clash(incumbent))
    return Plan(kept=kept, protected=protected_k(album, kept), bound=int(kept.sum()))
