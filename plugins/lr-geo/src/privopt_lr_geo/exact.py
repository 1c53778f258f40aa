"""Method exact: a guarantee over the whole population, and nothing uploaded.

The server publishes the star's column weights, one number an output, and each user computes its own row. Where no
weights x >= 0 exist, or they miss the gap that was asked for, the optimal mechanism is computed and the whole matrix is
published: a row that a user asked for would reveal where it is. Where that does not come in time, positive weights at a
smaller rate are better than nothing (:mod:`privopt_lr_geo.star_weights`).
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
    from privopt_metric_dp.proof.multipliers import Multipliers
else:
    Multipliers = Any

__all__ = ["ExactSearch", "certified_pairs", "population_loss", "search_seconds"]

LARGEST_MATRIX: Final = 36_000_000
"""Records times outputs beyond which no bound is computed: it takes a tree over all records for each output."""
CLOSING_TIMES: Final = 1.5
"""To repair and certify what is found, state it, write it and read it back may take so many times what building and the
first entry took together: .7 to 1.0 times were measured, with 10 users and with all on 1,331 records."""
MANY_CHECKS: Final = 20_000_000_000
"""Pairs times outputs beyond which only those pairs are certified that imply the others exactly."""


def certified_pairs(data: MetricData) -> tuple[Ints, Floats, str]:
    """Return the pairs that the certificate checks, and a note on them."""
    if len(data.pairs) * len(data.outputs) <= MANY_CHECKS:
        return data.pairs, data.distances, "every required pair"
    return *data.needed, "the required pairs that imply all others exactly"


def population_loss(weights: Unsigned, data: MetricData) -> float:
    """Return the prior-weighted loss over all records."""
    rows = [
        data.prior[part] * np.einsum("ik,ik->i", weights[part].astype(np.float64), data.cost[part])
        for part in slices(len(weights), weights.shape[1], BLOCK)
    ]
    return math.fsum(np.concatenate(rows).tolist()) / TOTAL


def search_seconds(incumbent: Incumbent[Any, Any, Any], context: SolveContext) -> float | None:
    """Return the seconds that a search may take, so that what it finds can still be certified, stated and read back.

    Args:
        incumbent: which has certified a first entry, and so knows what that takes.
        context: None is returned where it has no limit.
    """
    left = context.remaining
    if left is None:
        return None
    closing = CLOSING_TIMES * (incumbent.step_seconds["certify"] + context.times.get("build", 0.0))
    return max(0.0, left - closing)


class ExactSearch:
    """Column weights, then the optimal mechanism's methods; matrices are certified here, too.

    Attributes:
        columns: the best column weights that were certified, with every record's row by them and the loss.
        reason: why they are not the star's, or not all there is.
    """

    def __init__(self, problem: LRGeoInstance, context: SolveContext) -> None:
        self.problem, self.context = problem, context
        self.data = problem.data
        self.incumbent: Incumbent[Floats, Multipliers, Unsigned] = Incumbent(self, context.gap)
        self.columns: tuple[ColumnWeights, Unsigned, float] | None = None
        self.reason = "the limit came before column weights were found"
        self.trajectory: Sequence[tuple[float, float, float]] = ()
        self.iterations, self.finished = 0, False

    def run(self) -> Outcome[LRGeoRelease]:
        """Return column weights where they meet the gap asked for; else the best mechanism that time allows.

        Raises:
            StoppedError: a limit came before even the exponential mechanism was certified.
            SolverError: no method gave a mechanism.
        """
        data, incumbent = self.data, self.incumbent
        if self.context.remaining is not None:
            self.offer_exponential()
            incumbent.certify()
        with limit(search_seconds(incumbent, self.context)):
            self.reason = self.find_columns()
            if self.columns is not None and data.cost.size > LARGEST_MATRIX:
                self.reason = (
                    f"no bound: {data.cost.size:,} entries, of at most {LARGEST_MATRIX:,} for which one is computed"
                )
                self.finished = True
            else:
                self.find_optimum()
        while incumbent.prove():
            pass
        bound = incumbent.best_proved.bound if math.isfinite(incumbent.best_proved.bound) else None
        if not self.columns_do(bound):
            if incumbent.best.candidate is None and self.columns is None:
                self.offer_exponential()
            while incumbent.certify():
                pass
        return self.outcome(bound)

    def outcome(self, bound: float | None) -> Outcome[LRGeoRelease]:
        """Publish column weights, one number an output, where the others gain no more than the gap; else the matrix.

        Raises:
            StoppedError, SolverError: there is none.
        """
        solver: dict[str, Any] = {"name": "star"}
        if self.columns is not None and self.columns_do(bound):
            public, whole, loss = self.columns
            used = int((public.weights > 0).sum())
            figures = {"published": "column_weights", "rate": public.rate, "cap": public.cap, "columns_used": used}
            published = PublicNumbers(columns=public, data=self.data, given=whole)
        else:
            answer = self.incumbent.answer(stopped=not self.finished)
            if self.columns is not None and not self.reason:
                self.reason = f"column weights cost {self.columns[2]:.6g}, which misses the gap"
            path = ", ".join(part for part in (answer.path, answer.origin) if part)
            solver = {"name": answer.origin, "version": VERSION, "iterations": self.iterations, "path": path}
            loss, figures = answer.value, {"published": "weights"}
            published = PublicNumbers(columns=None, data=self.data, given=answer.release)
        details = {"lp": {"value": loss, "lower_bound": bound}, **figures, "trajectory": self.trajectory}
        return Outcome(
            release=_rows_of(self.problem, published),
            solver=solver,
            details={**details, **({"reason": self.reason} if self.reason else {})},
            stopped=not (self.finished or _met(loss, bound, self.context.gap)),
        )

    def columns_do(self, bound: float | None) -> bool:
        """Return whether there are column weights within the gap of a bound, or of the best matrix."""
        if self.columns is None:
            return False
        loss, gap = self.columns[2], self.context.gap
        return _met(loss, bound, gap) or _met(loss, self.incumbent.promised_value, gap)

    def certify(self, candidate: Floats) -> tuple[float, Unsigned]:
        """Repair a matrix (N, K) into integers.

        Raises:
            CertificationError: no repair was found that certifies.
        """
        self.context.report("repair")
        whole = MatrixRelease.from_matrix(candidate, self.data, self.context).weights
        return population_loss(whole, self.data), whole

    def prove(self, proof: Multipliers, value: float) -> tuple[float, None]:
        """Evaluate what multipliers prove."""
        from privopt_metric_dp.proof import Rows

        self.context.report("bound")
        weighted = self.data.weighted
        return Rows.of(proof, self.data, weighted, over=self.data.needed).bound(self.data, weighted), None

    def offer_exponential(self) -> None:
        """Offer the exponential mechanism, where distances to outputs are known."""
        data = self.data
        with suppress(InputError):  # a record that reaches no output
            if data.crossed:
                z = exponential(data.to_outputs, float(data.epsilon))
                self.incumbent.offer("exponential", candidate=z, value=float((data.weighted * z).sum()))

    def find_columns(self) -> str:
        """Look for column weights; why they are not the star's.

        Raises:
            OutOfTime: the innermost scope of time ended.
        """
        data, report = self.data, self.context.report
        if (data.distances == 0).any():
            return "no column weights: records at distance 0"
        report("path distances")
        paths, every = PathDistances(data), np.arange(len(data.records))
        distances = np.empty((len(every), len(every)))
        for part in slices(len(every), len(every), BLOCK):
            check()
            distances[part] = paths.rows(every[part])
        trouble = ""
        for slack in SLACKS:
            report(f"column weights, slack {slack:g}")
            try:
                self.take(star_weights(data, distances, slack), distances)
                break
            except (SolverError, CertificationError) as error:
                trouble = str(error)
        if self.columns is None:
            reason = f"no column weights at all of epsilon: {trouble}"
        else:
            own, plain = self.columns[2], exponential_loss(data)
            if plain is None or own <= plain:
                return ""
            reason = f"column weights would cost {own:.6g}, the exponential mechanism {plain:.6g}"
        report("column weights at a smaller rate")
        spare = normalised_weights(data, distances)
        with suppress(CertificationError):
            if spare is not None:
                self.take(spare, distances)
        return reason

    def take(self, public: ColumnWeights, distances: Floats) -> None:
        """Certify every record's row by column weights, and keep those that cost less.

        Raises:
            CertificationError: they do not hold.
        """
        data = self.data
        whole = whole_matrix(public, distances.__getitem__)
        pairs, lengths, _ = certified_pairs(data)
        with self.context.timed("repair"):
            measured = certify(whole, pairs, lengths, data.epsilon)
        if not measured.holds:
            raise CertificationError("pairs did not certify")
        whole.setflags(write=False)
        loss = population_loss(whole, data)
        if self.columns is None or loss < self.columns[2]:
            self.columns = public, whole, loss

    def find_optimum(self) -> None:
        """Offer what the optimal mechanism's methods find, and their bound.

        Raises:
            OutOfTime: the innermost scope of time ended.
        """
        from privopt_metric_dp.solvers import Instance, solve

        check()
        context = self.context
        instance = Instance.of(self.data)
        try:
            found = solve(instance, gap=context.gap / 2, memory=context.free_memory, progress=context.report)
        except OutOfTime:
            raise
        except (SolverError, StoppedError) as error:
            self.finished = isinstance(error, SolverError)
            if self.columns is None:
                self.incumbent.note(f"exact ({error})")
            self.reason = "; ".join(part for part in (self.reason, f"no bound: {error}") if part)
            return
        self.finished = found.status != "stopped"
        self.trajectory, self.iterations = found.trajectory, found.iterations
        self.incumbent.note(found.details.get("path", ""))
        self.incumbent.offer(
            found.method, candidate=found.z, value=found.objective, bound=found.lower_bound, proof=found.multipliers
        )


def _met(loss: float, bound: float | None, gap: float) -> bool:
    return bound is not None and loss - bound <= gap * max(abs(loss), 1e-12)


def _rows_of(problem: LRGeoInstance, published: PublicNumbers) -> LRGeoRelease:
    data, users = published.data, problem.users
    everybody = len(users) == len(data.records)
    pairs, lengths = (data.pairs, data.distances) if everybody else pairs_inside(data, users)
    if data.region is not None:
        pairs, lengths = pairs[:0], lengths[:0]
    return LRGeoRelease(
        weights=published.whole if everybody else published.whole[users],
        records=np.asarray(data.records.ids, dtype=np.str_)[users],
        outputs=np.asarray(data.outputs.ids, dtype=np.str_),
        pairs=pairs,
        distances=lengths,
        region=data.region,
        published=published,
    )
