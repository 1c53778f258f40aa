"""How often smooth intervals of districts hold all at once in three cities, also where the assumption is wrong.

``python tests/bench/bench_smooth.py RECORD.csv [--cities ...] [--truths ...] [--repetitions 20] [--minutes 8]`` adds a
row for each repetition to RECORD.csv and goes on from the rows that are there; then it prints the table. Repetition n
draws reports from seed n. The cities are those of ``PRIVOPT_DATA``: 2,032 street nodes of Rome, 431 places of Chiang
Mai, and the street nodes of Helsinki's extract. Each is divided into 16 districts of equally many records. The release
is the exponential mechanism exp(-13.5 d / D), where D is the city's greatest distance, with 140,000 reports.

Truths: ``spots`` are five bumps of D/17, as smooth as assumed; ``fine`` adds to uniform shares eight bumps of D/34;
``border`` has four times as many people at each record on one side of a line through districts; ``address`` has a fifth
of all people at one record.
"""

from __future__ import annotations

import argparse
import csv
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
from attrs import frozen
from bench_city import DATA
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from privopt.arrays import Floats, Ints
from privopt.estimate.shares import EstimateOptions, ReportCounts, estimate
from privopt.interfaces import Channel

REPORTS = 140_000
SIDE = 4


@frozen(kw_only=True, eq=False)
class City:
    """Records of a city: their distances (N, N) in km and their positions in a plane (N, 2)."""

    distances: Floats
    positions: Floats

    @property
    def districts(self) -> Ints:
        """The district of each record, of SIDE x SIDE."""
        return self.districts_of(SIDE)

    def districts_of(self, side: int) -> Ints:
        """Return districts of equally many records: columns from west to east, each divided from south to north."""
        numbers = np.zeros(len(self.positions), dtype=np.int64)
        for column, members in enumerate(np.array_split(np.argsort(self.positions[:, 0], kind="stable"), side)):
            by_north = members[np.argsort(self.positions[members, 1], kind="stable")]
            for row, cell in enumerate(np.array_split(by_north, side)):
                numbers[cell] = column * side + row
        return numbers

    @property
    def channel(self) -> Channel:
        """The exponential mechanism."""
        z = np.exp(-13.5 * self.distances / self.distances.max())
        names = [str(number) for number in range(len(z))]
        return Channel(inputs=names, outputs=names, probabilities=z / z.sum(axis=1, keepdims=True))


def _city_of_streets(lengths: dict[tuple[str, str], float], positions: dict[str, tuple[float, float]]) -> City:
    """Return a city from streets (length in km by both ends) and positions (longitude and latitude)."""
    nodes = sorted({node for pair in lengths for node in pair})
    number_by_node = {node: row for row, node in enumerate(nodes)}
    rows, columns = (np.array([number_by_node[pair[end]] for pair in lengths]) for end in (0, 1))
    graph = csr_array((list(lengths.values()), (rows, columns)), shape=(len(nodes),) * 2)
    return City(
        distances=shortest_path(graph, directed=False), positions=_plane(np.array([positions[name] for name in nodes]))
    )


def _plane(degrees: Floats) -> Floats:
    """Return x and y in km from longitudes and latitudes (N, 2)."""
    scaled: Floats = degrees * [111.2 * np.cos(np.radians(degrees[:, 1].mean())), 111.2]
    return scaled


def read_rome() -> City:
    """Return the published street file of Rome."""
    lengths: dict[tuple[str, str], float] = {}
    positions: dict[str, tuple[float, float]] = {}
    with (DATA / "lrgeo_rome" / "roma_edges.csv").open() as stream:
        for row in csv.DictReader(stream):
            points = row["geometry"].split("(")[1].rstrip(")").split(", ")
            for node, point in ((row["u"], points[0]), (row["v"], points[-1])):
                longitude, latitude = map(float, point.split())
                positions[node] = (longitude, latitude)
            pair = min((row["u"], row["v"]), (row["v"], row["u"]))
            if row["u"] != row["v"]:
                lengths[pair] = min(lengths.get(pair, np.inf), float(row["length"]) / 1000)
    return _city_of_streets(lengths, positions)


def read_chiang_mai() -> City:
    """Return the places of the evacuees, in a straight line from one another."""
    with (DATA / "flldp_chiang_mai" / "chiang_mai.csv").open() as stream:
        positions = _plane(np.array([(float(row["x"]), float(row["y"])) for row in csv.DictReader(stream)]))
    return City(distances=np.linalg.norm(positions[:, None] - positions, axis=2), positions=positions)


def read_helsinki() -> City:
    """Return the crossings of Helsinki's extract, by street."""
    from privopt_tables.studies.street_map import read_streets

    streets = read_streets(DATA / "osm_small" / "Helsinki.osm.pbf", walk=True)
    return _city_of_streets(streets.km, {name: (lon, lat) for name, (lat, lon) in streets.places.items()})


CITIES: dict[str, Callable[[], City]] = {"rome": read_rome, "chiang-mai": read_chiang_mai, "helsinki": read_helsinki}


def _spots(city: City, count: int, part: float) -> Floats:
    """Return shares (N,) of so many bumps, whose width is the given part of the city's greatest distance."""
    rng = np.random.default_rng(0)
    weights, centres = rng.dirichlet(np.full(count, 3.0)), rng.choice(len(city.distances), count, replace=False)
    bumps = np.exp(-0.5 * (city.distances[centres] / (part * city.distances.max())) ** 2)
    shares: Floats = weights @ (bumps / bumps.sum(axis=1, keepdims=True))
    return shares


def _border(city: City) -> Floats:
    """Return shares (N,) that are four times as large on one side of a slanted line."""
    across = city.positions @ [1.0, 0.3]
    shares = np.where(across > np.quantile(across, 0.45), 4.0, 1.0)
    return shares / shares.sum()


def _address(city: City) -> Floats:
    """Return shares (N,) with a fifth of all people at one record."""
    shares = np.full(len(city.distances), 0.8 / len(city.distances))
    shares[len(shares) // 3] += 0.2
    return shares


TRUTHS: dict[str, Callable[[City], Floats]] = {
    "spots": lambda city: _spots(city, 5, 1 / 17),
    "fine": lambda city: 0.5 / len(city.distances) + 0.5 * _spots(city, 8, 1 / 34),
    "border": _border,
    "address": _address,
}


def run_repetition(city: City, truth: Floats, seed: int) -> list[object]:
    """Return the record of one estimate.

    It has the number of districts whose interval holds, mean width, mean error, the estimate's resolution, processor
    seconds and load.
    """
    channel, districts = city.channel, city.districts
    groups = {str(number): np.flatnonzero(districts == number) for number in range(SIDE**2)}
    counts = np.random.default_rng(seed).multinomial(REPORTS, truth @ channel.probabilities)
    begun = time.process_time()
    estimated = estimate(
        [ReportCounts(channel=channel, counts=counts)],
        EstimateOptions(intervals="smooth"),
        groups=groups,
        rows=lambda numbers: city.distances[numbers],
        unit="km",
    )
    seconds = time.process_time() - begun
    district_shares = np.bincount(districts, weights=truth)
    held_count = int(((estimated.low <= district_shares) & (district_shares <= estimated.high)).sum())
    figures = [
        float(np.mean(estimated.high - estimated.low)),
        float(np.abs(estimated.shares - district_shares).mean()),
        estimated.resolution,
        seconds,
        os.getloadavg()[0],
    ]
    return [held_count, *(f"{figure:.5f}" for figure in figures)]


def print_table(rows: Sequence[Sequence[str]]) -> None:
    """Print the figures of each city and truth that has rows."""
    print("| city | truth | repetitions | all hold | of intervals | width | error | resolution, km | seconds |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for city in CITIES:
        for truth in TRUTHS:
            figures = np.array([[float(text) for text in row[3:]] for row in rows if row[:2] == [city, truth]])
            if len(figures):
                held = figures[:, 0]
                _, width, error, resolution, seconds, _ = np.median(figures, axis=0)
                print(
                    f"| {city} | {truth} | {len(figures)} | {(held == SIDE**2).mean():.2f} | "
                    f"{held.mean() / SIDE**2:.3f} | {width:.4f} | {error:.4f} | {resolution:.3g} | {seconds:.1f} |"
                )
    if rows:
        loads = [float(row[-1]) for row in rows]
        print(f"load {min(loads):.1f} to {max(loads):.1f}")


def main() -> None:
    """Go on where the record ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", type=Path)
    parser.add_argument("--cities", nargs="*", default=list(CITIES), choices=list(CITIES))
    parser.add_argument("--truths", nargs="*", default=list(TRUTHS), choices=list(TRUTHS))
    parser.add_argument("--repetitions", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=8.0)
    arguments = parser.parse_args()
    end_seconds = time.monotonic() + 60 * arguments.minutes
    rows = list(csv.reader(arguments.record.open())) if arguments.record.exists() else []
    done = {(city, truth, int(seed)) for city, truth, seed, *_ in rows}
    cities = {name: CITIES[name]() for name in arguments.cities}
    for seed in range(arguments.repetitions):
        for name, city in cities.items():
            for truth in arguments.truths:
                if (name, truth, seed) in done or time.monotonic() > end_seconds:
                    continue
                row = [name, truth, seed, *run_repetition(city, TRUTHS[truth](city), seed)]
                with arguments.record.open("a") as stream:
                    csv.writer(stream).writerow(row)
                rows.append([str(cell) for cell in row])
    print_table(rows)


if __name__ == "__main__":
    main()
