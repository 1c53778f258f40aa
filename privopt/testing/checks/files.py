"""Checks of DIR: a release is unchanged after it is written and read, and verify accepts it."""

from __future__ import annotations

from collections.abc import Iterator

import attrs
import numpy as np

from privopt.errors import PrivoptError, RoundTripError
from privopt.interfaces import Release
from privopt.run.verify import load_release, verify
from privopt.testing.checks.base import Trial, check, has
from privopt.testing.public_files import artefact
from privopt.testing.under_trial import error_text


@check("round-trip")
def round_trip(trial: Trial) -> None:
    """Check that a release read back is the release written, and that verify finds no fault."""
    problem = trial.problem()
    attempt = trial.attempt(problem)
    if isinstance(attempt.error, RoundTripError):
        trial.fail(f"the pipeline refused what was written: {attempt.error}", problem)
    run = trial.run(problem)
    subject = trial.subject
    with subject.registered():
        try:
            opened = load_release(run.folder)
            reread, release = opened.problem, opened.release
        except PrivoptError as error:
            trial.fail(f"the release cannot be read back: {error}", problem)
        for line in fields_that_differ(run.release, release):
            trial.fail(f"the release changes on its way through files: {line}", problem)
        utility = subject.mechanism.utility(reread, subject.method.name)
        again, stated = utility.evaluate(release), run.stated.objective.value
        if again is not None and abs(again - stated) > 1e-9 * max(1.0, abs(stated)):
            trial.fail(f"the objective was {stated!r}; of the release read back it is {again!r}", problem)
        try:
            complaints = verify(run.folder).complaints
        except PrivoptError as error:
            complaints = (error_text(error),)
        if complaints:
            trial.fail(f"verify: {complaints[0]}", problem)
        copy = subject.new_folder()
        release.write(copy)
        first = artefact(run.folder, private=True)
        for name, contents in artefact(copy, private=True).items():
            if first.get(name) != contents:
                trial.fail(f"{name}, written again after reading, differs from the first", problem)


def fields_that_differ(one: Release, two: Release) -> Iterator[str]:
    """Yield the fields in which two releases differ, except those that only one of them has."""
    if type(one) is not type(two):
        yield f"it was a {type(one).__name__} and came back as a {type(two).__name__}"
        return
    kind: type = type(one)
    names = [a.name for a in attrs.fields(kind)] if attrs.has(kind) else list(getattr(one, "__dict__", {}))
    for name in names:
        left, right = getattr(one, name, None), getattr(two, name, None)
        if left is None or right is None:
            continue
        if isinstance(left, np.ndarray) or isinstance(right, np.ndarray):
            left, right = np.asarray(left), np.asarray(right)
            if left.shape != right.shape:
                yield f"{name} had shape {left.shape}, now {right.shape}"
            elif not np.array_equal(left, right):
                place = tuple(np.argwhere(left != right)[0].tolist())
                yield f"{name}{list(place)} was {left[place]!r}, now {right[place]!r}"
        elif isinstance(left, (str, bytes, int, float, tuple, frozenset)) and left != right:
            yield f"{name} was {left!r}, now {right!r}"


@check("oracle", needs=has("oracle"))
def oracle(trial: Trial) -> None:
    """Check that the release meets what the profile computes independently."""
    problem, run = trial.solved()
    make = trial.subject.profile.oracle
    assert make is not None  # needs
    for complaint in make(run.problem, run.release, run.stated):
        trial.fail(complaint, problem)
