"""Metric mechanisms, one right and the others with one fault each."""

from __future__ import annotations

import os
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
from attrs import evolve, frozen

from privopt.declare import files_of
from privopt.errors import InputError
from privopt.interfaces import Certificate, Outcome
from privopt_metric_dp.kit.reference import optimum
from privopt_metric_dp.matrix.expected_loss import ExpectedLoss
from privopt_metric_dp.matrix.privacy import MetricDP
from privopt_metric_dp.matrix.release import ARTEFACT, MatrixRelease
from privopt_metric_dp.matrix.repair import repair
from privopt_metric_dp.mechanisms.answer import Matrix
from privopt_metric_dp.mechanisms.base import MetricMechanism
from privopt_metric_dp.mechanisms.optimal_lp import whole_program
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem
from privopt_metric_dp.problem.loss_kinds import CostMatrix
from privopt_metric_dp.proof.lagrangian_bound import Multipliers
from privopt_metric_dp.solvers import Instance, solve
from privopt_metric_dp.space.distance_table import MatrixMetric

UNIT = 2**63


class RightMatrix(MetricMechanism):
    """The optimal mechanism, with the trivial bound."""

    def matrix(self, problem: Any, context: Any) -> Matrix:
        data = problem.data
        z = self.found(data)
        nothing = np.zeros((len(data.pairs), data.shape[1]))
        multipliers = Multipliers.from_arrays(nothing, nothing)
        return Matrix(z=z, multipliers=multipliers, solver={"name": "privopt_metric_dp.solvers"})

    def found(self, data: Any) -> Any:
        # the general solvers give up, or worse, where eps d is far above 20
        instance = Instance(
            cost=np.array(data.weighted),
            pairs=np.array(data.pairs),
            distances=np.array(data.distances),
            epsilon=self.used(data),
        )
        return solve(instance, gap=1e-9).z

    def used(self, data: Any) -> float:
        return float(data.epsilon)


class MindsTheGap(RightMatrix):
    """Right too: as near to the optimum as it is asked to be, so that what it releases depends on the gap."""

    def solve(self, problem: Any, context: Any) -> Outcome:
        self.gap = context.gap
        return super().solve(problem, context)

    def found(self, data: Any) -> Any:
        share = min(0.5, self.gap)
        return (1 - share) * super().found(data) + share / data.shape[1]


class Blind(MetricDP):
    """A constraint that calls everything certified."""

    def measure(self, release: Any) -> Certificate:
        return Certificate(
            holds=True,
            evidence="proved",
            kind="metric-dp",
            worst=float(self.epsilon),
            allowed=float(self.epsilon),
            checked=1,
            arithmetic="none",
        )


class Unchecked(RightMatrix):
    """Certifies nothing, and spoils its release after the repair."""

    def privacy(self, problem: Any, method: str) -> Any:
        data = problem.data
        return Blind(epsilon=data.epsilon, unit=f"per {data.unit}", scope=MetricDP.of(data).scope, within=data.within)

    def spoil(self, release: MatrixRelease, data: Any) -> MatrixRelease:
        return release

    def solve(self, problem: Any, context: Any) -> Outcome:
        outcome = super().solve(problem, context)
        release = self.spoil(outcome.release, problem.data)
        value = self.utility(problem, "").evaluate(release)
        bound = None if outcome.lower_bound is None else min(outcome.lower_bound, value)
        return evolve(outcome, release=release, lower_bound=bound)


class RowSumOff(Unchecked):
    """A unit of weight is lost from one row: rounding without care for the sum."""

    def spoil(self, release: MatrixRelease, data: Any) -> MatrixRelease:
        weights = release.weights.copy()
        weights[-1, int(np.argmax(weights[-1]))] -= np.uint64(1)
        return evolve(release, weights=weights)


class EpsilonOnePercent(Unchecked):
    """Solved and repaired for an epsilon 1 % too large."""

    def spoil(self, release: MatrixRelease, data: Any) -> MatrixRelease:
        wrong = data.epsilon * Fraction(101, 100)
        z = optimum(data.weighted, data.pairs, data.distances, float(wrong))
        if z is None:
            return release
        return evolve(release, weights=repair(z, data.pairs, data.distances, wrong, loss=data.weighted).weights)


class NothingIsNear(Unchecked):
    """Gives every record its own output where its constraint finds nobody near: 0 conditions, and they hold."""

    def privacy(self, problem: Any, method: str) -> Any:
        return _Vacuous.of(problem.data)

    def spoil(self, release: MatrixRelease, data: Any) -> MatrixRelease:
        weights = np.zeros_like(release.weights)
        weights[np.arange(len(weights)), np.arange(len(weights)) % weights.shape[1]] = UNIT
        return evolve(release, weights=weights)


class _Vacuous(MetricDP):
    def measure(self, release: Any) -> Certificate:
        nobody = evolve(release, pairs=np.empty((0, 2), dtype=np.int64), distances=np.empty(0))
        return MetricDP.measure(self, nobody)


class HonestOnePercent(RightMatrix):
    """The same, under a constraint that measures: the pipeline refuses it."""

    def solve(self, problem: Any, context: Any) -> Outcome:
        outcome = super().solve(problem, context)
        return evolve(outcome, release=EpsilonOnePercent().spoil(outcome.release, problem.data))


class ZeroOnOneSide(Unchecked):
    """One record never gives an output that others give."""

    def spoil(self, release: MatrixRelease, data: Any) -> MatrixRelease:
        weights = release.weights.copy()
        least = int(np.argmin(weights[-1]))
        most = int(np.argmax(weights[-1]))
        if least != most:
            weights[-1, most] += weights[-1, least]
            weights[-1, least] = 0
        return evolve(release, weights=weights)


class SortedRecords(RightMatrix):
    """The artefact's records are sorted by id, whatever the input's order."""

    def solve(self, problem: Any, context: Any) -> Outcome:
        outcome = super().solve(problem, context)
        release = outcome.release
        order = np.argsort([str(name)[::-1] for name in release.records])[::-1]
        pairs = np.argsort(order)[release.pairs]
        changed = evolve(release, records=release.records[order], weights=release.weights[order], pairs=pairs)
        return evolve(outcome, release=changed, lower_bound=None)


class FartherThanTheyAre(RightMatrix):
    """Its own data has every two records twice as far apart as the problem file says."""

    def load(self, declared: Any, file: str) -> Any:
        instance = super().load(declared, file)
        data = instance.data
        if data.region is not None:
            return instance
        own = declared.outputs is None
        doubled = MatrixMetric(2.0 * data.metric.table(), None if own else data.metric.to_outputs())
        return evolve(instance, data=evolve(data, metric=doubled))


class ObjectiveMisreported(RightMatrix):
    """Reports the loss without the prior."""

    def utility(self, problem: Any, method: str) -> Any:
        data = problem.data
        return ExpectedLoss(weighted=data.cost / len(data.records), unit=data.loss_unit)

    def solve(self, problem: Any, context: Any) -> Outcome:
        return evolve(super().solve(problem, context), lower_bound=None)


class BoundTooHigh(RightMatrix):
    """A lower bound from a worse mechanism's loss: feasible is not dual."""

    def found(self, data: Any) -> Any:
        best = super().found(data)
        return 0.5 * best + 0.5 / data.shape[1]

    def solve(self, problem: Any, context: Any) -> Outcome:
        outcome = super().solve(problem, context)
        value = self.utility(problem, "").evaluate(outcome.release)
        return evolve(outcome, lower_bound=value * 0.999, proof=None)

    def proved_bound(self, problem: Any, release: Any, result: Any, folder: Any) -> float | None:
        return result.objective.lower_bound  # vouches for whatever is stated


class SeedIgnored(RightMatrix):
    """Starts from the operating system's entropy, seed or not."""

    def found(self, data: Any) -> Any:
        share = 0.1 + os.urandom(1)[0] / 2560
        return (1 - share) * super().found(data) + share / data.shape[1]


class Mutates(RightMatrix):
    """Changes the prior in place."""

    def found(self, data: Any) -> Any:
        best = super().found(data)
        prior = data.prior
        while prior.base is not None:  # what can be written to lies below the views
            prior = prior.base
        prior.setflags(write=True)
        prior *= 2.0
        return best


class LossRises(RightMatrix):
    """Uses less of its budget the more it gets."""

    def used(self, data: Any) -> float:
        epsilon = float(data.epsilon)
        return min(epsilon, 0.25 / epsilon)


class WrongUnit(RightMatrix):
    """Takes distances for metres where they are kilometres: caps them at 1 of the file's unit."""

    def found(self, data: Any) -> Any:
        nothing = np.full(data.shape, 1 / data.shape[1])
        z = optimum(data.weighted, data.pairs, np.minimum(data.distances, 1.0), float(data.epsilon))
        return nothing if z is None else z


@frozen(kw_only=True, eq=False)
class _RoundedRelease(MatrixRelease):
    def write(self, folder: Path) -> None:
        weights = self.weights & ~np.uint64(0xFFFFFFFF)
        for row in weights:
            row[int(np.argmax(row))] += np.uint64(UNIT - sum(map(int, row)))
        names = ("records", "outputs", "pairs", "distances")
        np.savez(folder / ARTEFACT, weights=weights, **{name: getattr(self, name) for name in names})


class ChangesOnTheWay(RightMatrix):
    """Writes fewer digits than it certified."""

    release_class = _RoundedRelease

    def solve(self, problem: Any, context: Any) -> Outcome:
        outcome = super().solve(problem, context)
        names = ("weights", "records", "outputs", "pairs", "distances")
        return evolve(outcome, release=_RoundedRelease(**{name: getattr(outcome.release, name) for name in names}))


class Crashes(RightMatrix):
    """Looks for the nearest other record, which a single one does not have."""

    def found(self, data: Any) -> Any:
        np.partition(data.metric.table(), 1, axis=1)
        return super().found(data)


class ById(RightMatrix):
    """Prefers the output whose id, read backwards, comes first in the alphabet."""

    def found(self, data: Any) -> Any:
        favourite = min(range(data.shape[1]), key=lambda k: str(data.outputs.ids[k])[::-1])
        z = 0.5 * super().found(data)
        z[:, favourite] += 0.5
        return z


class FirstRecord(RightMatrix):
    """Always half of the first output, wherever that stands."""

    def found(self, data: Any) -> Any:
        z = 0.5 * super().found(data)
        z[:, 0] += 0.5
        return z


class SolversDiffer(RightMatrix):
    """Right by CBC; by HiGHS it takes an answer that is far from optimal."""

    def matrix(self, problem: Any, context: Any) -> Matrix:
        made = whole_program(problem.data, self.privacy(problem, ""), self.utility(problem, ""), context)
        if context.solver == "highs":
            return Matrix(z=np.full(problem.data.shape, 1 / problem.data.shape[1]), solver=made.solver)
        return evolve(made, multipliers=None)


class GuaranteeMisstated(RightMatrix):
    """Keeps epsilon and states twice as much privacy."""

    def privacy(self, problem: Any, method: str) -> Any:
        return _Boasting.of(problem.data)


class _Boasting(MetricDP):
    @property
    def guarantee(self) -> Any:
        honest = MetricDP.guarantee.fget(self)  # type: ignore[attr-defined]
        return evolve(honest, epsilon=self.epsilon / 2)


class PublishesAll(RightMatrix):
    """Publishes its tables as they were handed in, with columns that it never reads."""

    def load(self, declared: MetricProblem, file: str) -> MetricInstance:
        made = super().load(declared, file)
        for each in files_of(declared):
            each.seen.columns.clear()
        return made


class NeverMeasures(Unchecked):
    """A right release, but what is read back is never measured."""

    def utility(self, problem: Any, method: str) -> Any:
        return _FirstSeen.of(problem.data)


class _FirstSeen(ExpectedLoss):
    def evaluate(self, release: MatrixRelease) -> Any:
        return None if release.repaired is None else ExpectedLoss.evaluate(self, release)


class InputUnchecked(RightMatrix):
    """Looks at a file before it is known to be one."""

    def load(self, declared: MetricProblem, file: str) -> MetricInstance:
        if isinstance(declared.utility, CostMatrix):
            np.load(declared.utility.file.here).sum()
        return super().load(declared, file)


class QuotesTheInterpreter(RightMatrix):
    """Repeats to users how Python shows an object."""

    def load(self, declared: MetricProblem, file: str) -> MetricInstance:
        try:
            return super().load(declared, file)
        except InputError as error:
            raise InputError(
                [evolve(fault, actual=f"{fault.actual} in {object()!r}") for fault in error.faults]
            ) from None
