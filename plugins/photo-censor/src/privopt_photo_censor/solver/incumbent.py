"""The best set of photos found so far, and the greedy and exchange heuristics that improve it."""

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
"""Sums that are held at once: 16 MB, and twice as much again while they are made."""
POLISH_SUMS: Final = 300_000_000
"""Sums that one round of exchanges may take: some .3 s (2 cores at load 6, 64 and 128 photos of 512 places)."""


class Incumbent:
    """The best set of kept photos; it is taken by its exact rank alone.

    Attributes:
        album: scores and what must stay.
        task: top-k or deletion budget.
        reach: (m,) photos that can stay with each location alone (:func:`privopt_photo_censor.solver.single.reach`).
        k: locations that a better set must leave at or above the true one; it grows under a budget.
        need: photos that a better set must keep; it grows with a top-k.
        kept: (N,) the best set; None before one was found.
        protected: locations that it leaves at or above the true one.
    """

    def __init__(self, album: Album, task: Task) -> None:
        self.album, self.task = album, task
        self.reach = reach(album.reduced)
        self.k = task.top_k if task.top_k is not None else 0
        self.need = max(album.required, 1)
        if task.budget is not None:
            self.need = max(self.need, album.photos - task.budget)
        self.kept: Bools | None = None
        self.protected = -1

    def offer(self, retained: Bools) -> bool:
        """Take a set if it is better, by its exact rank."""
        count = int(retained.sum())
        if count < self.need or not retained[self.album.keep].all():
            return False
        above = protected_k(self.album, retained)
        if above < self.k:
            return False
        self.kept, self.protected = retained.copy(), above
        if self.task.budget is None:
            self.need = count + 1
        else:
            self.k = above + 1
        return True

    @property
    def value(self) -> int:
        """Photos kept, or under a budget locations protected; -1 where nothing was found."""
        if self.kept is None:
            return -1
        return int(self.kept.sum()) if self.task.budget is None else self.protected

    @property
    def cap(self) -> int:
        """What no set passes, by each location alone; -1 where there are too few of them."""
        if self.task.budget is not None:
            return int((self.reach >= self.need).sum())
        k = self.k
        return int(np.sort(self.reach)[-k]) if k <= self.reach.size else -1

    def start(self) -> None:
        """Offer the easy sets: none, all, each location's own best, and greedy deletion."""
        if self.task.budget is None:
            if not self.album.required:
                self.kept, self.protected = np.zeros(self.album.photos, dtype=np.bool_), self.album.locations - 1
            self._offer_greedy()
            return
        self.offer(np.ones(self.album.photos, dtype=np.bool_))
        data = self.album.reduced
        for j in np.flatnonzero(self.reach >= self.need).tolist():
            kept = best_for(self.album, j, self.need)
            if (data.sums(kept) >= -data.slack).sum() >= self.k:
                self.offer(kept)

    def _offer_greedy(self) -> None:
        """Delete by the true score, and by the mean advantage, until the top-k is defeated."""
        data = self.album.reduced
        free = np.flatnonzero(~data.keep)
        dead = data.kills.astype(np.float64)
        for key in (data.true, -data.diff.mean(axis=0) - 1e6 * dead.mean(axis=0)):
            order = free[np.argsort(-key[free], kind="stable")][: self.album.photos - self.need]
            left = data.diff.sum(axis=1)[:, None] - np.cumsum(data.diff[:, order], axis=1)
            ruled = dead.sum(axis=1)[:, None] - np.cumsum(dead[:, order], axis=1) > 0.5
            able = ((left >= -data.slack[:, None]) & ~ruled).sum(axis=0) >= self.k
            for count in np.flatnonzero(able)[:5].tolist():
                kept = np.ones(self.album.photos, dtype=np.bool_)
                kept[order[: count + 1]] = False
                if self.offer(kept):
                    break

    def polish(self) -> None:
        """Exchange one photo for two (under a budget, for one) as long as a better set comes of it."""
        while self.kept is not None and clock().left > 0.0 and self._exchange(self.kept):
            pass

    def _exchange(self, retained: Bools) -> bool:
        """Delete one photo that is posted and post others; return whether a better set was found (by few sums)."""
        data, able = self.album.reduced, np.flatnonzero(self.reach >= self.need)
        gone, posted = np.flatnonzero(~retained), np.flatnonzero(retained & ~self.album.keep)
        more = gone[:, None] if self.task.budget is not None else gone[np.column_stack(np.triu_indices(len(gone), 1))]
        sums = len(more) * len(able)
        if not sums or sums > HELD_SUMS or sums * len(posted) > POLISH_SUMS:
            return False
        diff = np.where(data.kills[able], -np.inf, data.diff[able]).T
        added = diff[more].sum(axis=1)
        for i in posted.tolist():
            rest = retained.copy()
            rest[i] = False
            counts = (added + diff[rest].sum(axis=0) >= 0.0).sum(axis=1)
            if counts.max() >= self.k:
                rest[more[counts.argmax()]] = True
                if self.offer(rest):
                    return True
        return False

    def restore(self) -> None:
        """Restore, one by one, photos whose deletion the protected k does not need."""
        assert self.kept is not None
        data, kept = self.album.reduced, self.kept
        sums = data.diff[:, kept].sum(axis=1)
        for i in np.flatnonzero(~kept):
            kept[i] = True
            able = (sums + data.diff[:, i] >= -data.slack).sum() >= self.protected
            if able and protected_k(self.album, kept) >= self.protected:
                sums += data.diff[:, i]
            else:
                kept[i] = False
