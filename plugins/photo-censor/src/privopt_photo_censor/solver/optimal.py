"""Method ``optimal``: cases that need no search, the search, and the plan that comes of it."""

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
from privopt_photo_censor.solver.proof import Tree, make_claim
from privopt_photo_censor.solver.search import Search

__all__ = ["Plan", "describe_clash", "prove_bound", "solve", "solve_easy_case"]


@frozen(kw_only=True, eq=False)
class Plan:
    """The photos to retain, with a bound on the value of any other set.

    Attributes:
        retained: (N,) mask of the photos.
        protected: Exact number of locations at or above the true one.
        bound: The most photos that any set could retain; under a budget the most locations that any could protect.
        tree: The proof of the bound. None without one.
        proved: What closed the proof. Empty if the search did not end.
        programs: Number of linear programs solved.
        stopped: Whether a time limit or an interrupt ended the search.
    """

    retained: Bools
    protected: int
    bound: int
    tree: Tree | None = None
    proved: str = ""
    programs: int = 0
    stopped: bool = False

    @property
    def deleted(self) -> int:
        """Number of deleted photos."""
        return int((~self.retained).sum())


def solve(album: Album, task: Task, *, report: Callable[[int, int], None] | None = None) -> Plan:
    """Return the best set of photos to retain. It is proved best unless the enclosing time scope ends first.

    Args:
        album: Scores, and what must stay.
        task: A top-k or a deletion budget.
        report: Called once with the value and the bound before the search.

    Raises:
        InfeasibleError: No set of photos meets the task. The message names the keys that clash.
        StoppedError: The time limit came before the first set.
    """
    plan = solve_easy_case(album, task)
    if plan is not None:
        return plan
    incumbent = Incumbent(album, task)
    incumbent.start()
    if report is not None:
        report(incumbent.value, incumbent.cap)
    search, interrupted = Search(album, incumbent), False
    try:
        if incumbent.value < incumbent.cap and not search.by_photos:
            search.run_beam()
        search.run()
    except KeyboardInterrupt:
        # Ctrl-C ends the run with the best set so far, if there is one.
        if incumbent.retained is None:
            raise
        interrupted = True
    if incumbent.retained is None:
        if search.is_done:
            raise InfeasibleError(describe_clash(incumbent))
        raise StoppedError("stopped before any set of photos was found that meets the task; nothing written")
    bound, tree = search.make_proof()
    # Under a budget the number of deletions is not minimised, so some of them may be needless.
    if task.budget is not None:
        incumbent.restore()
    return Plan(
        retained=incumbent.retained,
        protected=protected_k(album, incumbent.retained),
        bound=bound,
        tree=tree,
        proved="search" if search.is_done else "",
        programs=search.program.solved,
        stopped=not search.is_done and (interrupted or clock().left == 0.0),
    )


def solve_easy_case(album: Album, task: Task) -> Plan | None:
    """Return a plan if all photos, or none under a budget, are optimal; None if the album needs a search.

    A photo that gives the true location probability 0 is such a case: with it, every location is protected.
    """
    all_photos = np.ones(album.photos, dtype=np.bool_)
    protected_count = protected_k(album)
    empty_tree = Tree.of([], [], np.zeros(0, dtype=np.int64))
    if task.top_k is not None and protected_count >= task.top_k:
        bound, is_retained, protected = album.photos, all_photos, protected_count
    elif task.budget is not None and protected_count == album.locations - 1:
        bound, is_retained, protected = protected_count, all_photos, protected_count
    elif task.budget is not None and task.budget >= album.photos and not album.required_count:
        bound, is_retained, protected = album.locations - 1, np.zeros(album.photos, dtype=np.bool_), album.locations - 1
    else:
        return None
    return Plan(retained=is_retained, protected=protected, bound=bound, tree=empty_tree, proved="nothing better exists")


def prove_bound(album: Album, task: Task, bound: int) -> tuple[int, Tree] | None:
    """Prove a bound on the value of any set, or a weaker one if time or memory is short.

    Args:
        album: Scores, and what must stay.
        task: A top-k or a deletion budget.
        bound: Bound on the retained photos, or under a budget on the protected locations.

    Returns:
        The proved bound and its tree. None if a set exceeds ``bound``.
    """
    k, fewest = make_claim(album, task, bound)
    if fewest > album.photos or k > album.locations - 1:
        return bound, Tree.of([], [], np.zeros(0, dtype=np.int64))
    if album.rules_out_true or fewest < 1:
        return None
    # The search looks for a set that refutes the claim. If it ends without one, its cases prove the claim.
    goal = Incumbent(album, task)
    goal.k, goal.need = k, fewest
    search = Search(album, goal)
    search.run()
    return None if goal.retained is not None else search.make_proof()


def describe_clash(incumbent: Incumbent) -> str:
    """Describe which keys of an infeasible problem cannot all hold, and why."""
    album = incumbent.album
    keep_count = int(album.keep.sum())
    reachable_count = int((incumbent.reach >= incumbent.need).sum())
    parts = [f"photos.keep ({keep_count} photo{'s' * (keep_count > 1)})"] if keep_count else []
    if album.keep_at_least > keep_count:
        parts.append(f"photos.keep_at_least = {album.keep_at_least}")
    parts.append(f"privacy.top_k = {incumbent.task.top_k}")
    if album.margin:
        parts.append(f"privacy.margin = {album.margin:g}")
    if album.keep.all():
        reason = f"every photo is kept, and they leave {protected_k(album)} locations at or above the true one"
    else:
        reason = f"{reachable_count} locations can be brought level with the true one, each for itself"
    return f"infeasible: {' and '.join(parts)} cannot all hold ({reason})"
