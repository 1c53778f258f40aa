"""Checks of a run as a whole: it ends well, claims what was asked for, on evidence, and follows seeds and limits."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Final

import hypothesis
import numpy as np
from hypothesis.strategies import nothing

from privopt.errors import CertificationError, InfeasibleError, PrivoptError
from privopt.files.public_files import artefact
from privopt.files.release_folder import RESULT
from privopt.run.options import Options
from privopt.run.result_file import read_result
from privopt.run.solve import solve
from privopt.specs import MechanismSpec, MethodSpec
from privopt.testing.checks.base import CONSTANT_RUNS, KIT_SEED, Trial, at_little, check
from privopt.testing.near_misses import misspelt_abilities
from privopt.testing.noise import truth, watched
from privopt.testing.problems import GeneratedProblem
from privopt.testing.profile import Profile
from privopt.testing.under_trial import Run, error_text, subject

CHILD_TIMEOUT_SECONDS: Final = 600.0
"""Seconds that another process may take to solve the same problems."""


@check("solves", version=3)
def solves(trial: Trial) -> None:
    """Check that every valid problem is solved, or is reported to have no solution; and that no ability is misspelt."""
    if misspelt := misspelt_abilities(trial.subject.mechanism_class):
        trial.fail("; ".join(misspelt), None)
    problem = trial.problem()
    run = trial.attempt(problem)
    if isinstance(run.error, (InfeasibleError, CertificationError)):
        hypothesis.reject()  # another check's business, unless it is all that comes
    if run.error is None:
        return
    if isinstance(run.error, PrivoptError):
        trial.fail(f"a valid problem was not solved: {error_text(run.error)}", problem)
    trial.fail(
        f"solve raised {error_text(run.error)}; expected a release, or an error of privopt.errors "
        "(InfeasibleError where the problem has no solution)",
        problem,
    )


@check("certificate-holds", private=True)
def certificate_holds(trial: Trial) -> None:
    """Check that the certificate of every release holds, for the kind that is claimed."""
    problem = trial.problem()
    attempt = trial.attempt(problem)
    if isinstance(attempt.error, CertificationError):
        trial.fail(f"the pipeline refused the release: {attempt.error}", problem)
    run = trial.run(problem)
    stated = run.stated.certificate
    if stated.holds is not True:
        trial.fail(f"certificate.holds is {stated.holds!r}, though the method claims {trial.subject.kind}", problem)
    if stated.kind != trial.subject.kind:
        trial.fail(f"the certificate is for {stated.kind}, the method claims {trial.subject.kind}", problem)
    worst, allowed = stated.worst, stated.allowed
    if worst is None or allowed is None or "choice" in trial.subject.traits:
        return
    if worst > allowed * (1 + 1e-12):
        trial.fail(f"the certificate holds by its own word, but worst {worst!r} is above allowed {allowed!r}", problem)


@check("guarantee-stated", private=True)
def guarantee_stated(trial: Trial) -> None:
    """Check that the guarantee states the registered kind, the requested epsilon, and a promise in words."""
    problem, run = trial.solved()
    stated = run.stated.guarantee
    if stated.kind != trial.subject.kind:
        trial.fail(f"guarantee.kind is {stated.kind!r}, the spec says {trial.subject.kind!r}", problem)
    asked = problem.get("privacy.epsilon")
    if asked is not None and stated.epsilon != Fraction(str(asked)):
        trial.fail(f"guarantee.epsilon is {stated.epsilon!r}, the problem asks for {asked}", problem)
    for name in ("unit", "statement") if asked is not None else ("statement",):
        if not str(getattr(stated, name) or "").strip():
            trial.fail(f"guarantee.{name} is empty; expected the promise's {name} in words", problem)
    if stated.seeded:
        trial.fail("guarantee.seeded is true although no --seed was given", problem)


@check("no-mutation")
def no_mutation(trial: Trial) -> None:
    """Check that solving changes nothing that it was given: the problem, its files, the process."""
    problem = trial.problem()
    before = _surroundings()
    run = trial.run(problem, fresh=-1)  # a run of its own, so that the surroundings are this run's
    after = _surroundings()
    if run.changed:
        trial.fail(f"solve changed the problem it was given: {'; '.join(run.changed[:3])}", problem)
    for name, contents in problem.files.items():
        if (run.source.parent / name).read_bytes() != contents:
            trial.fail(f"solve changed the file {name} that the problem names", problem)
    new = {p.relative_to(run.source.parent).as_posix() for p in run.source.parent.rglob("*") if p.is_file()}
    extra = sorted(new - set(problem.files) - {run.source.name})
    if extra:
        trial.fail(f"solve wrote {extra[0]} beside the problem file", problem)
    for name, value in before.items():
        if after[name] != value:
            trial.fail(f"solve changed {name}", problem)


def _surroundings() -> dict[str, Any]:
    state = np.random.get_state(legacy=False)  # noqa: NPY002  (it must be left alone, and is only looked at)
    return {
        "the current folder": os.getcwd(),
        "the environment variables": dict(os.environ),
        "NumPy's global random numbers": repr(state),
        "Python's global random numbers": random.getstate(),
        "NumPy's handling of floating-point errors": np.geterr(),
    }


# --- determinism -------------------------------------------------------------------------------------


@check("seed-determinism", share=0.4, min_examples=3)
def seed_determinism(trial: Trial) -> None:
    """Check that the same seed gives the same release: again, and in another process."""
    problem = trial.problem()
    first = trial.run(problem, seed=KIT_SEED)
    again = trial.run(problem, seed=KIT_SEED, fresh=1)
    _same(trial, first, again.folder, "a second run")
    if trial.subject.noisy and not first.stated.guarantee.seeded:
        trial.fail("the noise came from --seed, but guarantee.seeded is not true (Outcome.seeded)", problem)
    default = trial.subject.method.name == trial.subject.spec.default.name
    if (default or trial.effort.name == "nightly") and trial.once_only("another process"):
        runs = [first, *(trial.attempt(each, seed=KIT_SEED) for each in trial.history.earlier)]
        _elsewhere(trial, [run for run in runs if run.error is None])
    trial.history.earlier.append(problem)


def _importable(cls: type[Any]) -> bool:
    """Return whether another process can import a class: it stands at the top of a module that is a file, no script."""
    found: Any = sys.modules.get(cls.__module__)
    is_file = cls.__module__ != "__main__" and getattr(found, "__file__", None) is not None
    return is_file and getattr(found, cls.__qualname__, None) is cls


def _elsewhere(trial: Trial, runs: list[Run]) -> None:
    """Solve the same problems in another process, whose sets and dictionaries hash otherwise."""
    cls, spec, method = trial.subject.mechanism_class, trial.subject.spec, trial.subject.method
    if not _importable(cls):
        return
    outs = [trial.subject.new_folder() / "out" for _ in runs]
    work = [(str(run.source), str(out)) for run, out in zip(runs, outs, strict=True)]
    jobs = 2 if trial.effort.name == "nightly" else 1
    where = cls.__module__, sys.modules[cls.__module__].__file__, cls.__qualname__
    given = where, (spec.name, spec.kind_of(method), method.name, method.gap), jobs, work
    call = [sys.executable, "-c", _CHILD, json.dumps(sys.path), json.dumps(given)]
    inside = {**os.environ, "PYTHONHASHSEED": "4711"}
    try:
        ended = subprocess.run(
            call, capture_output=True, text=True, env=inside, timeout=CHILD_TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        trial.fail(f"runs that end here take more than {CHILD_TIMEOUT_SECONDS:g} s in another process", runs[0].given)
    if ended.returncode != 0:
        last = (ended.stderr.strip().splitlines() or ["nothing"])[-1]
        trial.fail(f"runs that end well here fail in another process: {last}", runs[0].given)
    for run, out in zip(runs, outs, strict=True):
        _same(trial, run, out, "a run in another process")


_CHILD: Final = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from privopt.testing.checks.runs import solve_again
solve_again(*json.loads(sys.argv[2]))
"""
"""What the other process does: it imports no script of its parent's, as multiprocessing would."""


def solve_again(
    where: tuple[str, str, str], way: tuple[str, str, str, float], jobs: int, work: list[tuple[str, str]]
) -> None:
    """Solve problems by a class that is imported here, by its module's name or, where that is none, from its file.

    Args:
        where: the class's module, the module's file, its name there.
        way: the mechanism's name, its notion, the method's name and gap.
        jobs: as of solve.
        work: problem files, each with the folder to write.
    """
    (module, file, qualname), (mechanism, kind, method, gap) = where, way
    if find_spec(module) is not None:
        found = import_module(module)
    else:
        spec = spec_from_file_location(module, file)
        assert spec is not None  # its parent imported it
        assert spec.loader is not None
        found = sys.modules[module] = module_from_spec(spec)
        spec.loader.exec_module(found)
    made = MethodSpec(name=method, summary="under trial", guarantee=kind, gap=gap)
    under = MechanismSpec(name=mechanism, target="under:Trial", guarantee=kind, summary="under trial", methods=[made])
    tried = subject(getattr(found, qualname), method, spec=under, profile=Profile(problems=nothing()))
    options = Options(method=method, seed=KIT_SEED, jobs=jobs, allow_unsafe=True)
    with tried.registered():
        for source, out in work:
            solve(mechanism, Path(source), Path(out), options)


def _same(trial: Trial, first: Run, other: Path, which: str) -> None:
    for line in differences(first.folder, other):
        trial.fail(f"{which} with the same seed gave another release: {line}", first.given)


def differences(one: Path, two: Path) -> Iterator[str]:
    """Yield the files of two DIRs that differ, ``private/`` included; result.json without its times and solver."""
    here, there = (artefact(folder, private=True) for folder in (one, two))
    for name in sorted({**here, **there}):
        if here.get(name) != there.get(name):
            yield f"{name} differs" if name in here and name in there else f"{name} is there only once"
    results = [read_result(folder) for folder in (one, two)]
    for name in ("status", "guarantee", "objective", "certificate"):
        one_says, other_says = (getattr(result, name) for result in results)
        if one_says != other_says:
            yield f"{RESULT}: {name}: {one_says!r} and {other_says!r}"


# --- what a certificate rests on ------------------------------------------------------------------------


@check("evidence", private=True, share=0.3, min_examples=3)
def evidence(trial: Trial) -> None:
    """Check that no noisy release is called proved: one draw shows nothing of the noise, nor that there was any."""
    problem, run = trial.solved()
    stated = run.stated.certificate.evidence
    if stated not in ("proved", "declared"):
        trial.fail(f"certificate.evidence is {stated!r} for a release that claims {trial.subject.kind}", problem)
    if stated == "declared" or not trial.subject.noisy:
        return
    with watched(truth):
        quiet = trial.attempt(problem, fresh="without noise")
    differs = quiet.error is None and artefact(quiet.folder) != artefact(run.folder)
    if differs and quiet.stated.certificate.evidence == "proved":
        trial.fail('with all noise left out, the certificate says "proved" all the same; expected "declared"', problem)
    problem = at_little(problem)  # what is always the same is the check fresh-noise's business
    first, *others = (artefact(trial.run(problem, fresh=number).folder) for number in range(CONSTANT_RUNS))
    if any(other != first for other in others):
        trial.fail(
            'the release is a draw, another in each run, and the certificate says "proved"; no one draw shows what '
            'noise it came from: expected "declared"',
            problem,
        )


@check("vacuous-guarantee", private=True)
def vacuous_guarantee(trial: Trial) -> None:
    """Check that a certificate holds only if some condition keeps inputs alike, or there is nothing to keep apart."""
    problem, run = trial.solved()
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
