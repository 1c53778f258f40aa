"""Small random problems of every form that the checker knows: kinds of records, distances, losses, mechanisms."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np
from attrs import frozen

from privopt_metric_dp.region.mesh import lattice

__all__ = ["CHECKED", "Form", "forms"]

CHECKED: Final = 40
"""Problems that the fast suite tries; the slow one goes on to 500."""

PLACES: Final = (
    "grid",
    "points",
    "latlon",
    "latlon grid",
    "vectors",
    "graph",
    "matrix",
    "matrix outputs",
    "outputs",
    "streets",
    "twins",
    "vector twins",
    "plane",
    "plane grid",
    "plane latlon",
    "plane mesh",
)
LOSSES: Final = ("distance", "travel-cost", "matrix")
MECHANISMS: Final = ("optimal-lp", "optimal-lp", "optimal-lp", "exponential", "const-opt", "bd-mdp", "photo-censor")


@frozen(kw_only=True)
class Form:
    """A problem, how it is solved, and whether it is of a plane whose every point is kept."""

    mechanism: str
    write: Callable[[Path], Path]
    options: dict[str, Any]
    plane: bool = False


def forms(number: int) -> Form:
    """Return the problem of a number."""
    rng = np.random.default_rng(number)
    mechanism = MECHANISMS[number % len(MECHANISMS)]
    if mechanism == "photo-censor":
        return Form(mechanism=mechanism, write=lambda folder: _photos(folder, rng), options={})
    kind, loss = PLACES[number % len(PLACES)], LOSSES[number // 2 % len(LOSSES)]
    loss = "distance" if (kind, loss) == ("streets", "matrix") else loss  # vertices that are added have no costs
    method = str(rng.choice(["full", "auto", "column-generation", "interior-point"])) if "lp" in mechanism else None
    options: dict[str, Any] = {} if method is None else {"method": method}
    if method == "column-generation" and (kind == "streets" or kind.startswith("plane")):
        options["time_limit"] = 20.0  # of 317 vertices, most of them of weight 0, HiGHS did not end in 7 minutes
    sure = number < CHECKED  # people anywhere in a plane take seconds
    return Form(
        mechanism=mechanism,
        write=lambda f: _metric(f, rng, kind, loss, mechanism, prior=sure),
        options=options,
        plane=kind.startswith("plane"),
    )


def _decimals(rng: np.random.Generator, shape: tuple[int, ...], digits: int = 3) -> list[Any]:
    return [[f"{x:.{digits}f}" for x in row] for row in rng.uniform(-1, 1, shape)]


def _csv(path: Path, head: str, rows: list[Any]) -> None:
    path.write_text("\n".join([head, *(",".join(map(str, row)) for row in rows)]) + "\n")


def _metric(folder: Path, rng: np.random.Generator, kind: str, loss: str, mechanism: str, *, prior: bool) -> Path:
    """Return a problem file over 3 to 9 records, and the files that it names."""
    folder.mkdir(parents=True, exist_ok=True)
    n, digits = int(rng.integers(3, 10)), int(rng.integers(3 if kind == "plane" else 1, 12))
    ids, outputs, distance = [f"r{i}" for i in range(n)], n, 'kind = "euclidean"'
    records = 'points = "points.csv"'
    if "grid" in kind:
        rows, cols = int(rng.integers(2 if kind == "plane grid" else 1, 4)), int(rng.integers(2, 4))
        cell_km = f"{rng.uniform(0.05, 1):.{digits}f}" if digits > 1 else "0.1"
        corner = f", south_west = [{rng.uniform(-80, 80):.6f}, {rng.uniform(-180, 180):.6f}]" if "lat" in kind else ""
        records = f"grid = {{ rows = {rows}, cols = {cols}, cell_km = {cell_km}{corner} }}"
        ids, outputs = [f"r{r}c{c}" for r in range(rows) for c in range(cols)], rows * cols
    elif kind == "plane mesh":
        ring = [[0, 0], [1, 0.1], [0.7, 1], [0, 0]]
        (folder / "r.geojson").write_text(json.dumps({"type": "Polygon", "coordinates": [ring]}))
        cell_km = f"{rng.uniform(0.5, 0.9):.{digits}f}"
        records = f'mesh = {{ region = "r.geojson", side_km = {cell_km}, planar = true }}'
        outputs = len(lattice([[np.array(ring) * 1e6]], float(cell_km) * 1e6)[0])
        ids = [str(i) for i in range(outputs)]
    elif kind in ("points", "outputs", "twins", "plane"):
        places = _decimals(rng, (n, 2), digits)
        places[1:] = places[1:-1] + places[:1] if kind == "twins" else places[1:]
        _csv(folder / "points.csv", "id,x,y", [(i, *row) for i, row in zip(ids, places, strict=True)])
    elif kind in ("latlon", "plane latlon"):
        degrees = [[f"{41 + float(a) / 50:.8f}", f"{12 + float(b) / 50:.8f}"] for a, b in _decimals(rng, (n, 2), 6)]
        _csv(folder / "points.csv", "id,lat,lon", [(i, *row) for i, row in zip(ids, degrees, strict=True)])
    elif "vector" in kind:
        vectors = rng.normal(0, 1, (n, int(rng.integers(1, 5))))
        if kind == "vector twins":
            vectors[-1], vectors[1] = vectors[0], vectors[0] * (1 + 2.0**-52)
        np.save(folder / "v.npy", vectors)
        records, ids = 'vectors = "v.npy"', [str(i) for i in range(n)]
    elif kind in ("graph", "streets"):
        edges = [(f"r{i}", f"r{int(rng.integers(0, i))}", f"{rng.uniform(0.05, 1):.{digits}f}") for i in range(1, n)]
        edges += [(f"r{i}", "node", f"{rng.uniform(0.05, 1):.3f}") for i in rng.integers(0, n, 2).tolist()]
        _csv(folder / "roads.csv", "from,to,km", [(a, b, km if float(km) else "0.1") for a, b, km in edges])
        _csv(folder / "points.csv", "id", [[i] for i in ids])
        distance = 'kind = "graph"\nedges = "roads.csv"'
    else:
        table = rng.uniform(0.1, 1, (n, n))
        table += table.T
        np.fill_diagonal(table, 0)
        np.save(folder / "d.npy", table)
        records, ids, distance = f"count = {n}", [str(i) for i in range(n)], 'kind = "matrix"\nmatrix = "d.npy"'
    if "lat" in kind:
        distance = 'kind = "haversine"'
    extra = ""
    if kind == "outputs" and mechanism in ("optimal-lp", "exponential"):
        outputs = int(rng.integers(1, 6))
        _csv(folder / "o.csv", "id,x,y", [(f"o{k}", *row) for k, row in enumerate(_decimals(rng, (outputs, 2), 4))])
        extra = '[outputs]\npoints = "o.csv"\n'
    if kind == "matrix outputs" and mechanism in ("optimal-lp", "exponential"):
        outputs = int(rng.integers(1, 6))
        np.save(folder / "do.npy", rng.uniform(0, 2, (n, outputs)))
        distance += '\noutput_matrix = "do.npy"'
        extra = f"[outputs]\ncount = {outputs}\n"
    everywhere = kind == "streets" or kind.startswith("plane")
    size = ids, outputs
    return _file(folder, rng, records, extra, distance, loss, size, mechanism, everywhere=everywhere, prior=prior)


def _file(
    folder: Path,
    rng: np.random.Generator,
    records: str,
    extra: str,
    distance: str,
    loss: str,
    size: tuple[list[str], int],
    mechanism: str,
    *,
    everywhere: bool,
    prior: bool,
) -> Path:
    ids, outputs = size
    utility = f'kind = "{loss}"'
    if loss == "matrix":
        np.save(folder / "c.npy", rng.uniform(0, 3, (len(ids), outputs)))
        utility += '\ncost = "c.npy"'
    if loss == "travel-cost" and rng.random() < 0.5:
        targets = [ids[i] for i in rng.permutation(len(ids))[: int(rng.integers(1, len(ids) + 1))].tolist()]
        _csv(folder / "t.csv", "id,weight", [(i, f"{rng.uniform(0.1, 2):.2f}") for i in targets])
        utility += '\ntargets = "t.csv"'
    if rng.random() < 0.6 or (everywhere and prior):
        shares = rng.integers(1, 100, len(ids))
        _csv(
            folder / "p.csv", "id,p", [(i, repr(p)) for i, p in zip(ids, (shares / shares.sum()).tolist(), strict=True)]
        )
        utility += '\nprior = "p.csv"'
    limit_line = (
        f"\nneighbours_within = {rng.uniform(1.0, 3.0):.2f}" if rng.random() < 0.3 and "vectors" not in records else ""
    )
    if everywhere:
        limit_line = "\neverywhere = true"
        if loss != "matrix":  # vertices that are added have no costs
            limit_line += rng.choice(["", "\nsplit_km = 0.4", f"\nsplit_km = {rng.uniform(0.2, 1):.3f}"])
    if rng.spawn(2)[1].random() < 0.25:
        utility += "\nremap = true"
    own_table = "\n[const-opt]\nradius = 1.0" if mechanism == "const-opt" else ""
    own_table = "\n[bd-mdp]\nsubsets = 2" if mechanism == "bd-mdp" else own_table
    text = f"[records]\n{records}\n{extra}[distance]\n{distance}\n"
    text += f"[privacy]\nepsilon = {rng.uniform(0.2, 4):.3f}{limit_line}\n"
    (folder / "problem.toml").write_text(f"{text}[utility]\n{utility}{own_table}\n")
    return folder / "problem.toml"


def _photos(folder: Path, rng: np.random.Generator) -> Path:
    """Return an album of 3 to 9 photos."""
    folder.mkdir(parents=True, exist_ok=True)
    photos, places = int(rng.integers(3, 10)), int(rng.integers(3, 8))
    scores = rng.normal(0, 2, (photos, places))
    scores[:, 0] += 1.0
    if rng.random() < 0.3:
        scores[rng.integers(0, photos), rng.integers(1, places)] = -np.inf
    source, keep_line = 'scores = "scores.npy"', ""
    np.save(folder / "scores.npy", scores if rng.random() < 0.5 else np.asfortranarray(scores))
    if rng.random() < 0.3:
        head = ",".join(["photo", *(f"c{j}" for j in range(places))])
        _csv(folder / "scores.csv", head, [(f"f{i}.jpg", *map(repr, row)) for i, row in enumerate(scores.tolist())])
        source = 'scores = "scores.csv"'
    elif rng.random() < 0.3:
        weights = np.exp(scores)
        np.save(folder / "p.npy", weights / weights.sum(axis=1, keepdims=True))
        source = 'probabilities = "p.npy"'
    if rng.random() < 0.3:
        keep_line = f"keep = [{int(rng.integers(0, photos))}]\n"
    task = (
        f"top_k = {int(rng.integers(1, places - 1))}"
        if rng.random() < 0.6
        else f"deletion_budget = {int(rng.integers(1, photos))}"
    )
    margin = "margin = 0.1\n" if rng.random() < 0.3 else ""
    text = f"[photos]\n{source}\ntrue_location = 0\nkeep_at_least = 0\n{keep_line}[privacy]\n{task}\n{margin}"
    (folder / "problem.toml").write_text(text)
    return folder / "problem.toml"
