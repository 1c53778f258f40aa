"""The classes that declare the keys of a metric problem file: places, distance, privacy notion and loss.

:class:`MetricProblem` mirrors the problem file, and :class:`MetricInstance` adds the contents of the files it names.
:class:`MetricData` holds these contents as read-only arrays: records, outputs, distances, required pairs, costs and
prior.

A kind of distance, loss or notion is an attrs class whose fields are the keys of a table in the problem file. Once a
plugin has registered it with a :class:`privopt.specs.KindSpec`, every metric mechanism accepts it::

    @frozen(kw_only=True)
    class Squared(LossKind):
        kind = "squared"

        def cost(self, spaces):
            return spaces.metric.to_outputs() ** 2

        def unit(self, distance):
            return f"({distance})^2"
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import ClassVar, Final

import numpy as np
from attrs import frozen

from privopt.arrays import Floats
from privopt.declare.notebook import format_digits
from privopt.declare.schema import File, key, one_line, positive
from privopt.errors import Fault, InputError
from privopt_metric_dp.problem.read_points import Columns, points_as_csv
from privopt_metric_dp.region.region import Region
from privopt_metric_dp.space.metrics import Metric
from privopt_metric_dp.space.places import Space

__all__ = [
    "DistanceKind",
    "Grid",
    "LossKind",
    "Mesh",
    "MetricNotion",
    "MetricPrivacy",
    "MetricProblem",
    "PerKm",
    "Places",
    "RegionVertices",
    "Spaces",
    "rounding",
]


def rounding(cost: Floats) -> Floats:
    """Return a bound on the rounding errors in each record's costs.

    Each bound is 2^-40 times the record's largest absolute cost.

    Args:
        cost: Array of shape (N, K) with the costs. They must be computed without cancellation, so that their relative
            errors are far below 2^-40.

    Returns:
        Array of shape (N,) with the bounds.
    """
    return np.asarray(np.abs(cost).max(axis=1) * 2.0**-40)


@frozen(kw_only=True, eq=False)
class Spaces:
    """The records and outputs for which a loss is computed.

    Attributes:
        records: The values to protect.
        outputs: The values that may be reported. If ``own`` is True, these are the records.
        own: Whether the outputs are the records.
        metric: The distances between records, and from records to outputs.
        file: The name of the problem file, for error messages.
        listed: The number of records declared in the problem, which come before any vertices added by a region. If
            None, all records are declared.
    """

    records: Space
    outputs: Space
    own: bool
    metric: Metric
    file: str = "problem"
    listed: int | None = None


@frozen(kw_only=True, eq=False)
class RegionVertices:
    """A region around the records, for a guarantee that covers all of its points.

    Attributes:
        region: The region. Its first vertices are the records.
        records: All vertices of the region as places. Vertices that are not records have new ids.
        metric: A function that takes the outputs and returns the metric for losses, which measures distances from the
            vertices to these outputs. If the argument is None, the vertices are the outputs.
    """

    region: Region
    records: Space
    metric: Callable[[Space | None], Metric]


@frozen(kw_only=True)
class DistanceKind(ABC):
    """A kind of distance between records, selected by the key ``kind`` in ``[distance]``.

    Attributes:
        kind: The name of the kind in problem files.
        places: The keys of ``[records]`` and ``[outputs]`` that the kind supports.
        ids_alone: Whether points may have ids without coordinates.
        path_metric: Whether distances are shortest-path lengths. If so, all records must be connected, unless the
            guarantee is limited to pairs within some distance.
        kit: The location of a Hypothesis strategy for problems of this kind, in the form ``"package.module:STRATEGY"``,
            for :mod:`privopt.testing.kit`.
    """

    kind: ClassVar[str]
    places: ClassVar[frozenset[str]] = frozenset({"grid", "points", "vectors"})
    ids_alone: ClassVar[bool] = False
    path_metric: ClassVar[bool] = False
    kit: ClassVar[str] = ""

    @classmethod
    def keys(cls) -> type:
        """Return ``cls``, whose fields declare the keys that this kind accepts in its table in a problem file."""
        return cls

    @abstractmethod
    def metric(self, records: Space, outputs: Space | None) -> Metric:
        """Return the metric that measures distances between records and from records to outputs.

        Epsilon is per unit of these distances. If the distances are rounded, they must be rounded down.

        Args:
            records: The records.
            outputs: The outputs, or None if they are the records.

        Raises:
            InputError: The kind does not support these places, or a file contains errors.
        """

    def ground(self, records: Space, epsilon: Fraction, split_km: float | None, file: str) -> RegionVertices:
        """Return the region covered by a guarantee with ``privacy.everywhere``.

        The shortest path between two records within the region must be no longer than their distance. This default
        implementation always raises InputError. Kinds of distance that support regions override it.

        Args:
            records: The records, which become the first vertices of the region.
            epsilon: Epsilon per unit of distance.
            split_km: The length in km above which edges are divided, or None for the kind's default.
            file: The name of the problem file, for error messages.

        Raises:
            InputError: This kind does not support regions, or the places do not span one.
        """
        actual = f"true with distance.kind {self.kind}, which has no points between records"
        raise InputError([Fault(file, "privacy.everywhere", actual, "streets, or points in a plane or on the earth")])

    def unit(self, records: Space) -> str:
        """Return the singular name of the unit of distance, such as "km". Epsilon is per this unit."""
        return "km"

    def way(self, records: Space) -> str:
        """Return the phrase that messages append to the unit of distance, such as "by road".

        Ledgers add the epsilons of two releases only if these phrases are equal.
        """
        return f"by {self.kind} distance"

    def faults(self, *, own_outputs: bool) -> Iterator[tuple[str, str, str]]:
        """Yield a tuple (key, actual value, expected value) for each contradiction between keys.

        Args:
            own_outputs: Whether the outputs are the records or a subset of the records yet to be chosen.
        """
        yield from ()


@frozen(kw_only=True)
class PerKm:
    """The cost of a kilometre in a familiar unit, such as minutes.

    Losses are shown in this unit as well. No guarantee depends on it.
    """

    cost: float = key(help="cost of a kilometre, in that unit", check=positive)
    unit: str = key(help='the unit, in the plural: "minutes"', check=one_line)

    def of(self, km: float) -> str:
        """Return the cost of ``km`` kilometres as a string that includes the unit, such as "3.2 minutes"."""
        return f"{format_digits(self.cost * km)} {self.unit}"


@frozen(kw_only=True)
class LossKind(ABC):
    """A kind of loss, selected by the key ``kind`` in ``[utility]``.

    All kinds accept the keys ``prior``, ``remap`` and ``per_km``.

    Attributes:
        kind: The name of the kind in problem files.
        of_distances: Whether the loss depends only on the distances from records to outputs, so that it can be computed
            at any point in a region.
        prior: The file with the prior probabilities of the records, or None for a uniform prior.
        remap: Whether each output is replaced by the one with the least expected loss given that output and the prior
            (:mod:`privopt_metric_dp.matrix.remap`).
        per_km: The cost of a kilometre of loss in another unit, or None.
        kit: The location of a Hypothesis strategy for problems of this kind (see :class:`DistanceKind`). If it is
            empty, the conformance kit generates problems with other kinds of loss and changes the kind to this one.
    """

    kind: ClassVar[str]
    kit: ClassVar[str] = ""
    of_distances: ClassVar[bool] = False
    prior: File | None = key(None, help="CSV: id,p; default: uniform (with privacy.everywhere: over the region)")
    remap: bool = key(False, help="whether each output is replaced by the best guess under the prior; costs no privacy")
    per_km: PerKm | None = key(
        None, help="for a loss in km: what a km costs in the reader's unit, shown next to the loss"
    )

    @classmethod
    def keys(cls) -> type:
        """Return ``cls``, whose fields declare the keys that this kind accepts in its table in a problem file."""
        return cls

    @abstractmethod
    def cost(self, spaces: Spaces) -> Floats:
        """Return an array of shape (N, K) with the loss of releasing output k for record i.

        The losses are not multiplied by the prior.

        Raises:
            InputError: The loss cannot be computed for these places.
        """

    def excess(self, spaces: Spaces, cost: Floats) -> Floats:
        """Return an array of shape (N,) with upper bounds on how much each record's costs may exceed the exact ones.

        Lower bounds on the expected loss are reduced accordingly. By default, each bound is 2^-40 times the record's
        largest cost, which covers the rounding errors in sums without cancellation.

        Args:
            spaces: The N records and K outputs.
            cost: The result of :meth:`cost`.
        """
        return rounding(cost)

    def shortfall(self, spaces: Spaces, cost: Floats) -> Floats:
        """Return upper bounds on how far the computed costs may fall below the exact ones.

        These bounds determine how many digits of a lower bound on the loss are shown. By default, they are the same as
        the bounds returned by :meth:`excess`.

        Returns:
            Array of shape (N, K), or (N, 1) if each bound applies to all costs of a record.
        """
        return self.excess(spaces, cost)[:, None]

    @abstractmethod
    def unit(self, distance: str) -> str:
        """Return the plural name of the unit of loss, given the singular name of the unit of distance."""

    @property
    def measures_outputs(self) -> bool:
        """Whether the loss depends on the distances from records to outputs."""
        return True

    def faults(self) -> Iterator[tuple[str, str, str]]:
        """Yield a tuple (key, actual value, expected value) for each contradiction between keys."""
        yield from ()


MAX_EPSILON: Final = Fraction(10**150)
"""The largest valid epsilon per unit of distance. Distances are at most 1e150 too, so the product cannot overflow."""


def _check_epsilon(value: Fraction) -> str | None:
    """Return a description of valid values if ``value`` is not a valid epsilon, or None if it is."""
    return positive(value) or (None if value <= MAX_EPSILON else f"a number of at most {float(MAX_EPSILON):g}")


@frozen(kw_only=True)
class MetricNotion:
    """A privacy notion for records in a metric space, selected by the key ``kind`` in ``[privacy]``.

    Attributes:
        kind: The name of the notion in problem files.
        epsilon: The exact epsilon per unit of distance.
        neighbours_within: The distance up to which the guarantee must cover pairs of records, or None if it must cover
            every pair.
        kit: The name of a Hypothesis strategy for problems with this notion (see :class:`LossKind`).
    """

    kind: ClassVar[str]
    kit: ClassVar[str] = ""
    epsilon: Fraction = key(help="privacy budget", unit="per unit of distance", check=_check_epsilon)
    neighbours_within: float | None = key(
        None,
        help="greatest distance of a required pair; default: every pair",
        unit="units of distance",
        check=positive,
    )


@frozen(kw_only=True)
class MetricPrivacy(MetricNotion):
    """The keys of ``[privacy]`` for metric DP."""

    kind: ClassVar[str] = "metric-dp"
    everywhere: bool = key(False, help="between any two points of the region, not only records (docs: every point)")
    split_km: float | None = key(
        None,
        help="with everywhere: longer streets are divided, coarser meshes refined; default: streets so that epsilon x "
        "length is at most 0.5, planes as they are",
        unit="km",
        check=positive,
    )


def _check_corner(value: tuple[float, ...]) -> str | None:
    """Return a description of valid values if a grid's corner [lat, lon] is invalid, or None if it is valid."""
    if len(value) == 2 and -90 <= value[0] <= 90 and -180 <= value[1] <= 180:
        return None
    return "two numbers, latitude in [-90, 90] and longitude in [-180, 180]"


UNIT_NAME: Final = re.compile(r"[^\W\d_]{1,20}")
"""A pattern for unit names.

Only letters are allowed, because phrases such as "per band by road" are split at spaces."""

MOST_RECORDS: Final = 10_000_000
"""The largest number of records or outputs. With more, not even the ids would fit in memory."""


def _check_count(value: int) -> str | None:
    """Return a description of valid values if a number of places is out of range, or None if it is valid."""
    return None if 1 <= value <= MOST_RECORDS else f"a whole number from 1 to {MOST_RECORDS:,}"


@frozen(kw_only=True)
class Grid:
    """The centres of the square cells in a rectangular grid, row by row from the south, with ids such as "r0c1"."""

    rows: int = key(help="rows of cells, south to north", check=_check_count)
    cols: int = key(help="columns of cells, west to east", check=_check_count)
    cell_km: Fraction = key(help="side of a cell", unit="km", check=positive)
    south_west: tuple[Fraction, ...] | None = key(
        None, help="[lat, lon] of the centre of cell r0c0; default: a plane", unit="degrees", check=_check_corner
    )


@frozen(kw_only=True)
class Mesh:
    """The vertices of equilateral triangles that cover a region, with ids 0, 1, ... row by row from the south-west."""

    region: File = key(help="GeoJSON: polygons in longitude and latitude, with holes and in several parts")
    side_km: float = key(help="side of a triangle", unit="km", check=positive)
    planar: bool = key(False, help="whether the region's coordinates are x and y in km instead")


@frozen(kw_only=True)
class Places:
    """Records or outputs, declared by exactly one key: grid, points, vectors, count, mesh or (outputs only) choose."""

    grid: Grid | None = key(None, help="even cells")
    points: File | None = key(None, help="CSV, Parquet or GeoJSON: id,lat,lon (degrees) or id,x,y (km), or id alone")
    columns: Columns | None = key(None, help="names of the columns of points, if they differ")
    vectors: File | None = key(None, help=".npy of shape (N, dim)")
    ids: File | None = key(None, help="ids of the vectors, one per line; default: 0, 1, ...")
    count: int | None = key(
        None, help="number of places, with ids 0, 1, ...; if distance.kind takes it", check=_check_count
    )
    mesh: Mesh | None = key(None, help="corners of triangles that cover a region; a plane, after projection")
    unit: str | None = key(
        None, help="of records: the unit of a plane that is not a map, in the singular, such as band; default: km"
    )
    choose: int | None = key(
        None, help="of outputs: how many of the records to choose, by their use (optimal-lp)", check=_check_count
    )

    def as_csv(self) -> Mapping[str, bytes]:
        """Return the contents of the points file converted to CSV, keyed by file name.

        The mapping is empty if there is no points file or if it is already in CSV format.
        """
        csv_bytes = None if self.points is None else points_as_csv(self.points, self.columns)
        return {} if csv_bytes is None or self.points is None else {self.points.name: csv_bytes}

    @property
    def given_key(self) -> str:
        """The key that declares the places, such as "grid" or "points"."""
        return next(name for name in _GIVEN if getattr(self, name) is not None)


_GIVEN: Final = ("grid", "points", "vectors", "count", "mesh", "choose")
"""The keys that declare places in [records] or [outputs]. Exactly one of them must be present."""


def _check_places(value: Places) -> str | None:
    """Check that the keys of ``[records]`` or ``[outputs]`` are consistent.

    Returns:
        None if they are consistent. Otherwise, a description of valid tables, for a message of the form "expected ...".
    """
    given_keys = [name for name in _GIVEN if getattr(value, name) is not None]
    if len(given_keys) != 1:
        return "exactly one of " + ", ".join(_GIVEN)
    # Rows and columns have been checked separately. This checks the number of cells.
    if value.grid is not None and value.grid.rows * value.grid.cols > MOST_RECORDS:
        return f"a grid of at most {MOST_RECORDS:,} cells"
    if value.ids is not None and value.vectors is None:
        return "ids only with vectors"
    if value.columns is not None and value.points is None:
        return "columns only with points"
    return None


def _check_listed_places(value: Places) -> str | None:
    """Check the ``[records]`` table, in which ``choose`` is not allowed.

    Returns:
        A description of valid tables if the table is invalid, or None if it is valid.
    """
    if value.choose is not None:
        return "places, not a number of those to choose"
    if value.unit is None:
        return _check_places(value)
    if (value.grid is None or value.grid.south_west is not None) and value.points is None:
        return "unit only with a grid without south_west, or with points that have x and y"
    return _check_places(value) if UNIT_NAME.fullmatch(value.unit) else "a unit of letters alone, at most 20"


def _check_output_places(value: Places) -> str | None:
    """Check the ``[outputs]`` table, in which ``unit`` is not allowed.

    Returns:
        A description of valid tables if the table is invalid, or None if it is valid.
    """
    return "unit only in [records], for both" if value.unit is not None else _check_places(value)


@frozen(kw_only=True)
class ConstOpt:
    """The keys of the ``[const-opt]`` table, which configures the ``const-opt`` mechanism."""

    radius: float = key(help="beyond it the exponential form", unit="units of distance", check=positive)


@frozen(kw_only=True)
class MetricProblem:
    """A parsed problem file for metric DP. The files it names are read by :meth:`MetricInstance.of`."""

    records: Places = key(help="the secrets", check=_check_listed_places)
    outputs: Places | None = key(
        None, help="what may be released; default: the records themselves", check=_check_output_places
    )
    distance: DistanceKind = key(help="the metric", kinds="distance")
    privacy: MetricNotion = key(help="the privacy asked for", kinds="notion", kind="metric-dp")
    utility: LossKind = key(help="the loss", kinds="loss")
