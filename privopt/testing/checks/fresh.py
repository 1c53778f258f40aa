"""A check that each call draws new samples, using an input whose samples vary enough to reveal a repetition."""

from __future__ import annotations

import os
import select
import signal
import warnings
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from privopt.numbers.binomial import clopper_pearson
from privopt.testing.checks.base import Trial, at_epsilon_one, check
from privopt.testing.checks.samples import CONFIDENCE, required_pairs
from privopt.testing.under_trial import Run

FORK_TIMEOUT_SECONDS: Final = 30.0
"""The number of seconds after which a forked process is killed. The process should make only a few draws."""

SAMPLE_SIZE: Final = 200
"""The number of samples per call. With this many, two independent calls differ unless one output is nearly certain."""

MAX_SHARE: Final = 0.9
"""The largest share of the most frequent output at which equal samples from two calls count as a repetition.

Up to this share, two independent series of SAMPLE_SIZE samples are equal with a probability below 1e-17.
"""

MAX_INPUTS: Final = 24
"""The maximum number of inputs to try in search of one whose samples can reveal a repetition."""


@check("fresh-samples", version=4, of={"sampler"}, share=0.3, min_examples=3)
def fresh_samples(trial: Trial) -> None:
    """Check that repeated calls to ``sample`` are independent, in one process and across processes.

    Samples drawn one at a time must also have the same frequencies as samples drawn all at once. An input that nearly
    always gives the same output cannot reveal a repetition. If this is true of all inputs, the check is repeated with
    epsilon 1.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem = trial.problem()
    run = trial.run(problem)
    name, samples = _most_varied_input(trial, run)
    if _max_share(samples) > MAX_SHARE:
        problem = at_epsilon_one(problem)
        run = trial.run(problem)
        name, samples = _most_varied_input(trial, run)
    if _max_share(samples) > MAX_SHARE:
        trial.pass_over("every input has one output in nearly all samples, which show no repetition")
    trial.history.note_power(
        _max_share(samples), "compared samples of an input whose likeliest output has at most a share of {:.2f}"
    )
    reopened = trial.subject.mechanism_class.release_class.read(run.folder, run.problem)
    second, third = (list(source.sample(name, SAMPLE_SIZE)) for source in (run.release, reopened))
    for other_samples, which in ((second, "two calls"), (third, "the release, and what was read back of it,")):
        if samples == other_samples:
            trial.fail(f"{which} gave the same {SAMPLE_SIZE} samples of {name}: {', '.join(samples[:6])}, ...", problem)
    if trial.once_only("processes"):
        child_samples, second_child = (_sample_in_child(run.release, name) for _ in range(2))
        if child_samples == second_child and _max_share(child_samples) <= MAX_SHARE:
            trial.fail(
                f"two processes that were forked from this one gave the same {SAMPLE_SIZE} samples of {name}: "
                f"{', '.join(child_samples[:6])}, ...; expected randomness of the operating system at each draw",
                problem,
            )
    # Samples drawn one at a time must have the same frequencies as those drawn all at once, within both confidence
    # intervals.
    many = Counter(run.release.sample(name, 10 * SAMPLE_SIZE))
    single_draws = Counter(output for _ in range(SAMPLE_SIZE) for output in run.release.sample(name, 1))
    for output, hits in single_draws.items():
        # The error probability is split among the outputs and each output's two intervals.
        error = (1 - CONFIDENCE) / (2 * len(single_draws))
        if clopper_pearson(hits, SAMPLE_SIZE, error)[0] > clopper_pearson(many[output], 10 * SAMPLE_SIZE, error)[1]:
            trial.fail(
                f"one at a time, {hits} of {SAMPLE_SIZE} samples of {name} are {output}; at once {many[output]} of "
                f"{10 * SAMPLE_SIZE}: they are not drawn alike",
                problem,
            )


def _most_varied_input(trial: Trial, run: Run) -> tuple[str, list[str]]:
    """Return an input whose samples vary enough to reveal a repetition, together with its samples.

    If no such input is found after several attempts, the one whose samples vary most is returned.

    Args:
        trial: A single run of the check, which is discarded if the release has no inputs.
        run: The run of the pipeline that produced the release.
    """
    names = required_pairs(trial.subject, run).names
    if not names:
        trial.pass_over("the release names no `records`, and the profile has no `alike`")
    # Use a random order, so that other examples try other inputs.
    tried: list[tuple[float, str, list[str]]] = []
    for name in trial.chance(run.given).sample(names, min(MAX_INPUTS, len(names))):
        samples = list(run.release.sample(name, SAMPLE_SIZE))
        tried.append((_max_share(samples), name, samples))
        if tried[-1][0] <= MAX_SHARE:
            return name, samples
    _, name, samples = min(tried)
    return name, samples


def _max_share(samples: Sequence[str]) -> float:
    """Return the fraction of the samples that equal the most frequent output, or 1 if there are no samples."""
    return max(Counter(samples).values(), default=1) / max(1, len(samples))


def _sample_in_child(release: Any, name: str) -> list[str]:
    """Draw samples for an input in a forked child process, and return them.

    If the random number generator was seeded before the fork, all child processes get the same samples.

    Args:
        release: The release to draw samples from.
        name: The input's id.

    Returns:
        The samples, or an empty list if processes cannot be forked or the child hangs.
    """
    if not hasattr(os, "fork"):
        return []
    read_end, write_end = os.pipe()
    with warnings.catch_warnings():
        # Python warns about forks while threads are running. The child only draws samples and needs none of the
        # threads.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        try:
            os.write(write_end, "\n".join(release.sample(name, SAMPLE_SIZE)).encode())
        # sys.exit would run the parent's cleanup and pytest's hooks in the child.
        finally:
            os._exit(0)
    os.close(write_end)
    with open(read_end, encoding="utf-8") as stream:
        ended = bool(select.select([stream], [], [], FORK_TIMEOUT_SECONDS)[0])
        if not ended:
            os.kill(child, signal.SIGKILL)
        output = stream.read()
    os.waitpid(child, 0)
    return output.split("\n") if output else []
