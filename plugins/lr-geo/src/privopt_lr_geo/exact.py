"""The ``exact`` method: a guarantee over the whole population, without uploads.

The server publishes column weights, one number x_s for each column s, and each user computes its own row from them. The
weights of the star mechanism solve W x = 1, where W_is = exp(-rate D_is) falls with the path distance D_is
(:mod:`privopt_lr_geo.star_weights`). If no solution x >= 0 exists, or if its loss misses the requested gap, the optimal
mechanism is computed. Its whole matrix is then published, because a request for one row would reveal the user's place.
If that takes too long, positive weights at a smaller rate are used.
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
"""The largest number of entries, records times outputs, for which a bound is computed. A bound takes a tree over all
records for each output."""
CLOSING_TIMES: Final = 1.5
"""The time reserved for repairing, certifying, writing and reading back, as a multiple of the time that building and
certifying the first candidate took. Multiples of 0.7 to 1.0 were measured on 1,331 records, with 10 users and with all.
"""
MANY_CHECKS: Final = 20_000_000_000
"""The number of pairs times outputs above which only pairs that imply all required ones are certified."""


def certified_pairs(data: MetricData) -> tuple[Ints, Floats, str]:
    """Return the (P, 2) pairs that the certificate checks, their (P,) distances, and a phrase that describes them."""
    if len(data.pairs) * len(data.outputs) <= MANY_CHECKS:
        return data.pairs, data.distances, "every required pair"
    return *data.needed, "the required pairs that imply all others exactly"


def population_loss(weights: Unsigned, data: MetricData) -> float:
    """Return the expected loss over all records under the prior, for (N, K) integer weights whose rows sum to 2**63."""
    rows = [
        data.prior[part] * np.einsum("ik,ik->i", weights[part].astype(np.float64), data.cost[part])
        for part in slices(len(weights), weights.shape[1], BLOCK)
    ]
    return math.fsum(np.concatenate(rows).tolist()) / TOTAL


def search_seconds(incumbent: Incumbent[Any, Any, Any], context: SolveContext) -> float | None:
    """Return the seconds that a search can take if its result must still be certified, written and read back in time.

    Args:
        incumbent: The incumbent, which has certified a first candidate and so knows how long certifying takes.
        context: The limits. Without a time limit, None is returned.
    """
    remaining = context.remaining
    if remaining is None:
        return None
    closing = CLOSING_TIMES * (incumbent.step_seconds["certify"] + context.times.get("build", 0.0))
    return max(0.0, remaining - closing)


class ExactSearch:
    """The search by the ``exact`` method, first for column weights and then for the optimal mechanism.

    Attributes:
        problem, context, data: The problem, the gap and limits of the run, and the map.
        incumbent: Receives matrices and multipliers, certifies the best matrix and proves the best bound.
        columns: The best certified column weights, the rows that follow from them for all records, and their loss; None
            before any are found.
        reason: Why the star's weights are not published, or why no lower bound was computed. Empty if there is nothing
            to explain.
        trajectory: (seconds, bound, loss) tuples from the search for the optimum.
        iterations: The number of iterations of that search.
        finished: Whether the search ended by itself rather than at a limit.
    """

    def __init__(self, problem: LRGeoInstance, context: SolveContext) -> None:
        """Create the search.

        Args:
            problem: The problem. Its users only determine which rows are written.
            context: The gap and limits for the run.
        """
        self.problem, self.context = problem, context
        self.data = problem.data
        self.incumbent: Incumbent[Floats, Multipliers, Unsigned] = Incumbent(self, context.gap)
        self.columns: tuple[ColumnWeights, Unsigned, float] | None = None
        self.reason = "the limit was reached before column weights were found"
        self.trajectory: Sequence[tuple[float, float, float]] = ()
        self.iterations, self.finished = 0, False

    def run(self) -> Outcome[LRGeoRelease]:
        """Return column weights if they meet the requested gap, and otherwise the best mechanism found in time.

        Raises:
            StoppedError: The time limit was reached before even the exponential mechanism was certified.
            SolverError: No method produced a mechanism.
        """
        data, incumbent = self.data, self.incumbent
        # Under a time limit, a simple mechanism comes first so that there is something to publish. Certifying it also
        # shows how much time to leave for certifying the final mechanism.
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
        # If column weights are good enough, repairing and certifying other candidates would be wasted.
        if not self.columns_do(bound):
            # If nothing was found in time, only the exponential mechanism is left. It exists if every record has an
            # output at a finite distance.
            if incumbent.best.candidate is None and self.columns is None:
                self.offer_exponential()
            while incumbent.certify():
                pass
        return self.outcome(bound)

    def outcome(self, bound: float | None) -> Outcome[LRGeoRelease]:
        """Return the outcome: the column weights, or the certified matrix if its loss is less by more than the gap.

        Args:
            bound: Proved lower bound on the loss; None if there is none.

        Returns:
            The release with its loss and bound, and the reason if the star's weights are not published.

        Raises:
            StoppedError, SolverError: No mechanism was found.
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
            # A search that ended early but met the gap counts as complete.
            stopped=not (self.finished or _meets_gap(loss, bound, self.context.gap)),
        )

    def columns_do(self, bound: float | None) -> bool:
        """Return whether there are column weights whose loss is close enough to the bound or the best other mechanism.

        Close enough means within the requested gap.

        Args:
            bound: Proved lower bound on the loss; None if there is none.
        """
        if self.columns is None:
            return False
        loss, gap = self.columns[2], self.context.gap
        return _meets_gap(loss, bound, gap) or _meets_gap(loss, self.incumbent.promised_value, gap)

    def certify(self, candidate: Floats) -> tuple[float, Unsigned]:
        """Repair an (N, K) matrix to certified integers, and return the loss and the integers.

        Raises:
            CertificationError: No repair satisfies the guarantee.
        """
        self.context.report("repair")
        all_rows = MatrixRelease.from_matrix(candidate, self.data, self.context).weights
        return population_loss(all_rows, self.data), all_rows

    def prove(self, proof: Multipliers, value: float) -> tuple[float, None]:
        """Return the lower bound that the multipliers prove, rounded down, and None in place of a stored proof.

        Args:
            proof: Multipliers for the pairs in ``data.needed``.
            value: The certified loss, which the search does not need here.
        """
        from privopt_metric_dp.proof import Rows

        self.context.report("bound")
        weighted = self.data.weighted
        return Rows.of(proof, self.data, weighted, over=self.data.needed).bound(self.data, weighted), None

    def offer_exponential(self) -> None:
        """Offer the exponential mechanism if the distances to all outputs are known."""
        data = self.data
        with suppress(InputError):  # raised if some record has no output at a finite distance
            if data.crossed:
                z = exponential(data.to_outputs, float(data.epsilon))
                self.incumbent.offer("exponential", candidate=z, value=float((data.weighted * z).sum()))

    def find_columns(self) -> str:
        """Search for column weights: those of the star at nearly all of epsilon, or positive weights at a smaller rate.

        Returns:
            The reason why the star's weights are not used; empty if they are used.

        Raises:
            OutOfTime: The innermost time limit was reached.
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
        # A slack is a share of epsilon that is left for rounding to integers. Larger slacks increase the loss a little,
        # so they are tried later.
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
            # The star's loss can exceed that of the exponential mechanism. Positive weights at a smaller rate may then
            # have less loss.
            columns_loss, baseline_loss = self.columns[2], exponential_loss(data)
            if baseline_loss is None or columns_loss <= baseline_loss:
                return ""
            reason = f"column weights would lose {columns_loss:.6g}, the exponential mechanism {baseline_loss:.6g}"
        report("column weights at a smaller rate")
        weaker_weights = normalised_weights(data, distances)
        # Weights whose rows cannot be certified are not used. The returned reason is still the one that ruled out the
        # star.
        with suppress(CertificationError):
            if weaker_weights is not None:
                self.offer_columns(weaker_weights, distances)
        return reason

    def offer_columns(self, public: ColumnWeights, distances: Floats) -> None:
        """Certify all rows that column weights yield, and store the weights if their loss is the least so far.

        Args:
            public: The column weights.
            distances: (N, N) The path distances between all records.

        Raises:
            CertificationError: A pair of rows violates the guarantee.
        """
        data = self.data
        all_rows = whole_matrix(public, distances.__getitem__)
        pairs, lengths, _ = certified_pairs(data)
        with self.context.time_phase("repair"):
            measured = certify(all_rows, pairs, lengths, data.epsilon)
        # Weights are computed in doubles, so only this check of all rows guarantees anything about the integers.
        if not measured.holds:
            raise CertificationError("pairs did not certify")
        all_rows.setflags(write=False)
        loss = population_loss(all_rows, data)
        if self.columns is None or loss < self.columns[2]:
            self.columns = public, all_rows, loss

    def find_optimum(self) -> None:
        """Search for the optimal mechanism, and offer the result with its lower bound.

        Raises:
            OutOfTime: The innermost time limit was reached.
        """
        from privopt_metric_dp.solvers import Instance, solve

        check()  # raises OutOfTime before any work if there is no time left
        context = self.context
        instance = Instance.of(self.data)
        try:
            # Half of the gap is left for the loss that the repair to integers adds.
            solution = solve(instance, gap=context.gap / 2, memory=context.free_memory, progress=context.report)
        except OutOfTime:
            raise  # ends the scope of the time limit; it is a StoppedError, which is handled below
        except (SolverError, StoppedError) as error:
            # A solver that failed would find nothing with more time either; one that was stopped might.
            self.finished = isinstance(error, SolverError)
            # Without column weights, the failure is noted in the answer's path to explain why a fallback is published.
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
    """Return whether a loss is within a relative gap of a bound; False if there is no bound."""
    # The floor of 1e-12 only avoids a tolerance of 0 when the loss is 0.
    return bound is not None and loss - bound <= gap * max(abs(loss), 1e-12)


def _make_release(problem: LRGeoInstance, published: PublicNumbers) -> LRGeoRelease:
    """Return the exact method's release: the users' rows, and the public numbers from which every row is computed.

    Args:
        problem: The problem with its users.
        published: The public numbers.
    """
    data, users = published.data, problem.users
    everybody = len(users) == len(data.records)
    # mechanism.npz contains only the users' rows, so its pairs are those between users. The guarantee rests on
    # public.npz.
    pairs, lengths = (data.pairs, data.distances) if everybody else pairs_inside(data, users)
    # A region is certified by its pieces, not by pairs.
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
