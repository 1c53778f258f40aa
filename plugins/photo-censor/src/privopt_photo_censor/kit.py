"""Conformance kit profiles for photo-censor: small random albums, and a brute-force oracle in exact arithmetic."""

from __future__ import annotations

import io
import math
import random
from collections.abc import Iterator
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

from privopt.errors import InfeasibleError, StoppedError
from privopt.interfaces import Result
from privopt.testing import GeneratedProblem, Profile, Variant, npy_bytes, to_toml
from privopt_photo_censor.album import Album, Task
from privopt_photo_censor.problem import PhotoInstance
from privopt_photo_censor.release import Deletions
from privopt_photo_censor.solver.baselines import greedy

__all__ = ["PROFILE", "TASKS", "problems"]

SCORES = "scores.npy"


@st.composite
def problems(draw: st.DrawFn, tasks: bool = False) -> GeneratedProblem:
    """Draw a small problem with up to five photos and four places.

    Scores may be tied or -inf, some photos may have to be kept, and there may be a margin.

    Args:
        draw: Hypothesis's function for drawing from a strategy.
        tasks: Whether to draw deletion budgets and values of top_k above 1. If False, top_k is 1, so that every method
            can solve the problem.
    """
    photos, locations = draw(st.integers(1, 5)), draw(st.integers(2, 4))
    # Multiples of 1/4 are exact in doubles and often tie, whereas the margin 0.1 is not exact.
    entry = st.one_of(st.integers(0, 12).map(lambda n: -n / 4), st.just(-math.inf))
    entries = draw(st.lists(entry, min_size=photos * locations, max_size=photos * locations))
    scores = np.array(entries, dtype=np.float64).reshape(photos, locations)
    table: dict[str, Any] = {"scores": SCORES, "true_location": draw(st.integers(0, locations - 1))}
    keep = draw(st.lists(st.integers(0, photos - 1), max_size=2, unique=True))
    if keep:
        table["keep"] = keep
    table["keep_at_least"] = draw(st.integers(0, 1))
    privacy: dict[str, Any] = {}
    if tasks and draw(st.booleans()):
        privacy["deletion_budget"] = draw(st.integers(0, photos))
    else:
        privacy["top_k"] = draw(st.integers(1, locations - 1)) if tasks else 1
    privacy["margin"] = draw(st.sampled_from([0.0, 0.25, 0.1]))
    problem = GeneratedProblem(toml=to_toml({"photos": table, "privacy": privacy}), files={SCORES: npy_bytes(scores)})
    # The kit runs every method on each problem, but greedy gives up on some problems that have a solution.
    assume(
        _can_greedy_decide(
            _make_album(problem), Task(top_k=privacy.get("top_k"), budget=privacy.get("deletion_budget"))
        )
    )
    return problem


def _read_scores(problem: GeneratedProblem) -> Any:
    """Return a generated problem's scores as an array of shape (photos, locations)."""
    return np.load(io.BytesIO(problem.files[SCORES]))


def _make_album(problem: GeneratedProblem) -> Album:
    """Build a generated problem's album directly, without using the mechanism's own reader."""
    scores = _read_scores(problem)
    keep = np.zeros(len(scores), dtype=np.bool_)
    keep[problem.get("photos.keep", [])] = True
    return Album(
        scores=scores,
        true=problem.get("photos.true_location"),
        keep=keep,
        keep_at_least=problem.get("photos.keep_at_least", 1),
        margin=float(problem.get("privacy.margin", 0)),
    )


def _can_greedy_decide(album: Album, task: Task) -> bool:
    """Return whether greedy deletion either solves the task or proves that the task cannot be solved."""
    try:
        greedy(album, task)
    except StoppedError:
        return False
    except InfeasibleError:
        return True
    return True


def _count_protected(album: Album, retained: tuple[int, ...]) -> int:
    """Count the locations that rank at or above the true one, using rational arithmetic.

    This function shares no code with the mechanism, so it can serve as an independent check.

    Args:
        album: The scores.
        retained: The rows of the posted photos.
    """
    if not retained or any(np.isneginf(album.scores[i, album.true]) for i in retained):
        return album.locations - 1
    count = 0
    for j in range(album.locations):
        if j != album.true and not any(np.isneginf(album.scores[i, j]) for i in retained):
            pairs = ((Fraction(album.scores[i, j]), Fraction(album.scores[i, album.true])) for i in retained)
            # The margin is added once for each photo, and a tie protects the location.
            total = sum((score - true for score, true in pairs), Fraction())
            count += total >= len(retained) * Fraction(album.margin)
    return count


def _find_optimum(problem: PhotoInstance, result: Result) -> float | None:
    """Compute a small problem's optimal value by brute force, or return None if no set of photos satisfies the task.

    The value is the minimum number of deleted photos or, under a budget, the maximum number of protected locations.
    ``result`` is not used.
    """
    album, task = problem.album, problem.declared.task
    fixed = set(np.flatnonzero(album.keep).tolist())
    values = []
    # There are at most 32 sets, because there are at most five photos.
    for count in range(album.keep_at_least, album.photos + 1):
        for rows in combinations(range(album.photos), count):
            if not fixed <= set(rows):
                continue
            protected_count, deleted = _count_protected(album, rows), album.photos - count
            if task.top_k is not None and protected_count >= task.top_k:
                values.append(float(deleted))
            elif task.budget is not None and deleted <= task.budget:
                values.append(float(protected_count))
    if not values:
        return None
    return min(values) if task.top_k is not None else max(values)


def _check_release(problem: PhotoInstance, release: Deletions, result: Result) -> Iterator[str]:
    """Check a release using exact arithmetic and brute force, and yield a message for each error found.

    Args:
        problem: The problem, with its album and task.
        release: The release to check.
        result: The result recorded for the release.
    """
    album = problem.album
    protected_count = _count_protected(album, tuple(np.flatnonzero(release.retained).tolist()))
    details = result.details.facts
    if details["protected_k"] != protected_count or details["rank_after"] != protected_count + 1:
        yield f"protected k is {protected_count} in rationals, result.json says {details['protected_k']}"
    if details["rank_before"] != _count_protected(album, tuple(range(album.photos))) + 1:
        yield f"rank_before = {details['rank_before']} is not that of the whole album"
    if result.method in ("optimal", "top-1") and result.objective.value != _find_optimum(problem, result):
        yield f"objective {result.objective.value}, trying every set gives {_find_optimum(problem, result)}"


def _make_stricter(problem: GeneratedProblem) -> GeneratedProblem | None:
    """Return a copy of the problem with top_k increased by 1, which cannot improve the optimum.

    Returns None if the problem has a deletion budget instead of top_k, or if top_k is 1 or already as large as
    possible.
    """
    k = problem.get("privacy.top_k")
    if k is None or k + 1 >= _read_scores(problem).shape[1] or k == 1:
        return None
    return problem.with_key("privacy.top_k", k + 1)


def _reorder_photos(problem: GeneratedProblem, chance: random.Random) -> Variant | None:
    """Return a copy of the problem with its photos shuffled, which must not change the optimum.

    Row numbers in ``photos.keep`` are updated accordingly.

    Args:
        problem: The problem to vary.
        chance: The random number generator used to shuffle the photos.
    """
    scores = _read_scores(problem)
    order = list(range(len(scores)))
    chance.shuffle(order)
    variant = problem.with_file(SCORES, npy_bytes(scores[order]))
    keep = [order.index(photo) for photo in problem.get("photos.keep", [])]
    if keep:
        variant = variant.with_key("photos.keep", keep)
    return Variant(problem=variant, change=f"the photos were put in the order {order}")


def _permute_locations(problem: GeneratedProblem, chance: random.Random) -> Variant | None:
    """Return a copy of the problem with its locations shuffled, which must not change the optimum."""
    scores = _read_scores(problem)
    order = list(range(scores.shape[1]))
    chance.shuffle(order)
    variant = problem.with_file(SCORES, npy_bytes(scores[:, order]))
    true = order.index(problem.get("photos.true_location"))
    return Variant(problem=variant.with_key("photos.true_location", true), change=f"locations in the order {order}")


def _make_profile(tasks: bool) -> Profile:
    """Return the profile for one kind of generated problem.

    Args:
        tasks: Whether problems may have a top_k above 1 or a deletion budget. If False, top_k is always 1.
    """
    return Profile(
        problems=problems(tasks),
        stricter=_make_stricter if tasks else None,
        variants={"reordering": _reorder_photos, "relabelling": _permute_locations},
        best_known=_find_optimum,
        oracle=_check_release,
    )


PROFILE = _make_profile(tasks=False)
"""The profile for testing all methods, in which top_k is always 1."""
TASKS = _make_profile(tasks=True)
"""The profile for testing the method ``optimal``, in which problems may have any top_k or a deletion budget."""
