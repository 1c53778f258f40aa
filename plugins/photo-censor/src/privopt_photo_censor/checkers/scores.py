"""Read a classifier's scores and the deletions of a photo-censor release."""

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
"""The reciprocal of the unit in which score differences are expressed. Every double is a multiple of that unit."""

NAMES = ("photo", "file", "name", "id")
"""The headers that identify the first column as photo names rather than scores."""

Row = Sequence[float]


@dataclass
class ScoreTable:
    """The names and scores of the photos in an album.

    Attributes:
        names: The names of the photos.
        true: The index of the true place.
        scores: One row per photo, with the log-probability of each place.
        copies: One row per clean copy, with the log-probability of each place. None if there are no copies.
    """

    names: list[str]
    true: int
    scores: list[Row]
    copies: list[Row] | None = None


def read_deletions(folder: Path) -> tuple[list[str], set[int]]:
    """Read deletions.csv, and return the names of all photos and the indices of the retained ones.

    Raises:
        RefusedError: The columns are not ``photo`` and ``deleted``, or an entry of ``deleted`` is neither 0 nor 1.
    """
    head, *rows = _read_table(folder / "deletions.csv")
    is_valid = head == ["photo", "deleted"] and all(row[1:] in (["0"], ["1"]) for row in rows)
    need(is_valid, "deletions.csv: not the photos in problem/", 2)
    return [row[0] for row in rows], {i for i, row in enumerate(rows) if row[1] == "0"}


def read_scores(
    folder: Path, problem: Problem, photos: Mapping[str, Any], listed: list[str], retained: set[int]
) -> ScoreTable:
    """Read the scores of the photos and of any clean copies.

    The scores come from the CSV or array file named in the problem. If a folder of photos is named instead, they come
    from the release's scores.npz.

    Args:
        folder: The release folder.
        problem: The release's problem file.
        photos: The ``[photos]`` table of the problem file.
        listed: The names of the photos in deletions.csv.
        retained: The indices of the retained photos.

    Raises:
        RefusedError: The rows have different lengths, a score is NaN or positive infinity, the scores look like
            probabilities, the photos are not those in ``listed``, or the copies do not match ``retained``.
    """
    file = photos.get("scores", photos.get("probabilities"))
    has_copies = "folder" in photos and (folder / "copies.csv").exists()
    # Photos without names are named by their index. If the problem does not give the true place, scores.npz does.
    result = ScoreTable([str(i) for i in range(len(listed))], photos.get("true_location", -1), [])
    result.true = int(result.true)
    if str(file).lower().endswith(".csv"):
        _read_csv(problem, file, result)
    elif file:
        result.scores = list(problem.array(file).rows)
    else:
        # Each array's name, type and number of dimensions. The arrays are returned in this order.
        parts = "scores:f8:2 true:i8:0 places:U:1"
        table, true, *other_arrays = read_npz(folder / "scores.npz", parts + (" copies:f8:2" if has_copies else ""))
        result.names, result.true, result.scores = listed, true.flat[0], list(table.rows)
        result.copies = list(other_arrays[1].rows) if has_copies else None
    # Probabilities must not be taken for scores, because they would lead to different deletions.
    is_invalid = "scores" in photos and _look_like_probabilities(result.scores)
    if "probabilities" in photos:
        result.scores = [[math.log(p) if p else -math.inf for p in row] for row in result.scores]
    has_same_photos = listed == result.names and len(set(listed)) == len(result.scores)
    need(has_same_photos, "deletions.csv: not the photos in problem/", 2)
    rows = result.scores + (result.copies or [])
    if has_copies:
        names = [row[0] for row in _read_table(folder / "copies.csv")][1:]
        has_same_copies = names == [listed[i] for i in sorted(retained)]
        is_invalid = is_invalid or not has_same_copies or len(result.copies or []) != len(retained)
    is_rectangular = len({*map(len, rows)}) == 1 and all(x < math.inf for row in rows for x in row)
    need(is_rectangular and not is_invalid, "scores or copies: invalid, or of other photos", 2)
    return result


def _read_table(file: Path) -> list[list[str]]:
    """Return the rows of a CSV file, including the header, as lists of strings."""
    return list(csv.reader(io.StringIO(file.read_text("utf-8"))))


def _read_csv(problem: Problem, file: object, table: ScoreTable) -> None:
    """Read a CSV file with the photos' scores, and their names if present, into ``table``.

    The file has one column per place, which may be preceded by a column of names. A score may be -inf.

    Args:
        problem: The release's problem file.
        file: The name of the CSV file, as given in the problem file.
        table: The table to fill.
    """
    cells = problem.columns(file)
    header = next(iter(cells))
    if header.lower() in NAMES:
        table.names = cells.pop(header)
    rows = zip(*cells.values(), strict=True)
    # Infinities in any spelling contain "nf". They are not rationals, so float() reads them.
    table.scores = [[float(x if "nf" in x.lower() else rational(x)) for x in row] for row in rows]


def _look_like_probabilities(scores: list[Row]) -> bool:
    """Return whether the rows look like probabilities: non-negative, with sums all close to 1 or all close to 100."""

    def add_up(row: Row, expected_sum: int) -> bool:
        """Return whether a row has no negative entries and a sum within 2 % of ``expected_sum``."""
        return min(row) >= 0 >= abs(sum(row) - expected_sum) - expected_sum / 50

    return any(all(add_up(row, expected_sum) for row in scores) for expected_sum in (1, 100))


def differences(scores: list[Row], column: int, true: int, margin: float) -> list[int | None]:
    """Return each photo's score for a place, minus its score for the true place, minus the margin.

    The differences measure how much each photo favours the place over the true one. Every double is a multiple of
    2**-1074, and the differences are exact integers in this unit. A difference is None if either score is -inf.

    Args:
        scores: One row per photo, with the log-probability of each place.
        column, true: The indices of the place and of the true place.
        margin: The margin, which is added to each photo's score for the true place.
    """

    def subtract(row: Row) -> int | None:
        """Return the difference for a photo's row of scores, or None if either score is -inf."""
        if -math.inf in (row[column], row[true]):
            return None
        return int((Fraction(row[column]) - Fraction(row[true]) - Fraction(margin)) * UNIT)

    return [subtract(row) for row in scores]
