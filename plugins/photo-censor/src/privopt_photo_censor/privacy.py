"""The top-k guarantee for a censored album, which is certified by the exact rank of the true location."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from attrs import frozen

from privopt.errors import number_of
from privopt.interfaces import Certificate, Guarantee, PrivacyConstraint, Result
from privopt_photo_censor.album import shorten_list
from privopt_photo_censor.problem import PhotoInstance
from privopt_photo_censor.rank import protected_k
from privopt_photo_censor.release import Deletions

__all__ = ["TopK"]


@frozen(kw_only=True, eq=False)
class TopK(PrivacyConstraint[Deletions]):
    """The requirement that the true location is not among a classifier's k best guesses (AAAI 2020, Equation (3)).

    In a budget task, the requirement is instead that no more photos are deleted than the budget allows.

    Attributes:
        problem: The problem, with its scores and task.
    """

    kind: ClassVar[str] = "top-k"

    problem: PhotoInstance

    @classmethod
    def promise(cls, result: Result) -> str:
        """Return the sentence in the report that states the guarantee.

        It includes the true location's rank before and after the deletions if both are known.
        """
        details, task = result.details.facts, result.guarantee.extra
        new_rank, original_rank = details.get("rank_after"), details.get("rank_before")
        shift = f" (it was guess {original_rank}, now it is guess {new_rank})" if new_rank and original_rank else ""
        k = task.get("top_k")
        # If there is no top_k, the task is a deletion budget.
        if k:
            if k == 1:
                return f"From the photos that remain, the classifier's best guess is not the true place{shift}."
            return (
                f"From the photos that remain, the classifier does not have the true place among its {k} best "
                f"guesses{shift}."
            )
        return (
            f"With at most {number_of(int(task.get('deletion_budget') or 0), 'photo')} deleted, at least "
            f"{details.get('protected_k', 'so many')} other places look as likely to the classifier as the true "
            f"one{shift}."
        )

    @classmethod
    def trust(cls, result: Result) -> str:
        """Return the sentence in the report that states whom the guarantee protects against."""
        return "It holds against this classifier alone: another one, or a person, may still know the place."

    @classmethod
    def limits(cls, result: Result) -> tuple[list[str], list[str]]:
        """Return two lists of phrases for the report: what was checked, and what was not."""
        checked = ["The rank of the true place from the photos that remain, by exact sums of the scores."]
        return checked, [
            "Other classifiers, unless they lie within the margin; and people, who may know the place.",
            "What file names, captions, dates and positions in the photos' files reveal.",
        ]

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee stated with the release. For a folder, it also names the files that were not scored."""
        album, task, folder_contents = self.problem.album, self.problem.declared.task, self.problem.folder_contents
        theta = album.margin
        against = f"a classifier within {theta:g} of this one in every score difference" if theta else "this classifier"
        if task.top_k is not None:
            ranks = "the most likely one" if task.top_k == 1 else f"among the {task.top_k} most likely ones"
            promise = f"The true location is not {ranks}"
            extra: dict[str, Any] = {"top_k": task.top_k}
        else:
            promise = "At most the budget is deleted; certificate.protected_k locations are as likely as the true one"
            extra = {"deletion_budget": task.budget}
        # Files that were not scored are named here, because the guarantee does not cover them.
        left_out_text = (
            f", nor about what else the folder holds: {shorten_list(folder_contents.left_out)}"
            if folder_contents and folder_contents.left_out
            else ""
        )
        covered_text = (
            f"That is about the {number_of(album.photos, 'picture')} scored, not about what else their files carry "
            f"(position, time, names){left_out_text}."
        )
        return Guarantee(
            kind="top-k",
            scope="margin" if theta else "this-classifier",
            statement=f"{promise}, for {against}; ties count as protected. {covered_text}",
            extra=extra | {"margin": theta},
        )

    def measure(self, release: Deletions) -> Certificate:
        """Certify a release by the exact rank of the true location.

        The certificate holds if ``worst`` is at most ``allowed``, all photos that must be kept are retained, and at
        least ``keep_at_least`` photos are retained. In a top-k task, ``worst`` and ``allowed`` count the locations that
        rank below the true one. In a budget task, they count deleted photos.
        """
        album, task = self.problem.album, self.problem.declared.task
        protected_count = protected_k(album, release.retained)
        failures = []
        if (album.keep & ~release.retained).any():
            deleted_rows = np.flatnonzero(album.keep & ~release.retained).tolist()
            failures.append(f"photos {deleted_rows} of photos.keep are deleted")
        if release.retained.sum() < album.keep_at_least:
            failures.append(
                f"{number_of(int(release.retained.sum()), 'photo')} left, photos.keep_at_least = {album.keep_at_least}"
            )
        if task.top_k is not None:
            # A certificate requires worst <= allowed, so it counts the locations that are *not* protected.
            worst, allowed = album.locations - 1 - protected_count, album.locations - 1 - task.top_k
            if worst > allowed:
                failures.append(f"protected k is {protected_count}, privacy.top_k = {task.top_k}")
        else:
            worst, allowed = int((~release.retained).sum()), int(task.budget or 0)
            if worst > allowed:
                failures.append(f"{number_of(int(worst), 'photo')} deleted, privacy.deletion_budget = {allowed}")
        return Certificate(
            holds=not failures,
            evidence="proved",
            kind="top-k",
            worst=float(worst),
            allowed=float(allowed),
            checked=album.locations - 1,
            arithmetic="sign of one exact sum of doubles for each location",
            notes={"protected_k": protected_count, "rank_after": protected_count + 1},
            failures=tuple(failures),
        )
