"""Check a release's ``channel()``, on which estimates and posteriors rely."""

from __future__ import annotations

import math
from collections import Counter

from privopt.interfaces import Channel, NoisyCounts, Release
from privopt.run.verify import load_release
from privopt.testing.checks.base import Elsewhere, Trial, check
from privopt.testing.checks.neighbours import excess
from privopt.testing.checks.samples import Alike, come_otherwise, required
from privopt.testing.problems import GeneratedProblem
from privopt.testing.under_trial import Run, Subject


def states_channel(subject: Subject) -> str | None:
    """Return why no channel is checked, or None."""
    if subject.mechanism_class.release_class.channel is Release.channel:
        return Elsewhere("the release states no `channel`: only its draws tell (epsilon-attack)")
    return None


@check("channel", needs=states_channel, share=0.3, min_examples=4)
def channel(trial: Trial) -> None:
    """Check that channel() satisfies epsilon, exactly if it is finite, and agrees with the draws."""
    problem, run = trial.solved()
    with trial.subject.registered():
        release = load_release(run.folder).release  # as estimates open it
    stated = release.channel()
    if stated is None:
        trial.pass_over("channel() gives None")
    if isinstance(stated, NoisyCounts):
        trial.pass_over(Elsewhere("channel() states the noise of counts: see the check reach"))
    names = [[str(name) for name in side] for side in (stated.inputs, stated.outputs)]
    for what, side in zip(("inputs", "outputs"), names, strict=True):
        again = [name for name, count in Counter(side).items() if count > 1]
        if again:
            trial.fail(f"channel() has {again[0]!r} twice among its {what}", problem)
    alike = required(trial.subject, run)
    missing = sorted({*alike.names} - {*names[0]})
    if missing:
        trial.fail(f"channel() has no row for {missing[0]!r}", problem)
    _keeps(trial, problem, run, stated, alike)
    if "sampler" in trial.subject.traits:
        _as_drawn(trial, problem, release, stated)


def _keeps(trial: Trial, problem: GeneratedProblem, run: Run, stated: Channel, alike: Alike) -> None:
    """Fail where stated probabilities of two inputs that must be alike differ by more than the notion allows."""
    subject = trial.subject
    curve = subject.notion.curve(subject.claimed(run.problem)) if subject.traits & {"odds", "tails"} else ()
    row = {str(name): place for place, name in enumerate(stated.inputs)}
    for (i, j), distance in zip(alike.pairs.tolist(), alike.distances.tolist(), strict=True):
        one, two = (stated.probabilities[row[alike.names[place]]] for place in (i, j))
        for epsilon, delta in curve if math.isfinite(distance) else ():
            found = excess(one, two, epsilon * distance, delta)
            if found is not None:
                outputs = "all outputs together" if delta else f"output {stated.outputs[found[0]]}"
                trial.fail(
                    f"channel() gives {outputs} such probabilities for {alike.names[i]} and {alike.names[j]}, at "
                    f"distance {distance:g}, that {found[1]}; epsilon allows {epsilon * distance:.6g}"
                    + (f" beside a delta of {delta:.4g}" if delta else ""),
                    problem,
                )


def _as_drawn(trial: Trial, problem: GeneratedProblem, release: Release, stated: Channel) -> None:
    """Fail where draws for one input come otherwise than their stated probabilities say."""
    place = trial.chance(problem).randrange(len(stated.inputs))
    name, count = str(stated.inputs[place]), trial.effort.draws
    drawn = release.sample(name, count)
    chances = dict(zip(map(str, stated.outputs), stated.probabilities[place].tolist(), strict=True))
    strange = sorted(set(drawn) - set(chances))
    if strange:
        trial.fail(f"sample gave {strange[0]!r} for {name}, which is none of the outputs of channel()", problem)
    wrong = come_otherwise(drawn, chances)
    if wrong is not None:
        trial.fail(f"of {name}, output {wrong} by channel()", problem)
