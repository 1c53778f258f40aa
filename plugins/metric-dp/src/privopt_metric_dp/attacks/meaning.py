"""Explain a metric DP guarantee in figures: it may be valid and yet hide nothing.

Epsilon is per unit of distance: whether exp(epsilon d) between neighbours is 1.2 or 20,000 depends on how far apart the
records are. So the promise is stated at the distance to the nearest neighbour, next to what an attacker's best guess
gets from one report.
"""

from __future__ import annotations

import math
from typing import Final

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.interfaces.claims import Objective
from privopt.interfaces.notions import USELESS_FACTOR
from privopt_metric_dp.attacks.matrix_figures import bayes_error
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData

__all__ = ["Worth", "costs_in_words", "in_readers_unit", "interpret_guarantee"]

NEARLY_CERTAIN: Final = 0.9
"""A best guess that is right more often than this is as good as knowing."""

RECORDS_NAMED: Final = 3
"""Records that a sentence names."""


@frozen(kw_only=True)
class Worth:
    """The promise in figures.

    Attributes:
        epsilon: per ``unit``.
        unit: of distance.
        records: how many.
        median: distance to the nearest required neighbour elsewhere, median over the records that have one; None
            where none has.
        closest: the two closest records that are not at one place, and their distance; None where there are none.
        alone: records that no required pair hides, where only neighbours are promised anything.
        within: greatest distance of a required pair; None for every pair.
        guess: how often the likeliest record given one report is the true one, under the prior.
        chance: how often the likeliest record under the prior alone is.
        noun: what a row belongs to: a record, or a vertex of a region.
    """

    epsilon: float
    unit: str
    records: int
    median: float | None
    closest: tuple[str, str, float] | None
    alone: tuple[str, ...]
    within: float | None
    guess: float
    chance: float
    noun: str = "record"

    def sentences(self) -> tuple[str, ...]:
        """Return the figures, in words."""
        lines = []
        unit = self.unit.replace("unit of", "units of")
        plural = {"vertex": "vertices"}.get(self.noun, f"{self.noun}s")
        if self.median is not None and self.closest is not None:
            one, two, least = self.closest
            lines.append(
                f"One report changes the odds between a {self.noun} and its nearest neighbour by a factor of at most "
                f"{_factor(self.epsilon * self.median)} at the median distance of {self.median:.4g} {unit}; "
                f"between the two closest {plural}, {one} and {two}, by at most {_factor(self.epsilon * least)}."
            )
        lines.append(
            f"The best guess at the {self.noun} from one report is right in {_percent(self.guess)} of cases; without "
            f"any report in {_percent(self.chance)}."
        )
        return tuple(lines)

    def warnings(self) -> tuple[str, ...]:
        """Return what makes the guarantee useless, in words; empty if nothing does."""
        lines = []
        if self.alone:
            named = ", ".join(self.alone[:RECORDS_NAMED]) + (", ..." if len(self.alone) > RECORDS_NAMED else "")
            lines.append(
                f"{len(self.alone):,} of {self.records:,} records have no neighbour within {self.within:g} {self.unit} "
                f"({named}): nothing is promised of them"
            )
        if self.median is not None and self.epsilon * self.median > math.log(USELESS_FACTOR):
            lines.append(
                f"the promise hides next to nothing: one report may change the odds between nearest neighbours by a "
                f"factor of {_factor(self.epsilon * self.median)} at the median, and {USELESS_FACTOR:g} leaves hardly "
                "a doubt; a smaller epsilon hides more"
            )
        if self.guess > NEARLY_CERTAIN and 1.0 - self.guess < (1.0 - self.chance) / 2:
            lines.append(
                f"the best guess at the {self.noun} from one report is right in {_percent(self.guess)} of cases (in "
                f"{_percent(self.chance)} without one): this release hides next to nothing from who knows the prior"
            )
        return tuple(lines)


def interpret_guarantee(
    release: MatrixRelease, data: MetricData, *, by_distance: bool = True, rows_of: NDArray[np.int64] | None = None
) -> Worth:
    """Measure a release. Cost: the required pairs once, and the matrix once.

    Args:
        release: rows of all records, or of those in ``rows_of``.
        data: the problem's.
        by_distance: whether the notion bounds odds by exp(epsilon d); no distance is stated where it does not.
        rows_of: (M,) record of each row, of senders who are equally likely; None for all records under the prior.
    """
    few = data.metric.implying(data.within)  # the nearest record is no farther than the next one along a road
    pairs, distances = data.required if few is None or data.region is not None else few
    if data.region is not None:  # rows are held to more than the length of the way
        distances = data.distance.between(pairs[:, 0], pairs[:, 1])
    apart = np.where((distances > 0) & by_distance, distances, np.inf)
    nearest = np.full(len(data.records), np.inf)
    closest = None
    for ends in pairs.T:
        np.minimum.at(nearest, ends, apart)
    if np.isfinite(nearest).any():
        first = int(apart.argmin())
        one, two = (data.records.label(place) for place in pairs[first].tolist())
        closest = (one, two, float(distances[first]))
    known = nearest[np.isfinite(nearest)]
    rows, prior = release.probabilities, data.prior
    if rows_of is not None:
        held, place = np.unique(rows_of, return_inverse=True)
        prior = np.bincount(place) / len(rows_of)
        total = np.zeros((len(held), rows.shape[1]))
        np.add.at(total, place, rows)
        rows = total / np.bincount(place)[:, None]
    alone: list[int] = []
    if data.within is not None:
        paired = np.zeros(len(data.records), dtype=np.bool_)
        paired[pairs.ravel()] = True
        alone = np.flatnonzero(~paired).tolist()
    return Worth(
        epsilon=float(data.epsilon),
        unit=data.unit,
        records=len(data.records),
        median=float(np.median(known)) if known.size else None,
        closest=closest,
        alone=tuple(data.records.label(place) for place in alone),
        within=data.within,
        guess=1.0 - bayes_error(rows, prior),
        chance=float(prior.max()),
        noun="record" if data.region is None else "vertex",
    )


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
