"""Check that the photos kept by photo-censor make enough other places at least as likely as the true one."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from privopt.checker.compare import compare
from privopt.checker.exact import need, number
from privopt.checker.files import Problem
from privopt_photo_censor.checkers.cases import Choice, check_cases
from privopt_photo_censor.checkers.scores import differences, read_deletions, read_scores

__all__ = ["Photos"]

TABLES = {
    *("records", "outputs", "distance", "privacy", "utility", "photos", "photo-censor"),
    *("bd-mdp", "const-opt", "exponential", "fl-linear", "given", "hierarchical-dp"),
    *("lr-geo", "optimal-lp", "planar-laplace"),
}
"""The tables that a problem file may contain. Tables for other mechanisms are ignored."""

KEYS = "scores probabilities folder classifier true_location keep keep_at_least max_megapixels"
"""The keys of the ``[photos]`` table in a problem file."""

PRIVACY_KEYS = "top_k deletion_budget margin"
"""The keys of the ``[privacy]`` table in a problem file."""


class Photos:
    """A checker for the claims of one photo-censor release.

    Let S_ij be photo i's score (log-probability) for place j, and t the true place. A place j is protected if the sum
    of S_ij - S_it - margin over the kept photos i is at least 0. The classifier then finds j at least as likely as t,
    even if the margin is added to every score for t. If a kept photo has the score -inf for the true place, all other
    places are protected.

    Photos are identified by index. Clean copies, if there are any, are numbered after the photos.

    Attributes:
        folder, result: The release folder, and the contents of its result.json.
        options: The ``[privacy]`` table of the problem file.
        all, retained, keep: The indices of all photos, of the posted photos, and of the photos that must be posted.
        copies: The indices of the clean copies, or ``retained`` if there are none.
        theta: The margin, which is added to each photo's score for the true place.
        k, budget: The number of places to protect, and the number of photos that may be deleted. One of the two is the
            task, and the other is 0.
        least: The minimum number of photos that must be kept.
        whom: The guarantee's scope in result.json: "this-classifier", or "margin" if it covers all classifiers within
            the margin.
        blind: The indices of the photos and copies that assign probability 0 to the true place.
        gain: For each other place j, the list of S_ij - S_it - margin over all photos and copies i, as exact integers
            in units of 2**-1074. An entry is None if a score is -inf.
        level, deleted: The number of protected places and the number of deleted photos, set by :meth:`privacy`.
        value: The loss, set by :meth:`objective`.
    """

    def __init__(self, folder: Path, problem: Problem, result: dict[str, Any]) -> None:
        """Read the scores and deletions, and check that the problem file specifies one source of scores and one task.

        Args:
            folder: The release folder.
            problem: The release's problem file.
            result: The contents of the release's result.json.

        Raises:
            RefusedError: The problem file has unknown or contradictory keys, or does not match the other files.
        """
        problem.allow(TABLES)
        photos = problem.table("photos", KEYS)
        options = self.options = problem.table("privacy", PRIVACY_KEYS)
        self.folder, self.result = folder, result
        # The classifier file is marked as used without being read, because its scores are in the release.
        problem.used |= {f"problem/{photos.get('classifier')}"}
        listed, self.retained = read_deletions(folder)
        table = read_scores(folder, problem, photos, listed, self.retained)
        true = table.true  # the index of the true place
        self.all = set(range(len(listed)))
        self.theta = float(number(options.get("margin", 0)))
        self.k, self.budget = options.get("top_k", 0), options.get("deletion_budget", 0)
        keep = photos.get("keep", [])
        # A photo is given by its file name or by its index.
        self.keep = {listed.index(photo) if isinstance(photo, str) else photo for photo in keep}
        keep_at_least = photos.get("keep_at_least", 1)
        _need_one_task(photos, options, [*self.keep], keep_at_least, true)
        need(self.theta >= 0, "problem: expected one source of scores, one task and one true place", 2)
        self.least = max(len(self.keep), keep_at_least)
        self.whom = "margin" if self.theta else "this-classifier"
        rows = table.scores + (table.copies or [])
        # The rows of the copies follow those of the photos.
        self.copies = set(range(len(listed), len(rows))) if table.copies is not None else self.retained
        self.blind = {i for i, row in enumerate(rows) if row[true] == -math.inf}
        places = {*range(len(rows[0]))} - {true}
        self.gain = {j: differences(rows, j, true, self.theta) for j in places}

    def claims(self) -> Mapping[str, Callable[[], str]]:
        """Return the functions that check the release's claims, keyed by claim, in the order to call them.

        Each function returns a description of the result, which the checker prints.
        """
        return {"privacy": self.privacy, "objective": self.objective, "words": self.words}

    def _count_protected(self, photos: set[int]) -> int:
        """Return the number of places that are protected if the given photos are posted.

        If the set is empty, or if one of the photos assigns probability 0 to the true place, all other places are
        protected.
        """
        if not photos or photos & self.blind:
            return len(self.gain)
        # The gains are exact integers, so each sum has its true sign.
        columns = ([gain[i] for i in photos] for gain in self.gain.values())
        # A gain is None if the photo rules the place out. A tie protects the place.
        return sum(None not in column and sum(x for x in column if x is not None) >= 0 for column in columns)

    def privacy(self) -> str:
        """Check that the posted photos and the copies protect enough places, or that the deletion budget is respected.

        In either case, all photos that must be kept have to be posted. With a budget, the copies have to protect at
        least as many places as the posted photos.

        Returns:
            A description of the result for the checker's output.

        Raises:
            RefusedError: Too few places are protected, too many photos are deleted, or a photo that must be kept is
                deleted.
        """
        self.level, copies = self._count_protected(self.retained), self._count_protected(self.copies)
        self.deleted = len(self.all) - len(self.retained)
        stays = self.keep <= self.retained and len(self.retained) >= self.least
        if self.k:
            enough = min(self.level, copies) >= self.k
        else:
            # With a budget, no number of places is required, but the copies must not protect fewer than the photos
            # kept.
            enough = self.deleted <= self.budget and copies >= self.level
        reason = f"{self.deleted} deletions protect {self.level} places, or include photos that must stay"
        need(stays and enough, reason)
        others = f"{self.level} of {len(self.gain)} other places"
        return f"{others} are at least as likely as the true one"

    def objective(self) -> str:
        """Check that the proof establishes the stated bound on the objective for every choice of photos.

        The bound is a lower bound on the number of deleted photos or, with a budget, an upper bound on the number of
        protected places.

        Returns:
            A description of the result for the checker's output.

        Raises:
            RefusedError: The bound is impossible or not proved, or only one of the bound and the proof is present.
        """
        self.value = float(self.deleted if self.k else self.level)
        bound = self.result["objective"]["lower_bound"]
        proved = (self.folder / "proof.npz").exists()
        need(proved == (bound is not None), "objective.lower_bound and proof.npz: only one of them is there")
        if bound is None:
            return f"{self.value:g}; no bound is claimed"
        is_integral = type(bound) in (int, float) and bound == int(bound)
        is_consistent = bound <= self.value if self.k else bound >= self.value
        need(is_integral and is_consistent, f"objective.lower_bound: {bound} is not a possible bound")
        # The claim to check is that no choice is better than the bound. With a top-k, that means protecting k places
        # with fewer deletions. With a budget, it means protecting more places within the budget.
        if self.k:
            places, fewest = self.k, len(self.all) - int(bound) + 1
        else:
            places, fewest = int(bound) + 1, max(self.least, len(self.all) - self.budget)
        choice = Choice(photos=self.all, keep=self.keep, gain=self.gain, blind=self.blind)
        check_cases(self.folder / "proof.npz", choice, places=places, fewest=fewest)
        return f"{self.value:g}; no choice is better than {bound:g}"

    def words(self) -> str:
        """Check that the guarantee, certificate and gap in result.json agree with those derived by the checker.

        Returns:
            A description of the result for the checker's output.

        Raises:
            RefusedError: An entry of result.json differs from the derived value.
        """
        # The entries that the guarantee in result.json must have, and below those that the certificate must have.
        promise = {
            **self.options,
            "kind": "top-k",
            "epsilon": None,
            "epsilon_text": None,
            "unit": "",
            "scope": self.whom,
            "margin": self.theta,
        }
        worst, allowed = self.deleted, self.budget
        # A certificate requires worst <= allowed, so for a top-k it counts the places that are not protected.
        if self.k:
            worst, allowed = (len(self.gain) - n for n in (self.level, self.k))
        measured = {
            "worst": float(worst),
            "allowed": float(allowed),
            "checked": len(self.gain),
            "protected_k": self.level,
            "rank_after": self.level + 1,
        }
        return compare(
            self.result,
            promise=promise,
            measured=measured,
            value=self.value,
            unit="photos" if self.k else "locations",
            gap=self._compute_gap(),
        )

    def _compute_gap(self) -> float | None:
        """Return the gap between the objective and its bound, or None if no bound is claimed.

        The gap is relative if the objective counts deleted photos, and absolute if it counts protected places.
        """
        objective = self.result["objective"]
        if objective["lower_bound"] is None:
            return None
        value, bound = float(objective["value"]), float(objective["lower_bound"])
        if self.k:
            return max(0.0, (value - bound) / max(abs(value), 1e-12))
        return max(0.0, bound - value)


def _need_one_task(
    photos: Mapping[str, Any],
    options: Mapping[str, Any],
    keep: list[Any],
    keep_at_least: Any,
    true: int,
) -> None:
    """Check that a problem file has exactly one source of scores and one task, and that its numbers are valid.

    Args:
        photos, options: The ``[photos]`` and ``[privacy]`` tables of the problem file.
        keep: The indices of the photos that must be kept.
        keep_at_least: The minimum number of photos that must be kept.
        true: The index of the true place. If the ``[photos]`` table also specifies one, the two must agree.

    Raises:
        RefusedError: There is not exactly one source and one task, or a number is invalid.
    """
    sources = photos.keys() & {"scores", "probabilities", "folder"}
    tasks = options.keys() & {"top_k", "deletion_budget"}
    true_location = photos.get("true_location", int(true))
    budget, k = options.get("deletion_budget", 0), options.get("top_k", 0)
    # Types are compared, because isinstance would accept True as an int.
    numbers = [budget, k, keep_at_least, true_location, *keep]
    has_one_task = {*map(type, numbers)} == {int} and true_location == true and len(sources) == len(tasks) == 1
    # No number may be negative, and top_k must be at least 1.
    is_valid = has_one_task and min(*numbers, options.get("top_k", 1) - 1) >= 0
    need(is_valid, "problem: expected one source of scores, one task and one true place", 2)
