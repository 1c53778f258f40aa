"""Compare mechanisms by their loss and proved bound as functions of epsilon.

A release certified at one epsilon is private at every larger epsilon, and a lower bound proved for one epsilon is valid
at every smaller one. Both the loss and the bound of a mechanism that minimises the loss therefore decrease as epsilon
increases. A bound is valid for all mechanisms with the same guarantee and loss. :func:`draw_curves` solves every point,
and then improves each point with the releases and bounds of other points.
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

from privopt.declare.problems_in_memory import Problem
from privopt.declare.schema import File, files_of
from privopt.declare.toml_text import exact_text
from privopt.errors import CertificationError, InfeasibleError, InputError, StoppedError, UsageError
from privopt.execution import Executor, from_url
from privopt.execution.clock import clock, interrupts, limit
from privopt.interfaces import Objective, SolveContext
from privopt.interfaces.abilities import check_memory
from privopt.run.measure import remembering
from privopt.run.task import Options
from privopt_metric_dp.problem.declared import PerKm
from privopt_tables.studies.curve_file import CurveTable, Key, PointsFile
from privopt_tables.studies.curve_points import (
    OF_RELEASE,
    Line,
    Point,
    Refusals,
    Setting,
    Status,
    read_lines,
)
from privopt_tables.studies.epsilon_range import parse_epsilons

__all__ = ["Curves", "Point", "curve", "draw_curves"]


@frozen(kw_only=True)
class Curves:
    """The loss curves of all mechanisms, with notes for the user.

    Attributes:
        points: The points of all curves, ordered by mechanism and then by epsilon.
        notes: Explanations of losses that increase with epsilon.
        refused: Explanations of why a mechanism cannot solve the problem.
        unit: The unit of losses and bounds.
        distance_unit: The unit of distances between records and reports. Epsilon is given per this unit.
        setting: What an attacker knows before seeing any report, computed from the first mechanism's problem.
        per_km: The cost of 1 km of loss in a familiar unit, such as minutes. None if the problem does not specify it.
    """

    points: tuple[Point, ...]
    notes: tuple[str, ...]
    unit: str
    distance_unit: str
    refused: tuple[str, ...] = ()
    setting: Setting = field(factory=Setting)
    per_km: PerKm | None = None

    @property
    def stopped_count(self) -> int:
        """The number of points that were left unfinished, or never started, because of a limit or an interruption."""
        return sum(point.status == "stopped" for point in self.points)

    def table(self) -> CurveTable:
        """Return a table with one row per point and the attributes of :class:`Point` as columns."""
        return CurveTable.of(self.points, self.unit, self.distance_unit)


def curve(
    problem: Problem | Path | str,
    mechanisms: Sequence[str],
    epsilon: str | tuple[float | str, float | str, int],
    **options: object,
) -> CurveTable:
    """Solve a problem with each mechanism at each epsilon, and return a table of losses and proved bounds.

    Args:
        problem: A problem in memory, or a problem file. Its own epsilon is not used.
        mechanisms: The names of the mechanisms.
        epsilon: A range such as ``"0.5:5:30"``, or a tuple of the lowest value, the highest value and the number of
            values.
        options: Arguments of :class:`privopt.run.task.Options`. Only gap, solver, jobs, progress and time_limit are
            used.

    Raises:
        PrivoptError: A mechanism is unknown, no mechanism can solve the problem, the range of epsilons is invalid, or
            no point was found in time.
    """
    values = parse_epsilons(epsilon)
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
    """Solve a problem with each mechanism at each epsilon, and certify the releases.

    If a mechanism cannot solve the problem at some epsilon, the point gets the status "refused".

    Args:
        source: The problem file.
        mechanisms: The names of mechanisms over places.
        epsilons: The epsilons, in ascending order.
        options: The options. Only gap, solver, jobs, progress and time_limit are used. If the gap is None, each method
            uses its default. Points that are not solved within the time limit or before an interruption get the status
            "stopped".
        announce: A function that is called with each note in :attr:`Curves.refused`. Refusals that are known in advance
            are announced before anything is solved. If a mechanism checks the problem only while solving it, its
            refusal is announced at the end.
        stored: The file with the points from earlier runs. Only the points that were stopped are solved again. New
            points are written to the file as soon as they are found.

    Raises:
        InputError: No mechanism can solve the problem.
        UsageError: A mechanism is unknown, or no mechanism protects places.
        StoppedError: No point was found within the time limit or before an interruption.
    """
    options = options or Options()
    # A mechanism that is named twice gets only one line.
    names = list(dict.fromkeys(mechanisms))
    if not names:
        raise UsageError("mechanisms must be names, such as optimal-lp,exponential, got none")
    refusals = Refusals(epsilons)
    lines = read_lines(names, source, options.gap, refusals)
    if all(map(refusals.refuses_all, names)):
        raise refusals.error
    send_sentence = announce or (lambda _: None)
    # The number of sentences announced so far shows later which ones were added while solving.
    announced = [send_sentence(sentence) for sentence in refusals.sentences]
    points_by_key: dict[Key, Point] = {}
    if stored is not None:
        points_by_key = stored.begin(_hash_inputs(source, lines, options), names, epsilons)
    with (
        interrupts() as received_signals,
        from_url(None, options.jobs or 1) as executor,
        suppress(KeyboardInterrupt),  # the points that were found so far are the result
        limit(options.time_limit),
        remembering(),  # a release that a repair has certified is not certified again
    ):
        _solve_points(lines, refusals, options, executor, received_signals, points_by_key, stored)
    points_by_mechanism = {
        name: [points_by_key.get((name, epsilon)) or refusals.point(name, epsilon) for epsilon in epsilons]
        for name in names
    }
    # Announce refusals by mechanisms that checked the problem only while solving it.
    for sentence in refusals.sentences[len(announced) :]:
        send_sentence(sentence)
    statuses = {point.status for points in points_by_mechanism.values() for point in points}
    if statuses == {"refused"}:
        raise refusals.error
    if "stopped" in statuses and all(point.loss is None for points in points_by_mechanism.values() for point in points):
        cause = "an interrupt" if received_signals else "the time limit"
        raise StoppedError(f"{cause} ended the run before anything was found; nothing written")
    notes = _share_bounds(lines, points_by_mechanism)
    loss_unit, distance_unit = lines[0].units
    return Curves(
        points=tuple(point for name in names for point in points_by_mechanism[name]),
        notes=tuple(notes),
        unit=loss_unit,
        distance_unit=distance_unit,
        refused=tuple(refusals.sentences),
        # All mechanisms read the same file, so the first one's problem stands for all.
        setting=evolve(lines[0].setting, odds=all(line.is_metric for line in lines)),
        per_km=lines[0].per_km,
    )


def _hash_inputs(source: File, lines: Sequence[Line], options: Options) -> str:
    """Return a SHA-256 digest of the inputs that determine the points: the problem, its files, the gap and the solver.

    Points from an earlier run are reused only if they were computed from inputs with the same digest.

    Args:
        source: The problem file.
        lines: One line per mechanism. Each line's problem may refer to other files.
        options: The options. Only gap and solver are used.
    """
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
    received_signals: Sequence[int],
    points: dict[Key, Point],
    stored: PointsFile | None,
) -> None:
    """Solve all missing or unfinished points until interrupted by a signal.

    Points that were stopped in an earlier run but already have a release are solved last.

    Args:
        lines: One line for each mechanism, with the problem that it solves.
        refusals: The points that mechanisms refuse, which are skipped. Points that turn out to be refused are added.
        options: The options. Only the solver and the progress function are used.
        executor: The executor for the mechanisms' tasks.
        received_signals: The signal numbers received so far. A signal handler appends to this list.
        points: The points from earlier runs, keyed by mechanism and epsilon. New points are added.
        stored: The file to which each new point is written as soon as it is found. A point that was stopped is written
            only if its release is better than any earlier one. None if there is no file.
    """
    # New points come first, so that a repeated run makes progress even if the same points are stopped again.
    accepted_lines = [line for line in lines if not refusals.refuses_all(line.name)]
    tasks = [
        (line, number, epsilon) for line in accepted_lines for number, epsilon in enumerate(refusals.epsilons, start=1)
    ]
    earlier_statuses = {key: point.status for key, point in points.items()}
    new_tasks = [task for task in tasks if (task[0].name, task[2]) not in earlier_statuses]
    repeated_tasks = [task for task in tasks if earlier_statuses.get((task[0].name, task[2])) == "stopped"]
    for line, number, epsilon in [*new_tasks, *repeated_tasks]:
        key = (line.name, epsilon)
        # An interrupted mechanism may return its best release instead of raising an error, so signals are checked here.
        if received_signals:
            return
        if key in refusals:
            continue
        if options.progress is not None:
            step = f"{line.name} at epsilon {float(epsilon):.4g} ({number} of {len(refusals.epsilons)})"
            options.progress(step, 0, None, None)
        context = SolveContext(method=line.method, solver=options.solver, gap=line.gap, executor=executor)
        try:
            point = _solve_point(line, epsilon, context)
        except InputError as error:
            # This mechanism checks the problem only while solving it.
            refusals.add(line.name, {epsilon: error})
            continue
        if point.status == "stopped" and not _loses_less(point, points.get(key)):
            # If there is no better point, this one is shown. It is not stored, so that the next run tries again.
            points.setdefault(key, point)
            continue
        points[key] = point
        if stored is not None:
            stored.append(point)


def _solve_point(line: Line, epsilon: Fraction, context: SolveContext) -> Point:
    """Solve the problem with one mechanism at one epsilon, and certify the release.

    Args:
        line: The mechanism and the problem.
        epsilon: The epsilon to solve at.
        context: The method, solver, gap and executor to use.

    Returns:
        The point. It has no loss if the time limit expired or there is no feasible release.

    Raises:
        InputError: The mechanism cannot solve the problem.
        CertificationError: The release could not be certified.
    """
    start = time.perf_counter()
    empty_point = Point(mechanism=line.name, epsilon=epsilon)
    if clock().left == 0.0:
        # The time limit was reached before this point was begun.
        return empty_point
    problem = line.problem_at(epsilon)
    try:
        check_memory(line.mechanism, problem, context)
        outcome = line.mechanism.solve(problem, context)
    except InfeasibleError:
        return evolve(empty_point, status="infeasible", seconds=time.perf_counter() - start)
    except StoppedError:
        return evolve(empty_point, seconds=time.perf_counter() - start)
    release = outcome.release
    certificate = line.mechanism.privacy(problem, line.method).measure(release)
    # Every method must return a release that satisfies the guarantee. The figures of any other release would be
    # misleading.
    if not certificate.holds:
        raise CertificationError(f"{line.name} at epsilon {exact_text(epsilon)}: the release could not be certified")
    loss = line.mechanism.utility(problem, line.method)
    bound = outcome.lower_bound
    point = line.make_point(epsilon, release, problem, loss, certificate.worst)
    return evolve(
        point,
        # Rounding can put a bound slightly above the loss of the optimum.
        lower_bound=None if bound is None or not math.isfinite(bound) else min(bound, point.loss),
        seconds=time.perf_counter() - start,
        status="stopped" if outcome.stopped else "feasible",
    )


def _share_bounds(lines: Sequence[Line], points_by_mechanism: dict[str, list[Point]]) -> list[str]:
    """Improve each point with lower bounds from larger epsilons and releases from smaller ones.

    Args:
        lines: The lines, one per mechanism.
        points_by_mechanism: The points of each mechanism in ascending order of epsilon. The lists are modified in
            place.

    Returns:
        Notes on losses that increase with epsilon.
    """
    bounds: dict[tuple[object, ...], list[float]] = {}
    for line in lines:
        # Mechanisms with the same guarantee and loss (`line.guarantee`) share their bounds.
        best_bounds = bounds.setdefault(line.guarantee, [-math.inf] * len(points_by_mechanism[line.name]))
        for index, point in enumerate(points_by_mechanism[line.name]):
            if point.lower_bound is not None:
                best_bounds[index] = max(best_bounds[index], point.lower_bound)
    # A guarantee is nested if every release that satisfies it at one epsilon also satisfies it at larger ones.
    nested_guarantees = {line.guarantee for line in lines if line.is_nested}
    for guarantee, best_bounds in bounds.items():
        if guarantee not in nested_guarantees:
            continue
        # A bound for one epsilon is valid at every smaller epsilon, so bounds are passed on from larger to smaller
        # epsilons.
        for index in range(len(best_bounds) - 2, -1, -1):
            best_bounds[index] = max(best_bounds[index], best_bounds[index + 1])
    notes = []
    for line in lines:
        points = points_by_mechanism[line.name]
        # A mechanism that proves bounds seeks the optimum, so a release from a smaller epsilon may replace a worse one.
        optimises = any(point.lower_bound is not None for point in points)
        for index, point in enumerate(points):
            if point.status == "refused":
                continue
            previous = points[index - 1] if index else None
            if previous is not None and _loses_less(previous, point):
                if optimises:
                    points[index] = _reuse_release(previous, point)
                elif point.loss is not None:
                    epsilon, previous_epsilon = float(point.epsilon), float(previous.epsilon)
                    notes.append(
                        f"{line.name} loses more at epsilon {epsilon:.4g} than at {previous_epsilon:.4g}: it does not "
                        "optimise, so its loss need not fall"
                    )
            points[index] = _set_bound(points[index], bounds[line.guarantee][index], line.gap)
    return notes


def _loses_less(point: Point, compared: Point | None) -> bool:
    """Return whether a point has a smaller loss than another, where a missing point or loss counts as infinite."""
    return point.loss is not None and (compared is None or compared.loss is None or point.loss < compared.loss)


def _reuse_release(smaller: Point, point: Point) -> Point:
    """Return a copy of a point with the results of a release found at a smaller epsilon.

    That release is also private at this point's epsilon.

    Args:
        smaller: The point at the smaller epsilon, which provides the results.
        point: The point whose results to replace.
    """
    figures = {name: getattr(smaller, name) for name in ("loss", *OF_RELEASE)}
    # A point that has a release cannot be infeasible.
    status: Status = "feasible" if point.status == "infeasible" else point.status
    return evolve(point, **figures, status=status)


def _set_bound(point: Point, bound: float, gap: float) -> Point:
    """Return a copy of a point with a proved bound, and with its gap and status updated accordingly.

    Args:
        point: The point to update.
        bound: The bound, or minus infinity if there is none.
        gap: The largest relative gap at which a point counts as optimal.
    """
    if point.loss is None or bound == -math.inf:
        return evolve(point, lower_bound=None if bound == -math.inf else bound)
    # At the optimum, rounding can put the bound slightly above the loss.
    bound = min(bound, point.loss)
    relative_gap = Objective.of(point.loss, bound, unit="").gap
    status: Status = point.status
    if status != "stopped":
        status = "optimal" if relative_gap is not None and relative_gap <= gap else "feasible"
    return evolve(point, lower_bound=bound, gap=relative_gap, status=status)
