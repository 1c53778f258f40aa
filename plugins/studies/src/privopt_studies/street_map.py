"""Streets from OpenStreetMap (.osm, .osm.pbf) as a problem's places and roads (``privopt init --osm``).

Nodes of ways tagged ``highway`` become places, the stretches between them roads, the largest connected part stays. Each
thing that is omitted on the way is counted and said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from attrs import frozen

from privopt.arrays import Bools, Floats
from privopt.errors import Fault, InputError, UsageError, reason_of
from privopt.numbers.distances import haversine
from privopt.numbers.graphs import components

__all__ = ["StreetMap", "box_area", "read_streets"]

LINKED: Final = ("motorway", "trunk", "primary", "secondary", "tertiary")
DRIVEN: Final = frozenset(
    (*LINKED, *(f"{kind}_link" for kind in LINKED), "unclassified", "residential", "living_street", "service", "road")
)
"""Values of ``highway`` that cars use."""
WALKED: Final = DRIVEN | frozenset(("pedestrian", "footway", "path", "steps", "cycleway", "track", "corridor"))
"""Those that people on foot use, the roads of cars among them."""
FORWARD: Final = frozenset(("yes", "true", "1"))
ENDINGS: Final = (".osm.pbf", ".pbf", ".osm", ".osm.gz", ".osm.bz2")

Area = Callable[[Floats], Bools]
"""Which of some places (N, 2), latitude and longitude, are wanted."""


@frozen(kw_only=True, eq=False)
class StreetMap:
    """Streets between places.

    Attributes:
        places: id -> (latitude, longitude), degrees.
        km: (from, to) -> length of the shortest stretch, for each direction that may be taken.
        notes: what was taken and what was omitted, a sentence each.
    """

    places: dict[str, tuple[float, float]]
    km: dict[tuple[str, str], float]
    notes: tuple[str, ...] = ()

    def write(self, points: Path, roads: Path) -> None:
        """Write the tables id,lat,lon and from,to,km (a row for each direction)."""
        at = np.array(list(self.places.values()))
        pl.DataFrame({"id": list(self.places), "lat": at[:, 0], "lon": at[:, 1]}).write_csv(points)
        tails, heads = zip(*self.km, strict=True)
        pl.DataFrame({"from": tails, "to": heads, "km": list(self.km.values())}).write_csv(roads)


def box_area(text: str) -> Area:
    """Return the places inside ``S,W,N,E``, degrees."""
    try:
        south, west, north, east = map(float, text.split(","))
    except ValueError:
        raise UsageError(
            f"--box {text}: must be four numbers S,W,N,E in degrees, such as 60.1,24.9,60.2,25.1"
        ) from None
    if not (-90 <= south < north <= 90 and -180 <= west < east <= 180):
        raise UsageError(f"--box {text}: S must be less than N (-90 to 90), W less than E (-180 to 180)")
    low, high = np.array([south, west]), np.array([north, east])
    return lambda at: np.asarray(((at >= low) & (at <= high)).all(axis=1))


def read_streets(file: Path, *, area: Area | None = None, walk: bool = False, bends: bool = False) -> StreetMap:
    """Read the streets of a map file, and keep those of the largest connected part.

    Args:
        file: OpenStreetMap data, its format known by the ending.
        area: omits the nodes that it does not want; None takes all.
        walk: take footways too, and every way both ways.
        bends: keep nodes that merely bend a street.
    """
    if not file.name.lower().endswith(ENDINGS):
        raise InputError([Fault(str(file), "", "an unknown ending", f"one of {', '.join(ENDINGS)}")])
    if not file.is_file():
        raise InputError([Fault(str(file), "", "no such file", "OpenStreetMap data")])
    ways, places, others = _ways(file, walk)
    lost = len({name for nodes, _, _ in ways for name in nodes if name not in places})
    kinds = "streets and footways" if walk else "streets that cars use, which --walk adds footways to,"
    notes = [f"{len(ways):,} ways are {kinds} with {len(places):,} nodes; {others:,} other ways are omitted"]
    if lost:
        notes.append(f"{lost:,} nodes of them have no position in this file and are omitted")
    if area is not None and places:
        kept = area(np.array(list(places.values())))
        outside = len(kept) - int(kept.sum())
        places = {name: at for (name, at), here in zip(places.items(), kept.tolist(), strict=True) if here}
        notes.append(f"{outside:,} nodes outside the area asked for are omitted")
    km = _lengths(ways, places)
    if not km:
        where = "" if area is None else " in the area asked for"
        raise InputError([Fault(str(file), "", f"no streets{where}", "ways tagged highway between two nodes")])
    whole = len(places)
    streets = _largest_part(StreetMap(places=places, km=km))
    notes.append(f"{whole - len(streets.places):,} nodes that no street joins to the largest part are omitted")
    if not bends:
        joined = len(streets.places)
        streets = _without_bends(streets)
        notes.append(f"{joined - len(streets.places):,} nodes that merely bend a street are passed through")
    return StreetMap(places=streets.places, km=streets.km, notes=tuple(notes))


Way = tuple[list[str], bool, bool]
"""Its nodes, and whether it is taken forward and backward."""


def _ways(file: Path, walk: bool) -> tuple[list[Way], dict[str, tuple[float, float]], int]:
    """Return the ways of roads or paths, where their nodes are (extracts lack some), and how many others there are."""
    import osmium

    kinds, others = WALKED if walk else DRIVEN, 0
    ways: list[Way] = []
    places: dict[str, tuple[float, float]] = {}
    try:
        reader: Any = osmium.FileProcessor(str(file), osmium.osm.NODE | osmium.osm.WAY).with_locations()
        for way in reader.with_filter(osmium.filter.KeyFilter("highway")):
            if not way.is_way():
                continue
            if way.tags["highway"] not in kinds or way.tags.get("area") == "yes":
                others += 1
                continue
            places.update({str(node.ref): (node.lat, node.lon) for node in way.nodes if node.location.valid()})
            oneway = way.tags.get("oneway", "no")
            forward = oneway != "-1"
            backward = not forward or not (oneway in FORWARD or way.tags.get("junction") == "roundabout")
            ways.append(([str(node.ref) for node in way.nodes], forward or walk, backward or walk))
    except RuntimeError as error:
        raise InputError([Fault(str(file), "", f"unreadable ({reason_of(error)})", "OpenStreetMap data")]) from None
    return ways, places, others


def _lengths(ways: Sequence[Way], places: dict[str, tuple[float, float]]) -> dict[tuple[str, str], float]:
    """Great-circle km of each stretch between two of the places, for each direction that may be taken."""
    steps = [
        (a, b, forward, backward)
        for nodes, forward, backward in ways
        for a, b in pairwise(nodes)
        if a != b and a in places and b in places
    ]
    if not steps:
        return {}
    tails, heads = np.array([places[a] for a, *_ in steps]), np.array([places[b] for _, b, *_ in steps])
    lengths = haversine(tails, heads).tolist()
    found = {(a, b): km for (a, b, forward, _), km in zip(steps, lengths, strict=True) if forward}
    return found | {(b, a): km for (a, b, _, backward), km in zip(steps, lengths, strict=True) if backward}


def _largest_part(streets: StreetMap) -> StreetMap:
    """Return the connected part (one-way streets taken both ways) with most nodes."""
    number = {name: n for n, name in enumerate(streets.places)}
    label = components(len(number), np.array([(number[a], number[b]) for a, b in streets.km]))
    largest = int(np.bincount(label).argmax())
    places = {
        name: at for (name, at), part in zip(streets.places.items(), label.tolist(), strict=True) if part == largest
    }
    return StreetMap(places=places, km={ends: km for ends, km in streets.km.items() if ends[0] in places})


def _without_bends(streets: StreetMap) -> StreetMap:
    """Pass through nodes joined to two others by streets of one kind: both one way, or both two ways."""
    out: dict[str, dict[str, float]] = {name: {} for name in streets.places}
    back: dict[str, dict[str, float]] = {name: {} for name in streets.places}
    for (a, b), km in streets.km.items():
        out[a][b] = back[b][a] = km
    for name in streets.places:
        beside = out[name].keys() | back[name].keys()
        if len(beside) != 2:
            continue
        ways = list(_through(name, sorted(beside), out))
        if len({(a, name) for a, _ in ways} | {(name, b) for _, b in ways}) != len(out[name]) + len(back[name]):
            continue  # a dead end for one direction
        for a, b in ways:
            out[a][b] = back[b][a] = min(out[a][name] + out[name][b], out[a].get(b, np.inf))
        for side in beside:
            for table in (out, back):
                table[side].pop(name, None)
        del out[name], back[name]
    places = {name: streets.places[name] for name in out}
    return StreetMap(places=places, km={(a, b): km for a, found in out.items() for b, km in found.items()})


def _through(name: str, neighbours: Sequence[str], out: dict[str, dict[str, float]]) -> Iterator[tuple[str, str]]:
    """Yield the directions in which a node between two others can be passed."""
    for a, b in (neighbours, neighbours[::-1]):
        if name in out[a] and b in out[name]:
            yield a, b
