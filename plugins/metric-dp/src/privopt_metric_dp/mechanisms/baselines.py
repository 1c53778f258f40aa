"""The baseline mechanisms for metric problems: exponential, planar Laplace and const-opt."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import ClassVar, Final

import numpy as np
from attrs import frozen

from privopt.arrays import Unsigned
from privopt.declare import key
from privopt.errors import Fault, InputError
from privopt.execution.resources import GB
from privopt.interfaces import Result, SolveContext
from privopt.numbers import TOTAL
from privopt_metric_dp.matrix.privacy import DISTANCE_TOLERANCE
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.matrix.remap import remap_outputs
from privopt_metric_dp.matrix.repair import round_to_weights
from privopt_metric_dp.mechanisms.answer import Matrix
from privopt_metric_dp.mechanisms.base import MetricMechanism, make_first_offers
from privopt_metric_dp.mechanisms.certifier import MatrixIncumbent, MatrixOffers
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.problem.declared import ConstOpt, MetricProblem
from privopt_metric_dp.problem.distance_kinds import Euclidean, Haversine
from privopt_metric_dp.solvers.exponential import exponential, largest_share


class _ClosedForm(MetricMechanism[MetricProblem]):
    """Base class for mechanisms whose matrix depends only on the problem, so that ``verify`` can recompute it."""

    spare: ClassVar[str | None] = None
    """The method whose matrix is released if the requested method runs out of time, or None if there is none."""

    def verify(self, problem: MetricInstance[MetricProblem], release: MatrixRelease, result: Result) -> list[str]:
        """Run the base class's checks and, if they pass, check that the weights can be reproduced from the problem.

        Returns:
            The errors found, one sentence each.
        """
        lines = super().verify(problem, release, result)
        if lines:
            return lines
        self.check_problem(problem, result.method)
        # It cannot be verified whether the requested method ran out of time. If the run had a time limit, the matrix of
        # either method is therefore accepted.
        methods = [result.method]
        if result.asked.time_limit is not None and self.spare is not None:
            methods.insert(0, self.spare)
        for method in dict.fromkeys(methods):
            if self._is_reproduced_by(problem, release, SolveContext(method=method, gap=float(result.asked.gap))):
                return []
        return [f"mechanism.npz: weights are not those of {result.mechanism}"]

    def _is_reproduced_by(
        self, problem: MetricInstance[MetricProblem], release: MatrixRelease, context: SolveContext
    ) -> bool:
        """Return whether recomputing the matrix reproduces the weights of a release.

        Args:
            problem: The loaded problem.
            release: The release to check.
            context: The method to use and the gap requested for the run.
        """
        z, remap = self.matrix(problem, context).z, problem.data.remap
        # A matrix that satisfies the guarantee after rounding to integers is not changed by the repair. Plain rounding
        # is tried first because the repair takes longer. This does not work if a remap replaces outputs, or if a row is
        # all zeros and cannot be rounded.
        if not remap and z.any(axis=1).all() and _has_weights(round_to_weights(z), release):
            return True
        recomputed = MatrixRelease.from_matrix(z, problem.data, context)
        if remap:
            recomputed = remap_outputs(recomputed, self.utility(problem, context.method), problem.data)
        return _has_weights(recomputed.weights, release)


def _has_weights(weights: Unsigned, release: MatrixRelease) -> bool:
    """Return whether a release has the given weights, up to rounding errors in exp and log.

    Args:
        weights: Array of shape (N, K) with integer weights.
        release: The release to compare with.
    """
    if np.array_equal(weights, release.weights):
        return True
    # exp and log may differ in the last bits on another machine, and so may the weights. No guarantee depends on this
    # comparison, because the certificate covers the integers themselves.
    return np.allclose(weights / TOTAL, release.probabilities, rtol=DISTANCE_TOLERANCE, atol=DISTANCE_TOLERANCE)


class Exponential(_ClosedForm):
    """The exponential mechanism: the probability of an output at distance d is proportional to exp(-s epsilon d).

    The factor s is 1/2 by default. The method "calibrated" uses the largest s for which the matrix satisfies the
    guarantee.
    """

    kit = "privopt_metric_dp.kit.profiles:EXPONENTIAL"
    spare = "exponential"

    def first_offers(
        self, problem: MetricInstance[MetricProblem], incumbent: MatrixIncumbent, context: SolveContext
    ) -> Sequence[Callable[[], None]]:
        """Return the fallback for a calibrated run: a function that offers the exponential mechanism with s = 1/2.

        The matrix with s = 1/2 is released if the calibration of s runs out of time. The sequence is empty if there is
        no time limit, if the requested method itself uses s = 1/2, or if the distances from records to outputs are
        unknown.
        """
        # The first of these offers reports one output for all records. It is left out because it is not an exponential
        # mechanism, so verify() would reject it.
        may_stop_early = context.method == "calibrated" and context.search_time.left < math.inf
        return make_first_offers(problem.data, incumbent, bounds=False)[1:] if may_stop_early else ()

    def matrix(self, problem: MetricInstance[MetricProblem], context: SolveContext) -> Matrix:
        """Return the matrix with entries proportional to exp(-s epsilon d), where d is the distance to the output.

        The factor s is 1/2 or, for the method "calibrated", the largest value for which the matrix is private.
        """
        data, epsilon, epsilon_share = problem.data, float(problem.data.epsilon), 0.5
        if context.method == "calibrated":
            # `standing` contains the pairs that the certificate checks, with their distances. They imply all required
            # pairs.
            epsilon_share = largest_share(data.to_outputs, epsilon, *data.standing)
        z = exponential(data.to_outputs, epsilon, share=epsilon_share)
        return Matrix(z=z, solver={"name": "closed form"}, details={"share_of_epsilon": epsilon_share})


_OVER: Final = {"planar": "points", "geographic": "points", "vector": "vectors", "plain": "ids alone"}
"""Descriptions of the records for use in error messages, by kind of place (``records.kind``)."""

LEAST: Final = Fraction(1, 10**150)
GREATEST: Final = Fraction(10**150)
"""The largest epsilon for which the integration of planar Laplace noise has been tested. ``LEAST`` is the smallest."""


class PlanarLaplace(_ClosedForm):
    """A mechanism that adds planar Laplace noise and releases the output nearest to the result.

    See Andrés et al., CCS 2013.
    """

    kit = "privopt_metric_dp.kit.profiles:PLANAR"

    def takes(self, role: str, name: str) -> bool:
        """Return whether the mechanism supports a registered kind of distance, loss or privacy notion.

        The only supported kinds of distance are straight-line and great-circle distances.

        Args:
            role: "distance", "loss" or "notion".
            name: The name of the kind.
        """
        return super().takes(role, name) and (role != "distance" or name in (Euclidean.kind, Haversine.kind))

    def check_problem(self, problem: MetricInstance[MetricProblem], method: str) -> None:
        """Run the base class's checks, and check that planar Laplace noise can be used for the problem.

        Raises:
            InputError: The kind of distance or the kind of places is not supported, epsilon is outside the range in
                which the noise can be integrated, or one of the base class's checks fails.
        """
        super().check_problem(problem, method)
        data = problem.data
        # The noise depends on the distance in the plane or on the globe, so this must be the problem's distance.
        is_straight = isinstance(problem.declared.distance, (Euclidean, Haversine))
        if data.records.kind not in ("planar", "geographic") or not is_straight:
            actual = f"{problem.declared.distance.kind} over {_OVER[data.records.kind]}"
            expectation = "euclidean or haversine over points or a grid, where planar noise can be drawn"
            raise InputError([Fault(data.file, "distance.kind", actual, expectation)])
        # Outside this range, squared distances in units of 1 / epsilon leave the range of doubles.
        if not LEAST <= data.epsilon <= GREATEST:
            expectation = (
                f"{float(LEAST):g} to {float(GREATEST):g} (per {data.unit}), where the noise can be integrated"
            )
            raise InputError([Fault(data.file, "privacy.epsilon", f"{float(data.epsilon):g}", expectation)])

    def matrix(self, problem: MetricInstance[MetricProblem], context: SolveContext) -> Matrix:
        """Compute the matrix by integrating the noise over the Voronoi cell of each output.

        The mechanism releases the output nearest to a noisy point, so z_ik is the probability that noise around record
        i falls into the cell of output k.
        """
        from privopt_metric_dp.solvers.planar_laplace import planar_laplace

        data = problem.data
        epsilon_share = 1.0
        if data.region is not None:
            # The constraints on the vertices' rows use lengths l' that may be below the real distances l
            # (docs/guide/everywhere.md). Noise at epsilon times the smallest l' / l satisfies them on every edge.
            i, j = data.pairs.T
            epsilon_share = float((data.distances / data.distance.between(i, j)).min(initial=1.0))
        z = planar_laplace(data.records, data.outputs, epsilon_share * float(data.epsilon))
        return Matrix(z=z, solver={"name": "integration"}, details={"share_of_epsilon": epsilon_share})


@frozen(kw_only=True)
class ConstOptProblem(MetricProblem):
    """A metric problem with options for the ``const-opt`` mechanism."""

    const_opt: ConstOpt = key(help="options of const-opt", name="const-opt")


class ConstOptimal(MetricMechanism[ConstOptProblem]):
    """The const-opt mechanism, which optimises only the matrix entries near each record (Imola et al., UAI 2022).

    An entry is a free variable if the distance from its record to its output is at most the radius declared in the
    problem. All other entries are weighted sums of fixed exponential forms, and only the weights are optimised.
    """

    problem_class = ConstOptProblem
    programs = falls_back = True
    kit = "privopt_metric_dp.kit.profiles:CONST_OPT"

    def search(self, problem: MetricInstance[ConstOptProblem], incumbent: MatrixOffers, context: SolveContext) -> None:
        """Offer the calibrated exponential mechanism, followed by the solution of the const-opt LP.

        The exponential mechanism is offered only if the distances from records to outputs are known. If the LP does not
        fit in memory, it is skipped and a note to that effect is added to the search.
        """
        from privopt_metric_dp.mechanisms.const_opt import const_opt_bytes

        data = problem.data
        # `crossed` says whether the distances from records to outputs are known. The exponential mechanism needs them.
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
        """Solve the const-opt LP and return the resulting matrix."""
        from privopt_metric_dp.mechanisms.const_opt import solve_const_opt

        return solve_const_opt(problem.data, problem.declared.const_opt.radius, context)
