"""Checks of DIR: a release survives the way through files, and verify takes it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import attrs
import numpy as np

from privopt.errors import PrivoptError
from privopt.solve import load_release, verify
from privopt.testing.checks.base import Trial, check
from privopt.testing.under_trial import Subject, told

__all__ = ["fields_that_differ"]


@check("round-trip")
def round_trip(trial: Trial) -> None:
    """A release read back is the release that was written, and verify has nothing to complain of."""
    problem = trial.problem()
    run = trial.run(problem)
    subject = trial.subject
    with subject.registered():
        try:
            _, _, reread, release, _ = load_release(run.folder)
        except PrivoptError as error:
            trial.fail(f"the release cannot be read back: {error}", problem)
        for line in fields_that_differ(run.release, release):
            trial.fail(f"the release changes on its way through files: {line}", problem)
        utility = subject.mechanism.utility(reread, subject.method.name)
        again, stated = utility.evaluate(release), run.result["objective"]["value"] if run.result else None
        if again is not None and (stated is None or abs(again - stated) > 1e-9 * max(1.0, abs(stated))):
            trial.fail(f"the objective was {stated!r}; of the release read back it is {again!r}", problem)
        try:
            complaints, _ = verify(run.folder)
        except PrivoptError as error:
            complaints = [told(error)]
        if complaints:
            trial.fail(f"verify: {complaints[0]}", problem)
        copy = subject.new_folder()
        release.write(copy)
        for path in sorted(copy.rglob("*")):
            original = run.folder / path.relative_to(copy)
            if path.is_file() and not _same_file(original, path):
                trial.fail(f"{path.relative_to(copy)}, written again after reading, differs from the first", problem)


def _same_file(one: Any, two: Any) -> bool:
    if not one.is_file():
        return False
    if one.suffix == ".npz":
        with np.load(one, allow_pickle=False) as left, np.load(two, allow_pickle=False) as right:
            return set(left) == set(right) and all(np.array_equal(left[name], right[name]) for name in left)
    return bool(one.read_bytes() == two.read_bytes())


def fields_that_differ(one: Any, two: Any) -> Iterator[str]:
    """Fields of two releases that differ, those aside that only one of them has."""
    if type(one) is not type(two):
        yield f"it was a {type(one).__name__} and came back as a {type(two).__name__}"
        return
    names = [a.name for a in attrs.fields(type(one))] if attrs.has(type(one)) else list(getattr(one, "__dict__", {}))
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


def _is_private(subject: Subject) -> str | None:
    return None if subject.profile.oracle is not None else "the profile has no `oracle`"


@check("oracle", needs=_is_private)
def oracle(trial: Trial) -> None:
    """The release meets what the profile reckons independently."""
    problem = trial.problem()
    run = trial.run(problem)
    make = trial.subject.profile.oracle
    assert make is not None  # needs
    for complaint in make(run.problem, run.release, run.result or {}):
        trial.fail(complaint, problem)


@check("verify-catches", share=0.2)
def verify_catches(trial: Trial) -> None:
    """Verify complains of a DIR in which one byte of the artefact was changed, or a claim was made better."""
    import json
    import shutil

    problem = trial.problem()
    run = trial.run(problem)
    changed = trial.subject.new_folder() / "changed"
    shutil.copytree(run.folder, changed)
    artefact = next(p for p in sorted(changed.iterdir()) if p.is_file() and p.suffix in (".npz", ".csv"))
    raw = bytearray(artefact.read_bytes())
    raw[len(raw) // 2] ^= 1
    artefact.write_bytes(bytes(raw))
    with trial.subject.registered():
        if not _complains(changed):
            trial.fail(f"verify did not notice that a byte of {artefact.name} was changed", problem)
        shutil.rmtree(changed)
        shutil.copytree(run.folder, changed)
        result = json.loads((changed / "result.json").read_text("utf-8"))
        result["objective"]["value"] = (result["objective"]["value"] or 0.0) - 1.0
        (changed / "result.json").write_text(json.dumps(result), "utf-8")
        _sum_again(changed)
        if _determined(trial, run) and not _complains(changed):
            trial.fail("verify did not notice that objective.value was lowered by 1", problem)


def _determined(trial: Trial, run: Any) -> bool:
    """Whether DIR alone determines the objective."""
    with trial.subject.registered():
        _, mechanism, problem, release, _ = load_release(run.folder)
        return mechanism.utility(problem, trial.subject.method.name).evaluate(release) is not None


def _sum_again(folder: Any) -> None:
    from privopt.files import SUMS, sums_text

    (folder / SUMS).write_text(sums_text(folder), "utf-8")


def _complains(folder: Any) -> bool:
    try:
        return bool(verify(folder)[0])
    except PrivoptError:
        return True


