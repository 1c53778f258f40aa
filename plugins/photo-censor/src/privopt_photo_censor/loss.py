"""The losses: photos deleted, or locations protected."""

from __future__ import annotations

from privopt.interfaces import UtilityLoss
from privopt_photo_censor.rank import protected_k
from privopt_photo_censor.release import Deletions

__all__ = ["DeletedPhotos", "ProtectedK"]


class DeletedPhotos(UtilityLoss[Deletions]):
    """Photos deleted."""

    unit = "photos"

    def evaluate(self, release: Deletions) -> float:
        """Count them."""
        return float((~release.kept).sum())


class ProtectedK(UtilityLoss[Deletions]):
    """Locations at or above the true one."""

    unit = "locations"
    maximise = True

    def evaluate(self, release: Deletions) -> float:
        """Count them exactly."""
        return float(protected_k(release.problem.album, release.kept))
