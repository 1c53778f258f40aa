"""Metric differential privacy, which includes geo-indistinguishability.

For each required pair of records (i, j) and every output k, the notion requires ``z_ik <= exp(epsilon d_ij) z_jk`` in
both directions. Here z_ik is the probability of output k for record i, and d_ij is the distance of the pair (Andrés et
al., CCS 2013; Chatzikokolakis et al., PETS 2013).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, ClassVar, Final, Self

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from privopt import dsl
from privopt.arrays import Bools, Floats, Ints
from privopt.interfaces import AGAIN, Certificate, Guarantee, PrivacyConstraint, Result, SolveContext
from privopt.interfaces.notions import factor
from privopt.numbers.distances import amount_text, distance_words
from privopt_metric_dp.matrix.certify import Measurements, certify
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.declared import MetricNotion, MetricPrivacy
from privopt_metric_dp.problem.metric_data import MetricData
from privopt_metric_dp.space.exactly import Ways, at_most, is_above
from privopt_metric_dp.space.pairs import not_implied

__all__ = [
    "DISTANCE_TOLERANCE",
    "PRIVACY_ROWS",
    "SPHERE",
    "MatrixConstraint",
    "MetricDP",
    "add_reversed_pairs",
    "uncovered_pairs",
]

PRIVACY_ROWS: Final = "geo-ind"
"""The name of the constraint family that expresses metric DP in an optimisation model."""
DISTANCE_TOLERANCE: Final = 1e-9
"""The relative amount by which a stored distance may be shorter than the recomputed one."""
SPHERE: Final = "sphere_km"
"""The key in ``Guarantee.extra`` that marks guarantees covering all points on a sphere. Its value is the radius in km.

The release then contains a continuous distribution of reports instead of a matrix.
"""
DISTANCE_SLACK: Final = Fraction(1, 10**24)
"""The absolute amount by which a stored distance may be too short, in addition to :data:`DISTANCE_TOLERANCE`.

It covers rounding errors at tiny distances.
"""

# The inputs that each scope covers, as a phrase to insert into the statement of a guarantee.
_SCOPES = {
    "all-pairs": "any two records",
    "neighbours": "any two records within {within} of each other",
    "own-matrix": "any two records of one user's own matrix",
    "everywhere": "any two points of the region, records or not,",
}

_STATEMENT = (
    "Whoever sees the output, and whatever else they know: the odds between {whose} change by at most "
    "exp({epsilon:g} d), where d is their distance{in_unit}."
)
_REGION_STATEMENT = (
    "Whoever sees the output, and whatever else they know: the odds between {whose} change by at most "
    "exp({epsilon:g} d), where d is the length of a way between them inside the region{in_unit}. "
    "What is protected of a position outside is the point of the region that it is first taken to."
)
BY_ROAD: Final = "by road"
"""The phrase that marks distances in statements as distances along roads.

Without it, readers would assume straight-line distances. A straight-line distance takes in far more places than the
same distance by road.
"""


class MatrixConstraint(PrivacyConstraint[MatrixRelease]):
    """Base class for privacy notions of obfuscation matrices.

    Such a notion can also repair a matrix that nearly satisfies it.
    """

    along_paths: ClassVar[bool] = False
    """Whether the inequalities for the pairs along a path imply the inequality for the path's two ends.

    If they do, it is enough to check a subset of the required pairs.
    """

    @classmethod
    @abstractmethod
    def from_keys(cls, keys: MetricNotion, data: MetricData) -> Self:
        """Create the notion from a problem's keys and data.

        Args:
            keys: The problem's ``[privacy]`` table, an instance of the class returned by :meth:`keys`.
            data: The problem's data, including its records, distances and required pairs.
        """

    @abstractmethod
    def repair(self, z: NDArray[np.float64], data: MetricData, context: SolveContext) -> MatrixRelease:
        """Turn a matrix that nearly satisfies the notion into a certified release with integer weights.

        Args:
            z: (N, K) The probabilities.
            data: The problem's data.
            context: The context of the run, which provides the requested gap and records how long the repair takes.

        Raises:
            CertificationError: No repaired matrix could be certified.
        """


@frozen(kw_only=True)
class MetricDP(MatrixConstraint):
    """Metric DP at a given epsilon, for a release's required pairs of records.

    Attributes:
        epsilon: The exact epsilon per unit of distance.
        unit: The unit of epsilon, such as ``"per km"``.
        scope: ``"everywhere"``, ``"all-pairs"``, ``"neighbours"`` or ``"own-matrix"``.
        within: The largest distance of a required pair if the scope is ``"neighbours"``, and None otherwise.
        statement: The guarantee as a sentence. If it is empty, a standard sentence for the scope is used.
        extra: Further entries for the guarantee's ``extra`` attribute.
        way: A phrase that follows the unit and says how distances are measured, such as ``"by road"``.
        data: The problem's data, used to recompute distances. If None, the distances stored in the release are used
            unchanged.
    """

    kind: ClassVar[str] = MetricPrivacy.kind
    odds: ClassVar[bool] = True
    along_paths: ClassVar[bool] = True

    epsilon: Fraction
    unit: str
    scope: str
    within: float | None = None
    statement: str = ""
    extra: dict[str, Any] = field(factory=dict)
    way: str = ""
    data: MetricData | None = field(default=None, eq=False, repr=False)

    @classmethod
    def from_keys(cls, keys: MetricNotion, data: MetricData) -> Self:
        """Create metric DP over the problem's required pairs.

        ``keys`` is not used, because ``data`` contains the same values.
        """
        return cls.of(data)

    @classmethod
    def of(cls, data: MetricData) -> Self:
        """Create the notion with the epsilon, unit and scope given by a metric problem's data."""
        scope = "all-pairs" if data.within is None else "neighbours"
        scope = scope if data.region is None else "everywhere"
        unit = f"per {data.unit}"
        return cls(epsilon=data.epsilon, unit=unit, scope=scope, within=data.within, way=data.way, data=data)

    @classmethod
    def keys(cls) -> type | None:
        """Return :class:`MetricPrivacy`, the class of the ``[privacy]`` table."""
        return MetricPrivacy

    @classmethod
    def promise(cls, result: Result) -> str:
        """Return sentences for the report page stating the distances at which two records are hard to distinguish."""
        return _state_promise(result.guarantee)

    @classmethod
    def limits(cls, result: Result) -> tuple[list[str], list[str]]:
        """Return two lists of sentences for the report: what a result's certificate checks, and what it does not."""
        checked_claims = [
            f"{result.certificate.checked:,} inequalities between probabilities, on the integers that are drawn from.",
            "That every row adds up to exactly 2^63.",
        ]
        if result.guarantee.scope == "everywhere":
            # For a region, the certificate checks simplices instead of pairs.
            checked_claims[0] = (
                f"{result.certificate.checked:,} gradients, of every output's probability on every simplex of the "
                "region, on the integers that are drawn from: that is any two points, not only records."
            )
        if SPHERE in result.guarantee.extra:
            checked_claims = [
                "The rate and the sphere of the law that reports are drawn from, as rationals; that such a law "
                "protects any two points of the sphere is a theorem.",
            ]
        unchecked_claims = [
            "Whoever draws the reports: they know the true records, and must be trusted with them.",
            AGAIN,
            "What the sender reveals elsewhere, or by when and how often it reports.",
        ]
        if SPHERE in result.guarantee.extra:
            unchecked_claims.insert(0, "How far the Earth is from a sphere, and that positions are as they were sent.")
        elif result.guarantee.scope == "everywhere":
            unchecked_claims.insert(0, "How far a position lay from the region, and that it is where its sender says.")
        if result.guarantee.scope == "own-matrix":
            unchecked_claims.insert(
                0, "Rows of different users against each other, and what the server learns from uploads."
            )
        return checked_claims, unchecked_claims

    @classmethod
    def trust(cls, result: Result) -> str:
        """Return sentences for the report page stating who must be trusted.

        For most scopes, this is whoever draws the reports. For the scope ``"own-matrix"``, it is the server, because
        users can be located from what they upload.
        """
        if result.guarantee.scope == "own-matrix":
            return "The server must be trusted: what a user uploads to it is enough to find that user."
        return (
            "Whoever draws the reports knows the true values and must be trusted with them. Those who read the reports "
            "need not be."
        )

    @classmethod
    def exposed_to(cls, result: Result) -> str:
        """Return a phrase that names the parties against whom the guarantee does not protect users.

        The phrase is empty unless the scope is ``"own-matrix"``.
        """
        return "the server, or who compares users" if result.guarantee.scope == "own-matrix" else ""

    def repair(self, z: NDArray[np.float64], data: MetricData, context: SolveContext) -> MatrixRelease:
        """Repair a matrix of shape (N, K) that nearly satisfies metric DP (see :meth:`MatrixRelease.from_matrix`)."""
        return MatrixRelease.from_matrix(z, data, context)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee provided by a release that satisfies this notion."""
        unit = self.unit.removeprefix("per ")
        statement = self.statement or (_REGION_STATEMENT if self.scope == "everywhere" else _STATEMENT).format(
            epsilon=float(self.epsilon),
            whose=_SCOPES[self.scope].format(within=_distance_text(self.within or 0.0, unit)),
            in_unit=distance_words(unit, self.way),
        )
        extra = dict(self.extra) if self.within is None else {"neighbours_within": self.within, **self.extra}
        return Guarantee(
            kind=self.kind, epsilon=self.epsilon, unit=self.unit, scope=self.scope, statement=statement, extra=extra
        )

    @property
    def relation(self) -> str:
        """The unit of epsilon and how distances are measured, such as ``"per km by road"``."""
        return f"{self.unit} {self.way}".rstrip()

    def emit(self, model: dsl.Model, **symbols: Any) -> None:
        """Add the inequalities of metric DP to an optimisation model, as the constraint family :data:`PRIVACY_ROWS`.

        Args:
            model: A model with a variable over records and outputs.
            symbols: The model's variable ``z``; its indices ``i``, ``j`` and ``k``; its parameter ``d``, the distances
                between records; and ``pairs``, an array of shape (P, 2) with the required pairs in both directions.
        """
        from privopt.dsl import Le, exp

        z, i, j, k, d, pairs = (symbols[name] for name in ("z", "i", "j", "k", "d", "pairs"))
        if len(pairs):
            model.require(
                PRIVACY_ROWS, Le(z[i, k], exp(float(self.epsilon) * d[i, j]) * z[j, k]), forall=(i, j, k), where=pairs
            )

    def measure(self, release: MatrixRelease) -> Certificate:
        """Certify a release in exact arithmetic, either for its stored pairs or for any two points in its region.

        For each pair, the stored distance is used if it is at most the exact one. Otherwise, the distance is computed
        from the problem and rounded down. The region is taken from the problem if the problem is known, and
        otherwise from the release.
        """
        region = release.region if self.data is None else self.data.region
        if region is not None:
            from privopt_metric_dp.matrix.certify_region import certify_everywhere

            region_measurements = certify_everywhere(release.weights, region, self.epsilon)
            return self.make_certificate(region_measurements, release.weights, release.records, release.outputs)
        distances = release.distances
        # Pairs are given by indices of the release's records. These are also indices of the problem's records only if
        # the release has all of them.
        if self.data is not None and len(release.records) == self.data.shape[0]:
            distances = self.data.not_above(release.pairs, distances)
        measurements = certify(release.weights, release.pairs, distances, self.epsilon)
        return self.make_certificate(measurements, release.weights, release.records, release.outputs)

    def make_certificate(
        self,
        measured: Measurements,
        weights: NDArray[np.uint64],
        records: Sequence[str] | NDArray[np.str_],
        outputs: Sequence[str] | NDArray[np.str_],
        notes: Mapping[str, Any] | None = None,
    ) -> Certificate:
        """Make a certificate from measurements.

        Descriptions of failures include the ids of the records and outputs concerned.

        Args:
            measured: The measurements returned by ``certify`` or ``certify_everywhere``.
            weights: (N, K) The integer weights that were measured.
            records: The ids of the N records.
            outputs: The ids of the K outputs.
            notes: Additional entries for the certificate.
        """
        failures = (
            *(f"record {records[row]}: the weights of its row do not sum to 2^63" for row in measured.wrong_rows),
            *(
                f"records {records[f.i]} and {records[f.j]}, output {outputs[f.k]}: "
                f"weights {weights[f.i, f.k]} and {weights[f.j, f.k]}"
                for f in measured.failures
            ),
        )
        allowed = float(self.epsilon)
        return Certificate(
            holds=measured.holds,
            evidence="proved",
            kind=self.kind,
            # `worst` is rounded up, but `allowed` to the nearest double. A release that satisfies epsilon must not seem
            # to exceed it.
            worst=min(measured.worst, allowed) if measured.holds else measured.worst,
            allowed=allowed,
            checked=measured.checked,
            arithmetic=measured.arithmetic,
            notes=notes or {},
            failures=failures,
        )


def add_reversed_pairs(pairs: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return an array of shape (2 P, 2) with the P given pairs followed by the same pairs reversed."""
    return np.concatenate([pairs, pairs[:, ::-1]])


def _are_too_short(data: MetricData, pairs: Ints, stored: Floats, computed: Floats) -> Bools:
    """Decide which stored distances are shorter than the exact ones by more than the tolerances allow.

    The stand-alone checker applies the same rule (docs/reference/proof.md) and must reach the same decisions, so
    distances close to the threshold are compared exactly.

    Args:
        data: The problem's data.
        pairs: (P, 2) The record indices of each stored pair.
        stored: (P,) The stored distances.
        computed: (P,) Lower bounds on the exact distances.

    Returns:
        (P,) Whether each stored distance is too short.
    """
    edge = 1.0 - DISTANCE_TOLERANCE
    # Doubles decide all pairs except those near the threshold. The factors 1 - 2**-50 and 1 + 2**-50 cover the rounding
    # errors of the two comparisons, and doubling the slack covers its conversion to a double.
    too_short = stored < computed * edge * (1.0 - 2.0**-50) - 2.0 * float(DISTANCE_SLACK)
    near_edge = ~too_short & (stored < data.metric.upper_distances(computed) * edge * (1.0 + 2.0**-50))
    rows = np.flatnonzero(near_edge)
    for row, ball in zip(rows.tolist(), data.metric.exactly(pairs[rows]), strict=True):
        # In exact arithmetic, the rule is that the distance exceeds (stored + slack) / (1 - 1e-9).
        too_short[row] = is_above(ball, (Fraction(float(stored[row])) + DISTANCE_SLACK) / (1 - Fraction(1, 10**9)))
    return too_short


def _uncovered_pairs(data: MetricData, pairs: Ints, distances: Floats, rows: Ints) -> Ints:
    """Return the indices of required pairs that are not implied by any path of stored pairs.

    A pair is implied if some path between its two records is proved to be no longer than their exact distance.

    Args:
        data: The problem's data.
        pairs: (P, 2) The record indices of each stored pair.
        distances: (P,) The distance of each stored pair.
        rows: The required pairs to check, as indices into ``data.pairs``.

    Returns:
        The elements of ``rows`` whose pairs are not implied.
    """
    edges = [(i, j, Fraction(x)) for (i, j), x in zip(pairs.tolist(), distances.tolist(), strict=True)]
    paths = Ways(edges, data.shape[0])
    lengths, balls = paths.shortest_lengths(data.pairs[rows].tolist()), data.metric.exactly(data.pairs[rows])
    # A pair is implied if a path between its ends is proved to be no longer than the exact distance.
    is_uncovered = [length is None or not at_most(length, ball) for length, ball in zip(lengths, balls, strict=True)]
    return rows[np.array(is_uncovered, dtype=np.bool_)]


def _round_down(value: float) -> float:
    """Round a positive number down to two significant digits."""
    scale = 10.0 ** (1 - math.floor(math.log10(value)))
    return math.floor(value * scale) / scale


def _distance_text(distance: float, unit: str) -> str:
    """Return a distance as a string, followed by its unit if that unit has a name."""
    return f"{distance:g}" if unit == "unit of distance" else amount_text(f"{distance:g}", unit)


def _state_promise(guarantee: Guarantee) -> str:
    """Return sentences stating how much more likely a report can be for one record than for another record nearby.

    They state the largest distance, rounded down, at which a report is at most twice as likely for one record as for
    the other. If the guarantee only covers shorter distances, they state the ratio at the largest distance covered.
    """
    assert guarantee.epsilon is not None  # a guarantee of this notion always states it
    epsilon = float(guarantee.epsilon)
    unit = guarantee.unit.removeprefix("per ")
    way = f" {BY_ROAD}" if BY_ROAD in guarantee.statement else ""

    def at_distance(distance: float) -> str:
        """Return a distance with its unit, followed by "by road" if distances are measured by road."""
        return f"{_distance_text(distance, unit)}{way}"

    opening, ending = "Whoever sees a report, whatever else they know, can", ""
    plural = "places" if unit.startswith("km") else "records"
    subjects = "two points of the region" if guarantee.scope == "everywhere" else f"two {plural}"
    if SPHERE in guarantee.extra:
        subjects = "two points on Earth"
    if guarantee.scope == "own-matrix":
        opening = "Whoever sees a report and knows the one matrix that it was drawn from can"
        ending = " Between different users, and towards the server, nothing of the kind is promised."
    within = guarantee.extra.get("neighbours_within")
    doubling_distance = _round_down(math.log(2) / epsilon)
    opening += f" tell {subjects} apart only as far as their distance allows: "
    comparison = "as likely from the one as from the other"
    ending = f" The nearer they are, the smaller is this factor; the farther, the larger.{ending}"
    if within is not None and doubling_distance > within:
        limit, words = within, factor(epsilon * within)
    else:
        limit, words = doubling_distance, "twice"
        comparison += "" if within is None else f" ({plural} up to {at_distance(within)} apart are compared)"
    return f"{opening}at {at_distance(limit)} a report is at most {words} {comparison}.{ending}"


def uncovered_pairs(release: MatrixRelease, data: MetricData, *, along_paths: bool) -> list[str]:
    """Return up to five error messages about wrong distances or missing pairs in a release.

    A pair is missing if it is required but neither stored nor implied by a path of stored pairs. A stored distance
    above the computed one is not necessarily wrong, because computed distances are rounded down. It is therefore
    compared with the exact distance, as in the certificate. If the release stores no pairs, it uses the problem's
    required pairs, so there are no messages.

    Args:
        release: The release whose stored pairs are checked.
        data: The problem's data.
        along_paths: Whether a path of stored pairs implies the pair formed by its two ends (see
            :attr:`MatrixConstraint.along_paths`).
    """
    # If the file stores no pairs, the problem's pairs are used, which cannot be wrong.
    if release.follow is not None:
        return []
    pairs, distances = release.pairs, release.distances
    # These are the pairs that `solve` stores. Those in `standing` are usually a subset of the required pairs that
    # implies the others.
    implying = data.standing if along_paths else data.required
    recomputed = implying[1] if np.array_equal(pairs, implying[0]) else data.between(pairs)
    lower_bounds = data.not_above(pairs, distances)
    # A stored distance is wrong if it is too short, or if it is not proved to be at most the exact one.
    wrong_pairs = np.flatnonzero(_are_too_short(data, pairs, distances, recomputed) | (lower_bounds < distances))
    lines = [
        f"mechanism.npz: distances: {_name_pair(data, pairs[row])}: stored {distances[row]}, computed {recomputed[row]}"
        for row in wrong_pairs[:5].tolist()
    ]
    if lines:
        return lines
    # If the stored pairs are exactly those, no search is needed, unless paths imply pairs and a stored distance
    # exceeds the recomputed one.
    if recomputed is implying[1] and (not along_paths or (distances <= recomputed).all()):
        return []
    if along_paths:
        missing = not_implied(pairs, lower_bounds, data.pairs, data.distances)
        if (distances > recomputed).any():
            missing = _uncovered_pairs(data, pairs, distances, missing)
    else:
        # Each pair is encoded as a single number, so that the required pairs can be looked up among the stored ones.
        n = len(release.records)
        missing = np.flatnonzero(~np.isin(data.pairs @ [n, 1], np.sort(pairs, axis=1) @ [n, 1]))
    implied = "nor implied by a path of stored pairs" if along_paths else "but this notion needs each of them stored"
    return [
        f"mechanism.npz: pairs: {_name_pair(data, data.pairs[row])}: a required pair that is not stored, {implied}"
        for row in missing[:5].tolist()
    ]


def _name_pair(data: MetricData, pair: NDArray[np.int64]) -> str:
    """Return a phrase that identifies a pair by the ids of its two records, for error messages."""
    i, j = (data.records.ids[row] for row in pair.tolist())
    return f"records {i} and {j}"
