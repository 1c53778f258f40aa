"""Checks of the kinds of distance, loss and privacy notion registered by plugins for metric problems."""

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
"""The largest relative difference attributed to rounding, and the optimality gap to which models are solved."""


LOSS_TOLERANCE: Final = 0.02
"""The allowed relative difference between a model's optimum and the loss of a release accepted by measure()."""


ALLOWED: Final = f"they may differ by {LOSS_TOLERANCE:.0%}"
"""The end of a message about two losses that differ too much."""


NOTES: Final = {"planted-violation": f"a difference in loss of up to {LOSS_TOLERANCE:.0%} is not detected"}
"""Notes to add to the results of passed checks, by the name of the check."""


MAX_STEPS: Final = 40
"""The maximum number of attempts to move a release towards the truth, each with a smaller move than the one before."""


FINE: Final = 1 << 16
"""The number of equal parts into which a weight is divided to move a release towards the truth."""


KEYS: Final = {"distance": "distance.kind", "loss": "utility.kind", "notion": "privacy.kind"}
"""For each role, the key in a problem file that names the kind."""


def _kind_problems(role: str, name: str) -> list[SearchStrategy[GeneratedProblem]]:
    """Return strategies that draw problems of a given kind, in the order in which to try them.

    If the kind defines its own strategy, only that one is returned. Otherwise, the first strategy draws generated
    problems and keeps those that use the kind, and the second one changes problems so that they use it, which may make
    them invalid. For a notion, only the second strategy is returned.

    Args:
        role: "distance", "loss" or "notion".
        name: The name of the kind.

    Raises:
        UnknownNameError: No kind with this role and name is registered.
    """
    declared = registry().kind(role, name).load().keys()
    # A kind can name a strategy as "package.module:STRATEGY".
    if declared.kit:
        module, _, member = declared.kit.partition(":")
        strategy: SearchStrategy[GeneratedProblem] = getattr(import_module(module), member)
        return [strategy]
    problems = metric_problems(shapes=("grid", "points", "clique"), utilities=("distance",))
    # A kind of distance may require coordinates, and a limit on neighbours would not fit other distances than the
    # kit's.
    if role == "distance":
        problems = metric_problems(shapes=("grid", "points"), utilities=("distance",), every_pair=True)
    named = problems.map(lambda problem: problem.with_key(KEYS[role], name))
    if role == "notion":
        return [named]
    # Problems that were generated with the kind suit it. Changed ones may contain places that it rejects, or lack its
    # keys.
    return [metric_problems().filter(lambda problem: problem.get(KEYS[role]) == name), named]


def _check_distance(instance: MetricInstance[Any], problem: GeneratedProblem) -> str | None:
    """Check a kind of distance on a problem, and describe the first fault found.

    Distances must be non-negative and symmetric, and 0 from a record to itself. All methods of the metric must return
    the same doubles.

    Args:
        instance: The loaded problem, which uses the kind under test.
        problem: Not used, but required by the interface shared by all such checks.

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
        # Passing the records in reverse order shows whether the method ignores its argument.
        if not np.array_equal(metric.to_outputs(np.arange(n)[::-1]), crossed[::-1]):
            return "to_outputs(i) gives other rows than to_outputs()"
        # Distances between records without a path are infinite, and must be so in both tables.
        tolerance = RELATIVE_TOLERANCE * max(1.0, float(forward[np.isfinite(forward)].max()))
        if metric.own_outputs and not np.allclose(crossed, forward, rtol=0.0, atol=tolerance):
            return f"the outputs are the records, and to_outputs() gives {crossed.tolist()}, not {forward.tolist()}"
    # A limit that equals a distance shows whether neighbours() includes the limit, as it must.
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
    """Check a kind of loss on a problem, and describe the first fault found.

    A loss must have a unit and return the same values on every call. Loading the problem has already checked that the
    values are finite and have the right shape.

    Args:
        instance: The loaded problem, which uses the kind under test.
        problem: Not used, but required by the interface shared by all such checks.

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
    """Check a privacy notion on a problem, and describe the first fault found.

    The notion's constraints in the linear model, its ``repair`` and its exact ``measure`` must agree with one another.
    In addition, ``measure`` must accept a constant release and reject a release that reveals the record.

    Args:
        instance: The loaded problem, which uses the notion under test.
        problem: Not used, but required by the interface shared by all such checks.

    Returns:
        A sentence about the fault, or None if the check finds none.
    """
    data = instance.data
    n, outputs = data.shape
    keys = instance.declared.privacy
    constraint: MatrixConstraint = registry().kind("notion", keys.kind).load().from_keys(keys, data)
    # In the release `truth` below, record i always reports output i mod K. `pair_outputs` contains the outputs that the
    # two records of each pair report.
    pair_outputs, is_apart = data.pairs % outputs, (data.distances > 0) & np.isfinite(data.distances)
    # If the records of all pairs at positive, finite distances report the same output, `truth` may be private, so the
    # problem is skipped.
    hypothesis.assume(bool((is_apart & (pair_outputs[:, 0] != pair_outputs[:, 1])).any()))
    # In the constant release, every record reports the output that is cheapest on average.
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
    # This is the planted violation, in which each record always reports the same output.
    if constraint.measure(evolve(constant, weights=truth)).holds is not False:
        return "measure() accepts a release that reveals the record"
    loss = ExpectedLoss.of(data)
    solution = optimal_model(data, constraint, loss).solve("highs", gap=RELATIVE_TOLERANCE)
    assert solution.objective is not None  # the constant release is feasible
    constant_loss = loss.evaluate(constant)
    # The constant release satisfies the notion, so a worse optimum shows that the model's constraints are too strict.
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
    # Conversely, if measure() is less strict than the model's constraints, it accepts a release whose loss is below the
    # optimum. This searches for such a release between the repaired optimum and the truth.
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
    """Move a release as far as possible towards each record's cheapest output, and return its loss.

    Progressively smaller moves are tried until ``measure`` accepts one. A loss below the linear model's optimum shows
    that ``measure`` accepts releases excluded by the model's constraints.

    Args:
        constraint: The privacy notion on this problem.
        like: A release with the records, outputs and pairs of the problem.
        release: The release to move, which satisfies the notion.
        data: The data of the problem.
        loss: The expected loss.

    Returns:
        The loss after the move, or infinity if ``measure`` accepts none.
    """
    places, best = np.arange(len(release.weights)), data.weighted.argmin(axis=1)
    for step in range(MAX_STEPS):
        # Each row keeps the share 1 - part / FINE of its weights. The first move takes away 99 %, and each further one
        # 15 % less than the one before.
        part = int(FINE * 0.99 * 0.85**step)
        weights = release.weights // np.uint64(FINE) * np.uint64(FINE - part)
        # The cheapest output gets what is missing, so that rows still sum to exactly 2**63.
        weights[places, best] += np.uint64(TOTAL) - weights.sum(axis=1, dtype=np.uint64)
        moved = evolve(like, weights=weights)
        if constraint.measure(moved).holds is True:
            return float(loss.evaluate(moved))
    return math.inf


def _check_release(instance: MetricInstance[Any], problem: GeneratedProblem) -> str | None:
    """Solve a problem with a privacy notion, verify the release, and describe the first fault found.

    The check is repeated on a variant of the problem with four places on a line.

    Args:
        instance: Not used, but required by the interface shared by all such checks.
        problem: A problem that uses the notion under test.

    Returns:
        A sentence about the fault, or None if all releases pass verification.
    """
    # The "full" method supports any notion, because it uses the constraints that the notion adds to the linear model.
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

    Under metric DP, the constraints on neighbouring places on a line imply the constraints on all other pairs. Under
    other notions, this need not be the case, so the new problem tests whether a release is still certified for all
    pairs.
    """
    line = problem.without_key("outputs").without_key("privacy.neighbours_within")
    line = line.with_key("records", {"grid": {"rows": 1, "cols": 4, "cell_km": 1}})
    return line.with_key("distance", {"kind": "euclidean"}).with_key("utility", {"kind": "distance"})


def _describe_line(tried: GeneratedProblem, original: GeneratedProblem) -> str:
    """Return an empty string for the original problem, or a description of the variant with places on a line."""
    return "" if tried is original else f"\nfour places on a line instead:\n{tried.toml}"


KindCheck = Callable[[MetricInstance[Any], GeneratedProblem], str | None]


KIND_CHECKS: Final[dict[str, dict[str, KindCheck]]] = {
    "distance": {"distances": _check_distance},
    "loss": {"losses": _check_loss},
    "notion": {"planted-violation": _check_notion, "released": _check_release},
}


def _run_kind_check(role: str, check: str, name: str, how: Effort, seed: int) -> CheckResult:
    """Run a check of a registered kind on generated problems.

    Args:
        role: "distance", "loss" or "notion".
        check: The name of the check, which is a key of ``KIND_CHECKS[role]``.
        name: The name of the kind under test.
        how: The effort, which determines how many examples are run.
        seed: The seed with which problems are generated.

    Returns:
        The result for the first strategy that yields examples. If none does, the check counts as failed, because
        nothing was checked. If the kind has no table in problem files, the check is not applicable.
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
