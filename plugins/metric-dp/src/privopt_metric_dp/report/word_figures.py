"""Figures of a release of words, as the field has them: how often a word stays, what replaces it, and how far away.

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
"""Reports of a word among which distinct replacements are counted, as in the paper."""

LISTED_WORDS: Final = 12
"""Words that are listed with what replaces them: the most probable ones."""

LISTED_REPLACEMENTS: Final = 5
"""Replacements of each that are named."""

BLOCK: Final = 1 << 22
"""Probabilities that are held at once."""

SHARES: Final = (0.05, 0.25, 0.5, 0.75, 0.95)
"""Of the words: at these quantiles figures are shown."""


@frozen(kw_only=True, eq=False)
class WordFigures:
    """Figures of each word.

    Attributes:
        stays: (N,) probability that a word is reported as itself; 0 of one that is not an output.
        distinct: (N,) expected number of distinct words among ``DRAWS_PER_WORD`` reports.
        away: (N,) expected distance from the word to its report; None where distances are unknown.
    """

    stays: Floats
    distinct: Floats
    away: Floats | None


def word_figures(release: MatrixRelease, data: MetricData) -> WordFigures:
    """Compute the figures of each word from the probabilities of the release, without drawing."""
    column = {name: place for place, name in enumerate(release.outputs.tolist())}
    own = np.array([column.get(name, -1) for name in release.records.tolist()], dtype=np.int64)
    count, width = release.weights.shape
    stays, distinct, away = np.zeros(count), np.zeros(count), np.zeros(count)
    known = data.to_outputs[data.records.numbers(release.records.tolist())] if data.crossed else None
    for rows in slices(count, width, BLOCK):
        z = release.weights[rows] / float(1 << 63)
        here = own[rows]
        stays[rows] = np.where(here >= 0, z[np.arange(len(z)), here], 0.0)
        distinct[rows] = -np.expm1(DRAWS_PER_WORD * np.log1p(-np.minimum(z, 1.0 - 1e-16))).sum(axis=1)
        if known is not None:
            away[rows] = (z * known[rows]).sum(axis=1)
    return WordFigures(stays=stays, distinct=distinct, away=None if known is None else away)


def word_section(release: MatrixRelease, data: MetricData) -> Section:
    """Show the figures at quantiles of the words, and for the most probable words what replaces them."""
    found = word_figures(release, data)
    rows = [
        ("stays as it is", *_quantiles(100.0 * found.stays, " %")),
        (f"distinct words in {DRAWS_PER_WORD:,} reports", *_quantiles(found.distinct, "")),
    ]
    if found.away is not None:
        rows.append((f"distance to the report ({data.unit})", *_quantiles(found.away, "")))
    heads = ("of a word", *(f"{100 * share:g} % of words have at most" for share in SHARES))
    lead = (
        "How often a word is reported as itself, how many different words replace it, and how far away they are, from "
        "the probabilities of the release. In a sentence each word is reported by itself (apply --text): epsilon "
        "counts once for each word, and how many words a sentence has, and their order, stay visible. So sentences are "
        "protected among those of the same number of known words, or with masks of the same pattern of known and "
        "unknown words."
    )
    listed = np.argsort(-data.prior, kind="stable")[:LISTED_WORDS].tolist()
    rank = {name: row for row, name in enumerate(release.records.tolist())}
    chosen = [
        (data.records.ids[place], rank[data.records.ids[place]]) for place in listed if data.records.ids[place] in rank
    ]
    words = [(name, f"{100 * found.stays[row]:.3g} %", _likeliest(release, name, row)) for name, row in chosen]
    shown = table("Words", heads, rows)
    replaced = table("What replaces some words", ("word", "stays", "likeliest replacements"), words)
    return Section(title="Words", lead=lead, html=shown + replaced)


def _quantiles(values: Floats, unit: str) -> list[str]:
    return [f"{value:.3g}{unit}" for value in np.quantile(values, SHARES).tolist()]


def _likeliest(release: MatrixRelease, name: str, row: int) -> str:
    """Name the likeliest words that represent a word, each with its probability."""
    weights = release.weights[row]
    order = np.argsort(-weights.astype(np.float64), kind="stable")[: LISTED_REPLACEMENTS + 1].tolist()
    others = [place for place in order if str(release.outputs[place]) != name and weights[place]][:LISTED_REPLACEMENTS]
    return ", ".join(
        f"{release.outputs[place]} {100 * float(weights[place]) / float(1 << 63):.2g} %" for place in others
    )
