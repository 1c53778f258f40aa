"""Read tables of scores or probabilities, a row for each photo: ``.npy``, or ``.csv`` with a header."""

from __future__ import annotations

from typing import Final

import numpy as np
import polars as pl

from privopt.arrays import Bools, Floats
from privopt.declare import File
from privopt.declare.frames import csv_bytes, plain_texts, repeated, table_of
from privopt.declare.tables import duplicate_faults, read_array
from privopt.errors import Fault, Faults, InputError

__all__ = ["LOG_TOLERANCE", "read_scores_of"]

UNIT_SUM = 1e-5
LOG_TOLERANCE = 1e-5
"""A logarithm of 1 may come out so much above 0."""
SUM_TOLERANCE = 0.02
"""By how much rows of probabilities in few decimals may miss their sum, relatively."""
LARGEST_SCORE = 1e100
LONGEST_NAME: Final = 1_000
"""Characters of a photo's name."""
NAMES: Final = ("photo", "file", "name", "id")
"""Of a first column that is not a location."""


def read_scores_of(file: File, *, probabilities: bool) -> tuple[Floats, list[str], tuple[str, ...]]:
    """Read a table of log-probabilities, or of probabilities whose logarithms are taken.

    Args:
        file: as the problem names it.
        probabilities: whether its rows are probabilities.

    Returns:
        Scores (photos, locations), finite or -inf; names of the photos, or their rows from 0; names of the locations.

    Raises:
        InputError: every fault found.
    """
    if file.name.lower().endswith(".csv"):
        values, names, places = _read_csv(file)
    else:
        values = read_array(file, (None, None), what="scores (photos, locations)", infinite=np.isneginf)
        names, places = [str(row) for row in range(len(values))], ()
    if values.shape[0] < 1 or values.shape[1] < 2:
        found = f"{values.shape[0]} photos and {values.shape[1]} locations"
        raise InputError([Fault(file.name, "", found, "one photo and two locations or more")])
    _refuse(file, values, np.isfinite(values) & (np.abs(values) > LARGEST_SCORE), f"numbers below {LARGEST_SCORE:g}")
    if probabilities:
        return _logarithms(file, values), names, places
    if values.min() >= 0.0 and any(
        (abs(values.sum(axis=1) - whole) <= SUM_TOLERANCE * whole).all() for whole in (1, 100)
    ):
        found = f"numbers from {values.min():.6g} to {values.max():.6g} whose rows sum to {values[0].sum():.4g}"
        wanted = "log-probabilities, which are at most 0 (probabilities are given as photos.probabilities)"
        raise InputError([Fault(file.name, "", found, wanted)])
    return values, names, places


def _read_csv(file: File) -> tuple[Floats, list[str], tuple[str, ...]]:
    """Return a table with a header: a column a location; a first column called photo or file holds names."""
    frame = table_of(file)
    header, twice = frame.columns, sorted(repeated(file))
    faults = Faults(Fault(file.name, "header", f"column {n!r} twice", "columns that differ in name") for n in twice)
    if not frame.height:
        faults.add(file.name, "", "no rows below a header", "a header, and a row for each photo")
    if not pl.Series(header).cast(pl.Float64, strict=False).has_nulls():
        faults.add(file.name, "row 1", "numbers", "a header that names the locations")
    faults.check()
    named = header[0].lower() in NAMES
    columns = []
    for name in header[named:]:
        texts = plain_texts(frame[name]).fill_null("").str.strip_chars()
        values = texts.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
        beyond = np.isinf(values) & ((values > 0.0) | texts.str.contains("[0-9]").to_numpy())  # or below all doubles
        bad = np.flatnonzero(np.isnan(values) | beyond).tolist()
        faults.add_rows(file.name, name, bad, [text or "nothing" for text in texts].__getitem__, "a number or -inf")
        columns.append(values)
    names = frame[header[0]].str.strip_chars().to_list() if named else [str(row) for row in range(frame.height)]
    long = [row for row, name in enumerate(names) if len(name) > LONGEST_NAME]
    faults.add_rows(file.name, header[0], long, lambda row: f"a name of {len(names[row]):,} characters", "a short name")
    faults.check()
    Faults(duplicate_faults(file.name, np.array(names), header[0])).check()
    file.seen.instead = csv_bytes(frame)
    return np.array(columns, dtype=np.float64).T.reshape(frame.height, -1), names, tuple(header[named:])


def _refuse(file: File, values: Floats, bad: Bools, wanted: str) -> None:
    """Refuse cells, by row and column from 0."""
    cells = np.argwhere(bad).tolist()
    faults = (Fault(file.name, f"row {r}, column {c} (from 0)", str(values[r, c]), wanted) for r, c in cells)
    Faults(faults, len(cells)).check()


def _logarithms(file: File, values: Floats) -> Floats:
    """Probabilities as scores; 0 becomes -inf."""
    _refuse(file, values, values < 0.0, "a probability, at least 0")
    sums = values.sum(axis=1)
    odd = np.flatnonzero(np.abs(sums - 1.0) > UNIT_SUM).tolist()
    said = ((f"row {row} (from 0)", f"probabilities that sum to {sums[row]:.9g}") for row in odd)
    Faults((Fault(file.name, where, found, "a sum of 1") for where, found in said), len(odd)).check()
    with np.errstate(divide="ignore"):
        return np.log(values)
