"""Flows from two reports of each trip: errors, coverage, seconds and memory, for kinds of trips that differ in links.

``python tests/bench/bench_flows.py RECORD.csv [--cities grid rome] [--truths ...] [--repetitions 6] [--minutes 8]``
adds a row for each repetition to RECORD.csv, goes on from the rows that are there, and prints the table. Repetition n
draws trips from seed n. ``grid`` has 36 cells of .5 km and 2 x 2 districts, reported at .5, 1.4 and 3 per km, with
2,000 and 200,000 trips. ``rome`` has 2,032 street nodes and 4 x 4 districts, reported at 2 per km, with 200,000 trips.
Reports are by the exponential mechanism. Seconds are a processor's.

Truths, all between the same uneven shares of places: ``independent`` ends; ``same``, trips that end where they began;
``neighbour``, trips to a place near by but never the same; ``centre``, seven of ten trips to one spot; ``gravity``,
ends likelier near by, with a sharp peak at no distance; ``links``, three pairs of spots; ``permutation``, one end for
each start anywhere in the city.
"""

from __future__ import annotations

import argparse
import csv
import os
import resource
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from bench_smooth import City, read_rome
from scipy.sparse import csr_array

from privopt.arrays import Floats
from privopt.estimate.count_trips import TripCounts
from privopt.estimate.flows import estimate_flows
from privopt.estimate.shares import EstimateOptions
from privopt.interfaces import Channel

SETTINGS = {
    "grid": [(rate, n) for rate in (0.5, 1.4, 3.0) for n in (2_000, 200_000)],
    "rome": [(2.0, 200_000)],
}
DISTRICT_SIDES = {"grid": 2, "rome": 4}


def make_grid() -> City:
    """Return 6 x 6 cells of half a kilometre."""
    positions = np.array([[row, column] for row in range(6) for column in range(6)]) * 0.5
    return City(distances=np.linalg.norm(positions[:, None] - positions, axis=2), positions=positions)


CITIES: dict[str, Callable[[], City]] = {"grid": make_grid, "rome": read_rome}


def _spot(city: City, place: int) -> Floats:
    """Return shares (N,) around one place, .4 km wide."""
    shares: Floats = np.exp(-0.5 * (city.distances[place] / 0.4) ** 2)
    return shares / shares.sum()


def _shares(city: City, seed: int) -> Floats:
    """Return shares (N,), half of them even and half around five spots."""
    rng = np.random.default_rng(seed)
    count = len(city.distances)
    spots = np.array([_spot(city, place) for place in rng.choice(count, 5, replace=False)])
    shares: Floats = 0.5 / count + 0.5 * rng.dirichlet(np.full(5, 3.0)) @ spots
    return shares


def trip_law(city: City, truth: str) -> Floats:
    """Return the probability (N, N) of each trip."""
    starts, ends = _shares(city, 0), _shares(city, 1)
    count = len(starts)
    if truth == "independent":
        return np.outer(starts, ends)
    if truth == "same":
        return np.diag(starts)
    if truth == "centre":
        middle = int(city.distances.sum(axis=1).argmin())
        return np.outer(starts, 0.7 * _spot(city, middle) + 0.3 * ends)
    if truth == "permutation":
        law = np.zeros((count, count))
        law[np.arange(count), np.random.default_rng(2).permutation(count)] = starts
        return law
    if truth == "links":
        places = np.random.default_rng(3).choice(count, 6, replace=False)
        pairs = [np.outer(_spot(city, start), _spot(city, end)) for start, end in places.reshape(3, 2).tolist()]
        return np.mean(pairs, axis=0)
    if truth == "neighbour":
        nearness = np.exp(-city.distances / 0.2)
        np.fill_diagonal(nearness, 0.0)
    else:
        nearness = ends * np.exp(-city.distances / 1.2)
    near: Floats = starts[:, None] * nearness / nearness.sum(axis=1, keepdims=True)
    return near


TRUTHS = ("independent", "same", "neighbour", "centre", "gravity", "links", "permutation")


def run_repetition(city: City, side: int, rate: float, n: int, truth: str, seed: int) -> list[float]:
    """Return one estimate's figures.

    They are the part of intervals that hold, the error, the reports' own error and the width, these three in per cent
    of a mean flow, processor seconds and load.
    """
    z = np.exp(-rate * city.distances)
    z /= z.sum(axis=1, keepdims=True)
    names = [str(number) for number in range(len(z))]
    channel = Channel(inputs=names, outputs=names, probabilities=z)
    districts, law = city.districts_of(side), trip_law(city, truth)
    members = (districts[:, None] == np.arange(side**2)).astype(float)
    true_flows = members.T @ law @ members
    groups = {str(number): np.flatnonzero(districts == number) for number in range(side**2)}
    expected = (z.T @ law @ z).ravel()
    counts = np.random.default_rng(seed).multinomial(n, expected / expected.sum()).reshape(z.shape)
    trips = TripCounts(channel=channel, counts=csr_array(counts))
    begun = time.process_time()
    flows = estimate_flows(trips, EstimateOptions(), groups, rows=lambda numbers: city.distances[numbers], unit="km")
    seconds = time.process_time() - begun
    unit = 100 * side**4
    errors = np.abs(flows.shares - true_flows)
    return [
        float(((flows.low <= true_flows) & (true_flows <= flows.high)).mean()),
        unit * float(errors.mean()),
        unit * float(np.abs(members.T @ (counts / n) @ members - true_flows).mean()),
        unit * float((flows.high - flows.low).mean()),
        seconds,
        os.getloadavg()[0],
    ]


def print_table(rows: list[list[str]]) -> None:
    """Print the figures of each city, setting and truth that has rows."""
    print("| city | per km | trips | truth | repetitions | all hold | of intervals | error | reports' | width | s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for key in dict.fromkeys(tuple(row[:4]) for row in rows):
        figures = np.array([[float(text) for text in row[5:]] for row in rows if tuple(row[:4]) == key])
        held = figures[:, 0]
        error, raw_error, width, seconds = figures[:, 1:5].mean(axis=0)
        print(
            f"| {' | '.join(key)} | {len(held)} | {(held == 1).sum()} | {held.mean():.3f} | {error:.1f} | "
            f"{raw_error:.1f} | {width:.0f} | {seconds:.1f} |"
        )
    loads = [float(row[-1]) for row in rows]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(f"errors and widths in per cent of a mean flow; load {min(loads):.1f} to {max(loads):.1f}, {peak:.2f} GB")


def main() -> None:
    """Go on where the record ends."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("record", type=Path)
    parser.add_argument("--cities", nargs="*", default=list(CITIES), choices=list(CITIES))
    parser.add_argument("--truths", nargs="*", default=list(TRUTHS), choices=TRUTHS)
    parser.add_argument("--repetitions", type=int, default=6)
    parser.add_argument("--minutes", type=float, default=8.0)
    arguments = parser.parse_args()
    end_seconds = time.monotonic() + 60 * arguments.minutes
    rows = list(csv.reader(arguments.record.open())) if arguments.record.exists() else []
    done = {tuple(row[:5]) for row in rows}
    cities = {name: CITIES[name]() for name in arguments.cities}
    jobs = [
        (name, rate, n, truth, seed)
        for seed in range(arguments.repetitions)
        for name in cities
        for rate, n in SETTINGS[name]
        for truth in arguments.truths
    ]
    for name, rate, n, truth, seed in jobs:
        key = [name, f"{rate:g}", str(n), truth, str(seed)]
        if tuple(key) in done or time.monotonic() > end_seconds:
            continue
        figures = run_repetition(cities[name], DISTRICT_SIDES[name], rate, n, truth, seed)
        row = [*key, *(f"{figure:.4f}" for figure in figures)]
        with arguments.record.open("a") as stream:
            csv.writer(stream).writerow(row)
        rows.append(row)
    print_table(sorted(rows))


if __name__ == "__main__":
    main()
