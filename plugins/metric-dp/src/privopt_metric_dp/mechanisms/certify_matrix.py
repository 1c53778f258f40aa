"""Measure any probability matrix, and make a certified release from it (``privopt certify``)."""

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
from privopt.execution.memory import GB, available, resident
from privopt.files.sizes import loading
from privopt.interfaces import SolveContext
from privopt.registry import registry
from privopt.run.options import Options
from privopt.run.solve import SolveOutcome
from privopt.run.solve import solve as solve_into
from privopt.run.task import read_problem
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
"""The mechanism, its table, and where its details stand."""
MEASURED: Final = "repair"
BOUNDED: Final = "bounded"
SEARCH_TIME_SHARE: Final = 0.9
"""Share of the time in which a bound is looked for; the rest is left to its proof."""
MATRIX_COPIES: Final = 5
"""Of the matrix's size that measuring takes: it, its bytes, costs, costs times prior, weights."""


@frozen(kw_only=True)
class CertifiedMatrix:
    """What a matrix satisfies, exactly.

    Attributes:
        epsilon: the least, over the pairs that the problem requires, rounded up to a double; infinite if none is
            enough. It may be above ``asked``, a double that is rounded to the nearest, although the problem's is kept.
        asked: the problem's.
        holds: whether it is at most that, decided exactly.
        pair: records where it is reached, the likelier first; None where all required rows are equal.
        output: the output where.
        loss: expected, of the matrix itself.
        lower_bound: on the loss of every mechanism that satisfies the problem's epsilon, proved; None where it was not
            asked for.
        unit: of epsilon.
        loss_unit: of the loss and the bound.
        over: what it was compared over, in words: exact distances, or what encloses them.
        stopped: whether a limit ended the search for the bound early.
        problem: with the matrix next to it: what ``privopt.solve("given", ...)`` makes a certified release of.
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
        """Return the JSON object of ``privopt certify --json``, infinite numbers not yet as "inf"."""
        fields = ("epsilon", "asked", "holds", "pair", "output", "loss", "lower_bound")
        return {name: list(value) if isinstance(value := getattr(self, name), tuple) else value for name in fields}

    def sentences(self) -> list[str]:
        """Return the findings in words."""
        min_epsilon, target = self._format_epsilons()
        satisfied = "no epsilon at all" if self.epsilon == np.inf else f"epsilon {min_epsilon} {self.unit}"
        where = "" if self.pair is None else f", reached by {self.pair[0]} against {self.pair[1]} at {self.output}"
        lines = [f"keeps {satisfied}{where}"]
        lines.append(f"{'holds' if self.holds else 'does not hold'}: asked for {target} {self.unit}")
        lines += [f"compared over {self.over}"] if self.over else []
        bound = "" if self.lower_bound is None else f"; none that keeps {self.asked:.6g} has less than"
        tail = "" if self.lower_bound is None else f" {self.lower_bound:.6g}, proved"
        return [*lines, f"loss {self.loss:.6g} {self.loss_unit}{bound}{tail}"]

    def _format_epsilons(self) -> tuple[str, str]:
        """Format both epsilons with enough digits that they differ if the one asked for is not satisfied.

        If it is satisfied, it is at least the least one. The two doubles may not show that: one is rounded up, one to
        the nearest.
        """
        min_epsilon = min(self.epsilon, self.asked) if self.holds else self.epsilon
        twelve = f"{min_epsilon:.12g}", f"{self.asked:.12g}"
        return twelve if self.holds or twelve[0] != twelve[1] else (_all_digits(min_epsilon), _all_digits(self.asked))


def _all_digits(number: float) -> str:
    """Format a double with the digits that distinguish it from every other."""
    return repr(number).removesuffix(".0")


def certify(
    matrix: NDArray[Any] | Path | str,
    problem: Problem | Path | str,
    *,
    gap: float | None = None,
    time_limit: float | None = None,
    progress: Callable[..., object] | None = None,
) -> CertifiedMatrix:
    """Return the least epsilon that a matrix keeps over the pairs that a problem requires, exactly.

    >>> import privopt as po
    >>> places = po.grid(rows=1, cols=2, cell_km=1)
    >>> problem = po.metric_problem(places, distance="euclidean", epsilon="1/km")
    >>> found = certify(np.array([[0.75, 0.25], [0.25, 0.75]]), problem)
    >>> found.holds, found.pair, round(found.epsilon, 6)
    (False, ('r0c0', 'r0c1'), 1.098612)

    Args:
        matrix: (N, K) probabilities, each row meant over its exact sum, or uint64 weights whose rows sum to 2**63;
            or a ``.npy`` file of either.
        problem: in memory, or a problem file of a mechanism over places.
        gap: solve for a lower bound on the loss to this relative gap; None for no bound.
        time_limit: seconds for everything, or None.
        progress: as in :class:`privopt.run.options.Options`.

    Raises:
        UsageError: an object of another kind, such as a DataFrame.
        InputError: the matrix or the problem will not do: a line a fault.
        StoppedError: it does not fit into memory, or the limit came first.
    """
    for name, value, kinds, expectation in (
        ("matrix", matrix, (np.ndarray, PathLike, str), "an array, or the path of a .npy file"),
        ("problem", problem, (Problem, PathLike, str), "a problem of privopt.metric_problem, or the path of a file"),
    ):
        if not isinstance(value, kinds):
            raise UsageError(f"{name} must be {expectation}, got {type(value).__name__}")
    source = (
        problem.source if isinstance(problem, Problem) else File.read(Path(problem), wanted="a problem file in TOML")
    )
    if isinstance(matrix, np.ndarray):
        file = File(name="matrix.npy", path=None, kept=npy_bytes(matrix))
    else:
        file = File.read(Path(matrix), wanted="a .npy of probabilities or uint64 weights")
    return measure(file, source, Options(gap=gap, time_limit=time_limit, progress=progress))  # type: ignore[arg-type]


def measure(matrix: File, source: File, options: Options) -> CertifiedMatrix:
    """See :func:`certify`.

    Args:
        matrix: a ``.npy`` file.
        source: the problem file.
        options: of these gap (None for no bound), time_limit, memory, solver and progress.

    Raises:
        UsageError: no such solver, or a gap that is none.
    """
    if options.gap is not None and (expectation := share(options.gap)):
        raise UsageError(f"gap must be {expectation}, got {options.gap:g}")
    registry().kind("solver", options.solver)
    with limit(options.time_limit):
        return _measure_given(with_matrix(source, matrix), source.name, options)
    raise StoppedError("the time limit came before the matrix was measured")


def _measure_given(problem_file: File, name: str, options: Options) -> CertifiedMatrix:
    """Measure a matrix; bound its loss in the time that is left."""
    mechanism = Given()
    context = SolveContext(
        method=MEASURED,
        solver=options.solver,
        gap=1e-6 if options.gap is None else options.gap,
        memory=resident() + available() if options.memory is None else options.memory * GB,
        progress=options.progress,
    )
    with loading(context.need):
        declared = read_problem(mechanism, problem_file)
        assert isinstance(declared, GivenProblem)  # the mechanism's own class
        problem = mechanism.load(declared, name)
    data, (records, outputs) = problem.data, problem.data.shape
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
    """Return a proved lower bound at the problem's epsilon, and whether a limit ended the search."""
    privacy = mechanism.privacy(problem, BOUNDED)
    if not isinstance(privacy, MetricDP):
        expectation = "metric DP, of which bounds are known, or no --gap"
        raise InputError([Fault(problem.data.file, "privacy.kind", repr(problem.declared.privacy.kind), expectation)])
    data = problem.data
    certifier = MatrixCertifier(data, privacy, ExpectedLoss.of(data), context)
    incumbent: Incumbent[float, Dual, float] = Incumbent(_GivenLoss(certifier), context.gap)
    bounds: MatrixOffers = incumbent.through("", None, lambda proof: proof)
    bounds.gap = SOLVER_GAP_SHARE * context.gap
    answer = run_search(
        partial(search_structured, data, bounds, context),
        incumbent,
        Clock(SEARCH_TIME_SHARE * clock().left, clock()),
        first_offers=[lambda: incumbent.offer(GIVEN, candidate=loss, value=loss)],
    )
    return answer.bound, answer.stopped


@frozen(eq=False)
class _GivenLoss:
    """Certifies the loss of a given matrix as it is, because only bounds are searched for."""

    certifier: MatrixCertifier

    def certify(self, candidate: float) -> tuple[float, float]:
        """Return the given loss."""
        return candidate, candidate

    def prove(self, proof: Dual, value: float) -> tuple[float, Proof]:
        """Prove a bound as for any mechanism."""
        return self.certifier.prove(proof, value)


def repair(certified: CertifiedMatrix, out: Path, options: Options) -> SolveOutcome:
    """Write a certified release made from a measured matrix: as it is where it holds, else repaired.

    Args:
        certified: what :func:`measure` said of it.
        out: folder to write.
        options: as ``privopt solve`` takes them; with a gap the folder has a bound, and its proof.

    Raises:
        PrivoptError: as ``privopt solve`` would end; nothing was written.
    """
    method = MEASURED if options.gap is None else BOUNDED
    return solve_into(GIVEN, certified.problem.source, out, evolve(options, method=method))


def with_matrix(source: File, matrix: File) -> File:
    """Return a problem with a matrix in its table ``[given]``.

    Raises:
        InputError: it has such a table.
    """
    text = source.contents.decode("utf-8-sig", "replace")
    try:
        tables = tomllib.loads(text)
    except (ValueError, RecursionError):
        return source  # its reader says what is wrong
    if GIVEN in tables:
        expectation = "no such table (the matrix is the file named beside the problem)"
        raise InputError([Fault(source.name, GIVEN, "a table", expectation)])
    name = Path(matrix.name).name
    while json.dumps(name)[1:-1] in text or name == source.name or name in source.in_memory:
        name = f"given-{name}"
    new_text = f"{text.rstrip()}\n\n{to_toml({GIVEN: {'matrix': name}})}"
    return evolve(source, kept=new_text.encode(), in_memory={**source.in_memory, name: matrix.contents})
