"""How seconds and memory of chosen outputs grow with places and outputs, and the picture of it.

Run as ``python tests/bench/bench_growth.py [--measure]``. ``--measure`` solves Rome's streets cut to N places with K
outputs, as ``bench_places.py`` does, and records processor seconds, which other programs change little, and memory in
``docs/benchmarks/growth.csv``; without it ``docs/img/growth.svg`` is drawn from what is recorded.
"""

from __future__ import annotations

import argparse
import csv
import json
import resource
import tempfile
from pathlib import Path

import matplotlib as mpl
import numpy as np
from bench_city import PRIVOPT, ROOT, run_command
from bench_places import cut, rome_positions, rome_roads, write
from matplotlib import pyplot as plt

RECORDED = ROOT / "docs" / "benchmarks" / "growth.csv"
PICTURE = ROOT / "docs" / "img" / "growth.svg"
SIZES = ((5_000, 120), (10_000, 120), (20_000, 120), (50_000, 120), (20_000, 30), (20_000, 60), (20_000, 240))
PLACES, OUTPUTS = 20_000, 120
"""Where the two lines of sizes cross."""
KINDS = (("processor_seconds", "processor seconds"), ("gb", "GB"))


def measure(places: int, outputs: int) -> list[str]:
    """Solve once at 4 per km to 5 %: processor seconds of the whole command, GB, the gap reached."""
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        write(folder, cut(rome_positions(), rome_roads(), places), 4.0, outputs)
        command = [*PRIVOPT, "solve", "optimal-lp", folder / "problem.toml", "--out", folder / "out", "--gap", "5e-2"]
        start_usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        _, _, peak, stdout = run_command([*command, "--json", "--quiet"])
        end_usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = end_usage.ru_utime + end_usage.ru_stime - start_usage.ru_utime - start_usage.ru_stime
    gap = json.loads(stdout)["objective"]["gap"]
    return [str(places), str(outputs), f"{used:.1f}", f"{peak:.2f}", f"{gap:.4f}"]


def slope(sizes: list[int], values: list[float]) -> float:
    """Return the exponent of a power fitted to logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def draw(rows: list[dict[str, str]]) -> None:
    """Draw seconds and memory against places at one number of outputs, and against outputs at one number of places."""
    mpl.rcParams.update({"svg.hashsalt": "growth", "svg.fonttype": "none", "font.size": 11})
    figure, panels = plt.subplots(2, 1, figsize=(5, 6), sharey=True, layout="constrained")
    lines = (("places", "outputs", OUTPUTS), ("outputs", "places", PLACES))
    for panel, (across, fixed_column, value) in zip(panels, lines, strict=True):
        line_rows = sorted((row for row in rows if int(row[fixed_column]) == value), key=lambda row: int(row[across]))
        sizes = [int(row[across]) for row in line_rows]
        for key, label in KINDS:
            values = [float(row[key]) for row in line_rows]
            panel.loglog(sizes, values, "o-", label=f"{label}, slope {slope(sizes, values):.2f}")
        panel.set_xlabel(f"{across}, at {value:,} {fixed_column}")
        panel.set_xticks(sizes, [f"{size:,}" for size in sizes])
        panel.minorticks_off()
        panel.grid(alpha=0.3)
        panel.legend(frameon=False)
    figure.savefig(PICTURE, metadata={"Date": None})


def main() -> None:
    """Measure, asked to, and draw."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", action="store_true", help="measure again first")
    if parser.parse_args().measure:
        lines = [["places", "outputs", "processor_seconds", "gb", "gap"]]
        for places, outputs in SIZES:
            lines.append(measure(places, outputs))
            print(*lines[-1], flush=True)
        with RECORDED.open("w", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerows(lines)
    draw(list(csv.DictReader(RECORDED.open())))


if __name__ == "__main__":
    main()
