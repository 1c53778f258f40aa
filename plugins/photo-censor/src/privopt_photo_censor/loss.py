"""The utility losses of photo-censor.

With a top-k requirement, the number of deleted photos is minimised. With a deletion budget, the number of protected
locations is maximised.
"""

from __future__ import annotations

from privopt.interfaces import UtilityLoss
from privopt_photo_censor.rank import protected_k
from privopt_photo_censor.release import Deletions

__all__ = ["DeletedPhotos", "ProtectedK"]


class DeletedPhotos(UtilityLoss[Deletions]):
    """The number of deleted photos, which is minimised."""

    unit = "photos"

    def evaluate(self, release: Deletions) -> float:
        """Return the number of photos that the release deletes."""
        return float((~release.retained).sum())


class ProtectedK(UtilityLoss[Deletions]):
    """The number of locations that rank at or above the true one, which is maximised."""

    unit = "locations"
    maximise = True

    def evaluate(self, release: Deletions) -> float:
        """Return the number of locations that rank at or above the true one, computed with exact sums."""
        return float(protected_k(release.problem.album, release.retained))
