"""Checks that verify detects forged release folders, and that all commands that use release folders reject them.

Each forgery changes one file. Most forgeries also update the checksums, so that they can only be detected by checking
the contents. A check that does not apply to a mechanism is skipped with a reason of type ``Elsewhere``.
"""

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
from privopt.testing.checks.base import Elsewhere, Trial, check, default_method_only
from privopt.testing.problems import GeneratedProblem
from privopt.testing.under_trial import Run
from privopt.testing.variants import number_in

FORGED = "forged"
"""A name that does not belong to any record."""
WORD = re.compile(r"[^\s,\"]+")
"""Matches a cell in a table, or a word."""
LONG_NUMBER = "1e3000000"
"""A number whose exact value takes about a second to compute. With ten times the exponent, it would take a minute."""


@frozen(kw_only=True)
class Forgery:
    """A change to a file in a release's folder.

    Attributes:
        what: A clause that describes the change.
        file: The changed file's name, relative to the folder.
        contents: The file's new contents.
        summed: Whether SHA256SUMS is updated, so that the change can only be detected by checking the contents.
    """

    what: str
    file: str
    contents: bytes
    summed: bool = True

    def write(self, trial: Trial, run: Run) -> Path:
        """Copy a run's folder to a new folder of ``trial.subject``, change the file, and return the copy's path."""
        folder = trial.subject.new_folder() / "forged"
        shutil.copytree(run.folder, folder)
        (folder / self.file).write_bytes(self.contents)
        # Otherwise the checksums alone would reveal every change.
        if self.summed:
            (folder / SUMS).write_text(sums_text(folder), "utf-8")
        return folder


@check("verify-catches", share=0.3)
def verify_catches(trial: Trial) -> None:
    """Check that verify detects a changed table of the release, even if the checksums were updated to match.

    The change adds 1000 to the last number in the first table that contains numbers.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem, run = trial.draw_run()
    if run.release.artefact and hasattr(run.release, "weights"):
        trial.be_idle(Elsewhere("the release is a matrix, whose rows are forged: see the check verify-catches-rows"))
        return
    forgery = _raise_last_number(run)
    if forgery is None:
        trial.be_idle(Elsewhere("no table of the release has a number that could be raised"))
        return
    check_noticed(trial, problem, run, forgery)


def check_noticed(trial: Trial, problem: GeneratedProblem, run: Run, forgery: Forgery) -> None:
    """Fail if verify does not report a forgery of a run's folder.

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
        problem: The problem to show in the message.
        run: The run whose folder is forged.
        forgery: The forgery.
    """
    # An error is as good as a complaint, because it means that the folder is rejected.
    with trial.subject.registered(), suppress(PrivoptError):
        if not verify(forgery.write(trial, run)).complaints:
            trial.fail(f"verify does not notice that {forgery.what} (with SHA256SUMS made to fit)", problem)


def _raise_last_number(run: Run) -> Forgery | None:
    """Return a forgery in which 1000 is added to a table's last number, or None if no table contains a number."""
    tables = [path.name for path in sorted(run.folder.glob("*.csv"))]
    return next(chain.from_iterable(_replace_last_word(run, name, _add_thousand) for name in tables), None)


def _add_thousand(text: str) -> str | None:
    """Add 1000 to the number in a string, or return None if the string is not a number. Integers remain integers."""
    number = number_in(text)
    if number is None:
        return None
    return str(int(number) + 1000) if number.is_integer() and "." not in text else repr(number + 1000)


@check("use-verifies", version=2, private=True, needs=default_method_only, share=0.3, min_examples=3)
def use_verifies(trial: Trial) -> None:
    """Check that a forged release folder fails verification, and that privopt refuses to open, audit or report on it.

    Only the default method is checked, and only if its own releases claim privacy (``private``).

    Args:
        trial: A single run of the check, used to draw problems, run the mechanism and report findings.
    """
    problem, run = trial.draw_run()
    for forgery in _make_forgeries(run):
        folder = forgery.write(trial, run)
        with trial.subject.registered():
            if _try_use(lambda folder: verify(folder).holds, folder):
                trial.fail(f"verify does not notice that {forgery.what}", problem)
            # Any result other than False, even an empty one, means that the folder was used.
            for use in (open_verified, audit, write_report):
                if _try_use(use, folder) is not False:
                    trial.fail(f"{forgery.what}, and {use.__name__} takes the folder all the same", problem)
    with trial.subject.registered():
        # A short text can represent a number with millions of digits, which verify must reject without computing it.
        usual_seconds = _measure_seconds(partial(verify, run.folder))
        for forgery in _make_long_numbers(run):
            # Compare with the usual time for the same folder, so that the check does not fail because the machine is
            # slow.
            if (
                _measure_seconds(partial(verify, forgery.write(trial, run)))
                > usual_seconds + _long_number_seconds() / 2
            ):
                finding = "verify works that number out: one with more digits would keep it for hours"
                trial.fail(f"{forgery.what}, and {finding}", problem)


def _try_use(use: Callable[[Path], Any], folder: Path) -> Any:
    """Return the result of ``use(folder)``, or False if it rejects the folder with a PrivoptError."""
    try:
        return use(folder)
    except PrivoptError:
        return False


def _measure_seconds(work: Callable[[], Any]) -> float:
    """Call a function, and return its CPU time in seconds, even if it raised an error to reject its input."""
    start = time.process_time()
    with suppress(PrivoptError, ArithmeticError, ValueError):
        work()
    return time.process_time() - start


@lru_cache(1)
def _long_number_seconds() -> float:
    """Return the CPU time, in seconds, that this machine needs to compute the value of :data:`LONG_NUMBER`."""
    return _measure_seconds(partial(Fraction, LONG_NUMBER))


def _artefact_files(run: Run) -> list[str]:
    """Return the names of the files that make up the release itself (the artefact), excluding the problem's files."""
    # The names of the artefact's parts have the form "file", or "file:member" for files with several members.
    return sorted({name.partition(":")[0] for name in artefact(run.folder) if name.split("/")[0] != PROBLEM})


def _make_forgeries(run: Run) -> Iterator[Forgery]:
    """Yield forgeries of a run's artefact (the release's own files) and of the claims in its result.json.

    In the artefact, a byte is added without updating the checksums, a word is replaced, or a table's last row is
    removed or repeated. In result.json, the guarantee's statement or one of the numeric details is changed.
    """
    for name in _artefact_files(run):
        contents = (run.folder / name).read_bytes()
        description = f"a byte was added to {name}, its sum as it was"
        yield Forgery(what=description, file=name, contents=contents + b"\n", summed=False)
        if name.endswith((".csv", ".npz")):
            yield from _replace_last_word(run, name, lambda text: FORGED if number_in(text) is None else None)
        *rows, last = contents.splitlines() or [b""]
        # In a table that contains only numbers, a missing or repeated row need not be noticeable, so such tables are
        # left out.
        if name.endswith(".csv") and rows and any(number_in(cell) is None for cell in last.decode("utf-8").split(",")):
            for what, lines in (("taken away", rows), ("written twice", [*rows, last, last])):
                what = f"the last row of {name} was {what}"
                yield Forgery(what=what, file=name, contents=b"\n".join([*lines, b""]))
    yield _forge_claim(
        run, "guarantee", "statement", "Nothing can leak.", "guarantee.statement promises something else"
    )
    for key, value in run.stated.details.facts.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            yield _forge_claim(run, "details", key, value + 1, f"details.{key} went from {value!r} to {value + 1!r}")


def _make_long_numbers(run: Run) -> Iterator[Forgery]:
    """Yield forgeries of a run's files in which a rational number from the release is replaced by :data:`LONG_NUMBER`.

    The replacement has millions of digits, but takes only a few characters to write.
    """
    values = attrs.asdict(run.release, recurse=False).values()
    listed = chain.from_iterable(value if isinstance(value, (list, tuple)) else (value,) for value in values)
    # Replace only words that equal one of the release's rational attributes, because verify has to parse these.
    texts = {str(number) for number in listed if isinstance(number, Fraction)}
    for name in _artefact_files(run):
        yield from _replace_last_word(run, name, lambda text: LONG_NUMBER if text in texts else None)


def _replace_last_word(run: Run, name: str, change: Callable[[str], str | None]) -> Iterator[Forgery]:
    """Yield a forgery of a file, made by replacing the last word for which ``change`` returns a replacement.

    For an archive, only the last element of each string array is tried, and each array gives a separate forgery.

    Args:
        run: The run whose folder is forged.
        name: The file's name.
        change: A function that returns the replacement for a word, or None to keep the word.
    """
    if name.endswith(".npz"):
        arrays = load_arrays(run.folder / name)
        for member, array in arrays.items():
            last = str(array.flat[-1]) if array.dtype.kind == "U" and array.size else ""  # "U" means text
            replacement = change(last) if last else None
            if replacement is not None:
                # NumPy would truncate the replacement to the array's width, in which each character takes 4 bytes.
                changed = array.astype(f"<U{max(len(replacement), array.dtype.itemsize // 4)}")
                changed.flat[-1] = replacement
                what = f"{last!r} in {member} of {name} became {replacement!r}"
                yield Forgery(what=what, file=name, contents=pack_arrays({**arrays, member: changed}))
        return
    with suppress(UnicodeDecodeError):
        text = (run.folder / name).read_bytes().decode("utf-8")
        # Keep a table's header, because verify would reject any other header merely for its format.
        body = text.find("\n") + 1 if name.endswith(".csv") else 0
        for match in reversed([*WORD.finditer(text, body)]):
            replacement = change(match[0])
            if replacement is not None:
                contents = f"{text[: match.start()]}{replacement}{text[match.end() :]}".encode()
                yield Forgery(what=f"{match[0]!r} in {name} became {replacement!r}", file=name, contents=contents)
                return


def _forge_claim(run: Run, table: str, key: str, value: Any, what: str) -> Forgery:
    """Return a forgery of a claim in result.json.

    Args:
        run: The run whose folder is forged.
        table: The object in result.json that contains the claim, such as ``"guarantee"``.
        key: The claim's key.
        value: The claim's new value.
        what: A description of the change.
    """
    result = json.loads((run.folder / RESULT).read_text("utf-8"))
    result[table][key] = value
    return Forgery(what=what, file=RESULT, contents=json.dumps(result).encode())


def load_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Return the arrays in an ``.npz`` archive, by name."""
    with np.load(path, allow_pickle=False) as archive:
        return dict(archive)


def pack_arrays(arrays: Mapping[str, NDArray[Any]]) -> bytes:
    """Return the bytes of an ``.npz`` archive that contains the arrays."""
    stream = io.BytesIO()
    np.savez(stream, **arrays)  # type: ignore[arg-type]
    return stream.getvalue()
