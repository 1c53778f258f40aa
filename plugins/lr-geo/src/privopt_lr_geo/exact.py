"""The ``exact`` method: metric DP between all records on the map, without uploads.

The server publishes column weights, one number x_s for each column s, and each user computes a row from them. The
weights of the star mechanism solve W x = 1, where W_is = exp(-rate D_is), D_is is the path distance between records i
and s, and the rate is slightly below epsilon (:mod:`privopt_lr_geo.star_weights`).

If the equation has no positive solution, or if the solution's loss is not within the requested gap, the server
publishes the optimal mechanism instead. It has to publish the whole matrix, because a request for a single row would
reveal the user's position. If computing the optimum takes too long, positive weights at a smaller rate are used.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from privopt.arrays import Floats, Ints, Unsigned, slices
from privopt.errors import CertificationError, InputError, SolverError, StoppedError
from privopt.execution.clock import OutOfTime, check, limit
from privopt.interfaces import Outcome, SolveContext
from privopt.numbers.sampling import TOTAL
from privopt.search.incumbent import Incumbent
from privopt.version import VERSION
from privopt_lr_geo.lr_sets import PathDistances, pairs_inside
from privopt_lr_geo.problem import LRGeoInstance
from privopt_lr_geo.release import LRGeoRelease, PublicNumbers
from privopt_lr_geo.rows import BLOCK, ColumnWeights, whole_matrix
from privopt_lr_geo.star_weights import SLACKS, normalised_weights, star_weights
from privopt_metric_dp.matrix.certify import certify
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.solvers.exponential import exponential, exponential_loss

if TYPE_CHECKING:
    from privopt_metric_dp.proof.lagrangian_bound import Multipliers
else:
    Multipliers = Any

__all__ = ["ExactSearch", "certified_pairs", "population_loss", "search_seconds"]

LARGEST_MATRIX: Final = 36_000_000
"""The largest number of entries (records times outputs) for which the optimum and a lower bound are computed.

A lower bound requires a tree over all records for each output. Above this number, both are computed only if no column
weights were found.
"""
CLOSING_TIMES: Final = 1.5
"""The time reserved for the end of a run, as a multiple of the time taken to build and certify the first candidate.

At the end of a run, the matrix is repaired and certified, and the release is written and read back. With 1,331 records,
this took 0.7 to 1.0 times as long, both with 10 users and with all records as users.
"""
MANY_CHECKS: Final = 20_000_000_000
"""The largest number of checks (pairs times outputs) for which every required pair is certified.

Above this number, only a subset of the pairs is certified, chosen so that their constraints imply all others.
"""


def certified_pairs(data: MetricData) -> tuple[Ints, Floats, str]:
    """Return the pairs of records for which the certificate checks the guarantee.

    Returns:
        The (P, 2) pairs, their (P,) distances, and a phrase that describes them in the certificate.
    """
    if len(data.pairs) * len(data.outputs) <= MANY_CHECKS:
        return data.pairs, data.distances, "every required pair"
    return *data.needed, "the required pairs that imply all others exactly"


def population_loss(weights: Unsigned, data: MetricData) -> float:
    """Return the expected loss of a matrix under the prior over all records, in the problem's unit of loss.

    Args:
        weights: (N, K) The integer weights. Each row sums to 2**63.
        data: The map, with its prior and costs.
    """
    rows = [
        data.prior[part] * np.einsum("ik,ik->i", weights[part].astype(np.float64), data.cost[part])
        for part in slices(len(weights), weights.shape[1], BLOCK)
    ]
    return math.fsum(np.concatenate(rows).tolist()) / TOTAL


def search_seconds(incumbent: Incumbent[Any, Any, Any], context: SolveContext) -> float | None:
    """Return how many seconds a search may take while leaving time to certify, write and read back its result.

    Args:
        incumbent: The incumbent. It must already have certified a candidate, because the estimate is based on how long
            this took.
        context: The limits of the run.

    Returns:
        The number of seconds, which is at least 0, or None if there is no time limit.
    """
    remaining = context.remaining
    if remaining is None:
        return None
    closing = CLOSING_TIMES * (incumbent.step_seconds["certify"] + context.times.get("build", 0.0))
    return max(0.0, remaining - closing)


class ExactSearch:
    """A run of the ``exact`` method, which searches for column weights and then for the optimal mechanism.

    Attributes:
        problem, context, data: The problem, the run's options and limits, and the map.
        incumbent: The best certified matrix and the best proved bound so far. Solvers' matrices and dual multipliers
            are offered to it, and it certifies them by calling :meth:`certify` and :meth:`prove`.
        columns: A tuple of the best certified column weights, the rows that they yield for all records, and the loss of
            these rows. None until weights have been certified.
        reason: The reason why the star mechanism's weights are not published, or why no lower bound was computed. Empty
            if neither needs an explanation.
        trajectory: The progress of the search for the optimum, as tuples (seconds, lower bound, loss).
        iterations: The number of iterations of the search for the optimum.
        finished: Whether the search ran to completion instead of being stopped by a limit.
    """

    def __init__(self, problem: LRGeoInstance, context: SolveContext) -> None:
        """Prepare a run without starting the search.

        Args:
            problem: The problem to solve. Its users only determine which rows of the result are written.
            context: The optimality gap and the limits of the run.
        """
        self.problem, self.context = problem, context
        self.data = problem.data
        self.incumbent: Incumbent[Floats, Multipliers, Unsigned] = Incumbent(self, context.gap)
        self.columns: tuple[ColumnWeights, Unsigned, float] | None = None
        self.reason = "the limit was reached before column weights were found"
        self.trajectory: Sequence[tuple[float, float, float]] = ()
        self.iterations, self.finished = 0, False

    def run(self) -> Outcome[LRGeoRelease]:
        """Run the search, and return the outcome with the release.

        The release contains column weights if their loss is within the requested gap, and otherwise the matrix with the
        smallest loss.

        Raises:
            StoppedError: The time limit expired before even the exponential mechanism was certified.
            SolverError: No method produced a mechanism.
        """
        data, incumbent = self.data, self.incumbent
        # Under a time limit, a simple mechanism is certified first, so that there is something to publish. This also
        # shows how much time to reserve for certifying the final mechanism.
        if self.context.remaining is not None:
            self.offer_exponential()
            incumbent.certify()
        with limit(search_seconds(incumbent, self.context)):
            self.reason = self.find_columns()
            if self.columns is not None and data.cost.size > LARGEST_MATRIX:
                self.reason = (
                    f"no bound: {data.cost.size:,} entries, and bounds are computed for at most {LARGEST_MATRIX:,}"
                )
                self.finished = True
            else:
                self.find_optimum()
        while incumbent.prove():
            pass
        bound = incumbent.best_proved.bound if math.isfinite(incumbent.best_proved.bound) else None
        # There is no need to certify other candidates if column weights are good enough.
        if not self.columns_do(bound):
            # If nothing was found in time, only the exponential mechanism is left, which requires that every record has
            # an output at a finite distance.
            if incumbent.best.candidate is None and self.columns is None:
                self.offer_exponential()
            while incumbent.certify():
                pass
        return self.outcome(bound)

    def outcome(self, bound: float | None) -> Outcome[LRGeoRelease]:
        """Return the outcome of the run.

        The release contains column weights if their loss is within the requested gap, and otherwise the whole matrix
        with the smallest loss.

        Args:
            bound: The proved lower bound on the loss, or None if there is none.

        Returns:
            The release with its loss and bound, and with ``self.reason`` unless that is empty.

        Raises:
            StoppedError: No mechanism was found in time.
            SolverError: No method produced a mechanism.
        """
        solver: dict[str, Any] = {"name": "star"}
        if self.columns is not None and self.columns_do(bound):
            public, all_rows, loss = self.columns
            used_count = int((public.weights > 0).sum())
            figures = {
                "published": "column_weights",
                "rate": public.rate,
                "cap": public.cap,
                "columns_used": used_count,
            }
            published = PublicNumbers(columns=public, data=self.data, stored_rows=all_rows)
        else:
            answer = self.incumbent.answer(stopped=not self.finished)
            if self.columns is not None and not self.reason:
                self.reason = f"column weights lose {self.columns[2]:.6g}, which misses the gap"
            path = ", ".join(part for part in (answer.path, answer.origin) if part)
            solver = {"name": answer.origin, "version": VERSION, "iterations": self.iterations, "path": path}
            loss, figures = answer.value, {"published": "weights"}
            published = PublicNumbers(columns=None, data=self.data, stored_rows=answer.release)
        details = {"lp": {"value": loss, "lower_bound": bound}, **figures, "trajectory": self.trajectory}
        return Outcome(
            release=_make_release(self.problem, published),
            solver=solver,
            details={**details, **({"reason": self.reason} if self.reason else {})},
            # A search that was stopped early but met the gap counts as complete.
            stopped=not (self.finished or _meets_gap(loss, bound, self.context.gap)),
        )

    def columns_do(self, bound: float | None) -> bool:
        """Return whether there are column weights with a loss within the requested optimality gap.

        The loss must be within the gap of either the proved bound or the smallest known loss, i.e. the smallest loss
        certified for a candidate or promised by a solver.

        Args:
            bound: The proved lower bound on the loss, or None if there is none.
        """
        if self.columns is None:
            return False
        loss, gap = self.columns[2], self.context.gap
        return _meets_gap(loss, bound, gap) or _meets_gap(loss, self.incumbent.promised_value, gap)

    def certify(self, candidate: Floats) -> tuple[float, Unsigned]:
        """Repair an (N, K) matrix, certify the resulting integer weights, and return their loss and the weights.

        Raises:
            CertificationError: No repair satisfies the guarantee.
        """
        self.context.report("repair")
        all_rows = MatrixRelease.from_matrix(candidate, self.data, self.context).weights
        return population_loss(all_rows, self.data), all_rows

    def prove(self, proof: Multipliers, value: float) -> tuple[float, None]:
        """Return the lower bound proved by dual multipliers, rounded down, and None because no proof is stored.

        Args:
            proof: The multipliers for the pairs in ``data.needed``, a subset of the required pairs whose constraints
                imply all others.
            value: The certified loss, which is not used.
        """
        from privopt_metric_dp.proof import Rows

        self.context.report("bound")
        weighted = self.data.weighted
        return Rows.of(proof, self.data, weighted, over=self.data.needed).bound(self.data, weighted), None

    def offer_exponential(self) -> None:
        """Offer the exponential mechanism to the incumbent, if the distances from records to outputs are known.

        Nothing is offered if any record has no output at a finite distance.
        """
        data = self.data
        with suppress(InputError):  # raised if some record has no output at a finite distance
            if data.crossed:
                z = exponential(data.to_outputs, float(data.epsilon))
                self.incumbent.offer("exponential", candidate=z, value=float((data.weighted * z).sum()))

    def find_columns(self) -> str:
        """Search for column weights, and store the certified ones with the smallest loss in ``self.columns``.

        The weights of the star mechanism, whose rate is nearly the full epsilon, are tried first. If they cannot be
        certified, or if their loss exceeds that of the exponential mechanism, positive weights at a smaller rate are
        tried as well.

        Returns:
            The reason why the star mechanism's weights do not suffice, or an empty string if they do.

        Raises:
            OutOfTime: The innermost time limit expired.
        """
        data, report = self.data, self.context.report
        # Records at distance 0 have equal rows in W, so W x = 1 has no unique solution.
        if (data.distances == 0).any():
            return "no column weights: records at distance 0"
        report("path distances")
        paths, records = PathDistances(data), np.arange(len(data.records))
        distances = np.empty((len(records), len(records)))
        for part in slices(len(records), len(records), BLOCK):
            check()
            distances[part] = paths.rows(records[part])
        error_text = ""
        # The slack is the share of epsilon that is left for rounding to integers. Small slacks are tried first, because
        # large ones increase the loss a little.
        for slack in SLACKS:
            report(f"column weights, slack {slack:g}")
            try:
                self.offer_columns(star_weights(data, distances, slack), distances)
                break
            except (SolverError, CertificationError) as error:
                error_text = str(error)
        if self.columns is None:
            reason = f"no column weights at the full epsilon: {error_text}"
        else:
            # The star's weights can lose even more than the exponential mechanism does. Positive weights at a smaller
            # rate may be better then.
            columns_loss, baseline_loss = self.columns[2], exponential_loss(data)
            if baseline_loss is None or columns_loss <= baseline_loss:
                return ""
            reason = f"column weights would lose {columns_loss:.6g}, the exponential mechanism {baseline_loss:.6g}"
        report("column weights at a smaller rate")
        weaker_weights = normalised_weights(data, distances)
        # If these cannot be certified, they are not used. The returned reason is still what ruled out the star
        # mechanism.
        with suppress(CertificationError):
            if weaker_weights is not None:
                self.offer_columns(weaker_weights, distances)
        return reason

    def offer_columns(self, public: ColumnWeights, distances: Floats) -> None:
        """Certify the rows computed from column weights, and store the weights if their loss is the smallest so far.

        Args:
            public: The column weights.
            distances: (N, N) The path distances between all records.

        Raises:
            CertificationError: Two rows violate the guarantee.
        """
        data = self.data
        all_rows = whole_matrix(public, distances.__getitem__)
        pairs, lengths, _ = certified_pairs(data)
        with self.context.time_phase("repair"):
            measured = certify(all_rows, pairs, lengths, data.epsilon)
        # The weights come from computations in doubles. Only this check of all rows proves the guarantee for the
        # integers.
        if not measured.holds:
            raise CertificationError("pairs did not certify")
        all_rows.setflags(write=False)
        loss = population_loss(all_rows, data)
        if self.columns is None or loss < self.columns[2]:
            self.columns = public, all_rows, loss

    def find_optimum(self) -> None:
        """Search for the optimal mechanism, and offer the best matrix and lower bound to the incumbent.

        If the solver fails, nothing is offered, and the error is added to ``self.reason``.

        Raises:
            OutOfTime: The innermost time limit expired.
        """
        from privopt_metric_dp.solvers import Instance, solve

        check()  # raises OutOfTime before any work if there is no time left
        context = self.context
        instance = Instance.of(self.data)
        try:
            # Half of the gap is left for the loss that the repair to integers adds.
            solution = solve(instance, gap=context.gap / 2, memory=context.free_memory, progress=context.report)
        except OutOfTime:
            raise  # this must leave the scope of the time limit, although it is a StoppedError like those handled below
        except (SolverError, StoppedError) as error:
            # A solver that failed would find nothing with more time either, but one that was stopped might.
            self.finished = isinstance(error, SolverError)
            # Without column weights, a fallback is published, and the answer's path explains why.
            if self.columns is None:
                self.incumbent.note(f"exact ({error})")
            self.reason = "; ".join(part for part in (self.reason, f"no bound: {error}") if part)
            return
        self.finished = solution.status != "stopped"
        self.trajectory, self.iterations = solution.trajectory, solution.iterations
        self.incumbent.note(solution.details.get("path", ""))
        self.incumbent.offer(
            solution.method,
            candidate=solution.z,
            value=solution.objective,
            bound=solution.lower_bound,
            proof=solution.multipliers,
        )


def _meets_gap(loss: float, bound: float | None, gap: float) -> bool:
    """Return whether a loss exceeds a lower bound by at most the relative gap. Without a bound, the result is False."""
    # The floor of 1e-12 avoids a tolerance of 0 if the loss is 0.
    return bound is not None and loss - bound <= gap * max(abs(loss), 1e-12)


def _make_release(problem: LRGeoInstance, published: PublicNumbers) -> LRGeoRelease:
    """Create the exact method's release, which consists of the users' rows and the public numbers.

    Args:
        problem: The problem with its users.
        published: The public numbers, from which every row is computed.
    """
    data, users = published.data, problem.users
    everybody = len(users) == len(data.records)
    # mechanism.npz contains only the users' rows, so its pairs are those between users. The guarantee covers all rows,
    # which follow from public.npz.
    pairs, lengths = (data.pairs, data.distances) if everybody else pairs_inside(data, users)
    # In a region, the certificate covers pieces of streets or triangles rather than pairs.
    if data.region is not None:
        pairs, lengths = pairs[:0], lengths[:0]
    return LRGeoRelease(
        weights=published.all_rows if everybody else published.all_rows[users],
        records=np.asarray(data.records.ids, dtype=np.str_)[users],
        outputs=np.asarray(data.outputs.ids, dtype=np.str_),
        pairs=pairs,
        distances=lengths,
        region=data.region,
        published=published,
    )
