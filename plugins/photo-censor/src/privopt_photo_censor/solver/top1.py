"""Method top-1: the polynomial algorithm (paper, section 4; mathematics P3)."""

from __future__ import annotations

import numpy as np

from privopt.errors import InfeasibleError
from privopt_photo_censor.album import Album, Task
from privopt_photo_censor.rank import protected_k
from privopt_photo_censor.solver.incumbent import Incumbent
from privopt_photo_censor.solver.optimal import Plan, clash, easy
from privopt_photo_censor.solver.single import best_for

__all__ = ["top_1"]


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
    elif not album.least:
        kept = np.zeros(album.photos, dtype=np.bool_)
    else:
        raise InfeasibleError(clash(incumbent))
    return Plan(kept=kept, protected=protected_k(album, kept), bound=int(kept.sum()))
