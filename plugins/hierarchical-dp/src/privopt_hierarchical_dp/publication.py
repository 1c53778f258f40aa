"""Tables for readers, which show a margin of error for each cell and mark or suppress cells that are too noisy.

These tables are computed from released counts and published noise scales, so they cost no privacy budget. Suppressing
cells does not protect anyone, because the certified tables contain every count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privopt.arrays import Bools, Ints
from privopt_hierarchical_dp.least_squares import SLACK_GROUPS, UNBOUNDED, Ends
from privopt_hierarchical_dp.problem import PublishRules
from privopt_hierarchical_dp.region_tables import Form, write_rows
from privopt_hierarchical_dp.release import ENDS, PUBLICATION, HierarchyRelease

__all__ = [
    "MARK",
    "count_noisy_cells",
    "describe_margins",
    "find_noisy_cells",
    "find_wrong_lines",
    "margins_of",
    "publication_files",
]

MARK: Final = "too noisy"
"""The entry in the ``quality`` column for cells whose coefficient of variation exceeds the limit."""


def margins_of(ends: Ends, slack: float = 0.0) -> Ints:
    """Return the margins of error at one level.

    A cell's margin of error is the half-width of its interval, rounded up. Unlike the intervals, margins are not
    truncated at 0, so they also show the noise on small counts.

    Args:
        ends: The intervals at this level, before rounding.
        slack: A small amount to add to each half-width before rounding, to allow for rounding errors that differ
            between machines.

    Returns:
        An integer array of shape (regions, cells).
    """
    reach = np.broadcast_to(ends.reach, ends.released.shape)
    # If epsilon is tiny, a half-width may not fit into 64 bits, so it is clipped before the conversion to integers.
    return np.clip(np.ceil(reach + slack), 0, UNBOUNDED).astype(np.int64)


def find_noisy_cells(counts: Ints, margins: Ints, coefficient: Fraction, confidence: float) -> Bools:
    """Return a mask of the cells whose coefficient of variation exceeds a limit.

    The coefficient of variation is the standard error divided by the count, and the standard error is the margin of
    error divided by the normal quantile, as is customary in official statistics. A count of 0 with a positive margin
    always exceeds the limit.

    Args:
        counts: The released counts, as an array of shape (regions, ...).
        margins: The margins of error, as an array of shape (regions, cells).
        coefficient: The largest acceptable coefficient of variation.
        confidence: The confidence level of the margins.
    """
    # The quantile is rounded to four decimals, as statistical offices print it (1.9600), so that it is the same on
    # every machine. It is taken from the lower tail, because (1 + confidence) / 2 may round to 1, which has no
    # quantile.
    quantile = round(-NormalDist().inv_cdf((1 - confidence) / 2), 4)
    is_noisy: Bools = margins > float(coefficient) * quantile * counts.reshape(margins.shape)
    return is_noisy


def publication_files(
    release: HierarchyRelease,
    table_ends: Sequence[Sequence[Ends]],
    rules: PublishRules,
    confidence: float,
    slack: float = 0.0,
) -> dict[str, bytes]:
    """Return the tables published for readers, as the contents of CSV files.

    These tables show a margin of error for each cell, and mark or suppress cells that are too noisy.

    Args:
        release: The release.
        table_ends: The intervals before rounding, for each table and level.
        rules: The publication rules.
        confidence: The confidence level of the intervals.
        slack: The amount to add to the half-widths before rounding (see :func:`margins_of`).

    Returns:
        The contents of each file, keyed by its path relative to the release folder.
    """
    assert rules.coefficient_of_variation is not None  # the caller has checked this
    assert release.bounds is not None  # the release has intervals
    files = {}
    for number, (form, level_ends) in enumerate(zip(release.layout.forms, table_ends, strict=True)):
        columns: dict[str, list[NDArray[Any]]] = {name: [] for name in (form.count, *ENDS, "margin", "quality")}
        for counts, bounds, ends in zip(release.counts[number], release.bounds[number], level_ends, strict=True):
            margins = margins_of(ends, slack)
            is_noisy = find_noisy_cells(counts, margins, rules.coefficient_of_variation, confidence)
            for name, values in zip((form.count, *ENDS), (counts.reshape(margins.shape), *bounds), strict=True):
                texts = values.astype(str)
                columns[name].append(np.where(is_noisy, "", texts) if rules.too_noisy == "suppress" else texts)
            columns["margin"].append(margins)
            columns["quality"].append(np.where(is_noisy, MARK, ""))
        files[_path_of(form)] = _write_table(release, form, columns)
    return files


def _path_of(form: Form) -> str:
    """Return the path of the table published for readers, relative to the release folder."""
    return f"{PUBLICATION}/{Path(form.file).name}"


def _write_table(release: HierarchyRelease, form: Form, columns: Mapping[str, Sequence[NDArray[Any]]]) -> bytes:
    """Return the contents of a CSV file with the given columns."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "table.csv"
        write_rows(path, release.tree, form.cells, columns)
        return path.read_bytes()


def find_wrong_lines(
    release: HierarchyRelease, table_ends: Sequence[Sequence[Ends]], rules: PublishRules, confidence: float
) -> list[str]:
    """Check the tables published for readers against the released counts and intervals.

    If a margin could be rounded differently on another machine, either value is accepted.

    Args:
        release: The release, with its tables for readers.
        table_ends: The intervals before rounding, for each table and level.
        rules: The publication rules.
        confidence: The confidence level of the intervals.

    Returns:
        For each file with wrong lines, a message about the first wrong line.
    """
    expected_files = [
        publication_files(release, table_ends, rules, confidence, slack) for slack in (-SLACK_GROUPS, 0.0, SLACK_GROUPS)
    ]
    complaints = []
    for path in expected_files[0]:
        lines = release.publication.get(path, b"").splitlines()
        alternatives = list(zip(*(files[path].splitlines() for files in expected_files), strict=True))
        # A missing or additional line is wrong as well.
        wrong_numbers = [
            number
            for number, (line, allowed) in enumerate(zip(lines, alternatives, strict=False), start=1)
            if line not in allowed
        ]
        if len(lines) != len(alternatives):
            wrong_numbers.append(min(len(lines), len(alternatives)) + 1)
        if wrong_numbers:
            complaints.append(f"{path}: line {wrong_numbers[0]} is not what the released counts and the noise give")
    return complaints


def count_noisy_cells(publication: Mapping[str, bytes], form: Form) -> int:
    """Return the number of cells that are marked or suppressed as too noisy in a table for readers."""
    lines = publication.get(_path_of(form), b"").splitlines()
    return sum(line.endswith(f",{MARK}".encode()) for line in lines[1:])


def describe_margins(level_ends: Sequence[Ends], confidence: float, noun: str) -> str:
    """Return sentences that state the largest margin of error at each level and explain what a margin of error is.

    Args:
        level_ends: The intervals before rounding, for each level of one table.
        confidence: The confidence level of the intervals.
        noun: The plural noun for what the cells count.
    """
    margins = [int(margins_of(ends).max(initial=0)) for ends in level_ends]
    names = [f"level {level}" for level in range(1, 1 + len(margins))]
    # Readers may not know that level 1 is the top.
    names[0] += " (the whole)" if len(names) > 1 else ""
    by_level = ", ".join(f"{margin:,} on {name}" for margin, name in zip(margins, names, strict=True))
    return (
        f"Margins of error at {100 * confidence:g} %, in {noun}: at most {by_level}. Such a margin is half the width "
        "of an interval before its ends are rounded outwards to whole numbers. A published count need not be in the "
        "middle of its interval."
    )
