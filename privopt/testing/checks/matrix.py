"""Checks on an obfuscation matrix, using the kit's own exact computation.

Row i of the matrix contains the probability of each output for record i, as an integer weight in units of 2**-63 (1 /
``TOTAL``). Each check takes a ``trial``, which is a single run of the check. The trial is used to draw a problem, solve
it and report findings.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np

from privopt.numbers.sampling import TOTAL
from privopt.testing.checks.base import Elsewhere, Trial, check
from privopt.testing.checks.forged import Forgery, check_noticed, load_arrays, pack_arrays
from privopt.testing.checks.neighbours import LOG_RATIO_ERROR
from privopt.testing.checks.samples import find_odd_frequency, required_pairs, states_direction
from privopt.testing.problems import GeneratedProblem
from privopt.testing.under_trial import Run


def solve_with_weights(trial: Trial) -> tuple[GeneratedProblem, Run, list[list[int]]]:
    """Draw a problem, and solve it to obtain a release with two-dimensional weights.

    Args:
        trial: A single run of the check, which fails if the release has no two-dimensional weights.

    Returns:
        The problem, its run, and the weights as Python integers: one list per record, with one weight per output.
    """
    problem, run = trial.draw_run()
    weights = getattr(run.release, "weights", None)
    if weights is None or np.ndim(weights) != 2:
        trial.fail("the release has no two-dimensional `weights`; expected integer weights, one row a record", problem)
    return problem, run, [[int(w) for w in row] for row in np.asarray(weights).tolist()]


def compare_log_ratio(x: int, y: int, allowed: Fraction) -> tuple[float, bool]:
    """Return log(x / y) for two positive integers, and whether the exact logarithm is at most ``allowed``.

    The comparison uses doubles unless the logarithm is within 1e-9 of the limit (relative to the logarithm if it is
    above 1). In that case, 60 digits are used.
    """
    import mpmath

    ratio = math.log(x) - math.log(y)
    if abs(ratio - float(allowed)) > 1e-9 * max(1.0, abs(ratio)):
        return ratio, ratio <= float(allowed)
    with mpmath.workdps(60):
        # The tolerance of 10^-50 is far above the rounding error with 60 digits, and far below the effect of changing a
        # weight.
        exact = mpmath.log(mpmath.mpf(x)) - mpmath.log(mpmath.mpf(y))
        return ratio, bool(exact <= mpmath.mpf(allowed.numerator) / allowed.denominator + mpmath.mpf(10) ** -50)


@check("rows-sum-to-one", version=2, of={"matrix"})
def rows_sum_to_one(trial: Trial) -> None:
    """Check that every row of weights sums to exactly 2**63.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem, _, rows = solve_with_weights(trial)
    for number, row in enumerate(rows):
        total = sum(row)
        if total != TOTAL:
            trial.fail(
                f"row {number} of the weights sums to 2**63 {total - TOTAL:+d}, so its probabilities sum to "
                f"{total / TOTAL:.17g}; expected exactly 2**63",
                problem,
            )


@check("zeros-on-both-sides", version=3, of={"matrix", "odds"}, needs=states_direction)
def zeros_on_both_sides(trial: Trial) -> None:
    """Check that no output has probability 0 for only one record of a pair covered by the guarantee.

    If the privacy notion is not symmetric, outputs that only the second record of a pair can produce are permitted.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem, run, rows = solve_with_weights(trial)
    names, outputs = run.release.records, run.release.outputs
    _, pairs, distances = required_pairs(trial.subject, run)
    if not np.isfinite(distances).any():
        trial.be_idle()
    for (i, j), d in zip(pairs.tolist(), distances.tolist(), strict=True):
        for k, (x, y) in enumerate(zip(rows[i], rows[j], strict=True)):
            # Without symmetry, only x > 0 with y = 0 is forbidden, because the second record may have additional
            # outputs.
            is_forbidden = (x == 0) != (y == 0) if trial.subject.notion.symmetric else x > 0 and y == 0
            if is_forbidden and math.isfinite(d):
                zero, giver = (names[i], names[j]) if x == 0 else (names[j], names[i])
                trial.fail(
                    f"record {zero} never gives output {outputs[k]}, record {giver} at distance {d:g} gives it with "
                    f"probability {max(x, y) / TOTAL:.3g}: whoever sees it knows that it was not {zero}",
                    problem,
                )


@check("epsilon-achieved", version=3, of={"matrix", "odds"}, needs=states_direction)
def epsilon_achieved(trial: Trial) -> None:
    """Check that the weights satisfy the privacy constraint for every pair covered by the guarantee.

    This uses the kit's own code. For two records at distance d, the ratio of an output's probabilities must be at most
    exp(epsilon d). If the privacy notion is not symmetric, the bound applies only to the first record's probability
    divided by the second's.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem, run, rows = solve_with_weights(trial)
    epsilon = Fraction(trial.subject.epsilon(run.problem))
    worst: tuple[float, str] | None = None
    _, pairs, distances = required_pairs(trial.subject, run)
    if not np.isfinite(distances).any():
        trial.be_idle()
    for (i, j), d in zip(pairs.tolist(), distances.tolist(), strict=True):
        if math.isinf(d):
            continue  # there is no bound at an infinite distance
        allowed = epsilon * Fraction(d)
        for k, (x, y) in enumerate(zip(rows[i], rows[j], strict=True)):
            if x == 0 or y == 0:
                continue  # checked by zeros-on-both-sides
            if x < y and not trial.subject.notion.symmetric:
                continue
            log_ratio, holds = compare_log_ratio(max(x, y), min(x, y), allowed)
            if not holds and (worst is None or log_ratio - float(allowed) > worst[0]):
                spent = f"{log_ratio / d:.9g}" if d > 0 else "infinite"
                worst = (
                    log_ratio - float(allowed),
                    (
                        f"records {run.release.records[i]} and {run.release.records[j]} at distance {d:g}, output "
                        f"{run.release.outputs[k]}: log ratio {log_ratio:.9g}, so the epsilon satisfied is {spent}, "
                        f"not {float(epsilon):g} (allowed log ratio {float(allowed):.9g})"
                    ),
                )
    if worst is not None:
        trial.fail(worst[1], problem)


@check("sampler", version=2, of={"matrix", "sampler"}, share=0.3)
def sampler(trial: Trial) -> None:
    """Check that samples occur with the frequencies given by the certified weights, and in an order that looks random.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem, run, rows = solve_with_weights(trial)
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
    wrong = find_odd_frequency(samples, probabilities)
    if wrong is not None:
        trial.fail(f"of record {record}, output {wrong} by its weight", problem)
    for output in outputs:
        places = np.flatnonzero(np.array(samples) == output)
        hits = len(places)
        if 0 < hits < count:
            # The standard deviation of the mean of ``hits`` positions drawn without replacement from ``count``
            # positions.
            spread = math.sqrt((count - hits) * (count + 1) / (12 * hits))
            deviation = abs(float(places.mean()) - (count - 1) / 2) / spread
            # By chance, a deviation of seven standard deviations occurs about once in 4e11 cases.
            if deviation > 7 and count >= 100:
                trial.fail(
                    f"output {output} stands at place {places.mean():.0f} of {count} samples of record {record} on "
                    f"average; independent samples have it near {count / 2:.0f}: the order tells something",
                    problem,
                )


@check("channel-of-weights", of={"matrix"}, share=0.3, min_examples=4)
def channel_of_weights(trial: Trial) -> None:
    """Check that each probability in ``channel()`` is the weight divided by 2**63, up to rounding.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem, run, _ = solve_with_weights(trial)
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


@check("verify-catches-rows", of={"matrix"}, share=0.3)
def verify_catches_rows(trial: Trial) -> None:
    """Check that ``privopt verify`` rejects a matrix in which a record's row was changed to give a single output.

    The row of a second record, which the guarantee requires to be hard to distinguish from the first, is left
    unchanged. The two rows therefore violate the privacy constraint.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem, run, rows = solve_with_weights(trial)
    _, pairs, distances = required_pairs(trial.subject, run)
    is_finite = np.isfinite(distances)
    finite_pairs = pairs[is_finite]
    if run.release.artefact and len(finite_pairs) and len(rows[0]) > 1 and finite_pairs[0, 0] < len(rows):
        parts = load_arrays(run.folder / run.release.artefact)
        weights = parts["weights"].copy()
        row, neighbour = finite_pairs[0].tolist()
        # Give probability 1 to an unlikely output, so that the change is as large as possible. If the notion is
        # symmetric, this is the row's least likely output, because the neighbour still has the row's former outputs.
        # Otherwise, it is the neighbour's least likely output, because only the row's probability divided by the
        # neighbour's is bounded.
        output = int(np.argmin(weights[row if trial.subject.notion.symmetric else neighbour]))
        weights[row] = 0
        weights[row, output] = TOTAL
        limit = Fraction(trial.subject.epsilon(run.problem)) * Fraction(distances[is_finite][0].item())
        # If only one direction is bounded, a large epsilon may permit even this row.
        is_forbidden = (
            (weights[neighbour] != weights[row]).any()
            if trial.subject.notion.symmetric
            else not compare_log_ratio(TOTAL, max(1, int(weights[neighbour, output])), limit)[1]
        )
        if is_forbidden:
            change = f"record {parts['records'][row]} was given output {parts['outputs'][output]} with probability 1"
            changed = pack_arrays({**parts, "weights": weights})
            check_noticed(trial, problem, run, Forgery(what=change, file=run.release.artefact, contents=changed))
            return
    if not run.release.artefact:
        trial.be_idle(Elsewhere("the release has no archive whose weights could be changed"))
    elif run.stated.guarantee.scope == "own-matrix":
        trial.be_idle(Elsewhere("each user has a matrix of their own, whose rows are not those of the problem's pairs"))
    else:
        trial.be_idle()
