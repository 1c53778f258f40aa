"""Regions divided into simplices, for guarantees between any two points.

A point x of the region is snapped at random to a vertex c with probability lambda_c(x), its weight in the simplex where
it lies, then an output is drawn from row c: z(x) = sum_c lambda_c(x) z(c). On a street lambda may be S-shaped
(:class:`Streets`), on a triangle it is linear (:class:`Plane`). Epsilon holds between any two points, in the lengths of
paths inside the region, if the rows of two neighbouring vertices differ little enough: z_b <= (1 + a) z_a with a
rational a for each edge. That is ordinary metric DP over edges of length ln(1 + a) / epsilon. The theorem and its
proof: docs/guide/everywhere.md.
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
"""Types and shapes of a region's arrays in an artefact of N records: of a plane vertices, of streets lengths."""

MM_PER_KM = 1_000_000

MOST_STEPS = 1_000
MOST_MM = 1 << 42

COARSE_EXPONENT = 0.6
"""Epsilon times the side of a triangle above which a finer mesh is advised: the loss is a quarter above the best."""

SNAP_STEPS = 8
"""Pieces of half a street on which S-shaped weights are linear: l' comes within 1 % of what any number would give."""


def _to_int64(value: Any) -> Ints:
    return read_only(np.array(value, dtype=np.int64))


@frozen(kw_only=True, eq=False)
class Region(ABC):
    """Vertices 0 .. size - 1, and the simplices between them.

    Attributes:
        size: N, the number of vertices.
        simplices: (S, 2) ends of streets, or (S, 3) corners of triangles, counter-clockwise.
        steps: n of the S-shaped weights, 0 for linear ones.
    """

    size: int
    simplices: Ints = field(converter=_to_int64)
    steps: int = 0

    @cached_property
    @abstractmethod
    def edges(self) -> Ints:
        """(E, 2) pairs i < j of different vertices that share a simplex, in order, each once."""

    @abstractmethod
    def growth(self, epsilon: Fraction) -> tuple[Fraction, ...]:
        """Return for each edge the rational a of the sufficient condition z_b <= (1 + a) z_a, in both directions.

        Args:
            epsilon: per km of path inside the region.
        """

    def lengths(self, epsilon: Fraction) -> Floats:
        """Return (E,) ln(1 + a) / epsilon in km, rounded down: lengths at which metric DP over the edges suffices."""
        lower_bounds = [log_bounds(1 + a, epsilon)[0] for a in self.growth(epsilon)]
        return read_only(np.array(lower_bounds, dtype=np.float64))

    def coarse(self, epsilon: Fraction) -> str | None:
        """Return the cost of long simplices in words; None if little can be done about it."""
        return None

    @abstractmethod
    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return the arrays for the artefact (contract): ``simplices``, ``snap_steps``, ``vertices`` or ``lengths``."""


@frozen(kw_only=True, eq=False)
class Streets(Region):
    """A network of streets; vertices are its nodes, and where streets are divided the points between their pieces.

    Attributes:
        km: (S,) length of each piece, each double the rational that it is. Parallel streets keep each its own.
        positions: (N, 2) of the vertices, (lat, lon) in degrees where ``geographic``, else (x, y) in km; NaN where a
            node has none; None without any.
    """

    km: Floats = field(converter=doubles)
    positions: Floats | None = field(default=None, converter=optional(doubles))
    geographic: bool = False

    @cached_property
    def _shortest_rows(self) -> Ints:
        """Rows of the shortest street between each two vertices, in the order of the edges."""
        return shortest_rows(np.sort(self.simplices, axis=1), self.km)

    @cached_property
    def edges(self) -> Ints:
        """(E, 2) pairs of different vertices with a street between them."""
        return read_only(np.sort(self.simplices[self._shortest_rows], axis=1))

    def growth(self, epsilon: Fraction) -> tuple[Fraction, ...]:
        """Return a = 2 ((1 + t)^n - 1) with t = eps l / (2 n), or eps l for n = 0.

        Parallel streets count with the shortest.
        """
        return tuple(street_growth(epsilon, float(km), self.steps) for km in self.km[self._shortest_rows])

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return ``simplices``, ``lengths`` in km, ``snap_steps``."""
        return {"simplices": self.simplices, "lengths": self.km, "snap_steps": np.array([self.steps])}


def street_growth(epsilon: Fraction, km: float, steps: int) -> Fraction:
    """Return a of a street of some length, exactly (mathematics: C2)."""
    exponent = epsilon * Fraction(km)
    return exponent if steps == 0 else 2 * ((1 + exponent / (2 * steps)) ** steps - 1)


@frozen(kw_only=True, eq=False)
class Plane(Region):
    """Part of a plane, cut into triangles.

    Attributes:
        vertices: (N, 2) x and y in whole millimetres.
        projection: how geographic positions come onto the plane; None where positions are planar themselves.
    """

    vertices: Ints = field(converter=_to_int64)
    projection: Projection | None = None

    @cached_property
    def _edges_and_opposites(self) -> tuple[Ints, Ints]:
        """The edges, and (S, 3) which of them lies opposite each corner."""
        opposite = np.sort(self.simplices[:, [[1, 2], [2, 0], [0, 1]]].reshape(-1, 2), axis=1)
        edges, which = np.unique(opposite, axis=0, return_inverse=True)
        return read_only(edges), which.reshape(-1, 3)

    @cached_property
    def edges(self) -> Ints:
        """(E, 2) sides of triangles."""
        return self._edges_and_opposites[0]

    @property
    def opposite(self) -> Ints:
        """(S, 3) number of the edge that lies opposite each corner."""
        return self._edges_and_opposites[1]

    def growth(self, epsilon: Fraction) -> tuple[Fraction, ...]:
        """Return the smaller of what an edge's two triangles allow (:mod:`privopt_metric_dp.region.triangles`)."""
        from privopt_metric_dp.region.triangles import sufficient_ratios

        allowed = np.full(len(self.edges), np.inf)
        np.minimum.at(allowed, self.opposite, sufficient_ratios(self.vertices[self.simplices], epsilon))
        return tuple(Fraction(a) for a in allowed.tolist())

    def coarse(self, epsilon: Fraction) -> str | None:
        """Return the cost of a mesh with sides that are long for epsilon, per km, in words; None if they are not."""
        endpoints = self.vertices[self.edges].astype(np.float64)
        reach = float(epsilon) * float(np.median(np.hypot(*(endpoints[:, 0] - endpoints[:, 1]).T))) / MM_PER_KM
        if reach <= COARSE_EXPONENT:
            return None
        return (
            f"the mesh is coarse: epsilon times the sides of its triangles is {reach:.2g} (median), and between "
            f"vertices rows change linearly; privacy.split_km = {COARSE_EXPONENT / float(epsilon):.2g} loses less"
        )

    def arrays(self) -> Mapping[str, NDArray[Any]]:
        """Return ``simplices``, ``vertices`` in millimetres, ``snap_steps``."""
        return {"simplices": self.simplices, "vertices": self.vertices, "snap_steps": np.array([0])}


def region_of(arrays: Mapping[str, NDArray[Any]], count: int, source: str) -> Region:
    """Return the region that an artefact states, whatever it claims of it.

    Args:
        arrays: those of :data:`ARRAYS` that are there.
        count: number of vertices.
        source: name of the artefact, for faults.
    """
    planar = "vertices" in arrays
    expected_names = {"simplices", "snap_steps", "vertices" if planar else "lengths"}
    faults = Faults()
    if set(arrays) != expected_names:
        faults.add(
            source, "", f"arrays {', '.join(sorted(arrays))}", f"of a region {', '.join(sorted(expected_names))}"
        )
    faults.check()
    simplices = arrays["simplices"]
    if simplices.shape[1] != (3 if planar else 2):
        faults.add(source, "simplices", f"{simplices.shape[1]} corners", "3 of a triangle, 2 of a street")
    steps = int(arrays["snap_steps"][0])
    if simplices.size and not (simplices.min() >= 0 and simplices.max() < count):
        faults.add(source, "simplices", "a record that is not there", f"rows from 0 to {count - 1}")
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
    """List how a release's region differs from its problem's, a line each; pairs next to a region are wrong.

    Args:
        stored: the release's, None without one.
        wanted: the problem's.
        pairs: (P, 2) of the release.
    """
    lines = [f"mechanism.npz: pairs: expected none beside a region, got {len(pairs):,}"] if len(pairs) else []
    if stored is None or expected is None:
        return [*lines, "mechanism.npz: region: one without the other"]
    mine, others = stored.arrays(), expected.arrays()
    for name in (*mine, *(name for name in others if name not in mine)):
        if name not in mine or name not in others:
            actual = "missing" if name in others else "stored, though the problem has none"
            return [*lines, f"mechanism.npz: {name}: {actual}"]
        if not np.array_equal(mine[name], others[name]):
            return [*lines, f"mechanism.npz: {name}: not those of the problem"]
    return lines
