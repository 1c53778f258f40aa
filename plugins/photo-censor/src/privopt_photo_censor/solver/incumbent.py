"""The incumbent (the best set of photos found so far), and heuristics that find and improve it.

The heuristics work in floating point and only propose sets. :meth:`Incumbent.offer` decides by exact rank whether to
accept them.
"""

from __future__ import annotations

from math import comb
from typing import Final

import numpy as np

from privopt.arrays import Bools
from privopt.execution.clock import clock
from privopt_photo_censor.album import Album, Task
from privopt_photo_censor.rank import protected_k
from privopt_photo_censor.solver.single import best_for, reach

__all__ = ["Incumbent"]

HELD_SUMS: Final = 2_000_000
"""The maximum number of sums to hold in memory at once. They take 16 MB, and another 32 MB while being computed."""
POLISH_SUMS: Final = 300_000_000
"""The maximum number of sums in one round of exchanges.

They take about 0.3 s, measured with 64 and 128 photos and 512 places on 2 cores at load 6.
"""


class Incumbent:
    """The best set of retained photos found so far, and what a better set must achieve.

    A location is protected if it ranks at or above the true one.

    Attributes:
        album: The scores, and the photos that must be kept.
        task: A top-k or budget task.
        reach: (m,) For each location other than the true one, the maximum number of photos that can be kept if only
            this location must be protected, or -1 if it cannot be protected.
        k: The number of locations that a better set must protect. Under a budget, it grows with each new incumbent.
        need: The number of photos that a better set must retain. In a top-k task, it grows with each new incumbent.
        retained: (N,) A mask of the best set. None until a set is found.
        protected: The number of locations protected by the best set, or -1 until a set is found.
    """

    def __init__(self, album: Album, task: Task) -> None:
        """Create an incumbent that has no set of photos yet.

        Args:
            album: The scores. Those of the true location must be finite.
            task: A top-k or budget task.
        """
        self.album, self.task = album, task
        self.reach = reach(album.alternates)
        self.k = task.top_k if task.top_k is not None else 0
        self.need = max(album.required_count, 1)
        # A budget limits the number of deletions, and so requires a number of retained photos.
        if task.budget is not None:
            self.need = max(self.need, album.photos - task.budget)
        self.retained: Bools | None = None
        self.protected = -1

    def offer(self, retained: Bools) -> bool:
        """Make a set of photos the incumbent if it is better than the current one, as decided by exact ranks.

        Args:
            retained: (N,) A mask of the offered set.

        Returns:
            Whether the set was accepted.
        """
        count = int(retained.sum())
        # The exact rank is computed last, because it is expensive.
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
        """The number of retained photos or, under a budget, of protected locations. It is -1 until a set is found."""
        if self.retained is None:
            return -1
        return int(self.retained.sum()) if self.task.budget is None else self.protected

    @property
    def cap(self) -> int:
        """An upper bound on the :attr:`value` of any set of photos, derived from :attr:`reach`.

        In a top-k task, a set that protects k locations cannot retain more photos than ``reach`` allows for each of
        them, so the k-th largest entry of ``reach`` is a bound. If there are fewer than k locations, the bound is -1.
        In a budget task, the bound is the number of locations whose entry in ``reach`` is at least :attr:`need`.
        """
        if self.task.budget is not None:
            return int((self.reach >= self.need).sum())
        k = self.k
        return int(np.sort(self.reach)[-k]) if k <= self.reach.size else -1

    def start(self) -> None:
        """Find a first incumbent among sets of photos that are easy to construct.

        In a top-k task, these are the empty set, if it is allowed, and the sets found by greedy deletion. In a budget
        task, they are the set of all photos, and the best set for each individual location.
        """
        if self.task.budget is None:
            if not self.album.required_count:
                # If no photo need stay, posting none at all protects every location.
                self.retained, self.protected = np.zeros(self.album.photos, dtype=np.bool_), self.album.locations - 1
            self._offer_greedy_sets()
            return
        self.offer(np.ones(self.album.photos, dtype=np.bool_))
        data = self.album.alternates
        for j in np.flatnonzero(self.reach >= self.need).tolist():
            # The exact rank is computed only if sums in doubles, with their errors in the set's favour, suffice.
            candidate = best_for(self.album, j, self.need)
            if (data.sums(candidate) >= -data.slack).sum() >= self.k:
                self.offer(candidate)

    def _offer_greedy_sets(self) -> None:
        """Offer sets that are found by deleting photos one by one until the task seems to be satisfied.

        Two orders of deletion are tried. The first order is by the score of the true location, highest first.
        The second order begins with the photos that rule out other locations, because those locations cannot be
        protected while these photos are kept. The remaining photos follow in ascending order of their mean advantage
        for the other locations.
        """
        # data.diff[j, i] is how much photo i favours location j over the true one; data.kills[j, i] says that the photo
        # gives the location probability 0. A location is protected if its sum over the retained photos is at least 0.
        data = self.album.alternates
        free = np.flatnonzero(~data.keep)
        kills = data.kills.astype(np.float64)
        # The factor 1e6 puts the photos that rule out a location first.
        for key in (data.true, -data.diff.mean(axis=0) + 1e6 * kills.mean(axis=0)):
            order = free[np.argsort(-key[free], kind="stable")][: self.album.photos - self.need]
            # Column c has the sums after the first c + 1 photos of the order are deleted.
            remaining_sums = data.diff.sum(axis=1)[:, None] - np.cumsum(data.diff[:, order], axis=1)
            # Whether any photo that rules the location out remains. The number of these photos is compared with 0.5,
            # because it is a double.
            is_ruled_out = kills.sum(axis=1)[:, None] - np.cumsum(kills[:, order], axis=1) > 0.5
            meets_task = ((remaining_sums >= -data.slack[:, None]) & ~is_ruled_out).sum(axis=0) >= self.k
            # The sums are inexact, so the first count that seems sufficient may fail by the exact rank. Five are tried.
            for count in np.flatnonzero(meets_task)[:5].tolist():
                candidate = np.ones(self.album.photos, dtype=np.bool_)
                candidate[order[: count + 1]] = False
                if self.offer(candidate):
                    break

    def polish(self) -> None:
        """Improve the incumbent by local search until no exchange improves it or the time limit is reached.

        An exchange replaces one retained photo with two deleted ones or, under a budget, with one.
        """
        while self.retained is not None and clock().left > 0.0 and self._exchange_photos(self.retained):
            pass

    def _exchange_photos(self, retained: Bools) -> bool:
        """Try to find a better set by exchanging one retained photo for two deleted ones or, under a budget, for one.

        The first exchange that improves the incumbent is made. If too many sums would have to be computed, no exchange
        is tried.

        Args:
            retained: (N,) A mask of the incumbent's set.

        Returns:
            Whether the incumbent was improved.
        """
        data, rows = self.album.alternates, np.flatnonzero(self.reach >= self.need)
        # Two photos for one retain more photos. Under a budget, one for one may protect more locations.
        deleted, posted = np.flatnonzero(~retained), np.flatnonzero(retained & ~self.album.keep)
        has_pairs = self.task.budget is None
        sums = (comb(len(deleted), 2) if has_pairs else len(deleted)) * len(rows)
        # This is tested before the pairs are listed, because the pairs of a large album would fill the memory.
        if not sums or sums > HELD_SUMS or sums * len(posted) > POLISH_SUMS:
            return False
        pairs = np.column_stack(np.triu_indices(len(deleted), 1)) if has_pairs else np.arange(len(deleted))[:, None]
        # One row for each set of deleted photos that may replace a retained one.
        replacements = deleted[pairs]
        # `diff` has one row per photo, and `added` one row per replacement: its sum for each location.
        diff = np.where(data.kills[rows], -np.inf, data.diff[rows]).T
        added = diff[replacements].sum(axis=1)
        for i in posted.tolist():
            candidate = retained.copy()
            candidate[i] = False
            # A photo that rules a location out makes the sum -inf, so the location is not counted.
            counts = (added + diff[candidate].sum(axis=0) >= 0.0).sum(axis=1)
            if counts.max() >= self.k:
                candidate[replacements[counts.argmax()]] = True
                if self.offer(candidate):
                    return True
        return False

    def restore(self) -> None:
        """Restore each deleted photo in turn, unless doing so reduces the number of protected locations."""
        assert self.retained is not None
        # This is the incumbent's mask itself, which is changed in place.
        data, is_retained = self.album.alternates, self.retained
        sums = data.diff[:, is_retained].sum(axis=1)
        for i in np.flatnonzero(~is_retained):
            is_retained[i] = True
            # The exact rank is computed only if sums in doubles, with their errors in the set's favour, suffice.
            may_suffice = (sums + data.diff[:, i] >= -data.slack).sum() >= self.protected
            if may_suffice and protected_k(self.album, is_retained) >= self.protected:
                sums += data.diff[:, i]
            else:
                is_retained[i] = False
