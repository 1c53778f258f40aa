"""A check on a release's ``channel()``, from which estimates and posteriors are computed.

The channel's probabilities must satisfy the guarantee, and draws from the release must follow them.
"""

from __future__ import annotations

import math
from collections import Counter

from privopt.interfaces import Channel, NoisyCounts, Release
from privopt.interfaces.abilities import HasChannel, channel_of
from privopt.run.verify import load_release
from privopt.testing.checks.base import Elsewhere, Trial, check
from privopt.testing.checks.neighbours import excess
from privopt.testing.checks.samples import Alike, find_odd_frequency, required_pairs
from privopt.testing.problems import GeneratedProblem
from privopt.testing.under_trial import Run, Subject


def states_channel(subject: Subject) -> str | None:
    """Return the reason why the method's releases have no channel, or None if they have one.

    A channel gives the probability of each report for each secret. The reason has the type ``Elsewhere``, because the
    check does not apply to such methods.
    """
    # Estimates use the channel that the mechanism makes from the problem and the release, if any, rather than the
    # release's own.
    is_stated = isinstance(subject.mechanism, HasChannel)
    if not is_stated and subject.mechanism_class.release_class.channel is Release.channel:
        return Elsewhere("the release states no `channel`: only its draws tell (epsilon-attack)")
    return None


@check("channel", version=2, needs=states_channel, share=0.3, min_examples=4)
def channel(trial: Trial) -> None:
    """Check that the probabilities in ``channel()`` satisfy the guarantee and match the frequencies of drawn reports.

    A channel gives the probability of each report for each secret.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem, run = trial.draw_run()
    with trial.subject.registered():
        opened = load_release(run.folder)
        stated_channel = channel_of(opened.mechanism, opened.problem, opened.release)  # as estimates do
    if stated_channel is None:
        trial.pass_over("channel() gives None")
    if isinstance(stated_channel, NoisyCounts):
        trial.pass_over(Elsewhere("channel() states the noise of counts: see the check reach"))
    names = [[str(name) for name in labels] for labels in (stated_channel.inputs, stated_channel.outputs)]
    for side_name, labels in zip(("inputs", "outputs"), names, strict=True):
        duplicates = [name for name, count in Counter(labels).items() if count > 1]
        if duplicates:
            trial.fail(f"channel() has {duplicates[0]!r} twice among its {side_name}", problem)
    must_be_alike = required_pairs(trial.subject, run)
    # A channel made by the mechanism need not contain all records, but a release's own channel must.
    missing_names = sorted({*must_be_alike.names} - {*names[0]})
    if missing_names and not isinstance(opened.mechanism, HasChannel):
        trial.fail(f"channel() has no row for {missing_names[0]!r}", problem)
    _check_stated_odds(trial, problem, run, stated_channel, must_be_alike)
    if "sampler" in trial.subject.traits:
        _check_draws(trial, problem, opened.release, stated_channel)


def _check_stated_odds(
    trial: Trial, problem: GeneratedProblem, run: Run, stated_channel: Channel, must_be_alike: Alike
) -> None:
    """Fail if the channel's probabilities for two inputs differ by more than the privacy notion allows.

    Only pairs of inputs covered by the guarantee are compared.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
        problem: The problem to show in messages.
        run: The run of the pipeline that produced the release.
        stated_channel: The release's channel.
        must_be_alike: The pairs of inputs that the guarantee must make hard to distinguish, with their distances.
    """
    subject = trial.subject
    # The pairs (epsilon, delta) that the claim implies, for inputs at distance 1.
    curve = subject.notion.curve(subject.claim_of(run.problem)) if subject.traits & {"odds", "tails"} else ()
    row = {str(name): index for index, name in enumerate(stated_channel.inputs)}
    # A channel made by the mechanism may have rows for only some records, such as the problem's public places.
    compared = [all(must_be_alike.names[index] in row for index in pair) for pair in must_be_alike.pairs.tolist()]
    if not any(compared):
        trial.be_idle("channel() has rows for no two inputs that must be alike")
    pairs, distances = must_be_alike.pairs[compared], must_be_alike.distances[compared]
    for (i, j), distance in zip(pairs.tolist(), distances.tolist(), strict=True):
        first, second = (stated_channel.probabilities[row[must_be_alike.names[index]]] for index in (i, j))
        # There is no bound at an infinite distance.
        for epsilon, delta in curve if math.isfinite(distance) else ():
            finding = excess(first, second, epsilon * distance, delta, symmetric=subject.notion.symmetric)
            if finding is not None:
                outputs = "all outputs together" if delta else f"output {stated_channel.outputs[finding[0]]}"
                trial.fail(
                    f"channel() gives {outputs} such probabilities for {must_be_alike.names[i]} and "
                    f"{must_be_alike.names[j]}, at distance {distance:g}, "
                    f"that {finding[1]}; epsilon allows {epsilon * distance:.6g}"
                    + (f" with a delta of {delta:.4g}" if delta else ""),
                    problem,
                )


def _check_draws(trial: Trial, problem: GeneratedProblem, release: Release, stated_channel: Channel) -> None:
    """Fail if the frequencies of reports drawn for a randomly chosen input contradict the channel's probabilities.

    Args:
        trial: A single run of the check.
        problem: The problem to show in messages. It also determines the random choice of the input.
        release: The release to draw reports from.
        stated_channel: The release's channel.
    """
    row_number = trial.chance(problem).randrange(len(stated_channel.inputs))
    # One input per example is enough, because other examples choose other inputs.
    name, count = str(stated_channel.inputs[row_number]), trial.effort.draws
    outputs = release.sample(name, count)
    chances = dict(
        zip(map(str, stated_channel.outputs), stated_channel.probabilities[row_number].tolist(), strict=True)
    )
    unknown_outputs = sorted(set(outputs) - set(chances))
    if unknown_outputs:
        trial.fail(f"sample gave {unknown_outputs[0]!r} for {name}, which is none of the outputs of channel()", problem)
    finding = find_odd_frequency(outputs, chances)
    if finding is not None:
        trial.fail(f"of {name}, output {finding} by channel()", problem)
