"""Build the result of a solve: measure the privacy, evaluate the loss, and reject a release that fails."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import evolve

from privopt.errors import CertificationError
from privopt.interfaces import (
    Bounds,
    Certificate,
    Guarantee,
    Mechanism,
    Objective,
    Outcome,
    Release,
    Result,
    SolveContext,
    UtilityLoss,
)
from privopt.interfaces.result import LP, Details, Plugin, ProblemFile, RunOptions, Times
from privopt.registry import Registered, registry
from privopt.run.problem_copy import ProblemCopy
from privopt.run.result_file import RELATIVE_TOLERANCE
from privopt.run.versions import versions_behind
from privopt.specs import NOTHING, MethodSpec
from privopt.version import VERSION

if TYPE_CHECKING:
    from privopt.run.options import Options
else:
    Options = Any

P = TypeVar("P")
R = TypeVar("R", bound=Release)


def warned(mechanism: Mechanism[P, R], problem: P, release: R, result: Result) -> list[str]:
    """Collect the warnings of the mechanism and of the notion that the release satisfies."""
    notion = registry().kind("notion", result.guarantee.kind).load()
    return [*mechanism.warnings(problem, release, result), *notion.warnings(result)]


def conclude(
    registered: Registered,
    method: MethodSpec,
    mechanism: Mechanism[P, R],
    problem: P,
    outcome: Outcome[R],
    context: SolveContext,
    options: Options,
    copy: ProblemCopy,
) -> Result:
    """Build the result of a release that holds; times are added later."""
    guarantee, certificate = _measured(registered, method, mechanism, problem, outcome, context)
    utility = mechanism.utility(problem, method.name)
    registered.expect("utility", utility, UtilityLoss)
    value, unit = utility.state(outcome.release)
    if value is None or math.isnan(value):
        raise CertificationError("the release's objective could not be evaluated; nothing written")
    bound = outcome.lower_bound
    bound = None if bound is None or math.isinf(bound) else _bound(bound, value, maximise=utility.maximise)
    told = dict(outcome.details)
    if options.jobs is not None:
        told["jobs"] = options.jobs
    if bound is not None and type(mechanism).proved is Mechanism.proved:  # nothing in DIR will prove it
        told, bound = {"lower_bound": bound, **told}, None
    program = told.pop(LP, None)
    if program is not None and not mechanism.programs:
        raise CertificationError(f"{registered.spec.name} states a program that it does not declare; nothing written")
    drawn = certificate.evidence == "declared" and not outcome.seeded
    return Result(
        mechanism=registered.spec.name,
        method=method.name,
        plugin=Plugin(name=registered.plugin, version=registered.version),
        privopt=VERSION,
        problem=named(copy),
        seed=None if drawn else options.seed,  # a seed that no noise came from would say the contrary
        asked=RunOptions(
            method=method.name,
            gap=context.gap,
            time_limit=options.time_limit,
            memory=options.memory,
            solver=options.solver,
        ),
        guarantee=evolve(guarantee, seeded=outcome.seeded),
        objective=Objective.of(
            value, bound, maximise=utility.maximise, unit=utility.unit, bound_over=outcome.bound_over
        ),
        certificate=certificate,
        time=Times(build=0.0, solve=0.0, repair=0.0, verify=0.0, total=0.0),
        solver={**outcome.solver, "versions": versions_behind(registered.plugin)},
        details=Details(
            told=told,
            value_unit=unit,
            lp=None if program is None else _program(program),
            facts=mechanism.details(problem, outcome.release, method.name, told),
        ),
    )


def _program(stated: Mapping[str, Any]) -> Bounds:
    """Value and lower bound of a linear program; the bound is not known of every one."""
    low = stated.get("lower_bound")
    return Bounds.of(stated["value"], low if low is None else min(low, stated["value"]))


def _measured(
    registered: Registered,
    method: MethodSpec,
    mechanism: Mechanism[P, R],
    problem: P,
    outcome: Outcome[R],
    context: SolveContext,
) -> tuple[Guarantee, Certificate]:
    """Return what a release claims, and what was measured of it; refuse a release that fails."""
    privacy = mechanism.privacy(problem, method.name)
    guarantee = privacy.guarantee
    registered.expect("privacy().guarantee", guarantee, Guarantee)
    wanted = mechanism.notion(problem, method.name) or registered.spec.kind_of(method)
    if guarantee.kind != wanted:
        raise CertificationError(
            f"{registered.spec.name} --method {method.name} is registered as {wanted} "
            f"but claims {guarantee.kind}; nothing written"
        )
    with context.timed("verify"):
        certificate = privacy.measure(outcome.release)
    registered.expect("privacy().measure", certificate, Certificate)
    if certificate.holds is None and guarantee.kind != NOTHING:
        raise CertificationError(f"{guarantee.kind} is claimed but was not measured, so nothing was written")
    if certificate.holds is False:
        lines = "; ".join(certificate.failures[:5]) or f"worst {certificate.worst} against {certificate.allowed}"
        raise CertificationError(f"the release could not be certified, so nothing was written: {lines}")
    return guarantee, certificate


def named(copy: ProblemCopy) -> ProblemFile:
    """Return the problem file as result.json names it."""
    return ProblemFile(file=copy.name, sha256=copy.sha256)


def _bound(bound: float, value: float, *, maximise: bool) -> float:
    """Return a bound that does not contradict the value reached: if they differ by rounding only, the value."""
    beyond = value - bound if maximise else bound - value
    if not beyond <= RELATIVE_TOLERANCE * max(1.0, abs(value)):
        side, name = ("below", "upper") if maximise else ("above", "lower")
        raise CertificationError(f"the {name} bound {bound!r} lies {side} the objective {value!r}; nothing written")
    return max(bound, value) if maximise else min(bound, value)
