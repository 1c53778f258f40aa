"""Which secrets must be alike, and checks of what is drawn for one of them."""

from __future__ import annotations

import os
import select
import signal
import warnings
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from privopt.testing.checks.base import Trial, check
from privopt.testing.judging import clopper_pearson
from privopt.testing.under_trial import Run, Subject

T = TypeVar("T", bound=Hashable)

CONFIDENCE: Final = 1 - 1e-7
"""Of one statistical verdict: a right mechanism is blamed once in ten million tries, or less."""


FORK_TIMEOUT_SECONDS: Final = 30.0
"""Seconds that a forked process may take for a few draws."""

SAMPLE_SIZE: Final = 200
"""Samples that two calls do not give alike where none makes up nine tenths of them."""


class Alike(NamedTuple):
    """Secrets that must be alike.

    Attributes:
        names: ids of the secrets; of a matrix in the order of its rows.
        pairs: (P, 2) their numbers.
        distances: (P,) how far apart they are; 1 between neighbours that have no distance.
    """

    names: list[str]
    pairs: NDArray[np.int64]
    distances: NDArray[np.float64]


def required(subject: Subject, run: Run) -> Alike:
    """Return which secrets must be alike: those of the profile, the problem's pairs, the release's, or every two.

    Each user's own matrix is held against nothing but itself, so its pairs are the profile's business (``oracle``).
    """
    release, alike = run.release, getattr(run.problem, "alike", None)
    names = [str(name) for name in getattr(release, "records", ())]
    if subject.profile.alike is not None:
        stated = list(subject.profile.alike(run.problem))
        names = names or list(dict.fromkeys(str(name) for one, two, _ in stated for name in (one, two)))
        place = {name: number for number, name in enumerate(names)}
        numbers = np.array([(place[str(one)], place[str(two)]) for one, two, _ in stated], dtype=np.int64)
        return Alike(names, numbers.reshape(-1, 2), np.array([float(d) for *_, d in stated]))
    if alike is not None and run.stated.guarantee.scope != "own-matrix":
        return Alike(names, *(np.asarray(each) for each in alike()))
    if hasattr(release, "pairs"):
        return Alike(names, np.asarray(release.pairs), np.asarray(release.distances))
    pairs = np.stack(np.triu_indices(len(names), 1), axis=1).astype(np.int64)
    return Alike(names, pairs, np.ones(len(pairs)))


def come_otherwise(drawn: Sequence[T], stated: Mapping[T, float]) -> str | None:
    """Return which outcome, of those with a stated probability, came more or less often than it may, in words."""
    came, count = Counter(drawn), len(drawn)
    for name, probability in stated.items():
        if not plausible(came[name], count, min(1.0, probability), len(stated)):
            return f"{name} came {came[name]} times in {count} draws; expected {probability * count:.6g} times"
    return None


def plausible(hits: int, count: int, probability: float, tests: int = 1) -> bool:
    """Check whether a count is in its two-sided binomial interval at :data:`CONFIDENCE`, shared by ``tests`` tests."""
    from scipy.special import bdtr, bdtrc

    tail = (1 - CONFIDENCE) / (2 * tests)
    if probability in (0.0, 1.0):
        return hits == count * probability
    return bool(bdtr(hits, count, probability) > tail and (hits == 0 or bdtrc(hits - 1, count, probability) > tail))


@check("fresh-samples", version=3, of={"sampler"}, share=0.3, min_examples=3)
def fresh_samples(trial: Trial) -> None:
    """Check that two calls of sample are independent, in two processes too, and that one draw is as one of many."""
    problem, run = trial.solved()
    names = required(trial.subject, run).names
    if not names:
        trial.pass_over("the release names no `records`, and the profile has no `alike`")
    name = trial.chance(problem).choice(names)
    again = trial.subject.mechanism_class.release_class.read(run.folder, run.problem)
    first, second, third = (list(each.sample(name, SAMPLE_SIZE)) for each in (run.release, run.release, again))
    for other, which in ((second, "two calls"), (third, "the release, and what was read back of it,")):
        if first == other and max(map(first.count, set(first))) <= 0.9 * SAMPLE_SIZE:
            trial.fail(f"{which} gave the same {SAMPLE_SIZE} samples of {name}: {', '.join(first[:6])}, ...", problem)
    if trial.once_only("processes"):
        one, two = (_of_a_child(run.release, name) for _ in range(2))
        if one == two and max(map(one.count, {*one}), default=SAMPLE_SIZE) <= 0.9 * SAMPLE_SIZE:
            trial.fail(
                f"two processes that were forked from this one gave the same {SAMPLE_SIZE} samples of {name}: "
                f"{', '.join(one[:6])}, ...; expected randomness of the operating system at each draw",
                problem,
            )
    many = Counter(run.release.sample(name, 10 * SAMPLE_SIZE))
    alone = Counter(output for _ in range(SAMPLE_SIZE) for output in run.release.sample(name, 1))
    for output, hits in alone.items():
        error = (1 - CONFIDENCE) / (2 * len(alone))
        if clopper_pearson(hits, SAMPLE_SIZE, error)[0] > clopper_pearson(many[output], 10 * SAMPLE_SIZE, error)[1]:
            trial.fail(
                f"one at a time, {hits} of {SAMPLE_SIZE} samples of {name} are {output}; at once {many[output]} of "
                f"{10 * SAMPLE_SIZE}: they are not drawn alike",
                problem,
            )


def _of_a_child(release: Any, name: str) -> list[str]:
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
        said = stream.read()
    os.waitpid(child, 0)
    return said.split("\n") if said else []
