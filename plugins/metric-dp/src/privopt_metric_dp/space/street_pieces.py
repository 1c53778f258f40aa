"""Divide streets into pieces, for lower-bound proofs that store multipliers (prices) for only some of the records.

A record with multipliers is called priced. A piece is a path between two priced records that does not pass through a
junction. Every record without multipliers lies strictly inside a piece. See
:mod:`privopt_metric_dp.solvers.street_bound` and :mod:`privopt_metric_dp.proof.street_proof`.
"""

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
"""An undirected road: its two node indices and its exact length."""


@frozen(eq=False)
class Inside:
    """The position of each unpriced record on its street piece.

    A record is called priced if multipliers have been computed for it as an output. A piece is a path between two
    priced records that does not pass through a junction.

    Attributes:
        tail, head: Arrays of shape (N,) with the priced records at the two ends of each record's piece, as indices into
            the array of priced records. Both are -1 for a priced record.
        share: Array of shape (N,) with each record's distance from its tail as a fraction of the piece's length,
            strictly between 0 and 1. It is 0 for a priced record.
        rest: Array of shape (N,) with the values 1 - share, each rounded from the exact fraction. It is 0 for a priced
            record.
        chord: Array of shape (N,) with ``rest`` times the record's distance to the tail plus ``share`` times its
            distance to the head. This is the loss of reporting the record itself as predicted by linear interpolation
            between the tail and the head. The true loss is 0.
    """

    tail: Ints
    head: Ints
    share: Floats
    rest: Floats
    chord: Floats


def crossings(roads: Sequence[Road], size: int, places: Ints, longest: float) -> Ints:
    """Select the records to price, such that every other record lies on a street piece between two of them.

    Pricing a record means computing multipliers for it as an output. A street piece is a path that does not pass
    through a junction.

    Args:
        roads: Undirected roads with lengths in km.
        size: The number of nodes.
        places: Array of shape (N,) with the node of each record.
        longest: The largest allowed distance in km between a record and the previous priced record on its street. A
            record that is farther away is priced as well, which splits the piece in two.

    Returns:
        Array of shape (J,) with the indices of the records to price, in ascending order.
    """
    ways = Ways(roads, size)
    neighbours, unit = ways.after, ways.unit  # lengths are integers, in units of 1 / unit km
    record_by_node = {node: number for number, node in enumerate(places.tolist())}
    # Records at junctions and dead ends are priced, and so are records at distance 0 from a neighbour, because none of
    # these can lie strictly inside a piece.
    priced = {node for node in record_by_node if len(neighbours[node]) != 2}
    priced |= {node for node in record_by_node if min(neighbours[node].values(), default=1) == 0}
    # A closed street without a priced node has no ends. One of its records is priced and serves as both ends.
    for node in record_by_node:
        if node not in priced and all(end is None for _, end in _walk_chains(neighbours, node, priced)):
            priced.add(node)
    for start in sorted(priced):
        for chain, _ in _walk_chains(neighbours, start, priced):
            since = 0  # distance from the start to the last record that was priced on this chain
            for node, steps in chain:
                if node in record_by_node and steps - since > longest * unit:
                    priced.add(node)
                    since = steps
    return np.array(sorted(record_by_node[node] for node in priced), dtype=np.int64)


def _walk_chains(
    neighbours: list[dict[int, int]], start: int, priced: set[int]
) -> Iterator[tuple[list[tuple[int, int]], tuple[int, int] | None]]:
    """Follow each chain of roads that leaves a node, up to the first priced node, junction or dead end.

    Args:
        neighbours: For each node, a mapping from its neighbours to the lengths of the connecting roads in integer
            units.
        start: The node from which all chains start.
        priced: The nodes of the records for which multipliers are stored. A chain ends at the first such node.

    Yields:
        For each chain, a list of its interior nodes with their distances from the start in integer units, and the
        priced node at its end with its distance, or None if the chain does not end at a priced node.
    """
    # The branches are sorted, so that the selection does not depend on the order of the roads.
    for branch in sorted(neighbours[start]):
        previous, current, steps, interior = start, branch, neighbours[start][branch], list[tuple[int, int]]()
        while current not in priced and current != start and len(neighbours[current]) == 2:
            interior.append((current, steps))
            following = next(neighbour for neighbour in neighbours[current] if neighbour != previous)
            steps += neighbours[current][following]
            previous, current = current, following
        yield interior, (current, steps) if current in priced else None


def pieces_of(roads: Sequence[Road], size: int, places: Ints, priced: Ints, to_priced: Floats | None = None) -> Inside:
    """Find the street piece that contains each unpriced record.

    A record is priced if multipliers are stored for it as an output. A street piece is a path between two priced
    records that does not pass through a junction. The multipliers for an output inside a piece can be derived from the
    multipliers of the priced records at its two ends.

    Args:
        roads: All roads in the undirected network. If several roads connect two nodes, the shortest one is used.
        size: The number of nodes.
        places: Array of shape (N,) with the node of each record.
        priced: Array of shape (J,) with the indices of the priced records, in ascending order.
        to_priced: Array of shape (N, J) with the distances from records to priced records. If None, ``Inside.chord`` is
            all zeros.

    Raises:
        CertificationError: A record is neither priced nor strictly inside a piece.
    """
    # `after` maps each node's neighbours to the length of the shortest connecting road, in integer units.
    neighbours = Ways(roads, size).after
    record_by_node = {node: number for number, node in enumerate(places.tolist())}
    # For the node of each priced record, the record's index into `priced`.
    index_by_node = {int(places[record]): index for index, record in enumerate(priced.tolist())}
    count, priced_nodes = len(places), set(index_by_node)
    tail, head = np.full(count, -1), np.full(count, -1)
    shares, rests, chord = np.zeros(count), np.zeros(count), np.zeros(count)
    for start in index_by_node:
        for interior, end in _walk_chains(neighbours, start, priced_nodes):
            for node, steps in interior if end is not None else []:
                assert end is not None  # the loop is empty otherwise
                record = record_by_node.get(node, -1)
                # Each piece is traversed from both of its ends. The end from which it is traversed first is the tail.
                if record < 0 or tail[record] >= 0 or not 0 < steps < end[1]:
                    continue
                tail[record], head[record] = index_by_node[start], index_by_node[end[0]]
                shares[record] = float(Fraction(steps, end[1]))
                rests[record] = float(Fraction(end[1] - steps, end[1]))
    free = np.ones(count, dtype=np.bool_)
    free[priced] = False
    without_piece = np.flatnonzero(free & (tail < 0))
    if without_piece.size:
        raise CertificationError(
            f"bound_outputs: record {without_piece[0]} is neither one of them nor on a street between two of them"
        )
    if to_priced is not None:
        free_records = np.flatnonzero(free)
        chord[free_records] = (
            rests[free_records] * to_priced[free_records, tail[free_records]]
            + shares[free_records] * to_priced[free_records, head[free_records]]
        )
    return Inside(tail, head, shares, rests, chord)
