"""The method ``optimal``, which finds the best set of photos to retain by branch and bound."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
from attrs import frozen

from privopt.arrays import Bools
from privopt.errors import InfeasibleError, StoppedError, number_of
from privopt.execution.clock import clock
from privopt_photo_censor.album import Album, Task
from privopt_photo_censor.rank import protected_k
from privopt_photo_censor.solver.incumbent import Incumbent
from privopt_photo_censor.solver.proof import Tree, make_claim
from privopt_photo_censor.solver.search import Search

__all__ = ["Plan", "describe_clash", "prove_bound", "solve", "solve_easy_case"]

FIRST_WORK: Final = 2_000_000
"""The work on linear programs (see :attr:`Program.work`) after which the search pauses to prove weaker bounds.

200 programs of 10,000 photos take 5 s, and 16,000 programs of 128 photos take 8 s.
"""


@frozen(kw_only=True, eq=False)
class Plan:
    """The photos to retain, with a bound on the value of any set of photos.

    The value of a set is the number of retained photos or, under a budget, the number of protected locations.

    Attributes:
        retained: (N,) A mask of the photos to retain.
        protected: The exact number of locations that rank at or above the true one.
        bound: An upper bound on the value of any set of photos.
        tree: The proof of the bound. None if the bound has no proof.
        proved: How optimality was proved, or an empty string if it was not.
        programs: The number of linear programs solved.
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
    def deleted_count(self) -> int:
        """The number of deleted photos."""
        return int((~self.retained).sum())


def solve(album: Album, task: Task, *, report: Callable[[int, int], None] | None = None) -> Plan:
    """Find the best set of photos to retain, and prove a bound on the value of any set.

    The set is optimal unless the search stops early. This happens when the enclosing time limit is reached, when the
    user interrupts the search, when the proof grows too large, or when a case of the proof can be neither closed nor
    branched on.

    Args:
        album: The scores, and the photos that must be kept.
        task: A top-k or budget task.
        report: A function that is called once, before the search, with the value of the first incumbent and a bound.

    Raises:
        InfeasibleError: No set of photos satisfies the task. The message names the conflicting keys.
        StoppedError: The search stopped before it found a set of photos.
        KeyboardInterrupt: The user interrupted the search before it found a set of photos.
    """
    plan = solve_easy_case(album, task)
    if plan is not None:
        return plan
    incumbent = Incumbent(album, task)
    incumbent.start()
    if report is not None:
        report(incumbent.value, incumbent.cap)
    search, interrupted = Search(album, incumbent), False
    weaker_proof: tuple[int, Tree] | None = None
    try:
        # The beam search looks for a better incumbent by growing sets of locations. It is pointless if the incumbent
        # already attains the bound from single locations, or if the search branches on photos.
        if incumbent.value < incumbent.cap and not search.by_photos:
            search.run_beam()
        # A search that does not end soon may not end at all, and its open cases prove little. So weaker bounds are
        # proved before it continues.
        search.run(max_work=search.work + FIRST_WORK)
        if not search.is_done:
            for proof in prove_weaker_bounds(search):
                weaker_proof = proof
        # The search is over if the incumbent has attained the last of these bounds.
        if weaker_proof is None or weaker_proof[0] > incumbent.value:
            search.run()
    except KeyboardInterrupt:
        # Ctrl-C ends the search with the best set so far, if there is one.
        if incumbent.retained is None:
            raise
        interrupted = True
    if incumbent.retained is None:
        if search.is_done:
            raise InfeasibleError(describe_clash(incumbent))
        raise StoppedError("stopped before any set of photos was found that meets the task; nothing written")
    bound, tree = search.make_proof()
    if weaker_proof is not None and weaker_proof[0] < bound:
        bound, tree = weaker_proof
    is_proved = search.is_done or bound == incumbent.value
    # Under a budget, the search does not minimise the number of deletions, so some may be unnecessary.
    if task.budget is not None:
        incumbent.restore()
    return Plan(
        retained=incumbent.retained,
        protected=protected_k(album, incumbent.retained),
        bound=bound,
        tree=tree,
        proved="search" if is_proved else "",
        programs=search.program.solved,
        stopped=not is_proved and (interrupted or clock().left == 0.0),
    )


def prove_weaker_bounds(search: Search) -> Iterator[tuple[int, Tree]]:
    """Prove successively smaller upper bounds on the optimal value, by bisection.

    Each step starts a new search for a proof of a target bound between the incumbent's value and the bound proved so
    far. The higher the target, the fewer cases the search needs. The search ends with a proof of the target, or with a
    better set of photos, which becomes the incumbent. The bisection ends when a search takes too much time or its proof
    grows too large.

    Args:
        search: The search for the best set. Only its incumbent and its linear program are modified.

    Yields:
        Each bound, with the tree that proves it.
    """
    goal = search.incumbent
    proved_bound, _ = search.make_proof()
    while clock().left > 0.0:
        # The incumbent's value is one less than what a better set must achieve.
        value = goal.need - 1 if goal.task.budget is None else goal.k - 1
        middle = (value + proved_bound) // 2
        # Proving the incumbent's own value is the task of the search itself.
        if middle <= value:
            return
        attempt = search.make_search_above(middle)
        attempt.run(first_only=True)
        if attempt.incumbent.retained is not None:
            goal.offer(attempt.incumbent.retained)
            continue
        bound, tree = attempt.make_proof()
        if bound < proved_bound:
            proved_bound = bound
            yield bound, tree
        if not attempt.is_done:
            return


def solve_easy_case(album: Album, task: Task) -> Plan | None:
    """Return an optimal plan if it is obvious, or None if a search is needed.

    A plan is obvious if keeping all photos satisfies a top-k task or, under a budget, protects every location. It is
    also obvious if the budget permits deleting all photos and no photos are required to remain.

    Args:
        album: The scores, and the photos that must be kept.
        task: A top-k or budget task.
    """
    all_photos = np.ones(album.photos, dtype=np.bool_)
    protected_count = protected_k(album)
    # In each of these cases, the bound is the number of all photos or of all other locations, which no set exceeds. So
    # an empty tree proves it.
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
    """Prove a bound on the value of any set of photos.

    If the time limit is reached or the proof grows too large, a weaker bound is proved instead.

    Args:
        album: The scores, and the photos that must be kept.
        task: A top-k or budget task.
        bound: The conjectured bound on the number of retained photos or, under a budget, of protected locations.

    Returns:
        The proved bound and the tree that proves it, or None if a set of photos exceeds ``bound``.
    """
    k, fewest = make_claim(album, task, bound)
    # No set can exceed such a bound, so the proof needs no cases.
    if fewest > album.photos or k > album.locations - 1:
        return bound, Tree.of([], [], np.zeros(0, dtype=np.int64))
    # A photo that gives the true location probability 0, or no photo at all, protects every location.
    if album.rules_out_true or fewest < 1:
        return None
    # The search looks for a set that exceeds the bound. If it ends without one, its cases prove the bound.
    goal = Incumbent(album, task)
    goal.k, goal.need = k, fewest
    search = Search(album, goal)
    search.run()
    return None if goal.retained is not None else search.make_proof()


def describe_clash(incumbent: Incumbent) -> str:
    """Return an error message that explains why a top-k task is infeasible and names the conflicting keys.

    Args:
        incumbent: The incumbent of the search, which provides the album and the task.
    """
    album = incumbent.album
    keep_count = int(album.keep.sum())
    reachable_count = int((incumbent.reach >= incumbent.need).sum())
    parts = [f"photos.keep ({number_of(keep_count, 'photo')})"] if keep_count else []
    if album.keep_at_least > keep_count:
        parts.append(f"photos.keep_at_least = {album.keep_at_least}")
    parts.append(f"privacy.top_k = {incumbent.task.top_k}")
    if album.margin:
        parts.append(f"privacy.margin = {album.margin:g}")
    if album.keep.all():
        protected = number_of(protected_k(album), "location")
        reason = f"every photo is kept, and they leave {protected} at or above the true one"
    else:
        reason = f"{number_of(reachable_count, 'location')} can be brought level with the true one, each for itself"
    return f"infeasible: {' and '.join(parts)} cannot all hold ({reason})"
