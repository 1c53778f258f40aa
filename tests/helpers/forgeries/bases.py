"""Problems whose DIRs are forged, and the forms that those DIRs have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from helpers.examples import EXAMPLES
from helpers.forgeries.planes import SQUARES, TRIANGLES
from privopt.run.solve import solve
from privopt.run.task import Options


def _town(folder: Path) -> Path:
    folder.mkdir(parents=True)
    rows = [(0, 0), (0.5, 0.1), (1.1, 0), (0.1, 0.7), (0.6, 0.8), (1.2, 0.9)]
    (folder / "points.csv").write_text("id,x,y\n" + "".join(f"p{i},{x},{y}\n" for i, (x, y) in enumerate(rows)))
    (folder / "prior.csv").write_text(
        "id,p\n" + "".join(f"p{i},{p}\n" for i, p in enumerate((0.1, 0.2, 0.2, 0.2, 0.2, 0.1)))
    )
    text = '[records]\npoints = "points.csv"\n[distance]\nkind = "euclidean"\n[privacy]\nepsilon = 1.5\n'
    (folder / "problem.toml").write_text(text + '[utility]\nkind = "distance"\nprior = "prior.csv"\n')
    return folder / "problem.toml"


def _twins(folder: Path) -> Path:
    problem = _town(folder)
    points = folder / "points.csv"
    points.write_text(points.read_text().replace("p4,0.6,0.8", "p4,0.5,0.1"))
    return problem


def _roads(folder: Path) -> Path:
    folder.mkdir(parents=True)
    edges = "a,b,0.31\nb,c,0.42\nc,d,0.25\nd,e,0.6\ne,a,0.5\nb,n,0.2\nn,d,0.3\n"
    (folder / "roads.csv").write_text("from,to,km\n" + edges)
    (folder / "points.csv").write_text("id\na\nb\nc\nd\ne\n")
    text = (
        '[records]\npoints = "points.csv"\n[distance]\nkind = "graph"\nedges = "roads.csv"\n[privacy]\nepsilon = 2.0\n'
    )
    (folder / "problem.toml").write_text(text + 'neighbours_within = 0.6\n[utility]\nkind = "travel-cost"\n')
    return folder / "problem.toml"


def _streets(folder: Path) -> Path:
    problem = _roads(folder)
    text = problem.read_text().replace("neighbours_within = 0.6", "everywhere = true\nsplit_km = 0.35")
    problem.write_text(text.replace("travel-cost", "distance"))
    return problem


def _plane(text: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        problem = _town(folder)
        problem.write_text(text)
        if text == SQUARES:
            (folder / "points.csv").unlink()
            shares = (folder / "prior.csv").read_text()
            for i in range(6):
                shares = shares.replace(f"p{i},", f"r{i // 3}c{i % 3},")
            (folder / "prior.csv").write_text(shares)
        return problem

    return write


def _guesses(folder: Path) -> Path:
    problem = _town(folder)
    problem.write_text(problem.read_text() + "remap = true\n")
    return problem


def _table(folder: Path) -> Path:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(3)
    table = rng.uniform(0.5, 1.5, (5, 5))
    table = (table + table.T) * (1 - np.eye(5))
    np.save(folder / "d.npy", table)
    np.save(folder / "c.npy", rng.uniform(0, 2, (5, 4)))
    text = '[records]\ncount = 5\n[outputs]\ncount = 4\n[distance]\nkind = "matrix"\nmatrix = "d.npy"\n[privacy]\n'
    (folder / "problem.toml").write_text(text + 'epsilon = 1.0\n[utility]\nkind = "matrix"\ncost = "c.npy"\n')
    return folder / "problem.toml"


def _grid(folder: Path) -> Path:
    folder.mkdir(parents=True)
    grid = "grid = { rows = 2, cols = 3, cell_km = 0.5, south_west = [41.86, 12.44] }"
    text = (
        f'[records]\n{grid}\n[distance]\nkind = "haversine"\n[privacy]\nepsilon = 2.0\n[utility]\nkind = "distance"\n'
    )
    (folder / "problem.toml").write_text(text)
    return folder / "problem.toml"


def _photos(task: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        problem = EXAMPLES["photo-censor"].write(folder)
        problem.write_text(problem.read_text().replace("top_k = 5", task))
        return problem

    return write


BASES: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "town": ("optimal-lp", _town),
    "twins": ("optimal-lp", _twins),
    "roads": ("optimal-lp", _roads),
    "table": ("optimal-lp", _table),
    "grid": ("optimal-lp", _grid),
    "streets": ("optimal-lp", _streets),
    "triangles": ("optimal-lp", _plane(TRIANGLES)),
    "squares": ("optimal-lp", _plane(SQUARES)),
    "guesses": ("optimal-lp", _guesses),
    "soft": ("optimal-lp", _town),
    "fewest": ("photo-censor", _photos("top_k = 5")),
    "highest": ("photo-censor", _photos("deletion_budget = 4")),
}
METRIC = ("town", "twins", "roads", "table", "grid", "soft")
PLANES = ("triangles", "squares")
REGIONS = ("streets", *PLANES)


def make(base: str, folder: Path) -> Path:
    """Return the DIR of a base, solved."""
    mechanism, write = BASES[base]
    method = "interior-point" if base == "soft" else "full"  # its multipliers make no trees
    options = Options(method=method, solver="highs") if mechanism == "optimal-lp" else Options()
    return solve(mechanism, write(folder / "problem"), folder / "out", options).folder
