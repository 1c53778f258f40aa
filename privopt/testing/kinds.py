"""Checks of registered kinds: a distance, a loss, a notion of privacy, a solver, a decomposer.

::

    from privopt.testing import kind_conformance

    test_hamming = kind_conformance("distance", "hamming")
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import hypothesis
import numpy as np
from attrs import evolve
from hypothesis.errors import Unsatisfiable
from hypothesis.strategies import SearchStrategy

from privopt.declare import load_problem
from privopt.errors import PrivoptError, UsageError
from privopt.exact.sample import TOTAL
from privopt.interfaces import SolveContext
from privopt.metric.baselines.lp import optimal_model
from privopt.metric.data import MetricData
from privopt.metric.kinds import Spaces
from privopt.metric.losses import ExpectedLoss
from privopt.metric.matrix import MatrixRelease
from privopt.metric.privacy import MatrixConstraint
from privopt.metric.problem import MetricInstance, MetricProblem
from privopt.registry import registry
from privopt.testing.backends import BACKEND_CHECKS, check_backend
from privopt.testing.decomposers import DECOMPOSER_CHECKS, check_decomposer
from privopt.testing.efforts import Effort, effort
from privopt.testing.metric import metric_problems
from privopt.testing.models import FoundError, try_solver
from privopt.testing.problems import GeneratedProblem
from privopt.testing.runner import CheckResult
from privopt.testing.under_trial import error_text

if TYPE_CHECKING:
    from hypothesis import strategies as st

__all__ = ["check_kind", "kind_conformance"]

TOLERANCE: Final = 1e-9
LOST: Final = 0.02
"""What a repair may lose, relative: a notion whose rows say less than its measure loses more."""

STEPS: Final = 40
FINE: Final = 1 << 16
"""In how many steps, and how finely, a release is moved towards the truth."""

KEYS: Final = {"distance": "distance.kind", "loss": "utility.kind", "notion": "privacy.kind"}


def _problems(role: str, name: str) -> list[SearchStrategy[GeneratedProblem]]:
    """The kind's own strategy, or the kit's problems with its name in them; those after the first where it has none."""
    found = registry().kind(role, name).load()
    declared = found.keys()
    if declared is None:
        raise UsageError(f"the {role} {name!r} has no table in problem files, so no problem can name it")
    if declared.kit:
        module, _, member = declared.kit.partition(":")
        strategy: SearchStrategy[GeneratedProblem] = getattr(import_module(module), member)
        return [strategy]
    plain = metric_problems(shapes=("grid", "points", "clique"), utilities=("distance",))
    if role == "distance":
        plain = metric_problems(shapes=("grid", "points"), utilities=("distance",), every_pair=True)
    named = plain.map(lambda problem: problem.with_key(KEYS[role], name))
    if role != "distance":
        return [named]
    return [metric_problems().filter(lambda problem: problem.get(KEYS[role]) == name), named]


def _distance(instance: MetricInstance[Any]) -> str | None:
    """What is wrong with the distances of a problem, or None."""
    data = instance.data
    metric, n = data.metric, len(data.records)
    i, j = (place.ravel() for place in np.indices((n, n)))
    there, back = metric.between(i, j).reshape(n, n), metric.between(j, i).reshape(n, n)
    if np.isnan(there).any() or (there < 0).any():
        return f"between() gives {there.tolist()}; wanted distances of at least 0"
    if not np.array_equal(there, back):
        return f"there and back differ: {there.tolist()} and {back.tolist()}"
    if there.diagonal().any():
        return f"records are at {there.diagonal().tolist()} from themselves; wanted 0"
    for what, table in (("rows()", metric.rows(np.arange(n))), ("table()", metric.table())):
        if not np.array_equal(table, there):
            return f"{what} gives {table.tolist()}, between() {there.tolist()}"
    if data.crossed:
        crossed = metric.to_outputs()
        if crossed.shape != data.shape or np.isnan(crossed).any() or (crossed < 0).any():
            return f"to_outputs() gives {crossed.tolist()}; wanted distances of shape {data.shape}"
        if not np.array_equal(metric.to_outputs(np.arange(n)[::-1]), crossed[::-1]):
            return "to_outputs(i) gives other rows than to_outputs()"
        if metric.own_outputs and np.abs(crossed - there).max() > TOLERANCE * max(1.0, float(there.max())):
            return f"the outputs are the records, and to_outputs() gives {crossed.tolist()}, not {there.tolist()}"
    for within in np.unique(there[np.isfinite(there) & (there > 0)]).tolist():
        pairs, distances = metric.neighbours(within)
        wanted = np.argwhere(np.triu(there <= within, 1))
        same = np.array_equal(np.asarray(pairs).reshape(-1, 2), wanted)
        if not same or not np.array_equal(distances, there[tuple(wanted.T)]):
            return f"neighbours({within!r}) gives {np.asarray(pairs).tolist()}; between() says {wanted.tolist()}"
    return None


def _loss(instance: MetricInstance[Any]) -> str | None:
    """What is wrong with the losses of a problem, or None; shape and finiteness are held when it is loaded."""
    data, utility = instance.data, instance.declared.utility
    own = instance.declared.outputs is None
    spaces = Spaces(records=data.records, outputs=data.outputs, own=own, metric=data.metric, file=data.file)
    again = np.asarray(utility.cost(spaces), dtype=np.float64)
    if not np.array_equal(again, data.cost):
        return f"cost() gives {data.cost.tolist()} and then {again.tolist()}"
    unit = utility.unit(data.unit)
    return None if isinstance(unit, str) and unit.strip() else f"unit() gives {unit!r}; wanted words"


def _notion(instance: MetricInstance[Any]) -> str | None:
    """What is wrong with a notion on a problem, or None."""
    data = instance.data
    n, outputs = data.shape
    constraint = instance.declared.privacy.constraint(data)
    ends, apart = data.pairs % outputs, (data.distances > 0) & np.isfinite(data.distances)
    hypothesis.assume(bool((apart & (ends[:, 0] != ends[:, 1])).any()))
    weights = np.zeros((n, outputs), dtype=np.uint64)
    weights[:, int(data.weighted.sum(axis=0).argmin())] = TOTAL
    constant = MatrixRelease(
        weights=weights,
        records=np.asarray(data.records.ids, dtype=np.str_),
        outputs=np.asarray(data.outputs.ids, dtype=np.str_),
        pairs=data.pairs,
        distances=data.distances,
    )
    if constraint.measure(constant).holds is not True:
        return "a release that is the same for every record does not hold by measure()"
    truth = np.zeros_like(weights)
    truth[np.arange(n), np.arange(n) % outputs] = TOTAL
    if constraint.measure(evolve(constant, weights=truth)).holds is not False:
        return "a release that says which record it is holds by measure()"
    loss = ExpectedLoss.of(data)
    solution = optimal_model(data, constraint, loss).solve("highs", gap=TOLERANCE)
    assert solution.objective is not None  # the constant release is feasible
    least = loss.evaluate(constant)
    if solution.objective > least + LOST * (1 + abs(least)):
        return f"the model's optimum is {solution.objective!r}; a release that holds by measure() costs {least!r}"
    try:
        release = constraint.repair(solution.value("z"), data, SolveContext(method="full", solver="highs"))
    except PrivoptError as error:
        return f"the model's optimum cannot be repaired: {error_text(error)}"
    if constraint.measure(release).holds is not True:
        return "what repair() made of the model's optimum does not hold by measure()"
    spared = _spared(constraint, constant, release, data, loss)
    if spared < solution.objective - LOST * abs(solution.objective) - TOLERANCE * (1 + abs(least)):
        return f"the model's optimum is {solution.objective!r}; nearer the truth holds by measure() at {spared!r}"
    kept = loss.evaluate(release)
    if kept > solution.objective + LOST * (1 + abs(kept)):
        return f"the model's optimum is {solution.objective!r}; what repair() made of it costs {kept!r}"
    return None


def _spared(
    constraint: MatrixConstraint, like: MatrixRelease, kept: MatrixRelease, data: MetricData, loss: ExpectedLoss
) -> float:
    """The loss of a release that keeps a notion, moved towards what costs least as far as it holds by measure().

    A measure that lets pass more than the model's rows allow lets it come below the model's optimum.
    """
    places, best = np.arange(len(kept.weights)), data.weighted.argmin(axis=1)
    for step in range(STEPS):
        part = int(FINE * 0.99 * 0.85**step)
        weights = kept.weights // np.uint64(FINE) * np.uint64(FINE - part)
        weights[places, best] += np.uint64(TOTAL) - weights.sum(axis=1, dtype=np.uint64)
        moved = evolve(like, weights=weights)
        if constraint.measure(moved).holds is True:
            return float(loss.evaluate(moved))
    return math.inf


KIND_CHECKS: Final[dict[str, dict[str, Callable[[MetricInstance[Any]], str | None]]]] = {
    "distance": {"distances": _distance},
    "loss": {"losses": _loss},
    "notion": {"planted-violation": _notion},
}


def _names(role: str) -> list[str]:
    """The checks of a role."""
    if role == "solver":
        return list(BACKEND_CHECKS)
    return list(DECOMPOSER_CHECKS if role == "decomposer" else KIND_CHECKS[role])


def check_kind(role: str, name: str, *, how: Effort | None = None, seed: int = 0) -> list[CheckResult]:
    """Run every check of a registered kind.

    Args:
        role: one of :data:`privopt.specs.ROLES`.
        name: what it is registered as.
        how: the profile; chosen by PRIVOPT_PROFILE where None.
        seed: of what is drawn.

    Raises:
        UnknownNameError: no kind is called so.
        UsageError: it has no table in problem files.
    """
    registered = registry().kind(role, name)
    how = how or effort()
    if role == "solver":
        return check_backend(name, how=how, seed=seed)
    if role == "decomposer":
        return check_decomposer(registered.load()(), how=how, seed=seed)
    problems = _problems(role, name)
    return [_try(check, function, problems, how, seed) for check, function in KIND_CHECKS[role].items()]


def _try(
    check: str,
    function: Callable[[MetricInstance[Any]], str | None],
    problems: Sequence[SearchStrategy[GeneratedProblem]],
    how: Effort,
    seed: int,
) -> CheckResult:
    def one(_: object, data: st.DataObject) -> None:
        problem = data.draw(problems[0])
        with tempfile.TemporaryDirectory() as folder:
            loaded = MetricInstance.of(load_problem(MetricProblem, problem.write(Path(folder))))
            found = function(loaded)
        if found is not None:
            raise FoundError(f"{found}\nsmallest problem found:\n{problem.show()}")

    try:
        return try_solver(check, one, None, how, seed)
    except Unsatisfiable:
        if problems[1:]:
            return _try(check, function, problems[1:], how, seed)
        reason = 'no problem was drawn that names it; wanted kit = "package.module:STRATEGY" on its class'
        return CheckResult(check=check, version=1, status="failed", reason=reason)


def kind_conformance(role: str, name: str, *, how: str | None = None, seed: int = 0) -> Callable[..., None]:
    """A test function that runs every check of a registered kind, one test for each.

    Args:
        role: one of :data:`privopt.specs.ROLES`.
        name: what it is registered as.
        how: dev, ci or nightly; left out: PRIVOPT_PROFILE, else ci.
        seed: of what is drawn.

    Raises:
        PrivoptError: no kind is called so, at collection.
    """
    import pytest

    registry().kind(role, name)
    results: dict[str, CheckResult] = {}

    @pytest.mark.parametrize("check", _names(role))
    def conforms(check: str) -> None:
        if not results:
            results.update({found.check: found for found in check_kind(role, name, how=effort(how), seed=seed)})
        found = results[check]
        if found.status == "failed":
            pytest.fail(f"{role} {name}: {check}: {found.reason}", pytrace=False)
        if found.status == "skipped":
            pytest.skip(found.reason)

    conforms.__doc__ = f"Conformance of the {role} {name}."
    return conforms
