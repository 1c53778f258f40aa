"""Functions that build the result of a solve, read it back from result.json, and compare results.

A result contains the measurement of the release, the software versions, and the options of the run. Releases that fail
their certificate are rejected.
"""

from __future__ import annotations

import math
import platform
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, Final, TypeVar

from attrs import evolve

from privopt.declare import structure
from privopt.declare.schema import RefusedValueError
from privopt.errors import CertificationError, Fault, InputError, cut
from privopt.files.release_folder import RESULT, read_document
from privopt.interfaces import Bounds, Mechanism, Objective, Outcome, Release, Result, SolveContext
from privopt.interfaces.abilities import ProvesBound, Warns, details_of, solves_program
from privopt.interfaces.result import LP, Details, Plugin, ProblemFile, RunOptions, Times
from privopt.registry import registry
from privopt.registry.installed import normalize_name
from privopt.run.measure import Measurement, measure_release
from privopt.run.problem_copy import ProblemCopy
from privopt.run.task import Options, Task
from privopt.specs import NOTHING
from privopt.version import VERSION

__all__ = [
    "RELATIVE_TOLERANCE",
    "build_result",
    "collect_warnings",
    "differences",
    "problem_reference",
    "read_result",
    "result_of",
    "versions_behind",
]


P = TypeVar("P")
R = TypeVar("R", bound=Release)


def collect_warnings(mechanism: Mechanism[P, R], problem: P, release: R, result: Result) -> list[str]:
    """Return the warnings that all users of a release should read, from its mechanism and its privacy notion."""
    notion = registry().kind("notion", result.guarantee.kind).load()
    warnings = mechanism.warnings(problem, release, result) if isinstance(mechanism, Warns) else ()
    return [*warnings, *notion.warnings(result)]


def build_result(task: Task, outcome: Outcome[Any], context: SolveContext, options: Options) -> Result:
    """Measure a release and return the contents of its result.json, except for the times, which are added later.

    Args:
        task: The problem, and the mechanism and method that solved it.
        outcome: The mechanism's outcome: the release, a lower bound and facts about the search.
        context: The context of the run, which provides the gap and reports progress.
        options: The options of the run.

    Raises:
        CertificationError: The release could not be certified, its guarantee was not measured or is not of the
            registered kind, its objective is not a number, its bound contradicts the objective, or the mechanism
            reports a linear program although it does not declare that it solves one.
        Exception: Any other error raised while evaluating the objective.
    """
    registered, method, mechanism = task.registered, task.method, task.mechanism
    context.report("certifying the release")
    with context.time_phase("verify"):
        measurement = measure_release(registered, mechanism, task.problem, outcome.release, method.name)
    _check_certificate(task, measurement)
    value, utility, certificate = measurement.value, measurement.utility, measurement.certificate
    # measure_release returns this error rather than raising it, because verify reports it as a complaint.
    if measurement.value_error is not None:
        raise measurement.value_error
    if value is None or math.isnan(value):
        raise CertificationError("the release's objective could not be evaluated; nothing written")
    # A mechanism may return no bound, or an infinite one, which says nothing.
    bound = outcome.lower_bound
    has_bound = bound is not None and not math.isinf(bound)
    bound = _check_bound(bound, value, maximise=utility.maximise) if bound is not None and has_bound else None
    method_facts = dict(outcome.details)
    if options.jobs is not None:
        method_facts["jobs"] = options.jobs
    # Nothing in the folder will prove the bound, so record it as a fact that verify does not check.
    if bound is not None and not isinstance(mechanism, ProvesBound):
        method_facts, bound = {"lower_bound": bound, **method_facts}, None
    program = method_facts.pop(LP, None)
    if program is not None and not solves_program(mechanism):
        raise CertificationError(f"{registered.spec.name} states a program that it does not declare; nothing written")
    # Evidence that is only "declared" relies on drawn noise. If the noise did not come from the seed, recording the
    # seed would wrongly mean that the release is not private.
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
            told=method_facts,
            value_unit=measurement.value_unit,
            lp=None if program is None else _program_bounds(program),
            facts=details_of(mechanism, task.problem, outcome.release, method.name, method_facts),
        ),
    )


def _program_bounds(program: Mapping[str, Any]) -> Bounds:
    """Return the value and the lower bound reported by a mechanism for its linear program.

    Args:
        program: A mapping with the key ``"value"`` and, if a bound is known, the key ``"lower_bound"``.
    """
    # If the program was solved to optimality, rounding can put its bound slightly above its value.
    bound = program.get("lower_bound")
    return Bounds.of(program["value"], bound if bound is None else min(bound, program["value"]))


def _check_certificate(task: Task, measurement: Measurement) -> None:
    """Check that a release's certificate holds, and that its guarantee was measured and is of the registered kind.

    Args:
        task: The mechanism and its method, which are named in error messages.
        measurement: The measurement of the release.

    Raises:
        CertificationError: One of these conditions is not met.
    """
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
    """Return the problem file's name and checksum for result.json."""
    return ProblemFile(file=copy.name, sha256=copy.sha256)


def _check_bound(bound: float, value: float, *, maximise: bool) -> float:
    """Check that a bound on the optimum does not contradict the objective's value, and return the bound.

    If the bound lies beyond the value by no more than a rounding error, the value is returned instead.

    Args:
        bound: A lower bound, or an upper bound if ``maximise`` is True.
        value: The objective of the release.
        maximise: Whether the objective is maximised.

    Raises:
        CertificationError: The bound contradicts the value, or is not a number.
    """
    # "not <=" rather than ">", so that NaN is rejected as well.
    excess = value - bound if maximise else bound - value
    if not excess <= RELATIVE_TOLERANCE * max(1.0, abs(value)):
        direction, name = ("below", "upper") if maximise else ("above", "lower")
        raise CertificationError(
            f"the {name} bound {bound!r} lies {direction} the objective {value!r}; nothing written"
        )
    return max(bound, value) if maximise else min(bound, value)


_NAME: Final = re.compile(r"[A-Za-z0-9._-]+")
"""Matches a distribution's name at the beginning of a requirement such as ``numpy>=2``."""
_OPTIONAL: Final = re.compile(r";.*\bextra\b")
"""Matches the part of a requirement that makes it optional."""


@cache
def versions_behind(plugin: str) -> dict[str, str]:
    """Return the versions of Python, a plugin's package and all of its dependencies, by name.

    Dependencies are followed recursively, except for optional ones (extras).

    Args:
        plugin: The name of the plugin's package.
    """
    versions: dict[str, str] = {}
    # A stack of names to look up. The empty name counts as visited, because importlib raises a ValueError for it.
    remaining, visited = [plugin], {""}
    while remaining:
        name = remaining.pop()
        key = normalize_name(name)
        if key in visited:
            continue
        visited.add(key)
        try:
            metadata = distribution(name).metadata  # Read once, because it is parsed each time.
        except PackageNotFoundError:
            # The package is required on other systems only, or ``plugin`` belongs to a mechanism without a
            # distribution.
            continue
        except (ValueError, OSError):
            # Damaged metadata: neither the version nor the requirements are known.
            versions[name] = "unknown"
            continue
        names, numbers = metadata.get_all("Name") or [name], metadata.get_all("Version") or ["unknown"]
        versions[names[0]] = numbers[0]
        matches = [_NAME.match(text) for text in metadata.get_all("Requires-Dist") or [] if not _OPTIONAL.search(text)]
        remaining += [match[0] for match in matches if match is not None]
    return {"python": platform.python_version(), **{name: versions[name] for name in sorted(versions, key=str.lower)}}


RELATIVE_TOLERANCE: Final = 1e-9
"""The largest permitted relative difference between a value in result.json and the recomputed value.

The order of summation depends on the machine and the version of NumPy, so the last digits of doubles can differ.
"""


def read_result(folder: Path) -> Result:
    """Read and parse the result.json of a release folder. Its claims are not checked."""
    return result_of(read_document(folder), str(folder / RESULT))


def result_of(document: Mapping[str, Any], file: str) -> Result:
    """Parse a result from the JSON object in result.json.

    Values that can be derived from others (the status, epsilon as a double, the warning about a seed) are not read.
    ``verify`` compares them with :meth:`Result.to_json`.

    Args:
        document: The contents of the file as a JSON object.
        file: The name of the file, for error messages.

    Raises:
        InputError: A value is missing or malformed.
    """
    leaves = {name: value for name, value in document.items() if name != "status"}
    guarantee = document.get("guarantee")
    if isinstance(guarantee, Mapping):
        guarantee_leaves = {name: value for name, value in guarantee.items() if name not in ("epsilon_text", "warning")}
        try:
            leaves["guarantee"] = guarantee_leaves | {"epsilon": _parse_exact_number(guarantee.get("epsilon_text"))}
        except RefusedValueError as error:
            raise InputError([Fault(file, "guarantee.epsilon_text", error.actual, error.expectation)]) from None
    return structure(Result, leaves, file)


def _parse_exact_number(text: object) -> Decimal | Fraction | None:
    """Parse an exact number of any size from text written by :func:`privopt.declare.toml_text.exact_text`."""
    if text is None:
        return None
    if isinstance(text, str):
        try:
            return Fraction(text) if "/" in text else Decimal(text)
        except (ValueError, ZeroDivisionError, InvalidOperation):
            pass
    raise RefusedValueError(text, "an exact number as text, or null")


def differences(
    claimed_value: object, expected_value: object, where: str, *, tolerance: float = RELATIVE_TOLERANCE
) -> Iterator[str]:
    """Compare a claimed JSON value with the expected one, and yield a line for each nested value that differs.

    Args:
        claimed_value: The value in result.json.
        expected_value: The value derived from the other files.
        where: The path of the value in result.json.
        tolerance: The largest relative difference at which numbers count as equal if one of them is a float.
    """
    if isinstance(expected_value, dict) and isinstance(claimed_value, dict):
        # All names, the expected ones first.
        for name in {**expected_value, **claimed_value}:
            inner = f"{where}.{name}".lstrip(".")
            if name not in claimed_value:
                yield f"{inner}: missing; it should be {cut(repr(expected_value[name]))}"
            elif name not in expected_value:
                yield f"{inner}: claims {cut(repr(claimed_value[name]))}, which nothing here gives"
            else:
                yield from differences(claimed_value[name], expected_value[name], inner, tolerance=tolerance)
    elif (
        isinstance(expected_value, list)
        and isinstance(claimed_value, list)
        and len(expected_value) == len(claimed_value)
    ):
        for index, (claimed_item, expected_item) in enumerate(zip(claimed_value, expected_value, strict=True)):
            yield from differences(claimed_item, expected_item, f"{where}[{index}]", tolerance=tolerance)
    elif not _is_close(claimed_value, expected_value, tolerance):
        yield f"{where}: claims {cut(repr(claimed_value))}, the files give {cut(repr(expected_value))}"


def _is_close(claimed_value: object, expected_value: object, tolerance: float) -> bool:
    """Return whether two values from a JSON document agree.

    Numbers may differ by the relative tolerance if at least one of them is a float. All other values must be equal and
    of the same type.

    Args:
        claimed_value, expected_value: The two values, which must not be two mappings or two lists of equal length.
        tolerance: The largest difference, relative to the larger absolute value.
    """
    if type(claimed_value) is type(expected_value) and claimed_value == expected_value:
        return True
    # bool is a subclass of int in Python, but true must not equal the number 1 here.
    if bool in (type(claimed_value), type(expected_value)) or not (
        isinstance(claimed_value, float) or isinstance(expected_value, float)
    ):
        return False
    if not isinstance(claimed_value, (int, float)) or not isinstance(expected_value, (int, float)):
        return False
    if any(isinstance(value, float) and not math.isfinite(value) for value in (claimed_value, expected_value)):
        return False
    # Compare fractions, because an integer may be larger than any double.
    claimed_number, expected_number = Fraction(claimed_value), Fraction(expected_value)
    return abs(claimed_number - expected_number) <= Fraction(tolerance) * max(abs(claimed_number), abs(expected_number))
