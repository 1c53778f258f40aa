"""LR-Geo's two guarantees and their certification.

The ``benders`` and ``full`` methods guarantee metric DP inside each user's matrix. The ``exact`` method guarantees it
between all records.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from attrs import evolve, frozen

from privopt.errors import Fault, InputError
from privopt.interfaces import Certificate, Result
from privopt.numbers.distances import amount_text, distance_words
from privopt_lr_geo.exact import certified_pairs
from privopt_lr_geo.problem import LRGeoInstance
from privopt_lr_geo.release import LRGeoRelease
from privopt_metric_dp.attacks.meaning import costs_in_words, interpret_guarantee
from privopt_metric_dp.matrix.certify import certify
from privopt_metric_dp.matrix.certify_region import certify_everywhere
from privopt_metric_dp.matrix.privacy import MetricDP
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData

__all__ = ["EveryRow", "OwnMatrices", "meaning"]

_OWN = (
    "Each user's own matrix alone: the odds between any two records within {radius} of a user (path distance) that "
    "must be hard to tell apart change by at most exp({epsilon:g} d) through that user's matrix, where d is their "
    "distance{in_unit}. Holds against whoever sees reports and knows that one matrix. It does not hold between rows of "
    "different users, which is what an observer of many users sees (measured: details.gv), nor against the server: "
    "what a user uploads is enough to find that user (privopt audit shows how often)."
)
_EVERYWHERE = (
    "Any two points of the region: the odds between two positions change by at most exp({epsilon:g} d) over a way of "
    "length d{in_unit} inside it, whoever reports. Holds against whoever sees the output, the server included, "
    "whatever else they know: users upload nothing, and compute the rows of the vertices around them from public "
    "numbers."
)
_EVERY = (
    "Any {whose}: the odds between two records at distance d{in_unit} change by at most exp({epsilon:g} d), whichever "
    "user reports. Holds against whoever sees the output, the server included, whatever else they know: users upload "
    "nothing, and compute their rows from public numbers."
)


@frozen(kw_only=True)
class OwnMatrices(MetricDP):
    """The guarantee of the ``benders`` and ``full`` methods: metric DP inside each user's matrix.

    A user's matrix has a row for each record in the user's LR set, which contains the records nearby. Rows from
    different users' matrices can violate metric DP.
    """

    @classmethod
    def within_radius(cls, data: MetricData, radius: float) -> OwnMatrices:
        """Return the guarantee for LR sets that contain the records within path distance ``radius`` of the user.

        Args:
            data: The map with its epsilon.
            radius: Gamma, the largest path distance between a user and the records in the user's LR set.
        """
        radius_text = f"{radius:g}" if data.unit == "unit of distance" else amount_text(f"{radius:g}", data.unit)
        statement = _OWN.format(
            radius=radius_text, epsilon=float(data.epsilon), in_unit=distance_words(data.unit, data.way)
        )
        extra = {"radius": radius} | ({} if data.within is None else {"neighbours_within": data.within})
        unit = f"per {data.unit}"
        return cls(epsilon=data.epsilon, unit=unit, scope="own-matrix", statement=statement, extra=extra, way=data.way)

    def measure(self, release: MatrixRelease) -> Certificate:
        """Certify each user's matrix for every required pair inside its LR set.

        Raises:
            InputError: The release does not contain the users' matrices, because its private folder is missing.
        """
        if not isinstance(release, LRGeoRelease) or release.matrices is None:
            expectation = "each user's matrix (this guarantee can only be checked by whoever has private/)"
            raise InputError([Fault("private/matrices", "", "nothing", expectation)])
        # Each matrix is certified separately, because nothing is guaranteed between rows of different users.
        parts = [(user, super(OwnMatrices, self).measure(m)) for user, m in release.matrices.items()]
        failures = [f"matrix of {user}: {line}" for user, part in parts for line in part.failures]
        # The result is the certificate of the worst matrix, with counts for all matrices. Certificates of metric DP
        # always have a worst privacy loss, so minus infinity is there only for the type checker.
        worst_certificate = max(parts, key=lambda part: -math.inf if part[1].worst is None else part[1].worst)[1]
        return evolve(
            worst_certificate,
            holds=all(part.holds for _, part in parts),
            checked=sum(part.checked for _, part in parts),
            arithmetic=f"{len(parts)} matrices, the worst of which: {worst_certificate.arithmetic}",
            failures=tuple(failures),
        )


@frozen(kw_only=True)
class EveryRow(MetricDP):
    """The guarantee of the ``exact`` method: metric DP between all records on the map, not only those of users."""

    @classmethod
    def over(cls, data: MetricData) -> EveryRow:
        """Return the guarantee for a map.

        It applies to any two records or, if the map has a region, to any two points of the region.
        """
        pair_text = "two records" if data.within is None else f"two records within {data.within:g} of each other"
        statement = _EVERY if data.region is None else _EVERYWHERE
        in_unit = distance_words(data.unit, data.way)
        text = statement.format(whose=pair_text, epsilon=float(data.epsilon), in_unit=in_unit)
        return evolve(cls.of(data), statement=text)

    def measure(self, release: MatrixRelease) -> Certificate:
        """Certify the rows for all records, recomputing them from the published numbers.

        Raises:
            InputError: The release does not contain published numbers.
        """
        if not isinstance(release, LRGeoRelease) or release.published is None:
            raise InputError([Fault("public.npz", "", "nothing", "what rows are computed from")])
        assert self.data is not None  # over() gives it
        all_rows, ids = release.published.all_rows, self.data.records.ids
        if self.data.region is not None:
            everywhere = certify_everywhere(all_rows, self.data.region, self.epsilon)
            return self.make_certificate(everywhere, all_rows, ids, release.outputs)
        pairs, distances, pairs_text = certified_pairs(self.data)
        measured = certify(all_rows, pairs, distances, self.epsilon)
        pairs_text = f"{pairs_text}, among all {len(ids)} records"
        return self.make_certificate(measured, all_rows, ids, release.outputs, {"over": pairs_text})


def meaning(problem: LRGeoInstance, release: LRGeoRelease, result: Result) -> Sequence[str]:
    """Explain in sentences what the guarantee means, what an attacker can infer, and what the protection costs."""
    lines = interpret_guarantee(release, problem.data, rows_of=np.asarray(problem.users)).sentences
    # If there are several sentences, the first is about the guarantee. It must say so if that applies only inside each
    # user's own matrix.
    is_own_matrix = result.guarantee.scope == "own-matrix" and len(lines) > 1
    lines = (f"In each user's own matrix: {lines[0][0].lower()}{lines[0][1:]}", *lines[1:]) if is_own_matrix else lines
    return (*lines, *costs_in_words(problem.data, result.objective))
