"""Read tables of log-probabilities or probabilities, with one row per photo, from ``.npy`` or ``.csv`` files."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from privopt.arrays import Bools, Floats
from privopt.declare import File
from privopt.declare.frames import csv_bytes, find_repeated_names, plain_texts, table_of
from privopt.declare.tables import duplicate_faults, read_array
from privopt.errors import Fault, Faults, InputError, number_of

__all__ = ["LOG_TOLERANCE", "read_scores_of"]

UNIT_SUM = 1e-5
"""The maximum amount by which the sum of a photo's probabilities may deviate from 1."""
LOG_TOLERANCE = 1e-5
"""The amount by which a log-probability may exceed 0, to allow for rounding."""
SUM_TOLERANCE = 0.02
"""The relative tolerance for detecting probabilities that are given as scores by mistake, perhaps with few decimals.

A table of scores is rejected if no score is negative and all rows sum to 1, or all to 100, within this tolerance.
"""
LARGEST_SCORE = 1e100
"""The maximum absolute value of a finite score, so that sums of scores do not overflow."""
LONGEST_NAME: Final = 1_000
"""The maximum number of characters in a photo's name."""
NAMES: Final = ("photo", "file", "name", "id")
"""The headers that identify the first column as photo names rather than scores."""


def read_scores_of(file: File, *, probabilities: bool) -> tuple[Floats, list[str], tuple[str, ...]]:
    """Read a table of log-probabilities or probabilities, and return log-probabilities.

    Args:
        file: The table's file, as named in the problem file.
        probabilities: Whether the table contains probabilities.

    Returns:
        An array of shape (photos, locations) with the scores, which are finite or -inf; the names of the photos, or
        their row numbers if they have no names; and the names of the locations, or an empty tuple if they are not
        known.

    Raises:
        InputError: Cells, names or sums are invalid. The exception may list several errors.
    """
    if file.name.lower().endswith(".csv"):
        values, names, places = _read_csv(file)
    else:
        values = read_array(file, (None, None), what="scores (photos, locations)", infinite=np.isneginf)
        names, places = [str(row) for row in range(len(values))], ()
    if values.shape[0] < 1 or values.shape[1] < 2:
        actual = f"{number_of(values.shape[0], 'photo')} and {number_of(values.shape[1], 'location')}"
        raise InputError([Fault(file.name, "", actual, "one photo and two locations or more")])
    _refuse_cells(
        file, values, np.isfinite(values) & (np.abs(values) > LARGEST_SCORE), f"numbers below {LARGEST_SCORE:g}"
    )
    if probabilities:
        return _take_logarithms(file, values), names, places
    # If probabilities passed for scores, other photos would be deleted, and nothing else would show the mistake.
    if values.min() >= 0.0 and any(
        (abs(values.sum(axis=1) - expected_sum) <= SUM_TOLERANCE * expected_sum).all() for expected_sum in (1, 100)
    ):
        actual = f"numbers from {values.min():.6g} to {values.max():.6g} whose rows sum to {values[0].sum():.4g}"
        expectation = "log-probabilities, which are at most 0 (probabilities are given as photos.probabilities)"
        raise InputError([Fault(file.name, "", actual, expectation)])
    return values, names, places


def _read_csv(file: File) -> tuple[Floats, list[str], tuple[str, ...]]:
    """Read a CSV file with a header and one column per location.

    If the first column's header is in :data:`NAMES`, that column contains the names of the photos.

    Returns:
        The numbers, of shape (photos, locations); the names of the photos, or their row numbers if they have no names;
        and the names of the locations.

    Raises:
        InputError: The header or cells are invalid. The exception may list several errors.
    """
    frame = table_of(file)
    header, repeated_names = frame.columns, sorted(find_repeated_names(file))
    faults = Faults(
        Fault(file.name, "header", f"column {n!r} twice", "columns that differ in name") for n in repeated_names
    )
    if not frame.height:
        faults.add(file.name, "", "no rows below a header", "a header, and a row for each photo")
    # If all headers are numbers, the file probably has no header, and this is the row of the first photo.
    if not pl.Series(header).cast(pl.Float64, strict=False).has_nulls():
        faults.add(file.name, "row 1", "numbers", "a header that names the locations")
    faults.check()
    # With any other header, the first column is a location like the rest.
    has_names = header[0].lower() in NAMES
    columns = []
    for name in header[has_names:]:
        texts = plain_texts(frame[name]).fill_null("").str.strip_chars()
        values = texts.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
        # +inf is not a log-probability. If a number with digits is read as infinite (-1e999), it is too large for a
        # double.
        is_infinite = np.isinf(values) & ((values > 0.0) | texts.str.contains("[0-9]").to_numpy())
        invalid_rows = np.flatnonzero(np.isnan(values) | is_infinite).tolist()
        faults.add_rows(
            file.name, name, invalid_rows, [text or "nothing" for text in texts].__getitem__, "a number or -inf"
        )
        columns.append(values)
    names = frame[header[0]].str.strip_chars().to_list() if has_names else [str(row) for row in range(frame.height)]
    long_name_rows = [row for row, name in enumerate(names) if len(name) > LONGEST_NAME]
    faults.add_rows(
        file.name, header[0], long_name_rows, lambda row: f"a name of {len(names[row]):,} characters", "a short name"
    )
    faults.check()
    Faults(duplicate_faults(file.name, np.array(names), header[0])).check()
    # The release contains the table in a canonical form of CSV, whatever the dialect of the file.
    file.seen.instead = csv_bytes(frame)
    return np.array(columns, dtype=np.float64).T.reshape(frame.height, -1), names, tuple(header[has_names:])


def _refuse_cells(file: File, values: Floats, is_invalid: Bools, expectation: str) -> None:
    """Raise InputError if a table has invalid cells.

    Args:
        file: The table's file, for the error message.
        values: (photos, locations) The numbers in the table.
        is_invalid: (photos, locations) Whether each cell is invalid.
        expectation: A description of valid cells, for the error message.

    Raises:
        InputError: At least one cell is invalid. The message lists the first invalid cells and gives their total
            number.
    """
    cells = np.argwhere(is_invalid).tolist()
    faults = (Fault(file.name, f"row {r}, column {c} (from 0)", str(values[r, c]), expectation) for r, c in cells)
    Faults(faults, len(cells)).check()


def _take_logarithms(file: File, values: Floats) -> Floats:
    """Return the natural logarithms of probabilities, with -inf for 0.

    Args:
        file: The table's file, for error messages.
        values: (photos, locations) The probabilities.

    Raises:
        InputError: A probability is negative, or a photo's probabilities do not sum to 1.
    """
    _refuse_cells(file, values, values < 0.0, "a probability, at least 0")
    sums = values.sum(axis=1)
    invalid_rows = np.flatnonzero(np.abs(sums - 1.0) > UNIT_SUM).tolist()
    descriptions = ((f"row {row} (from 0)", f"probabilities that sum to {sums[row]:.9g}") for row in invalid_rows)
    Faults((Fault(file.name, where, actual, "a sum of 1") for where, actual in descriptions), len(invalid_rows)).check()
    with np.errstate(divide="ignore"):
        return np.log(values)
