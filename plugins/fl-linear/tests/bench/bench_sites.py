"""Sites chosen from the reports against the prior's sites, and against exhaustive swaps, on the same noisy draws.

Run: ``python bench_sites.py CHIANG_MAI.csv [--seeds 20] [--overflow RUNS] [--part P]``. Four sets of sites (Chiang
Mai and three drawn here) at three epsilons, alpha = .1, 12 stations of 431 sites (Chiang Mai), 8 of 150 else. Each
line: mean cost at the noisy counts over the seeds, with standard errors, of the prior's plan at alpha, of what is
published, and of the best set that swaps find at the same any-set margins (from the published set and from random
ones, every swap tried until none helps); its greatest distance below the published program's value; the margins'
cost; and costs at the true counts. With --overflow the share of runs with an overflow instead, in 16 settings: each
keeps one choice of public data, and plans are made anew in each run. --part runs a piece: the sites of that name, or
of that number from 0 among the settings of --overflow.
"""

from __future__ import annotations

import argparse
import csv
import itertools
import math
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from attrs import evolve

from privopt.interfaces import SolveContext
from privopt_fl_linear.margins import MarginRule
from privopt_fl_linear.metric import Plane
from privopt_fl_linear.plan import Server
from privopt_fl_linear.serve import serve
from privopt_fl_linear.site import Site, sum_counts

ALPHA, EPSILONS = 0.1, (0.3, 1.0, 3.0)
Case = tuple[str, Site, np.ndarray, int]


def cases(path: Path) -> Iterator[Case]:
    """Name, site, true counts and number of stations."""
    with path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    points = np.array([[float(row["x"]), float(row["y"])] for row in rows])
    points = (points - points.min(axis=0)) / np.ptp(points, axis=0)
    rng = np.random.default_rng(1)
    cost = rng.uniform(0.1, 0.3, len(rows))
    yield "chiang mai", make_site(points, cost), np.array([int(row["Evacuees"]) for row in rows]), 12
    points = rng.random((150, 2))
    yield "even", make_site(points, rng.uniform(0.1, 0.3, 150)), rng.poisson(60, 150), 8
    centre = np.exp(-8.0 * ((points - [0.8, 0.8]) ** 2).sum(axis=1))
    yield "corner", make_site(points, rng.uniform(0.1, 0.3, 150)), rng.poisson(5 + 300 * centre), 8
    heavy = np.floor(rng.pareto(1.2, 150) * 20).astype(np.int64)
    yield "heavy tails", make_site(points, np.full(150, 0.2)), np.minimum(heavy, 5_000), 8


def make_site(points: np.ndarray, cost: np.ndarray) -> Site:
    return Site(metric=Plane(points), cost=cost)


def noise(rng: np.random.Generator, size: int, epsilon: float) -> np.ndarray:
    q = -math.expm1(-epsilon)
    return rng.geometric(q, size) - rng.geometric(q, size)


def improve_by_swaps(table: np.ndarray, opening: np.ndarray, chosen: list[int]) -> float:
    """Cost of the set after every swap (and removal) was tried until none helps."""
    value = opening[chosen].sum() + table[chosen].min(axis=0).sum()
    while True:
        best = None
        for place_ in range(len(chosen)):
            remaining = chosen[:place_] + chosen[place_ + 1 :]
            min_costs = table[remaining].min(axis=0) if remaining else np.full(table.shape[1], np.inf)
            values = opening[remaining].sum() + opening + np.minimum(table, min_costs).sum(axis=1)
            if remaining:
                values = np.append(values, opening[remaining].sum() + min_costs.sum())
            added = int(np.argmin(values))
            if values[added] < value - 1e-9 * abs(value) and (best is None or values[added] < best[0]):
                best = (float(values[added]), remaining + ([added] if added < len(opening) else []))
        if best is None:
            return float(value)
        value, chosen = best


def by_swaps(server: Server, noisy: np.ndarray, starts: list[list[int]]) -> float:
    """Return the best that swaps find in the program that the reports' plan is the best of."""
    site, line = server.site, server.any_set()
    distance = site.metric.distances_between(*(i.ravel() for i in np.indices((site.size, site.size))))
    table = distance.reshape(site.size, -1) * np.maximum(noisy, 1.0)
    table += np.multiply.outer(site.cost, np.maximum(noisy + line.slope, 0.0))
    return min(improve_by_swaps(table, site.cost * line.start, start) for start in starts)


def compare(name: str, site: Site, clients: np.ndarray, stations: int, epsilon: float, seeds: int) -> None:
    rule = MarginRule(n=site.size, epsilon=epsilon)
    server = Server(
        site=site, rule=rule, alpha=ALPHA, delta=0.0,
        mean_clients=float(clients.mean().round()), max_facilities=stations,
    )  # fmt: skip
    context, rows, worst, seconds = SolveContext(method="laplace"), [], -math.inf, 0.0
    for seed in range(seeds):
        rng = np.random.default_rng([seed, stations])
        noisy = clients + noise(rng, site.size, epsilon)
        start = time.process_time()
        served = serve(server, noisy, context)
        seconds += time.process_time() - start
        prior = serve(evolve(server, sites="prior"), noisy, context)
        prior_free = serve(evolve(server, mean_clients=None), noisy, context)
        opened_sites = prior_free.assignment.opened.tolist()
        starts = [opened_sites, *(rng.choice(site.size, stations, replace=False).tolist() for _ in range(2))]
        swapped = by_swaps(evolve(server, mean_clients=None), noisy, starts)
        worst = max(worst, prior_free.recorded["reports"]["objective"] / swapped - 1.0)
        costs = [plan.costs(site, counts)["total"] for counts in (noisy, clients) for plan in (prior, served)]
        margins = [float(plan.margins @ site.cost[plan.assignment.opened]) for plan in (prior, served)]
        rows.append([*costs, *margins, float(served.recorded["plans"]["chosen"] == "reports")])
    mean, error = np.mean(rows, axis=0), np.std(rows, axis=0, ddof=1) / math.sqrt(seeds)
    cells = [f"{m:9,.1f} +- {e:5.1f}" for m, e in zip(mean[:6], error[:6], strict=True)]
    print(f"{name:12} eps {epsilon:<4} prior {cells[0]}  published {cells[1]}  true: {cells[2]}, {cells[3]}  "
          f"margins: {cells[4]}, {cells[5]}  reports {mean[6]:.0%}  above swaps {worst:+.1e}  "
          f"{seconds / seeds:.2f} s", flush=True)  # fmt: skip


def overflow(runs: int, part: str) -> None:
    """Share of runs with an overflow where sites follow the reports, promised ALPHA."""
    size, error = 20, math.sqrt(ALPHA * (1 - ALPHA) / runs)
    settings = itertools.product((0.1, 1.0), (2, 5), (None, 3.0), ("heavy", "many"))
    for number, (epsilon, stations, mean, kind) in enumerate(settings):
        if part not in ("", str(number)):
            continue
        rng = np.random.default_rng([9, number])
        heavy = np.minimum(rng.pareto(1.2, size) * 20, 5_000).astype(np.int64)
        clients = heavy if kind == "heavy" else rng.poisson(30, size)
        server = Server(
            site=make_site(rng.random((size, 2)), rng.uniform(0.1, 0.3, size)), delta="auto", alpha=ALPHA,
            rule=MarginRule(n=size, epsilon=epsilon), mean_clients=mean, max_facilities=stations,
        )  # fmt: skip
        overflow_count = report_count = 0
        for _ in range(runs):
            noisy = clients + noise(rng, size, epsilon)
            served = serve(server, noisy, SolveContext(method="reconnection", gap=0.01))
            overflow_count += bool((sum_counts(served.assignment, clients) > served.capacities).any())
            report_count += served.recorded["plans"]["chosen"] == "reports"
        summary = f"eps {epsilon:<4} stations {stations} mean {mean} {kind:5} overflow {overflow_count / runs:.4f}"
        print(f"{summary} (promised {ALPHA} + 3 x {error:.4f}), by the reports {report_count / runs:.0%}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--overflow", type=int)
    parser.add_argument("--part", default="")
    arguments = parser.parse_args()
    if arguments.overflow:
        overflow(arguments.overflow, arguments.part)
        return
    for case in cases(arguments.data):
        for epsilon in EPSILONS if arguments.part in ("", case[0]) else ():
            compare(*case, epsilon, arguments.seeds)


if __name__ == "__main__":
    main()
