"""Read tables of scores or probabilities, a row for each photo: ``.npy``, or ``.csv`` with a header."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import polars as pl

from privopt.arrays import Bools, Floats
from privopt.declare import File
from privopt.declare.frames import plain_texts, plainly, repeated, table_of
from privopt.declare.tables import read_array
from privopt.errors import Fault, Faults, InputError

__all__ = ["LOG_TOLERANCE", "read_scores_of"]

UNIT_SUM = 1e-5
LOG_TOLERANCE = 1e-5
"""A logarithm of 1 may come out so much above 0."""
SUM_TOLERANCE = 0.02
"""By how much rows of probabilities in few decimals may miss their sum, relatively."""
LARGEST_SCORE = 1e100
NUMBER: Final = r"(?i)^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]{1,3})?$|^[+-]?inf(inity)?$|^nan$"
"""A cell with a number: as in other tables no underscores, and no digits but these."""
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
    values, names, places = _read(file)
    if probabilities:
        return _logarithms(file, values), names, places
    if values.min() >= 0.0 and any(
        (abs(values.sum(axis=1) - whole) <= SUM_TOLERANCE * whole).all() for whole in (1, 100)
    ):
        found = f"numbers from {values.min():.6g} to {values.max():.6g} whose rows sum to {values[0].sum():.4g}"
        wanted = "log-probabilities, which are at most 0 (probabilities are given as photos.probabilities)"
        raise InputError([Fault(file.name, "", found, wanted)])
    return values, names, places


def _read(file: File) -> tuple[Floats, list[str], tuple[str, ...]]:
    """Scores or probabilities of an .npy or .csv file, the photos' names (rows where there are none), the places'."""
    places: tuple[str, ...] = ()
    if file.name.lower().endswith(".csv"):
        values, names, places = _read_csv(file)
    else:
        values = read_array(file, (None, None), what="scores (photos, locations)", infinite=np.isneginf)
        names = [str(row) for row in range(len(values))]
    faults = Faults()
    if values.shape[0] < 1 or values.shape[1] < 2:
        found = f"{values.shape[0]} photos and {values.shape[1]} locations"
        faults.add(file.name, "", found, "one photo and two locations or more")
    with np.errstate(invalid="ignore"):
        large = np.argwhere((np.abs(values) > LARGEST_SCORE) & np.isfinite(values)).tolist()
    faults.extend(_cells(file, values, large, f"numbers below {LARGEST_SCORE:g}"), len(large))
    faults.check()
    return values, names, places


def _read_csv(file: File) -> tuple[Floats, list[str], tuple[str, ...]]:
    """Return a table with a header: a column a location; a first column called photo or file holds names."""
    frame = table_of(file)
    header, twice = frame.columns, sorted(repeated(file))
    faults = Faults(Fault(file.name, "header", f"column {n!r} twice", "columns that differ in name") for n in twice)
    if not frame.height:
        faults.add(file.name, "", "no rows below a header", "a header, and a row for each photo")
    if _numbers(pl.Series(header))[1].all():
        faults.add(file.name, "row 1", "numbers", "a header that names the locations")
    faults.check()
    named = header[0].lower() in NAMES
    columns = []
    for name in header[named:]:
        texts = plain_texts(frame[name]).fill_null("").str.strip_chars()
        values, sound = _numbers(texts)
        columns.append(values)
        bad = np.flatnonzero(~sound | np.isnan(values) | (values == np.inf)).tolist()
        faults.add_rows(file.name, name, bad, [text or "nothing" for text in texts].__getitem__, "a number or -inf")
    names = frame[header[0]].str.strip_chars().to_list() if named else [str(row) for row in range(frame.height)]
    long = [row for row, name in enumerate(names) if len(name) > LONGEST_NAME]
    faults.add_rows(file.name, header[0], long, lambda row: f"a name of {len(names[row]):,} characters", "a short name")
    again = [row for row, name in enumerate(names) if names.index(name) != row]
    faults.add_rows(file.name, header[0], again, lambda row: f"{names[row]!r} again", "names that differ")
    faults.check()
    plain = plainly(file, frame)
    if plain != file.contents:
        file.seen.instead = plain
    return np.column_stack(columns) if columns else np.zeros((frame.height, 0)), names, tuple(header[named:])


def _cells(file: File, values: Floats, places: Sequence[Sequence[int]], wanted: str) -> Iterator[Fault]:
    """Faults of cells, by row and column from 0."""
    for r, c in places:
        yield Fault(file.name, f"row {r}, column {c} (from 0)", str(values[r, c]), wanted)


def _numbers(texts: pl.Series) -> tuple[Floats, Bools]:
    """(rows,) cells as doubles, and which of them are numbers; decimals beyond all doubles are none."""
    values = texts.str.strip_prefix("+").cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
    beyond = np.isinf(values) & texts.str.contains("[0-9]").to_numpy()
    return values, texts.str.contains(NUMBER).to_numpy() & ~beyond


def _logarithms(file: File, values: Floats) -> Floats:
    """Probabilities as scores; 0 becomes -inf."""
    low = np.argwhere(values < 0).tolist()
    faults = Faults(_cells(file, values, low, "a probability, at least 0"), len(low))
    with np.errstate(invalid="ignore"):
        sums = values.sum(axis=1)
    if not faults.count:
        odd = np.flatnonzero(~(np.abs(sums - 1.0) <= UNIT_SUM)).tolist()
        said = (f"probabilities that sum to {sums[row]:.9g}" for row in odd)
        where = (f"row {row} (from 0)" for row in odd)
        faults.extend((Fault(file.name, r, f, "a sum of 1") for r, f in zip(where, said, strict=True)), len(odd))
    faults.check()
    with np.errstate(divide="ignore"):
        return np.log(values)
