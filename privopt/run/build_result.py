"""Build the result of a solve from the measurement of its release, and reject a release that fails."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import evolve

from privopt.errors import CertificationError
from privopt.interfaces import Bounds, Mechanism, Objective, Outcome, Release, Result, SolveContext
from privopt.interfaces.abilities import ProvesBound, Warns, details_of, solves_program
from privopt.interfaces.result import LP, Details, Plugin, ProblemFile, RunOptions, Times
from privopt.registry import registry
from privopt.run.measure import Measurement, measure_release
from privopt.run.problem_copy import ProblemCopy
from privopt.run.result_file import RELATIVE_TOLERANCE
from privopt.run.task import Task
from privopt.run.versions import versions_behind
from privopt.specs import NOTHING
from privopt.version import VERSION

if TYPE_CHECKING:
    from privopt.run.options import Options
else:
    Options = Any

__all__ = ["build_result", "collect_warnings", "problem_reference"]

P = TypeVar("P")
R = TypeVar("R", bound=Release)


def collect_warnings(mechanism: Mechanism[P, R], problem: P, release: R, result: Result) -> list[str]:
    """Collect the warnings of the mechanism and of the notion that the release satisfies."""
    notion = registry().kind("notion", result.guarantee.kind).load()
    warnings = mechanism.warnings(problem, release, result) if isinstance(mechanism, Warns) else ()
    return [*warnings, *notion.warnings(result)]


def build_result(task: Task, outcome: Outcome[Any], context: SolveContext, options: Options) -> Result:
    """Measure a release and build its result; the times are added later.

    Raises:
        CertificationError: The release does not hold, or was not measured, or its loss could not be evaluated.
    """
    registered, method, mechanism = task.registered, task.method, task.mechanism
    with context.timed("verify"):
        measurement = measure_release(registered, mechanism, task.problem, outcome.release, method.name)
    _check_certificate(task, measurement)
    value, utility, certificate = measurement.value, measurement.utility, measurement.certificate
    if measurement.value_error is not None:
        raise measurement.value_error
    if value is None or math.isnan(value):
        raise CertificationError("the release's objective could not be evaluated; nothing written")
    bound = outcome.lower_bound
    has_bound = bound is not None and not math.isinf(bound)
    bound = _check_bound(bound, value, maximise=utility.maximise) if bound is not None and has_bound else None
    told = dict(outcome.details)
    if options.jobs is not None:
        told["jobs"] = options.jobs
    if bound is not None and not isinstance(mechanism, ProvesBound):  # nothing in DIR will prove it
        told, bound = {"lower_bound": bound, **told}, None
    program = told.pop(LP, None)
    if program is not None and not solves_program(mechanism):
        raise CertificationError(f"{registered.spec.name} states a program that it does not declare; nothing written")
    # A seed that no noise came from would claim that the release is not private.
    has_own_noise = certificate.evidence == "declared" and not outcome.seeded
    return Result(
        mechanism=registered.spec.name,
        method=method.name,
        plugin=Plugin(name=registered.plugin, version=registered.version),
        privopt=VERSION,
        problem=problem_reference(task.copy),
        seed=None if has_own_noise else options.seed,
        asked=RunOptions(
            method=method.name,
            gap=context.gap,
            time_limit=options.time_limit,
            memory=options.memory,
            solver=options.solver,
        ),
        guarantee=evolve(measurement.guarantee, seeded=outcome.seeded),
        objective=Objective.of(
            value, bound, maximise=utility.maximise, unit=utility.unit, bound_over=outcome.bound_over
        ),
        certificate=certificate,
        time=Times(build=0.0, solve=0.0, repair=0.0, verify=0.0, total=0.0),
        solver={**outcome.solver, "versions": versions_behind(registered.plugin)},
        details=Details(
            told=told,
            value_unit=measurement.value_unit,
            lp=None if program is None else _program_bounds(program),
            facts=details_of(mechanism, task.problem, outcome.release, method.name, told),
        ),
    )


def _program_bounds(program: Mapping[str, Any]) -> Bounds:
    """Return the value and the lower bound of a linear program; not every program has a bound."""
    bound = program.get("lower_bound")
    return Bounds.of(program["value"], bound if bound is None else min(bound, program["value"]))


def _check_certificate(task: Task, measurement: Measurement) -> None:
    """Refuse a release that fails, or whose claim was not measured or is not the registered one."""
    kind, certificate = measurement.guarantee.kind, measurement.certificate
    if kind != measurement.registered_kind:
        raise CertificationError(
            f"{task.registered.spec.name} --method {task.method.name} is registered as {measurement.registered_kind} "
            f"but claims {kind}; nothing written"
        )
    if certificate.holds is None and kind != NOTHING:
        raise CertificationError(f"{kind} is claimed but was not measured, so nothing was written")
    if certificate.holds is False:
        lines = "; ".join(certificate.failures[:5]) or f"worst {certificate.worst} against {certificate.allowed}"
        raise CertificationError(f"the release could not be certified, so nothing was written: {lines}")


def problem_reference(copy: ProblemCopy) -> ProblemFile:
    """Return the problem file as result.json names it."""
    return ProblemFile(file=copy.name, sha256=copy.sha256)


def _check_bound(bound: float, value: float, *, maximise: bool) -> float:
    """Return a bound that does not contradict the value; if they differ by rounding only, the value."""
    excess = value - bound if maximise else bound - value
    if not excess <= RELATIVE_TOLERANCE * max(1.0, abs(value)):
        side, name = ("below", "upper") if maximise else ("above", "lower")
        raise CertificationError(f"the {name} bound {bound!r} lies {side} the objective {value!r}; nothing written")
    return max(bound, value) if maximise else min(bound, value)
