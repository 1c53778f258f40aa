"""Checks that a release survives being written and read back, and that independent code accepts it."""

from __future__ import annotations

from privopt.errors import RoundTripError
from privopt.files.public_files import artefact
from privopt.run.verify import load_release, verify
from privopt.testing.changes import changes
from privopt.testing.checks.base import Trial, check, require_field


@check("round-trip")
def round_trip(trial: Trial) -> None:
    """Check that a release and its loss are unchanged when read back from the folder, and that verify finds no faults.

    Writing the release again must produce the same bytes in every file.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem = trial.problem()
    attempt = trial.attempt(problem)
    if isinstance(attempt.error, RoundTripError):
        trial.fail(f"the pipeline refused what was written: {attempt.error}", problem)
    run = trial.run(problem)
    subject = trial.subject
    with subject.registered():
        opened = load_release(run.folder)
        reread, release = opened.problem, opened.release
        for line in changes(run.release, release, "release", through_files=True):  # the first change ends the check
            trial.fail(f"the release changes on its way through files: {line}", problem)
        utility = subject.mechanism.utility(reread, subject.method.name)
        recomputed, stated_value = utility.evaluate(release), run.stated.objective.value
        if recomputed is not None and abs(recomputed - stated_value) > 1e-9 * max(1.0, abs(stated_value)):
            trial.fail(f"the objective was {stated_value!r}; of the release read back it is {recomputed!r}", problem)
        for complaint in verify(run.folder).complaints:
            trial.fail(f"verify: {complaint}", problem)
        copy = subject.new_folder()
        # If the files are byte-identical when written again, nothing was lost in reading.
        release.write(copy)
        original_files = artefact(run.folder, private=True)
        for name, contents in artefact(copy, private=True).items():
            if original_files.get(name) != contents:
                trial.fail(f"{name}, written again after reading, differs from the first", problem)


@check("oracle", needs=require_field("oracle"))
def oracle(trial: Trial) -> None:
    """Check that the release passes the profile's ``oracle``, a test written independently of the mechanism.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem, run = trial.draw_run()
    find_complaints = trial.subject.profile.oracle
    assert find_complaints is not None  # otherwise the check is skipped (``needs``)
    for complaint in find_complaints(run.problem, run.release, run.stated):
        trial.fail(complaint, problem)
