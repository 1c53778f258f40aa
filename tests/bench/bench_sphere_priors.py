"""Meshes that protect every point, beside exact noise on the sphere with and without a remap: the loss under priors.

Run as ``python tests/bench/bench_sphere_priors.py [--priors uniform real] [--sides 1 .25] [--epsilons 1 2 4]``, about
an hour on two processors. A square of 10 x 10 km has a mesh of equilateral triangles. People are anywhere in it,
equally, or at its vertices with the numbers of Chiang Mai's evacuees (``PRIVOPT_DATA``; each place counts for the
nearest vertex). The loss is the distance to the report in km. Of the sphere's law,

- *as it is* is 2 / epsilon, rounded to 5 digits;
- *vertices* is the bound in result.json where reports are the vertices, remapped under the prior (at most 400);
- *remapped* replaces each position by the median of its posterior, estimated from 4,000 draws to about 1 %.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from bench_city import DATA, PRIVOPT, _table, run_command
from bench_everywhere import SIDE, solve_and_verify, square

from privopt.declare.schema import File
from privopt.registry import registry
from privopt.run.task import read_problem
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.solvers.noise_at_positions import estimate_noise_loss, people_over_region

CHIANG_MAI = DATA / "flldp_chiang_mai" / "chiang_mai.csv"
KM_PER_DEGREE = float(np.radians(6371.0088))
REPORTS = 4_000
"""Noisy positions whose posterior medians give the loss of a remap, to about 1 %."""
MOST_REMAPPED = 400
"""Largest number of points that spherical-laplace remaps."""


def read_mesh(folder: Path) -> MetricData:
    """Return the data of the folder's problem, whose records are the mesh's vertices."""
    mechanism, source = registry().get("optimal-lp").load(), File.read(folder / "problem.toml")
    return mechanism.load(read_problem(mechanism, source), source.name).data


def count_people(vertices: np.ndarray) -> np.ndarray:
    """Return the share (N,) of Chiang Mai's evacuees at each vertex; its middle is the middle of the square."""
    rows = list(csv.DictReader(CHIANG_MAI.open()))
    places = np.array([(float(row["x"]), float(row["y"])) for row in rows])
    people = np.array([float(row["Evacuees"]) for row in rows])
    middle = np.median(places, axis=0)
    offsets = (places - middle) * KM_PER_DEGREE * [np.cos(np.radians(middle[1])), 1.0]
    positions = offsets + SIDE / 2
    is_inside = ((positions >= 0) & (positions <= SIDE)).all(axis=1)
    nearest = ((positions[is_inside, None] - vertices[None]) ** 2).sum(axis=2).argmin(axis=1)
    counts = np.bincount(nearest, weights=people[is_inside], minlength=len(vertices))
    return counts / counts.sum()


def solve_sphere(folder: Path, epsilon: float, ids: list[str], vertices: np.ndarray, shares: np.ndarray | None) -> str:
    """Return the loss of spherical-laplace where the vertices, brought to the equator, are its points."""
    if len(ids) > MOST_REMAPPED or shares is None:
        return "-"
    degrees = vertices[:, ::-1] / KM_PER_DEGREE
    _table(
        folder / "places.csv",
        "id,lat,lon",
        ([name, *map(repr, at)] for name, at in zip(ids, degrees.tolist(), strict=True)),
    )
    text = f'[records]\npoints = "places.csv"\n[distance]\nkind = "haversine"\n[privacy]\nepsilon = {epsilon}\n'
    (folder / "sphere.toml").write_text(f'{text}[utility]\nkind = "distance"\nprior = "prior.csv"\n')
    out = folder / "sphere"
    solve = [*PRIVOPT, "solve", "spherical-laplace", folder / "sphere.toml", "--out", out, "--force", "--quiet"]
    code, _, _, stdout = run_command([*solve, "--json"])
    return f"{json.loads(stdout)['objective']['value']:.3f}" if code == 0 else f"exit {code}"


def rows_of(folder: Path, prior: str, side_km: float, epsilon: float) -> Iterator[str]:
    """Yield the cells of one row of the table."""
    square(folder, side_km, epsilon, "everywhere = true\n")
    records = read_mesh(folder).records
    ids, vertices = list(records.ids), np.asarray(records.coordinates)
    utility, shares = "", None
    if prior == "real":
        shares = count_people(vertices)
        _table(folder / "prior.csv", "id,p", zip(ids, map(repr, shares.tolist()), strict=True))
        utility = 'prior = "prior.csv"\n'
    for mechanism, more in (("optimal-lp", ""), ("planar-laplace", ""), ("planar-laplace", "remap = true\n")):
        square(folder, side_km, epsilon, "everywhere = true\n", utility + more)
        figures = solve_and_verify(folder, mechanism, *(("--gap", "1e-2") if mechanism == "optimal-lp" else ()))
        yield f"{figures['loss']:.3f}" if figures["exit"] == 0 and figures["verify"] == 0 else f"exit {figures['exit']}"
    yield f"{2 / epsilon:.3f}"
    yield solve_sphere(folder, epsilon, ids, vertices, shares)
    if shares is None:
        # A mesh reaches beyond the square by up to a side, and people are evenly over all of it.
        people, shares = people_over_region(read_mesh(folder), at_records=False)
    else:
        people, shares = vertices[shares > 0], shares[shares > 0]
    yield f"{estimate_noise_loss(people, shares, epsilon, report_count=REPORTS):.3f}"


def main() -> None:
    """Print the table, row by row."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--priors", nargs="*", default=["uniform", "real"], choices=["uniform", "real"])
    parser.add_argument("--sides", type=float, nargs="*", default=[1.0, 0.25])
    parser.add_argument("--epsilons", type=float, nargs="*", default=[1.0, 2.0, 4.0])
    options = parser.parse_args()
    columns = "optimal-lp | planar-laplace | remapped | sphere as it is | vertices | remapped"
    print(f"| prior | epsilon, per km | side, km | {columns} |\n{'| --- ' * 9}|", flush=True)
    with tempfile.TemporaryDirectory() as folder_name:
        for prior in options.priors:
            if prior == "real" and not CHIANG_MAI.exists():
                print("left out: Chiang Mai's places are not there")
                continue
            for side_km in options.sides:
                for epsilon in options.epsilons:
                    cells = " | ".join(rows_of(Path(folder_name), prior, side_km, epsilon))
                    print(f"| {prior} | {epsilon:g} | {side_km:g} | {cells} |", flush=True)
    print(f"Load {os.getloadavg()[0]:.1f} at the end.")


if __name__ == "__main__":
    main()
