"""Read streets from OpenStreetMap (.osm, .osm.pbf) as a problem's places and roads (``privopt init --osm``).

Nodes of ways tagged ``highway`` become places, and the stretches of street between neighbouring places become roads.
Only the largest connected component is kept. The result depends only on the map, not on the order of the elements in
the file.
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

__all__ = ["Addresses", "StreetMap", "box_area", "read_streets"]

LINKED: Final = ("motorway", "trunk", "primary", "secondary", "tertiary")
DRIVEN: Final = frozenset(
    (*LINKED, *(f"{kind}_link" for kind in LINKED), "unclassified", "residential", "living_street", "service", "road")
)
"""Values of the ``highway`` tag for ways that cars may use."""
WALKED: Final = DRIVEN | frozenset(("pedestrian", "footway", "path", "steps", "cycleway", "track", "corridor"))
"""Values of the ``highway`` tag for ways that pedestrians may use, including those that cars may use."""
CAR_ACCESS: Final = ("motorcar", "motor_vehicle", "vehicle")
FOOT_ACCESS: Final = ("foot",)
"""Tags that say whether a ferry takes cars (CAR_ACCESS) or people on foot (FOOT_ACCESS), the most specific first. A
ferry without these tags takes both."""
FORWARD: Final = frozenset(("yes", "true", "1"))
"""Values of the ``oneway`` tag for ways that may be used only in the order of their nodes."""
ENDINGS: Final = (".osm.pbf", ".pbf", ".osm", ".osm.gz", ".osm.bz2")

KM_PER_ADDRESS: Final = 0.025
"""Assumed length of street per address, in km, for maps with too few addresses. Lots are about 20 m wide and lie on one
or both sides of the street."""
MIN_MAPPED_SHARE: Final = 0.25
"""Minimum number of addresses on a map, as a fraction of the number estimated from its streets. A map with fewer
addresses is considered to have too few."""

Position = tuple[float, float]
"""A latitude and a longitude in degrees."""
Area = Callable[[Floats], Bools]
"""A function that takes an (N, 2) array of positions in degrees and returns an (N,) mask of those inside an area."""


@frozen(kw_only=True, eq=False)
class Addresses:
    """The number of addresses at each place on a map, either counted or estimated.

    Attributes:
        counts: (N,) The number of addresses at each place, in the order of the places.
        is_counted: Whether the addresses were counted on the map. If False, their numbers are estimated from the
            lengths of streets.
    """

    counts: Floats
    is_counted: bool


@frozen(kw_only=True, eq=False)
class StreetMap:
    """A graph of streets between places.

    Attributes:
        places: The positions of the places (latitude, longitude) in degrees, keyed by id.
        km: The length in km of the shortest stretch between two neighbouring places, keyed by (from, to). There is an
            entry for each permitted direction.
        notes: Notes on which elements of the map were used and which were omitted.
        one_way: Whether the loss is the error in travel distance along the directed roads.
        addresses: The positions (latitude, longitude) of the nodes and buildings in the area that have a house number.
    """

    places: dict[str, Position]
    km: dict[tuple[str, str], float]
    notes: tuple[str, ...] = ()
    one_way: bool = False
    addresses: tuple[Position, ...] = ()

    def count_addresses(self) -> Addresses:
        """Count or estimate the addresses at each place.

        Each address is assigned to its nearest place. If the map has too few addresses, their number is estimated from
        the lengths of streets instead, and each end of a street gets half of the street's addresses.
        """
        from scipy.spatial import cKDTree

        rank = _ranks(self.places)
        estimated: Floats = np.zeros(len(rank))
        # Sorting the pairs merges the two directions of a street into one.
        for (a, b), km in {tuple(sorted(pair)): km for pair, km in self.km.items()}.items():
            for end in (a, b):
                estimated[rank[end]] += km / KM_PER_ADDRESS / 2
        if len(self.addresses) < MIN_MAPPED_SHARE * estimated.sum():
            return Addresses(counts=estimated, is_counted=False)
        positions = np.array(list(self.places.values()))
        # Degrees of longitude are shorter than those of latitude. Scaling by the cosine of the mean latitude is exact
        # enough to find the nearest place.
        scale = np.array([1.0, np.cos(np.radians(positions[:, 0].mean()))])
        _, nearest = cKDTree(positions * scale).query(np.array(self.addresses) * scale)
        counts = np.bincount(nearest, minlength=len(rank)).astype(np.float64)
        return Addresses(counts=counts, is_counted=True)

    def write(self, points: Path, roads: Path) -> None:
        """Write the places and the roads as CSV tables.

        Args:
            points: The file for the places, with the columns id, lat and lon.
            roads: The file for the roads, with the columns from, to and km, and one row for each permitted direction.
        """
        positions = np.array(list(self.places.values()))
        pl.DataFrame({"id": list(self.places), "lat": positions[:, 0], "lon": positions[:, 1]}).write_csv(points)
        tails, heads = zip(*self.km, strict=True)
        pl.DataFrame({"from": tails, "to": heads, "km": list(self.km.values())}).write_csv(roads)


def box_area(text: str) -> Area:
    """Parse a box ``S,W,N,E`` in degrees, and return a function that tests whether positions are inside.

    Raises:
        UsageError: ``text`` does not consist of four numbers, or the numbers are out of order or out of range.
    """
    try:
        south, west, north, east = map(float, text.split(","))
    except ValueError:
        raise UsageError(
            f"--box {text}: must be four numbers S,W,N,E in degrees, such as 60.1,24.9,60.2,25.1"
        ) from None
    if not (-90 <= south < north <= 90 and -180 <= west < east <= 180):
        raise UsageError(f"--box {text}: S must be less than N (-90 to 90), W less than E (-180 to 180)")
    # Positions are (latitude, longitude).
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
    """Read the streets in a map file, and return those in the largest connected component.

    Args:
        file: The file of OpenStreetMap data. Its format is determined by its extension.
        area: The area in which nodes are kept. If None, all nodes are kept.
        walk: Whether to include footways and treat every way as two-way.
        bends: Whether to keep nodes at which a street merely bends.
        ferries: Whether to include ferry lines.
        one_way: Whether to respect one-way streets when determining connected components. If so, every place in the
            result can be reached from every other place.

    Raises:
        InputError: The file cannot be read or has an unknown extension, there are no streets in the area, or
            ``one_way`` is set and no streets lead back to where they start.
        UsageError: osmium is not installed.
    """
    if not file.name.lower().endswith(ENDINGS):
        raise InputError([Fault(str(file), "", "an unknown ending", f"one of {', '.join(ENDINGS)}")])
    if not file.is_file():
        raise InputError([Fault(str(file), "", "no such file", "OpenStreetMap data")])
    extract = _read_extract(file, walk, ferries)
    places, notes, addresses = extract.positions, [*extract.notes], extract.addresses
    if area is not None and addresses:
        is_inside = area(np.array(addresses)).tolist()
        addresses = [address for address, is_in_area in zip(addresses, is_inside, strict=True) if is_in_area]
    if area is not None and places:
        in_area_flags = area(np.array(list(places.values()))).tolist()
        notes.append(f"{in_area_flags.count(False):,} nodes outside the area asked for are omitted")
        places = {
            name: position
            for (name, position), is_in_area in zip(places.items(), in_area_flags, strict=True)
            if is_in_area
        }
    km = _measure_stretches(extract.ways, places)
    if not km:
        where = "" if area is None else " in the area asked for"
        raise InputError([Fault(str(file), "", f"no streets{where}", "ways tagged highway between two nodes")])
    # Only one component is kept, because there is no finite distance between places of different components.
    streets = _select_largest_part(StreetMap(places=places, km=km, one_way=one_way))
    # If no street leads back, every place is a strongly connected component of its own, and no street remains.
    if not streets.km:
        expectation = "streets that lead somewhere and back, or no --one-way"
        raise InputError([Fault(str(file), "", "one-way streets alone, none of which leads back", expectation)])
    reason = "without a way there and back in" if one_way else "that no street joins to"
    notes.append(f"{len(places) - len(streets.places):,} nodes {reason} the largest part are omitted")
    if not bends:
        joined_count = len(streets.places)
        streets = _contract_bends(streets)
        notes.append(f"{joined_count - len(streets.places):,} nodes that merely bend a street are passed through")
    return evolve(streets, notes=tuple(notes), addresses=tuple(addresses))


@frozen(kw_only=True)
class _Way:
    """A street or a ferry line.

    Attributes:
        nodes: The ids of the way's nodes, in order.
        forward, backward: Whether the way may be used in the order of its nodes (forward) and in the reverse order
            (backward).
    """

    nodes: tuple[str, ...]
    forward: bool
    backward: bool


@frozen(kw_only=True, eq=False)
class _Extract:
    """The parts of a map file used by :func:`read_streets`.

    Attributes:
        ways: The streets and ferry lines to use, in the order of the file.
        positions: The positions (latitude, longitude) of the nodes on these ways, keyed and sorted by id. Nodes that
            have no position in the file are omitted.
        notes: Notes on which ways and nodes were used and which were omitted.
        addresses: The positions of nodes and buildings with a house number, in the order of the file.
    """

    ways: list[_Way]
    positions: dict[str, Position]
    notes: list[str]
    addresses: list[Position]


def _read_extract(file: Path, walk: bool, ferries: bool) -> _Extract:
    """Read the streets and, if requested, the ferry lines, with the positions of their nodes.

    Args:
        file: The file of OpenStreetMap data.
        walk: Whether to read ways for pedestrians too, in addition to those that cars may use, and all of them in both
            directions.
        ferries: Whether to also read ferry lines.

    Raises:
        UsageError: osmium is not installed.
        InputError: The file cannot be read.
    """
    try:
        import osmium
    except ModuleNotFoundError as error:
        raise UsageError("--osm: needs osmium, which the extra 'osm' of privopt-tables installs") from error

    kinds = WALKED if walk else DRIVEN
    ways: list[_Way] = []
    positions: dict[int, Position] = {}
    ferry_count = other_count = 0
    try:
        # Ways contain only their nodes' ids. osmium adds the positions.
        reader: Any = osmium.FileProcessor(str(file), osmium.osm.NODE | osmium.osm.WAY).with_locations()
        for way in reader.with_filter(osmium.filter.KeyFilter("highway", "route")):
            if not way.is_way():
                continue
            tags = dict(way.tags)
            # A way that is tagged as an area is, for example, a square or a car park. Its outline is not a street.
            is_street = tags.get("highway") in kinds and tags.get("area") != "yes"
            is_ferry = not is_street and tags.get("route") == "ferry" and _takes_passengers(tags, walk)
            ferry_count += is_ferry
            if not is_street and not (is_ferry and ferries):
                # Bus routes and the like are not streets, so they are not counted as omitted.
                other_count += not is_ferry and ("highway" in tags or tags["route"] == "ferry")
                continue
            # A map that was cut out of a larger one may lack nodes outside its area.
            positions.update({node.ref: (node.lat, node.lon) for node in way.nodes if node.location.valid()})
            ways.append(_directed_way(tuple(str(node.ref) for node in way.nodes), tags, walk))
        addresses = _read_addresses(osmium, file)
    except RuntimeError as error:
        raise InputError([Fault(str(file), "", f"unreadable ({reason_of(error)})", "OpenStreetMap data")]) from None
    # Places are sorted by id, so that the order of elements in the file has no effect.
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
    return _Extract(ways=ways, positions=named_positions, notes=notes, addresses=addresses)


def _read_addresses(osmium: Any, file: Path) -> list[Position]:
    """Return the positions of nodes and buildings with a house number, in the order of the file.

    Positions are latitudes and longitudes in degrees. A building's position is taken from its first node with a known
    position.

    Args:
        osmium: The osmium module, which the caller imports only when needed.
        file: The map file.
    """
    reader: Any = osmium.FileProcessor(str(file), osmium.osm.NODE | osmium.osm.WAY).with_locations()
    addresses = []
    for element in reader.with_filter(osmium.filter.KeyFilter("addr:housenumber")):
        locations = [element.location] if element.is_node() else [node.location for node in element.nodes]
        position = next(((place.lat, place.lon) for place in locations if place.valid()), None)
        if position is not None:
            addresses.append(position)
    return addresses


def _takes_passengers(tags: Mapping[str, str], walk: bool) -> bool:
    """Return whether a ferry's tags allow pedestrians (if ``walk`` is true) or cars (if it is false).

    A ferry without the relevant tags is assumed to take both.
    """
    access = next((tags[key] for key in (FOOT_ACCESS if walk else CAR_ACCESS) if key in tags), "yes")
    return access != "no"


def _directed_way(nodes: tuple[str, ...], tags: Mapping[str, str], walk: bool) -> _Way:
    """Return a way with the directions in which it may be used. Pedestrians may always use both directions.

    Args:
        nodes: The ids of the way's nodes, in order.
        tags: The OpenStreetMap tags of the way.
        walk: Whether the map is for pedestrians.
    """
    oneway = tags.get("oneway", "no")
    # -1 means that the street may be used only against the order of its nodes.
    forward = oneway != "-1"
    backward = not forward or not (oneway in FORWARD or tags.get("junction") == "roundabout")
    return _Way(nodes=nodes, forward=forward or walk, backward=backward or walk)


def _measure_stretches(ways: Sequence[_Way], places: Mapping[str, Position]) -> dict[tuple[str, str], float]:
    """Return the great-circle length in km of each stretch between two places, keyed by (from, to).

    There is an entry for each permitted direction.

    Args:
        ways: The ways. A stretch is omitted if either of its nodes is not a place.
        places: The places' positions, keyed by id.
    """
    pairs = {
        pair
        for way in ways
        for a, b in pairwise(way.nodes)
        if a != b and a in places and b in places
        # A direction that is not permitted yields no pair.
        for pair in [(a, b)] * way.forward + [(b, a)] * way.backward
    }
    if not pairs:
        return {}
    rank = _ranks(places)
    ordered_pairs = sorted(pairs, key=lambda pair: (rank[pair[0]], rank[pair[1]]))
    tails, heads = (np.array([places[pair[end]] for pair in ordered_pairs]) for end in (0, 1))
    return dict(zip(ordered_pairs, haversine(tails, heads).tolist(), strict=True))


def _select_largest_part(streets: StreetMap) -> StreetMap:
    """Return the map's largest connected component or, for a one-way map, its largest strongly connected component.

    In a strongly connected component, every place can be reached from every other place.
    """
    rank = _ranks(streets.places)
    pairs = np.array([(rank[a], rank[b]) for a, b in streets.km])
    # In a strongly connected component, streets lead from every place to every other.
    labels = components(len(rank), pairs, strong=streets.one_way)
    is_largest = labels == np.bincount(labels).argmax()
    places = {name: streets.places[name] for name, number in rank.items() if is_largest[number]}
    km = {(a, b): length for (a, b), length in streets.km.items() if a in places and b in places}
    return evolve(streets, places=places, km=km)


def _contract_bends(streets: StreetMap) -> StreetMap:
    """Replace each chain of bends (see :func:`_is_bend`) with a single road between its ends.

    Bends are determined before any node is removed, so a junction remains a place even if the contraction merges some
    of its streets. A street that returns to the junction where it begins keeps its middle node.
    """
    neighbours = _neighbours(streets)
    bends = {name for name in streets.places if _is_bend(name, neighbours, streets)}
    if len(bends) == len(streets.places):
        # In a ring without a junction, one node is kept as if it were a junction. The ring then is a street that
        # returns to this node, so its middle node is kept too.
        bends.discard(next(iter(streets.places)))
    bends -= _loop_middles(streets, neighbours, bends)
    km: dict[tuple[str, str], float] = {}
    for start, first in streets.km:
        if start in bends:
            continue
        chain = _follow_chain(start, first, neighbours, bends)
        # fsum rounds only once, so that both directions of a street get the same length.
        length = fsum(streets.km[pair] for pair in pairwise(chain))
        # If several streets join the same two places, the shortest one counts.
        km[start, chain[-1]] = min(length, km.get((start, chain[-1]), length))
    rank = _ranks(streets.places)
    km = {pair: km[pair] for pair in sorted(km, key=lambda pair: (rank[pair[0]], rank[pair[1]]))}
    places = {name: position for name, position in streets.places.items() if name not in bends}
    return evolve(streets, places=places, km=km)


def _neighbours(streets: StreetMap) -> dict[str, list[str]]:
    """Return the neighbours of each place along streets in either direction, in the order of the places."""
    rank = _ranks(streets.places)
    sets: dict[str, set[str]] = {name: set() for name in streets.places}
    for a, b in streets.km:
        sets[a].add(b)
        sets[b].add(a)
    # The neighbours are sorted, because the order of sets differs from run to run.
    return {name: sorted(neighbours, key=rank.__getitem__) for name, neighbours in sets.items()}


def _is_bend(name: str, neighbours: Mapping[str, Sequence[str]], streets: StreetMap) -> bool:
    """Return whether a street merely bends at a node.

    Such a node has exactly two neighbours, and the streets to them are either both two-way or both one-way in the same
    direction.

    Args:
        name: The id of the node.
        neighbours: The neighbours of each place, keyed by id.
        streets: The street map.
    """
    # Ends of streets (one neighbour) and junctions (three or more) are not bends.
    if len(neighbours[name]) != 2:
        return False
    a, b = neighbours[name]
    enters_a, enters_b = ((neighbour, name) in streets.km for neighbour in (a, b))
    leaves_a, leaves_b = ((name, neighbour) in streets.km for neighbour in (a, b))
    return enters_a == leaves_b and enters_b == leaves_a


def _follow_chain(start: str, first: str, neighbours: Mapping[str, Sequence[str]], bends: Collection[str]) -> list[str]:
    """Return the nodes along a street from a place to the next node that is not a bend, including both ends.

    Args:
        start: The id of the place.
        first: The id of the next node along the street.
        neighbours: The neighbours of each place, keyed by id.
        bends: The ids of the nodes at which a street merely bends.
    """
    chain = [start, first]
    while chain[-1] in bends:
        a, b = neighbours[chain[-1]]
        chain.append(b if a == chain[-2] else a)
    return chain


def _loop_middles(streets: StreetMap, neighbours: Mapping[str, Sequence[str]], bends: Collection[str]) -> set[str]:
    """Return the middle node of each street that returns to the junction where it begins.

    Without its middle node, such a street would become a road from a place to itself, which would have no effect.

    Args:
        streets: The street map.
        neighbours: The neighbours of each place, keyed by id.
        bends: The ids of the nodes at which a street merely bends.
    """
    rank, middles = _ranks(streets.places), set()
    for start, first in streets.km:
        if start in bends or first not in bends:
            continue
        chain = _follow_chain(start, first, neighbours, bends)
        if chain[-1] == start:
            # All nodes except the junction, which is at both ends.
            inner = chain[1:-1]
            # If the number of nodes is even, there are two middle ones. The first by id is taken, so that both
            # directions give the same node.
            middles.add(min(inner[(len(inner) - 1) // 2], inner[len(inner) // 2], key=rank.__getitem__))
    return middles


def _ranks(places: Mapping[str, Position]) -> dict[str, int]:
    """Return a mapping from each place's id to its index in ``places``."""
    return {name: number for number, name in enumerate(places)}
