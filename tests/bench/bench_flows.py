"""Flows between 16 x 16 districts from 200,000 trips over 2,032 street nodes of Rome: seconds, memory, errors.

``python tests/bench/bench_flows.py [REPETITIONS]``. Seconds are a processor's, beside those of the estimates of both
columns alone in the same run (medians). The release is the exponential mechanism exp(-2 d); starts are at five hot
spots and everywhere, ends are likelier near by. The last column but one is the number
of the 256 intervals that hold.
"""

from __future__ import annotations

import os
import resource
import sys
import time

import numpy as np
from bench_smooth import City, read_rome
from scipy.sparse import csr_array

from privopt.arrays import Floats
from privopt.estimate.count_trips import TripCounts
from privopt.estimate.flows import estimate_flows
from privopt.estimate.shares import EstimateOptions, fit_reports
from privopt.interfaces import Channel

TRIPS = 200_000


def trip_law(city: City) -> Floats:
    """Return the probability (N, N) of each trip."""
    rng = np.random.default_rng(0)
    shares = []
    for width in (0.4, 0.5):
        centres = rng.choice(len(city.distances), 5)
        bumps = np.exp(-0.5 * (city.distances[centres] / width) ** 2)
        spots = rng.dirichlet(np.full(5, 3.0)) @ (bumps / bumps.sum(axis=1, keepdims=True))
        shares.append(0.5 / len(city.distances) + 0.5 * spots)
    rows = shares[1] * np.exp(-city.distances / 1.2)
    law: Floats = shares[0][:, None] * rows / rows.sum(axis=1, keepdims=True)
    return law


def main() -> None:
    """Print a row for each repetition, and the medians."""
    repetitions = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    city = read_rome()
    z = np.exp(-2.0 * city.distances)
    z /= z.sum(axis=1, keepdims=True)
    names = [str(number) for number in range(len(z))]
    channel = Channel(inputs=names, outputs=names, probabilities=z)
    districts, law = city.districts, trip_law(city)
    members = (districts[:, None] == np.arange(16)).astype(float)
    truth = members.T @ law @ members
    groups = {str(number): np.flatnonzero(districts == number) for number in range(16)}
    expected = (z.T @ law @ z).ravel()
    print("| repetition | flows, s | both columns, s | ratio | error, trips | reports' | width | hold | load |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    ratios = []
    for seed in range(repetitions):
        counts = np.random.default_rng(seed).multinomial(TRIPS, expected / expected.sum()).reshape(z.shape)
        trips = TripCounts(channel=channel, counts=csr_array(counts))
        begun = time.process_time()
        flows = estimate_flows(
            trips, EstimateOptions(), groups, rows=lambda numbers: city.distances[numbers], unit="km"
        )
        seconds = time.process_time() - begun
        begun = time.process_time()
        for end in (0, 1):
            fit_reports(z, trips.margin(end), EstimateOptions(), city.distances.__getitem__)
        column_seconds = time.process_time() - begun
        ratios.append(seconds / column_seconds)
        raw = members.T @ (counts / TRIPS) @ members
        held_count = int(((flows.low <= truth) & (truth <= flows.high)).sum())
        error, raw_error = (TRIPS * np.abs(shares - truth).mean() for shares in (flows.shares, raw))
        width = TRIPS * (flows.high - flows.low).mean()
        print(
            f"| {seed} | {seconds:.1f} | {column_seconds:.1f} | {ratios[-1]:.1f} | {error:.1f} | {raw_error:.1f} | "
            f"{width:.0f} | {held_count} | {os.getloadavg()[0]:.1f} |",
            flush=True,
        )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(f"median ratio {np.median(ratios):.1f}, mean flow {TRIPS / 256:.0f} trips, peak memory {peak:.2f} GB")


if __name__ == "__main__":
    main()
