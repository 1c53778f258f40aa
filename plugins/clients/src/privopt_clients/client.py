"""The reference client: it reads mechanism.bin and draws the same report from the same entropy as every other client.

It needs the standard library alone, and is written to be ported: whole numbers throughout, one pass over a row.
:mod:`privopt_clients.client_region` is its part for releases that protect every point. The format is documented in
docs/reference/client.md.
"""

from __future__ import annotations

import hashlib
import heapq
import math
import os
import struct
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from privopt_clients.client_region import DamagedArtefactError, Everywhere, Mixture, index_below

__all__ = ["Client", "DamagedArtefactError", "open_artefact"]

MAGIC: Final = b"PRIVOPT\x01"
DIGEST_BYTES: Final = 32
KINDS: Final = (0, 1, 2)
KIND_DEGREES: Final = 1
FORM_ROWS: Final = 1
FORM_COLUMNS: Final = 2
FORM_EVERYWHERE: Final = 3
FORM_PREDICTIVE: Final = 4
TOTAL: Final = 1 << 63
WORD_BYTES: Final = 8
"""Bytes of entropy that a report from a whole row takes."""

PER_UNIT: Final = {1: 10_000_000, 2: 1_000_000}
"""The integer units of a coordinate per degree, and per kilometre."""
NAMES: Final = {1: ("lat", "lon"), 2: ("x", "y")}
HALF_TURN: Final = 180 * PER_UNIT[KIND_DEGREES]

LIMITS: Final = {1: ((-90.0, 90.0), (-180.0, 360.0)), 2: ((-1000.0, 1000.0), (-1000.0, 1000.0))}
"""The least and the greatest coordinate of a position, by the kind of places."""


Report = dict[str, str | float]


@dataclass(frozen=True)
class Places:
    """Ids, integer coordinates (none for kind 0), and cosines of latitudes in 2^-16 (kind 1)."""

    ids: tuple[str, ...]
    kind: int
    points: tuple[tuple[int, int], ...]
    cosines: tuple[int, ...]


class _Reader:
    """Reads an artefact from its start to its end."""

    def __init__(self, body: bytes) -> None:
        self._body, self._at = body, 0

    def take(self, count: int) -> bytes:
        """Read ``count`` bytes."""
        part = self._body[self._at : self._at + count]
        if len(part) != count:
            raise DamagedArtefactError("mechanism.bin must be whole, got fewer bytes than it speaks of: export again")
        self._at += count
        return part

    def numbers(self, form: str, count: int) -> tuple[int, ...]:
        """Read numbers of one form of :mod:`struct`, little-endian."""
        return struct.unpack(f"<{count}{form}", self.take(count * struct.calcsize(form)))

    def large(self) -> int:
        """Read a number of any size: one byte for its length, then its bytes."""
        (count,) = self.numbers("B", 1)
        return int.from_bytes(self.take(count), "little")

    def text(self) -> str:
        """Read a text: its length in bytes, then UTF-8."""
        (count,) = self.numbers("I", 1)
        return self.take(count).decode("utf-8")

    def places(self, kind: int, count: int) -> Places:
        """Read places."""
        ids = tuple(self.text() for _ in range(count))
        flat = self.numbers("i", 2 * count if kind else 0)
        cosines = self.numbers("I", count if kind == KIND_DEGREES else 0)
        return Places(ids, kind, tuple(zip(flat[::2], flat[1::2], strict=True)), cosines)

    def prediction(self, count: int) -> None:
        """Skip the numbers of the predictive policy's test; this client draws fresh reports only."""
        self.take(5 * 8 + 4 * count)

    def end(self) -> None:
        """Check that no bytes are left."""
        if self._at != len(self._body):
            raise DamagedArtefactError("mechanism.bin must end with its last row, got more bytes: export again")


class _Rows:
    """Whole rows of weights that sum to 2^63."""

    entropy = WORD_BYTES
    block = WORD_BYTES

    def __init__(self, reader: _Reader, records: int, outputs: int) -> None:
        self.rows = [reader.numbers("Q", outputs) for _ in range(records)]
        # With another sum some numbers would have no output, or some outputs too little weight.
        if any(sum(row) != TOTAL for row in self.rows):
            raise DamagedArtefactError("mechanism.bin must have rows that sum to 2^63, got another sum: export again")

    def draw(self, where: Mixture, entropy: bytes) -> int | None:
        """Return the output that the first 63 bits of a word answer to."""
        return index_below(int.from_bytes(entropy[:WORD_BYTES], "little") >> 1, self.rows[where[0][0]])


class _Columns:
    """One weight for each place: row i has weight X_k T[D_ik], with D in steps along a graph."""

    def __init__(self, reader: _Reader, records: int) -> None:
        factor, first_entry = reader.numbers("Q", 2)
        (longest,), (self.block,), (tries,), (edges,) = (reader.numbers(form, 1) for form in "IBHI")
        if not (self.block and tries):
            raise DamagedArtefactError("mechanism.bin must have blocks of entropy, got none: export again")
        tails, heads, steps = (reader.numbers("I", edges) for _ in range(3))
        self._weights = reader.numbers("I", records)
        self._after: list[list[tuple[int, int]]] = [[] for _ in range(records)]
        for tail, head, length in zip(tails, heads, steps, strict=True):
            if max(tail, head) >= records:
                raise DamagedArtefactError("mechanism.bin must join places, got an edge beyond them: export again")
            self._after[tail].append((head, length))
            self._after[head].append((tail, length))
        self._table = [first_entry]
        for _ in range(longest):
            self._table.append((self._table[-1] * factor + (1 << 64) - 1) >> 64)
        self.entropy = self.block * tries

    def draw(self, where: Mixture, entropy: bytes) -> int | None:
        """Return the output of the first block that is below the row's sum; None if no block is."""
        steps = self._steps_from(where[0][0])
        weights = [x * self._table[d] for x, d in zip(self._weights, steps, strict=True)]
        total = sum(weights)
        if total > 1 << 8 * self.block:
            raise DamagedArtefactError(
                "mechanism.bin must have rows that a block covers, got a greater sum: export again"
            )
        # Rejection: a block at or above the sum is skipped, so that each output has exactly its share of the sum.
        for start in range(0, len(entropy) - self.block + 1, self.block):
            number = int.from_bytes(entropy[start : start + self.block], "little")
            if number < total:
                return index_below(number, weights)
        return None

    def _steps_from(self, row: int) -> list[int]:
        """Return the steps of the shortest path to each place (Dijkstra)."""
        max_steps = len(self._table) - 1
        steps_by_place, queue = [-1] * len(self._after), [(0, row)]
        while queue:
            steps, current = heapq.heappop(queue)
            if steps_by_place[current] < 0:
                steps_by_place[current] = steps
                for neighbour, length in self._after[current]:
                    if steps_by_place[neighbour] < 0:
                        heapq.heappush(queue, (steps + length, neighbour))
        if min(steps_by_place) < 0 or max(steps_by_place) > max_steps:
            raise DamagedArtefactError("mechanism.bin must join all its places, got one out of reach: export again")
        return steps_by_place


class Client:
    """Draws reports.

    Attributes:
        promise: the guarantee in one sentence.
        release: SHA-256 of the SHA256SUMS of the release that was exported.
        proof: SHA-256 of its proof.npz; empty where there is none.
    """

    def __init__(self, body: bytes) -> None:
        reader = _Reader(body)
        kind, places, has_own_outputs, output_kind = reader.numbers("B", 4)
        if (
            not FORM_ROWS <= kind <= FORM_PREDICTIVE
            or has_own_outputs not in (0, 1)
            or not {places, output_kind} <= {*KINDS}
        ):
            raise DamagedArtefactError(
                f"mechanism.bin must be of kind 1 to 4, got {kind}, {places}, {has_own_outputs}, {output_kind}: "
                "update the client"
            )
        self.promise, self.release, self.proof = reader.text(), reader.text(), reader.text()
        count, outputs = reader.numbers("I", 2)
        self._records = reader.places(places, count)
        self._outputs = reader.places(output_kind, outputs) if has_own_outputs else self._records
        if kind == FORM_COLUMNS and (has_own_outputs or outputs != count):
            raise DamagedArtefactError("mechanism.bin must report its records by column weights: export again")
        self._mechanism: _Rows | _Columns | Everywhere
        self._mechanism = _Columns(reader, count) if kind == FORM_COLUMNS else _Rows(reader, count, outputs)
        if isinstance(self._mechanism, _Rows) and kind == FORM_EVERYWHERE:
            self._mechanism = Everywhere(reader, self._mechanism.rows, places == KIND_DEGREES)
        if kind == FORM_PREDICTIVE:
            reader.prediction(count * outputs)
        reader.end()
        self._number = {name: row for row, name in enumerate(self._records.ids)}

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the records."""
        return self._records.ids

    @property
    def positions(self) -> list[tuple[float, float]]:
        """The positions of the records in degrees or km; empty if they have none."""
        places = self._records
        unit = PER_UNIT.get(places.kind, 1)
        return [(first / unit, second / unit) for first, second in places.points]

    @property
    def limits(self) -> tuple[tuple[float, float], ...]:
        """The least and the greatest value of each coordinate of a position; empty if records have none."""
        return LIMITS.get(self._records.kind, ())

    @property
    def entropy(self) -> int:
        """The number of bytes of entropy that :meth:`report` uses."""
        return self._mechanism.entropy

    def report(self, secret: str | Sequence[float]) -> Report:
        """Draw a report from the operating system's entropy.

        Args:
            secret: id of a record, or a position: latitude and longitude, or x and y in km.

        Raises:
            ValueError: no record has that id, or no such position can be.
        """
        where = self._find_rows(secret)
        output = None
        while output is None:
            output = self._mechanism.draw(where, os.urandom(self.entropy))
        return self._make_report(output)

    def report_from(self, secret: str | Sequence[float], entropy: bytes) -> Report:
        """Draw a report from given bytes; the same bytes give the same report in every client.

        Args:
            secret: as of :meth:`report`.
            entropy: uniform bytes, never used again; otherwise nothing is promised. They are 8 bytes, or several
                blocks: the first block that counts is used. :attr:`entropy` is how many :meth:`report` takes.

        Raises:
            ValueError: as :meth:`report`, too few bytes, or no block that counts.
        """
        where, min_bytes = self._find_rows(secret), self._mechanism.block
        if len(entropy) < min_bytes:
            raise ValueError(f"entropy must be {min_bytes} bytes at least, got {len(entropy)}")
        output = self._mechanism.draw(where, entropy)
        if output is None:
            raise ValueError("entropy must have a block that counts, got none: give more blocks")
        return self._make_report(output)

    def _find_rows(self, secret: str | Sequence[float]) -> Mixture:
        """Return the row of a record or of the record nearest to a position; or those that a position is a mixture of.

        Every row has a share, a whole number.
        """
        if isinstance(secret, str):
            record = unicodedata.normalize("NFC", secret)  # the form of all ids
            if record not in self._number:
                raise ValueError("the secret must be the id of a record, got another text")
            return ((self._number[record], 1),)
        if not self._records.kind:
            raise ValueError("the secret must be the id of a record, got a position: these records have none")
        first, second = secret
        position = _to_units(self._records.kind, float(first), float(second))
        if isinstance(self._mechanism, Everywhere):
            return self._mechanism.at(*position)
        return ((_find_nearest(self._records, *position), 1),)

    def _make_report(self, output: int) -> Report:
        places = self._outputs
        report: Report = {"id": places.ids[output]}
        if places.kind:
            unit = PER_UNIT[places.kind]
            report |= {
                name: coordinate / unit
                for name, coordinate in zip(NAMES[places.kind], places.points[output], strict=True)
            }
        return report


def open_artefact(data: bytes, sha256: str | None = None) -> Client:
    """Read mechanism.bin; a change of any bit is found before anything can be drawn.

    Args:
        data: the file's bytes.
        sha256: of the whole file, in hexadecimal digits, as ``privopt export`` said it: who changes the file can make
            its inner sum fit again, but not this one.

    Raises:
        DamagedArtefactError: these are not the bytes that were written.
    """
    if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256.lower():
        raise DamagedArtefactError("mechanism.bin must have the SHA-256 asked for, got another: fetch it again")
    start = len(MAGIC) + DIGEST_BYTES
    if data[: len(MAGIC)] != MAGIC or hashlib.sha256(data[start:]).digest() != data[len(MAGIC) : start]:
        raise DamagedArtefactError("mechanism.bin must be as it was written, got changed bytes: fetch it again")
    return Client(data[start:])


def _to_units(kind: int, first: float, second: float) -> tuple[int, int]:
    """Convert a position to the artefact's units, by the kind of places."""
    for number, (lower, upper) in zip((first, second), LIMITS[kind], strict=True):
        if not lower <= number <= upper:
            raise ValueError(f"a position must lie between {lower:g} and {upper:g}, got another number")
    # Longitudes from 180 to 360 degrees are turned to those from -180 to 0, in which artefacts store them.
    unit = PER_UNIT[kind]
    a, b = math.floor(first * unit + 0.5), math.floor(second * unit + 0.5)
    return a, b - 2 * HALF_TURN if kind == KIND_DEGREES and b >= HALF_TURN else b


def _find_nearest(places: Places, a: int, b: int) -> int:
    """Return the place nearest to a position in units, the first of several. All places are always visited.

    Degrees east are scaled by the cosine of the place's latitude, which is accurate for places near the position.
    """
    degrees = places.kind == KIND_DEGREES
    nearest_row, min_square = 0, -1
    for row, (row_a, row_b) in enumerate(places.points):
        across = b - row_b
        if degrees:
            across += 2 * HALF_TURN * ((across < -HALF_TURN) - (across >= HALF_TURN))
            across = (across * places.cosines[row]) >> 16
        square = (a - row_a) ** 2 + across**2
        if min_square < 0 or square < min_square:
            nearest_row, min_square = row, square
    return nearest_row
