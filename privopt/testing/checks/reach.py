"""A check on the noise that a release of counts describes in its ``channel()``.

The reach for a probability p is a bound that the noise's absolute value exceeds with probability at most p. The
confidence intervals of estimates are computed from the reach given by the release. If that reach were too small, the
intervals would miss the true value too often.
"""

from __future__ import annotations

import math
from typing import Any, Final

from privopt.interfaces import NoisyCounts
from privopt.interfaces.abilities import channel_of
from privopt.run.verify import load_release
from privopt.testing.checks.base import Elsewhere, Trial, at_epsilon_one, check
from privopt.testing.checks.channel import states_channel
from privopt.testing.checks.samples import CONFIDENCE
from privopt.testing.noise import watch_noise
from privopt.testing.problems import GeneratedProblem

__all__: list[str] = []

SHARES: Final = (0.5, 0.1, 0.01)
"""The probabilities for which the given reach is compared with drawn noise."""

MIN_NOISE_DRAWS: Final = 1000
"""The minimum number of noise values to draw.

With this number, a reach that is half the true one goes undetected in fewer than one in ten million runs (by the
binomial distribution, for discrete Laplace noise with scale 1). With 400 draws, it would go undetected in one run in
forty.
"""


@check("reach", version=2, of={"noise"}, needs=states_channel, share=0.3, min_examples=4)
def reach(trial: Trial) -> None:
    """Check that the noise in counts exceeds the reach stated by ``channel()`` no more often than it should.

    The reach for a probability p is a bound that the absolute noise in a count exceeds with probability at most p. The
    check uses an epsilon of 1. With a large epsilon, almost all noise would be 0, so even a reach that is half the true
    one would pass.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    from scipy.special import bdtrc

    problem = at_epsilon_one(trial.problem())
    stated_noise = _load_stated_noise(trial, problem)
    if not len(stated_noise.inputs) or not trial.once_only("a thousand draws of noise"):
        trial.be_idle()
        return
    noises: list[Any] = []
    for _ in range(math.ceil(MIN_NOISE_DRAWS / len(stated_noise.inputs))):
        with watch_noise() as calls:
            trial.subject.outcome(trial.subject.load(problem))
        if sum(len(call.values) for call in calls) != len(stated_noise.inputs):
            trial.pass_over("not one noise of privopt.numbers.noise was drawn for each input of channel()")
        noises += [abs(noise) for call in calls for noise in (call.noisy - call.values).tolist()]
    for probability in SHARES:
        excess_count = sum(noise > stated_noise.reach(probability) for noise in noises)
        # bdtrc(k - 1, n, p) is the probability of at least k hits. The error probability is split among SHARES.
        if excess_count and bdtrc(excess_count - 1, len(noises), probability) < (1 - CONFIDENCE) / len(SHARES):
            trial.fail(
                f"channel() says that noise exceeds {stated_noise.reach(probability):g} with probability "
                f"{probability:g} at most; {excess_count} of {len(noises)} draws do",
                problem,
            )


def _load_stated_noise(trial: Trial, problem: GeneratedProblem) -> NoisyCounts:
    """Solve a problem, and return the noise in counts described by the release's ``channel()``.

    If the release's channel does not describe noise in counts, the example is discarded.

    Args:
        trial: A single run of the check.
        problem: The problem to solve.
    """
    run = trial.run(problem)
    with trial.subject.registered():
        opened = load_release(run.folder)
        stated_noise = channel_of(opened.mechanism, opened.problem, opened.release)  # as estimates do
    if not isinstance(stated_noise, NoisyCounts):
        trial.pass_over(Elsewhere("channel() states no noise of counts"))
    return stated_noise
