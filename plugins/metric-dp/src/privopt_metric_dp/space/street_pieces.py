"""Pieces of street: paths between two priced nodes without a crossing between them, and the records on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt.errors import CertificationError
from privopt_metric_dp.space.exactly import Ways

__all__ = ["Inside", "crossings", "pieces_of"]

Road = tuple[int, int, Fraction]
"""Two nodes, and the length of a road between them that may be gone both ways."""


@frozen(eq=False)
class Inside:
    """Records strictly inside pieces of street, by row.

    Attributes:
        tail, head: (N,) numbers of the priced records at the ends of a record's piece; -1: the record is priced.
        share: (N,) doubles nearest to how far along from tail to head it lies, of the whole, above 0 and below 1.
        rest: (N,) doubles nearest to 1 less that.
        chord: (N,) doubles nearest to what the loss at the record lacks of the chord between the losses at both ends:
            the mean of the distances to them, weighted by shares.
    """

    tail: Ints
    head: Ints
    share: Floats
    rest: Floats
    chord: Floats


def crossings(roads: Sequence[Road], size: int, places: Ints, longest: float) -> Ints:
    """Return records (J,), in order, such that each is one of them or strictly inside a piece of street between two.

    Args:
        roads: undirected.
        size: number of nodes.
        places: (N,) node of each record.
        longest: pieces that are longer are cut, where records lie on them.

    Raises:
        CertificationError: a crossing that is not a record, or a round trip without one.
    """
    ways = Ways(roads, size)
    neighbours, unit = ways.after, ways.unit
    row = {node: number for number, node in enumerate(places.tolist())}
    priced = {node for node in row if len(neighbours[node]) != 2}
    priced |= {node for node in row if min(neighbours[node].values(), default=1) == 0}
    for node in row:  # round trips without a crossing
        if node not in priced and all(end is None for _, end in _walk_chains(neighbours, node, priced)):
            priced.add(node)
    for start in sorted(priced):
        for chain, _ in _walk_chains(neighbours, start, priced):
            since = 0
            for node, steps in chain:
                if node in row and steps - since > longest * unit:
                    priced.add(node)
                    since = steps
    return np.array(sorted(row[node] for node in priced), dtype=np.int64)


def _walk_chains(
    neighbours: list[dict[int, int]], start: int, priced: set[int]
) -> Iterator[tuple[list[tuple[int, int]], tuple[int, int] | None]]:
    """Ways from a node: nodes inside with the steps up to each; the priced end with all steps, None without."""
    for branch in sorted(neighbours[start]):
        previous, current, steps, interior = start, branch, neighbours[start][branch], list[tuple[int, int]]()
        while current not in priced and current != start and len(neighbours[current]) == 2:
            interior.append((current, steps))
            following = next(neighbour for neighbour in neighbours[current] if neighbour != previous)
            steps += neighbours[current][following]
            previous, current = current, following
        yield interior, (current, steps) if current in priced else None


def pieces_of(roads: Sequence[Road], size: int, places: Ints, priced: Ints, to_priced: Floats | None = None) -> Inside:
    """Find the piece of street of each record that is not priced.

    Args:
        roads: undirected, all of the network; of parallel ones the shortest counts.
        size: number of nodes.
        places: (N,) node of each record.
        priced: (J,) records, in order.
        to_priced: (N, J) distances; default: ``chord`` is 0.

    Raises:
        CertificationError: a record that is neither priced nor strictly inside a piece between two priced ones.
    """
    neighbours = Ways(roads, size).after
    row = {node: number for number, node in enumerate(places.tolist())}
    number = {int(places[record]): index for index, record in enumerate(priced.tolist())}
    count, priced_nodes = len(places), set(number)
    tail, head = np.full(count, -1), np.full(count, -1)
    shares, rests, chord = np.zeros(count), np.zeros(count), np.zeros(count)
    for start in number:
        for interior, end in _walk_chains(neighbours, start, priced_nodes):
            for node, steps in interior if end is not None else []:
                assert end is not None  # as the line above has it
                record = row.get(node, -1)
                if record < 0 or tail[record] >= 0 or not 0 < steps < end[1]:
                    continue
                tail[record], head[record] = number[start], number[end[0]]
                shares[record] = float(Fraction(steps, end[1]))
                rests[record] = float(Fraction(end[1] - steps, end[1]))
    free = np.ones(count, dtype=np.bool_)
    free[priced] = False
    lost = np.flatnonzero(free & (tail < 0))
    if lost.size:
        raise CertificationError(f"bound_outputs: record {lost[0]} is neither one nor inside a street between two")
    if to_priced is not None:
        free_records = np.flatnonzero(free)
        chord[free_records] = (
            rests[free_records] * to_priced[free_records, tail[free_records]]
            + shares[free_records] * to_priced[free_records, head[free_records]]
        )
    return Inside(tail, head, shares, rests, chord)
