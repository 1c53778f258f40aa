"""Checks of DIR: a release is unchanged after it is written and read, and verify accepts it."""

from __future__ import annotations

from privopt.errors import RoundTripError
from privopt.files.public_files import artefact
from privopt.run.verify import load_release, verify
from privopt.testing.changes import changes
from privopt.testing.checks.base import Trial, check, has


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
        opened = load_release(run.folder)
        reread, release = opened.problem, opened.release
        for line in changes(run.release, release, "release", through_files=True):
            trial.fail(f"the release changes on its way through files: {line}", problem)
        utility = subject.mechanism.utility(reread, subject.method.name)
        again, stated = utility.evaluate(release), run.stated.objective.value
        if again is not None and abs(again - stated) > 1e-9 * max(1.0, abs(stated)):
            trial.fail(f"the objective was {stated!r}; of the release read back it is {again!r}", problem)
        for complaint in verify(run.folder).complaints:
            trial.fail(f"verify: {complaint}", problem)
        copy = subject.new_folder()
        release.write(copy)
        first = artefact(run.folder, private=True)
        for name, contents in artefact(copy, private=True).items():
            if first.get(name) != contents:
                trial.fail(f"{name}, written again after reading, differs from the first", problem)


@check("oracle", needs=has("oracle"))
def oracle(trial: Trial) -> None:
    """Check that the release meets what the profile computes independently."""
    problem, run = trial.solved()
    make = trial.subject.profile.oracle
    assert make is not None  # needs
    for complaint in make(run.problem, run.release, run.stated):
        trial.fail(complaint, problem)
