"""Method ``optimal``: the easy cases, the search, and its result."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from attrs import frozen

from privopt.arrays import Bools
from privopt.errors import InfeasibleError, StoppedError
from privopt.execution.clock import clock
from privopt_photo_censor.album import Album, Task
from privopt_photo_censor.rank import protected_k
from privopt_photo_censor.solver.incumbent import Incumbent
from privopt_photo_censor.solver.proof import Tree, claim
from privopt_photo_censor.solver.search import Search

__all__ = ["Plan", "clash", "easy", "prove", "solve"]


@frozen(kw_only=True, eq=False)
class Plan:
    """Photos to keep, and what is known of how good that is.

    Attributes:
        kept: (N,) mask.
        protected: locations at or above the true one, exactly.
        bound: top-k: the most photos that any set could keep; budget: the most locations that any could protect.
        tree: the proof of the bound; None where there is none.
        proved: what closed the proof; empty where nothing did.
        programs: linear programs evaluated.
        stopped: whether a limit or an interrupt ended it.
    """

    kept: Bools
    protected: int
    bound: int
    tree: Tree | None = None
    proved: str = ""
    programs: int = 0
    stopped: bool = False

    @property
    def deleted(self) -> int:
        """Photos not posted."""
        return int((~self.kept).sum())


def solve(album: Album, task: Task, *, report: Callable[[int, int], None] | None = None) -> Plan:
    """Return the best set of photos to keep, proved best unless the time of the scope around is over first.

    Args:
        album: scores and what must stay.
        task: top-k or deletion budget.
        report: called with value and bound of the start.

    Raises:
        InfeasibleError: no set of photos will do; says what clashes.
        StoppedError: the limit came before any set was found.
    """
    plan = easy(album, task)
    if plan is not None:
        return plan
    incumbent = Incumbent(album, task)
    incumbent.start()
    if report is not None:
        report(incumbent.value, incumbent.cap)
    search, interrupted = Search(album, incumbent), False
    try:
        if incumbent.value < incumbent.cap and not search.by_photos:
            search.beam()
        search.run()
    except KeyboardInterrupt:
        if incumbent.kept is None:
            raise
        interrupted = True
    if incumbent.kept is None:
        if search.done:
            raise InfeasibleError(clash(incumbent))
        raise StoppedError("stopped before any set of photos was found that meets the task; nothing written")
    bound, tree = search.proof()
    if task.budget is not None:
        incumbent.restore()
    return Plan(
        kept=incumbent.kept,
        protected=protected_k(album, incumbent.kept),
        bound=bound,
        tree=tree,
        proved="search" if search.done else "",
        programs=search.program.solved,
        stopped=not search.done and (interrupted or clock().left == 0.0),
    )


def easy(album: Album, task: Task) -> Plan | None:
    """Return the plan without a search if a photo gives the true location probability 0, or the task is met already."""
    everything = np.ones(album.photos, dtype=np.bool_)
    above = protected_k(album)
    nothing_to_show = Tree.of([], [], np.zeros(0, dtype=np.int64))
    if task.top_k is not None and above >= task.top_k:
        bound, kept, protected = album.photos, everything, above
    elif task.budget is not None and above == album.locations - 1:
        bound, kept, protected = above, everything, above
    elif task.budget is not None and task.budget >= album.photos and not album.required:
        bound, kept, protected = album.locations - 1, np.zeros(album.photos, dtype=np.bool_), album.locations - 1
    else:
        return None
    return Plan(kept=kept, protected=protected, bound=bound, tree=nothing_to_show, proved="nothing better exists")


def prove(album: Album, task: Task, bound: int) -> tuple[int, Tree] | None:
    """Prove that no set passes a bound, or a weaker one if time or memory is short.

    Args:
        album: scores and what must stay.
        task: top-k or deletion budget.
        bound: on the photos kept, or under a budget on the locations protected.

    Returns:
        The bound proved and its tree; None where a set passes the bound that was to be proved.
    """
    k, fewest = claim(album, task, bound)
    if fewest > album.photos or k > album.locations - 1:
        return bound, Tree.of([], [], np.zeros(0, dtype=np.int64))
    if album.hidden or fewest < 1:
        return None
    goal = Incumbent(album, task)
    goal.k, goal.need = k, fewest
    search = Search(album, goal)
    search.run()
    return None if goal.kept is not None else search.proof()


def clash(incumbent: Incumbent) -> str:
    """Name the constraints that an infeasible album violates."""
    album = incumbent.album
    kept = int(album.keep.sum())
    able = int((incumbent.reach >= incumbent.need).sum())
    parts = [f"photos.keep ({kept} photo{'s' * (kept > 1)})"] if kept else []
    if album.keep_at_least > kept:
        parts.append(f"photos.keep_at_least = {album.keep_at_least}")
    parts.append(f"privacy.top_k = {incumbent.task.top_k}")
    if album.margin:
        parts.append(f"privacy.margin = {album.margin:g}")
    if album.keep.all():
        reason = f"every photo is kept, and they leave {protected_k(album)} locations at or above the true one"
    else:
        reason = f"{able} locations can be brought level with the true one, each for itself"
    return f"infeasible: {' and '.join(parts)} cannot all hold ({reason})"
