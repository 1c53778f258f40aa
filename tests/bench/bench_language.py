"""Time the modelling language against cvxpy, linopy, PuLP and python-mip, and write docs/benchmarks/language.md.

Run as ``python tests/bench/bench_language.py --peers PYTHON [--runs N] [--limit SECONDS] [--write FILE]``. PYTHON is an
interpreter that has cvxpy, linopy, pulp, mip and highspy of privopt's version; privopt runs in this one. Every run of
every tool has a process of its own (``language_peers.py``), and the runs of the tools take turns. A tool that does not
end within the limit is not run again at that size, and the table says so. A small model is measured too, from the start
of the process to its end (``language_cells.py``). ``--keep FILE`` keeps the runs, and a later call adds to them.
``--only TOOL ...``, ``--rows N ...`` and ``--cells N ...`` measure a part.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

import language_cells
from language_peers import COLUMNS, TOOLS

WORKER = Path(__file__).with_name("language_peers.py")
CELLS_WORKER = Path(__file__).with_name("language_cells.py")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "benchmarks" / "language.md"
SIZES = (667, 6667)
CELLS = (30,)
STAGES = ("state", "solve", "solve again")
Runs = list[dict[str, Any]]

HEADER = """# Benchmarks: the modelling language

By `python tests/bench/bench_language.py --peers PYTHON` on 2 processors shared with other work; load is that of the
minute before a run ended. Seconds are of the processor, of all processes of a tool, after imports and after a model of
one record was solved, which loads what a tool loads late and starts CBC's process for privopt: medians of the runs, and
in brackets how many times the fastest of the column with the same solver. Each run has a process of its own.
Privopt, cvxpy, linopy and PuLP solve with HiGHS 1.15.1 in that process; python-mip solves with CBC, and so does privopt
in the line that says so. CBC chooses its own method for python-mip; privopt asks it for the dual simplex method, as a
line of python-mip does. Every answer of privopt is checked in the units of the model, which the others do not do.

The model has N records with 50 shares each, which sum to 1 and lie below a bound y of the record; shares and bounds
have random costs. That is 150 N nonzeros. To solve again, all costs are changed by up to 10 %. In its optimum the m
cheapest shares of a record are 1/m, for the best m, so that the optimum is known in closed form; the error is the
largest relative one of both solves.
"""


def measure(tool: str, rows: int, python: str, limit: float) -> dict[str, Any]:
    """Return one run: seconds of each stage, and errors; a note if it did not end within the limit or failed."""
    run: dict[str, Any] = {"tool": tool, "rows": rows}
    try:
        done = subprocess.run(
            [python, str(WORKER), tool, str(rows)], capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return run | {"note": f"not within {limit:.0f} s", "load": os.getloadavg()[0]}
    if done.returncode:
        return run | {"note": done.stderr.strip().splitlines()[-1], "load": os.getloadavg()[0]}
    return run | json.loads(done.stdout.strip().splitlines()[-1]) | {"load": os.getloadavg()[0]}


def measure_cells(tool: str, cells: int, python: str, limit: float) -> dict[str, Any]:
    """Return one run of a small model: processor seconds of the whole process with its children; or a note."""
    run: dict[str, Any] = {"tool": tool, "cells": cells}
    before = os.times()
    try:
        done = subprocess.run(
            [python, str(CELLS_WORKER), tool, str(cells)], capture_output=True, text=True, timeout=limit, check=False
        )
    except subprocess.TimeoutExpired:
        return run | {"note": f"not within {limit:.0f} s", "load": os.getloadavg()[0]}
    # The worker processes of a tool are waited for by the tool, and so counted with it.
    seconds = sum(os.times()[2:4]) - sum(before[2:4])
    if done.returncode:
        return run | {"note": done.stderr.strip().splitlines()[-1], "load": os.getloadavg()[0]}
    objective = json.loads(done.stdout.strip().splitlines()[-1])["objective"]
    return run | {"seconds": seconds, "objective": objective, "load": os.getloadavg()[0]}


def describe_cells(runs: Runs) -> list[str]:
    """Return the lines of the tables of small models, each with the ratio to python-mip."""
    lines = []
    for cells in sorted({run["cells"] for run in runs}):
        title = f"{cells} cells, {cells**2 * (cells - 1) + cells:,} rows, whole process"
        lines += [f"\n## {title}\n", "| tool | seconds | times python-mip | optimum | runs | load |"]
        lines.append("| --- |" + " --- |" * 5)
        groups = {
            tool: [run for run in runs if run["tool"] == tool and run["cells"] == cells]
            for tool in language_cells.TOOLS
        }
        medians = {
            tool: statistics.median(run["seconds"] for run in group if "seconds" in run)
            for tool, group in groups.items()
            if any("seconds" in run for run in group)
        }
        peer = medians.get("python-mip, CBC", float("nan"))
        for tool, group in groups.items():
            if tool in medians:
                optimum = f"{next(run['objective'] for run in group if 'objective' in run):.9f}"
                load = statistics.median(run["load"] for run in group)
                seconds = medians[tool]
                lines.append(
                    f"| {tool} | {seconds:.2f} | {seconds / peer:.2f} | {optimum} | {len(group)} | {load:.0f} |"
                )
            elif group:
                lines.append(f"| {tool} | - | - | {group[0]['note']} | {len(group)} | {group[0]['load']:.0f} |")
    lines.append("\nImports are in these seconds: of NumPy, SciPy and sympy for privopt, of its own for python-mip.")
    return lines


def describe_runs(all_runs: Runs) -> str:
    """Return the tables: a line for each tool, with the ratio to the fastest of each column in brackets."""
    parts = [HEADER]
    runs = [run for run in all_runs if "rows" in run]
    for rows in sorted({run["rows"] for run in runs}):
        parts.append(f"\n## {150 * rows:,} nonzeros\n\n| tool | {' | '.join(STAGES)} | error | runs | load |")
        parts.append("| --- |" + " --- |" * (len(STAGES) + 3))
        lines: dict[str, Any] = {}
        for tool in TOOLS:
            own = [run for run in runs if run["tool"] == tool and run["rows"] == rows]
            ended = [run for run in own if "laps" in run]
            if ended:
                medians = [statistics.median(run["laps"][stage][0] for run in ended) for stage in range(len(STAGES))]
                errors = max(max(run["errors"]) for run in ended)
                lines[tool] = medians, f"{errors:.0e}", len(ended), statistics.median(run["load"] for run in own)
            elif own:
                lines[tool] = None, own[0]["note"], len(own), own[0]["load"]
        groups = [[tool for tool in lines if ("CBC" in tool) is is_cbc and lines[tool][0]] for is_cbc in (False, True)]
        for tool, (medians, error, count, load) in lines.items():
            cells = ["-"] * len(STAGES)
            if medians is not None:
                peers = next(group for group in groups if tool in group)
                best = [min(lines[peer][0][stage] for peer in peers) for stage in range(len(STAGES))]
                cells = [f"{m:.2f} ({m / max(b, 0.01):.1f})" for m, b in zip(medians, best, strict=True)]
            parts.append(f"| {tool} | {' | '.join(cells)} | {error} | {count} | {load:.0f} |")
    parts += describe_cells([run for run in all_runs if "cells" in run])
    return "\n".join(parts) + "\n"


def main() -> None:
    """Measure, keep the runs, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--peers", default=sys.executable)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--limit", type=float, default=600.0)
    parser.add_argument("--rows", type=int, nargs="*", default=SIZES)
    parser.add_argument("--cells", type=int, nargs="*", default=CELLS)
    parser.add_argument("--only", nargs="*", default=tuple(TOOLS))
    parser.add_argument("--keep", type=Path, default=None)
    parser.add_argument("--write", type=Path, default=PAGE)
    arguments = parser.parse_args()
    assert COLUMNS == 50
    runs: Runs = json.loads(arguments.keep.read_text()) if arguments.keep and arguments.keep.exists() else []
    tasks: list[tuple[str, int, Any, Any]] = [
        *(("cells", cells, measure_cells, language_cells.TOOLS) for cells in arguments.cells),
        *(("rows", rows, measure, TOOLS) for rows in arguments.rows),
    ]
    for key, size, measure_run, tools in tasks:
        for _ in range(arguments.runs):
            for tool in (tool for tool in arguments.only if tool in tools):
                if any(run["tool"] == tool and run.get(key) == size and "note" in run for run in runs):
                    continue  # it did not end before
                python = sys.executable if tool.startswith("privopt") else arguments.peers
                runs.append(measure_run(tool, size, python, arguments.limit))
                print(runs[-1], flush=True)
                if arguments.keep:
                    arguments.keep.write_text(json.dumps(runs))
    arguments.write.write_text(describe_runs(runs), encoding="utf-8")


if __name__ == "__main__":
    main()
