"""Check an obfuscation matrix by the kit's own exact computation, and the samples of what draws for a place."""

from __future__ import annotations

import math
import os
import select
import signal
import warnings
from collections import Counter
from fractions import Fraction
from typing import Any, Final

import numpy as np

from privopt.numbers.binomial import clopper_pearson
from privopt.numbers.sampling import TOTAL
from privopt.testing.checks.base import Trial, check
from privopt.testing.checks.forged import Forgery, arrays_of, packed, unnoticed
from privopt.testing.checks.loss import near
from privopt.testing.checks.neighbours import LOG_RATIO_ERROR
from privopt.testing.checks.samples import CONFIDENCE, come_otherwise, required
from privopt.testing.problems import GeneratedProblem
from privopt.testing.under_trial import Run

__all__: list[str] = []

FORK_TIMEOUT_SECONDS: Final = 30.0
"""Seconds that a forked process may take for a few draws."""

SAMPLE_SIZE: Final = 200
"""Samples that two calls do not give alike where none makes up nine tenths of them."""


def _solve_with_weights(trial: Trial) -> tuple[GeneratedProblem, Run, list[list[int]]]:
    """Draw a problem, solve it, and return both with the weights as Python's integers."""
    problem, run = trial.solved()
    weights = getattr(run.release, "weights", None)
    if weights is None or np.ndim(weights) != 2:
        trial.fail("the release has no two-dimensional `weights`; expected integer weights, one row a record", problem)
    return problem, run, [[int(w) for w in row] for row in np.asarray(weights).tolist()]


def greatest_log_ratio(x: int, y: int, allowed: Fraction) -> tuple[float, bool]:
    """Return log(one / two) of two positive integers, and whether it is proved to be at most ``allowed``."""
    import mpmath

    ratio = math.log(x) - math.log(y)
    if abs(ratio - float(allowed)) > 1e-9 * max(1.0, abs(ratio)):
        return ratio, ratio <= float(allowed)
    with mpmath.workdps(60):
        exact = mpmath.log(mpmath.mpf(x)) - mpmath.log(mpmath.mpf(y))
        return ratio, bool(exact <= mpmath.mpf(allowed.numerator) / allowed.denominator + mpmath.mpf(10) ** -50)


@check("rows-sum-to-one", version=2, of={"matrix"})
def rows_sum_to_one(trial: Trial) -> None:
    """Check that every row of weights sums to exactly 2**63."""
    problem, _, rows = _solve_with_weights(trial)
    for number, row in enumerate(rows):
        total = sum(row)
        if total != TOTAL:
            trial.fail(
                f"row {number} of the weights sums to 2**63 {total - TOTAL:+d}, so its probabilities sum to "
                f"{total / TOTAL:.17g}; expected exactly 2**63",
                problem,
            )


@check("zeros-on-both-sides", version=2, of={"matrix", "odds"})
def zeros_on_both_sides(trial: Trial) -> None:
    """Check that an output that one record never gives is never given by any that must be like it."""
    problem, run, rows = _solve_with_weights(trial)
    names, outputs = run.release.records, run.release.outputs
    _, pairs, distances = required(trial.subject, run)
    for (i, j), d in zip(pairs.tolist(), distances.tolist(), strict=True):
        for k, (x, y) in enumerate(zip(rows[i], rows[j], strict=True)):
            if (x == 0) != (y == 0) and math.isfinite(d):
                zero, giver = (names[i], names[j]) if x == 0 else (names[j], names[i])
                trial.fail(
                    f"record {zero} never gives output {outputs[k]}, record {giver} at distance {d:g} gives it with "
                    f"probability {max(x, y) / TOTAL:.3g}: whoever sees it knows that it was not {zero}",
                    problem,
                )


@check("epsilon-achieved", version=2, of={"matrix", "odds"})
def epsilon_achieved(trial: Trial) -> None:
    """Check with the kit's own code that no ratio of probabilities is above exp(epsilon d)."""
    problem, run, rows = _solve_with_weights(trial)
    epsilon = Fraction(trial.subject.epsilon(run.problem))
    worst: tuple[float, str] | None = None
    _, pairs, distances = required(trial.subject, run)
    for (i, j), d in zip(pairs.tolist(), distances.tolist(), strict=True):
        allowed = epsilon * Fraction(d)
        for k, (x, y) in enumerate(zip(rows[i], rows[j], strict=True)):
            if x == 0 or y == 0:
                continue  # zeros-on-both-sides
            log_ratio, holds = greatest_log_ratio(max(x, y), min(x, y), allowed)
            if not holds and (worst is None or log_ratio - float(allowed) > worst[0]):
                spent = f"{log_ratio / d:.9g}" if d > 0 else "infinite"
                worst = (
                    log_ratio - float(allowed),
                    (
                        f"records {run.release.records[i]} and {run.release.records[j]} at distance {d:g}, output "
                        f"{run.release.outputs[k]}: log ratio {log_ratio:.9g}, so the epsilon kept is {spent}, not "
                        f"{float(epsilon):g} (allowed log ratio {float(allowed):.9g})"
                    ),
                )
    if worst is not None:
        trial.fail(worst[1], problem)


@check("sampler", version=2, of={"matrix", "sampler"}, share=0.3)
def sampler(trial: Trial) -> None:
    """Check that samples follow the certified weights, and that their order reveals nothing."""
    problem, run, rows = _solve_with_weights(trial)
    number = trial.chance(problem).randrange(len(rows))
    record = str(run.release.records[number])
    samples = run.release.sample(record, trial.effort.draws)
    outputs = [str(output) for output in run.release.outputs]
    if len(samples) != trial.effort.draws:
        trial.fail(f"{trial.effort.draws} samples were asked for, {len(samples)} came", problem)
    strange = sorted(set(samples) - set(outputs))
    if strange:
        trial.fail(f"sample gave {strange[0]!r}, which is none of the outputs", problem)
    count = len(samples)
    probabilities = {output: weight / TOTAL for output, weight in zip(outputs, rows[number], strict=True)}
    wrong = come_otherwise(samples, probabilities)
    if wrong is not None:
        trial.fail(f"of record {record}, output {wrong} by its weight", problem)
    for output in outputs:
        places = np.flatnonzero(np.array(samples) == output)
        hits = len(places)
        if 0 < hits < count:
            spread = math.sqrt((count - hits) * (count + 1) / (12 * hits))
            deviation = abs(float(places.mean()) - (count - 1) / 2) / spread
            if deviation > 7 and count >= 100:
                trial.fail(
                    f"output {output} stands at place {places.mean():.0f} of {count} samples of record {record} on "
                    f"average; independent samples have it near {count / 2:.0f}: the order tells something",
                    problem,
                )


@check("channel-of-weights", of={"matrix"}, share=0.3, min_examples=4)
def channel_of_weights(trial: Trial) -> None:
    """Check that channel() states each probability as the nearest double to its weight, up to its rounding."""
    problem, run, _ = _solve_with_weights(trial)
    release, channel = run.release, run.release.channel()
    if channel is None:
        trial.pass_over("channel() gives None")
    rows = {str(name): row for name, row in zip(release.records, release.weights, strict=True)}
    columns = {str(name): column_index for column_index, name in enumerate(release.outputs)}
    strange = sorted({*map(str, channel.outputs)} ^ {*columns} | {*map(str, channel.inputs)} ^ {*rows})
    if strange:
        trial.fail(f"channel() and the weights do not both have {strange[0]!r}", problem)
    for name, channel_row in zip(channel.inputs, channel.probabilities.tolist(), strict=True):
        for output, probability in zip(channel.outputs, channel_row, strict=True):
            weight = int(rows[str(name)][columns[str(output)]])
            if abs(probability - weight / TOTAL) > LOG_RATIO_ERROR * weight / TOTAL:
                trial.fail(
                    f"channel() says that record {name} gives output {output} with probability {probability:.9g}; its "
                    f"weight says {weight / TOTAL:.9g}",
                    problem,
                )


@check("expected-loss", of={"matrix"}, min_examples=12)
def expected_loss(trial: Trial) -> None:
    """Check that the objective is the loss that prior, cost and weights give over all records, in exact rationals.

    A mechanism whose loss is in another unit than the problem's is judged by a loss of its own.
    """
    problem, run, rows = _solve_with_weights(trial)
    data, objective = getattr(run.problem, "data", None), run.stated.objective
    cost = getattr(data, "cost", None)
    if data is None or cost is None or np.shape(cost) != np.shape(rows) or data.loss_unit != objective.unit:
        trial.pass_over("its loss is not the expected one of a metric problem")
    total = Fraction(0)
    for row, costs, prior in zip(rows, np.asarray(cost).tolist(), np.asarray(data.prior).tolist(), strict=True):
        total += Fraction(prior) * sum((w * Fraction(c) for w, c in zip(row, costs, strict=True)), Fraction(0))
    computed = float(total / TOTAL)
    if not near(objective.value, computed):
        trial.fail(f"objective.value is {objective.value!r}; prior, cost and weights give {computed!r}", problem)


@check("verify-catches-rows", of={"matrix"}, share=0.3)
def verify_catches_rows(trial: Trial) -> None:
    """Verify complains where one record was given an output for certain, and others that must be like it another."""
    problem, run, rows = _solve_with_weights(trial)
    _, pairs, distances = required(trial.subject, run)
    finite_pairs = pairs[np.isfinite(distances)]
    if run.release.artefact and len(finite_pairs) and len(rows[0]) > 1 and finite_pairs[0, 0] < len(rows):
        parts = arrays_of(run.folder / run.release.artefact)
        weights = parts["weights"].copy()
        row, neighbour = finite_pairs[0].tolist()
        output = int(np.argmin(weights[row]))
        weights[row] = 0
        weights[row, output] = TOTAL
        if (weights[neighbour] != weights[row]).any():
            change = f"record {parts['records'][row]} was given output {parts['outputs'][output]} with probability 1"
            changed = packed({**parts, "weights": weights})
            unnoticed(trial, problem, run, Forgery(what=change, file=run.release.artefact, contents=changed))


@check("fresh-samples", version=3, of={"sampler"}, share=0.3, min_examples=3)
def fresh_samples(trial: Trial) -> None:
    """Check that two calls of sample are independent, in two processes too, and that one draw is as one of many."""
    problem, run = trial.solved()
    names = required(trial.subject, run).names
    if not names:
        trial.pass_over("the release names no `records`, and the profile has no `alike`")
    name = trial.chance(problem).choice(names)
    reopened = trial.subject.mechanism_class.release_class.read(run.folder, run.problem)
    samples, second, third = (list(source.sample(name, SAMPLE_SIZE)) for source in (run.release, run.release, reopened))
    for other_samples, which in ((second, "two calls"), (third, "the release, and what was read back of it,")):
        if samples == other_samples and max(map(samples.count, set(samples))) <= 0.9 * SAMPLE_SIZE:
            trial.fail(f"{which} gave the same {SAMPLE_SIZE} samples of {name}: {', '.join(samples[:6])}, ...", problem)
    if trial.once_only("processes"):
        child_samples, second_child = (_sample_in_child(run.release, name) for _ in range(2))
        if (
            child_samples == second_child
            and max(map(child_samples.count, {*child_samples}), default=SAMPLE_SIZE) <= 0.9 * SAMPLE_SIZE
        ):
            trial.fail(
                f"two processes that were forked from this one gave the same {SAMPLE_SIZE} samples of {name}: "
                f"{', '.join(child_samples[:6])}, ...; expected randomness of the operating system at each draw",
                problem,
            )
    many = Counter(run.release.sample(name, 10 * SAMPLE_SIZE))
    single_draws = Counter(output for _ in range(SAMPLE_SIZE) for output in run.release.sample(name, 1))
    for output, hits in single_draws.items():
        error = (1 - CONFIDENCE) / (2 * len(single_draws))
        if clopper_pearson(hits, SAMPLE_SIZE, error)[0] > clopper_pearson(many[output], 10 * SAMPLE_SIZE, error)[1]:
            trial.fail(
                f"one at a time, {hits} of {SAMPLE_SIZE} samples of {name} are {output}; at once {many[output]} of "
                f"{10 * SAMPLE_SIZE}: they are not drawn alike",
                problem,
            )


def _sample_in_child(release: Any, name: str) -> list[str]:
    """Return samples drawn in a forked process; none if processes cannot be forked, or this one does not end."""
    if not hasattr(os, "fork"):
        return []
    ours, theirs = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # other threads: the child draws, and needs none of them
        child = os.fork()
    if child == 0:
        try:
            os.write(theirs, "\n".join(release.sample(name, SAMPLE_SIZE)).encode())
        finally:
            os._exit(0)
    os.close(theirs)
    with open(ours, encoding="utf-8") as stream:
        ended = bool(select.select([stream], [], [], FORK_TIMEOUT_SECONDS)[0])
        if not ended:
            os.kill(child, signal.SIGKILL)
        output = stream.read()
    os.waitpid(child, 0)
    return output.split("\n") if output else []


@check("input-order", of={"matrix"})
def input_order(trial: Trial) -> None:
    """Check that rows and columns of the artefact keep the order of the input."""
    problem = trial.problem()
    attempt = trial.attempt(problem)
    run = attempt if attempt.release is not None else trial.run(problem)  # the pipeline refuses another order, too
    data: Any = getattr(run.problem, "data", None)
    if data is None:
        return
    for name, input_ids in (("records", data.records.ids), ("outputs", data.outputs.ids)):
        release_ids = [str(x) for x in getattr(run.release, name)]
        ordered_ids = [x for x in map(str, input_ids) if x in set(release_ids)]
        if release_ids != ordered_ids:
            actual, expected = ", ".join(release_ids[:6]), ", ".join(ordered_ids[:6])
            trial.fail(f"the release's {name} are in the order {actual}; the input's order is {expected}", problem)
