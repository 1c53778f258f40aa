"""Make the small city of the examples: junctions, streets, targets, prior. Nobody lives there.

Run ``python docs/examples/city/make_city.py`` to write the CSV files beside this script again; the same
seed gives the same city to the last digit.
"""

from __future__ import annotations

import csv
import math
from pathlib import Path

import numpy as np

SEED = 20260401
ROWS, COLS = 6, 8
BLOCK_KM = 0.45
SOUTH_WEST = (45.0, 7.0)
RIVER = 3  # between rows 2 and 3, crossed by two bridges
BRIDGES = (1, 5)
EARTH_RADIUS_KM = 6371.0


def junctions(random: np.random.Generator) -> dict[str, tuple[float, float]]:
    """Return (x, y) in km by id, such as "r1c2": a grid whose junctions are moved at random."""
    return {
        f"r{r}c{c}": (
            float((c + random.normal(0, 0.13)) * BLOCK_KM),
            float((r + random.normal(0, 0.13) + (0.35 if r >= RIVER else 0)) * BLOCK_KM),
        )
        for r in range(ROWS)
        for c in range(COLS)
    }


def streets(places: dict[str, tuple[float, float]], random: np.random.Generator) -> list[tuple[str, str, float]]:
    """Return streets (from, to, km) along the grid, 5 to 35 % longer than straight lines. Only two cross the river."""
    street_list = []
    for r in range(ROWS):
        for c in range(COLS):
            for dr, dc in ((0, 1), (1, 0)):
                end = f"r{r + dr}c{c + dc}"
                over_river = dr == 1 and r + 1 == RIVER
                if end not in places or (over_river and c not in BRIDGES):
                    continue
                if not over_river and dr == 1 and random.random() < 0.12:
                    continue  # a dead end
                start = f"r{r}c{c}"
                km = math.dist(places[start], places[end]) * float(random.uniform(1.05, 1.35))
                street_list.append((start, end, km))
    return street_list


def write(path: Path, header: list[str], rows: list[list[object]]) -> None:
    """Write a CSV file with LF line ends."""
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        writer.writerows(rows)


def main() -> None:
    """Write points.csv, roads.csv, targets.csv and prior.csv."""
    folder = Path(__file__).resolve().parent
    random = np.random.default_rng(SEED)
    places = junctions(random)
    roads = streets(places, random)
    north = math.degrees(1 / EARTH_RADIUS_KM)
    east = north / math.cos(math.radians(SOUTH_WEST[0]))
    write(
        folder / "points.csv",
        ["id", "lat", "lon"],
        [
            [name, f"{SOUTH_WEST[0] + y * north:.7f}", f"{SOUTH_WEST[1] + x * east:.7f}"]
            for name, (x, y) in places.items()
        ],
    )
    write(folder / "roads.csv", ["from", "to", "km"], [[a, b, f"{km:.4f}"] for a, b, km in roads])
    names = sorted(places)
    targets = random.choice(names, size=6, replace=False)
    write(
        folder / "targets.csv", ["id", "weight"], [[str(name), int(random.integers(1, 6))] for name in sorted(targets)]
    )
    centre = places["r2c3"]
    mass = np.array([math.exp(-math.dist(places[name], centre)) for name in places])
    shares = np.round(mass / mass.sum(), 6)
    shares[0] += 1 - shares.sum()
    write(folder / "prior.csv", ["id", "p"], [[name, f"{p:.6f}"] for name, p in zip(places, shares, strict=True)])


if __name__ == "__main__":
    main()
