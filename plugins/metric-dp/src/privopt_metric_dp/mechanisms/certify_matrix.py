"""Measure how private a matrix is and turn it into a certified release, for ``privopt certify``."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np
from attrs import evolve, field, frozen
from numpy.typing import NDArray

from privopt.declare.problems_in_memory import Problem, npy_bytes
from privopt.declare.schema import File, share
from privopt.declare.toml_text import to_toml
from privopt.errors import Fault, InputError, StoppedError, UsageError
from privopt.execution.clock import Clock, clock, limit
from privopt.execution.resources import GB, available, resident
from privopt.files.archive import loading
from privopt.interfaces import SolveContext
from privopt.registry import registry
from privopt.run.solve import SolveOutcome
from privopt.run.solve import solve as solve_into
from privopt.run.task import Options, read_problem
from privopt.search.incumbent import Incumbent
from privopt.search.run_search import run_search
from privopt_metric_dp.matrix.expected_loss import ExpectedLoss
from privopt_metric_dp.matrix.privacy import MetricDP
from privopt_metric_dp.mechanisms.base import SOLVER_GAP_SHARE
from privopt_metric_dp.mechanisms.certifier import Dual, MatrixCertifier, MatrixOffers
from privopt_metric_dp.mechanisms.given_matrix import Given, GivenProblem
from privopt_metric_dp.mechanisms.optimal_lp import search_structured
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.proof import Proof

__all__ = ["CertifiedMatrix", "certify", "measure", "repair", "with_matrix"]

GIVEN: Final = "given"
"""The name of the mechanism for given matrices, of its table in problem files, and of its key in result details."""
MEASURED: Final = "repair"
"""The mechanism's method that measures a matrix and repairs it if necessary."""
BOUNDED: Final = "bounded"
"""The mechanism's method that also searches for a lower bound."""
SEARCH_TIME_SHARE: Final = 0.9
"""The fraction of the remaining time that the search for a bound may take. The rest is reserved for the proof."""
MATRIX_COPIES: Final = 5
"""The number of matrix-sized arrays held in memory: the matrix, its file, the costs, the costs times the prior, and the
weights."""


@frozen(kw_only=True)
class CertifiedMatrix:
    """The exactly measured privacy of a matrix, together with its expected loss.

    Attributes:
        epsilon: The smallest epsilon that the matrix satisfies for all pairs of records covered by the guarantee,
            rounded up to a double. It is infinite if there is no such epsilon. Because of the rounding, it may exceed
            ``asked`` even if ``holds`` is True.
        asked: The problem's epsilon, rounded to the nearest double.
        holds: Whether the matrix satisfies the problem's epsilon. This is decided exactly.
        pair: The ids of the two records that determine ``epsilon``, starting with the record for which ``output`` is
            more likely. None if the two rows of every pair are equal, or if the notion is not metric DP.
        output: The id of the output that determines ``epsilon``, or None if ``pair`` is None.
        loss: The expected loss of the matrix before any repair.
        lower_bound: A proved lower bound on the loss of every mechanism that satisfies the problem's epsilon, or None
            if no bound was requested or found.
        unit: The unit of epsilon.
        loss_unit: The unit of the loss and of the bound.
        over: A description of the distances for which ``epsilon`` was measured. It is empty for regions and for notions
            other than metric DP.
        stopped: Whether the search for the bound ended early because of a limit.
        problem: The problem together with the matrix. ``privopt.solve("given", problem, ...)`` turns it into a
            certified release.
    """

    epsilon: float
    asked: float
    holds: bool
    pair: tuple[str, str] | None
    output: str | None
    loss: float
    lower_bound: float | None = None
    unit: str = ""
    loss_unit: str = ""
    over: str = ""
    stopped: bool = False
    problem: Problem = field(repr=False, eq=False)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object printed by ``privopt certify --json``. Infinite values are kept as floats."""
        fields = ("epsilon", "asked", "holds", "pair", "output", "loss", "lower_bound")
        return {name: list(value) if isinstance(value := getattr(self, name), tuple) else value for name in fields}

    def sentences(self) -> list[str]:
        """Return lines of text that summarise the results.

        They state the smallest epsilon that the matrix satisfies, whether it satisfies the requested epsilon, the
        distances used, the loss, and the lower bound on the loss if there is one.
        """
        min_epsilon, target = self._format_epsilons()
        satisfied = "no epsilon at all" if self.epsilon == np.inf else f"epsilon {min_epsilon} {self.unit}"
        where = "" if self.pair is None else f", reached by {self.pair[0]} against {self.pair[1]} at {self.output}"
        lines = [f"satisfies {satisfied}{where}"]
        lines.append(f"{'holds' if self.holds else 'does not hold'} at the requested epsilon {target} {self.unit}")
        lines += [f"compared over {self.over}"] if self.over else []
        bound = (
            ""
            if self.lower_bound is None
            else f"; no matrix that satisfies {self.asked:.6g} loses less than {self.lower_bound:.6g} (proved)"
        )
        return [*lines, f"loss {self.loss:.6g} {self.loss_unit}{bound}"]

    def _format_epsilons(self) -> tuple[str, str]:
        """Return the smallest epsilon that the matrix satisfies and the requested epsilon, both as strings.

        The smallest epsilon is rounded up to a double, so it may appear to exceed the requested epsilon even if the
        matrix satisfies that epsilon. In that case, both strings show the requested epsilon. If the matrix does not
        satisfy the requested epsilon, the strings always differ, even if this takes more than twelve digits.
        """
        min_epsilon = min(self.epsilon, self.asked) if self.holds else self.epsilon
        twelve = f"{min_epsilon:.12g}", f"{self.asked:.12g}"
        return twelve if self.holds or twelve[0] != twelve[1] else (_all_digits(min_epsilon), _all_digits(self.asked))


def _all_digits(number: float) -> str:
    """Format a double with enough digits to distinguish it from every other double."""
    return repr(number).removesuffix(".0")


def certify(
    matrix: NDArray[Any] | Path | str,
    problem: Problem | Path | str,
    *,
    gap: float | None = None,
    time_limit: float | None = None,
    progress: Callable[..., object] | None = None,
) -> CertifiedMatrix:
    """Compute the smallest epsilon that a matrix satisfies for all required pairs of a problem, in exact arithmetic.

    Required pairs are the pairs of records covered by the problem's guarantee.

    >>> import privopt as po
    >>> places = po.grid(rows=1, cols=2, cell_km=1)
    >>> problem = po.metric_problem(places, distance="euclidean", epsilon="1/km")
    >>> found = certify(np.array([[0.75, 0.25], [0.25, 0.75]]), problem)
    >>> found.holds, found.pair, round(found.epsilon, 6)
    (False, ('r0c0', 'r0c1'), 1.098612)

    Args:
        matrix: Array of shape (N, K) with probabilities or uint64 weights, or the path to a ``.npy`` file that contains
            such an array. Rows of probabilities are divided by their exact sums, and rows of weights must sum to 2**63.
        problem: A problem in memory, or the path to a problem file.
        gap: The relative gap at which to stop searching for a lower bound on the loss. If None, no lower bound is
            computed.
        time_limit: The time limit for the whole call in seconds, or None for no limit.
        progress: See :class:`privopt.run.task.Options`.

    Raises:
        UsageError: An argument has an unsupported type, such as a DataFrame.
        InputError: The matrix or the problem contains errors, which are reported as faults.
        StoppedError: The arrays do not fit in memory, or the time limit expired.
    """
    for name, value, kinds, expectation in (
        ("matrix", matrix, (np.ndarray, PathLike, str), "an array, or the path of a .npy file"),
        ("problem", problem, (Problem, PathLike, str), "a problem of privopt.metric_problem, or the path of a file"),
    ):
        if not isinstance(value, kinds):
            raise UsageError(f"{name} must be {expectation}, got {type(value).__name__}")
    source = (
        problem.source
        if isinstance(problem, Problem)
        else File.read(Path(problem), expectation="a problem file in TOML")
    )
    if isinstance(matrix, np.ndarray):
        file = File(name="matrix.npy", path=None, kept=npy_bytes(matrix))
    else:
        file = File.read(Path(matrix), expectation="a .npy of probabilities or uint64 weights")
    return measure(file, source, Options(gap=gap, time_limit=time_limit, progress=progress))  # type: ignore[arg-type]


def measure(matrix: File, source: File, options: Options) -> CertifiedMatrix:
    """Compute the smallest epsilon that the matrix in a file satisfies for all required pairs of a problem.

    Required pairs are the pairs of records covered by the problem's guarantee.

    Args:
        matrix: The ``.npy`` file.
        source: The problem file.
        options: The options. Only ``gap``, ``time_limit``, ``memory``, ``solver`` and ``progress`` are used. If ``gap``
            is None, no lower bound on the loss is computed.

    Raises:
        UsageError: The solver is unknown, or the gap is out of range.
        InputError: The matrix or the problem contains errors.
        StoppedError: The arrays do not fit in memory, or the time limit expired.
    """
    if options.gap is not None and (expectation := share(options.gap)):
        raise UsageError(f"gap must be {expectation}, got {options.gap:g}")
    registry().kind("solver", options.solver)
    with limit(options.time_limit):
        return _measure_given(with_matrix(source, matrix), source.name, options)
    # `limit` suppresses the error raised when the time is up, so this line is reached only in that case.
    raise StoppedError("the time limit was reached before the matrix was measured")


def _measure_given(problem_file: File, name: str, options: Options) -> CertifiedMatrix:
    """Measure the matrix named by a problem file, and search for a lower bound if the options request one.

    Args:
        problem_file: The problem file, whose ``[given]`` table names the matrix.
        name: The name of the original problem file, for error messages.
        options: The options passed to :func:`measure`.

    Raises:
        InputError: The matrix or the problem contains errors.
        StoppedError: The arrays do not fit in memory.
    """
    mechanism = Given()
    context = SolveContext(
        method=MEASURED,
        solver=options.solver,
        gap=1e-6 if options.gap is None else options.gap,  # used only by the search for a bound
        # The default is all memory that the program already has or can still get.
        memory=resident() + available() if options.memory is None else options.memory * GB,
        progress=options.progress,
    )
    with loading(context.require_memory):
        declared = read_problem(mechanism, problem_file)
        assert isinstance(declared, GivenProblem)  # the mechanism's own class
        problem = mechanism.load(declared, name)
    data, (records, outputs) = problem.data, problem.data.shape
    # A double takes 8 bytes. A pair takes 40, for two indices, a distance and temporary arrays.
    needed = 8.0 * MATRIX_COPIES * records * outputs + 40.0 * data.most_pairs
    if needed > context.free_memory:
        raise StoppedError(
            f"{records:,} records and {outputs:,} outputs need {needed / GB:.2g} GB more than the program holds, "
            f"and {context.free_memory / GB:.2g} GB are left, so nothing was measured"
        )
    measured = mechanism.matrix(problem, context)
    figures = measured.details[GIVEN]
    by_distance = isinstance(mechanism.privacy(problem, MEASURED), MetricDP)
    bound, stopped = None, False
    if options.gap is not None:
        bound, stopped = _search_bound(mechanism, problem, evolve(context, method=BOUNDED), figures["loss"])
    return CertifiedMatrix(
        epsilon=figures["epsilon"],
        asked=float(data.epsilon),
        holds=figures["holds"],
        pair=None if figures["pair"] is None else tuple(figures["pair"]),
        output=figures["output"],
        loss=figures["loss"],
        # If the matrix satisfies epsilon, the bound applies to its loss too. The two are rounded to doubles in
        # different ways, so a bound that seems to exceed the loss is lowered to the loss.
        lower_bound=bound if bound is None or not figures["holds"] else min(bound, figures["loss"]),
        unit=f"per {data.unit}",
        loss_unit=data.loss_unit,
        over=data.metric.exactness if by_distance and data.region is None else "",
        stopped=stopped,
        problem=Problem(source=problem_file),
    )


def _search_bound(
    mechanism: Given, problem: MetricInstance[GivenProblem], context: SolveContext, loss: float
) -> tuple[float | None, bool]:
    """Search for a lower bound on the loss of all mechanisms that satisfy the problem's epsilon.

    Args:
        mechanism: The "given" mechanism.
        problem: The loaded problem.
        context: The solver, gap and limits of the search.
        loss: The loss of the given matrix.

    Returns:
        The proved bound (None if no bound was proved), and whether the search ended early because of a limit.

    Raises:
        InputError: The privacy notion is not metric DP, the only notion for which bounds can be proved.
    """
    privacy = mechanism.privacy(problem, BOUNDED)
    if not isinstance(privacy, MetricDP):
        expectation = "metric DP, for which bounds are known, or no --gap"
        raise InputError([Fault(problem.data.file, "privacy.kind", repr(problem.declared.privacy.kind), expectation)])
    data = problem.data
    certifier = MatrixCertifier(data, privacy, ExpectedLoss.of(data), context)
    incumbent: Incumbent[float, Dual, float] = Incumbent(_GivenLoss(certifier), context.gap)
    # Solvers make their offers through this view. It discards their matrices, because only the loss of the given matrix
    # counts, and passes their multipliers on unchanged.
    bounds: MatrixOffers = incumbent.through("", candidate=None, proof=lambda multipliers: multipliers)
    # Since the view discards candidates, it cannot use the search's gap. Its own gap compares the solvers' own matrices
    # with their bounds.
    bounds.gap = SOLVER_GAP_SHARE * context.gap
    answer = run_search(
        partial(search_structured, data, bounds, context),
        incumbent,
        Clock(SEARCH_TIME_SHARE * clock().left, clock()),
        # The loss of the given matrix stands in for a candidate, because run_search raises an error if there is none.
        first_offers=[lambda: incumbent.offer(GIVEN, candidate=loss, value=loss)],
    )
    return answer.bound, answer.stopped


@frozen(eq=False)
class _GivenLoss:
    """A certifier for searches that only improve the lower bound.

    Its candidates are losses, not matrices. The only candidate is the known loss of the given matrix, against which
    bounds are compared.
    """

    certifier: MatrixCertifier

    def certify(self, candidate: float) -> tuple[float, float]:
        """Return ``candidate`` twice: as the certified loss and as a stand-in for the release.

        The matrix is given, so its loss is already known and no release has to be computed.
        """
        return candidate, candidate

    def prove(self, proof: Dual, value: float) -> tuple[float, Proof]:
        """Evaluate dual multipliers exactly, and return the proved bound and the proof."""
        return self.certifier.prove(proof, value)


def repair(certified: CertifiedMatrix, out: Path, options: Options) -> SolveOutcome:
    """Write a certified release of a measured matrix, repairing the matrix if necessary.

    Args:
        certified: The result of :func:`measure`.
        out: The release folder to write.
        options: The options for ``privopt solve``. If they contain a gap, the release includes a lower bound and its
            proof.

    Raises:
        PrivoptError: Solving failed. Nothing was written.
    """
    method = MEASURED if options.gap is None else BOUNDED
    return solve_into(GIVEN, certified.problem.source, out, evolve(options, method=method))


def with_matrix(source: File, matrix: File) -> File:
    """Return a problem file with a ``[given]`` table that names a matrix.

    Args:
        source: The problem file.
        matrix: The file that contains the matrix.

    Returns:
        The extended problem file. If ``source`` is not valid TOML, it is returned unchanged, so that the error is
        reported when the file is parsed.

    Raises:
        InputError: The problem already contains a ``[given]`` table.
    """
    text = source.contents.decode("utf-8-sig", "replace")
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError):
        return source  # the problem's reader reports the error
    if GIVEN in tables:
        expectation = "no such table (the matrix is given separately)"
        raise InputError([Fault(source.name, GIVEN, "a table", expectation)])
    name = Path(matrix.name).name
    # The name must differ from those of all other files that the problem names. The problem's text escapes names as
    # JSON does.
    while json.dumps(name)[1:-1] in text or name == source.name or name in source.in_memory:
        name = f"given-{name}"
    new_text = f"{text.rstrip()}\n\n{to_toml({GIVEN: {'matrix': name}})}"
    return evolve(source, kept=new_text.encode(), in_memory={**source.in_memory, name: matrix.contents})
