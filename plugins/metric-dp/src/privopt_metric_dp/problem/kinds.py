"""Interfaces of the kinds of distance, loss and notion: their tables in a problem file and their methods.

A kind is an attrs class whose fields are the keys of its table. Once it is registered by a
:class:`privopt.specs.KindSpec`, every metric mechanism accepts it::

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
    """Return (N,) the largest cost of each record times 2^-40, a bound of its rounding error."""
    return np.asarray(np.abs(cost).max(axis=1) * 2.0**-40)


@frozen(kw_only=True, eq=False)
class Spaces:
    """The records and outputs that a loss is computed for.

    Attributes:
        records: The secrets.
        outputs: The possible reports; the records themselves if ``own``.
        own: Whether the outputs are the records.
        metric: Distances between records, and from records to outputs.
        file: Name of the problem file, for messages.
        listed: Number of the problem's own records, if further vertices of a region follow them; None if all are.
    """

    records: Space
    outputs: Space
    own: bool
    metric: Metric
    file: str = "problem"
    listed: int | None = None


@frozen(kw_only=True, eq=False)
class RegionVertices:
    """A region between the records, for guarantees that hold at all its points.

    Attributes:
        region: The region. Its first vertices are the records.
        records: Its vertices. Added vertices have new ids.
        metric: Returns the distances from the vertices to the outputs (None: the vertices), which losses use.
    """

    region: Region
    records: Space
    metric: Callable[[Space | None], Metric]


@frozen(kw_only=True)
class DistanceKind(ABC):
    """A kind of distance between records: the table ``[distance]`` with this kind.

    Attributes:
        kind: Its name in problem files.
        places: Keys of ``[records]`` and ``[outputs]`` that it accepts.
        ids_alone: Whether points may be ids without coordinates.
        path_metric: Whether it is the shortest path over edges, so that unreachable records are a fault.
        kit: ``"package.module:STRATEGY"``, a Hypothesis strategy of problems that name it, for
            :mod:`privopt.testing.kit`.
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
        """Return the distances between the records, and from them to the outputs (None: the records).

        Epsilon is claimed per unit of these distances. If they are rounded, they must be rounded down.

        Raises:
            InputError: The places have no such distance, or a file has faults.
        """

    def ground(self, records: Space, epsilon: Fraction, split_km: float | None, file: str) -> RegionVertices:
        """Return the region that ``privacy.everywhere`` covers. Its paths must be no longer than this distance.

        Args:
            records: Its first vertices.
            epsilon: Epsilon per unit of distance.
            split_km: Length up to which its simplices are not divided. None for the default of the kind.
            file: Name of the problem file, for messages.

        Raises:
            InputError: This kind has no regions, or the places do not span one.
        """
        actual = f"true with distance.kind {self.kind}, which has no points between records"
        raise InputError([Fault(file, "privacy.everywhere", actual, "streets, or points in a plane or on the earth")])

    def unit(self, records: Space) -> str:
        """Return the unit of distance in the singular; epsilon is stated per this unit."""
        return "km"

    def way(self, records: Space) -> str:
        """Return a phrase for the kind of distance, placed after the unit. Ledgers add up only equal phrases."""
        return f"by {self.kind} distance"

    def faults(self, *, own_outputs: bool) -> Iterator[tuple[str, str, str]]:
        """Yield keys that contradict each other: (key, actual, expected). ``own_outputs``: there is no [outputs]."""
        yield from ()


@frozen(kw_only=True)
class PerKm:
    """The cost of a kilometre of loss in the reader's unit. It is shown next to the loss; no claim depends on it."""

    cost: float = key(help="of a kilometre, in that unit", check=positive)
    unit: str = key(help='the unit, in the plural: "minutes"', check=one_line)

    def of(self, km: float) -> str:
        """Return the cost of a loss."""
        return f"{self.cost * km:.4g} {self.unit}"


@frozen(kw_only=True)
class LossKind(ABC):
    """A kind of loss: the table ``[utility]`` with this kind. Each has the keys ``prior``, ``remap`` and ``per_km``.

    Attributes:
        kind: Its name in problem files.
        of_distances: Whether it is a function of the distances to the outputs, so that it is known between records too.
        prior: Probabilities of the records, which weight the loss.
        remap: Whether each output is replaced by its best guess under the prior
            (:mod:`privopt_metric_dp.matrix.remap`).
        per_km: The cost of a kilometre of loss in another unit; None if it is not given.
        kit: Strategy of problems that name it, as for a distance. By default other problems are used with its name.
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
        """Return (N, K) the loss of releasing output k for record i, not yet weighted by the prior.

        Raises:
            InputError: The loss cannot be computed for these places.
        """

    def excess(self, spaces: Spaces, cost: Floats) -> Floats:
        """Bound (N,) by how much the computed costs of a record exceed the exact ones. Lower bounds subtract it.

        The default is the rounding error of sums without cancellation, 2^-40 of the record's largest cost.
        """
        return rounding(cost)

    def shortfall(self, spaces: Spaces, cost: Floats) -> Floats:
        """Bound (N, K) or (N, 1) by how much computed costs lie below the exact ones.

        It decides how many digits of a bound are stated. The default is :meth:`excess`.
        """
        return self.excess(spaces, cost)[:, None]

    @abstractmethod
    def unit(self, distance: str) -> str:
        """Return the unit of the loss, given the unit of distance."""

    @property
    def measures_outputs(self) -> bool:
        """Whether the loss depends on the distances from records to outputs."""
        return True

    def faults(self) -> Iterator[tuple[str, str, str]]:
        """Yield keys that contradict each other: (key, actual, expected)."""
        yield from ()


@frozen(kw_only=True)
class MetricNotion:
    """A kind of privacy over records at distances: the table ``[privacy]`` with this kind.

    Attributes:
        kind: Its name in problem files.
        epsilon: The exact epsilon per unit of distance.
        neighbours_within: Largest distance of a required pair; None if every pair is required.
        kit: Strategy of problems that name it, as for a loss.
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
