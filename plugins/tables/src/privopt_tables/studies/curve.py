"""Compare mechanisms: loss and proved bound over epsilon.

What is certified at one epsilon is private at every larger one, and what is proved for one epsilon bounds every smaller
one from below. So for mechanisms that seek the optimum both curves fall, and the bounds of one hold for all that
promise the same.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from fractions import Fraction
from hashlib import sha256
from pathlib import Path

from attrs import evolve, field, frozen

from privopt.declare.exact_text import exact_text
from privopt.declare.problems_in_memory import Problem
from privopt.declare.schema import File, files_of
from privopt.errors import CertificationError, InfeasibleError, InputError, StoppedError, UsageError
from privopt.execution import Executor, from_url
from privopt.execution.clock import clock, limit
from privopt.execution.interrupts import interrupts
from privopt.execution.memo import remembering
from privopt.interfaces import Objective, SolveContext
from privopt.interfaces.abilities import check_memory
from privopt.run.options import Options
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.kinds import PerKm
from privopt_tables.studies.curve_file import CurveTable, Key, PointsFile
from privopt_tables.studies.curve_points import (
    OF_RELEASE,
    Line,
    Point,
    Refusals,
    Setting,
    Status,
    point_of,
    read_lines,
)
from privopt_tables.studies.epsilon_range import epsilons_of

__all__ = ["Curves", "Point", "curve", "draw_curves"]


@frozen(kw_only=True)
class Curves:
    """What was found.

    Attributes:
        points: by mechanism, then epsilon.
        notes: where a loss does not fall with epsilon, and why, a sentence each.
        refused: mechanisms that cannot take the problem, and why, a sentence each.
        unit: of losses and bounds.
        distance_unit: of errors.
        setting: what is known before any report, of the first mechanism's problem.
        per_km: what a kilometre of loss costs in the reader's unit, where that problem says it.
    """

    points: tuple[Point, ...]
    notes: tuple[str, ...]
    unit: str
    distance_unit: str
    refused: tuple[str, ...] = ()
    setting: Setting = field(factory=Setting)
    per_km: PerKm | None = None

    @property
    def stopped(self) -> int:
        """How many points a limit or an interrupt stopped, or kept from being begun."""
        return sum(point.status == "stopped" for point in self.points)

    def table(self) -> CurveTable:
        """Return a row a point, columns as :class:`Point` has them, epsilon as its exact text."""
        return CurveTable.of(self.points, self.unit, self.distance_unit)


def curve(
    problem: Problem | Path | str,
    mechanisms: Sequence[str],
    epsilon: str | tuple[float | str, float | str, int],
    **options: object,
) -> CurveTable:
    """Return loss and proved bound over epsilon as a table that draws itself by ``.plot()``: see :func:`draw_curves`.

    Args:
        problem: in memory, or a problem file; its own epsilon is not used.
        mechanisms: names.
        epsilon: ``"0.5:5:30"``, or lowest, highest and how many.
        options: those of :class:`privopt.run.options.Options` that :func:`draw_curves` uses.
    """
    values = epsilons_of(epsilon)
    source = problem.source if isinstance(problem, Problem) else File.read(Path(problem))
    return draw_curves(source, mechanisms, values, Options(**options)).table()  # type: ignore[arg-type]


def draw_curves(
    source: File,
    mechanisms: Sequence[str],
    epsilons: Sequence[Fraction],
    options: Options | None = None,
    announce: Callable[[str], object] | None = None,
    stored: PointsFile | None = None,
) -> Curves:
    """Solve and certify every mechanism at every epsilon.

    A mechanism that cannot take the problem is "refused", and the others are solved.

    Args:
        source: the problem file.
        mechanisms: names, of mechanisms over places.
        epsilons: ascending.
        options: of these gap (each method's own where None), solver, jobs, progress, and time_limit: what is not
            reached then, or when an interrupt comes, is "stopped".
        announce: called with each sentence of :attr:`Curves.refused`, before anything is solved. Mechanisms that look
            only while they solve are refused then.
        stored: file of points of earlier runs, which are not solved again; new points are written to it at once.

    Raises:
        InputError: a problem that no mechanism can take.
        UsageError: an unknown mechanism, or none that is over places.
        StoppedError: not one point was found in time, or before an interrupt.
    """
    options = options or Options()
    names = list(dict.fromkeys(mechanisms))
    if not names:
        raise UsageError("mechanisms must be names, such as optimal-lp,exponential, got none")
    refusals = Refusals(epsilons)
    lines = read_lines(names, source, options.gap, refusals)
    if all(map(refusals.whole, names)):
        raise refusals.error
    say = announce or (lambda _: None)
    early = [say(sentence) for sentence in refusals.sentences]
    single: dict[Key, Point] = {}
    if stored is not None:
        single = stored.begin(_digest_of(source, lines, options), names, epsilons)
    with (
        interrupts() as came,
        from_url(None, options.jobs or 1) as executor,
        suppress(KeyboardInterrupt),  # what there is stands
        limit(options.time_limit),
        remembering(),  # what a repair certified is not certified again
    ):
        _solve_points(lines, refusals, options, executor, came, single, stored)
    found = {
        name: [single.get((name, epsilon)) or refusals.point(name, epsilon) for epsilon in epsilons] for name in names
    }
    for sentence in refusals.sentences[len(early) :]:
        say(sentence)
    statuses = {point.status for points in found.values() for point in points}
    if statuses == {"refused"}:
        raise refusals.error
    if "stopped" in statuses and all(point.loss is None for points in found.values() for point in points):
        what = "an interrupt" if came else "the time limit"
        raise StoppedError(f"{what} came before anything was found; nothing written")
    notes = _joined(lines, found)
    first = lines[0].problem.data
    return Curves(
        points=tuple(point for name in names for point in found[name]),
        notes=tuple(notes),
        unit=first.loss_unit,
        distance_unit=first.unit,
        refused=tuple(refusals.sentences),
        setting=evolve(lines[0].setting, odds=all(line.metric for line in lines)),
        per_km=first.per_km,
    )


def _digest_of(source: File, lines: Sequence[Line], options: Options) -> str:
    """Return a digest of all that a point follows from: problem, files that it names, gap and solver."""
    files = {file.name: file.contents for line in lines for file in files_of(line.problem.declared) if not file.absent}
    digest = sha256(repr((options.gap, options.solver)).encode())
    for name, contents in [("", source.contents), *sorted(files.items())]:
        digest.update(name.encode() + sha256(contents).digest())
    return digest.hexdigest()


def _solve_points(
    lines: Sequence[Line],
    refusals: Refusals,
    options: Options,
    executor: Executor,
    came: Sequence[int],
    points: dict[Key, Point],
    stored: PointsFile | None,
) -> None:
    """Solve what no earlier run has found, and then what it was stopped at, until an interrupt comes.

    Args:
        lines: of the curve.
        refusals: points that are not to be solved; more come.
        options: as of :func:`draw_curves`.
        executor: likewise.
        came: interrupts.
        points: by mechanism and epsilon, those of earlier runs; more come.
        stored: file that every point is written to as it is found.
    """
    asked = [line for line in lines if not refusals.whole(line.name)]
    every = [(line, number, epsilon) for line in asked for number, epsilon in enumerate(refusals.epsilons, start=1)]
    was = {key: point.status for key, point in points.items()}
    new = [each for each in every if (each[0].name, each[2]) not in was]
    again = [each for each in every if was.get((each[0].name, each[2])) == "stopped"]
    for line, number, epsilon in [*new, *again]:
        key = (line.name, epsilon)
        if came:  # a mechanism that was interrupted may hand over what it has, and say nothing
            return
        if key in refusals:
            continue
        if options.progress is not None:
            at = f"{line.name} at epsilon {float(epsilon):.4g} ({number} of {len(refusals.epsilons)})"
            options.progress(at, 0, None, None)
        context = SolveContext(method=line.method, solver=options.solver, gap=line.gap, executor=executor)
        try:
            point = _solved(line, epsilon, context)
        except InputError as error:  # of a mechanism that looks no sooner
            refusals.add(line.name, {epsilon: error})
            continue
        if point.status == "stopped" and not _loses_less(point, points.get(key)):
            points.setdefault(key, point)
            continue
        points[key] = point
        if stored is not None:
            stored.append(point)


def _solved(line: Line, epsilon: Fraction, context: SolveContext) -> Point:
    start = time.perf_counter()
    blank = Point(mechanism=line.name, epsilon=epsilon)
    if clock().left == 0.0:
        return blank
    problem = line.at(epsilon)
    try:
        check_memory(line.mechanism, problem, context)
        outcome = line.mechanism.solve(problem, context)
    except InfeasibleError:
        return evolve(blank, status="infeasible", seconds=time.perf_counter() - start)
    except StoppedError:
        return evolve(blank, seconds=time.perf_counter() - start)
    release: MatrixRelease = outcome.release
    certificate = line.mechanism.privacy(problem, line.method).measure(release)
    if not certificate.holds:
        raise CertificationError(f"{line.name} at epsilon {exact_text(epsilon)}: the release could not be certified")
    loss = line.mechanism.utility(problem, line.method)
    bound = outcome.lower_bound
    point = point_of(line.name, epsilon, release, problem, loss, certificate.worst)
    return evolve(
        point,
        lower_bound=None if bound is None or not math.isfinite(bound) else min(bound, point.loss),
        seconds=time.perf_counter() - start,
        status="stopped" if outcome.stopped else "feasible",
    )


def _joined(lines: Sequence[Line], points_of: dict[str, list[Point]]) -> list[str]:
    """Let each point use what its neighbours prove: bounds of larger epsilons, releases of smaller ones."""
    bounds: dict[tuple[object, ...], list[float]] = {}
    for line in lines:
        best = bounds.setdefault(line.promise, [-math.inf] * len(points_of[line.name]))
        for place, point in enumerate(points_of[line.name]):
            if point.lower_bound is not None:
                best[place] = max(best[place], point.lower_bound)
    nested = {line.promise for line in lines if line.nested}
    for promise, best in bounds.items():
        if promise not in nested:
            continue
        for place in range(len(best) - 2, -1, -1):
            best[place] = max(best[place], best[place + 1])
    notes = []
    for line in lines:
        points = points_of[line.name]
        optimises = any(point.lower_bound is not None for point in points)
        for place, point in enumerate(points):
            if point.status == "refused":
                continue
            before = points[place - 1] if place else None
            if before is not None and _loses_less(before, point):
                if optimises:
                    points[place] = _carried(before, point)
                elif point.loss is not None:
                    now, then = float(point.epsilon), float(before.epsilon)
                    notes.append(
                        f"{line.name} loses more at epsilon {now:.4g} than at {then:.4g}: "
                        "it seeks no optimum, so nothing makes its loss fall"
                    )
            points[place] = _bounded(points[place], bounds[line.promise][place], line.gap)
    return notes


def _loses_less(one: Point, other: Point | None) -> bool:
    return one.loss is not None and (other is None or other.loss is None or one.loss < other.loss)


def _carried(smaller: Point, point: Point) -> Point:
    """Return the release of a smaller epsilon, which is private at this one too."""
    kept = {name: getattr(smaller, name) for name in ("loss", *OF_RELEASE)}
    status: Status = "feasible" if point.status == "infeasible" else point.status
    return evolve(point, **kept, status=status)


def _bounded(point: Point, bound: float, gap: float) -> Point:
    if point.loss is None or bound == -math.inf:
        return evolve(point, lower_bound=None if bound == -math.inf else bound)
    bound = min(bound, point.loss)  # they may meet but for rounding
    reached = Objective.of(point.loss, bound, unit="").gap
    status: Status = point.status
    if status != "stopped":
        status = "optimal" if reached is not None and reached <= gap else "feasible"
    return evolve(point, lower_bound=bound, gap=reached, status=status)
