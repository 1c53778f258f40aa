"""Write mechanism.bin, the one file that a client reads. The format is documented in docs/reference/client.md."""

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

MAGIC: Final = b"PRIVOPT\x01"

KIND_IDS: Final = 0
KIND_DEGREES: Final = 1
KIND_PLANE: Final = 2

PER_DEGREE: Final = 10_000_000
PER_KM: Final = 1_000_000
MAX_PLANE_KM: Final = 1_000.0
"""The greatest coordinate of a plane in km; squares of differences then stay below 2^63 in the client."""


WIDEST: Final = 1 << 30
"""The greatest width of a region in mm; products of two lengths then stay below 2^63 in the client."""
SPARE_BITS: Final = 64
"""Bits of a block beyond those of the greatest sum: a block gives no report with probability at most 2^-SPARE_BITS."""
MAX_STEPS: Final = (1 << 32) - 1
"""The greatest distance of a predictive test, in steps."""


class Mechanism(Protocol):
    """The part of an artefact from which reports are drawn."""

    kind: ClassVar[int]

    def to_bytes(self) -> bytes:
        """Return the mechanism's part of the artefact."""
        ...


@frozen(kw_only=True, eq=False)
class Places:
    """Places: their ids, and integer coordinates if they have any.

    Attributes:
        ids: of the places.
        kind: :data:`KIND_IDS`, :data:`KIND_DEGREES` or :data:`KIND_PLANE`.
        points: (N, 2) int32: latitude and longitude in 1e-7 degrees, or x and y in millimetres; (0, 2) for ids alone.
    """

    ids: tuple[str, ...]
    kind: int
    points: NDArray[np.int32]

    @classmethod
    def of(cls, ids: Sequence[str], coordinates: Floats | None, *, degrees: bool) -> Places:
        """Round coordinates to the artefact's units.

        Args:
            ids: of the places.
            coordinates: (N, 2) degrees or km; None for ids alone.
            degrees: which of the two.

        Raises:
            UsageError: coordinates that are not finite, or that lie too far from the origin of a plane.
        """
        if coordinates is None:
            return cls(ids=tuple(ids), kind=KIND_IDS, points=np.zeros((0, 2), dtype=np.int32))
        if not np.isfinite(coordinates).all():
            raise UsageError("export: coordinates must be finite numbers, got places without any: leave them out")
        if degrees:
            # Longitudes from 180 to 360 degrees become those from -180 to 0.
            turned = np.where(coordinates >= [math.inf, 180.0], coordinates - [0.0, 360.0], coordinates)
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
        """Return the ids, then the coordinates, then, for degrees, the cosine of each latitude in 2^-16."""
        parts = [_pack_text(name) for name in self.ids]
        parts.append(self.points.astype("<i4").tobytes())
        if self.kind == KIND_DEGREES:
            cosines = np.floor(np.cos(np.radians(self.points[:, 0] / PER_DEGREE)) * 65536 + 0.5)
            parts.append(cosines.astype("<u4").tobytes())
        return b"".join(parts)


@frozen(kw_only=True, eq=False)
class Rows:
    """A mechanism of whole rows.

    Attributes:
        kind: of mechanism.
        weights: (N, K) uint64, each row summing to 2**63.
    """

    kind: ClassVar[int] = 1

    weights: Unsigned

    def to_bytes(self) -> bytes:
        """Return the weights, row by row."""
        return self.weights.astype("<u8").tobytes()


@frozen(kw_only=True, eq=False)
class Predictive:
    """A mechanism of whole rows for fresh reports, with the test that decides whether the last report is still good.

    Attributes:
        kind: of mechanism.
        rows: of the records.
        prediction: those numbers, over the same outputs.
    """

    kind: ClassVar[int] = 4

    rows: Rows
    prediction: Prediction

    def to_bytes(self) -> bytes:
        """Return the rows, then the numbers of the test; steps are cut at 2^32 - 1, which increases no distance."""
        test = self.prediction
        rates = (*test.threshold.as_integer_ratio(), *test.test.as_integer_ratio())
        steps = np.minimum(test.steps, MAX_STEPS).astype("<u4")
        return self.rows.to_bytes() + struct.pack("<5Q", test.level, *rates) + steps.tobytes()


@frozen(kw_only=True, eq=False)
class Everywhere:
    """A mechanism of whole rows for the vertices of a region; any point of the region is a mixture of vertices.

    Attributes:
        kind: of mechanism.
        rows: of the vertices.
        snapper: what takes a position to its vertices, and the region.
    """

    kind: ClassVar[int] = 3

    rows: Rows
    snapper: Snapper

    def to_bytes(self) -> bytes:
        """Return the rows, then the region.

        Raises:
            UsageError: a region of more than :data:`WIDEST`, whose products are beyond 64 bits.
        """
        snapper = self.snapper
        vertices, simplices, edges = snapper.vertices, snapper.simplices, snapper.ends
        width_mm = int((vertices.max(axis=0) - vertices.min(axis=0)).max())
        if max(width_mm, int(np.abs(vertices).max())) > WIDEST:
            raise UsageError(
                f"export: a region must be at most {WIDEST / PER_KM:,.0f} km wide and as near to its origin, got "
                f"{width_mm / PER_KM:,.0f} km: export a smaller one"
            )
        # Streets have no rim: the client snaps a position to the streets themselves.
        rim = edges[:0] if simplices.shape[1] == 2 else edges
        denominator = math.lcm(*(reach.denominator for reach in snapper.reaches))
        reaches = [int(reach * denominator) for reach in snapper.reaches]
        block = (self._greatest_sum(denominator, max(reaches, default=0)).bit_length() + SPARE_BITS + 7) // 8
        parts = [self.rows.to_bytes(), struct.pack("<BBH", simplices.shape[1], snapper.steps, block)]
        if (on_earth := snapper.projection) is not None:
            parts.append(struct.pack("<iiQQ", *on_earth.origin, on_earth.east, on_earth.north))
        parts.append(vertices.astype("<i4").tobytes())
        for groups in (simplices, rim):
            parts += [struct.pack("<I", len(groups)), groups.astype("<u4").tobytes()]
        return b"".join(parts + [_pack_integer(number) for number in [denominator, *reaches] if snapper.steps])

    def _greatest_sum(self, denominator: int, reach: int) -> int:
        """Return an upper bound on the sums of the weights of all mixtures."""
        snapper = self.snapper
        directions = snapper.vertices[snapper.ends[:, 1]] - snapper.vertices[snapper.ends[:, 0]]
        greatest: int = max(1, *(x * x + y * y for x, y in directions.tolist()))
        if snapper.simplices.shape[1] == 3:
            a, b, c = (snapper.vertices[snapper.simplices[:, corner]].astype(object) for corner in range(3))
            greatest = max(greatest, *((b - a)[:, 0] * (c - a)[:, 1] - (b - a)[:, 1] * (c - a)[:, 0]))
        if snapper.steps:
            greatest *= 2 * (2 * snapper.steps * denominator + reach) ** snapper.steps
        return greatest << 63


def artefact(
    mechanism: Mechanism, records: Places, outputs: Places | None, promise: str, *, release: str, proof: str
) -> bytes:
    """Return the bytes of mechanism.bin.

    Args:
        mechanism: what reports are drawn from.
        records: the secrets.
        outputs: what may be reported; None where it is the records.
        promise: the guarantee in one sentence.
        release: SHA-256 of the release's SHA256SUMS, in hexadecimal digits.
        proof: SHA-256 of its proof.npz, likewise; empty where there is none.
    """
    reported = records if outputs is None else outputs
    body = b"".join(
        [
            struct.pack("<BBBB", mechanism.kind, records.kind, 0 if outputs is None else 1, reported.kind),
            _pack_text(promise),
            _pack_text(release),
            _pack_text(proof),
            struct.pack("<II", len(records.ids), len(reported.ids)),
            records.to_bytes(),
            b"" if outputs is None else outputs.to_bytes(),
            mechanism.to_bytes(),
        ]
    )
    return MAGIC + hashlib.sha256(body).digest() + body


def _pack_integer(number: int) -> bytes:
    """Pack a whole number of any size: one byte for its length, then its bytes."""
    size = (number.bit_length() + 7) // 8
    return struct.pack("<B", size) + number.to_bytes(size, "little")


def _pack_text(text: str) -> bytes:
    """Pack a text: four bytes for its length, then UTF-8."""
    encoded = text.encode("utf-8")
    return struct.pack("<I", len(encoded)) + encoded
