"""The base class for mechanisms that release an obfuscation matrix.

A subclass only needs to compute the matrix::

    class Acme(MetricMechanism):
        def matrix(self, problem, context):
            z = acme(problem.data.distances, ...)  # (N, K), private and summing to 1 up to rounding
            return Matrix(z=z, solver={"name": "acme"})

The base class repairs the matrix, rounds it to integers and certifies it. It also proves a lower bound, reads and
writes files, and implements ``verify``, ``sample`` and ``audit``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, cast

import numpy as np
from attrs import evolve

from privopt.arrays import Floats
from privopt.declare.name_forms import warn_of_look_alikes
from privopt.errors import DoesNotHoldError, Fault, InputError, ModelError, RegistryError
from privopt.execution.clock import clock, within
from privopt.interfaces import Channel, Mechanism, Outcome, Result, SolveContext, UtilityLoss
from privopt.interfaces.abilities import solves_program
from privopt.registry import registry
from privopt.search.incumbent import Answer, Incumbent
from privopt.search.offers import Later
from privopt.search.run_search import run_search
from privopt.version import VERSION
from privopt_metric_dp.attacks.meaning import Interpretation, costs_in_words, interpret_guarantee
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
from privopt_metric_dp.problem.data import D, MetricData, MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem
from privopt_metric_dp.proof import PROOF, Proof, Streets, read_proof
from privopt_metric_dp.proof.lagrangian_bound import Multipliers
from privopt_metric_dp.region.region import compare_regions
from privopt_metric_dp.solvers.exponential import exponential
from privopt_metric_dp.space.places import places_at_most

__all__ = ["MatrixWords", "MetricMechanism", "make_first_offers"]


class MatrixWords(Mechanism[MetricInstance[D], MatrixRelease], Generic[D]):
    """Base class for metric DP mechanisms, with the methods for explaining and auditing a release.

    It does not provide any method for computing a release.
    """

    def meaning(self, problem: MetricInstance[D], release: MatrixRelease, result: Result) -> Sequence[str]:
        """Return sentences that explain the guarantee of a release.

        They state how much a report changes the odds between nearest neighbours, and how often an attacker's best guess
        is correct with and without the report. If the problem declares the cost of a kilometre in another unit
        (``per_km``), they also express the expected loss in that unit.
        """
        return (*self._interpret(problem, release, result).sentences, *costs_in_words(problem.data, result.objective))

    def warnings(self, problem: MetricInstance[D], release: MatrixRelease, result: Result) -> Sequence[str]:
        """Return warnings about questionable input, weak protection, coarse meshes and ids that look alike."""
        data = problem.data
        mesh_warning = None if data.region is None else data.region.coarse(data.epsilon)
        look_alikes = warn_of_look_alikes((*data.records.ids, *data.outputs.ids), "ids")
        interpretation = self._interpret(problem, release, result)
        return [*data.warnings, *interpretation.warnings, *filter(None, [mesh_warning]), *look_alikes]

    def _interpret(self, problem: MetricInstance[D], release: MatrixRelease, result: Result) -> Interpretation:
        """Return sentences and warnings about what an attacker can learn under the guarantee.

        The odds between nearest neighbours are only given for metric DP, because other notions do not bound them by
        distance.
        """
        by_distance = isinstance(self.privacy(problem, result.method), MetricDP)
        return interpret_guarantee(release, problem.data, by_distance=by_distance)

    def channel(self, problem: MetricInstance[D], release: MatrixRelease) -> Channel:
        """Return the matrix as a channel, that is, the probability of each output given each input.

        The channel is used for attacks and estimates. If the release has one row per record, the channel includes the
        prior, the distances and the coordinates.
        """
        return release.channel_over(problem.data)

    def audit(self, problem: MetricInstance[D], release: MatrixRelease, result: Result) -> Mapping[str, Any]:
        """Return the privacy and utility metrics shown by ``privopt audit``.

        They include the epsilon achieved over all pairs, the Bayes error, the entropy, the expected loss, and a lower
        bound on epsilon estimated from samples. They also include the fraction of privacy constraints that are violated
        and the size of the violations (Equations (34) and (35) of the LR-Geo paper).
        """
        from privopt_metric_dp.attacks.matrix_figures import audit_matrix

        return audit_matrix(release, problem.data, self.utility(problem, result.method))

    def over_time(
        self, problem: MetricInstance[D], release: MatrixRelease, result: Result, reports: int
    ) -> Mapping[str, Any] | None:
        """Return quantiles of the error of an attacker who has seen up to ``reports`` reports about one place.

        The attacker guesses the record with the largest likelihood given all reports. The error is the distance from
        the guess to the true place. Returns None unless the release has exactly one row per record.
        """
        from privopt_metric_dp.attacks.many_reports import over_time

        return over_time(release, problem.data, max_reports=reports)


def make_first_offers(data: MetricData, incumbent: MatrixIncumbent, *, bounds: bool) -> list[Callable[[], None]]:
    """Return functions, each of which offers a private matrix that can be computed without a search.

    The first matrix reports the same output for all records, so it is private for any distances. The second is the
    exponential mechanism with half of epsilon in its exponents. It is only included if distances to outputs are known.

    Args:
        data: The data of the problem.
        incumbent: The search that receives the offers.
        bounds: Whether to also offer a trivial lower bound: the loss if each record reports its cheapest output.
    """
    # Neither matrix needs a solver, so a run with a time limit has a certified release almost from the start.
    weighted, (records, outputs) = data.weighted, data.shape

    def offer_one_output() -> None:
        """Offer the matrix that always reports the output with the smallest expected loss."""
        k = int(weighted.sum(axis=0).argmin())
        incumbent.offer(
            "one output",
            candidate=Later(_one_output_matrix, records, outputs, k),
            value=float(weighted[:, k].sum()),
            # With all multipliers 0, the Lagrangian bound is the loss if every record reports its cheapest output.
            bound=float(weighted.min(axis=1).sum()) if bounds else None,
            proof=Dual(Multipliers.zero(), (np.zeros((0, 2), dtype=np.int64), np.zeros(0))) if bounds else None,
        )

    def offer_exponential() -> None:
        """Offer the exponential mechanism, unless some record has no output at a finite distance."""
        try:
            z = exponential(data.to_outputs, float(data.epsilon))
        except InputError as error:  # a record has no output at a finite distance
            incumbent.note(f"exponential ({error})")
            return
        incumbent.offer("exponential", candidate=z, value=float(np.vdot(weighted, z)))

    # `data.crossed` says whether the distances from records to outputs are known.
    return [offer_one_output, offer_exponential] if data.crossed else [offer_one_output]


def _one_output_matrix(records: int, outputs: int, k: int) -> Floats:
    """Return the matrix of shape (records, outputs) in which every record reports output k with probability 1."""
    z = np.zeros((records, outputs))
    z[:, k] = 1.0
    return z


CHOSEN: Final = "chosen"
"""The scope of a lower bound that is valid only for mechanisms restricted to the chosen outputs."""
PROPOSED_OUTPUTS: Final = 120
"""The number of outputs suggested by the error message if using all records as outputs would take too much memory."""
ALL: Final = "all"
"""The scope of a lower bound that is valid for all mechanisms, including those that may report any record."""
MIN_BOUND_SHARE: Final = 0.9
"""The fraction of the :data:`CHOSEN` bound that a bound with scope :data:`ALL` must reach to be stated."""
SOLVER_GAP_SHARE: Final = 0.95
"""The fraction of the requested gap that solvers must reach.

The remainder allows for the loss added by the repair and for the rounding of the bound.
"""


class MetricMechanism(MatrixWords[D]):
    """Base class for mechanisms on a :class:`MetricProblem` that release a :class:`MatrixRelease`.

    To add keys to the problem file, declare them in a class ``AcmeProblem``, subclass ``MetricMechanism[AcmeProblem]``,
    and read the keys from ``problem.declared``. If ``AcmeProblem`` is not a subclass of :class:`MetricProblem`, the
    mechanism must override :meth:`load` and :meth:`privacy`.
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
    """Whether the mechanism can choose outputs from the records, for ``[outputs] choose`` (see :meth:`choose`)."""

    falls_back: ClassVar[bool] = False
    """Whether the matrices from :func:`make_first_offers` are valid releases of the mechanism."""

    closed_forms: ClassVar[frozenset[str]] = frozenset()
    """The methods that run :func:`privopt_metric_dp.solvers.auto.search`, which may start with a closed form."""

    any_notion: ClassVar[frozenset[str]] = frozenset()
    """The methods that support any privacy notion because they solve a model with its constraints.

    All other methods support only metric DP.
    """

    def takes(self, role: str, name: str) -> bool:
        """Return whether the mechanism supports a registered kind of distance, loss or privacy notion.

        All kinds of distance and loss are supported. Privacy notions other than metric DP are only supported if the
        mechanism has a method that works for any notion.

        Args:
            role: "distance", "loss" or "notion".
            name: The name of the kind.
        """
        # Distances and losses are handled by the problem, so every mechanism over MetricProblem accepts all of them.
        if role != "notion" or self.any_notion:
            return True
        return issubclass(registry().kind(role, name).load(), MetricDP)

    def load(self, declared: D, file: str) -> MetricInstance[D]:
        """Load the records, distances, costs and prior of a problem.

        Raises:
            InputError: The files are invalid, or the problem asks for outputs to be chosen from the records and the
                mechanism does not support this.
        """
        outputs = getattr(declared, "outputs", None)
        if outputs is not None and outputs.choose is not None and not self.chooses:
            actual = f"{outputs.choose} with a mechanism that chooses no outputs"
            raise InputError([Fault(file, "outputs.choose", actual, "optimal-lp, or outputs by grid, points or count")])
        return MetricInstance.of(declared, file)

    def reopen(self, declared: D, file: str, folder: Path) -> tuple[MetricInstance[D], MatrixRelease]:
        """Load the problem and the release from a release folder.

        The sizes of the problem and the release are compared before anything else is computed, because the folder may
        have been tampered with.

        Args:
            declared: The parsed problem file from the folder.
            file: The name of the problem file, for error messages.
            folder: The release folder.

        Raises:
            DoesNotHoldError: The sizes do not match.
        """
        release = MatrixRelease.load(folder / ARTEFACT)
        shape = release.weights.shape
        # The problem file has not been checked yet, and a few numbers in it can declare millions of places. The problem
        # cannot have more places than the matrix has rows or columns, so a file that was tampered with is rejected
        # before its places are computed.
        with places_at_most(max(shape)):
            problem = self.load(declared, file)
        if problem.whole.choose is not None:
            # The problem file only says how many outputs are chosen. The matrix's columns say which ones.
            problem.choose(release.rows_of_outputs(problem.whole))
        if problem.data.shape != shape:
            problem_shape = " x ".join(map("{:,}".format, problem.data.shape))
            raise DoesNotHoldError(
                f"{ARTEFACT}: weights: {shape[0]:,} x {shape[1]:,}, where the problem has {problem_shape}"
            )
        is_matrix_only = self.release_class is MatrixRelease  # subclasses read further files
        return problem, release.following(problem.data) if is_matrix_only else self.release_class.read(folder, problem)

    def matrix(self, problem: MetricInstance[D], context: SolveContext) -> Matrix:
        """Compute a matrix, which the caller then repairs and certifies.

        Subclasses must override this method or :meth:`search`.

        Args:
            problem: The loaded problem.
            context: The method, solver, gap and limits of the run.

        Raises:
            InfeasibleError: No matrix satisfies the constraints.
            OutOfTime: The time limit expired before a matrix was found.
        """
        raise ModelError(f"{type(self).__name__} defines neither matrix nor search")

    def choose(self, problem: MetricInstance[D], context: SolveContext) -> None:
        """Choose outputs from the records, and pass them to :meth:`MetricInstance.choose`.

        This is only called if the problem asks for outputs to be chosen. The base implementation does nothing.
        """

    def prove_over_all(
        self, problem: MetricInstance[D], release: MatrixRelease, context: SolveContext
    ) -> tuple[Proof, float] | None:
        """Prove a lower bound on the loss that is valid even for mechanisms that may report any record.

        This is called after the outputs have been chosen.

        Args:
            problem: The problem with the chosen outputs.
            release: The release with these outputs.
            context: The solver, gap and limits of the run.

        Returns:
            The proof and its bound, or None if nothing is proved. The base implementation returns None.
        """
        return None

    def privacy(self, problem: MetricInstance[D], method: str) -> MatrixConstraint:
        """Return the problem's privacy notion, applied to its required pairs."""
        keys = cast("MetricProblem", problem.declared).privacy
        constraint: MatrixConstraint = registry().kind("notion", keys.kind).load().from_keys(keys, problem.whole)
        return constraint

    def notion(self, problem: MetricInstance[D], method: str) -> str | None:
        """Return the name of the notion in ``[privacy]``, or None if the method supports only metric DP."""
        return cast("MetricProblem", problem.declared).privacy.kind if method in self.any_notion else None

    def utility(self, problem: MetricInstance[D], method: str) -> UtilityLoss[MatrixRelease]:
        """Return the loss to minimise: the expected loss under the prior."""
        return ExpectedLoss.of(problem.data)

    def check_problem(self, problem: MetricInstance[D], method: str) -> None:
        """Check that a method supports the privacy notion of the problem.

        Raises:
            InputError: The notion is not metric DP, and the method is not in :attr:`any_notion`.
        """
        constraint = self.privacy(problem, method)
        if not isinstance(constraint, MetricDP) and method not in self.any_notion:
            actual = f"{constraint.kind!r}, which --method {method} cannot take"
            expectation = " or ".join([MetricDP.kind, *(f"--method {name}" for name in sorted(self.any_notion))])
            raise InputError([Fault(problem.whole.file, "privacy.kind", actual, expectation)])

    def solve(self, problem: MetricInstance[D], context: SolveContext) -> Outcome[MatrixRelease]:
        """Search for a release with a small loss, certify it, and prove a lower bound on the loss.

        The bound is valid for every mechanism with the same guarantee.

        Args:
            problem: The loaded problem.
            context: The method, solver, gap and limits of the run.

        Returns:
            The certified release, the lower bound with its proof, and details about the search.

        Raises:
            StoppedError: A limit was reached before any release was certified.
            SolverError: No method found a matrix.
        """
        self.check_problem(problem, context.method)
        # This must come before `problem.data` is read, which would otherwise choose outputs by their distances alone.
        if problem.whole.choose is not None:
            with context.time_phase("solve"):
                self.choose(problem, context)
        data, loss = problem.data, self.utility(problem, context.method)
        if not isinstance(loss, UtilityLoss):
            raise RegistryError(f"utility() must return a privopt.interfaces.UtilityLoss, got {type(loss).__name__}")
        context.report("distances")
        begins_held = _begins_held(self, problem, context)
        # If a closed form is evaluated first, the clock is held, because the closed form is exempt from time limits.
        with context.time_phase("build"), within(context.search_time), clock().hold() if begins_held else nullcontext():
            # Both are cached properties, which are computed here so that the time counts as building. The costs come
            # first, because the pairs reuse the distances that they need.
            data.weighted, data.standing  # noqa: B018
        certifier = MatrixCertifier(data, self.privacy(problem, context.method), loss, context)
        # Losses that differ by less than `noise`, roughly the rounding error in a sum over N records, count as equal.
        noise = 1e-14 * data.shape[0] * float(max(data.weighted.max(), -data.weighted.min()))
        incumbent: MatrixIncumbent = Incumbent(
            certifier, SOLVER_GAP_SHARE * context.gap, final_gap=context.gap, noise=noise, progress=context.report
        )
        with context.time_phase("solve"):
            answer = run_search(
                partial(self.search, problem, incumbent, context),
                incumbent,
                context.search_time,
                first_offers=self.first_offers(problem, incumbent, context),
                begins_held=begins_held,
            )
        outcome = _make_outcome(self, answer, problem)
        if problem.whole.choose is None or outcome.stopped:
            return outcome
        # More outputs can only lower the optimum, so a bound over all records is usually the smaller one. If it is not
        # much smaller, it is stated instead, because it covers more mechanisms.
        wider_proof = self.prove_over_all(problem, answer.release.release, context)
        if wider_proof is None or wider_proof[1] < MIN_BOUND_SHARE * (outcome.lower_bound or 0.0):
            return outcome
        return evolve(outcome, proof=wider_proof[0], lower_bound=wider_proof[1], bound_over=ALL)

    def first_offers(
        self, problem: MetricInstance[D], incumbent: MatrixIncumbent, context: SolveContext
    ) -> Sequence[Callable[[], None]]:
        """Return functions that offer candidates for the release before the search begins.

        They are fast, so that even a run that is stopped early produces a release. The sequence is empty unless
        :attr:`falls_back` is True and the notion is metric DP.
        """
        has_offers = self.falls_back and isinstance(self.privacy(problem, context.method), MetricDP)
        return make_first_offers(problem.data, incumbent, bounds=not solves_program(self)) if has_offers else ()

    def search(self, problem: MetricInstance[D], incumbent: MatrixOffers, context: SolveContext) -> None:
        """Search for a good matrix by offering matrices and dual multipliers to ``incumbent``.

        The base implementation offers the result of :meth:`matrix`.

        Args:
            problem: The loaded problem.
            incumbent: The search, which certifies the best matrix and proves the best bound among all offers.
            context: The method, solver, gap and limits of the run.

        Raises:
            ModelError: The result of :meth:`matrix` contains multipliers, but the loss is not an :class:`ExpectedLoss`.
                Multipliers prove no bound on other losses.
            OutOfTime: The time limit has expired. Earlier offers remain valid.
        """
        answer = self.matrix(problem, context)
        loss, proof = self.utility(problem, context.method), None
        if not isinstance(self.privacy(problem, context.method), MetricDP):
            answer = evolve(answer, multipliers=None)  # they prove a bound only under metric DP
        if answer.multipliers is not None:
            if not isinstance(loss, ExpectedLoss):
                raise ModelError(f"multipliers can bound only an ExpectedLoss, not {type(loss).__name__}; return none")
            proof = Dual(answer.multipliers, answer.over, answer.bound)
        has_right_shape = np.shape(answer.z) == problem.data.shape  # otherwise the repair explains the fault
        # Value and bound are estimates. Before they are stated, the certifier repairs the matrix and evaluates the
        # multipliers exactly. If the method gave no estimate of the bound, the value is offered as the bound. No bound
        # can be better, so the proof will be tried.
        value = float(np.vdot(problem.data.weighted, answer.z)) if has_right_shape else None
        # _make_outcome() and describe_solver() look up the answer by the name `matrix`.
        incumbent.note("", matrix=answer)
        incumbent.offer(
            answer.name,
            candidate=answer.z if answer.release is None else answer.release,
            value=value,
            bound=value if answer.bound is None else answer.bound,
            proof=proof,
        )

    def release_of(self, release: MatrixRelease, problem: MetricInstance[D]) -> MatrixRelease:
        """Convert a certified matrix to an instance of :attr:`release_class`.

        The base implementation returns the matrix unchanged. Subclasses can override it to add data.
        """
        return release

    def describe_solver(self, answer: Answer[CertifiedRelease]) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the descriptions of the solver and of the search that are recorded in the outcome.

        Returns:
            Two mappings: a description of the solver, and the details of the search. If the best offer is the result of
            :meth:`matrix`, the solver used by that method is described. Otherwise, the description names the origin of
            the best offer.
        """
        matrix: Matrix | None = answer.details.get("matrix")
        if matrix is None:
            solver = {"name": answer.origin, "version": VERSION, "iterations": answer.offers}
            return solver, {"solve": answer.details, "trajectory": answer.trajectory}
        return (matrix.solver if answer.origin == matrix.name else {"name": answer.origin}), matrix.details

    def memory_advice(self, problem: MetricInstance[D]) -> str:
        """Return a phrase that suggests using fewer outputs, for the error message of a run that needs too much memory.

        The phrase is empty unless every record is an output, there are many records, and the mechanism can choose
        outputs from among them.
        """
        records, outputs = problem.shape
        if not (self.chooses and records == outputs > PROPOSED_OUTPUTS):
            return ""
        return (
            f"so would [outputs] choose = {PROPOSED_OUTPUTS}, which uses that many of the {records:,} records as "
            "outputs"
        )

    def bytes_needed(self, problem: MetricInstance[D], method: str) -> float:
        """Estimate how much memory the matrix requires, in bytes.

        See :func:`privopt_metric_dp.matrix.release.matrix_bytes` for what the estimate includes.
        """
        return matrix_bytes(*problem.shape, problem.whole.most_pairs)

    def verify(self, problem: MetricInstance[D], release: MatrixRelease, result: Result) -> list[str]:
        """Compare a release's records, outputs, pairs and distances with those recomputed from the problem.

        If the problem asks for remapping, also check that no output could be replaced to reduce the loss.

        Returns:
            A sentence about each difference, or an empty list if the release matches the problem.
        """
        data = problem.data
        ids = {"records": (release.records, data.records.ids), "outputs": (release.outputs, data.outputs.ids)}
        lines = [
            f"mechanism.npz: {name}: not those of the problem, in its order"
            for name, (stored, expected_ids) in ids.items()
            if stored.tolist() != list(expected_ids)
        ]
        # The comparisons below use row and column indices, which only refer to the problem's places if the ids agree.
        if data.remap and not lines:
            lines += improvable_outputs(release, self.utility(problem, result.method), data)
        if release.region is not None or data.region is not None:
            return lines + compare_regions(release.region, data.region, release.pairs)
        return lines or uncovered_pairs(release, data, along_paths=self.privacy(problem, result.method).along_paths)

    def proved_bound(
        self, problem: MetricInstance[D], release: MatrixRelease, result: Result, folder: Path
    ) -> float | None:
        """Re-evaluate the proof in a release folder, and return the lower bound on the loss.

        Returns None if the folder contains no proof. Also returns None if the notion is not metric DP or the loss is
        not an :class:`ExpectedLoss`, because multipliers prove nothing in these cases.
        """
        loss = self.utility(problem, result.method)
        by_distance = isinstance(self.privacy(problem, result.method), MetricDP)
        if not (by_distance and isinstance(loss, ExpectedLoss) and (folder / PROOF).exists()):
            return None
        return read_proof(folder, problem.data.shape).stated_bound(problem.data, loss.weighted)

    def bound_over(self, problem: MetricInstance[D], folder: Path) -> str | None:
        """Return the scope of the lower bound, or None if no outputs were chosen from the records.

        The scope is :data:`ALL` if the bound is valid even for mechanisms that may report any record. It is
        :data:`CHOSEN` if the bound is only valid for mechanisms with the chosen outputs.
        """
        if problem.whole.choose is None:
            return None
        proof = read_proof(folder, problem.data.shape) if (folder / PROOF).exists() else None
        return ALL if isinstance(proof, Streets) else CHOSEN


def _begins_held(mechanism: MetricMechanism[D], problem: MetricInstance[D], context: SolveContext) -> bool:
    """Return whether the search starts by evaluating a closed form, which is fast and exempt from time limits."""
    if context.method not in mechanism.closed_forms:
        return False
    from privopt_metric_dp.solvers.auto import begins_with_star

    records, outputs = problem.data.shape
    with within(context.search_time):
        return begins_with_star(records, outputs, context.method)


def _make_outcome(
    mechanism: MetricMechanism[D], answer: Answer[CertifiedRelease], problem: MetricInstance[D]
) -> Outcome[MatrixRelease]:
    """Build the outcome of a mechanism from the result of its search.

    Args:
        mechanism: The mechanism, which converts the release to its class and describes the solver.
        answer: The best certified release and the best proved bound.
        problem: The loaded problem.
    """
    solver, details = mechanism.describe_solver(answer)
    matrix: Matrix | None = answer.details.get("matrix")
    stopped = answer.stopped
    if matrix is not None:
        # A method that offers a single matrix counts as complete, even if the time limit was reached while it was being
        # certified.
        lacks_proof = matrix.multipliers is not None and answer.proof is None
        stopped = matrix.stopped or lacks_proof or (answer.stopped and answer.origin != matrix.name)
    # `path` says in words what was done: first the solver's own description, and then the steps of the search.
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
