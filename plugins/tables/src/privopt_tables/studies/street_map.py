"""Streets from OpenStreetMap (.osm, .osm.pbf) as a problem's places and roads (``privopt init --osm``).

Nodes of ways tagged ``highway`` become places, and the stretches between them become roads. Only the largest connected
part stays. The result depends on the map alone, not on the order of its elements in the file.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import pairwise
from math import fsum
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from attrs import evolve, frozen

from privopt.arrays import Bools, Floats
from privopt.errors import Fault, InputError, UsageError, number_of, reason_of
from privopt.numbers.distances import haversine
from privopt.numbers.graphs import components

__all__ = ["StreetMap", "box_area", "read_streets"]

LINKED: Final = ("motorway", "trunk", "primary", "secondary", "tertiary")
DRIVEN: Final = frozenset(
    (*LINKED, *(f"{kind}_link" for kind in LINKED), "unclassified", "residential", "living_street", "service", "road")
)
"""Values of ``highway`` that cars use."""
WALKED: Final = DRIVEN | frozenset(("pedestrian", "footway", "path", "steps", "cycleway", "track", "corridor"))
"""Values of ``highway`` that people on foot use, the roads of cars among them."""
CAR_ACCESS: Final = ("motorcar", "motor_vehicle", "vehicle")
FOOT_ACCESS: Final = ("foot",)
"""Tags that say whether a ferry takes cars, or people on foot, the most specific first. Without them it does."""
FORWARD: Final = frozenset(("yes", "true", "1"))
"""Values of ``oneway`` for a way that is taken in the direction of its nodes only."""
ENDINGS: Final = (".osm.pbf", ".pbf", ".osm", ".osm.gz", ".osm.bz2")

Position = tuple[float, float]
"""Latitude and longitude, degrees."""
Area = Callable[[Floats], Bools]
"""Says which positions (N, 2), in degrees, are inside."""


@frozen(kw_only=True, eq=False)
class StreetMap:
    """Streets between places.

    Attributes:
        places: id -> (latitude, longitude), degrees.
        km: (from, to) -> length of the shortest stretch, for each direction that may be taken.
        notes: what was taken and what was omitted, a sentence each.
        one_way: whether travel along the roads' directions is to be the loss.
    """

    places: dict[str, Position]
    km: dict[tuple[str, str], float]
    notes: tuple[str, ...] = ()
    one_way: bool = False

    def write(self, points: Path, roads: Path) -> None:
        """Write the tables id,lat,lon and from,to,km (a row for each direction)."""
        positions = np.array(list(self.places.values()))
        pl.DataFrame({"id": list(self.places), "lat": positions[:, 0], "lon": positions[:, 1]}).write_csv(points)
        tails, heads = zip(*self.km, strict=True)
        pl.DataFrame({"from": tails, "to": heads, "km": list(self.km.values())}).write_csv(roads)


def box_area(text: str) -> Area:
    """Return the area inside ``S,W,N,E``, in degrees.

    Raises:
        UsageError: The text is not four numbers, or they are out of order.
    """
    try:
        south, west, north, east = map(float, text.split(","))
    except ValueError:
        raise UsageError(
            f"--box {text}: must be four numbers S,W,N,E in degrees, such as 60.1,24.9,60.2,25.1"
        ) from None
    if not (-90 <= south < north <= 90 and -180 <= west < east <= 180):
        raise UsageError(f"--box {text}: S must be less than N (-90 to 90), W less than E (-180 to 180)")
    min_corner, max_corner = np.array([south, west]), np.array([north, east])
    return lambda positions: np.asarray(((positions >= min_corner) & (positions <= max_corner)).all(axis=1))


def read_streets(
    file: Path,
    *,
    area: Area | None = None,
    walk: bool = False,
    bends: bool = False,
    ferries: bool = False,
    one_way: bool = False,
) -> StreetMap:
    """Read the streets of a map file, and keep those of the largest connected part.

    Args:
        file: OpenStreetMap data. The ending tells its format.
        area: Nodes outside it are omitted. None takes all.
        walk: Take footways too, and every way in both directions.
        bends: Keep nodes that merely bend a street.
        ferries: Take the lines of ferries too.
        one_way: Keep the largest part in which one-way streets lead from every place to every other. Otherwise parts
            count as connected whatever the direction of their streets.

    Raises:
        InputError: The file cannot be read, or has no streets.
    """
    if not file.name.lower().endswith(ENDINGS):
        raise InputError([Fault(str(file), "", "an unknown ending", f"one of {', '.join(ENDINGS)}")])
    if not file.is_file():
        raise InputError([Fault(str(file), "", "no such file", "OpenStreetMap data")])
    extract = _read_extract(file, walk, ferries)
    places, notes = extract.positions, [*extract.notes]
    if area is not None and places:
        is_inside = area(np.array(list(places.values()))).tolist()
        notes.append(f"{is_inside.count(False):,} nodes outside the area asked for are omitted")
        places = {name: position for (name, position), inside in zip(places.items(), is_inside, strict=True) if inside}
    km = _measure_stretches(extract.ways, places)
    if not km:
        where = "" if area is None else " in the area asked for"
        raise InputError([Fault(str(file), "", f"no streets{where}", "ways tagged highway between two nodes")])
    streets = _select_largest_part(StreetMap(places=places, km=km, one_way=one_way))
    if not streets.km:
        expectation = "streets that lead somewhere and back, or no --one-way"
        raise InputError([Fault(str(file), "", "one-way streets alone, none of which leads back", expectation)])
    reason = "without a way there and back in" if one_way else "that no street joins to"
    notes.append(f"{len(places) - len(streets.places):,} nodes {reason} the largest part are omitted")
    if not bends:
        joined_count = len(streets.places)
        streets = _contract_bends(streets)
        notes.append(f"{joined_count - len(streets.places):,} nodes that merely bend a street are passed through")
    return evolve(streets, notes=tuple(notes))


@frozen(kw_only=True)
class _Way:
    """A street or a ferry line: its nodes in order, and the directions in which it may be taken."""

    nodes: tuple[str, ...]
    forward: bool
    backward: bool


@frozen(kw_only=True, eq=False)
class _Extract:
    """What a map file holds: the ways that are taken, and the positions of their nodes in the order of their ids.

    Attributes:
        ways: in the order of the file.
        positions: of the nodes of these ways; an extract may lack some.
        notes: what was taken and what was omitted, a sentence each.
    """

    ways: list[_Way]
    positions: dict[str, Position]
    notes: list[str]


def _read_extract(file: Path, walk: bool, ferries: bool) -> _Extract:
    """Read the ways of streets, and of ferries if asked for."""
    try:
        import osmium
    except ModuleNotFoundError as error:
        raise UsageError("--osm: needs osmium, which the extra 'osm' of privopt-tables installs") from error

    kinds = WALKED if walk else DRIVEN
    ways: list[_Way] = []
    positions: dict[int, Position] = {}
    ferry_count = other_count = 0
    try:
        reader: Any = osmium.FileProcessor(str(file), osmium.osm.NODE | osmium.osm.WAY).with_locations()
        for way in reader.with_filter(osmium.filter.KeyFilter("highway", "route")):
            if not way.is_way():
                continue
            tags = dict(way.tags)
            is_street = tags.get("highway") in kinds and tags.get("area") != "yes"
            is_ferry = not is_street and tags.get("route") == "ferry" and _takes_passengers(tags, walk)
            ferry_count += is_ferry
            if not is_street and not (is_ferry and ferries):
                other_count += not is_ferry and ("highway" in tags or tags["route"] == "ferry")
                continue
            positions.update({node.ref: (node.lat, node.lon) for node in way.nodes if node.location.valid()})
            ways.append(_directed_way(tuple(str(node.ref) for node in way.nodes), tags, walk))
    except RuntimeError as error:
        raise InputError([Fault(str(file), "", f"unreadable ({reason_of(error)})", "OpenStreetMap data")]) from None
    # Places are in the order of their ids, so that the order of the file's elements has no effect.
    named_positions = {str(node): positions[node] for node in sorted(positions)}
    kind = "streets and footways" if walk else "streets that cars use, which --walk adds footways to,"
    street_count = len(ways) - ferry_count * ferries
    notes = [f"{street_count:,} ways are {kind} with {len(positions):,} nodes; {other_count:,} other ways are omitted"]
    if ferry_count:
        lines = number_of(ferry_count, "ferry line")
        notes.append(f"taken too: {lines}" if ferries else f"omitted too: {lines}, which --ferries takes")
    missing_count = len({node for way in ways for node in way.nodes} - named_positions.keys())
    if missing_count:
        notes.append(f"{missing_count:,} nodes of them have no position in this file and are omitted")
    return _Extract(ways=ways, positions=named_positions, notes=notes)


def _takes_passengers(tags: Mapping[str, str], walk: bool) -> bool:
    """Return whether a ferry takes cars, or people on foot."""
    access = next((tags[key] for key in (FOOT_ACCESS if walk else CAR_ACCESS) if key in tags), "yes")
    return access != "no"


def _directed_way(nodes: tuple[str, ...], tags: Mapping[str, str], walk: bool) -> _Way:
    """Return a way with the directions in which it may be taken: on foot both."""
    oneway = tags.get("oneway", "no")
    forward = oneway != "-1"
    backward = not forward or not (oneway in FORWARD or tags.get("junction") == "roundabout")
    return _Way(nodes=nodes, forward=forward or walk, backward=backward or walk)


def _measure_stretches(ways: Sequence[_Way], places: Mapping[str, Position]) -> dict[tuple[str, str], float]:
    """Return the great-circle km of each stretch between two of the places, for each direction that may be taken."""
    pairs = {
        pair
        for way in ways
        for a, b in pairwise(way.nodes)
        if a != b and a in places and b in places
        for pair in [(a, b)] * way.forward + [(b, a)] * way.backward
    }
    if not pairs:
        return {}
    rank = _ranks(places)
    ordered_pairs = sorted(pairs, key=lambda pair: (rank[pair[0]], rank[pair[1]]))
    tails, heads = (np.array([places[pair[end]] for pair in ordered_pairs]) for end in (0, 1))
    return dict(zip(ordered_pairs, haversine(tails, heads).tolist(), strict=True))


def _select_largest_part(streets: StreetMap) -> StreetMap:
    """Return the connected part with most places; of one-way maps the part with ways from each place to each other."""
    rank = _ranks(streets.places)
    pairs = np.array([(rank[a], rank[b]) for a, b in streets.km])
    labels = components(len(rank), pairs, strong=streets.one_way)
    is_kept = labels == np.bincount(labels).argmax()
    places = {name: streets.places[name] for name, number in rank.items() if is_kept[number]}
    km = {(a, b): length for (a, b), length in streets.km.items() if a in places and b in places}
    return evolve(streets, places=places, km=km)


def _contract_bends(streets: StreetMap) -> StreetMap:
    """Replace each chain of nodes that merely bend a street by one road between its ends.

    Which nodes are bends is decided on the given map, before any of them goes: a junction whose streets are
    contracted into one another stays a junction. A street that returns to its own junction keeps its middle node.
    """
    neighbours = _neighbours(streets)
    bends = {name for name in streets.places if _is_bend(name, neighbours, streets)}
    if len(bends) == len(streets.places):
        bends.discard(next(iter(streets.places)))  # a ring without a junction keeps one node, and so its middle node
    bends -= _loop_middles(streets, neighbours, bends)
    km: dict[tuple[str, str], float] = {}
    for start, first in streets.km:
        if start in bends:
            continue
        chain = _follow_chain(start, first, neighbours, bends)
        # fsum rounds once: both directions of a street get the same length
        length = fsum(streets.km[pair] for pair in pairwise(chain))
        km[start, chain[-1]] = min(length, km.get((start, chain[-1]), length))
    rank = _ranks(streets.places)
    km = {pair: km[pair] for pair in sorted(km, key=lambda pair: (rank[pair[0]], rank[pair[1]]))}
    places = {name: position for name, position in streets.places.items() if name not in bends}
    return evolve(streets, places=places, km=km)


def _neighbours(streets: StreetMap) -> dict[str, list[str]]:
    """Return the neighbours of each place, in either direction, in the order of the places."""
    rank = _ranks(streets.places)
    sets: dict[str, set[str]] = {name: set() for name in streets.places}
    for a, b in streets.km:
        sets[a].add(b)
        sets[b].add(a)
    return {name: sorted(found, key=rank.__getitem__) for name, found in sets.items()}


def _is_bend(name: str, neighbours: Mapping[str, Sequence[str]], streets: StreetMap) -> bool:
    """Return whether a node joins two others by streets of one kind: both two-way, or one-way in one direction."""
    if len(neighbours[name]) != 2:
        return False
    a, b = neighbours[name]
    enters_a, enters_b = ((side, name) in streets.km for side in (a, b))
    leaves_a, leaves_b = ((name, side) in streets.km for side in (a, b))
    return enters_a == leaves_b and enters_b == leaves_a


def _follow_chain(start: str, first: str, neighbours: Mapping[str, Sequence[str]], bends: Collection[str]) -> list[str]:
    """Return the nodes from a place along a street until the next one that is no bend."""
    chain = [start, first]
    while chain[-1] in bends:
        a, b = neighbours[chain[-1]]
        chain.append(b if a == chain[-2] else a)
    return chain


def _loop_middles(streets: StreetMap, neighbours: Mapping[str, Sequence[str]], bends: Collection[str]) -> set[str]:
    """Return the middle nodes of streets that return to their own junction; without one the street would be lost."""
    rank, middles = _ranks(streets.places), set()
    for start, first in streets.km:
        if start in bends or first not in bends:
            continue
        chain = _follow_chain(start, first, neighbours, bends)
        if chain[-1] == start:
            inner = chain[1:-1]
            # of an even number of nodes the first by id, so that both directions name the same node
            middles.add(min(inner[(len(inner) - 1) // 2], inner[len(inner) // 2], key=rank.__getitem__))
    return middles


def _ranks(places: Mapping[str, Position]) -> dict[str, int]:
    """Return the number of each place, in the order of their ids."""
    return {name: number for number, name in enumerate(places)}
