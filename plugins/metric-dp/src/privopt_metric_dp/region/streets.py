"""A road network as a region: its vertices are all nodes and the points that divide long streets."""

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
"""epsilon times length that streets have at most where no other length is asked for: snapping costs 10 % there."""


def streets_of(
    edges: File, records: Space, epsilon: Fraction, split_km: float | None, file: str
) -> tuple[Space, Streets]:
    """Return the network that joins records, and its vertices: the records, other nodes, points that divide streets.

    Args:
        edges: from,to,km; undirected.
        records: nodes.
        epsilon: per km.
        split_km: the length up to which a street stays whole; default: 0.5 / epsilon.
        file: name of the problem file, for faults.
    """
    table = road_table(edges)
    number = {name: index for index, name in enumerate(records.ids)}
    end_numbers = [[number.setdefault(str(name), len(number)) for name in table[column]] for column in ("from", "to")]
    lost = np.setdiff1d(np.arange(len(records)), end_numbers)
    expectation = f"the id of a node in {edges.name}"
    Faults(Fault(records.source, f"id {records.ids[p]!r}", "no such node", expectation) for p in lost.tolist()).check()
    km = np.asarray(table["km"], dtype=np.float64)
    max_length = LONGEST / epsilon if split_km is None else Fraction(split_km)
    parts = [max(1, math.ceil(Fraction(length) / max_length)) for length in km.tolist()]
    if sum(parts) + len(number) > MOST_VERTICES:
        length = "0.5 / epsilon" if split_km is None else f"{split_km:g} km"
        actual = f"pieces of at most {length}, which are {Decimal(sum(parts)):.3g}"
        raise InputError([Fault(file, "privacy.split_km", actual, f"a length that makes fewer than {MOST_VERTICES:,}")])
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
    """Ids of all vertices, pieces (S, 2), their lengths rounded down, and where each added vertex lies."""
    used_ids = set(names)
    ids, shares = list(names), list[tuple[int, int, Fraction]]()
    simplices, pieces = list[tuple[int, int]](), list[float]()
    for (a, b), length, count in zip(edges.tolist(), km.tolist(), parts, strict=True):
        chain, step = [a], 1
        for part in range(1, count):
            while (name := f"{names[a]}{BETWEEN}{names[b]}{BETWEEN}{step}") in used_ids:
                step += 1
            used_ids.add(name)
            chain.append(len(ids))
            ids.append(name)
            shares.append((a, b, Fraction(part, count)))
        simplices += zip(chain, [*chain[1:], b], strict=True)
        pieces += [float_down(Fraction(length) / count)] * count
    return ids, np.array(simplices, dtype=np.int64), np.array(pieces), shares


def _place_vertices(
    coordinates: Floats, nodes: int, shares: list[tuple[int, int, Fraction]], *, geographic: bool
) -> Floats:
    """(N, 2) of all vertices: points that divide a street lie on the straight line between its ends; NaN: unknown.

    On the earth that is the line the short way round.
    """
    positions = np.full((nodes, 2), np.nan)
    positions[: len(coordinates)] = coordinates
    if not shares:
        return positions
    a, b = (np.array([division[end] for division in shares]) for end in (0, 1))
    part = np.array([float(division[2]) for division in shares])[:, None]
    step = positions[b] - positions[a]
    if geographic:
        step[:, 1] -= 360.0 * np.rint(step[:, 1] / 360.0)
    between = positions[a] + part * step
    if geographic:  # longitudes are from -180 to 360
        between[:, 1] -= 360.0 * (between[:, 1] > 360.0) - 360.0 * (between[:, 1] < -180.0)
    return np.concatenate([positions, between])
