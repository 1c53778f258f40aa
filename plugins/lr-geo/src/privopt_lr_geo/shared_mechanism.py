"""One mechanism of all records, from which every user takes its rows: the fallback under a short limit.

It knows nothing of users, so none uploads anything for it; it is repaired and certified once, over every required pair,
and rows of one place by different users are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np
from attrs import field, frozen

from privopt.arrays import Floats, Unsigned
from privopt.errors import InputError
from privopt.execution.clock import clock
from privopt.interfaces import SolveContext
from privopt.interfaces.incumbent import Incumbent
from privopt_lr_geo.lr_sets import LRSet
from privopt_lr_geo.problem import LRGeoInstance
from privopt_lr_geo.release import LRGeoRelease
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.solvers.exponential import exponential, largest_share

__all__ = [
    "certify_steeper",
    "exponential_matrix",
    "optimal_matrix",
    "release_of_users",
    "rows_of_users",
    "search_seconds",
]

SHARE_OF_TIME: Final = 0.15
"""Of the time that is left, what steeper exponential mechanisms may take."""
STEPS: Final = (0.0, 0.2, 0.4, 0.6, 0.8)
"""How far from the share of epsilon that certifies towards all of it: beyond 0 rows differ too much in their sums, and
are repaired (street maps bear .7 of epsilon where .5 certifies)."""
CLOSING_TIMES: Final = 1.5
"""To repair and certify what is found, state it, write it and read it back may take so many times what building and the
first entry took together: .7 to 1.0 times were measured, with 10 users and with all on 1,331 records."""


def exponential_matrix(data: MetricData) -> Floats | None:
    """Return the exponential mechanism (N, K); None where distances to outputs are not known, or infinite."""
    if not data.crossed:
        return None
    try:
        return exponential(data.to_outputs, float(data.epsilon))
    except InputError:  # a record that reaches no output
        return None


def certify_steeper(incumbent: Incumbent[Any, Any, Any], data: MetricData, loss: Callable[[Floats], float]) -> None:
    """Offer and certify ever steeper exponential mechanisms, for as long as the loss falls, in a share of the time.

    Args:
        incumbent: has certified the one at half of epsilon.
        data: the problem's.
        loss: of a matrix (N, K) that is not certified yet.
    """
    if incumbent.certified[1] is None:
        return
    with clock().share(SHARE_OF_TIME):
        epsilon = float(data.epsilon)
        least = largest_share(data.to_outputs, epsilon, *data.standing)
        for step in STEPS:
            share, before = least + step * (1.0 - least), incumbent.certified[0]
            z = exponential(data.to_outputs, epsilon, share=share)
            incumbent.offer(f"exponential ({share:.3g} of epsilon)", candidate=z, value=loss(z))
            incumbent.certify()
            if incumbent.certified[0] >= before:
                return


def optimal_matrix(data: MetricData, context: SolveContext) -> tuple[Floats, str]:
    """Return what optimal-lp's methods find (N, K) in the innermost scope of time, and the method's name.

    Raises:
        SolverError, StoppedError: they find nothing, or nothing in time.
    """
    from privopt_metric_dp.solvers import Instance, solve

    found = solve(Instance.of(data), gap=context.gap, memory=context.free_memory, progress=context.report)
    return found.z, found.method


def search_seconds(incumbent: Incumbent[Any, Any, Any], context: SolveContext) -> float | None:
    """Return the seconds that a search may take, so that what it finds can still be certified, stated and read back.

    Args:
        incumbent: which has certified a first entry, and so knows what that takes.
        context: None is returned where it has no limit.
    """
    left = context.remaining
    if left is None:
        return None
    closing = CLOSING_TIMES * (incumbent.cost["certify"] + context.times.get("build", 0.0))
    return max(0.0, min(left, incumbent.hard.left - closing))


@frozen(kw_only=True, eq=False, slots=False)
class _Matrices(Mapping[str, MatrixRelease]):
    """Each user's matrix, cut from the whole one on demand: together they would fill the memory."""

    whole: MatrixRelease
    sets: Mapping[str, LRSet] = field(repr=False)  # by the users' ids

    def __getitem__(self, user: str) -> MatrixRelease:
        """Return the rows of a user's LR set."""
        around = self.sets[user]
        return MatrixRelease(
            weights=self.whole.weights[around.records],
            records=self.whole.records[around.records],
            outputs=self.whole.outputs,
            pairs=around.pairs,
            distances=around.lengths,
        )

    def __iter__(self) -> Iterator[str]:
        """Iterate over the users, in order."""
        return iter(self.sets)

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self.sets)


def rows_of_users(problem: LRGeoInstance, sets: Sequence[LRSet], whole: MatrixRelease) -> LRGeoRelease:
    """Return the users' rows of a mechanism of all records."""
    own = {str(whole.records[around.user]): around for around in sets}
    return release_of_users(problem, whole.weights[problem.users], _Matrices(whole=whole, sets=own))


def release_of_users(problem: LRGeoInstance, rows: Unsigned, matrices: Mapping[str, MatrixRelease]) -> LRGeoRelease:
    """Return users' rows (M, K) as a release whose guarantee rests on their own matrices."""
    return LRGeoRelease(
        weights=rows,
        records=np.asarray(problem.data.records.ids, dtype=np.str_)[problem.users],
        outputs=np.asarray(problem.data.outputs.ids, dtype=np.str_),
        pairs=np.zeros((0, 2), dtype=np.int64),
        distances=np.zeros(0),
        matrices=matrices,
    )
