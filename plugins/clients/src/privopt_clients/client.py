"""The reference client, which reads the artefact mechanism.bin and draws reports from it.

Given the same entropy, all clients draw the same reports. This client uses only the standard library and computes
reports in integer arithmetic, so that it is easy to port to other languages. Releases that protect every point in a
region are handled by :mod:`privopt_clients.client_region`. docs/reference/client.md documents the format.
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

from privopt_clients.client_region import DamagedArtefactError, Everywhere, Mixture, OutsideRegionError, index_below

__all__ = ["Client", "DamagedArtefactError", "OutsideRegionError", "open_artefact"]

MAGIC: Final = b"PRIVOPT\x02"
DIGEST_BYTES: Final = 32
KINDS: Final = (0, 1, 2)
"""The codes of the kinds of places: ids alone, degrees, and coordinates in a plane."""
KIND_DEGREES: Final = 1
FORM_ROWS: Final = 1
FORM_COLUMNS: Final = 2
FORM_EVERYWHERE: Final = 3
FORM_PREDICTIVE: Final = 4
TOTAL: Final = 1 << 63
"""The sum of the weights in each row of the matrix."""
WORD_BYTES: Final = 8
"""The number of bytes of entropy needed to draw from a row of the matrix."""

PER_UNIT: Final = {1: 10_000_000, 2: 1_000_000}
"""The number of stored integer units per degree (kind 1) and per kilometre (kind 2), keyed by the kind of places."""
NAMES: Final = {1: ("lat", "lon"), 2: ("x", "y")}
"""The names of a report's two coordinates, keyed by the kind of places."""
HALF_TURN: Final = 180 * PER_UNIT[KIND_DEGREES]

LIMITS: Final = {1: ((-90.0, 90.0), (-180.0, 360.0)), 2: ((-1000.0, 1000.0), (-1000.0, 1000.0))}
"""The smallest and largest valid value of each coordinate of a position, keyed by the kind of places."""


Report = dict[str, str | float]


@dataclass(frozen=True)
class Places:
    """The records or the outputs in an artefact.

    Attributes:
        ids: The id of each place.
        kind: 0 for ids without positions, 1 for positions in degrees, or 2 for positions in a plane.
        points: The latitude and longitude of each place in 1e-7 degrees, or x and y in mm. Empty if the places have
            only ids.
        cosines: The cosine of each place's latitude in units of 2^-16. Empty unless points are in degrees.
    """

    ids: tuple[str, ...]
    kind: int
    points: tuple[tuple[int, int], ...]
    cosines: tuple[int, ...]


class _Reader:
    """A sequential reader of an artefact that raises DamagedArtefactError when asked to read past the end."""

    def __init__(self, body: bytes) -> None:
        self._body, self._at = body, 0

    def take(self, count: int) -> bytes:
        """Read the next ``count`` bytes.

        Raises:
            DamagedArtefactError: Fewer than ``count`` bytes are left.
        """
        part = self._body[self._at : self._at + count]
        if len(part) != count:
            raise DamagedArtefactError(
                "mechanism.bin must be complete, got fewer bytes than it announces: export again"
            )
        self._at += count
        return part

    def numbers(self, form: str, count: int) -> tuple[int, ...]:
        """Read ``count`` little-endian numbers of the type denoted by the :mod:`struct` format character ``form``."""
        return struct.unpack(f"<{count}{form}", self.take(count * struct.calcsize(form)))

    def large(self) -> int:
        """Read a non-negative integer of any size, stored as a one-byte length followed by that many bytes."""
        (count,) = self.numbers("B", 1)
        return int.from_bytes(self.take(count), "little")

    def text(self) -> str:
        """Read a string, stored as a four-byte length followed by that many bytes of UTF-8."""
        (count,) = self.numbers("I", 1)
        return self.take(count).decode("utf-8")

    def places(self, kind: int, count: int) -> Places:
        """Read ``count`` places of a given kind, including the coordinates and cosines if that kind has them."""
        ids = tuple(self.text() for _ in range(count))
        coordinates = self.numbers("i", 2 * count if kind else 0)
        cosines = self.numbers("I", count if kind == KIND_DEGREES else 0)
        # The two coordinates of a place are stored one after the other.
        return Places(ids, kind, tuple(zip(coordinates[::2], coordinates[1::2], strict=True)), cosines)

    def prediction(self, count: int) -> None:
        """Skip the parameters of the test that decides whether to repeat the last report.

        This client always draws a new report, so it does not need them.

        Args:
            count: The number of stored distances, which is the number of records times the number of outputs.
        """
        # The parameters begin with five 64-bit numbers: a threshold, and two noise rates given as numerators and
        # denominators.
        self.take(5 * 8 + 4 * count)

    def end(self) -> None:
        """Check that the artefact has been read to its end.

        Raises:
            DamagedArtefactError: Some bytes have not been read.
        """
        if self._at != len(self._body):
            raise DamagedArtefactError("mechanism.bin must end with its last row, got more bytes: export again")


class _Rows:
    """A mechanism stored as complete rows of integer weights. The weights of each row sum to 2^63.

    Attributes:
        entropy: The number of bytes of entropy per draw.
        block: The minimum number of bytes needed for a draw. Since draws never fail, it equals ``entropy``.
        rows: The weights of the outputs, one tuple per record.
    """

    entropy = WORD_BYTES
    block = WORD_BYTES

    def __init__(self, reader: _Reader, records: int, outputs: int) -> None:
        """Read the rows from an artefact.

        Args:
            reader: A reader positioned after the artefact's places.
            records: The number of records, which is also the number of rows.
            outputs: The number of outputs, which is also the number of weights per row.

        Raises:
            DamagedArtefactError: A row does not sum to 2^63.
        """
        self.rows = [reader.numbers("Q", outputs) for _ in range(records)]
        # With any other sum, some draws would select no output, or some outputs would have too little weight.
        if any(sum(row) != TOTAL for row in self.rows):
            raise DamagedArtefactError("mechanism.bin must have rows that sum to 2^63, got another sum: export again")

    def draw(self, where: Mixture, entropy: bytes) -> int | None:
        """Draw the index of an output, using the upper 63 bits of the first 8 bytes of entropy.

        A draw never fails, so the result is never None.

        Args:
            where: A mixture that consists of a single row.
            entropy: Uniformly random bytes.
        """
        # Each row sums to a power of two, so no number has to be rejected.
        return index_below(int.from_bytes(entropy[:WORD_BYTES], "little") >> 1, self.rows[where[0][0]])


class _Columns:
    """A mechanism that computes its rows from one weight per place (see :mod:`privopt_clients.column_weights`).

    In row i, place k has weight X_k T[D_ik], where D_ik is the length, in steps, of the shortest path from i to k in a
    graph. The table T decreases by a constant factor per step.

    Attributes:
        entropy: The number of bytes of entropy per draw, which is several blocks.
        block: The number of bytes in a block. Each block is one attempt at rejection sampling.
        _weights: The weight X_k of each place.
        _table: The entries T[0], T[1], ..., up to the greatest length of any shortest path.
        _after: For each place, its neighbours in the graph and the length of the edge to each of them, in steps.
    """

    def __init__(self, reader: _Reader, records: int) -> None:
        """Read the weights and the graph from an artefact.

        Args:
            reader: A reader positioned after the artefact's places.
            records: The number of places.

        Raises:
            DamagedArtefactError: An edge refers to a place that does not exist, or there are no blocks of entropy.
        """
        # First q and T[0], then the largest number of steps, the bytes per block, the blocks per draw and the number of
        # edges.
        factor, first_entry = reader.numbers("Q", 2)
        (longest,), (self.block,), (tries,), (edges,) = (reader.numbers(form, 1) for form in "IBHI")
        if not (self.block and tries):
            raise DamagedArtefactError("mechanism.bin must have blocks of entropy, got none: export again")
        tails, heads, steps = (reader.numbers("I", edges) for _ in range(3))
        self._weights = reader.numbers("I", records)
        self._after: list[list[tuple[int, int]]] = [[] for _ in range(records)]
        for tail, head, length in zip(tails, heads, steps, strict=True):
            if max(tail, head) >= records:
                raise DamagedArtefactError(
                    "mechanism.bin must have edges between its places, got another edge: export again"
                )
            self._after[tail].append((head, length))
            self._after[head].append((tail, length))
        # T[n + 1] = ceil(T[n] q / 2^64), as the certificate assumes. A table stored in the file could deviate from
        # this.
        self._table = [first_entry]
        for _ in range(longest):
            self._table.append((self._table[-1] * factor + (1 << 64) - 1) >> 64)
        # With this many blocks, the probability that all of them are rejected is at most 2^-64
        # (column_weights.MISS_BITS).
        self.entropy = self.block * tries

    def draw(self, where: Mixture, entropy: bytes) -> int | None:
        """Draw the index of an output by rejection sampling, or return None if every block of entropy is rejected.

        A block is accepted if the number that it encodes is below the sum of the row's weights.

        Args:
            where: A mixture that consists of a single row.
            entropy: Uniformly random bytes, which are consumed block by block.

        Raises:
            DamagedArtefactError: A place cannot be reached from the record, or the row's weights sum to more than a
                block can hold.
        """
        steps = self._steps_from(where[0][0])
        weights = [x * self._table[d] for x, d in zip(self._weights, steps, strict=True)]
        total = sum(weights)
        if total > 1 << 8 * self.block:
            raise DamagedArtefactError(
                "mechanism.bin must have rows that a block of entropy covers, got a larger sum: export again"
            )
        # A block at or above the sum is rejected, so that each output is drawn with exactly its share of the sum.
        for start in range(0, len(entropy) - self.block + 1, self.block):
            number = int.from_bytes(entropy[start : start + self.block], "little")
            if number < total:
                return index_below(number, weights)
        return None

    def _steps_from(self, row: int) -> list[int]:
        """Return the length, in steps, of the shortest path from place ``row`` to each place (Dijkstra's algorithm).

        Raises:
            DamagedArtefactError: A place cannot be reached, or is farther away than the table T covers.
        """
        max_steps = len(self._table) - 1
        steps_by_place, queue = [-1] * len(self._after), [(0, row)]
        while queue:
            # A place can be in the queue several times. It leaves the queue first with its smallest number of steps.
            steps, current = heapq.heappop(queue)
            if steps_by_place[current] < 0:
                steps_by_place[current] = steps
                for neighbour, length in self._after[current]:
                    if steps_by_place[neighbour] < 0:
                        heapq.heappush(queue, (steps + length, neighbour))
        if min(steps_by_place) < 0 or max(steps_by_place) > max_steps:
            raise DamagedArtefactError("mechanism.bin must connect all its places, got one out of reach: export again")
        return steps_by_place


class Client:
    """A client that draws random reports for secret ids or positions, using the mechanism stored in an artefact.

    Attributes:
        promise: The guarantee in one sentence.
        release: The SHA-256 of the exported release's file SHA256SUMS.
        proof: The SHA-256 of the release's file proof.npz, or ``""`` if it has none.
        _records, _outputs: The secret places and the places that can be reported.
        _mechanism: The mechanism's rows, or the data from which they are computed.
        _reach: The distance beyond which a position is rejected, measured from the region if there is one and otherwise
            from the nearest record. It is in mm for a region, and otherwise in the unit of the stored places (1e-7
            degrees or mm).
        _number: The row index of each record, keyed by the record's id.
    """

    def __init__(self, body: bytes) -> None:
        """Read the body of an artefact, which consists of all bytes after the digest.

        The digest itself is checked by :func:`open_artefact`.

        Raises:
            DamagedArtefactError: The body does not have the format described in docs/reference/client.md.
        """
        reader = _Reader(body)
        # The kind of mechanism, the kind of the records, whether the outputs are listed separately, and the kind of the
        # outputs.
        kind, record_kind, has_own_outputs, output_kind = reader.numbers("B", 4)
        if (
            not FORM_ROWS <= kind <= FORM_PREDICTIVE
            or has_own_outputs not in (0, 1)
            or not {record_kind, output_kind} <= {*KINDS}
        ):
            raise DamagedArtefactError(
                f"mechanism.bin must be of kind 1 to 4, got {kind}, {record_kind}, {has_own_outputs}, {output_kind}: "
                "update the client"
            )
        self.promise, self.release, self.proof = reader.text(), reader.text(), reader.text()
        (count, outputs), (self._reach,) = reader.numbers("I", 2), reader.numbers("Q", 1)
        self._records = reader.places(record_kind, count)
        self._outputs = reader.places(output_kind, outputs) if has_own_outputs else self._records
        if kind == FORM_COLUMNS and (has_own_outputs or outputs != count):
            raise DamagedArtefactError("mechanism.bin must report its records by column weights: export again")
        self._mechanism: _Rows | _Columns | Everywhere
        # Kinds 3 and 4 begin with the rows of a matrix, as kind 1 does.
        self._mechanism = _Columns(reader, count) if kind == FORM_COLUMNS else _Rows(reader, count, outputs)
        if isinstance(self._mechanism, _Rows) and kind == FORM_EVERYWHERE:
            self._mechanism = Everywhere(reader, self._mechanism.rows, record_kind == KIND_DEGREES, self._reach)
        if kind == FORM_PREDICTIVE:
            reader.prediction(count * outputs)
        reader.end()
        self._number = {name: row for row, name in enumerate(self._records.ids)}

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the records."""
        return self._records.ids

    @property
    def positions(self) -> list[tuple[float, float]]:
        """The position of each record in degrees or km. Empty if the records have only ids."""
        places = self._records
        unit = PER_UNIT.get(places.kind, 1)
        return [(first / unit, second / unit) for first, second in places.points]

    @property
    def limits(self) -> tuple[tuple[float, float], ...]:
        """The smallest and largest valid value of each coordinate of a position. Empty if the records have only ids."""
        return LIMITS.get(self._records.kind, ())

    @property
    def entropy(self) -> int:
        """The number of bytes of entropy that :meth:`report` uses per attempt."""
        return self._mechanism.entropy

    def covers(self, secret: str | Sequence[float]) -> bool:
        """Return whether :meth:`report` accepts a secret, given as a record's id or a position."""
        try:
            self._find_rows(secret)
        except ValueError:  # including its subclass OutsideRegionError
            return False
        return True

    def report(self, secret: str | Sequence[float]) -> Report:
        """Draw a report for a secret, using the operating system's entropy.

        Args:
            secret: A record's id, or a position given as latitude and longitude in degrees or as x and y in km.

        Raises:
            ValueError: No record has this id, the records have no positions, or the position is out of range.
            OutsideRegionError: The position is too far from the release's records or region.
        """
        where = self._find_rows(secret)
        # If all blocks are rejected, the draw is repeated with new entropy, which does not change any probability.
        output = None
        while output is None:
            output = self._mechanism.draw(where, os.urandom(self.entropy))
        return self._make_report(output)

    def report_from(self, secret: str | Sequence[float], entropy: bytes) -> Report:
        """Draw a report for a secret deterministically from the given bytes.

        All clients draw the same report from the same bytes.

        Args:
            secret: A record's id, or a position given as latitude and longitude in degrees or as x and y in km.
            entropy: Uniformly random bytes, usually :attr:`entropy` of them. They must never be reused, as this would
                void the guarantee. Mechanisms with complete rows use the first 8 bytes. All others use the first block
                that is accepted.

        Raises:
            ValueError: No record has this id, the records have no positions, the position is out of range, there are
                too few bytes, or every block is rejected.
            OutsideRegionError: The position is too far from the release's records or region.
        """
        where, min_bytes = self._find_rows(secret), self._mechanism.block
        if len(entropy) < min_bytes:
            raise ValueError(f"entropy must be {min_bytes} bytes at least, got {len(entropy)}")
        output = self._mechanism.draw(where, entropy)
        if output is None:
            raise ValueError("entropy must have a usable block, got none: give more blocks")
        return self._make_report(output)

    def _find_rows(self, secret: str | Sequence[float]) -> Mixture:
        """Return the mixture of rows from which to draw the report for a secret, as (row index, integer share) pairs.

        For an id, the mixture consists of the record's row alone. For a position, it is the row of the nearest record
        or, if the release protects every point in a region, a combination of the surrounding vertices' rows.

        Raises:
            ValueError: No record has this id, the records have no positions, or the position is out of range.
            OutsideRegionError: The position is too far from the release's records or region.
        """
        # Messages must not quote the secret, because they may be logged.
        if isinstance(secret, str):
            record = unicodedata.normalize("NFC", secret)  # ids are stored in this form
            if record not in self._number:
                raise ValueError("the secret must be the id of a record, got another text")
            return ((self._number[record], 1),)
        if not self._records.kind:
            raise ValueError("the secret must be the id of a record, got a position: these records have none")
        first, second = secret
        position = _to_units(self._records.kind, float(first), float(second))
        if isinstance(self._mechanism, Everywhere):
            return self._mechanism.at(*position)
        row, squared_distance = _find_nearest(self._records, *position)
        if squared_distance > self._reach**2:
            raise OutsideRegionError
        return ((row, 1),)

    def _make_report(self, output: int) -> Report:
        """Return the report for the output with the given index.

        It contains the output's id and its coordinates, if any, in degrees or km.
        """
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
    """Check the digests of mechanism.bin and return a client that draws reports from it.

    Args:
        data: The contents of the file.
        sha256: The SHA-256 of the whole file in hexadecimal, as printed by ``privopt export``. An attacker who changes
            the file can update the digest inside it, but not this one.

    Raises:
        DamagedArtefactError: The file is damaged, or does not match ``sha256``.
    """
    if sha256 is not None and hashlib.sha256(data).hexdigest() != sha256.lower():
        raise DamagedArtefactError("mechanism.bin must have the SHA-256 asked for, got another: fetch it again")
    start = len(MAGIC) + DIGEST_BYTES
    if data[: len(MAGIC)] != MAGIC or hashlib.sha256(data[start:]).digest() != data[len(MAGIC) : start]:
        raise DamagedArtefactError("mechanism.bin must be as it was written, got changed bytes: fetch it again")
    return Client(data[start:])


def _to_units(kind: int, first: float, second: float) -> tuple[int, int]:
    """Convert a position to the artefact's integer units, from degrees to 1e-7 degrees or from km to mm.

    Args:
        kind: 1 for degrees, or 2 for a plane.
        first: The latitude in degrees, or x in km.
        second: The longitude in degrees, or y in km.

    Raises:
        ValueError: A coordinate is out of range.
    """
    for number, (lower, upper) in zip((first, second), LIMITS[kind], strict=True):
        if not lower <= number <= upper:
            raise ValueError(f"a position must lie between {lower:g} and {upper:g}, got another number")
    # As in every client, halves are rounded up. Longitudes from 180 to 360 degrees are mapped to -180 to 0, as in
    # artefacts.
    unit = PER_UNIT[kind]
    a, b = math.floor(first * unit + 0.5), math.floor(second * unit + 0.5)
    return a, b - 2 * HALF_TURN if kind == KIND_DEGREES and b >= HALF_TURN else b


def _find_nearest(places: Places, a: int, b: int) -> tuple[int, int]:
    """Return the index of the place nearest to a position, and its squared distance in the artefact's units.

    Ties go to the first place. All places are always visited, so that the running time does not depend on the position.
    Differences in longitude are scaled by the cosine of the place's latitude, which is accurate for places near the
    position.

    Args:
        places: The places to search.
        a, b: The latitude and longitude of the position in 1e-7 degrees, or x and y in mm.
    """
    degrees = places.kind == KIND_DEGREES
    # Comparing integers ensures that every client finds the same place.
    nearest_row, min_square = 0, -1
    for row, (row_a, row_b) in enumerate(places.points):
        across = b - row_b
        if degrees:
            # The shorter way round the Earth may cross the date line, so differences are reduced to -180 to 180
            # degrees.
            across += 2 * HALF_TURN * ((across < -HALF_TURN) - (across >= HALF_TURN))
            across = (across * places.cosines[row]) >> 16  # cosines are in 2^-16
        square = (a - row_a) ** 2 + across**2
        if min_square < 0 or square < min_square:
            nearest_row, min_square = row, square
    return nearest_row, min_square
