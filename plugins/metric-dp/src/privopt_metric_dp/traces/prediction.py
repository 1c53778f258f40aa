"""The public numbers of the private test whether the last report is still good (mathematics T4, sparse vector).

Distances from records to outputs are integers, in steps of a grid. Rounding increases their differences between two
records. The increase is measured on the steps themselves, and the noise is widened accordingly.
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


def _to_read_only(steps: Ints) -> Ints:
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

    steps: Ints = field(converter=_to_read_only)
    level: int
    threshold: Fraction
    test: Fraction

    @classmethod
    def of(cls, data: MetricData, terms: Terms) -> Self:
        """Count distances in steps, and make the noise as wide as they ask for."""
        return (
            cls._on_grid(_choose_grid(data, terms), data, terms)
            if data.region is None
            else cls._everywhere(data, terms)
        )

    @classmethod
    def _everywhere(cls, data: MetricData, terms: Terms) -> Self:
        """Return steps from a region's vertices; other points: :class:`privopt_metric_dp.traces.interpolate.Ways`."""
        steps, level = Ways.of(data).of_vertices, int(terms.good_within / STEP_KM)
        rates = [_round_down(epsilon * STEP_KM) for epsilon in (terms.threshold, terms.test)]
        _check_rates(rates, level, data, terms)
        return cls(steps=steps, level=level, threshold=rates[0], test=rates[1])

    @classmethod
    def _on_grid(cls, grid: float, data: MetricData, terms: Terms) -> Self:
        pairs, distances = data.standing
        is_positive = distances > 0
        output_distances = data.to_outputs
        is_finite = np.isfinite(output_distances)
        max_distance = float(output_distances[is_finite].max(initial=0.0))
        steps = np.rint(np.minimum(np.where(is_finite, output_distances, max_distance) / grid, FARTHEST)).astype(
            np.int64
        )
        positions = components(len(steps), pairs[~is_positive])
        steps = steps[np.unique(positions, return_index=True)[1][positions]]  # records at one place are as far from all
        stretch = max(Fraction(1.0 / grid), _steepest(steps, pairs[is_positive], distances[is_positive]))
        rates = [_round_down(epsilon / stretch) for epsilon in (terms.threshold, terms.test)]
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
            is_too_narrow = {
                "threshold": self.threshold > terms.threshold * STEP_KM,
                "test": self.test > terms.test * STEP_KM,
            }
            lines = [
                f"{ARTEFACT}: {name}: noise too narrow for its steps"
                for name, narrow in is_too_narrow.items()
                if narrow
            ]
            others = {*self._differing_names(Prediction.of(data, terms))} - {"steps"}
            others |= set[str]() if Ways.of(data).covers(self.steps) else {"steps"}  # on it rests what is promised
            return [*lines, *self._describe_names(sorted(others))]
        pairs, distances = data.standing
        spread = _max_step_difference(self.steps, pairs)
        lines = []
        for name, rate, epsilon in (
            ("threshold", self.threshold, terms.threshold),
            ("test", self.test, terms.test),
        ):
            is_doubtful = spread * float(rate) > float(epsilon) * distances * _ROOM
            for row in np.flatnonzero(is_doubtful).tolist():
                if int(spread[row]) * rate > epsilon * Fraction(float(distances[row])):
                    i, j = (data.records.ids[end] for end in pairs[row].tolist())
                    lines.append(
                        f"{ARTEFACT}: {name}: {i} and {j} differ by {spread[row]} steps, too many for its rate"
                    )
        return [*lines[:8], *self._describe_differences(data, terms)]

    def _describe_differences(self, data: MetricData, terms: Terms) -> list[str]:
        """Return a line for each number that the problem does not give; distances may be another machine's."""
        grids = dict.fromkeys(_choose_grid(data, terms, 1 + factor * ULPS) for factor in (0, -1, 1))
        return self._describe_names(
            min((self._differing_names(self._on_grid(grid, data, terms)) for grid in grids), key=len)
        )

    @staticmethod
    def _describe_names(names: list[str]) -> list[str]:
        return [f"{ARTEFACT}: {name}: not what the problem gives" for name in names]

    def _differing_names(self, prediction: Prediction) -> list[str]:
        is_equal_by_name = {
            "level": prediction.level == self.level,
            "threshold": abs(prediction.threshold / self.threshold - 1) < ULPS,
            "test": abs(prediction.test / self.test - 1) < ULPS,
            "steps": bool((np.abs(prediction.steps - self.steps) <= 1 + ULPS * prediction.steps).all()),
        }
        return [name for name, is_equal in is_equal_by_name.items() if not is_equal]

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
        arrays = read_arrays(folder / ARTEFACT, form)
        steps, level, rates = (arrays[name] for name in form)
        if steps.min(initial=0) < 0 or steps.max(initial=0) > FARTHEST or not 0 <= level[0] <= FARTHEST:
            raise InputError([Fault(ARTEFACT, "steps, level", "numbers out of range", f"0 to {FARTHEST:,}")])
        if (rates < 1).any() or (rates > LARGEST_TERM).any() or (rates[:, 0] >= rates[:, 1]).any():
            raise InputError([Fault(ARTEFACT, "rates", str(rates.tolist()), "two rates above 0 and below 1")])
        threshold_rate, test_rate = (Fraction(*rate) for rate in rates.tolist())
        return cls(steps=steps.copy(), level=int(level[0]), threshold=threshold_rate, test=test_rate)


def _check_rates(rates: list[Fraction], level: int, data: MetricData, terms: Terms) -> None:
    """Refuse noise that 64 bits do not hold."""
    if min(rates) > 0 and max(rates) < 1 and level <= FARTHEST:
        return
    distances = data.standing[1]
    min_rate = float(distances[distances > 0].min(initial=np.inf))
    actual = f"records {min_rate:.3g} {data.unit} apart beside a distance of {float(terms.good_within):.3g}"
    expectation = "distances and epsilons that leave noise within 64 bits"
    raise InputError([Fault(data.file, "predictive", actual, expectation)])


def _choose_grid(data: MetricData, terms: Terms, stretch: float = 1.0) -> float:
    """Return the grid, a power of two, for a closest pair ``stretch`` times as far apart."""
    _, distances = data.standing
    epsilons = float(min(terms.threshold, terms.test)), float(max(terms.threshold, terms.test))
    min_rate = min(float(distances[distances > 0].min(initial=np.inf)) * stretch, 1.0 / epsilons[1])
    steps = min(STEPS_PER_DISTANCE, max(1.0, math.sqrt(LARGEST_TERM * epsilons[0] * min_rate)))
    return float(2.0 ** np.floor(np.log2(min_rate / steps)))


def _max_step_difference(steps: Ints, pairs: Ints) -> Ints:
    """(P,) greatest difference in steps between the two records of each pair, over the outputs."""
    max_difference = np.zeros(len(pairs), dtype=np.int64)
    size = max(1, _BLOCK // max(1, steps.shape[1]))
    for start in range(0, len(pairs), size):
        i, j = pairs[start : start + size].T
        max_difference[start : start + size] = np.abs(steps[i] - steps[j]).max(axis=1, initial=0)
    return max_difference


def _steepest(steps: Ints, pairs: Ints, distances: Floats) -> Fraction:
    """Return steps per unit of distance, at most; rounded up."""
    return Fraction(float((_max_step_difference(steps, pairs) / distances).max(initial=0.0)) * (1.0 + 2.0**-50))


def _round_down(rate: Fraction) -> Fraction:
    """Return a rate, rounded down to the sampler's terms."""
    return Fraction(rate.numerator * LARGEST_TERM // rate.denominator, LARGEST_TERM)
