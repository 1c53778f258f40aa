"""The utility losses of photo-censor: deleted photos for a top-k task, and protected locations under a budget."""

from __future__ import annotations

from privopt.interfaces import UtilityLoss
from privopt_photo_censor.rank import protected_k
from privopt_photo_censor.release import Deletions

__all__ = ["DeletedPhotos", "ProtectedK"]


class DeletedPhotos(UtilityLoss[Deletions]):
    """A utility loss that counts the deleted photos. A top-k task minimises it."""

    unit = "photos"

    def evaluate(self, release: Deletions) -> float:
        """Return the number of photos deleted by a release."""
        return float((~release.retained).sum())


class ProtectedK(UtilityLoss[Deletions]):
    """A utility loss that counts the locations that rank at or above the true one. A budget task maximises it."""

    unit = "locations"
    maximise = True

    def evaluate(self, release: Deletions) -> float:
        """Return the number of locations that rank at or above the true one, computed from exact sums."""
        return float(protected_k(release.problem.album, release.retained))
