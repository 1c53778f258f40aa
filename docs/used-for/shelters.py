"""Shelters from noisy counts of the people who need one: docs/used-for/stations.md at the size of a city.

``python docs/used-for/shelters.py [--small] [--out FOLDER]``. The plan is made from noisy counts at epsilon 1, and a
mean that an earlier survey found. Its shelters are then held to the true counts, and its cost to that of the same
shelters if the counts were known. The noise is drawn again and again, to see how often one of them would overflow.

The full size has the 431 places of Chiang Mai with 32,178 evacuees (PRIVOPT_DATA) and at most 12 shelters; the small
one 40 sites and at most 4 shelters.
"""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
from job import data_path, main, privopt
from numpy.typing import NDArray

Floats = NDArray[np.float64]

EPSILON, FAILURE_PROBABILITY = 1, 0.05
DRAWS = 20_000


def write_sites(folder: Path, *, small: bool) -> tuple[Floats, NDArray[np.int64]]:
    """Write the sites, and return their positions (N, 2) and the numbers of people (N,), which are secret."""
    rng = np.random.default_rng(5)
    if small:
        positions = rng.uniform(0, 8, (40, 2)).round(3)
        people = rng.poisson(60, 40)
    else:
        with data_path("flldp_chiang_mai", "chiang_mai.csv").open() as stream:
            rows = list(csv.DictReader(stream))
        degrees = np.array([[float(row["x"]), float(row["y"])] for row in rows])
        positions = ((degrees - degrees.min(axis=0)) * [105.3, 111.2]).round(4)  # km at 18.8 degrees north
        people = np.array([int(row["Evacuees"]) for row in rows])
    costs = rng.uniform(0.1, 0.3, len(people)).round(3)
    lines = [
        f"s{number:03d},{x},{y},{cost},{count}"
        for number, ((x, y), cost, count) in enumerate(zip(positions.tolist(), costs.tolist(), people, strict=True))
    ]
    (folder / "sites.csv").write_text("\n".join(["id,x,y,facility_cost,clients", *lines]) + "\n")
    (folder / "shelters.toml").write_text(
        'title = "Shelters, planned from noisy counts"\n'
        f'[locations]\npoints = "sites.csv"\n[privacy]\nepsilon = {EPSILON}  # of a person\n'
        f"failure_probability = {FAILURE_PROBABILITY}\n[fl-linear]\nmost_facilities = {4 if small else 12}\n"
        # Public, so it must not be the mean of the secret counts.
        f"mean_clients = {60 if small else 70}  # by an earlier survey\n"
    )
    return positions, people


def read_plan(folder: Path) -> tuple[dict[str, float], dict[str, str]]:
    """Return the capacity of each shelter, and the shelter of each site, of the published plan."""
    with (folder / "plan" / "capacities.csv").open() as stream:
        capacities = {row["id"]: float(row["capacity"]) for row in csv.DictReader(stream)}
    with (folder / "plan" / "connections.csv").open() as stream:
        facility_by_site = {row["id"]: row["facility"] for row in csv.DictReader(stream)}
    return capacities, facility_by_site


def measure_overflows(folder: Path, capacities: dict[str, float], facility_by_site: dict[str, str]) -> float:
    """Return how often some shelter of the plan would have had too few places, had the noise been drawn otherwise.

    A shelter has the noisy count of its sites and a margin. It overflows if the noise took more off than the margin.

    Args:
        folder: The folder of the job, with the published plan.
        capacities: The places of each shelter.
        facility_by_site: The shelter of each site.
    """
    with (folder / "plan" / "problem" / "sites.csv").open() as stream:
        noisy_counts = {row["id"]: float(row["noisy_clients"]) for row in csv.DictReader(stream)}
    sites: dict[str, list[str]] = {name: [] for name in capacities}
    for site, facility in facility_by_site.items():
        sites[facility].append(site)
    rng, failures = np.random.default_rng(1), np.zeros(DRAWS, dtype=bool)
    for name, served in sites.items():
        margin = capacities[name] - sum(noisy_counts[site] for site in served)
        # Two-sided geometric noise is the difference of two geometric numbers.
        draws = rng.geometric(1 - np.exp(-EPSILON), (2, DRAWS, len(served)))
        failures |= (draws[0] - draws[1]).sum(axis=1) < -margin
    return float(failures.mean())


def run_job(folder: Path, *, small: bool) -> dict[str, float]:
    """Make and check the plan; return shelters, people, overflows (at the true counts, and how often), and its cost."""
    positions, people = write_sites(folder, small=small)
    privopt(folder, "solve", "fl-linear", "shelters.toml", "--out", "plan", "--quiet")
    privopt(folder, "verify", "plan", "--quiet")
    privopt(folder, "report", "plan", "--quiet")
    capacities, facility_by_site = read_plan(folder)
    numbers = {f"s{number:03d}": number for number in range(len(people))}
    served: dict[str, int] = dict.fromkeys(capacities, 0)
    for site, facility in facility_by_site.items():
        served[facility] += int(people[numbers[site]])
    with (folder / "sites.csv").open() as stream:
        place_cost = {row["id"]: float(row["facility_cost"]) for row in csv.DictReader(stream)}
    distances = np.linalg.norm(positions[:, None] - positions, axis=2)

    def travel(facility_of: dict[str, str]) -> float:
        """Return the distance in km that all people travel to the shelters of their sites."""
        return sum(
            float(distances[numbers[site], numbers[facility]]) * int(people[numbers[site]])
            for site, facility in facility_of.items()
        )

    chosen = list(capacities)
    # Costs of a person's place and travel (N, shelters). If the counts were known, everybody would get the cheapest.
    unit_costs = distances[:, [numbers[name] for name in chosen]] + np.array([place_cost[name] for name in chosen])
    best_for_these = float(people @ unit_costs.min(axis=1))
    plan_cost = travel(facility_by_site) + sum(place_cost[name] * capacity for name, capacity in capacities.items())
    told = json.loads((folder / "plan" / "result.json").read_text())["details"]["told"]
    return {
        "shelters": len(capacities),
        "people": int(people.sum()),
        "places": sum(capacities.values()),
        "overflow_rate": measure_overflows(folder, capacities, facility_by_site),
        "overflowing_shelters": sum(served[name] > capacity for name, capacity in capacities.items()),
        "cost_over_same_shelters_of_true_counts": plan_cost / best_for_these,
        "chosen_by_reports": float(told["plans"]["chosen"] == "reports"),
    }


if __name__ == "__main__":
    main(__doc__, run_job)
