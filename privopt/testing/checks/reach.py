"""Check the noise that a release of counts states in its ``channel()``: intervals are as wide as its reach."""

from __future__ import annotations

import math
from typing import Any, Final

from privopt.interfaces import NoisyCounts
from privopt.run.verify import load_release
from privopt.testing.checks.base import Elsewhere, Trial, at_one, check
from privopt.testing.checks.channel import states_channel
from privopt.testing.checks.samples import CONFIDENCE
from privopt.testing.noise import watched
from privopt.testing.problems import GeneratedProblem

__all__: list[str] = []

SHARES: Final = (0.5, 0.1, 0.01)
"""Probabilities at which the reach of noise is compared with the noise that was drawn."""

MIN_NOISE_DRAWS: Final = 1000
"""Draws of noise that they are compared with, at least.

Reaches that are half of the true ones are missed less than once in ten million times (by the binomial distribution, for
discrete Laplace noise of scale 1); with 400 draws about one time in forty.
"""


@check("reach", of={"noise"}, needs=states_channel, share=0.3, min_examples=4)
def reach(trial: Trial) -> None:
    """Check that no more of the noise that is drawn exceeds the stated reach than its probability says.

    At epsilon 1: at a large one next to no noise differs from 0, and half of a reach would do as well.
    """
    from scipy.special import bdtrc

    problem = at_one(trial.problem())
    stated = _stated(trial, problem)
    if not len(stated.inputs) or not trial.once_only("a thousand draws of noise"):
        return
    noises: list[Any] = []
    for _ in range(math.ceil(MIN_NOISE_DRAWS / len(stated.inputs))):
        with watched() as calls:
            trial.subject.outcome(trial.subject.load(problem))
        if sum(len(call.values) for call in calls) != len(stated.inputs):
            trial.pass_over("not one noise of privopt.numbers.noise was drawn for each input of channel()")
        noises += [abs(noise) for call in calls for noise in (call.noisy - call.values).tolist()]
    for share in SHARES:
        beyond = sum(noise > stated.reach(share) for noise in noises)
        if beyond and bdtrc(beyond - 1, len(noises), share) < (1 - CONFIDENCE) / len(SHARES):
            trial.fail(
                f"channel() says that noise exceeds {stated.reach(share):g} with probability {share:g} at most; "
                f"{beyond} of {len(noises)} draws do",
                problem,
            )


def _stated(trial: Trial, problem: GeneratedProblem) -> NoisyCounts:
    run = trial.run(problem)
    with trial.subject.registered():
        stated = load_release(run.folder).release.channel()  # as estimates open it
    if not isinstance(stated, NoisyCounts):
        trial.pass_over(Elsewhere("channel() states no noise of counts"))
    return stated
