"""One mechanism of all records together, from which every user takes its rows: what there is where a limit comes early.

It knows nothing of users, so none uploads anything for it; it is repaired and certified once, over every required pair,
and rows of one place by different users are equal.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

import numpy as np
from attrs import define, field, frozen

from privopt.errors import CertificationError, SolverError, StoppedError
from privopt.interfaces import SolveContext
from privopt.numbers.sampling import TOTAL
from privopt_lr_geo.lr_sets import LRSet
from privopt_lr_geo.problem import LRGeoInstance
from privopt_lr_geo.release import LRGeoRelease
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.mechanisms.fallback import Reserve

__all__ = ["Search", "SharedMechanism", "rows_of_users"]

SHARE_OF_TIME: Final = 0.15
"""Of the time that is left, what it may take before the users' program begins."""
LARGEST: Final = 4_000_000
"""Records times outputs up to which one is looked for: beyond it, dense kernels take more than such a share."""


@frozen(kw_only=True, eq=False)
class SharedMechanism:
    """A certified mechanism of all records.

    Attributes:
        release: with a row for every record.
        name: of what made it.
        loss: mean over the users of the true cost of their own rows.
    """

    release: MatrixRelease
    name: str
    loss: float


@define(kw_only=True, eq=False)
class Search:
    """Looks for one, first in a share of the time, then in all that is left.

    Attributes:
        problem: the map and its users.
        context: of the run.
        best: the best so far; None before, on maps too large for it, and where nothing came of it.
    """

    problem: LRGeoInstance
    context: SolveContext
    best: SharedMechanism | None = None
    _reserve: Reserve | None = field(default=None, init=False)

    def look(self, *, patient: bool = False) -> None:
        """Try the exponential mechanism, once, and, where enough time is left, optimal-lp's methods in a share of it.

        Args:
            patient: in all of it, for no program of the users follows; else nothing is tried without a limit.
        """
        data, context, left = self.problem.data, self.context, self.context.remaining
        if (left is None and not patient) or data.cost.size > LARGEST:
            return
        if self._reserve is None:
            self._reserve = Reserve(data, context, bounded=False)
            self._reserve.make()
            if self._reserve.release is not None:
                self._take(self._reserve.release, "exponential")
        left, until = context.remaining, context.deadline
        if not patient and left is not None and until is not None:
            until = min(until, time.monotonic() + SHARE_OF_TIME * left)
        if self.best is not None and until is not None and until - time.monotonic() <= self._reserve.seconds:
            return  # not even a repair like the reserve's: what is left has to certify and write what there is
        from privopt_metric_dp.solvers import Instance, solve

        try:
            instance = Instance.of(data, deadline=until)
            found = solve(instance, gap=context.gap, deadline=until, memory=context.room, progress=context.report)
            self._take(MatrixRelease.from_matrix(found.z, data, context), found.method)
        except (CertificationError, SolverError, StoppedError, MemoryError):
            return  # what was at hand before stands

    def _take(self, release: MatrixRelease, name: str) -> None:
        users = self.problem.users
        rows = np.einsum("ik,ik->i", release.weights[users].astype(np.float64), self.problem.data.cost[users])
        loss = float(rows.mean()) / float(TOTAL)
        if self.best is None or loss < self.best.loss:
            self.best = SharedMechanism(release=release, name=name, loss=loss)


@frozen(kw_only=True, eq=False, slots=False)
class _Rows(Mapping[str, MatrixRelease]):
    """Each user's matrix, cut from the whole one when it is asked for: together they would fill the memory."""

    whole: MatrixRelease
    sets: Mapping[str, LRSet] = field(repr=False)  # by the users' ids

    def __getitem__(self, user: str) -> MatrixRelease:
        """The rows of a user's LR set."""
        around = self.sets[user]
        return MatrixRelease(
            weights=self.whole.weights[around.records],
            records=self.whole.records[around.records],
            outputs=self.whole.outputs,
            pairs=around.pairs,
            distances=around.lengths,
        )

    def __iter__(self) -> Iterator[str]:
        """The users, in order."""
        return iter(self.sets)

    def __len__(self) -> int:
        """How many there are."""
        return len(self.sets)


def rows_of_users(problem: LRGeoInstance, sets: Sequence[LRSet], whole: MatrixRelease) -> LRGeoRelease:
    """Return the users' rows of a mechanism of all records."""
    return LRGeoRelease(
        weights=whole.weights[problem.users],
        records=whole.records[problem.users],
        outputs=whole.outputs,
        pairs=np.zeros((0, 2), dtype=np.int64),
        distances=np.zeros(0),
        matrices=_Rows(whole=whole, sets={str(whole.records[each.user]): each for each in sets}),
    )
