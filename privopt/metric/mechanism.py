"""Base of the mechanisms that release an obfuscation matrix: a subclass says only how it finds one.

::

    class Acme(MetricMechanism):
        def matrix(self, problem, context):
            z = acme(problem.data.distances, ...)  # (N, K), rows near 1, near-feasible
            return Matrix(z=z, solver={"name": "acme"})

Repair into integers, certificate, bound, files, ``verify``, ``sample`` and ``audit`` follow.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from privopt.errors import CertificationError, DoesNotHoldError, Fault, InputError, ModelError, StoppedError
from privopt.exact.multipliers import Multipliers
from privopt.execution.limits import ending_at
from privopt.interfaces import Mechanism, Outcome, Result, SolveContext, UtilityLoss
from privopt.metric.everywhere.region import unlike
from privopt.metric.losses import ExpectedLoss
from privopt.metric.matrix import ARTEFACT, MatrixRelease, matrix_bytes
from privopt.metric.privacy import SAME_WITHIN, MatrixConstraint, MetricDP, not_covered
from privopt.metric.problem import D, MetricInstance, MetricProblem
from privopt.metric.proof import PROOF, multipliers_of, prove_in_time, read_proof
from privopt.metric.remap import remapped, worse_outputs
from privopt.metric.space.places import places_at_most
from privopt.metric.worth import Worth, worth_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from privopt.dsl import Solution
    from privopt.metric.baselines.reserve import Reserve
    from privopt.metric.data import MetricData
    from privopt.metric.optimal import Solution as Structured
    from privopt.run.report.geo import Layer
    from privopt.run.report.page import Section

__all__ = ["SAME_WITHIN", "Matrix", "MetricMechanism"]


@frozen(kw_only=True, eq=False)
class Matrix:
    """What :meth:`MetricMechanism.matrix` returns.

    Attributes:
        z: (N, K) near-feasible probabilities.
        multipliers: of privacy rows, from which a rigorous bound is computed; None for no bound.
        over: (P,) the required pairs that the multipliers belong to; all where None.
        bound: about what they prove, as the solver has it; None where it does not say.
        solver, details, stopped: as in :class:`privopt.interfaces.Outcome`.
        reserve: a certified release that was at hand before; what is released is the better of it and ``z``.
        release: integers that are released as they are where they keep the notion; else ``z`` is repaired.
    """

    z: NDArray[np.float64]
    multipliers: Multipliers | None = None
    over: NDArray[np.bool_] | None = None
    bound: float | None = None
    solver: Mapping[str, Any] = field(factory=dict)
    details: Mapping[str, Any] = field(factory=dict)
    stopped: bool = False
    reserve: Reserve | None = None
    release: MatrixRelease | None = None

    @classmethod
    def of(
        cls,
        solution: Solution,
        data: MetricData,
        context: SolveContext,
        *,
        variable: str = "z",
        family: str = "geo-ind",
        details: Mapping[str, Any] | None = None,
    ) -> Matrix:
        """What a solved model says: its matrix, the multipliers for the bound, and how it was found.

        Args:
            solution: of a model to which :meth:`privopt.metric.privacy.MetricDP.emit` added rows over ``data.needed``,
                both ways.
            data: the problem's.
            context: as it was solved.
            variable: name of the (N, K) variable.
            family: name of the privacy rows; without such a family there is no bound.
            details: further ones.
        """
        has_rows = any(block.name == family for block in solution.form.families)
        return cls(
            z=solution.value(variable),
            multipliers=multipliers_of(solution, data, family) if has_rows else None,
            over=data.needed,
            solver={"name": context.solver, "version": solution.solver, "iterations": solution.iterations},
            details={"rows": solution.form.shape[0], "columns": solution.form.shape[1], **(details or {})},
            stopped=solution.status != "optimal",
        )

    @classmethod
    def found(
        cls, found: Structured, data: MetricData, *, name: str = "", details: Mapping[str, Any] | None = None
    ) -> Matrix:
        """What a structured solver says of :meth:`privopt.metric.optimal.Instance.of` the data.

        Args:
            found: its answer.
            data: the problem's.
            name: of the solver; that of the answer's method where empty.
            details: in place of the solver's own.
        """
        from privopt import __version__
        from privopt.metric.optimal.instance import Instance, freer

        multipliers = found.multipliers
        if multipliers is not None:  # found at a smaller epsilon and at distances rounded down, evaluated without
            lengths, solved = data.distances[data.needed], Instance.solved(data.epsilon)
            multipliers = freer(multipliers, float(data.epsilon) * data.metric.no_less(lengths) - solved * lengths)
        return cls(
            z=found.z,
            multipliers=multipliers,
            over=data.needed,
            bound=found.lower_bound,
            solver={
                "name": name or found.method,
                "version": __version__,
                "iterations": found.iterations,
                **({} if name else {"path": found.details.get("path", found.method)}),
            },
            details={**({"solve": found.details} if details is None else details), "trajectory": found.trajectory},
            stopped=found.status == "stopped",
        )


class MetricMechanism(Mechanism[MetricInstance[D], MatrixRelease], Generic[D]):
    """A mechanism over :class:`MetricProblem` whose release is a :class:`MatrixRelease`.

    Where it declares keys of its own in a subclass ``AcmeProblem``, it is a ``MetricMechanism[AcmeProblem]``, and finds
    them in ``problem.declared``.
    """

    problem_class = MetricProblem
    release_class = MatrixRelease
    bound_is_proof = True
    scope = (
        "epsilon-metric DP: for every two records at distance d (all pairs, or those within "
        "privacy.neighbours_within; with privacy.everywhere any two points of the region, d the length of a way inside "
        "it) and every output, the probabilities differ by a factor of at most "
        "exp(epsilon d). Holds against whoever sees the output, whatever else they know."
    )

    any_notion: ClassVar[frozenset[str]] = frozenset()
    """Methods that solve for whatever notion the problem names, through its rows; the others take metric DP alone."""

    def load(self, declared: D, file: str) -> MetricInstance[D]:
        """The problem, and its records, distances, costs and prior as arrays."""
        return MetricInstance.of(declared, file)

    def reopen(self, declared: D, file: str, folder: Path) -> tuple[MetricInstance[D], MatrixRelease]:
        """The problem and the release, whose sizes are compared before anything is worked out of them.

        Raises:
            DoesNotHoldError: they differ.
        """
        found = MatrixRelease.load(folder / ARTEFACT)
        shape = found.weights.shape
        with places_at_most(max(shape)):
            problem = self.load(declared, file)
        if problem.data.shape != shape:
            wide = " x ".join(map("{:,}".format, problem.data.shape))
            raise DoesNotHoldError(f"{ARTEFACT}: weights: {shape[0]:,} x {shape[1]:,}, where the problem has {wide}")
        whole = self.release_class is MatrixRelease  # others have more files
        return problem, found if whole else self.release_class.read(folder, problem)

    @abstractmethod
    def matrix(self, problem: MetricInstance[D], context: SolveContext) -> Matrix:
        """Find a matrix; it is repaired and certified by the caller.

        Raises:
            InfeasibleError: there is none.
            StoppedError: a limit came first.
        """

    def privacy(self, problem: MetricInstance[D], method: str) -> MatrixConstraint:
        """The notion that the problem names, over its required pairs."""
        made: MatrixConstraint = problem.declared.privacy.constraint(problem.data)
        return made

    def notion(self, problem: MetricInstance[D], method: str) -> str | None:
        """The notion that ``[privacy] kind`` names, for methods that take any."""
        return problem.declared.privacy.kind if method in self.any_notion else None

    def utility(self, problem: MetricInstance[D], method: str) -> UtilityLoss[MatrixRelease]:
        """Expected loss under the prior."""
        return ExpectedLoss.of(problem.data)

    def solve(self, problem: MetricInstance[D], context: SolveContext) -> Outcome[MatrixRelease]:
        """Find a matrix, repair it into integers, bound what any other could reach.

        Raises:
            ModelError: multipliers come with a loss that is no :class:`ExpectedLoss`, which they bound nothing of.
            StoppedError: a limit came before anything feasible.
        """
        data, loss = problem.data, self.utility(problem, context.method)
        constraint = self.privacy(problem, context.method)
        if not isinstance(constraint, MetricDP) and context.method not in self.any_notion:
            named = f"{constraint.kind!r}, which --method {context.method} cannot take"
            wanted = " or ".join([MetricDP.kind, *(f"--method {name}" for name in sorted(self.any_notion))])
            raise InputError([Fault(data.file, "privacy.kind", named, wanted)])
        context.report("distances")
        with context.timed("build"):
            data.weighted, data.standing  # noqa: B018  (here, so that building is timed as such; costs first: their distances serve pairs)
        with context.timed("solve"):
            found = self.matrix(problem, context)
        context.report("repair")
        release, solver = self._released(found, constraint, loss, data, context)
        details = {**found.details, **({} if release.repaired is None else {"repair": release.repaired.details})}
        if data.remap:
            before, release = release, remapped(release, loss, data)
            details["remap"] = {"loss_before": loss.state(before)[0], "loss_after": loss.state(release)[0]}
        bound, proof, stopped = None, None, found.stopped
        if found.multipliers is not None and isinstance(constraint, MetricDP):
            if not isinstance(loss, ExpectedLoss):
                raise ModelError(f"multipliers bound an ExpectedLoss alone, not {type(loss).__name__}; return none")
            proof, bound, short = prove_in_time(found, data, loss, release, context)
            if short:
                solver = {**solver, "path": f"{solver.get('path', solver.get('name', ''))} ({short})"}
                stopped = True
        return Outcome(
            release=release,
            lower_bound=bound,
            proof=proof,
            solver=solver,
            details=details,
            stopped=stopped,
        )

    def bytes_needed(self, problem: MetricInstance[D], method: str) -> float:
        """What its matrix takes (:func:`privopt.metric.matrix.matrix_bytes`)."""
        records, outputs = problem.data.shape
        every = problem.data.within is None and problem.data.region is None
        pairs = records * (records - 1) // 2 if every else len(problem.data.pairs)
        return matrix_bytes(records, outputs, pairs)

    def _released(
        self,
        found: Matrix,
        constraint: MatrixConstraint,
        loss: UtilityLoss[MatrixRelease],
        data: MetricData,
        context: SolveContext,
    ) -> tuple[MatrixRelease, Mapping[str, Any]]:
        """The better of what was found, repaired, and of the reserve; and how it was found."""
        reserve, solver = found.reserve, found.solver
        if found.release is not None and constraint.measure(found.release, executor=context.executor).holds:
            return found.release, solver
        spare = None if reserve is None else reserve.release
        if reserve is None or spare is None:
            return constraint.repair(found.z, data, context), solver
        path = str(solver.get("path", solver.get("name", "")))
        taken = {**solver, "path": ", ".join(part for part in (path, reserve.path) if part)}
        if float((data.weighted * found.z).sum()) >= reserve.loss:
            return spare, taken
        try:
            with ending_at(reserve.last):
                release = constraint.repair(found.z, data, context)
        except (CertificationError, StoppedError) as error:
            return spare, {**taken, "path": f"{path} ({error}), {reserve.path}"}
        value, other = loss.evaluate(release), loss.evaluate(spare)
        return (spare, taken) if value is None or other is None or other < value else (release, solver)

    def verify(self, problem: MetricInstance[D], release: MatrixRelease, result: Result) -> list[str]:
        """Records, outputs, distances and pairs of the artefact against the problem's own, computed again."""
        data = problem.data
        lines = []
        for name, stored, wanted in (
            ("records", release.records, data.records.ids),
            ("outputs", release.outputs, data.outputs.ids),
        ):
            if stored.tolist() != list(wanted):
                lines.append(f"mechanism.npz: {name}: not those of the problem, in its order")
        if data.remap and not lines:
            lines += worse_outputs(release, self.utility(problem, result.method), data)
        if release.region is not None or data.region is not None:
            return lines + unlike(release.region, data.region, release.pairs)
        along = self.privacy(problem, result.method).along_paths
        return lines or not_covered(release, data, along_paths=along)

    def proved(self, problem: MetricInstance[D], release: MatrixRelease, result: Result, folder: Path) -> float | None:
        """What the multipliers in proof.npz prove, where the notion is metric DP and the loss the expected one."""
        loss = self.utility(problem, result.method)
        if not isinstance(loss, ExpectedLoss) or not isinstance(self.privacy(problem, result.method), MetricDP):
            return None
        if not (folder / PROOF).exists():
            return None
        return read_proof(folder, problem.data.shape).stated(problem.data, loss.weighted)

    def meaning(self, problem: MetricInstance[D], release: MatrixRelease, result: Result) -> Sequence[str]:
        """The promise at the distance between nearest neighbours, and the best guess beside chance."""
        return self._worth(problem, release, result).sentences()

    def warnings(self, problem: MetricInstance[D], release: MatrixRelease, result: Result) -> Sequence[str]:
        """Where the promise hides next to nothing, or leaves records out, or a mesh is too coarse for it."""
        data = problem.data
        coarse = None if data.region is None else data.region.coarse(data.epsilon)
        return [*self._worth(problem, release, result).warnings(), *([coarse] if coarse else [])]

    def _worth(self, problem: MetricInstance[D], release: MatrixRelease, result: Result) -> Worth:
        by_distance = isinstance(self.privacy(problem, result.method), MetricDP)
        return worth_of(release, problem.data, by_distance=by_distance)

    def audit(self, problem: MetricInstance[D], release: MatrixRelease, result: Result) -> Mapping[str, Any]:
        """Achieved epsilon over all pairs, GV ratio and error, Bayes error, entropy, and an attack on samples."""
        from privopt.metric.attack import audit_matrix

        return audit_matrix(release, problem.data, self.utility(problem, result.method))

    def over_time(
        self, problem: MetricInstance[D], release: MatrixRelease, result: Result, reports: int
    ) -> Mapping[str, Any] | None:
        """The mean of reports, with its bias and without, the likeliest record, and a hidden Markov model of traces."""
        from privopt.metric.traces.over_time import over_time

        return over_time(release, problem.data, most=reports)

    def report(self, problem: MetricInstance[D], release: MatrixRelease, result: Result) -> Sequence[Section]:
        """A map to explore, losses, worst pairs, baselines, convergence."""
        from privopt.metric.pages import meaning_section, metric_sections

        sections = metric_sections(release, problem.data, result, self.utility(problem, result.method))
        return [meaning_section(self.meaning(problem, release, result)), *sections]

    def report_check(self, release: MatrixRelease, result: Result, folder: Path) -> Section | None:
        """The artefact, and a button that proves privacy and bound in the browser."""
        from privopt.metric.check_page import check_section

        return check_section(folder, release, result)

    def figures(self, problem: MetricInstance[D], release: MatrixRelease, result: Result) -> Mapping[str, Figure]:
        """Loss over the map, privacy spent, one record's spread, convergence."""
        from privopt.metric.pages import metric_figures

        return metric_figures(release, problem.data, result, self.utility(problem, result.method))

    def geo(self, problem: MetricInstance[D], release: MatrixRelease, result: Result) -> Layer | None:
        """Records with their losses, and outputs with how often they are released."""
        from privopt.metric.pages import metric_layer

        return metric_layer(release, problem.data, self.utility(problem, result.method))
