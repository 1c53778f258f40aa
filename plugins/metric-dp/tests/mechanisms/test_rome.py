"""Rome's street cells (real data, skipped where it is not at hand): published values and an independent solver."""

import csv

import numpy as np
import pytest
from helpers.data import data_path
from helpers.whole_program import optimum

from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify

CELLS = ("lrgeo_rome", "reget_rome_cell_node40x40.csv")


def rome(folder, n, epsilon):
    """Return the first n cells: haversine, every pair, uniform prior, loss = distance."""
    with data_path(*CELLS).open() as stream:
        rows = list(csv.DictReader(stream))[:n]
    folder.mkdir()
    lines = [f"{row['grid_index']},{row['y']},{row['x']}\n" for row in rows]
    (folder / "points.csv").write_text("id,lat,lon\n" + "".join(lines))
    (folder / "problem.toml").write_text(
        '[records]\npoints = "points.csv"\n[distance]\nkind = "haversine"\n'
        f'[privacy]\nepsilon = {epsilon}\n[utility]\nkind = "distance"\n'
    )
    return folder / "problem.toml"


def independent(problem):
    """Return the optimum by scipy.optimize.linprog on rows written out here, sharing no code with the package."""
    with (problem.parent / "points.csv").open() as stream:
        points = np.radians([[float(row["lat"]), float(row["lon"])] for row in csv.DictReader(stream)])
    lat, lon = points.T
    half = (
        np.sin((lat[:, None] - lat) / 2) ** 2
        + np.cos(lat)[:, None] * np.cos(lat) * np.sin((lon[:, None] - lon) / 2) ** 2
    )
    d = 2 * 6371.0 * np.arcsin(np.sqrt(half))
    n = len(d)
    epsilon = float(problem.read_text().split("epsilon = ")[1].split()[0])
    pairs = np.argwhere(np.triu(np.ones((n, n), dtype=bool), 1))
    return optimum(d / n, pairs, epsilon * d[tuple(pairs.T)])


@pytest.mark.parametrize("solver", ["cbc", "highs"])
def test_eight_cells_give_the_published_loss(tmp_path, solver):
    problem = rome(tmp_path / "rome", 8, "1.0")
    release = solve("optimal-lp", problem, tmp_path / "out", Options(method="full", solver=solver))
    assert release.result.objective.value == pytest.approx(0.618308503, abs=2e-9)
    assert release.result.status == "optimal"
    assert verify(tmp_path / "out").complaints == ()


@pytest.mark.parametrize("solver", ["cbc", "highs", None])
@pytest.mark.parametrize(("n", "epsilon"), [(20, "2.0"), pytest.param(40, "1.0", marks=pytest.mark.slow)])
def test_more_cells_match_independent_solver(tmp_path, n, epsilon, solver):
    problem = rome(tmp_path / "rome", n, epsilon)
    options = Options() if solver is None else Options(method="full", solver=solver)
    result = solve("optimal-lp", problem, tmp_path / "out", options).result
    optimum = independent(problem)
    assert result.objective.value == pytest.approx(optimum, rel=1e-6)
    assert result.objective.lower_bound <= optimum * (1 + 1e-9)
    assert result.certificate.checked == n * (n - 1) // 2 * n
    assert verify(tmp_path / "out").complaints == ()
