"""The best set of photos found so far, and what an engine is that looks for a better one."""

from __future__ import annotations

import time
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from privopt.arrays import Bools
from privopt_photo_censor.rank import protected_k
from privopt_photo_censor.scores import Album, Task
from privopt_photo_censor.single import reach

__all__ = ["Engine", "Shared"]


class Engine(Protocol):
    """One way of closing the proof."""

    name: str
    spent: bool

    def turn(self, effort: int) -> bool:
        """Work for about so many bounds, or until the deadline; True when nothing better is left."""

    def bound(self) -> int:
        """The most that what is still open could reach."""


class Shared:
    """The incumbent and what a better set must do; every engine reads and writes it.

    ``state`` is that of :class:`privopt_photo_censor.search.Goal`.
    """

    def __init__(self, album: Album, task: Task, deadline: float | None) -> None:
        self.album = album
        self.data = album.reduced
        self.budget = task.budget is not None
        self.deadline = deadline
        self.began = time.perf_counter()
        wanted = task.top_k if task.top_k is not None else 1
        need = max(album.least, 1)
        if task.budget is not None:
            need = max(need, album.photos - task.budget)
        self.state: NDArray[np.int64] = np.array([wanted, need, -1, -1, 0, 0, 0, 0], dtype=np.int64)
        self.best: Bools = np.zeros(album.photos, dtype=np.bool_)
        self.reach = reach(self.data)
        self.cap = int((self.reach >= need).sum()) if self.budget else self._kept_cap(wanted)
        self.solver = ""
        self.trajectory: list[tuple[float, int, int]] = []

    def _kept_cap(self, wanted: int) -> int:
        """Photos that can stay at most: the k-th best of the alternates' own optima."""
        if wanted > self.reach.size:
            return -1
        return int(np.sort(self.reach)[-wanted])

    @property
    def value(self) -> int:
        """The incumbent's value: photos kept, or locations protected; -1 where there is none."""
        return int(self.state[3 if self.budget else 2])

    @property
    def closed(self) -> bool:
        """Whether the incumbent meets the bound."""
        return self.cap <= self.value if self.value >= 0 else self.cap < (1 if self.budget else int(self.state[1]))

    def offer(self, kept: Bools) -> bool:
        """Take a set if it is better, by its exact rank."""
        count = int(kept.sum())
        if count < self.state[1] or not kept[self.data.keep].all():
            return False
        above = protected_k(self.album, kept)
        if above < self.state[0]:
            return False
        self.best[:] = kept
        self.state[2:4] = count, above
        self.state[0 if self.budget else 1] = (above if self.budget else count) + 1
        self.note()
        return True

    def note(self) -> None:
        """Record the incumbent."""
        self.trajectory.append((time.perf_counter() - self.began, self.value, self.cap))

    @property
    def late(self) -> bool:
        """Whether the deadline has passed."""
        return self.deadline is not None and time.monotonic() >= self.deadline
