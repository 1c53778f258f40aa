"""Road networks as regions. The vertices are the nodes and the points that divide long streets."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import numpy as np

from privopt.arrays import Floats, Ints
from privopt.declare.schema import File
from privopt.declare.tables import road_table
from privopt.errors import Fault, Faults, InputError
from privopt.numbers.exp_log_bounds import float_down
from privopt_metric_dp.region.mesh import BETWEEN, MOST_VERTICES
from privopt_metric_dp.region.region import SNAP_STEPS, Streets
from privopt_metric_dp.space.places import Space, check_places

__all__ = ["LONGEST", "streets_of"]

LONGEST = Fraction(1, 2)
"""The largest allowed value of epsilon times the length of a street piece if ``split_km`` is not given.

At this value, snapping raises the loss by 10 %."""


def streets_of(
    edges: File, records: Space, epsilon: Fraction, split_km: float | None, file: str
) -> tuple[Space, Streets]:
    """Read a street network as a region, dividing its long streets.

    Args:
        edges: A file of undirected streets with the columns ``from``, ``to`` and ``km``.
        records: The places, whose ids must be nodes of the network.
        epsilon: Epsilon per km.
        split_km: The length in km above which a street is divided, or None for 0.5 / epsilon.
        file: The name of the problem file, for error messages.

    Returns:
        The vertices as places, and the region. The records come first, followed by the other nodes and the points that
        divide streets.

    Raises:
        InputError: A record is not a node, or there are too many pieces.
    """
    table = road_table(edges)
    number = {name: index for index, name in enumerate(records.ids)}
    # Records get the first indices. The other nodes are numbered in the order in which they occur.
    end_numbers = [[number.setdefault(str(name), len(number)) for name in table[column]] for column in ("from", "to")]
    # The indices of the records at which no street ends.
    isolated = np.setdiff1d(np.arange(len(records)), end_numbers)
    expectation = f"the id of a node in {edges.name}"
    Faults(
        Fault(records.source, f"id {records.ids[p]!r}", "no such node", expectation) for p in isolated.tolist()
    ).check()
    km = np.asarray(table["km"], dtype=np.float64)
    max_length = LONGEST / epsilon if split_km is None else Fraction(split_km)
    parts = [max(1, math.ceil(Fraction(length) / max_length)) for length in km.tolist()]
    if sum(parts) + len(number) > MOST_VERTICES:
        length = "0.5 / epsilon" if split_km is None else f"{split_km:g} km"
        actual = f"pieces of at most {length}, which are {Decimal(sum(parts)):.3g}"
        raise InputError([Fault(file, "privacy.split_km", actual, f"a length that makes fewer than {MOST_VERTICES:,}")])
    # A street of n pieces adds n - 1 vertices. A verifier rejects too many vertices before they are created.
    check_places(sum(parts) - len(parts) + len(number), f"{file}: privacy.split_km")
    ids, simplices, pieces, shares = _divide_streets(list(number), np.array(end_numbers).T, km, parts)
    geographic = records.kind == "geographic"
    vertex_positions = None
    if records.coordinates is not None:
        vertex_positions = _place_vertices(records.coordinates, len(number), shares, geographic=geographic)
    region = Streets(
        size=len(ids),
        simplices=simplices,
        km=pieces,
        steps=SNAP_STEPS,
        positions=vertex_positions,
        geographic=geographic,
    )
    # Either all places in a space have positions or none do, whereas a region may contain some vertices without one.
    is_complete = vertex_positions is not None and bool(np.isfinite(vertex_positions).all())
    return Space(
        ids=ids,
        coordinates=vertex_positions if is_complete else None,
        kind=records.kind if is_complete else "plain",
        source=records.source,
    ), region


def _divide_streets(
    names: list[str], edges: Ints, km: Floats, parts: list[int]
) -> tuple[list[str], Ints, Floats, list[tuple[int, int, Fraction]]]:
    """Divide each street into pieces of equal length.

    Args:
        names: The ids of the nodes.
        edges: Array of shape (E, 2) with the node indices of each street's two ends.
        km: Array of shape (E,) with the lengths of the streets in km.
        parts: The number of pieces for each street.

    Returns:
        Four values: the ids of all vertices; an array of shape (S, 2) with the two ends of each piece; an array of
        shape (S,) with the lengths of the pieces in km, rounded down; and a list with one tuple per added vertex. Each
        tuple contains the two ends of the vertex's street and the vertex's position between them, as a fraction of the
        street's length.
    """
    used_ids = set(names)
    ids, shares = list(names), list[tuple[int, int, Fraction]]()
    simplices, pieces = list[tuple[int, int]](), list[float]()
    for (a, b), length, count in zip(edges.tolist(), km.tolist(), parts, strict=True):
        # `chain` collects the vertices along the street, from its first end to the one before its last.
        chain, step = [a], 1
        for part in range(1, count):
            # Parallel streets share their ends, and the ids of nodes are arbitrary. The number makes each new id
            # unique.
            while (name := f"{names[a]}{BETWEEN}{names[b]}{BETWEEN}{step}") in used_ids:
                step += 1
            used_ids.add(name)
            chain.append(len(ids))
            ids.append(name)
            shares.append((a, b, Fraction(part, count)))
        simplices += zip(chain, [*chain[1:], b], strict=True)
        # Shorter pieces have stricter conditions, so rounding down is safe for privacy.
        pieces += [float_down(Fraction(length) / count)] * count
    return ids, np.array(simplices, dtype=np.int64), np.array(pieces), shares


def _place_vertices(
    coordinates: Floats, nodes: int, shares: list[tuple[int, int, Fraction]], *, geographic: bool
) -> Floats:
    """Return the positions of all vertices. Points that divide a street lie on the line between its ends.

    If positions are in degrees, this line takes the shorter way around the earth in longitude.

    Args:
        coordinates: Array of shape (R, 2) with the positions of the records, which are the first nodes.
        nodes: The number of nodes.
        shares: The two ends of the street of each added vertex, and the vertex's position between them, as a fraction.
        geographic: Whether positions are latitudes and longitudes in degrees.

    Returns:
        Array of shape (N, 2) with the positions of all vertices. Unknown positions are NaN. The position of an added
        vertex is unknown if the position of either end of its street is unknown.
    """
    positions = np.full((nodes, 2), np.nan)
    positions[: len(coordinates)] = coordinates
    if not shares:
        return positions
    a, b = (np.array([division[end] for division in shares]) for end in (0, 1))
    part = np.array([float(division[2]) for division in shares])[:, None]
    step = positions[b] - positions[a]
    if geographic:
        # The longitudes of two ends on opposite sides of the date line differ by about 360 degrees.
        step[:, 1] -= 360.0 * np.rint(step[:, 1] / 360.0)
    between = positions[a] + part * step
    if geographic:  # into [-180, 360], the range allowed for the longitudes of places
        between[:, 1] -= 360.0 * (between[:, 1] > 360.0) - 360.0 * (between[:, 1] < -180.0)
    return np.concatenate([positions, between])
