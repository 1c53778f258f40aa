"""Checks for the kinds of distance, loss and privacy notion that plugins register for metric problems."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import hypothesis
import numpy as np
from attrs import evolve
from hypothesis.strategies import SearchStrategy

from privopt.declare import load_problem
from privopt.errors import InputError, PrivoptError
from privopt.interfaces import SolveContext
from privopt.numbers.sampling import TOTAL
from privopt.registry import registry
from privopt.run.verify import verify
from privopt.testing.checks.base import CheckFailedError
from privopt.testing.efforts import Effort
from privopt.testing.problems import GeneratedProblem
from privopt.testing.runner import CheckResult, run_examples
from privopt.testing.under_trial import error_text, subject
from privopt_metric_dp.kit.problems import metric_problems
from privopt_metric_dp.matrix.expected_loss import ExpectedLoss
from privopt_metric_dp.matrix.privacy import MatrixConstraint
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.mechanisms.optimal_lp import optimal_model
from privopt_metric_dp.problem.data import MetricData, MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem, Spaces

if TYPE_CHECKING:
    from hypothesis import strategies as st

__all__ = ["distances", "losses", "planted_violation", "released"]

RELATIVE_TOLERANCE: Final = 1e-9
"""The largest relative difference that is attributed to rounding. Models are also solved to this optimality gap."""


LOSS_TOLERANCE: Final = 0.02
"""The allowed relative difference between the optimum of a model and the loss of a release that measure() accepts."""


ALLOWED: Final = f"they may differ by {LOSS_TOLERANCE:.0%}"
"""The end of messages about two losses that differ too much."""


NOTES: Final = {"planted-violation": f"a difference in loss of up to {LOSS_TOLERANCE:.0%} is not detected"}
"""Notes that are added to the results of checks that passed, keyed by the name of the check."""


MAX_STEPS: Final = 40
"""Maximum number of attempts to move a release towards the truth. Each attempt moves it less far than the previous
one."""


FINE: Final = 1 << 16
"""Number of equal parts into which a weight is divided when a release is moved towards the truth."""


KEYS: Final = {"distance": "distance.kind", "loss": "utility.kind", "notion": "privacy.kind"}
"""For each role, the key of a problem file that names the kind."""


def _kind_problems(role: str, name: str) -> list[SearchStrategy[GeneratedProblem]]:
    """Return strategies for problems that use a given kind, in the order in which to try them.

    If the kind defines a strategy, only that strategy is returned. If not, the first strategy draws those problems of
    the kit that already use the kind. The second strategy changes problems so that they use it; a changed problem may
    be invalid for the kind. For a notion, only the second strategy is returned.

    Args:
        role: "distance", "loss" or "notion".
        name: The name of the kind.

    Raises:
        UnknownNameError: No kind with this role and name is registered.
    """
    declared = registry().kind(role, name).load().keys()
    # A kind may name its own strategy as "package.module:STRATEGY".
    if declared.kit:
        module, _, member = declared.kit.partition(":")
        strategy: SearchStrategy[GeneratedProblem] = getattr(import_module(module), member)
        return [strategy]
    problems = metric_problems(shapes=("grid", "points", "clique"), utilities=("distance",))
    # A kind of distance may need places with coordinates, and the kit's limits on neighbours would not fit its
    # distances.
    if role == "distance":
        problems = metric_problems(shapes=("grid", "points"), utilities=("distance",), every_pair=True)
    named = problems.map(lambda problem: problem.with_key(KEYS[role], name))
    if role == "notion":
        return [named]
    # Generated problems that already name the kind suit it. Those that are changed to name it may contain places that
    # it refuses, or lack its keys.
    return [metric_problems().filter(lambda problem: problem.get(KEYS[role]) == name), named]


def _check_distance(instance: MetricInstance[Any], problem: GeneratedProblem) -> str | None:
    """Check a kind of distance on a problem, and describe the first fault.

    Distances must be non-negative, symmetric and 0 on the diagonal. All methods of the metric must return the same
    doubles.

    Args:
        instance: The loaded problem, which uses the kind under test.
        problem: Unused. All checks of kinds take the same parameters.

    Returns:
        A sentence about the fault, or None if the check finds none.
    """
    data = instance.data
    metric, n = data.metric, len(data.records)
    i, j = (index.ravel() for index in np.indices((n, n)))
    forward, back = metric.between(i, j).reshape(n, n), metric.between(j, i).reshape(n, n)
    if np.isnan(forward).any() or (forward < 0).any():
        return f"between() gives {forward.tolist()}; expected distances of at least 0"
    if not np.array_equal(forward, back):
        return f"there and back differ: {forward.tolist()} and {back.tolist()}"
    if forward.diagonal().any():
        return f"records are at {forward.diagonal().tolist()} from themselves; expected 0"
    for method, table in (("rows()", metric.rows(np.arange(n))), ("table()", metric.table())):
        if not np.array_equal(table, forward):
            return f"{method} gives {table.tolist()}, between() {forward.tolist()}"
    if data.crossed:
        crossed = metric.to_outputs()
        if crossed.shape != data.shape or np.isnan(crossed).any() or (crossed < 0).any():
            return f"to_outputs() gives {crossed.tolist()}; expected distances of shape {data.shape}"
        # Records in reversed order show whether the method ignores its argument.
        if not np.array_equal(metric.to_outputs(np.arange(n)[::-1]), crossed[::-1]):
            return "to_outputs(i) gives other rows than to_outputs()"
        # Distances without a path are infinite, and must be so in both tables.
        tolerance = RELATIVE_TOLERANCE * max(1.0, float(forward[np.isfinite(forward)].max()))
        if metric.own_outputs and not np.allclose(crossed, forward, rtol=0.0, atol=tolerance):
            return f"the outputs are the records, and to_outputs() gives {crossed.tolist()}, not {forward.tolist()}"
    # Limits that equal a distance show whether neighbours() includes the limit, as it must.
    for within in np.unique(forward[np.isfinite(forward) & (forward > 0)]).tolist():
        pairs, distances = metric.neighbours(within)
        expected_pairs = np.argwhere(np.triu(forward <= within, 1))
        has_same_pairs = np.array_equal(np.asarray(pairs).reshape(-1, 2), expected_pairs)
        if not has_same_pairs or not np.array_equal(distances, forward[tuple(expected_pairs.T)]):
            return (
                f"neighbours({within!r}) gives {np.asarray(pairs).tolist()}; between() says {expected_pairs.tolist()}"
            )
    return None


def _check_loss(instance: MetricInstance[Any], problem: GeneratedProblem) -> str | None:
    """Check a kind of loss on a problem, and describe the first fault.

    A loss must have a unit, and must return the same values on every call. Loading the problem has already checked that
    the values are finite and have the right shape.

    Args:
        instance: The loaded problem, which uses the kind under test.
        problem: Unused. All checks of kinds take the same parameters.

    Returns:
        A sentence about the fault, or None if the check finds none.
    """
    data, utility = instance.data, instance.declared.utility
    has_own_outputs = instance.declared.outputs is None
    spaces = Spaces(records=data.records, outputs=data.outputs, own=has_own_outputs, metric=data.metric, file=data.file)
    recomputed = np.asarray(utility.cost(spaces), dtype=np.float64)
    if not np.array_equal(recomputed, data.cost):
        return f"cost() gives {data.cost.tolist()} and then {recomputed.tolist()}"
    unit = utility.unit(data.unit)
    return None if isinstance(unit, str) and unit.strip() else f"unit() gives {unit!r}; expected words"


def _check_notion(instance: MetricInstance[Any], problem: GeneratedProblem) -> str | None:
    """Check a privacy notion on a problem, and describe the first fault.

    Three parts of the notion must agree: the constraints that it adds to the linear model, its ``repair`` and its exact
    ``measure``. In addition, ``measure`` must accept a constant release and reject a release that reveals the record.

    Args:
        instance: The loaded problem, which uses the notion under test.
        problem: Unused. All checks of kinds take the same parameters.

    Returns:
        A sentence about the fault, or None if the check finds none.
    """
    data = instance.data
    n, outputs = data.shape
    keys = instance.declared.privacy
    constraint: MatrixConstraint = registry().kind("notion", keys.kind).load().from_keys(keys, data)
    # In the release `truth` below, record i reports output i mod K with certainty. `pair_outputs` contains the outputs
    # that each pair's two records report.
    pair_outputs, is_apart = data.pairs % outputs, (data.distances > 0) & np.isfinite(data.distances)
    # If the two records of every pair at a positive, finite distance reported the same output, `truth` might be
    # private. Such problems are skipped.
    hypothesis.assume(bool((is_apart & (pair_outputs[:, 0] != pair_outputs[:, 1])).any()))
    # In the constant release, all records report the output that is cheapest on average.
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
        return "measure() rejects a release that is the same for every record"
    truth = np.zeros_like(weights)
    truth[np.arange(n), np.arange(n) % outputs] = TOTAL
    # In the planted violation, each record reports one output with certainty.
    if constraint.measure(evolve(constant, weights=truth)).holds is not False:
        return "measure() accepts a release that reveals the record"
    loss = ExpectedLoss.of(data)
    solution = optimal_model(data, constraint, loss).solve("highs", gap=RELATIVE_TOLERANCE)
    assert solution.objective is not None  # the constant release is feasible
    constant_loss = loss.evaluate(constant)
    # The constant release satisfies the notion, so a worse optimum shows that the model's rows are too strict.
    if solution.objective > constant_loss + LOSS_TOLERANCE * (1 + abs(constant_loss)):
        return (
            f"the model's optimum is {solution.objective!r}; measure() accepts a release with a smaller loss, "
            f"{constant_loss!r}: {ALLOWED}"
        )
    try:
        release = constraint.repair(solution.value("z"), data, SolveContext(method="full", solver="highs"))
    except PrivoptError as error:
        return f"the model's optimum cannot be repaired: {error_text(error)}"
    if constraint.measure(release).holds is not True:
        return "measure() rejects what repair() made of the model's optimum"
    # Now the other direction: if measure() is weaker than the model's rows, it accepts some release whose loss is lower
    # than the optimum. Such a release is looked for between the repaired optimum and the truth.
    moved_loss = _loss_towards_truth(constraint, constant, release, data, loss)
    if moved_loss < solution.objective - LOSS_TOLERANCE * abs(solution.objective) - RELATIVE_TOLERANCE * (
        1 + abs(constant_loss)
    ):
        evidence = f"nearer the truth measure() accepts a release with loss {moved_loss!r}"
        return f"the model's optimum is {solution.objective!r}; {evidence}: {ALLOWED}"
    release_loss = loss.evaluate(release)
    if release_loss > solution.objective + LOSS_TOLERANCE * (1 + abs(release_loss)):
        return (
            f"the model's optimum is {solution.objective!r}; what repair() made of it has loss {release_loss!r}: "
            f"{ALLOWED}"
        )
    return None


def _loss_towards_truth(
    constraint: MatrixConstraint, like: MatrixRelease, release: MatrixRelease, data: MetricData, loss: ExpectedLoss
) -> float:
    """Return the loss of a release after moving it as far as possible towards each record's cheapest output.

    Moves are tried in order from the farthest to the shortest, until ``measure`` accepts one. A loss below the optimum
    of the linear model shows that ``measure`` accepts releases that the constraints of the model exclude.

    Args:
        constraint: The privacy notion on this problem.
        like: A release with the records, outputs and pairs of the problem.
        release: The release to move, which satisfies the notion.
        data: The data of the problem.
        loss: The expected loss.

    Returns:
        The loss after the move, or infinity if ``measure`` accepts no move.
    """
    places, best = np.arange(len(release.weights)), data.weighted.argmin(axis=1)
    for step in range(MAX_STEPS):
        # Each row keeps the share 1 - part / FINE of its weights. The first move takes 99 % of them, and each further
        # move 15 % less than the previous one.
        part = int(FINE * 0.99 * 0.85**step)
        weights = release.weights // np.uint64(FINE) * np.uint64(FINE - part)
        # What is missing from 2**63 is added to the cheapest output, so that rows still sum to it exactly.
        weights[places, best] += np.uint64(TOTAL) - weights.sum(axis=1, dtype=np.uint64)
        moved = evolve(like, weights=weights)
        if constraint.measure(moved).holds is True:
            return float(loss.evaluate(moved))
    return math.inf


def _check_release(instance: MetricInstance[Any], problem: GeneratedProblem) -> str | None:
    """Solve and verify a problem with a privacy notion, and describe the first fault.

    The check is repeated on a variant of the problem with four places on a line.

    Args:
        instance: Unused. All checks of kinds take the same parameters.
        problem: A problem that uses the notion under test.

    Returns:
        A sentence about the fault, or None if all releases verify.
    """
    # The "full" method solves for any notion, using the rows of the notion's linear model.
    tried = subject("optimal-lp", "full")
    try:
        for candidate in (problem, _move_to_line(problem)):
            run = tried.run(candidate, solver="highs")
            if candidate is not problem and isinstance(run.error, InputError):
                continue  # the notion does not accept places on a line
            if run.error is not None:
                line = _describe_line(candidate, problem)
                return f"optimal-lp --method full makes no release: {error_text(run.error)}{line}"
            with tried.registered():
                complaints = verify(run.folder).complaints
            if complaints:
                line = _describe_line(candidate, problem)
                return f"verify refuses a release of optimal-lp --method full: {complaints[0]}{line}"
    finally:
        tried.close()
    return None


def _move_to_line(problem: GeneratedProblem) -> GeneratedProblem:
    """Replace the places in a problem with four places on a line, keeping its privacy notion.

    Under metric DP, the pairs of neighbouring places on a line imply all other pairs. For other notions, this may be
    false. The new problem tests that such a notion is still certified for all pairs.
    """
    line = problem.without_key("outputs").without_key("privacy.neighbours_within")
    line = line.with_key("records", {"grid": {"rows": 1, "cols": 4, "cell_km": 1}})
    return line.with_key("distance", {"kind": "euclidean"}).with_key("utility", {"kind": "distance"})


def _describe_line(tried: GeneratedProblem, original: GeneratedProblem) -> str:
    """Return "" if ``tried`` is the original problem, or else a description of the variant with places on a line."""
    return "" if tried is original else f"\nfour places on a line instead:\n{tried.toml}"


KindCheck = Callable[[MetricInstance[Any], GeneratedProblem], str | None]


KIND_CHECKS: Final[dict[str, dict[str, KindCheck]]] = {
    "distance": {"distances": _check_distance},
    "loss": {"losses": _check_loss},
    "notion": {"planted-violation": _check_notion, "released": _check_release},
}


def _run_kind_check(role: str, check: str, name: str, how: Effort, seed: int) -> CheckResult:
    """Run one check of a registered kind on generated problems.

    Args:
        role: "distance", "loss" or "notion".
        check: The name of the check, a key of ``KIND_CHECKS[role]``.
        name: The name of the kind under test.
        how: The effort, which determines the number of examples.
        seed: The seed for generating problems.

    Returns:
        The result for the first strategy that yields examples. If no strategy does, nothing was checked, and the check
        counts as failed.
    """

    def example(problems: SearchStrategy[GeneratedProblem], data: st.DataObject) -> None:
        """Draw and load a problem, and raise CheckFailedError if the check finds a fault."""
        problem = data.draw(problems)
        with tempfile.TemporaryDirectory() as folder:
            loaded = MetricInstance.of(load_problem(MetricProblem, problem.write(Path(folder))))
            complaint = KIND_CHECKS[role][check](loaded, problem)
        if complaint is not None:
            raise CheckFailedError(complaint, problem)

    if registry().kind(role, name).load().keys() is None:
        reason = (
            f"the {role} {name!r} has no table in problem files, so no metric problem can name it: check a mechanism "
            "that claims it instead (`privopt check`)"
        )
        return CheckResult(check=check, version=1, status="not applicable", reason=reason)
    for problems in _kind_problems(role, name):
        result = run_examples(check, partial(example, problems), how, seed)
        if result.status != "skipped":
            return evolve(result, note=NOTES.get(check, "") if result.status == "passed" else "")
    reason = 'no problem was drawn that names it; expected kit = "package.module:STRATEGY" on its class'
    return evolve(result, status="failed", reason=reason)


distances = partial(_run_kind_check, "distance", "distances")
losses = partial(_run_kind_check, "loss", "losses")
planted_violation = partial(_run_kind_check, "notion", "planted-violation")
released = partial(_run_kind_check, "notion", "released")
