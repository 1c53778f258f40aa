"""The baselines as mechanisms over the metric problem."""

from __future__ import annotations

import time
from fractions import Fraction
from typing import ClassVar, Final

import numpy as np
from attrs import frozen

from privopt.arrays import Unsigned
from privopt.declare import key
from privopt.errors import CertificationError, Fault, InputError, StoppedError
from privopt.execution.limits import ending_at
from privopt.interfaces import Result, SolveContext
from privopt.numbers import TOTAL
from privopt_metric_dp.matrix.expected_loss import ExpectedLoss
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.matrix.remap import remapped
from privopt_metric_dp.matrix.repair import rounded
from privopt_metric_dp.mechanisms.answer import Matrix
from privopt_metric_dp.mechanisms.base import SAME_WITHIN, MetricMechanism
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.problem.declared import ConstOpt, MetricProblem
from privopt_metric_dp.problem.distance_kinds import Euclidean, Haversine
from privopt_metric_dp.proof import Proof

__all__ = ["ConstOptProblem", "ConstOptimal", "Exponential", "OptimalLP", "PlanarLaplace"]


PRICED: Final = 6
"""Times as many records as outputs may be priced for a bound over all streets, whose program takes so much longer."""
CHOOSING: Final = 0.3
"""Share of the time that is left in which outputs are chosen."""


class OptimalLP(MetricMechanism[MetricProblem]):
    """The least expected loss that metric DP allows (Bordenabe et al., CCS 2014)."""

    any_notion = frozenset({"full"})
    chooses = True

    def choose(self, problem: MetricInstance[MetricProblem], context: SolveContext) -> None:
        """Those of greatest use in a sample, loosely solved."""
        from privopt_metric_dp.solvers.choose_outputs import choose_outputs

        left = context.remaining
        until = None if left is None else time.monotonic() + CHOOSING * left
        with ending_at(until):
            problem.choose(choose_outputs(problem.whole, deadline=until, progress=context.report))

    def prove_over_all(
        self,
        problem: MetricInstance[MetricProblem],
        release: MatrixRelease,
        bound: float | None,
        context: SolveContext,
    ) -> tuple[Proof, float] | None:
        """Over reports anywhere on the streets, where losses are ways along them and crossings are few."""
        from privopt_metric_dp.proof.make_proof import prove_over_streets
        from privopt_metric_dp.solvers.street_bound import priced_records, solve_street_bound

        data, loss = problem.data, self.utility(problem, context.method)
        priced = priced_records(data, PRICED * len(data.outputs))
        if priced is None or not isinstance(loss, ExpectedLoss):
            return None
        try:
            with context.timed("solve"):
                found = solve_street_bound(
                    data, priced, gap=context.gap, deadline=context.deadline, progress=context.report
                )
        except CertificationError:  # crossings that are no records
            return None
        if found is None:
            return None
        value = loss.state(release)[0] or 0.0
        with context.timed("verify"):
            return prove_over_streets(
                found.multipliers, priced, data, loss.weighted, value, gap=context.gap, room=context.room
            )

    def matrix(self, problem: MetricInstance[MetricProblem], context: SolveContext) -> Matrix:
        """The matrix by the whole LP, or by one of the structured solvers."""
        from privopt_metric_dp.mechanisms.optimal_lp import solve_full, solve_structured

        if context.method == "full":
            return solve_full(problem.data, self.privacy(problem, "full"), self.utility(problem, "full"), context)
        return solve_structured(problem.data, context)


class _ClosedForm(MetricMechanism[MetricProblem]):
    """One whose matrix follows from the problem alone, so that ``verify`` makes it again."""

    bounds = False
    spare: ClassVar[str | None] = None
    """The method whose release stands in where a limit came before another was done."""

    def verify(self, problem: MetricInstance[MetricProblem], release: MatrixRelease, result: Result) -> list[str]:
        """Also: the weights are those of the formula."""
        lines = super().verify(problem, release, result)
        if lines:
            return lines
        self.check_problem(problem, result.method)
        methods = [result.method]
        if result.asked.time_limit is not None and self.spare is not None:
            methods.insert(0, self.spare)
        for method in dict.fromkeys(methods):
            if self._follows(problem, release, SolveContext(method=method, gap=float(result.asked.gap))):
                return []
        return [f"mechanism.npz: other weights than those of {result.mechanism}"]

    def _follows(self, problem: MetricInstance[MetricProblem], release: MatrixRelease, context: SolveContext) -> bool:
        """Whether a release is what a method makes."""
        z, remap = self.matrix(problem, context).z, problem.data.remap
        if not remap and z.any(axis=1).all() and _near(rounded(z), release):  # as it is where private, else repaired
            return True
        again = MatrixRelease.from_matrix(z, problem.data, context)
        if remap:
            again = remapped(again, self.utility(problem, context.method), problem.data)
        return _near(again.weights, release)


def _near(weights: Unsigned, release: MatrixRelease) -> bool:
    if np.array_equal(weights, release.weights):
        return True
    return np.allclose(weights / TOTAL, release.probabilities, rtol=SAME_WITHIN, atol=SAME_WITHIN)


class Exponential(_ClosedForm):
    """Probabilities proportional to exp(-s epsilon d): s = 1/2, or the largest share s that certifies."""

    kit = "privopt_metric_dp.kit.profiles:EXPONENTIAL"
    spare = "exponential"

    def matrix(self, problem: MetricInstance[MetricProblem], context: SolveContext) -> Matrix:
        """Closed form."""
        from privopt_metric_dp.mechanisms.fallback import Reserve
        from privopt_metric_dp.solvers.exponential import exponential, largest_share

        data, epsilon, share = problem.data, float(problem.data.epsilon), 0.5
        if context.method == "calibrated":
            reserve, until = Reserve(data, context, bounded=False), None
            if context.deadline is not None:
                until = reserve.keep()
            try:
                with ending_at(until):
                    share = largest_share(data.to_outputs, epsilon, *data.standing)
            except StoppedError:
                if reserve.release is None:
                    raise
                path = f"calibrated (no time to find the largest share), {reserve.path}"
                return Matrix(
                    z=reserve.release.probabilities,
                    solver={"name": "closed form", "path": path},
                    details={"share_of_epsilon": share},
                    stopped=True,
                    release=reserve.release,
                )
        z = exponential(data.to_outputs, epsilon, share=share)
        return Matrix(z=z, solver={"name": "closed form"}, details={"share_of_epsilon": share})


_OVER: Final = {"planar": "points", "geographic": "points", "vector": "vectors", "plain": "ids alone"}

LEAST: Final = Fraction(1, 10**150)
GREATEST: Final = Fraction(10**150)
"""Epsilons between which planar Laplace noise was integrated without a fault."""


class PlanarLaplace(_ClosedForm):
    """Planar Laplace noise, remapped to the nearest output (Andrés et al., CCS 2013)."""

    kit = "privopt_metric_dp.kit.profiles:PLANAR"

    def takes(self, role: str, name: str) -> bool:
        """Return False for other distances than straight lines and great circles, too."""
        return super().takes(role, name) and (role != "distance" or name in (Euclidean.kind, Haversine.kind))

    def check_problem(self, problem: MetricInstance[MetricProblem], method: str) -> None:
        """Check also that noise can be drawn around the records, and integrated.

        Raises:
            InputError: it cannot.
        """
        super().check_problem(problem, method)
        data = problem.data
        straight = isinstance(problem.declared.distance, (Euclidean, Haversine))
        if data.records.kind not in ("planar", "geographic") or not straight:
            found = f"{problem.declared.distance.kind} over {_OVER[data.records.kind]}"
            wanted = "euclidean or haversine over points or a grid, where planar noise can be drawn"
            raise InputError([Fault(data.file, "distance.kind", found, wanted)])
        if not LEAST <= data.epsilon <= GREATEST:  # beyond, squares of distances in units of noise leave a double
            wanted = f"{float(LEAST):g} to {float(GREATEST):g} (per {data.unit}), where the noise can be integrated"
            raise InputError([Fault(data.file, "privacy.epsilon", f"{float(data.epsilon):g}", wanted)])

    def matrix(self, problem: MetricInstance[MetricProblem], context: SolveContext) -> Matrix:
        """Integrated over the outputs' Voronoi cells."""
        from privopt_metric_dp.solvers.planar_laplace import planar_laplace

        data = problem.data
        share = 1.0
        if data.region is not None:  # noise at the share of epsilon that every edge leaves keeps the vertices' rows
            i, j = data.pairs.T
            share = float((data.distances / data.distance.between(i, j)).min(initial=1.0))
        z = planar_laplace(data.records, data.outputs, share * float(data.epsilon))
        return Matrix(z=z, solver={"name": "integration"}, details={"share_of_epsilon": share})


@frozen(kw_only=True)
class ConstOptProblem(MetricProblem):
    """A metric problem and const-opt's radius."""

    const_opt: ConstOpt = key(help="options of const-opt", name="const-opt")


class ConstOptimal(MetricMechanism[ConstOptProblem]):
    """LP near the record, exponential form beyond a radius (Imola et al., UAI 2022)."""

    problem_class = ConstOptProblem
    bounds, programs = False, True
    kit = "privopt_metric_dp.kit.profiles:CONST_OPT"

    def matrix(self, problem: MetricInstance[ConstOptProblem], context: SolveContext) -> Matrix:
        """The LP through the modelling language."""
        from privopt_metric_dp.mechanisms.const_opt import solve_const_opt

        return solve_const_opt(problem.data, problem.declared.const_opt.radius, context)
