"""Explain a metric DP guarantee in figures: it may be valid and yet hide nothing.

Epsilon is per unit of distance: whether exp(epsilon d) between neighbours is 1.2 or 20,000 depends on how far apart the
records are. So the promise is stated at the distance to the nearest neighbour, next to what an attacker's best guess
gets from one report.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt.interfaces.claims import Objective
from privopt.interfaces.notions import USELESS_FACTOR
from privopt.run.attack_channel import bayes_error
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData

__all__ = ["Interpretation", "costs_in_words", "in_readers_unit", "interpret_guarantee"]

NEARLY_CERTAIN: Final = 0.9
"""A best guess that is right more often than this is as good as knowing."""

RECORDS_NAMED: Final = 3
"""Records that a sentence names."""


@frozen(kw_only=True)
class Interpretation:
    """What a guarantee means for people, as sentences.

    Attributes:
        sentences: the figures of the guarantee.
        warnings: reasons why the guarantee is useless in practice; empty if there are none.
    """

    sentences: tuple[str, ...]
    warnings: tuple[str, ...]


def interpret_guarantee(
    release: MatrixRelease, data: MetricData, *, by_distance: bool = True, rows_of: Ints | None = None
) -> Interpretation:
    """Derive the sentences and warnings from a release. Cost: one pass over the required pairs and one over the matrix.

    Args:
        release: rows of all records, or of those in ``rows_of``.
        data: the problem's.
        by_distance: whether the notion bounds odds by exp(epsilon d); if not, no distance is stated.
        rows_of: (M,) record of each row, of senders who are equally likely; None for all records under the prior.
    """
    noun, plural = ("record", "records") if data.region is None else ("vertex", "vertices")
    implying_pairs = data.metric.implying(
        data.within
    )  # the nearest record is no farther than the next one along a road
    pairs, distances = data.required if implying_pairs is None or data.region is not None else implying_pairs
    if data.region is not None:  # rows are held to more than the length of the way
        distances = data.distance.between(pairs[:, 0], pairs[:, 1])
    sentences, warnings = [], list(_warn_of_isolated_records(data, pairs))
    separations = np.where((distances > 0) & by_distance, distances, np.inf)
    nearest = np.full(len(data.records), np.inf)
    for ends in pairs.T:
        np.minimum.at(nearest, ends, separations)
    coincident = np.unique(pairs[distances == 0]) if by_distance else np.zeros(0, dtype=np.int64)
    finite_distances, epsilon = nearest[np.isfinite(nearest)], float(data.epsilon)
    if finite_distances.size:
        median, closest_pair = float(np.median(finite_distances)), int(separations.argmin())
        first_label, second_label = (data.records.label(place) for place in pairs[closest_pair].tolist())
        elsewhere, which = (" elsewhere", " that lie apart") if coincident.size else ("", "")
        sentences.append(
            f"One report changes the odds between a {noun} and its nearest neighbour{elsewhere} by a factor of at most "
            f"{_format_factor(epsilon * median)} at the median distance of {median:.4g} "
            f"{data.unit.replace('unit of', 'units of')}; between the two closest {plural}{which}, {first_label} and "
            f"{second_label}, by at most {_format_factor(epsilon * float(distances[closest_pair]))}."
        )
        if coincident.size:
            sentences.append(
                f"{coincident.size:,} of {len(data.records):,} {plural} coincide with another: no report distinguishes "
                "those at one place."
            )
        if epsilon * median > math.log(USELESS_FACTOR):
            warnings.append(
                f"the promise hides next to nothing: one report may change the odds between nearest neighbours by a "
                f"factor of {_format_factor(epsilon * median)} at the median, and {USELESS_FACTOR:g} leaves hardly a "
                "doubt; a smaller epsilon hides more"
            )
    rows, prior = _average_by_record(release, data, rows_of)
    guess_rate, prior_rate = 1.0 - bayes_error(rows, prior), float(prior.max())
    guess_sentence = f"the best guess at the {noun} from one report is right in {_format_percent(guess_rate)} of cases"
    sentences.append(f"The{guess_sentence[3:]}; without any report in {_format_percent(prior_rate)}.")
    if guess_rate > NEARLY_CERTAIN and 1.0 - guess_rate < (1.0 - prior_rate) / 2:
        warnings.append(
            f"{guess_sentence} (in {_format_percent(prior_rate)} without one): this release hides next to "
            "nothing from who knows the prior"
        )
    return Interpretation(sentences=tuple(sentences), warnings=tuple(warnings))


def _warn_of_isolated_records(data: MetricData, pairs: Ints) -> Iterator[str]:
    """Warn of records without a required pair, which a guarantee between neighbours does not cover."""
    isolated_records = (
        np.setdiff1d(np.arange(len(data.records)), pairs) if data.within is not None else np.zeros(0, dtype=int)
    )
    if isolated_records.size:
        labels = ", ".join(data.records.label(row) for row in isolated_records[:RECORDS_NAMED].tolist())
        labels += ", ..." if isolated_records.size > RECORDS_NAMED else ""
        yield (
            f"{isolated_records.size:,} of {len(data.records):,} records have no neighbour within {data.within:g} "
            f"{data.unit} ({labels}): nothing is promised of them"
        )


def _average_by_record(release: MatrixRelease, data: MetricData, rows_of: Ints | None) -> tuple[Floats, Floats]:
    """Return the mean row (M, K) of each record that has rows, and the share (M,) of senders there."""
    if rows_of is None:
        return release.probabilities, data.prior
    record_numbers, record_index = np.unique(rows_of, return_inverse=True)
    total = np.zeros((len(record_numbers), release.weights.shape[1]))
    np.add.at(total, record_index, release.probabilities)
    count = np.bincount(record_index)
    return total / count[:, None], count / len(rows_of)


def costs_in_words(data: MetricData, objective: Objective) -> tuple[str, ...]:
    """Return a sentence on the loss in the unit that the problem names for its readers, if it names one."""
    cost = in_readers_unit(data, objective, objective.value)
    return (f"It costs {objective.value:.4g} km on average: {cost}.",) if cost else ()


def in_readers_unit(data: MetricData, objective: Objective, value: float) -> str:
    """Convert a value or bound of an objective to the unit for readers; empty if the problem names none."""
    return "" if data.per_km is None or objective.unit != "km" else data.per_km.of(value)


def _format_factor(exponent: float) -> str:
    """Format exp(exponent) with a readable number of digits."""
    if exponent > 700.0:
        return f"10^{exponent / math.log(10):,.0f}"
    value = math.exp(exponent)
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}" if value < 1e9 else f"{value:.2e}"


def _format_percent(share: float) -> str:
    """Format a share in per cent; a share above 0 is never shown as 0, and one below 1 never as 100 %."""
    if 0.0 < share < 0.01:
        return f"{100 * share:.2g} %"
    for digits in range(1, 7):
        text = f"{100 * share:.{digits}f}"
        if share == 1.0 or float(text) < 100.0:
            return f"{text} %"
    return "more than 99.999999 %"
