"""The base class of mechanisms that release an obfuscation matrix. A subclass only computes the matrix.

::

    class Acme(MetricMechanism):
        def matrix(self, problem, context):
            z = acme(problem.data.distances, ...)  # (N, K), rows near 1, near-feasible
            return Matrix(z=z, solver={"name": "acme"})

Repair into integers, certificate, bound, files, ``verify``, ``sample`` and ``audit`` follow.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, cast

import numpy as np
from attrs import evolve

from privopt.errors import DoesNotHoldError, Fault, InputError, ModelError, RegistryError
from privopt.execution.clock import within
from privopt.interfaces import Outcome, Result, SolveContext, UtilityLoss
from privopt.interfaces.abilities import solves_program
from privopt.registry import registry
from privopt.search.incumbent import Answer, Incumbent
from privopt.search.run_search import run_search
from privopt.version import VERSION
from privopt_metric_dp.matrix.expected_loss import ExpectedLoss
from privopt_metric_dp.matrix.privacy import MatrixConstraint, MetricDP, uncovered_pairs
from privopt_metric_dp.matrix.release import ARTEFACT, MatrixRelease, matrix_bytes
from privopt_metric_dp.matrix.remap import improvable_outputs
from privopt_metric_dp.mechanisms.answer import Matrix
from privopt_metric_dp.mechanisms.certifier import (
    CertifiedRelease,
    Dual,
    MatrixCertifier,
    MatrixIncumbent,
    MatrixOffers,
)
from privopt_metric_dp.mechanisms.first_offers import make_first_offers
from privopt_metric_dp.mechanisms.words import MatrixWords
from privopt_metric_dp.problem.data import D, MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem
from privopt_metric_dp.proof import PROOF, Proof, Streets, read_proof
from privopt_metric_dp.region.region import compare_regions
from privopt_metric_dp.space.places import places_at_most

__all__ = ["MetricMechanism"]

CHOSEN: Final = "chosen"
"""Scope of a bound that only holds for mechanisms over the chosen outputs."""
PROPOSED_OUTPUTS: Final = 120
"""Number of outputs that is proposed if all records are too many."""
ALL: Final = "all"
"""Scope of a bound that also holds for mechanisms over all records."""
MIN_BOUND_SHARE: Final = 0.9
"""A bound over all records is stated if it is at least this share of the bound over the chosen outputs."""
SOLVER_GAP_SHARE: Final = 0.95
"""Share of the requested gap that solvers must reach. The remainder is left to the repair and the rigorous bound."""


class MetricMechanism(MatrixWords[D]):
    """A mechanism over :class:`MetricProblem` whose release is a :class:`MatrixRelease`.

    A mechanism with further keys in a subclass ``AcmeProblem`` is a ``MetricMechanism[AcmeProblem]`` and finds them in
    ``problem.declared``. If ``AcmeProblem`` is not a subclass of :class:`MetricProblem`, the mechanism must override
    :meth:`load`, which makes the data, and :meth:`privacy`, which makes the notion.
    """

    problem_class: ClassVar[type] = MetricProblem
    release_class = MatrixRelease
    bound_is_proof = True
    scope = (
        "epsilon-metric DP: for every two records at distance d (all pairs, or those within "
        "privacy.neighbours_within; with privacy.everywhere any two points of the region, d the length of a way inside "
        "it) and every output, the probabilities differ by a factor of at most "
        "exp(epsilon d). Holds against whoever sees the output, whatever else they know."
    )

    kit: ClassVar[str] = "privopt_metric_dp.kit.problems:default_profile"
    reporting: ClassVar[str] = "privopt_metric_dp.report.reporting:MetricReporting"

    chooses: ClassVar[bool] = False
    """Whether it can choose outputs among the records, as ``[outputs] choose`` requests (:meth:`choose`)."""

    falls_back: ClassVar[bool] = False
    """Whether one output for all and the exponential mechanism, which satisfy metric DP, are valid releases of it."""

    any_notion: ClassVar[frozenset[str]] = frozenset()
    """Methods that solve for any notion of the problem, through its rows. The others support metric DP only."""

    def takes(self, role: str, name: str) -> bool:
        """Return False for notions other than metric DP, unless some method supports any notion."""
        if role != "notion" or self.any_notion:
            return True
        return issubclass(registry().kind(role, name).load(), MetricDP)

    def load(self, declared: D, file: str) -> MetricInstance[D]:
        """Load the records, distances, costs and prior of a problem.

        Raises:
            InputError: The files have faults, or outputs are to be chosen and the mechanism cannot choose them.
        """
        outputs = getattr(declared, "outputs", None)
        if outputs is not None and outputs.choose is not None and not self.chooses:
            actual = f"{outputs.choose} with a mechanism that chooses no outputs"
            raise InputError([Fault(file, "outputs.choose", actual, "optimal-lp, or outputs by grid, points or count")])
        return MetricInstance.of(declared, file)

    def reopen(self, declared: D, file: str, folder: Path) -> tuple[MetricInstance[D], MatrixRelease]:
        """Load the problem and the release; their sizes are compared before anything is computed from them.

        Raises:
            DoesNotHoldError: The sizes differ.
        """
        release = MatrixRelease.load(folder / ARTEFACT)
        shape = release.weights.shape
        with places_at_most(max(shape)):
            problem = self.load(declared, file)
        if problem.whole.choose is not None:
            problem.choose(release.rows_of_outputs(problem.whole))
        if problem.data.shape != shape:
            problem_shape = " x ".join(map("{:,}".format, problem.data.shape))
            raise DoesNotHoldError(
                f"{ARTEFACT}: weights: {shape[0]:,} x {shape[1]:,}, where the problem has {problem_shape}"
            )
        is_matrix_only = self.release_class is MatrixRelease  # others have more files
        return problem, release.following(problem.data) if is_matrix_only else self.release_class.read(folder, problem)

    def matrix(self, problem: MetricInstance[D], context: SolveContext) -> Matrix:
        """Compute a matrix, which the caller repairs and certifies. A subclass overrides this or :meth:`search`.

        Raises:
            InfeasibleError: There is no matrix.
            OutOfTime: The time limit came first.
        """
        raise ModelError(f"{type(self).__name__} defines neither matrix nor search")

    def choose(self, problem: MetricInstance[D], context: SolveContext) -> None:
        """Choose outputs among the records, if the problem requests it, by :meth:`MetricInstance.choose`."""

    def prove_over_all(
        self, problem: MetricInstance[D], release: MatrixRelease, context: SolveContext
    ) -> tuple[Proof, float] | None:
        """Prove a bound on mechanisms over all records if outputs were chosen; None if that is not possible.

        Args:
            problem: The problem with the chosen outputs.
            release: The release over these outputs.
            context: The context in which it is solved.
        """
        return None

    def privacy(self, problem: MetricInstance[D], method: str) -> MatrixConstraint:
        """Return the notion of the problem, over its required pairs."""
        keys = cast("MetricProblem", problem.declared).privacy
        constraint: MatrixConstraint = registry().kind("notion", keys.kind).load().from_keys(keys, problem.whole)
        return constraint

    def notion(self, problem: MetricInstance[D], method: str) -> str | None:
        """Return the notion that ``[privacy] kind`` names, for methods that support any notion."""
        return cast("MetricProblem", problem.declared).privacy.kind if method in self.any_notion else None

    def utility(self, problem: MetricInstance[D], method: str) -> UtilityLoss[MatrixRelease]:
        """Return the expected loss under the prior."""
        return ExpectedLoss.of(problem.data)

    def check_problem(self, problem: MetricInstance[D], method: str) -> None:
        """Check that the method supports the problem's notion of privacy.

        Raises:
            InputError: The notion is not metric DP, and the method is not in :attr:`any_notion`.
        """
        constraint = self.privacy(problem, method)
        if not isinstance(constraint, MetricDP) and method not in self.any_notion:
            actual = f"{constraint.kind!r}, which --method {method} cannot take"
            expectation = " or ".join([MetricDP.kind, *(f"--method {name}" for name in sorted(self.any_notion))])
            raise InputError([Fault(problem.whole.file, "privacy.kind", actual, expectation)])

    def solve(self, problem: MetricInstance[D], context: SolveContext) -> Outcome[MatrixRelease]:
        """Run the search, repair its result into integers, and bound the loss of every other mechanism.

        Raises:
            StoppedError: A limit came before any release was certified.
            SolverError: No method found a matrix.
        """
        self.check_problem(problem, context.method)
        if problem.whole.choose is not None:
            with context.timed("solve"):
                self.choose(problem, context)
        data, loss = problem.data, self.utility(problem, context.method)
        if not isinstance(loss, UtilityLoss):
            raise RegistryError(f"utility() must return a privopt.interfaces.UtilityLoss, got {type(loss).__name__}")
        context.report("distances")
        with context.timed("build"), within(context.search_time):
            data.weighted, data.standing  # noqa: B018  (here, so that building is timed as such; costs first: their distances serve pairs)
        certifier = MatrixCertifier(data, self.privacy(problem, context.method), loss, context)
        noise = 1e-14 * data.shape[0] * float(max(data.weighted.max(), -data.weighted.min()))
        incumbent: MatrixIncumbent = Incumbent(
            certifier, SOLVER_GAP_SHARE * context.gap, final_gap=context.gap, noise=noise, progress=context.report
        )
        with context.timed("solve"):
            answer = run_search(
                partial(self.search, problem, incumbent, context),
                incumbent,
                context.search_time,
                first_offers=self.first_offers(problem, incumbent, context),
            )
        outcome = _make_outcome(self, answer, problem)
        if problem.whole.choose is None or outcome.stopped:
            return outcome
        wider_proof = self.prove_over_all(problem, answer.release.release, context)
        if wider_proof is None or wider_proof[1] < MIN_BOUND_SHARE * (outcome.lower_bound or 0.0):
            return outcome
        return evolve(outcome, proof=wider_proof[0], lower_bound=wider_proof[1], bound_over=ALL)

    def first_offers(
        self, problem: MetricInstance[D], incumbent: MatrixIncumbent, context: SolveContext
    ) -> Sequence[Callable[[], None]]:
        """Return functions that make quick offers before the search; none unless :attr:`falls_back`."""
        has_offers = self.falls_back and isinstance(self.privacy(problem, context.method), MetricDP)
        return make_first_offers(problem.data, incumbent, bounds=not solves_program(self)) if has_offers else ()

    def search(self, problem: MetricInstance[D], incumbent: MatrixOffers, context: SolveContext) -> None:
        """Offer matrices and multipliers; by default those of :meth:`matrix`.

        Raises:
            ModelError: There are multipliers, but the loss is not an :class:`ExpectedLoss`, so they prove no bound.
            OutOfTime: The time limit came; earlier offers remain.
        """
        answer = self.matrix(problem, context)
        loss, proof = self.utility(problem, context.method), None
        if not isinstance(self.privacy(problem, context.method), MetricDP):
            answer = evolve(answer, multipliers=None)  # they prove a bound under metric DP alone
        if answer.multipliers is not None:
            if not isinstance(loss, ExpectedLoss):
                raise ModelError(f"multipliers bound an ExpectedLoss alone, not {type(loss).__name__}; return none")
            proof = Dual(answer.multipliers, answer.over, answer.bound)
        has_right_shape = np.shape(answer.z) == problem.data.shape  # else the repair refuses it, in words
        value = float(np.vdot(problem.data.weighted, answer.z)) if has_right_shape else None
        incumbent.note("", matrix=answer)
        incumbent.offer(
            answer.name,
            candidate=answer.z if answer.release is None else answer.release,
            value=value,
            bound=value if answer.bound is None else answer.bound,
            proof=proof,
        )

    def release_of(self, release: MatrixRelease, problem: MetricInstance[D]) -> MatrixRelease:
        """Return a certified matrix as a release of :attr:`release_class`."""
        return release

    def describe_solver(self, answer: Answer[CertifiedRelease]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the solver and the details of an answer, in the form of an outcome."""
        matrix: Matrix | None = answer.details.get("matrix")
        if matrix is None:
            solver = {"name": answer.origin, "version": VERSION, "iterations": answer.offers}
            return solver, {"solve": answer.details, "trajectory": answer.trajectory}
        return (matrix.solver if answer.origin == matrix.name else {"name": answer.origin}), matrix.details

    def memory_advice(self, problem: MetricInstance[D]) -> str:
        """Propose fewer outputs if all records are outputs and the mechanism can choose among them."""
        records, outputs = problem.shape
        if not (self.chooses and records == outputs > PROPOSED_OUTPUTS):
            return ""
        return f"so would [outputs] choose = {PROPOSED_OUTPUTS}, that many of the {records:,} records"

    def bytes_needed(self, problem: MetricInstance[D], method: str) -> float:
        """Return the bytes of its matrix (:func:`privopt_metric_dp.matrix.release.matrix_bytes`)."""
        return matrix_bytes(*problem.shape, problem.whole.most_pairs)

    def verify(self, problem: MetricInstance[D], release: MatrixRelease, result: Result) -> list[str]:
        """Compare records, outputs, distances and pairs of the artefact with the problem's, which are recomputed."""
        data = problem.data
        ids = {"records": (release.records, data.records.ids), "outputs": (release.outputs, data.outputs.ids)}
        lines = [
            f"mechanism.npz: {name}: not those of the problem, in its order"
            for name, (stored, expected_ids) in ids.items()
            if stored.tolist() != list(expected_ids)
        ]
        if data.remap and not lines:
            lines += improvable_outputs(release, self.utility(problem, result.method), data)
        if release.region is not None or data.region is not None:
            return lines + compare_regions(release.region, data.region, release.pairs)
        return lines or uncovered_pairs(release, data, along_paths=self.privacy(problem, result.method).along_paths)

    def proved(self, problem: MetricInstance[D], release: MatrixRelease, result: Result, folder: Path) -> float | None:
        """Return the bound that proof.npz proves, if the notion is metric DP and the loss the expected one."""
        loss = self.utility(problem, result.method)
        by_distance = isinstance(self.privacy(problem, result.method), MetricDP)
        if not (by_distance and isinstance(loss, ExpectedLoss) and (folder / PROOF).exists()):
            return None
        return read_proof(folder, problem.data.shape).stated_bound(problem.data, loss.weighted)

    def bound_over(self, problem: MetricInstance[D], folder: Path) -> str | None:
        """Return, if outputs were chosen, whether the bound covers mechanisms over these or over all records."""
        if problem.whole.choose is None:
            return None
        proof = read_proof(folder, problem.data.shape) if (folder / PROOF).exists() else None
        return ALL if isinstance(proof, Streets) else CHOSEN


def _make_outcome(
    mechanism: MetricMechanism[D], answer: Answer[CertifiedRelease], problem: MetricInstance[D]
) -> Outcome[MatrixRelease]:
    """Build the outcome of a mechanism's search from its answer."""
    solver, details = mechanism.describe_solver(answer)
    matrix: Matrix | None = answer.details.get("matrix")
    stopped = answer.stopped
    if matrix is not None:
        # A method that offers a single matrix is complete even if the limit came while it was certified.
        lacks_proof = matrix.multipliers is not None and answer.proof is None
        stopped = matrix.stopped or lacks_proof or (answer.stopped and answer.origin != matrix.name)
    path = ", ".join(part for part in (str(solver.get("path", "")), answer.path) if part)
    return Outcome(
        release=mechanism.release_of(answer.release.release, problem),
        lower_bound=answer.bound,
        bound_over=None if problem.whole.choose is None else CHOSEN,
        proof=answer.proof,
        solver={**solver, **({"path": path} if path else {})},
        details={**details, **answer.release.details},
        stopped=stopped,
    )
