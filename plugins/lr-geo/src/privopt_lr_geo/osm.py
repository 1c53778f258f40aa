"""Road networks from OpenStreetMap: ``python -m privopt_lr_geo.osm FILE FOLDER``.

Reads .osm, .osm.pbf (osmium) or GraphML (networkx; as OSMnx writes it) and writes into FOLDER points.csv (id, lat,
lon), roads.csv (from, to, km; both ways), streets.csv (the same, one-way streets one way only) and a problem.toml over
the largest connected part. Nodes that merely bend a road are passed through, unless ``--all-nodes`` asks for them.
Needs the extra ``privopt-lr-geo[osm]``.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from attrs import frozen

from privopt.errors import Fault, InputError, PrivoptError, UsageError, reason_of
from privopt.numbers.distances import haversine
from privopt.numbers.graphs import components

__all__ = ["Network", "largest_part", "main", "read_network", "through", "write"]

LINKED: Final = ("motorway", "trunk", "primary", "secondary", "tertiary")
DRIVEN: Final = frozenset(
    (*LINKED, *(f"{kind}_link" for kind in LINKED), "unclassified", "residential", "living_street", "service", "road")
)
"""Values of ``highway`` that cars use."""
WALKED: Final = DRIVEN | frozenset(("pedestrian", "footway", "path", "steps", "cycleway", "track", "corridor"))
"""Those that people on foot use, the roads of cars among them."""
FORWARD: Final = frozenset(("yes", "true", "1"))
ENDINGS: Final = (".osm.pbf", ".osm", ".osm.gz", ".osm.bz2", ".graphml")

OPTIONS: Final = """\
[privacy]
epsilon = 1.0
neighbours_within = 0.8
[lr-geo]
users = { random = 4 }
radius = 3.0
obfuscation_radius = 2.0
exponential_beyond = 1.0
exponent = 1.0
[const-opt]
radius = 1.0
"""
"""What the problem file starts with besides the map; radii in km."""

Edges = list[tuple[str, str, float]]


@frozen(kw_only=True, eq=False)
class Network:
    """Roads between nodes.

    Attributes:
        places: id -> (latitude, longitude), degrees.
        edges: (from, to, km), one for each direction that may be driven.
    """

    places: dict[str, tuple[float, float]]
    edges: Edges


def read_network(file: Path, *, walk: bool = False) -> Network:
    """Read a road network, its format known by the file's ending.

    Args:
        file: see the module.
        walk: take footways too, and every way both ways. A GraphML file is taken as it is.

    Raises:
        InputError: a file that cannot be read, or has no roads. UsageError: the extra is not installed.
    """
    if not file.name.lower().endswith(ENDINGS):
        raise InputError([Fault(file.name, "", "an unknown ending", f"one of {', '.join(ENDINGS)}")])
    if not file.is_file():
        raise InputError([Fault(file.name, "", "no such file", "a road network")])
    found = _graphml(file) if file.name.lower().endswith(".graphml") else _osm(file, walk)
    if not found.edges:
        raise InputError([Fault(file.name, "", "no roads", "ways tagged highway, or edges")])
    return found


def _missing(name: str) -> UsageError:
    return UsageError(f"{name} is not installed; wanted the extra privopt-lr-geo[osm]")


def _osm(file: Path, walk: bool) -> Network:
    try:
        import osmium
    except ImportError:
        raise _missing("osmium") from None
    places: dict[str, tuple[float, float]] = {}
    ways: list[tuple[list[str], bool, bool]] = []
    kinds = WALKED if walk else DRIVEN
    try:
        reader: Any = osmium.FileProcessor(str(file), osmium.osm.NODE | osmium.osm.WAY).with_locations()
        for way in reader:
            if not way.is_way() or way.tags.get("highway") not in kinds or way.tags.get("area") == "yes":
                continue
            nodes = [node for node in way.nodes if node.location.valid()]
            places.update({str(node.ref): (node.lat, node.lon) for node in nodes})
            oneway = way.tags.get("oneway", "no")
            round_about = way.tags.get("junction") == "roundabout"
            forward = oneway != "-1"
            backward = oneway == "-1" or not (oneway in FORWARD or round_about)
            ways.append(([str(node.ref) for node in nodes], forward or walk, backward or walk))
    except RuntimeError as error:
        raise InputError([Fault(file.name, "", f"unreadable ({reason_of(error)})", "OpenStreetMap data")]) from None
    pairs = [(a, b, f, r) for nodes, f, r in ways for a, b in pairwise(nodes) if a != b]
    lengths = _lengths(places, [(a, b) for a, b, _, _ in pairs])
    edges = [(a, b, km) for (a, b, forward, _), km in zip(pairs, lengths, strict=True) if forward]
    edges += [(b, a, km) for (a, b, _, backward), km in zip(pairs, lengths, strict=True) if backward]
    return Network(places=places, edges=edges)


def _graphml(file: Path) -> Network:
    try:
        import networkx as nx
    except ImportError:
        raise _missing("networkx") from None
    try:
        graph = nx.read_graphml(file)
    except Exception as error:
        raise InputError([Fault(file.name, "", f"unreadable ({reason_of(error)})", "GraphML")]) from None
    try:
        places = {str(name): (float(d["y"]), float(d["x"])) for name, d in graph.nodes(data=True)}
    except (KeyError, ValueError):
        raise InputError([Fault(file.name, "nodes", "one without x or y", "longitude x and latitude y")]) from None
    ends = [(str(a), str(b)) for a, b in graph.edges() if a != b]
    lengths = [data.get("length") for a, b, data in graph.edges(data=True) if a != b]
    straight = _lengths(places, ends)
    try:
        km = [float(t) / 1000.0 if t is not None else s for t, s in zip(lengths, straight, strict=True)]
    except ValueError:
        raise InputError([Fault(file.name, "edges", "a length that is no number", "metres")]) from None
    edges = [(a, b, length) for (a, b), length in zip(ends, km, strict=True)]
    if not graph.is_directed():
        edges += [(b, a, length) for a, b, length in edges]
    return Network(places=places, edges=edges)


def _lengths(places: dict[str, tuple[float, float]], ends: Sequence[tuple[str, str]]) -> list[float]:
    """Great-circle km, pair by pair."""
    if not ends:
        return []
    a, b = (np.array([places[pair[side]] for pair in ends]) for side in (0, 1))
    return [float(km) for km in haversine(a, b)]


def largest_part(network: Network) -> Network:
    """The connected part (one-way streets taken both ways) with most nodes."""
    number = {name: n for n, name in enumerate(network.places)}
    ends = np.array([(number[a], number[b]) for a, b, _ in network.edges])
    label = components(len(number), ends)
    kept = int(np.bincount(label[ends[:, 0]]).argmax())
    places = {name: at for (name, at), part in zip(network.places.items(), label.tolist(), strict=True) if part == kept}
    return Network(places=places, edges=[edge for edge in network.edges if edge[0] in places])


def through(network: Network) -> Network:
    """Pass through nodes that merely bend a road: joined to two others, by roads of one kind."""
    out: dict[str, dict[str, float]] = {name: {} for name in network.places}
    back: dict[str, dict[str, float]] = {name: {} for name in network.places}
    for a, b, km in network.edges:
        out[a][b] = back[b][a] = min(km, out[a].get(b, np.inf))
    for name in list(network.places):
        beside = out[name].keys() | back[name].keys()
        if len(beside) != 2:
            continue
        one, other = sorted(beside)
        ways = [(a, b) for a, b in ((one, other), (other, one)) if name in out[a] and b in out[name]]
        used = {(a, name) for a, _ in ways} | {(name, b) for _, b in ways}
        if len(used) != len(out[name]) + len(back[name]):
            continue  # a dead end for one direction
        for a, b in ways:
            km = out[a][name] + out[name][b]
            out[a][b] = back[b][a] = min(km, out[a].get(b, np.inf))
        for side in beside:
            for table in (out, back):
                table[side].pop(name, None)
        del out[name], back[name]
    places = {name: network.places[name] for name in out}
    return Network(places=places, edges=[(a, b, km) for a, found in out.items() for b, km in found.items()])


def write(network: Network, folder: Path, options: str = OPTIONS) -> Path:
    """Write points.csv, roads.csv, streets.csv and problem.toml, ``options`` behind the map in it; returns the last."""
    folder.mkdir(parents=True, exist_ok=True)
    _csv(folder / "points.csv", ("id", "lat", "lon"), ((name, *at) for name, at in network.places.items()))
    both: dict[tuple[str, str], float] = {}
    for a, b, km in network.edges:
        ends = (a, b) if a < b else (b, a)
        both[ends] = min(km, both.get(ends, np.inf))
    _csv(folder / "roads.csv", ("from", "to", "km"), ((a, b, km) for (a, b), km in both.items()))
    _csv(folder / "streets.csv", ("from", "to", "km"), network.edges)
    (folder / "problem.toml").write_text(
        '[records]\npoints = "points.csv"\n[distance]\nkind = "graph"\nedges = "roads.csv"\n'
        '[utility]\nkind = "travel-cost"\n' + options
    )
    return folder / "problem.toml"


def _csv(file: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    with file.open("w", newline="", encoding="utf-8") as stream:
        csv.writer(stream, lineterminator="\n").writerows([header, *rows])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; exit codes as of privopt."""
    parser = argparse.ArgumentParser(prog="python -m privopt_lr_geo.osm", description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("file", type=Path, help=f"road network: {', '.join(ENDINGS)}")
    parser.add_argument("folder", type=Path, help="made if it is not there; its CSV files are replaced")
    parser.add_argument("--walk", action="store_true", help="footways too, and every way both ways")
    parser.add_argument("--all-nodes", action="store_true", help="keep nodes that merely bend a road")
    chosen = parser.parse_args(arguments)
    try:
        network = read_network(chosen.file, walk=chosen.walk)
        whole = len(network.places)
        network = largest_part(network)
        lost = whole - len(network.places)
        network = network if chosen.all_nodes else through(network)
        problem = write(network, chosen.folder)
    except PrivoptError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    print(f"{problem}: {len(network.places):,} places, {len(network.edges):,} streets; {lost:,} nodes are not joined")
    return 0


if __name__ == "__main__":
    sys.exit(main())
