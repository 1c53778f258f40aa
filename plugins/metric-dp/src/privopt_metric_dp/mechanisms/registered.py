"""The baselines as mechanisms over the metric problem."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import ClassVar, Final, Generic

import numpy as np
from attrs import frozen

from privopt.arrays import Unsigned
from privopt.declare import key
from privopt.errors import CertificationError, Fault, InputError
from privopt.execution.clock import Clock, clock
from privopt.execution.memory import GB
from privopt.interfaces import Result, SolveContext
from privopt.numbers import TOTAL
from privopt_metric_dp.matrix.expected_loss import ExpectedLoss
from privopt_metric_dp.matrix.privacy import DISTANCE_TOLERANCE, MetricDP
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.matrix.remap import remap_outputs
from privopt_metric_dp.matrix.repair import round_to_weights
from privopt_metric_dp.mechanisms.answer import Matrix
from privopt_metric_dp.mechanisms.base import MetricMechanism
from privopt_metric_dp.mechanisms.certifier import MatrixIncumbent, MatrixOffers
from privopt_metric_dp.mechanisms.first_offers import make_first_offers
from privopt_metric_dp.problem.data import D, MetricInstance
from privopt_metric_dp.problem.declared import ConstOpt, MetricProblem
from privopt_metric_dp.problem.distance_kinds import Euclidean, Haversine
from privopt_metric_dp.proof import Proof
from privopt_metric_dp.solvers.exponential import exponential, largest_share

__all__ = ["ConstOptProblem", "ConstOptimal", "Exponential", "Optimal", "OptimalLP", "PlanarLaplace"]


PRICED_PER_OUTPUT: Final = 6
"""Times as many records as outputs may be priced for a bound over all streets, whose program takes so much longer."""
OVER_ALL: Final = 2.0
"""Times the gap that was asked for, to which that program is solved: nobody asked for it (5,000 nodes of Helsinki with
960 outputs to 2 %: 95 s to 4 %, and 3.8 % after 220 s)."""
CHOICE_TIME_SHARE: Final = 0.3
"""Share of the time that is left in which outputs are chosen."""


class Optimal(MetricMechanism[D], Generic[D]):
    """One that seeks the least expected loss, by the whole program or by structured solvers."""

    any_notion = frozenset({"full"})
    falls_back = True

    def matrix(self, problem: MetricInstance[D], context: SolveContext) -> Matrix:
        """Return the matrix by the whole LP."""
        from privopt_metric_dp.mechanisms.optimal_lp import whole_program

        return whole_program(problem.data, self.privacy(problem, "full"), self.utility(problem, "full"), context)

    def search(self, problem: MetricInstance[D], incumbent: MatrixOffers, context: SolveContext) -> None:
        """Search by the whole LP if it is asked for and fits into memory, otherwise by the structured solvers."""
        from privopt_metric_dp.mechanisms.optimal_lp import full_bytes, search_structured

        if context.method != "full":
            search_structured(problem.data, incumbent, context, method=context.method)
        elif full_bytes(problem.data) <= context.free_memory or not isinstance(self.privacy(problem, "full"), MetricDP):
            super().search(problem, incumbent, context)
        else:
            incumbent.note(f"full ({full_bytes(problem.data) / GB:.2g} GB, too much)")
            search_structured(problem.data, incumbent, context)


class OptimalLP(Optimal[MetricProblem]):
    """The least expected loss that metric DP allows (Bordenabe et al., CCS 2014)."""

    chooses = True

    def choose(self, problem: MetricInstance[MetricProblem], context: SolveContext) -> None:
        """Choose the outputs of greatest use in a sample, loosely solved."""
        from privopt_metric_dp.solvers.choose_outputs import choose_outputs

        time = Clock(CHOICE_TIME_SHARE * context.search_time.left, clock())
        problem.choose(choose_outputs(problem.whole, search_time=time, progress=context.report))

    def prove_over_all(
        self, problem: MetricInstance[MetricProblem], release: MatrixRelease, context: SolveContext
    ) -> tuple[Proof, float] | None:
        """Prove a bound over reports anywhere on the streets, if losses are path lengths and crossings are few."""
        from privopt_metric_dp.proof.make_proof import prove_over_streets
        from privopt_metric_dp.solvers.street_bound import priced_records, solve_street_bound

        data, loss = problem.data, self.utility(problem, context.method)
        priced = priced_records(data, PRICED_PER_OUTPUT * len(data.outputs))
        if priced is None or not isinstance(loss, ExpectedLoss):
            return None
        try:
            with context.timed("solve"):
                multipliers = solve_street_bound(
                    data,
                    priced,
                    gap=OVER_ALL * context.gap,
                    memory_limit=context.free_memory,
                    seconds=context.search_time.left,
                    progress=context.report,
                )
        except CertificationError:  # crossings that are not records
            return None
        if multipliers is None:
            return None
        value = loss.state(release)[0] or 0.0
        with context.timed("verify"):
            return prove_over_streets(
                multipliers, priced, data, loss.weighted, value, gap=context.gap, memory_limit=context.free_memory
            )


class _ClosedForm(MetricMechanism[MetricProblem]):
    """One whose matrix follows from the problem alone, so that ``verify`` makes it again."""

    spare: ClassVar[str | None] = None
    """The method whose release is in where a limit came before another was done."""

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
            if self._is_reproduced_by(problem, release, SolveContext(method=method, gap=float(result.asked.gap))):
                return []
        return [f"mechanism.npz: other weights than those of {result.mechanism}"]

    def _is_reproduced_by(
        self, problem: MetricInstance[MetricProblem], release: MatrixRelease, context: SolveContext
    ) -> bool:
        """Check whether a release is what a method makes."""
        z, remap = self.matrix(problem, context).z, problem.data.remap
        if (
            not remap and z.any(axis=1).all() and _has_weights(round_to_weights(z), release)
        ):  # as it is where private, else repaired
            return True
        recomputed = MatrixRelease.from_matrix(z, problem.data, context)
        if remap:
            recomputed = remap_outputs(recomputed, self.utility(problem, context.method), problem.data)
        return _has_weights(recomputed.weights, release)


def _has_weights(weights: Unsigned, release: MatrixRelease) -> bool:
    if np.array_equal(weights, release.weights):
        return True
    return np.allclose(weights / TOTAL, release.probabilities, rtol=DISTANCE_TOLERANCE, atol=DISTANCE_TOLERANCE)


class Exponential(_ClosedForm):
    """Probabilities proportional to exp(-s epsilon d): s = 1/2, or the largest share s that certifies."""

    kit = "privopt_metric_dp.kit.profiles:EXPONENTIAL"
    spare = "exponential"

    def first_offers(
        self, problem: MetricInstance[MetricProblem], incumbent: MatrixIncumbent, context: SolveContext
    ) -> Sequence[Callable[[], None]]:
        """Offer half of epsilon first if a limit may come before the largest share is found."""
        early = context.method == "calibrated" and context.search_time.left < math.inf
        return make_first_offers(problem.data, incumbent, bounds=False)[1:] if early else ()

    def matrix(self, problem: MetricInstance[MetricProblem], context: SolveContext) -> Matrix:
        """Return the closed form."""
        data, epsilon, epsilon_share = problem.data, float(problem.data.epsilon), 0.5
        if context.method == "calibrated":
            epsilon_share = largest_share(data.to_outputs, epsilon, *data.standing)
        z = exponential(data.to_outputs, epsilon, share=epsilon_share)
        return Matrix(z=z, solver={"name": "closed form"}, details={"share_of_epsilon": epsilon_share})


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
            actual = f"{problem.declared.distance.kind} over {_OVER[data.records.kind]}"
            expectation = "euclidean or haversine over points or a grid, where planar noise can be drawn"
            raise InputError([Fault(data.file, "distance.kind", actual, expectation)])
        if not LEAST <= data.epsilon <= GREATEST:  # beyond, squares of distances in units of noise leave a double
            expectation = (
                f"{float(LEAST):g} to {float(GREATEST):g} (per {data.unit}), where the noise can be integrated"
            )
            raise InputError([Fault(data.file, "privacy.epsilon", f"{float(data.epsilon):g}", expectation)])

    def matrix(self, problem: MetricInstance[MetricProblem], context: SolveContext) -> Matrix:
        """Integrate the noise over the outputs' Voronoi cells."""
        from privopt_metric_dp.solvers.planar_laplace import planar_laplace

        data = problem.data
        epsilon_share = 1.0
        if data.region is not None:  # noise at the share of epsilon that every edge leaves keeps the vertices' rows
            i, j = data.pairs.T
            epsilon_share = float((data.distances / data.distance.between(i, j)).min(initial=1.0))
        z = planar_laplace(data.records, data.outputs, epsilon_share * float(data.epsilon))
        return Matrix(z=z, solver={"name": "integration"}, details={"share_of_epsilon": epsilon_share})


@frozen(kw_only=True)
class ConstOptProblem(MetricProblem):
    """A metric problem and const-opt's radius."""

    const_opt: ConstOpt = key(help="options of const-opt", name="const-opt")


class ConstOptimal(MetricMechanism[ConstOptProblem]):
    """LP near the record, exponential form beyond a radius (Imola et al., UAI 2022)."""

    problem_class = ConstOptProblem
    programs = falls_back = True
    kit = "privopt_metric_dp.kit.profiles:CONST_OPT"

    def search(self, problem: MetricInstance[ConstOptProblem], incumbent: MatrixOffers, context: SolveContext) -> None:
        """Offer the exponential mechanism at its largest share; then the program's, which loses no more, if it fits."""
        from privopt_metric_dp.mechanisms.const_opt import const_opt_bytes

        data = problem.data
        if data.crossed:
            epsilon_share = largest_share(data.to_outputs, float(data.epsilon), *data.standing)
            z = exponential(data.to_outputs, float(data.epsilon), share=epsilon_share)
            incumbent.offer("exponential", candidate=z, value=float(np.vdot(data.weighted, z)))
        needed = const_opt_bytes(data, problem.declared.const_opt.radius)
        if needed <= context.free_memory:
            super().search(problem, incumbent, context)
        else:
            incumbent.note(f"full (needs {needed / GB:.2g} GB of {context.free_memory / GB:.2g} left)")

    def matrix(self, problem: MetricInstance[ConstOptProblem], context: SolveContext) -> Matrix:
        """Return the LP through the modelling language."""
        from privopt_metric_dp.mechanisms.const_opt import solve_const_opt

        return solve_const_opt(problem.data, problem.declared.const_opt.radius, context)
