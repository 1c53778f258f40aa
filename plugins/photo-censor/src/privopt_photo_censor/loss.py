"""The two losses: the number of deleted photos for a top-k, and the number of protected locations for a budget."""

from __future__ import annotations

from privopt.interfaces import UtilityLoss
from privopt_photo_censor.rank import protected_k
from privopt_photo_censor.release import Deletions

__all__ = ["DeletedPhotos", "ProtectedK"]


class DeletedPhotos(UtilityLoss[Deletions]):
    """The number of deleted photos."""

    unit = "photos"

    def evaluate(self, release: Deletions) -> float:
        """Count the deleted photos."""
        return float((~release.retained).sum())


class ProtectedK(UtilityLoss[Deletions]):
    """The number of locations that rank at or above the true one, which is maximised."""

    unit = "locations"
    maximise = True

    def evaluate(self, release: Deletions) -> float:
        """Count the locations that rank at or above the true one, with exact sums."""
        return float(protected_k(release.problem.album, release.retained))
