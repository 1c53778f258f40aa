"""The engines that :mod:`privopt_photo_censor.optimal` races: the compiled searches, and plain enumeration."""

from __future__ import annotations

import itertools
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privopt_photo_censor import search, subsets
from privopt_photo_censor.incumbent import Shared
from privopt_photo_censor.lagrange import Data
from privopt_photo_censor.scores import Album

__all__ = ["AlternateSearch", "Enumeration", "PhotoSearch", "data_of"]

STACK_BYTES: Final = 512 * 2**20
TABLE_BYTES: Final = 256 * 2**20
LEAST_LEAVES: Final = 40
MOST_ALTERNATES: Final = 64
"""Largest k of the search over alternates: beyond it there are more sets of them than it could ever see."""


def data_of(album: Album) -> Data:
    """An album as the compiled searches take it."""
    data = album.reduced
    return Data(
        data.scores, data.true, data.margin, data.diff, data.kills, data.size, data.keep,
        np.zeros(3 * album.photos + 4),
    )  # fmt: skip


class AlternateSearch:
    """Branch and bound over sets of alternates (:mod:`privopt_photo_censor.search`)."""

    name = "alternates"
    spent = False
    WIDTH: Final = 8
    PROGRAMS: Final = 2000
    LEAF: Final = 20_000  # programs that one set of alternates may take before the search goes on without it

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.data = data_of(shared.album)
        self.goal = search.Goal(shared.state, shared.best, shared.budget)
        self.k = -1
        self.until = 0
        self.leaf = self.LEAF
        self.stack: search.Stack | None = None
        self.capped = shared.cap

    @staticmethod
    def levels(photos: int, k: int) -> int:
        """Levels of a stack of a sane size: one for each alternate, and for photos branched on."""
        level = 8 * ((k + 2) * (photos + k + 2) + 6 * (photos + k + 2))
        return int(min(k + 2 + photos + 2, STACK_BYTES // level))

    @classmethod
    def fits(cls, shared: Shared) -> bool:
        """Whether the stack of a search for this k is of a sane size."""
        k = int(shared.state[0])
        return k <= MOST_ALTERNATES and cls.levels(shared.album.photos, k) >= k + 2 + min(
            LEAST_LEAVES, shared.album.photos
        )

    def _open(self) -> search.Stack | None:
        """Open the search for the k now wanted; None where its stack would be too large."""
        k = int(self.shared.state[0])
        photos, m = self.shared.album.photos, len(self.shared.reach)
        if not self.fits(self.shared):
            self.spent = True
            return None
        stack = search.stack_of(photos, m, k, self.levels(photos, k))
        self.k = k
        self.shared.state[6:] = 0, self.leaf
        search.start(self.data, self.goal, stack, self.shared.reach)
        self._beam(stack, k)
        search.start(self.data, self.goal, stack, self.shared.reach)
        return stack

    def _beam(self, stack: search.Stack, k: int) -> None:
        """Incumbents: sets of alternates grown side by side by their bounds, each then solved exactly."""
        count = int(stack.length[0])
        candidates = stack.cand[0, :count].copy()
        sets: list[tuple[int, ...]] = [()]
        for _ in range(k):
            grown: dict[tuple[int, ...], float] = {}
            top = np.full(self.WIDTH, self.shared.state[1] - 1e-9)
            for chosen in sets:
                if self.shared.late or self.shared.state[4] > self.until:
                    return
                bounds = np.empty(count)
                search.extend(self.data, self.goal, stack, np.array(chosen, dtype=np.int64), top, bounds)
                for place in np.flatnonzero(bounds >= top[-1]):
                    grown[tuple(sorted((*chosen, int(candidates[place]))))] = float(bounds[place])
            sets = sorted(grown, key=grown.__getitem__, reverse=True)[: self.WIDTH]
        for chosen in sets:
            if len(chosen) == k == self.shared.state[0]:
                search.finish(self.data, self.goal, stack, np.array(chosen, dtype=np.int64))

    def turn(self, effort: int) -> bool:
        """Search; a budget search starts again whenever a better k is known."""
        self.until = int(self.shared.state[4]) + effort
        while not self.shared.late and self.shared.state[4] < self.until:
            if self.stack is None or self.k != self.shared.state[0]:
                self.stack = self._open()
                if self.stack is None:
                    return False
            elif search.run(self.data, self.goal, self.stack, self.PROGRAMS) == search.SOLVED:
                open_leaves = int(self.shared.state[6])
                self.spent = open_leaves == 2
                self.leaf *= 8
                self.stack = None
                return not open_leaves
        return False

    def bound(self) -> int:
        """See :func:`search.open_bound` and :func:`search.open_most`."""
        if self.stack is None or self.k != self.shared.state[0] or self.shared.state[6]:
            return self.capped
        if self.shared.budget:
            most = int(search.open_most(self.stack))
        else:
            most = int(search.open_bound(self.goal, self.stack))
        self.capped = min(self.capped, max(most, self.shared.value))
        return self.capped


class PhotoSearch:
    """Branch and bound over photos (:mod:`privopt_photo_censor.subsets`)."""

    name = "photos"
    spent = False
    NODES: Final = 20000
    WORTH: Final = 20  # nodes that take as long as one program of the search over alternates

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.data = data_of(shared.album)
        self.goal = search.Goal(shared.state, shared.best, shared.budget)
        self.state: subsets.Walk | None = None

    @classmethod
    def fits(cls, shared: Shared) -> bool:
        """Whether the table of gains is of a sane size."""
        photos = shared.album.photos
        active = int((shared.reach >= shared.state[1]).sum())
        return 8 * (photos + 1) * (photos - int(shared.state[1]) + 1) * active <= TABLE_BYTES

    def _open(self) -> subsets.Walk:
        data, photos = self.shared.data, self.shared.album.photos
        active = np.flatnonzero(self.shared.reach >= self.shared.state[1])
        diff = np.ascontiguousarray(data.diff[active])
        order = np.argsort(diff.sum(axis=0), kind="stable")
        walk = subsets.Walk(
            order,
            subsets.gains(diff, data.keep, order, photos - int(self.shared.state[1])),
            np.zeros((photos + 1, active.size)),
            np.zeros(photos + 1, np.int64),
            np.zeros(photos + 1, np.int64),
            active,
            data.slack[active],
            np.zeros(1, np.int64),
        )
        subsets.open_walk(self.data, walk)
        return walk

    def turn(self, effort: int) -> bool:
        """Search on."""
        if self.state is None:
            self.state = self._open()
        for _ in range(max(1, effort * self.WORTH // self.NODES)):
            if self.shared.late:
                break
            if subsets.walk(self.data, self.goal, self.state, self.NODES) == search.SOLVED:
                return True
        return False

    def bound(self) -> int:
        """Budget: see :func:`subsets.open_most`; top-k: nothing beyond what is known."""
        if self.state is None or not self.shared.budget:
            return self.shared.cap
        return int(subsets.open_most(self.data, self.goal, self.state))


class Enumeration:
    """Every set of photos of a small album, largest first; needs no compiled code."""

    name = "enumeration"
    spent = False
    MOST_PHOTOS: Final = 12
    CHUNK: Final = 2048

    def __init__(self, shared: Shared) -> None:
        self.shared = shared

    def _sets(self) -> Any:
        photos = self.shared.album.photos
        for count in range(photos, int(self.shared.state[1]) - 1, -1):
            chosen = itertools.combinations(range(photos), count)
            while block := list(itertools.islice(chosen, self.CHUNK)):
                masks = np.zeros((len(block), photos), dtype=np.bool_)
                np.put_along_axis(masks, np.array(block), True, axis=1)
                yield count, masks[masks[:, self.shared.data.keep].all(axis=1)]

    def turn(self, effort: int) -> bool:
        """Look at all of them."""
        data, slack = self.shared.data, self.shared.data.slack
        dead = data.kills.T.astype(np.float64)
        for count, masks in self._sets():
            if count < self.shared.state[1]:
                break
            if self.shared.late:
                return False
            weights = masks.astype(np.float64)
            level: NDArray[np.bool_] = (weights @ data.diff.T >= -slack) & (weights @ dead < 0.5)
            for place in np.flatnonzero(level.sum(axis=1) >= self.shared.state[0]):
                self.shared.offer(masks[place])
            self.shared.state[4] += len(masks)
        return True

    def bound(self) -> int:
        """Nothing beyond what is known."""
        return self.shared.cap
