"""Checks on runs of the pipeline: their success, claims, evidence, side effects and reproducibility."""

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
from privopt.run.build_result import read_result
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.specs import MechanismSpec, MethodSpec
from privopt.testing.checks.base import CONSTANT_RUNS, KIT_SEED, Trial, at_tiny_epsilon, check
from privopt.testing.near_misses import misspelt_abilities
from privopt.testing.noise import answer_truthfully, watch_noise
from privopt.testing.problems import GeneratedProblem
from privopt.testing.profile import Profile
from privopt.testing.under_trial import Run, error_text, subject

CHILD_TIMEOUT_SECONDS: Final = 600.0
"""The time limit, in seconds, for a second process that solves the same problems for comparison."""


@check("solves", version=4)
def solves(trial: Trial) -> None:
    """Check that every valid problem is solved or reported as infeasible, and that no optional method is misspelt.

    privopt looks up a mechanism's optional methods (abilities) by name. In the first example, the profile's
    ``examples`` are solved as well.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    if misspelt := misspelt_abilities(trial.subject.mechanism_class):
        trial.fail("; ".join(misspelt), None)
    problem = trial.problem()
    # After a failure, solve the profile's examples again for each smaller problem, since one of them may have failed.
    if not trial.history.examples or trial.history.failed_at is not None:
        for example in trial.subject.profile.examples:
            _check_solved(trial, example)
    if not _check_solved(trial, problem):
        # The problem is infeasible, or its release was rejected, which another check reports. If no problem at all is
        # solved, the runner fails this check.
        hypothesis.reject()


def _check_solved(trial: Trial, problem: GeneratedProblem) -> bool:
    """Return whether a valid problem was solved.

    The check fails on any error, unless the error says that the problem is infeasible or that certification failed.

    Args:
        trial: A single run of the check.
        problem: The problem.
    """
    error = trial.attempt(problem).error
    if error is not None and not isinstance(error, (InfeasibleError, CertificationError)):
        if isinstance(error, PrivoptError):
            trial.fail(f"a valid problem was not solved: {error_text(error)}", problem)
        trial.fail(
            f"solve raised {error_text(error)}; expected a release, or an error of privopt.errors "
            "(InfeasibleError where the problem has no solution)",
            problem,
        )
    return error is None


@check("certificate-holds", private=True)
def certificate_holds(trial: Trial) -> None:
    """Check that every release's certificate holds, and that it certifies the claimed kind of guarantee.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem = trial.problem()
    attempt = trial.attempt(problem)
    if isinstance(attempt.error, CertificationError):
        trial.fail(f"the pipeline refused the release: {attempt.error}", problem)
    run = trial.run(problem)
    certificate = run.stated.certificate
    if certificate.holds is not True:
        trial.fail(
            f"certificate.holds is {certificate.holds!r}, though the method claims {trial.subject.kind}", problem
        )
    if certificate.kind != trial.subject.kind:
        trial.fail(f"the certificate is for {certificate.kind}, the method claims {trial.subject.kind}", problem)
    worst, allowed = certificate.worst, certificate.allowed
    # For a deterministic choice ("choice"), the values need not be a privacy loss and its limit.
    if worst is None or allowed is None or "choice" in trial.subject.traits:
        return
    if worst > allowed * (1 + 1e-12):  # the margin covers the rounding of both values
        trial.fail(f"the certificate holds by its own word, but worst {worst!r} is above allowed {allowed!r}", problem)


@check("guarantee-stated", private=True)
def guarantee_stated(trial: Trial) -> None:
    """Check that the guarantee in result.json has the registered kind, the requested epsilon and a description.

    The epsilon must be exact and have a unit. A run without ``--seed`` must not be marked as seeded.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem, run = trial.draw_run()
    guarantee = run.stated.guarantee
    if guarantee.kind != trial.subject.kind:
        trial.fail(f"guarantee.kind is {guarantee.kind!r}, the spec says {trial.subject.kind!r}", problem)
    requested_epsilon = problem.get("privacy.epsilon")
    if requested_epsilon is not None and guarantee.epsilon != Fraction(str(requested_epsilon)):
        trial.fail(f"guarantee.epsilon is {guarantee.epsilon!r}, the problem asks for {requested_epsilon}", problem)
    # Every guarantee has a statement in words, but only an epsilon has a unit.
    for name in ("unit", "statement") if requested_epsilon is not None else ("statement",):
        if not str(getattr(guarantee, name) or "").strip():
            trial.fail(f"guarantee.{name} is empty; expected the promise's {name} in words", problem)
    if guarantee.seeded:
        trial.fail("guarantee.seeded is true although no --seed was given", problem)


@check("no-mutation")
def no_mutation(trial: Trial) -> None:
    """Check that a solve does not change the loaded problem, its files, or the process's global state.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem = trial.problem()
    original_state = _record_surroundings()
    # No other check uses the key -1, so this run is not cached and happens between the two records.
    run = trial.run(problem, fresh=-1, compared=True)
    final_state = _record_surroundings()
    if run.changed:
        trial.fail(f"solve changed the problem it was given: {'; '.join(run.changed[:3])}", problem)
    for name, contents in problem.files.items():
        if (run.source.parent / name).read_bytes() != contents:
            trial.fail(f"solve changed the file {name} that the problem names", problem)
    files_now = {p.relative_to(run.source.parent).as_posix() for p in run.source.parent.rglob("*") if p.is_file()}
    new_files = sorted(files_now - set(problem.files) - {run.source.name})
    if new_files:
        trial.fail(f"solve wrote {new_files[0]} beside the problem file", problem)
    for name, value in original_state.items():
        if final_state[name] != value:
            trial.fail(f"solve changed {name}", problem)


def _record_surroundings() -> dict[str, Any]:
    """Return the parts of the process's global state that a solve must not change, keyed by description."""
    # The state contains an array, for which == does not return a single truth value, so use its text instead.
    state = np.random.get_state(legacy=False)  # noqa: NPY002  (the legacy state must not change, so it is read)
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
    """Check that the same seed gives the same release, both in a second run and in another process.

    The other process is started once per check, and solves the problems from all examples so far.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem = trial.problem()
    first_run = trial.run(problem, seed=KIT_SEED)
    second_run = trial.run(problem, seed=KIT_SEED, fresh=1)
    _check_same_release(trial, first_run, second_run.folder, "a second run")
    if trial.subject.noisy and not first_run.stated.guarantee.seeded:
        trial.fail("the noise came from --seed, but guarantee.seeded is not true (Outcome.seeded)", problem)
    # Starting a process takes seconds, so do this only for the default method, unless the effort is "full".
    default = trial.subject.method.name == trial.subject.spec.default.name
    if (default or trial.effort.name == "full") and trial.once_only("another process"):
        runs = [
            first_run,
            *(trial.attempt(earlier_problem, seed=KIT_SEED) for earlier_problem in trial.history.earlier),
        ]
        _check_other_process(trial, [run for run in runs if run.error is None])
    trial.history.earlier.append(problem)


def _is_importable(cls: type[Any]) -> bool:
    """Return whether another process can import a class.

    The class must be at the top level of a module that has a file and is not ``__main__``.
    """
    module: Any = sys.modules.get(cls.__module__)
    is_file = cls.__module__ != "__main__" and getattr(module, "__file__", None) is not None
    return is_file and getattr(module, cls.__qualname__, None) is cls


def _check_other_process(trial: Trial, runs: list[Run]) -> None:
    """Fail if another process produces different releases for the same problems.

    The other process has a different hash seed, so it iterates over sets in a different order. Classes that it cannot
    import are not checked.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
        runs: Successful runs with the seed :data:`KIT_SEED`.
    """
    cls, spec, method = trial.subject.mechanism_class, trial.subject.spec, trial.subject.method
    if not _is_importable(cls):
        return
    # The other process solves the runs' problem files, and writes each release to its own folder.
    out_folders = [trial.subject.new_folder() / "out" for _ in runs]
    work = [(str(run.source), str(out_folder)) for run, out_folder in zip(runs, out_folders, strict=True)]
    # With two jobs, work can be finished in another order, which must not matter. Only the effort "full" has time for
    # this.
    jobs = 2 if trial.effort.name == "full" else 1
    class_source = cls.__module__, sys.modules[cls.__module__].__file__, cls.__qualname__
    arguments = class_source, (spec.name, spec.kind_of(method), method.name, method.gap), jobs, work
    command = [sys.executable, "-c", _CHILD, json.dumps(sys.path), json.dumps(arguments)]
    environment = {**os.environ, "PYTHONHASHSEED": "4711"}
    try:
        process = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=CHILD_TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        trial.fail(f"runs that end here take more than {CHILD_TIMEOUT_SECONDS:g} s in another process", runs[0].given)
    if process.returncode != 0:
        last = (process.stderr.strip().splitlines() or ["nothing"])[-1]
        trial.fail(f"runs that end well here fail in another process: {last}", runs[0].given)
    for run, out_folder in zip(runs, out_folders, strict=True):
        _check_same_release(trial, run, out_folder, "a run in another process")


_CHILD: Final = """
import json, sys
sys.path[:] = json.loads(sys.argv[1])
from privopt.testing.checks.runs import solve_again
solve_again(*json.loads(sys.argv[2]))
"""
"""The code run by the other process.

Unlike a process started by multiprocessing, it does not import the parent's script.
"""


def solve_again(
    class_source: tuple[str, str, str],
    registration: tuple[str, str, str, float],
    jobs: int,
    work: list[tuple[str, str]],
) -> None:
    """Solve problems with the kit's seed in a second process, and write the releases to the given folders.

    The mechanism's class is imported from its module by name or, if there is no such module, from the module's file.

    Args:
        class_source: The name of the class's module, the module's file, and the class's qualified name.
        registration: The mechanism's name, its privacy notion, and the method's name and relative optimality gap.
        jobs: The number of jobs in each solve.
        work: Pairs of a problem file and its output folder.
    """
    (module, file, qualname), (mechanism, kind, method, gap) = class_source, registration
    if find_spec(module) is not None:
        imported = import_module(module)
    else:
        spec = spec_from_file_location(module, file)
        assert spec is not None  # the parent process has imported the file
        assert spec.loader is not None
        imported = sys.modules[module] = module_from_spec(spec)
        spec.loader.exec_module(imported)
    # Only the names and the gap matter here. The target is never used, because the class is already imported, and no
    # problem is drawn from the profile.
    method_spec = MethodSpec(name=method, summary="under trial", guarantee=kind, gap=gap)
    mechanism_spec = MechanismSpec(
        name=mechanism, target="under:Trial", guarantee=kind, summary="under trial", methods=[method_spec]
    )
    solved_subject = subject(
        getattr(imported, qualname), method, spec=mechanism_spec, profile=Profile(problems=nothing())
    )
    options = Options(method=method, seed=KIT_SEED, jobs=jobs, allow_unsafe=True)
    with solved_subject.registered():
        for source, out_folder in work:
            solve(mechanism, Path(source), Path(out_folder), options)


def _check_same_release(trial: Trial, run: Run, other_folder: Path, description: str) -> None:
    """Fail if another run with the same seed produced a different release.

    Args:
        trial: A single run of the check.
        run: The first run.
        other_folder: The other run's output folder.
        description: A phrase that names the other run, such as ``"a second run"``.
    """
    for line in find_differences(run.folder, other_folder):
        trial.fail(f"{description} with the same seed gave another release: {line}", run.given)


def find_differences(first: Path, second: Path) -> Iterator[str]:
    """Yield a sentence for each difference between two runs' output folders, including their ``private/`` folders.

    In result.json, only the status, guarantee, objective and certificate are compared, because other values, such as
    times, may differ.
    """
    first_files, second_files = (artefact(folder, private=True) for folder in (first, second))
    for name in sorted({**first_files, **second_files}):
        if first_files.get(name) != second_files.get(name):
            yield f"{name} differs" if name in first_files and name in second_files else f"{name} is there only once"
    results = [read_result(folder) for folder in (first, second)]
    for name in ("status", "guarantee", "objective", "certificate"):
        first_value, second_value = (getattr(result, name) for result in results)
        if first_value != second_value:
            yield f"{RESULT}: {name}: {first_value!r} and {second_value!r}"


# --- the evidence for a certificate ---------------------------------------------------------------------


@check("evidence", private=True, share=0.3, min_examples=3)
def evidence(trial: Trial) -> None:
    """Check that no certificate for a noisy release claims the evidence "proved".

    A single draw does not reveal the distribution of its noise, so the evidence must be "declared", which partly relies
    on the publisher's word. A release counts as noisy if it changes from run to run, or if setting all noise to 0
    changes it.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem, run = trial.draw_run()
    stated_evidence = run.stated.certificate.evidence
    if stated_evidence not in ("proved", "declared"):
        trial.fail(
            f"certificate.evidence is {stated_evidence!r} for a release that claims {trial.subject.kind}", problem
        )
    if stated_evidence == "declared" or not trial.subject.noisy:
        return
    with watch_noise(answer_truthfully):
        noiseless_run = trial.attempt(problem, fresh="without noise")
    # A release that changes when the noise is left out depends on the noise, so its evidence must not be "proved".
    differs = noiseless_run.error is None and artefact(noiseless_run.folder) != artefact(run.folder)
    if differs and noiseless_run.stated.certificate.evidence == "proved":
        trial.fail('with all noise left out, the certificate says "proved" all the same; expected "declared"', problem)
    problem = at_tiny_epsilon(problem)  # releases that never change are reported by the check fresh-noise
    first_artefact, *others = (artefact(trial.run(problem, fresh=number).folder) for number in range(CONSTANT_RUNS))
    if any(other_artefact != first_artefact for other_artefact in others):
        trial.fail(
            'the release is a draw, another in each run, and the certificate says "proved"; no one draw shows what '
            'noise it came from: expected "declared"',
            problem,
        )


@check("vacuous-guarantee", private=True)
def vacuous_guarantee(trial: Trial) -> None:
    """Check that no certificate holds unless at least one condition on two different inputs was checked.

    The check is repeated on the problem returned by the profile's ``nothing_near``. Its inputs differ, but its
    guarantee does not constrain any pair of them, for example because all inputs are too far apart. The mechanism must
    reject such a problem, or its certificate must not hold.

    A problem is exempt if it has no two different inputs, that is, if all inputs are at distance 0 or there are no
    neighbours.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem, run = trial.draw_run()
    _check_not_vacuous(trial, problem, run)
    make_nothing_near = trial.subject.profile.nothing_near
    nothing_near = None if make_nothing_near is None else make_nothing_near(problem)
    if nothing_near is not None:
        run = trial.attempt(nothing_near)  # a problem class without the changed key rejects it
        if run.error is None:
            _check_not_vacuous(trial, nothing_near, run)
        elif not isinstance(run.error, PrivoptError):
            trial.fail(
                f"with nothing within reach solve raised {error_text(run.error)}; expected a PrivoptError", nothing_near
            )


def _check_not_vacuous(trial: Trial, problem: GeneratedProblem, run: Run) -> None:
    """Fail if a run's certificate holds although no condition on two different inputs was checked.

    A condition on two inputs at distance 0 does not count, because it merely requires that their reports have the same
    distribution.

    Args:
        trial: A single run of the check.
        problem: The problem to show in the message.
        run: A successful run on the problem.
    """
    certificate = run.stated.certificate
    if certificate.holds is not True:
        return
    # Metric problems have ``alike()``, which returns the required pairs and their distances, and ``apart``, which is
    # False if all records are at distance 0 from one another.
    are_apart = getattr(run.problem, "apart", None)
    if are_apart is not None:
        _, distances = run.problem.alike()  # not the release's pairs, which may differ from user to user
        is_vacuous = are_apart and (certificate.checked == 0 or not (distances > 0).any())
    else:
        list_neighbours = trial.subject.profile.neighbours
        is_vacuous = certificate.checked == 0 and (
            list_neighbours is None or any(True for _ in list_neighbours(problem))
        )
    if is_vacuous:
        trial.fail(
            f"the certificate holds by {certificate.checked} conditions, none of which is about two inputs that are "
            "apart: it promises nothing; expected a refusal of the problem, or holds to be false",
            problem,
        )
