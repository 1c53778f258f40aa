"""The methods ``greedy`` and ``top-1``.

``greedy`` is the baseline of Yang, Chakrabarti and Vorobeychik (AAAI 2020, section 3), and ``top-1`` is their
polynomial algorithm (section 4).
"""

from __future__ import annotations

import numpy as np

from privopt.arrays import Bools
from privopt.errors import InfeasibleError, StoppedError
from privopt_photo_censor.album import Album, Task
from privopt_photo_censor.rank import protected_k
from privopt_photo_censor.solver.incumbent import Incumbent
from privopt_photo_censor.solver.optimal import Plan, describe_clash, solve_easy_case
from privopt_photo_censor.solver.single import best_for

__all__ = ["greedy", "top_1"]


def greedy(album: Album, task: Task) -> Plan:
    """Delete the photos with the highest scores for the true location, one by one, and return the resulting plan.

    Deletion stops as soon as the true location is no longer among the top k or, under a budget, when the budget is used
    up. Photos with equal scores are deleted in their original order.

    Args:
        album: The scores, and the photos that must be kept.
        task: A top-k or budget task.

    Raises:
        InfeasibleError: The bounds for individual locations show that no set of photos satisfies the task.
        StoppedError: No more photos may be deleted, although a different set of photos might satisfy the task.
    """
    is_kept = np.ones(album.photos, dtype=np.bool_)
    order = np.argsort(-album.scores[:, album.true], kind="stable")
    # The order omits the photos that must stay, and its end is cut off so that `required_count` photos remain in any
    # case.
    order = order[~album.keep[order]][: album.photos - album.required_count]
    if task.top_k is None:
        is_kept[order[: task.budget]] = False
        return _make_plan(album, task, is_kept)
    for i in order:
        if protected_k(album, is_kept) >= task.top_k:
            break
        is_kept[i] = False
    if protected_k(album, is_kept) < task.top_k:
        incumbent = Incumbent(album, task)
        # The cap considers locations one at a time. If even it is too small, no set protects k locations.
        if album.required_count and incumbent.cap < incumbent.need:
            raise InfeasibleError(describe_clash(incumbent))
        raise StoppedError("greedy ran out of photos that may be deleted; the method optimal may find a set")
    return _make_plan(album, task, is_kept)


def top_1(album: Album) -> Plan:
    """Delete as few photos as possible so that another location ranks at or above the true one, and return the plan.

    Args:
        album: The scores, and the photos that must be kept.

    Raises:
        InfeasibleError: No location can be made to rank at or above the true one.
    """
    task, is_kept = Task(top_k=1), np.ones(album.photos, dtype=np.bool_)
    # In the easy case, some location ranks at or above the true one already, and all photos stay.
    if solve_easy_case(album, task) is None:
        incumbent = Incumbent(album, task)
        # `reach` gives the number of photos that can stay for each location. The location that lets the most photos
        # stay is the best.
        best = int(incumbent.reach.argmax())
        if incumbent.reach[best] >= incumbent.need:
            is_kept = best_for(album, best, int(incumbent.reach[best]))
        elif album.required_count:
            raise InfeasibleError(describe_clash(incumbent))
        else:
            is_kept[:] = False
    return _make_plan(album, task, is_kept)


def _make_plan(album: Album, task: Task, retained: Bools) -> Plan:
    """Return the plan that retains the given photos, with an upper bound on what any set of photos can achieve.

    The bound is on the number of retained photos or, under a budget, of protected locations. It is cheap to compute,
    because it considers locations one at a time (see :attr:`Incumbent.cap`).

    Args:
        album: The scores, and the photos that must be kept.
        task: A top-k or budget task.
        retained: (N,) A mask of the photos to retain.
    """
    plan = solve_easy_case(album, task)
    # The cap is -1 if there are fewer locations than the task protects.
    bound = max(0, Incumbent(album, task).cap) if plan is None else plan.bound
    return Plan(retained=retained, protected=protected_k(album, retained), bound=bound)
