"""Checks of a certificate's evidence: a draw of noise proves nothing, and no conditions prove nothing."""

from __future__ import annotations

from itertools import islice

from privopt.errors import PrivoptError
from privopt.testing.checks.base import CONSTANT_RUNS, Trial, at_little, check
from privopt.testing.noise import recorded
from privopt.testing.problems import GeneratedProblem
from privopt.testing.public_files import artefact
from privopt.testing.under_trial import Run, error_text


@check("evidence", private=True, share=0.3, min_examples=3)
def evidence(trial: Trial) -> None:
    """Check that no noisy release is called proved: one draw shows nothing of the noise, nor that there was any."""
    problem = trial.problem()
    run = trial.run(problem)
    stated = run.stated.certificate.evidence
    if stated not in ("proved", "declared"):
        trial.fail(f"certificate.evidence is {stated!r} for a release that claims {trial.subject.kind}", problem)
    if stated == "declared" or not trial.subject.noisy:
        return
    with recorded():
        quiet = trial.attempt(problem, fresh="without noise")
    differs = quiet.error is None and artefact(quiet.folder) != artefact(run.folder)
    if differs and quiet.stated.certificate.evidence == "proved":
        trial.fail('with all noise left out, the certificate says "proved" all the same; expected "declared"', problem)
    problem = at_little(problem)
    first = trial.always(problem)
    if first is None:
        trial.fail(
            'the release is a draw, another in each run, and the certificate says "proved"; no one draw shows what '
            'noise it came from: expected "declared"',
            problem,
        )
    make = trial.subject.profile.neighbours
    for neighbour in islice(() if make is None else make(problem), 4):
        second = trial.always(at_little(neighbour))
        if second is not None and second != first:
            trial.fail(
                'the release follows from the secret without any noise, and the certificate says "proved": '
                f"{CONSTANT_RUNS} runs gave the same, and another for a neighbour",
                problem,
            )


@check("vacuous-guarantee", private=True)
def vacuous_guarantee(trial: Trial) -> None:
    """Check that a certificate holds only if some condition keeps inputs alike, or there is nothing to keep apart."""
    problem = trial.problem()
    run = trial.run(problem)
    _not_vacuous(trial, problem, run)
    make = trial.subject.profile.nothing_near
    nothing_near = None if make is None else make(problem)
    if nothing_near is not None:
        run = trial.attempt(nothing_near)  # a problem class without that key refuses it
        if run.error is None:
            _not_vacuous(trial, nothing_near, run)
        elif not isinstance(run.error, PrivoptError):
            trial.fail(
                f"with nothing within reach solve raised {error_text(run.error)}; expected a PrivoptError", nothing_near
            )


def _not_vacuous(trial: Trial, problem: GeneratedProblem, run: Run) -> None:
    stated = run.stated.certificate
    if stated.holds is not True:
        return
    apart = getattr(run.problem, "apart", None)
    if apart is not None:
        _, distances = run.problem.alike()  # of the problem: a release may keep each user's own pairs
        empty = apart and (stated.checked == 0 or not (distances > 0).any())
    else:
        make = trial.subject.profile.neighbours
        empty = stated.checked == 0 and (make is None or any(True for _ in make(problem)))
    if empty:
        trial.fail(
            f"the certificate holds by {stated.checked} conditions, none of which keeps inputs alike that are "
            "apart: it promises nothing; expected the problem refused, or holds false",
            problem,
        )
