"""The best set of photos so far, and the heuristics that improve it: easy sets, greedy deletion, exchanges.

Heuristics compare sums in doubles. Only :meth:`Incumbent.offer` decides, by the exact rank.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from privopt.arrays import Bools
from privopt.execution.clock import clock
from privopt_photo_censor.album import Album, Task
from privopt_photo_censor.rank import protected_k
from privopt_photo_censor.solver.single import best_for, reach

__all__ = ["Incumbent"]

HELD_SUMS: Final = 2_000_000
"""Sums that are in memory at once: 16 MB, and another 32 MB while they are computed."""
POLISH_SUMS: Final = 300_000_000
"""Sums that one round of exchanges may compute: about .3 s (2 cores at load 6, 64 and 128 photos of 512 places)."""


class Incumbent:
    """The best set of retained photos.

    Attributes:
        album: Scores, and what must stay.
        task: A top-k or a deletion budget.
        reach: (m,) photos that can stay with each location alone (:func:`privopt_photo_censor.solver.single.reach`).
        k: Number of locations that a better set must protect. It grows under a budget.
        need: Number of photos that a better set must retain. It grows with a top-k.
        retained: (N,) the best set. None before the first one.
        protected: Number of locations that it leaves at or above the true one.
    """

    def __init__(self, album: Album, task: Task) -> None:
        self.album, self.task = album, task
        self.reach = reach(album.alternates)
        self.k = task.top_k if task.top_k is not None else 0
        self.need = max(album.required_count, 1)
        if task.budget is not None:
            self.need = max(self.need, album.photos - task.budget)
        self.retained: Bools | None = None
        self.protected = -1

    def offer(self, retained: Bools) -> bool:
        """Replace the incumbent by a set if that is better, by its exact rank.

        Returns:
            Whether it was replaced.
        """
        count = int(retained.sum())
        if count < self.need or not retained[self.album.keep].all():
            return False
        protected_count = protected_k(self.album, retained)
        if protected_count < self.k:
            return False
        self.retained, self.protected = retained.copy(), protected_count
        if self.task.budget is None:
            self.need = count + 1
        else:
            self.k = protected_count + 1
        return True

    @property
    def value(self) -> int:
        """Number of retained photos, or under a budget of protected locations. -1 before the first set."""
        if self.retained is None:
            return -1
        return int(self.retained.sum()) if self.task.budget is None else self.protected

    @property
    def cap(self) -> int:
        """Upper bound on the value of any set, from each location alone. -1 if there are fewer than k locations."""
        if self.task.budget is not None:
            return int((self.reach >= self.need).sum())
        k = self.k
        return int(np.sort(self.reach)[-k]) if k <= self.reach.size else -1

    def start(self) -> None:
        """Offer the easy sets: none, all, the best for each location alone, and those of greedy deletion."""
        if self.task.budget is None:
            if not self.album.required_count:
                self.retained, self.protected = np.zeros(self.album.photos, dtype=np.bool_), self.album.locations - 1
            self._offer_greedy_sets()
            return
        self.offer(np.ones(self.album.photos, dtype=np.bool_))
        data = self.album.alternates
        for j in np.flatnonzero(self.reach >= self.need).tolist():
            candidate = best_for(self.album, j, self.need)
            if (data.sums(candidate) >= -data.slack).sum() >= self.k:
                self.offer(candidate)

    def _offer_greedy_sets(self) -> None:
        """Delete photos by their true score, and by their mean advantage, until the top-k is defeated."""
        data = self.album.alternates
        free = np.flatnonzero(~data.keep)
        kills = data.kills.astype(np.float64)
        for key in (data.true, -data.diff.mean(axis=0) - 1e6 * kills.mean(axis=0)):
            order = free[np.argsort(-key[free], kind="stable")][: self.album.photos - self.need]
            # Column c has the sums after the first c + 1 photos of the order are deleted.
            remaining_sums = data.diff.sum(axis=1)[:, None] - np.cumsum(data.diff[:, order], axis=1)
            is_ruled_out = kills.sum(axis=1)[:, None] - np.cumsum(kills[:, order], axis=1) > 0.5
            meets_task = ((remaining_sums >= -data.slack[:, None]) & ~is_ruled_out).sum(axis=0) >= self.k
            # The sums are in doubles, so the first count that seems to do may fail the exact rank.
            for count in np.flatnonzero(meets_task)[:5].tolist():
                candidate = np.ones(self.album.photos, dtype=np.bool_)
                candidate[order[: count + 1]] = False
                if self.offer(candidate):
                    break

    def polish(self) -> None:
        """Exchange one photo for two (for one under a budget) until no exchange gives a better set."""
        while self.retained is not None and clock().left > 0.0 and self._exchange_photos(self.retained):
            pass

    def _exchange_photos(self, retained: Bools) -> bool:
        """Replace one retained photo by deleted ones, unless that takes too many sums.

        Returns:
            Whether the incumbent was improved.
        """
        data, rows = self.album.alternates, np.flatnonzero(self.reach >= self.need)
        deleted, posted = np.flatnonzero(~retained), np.flatnonzero(retained & ~self.album.keep)
        replacements = (
            deleted[:, None]
            if self.task.budget is not None
            else deleted[np.column_stack(np.triu_indices(len(deleted), 1))]
        )
        sums = len(replacements) * len(rows)
        if not sums or sums > HELD_SUMS or sums * len(posted) > POLISH_SUMS:
            return False
        diff = np.where(data.kills[rows], -np.inf, data.diff[rows]).T
        added = diff[replacements].sum(axis=1)
        for i in posted.tolist():
            candidate = retained.copy()
            candidate[i] = False
            # A sum of -inf stays -inf, so locations that a photo rules out are not counted.
            counts = (added + diff[candidate].sum(axis=0) >= 0.0).sum(axis=1)
            if counts.max() >= self.k:
                candidate[replacements[counts.argmax()]] = True
                if self.offer(candidate):
                    return True
        return False

    def restore(self) -> None:
        """Restore, one by one, the photos whose deletion the protected k does not need."""
        assert self.retained is not None
        data, is_retained = self.album.alternates, self.retained
        sums = data.diff[:, is_retained].sum(axis=1)
        for i in np.flatnonzero(~is_retained):
            is_retained[i] = True
            # Sums in doubles, with their errors in our favour, spare most of the exact ranks.
            may_suffice = (sums + data.diff[:, i] >= -data.slack).sum() >= self.protected
            if may_suffice and protected_k(self.album, is_retained) >= self.protected:
                sums += data.diff[:, i]
            else:
                is_retained[i] = False
