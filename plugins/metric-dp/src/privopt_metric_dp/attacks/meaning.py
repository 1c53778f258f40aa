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
    """The meaning of a promise, in words.

    Attributes:
        sentences: the figures, in words.
        warnings: what makes the guarantee useless, in words; empty if nothing does.
    """

    sentences: tuple[str, ...]
    warnings: tuple[str, ...]


def interpret_guarantee(
    release: MatrixRelease, data: MetricData, *, by_distance: bool = True, rows_of: Ints | None = None
) -> Interpretation:
    """Measure a release. Cost: the required pairs once, and the matrix once.

    Args:
        release: rows of all records, or of those in ``rows_of``.
        data: the problem's.
        by_distance: whether the notion bounds odds by exp(epsilon d); no distance is stated where it does not.
        rows_of: (M,) record of each row, of senders who are equally likely; None for all records under the prior.
    """
    noun, plural = ("record", "records") if data.region is None else ("vertex", "vertices")
    few = data.metric.implying(data.within)  # the nearest record is no farther than the next one along a road
    pairs, distances = data.required if few is None or data.region is not None else few
    if data.region is not None:  # rows are held to more than the length of the way
        distances = data.distance.between(pairs[:, 0], pairs[:, 1])
    sentences, warnings = [], list(_alone(data, pairs))
    apart = np.where((distances > 0) & by_distance, distances, np.inf)
    nearest = np.full(len(data.records), np.inf)
    for ends in pairs.T:
        np.minimum.at(nearest, ends, apart)
    coincident = np.unique(pairs[distances == 0]) if by_distance else np.zeros(0, dtype=np.int64)
    known, epsilon = nearest[np.isfinite(nearest)], float(data.epsilon)
    if known.size:
        median, first = float(np.median(known)), int(apart.argmin())
        one, two = (data.records.label(place) for place in pairs[first].tolist())
        elsewhere, which = (" elsewhere", " that lie apart") if coincident.size else ("", "")
        sentences.append(
            f"One report changes the odds between a {noun} and its nearest neighbour{elsewhere} by a factor of at most "
            f"{_factor(epsilon * median)} at the median distance of {median:.4g} "
            f"{data.unit.replace('unit of', 'units of')}; between the two closest {plural}{which}, {one} and {two}, by "
            f"at most {_factor(epsilon * float(distances[first]))}."
        )
        if coincident.size:
            sentences.append(
                f"{coincident.size:,} of {len(data.records):,} {plural} coincide with another: no report distinguishes "
                "those at one place."
            )
        if epsilon * median > math.log(USELESS_FACTOR):
            warnings.append(
                f"the promise hides next to nothing: one report may change the odds between nearest neighbours by a "
                f"factor of {_factor(epsilon * median)} at the median, and {USELESS_FACTOR:g} leaves hardly a doubt; a "
                "smaller epsilon hides more"
            )
    rows, prior = _by_record(release, data, rows_of)
    guess, chance = 1.0 - bayes_error(rows, prior), float(prior.max())
    often = f"the best guess at the {noun} from one report is right in {_percent(guess)} of cases"
    sentences.append(f"The{often[3:]}; without any report in {_percent(chance)}.")
    if guess > NEARLY_CERTAIN and 1.0 - guess < (1.0 - chance) / 2:
        warnings.append(
            f"{often} (in {_percent(chance)} without one): this release hides next to nothing from who knows the prior"
        )
    return Interpretation(sentences=tuple(sentences), warnings=tuple(warnings))


def _alone(data: MetricData, pairs: Ints) -> Iterator[str]:
    """Name records that no required pair hides, where only neighbours are promised anything."""
    alone = np.setdiff1d(np.arange(len(data.records)), pairs) if data.within is not None else np.zeros(0, dtype=int)
    if alone.size:
        named = ", ".join(data.records.label(place) for place in alone[:RECORDS_NAMED].tolist())
        named += ", ..." if alone.size > RECORDS_NAMED else ""
        yield (
            f"{alone.size:,} of {len(data.records):,} records have no neighbour within {data.within:g} {data.unit} "
            f"({named}): nothing is promised of them"
        )


def _by_record(release: MatrixRelease, data: MetricData, rows_of: Ints | None) -> tuple[Floats, Floats]:
    """Return (M, K) the mean row of each record that has one, and (M,) how often it sends."""
    if rows_of is None:
        return release.probabilities, data.prior
    held, place = np.unique(rows_of, return_inverse=True)
    total = np.zeros((len(held), release.weights.shape[1]))
    np.add.at(total, place, release.probabilities)
    count = np.bincount(place)
    return total / count[:, None], count / len(rows_of)


def costs_in_words(data: MetricData, objective: Objective) -> tuple[str, ...]:
    """Return what a release costs in the reader's unit, a sentence where the problem names one."""
    told = in_readers_unit(data, objective, objective.value)
    return (f"It costs {objective.value:.4g} km on average: {told}.",) if told else ()


def in_readers_unit(data: MetricData, objective: Objective, value: float) -> str:
    """Return a value or bound of an objective in the unit that the problem names for its readers; empty without one."""
    return "" if data.per_km is None or objective.unit != "km" else data.per_km.of(value)


def _factor(exponent: float) -> str:
    """Return exp of it, as a number that can be read."""
    if exponent > 700.0:
        return f"10^{exponent / math.log(10):,.0f}"
    value = math.exp(exponent)
    return f"{value:.3g}" if value < 100 else f"{value:,.0f}" if value < 1e9 else f"{value:.2e}"


def _percent(share: float) -> str:
    """Return a share in per cent, never rounded to nothing, nor up to certainty."""
    if 0.0 < share < 0.01:
        return f"{100 * share:.2g} %"
    for digits in range(1, 7):
        text = f"{100 * share:.{digits}f}"
        if share == 1.0 or float(text) < 100.0:
            return f"{text} %"
    return "more than 99.999999 %"
