"""The guarantee of a censored album, measured by exact ranks from the scores alone."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from attrs import frozen

from privopt.interfaces import Certificate, Guarantee, PrivacyConstraint, Result
from privopt_photo_censor.album import some
from privopt_photo_censor.problem import PhotoInstance
from privopt_photo_censor.rank import protected_k
from privopt_photo_censor.release import Deletions

__all__ = ["TopK"]


@frozen(kw_only=True, eq=False)
class TopK(PrivacyConstraint[Deletions]):
    """The true location is not among the k locations that the classifier finds most likely (paper, (3))."""

    kind: ClassVar[str] = "top-k"

    problem: PhotoInstance

    @classmethod
    def promise(cls, result: Result) -> str:
        """State the place's rank among the classifier's guesses."""
        details, task = result.details.facts, result.guarantee.extra
        after, before = details.get("rank_after"), details.get("rank_before")
        shift = f" (it was guess {before}, now it is guess {after})" if after and before else ""
        k = task.get("top_k")
        if k:
            best = "best guess" if k == 1 else f"{k} best guesses"
            return f"From the photos that remain, the classifier does not have the true place among its {best}{shift}."
        return (
            f"With at most {task.get('deletion_budget')} photos deleted, at least "
            f"{details.get('protected_k', 'so many')} other places look as likely to the classifier as the true "
            f"one{shift}."
        )

    @classmethod
    def limits(cls, result: Result) -> tuple[list[str], list[str]]:
        """List that ranks are checked; other classifiers, people and captions are not."""
        checked = ["The rank of the true place from the photos that remain, by exact sums of the scores."]
        return checked, [
            "Other classifiers, unless they lie within the margin; and people, who may know the place.",
            "What file names, captions, dates and positions in the photos' files reveal.",
        ]

    @property
    def guarantee(self) -> Guarantee:
        """Kind ``"top-k"``; of a folder it names what lies in it and was not scored."""
        album, task, seen = self.problem.album, self.problem.declared.task, self.problem.seen
        theta = album.margin
        against = f"a classifier within {theta:g} of this one in every score difference" if theta else "this classifier"
        if task.top_k is not None:
            promise = f"The true location is not among the {task.top_k} most likely ones"
            extra: dict[str, Any] = {"top_k": task.top_k}
        else:
            promise = "At most the budget is deleted; certificate.protected_k locations are as likely as the true one"
            extra = {"deletion_budget": task.budget}
        outside = f", nor of what else the folder holds: {some(seen.left_out)}" if seen and seen.left_out else ""
        reach = (
            f"It speaks of the {album.photos} pictures scored, not of what else their files carry (position, "
            f"time, names){outside}."
        )
        return Guarantee(
            kind="top-k",
            scope="margin" if theta else "this-classifier",
            statement=f"{promise}, for {against}; ties count as protected. {reach}",
            extra=extra | {"margin": theta},
        )

    def measure(self, release: Deletions) -> Certificate:
        """Count the locations at or above the true one again, by the signs of exact sums over the raw scores.

        ``worst`` and ``allowed`` are locations that the true one beats (top-k), or photos deleted (budget).
        """
        album, task = self.problem.album, self.problem.declared.task
        above = protected_k(album, release.kept)
        failures = []
        if (album.keep & ~release.kept).any():
            lost = np.flatnonzero(album.keep & ~release.kept).tolist()
            failures.append(f"photos {lost} of photos.keep are deleted")
        if release.kept.sum() < album.keep_at_least:
            failures.append(f"{int(release.kept.sum())} photos remain, photos.keep_at_least = {album.keep_at_least}")
        if task.top_k is not None:
            worst, allowed = album.locations - 1 - above, album.locations - 1 - task.top_k
            if worst > allowed:
                failures.append(f"protected k is {above}, privacy.top_k = {task.top_k}")
        else:
            worst, allowed = int((~release.kept).sum()), int(task.budget or 0)
            if worst > allowed:
                failures.append(f"{worst} photos are deleted, privacy.deletion_budget = {allowed}")
        return Certificate(
            holds=not failures,
            evidence="proved",
            kind="top-k",
            worst=float(worst),
            allowed=float(allowed),
            checked=album.locations - 1,
            arithmetic="sign of one exact sum of doubles for each location",
            notes={"protected_k": above, "rank_after": above + 1},
            failures=tuple(failures),
        )
