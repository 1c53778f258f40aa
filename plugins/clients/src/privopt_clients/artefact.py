"""Serialisation of mechanism.bin, the artefact from which clients draw reports.

:func:`artefact` combines the places with a mechanism: :class:`Rows`, :class:`Predictive`, :class:`Everywhere`, or the
column weights of :mod:`privopt_clients.column_weights`. All numbers are stored as little-endian integers, so that
clients written in any language compute the same reports. docs/reference/client.md documents the format.
"""

from __future__ import annotations

import hashlib
import math
import struct
from collections.abc import Sequence
from typing import ClassVar, Final, Protocol

import numpy as np
from attrs import frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Unsigned
from privopt.errors import UsageError
from privopt.numbers.distances import EARTH_RADIUS_KM
from privopt_metric_dp.region.snap_to_region import Snapper
from privopt_metric_dp.traces.prediction import Prediction

__all__ = [
    "KIND_DEGREES",
    "KIND_IDS",
    "KIND_PLANE",
    "MAGIC",
    "Everywhere",
    "Mechanism",
    "Places",
    "Predictive",
    "Rows",
    "artefact",
]

MAGIC: Final = b"PRIVOPT\x02"

KIND_IDS: Final = 0
KIND_DEGREES: Final = 1
KIND_PLANE: Final = 2

PER_DEGREE: Final = 10_000_000
"""The number of stored integer units per degree."""
PER_KM: Final = 1_000_000
"""The number of stored integer units per km of planar coordinates. One unit is a millimetre."""
MAX_PLANE_KM: Final = 1_000.0
"""The largest planar coordinate in km, chosen so that squared differences stay below 2^63 in the client."""
WIDEST: Final = 1 << 30
"""The largest width of a region in mm, chosen so that products of two lengths stay below 2^63 in the client."""
SPARE_BITS: Final = 64
"""The number of extra bits in a block of entropy, beyond those needed for the largest row sum.

With this many spare bits, a block is rejected with probability at most 2^-SPARE_BITS.
"""
MAX_REACH: Final = float(1 << 62)
"""The largest storable value of the distance beyond which clients reject positions."""
MAX_STEPS: Final = (1 << 32) - 1
"""The largest storable distance, in steps, for the test that decides whether to repeat the last report."""


class Mechanism(Protocol):
    """Interface of the mechanisms that can be stored in an artefact.

    Attributes:
        kind: The code, from 1 to 4, that identifies this kind of mechanism in the artefact.
    """

    kind: ClassVar[int]

    def to_bytes(self) -> bytes:
        """Serialise the mechanism as a section of the artefact."""
        ...


@frozen(kw_only=True, eq=False)
class Places:
    """N places in an artefact, each with an id and possibly integer coordinates.

    Attributes:
        ids: The id of each place.
        kind: :data:`KIND_IDS`, :data:`KIND_DEGREES` or :data:`KIND_PLANE`.
        points: (N, 2) The latitude and longitude of each place in 1e-7 degrees, or x and y in mm, as int32. If the
            places have no coordinates, the shape is (0, 2).
    """

    ids: tuple[str, ...]
    kind: int
    points: NDArray[np.int32]

    @classmethod
    def of(cls, ids: Sequence[str], coordinates: Floats | None, *, degrees: bool) -> Places:
        """Create places, rounding their coordinates to the artefact's units of 1e-7 degrees or 1 mm.

        Args:
            ids: The id of each place.
            coordinates: (N, 2) The latitude and longitude of each place in degrees, or x and y in km. None if the
                places have no coordinates.
            degrees: Whether the coordinates are in degrees.

        Raises:
            UsageError: A coordinate is not finite, or the absolute value of a planar coordinate exceeds
                :data:`MAX_PLANE_KM`.
        """
        if coordinates is None:
            return cls(ids=tuple(ids), kind=KIND_IDS, points=np.zeros((0, 2), dtype=np.int32))
        if not np.isfinite(coordinates).all():
            raise UsageError("export: coordinates must be finite numbers, got places without any: leave them out")
        if degrees:
            # Longitudes from 180 to 360 degrees are mapped to -180 to 0. Comparing latitudes with infinity leaves them
            # unchanged.
            turned = np.where(coordinates >= [math.inf, 180.0], coordinates - [0.0, 360.0], coordinates)
            # Every client rounds by floor(x + 1/2). np.rint would round halves to even instead.
            points = np.floor(turned * PER_DEGREE + 0.5)
        else:
            if np.abs(coordinates).max() > MAX_PLANE_KM:
                farthest = f"{np.abs(coordinates).max():g} km"
                raise UsageError(
                    f"export: x and y must be within {MAX_PLANE_KM:g} km of the origin, got {farthest}: move the origin"
                )
            points = np.floor(coordinates * PER_KM + 0.5)
        return cls(ids=tuple(ids), kind=KIND_DEGREES if degrees else KIND_PLANE, points=points.astype(np.int32))

    def to_bytes(self) -> bytes:
        """Serialise the places as a section of the artefact.

        The section contains the ids, the coordinates and, if these are in degrees, the cosine of each latitude.
        """
        parts = [_pack_text(name) for name in self.ids]
        parts.append(self.points.astype("<i4").tobytes())
        if self.kind == KIND_DEGREES:
            # Cosines are stored because different languages may compute them with different last bits.
            cosines = np.floor(np.cos(np.radians(self.points[:, 0] / PER_DEGREE)) * 65536 + 0.5)
            parts.append(cosines.astype("<u4").tobytes())
        return b"".join(parts)


@frozen(kw_only=True, eq=False)
class Rows:
    """A mechanism stored as complete rows of the obfuscation matrix.

    Attributes:
        kind: The code that identifies this kind of mechanism in the artefact.
        weights: (N, K) The matrix as uint64 weights that sum to 2**63 in each row.
    """

    kind: ClassVar[int] = 1

    weights: Unsigned

    def to_bytes(self) -> bytes:
        """Serialise the weights row by row."""
        return self.weights.astype("<u8").tobytes()


@frozen(kw_only=True, eq=False)
class Predictive:
    """A mechanism that runs a private test to decide whether to repeat the last report or to draw a new one.

    Attributes:
        kind: The code that identifies this kind of mechanism in the artefact.
        rows: The matrix row of each record, from which new reports are drawn.
        prediction: The parameters of the test, for the same outputs as ``rows``.
    """

    kind: ClassVar[int] = 4

    rows: Rows
    prediction: Prediction

    def to_bytes(self) -> bytes:
        """Serialise the rows, followed by the parameters of the private test.

        The first parameter is a threshold: the largest distance, in steps, at which the last report still counts as
        accurate. Two noise rates follow, each stored as a numerator and a denominator. The first is for the noise added
        to the threshold, and the second for the noise added to the distance in each test. Last come the distances, in
        steps, from each record to each output, capped at 2^32 - 1 so that they fit in 32 bits.
        """
        test = self.prediction
        rates = (*test.threshold.as_integer_ratio(), *test.test.as_integer_ratio())
        steps = np.minimum(test.steps, MAX_STEPS).astype("<u4")
        return self.rows.to_bytes() + struct.pack("<5Q", test.level, *rates) + steps.tobytes()


@frozen(kw_only=True, eq=False)
class Everywhere:
    """A mechanism that covers every point in a region by storing a row for each vertex and mixing these rows elsewhere.

    Attributes:
        kind: The code that identifies this kind of mechanism in the artefact.
        rows: The matrix row of each vertex.
        snapper: The region, together with the rule that expresses a position as a mixture of vertices.
    """

    kind: ClassVar[int] = 3

    rows: Rows
    snapper: Snapper

    def to_bytes(self) -> bytes:
        """Serialise the rows of the vertices, followed by the region.

        At any position, the rows of nearby vertices are mixed, and each vertex has a share in the mixture. Along a
        street, shares are either linear or S-shaped functions of the position. The region is stored in this order:

        - the number of corners of a simplex, 3 for triangles and 2 for streets;
        - the number of linear pieces that make up each half of an S-shaped share, or 0 for linear shares;
        - the number of bytes in a block of entropy;
        - the projection, if positions are in degrees;
        - the vertices in mm, the simplices, and the boundary edges of the region;
        - for S-shaped shares, epsilon times the length of each street.

        Raises:
            UsageError: The region is wider than :data:`WIDEST`, or extends farther than that from the origin. Products
                could then exceed 64 bits.
        """
        snapper = self.snapper
        vertices, simplices, edges = snapper.vertices, snapper.simplices, snapper.side_ends
        width_mm = int((vertices.max(axis=0) - vertices.min(axis=0)).max())
        if max(width_mm, int(np.abs(vertices).max())) > WIDEST:
            raise UsageError(
                f"export: a region must be at most {WIDEST / PER_KM:,.0f} km wide and as near to its origin, got "
                f"{width_mm / PER_KM:,.0f} km: export a smaller one"
            )
        # A region of streets has no rim, because clients move positions onto the streets themselves.
        rim = edges[:0] if simplices.shape[1] == 2 else edges
        # Here, a reach is epsilon times the length of a street. With a common denominator, clients can compute S-shaped
        # shares (far_share in privopt_metric_dp.region.snap_to_region) in integers.
        denominator = math.lcm(*(reach.denominator for reach in snapper.reaches))
        reaches = [int(reach * denominator) for reach in snapper.reaches]
        # Rounded up from bits to bytes. Because of the SPARE_BITS, hardly any block is rejected.
        block = (self._greatest_sum(denominator, max(reaches, default=0)).bit_length() + SPARE_BITS + 7) // 8
        parts = [self.rows.to_bytes(), struct.pack("<BBH", simplices.shape[1], snapper.steps, block)]
        if (on_earth := snapper.projection) is not None:
            parts.append(struct.pack("<iiQQ", *on_earth.origin, on_earth.east, on_earth.north))
        parts.append(vertices.astype("<i4").tobytes())
        for groups in (simplices, rim):
            parts += [struct.pack("<I", len(groups)), groups.astype("<u4").tobytes()]
        return b"".join(parts + [_pack_integer(number) for number in [denominator, *reaches] if snapper.steps])

    def _greatest_sum(self, denominator: int, reach: int) -> int:
        """Return an upper bound on the sum of the weights that a client computes for any one position.

        Args:
            denominator: The common denominator of the products of epsilon and the length of each street.
            reach: The largest numerator of these products.
        """
        snapper = self.snapper
        # At any point, the integer shares sum to the squared length of the point's side or to twice the area of its
        # triangle (see client_region.Everywhere.at).
        directions = snapper.vertices[snapper.side_ends[:, 1]] - snapper.vertices[snapper.side_ends[:, 0]]
        greatest: int = max(1, *(x * x + y * y for x, y in directions.tolist()))
        if snapper.simplices.shape[1] == 3:
            a, b, c = (snapper.vertices[snapper.simplices[:, corner]].astype(object) for corner in range(3))
            # Twice the area of each triangle, as a cross product. Python integers are used because they cannot
            # overflow.
            greatest = max(greatest, *((b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0]))
        if snapper.steps:
            # S-shaped shares sum to the denominator of client_region.Everywhere._s_shaped_share, whose `length` is at
            # most `greatest`.
            greatest *= 2 * (2 * snapper.steps * denominator + reach) ** snapper.steps
        # Each vertex's row sums to 2^63.
        return greatest << 63


def artefact(
    mechanism: Mechanism,
    records: Places,
    outputs: Places | None,
    promise: str,
    *,
    reach_km: float,
    release: str,
    proof: str,
) -> bytes:
    """Return the contents of mechanism.bin: a magic number, the SHA-256 of the body, and the body.

    Args:
        mechanism: The mechanism to draw reports from.
        records: The secret places.
        outputs: The possible reports, or None if they are the same as the records.
        promise: The guarantee in one sentence.
        reach_km: The distance in km beyond which clients reject a position, measured from the region for
            :class:`Everywhere` and from the nearest record for all other mechanisms.
        release: The SHA-256 of the release's SHA256SUMS, in hexadecimal.
        proof: The SHA-256 of the release's proof.npz, in hexadecimal, or an empty string if there is no proof.
    """
    reported = records if outputs is None else outputs
    body = b"".join(
        [
            struct.pack("<BBBB", mechanism.kind, records.kind, 0 if outputs is None else 1, reported.kind),
            _pack_text(promise),
            _pack_text(release),
            _pack_text(proof),
            struct.pack("<IIQ", len(records.ids), len(reported.ids), _count_units(mechanism, records, reach_km)),
            records.to_bytes(),
            b"" if outputs is None else outputs.to_bytes(),
            mechanism.to_bytes(),
        ]
    )
    # This digest only detects damage. An attacker could replace it as well, so open_artefact() can also check a digest
    # that the caller got from elsewhere.
    return MAGIC + hashlib.sha256(body).digest() + body


def _count_units(mechanism: Mechanism, records: Places, reach_km: float) -> int:
    """Convert a distance in km to the integer unit in which clients measure distances, rounding up.

    The unit is 1e-7 degrees of latitude if places are in degrees, and 1 mm if they are planar. Regions are always
    measured in mm, because clients project them onto a plane.
    """
    in_degrees = records.kind == KIND_DEGREES and mechanism.kind != Everywhere.kind
    per_km = PER_DEGREE * 180.0 / (math.pi * EARTH_RADIUS_KM) if in_degrees else PER_KM
    return math.ceil(min(reach_km * per_km, MAX_REACH))


def _pack_integer(number: int) -> bytes:
    """Encode a non-negative integer of up to 255 bytes as a one-byte length followed by its little-endian bytes."""
    size = (number.bit_length() + 7) // 8
    return struct.pack("<B", size) + number.to_bytes(size, "little")


def _pack_text(text: str) -> bytes:
    """Encode a string as a four-byte length followed by that many bytes of UTF-8."""
    encoded = text.encode("utf-8")
    return struct.pack("<I", len(encoded)) + encoded
