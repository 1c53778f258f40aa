"""A classifier's scores, and the photos that a release keeps."""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from privopt.checker.arrays import read_npz
from privopt.checker.exact import need, rational
from privopt.checker.files import Problem

__all__ = ["UNIT", "ScoreTable", "differences", "read_deletions", "read_scores"]

UNIT = 2**1074
"""Scores are whole numbers of 1 / this: every double is one."""

NAMES = ("photo", "file", "name", "id")
"""Of a first column that is not a place."""

Row = Sequence[float]


@dataclass
class ScoreTable:
    """Photos and their scores.

    Attributes:
        names: of the photos.
        true: number of the true place.
        scores: of each photo the log-score of each place.
        copies: the same of the clean copies that were written, of photos that are kept; None
            without any.
    """

    names: list[str]
    true: int
    scores: list[Row]
    copies: list[Row] | None = None


def read_deletions(folder: Path) -> tuple[list[str], set[int]]:
    """Return the names of all photos in deletions.csv, and the numbers of those that are kept.

    Raises:
        RefusedError: other columns, or other cells than 0 and 1.
    """
    head, *rows = _read_table(folder / "deletions.csv")
    sound = head == ["photo", "deleted"] and all(row[1:] in (["0"], ["1"]) for row in rows)
    need(sound, "deletions.csv: not the photos in problem/", 2)
    return [row[0] for row in rows], {i for i, row in enumerate(rows) if row[1] == "0"}


def read_scores(
    folder: Path, problem: Problem, photos: Mapping[str, Any], listed: list[str], retained: set[int]
) -> ScoreTable:
    """Read the scores that the problem names: a table, an array, or a folder's in scores.npz.

    Args:
        folder: of the release.
        problem: its problem.
        photos: the table ``[photos]``.
        listed: names of photos in deletions.csv.
        retained: numbers of those that are kept.

    Raises:
        RefusedError: they are not log-scores or probabilities, or not of these photos.
    """
    file = photos.get("scores", photos.get("probabilities"))
    copied = "folder" in photos and (folder / "copies.csv").exists()
    found = ScoreTable([str(i) for i in range(len(listed))], photos.get("true_location", -1), [])
    found.true = int(found.true)
    if str(file).lower().endswith(".csv"):
        _read_csv(problem, file, found)
    elif file:
        found.scores = list(problem.array(file).rows)
    else:
        parts = "scores:f8:2 true:i8:0 places:U:1"
        table, true, *rest = read_npz(folder / "scores.npz", parts + (" copies:f8:2" if copied else ""))
        found.names, found.true, found.scores = listed, true.flat[0], list(table.rows)
        found.copies = list(rest[1].rows) if copied else None
    odd = "scores" in photos and _look_like_probabilities(found.scores)
    if "probabilities" in photos:
        found.scores = [[math.log(p) if p else -math.inf for p in row] for row in found.scores]
    same = listed == found.names and len(set(listed)) == len(found.scores)
    need(same, "deletions.csv: not the photos in problem/", 2)
    every = found.scores + (found.copies or [])
    if copied:
        names = [row[0] for row in _read_table(folder / "copies.csv")][1:]
        those = names == [listed[i] for i in sorted(retained)]
        odd = odd or not those or len(found.copies or []) != len(retained)
    even = len({*map(len, every)}) == 1 and all(x < math.inf for row in every for x in row)
    need(even and not odd, "scores or copies: odd, or of other photos", 2)
    return found


def _read_table(file: Path) -> list[list[str]]:
    return list(csv.reader(io.StringIO(file.read_text("utf-8"))))


def _read_csv(problem: Problem, file: object, table: ScoreTable) -> None:
    """Read a column of scores for each place, after an optional one of names; -inf is allowed."""
    cells = problem.columns(file)
    first = next(iter(cells))
    if first.lower() in NAMES:
        table.names = cells.pop(first)
    rows = zip(*cells.values(), strict=True)
    table.scores = [[float(x if "nf" in x.lower() else rational(x)) for x in row] for row in rows]


def _look_like_probabilities(scores: list[Row]) -> bool:
    """Check whether rows nearly add up to 1 or 100: the logarithm may have been forgotten."""

    def add_up(row: Row, whole: int) -> bool:
        return min(row) >= 0 >= abs(sum(row) - whole) - whole / 50

    return any(all(add_up(row, whole) for row in scores) for whole in (1, 100))


def differences(scores: list[Row], place: int, true: int, margin: float) -> list[int | None]:
    """Return S_ij - S_it - margin of each photo i, place j, true place t; None for -inf.

    Exact, in :data:`UNIT`: the three are doubles.
    """

    def one(row: Row) -> int | None:
        if -math.inf in (row[place], row[true]):
            return None
        return int((Fraction(row[place]) - Fraction(row[true]) - Fraction(margin)) * UNIT)

    return [one(row) for row in scores]
