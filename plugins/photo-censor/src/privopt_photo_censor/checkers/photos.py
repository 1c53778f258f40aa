"""A release of photos: deletions.csv, so that a classifier's scores do not reveal the place."""

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
"""Tables of a problem; those of other mechanisms no one reads."""

KEYS = "scores probabilities folder classifier true_location keep keep_at_least"


class Photos:
    """Photos, the deleted ones among them, and the places that the true one is hidden among.

    A place j is protected where sum over kept photos of (S_ij - S_it - margin) >= 0: it is as
    likely as the true one. With a classifier's score of -inf for the true place it is ruled out, so
    nothing is protected.
    """

    def __init__(self, folder: Path, problem: Problem, result: dict[str, Any]) -> None:
        """Read scores and deletions.

        Raises:
            RefusedError: something that is unknown here.
        """
        problem.allow(TABLES)
        photos = problem.table("photos", KEYS)
        asked = self.asked = problem.table("privacy", "top_k deletion_budget margin")
        self.folder, self.result = folder, result
        problem.used |= {f"problem/{photos.get('classifier')}"}
        listed, self.kept = read_deletions(folder)
        found = read_scores(folder, problem, photos, listed, self.kept)
        true = found.true
        self.all = set(range(len(listed)))
        self.theta = float(number(asked.get("margin", 0)))
        self.k, self.budget = asked.get("top_k", 0), asked.get("deletion_budget", 0)
        keep = photos.get("keep", [])
        self.keep = {listed.index(each) if isinstance(each, str) else each for each in keep}
        least = photos.get("keep_at_least", 1)
        _need_one_task(photos, asked, [*self.keep], least, true)
        need(self.theta >= 0, "problem: one source, task, place", 2)
        self.least = max(len(self.keep), least)
        self.whom = "margin" if self.theta else "this-classifier"
        rows = found.scores + (found.copies or [])
        self.copies = set(range(len(listed), len(rows))) if found.copies is not None else self.kept
        self.blind = {i for i, row in enumerate(rows) if row[true] == -math.inf}
        places = {*range(len(rows[0]))} - {true}
        self.gain = {j: differences(rows, j, true, self.theta) for j in places}

    def claims(self) -> Mapping[str, Callable[[], str]]:
        """Return the claims to check, in order."""
        return {"privacy": self.privacy, "objective": self.objective, "words": self.words}

    def _protected(self, photos: set[int]) -> int:
        """Count the places that photos protect; all, if none stay or one excludes the true one."""
        if not photos or photos & self.blind:
            return len(self.gain)
        own = ([gain[i] for i in photos] for gain in self.gain.values())
        return sum(None not in each and sum(x for x in each if x is not None) >= 0 for each in own)

    def privacy(self) -> str:
        """Check that k places are protected, or few photos go; clean copies protect as many.

        Raises:
            RefusedError: so it is not; or photos are gone that shall stay.
        """
        self.level, copies = self._protected(self.kept), self._protected(self.copies)
        self.deleted = len(self.all) - len(self.kept)
        stays = self.keep <= self.kept and len(self.kept) >= self.least
        if self.k:
            enough = min(self.level, copies) >= self.k
        else:
            enough = self.deleted <= self.budget and copies >= self.level
        why = f"{self.deleted} deletions protect {self.level} places, or take photos that shall stay"
        need(stays and enough, why)
        others = f"{self.level} of {len(self.gain)} other places"
        return f"{others} are as likely as the true one, or likelier"

    def objective(self) -> str:
        """Check that no choice deletes fewer photos, or protects more places, than the bound says.

        Raises:
            RefusedError: so it is not.
        """
        self.value = float(self.deleted if self.k else self.level)
        claimed = self.result["objective"]["lower_bound"]
        proved = (self.folder / "proof.npz").exists()
        need(proved == (claimed is not None), "objective.lower_bound or proof.npz: alone")
        if claimed is None:
            return f"{self.value:g}; no bound is claimed"
        whole = type(claimed) in (int, float) and claimed == int(claimed)
        right_side = claimed <= self.value if self.k else claimed >= self.value
        need(whole and right_side, f"lower_bound: {claimed}")
        if self.k:
            places, fewest = self.k, len(self.all) - int(claimed) + 1
        else:
            places, fewest = int(claimed) + 1, max(self.least, len(self.all) - self.budget)
        choice = Choice(photos=self.all, keep=self.keep, gain=self.gain, blind=self.blind)
        check_cases(self.folder / "proof.npz", choice, places=places, fewest=fewest)
        return f"{self.value:g}; no choice passes {claimed:g}"

    def words(self) -> str:
        """Check that result.json states what was measured.

        Raises:
            RefusedError: it is not.
        """
        promise = {
            **self.asked,
            "kind": "top-k",
            "epsilon": None,
            "epsilon_text": None,
            "unit": "",
            "scope": self.whom,
            "margin": self.theta,
        }
        worst, most = self.deleted, self.budget
        if self.k:
            worst, most = (len(self.gain) - n for n in (self.level, self.k))
        measured = {
            "worst": float(worst),
            "allowed": float(most),
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
            gap=self._gap(),
        )

    def _gap(self) -> float | None:
        """Photos that might be kept, as a share of those deleted; or places to be protected."""
        stated = self.result["objective"]
        if stated["lower_bound"] is None:
            return None
        value, bound = float(stated["value"]), float(stated["lower_bound"])
        if self.k:
            return max(0.0, (value - bound) / max(abs(value), 1e-12))
        return max(0.0, bound - value)


def _need_one_task(
    photos: Mapping[str, Any],
    asked: Mapping[str, Any],
    keep: list[Any],
    keep_at_least: Any,
    true: int,
) -> None:
    """Refuse several sources or tasks, and numbers that are none."""
    sources = photos.keys() & {"scores", "probabilities", "folder"}
    tasks = asked.keys() & {"top_k", "deletion_budget"}
    place = photos.get("true_location", int(true))
    budget, k = asked.get("deletion_budget", 0), asked.get("top_k", 0)
    told = [budget, k, keep_at_least, place, *keep]
    whole = {*map(type, told)} == {int} and place == true and len(sources) == len(tasks) == 1
    sound = whole and min(*told, asked.get("top_k", 1) - 1) >= 0
    need(sound, "problem: one source, task, place", 2)
