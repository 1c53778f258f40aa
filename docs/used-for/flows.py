"""The same flows twice: from reports of trips, and from a table published by a platform that sees all trips.

``python docs/used-for/flows.py [--small] [--out FOLDER]`` draws trips over a city of 4.8 km by 4.8 km, and measures
both errors on them:

- every start and end is reported by planar Laplace at 2 per km, and ``release.estimate_flows`` estimates flows;
- ``hierarchical-tables`` publishes the table of flows at epsilon 1 for each rider, who makes up to six trips.

The full size has 576 cells of 200 m, 16 districts and 200,000 trips; the small one 64 cells, 4 districts and 20,000.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

import privopt as po

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CITY_KM = 4.8
TRIP_EPSILON = 0.1666  # six trips cost less than 1


def draw_trips(side: int, count: int) -> tuple[Ints, Ints]:
    """Draw trips between busy places, most of them short, and return the cells (count,) of their starts and ends.

    Args:
        side: Number of cells along each side of the city.
        count: Number of trips.
    """
    rng = np.random.default_rng(1)
    positions = np.array([[row, column] for row in range(side) for column in range(side)]) * (CITY_KM / side)
    distances = np.linalg.norm(positions[:, None] - positions, axis=2)

    def draw_attraction() -> Floats:
        """Return the cells' shares of trips: half of them even, half within about .6 km of four centres."""
        centres = rng.choice(len(positions), 4, replace=False)
        bumps = np.exp(-0.5 * (distances[centres] / 0.6) ** 2)
        centred = rng.dirichlet(np.full(4, 3.0)) @ (bumps / bumps.sum(axis=1, keepdims=True))
        shares: Floats = 0.5 / len(positions) + 0.5 * centred
        return shares

    law = draw_attraction()[:, None] * draw_attraction() * np.exp(-distances / 1.2)
    pairs = rng.choice(law.size, count, p=(law / law.sum()).ravel())
    return pairs // len(positions), pairs % len(positions)


def count_flows(trips: pl.DataFrame, district_by_cell: dict[str, str]) -> pl.DataFrame:
    """Return the number of trips between any two districts, also if there are none: columns from, to, count.

    Args:
        trips: Ids of the cells where trips start, in the first column, and of those where they end, in the second.
        district_by_cell: The district of each cell.
    """
    start, end = trips.columns
    names = pl.Series(sorted(set(district_by_cell.values())))
    pairs = pl.DataFrame({"from": names}).join(pl.DataFrame({"to": names}), how="cross")
    named = trips.select(
        pl.col(start).replace_strict(district_by_cell).alias("from"),
        pl.col(end).replace_strict(district_by_cell).alias("to"),
    )
    counts = named.group_by("from", "to").len("count")
    return pairs.join(counts, on=["from", "to"], how="left").fill_null(0).sort("from", "to")


def estimate_from_reports(
    trips: pl.DataFrame, district_by_cell: dict[str, str], side: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Estimate flows as an operator who sees only reports.

    Args:
        trips: Ids of the cells where trips start (``start``) and end (``end``).
        district_by_cell: The district of each cell.
        side: Number of cells along each side of the city.

    Returns:
        The estimated flows (from, to, share, low, high), and the flows of the reports (from, to, count).
    """
    places = po.grid(rows=side, cols=side, cell_km=CITY_KM / side)
    release = po.solve("planar-laplace", po.metric_problem(places, distance="euclidean", epsilon="2/km"))
    reports = release.apply(trips, positions={"start": ["start"], "end": ["end"]})
    flows = release.estimate_flows(reports, start="start_report", end="end_report", by=district_by_cell)
    print(flows.pair_guarantee)
    return (
        flows.to_frame().sort("from", "to"),
        count_flows(reports.select("start_report", "end_report"), district_by_cell),
    )


def publish_table(folder: Path, counts: pl.DataFrame) -> pl.DataFrame:
    """Publish the table of an operator who sees all trips, and return it: from, to, count, low, high."""
    counts.with_columns(pl.lit("city").alias("level_1")).write_csv(folder / "counts.csv")
    (folder / "regions.csv").write_text("level_1\ncity\n")
    names = json.dumps(counts["from"].unique().sort().to_list())
    (folder / "central.toml").write_text(
        'title = "Trips between districts"\n'
        '[hierarchy]\nregions = "regions.csv"\nrecords = "counts.csv"  # secret: every trip counts\n'
        f"[hierarchy.attributes]\nfrom = {names}\nto = {names}\n"
        '[hierarchy.tables.flows]\nby = ["from", "to"]\n'
        f"[privacy]\nepsilon = {TRIP_EPSILON}  # of a trip: at most 1 for a rider, who makes up to six\n"
    )
    published = po.solve("hierarchical-tables", folder / "central.toml").save(folder / "central")
    return pl.read_csv(published / "tables" / "flows.csv").sort("from", "to")


def measure_errors(folder: Path, *, small: bool) -> dict[str, float]:
    """Return the mean flow and, for both ways, mean error and width in trips and the share of intervals that hold."""
    side, district_side, count = (8, 2, 20_000) if small else (24, 4, 200_000)
    starts, ends = draw_trips(side, count)
    ids = np.array([f"r{row}c{column}" for row in range(side) for column in range(side)])
    width = side // district_side
    district_by_cell = {
        f"r{row}c{column}": f"d{row // width}{column // width}" for row in range(side) for column in range(side)
    }
    trips = pl.DataFrame({"start": ids[starts], "end": ids[ends]})
    truth = count_flows(trips, district_by_cell)
    flows, raw_counts = estimate_from_reports(trips, district_by_cell, side)
    flows.write_csv(folder / "flows.csv")
    central = publish_table(folder, truth)
    true_counts = truth["count"].to_numpy().astype(float)
    figures = {"trips": float(count), "districts": float(district_side**2), "mean_flow": float(true_counts.mean())}
    figures["raw_error"] = float(np.abs(raw_counts["count"].to_numpy() - true_counts).mean())
    tables = {
        "local": flows.select("share", "low", "high").to_numpy() * count,
        "central": central.select("count", "low", "high").to_numpy().astype(float),
    }
    for name, values in tables.items():
        estimated, low, high = values.T
        figures[f"{name}_error"] = float(np.abs(estimated - true_counts).mean())
        figures[f"{name}_width"] = float((high - low).mean())
        figures[f"{name}_held"] = float(((low <= true_counts) & (true_counts <= high)).mean())
    return figures


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--out", type=Path, help="a new folder for both tables; a temporary one by default")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.out or Path(temporary)
        if arguments.out:
            folder.mkdir()
        figures = measure_errors(folder, small=arguments.small)
    print(
        f"{figures['trips']:,.0f} trips between {figures['districts']:.0f} districts: {figures['mean_flow']:.0f} a flow"
    )
    print(f"reports counted: mean error {figures['raw_error']:.1f} trips")
    for name, text in (("local", "estimate from reports"), ("central", "table of a trusted operator")):
        print(
            f"{text}: mean error {figures[f'{name}_error']:.1f} trips, intervals {figures[f'{name}_width']:.0f} wide, "
            f"{figures[f'{name}_held']:.3f} of them hold"
        )


if __name__ == "__main__":
    main()
