"""Measure how private any probability matrix is, and make a certified release from it (``privopt certify``)."""

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
"""The name of the mechanism for given matrices, of its table in problem files, and of its details in results."""
MEASURED: Final = "repair"
"""The mechanism's method that measures a matrix, and repairs it if necessary."""
BOUNDED: Final = "bounded"
"""The mechanism's method that also searches for a lower bound."""
SEARCH_TIME_SHARE: Final = 0.9
"""The share of the remaining time that the search for a bound gets. The rest is reserved for the proof."""
MATRIX_COPIES: Final = 5
"""The number of arrays as large as the matrix in memory: matrix, its file, costs, costs times prior, weights."""


@frozen(kw_only=True)
class CertifiedMatrix:
    """The guarantee and the loss of a matrix, measured exactly.

    Attributes:
        epsilon: The smallest epsilon that the matrix satisfies over the required pairs, rounded up to a double;
            infinite if no epsilon is enough. It may exceed ``asked``, which is rounded to nearest, even if ``holds`` is
            true.
        asked: The problem's epsilon, as the nearest double.
        holds: Whether the matrix satisfies the problem's epsilon, decided exactly.
        pair: The ids of the two records that attain ``epsilon``, with the one whose probability is larger first; None
            if all required rows are equal.
        output: The id of the output that attains ``epsilon``; None if all required rows are equal.
        loss: The expected loss from the matrix itself.
        lower_bound: The proved lower bound on the loss from every mechanism that satisfies the problem's epsilon; None
            if no bound was requested.
        unit: The unit of epsilon.
        loss_unit: The unit of the loss and of the bound.
        over: A description of the distances that were compared; "" for regions and for notions other than metric DP.
        stopped: Whether a limit ended the search for the bound early.
        problem: The problem, extended by the matrix's file. ``privopt.solve("given", ...)`` makes a certified release
            from it.
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
        """Return the object that ``privopt certify --json`` prints. Infinite numbers in it are still floats."""
        fields = ("epsilon", "asked", "holds", "pair", "output", "loss", "lower_bound")
        return {name: list(value) if isinstance(value := getattr(self, name), tuple) else value for name in fields}

    def sentences(self) -> list[str]:
        """Return sentences about the least epsilon, whether the requested epsilon holds, the loss and the bound."""
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
        """Return the least and the requested epsilon as text.

        A requested epsilon that is satisfied is never below the least one. As doubles it may seem to be, because the
        least one is rounded up and the requested one to nearest, so the smaller of the two doubles is shown. If the
        requested epsilon is not satisfied, the two strings differ, using more than twelve digits if necessary.
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
    """Measure exactly the smallest epsilon that a matrix satisfies over a problem's required pairs.

    >>> import privopt as po
    >>> places = po.grid(rows=1, cols=2, cell_km=1)
    >>> problem = po.metric_problem(places, distance="euclidean", epsilon="1/km")
    >>> found = certify(np.array([[0.75, 0.25], [0.25, 0.75]]), problem)
    >>> found.holds, found.pair, round(found.epsilon, 6)
    (False, ('r0c0', 'r0c1'), 1.098612)

    Args:
        matrix: (N, K) probabilities, whose rows are divided by their exact sums, or uint64 weights whose rows sum to
            2**63; or the path to a ``.npy`` file with either.
        problem: A problem in memory, or the path to a problem file for a mechanism over places.
        gap: The relative gap to which a lower bound on the loss is computed; None for no bound.
        time_limit: The limit in seconds for the whole call; None for no limit.
        progress: See :class:`privopt.run.task.Options`.

    Raises:
        UsageError: An argument has an unsupported type, such as a DataFrame.
        InputError: The matrix or the problem contains errors. Each of them is reported as a fault.
        StoppedError: The work does not fit into memory, or the time limit has passed.
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
    """Measure the matrix in a file; see :func:`certify`.

    Args:
        matrix: The ``.npy`` file.
        source: The problem file.
        options: Only gap (None for no bound), time_limit, memory, solver and progress are used.

    Raises:
        UsageError: The solver is unknown, or the gap is out of range.
    """
    if options.gap is not None and (expectation := share(options.gap)):
        raise UsageError(f"gap must be {expectation}, got {options.gap:g}")
    registry().kind("solver", options.solver)
    with limit(options.time_limit):
        return _measure_given(with_matrix(source, matrix), source.name, options)
    raise StoppedError("the time limit was reached before the matrix was measured")


def _measure_given(problem_file: File, name: str, options: Options) -> CertifiedMatrix:
    """Measure a problem's matrix. If a gap is requested, bound the loss in the remaining time.

    Args:
        problem_file: The problem file with a ``[given]`` table that names the matrix.
        name: The original problem file's name, for messages.
        options: The options that :func:`measure` received.

    Raises:
        StoppedError: The arrays do not fit into memory.
    """
    mechanism = Given()
    context = SolveContext(
        method=MEASURED,
        solver=options.solver,
        gap=1e-6 if options.gap is None else options.gap,  # used only by the search for a bound
        # By default, the limit is all memory that the program has or can still get.
        memory=resident() + available() if options.memory is None else options.memory * GB,
        progress=options.progress,
    )
    with loading(context.require_memory):
        declared = read_problem(mechanism, problem_file)
        assert isinstance(declared, GivenProblem)  # the mechanism's own class
        problem = mechanism.load(declared, name)
    data, (records, outputs) = problem.data, problem.data.shape
    # 8 bytes for each double, and 40 for each pair: two indices, a distance and temporary arrays.
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
        # If the matrix satisfies epsilon, the bound applies to it too. Its loss and the bound are rounded to doubles in
        # different ways, so the bound is lowered to the loss if it seems to exceed it.
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
    """Return a proved lower bound at the problem's epsilon, and whether a limit ended the search.

    Args:
        mechanism: The "given" mechanism.
        problem: The loaded problem.
        context: The solver, gap and limits of the search.
        loss: The given matrix's loss, in the problem's unit.

    Raises:
        InputError: The notion is not metric DP, the only one for which bounds are proved.
    """
    privacy = mechanism.privacy(problem, BOUNDED)
    if not isinstance(privacy, MetricDP):
        expectation = "metric DP, for which bounds are known, or no --gap"
        raise InputError([Fault(problem.data.file, "privacy.kind", repr(problem.declared.privacy.kind), expectation)])
    data = problem.data
    certifier = MatrixCertifier(data, privacy, ExpectedLoss.of(data), context)
    incumbent: Incumbent[float, Dual, float] = Incumbent(_GivenLoss(certifier), context.gap)
    # Solvers make offers through this view. It drops their matrices, because only the given matrix's loss counts, and
    # passes on their multipliers unchanged.
    bounds: MatrixOffers = incumbent.through("", candidate=None, proof=lambda multipliers: multipliers)
    # A view without candidates has a gap of its own, between the solvers' own matrices and their bounds.
    bounds.gap = SOLVER_GAP_SHARE * context.gap
    answer = run_search(
        partial(search_structured, data, bounds, context),
        incumbent,
        Clock(SEARCH_TIME_SHARE * clock().left, clock()),
        # The given matrix's loss is offered in place of a matrix. Without any candidate, run_search would raise an
        # error.
        first_offers=[lambda: incumbent.offer(GIVEN, candidate=loss, value=loss)],
    )
    return answer.bound, answer.stopped


@frozen(eq=False)
class _GivenLoss:
    """A certifier that returns a given matrix's loss unchanged, for a search that only improves the bound."""

    certifier: MatrixCertifier

    def certify(self, candidate: float) -> tuple[float, float]:
        """Return the given matrix's loss, both as the certified value and in place of a release."""
        return candidate, candidate

    def prove(self, proof: Dual, value: float) -> tuple[float, Proof]:
        """Evaluate multipliers exactly, and return the bound and its proof."""
        return self.certifier.prove(proof, value)


def repair(certified: CertifiedMatrix, out: Path, options: Options) -> SolveOutcome:
    """Write a certified release from a measured matrix, which is repaired unless it satisfies epsilon.

    Args:
        certified: The result of :func:`measure`.
        out: The folder to write.
        options: Options as for ``privopt solve``. With a gap, the release includes a bound and its proof.

    Raises:
        PrivoptError: The solve failed. Nothing was written.
    """
    method = MEASURED if options.gap is None else BOUNDED
    return solve_into(GIVEN, certified.problem.source, out, evolve(options, method=method))


def with_matrix(source: File, matrix: File) -> File:
    """Add a matrix to a problem, in a ``[given]`` table.

    Args:
        source: The problem file.
        matrix: The file that contains the matrix.

    Returns:
        The extended problem. If the TOML cannot be read, the problem itself, whose reader reports the error later.

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
    # The matrix must not get the name of another file that the problem names. In the problem's text, names are escaped
    # as in JSON.
    while json.dumps(name)[1:-1] in text or name == source.name or name in source.in_memory:
        name = f"given-{name}"
    new_text = f"{text.rstrip()}\n\n{to_toml({GIVEN: {'matrix': name}})}"
    return evolve(source, kept=new_text.encode(), in_memory={**source.in_memory, name: matrix.contents})
