"""The public parameters of the private test that decides whether the previous report is still good.

The test uses the sparse vector technique. A segment consists of a fresh report and its repetitions, up to the next
fresh report. All tests in a segment compare the distance between the position and the report with the same noisy
threshold. docs/guide/repeated.md, "Prediction", describes the test and its guarantee.

Distances from records to outputs are rounded to whole steps. Rounding may increase the difference between two records'
distances to an output. The largest such increase is computed from the rounded distances, and the scale of the noise is
increased to match.
"""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Final, NoReturn, Self

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
"""The number of grid steps in the smallest positive distance between records. With this many steps, rounding distances
costs less than a thousandth of the epsilons.

Fewer steps are used if the rates would otherwise be so small that rounding them down would cost more than rounding the
distances does.
"""

FARTHEST: Final = 1 << 50
"""The maximum number of steps in a distance. Longer distances are capped, which never increases the difference between
two distances."""

ULPS: Final = 2.0**-36
"""The largest relative difference between the values that two machines may compute for the same distance."""

STEP_KM: Final = Fraction(STEP_MM, MM_PER_KM)
"""The length of a step in km, if the guarantee covers every point in a region."""

_MIN_GRID = 1e-280
"""The smallest step length of a grid, which keeps the number of steps per unit of distance finite."""
_BLOCK = 1 << 22
"""The maximum number of entries in a block of differences."""
_DOUBTFUL_SHARE = 1.0 - 2.0**-40
"""The fraction of the allowed difference above which a difference is checked exactly. Below it, doubles are accurate
enough."""


@frozen(kw_only=True)
class Terms:
    """The privacy budget of predictive reporting, which repeats a report as long as it is still good.

    All epsilons are per unit of distance. A segment is a sequence of repeated reports that ends with a fresh one.

    Attributes:
        report: The epsilon of one fresh report.
        threshold: The epsilon of a segment's noisy threshold.
        test: Half of the total epsilon of all tests in a segment. It determines the scale of the noise in each test.
        good_within: The largest distance between a position and the previous report at which that report is still good.
        total: The largest total epsilon that a subject may spend in one table, or None for no limit.
    """

    report: Fraction
    threshold: Fraction
    test: Fraction
    good_within: Fraction
    total: Fraction | None = None

    @property
    def segment(self) -> Fraction:
        """The epsilon of a segment, including the fresh report that ends it.

        It is charged before the segment's first test.
        """
        # By the sparse vector technique, all tests of a segment together cost twice `test`, whatever their number.
        return self.threshold + 2 * self.test + self.report


def _to_read_only(steps: Ints) -> Ints:
    """Make the array of steps read-only and return it."""
    return read_only(steps)


@frozen(kw_only=True, eq=False)
class Prediction:
    """The public parameters of the private tests along a trace.

    The tests use distances in whole numbers of steps, where a step is a small unit of length that is fixed for the
    problem.

    Attributes:
        steps: Array of shape (N, K) with the distance from each record to each output, in steps.
        level: The distance :attr:`Terms.good_within` in steps, rounded down.
        threshold: The rate of the threshold's noise per step. The probability of m steps of noise is proportional to
            exp(-threshold m) for m >= 0.
        test: The rate of each test's noise per step.
    """

    steps: Ints = field(converter=_to_read_only)
    level: int
    threshold: Fraction
    test: Fraction

    @classmethod
    def of(cls, data: MetricData, terms: Terms) -> Self:
        """Compute the parameters for a problem, with enough noise to compensate for rounding distances to steps.

        Args:
            data: The problem's data.
            terms: The epsilons for prediction, and the distance within which a report is still good.

        Raises:
            InputError: The distances and epsilons would require noise outside the 64-bit range, or the problem has a
                region whose paths are too long or whose outputs have no positions on its plane.
        """
        return (
            cls._on_grid(_choose_grid(data, terms), data, terms)
            if data.region is None
            else cls._everywhere(data, terms)
        )

    @classmethod
    def _everywhere(cls, data: MetricData, terms: Terms) -> Self:
        """Compute the parameters for a problem with a region, using steps of one millimetre.

        The distances in steps are those from the region's vertices to the outputs. For tests at other points,
        :class:`privopt_metric_dp.traces.interpolate.Ways` computes the distances.

        Args:
            data: The problem's data, with a region.
            terms: The epsilons for prediction, and the distance within which a report is still good.
        """
        steps, level = Ways.of(data).of_vertices, int(terms.good_within / STEP_KM)
        # A step has a fixed length here, so epsilon per step is epsilon per km times that length.
        rates = [_round_down(epsilon * STEP_KM) for epsilon in (terms.threshold, terms.test)]
        _check_rates(rates, level, data, terms)
        return cls(steps=steps, level=level, threshold=rates[0], test=rates[1])

    @classmethod
    def _on_grid(cls, grid: float, data: MetricData, terms: Terms) -> Self:
        """Compute the parameters for a given step length, with enough noise to compensate for rounding distances.

        Args:
            grid: The length of a step, in the unit of distance.
            data: The problem's data.
            terms: The epsilons for prediction, and the distance within which a report is still good.

        Raises:
            InputError: A rate or the level is out of range, or the steps are too short.
        """
        # Division by shorter steps could overflow.
        if grid < _MIN_GRID:
            _refuse_rates(data, terms)
        # `standing` contains the pairs of records whose constraint must be checked, and the distance of each pair.
        pairs, distances = data.standing
        is_positive = distances > 0
        output_distances = data.to_outputs
        is_finite = np.isfinite(output_distances)
        max_distance = float(output_distances[is_finite].max(initial=0.0))
        # Steps must be finite, so the largest finite distance is used for outputs that cannot be reached.
        bounded_distances = np.where(is_finite, output_distances, max_distance)
        with np.errstate(over="ignore"):  # an infinite number of steps is capped at FARTHEST
            steps = np.rint(np.minimum(bounded_distances / grid, FARTHEST)).astype(np.int64)
        # Records connected by pairs at distance 0 must be indistinguishable. No noise would hide a difference between
        # them, so all of them get the steps of the first one.
        positions = components(len(steps), pairs[~is_positive])
        steps = steps[np.unique(positions, return_index=True)[1][positions]]
        # Rounding may increase the difference between two records' distances to an output. The rates are divided by
        # `stretch`, the largest such difference in steps per unit of distance between the records.
        stretch = max(Fraction(1.0 / grid), _max_steps_per_distance(steps, pairs[is_positive], distances[is_positive]))
        rates = [_round_down(epsilon / stretch) for epsilon in (terms.threshold, terms.test)]
        level = int(terms.good_within / Fraction(grid))
        _check_rates(rates, level, data, terms)
        return cls(steps=steps, level=level, threshold=rates[0], test=rates[1])

    def failures(self, data: MetricData, terms: Terms) -> list[str]:
        """Return a message for each error in these parameters.

        Too little noise is an error, because it would break the guarantee. For a problem without a region, the noise is
        checked in exact arithmetic for each output and each pair of records that the certificate checks. The
        difference, in steps, between the two records' distances to the output, multiplied by the rate, must be at most
        epsilon times the distance between the records. The constraints for these pairs imply those for all other
        required pairs. At most eight violations are reported. For a problem with a region, it is enough to check that
        the rates are at most the epsilons per step.

        Any other parameter that does not follow from the problem is also an error. For example, a different
        ``good_within`` or more noise might be just as private, but it is not what the problem declares.

        Args:
            data: The problem's data.
            terms: The epsilons declared by the problem.
        """
        if self.steps.shape != data.shape:
            return [f"{ARTEFACT}: steps: expected shape {data.shape}, got {self.steps.shape}"]
        if data.region is not None:
            # A step is a millimetre, and the steps of two points differ by at most the length of the path between them
            # in millimetres plus SLACK_STEPS (`interpolate`). The rates therefore need not be checked pair by pair, and
            # it is enough that they are at most epsilon per step. This requires that the steps are the true distances
            # in the region, rounded down. They are checked with `covers`, because `_differing_names` would accept
            # deviations of one step in either direction.
            is_too_narrow = {
                "threshold": self.threshold > terms.threshold * STEP_KM,
                "test": self.test > terms.test * STEP_KM,
            }
            lines = [
                f"{ARTEFACT}: {name}: its noise is too narrow for the steps"
                for name, narrow in is_too_narrow.items()
                if narrow
            ]
            others = {*self._differing_names(Prediction.of(data, terms))} - {"steps"}
            others |= set[str]() if Ways.of(data).covers(self.steps) else {"steps"}
            return [*lines, *self._describe_names(sorted(others))]
        pairs, distances = data.standing
        spread = _max_step_difference(self.steps, pairs)
        lines = []
        for name, rate, epsilon in (
            ("threshold", self.threshold, terms.threshold),
            ("test", self.test, terms.test),
        ):
            # The pairs near or above the limit are selected in doubles and then checked exactly, in rational numbers.
            is_doubtful = spread * float(rate) > float(epsilon) * distances * _DOUBTFUL_SHARE
            for row in np.flatnonzero(is_doubtful).tolist():
                if int(spread[row]) * rate > epsilon * Fraction(float(distances[row])):
                    i, j = (data.records.ids[end] for end in pairs[row].tolist())
                    lines.append(
                        f"{ARTEFACT}: {name}: {i} and {j} differ by {spread[row]} steps, too many for its rate"
                    )
        return [*lines[:8], *self._describe_differences(data, terms)]

    def _describe_differences(self, data: MetricData, terms: Terms) -> list[str]:
        """Return a message for each parameter that differs from the one computed from the problem.

        Differences small enough to be due to rounding on another machine are not reported.
        """
        # A grid's step is a power of two. If the value from which it is computed is close to a power of two, another
        # machine may choose the adjacent power.
        grids = dict.fromkeys(_choose_grid(data, terms, 1 + factor * ULPS) for factor in (0, -1, 1))
        return self._describe_names(
            min((self._differing_names(self._on_grid(grid, data, terms)) for grid in grids), key=len)
        )

    @staticmethod
    def _describe_names(names: list[str]) -> list[str]:
        """Return a message for each of the named parameters, saying that its value does not follow from the problem."""
        return [f"{ARTEFACT}: {name}: not what the problem implies" for name in names]

    def _differing_names(self, prediction: Prediction) -> list[str]:
        """Return the names of the parameters that differ from another prediction's by more than rounding errors."""
        is_equal_by_name = {
            "level": prediction.level == self.level,
            "threshold": abs(prediction.threshold / self.threshold - 1) < ULPS,
            "test": abs(prediction.test / self.test - 1) < ULPS,
            # A distance close to the midpoint between two whole numbers of steps may be rounded to either.
            "steps": bool((np.abs(prediction.steps - self.steps) <= 1 + ULPS * prediction.steps).all()),
        }
        return [name for name, is_equal in is_equal_by_name.items() if not is_equal]

    def write(self, folder: Path) -> None:
        """Write the steps, the level and the rates to prediction.npz in a release folder."""
        rates = [[rate.numerator, rate.denominator] for rate in (self.threshold, self.test)]
        np.savez(
            folder / ARTEFACT, steps=self.steps, level=np.array([self.level]), rates=np.array(rates, dtype=np.int64)
        )

    @classmethod
    def read(cls, folder: Path) -> Self:
        """Read the parameters from prediction.npz in a release folder, and check their ranges.

        Raises:
            InputError: The file is missing or malformed, or contains numbers that are out of range.
        """
        form = {"steps": (np.int64, ("N", None)), "level": (np.int64, (1,)), "rates": (np.int64, (2, 2))}
        arrays = read_arrays(folder / ARTEFACT, form)
        steps, level, rates = (arrays[name] for name in form)
        if steps.min(initial=0) < 0 or steps.max(initial=0) > FARTHEST or not 0 <= level[0] <= FARTHEST:
            raise InputError([Fault(ARTEFACT, "steps, level", "numbers out of range", f"0 to {FARTHEST:,}")])
        # The sampler accepts rates between 0 and 1 whose numerators and denominators are at most `LARGEST_TERM`.
        if (rates < 1).any() or (rates > LARGEST_TERM).any() or (rates[:, 0] >= rates[:, 1]).any():
            raise InputError([Fault(ARTEFACT, "rates", str(rates.tolist()), "two rates above 0 and below 1")])
        threshold_rate, test_rate = (Fraction(*rate) for rate in rates.tolist())
        return cls(steps=steps.copy(), level=int(level[0]), threshold=threshold_rate, test=test_rate)


def _check_rates(rates: list[Fraction], level: int, data: MetricData, terms: Terms) -> None:
    """Check that the rates are strictly between 0 and 1 and that the level is at most `FARTHEST`.

    The sampler accepts no other rates. A higher level could not be compared with distances in steps, which are capped
    at `FARTHEST`.

    Args:
        rates: The rates of the threshold's noise and of the test's noise, per step.
        level: The distance ``good_within`` in steps.
        data, terms: The problem's data and epsilons, for the error message.

    Raises:
        InputError: A rate or the level is out of range.
    """
    if min(rates) <= 0 or max(rates) >= 1 or level > FARTHEST:
        _refuse_rates(data, terms)


def _refuse_rates(data: MetricData, terms: Terms) -> NoReturn:
    """Raise an InputError saying that the distances and epsilons would require noise outside the 64-bit range.

    Args:
        data, terms: The problem's data and epsilons, for the message.

    Raises:
        InputError: Always.
    """
    distances = data.standing[1]
    min_distance = float(distances[distances > 0].min(initial=np.inf))
    actual = f"records {min_distance:.3g} {data.unit} apart with good_within {float(terms.good_within):.3g}"
    expectation = "distances and epsilons that leave noise within 64 bits"
    raise InputError([Fault(data.file, "predictive", actual, expectation)])


def _choose_grid(data: MetricData, terms: Terms, stretch: float = 1.0) -> float:
    """Choose a power of two as the length of a step, in the unit of distance.

    Args:
        data: The problem's data.
        terms: The epsilons for prediction.
        stretch: A factor near 1 to apply to the smallest distance between two records. :meth:`Prediction.failures`
            varies it to find the step lengths that other machines may choose.
    """
    _, distances = data.standing
    epsilons = float(min(terms.threshold, terms.test)), float(max(terms.threshold, terms.test))
    # A rate per step is epsilon times the length of a step, so a length of at most 1 / epsilon keeps rates from
    # exceeding 1.
    length = min(float(distances[distances > 0].min(initial=np.inf)) * stretch, 1.0 / epsilons[1])
    # The sampler's fractions have denominators of at most `LARGEST_TERM`. If a rate per step would be too small for
    # them, there are fewer and longer steps.
    steps = min(STEPS_PER_DISTANCE, max(1.0, math.sqrt(LARGEST_TERM * epsilons[0] * length)))
    return float(2.0 ** np.floor(np.log2(length / steps)))


def _max_step_difference(steps: Ints, pairs: Ints) -> Ints:
    """For each pair of records, return the largest difference in steps between their distances to the same output.

    Args:
        steps: Array of shape (N, K) with the distances to the outputs in steps.
        pairs: Array of shape (P, 2) with the record indices of each pair.

    Returns:
        Array of shape (P,) with the largest difference for each pair.
    """
    max_difference = np.zeros(len(pairs), dtype=np.int64)
    # Pairs are processed in blocks to limit the memory for the differences.
    size = max(1, _BLOCK // max(1, steps.shape[1]))
    for start in range(0, len(pairs), size):
        i, j = pairs[start : start + size].T
        max_difference[start : start + size] = np.abs(steps[i] - steps[j]).max(axis=1, initial=0)
    return max_difference


def _max_steps_per_distance(steps: Ints, pairs: Ints, distances: Floats) -> Fraction:
    """Return the largest ratio of a pair's difference in steps to the distance between its records, rounded up.

    The difference in steps is the one computed by :func:`_max_step_difference`.

    Args:
        steps: Array of shape (N, K) with the distances to the outputs in steps.
        pairs: Array of shape (P, 2) with the record indices of each pair.
        distances: Array of shape (P,) with the positive distance of each pair.
    """
    return Fraction(float((_max_step_difference(steps, pairs) / distances).max(initial=0.0)) * (1.0 + 2.0**-50))


def _round_down(rate: Fraction) -> Fraction:
    """Round a rate down, i.e. towards more noise, to a fraction accepted by the sampler."""
    return Fraction(rate.numerator * LARGEST_TERM // rate.denominator, LARGEST_TERM)
