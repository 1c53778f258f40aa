"""Checks of forged folders: verify reports them, and every command that uses a folder refuses them."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from privopt.errors import PrivoptError
from privopt.files.release_folder import PROBLEM, RESULT, SUMS, sums_text
from privopt.report.write_report import write_report
from privopt.run.audit import audit
from privopt.run.verify import open_verified, verify
from privopt.testing.checks.base import Trial, by_default, check
from privopt.testing.exports import number_in
from privopt.testing.problems import csv_text
from privopt.testing.public_files import artefact
from privopt.testing.under_trial import Run

FORGED = "forged"
"""A name that no one has."""
LONG = "1e3000000"
"""A number that takes most of a second to work out; ten times the exponent takes minutes, and a file may hold it."""

Change = Callable[[Path], None]


@check("use-verifies", version=2, private=True, needs=by_default, share=0.3, min_examples=3)
def use_verifies(trial: Trial) -> None:
    """Check that a forged folder, checksums too, does not verify and is not opened, audited or reported on."""
    problem = trial.problem()
    run = trial.run(problem)
    for what, change in _forgeries(run):
        folder = trial.subject.new_folder() / "forged"
        shutil.copytree(run.folder, folder)
        change(folder)
        with trial.subject.registered():
            if _verifies(folder):
                trial.fail(f"verify does not notice that {what}", problem)
            for use in (open_verified, audit, write_report):
                if _used(use, folder):
                    trial.fail(f"{what}, and {use.__name__} takes the folder all the same", problem)
    usual = _seconds(trial, run.folder)
    for what, change in _endless(run):
        folder = trial.subject.new_folder() / "forged"
        shutil.copytree(run.folder, folder)
        change(folder)
        if _seconds(trial, folder) > usual + _worked_out() / 2:
            trial.fail(f"{what}, and verify works that number out: 1e30000000 would keep it for hours", problem)


def _verifies(folder: Path) -> bool:
    try:
        return verify(folder).holds
    except PrivoptError:
        return False


def _seconds(trial: Trial, folder: Path) -> float:
    """Processor's seconds of a look at a folder, whatever comes of it."""
    start = time.process_time()
    with trial.subject.registered(), suppress(PrivoptError, ArithmeticError, ValueError):
        verify(folder)
    return time.process_time() - start


@lru_cache(1)
def _worked_out() -> float:
    """Processor's seconds that the long number takes here."""
    start = time.process_time()
    Fraction(LONG)
    return time.process_time() - start


def _endless(run: Run) -> Iterator[tuple[str, Change]]:
    """Yield a scale, or another rational, replaced by one of millions of digits, in each file that has one."""
    texts = {str(number) for number in _rationals(attrs.asdict(run.release, recurse=False).values())}
    for name in (name for name in artefact(run.folder) if name.split("/")[0] != PROBLEM):
        file, _, member = name.partition(":")
        what = f"a rational in {name} became {LONG}"
        if member:
            with np.load(run.folder / file, allow_pickle=False) as archive:
                arrays = dict(archive)
            array = arrays[member := member.removesuffix(".npy")]
            if array.dtype.kind == "U" and array.size and str(array.flat[-1]) in texts:
                array = array.astype(f"<U{max(len(LONG), array.dtype.itemsize // 4)}")
                array.flat[-1] = LONG
                yield what, _summed(_packed(file, {**arrays, member: array}))
        elif texts and not file.endswith((".npy", ".npz")):
            with suppress(UnicodeDecodeError):
                text = (run.folder / file).read_text("utf-8")
                found = [*re.finditer(rf"(?<![^\s,])(?:{'|'.join(map(re.escape, sorted(texts)))})(?![^\s,])", text)]
                if found:
                    changed = f"{text[: found[-1].start()]}{LONG}{text[found[-1].end() :]}"
                    yield what, _summed(_replaced(file, changed))


def _rationals(values: Iterable[Any]) -> Iterator[Fraction]:
    for value in values:
        if isinstance(value, Fraction):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from _rationals(value)


def _replaced(name: str, text: str) -> Change:
    def change(folder: Path) -> None:
        (folder / name).write_text(text, "utf-8")

    return change


def _used(use: Callable[[Path], Any], folder: Path) -> bool:
    try:
        use(folder)
    except PrivoptError:
        return False
    return True


def _summed(change: Change) -> Change:
    """Return a change after which the sums fit again."""

    def whole(folder: Path) -> None:
        change(folder)
        (folder / SUMS).write_text(sums_text(folder), "utf-8")

    return whole


def _forgeries(run: Run) -> Iterator[tuple[str, Change]]:
    """Yield what was forged and how: in the artefact, and in the claims of result.json."""
    names = [name for name in artefact(run.folder) if name.split("/")[0] != PROBLEM]
    files = sorted({name.partition(":")[0] for name in names})
    for name in files:
        yield f"a byte was added to {name}, its sum as it was", _longer(name)
        if name.endswith(".csv"):
            table = [row for row in csv.reader(io.StringIO((run.folder / name).read_text("utf-8"))) if row]
            yield from _tables(name, table)
        if name.endswith(".npz"):
            yield from _archives(run.folder, name)
    yield "guarantee.statement promises something else", _summed(_set("guarantee", "statement", "Nothing can leak."))
    details = run.result.details.facts if run.result else {}
    for key, value in details.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield f"details.{key} went from {value!r} to {value + 1!r}", _summed(_set("details", key, value + 1))


def _longer(name: str) -> Change:
    def change(folder: Path) -> None:
        with (folder / name).open("ab") as stream:
            stream.write(b"\n")

    return change


def _set(table: str, key: str, value: Any) -> Change:
    def change(folder: Path) -> None:
        result = json.loads((folder / RESULT).read_text("utf-8"))
        result[table][key] = value
        (folder / RESULT).write_text(json.dumps(result), "utf-8")

    return change


def _tables(name: str, table: list[list[str]]) -> Iterator[tuple[str, Change]]:
    """Yield a text of the last row renamed; the last row taken away; the last row written twice."""
    if len(table) < 2:
        return
    *rows, last = table
    texts = [place for place, cell in enumerate(last) if cell and number_in(cell) is None]
    if texts:
        renamed = [FORGED if place == texts[0] else cell for place, cell in enumerate(last)]
        what = f"{last[texts[0]]!r} in the last row of {name} became {FORGED!r}"
        yield what, _summed(_rewritten(name, [*rows, renamed]))
        yield f"the last row of {name} was taken away", _summed(_rewritten(name, rows))
        yield f"the last row of {name} was written twice", _summed(_rewritten(name, [*rows, last, last]))


def _rewritten(name: str, table: list[list[str]]) -> Change:
    def change(folder: Path) -> None:
        (folder / name).write_bytes(csv_text(table))

    return change


def _archives(folder: Path, name: str) -> Iterator[tuple[str, Change]]:
    """Yield the last text of each array of texts renamed."""
    with np.load(folder / name, allow_pickle=False) as archive:
        arrays = dict(archive)
    for member, array in arrays.items():
        if array.dtype.kind == "U" and array.size and number_in(str(array.flat[-1])) is None:
            changed = array.astype(f"<U{max(len(FORGED), array.dtype.itemsize // 4)}")
            changed.flat[-1] = FORGED
            what = f"{array.flat[-1]!s} in {member} of {name} became {FORGED!r}"
            yield what, _summed(_packed(name, {**arrays, member: changed}))


def _packed(name: str, arrays: dict[str, Any]) -> Change:
    def change(folder: Path) -> None:
        np.savez(folder / name, **arrays)

    return change
