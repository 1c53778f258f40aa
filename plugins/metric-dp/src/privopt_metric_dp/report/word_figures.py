"""Statistics about a release of words: how often words stay unchanged, what replaces them, and at what distance.

Source:
    Feyisetan, Balle, Drake, Diethe: Privacy- and Utility-Preserving Textual Analysis via Calibrated Multivariate
    Perturbations (WSDM 2020), section 5: the statistics N_w and S_w.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, slices
from privopt.interfaces.reporting import Section
from privopt.report.page import table
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData

__all__ = ["WordFigures", "word_figures", "word_section"]

DRAWS_PER_WORD: Final = 1_000
"""The number of reports per word used to count distinct words, as in Feyisetan et al. (WSDM 2020)."""

LISTED_WORDS: Final = 12
"""The number of words listed with their replacements. These are the words with the largest prior."""

LISTED_REPLACEMENTS: Final = 5
"""The maximum number of replacements listed for a word."""

BLOCK: Final = 1 << 22
"""The maximum number of probabilities held in memory as doubles at a time."""

SHARES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)
"""The quantile levels shown for each statistic."""


@frozen(kw_only=True, eq=False)
class WordFigures:
    """Statistics about each of the N words in a release.

    The statistics N_w and S_w are defined by Feyisetan et al. (WSDM 2020).

    Attributes:
        stays: Array of shape (N,) with the probability that each word is reported as itself (N_w). It is 0 for words
            that are not outputs.
        distinct: Array of shape (N,) with the expected number of distinct words among ``DRAWS_PER_WORD`` reports of
            each word (S_w).
        away: Array of shape (N,) with the expected distance from each word to its report, or None if distances to
            outputs are unknown.
    """

    stays: Floats
    distinct: Floats
    away: Floats | None


def word_figures(release: MatrixRelease, data: MetricData) -> WordFigures:
    """Compute the statistics about each word from the probabilities in a release, without drawing reports.

    Args:
        release: The release, with one row for each of the N words.
        data: The data of the problem, which provides the distances.
    """
    column = {name: index for index, name in enumerate(release.outputs.tolist())}
    column_by_record = np.array([column.get(name, -1) for name in release.records.tolist()], dtype=np.int64)
    count, width = release.weights.shape
    stays, distinct, distances = np.zeros(count), np.zeros(count), np.zeros(count)
    # A release may contain rows for only some of the records, and in a different order.
    to_outputs = data.to_outputs[data.records.numbers(release.records.tolist())] if data.crossed else None
    # The matrix is converted to doubles block by block, so that no second copy of it is ever in memory.
    for rows in slices(count, width, BLOCK):
        # Weights are integers whose rows sum to 2**63.
        z = release.weights[rows] / float(1 << 63)
        columns = column_by_record[rows]
        stays[rows] = np.where(columns >= 0, z[np.arange(len(z)), columns], 0.0)
        # A word with probability z is among n reports with probability 1 - (1 - z)^n. The minimum avoids log(0) if z =
        # 1.
        distinct[rows] = -np.expm1(DRAWS_PER_WORD * np.log1p(-np.minimum(z, 1.0 - 1e-16))).sum(axis=1)
        if to_outputs is not None:
            distances[rows] = (z * to_outputs[rows]).sum(axis=1)
    return WordFigures(stays=stays, distinct=distinct, away=None if to_outputs is None else distances)


def word_section(release: MatrixRelease, data: MetricData) -> Section:
    """Return a section with quantiles of the statistics across all words, and replacements for the commonest words."""
    figures = word_figures(release, data)
    rows = [
        ("stays as it is", *_format_quantiles(100.0 * figures.stays, "\u00a0%")),
        (f"distinct words in {DRAWS_PER_WORD:,} reports", *_format_quantiles(figures.distinct, "")),
    ]
    if figures.away is not None:
        rows.append((f"distance to the report ({data.unit})", *_format_quantiles(figures.away, "")))
    heads = ("of a word", *(f"{100 * quantile:g}\u00a0% of words have at most" for quantile in SHARES))
    lead = (
        "How often a word is reported as itself, how many different words replace it, and how far away they are, from "
        "the probabilities of the release. In a sentence each word is reported by itself (apply --text): epsilon "
        "counts once for each word, and how many words a sentence has, and their order, stay visible. So sentences are "
        "protected among those of the same number of known words, or with masks of the same pattern of known and "
        "unknown words."
    )
    # The sort is stable, so that equally probable words are listed in their original order.
    listed = np.argsort(-data.prior, kind="stable")[:LISTED_WORDS].tolist()
    rank = {name: row for row, name in enumerate(release.records.tolist())}
    # A release may have no rows for some records.
    words_and_rows = [
        (data.records.ids[index], rank[data.records.ids[index]]) for index in listed if data.records.ids[index] in rank
    ]
    words = [
        (name, f"{100 * figures.stays[row]:.3g}\u00a0%", _name_replacements(release, name, row))
        for name, row in words_and_rows
    ]
    figures_table = table("Words", heads, rows)
    replaced = table("What replaces some words", ("word", "stays", "likeliest replacements"), words)
    return Section(title="Words", lead=lead, html=figures_table + replaced)


def _format_quantiles(values: Floats, unit: str) -> list[str]:
    """Return the quantiles of the values at the levels in ``SHARES`` as strings, each with the unit."""
    return [f"{value:.3g}{unit}" for value in np.quantile(values, SHARES).tolist()]


def _name_replacements(release: MatrixRelease, name: str, row: int) -> str:
    """Return a string with a word's most likely replacements and their probabilities as percentages.

    Args:
        release: The release.
        name: The word itself, which is omitted from the list.
        row: The row index of the word in the release.
    """
    weights = release.weights[row]
    # One more than is listed is selected, because the word itself may be among them. Weights are converted to doubles,
    # because negating unsigned integers would wrap around.
    order = np.argsort(-weights.astype(np.float64), kind="stable")[: LISTED_REPLACEMENTS + 1].tolist()
    others = [index for index in order if str(release.outputs[index]) != name and weights[index]][:LISTED_REPLACEMENTS]
    return ", ".join(
        f"{release.outputs[index]} {100 * float(weights[index]) / float(1 << 63):.2g}\u00a0%" for index in others
    )
