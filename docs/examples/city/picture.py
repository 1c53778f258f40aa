"""Draw README's picture: one true place of the city, and where its reports fall. Writes city-reports.png here."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import polars as pl
from matplotlib.figure import Figure

from privopt.api.released import open_release
from privopt.run.solve import solve

HERE = Path(__file__).resolve().parent
PICTURE = HERE / "city-reports.png"
TRUE_PLACE = "r2c2"
REPORT_COUNT = 2_000


def draw_reports() -> Counter[str]:
    """Solve the city, and count the reports of the true place by junction."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "city"
        solve("optimal-lp", HERE / "problem.toml", out)
        return Counter(open_release(out).sample(TRUE_PLACE, REPORT_COUNT))


def main() -> None:
    """Draw the streets, the true place, and a circle at each reported junction whose area is its share."""
    positions = {row["id"]: (row["lon"], row["lat"]) for row in pl.read_csv(HERE / "points.csv").to_dicts()}
    figure = Figure(figsize=(7.2, 5.2), dpi=150, layout="tight")
    axes = figure.add_subplot()
    for street in pl.read_csv(HERE / "roads.csv").to_dicts():
        ends = [positions[street["from"]], positions[street["to"]]]
        axes.plot(*zip(*ends, strict=True), color="#c9ced6", linewidth=1.6, zorder=1)
    counts = draw_reports()
    reported = list(counts)
    axes.scatter(
        [positions[place][0] for place in reported],
        [positions[place][1] for place in reported],
        s=[1.6 * counts[place] for place in reported],
        color="#2b6cb0",
        alpha=0.75,
        linewidth=0,
        zorder=2,
        label=f"{REPORT_COUNT:,} reports: the larger, the more often",
    )
    axes.scatter(*positions[TRUE_PLACE], marker="*", s=230, color="#d9480f", zorder=3, label="the true place")
    # The pages show the picture at a third of its size, where 17 points are still 12 pixels.
    legend = axes.legend(loc="upper center", bbox_to_anchor=(0.5, 0.02), frameon=False, fontsize=17)
    for handle in legend.legend_handles:
        if handle is not None and hasattr(handle, "set_sizes"):
            handle.set_sizes([90])
    axes.set_aspect(1.41)  # a degree of longitude is this much shorter at 45 degrees north
    axes.axis("off")
    figure.savefig(PICTURE)


if __name__ == "__main__":
    main()
