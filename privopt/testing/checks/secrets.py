"""Checks that nothing secret is outside ``private/``: not as bytes, not as an order."""

from __future__ import annotations

import csv
import io
import zipfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

import hypothesis

from privopt.run.folder import PRIVATE
from privopt.testing.checks.base import ANY_CLAIM, LITTLE, NOISE, Trial, check
from privopt.testing.problems import GeneratedProblem
from privopt.testing.under_trial import Run, Subject

__all__ = ["public_bytes"]

AGAIN: Final = 4
"""Runs in all of which a secret must stand to be called a leak."""


def public_bytes(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Contents of the files outside ``private/``, the members of archives included."""
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        if not path.is_file() or name.split("/")[0] == PRIVATE:
            continue
        contents = path.read_bytes()
        yield name, contents
        if zipfile.is_zipfile(io.BytesIO(contents)):
            with zipfile.ZipFile(io.BytesIO(contents)) as archive:
                for member in archive.namelist():
                    yield f"{name}:{member}", archive.read(member)


def _forms(secret: bytes) -> Iterator[bytes]:
    """A secret as text in two encodings and, where it is a number, as eight bytes of either kind."""
    yield secret
    text = secret.decode("utf-8", "replace")
    yield text.encode("utf-16-le")
    yield text.encode("utf-32-le")
    if text.lstrip("-").isdigit() and abs(int(text)) < 2**62:
        import struct

        yield struct.pack("<q", int(text))
        yield struct.pack("<d", float(text))


def _stands(secret: bytes, folder: Path) -> str | None:
    """Name of a public file that a secret stands in, as a word or number of its own."""
    for name, contents in public_bytes(folder):
        for form in _forms(secret):
            start = contents.find(form)
            while start >= 0:
                before, after = contents[start - 1 : start], contents[start + len(form) : start + len(form) + 1]
                inside = form == secret and (before[-1:].isalnum() or after[:1].isalnum())
                if not inside:
                    return name
                start = contents.find(form, start + 1)
    return None


def _is_secretive(subject: Subject) -> str | None:
    return None if subject.noisy or subject.profile.neighbours is not None else "the problem holds no secret"


@check("no-secret-leak", kinds=ANY_CLAIM, needs=_is_secretive, least=10)
def no_secret_leak(trial: Trial) -> None:
    """No planted secret stands in a file outside private/."""
    problem = trial.problem()
    if not problem.secrets:
        return
    if problem.get("privacy.epsilon") is not None:
        problem = problem.with_key("privacy.epsilon", LITTLE)
    run = trial.run(problem)
    for secret in problem.secrets:
        where = _stands(secret, run.folder)
        if where is None:
            continue
        others = [trial.run(problem, fresh=number) for number in range(1, AGAIN)]
        if all(_stands(secret, other.folder) is not None for other in others):
            trial.fail(
                f"the secret {secret.decode('utf-8', 'replace')!r} stands in {where}, which is outside {PRIVATE}/ "
                f"(in {AGAIN} of {AGAIN} runs)",
                problem,
            )


def _first_columns(run: Run) -> dict[str, list[str]]:
    """First column of each public table, in the order of its rows."""
    found = {}
    for name, contents in public_bytes(run.folder):
        if name.endswith(".csv"):
            rows = csv.reader(io.StringIO(contents.decode("utf-8", "replace")))
            found[name] = [row[0] for row in rows if row]
    return found


@check("order-leak", kinds=NOISE, needs=_is_secretive)
def order_leak(trial: Trial) -> None:
    """The order of rows in public files does not depend on the secret."""
    problem = trial.problem()
    make = trial.subject.profile.neighbours
    if make is None:
        hypothesis.reject()
    near = list(islice(make(problem), 40))
    if not near:
        return
    other: GeneratedProblem = trial.chance(problem).choice(near)
    one, two = trial.run(problem), trial.run(other)
    for name, column in _first_columns(one).items():
        second = _first_columns(two).get(name, [])
        if column != second:
            place = next((n for n, (a, b) in enumerate(zip(column, second, strict=False)) if a != b), len(second))
            trial.fail(
                f"{name}: row {place + 1} is {[*column, 'nothing'][place]!r} here and "
                f"{[*second, 'nothing'][place]!r} for a neighbour; rows must keep the order of the input",
                problem,
            )
