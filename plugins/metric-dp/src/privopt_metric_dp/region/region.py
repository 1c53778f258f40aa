"""Regions divided into simplices, for guarantees that cover any two points.

A point x in the region is snapped at random to a vertex c with probability lambda_c(x), the weight of c in the simplex
that contains x. An output is then drawn from row c, the distribution z(c). The output's distribution at x is therefore
z(x) = sum_c lambda_c(x) z(c). On a street, lambda may be S-shaped (:class:`Streets`), and on a triangle it is linear
(:class:`Plane`).

The guarantee covers any two points, with distances measured along paths inside the region, if the rows of neighbouring
vertices are close enough: z(v) <= (1 + a) z(u) and z(u) <= (1 + a) z(v) for each edge (u, v), with a rational a that
depends on the edge. This is ordinary metric DP over edges of length ln(1 + a) / epsilon. The theorem and its proof are
in docs/guide/everywhere.md.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from fractions import Fraction
from functools import cached_property
from typing import Any, Final

import numpy as np
from attrs import field, frozen
from attrs.converters import optional
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints, doubles, read_only
from privopt.errors import Faults
from privopt.numbers.exp_log_bounds import log_bounds
from privopt.numbers.graphs import shortest_rows
from privopt_metric_dp.space.projection import Projection

__all__ = [
    "ARRAYS",
    "COARSE_EXPONENT",
    "MM_PER_KM",
    "SNAP_STEPS",
    "Plane",
    "Region",
    "Streets",
    "compare_regions",
    "region_of",
    "street_growth",
]

ARRAYS: Final[Mapping[str, tuple[Any, tuple[int | str | None, ...]]]] = {
    "simplices": (np.int64, ("simplices", None)),
    "vertices": (np.int64, ("N", 2)),
    "lengths": (np.float64, ("simplices",)),
    "snap_steps": (np.int64, (1,)),
}
"""The types and shapes of a region's arrays in an artefact with N records.

Only planes have ``vertices``, and only streets have ``lengths``."""

MM_PER_KM = 1_000_000
"""The number of millimetres in a kilometre."""

MOST_STEPS = 1_000
"""The maximum number of pieces in each half of a street."""
MOST_MM = 1 << 42
"""The largest absolute value of a coordinate in millimetres, about 4.4 million km."""

COARSE_EXPONENT = 0.6
"""The largest value of epsilon times a triangle's side at which no finer mesh is recommended.

At this value, the loss is 25 % above the optimum."""

SNAP_STEPS = 8
"""The number of pieces in each half of a street. The S-shaped weights are linear on each piece.

With this many pieces, the length ln(1 + a) / epsilon is within 1 % of its limit for infinitely many pieces."""


def _to_int64(value: Any) -> Ints:
    """Return a read-only copy of an array as 64-bit integers."""
    return read_only(np.array(value, dtype=np.int64))


@frozen(kw_only=True, eq=False)
class Region(ABC):
    """A region divided into simplices between the vertices 0 to size - 1.

    Attributes:
        size: The number of vertices, N.
        simplices: Array of shape (S, 2) with the ends of each street, or of shape (S, 3) with the corners of each
            triangle, counter-clockwise.
        steps: The number n of pieces into which each half of a street is divided for snapping. The probability of
            snapping to an end of the street is a function of the position that is linear on each piece and S-shaped
            overall. On a plane, and for streets with linear probabilities, n is 0.
    """

    size: int
    simplices: Ints = field(converter=_to_int64)
    steps: int = 0

    @cached_property
    @abstractmethod
    def edges(self) -> Ints:
        """The pairs i < j of vertices that share a simplex, sorted and unique, as an array of shape (E, 2)."""

    @abstractmethod
    def growth(self, epsilon: Fraction) -> tuple[Fraction, ...]:
        """Return the exact ratio a that limits how much the rows of u and v may differ, for each edge (u, v).

        The row of a vertex contains the probability of each output. For every output, the probabilities z(u) and z(v)
        must satisfy both z(v) <= (1 + a) z(u) and the same condition with u and v exchanged. If every edge satisfies
        this condition, the guarantee covers any two points in the region.

        Args:
            epsilon: Epsilon per km along paths inside the region.
        """

    def lengths(self, epsilon: Fraction) -> Floats:
        """Return the lengths of the edges in km, rounded down, as an array of shape (E,).

        The length of an edge is ln(1 + a) / epsilon, where a is the edge's ratio returned by :meth:`growth`. Metric DP
        over edges of these lengths implies the guarantee for all points in the region.

        Args:
            epsilon: Epsilon per km along paths inside the region.
        """
        # Lengths are rounded down because shorter lengths give stricter conditions.
        lower_bounds = [log_bounds(1 + a, epsilon)[0] for a in self.growth(epsilon)]
        return read_only(np.array(lower_bounds, dtype=np.float64))

    def coarse(self, epsilon: Fraction) -> str | None:
        """Return a warning if the simplices are too large, or None if they are not.

        The default implementation returns None.
        """
        return None

    @abstractmethod
    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays stored in a release: ``simplices``, ``snap_steps``, and ``vertices`` or ``lengths``."""


@frozen(kw_only=True, eq=False)
class Streets(Region):
    """A network of streets, whose vertices are its nodes and the points that divide its streets.

    Attributes:
        km: Array of shape (S,) with the length in km of each simplex, which is a street or a piece of a street. The
            doubles are taken to be exact. Parallel streets have separate lengths.
        positions: Array of shape (N, 2) with the positions of the vertices, as latitude and longitude in degrees if
            ``geographic`` is True, and as x and y in km otherwise. Unknown positions are NaN. None if no position is
            known.
        geographic: Whether positions are in degrees.
    """

    km: Floats = field(converter=doubles)
    positions: Floats | None = field(default=None, converter=optional(doubles))
    geographic: bool = False

    @cached_property
    def _shortest_rows(self) -> Ints:
        """The index of the shortest street between the two vertices of each edge, as an array of shape (E,)."""
        return shortest_rows(np.sort(self.simplices, axis=1), self.km)

    @cached_property
    def edges(self) -> Ints:
        """The pairs of distinct vertices with a street between them, as an array of shape (E, 2)."""
        return read_only(np.sort(self.simplices[self._shortest_rows], axis=1))

    def growth(self, epsilon: Fraction) -> tuple[Fraction, ...]:
        """Return the exact ratio a that limits how much the rows of u and v may differ, for each edge (u, v).

        The limit is determined by the shortest street between the two vertices. Let l be the length of this street in
        km, and n be ``steps``. Then a is eps l if n is 0. Otherwise, it is 2 ((1 + t)^n - 1) with t = eps l / (2 n).
        See :meth:`Region.growth`.

        Args:
            epsilon: Epsilon per km.
        """
        return tuple(street_growth(epsilon, float(km), self.steps) for km in self.km[self._shortest_rows])

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays stored in a release: ``simplices``, ``lengths`` in km, and ``snap_steps``."""
        return {"simplices": self.simplices, "lengths": self.km, "snap_steps": np.array([self.steps])}


def street_growth(epsilon: Fraction, km: float, steps: int) -> Fraction:
    """Return the exact ratio a that limits how much the rows of a street's two ends may differ.

    Let z(u) and z(v) be the probabilities of an output at the two ends. The guarantee covers all points on the street
    if z(v) <= (1 + a) z(u) and z(u) <= (1 + a) z(v) for every output. For a street of length l, a is epsilon l
    if n is 0. Otherwise, it is 2 ((1 + t)^n - 1) with t = epsilon l / (2 n).

    Args:
        epsilon: Epsilon per km.
        km: The length l of the street in km. The double is taken to be exact.
        steps: The number of pieces in each half of the street, n, or 0 for linear snapping.
    """
    exponent = epsilon * Fraction(km)
    return exponent if steps == 0 else 2 * ((1 + exponent / (2 * steps)) ** steps - 1)


@frozen(kw_only=True, eq=False)
class Plane(Region):
    """A part of the plane divided into triangles.

    Attributes:
        vertices: Array of shape (N, 2) with x and y of the vertices in integer millimetres.
        projection: The projection from geographic positions onto the plane, or None if positions are planar.
    """

    vertices: Ints = field(converter=_to_int64)
    projection: Projection | None = None

    @cached_property
    def _edges_and_opposites(self) -> tuple[Ints, Ints]:
        """The edges, of shape (E, 2), and the index of the edge opposite each triangle corner, of shape (S, 3)."""
        # The sides opposite the first, second and third corner of each triangle.
        opposite = np.sort(self.simplices[:, [[1, 2], [2, 0], [0, 1]]].reshape(-1, 2), axis=1)
        edges, which = np.unique(opposite, axis=0, return_inverse=True)
        return read_only(edges), which.reshape(-1, 3)

    @cached_property
    def edges(self) -> Ints:
        """The pairs of vertices connected by a side of a triangle, as an array of shape (E, 2)."""
        return self._edges_and_opposites[0]

    @property
    def opposite(self) -> Ints:
        """The index of the edge opposite each corner of each triangle, as an array of shape (S, 3)."""
        return self._edges_and_opposites[1]

    def growth(self, epsilon: Fraction) -> tuple[Fraction, ...]:
        """Return the exact ratio a that limits how much the rows of u and v may differ, for each edge (u, v).

        An edge shared by two triangles has two ratios from `privopt_metric_dp.region.triangles.sufficient_ratios`. The
        smaller one is used. See :meth:`Region.growth`.

        Args:
            epsilon: Epsilon per km.
        """
        from privopt_metric_dp.region.triangles import sufficient_ratios

        allowed = np.full(len(self.edges), np.inf)
        # An edge between two triangles must satisfy the conditions of both.
        np.minimum.at(allowed, self.opposite, sufficient_ratios(self.vertices[self.simplices], epsilon))
        return tuple(Fraction(a) for a in allowed.tolist())

    def coarse(self, epsilon: Fraction) -> str | None:
        """Return a warning if the triangles are too large for epsilon (per km), or None if they are not.

        They are too large if epsilon times their median side length exceeds :data:`COARSE_EXPONENT`.
        """
        endpoints = self.vertices[self.edges].astype(np.float64)
        exponent = float(epsilon) * float(np.median(np.hypot(*(endpoints[:, 0] - endpoints[:, 1]).T))) / MM_PER_KM
        if exponent <= COARSE_EXPONENT:
            return None
        return (
            f"the mesh is coarse: epsilon times the sides of its triangles is {exponent:.2g} (median), and between "
            f"vertices rows change linearly; privacy.split_km = {COARSE_EXPONENT / float(epsilon):.2g} loses less"
        )

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays stored in a release: ``simplices``, ``vertices`` in millimetres, and ``snap_steps``."""
        return {"simplices": self.simplices, "vertices": self.vertices, "snap_steps": np.array([0])}


def region_of(arrays: Mapping[str, NDArray[Any]], count: int, source: str) -> Region:
    """Build a region from the arrays stored in a release after checking them.

    Args:
        arrays: The release's arrays, keyed by name. Only the names in :data:`ARRAYS` may occur.
        count: The number of vertices.
        source: The name of the file that contains the arrays, for error messages.

    Raises:
        InputError: Arrays are missing or unexpected, or some of their values are out of range.
    """
    planar = "vertices" in arrays
    expected_names = {"simplices", "snap_steps", "vertices" if planar else "lengths"}
    faults = Faults()
    if set(arrays) != expected_names:
        faults.add(
            source,
            "",
            f"arrays {', '.join(sorted(arrays))}",
            f"the arrays of a region, {', '.join(sorted(expected_names))}",
        )
    # The checks below need all arrays, so a release without some of them is rejected first.
    faults.check()
    simplices = arrays["simplices"]
    if simplices.shape[1] != (3 if planar else 2):
        faults.add(source, "simplices", f"{simplices.shape[1]} corners", "3 of a triangle, 2 of a street")
    steps = int(arrays["snap_steps"][0])
    if simplices.size and not (simplices.min() >= 0 and simplices.max() < count):
        faults.add(source, "simplices", "a record number out of range", f"rows from 0 to {count - 1}")
    if not 0 <= steps <= (0 if planar else MOST_STEPS):
        faults.add(source, "snap_steps", str(steps), "0 on a plane" if planar else f"0 to {MOST_STEPS}")
    if planar and (np.abs(arrays["vertices"].astype(np.float64)) > MOST_MM).any():
        faults.add(source, "vertices", "a coordinate beyond 4,000,000 km", "millimetres of one region")
    if not planar and not (np.isfinite(arrays["lengths"]) & (arrays["lengths"] >= 0)).all():
        faults.add(source, "lengths", "a negative or infinite length", "lengths of at least 0")
    faults.check()
    if planar:
        return Plane(size=count, simplices=simplices, vertices=arrays["vertices"])
    return Streets(size=count, simplices=simplices, km=arrays["lengths"], steps=steps)


def compare_regions(stored: Region | None, expected: Region | None, pairs: Ints) -> list[str]:
    """Return error messages for the differences between a release's region and its problem's region.

    At most one of the two may be None.

    Args:
        stored: The release's region, or None if it has none.
        expected: The problem's region, or None if it has none.
        pairs: Array of shape (P, 2) with the pairs stored in the release. P must be 0 if the release has a region.
    """
    lines = [f"mechanism.npz: pairs: expected none with a region, got {len(pairs):,}"] if len(pairs) else []
    if stored is None or expected is None:
        return [*lines, "mechanism.npz: region: only one of release and problem has one"]
    stored_arrays, expected_arrays = stored.arrays(), expected.arrays()
    # The arrays of both regions are compared in a fixed order. Only the first difference is reported.
    for name in (*stored_arrays, *(name for name in expected_arrays if name not in stored_arrays)):
        if name not in stored_arrays or name not in expected_arrays:
            actual = "missing" if name in expected_arrays else "stored, though the problem has none"
            return [*lines, f"mechanism.npz: {name}: {actual}"]
        if not np.array_equal(stored_arrays[name], expected_arrays[name]):
            return [*lines, f"mechanism.npz: {name}: not those of the problem"]
    return lines
