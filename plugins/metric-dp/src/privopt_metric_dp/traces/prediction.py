"""The private test of whether the last report is still good: its public numbers (mathematics T4, sparse vector).

Distances from records to outputs are counted in whole steps of a grid. Rounding them adds to how much they differ
between two records; how much is measured on the steps themselves, and the noise is made as much wider.
"""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Final, Self

import numpy as np
from attrs import field, frozen

from privopt.arrays import Floats, Ints, read_only
from privopt.errors import Fault, InputError
from privopt.files.archive import read_arrays
from privopt.numbers.graphs import components
from privopt.numbers.laplace import LARGEST_TERM
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.region.region import MM_PER_KM
from privopt_metric_dp.traces.interpolate import STEP_MM, Ways

__all__ = ["ARTEFACT", "Prediction", "Terms"]

ARTEFACT: Final = "prediction.npz"

STEPS_PER_DISTANCE: Final = 1024
"""Steps of the grid in the closest pair's distance: epsilons lose less than a thousandth to the grid.

Fewer where rates would come so near the sampler's smallest that rounding them down lost more than the grid does.
"""

FARTHEST: Final = 1 << 50
"""Steps that a distance counts for, at most; so cut, distances differ by no more than before."""

ULPS: Final = 2.0**-36
"""By how much distances differ that two machines computed, relatively, at most."""

STEP_KM: Final = Fraction(STEP_MM, MM_PER_KM)
"""Length of a step where the guarantee holds at every point, km."""

_BLOCK = 1 << 22
_ROOM = 1.0 - 2.0**-40


@frozen(kw_only=True)
class Terms:
    """What prediction costs, per unit of distance, and what it takes for good.

    Attributes:
        report: epsilon of one fresh report (e_N).
        threshold: epsilon of a segment's noisy threshold (e1).
        test: epsilon of the noise of a test (e2).
        good_within: distance from a place to the last report up to which that is good (l).
        total: what a subject may spend in one table; None for no limit.
    """

    report: Fraction
    threshold: Fraction
    test: Fraction
    good_within: Fraction
    total: Fraction | None = None

    @property
    def segment(self) -> Fraction:
        """Cost of a segment that ends in renewal, which is charged before its first test."""
        return self.threshold + 2 * self.test + self.report


def _frozen(steps: Ints) -> Ints:
    return read_only(steps)


@frozen(kw_only=True, eq=False)
class Prediction:
    """The numbers that tests are drawn from.

    Attributes:
        steps: (N, K) distance from each record to each output, in steps.
        level: good_within, in steps.
        threshold: rate of the threshold's noise, per step: P(m) proportional to exp(-threshold m), m >= 0.
        test: rate of each test's noise, per step.
    """

    steps: Ints = field(converter=_frozen)
    level: int
    threshold: Fraction
    test: Fraction

    @classmethod
    def of(cls, data: MetricData, terms: Terms) -> Self:
        """Count distances in steps, and make the noise as wide as they ask for."""
        return cls._on(_fine(data, terms), data, terms) if data.region is None else cls._everywhere(data, terms)

    @classmethod
    def _everywhere(cls, data: MetricData, terms: Terms) -> Self:
        """Return steps from a region's vertices; other points: :class:`privopt_metric_dp.traces.interpolate.Ways`."""
        steps, level = Ways.of(data).of_vertices, int(terms.good_within / STEP_KM)
        rates = [_down(epsilon * STEP_KM) for epsilon in (terms.threshold, terms.test)]
        _check_rates(rates, level, data, terms)
        return cls(steps=steps, level=level, threshold=rates[0], test=rates[1])

    @classmethod
    def _on(cls, grid: float, data: MetricData, terms: Terms) -> Self:
        pairs, distances = data.standing
        apart = distances > 0
        far = data.to_outputs
        known = np.isfinite(far)
        top = float(far[known].max(initial=0.0))
        steps = np.rint(np.minimum(np.where(known, far, top) / grid, FARTHEST)).astype(np.int64)
        place = components(len(steps), pairs[~apart])
        steps = steps[np.unique(place, return_index=True)[1][place]]  # records at one place are as far from all
        stretch = max(Fraction(1.0 / grid), _steepest(steps, pairs[apart], distances[apart]))
        rates = [_down(epsilon / stretch) for epsilon in (terms.threshold, terms.test)]
        level = int(terms.good_within / Fraction(grid))
        _check_rates(rates, level, data, terms)
        return cls(steps=steps, level=level, threshold=rates[0], test=rates[1])

    def failures(self, data: MetricData, terms: Terms) -> list[str]:
        """List steps whose noise hides less than it should: a line for each of the first few pairs; exact.

        For each pair that the certificate checks and every output, steps times rate must be at most epsilon times
        distance; along paths that implies it for all required pairs. There is also a line for each number that the
        problem does not give: another distance for good, or wider noise, would hide as much and report something else.
        """
        if self.steps.shape != data.shape:
            return [f"{ARTEFACT}: steps: expected shape {data.shape}, got {self.steps.shape}"]
        if data.region is not None:  # steps of points follow from their definition, rates from that of a step
            wide = {"threshold": self.threshold > terms.threshold * STEP_KM, "test": self.test > terms.test * STEP_KM}
            lines = [f"{ARTEFACT}: {name}: noise too narrow for its steps" for name, narrow in wide.items() if narrow]
            others = {*self._others(Prediction.of(data, terms))} - {"steps"}
            others |= set[str]() if Ways.of(data).covers(self.steps) else {"steps"}  # on it rests what is promised
            return [*lines, *self._named(sorted(others))]
        pairs, distances = data.standing
        spread = _spread(self.steps, pairs)
        lines = []
        for name, rate, epsilon in (
            ("threshold", self.threshold, terms.threshold),
            ("test", self.test, terms.test),
        ):
            near = spread * float(rate) > float(epsilon) * distances * _ROOM
            for row in np.flatnonzero(near).tolist():
                if int(spread[row]) * rate > epsilon * Fraction(float(distances[row])):
                    i, j = (data.records.ids[end] for end in pairs[row].tolist())
                    lines.append(
                        f"{ARTEFACT}: {name}: {i} and {j} differ by {spread[row]} steps, too many for its rate"
                    )
        return [*lines[:8], *self._unlike(data, terms)]

    def _unlike(self, data: MetricData, terms: Terms) -> list[str]:
        """Return a line for each number that the problem does not give; distances may be another machine's."""
        grids = dict.fromkeys(_fine(data, terms, 1 + side * ULPS) for side in (0, -1, 1))
        return self._named(min((self._others(self._on(grid, data, terms)) for grid in grids), key=len))

    @staticmethod
    def _named(names: list[str]) -> list[str]:
        return [f"{ARTEFACT}: {name}: not what the problem gives" for name in names]

    def _others(self, prediction: Prediction) -> list[str]:
        same = {
            "level": prediction.level == self.level,
            "threshold": abs(prediction.threshold / self.threshold - 1) < ULPS,
            "test": abs(prediction.test / self.test - 1) < ULPS,
            "steps": bool((np.abs(prediction.steps - self.steps) <= 1 + ULPS * prediction.steps).all()),
        }
        return [name for name, alike in same.items() if not alike]

    def write(self, folder: Path) -> None:
        """Write prediction.npz."""
        rates = [[rate.numerator, rate.denominator] for rate in (self.threshold, self.test)]
        np.savez(
            folder / ARTEFACT, steps=self.steps, level=np.array([self.level]), rates=np.array(rates, dtype=np.int64)
        )

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read prediction.npz."""
        form = {"steps": (np.int64, ("N", None)), "level": (np.int64, (1,)), "rates": (np.int64, (2, 2))}
        found = read_arrays(folder / ARTEFACT, form)
        steps, level, rates = (found[name] for name in form)
        if steps.min(initial=0) < 0 or steps.max(initial=0) > FARTHEST or not 0 <= level[0] <= FARTHEST:
            raise InputError([Fault(ARTEFACT, "steps, level", "numbers out of range", f"0 to {FARTHEST:,}")])
        if (rates < 1).any() or (rates > LARGEST_TERM).any() or (rates[:, 0] >= rates[:, 1]).any():
            raise InputError([Fault(ARTEFACT, "rates", str(rates.tolist()), "two rates above 0 and below 1")])
        first, second = (Fraction(*rate) for rate in rates.tolist())
        return cls(steps=steps.copy(), level=int(level[0]), threshold=first, test=second)


def _check_rates(rates: list[Fraction], level: int, data: MetricData, terms: Terms) -> None:
    """Refuse noise that 64 bits do not hold."""
    if min(rates) > 0 and max(rates) < 1 and level <= FARTHEST:
        return
    distances = data.standing[1]
    least = float(distances[distances > 0].min(initial=np.inf))
    found = f"records {least:.3g} {data.unit} apart beside a distance of {float(terms.good_within):.3g}"
    wanted = "distances and epsilons that leave noise within 64 bits"
    raise InputError([Fault(data.file, "predictive", found, wanted)])


def _fine(data: MetricData, terms: Terms, stretch: float = 1.0) -> float:
    """Return the grid, a power of two, for a closest pair ``stretch`` times as far apart."""
    _, distances = data.standing
    epsilons = float(min(terms.threshold, terms.test)), float(max(terms.threshold, terms.test))
    least = min(float(distances[distances > 0].min(initial=np.inf)) * stretch, 1.0 / epsilons[1])
    steps = min(STEPS_PER_DISTANCE, max(1.0, math.sqrt(LARGEST_TERM * epsilons[0] * least)))
    return float(2.0 ** np.floor(np.log2(least / steps)))


def _spread(steps: Ints, pairs: Ints) -> Ints:
    """(P,) greatest difference in steps between the two records of each pair, over the outputs."""
    most = np.zeros(len(pairs), dtype=np.int64)
    size = max(1, _BLOCK // max(1, steps.shape[1]))
    for start in range(0, len(pairs), size):
        i, j = pairs[start : start + size].T
        most[start : start + size] = np.abs(steps[i] - steps[j]).max(axis=1, initial=0)
    return most


def _steepest(steps: Ints, pairs: Ints, distances: Floats) -> Fraction:
    """Return steps per unit of distance, at most; rounded up."""
    return Fraction(float((_spread(steps, pairs) / distances).max(initial=0.0)) * (1.0 + 2.0**-50))


def _down(rate: Fraction) -> Fraction:
    """Return a rate, rounded down to the sampler's terms."""
    return Fraction(rate.numerator * LARGEST_TERM // rate.denominator, LARGEST_TERM)
