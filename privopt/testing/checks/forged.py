"""Checks of forged folders: verify reports them, and every command that uses a folder refuses them."""

from __future__ import annotations

import io
import json
import re
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache, partial
from itertools import chain
from pathlib import Path
from typing import Any

import attrs
import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.errors import PrivoptError
from privopt.files.public_files import artefact
from privopt.files.release_folder import PROBLEM, RESULT, SUMS, sums_text
from privopt.report.write_report import write_report
from privopt.run.audit import audit
from privopt.run.verify import open_verified, verify
from privopt.testing.checks.base import Trial, by_default, check
from privopt.testing.problems import GeneratedProblem
from privopt.testing.under_trial import Run
from privopt.testing.variants import number_in

FORGED = "forged"
"""A name that no one has."""
WORD = re.compile(r"[^\s,\"]+")
"""A cell of a table, or a word."""
LONG = "1e3000000"
"""A number that takes most of a second to work out; ten times the exponent takes minutes, and a file may hold it."""


@frozen(kw_only=True)
class Forgery:
    """One file of a release's folder, changed.

    Attributes:
        what: was done, in words.
        file: its name.
        contents: of it now.
        summed: whether the checksums are made to fit.
    """

    what: str
    file: str
    contents: bytes
    summed: bool = True

    def write(self, trial: Trial, run: Run) -> Path:
        """Return a copy of a run's folder with the file changed."""
        folder = trial.subject.new_folder() / "forged"
        shutil.copytree(run.folder, folder)
        (folder / self.file).write_bytes(self.contents)
        if self.summed:
            (folder / SUMS).write_text(sums_text(folder), "utf-8")
        return folder


@check("verify-catches", share=0.3)
def verify_catches(trial: Trial) -> None:
    """Verify complains of a number that was raised by a thousand in a table, and summed again."""
    problem, run = trial.solved()
    if not (run.release.artefact and hasattr(run.release, "weights")):  # whose own check is of its rows
        unnoticed(trial, problem, run, _raised_number(run))


def unnoticed(trial: Trial, problem: GeneratedProblem, run: Run, spoiled: Forgery | None) -> None:
    """Fail where verify has nothing to say of a forgery, which cannot be what was certified."""
    if spoiled is None:
        return
    with trial.subject.registered(), suppress(PrivoptError):
        if not verify(spoiled.write(trial, run)).complaints:
            trial.fail(f"verify does not notice that {spoiled.what} (with SHA256SUMS made to fit)", problem)


def _raised_number(run: Run) -> Forgery | None:
    """Raise the last number of a table by a thousand."""
    tables = [path.name for path in sorted(run.folder.glob("*.csv"))]
    return next(chain.from_iterable(_replaced(run, name, _raised) for name in tables), None)


def _raised(text: str) -> str | None:
    number = number_in(text)
    if number is None:
        return None
    return str(int(number) + 1000) if number.is_integer() and "." not in text else repr(number + 1000)


@check("use-verifies", version=2, private=True, needs=by_default, share=0.3, min_examples=3)
def use_verifies(trial: Trial) -> None:
    """Check that a forged folder, checksums too, does not verify and is not opened, audited or reported on."""
    problem, run = trial.solved()
    for forgery in _forgeries(run):
        folder = forgery.write(trial, run)
        with trial.subject.registered():
            if _used(lambda folder: verify(folder).holds, folder):
                trial.fail(f"verify does not notice that {forgery.what}", problem)
            for use in (open_verified, audit, write_report):
                if _used(use, folder) is not False:
                    trial.fail(f"{forgery.what}, and {use.__name__} takes the folder all the same", problem)
    with trial.subject.registered():
        usual = _seconds(partial(verify, run.folder))
        for forgery in _endless(run):
            if _seconds(partial(verify, forgery.write(trial, run))) > usual + _worked_out() / 2:
                found = "verify works that number out: 1e30000000 would keep it for hours"
                trial.fail(f"{forgery.what}, and {found}", problem)


def _used(use: Callable[[Path], Any], folder: Path) -> Any:
    """Return what comes of a use of a folder; False where that is refused."""
    try:
        return use(folder)
    except PrivoptError:
        return False


def _seconds(work: Callable[[], Any]) -> float:
    """Processor's seconds of some work, whatever comes of it."""
    start = time.process_time()
    with suppress(PrivoptError, ArithmeticError, ValueError):
        work()
    return time.process_time() - start


@lru_cache(1)
def _worked_out() -> float:
    """Processor's seconds that the long number takes here."""
    return _seconds(partial(Fraction, LONG))


def _released(run: Run) -> list[str]:
    """Return the names of the files of the artefact."""
    return sorted({name.partition(":")[0] for name in artefact(run.folder) if name.split("/")[0] != PROBLEM})


def _forgeries(run: Run) -> Iterator[Forgery]:
    """Yield forgeries of the artefact, and of the claims of result.json."""
    for name in _released(run):
        contents = (run.folder / name).read_bytes()
        added = f"a byte was added to {name}, its sum as it was"
        yield Forgery(what=added, file=name, contents=contents + b"\n", summed=False)
        if name.endswith((".csv", ".npz")):
            yield from _replaced(run, name, lambda text: FORGED if number_in(text) is None else None)
        *rows, last = contents.splitlines() or [b""]
        if name.endswith(".csv") and rows and any(number_in(cell) is None for cell in last.decode("utf-8").split(",")):
            for what, lines in (("taken away", rows), ("written twice", [*rows, last, last])):
                what = f"the last row of {name} was {what}"
                yield Forgery(what=what, file=name, contents=b"\n".join([*lines, b""]))
    yield _claim(run, "guarantee", "statement", "Nothing can leak.", "guarantee.statement promises something else")
    for key, value in run.stated.details.facts.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield _claim(run, "details", key, value + 1, f"details.{key} went from {value!r} to {value + 1!r}")


def _endless(run: Run) -> Iterator[Forgery]:
    """Yield a scale, or another rational, replaced by one of millions of digits, in each file that has one."""
    values = attrs.asdict(run.release, recurse=False).values()
    listed = chain.from_iterable(value if isinstance(value, (list, tuple)) else (value,) for value in values)
    texts = {str(number) for number in listed if isinstance(number, Fraction)}
    for name in _released(run):
        yield from _replaced(run, name, lambda text: LONG if text in texts else None)


def _replaced(run: Run, name: str, change: Callable[[str], str | None]) -> Iterator[Forgery]:
    """Yield a file of the artefact whose last word that changes was changed; of an archive the last of each member."""
    if name.endswith(".npz"):
        arrays = arrays_of(run.folder / name)
        for member, array in arrays.items():
            last = str(array.flat[-1]) if array.dtype.kind == "U" and array.size else ""
            other = change(last) if last else None
            if other is not None:
                changed = array.astype(f"<U{max(len(other), array.dtype.itemsize // 4)}")
                changed.flat[-1] = other
                what = f"{last!r} in {member} of {name} became {other!r}"
                yield Forgery(what=what, file=name, contents=packed({**arrays, member: changed}))
        return
    with suppress(UnicodeDecodeError):
        text = (run.folder / name).read_bytes().decode("utf-8")
        body = text.find("\n") + 1 if name.endswith(".csv") else 0
        for found in reversed([*WORD.finditer(text, body)]):
            other = change(found[0])
            if other is not None:
                contents = f"{text[: found.start()]}{other}{text[found.end() :]}".encode()
                yield Forgery(what=f"{found[0]!r} in {name} became {other!r}", file=name, contents=contents)
                return


def _claim(run: Run, table: str, key: str, value: Any, what: str) -> Forgery:
    """Return a claim of result.json replaced."""
    result = json.loads((run.folder / RESULT).read_text("utf-8"))
    result[table][key] = value
    return Forgery(what=what, file=RESULT, contents=json.dumps(result).encode())


def arrays_of(path: Path) -> dict[str, NDArray[Any]]:
    """Return the members of an archive of arrays."""
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


def packed(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return an archive of arrays."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()
