"""The theorem of spherical-laplace against optimal-lp over evenly spread points of the sphere, all pairs.

Run as ``python tests/bench/bench_sphere_optima.py [--spirals 50 100 200] [--orbits 1 4 17]``. Spirals have no
symmetry; sets of 60 points an orbit are kept by the icosahedron's rotations. Seconds are of the processors, for the
whole command.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
from fractions import Fraction
from pathlib import Path

import numpy as np
from bench_city import PRIVOPT

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from helpers.even_spheres import icosahedral_positions, spiral_positions, write_sphere_problem

from privopt_spherical_laplace.law import expected_distance

EPSILON = "0.0005"


def solve_over(folder: Path, positions: np.ndarray, *options: str) -> str:
    """Return a line of the table for the optimum over positions."""
    problem = write_sphere_problem(folder, positions, EPSILON)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    solve = [*PRIVOPT, "solve", "optimal-lp", problem, "--out", folder / "out", "--force", "--quiet", "--json"]
    command = ["/usr/bin/time", "-f", "%M", *map(str, solve), *options]
    completed = subprocess.run(command, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    objective = json.loads(completed.stdout)["objective"]
    gigabytes = int(completed.stderr.splitlines()[-1]) * 1024 / 1e9
    law = expected_distance(Fraction(EPSILON))[0]
    figures = f"{objective['value']:.2f} | {objective['lower_bound']:.2f} | {law - objective['value']:.1f}"
    return f"{len(positions):,} | {figures} | {seconds:.0f} | {gigabytes:.2f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--spirals", type=int, nargs="*", default=[50, 100, 200])
    parser.add_argument("--orbits", type=int, nargs="*", default=[1, 4, 17])
    options = parser.parse_args()
    print(f"The law loses {expected_distance(Fraction(EPSILON))[0]:.2f} km at {EPSILON} per km.")
    print("| set | points | optimum, km | bound | below the law | processor seconds | GB |\n" + "| --- " * 7 + "|")
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        for count in options.spirals:
            print(f"| spiral | {solve_over(folder, spiral_positions(count), '--gap', '1e-4')} |", flush=True)
        for orbits in options.orbits:
            limits = ("--method", "interior-point", "--gap", "1e-4", "--memory", "6")
            print(f"| icosahedral | {solve_over(folder, icosahedral_positions(orbits), *limits)} |", flush=True)
    print(f"Load {os.getloadavg()[0]:.1f} at the end.")


if __name__ == "__main__":
    main()
