"""The ``given`` mechanism, which measures a matrix from another program and turns it into a certified release."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, Self

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Unsigned, read_only
from privopt.declare.schema import File, key
from privopt.errors import Fault, Faults, InputError
from privopt.files.archive import parse_npy
from privopt.interfaces import SolveContext
from privopt.numbers import TOTAL
from privopt_metric_dp.matrix.certify import rows_with_wrong_sum
from privopt_metric_dp.matrix.certify_region import certify_everywhere, find_steepest_output
from privopt_metric_dp.matrix.expected_loss import ExpectedLoss
from privopt_metric_dp.matrix.least_epsilon import ExactDistances, LeastEpsilon, exact_sums, least_epsilon
from privopt_metric_dp.matrix.privacy import MatrixConstraint, MetricDP
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.matrix.repair import round_to_weights
from privopt_metric_dp.mechanisms.answer import Matrix
from privopt_metric_dp.mechanisms.base import MetricMechanism
from privopt_metric_dp.mechanisms.certifier import MatrixOffers
from privopt_metric_dp.problem.data import MetricData, MetricInstance
from privopt_metric_dp.problem.declared import MetricProblem

__all__ = ["Given", "GivenMatrix", "GivenProblem"]

ROW_SUM: Final = 1e-6
"""The largest accepted difference between 1 and the sum of a row of doubles.

Solvers leave differences of about this size."""


@frozen(kw_only=True, eq=False, slots=False)
class GivenMatrix:
    """A matrix from another program, before any repair.

    Attributes:
        values: Array of shape (N, K) with uint64 weights, whose rows sum to 2**63, or with doubles. Doubles become
            probabilities when divided by the exact sum of their row.
    """

    values: NDArray[Any] = field(repr=False)

    @classmethod
    def read(cls, file: File, shape: tuple[int, int]) -> Self:
        """Read a matrix from a ``.npy`` file and check every entry.

        Args:
            file: The file, which contains uint64 weights or other numbers of at most 64 bits. Numbers other than
                weights are converted to doubles.
            shape: The expected shape (N, K).

        Raises:
            InputError: The shape or type is wrong, an entry is negative, infinite or NaN, or a row has the wrong sum.
                The first :data:`privopt.errors.MOST_FAULTS` errors are listed as faults.
        """
        expectation = f"a .npy of probabilities or uint64 weights, {shape[0]} records x {shape[1]} outputs"
        try:
            array = parse_npy(file.contents)
        except ValueError as error:
            raise InputError([Fault(file.name, "", f"no .npy array ({error})", expectation)]) from None
        return cls.of(array, shape, file.name)

    @classmethod
    def of(cls, array: NDArray[Any], shape: tuple[int, int], name: str = "matrix") -> Self:
        """Create an instance from an array after checking every entry.

        Args:
            array: The matrix, which contains uint64 weights or other numbers of at most 64 bits. Numbers other than
                weights are converted to doubles.
            shape: The expected shape (N, K).
            name: The name of the matrix in faults.

        Raises:
            InputError: The array has one of the errors listed for :meth:`read`. A transposed matrix is reported as a
                single fault.
        """
        expectation = f"probabilities or uint64 weights, {shape[0]} records x {shape[1]} outputs"
        if array.shape != shape:
            actual = f"an array of shape {' x '.join(map(str, array.shape)) or 'nothing'}"
            actual += " (transposed?)" if array.shape == shape[::-1] else ""
            raise InputError([Fault(name, "", actual, expectation)])
        values: NDArray[Any]
        if array.dtype.kind == "u" and array.dtype.itemsize == 8:
            values = np.ascontiguousarray(array, dtype=np.uint64)
        elif array.dtype.kind in "iuf" and array.dtype.itemsize <= 8:
            values = np.ascontiguousarray(array, dtype=np.float64)
        else:
            raise InputError([Fault(name, "", f"values of type {array.dtype}", expectation)])
        faults = _row_faults(values, name)
        # A transposed square matrix would have a fault in nearly every row, so the actual mistake is reported instead.
        if faults and not _row_faults(values.T, name):
            turned = "a transposed matrix (its columns sum to 1, its rows do not)"
            faults = [Fault(name, "", turned, f"{expectation}, a row for each record")]
        Faults(faults).check()
        return cls(values=read_only(values))

    @property
    def exact(self) -> bool:
        """Whether the matrix contains integer weights rather than doubles."""
        return self.values.dtype == np.uint64

    @cached_property
    def sums(self) -> list[Fraction]:
        """The exact sum of each row as a fraction."""
        return [Fraction(TOTAL)] * len(self.values) if self.exact else exact_sums(self.values)

    @cached_property
    def weights(self) -> Unsigned:
        """The integer weights as an array of shape (N, K) with rows that sum to 2**63.

        A matrix of doubles is rounded to weights.
        """
        return self.values if self.exact else read_only(round_to_weights(self.values))

    @property
    def rows(self) -> Floats:
        """The matrix as an array of doubles of shape (N, K), for solvers and the repair."""
        return self.values / TOTAL if self.exact else self.values

    def measure_epsilon(
        self, data: MetricData, privacy: MatrixConstraint | None = None, report: Callable[[str], object] | None = None
    ) -> LeastEpsilon:
        """Return the smallest epsilon that the matrix satisfies for all required pairs, and the pair determining it.

        Required pairs are the pairs of records covered by the guarantee.

        Normally, the values are measured without rounding and with exact distances. If the guarantee covers all points
        of a region, or if the notion is not metric DP, the integers in :attr:`weights` are measured instead, as for a
        certificate. For a notion other than metric DP, the result contains no pair.

        Args:
            data: The data of the problem.
            privacy: The problem's privacy notion, or None for metric DP.
            report: A function that is called with a description of each step.
        """
        if privacy is not None and not isinstance(privacy, MetricDP):
            certificate = privacy.measure(MatrixRelease.over(data, self.weights, along_paths=privacy.along_paths))
            worst = math.inf if certificate.worst is None else certificate.worst
            return LeastEpsilon(epsilon=worst, holds=certificate.holds is True)
        if data.region is None:
            # All required pairs are measured. The pairs in data.standing would not be enough: some of the pairs it
            # leaves out are implied only by rounded distances, and the distances here are exact.
            pairs, distances = data.required
            exact = ExactDistances(
                above=data.metric.upper_distances(distances), balls=lambda rows: data.metric.exactly(pairs[rows])
            )
            return least_epsilon(
                self.values, pairs, distances, data.epsilon, exact=exact, sums=self.sums, progress=report
            )
        region_certificate = certify_everywhere(self.weights, data.region, data.epsilon)
        # If the certificate fails only narrowly, the least epsilon may round to the allowed one, so the next larger
        # double is reported.
        worst = (
            region_certificate.worst
            if region_certificate.holds
            else max(region_certificate.worst, math.nextafter(region_certificate.allowed, math.inf))
        )
        if region_certificate.worst_pair is None:
            return LeastEpsilon(epsilon=worst, holds=region_certificate.holds)
        i, j = region_certificate.worst_pair
        k = find_steepest_output(self.weights, data.region, (i, j))
        likelier = self.weights[i, k] >= self.weights[j, k]
        return LeastEpsilon(
            epsilon=worst, holds=region_certificate.holds, pair=(i, j) if likelier else (j, i), output=k
        )

    def loss(self, data: MetricData) -> float:
        """Return the matrix's expected loss under the problem's prior and costs."""
        return ExpectedLoss.of(data).loss_of_rows(self.values, self.sums)


def _row_faults(values: NDArray[Any], name: str) -> list[Fault]:
    """Return a fault for each invalid entry and for each row that has the wrong sum.

    If a row of doubles contains an invalid entry, its sum is not checked.

    Args:
        values: Array of shape (N, K) with doubles, whose rows must sum to 1 up to ``ROW_SUM``, or with uint64 weights,
            whose rows must sum to 2**63.
        name: The name of the matrix in faults.

    Returns:
        The faults. For doubles, there are at most 100 of each kind, to limit memory use.
    """
    if values.dtype == np.uint64:
        wrong_rows = rows_with_wrong_sum(values).tolist()
        return [Fault(name, f"row {r} (from 0)", f"a sum of {sum(values[r].tolist())}", "2**63") for r in wrong_rows]
    # Comparisons with NaN are false, so the negated comparisons here and below also find NaN.
    is_invalid = ~(values >= 0) | ~np.isfinite(values)
    faults = [
        Fault(name, f"row {r}, column {c} (from 0)", repr(float(values[r, c])), "a probability, at least 0")
        for r, c in np.argwhere(is_invalid)[:100].tolist()
    ]
    # Rows with invalid entries are excluded, because their sums may be NaN or overflow.
    with np.errstate(invalid="ignore", over="ignore"):
        has_wrong_sum = ~(np.abs(values.sum(axis=1) - 1.0) <= ROW_SUM) & ~is_invalid.any(axis=1)
    return faults + [
        Fault(name, f"row {r} (from 0)", f"a sum of {values[r].sum():.9g}", f"1, within {ROW_SUM:g}")
        for r in np.flatnonzero(has_wrong_sum)[:100].tolist()
    ]


@frozen(kw_only=True)
class GivenTable:
    """The keys of the ``[given]`` table, which configures the ``given`` mechanism."""

    matrix: File = key(help=".npy (N, K) of probabilities or of uint64 weights that sum to 2**63, made anywhere")


@frozen(kw_only=True)
class GivenProblem(MetricProblem):
    """A metric problem with a matrix to certify."""

    given: GivenTable = key(help="the matrix")


class Given(MetricMechanism[GivenProblem]):
    """A mechanism that certifies a matrix from another program, repairing it if necessary.

    Integer weights that satisfy the privacy notion are released unchanged. The method "bounded" also searches for a
    lower bound on the loss.
    """

    problem_class = GivenProblem
    any_notion = frozenset({"repair"})
    kit = "privopt_metric_dp.kit.profiles:GIVEN"

    def check_problem(self, problem: MetricInstance[GivenProblem], method: str) -> None:
        """Run the base class's checks and check the matrix.

        Raises:
            InputError: The matrix has the wrong shape, invalid entries or wrong row sums, or one of the base class's
                checks fails.
        """
        super().check_problem(problem, method)
        GivenMatrix.read(problem.declared.given.matrix, problem.data.shape)

    def matrix(self, problem: MetricInstance[GivenProblem], context: SolveContext) -> Matrix:
        """Return the matrix unchanged, together with its loss and the smallest epsilon that it satisfies.

        Integer weights are also returned as a release, which is published unchanged if it satisfies the privacy notion.
        """
        data = problem.data
        given_matrix = GivenMatrix.read(problem.declared.given.matrix, data.shape)
        privacy = self.privacy(problem, context.method)
        measurement = given_matrix.measure_epsilon(data, privacy, context.report)
        figures: Mapping[str, Any] = {
            "epsilon": measurement.epsilon,
            "holds": measurement.holds,
            "pair": None if measurement.pair is None else [data.records.ids[i] for i in measurement.pair],
            "output": None if measurement.output is None else data.outputs.ids[measurement.output],
            "loss": given_matrix.loss(data),
        }
        release = None
        if given_matrix.exact:
            release = MatrixRelease.over(data, given_matrix.weights, along_paths=privacy.along_paths)
        return Matrix(z=given_matrix.rows, release=release, solver={"name": "as given"}, details={"given": figures})

    def search(self, problem: MetricInstance[GivenProblem], incumbent: MatrixOffers, context: SolveContext) -> None:
        """Offer the matrix and, if the method is "bounded", lower bounds found by structured solvers.

        Structured solvers, such as column generation or an interior-point method, solve the LP for the optimal matrix
        without building all of it in memory. Only their bounds are offered, not their matrices.

        Args:
            problem: The problem with the matrix.
            incumbent: The search, which certifies the matrix and proves the best of the offered bounds.
            context: The method, gap and limits of the run.
        """
        from privopt_metric_dp.mechanisms.optimal_lp import search_structured

        super().search(problem, incumbent, context)
        if context.method == "bounded":
            # This view discards the solvers' matrices, since only the given one may be released, and passes multipliers
            # on.
            only_bounds: MatrixOffers = incumbent.through("", candidate=None, proof=lambda multipliers: multipliers)
            search_structured(problem.data, only_bounds, context)
