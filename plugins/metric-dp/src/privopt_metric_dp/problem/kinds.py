"""Interfaces for kinds of distance and loss: their table in a problem file, and what they make of it.

A kind is an attrs class whose fields are the keys of its table; register it with a
:class:`privopt.specs.KindSpec` and every metric mechanism takes it::

    @frozen(kw_only=True)
    class Squared(LossKind):
        kind = "squared"

        def cost(self, spaces):
            return spaces.metric.to_outputs() ** 2

        def unit(self, distance):
            return f"({distance})^2"
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import ClassVar

import numpy as np
from attrs import frozen

from privopt.arrays import Floats
from privopt.declare.schema import File, key, one_line, positive
from privopt.errors import Fault, InputError
from privopt_metric_dp.region.region import Region
from privopt_metric_dp.space.metrics import Metric
from privopt_metric_dp.space.places import Space

__all__ = ["DistanceKind", "LossKind", "MetricNotion", "MetricPrivacy", "PerKm", "RegionVertices", "Spaces", "rounding"]


def rounding(cost: Floats) -> Floats:
    """Return (N,) 2^-40 of each record's greatest cost."""
    return np.asarray(np.abs(cost).max(axis=1) * 2.0**-40)


@frozen(kw_only=True, eq=False)
class Spaces:
    """Where a loss is to be measured.

    Attributes:
        records: the secrets.
        outputs: what may be released; the records themselves where ``own``.
        own: whether the problem has no outputs of its own.
        metric: distances between records, and from records to outputs.
        file: name of the problem file, for faults.
        listed: how many records the problem has, where vertices of a region follow them; None: all.
    """

    records: Space
    outputs: Space
    own: bool
    metric: Metric
    file: str = "problem"
    listed: int | None = None


@frozen(kw_only=True, eq=False)
class RegionVertices:
    """A region between records, for guarantees that hold at all its points.

    Attributes:
        region: the records are its first vertices.
        records: its vertices, added ones with ids of their own.
        metric: distances from the vertices to outputs (None: the vertices themselves), by which losses go.
    """

    region: Region
    records: Space
    metric: Callable[[Space | None], Metric]


@frozen(kw_only=True)
class DistanceKind(ABC):
    """How far records are from one another: ``[distance]`` of one kind.

    Attributes:
        kind: its name in problem files.
        places: which keys of ``[records]`` and ``[outputs]`` it takes.
        ids_alone: whether points may be ids without coordinates.
        path_metric: whether it is the shortest path over edges, so that records out of reach are a fault.
        kit: ``"package.module:STRATEGY"``: Hypothesis's of problems that name it, for :mod:`privopt.testing.kit`.
    """

    kind: ClassVar[str]
    places: ClassVar[frozenset[str]] = frozenset({"grid", "points", "vectors"})
    ids_alone: ClassVar[bool] = False
    path_metric: ClassVar[bool] = False
    kit: ClassVar[str] = ""

    @classmethod
    def keys(cls) -> type:
        """Return the class of its table: itself."""
        return cls

    @abstractmethod
    def metric(self, records: Space, outputs: Space | None) -> Metric:
        """Make the distances between the records, and from them to the outputs (None: the records themselves).

        Distances are what epsilon is claimed for: where they are rounded, they are rounded down.

        Raises:
            InputError: places that have no such distance, or files that will not do.
        """

    def ground(self, records: Space, epsilon: Fraction, split_km: float | None, file: str) -> RegionVertices:
        """Return the region whose points ``privacy.everywhere`` speaks of, its ways no longer than this distance.

        Args:
            records: its first vertices.
            epsilon: per unit of distance.
            split_km: the length up to which its simplices stay whole; None: as suits it.
            file: name of the problem file, for faults.

        Raises:
            InputError: a kind without one, or places that span none.
        """
        actual = f"true with distance.kind {self.kind}, which has no points between records"
        raise InputError([Fault(file, "privacy.everywhere", actual, "streets, or points in a plane or on the earth")])

    def unit(self, records: Space) -> str:
        """Return the unit of distance, in the singular: what epsilon is per."""
        return "km"

    def way(self, records: Space) -> str:
        """Return by which distance epsilon is per unit, in words behind the unit: ledgers add no other one up to it."""
        return f"by {self.kind} distance"

    def faults(self, *, own_outputs: bool) -> Iterator[tuple[str, str, str]]:
        """Yield keys that do not go together: (key, found, expected); ``own_outputs``: without [outputs]."""
        yield from ()


@frozen(kw_only=True)
class PerKm:
    """What a kilometre of loss costs in the reader's unit: shown next to the loss; no claim depends on it."""

    cost: float = key(help="of a kilometre, in that unit", check=positive)
    unit: str = key(help='the unit, in the plural: "minutes"', check=one_line)

    def of(self, km: float) -> str:
        """Return the cost of a loss."""
        return f"{self.cost * km:.4g} {self.unit}"


@frozen(kw_only=True)
class LossKind(ABC):
    """What a release costs its user: ``[utility]`` of one kind. Each has the keys ``prior``, ``remap`` and ``per_km``.

    Attributes:
        kind: its name in problem files.
        of_distances: whether it is made of the distances to the outputs alone, so that it is known between records too.
        prior: of the records, by which the loss is weighed.
        remap: whether each output is replaced by its best guess under the prior
            (:mod:`privopt_metric_dp.matrix.remap`).
        per_km: of a loss in km, what one costs in another unit; None where none is given.
        kit: strategy of problems that name it, as of a distance; default: other problems, with its name alone.
    """

    kind: ClassVar[str]
    kit: ClassVar[str] = ""
    of_distances: ClassVar[bool] = False
    prior: File | None = key(None, help="CSV: id,p; default: uniform (with privacy.everywhere: over the region)")
    remap: bool = key(False, help="whether each output is replaced by the best guess under the prior; costs no privacy")
    per_km: PerKm | None = key(None, help="of a loss in km: what one costs in the reader's unit, shown next to it")

    @classmethod
    def keys(cls) -> type:
        """Return the class of its table: itself."""
        return cls

    @abstractmethod
    def cost(self, spaces: Spaces) -> Floats:
        """Return (N, K) losses of releasing output k for record i, not yet weighted by the prior.

        Raises:
            InputError: it cannot be computed for these places.
        """

    def excess(self, spaces: Spaces, cost: Floats) -> Floats:
        """Bound (N,) by how much a record's costs, as :meth:`cost` gave them, exceed those meant: bounds are lowered.

        Default: the roundings of sums without cancellation, 2^-40 of the record's greatest cost.
        """
        return rounding(cost)

    def shortfall(self, spaces: Spaces, cost: Floats) -> Floats:
        """Bound (N, K) or (N, 1) by how much costs lie below those meant: it decides the digits of a stated bound.

        Default: as much as :meth:`excess` says.
        """
        return self.excess(spaces, cost)[:, None]

    @abstractmethod
    def unit(self, distance: str) -> str:
        """Return the unit of the loss, where distances are in ``distance``."""

    @property
    def measures_outputs(self) -> bool:
        """Whether it needs the distances from records to outputs."""
        return True

    def faults(self) -> Iterator[tuple[str, str, str]]:
        """Yield keys that do not go together: (key, what was found, what must be there)."""
        yield from ()


@frozen(kw_only=True)
class MetricNotion:
    """The privacy asked for: ``[privacy]`` of one notion over records at distances.

    Attributes:
        kind: its name in problem files.
        epsilon: exact, per unit of distance.
        neighbours_within: greatest distance of a required pair; None for every pair.
        kit: strategy of problems that name it, as of a loss.
    """

    kind: ClassVar[str]
    kit: ClassVar[str] = ""
    epsilon: Fraction = key(help="privacy budget", unit="per unit of distance", check=positive)
    neighbours_within: float | None = key(
        None,
        help="greatest distance of a required pair; default: every pair",
        unit="units of distance",
        check=positive,
    )


@frozen(kw_only=True)
class MetricPrivacy(MetricNotion):
    """``[privacy]`` of metric DP."""

    kind: ClassVar[str] = "metric-dp"
    everywhere: bool = key(False, help="between any two points of the region, not only records (docs: every point)")
    split_km: float | None = key(
        None,
        help="with everywhere: longer streets are divided, coarser meshes refined; default: streets so that epsilon x "
        "length is at most 0.5, planes as they are",
        unit="km",
        check=positive,
    )
