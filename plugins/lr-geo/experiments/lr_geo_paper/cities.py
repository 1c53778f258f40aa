"""Maps for the experiments: Rome's published cells, and even grids, as problem files."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen

from privopt.errors import Fault, InputError

__all__ = ["AIR", "Settings", "grid", "rome"]

AIR = "by-air.toml"


@frozen(kw_only=True)
class Settings:
    """What the paper varies; radii in km. It states neither gamma nor r_exp: these fit Rome's cells, .4 to .5 km apart.

    Attributes:
        epsilon: decimal text, per km.
        within: gamma; None for LR-Geo-F, which requires every pair.
        users: as in the problem file.
        reference_cell_km: cell of the cost reference table; None for exact costs.
    """

    epsilon: str = "1.0"
    within: float | None = 0.8
    users: str = "{ random = 4 }"
    radius: float = 3.0
    exponential_beyond: float = 1.0
    obfuscation_radius: float = 2.0
    exponent: float = 1.0
    reference_cell_km: float | None = None

    def tables(self) -> str:
        """[privacy] and [lr-geo], and [const-opt] for comparison."""
        limit_line = "" if self.within is None else f"neighbours_within = {self.within}\n"
        cell = "" if self.reference_cell_km is None else f"reference_cell_km = {self.reference_cell_km}\n"
        return (
            f"[privacy]\nepsilon = {self.epsilon}\n{limit_line}"
            f"[lr-geo]\nusers = {self.users}\nradius = {self.radius}\n"
            f"obfuscation_radius = {self.obfuscation_radius}\nexponential_beyond = {self.exponential_beyond}\n"
            f"exponent = {self.exponent}\n{cell}[const-opt]\nradius = {self.exponential_beyond}\n"
        )


def _rows(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    try:
        with path.open(newline="", encoding="utf-8") as stream:
            reader = csv.DictReader(stream)
            missing = [name for name in columns if name not in (reader.fieldnames or ())]
            if missing:
                raise InputError([Fault(path.name, "", f"no column {missing[0]}", "the published file")])
            return list(reader)
    except OSError as error:
        raise InputError([Fault(str(path), "", error.strerror or "unreadable", "the published file")]) from None


def rome(source: Path, folder: Path, cells: int, settings: Settings, *, seed: int | None = None) -> Path:
    """Return the first ``cells`` of Rome's published cells, or as many drawn at random.

    Distance and travel go along the whole graph of 1,331 cells.

    Args:
        source: folder with reget_rome_cell_node40x40.csv and reget_rome_cost_thrhold_2.csv.
        folder: made here; holds points.csv, roads.csv, problem.toml, and by-air.toml, the same with distances by air
            (planar Laplace noise needs those; privacy by air is privacy by road, which is never shorter).
        seed: of the cells drawn; None takes the first.

    Raises:
        InputError: files missing or of another form.
    """
    points = _rows(source / "reget_rome_cell_node40x40.csv", ("grid_index", "y", "x"))
    edges = _rows(source / "reget_rome_cost_thrhold_2.csv", ("u_index", "v_index", "length"))
    folder.mkdir(parents=True, exist_ok=True)
    order = range(len(points)) if seed is None else np.random.default_rng(seed).permutation(len(points)).tolist()
    lines = [f"{row['grid_index']},{row['y']},{row['x']}\n" for row in (points[number] for number in order[:cells])]
    (folder / "points.csv").write_text("id,lat,lon\n" + "".join(lines))
    lines = [f"{row['u_index']},{row['v_index']},{row['length']}\n" for row in edges]
    (folder / "roads.csv").write_text("from,to,km\n" + "".join(lines))
    records, travel = '[records]\npoints = "points.csv"\n', '[utility]\nkind = "travel-cost"\n'
    (folder / "problem.toml").write_text(
        f'{records}[distance]\nkind = "graph"\nedges = "roads.csv"\n{travel}{settings.tables()}'
    )
    (folder / AIR).write_text(
        f'{records}[distance]\nkind = "haversine"\n{travel}edges = "roads.csv"\n{settings.tables()}'
    )
    return folder / "problem.toml"


def grid(folder: Path, rows: int, cols: int, cell_km: float, settings: Settings, **utility: Any) -> Path:
    """Return an even grid in the plane; the loss is the distance unless told otherwise."""
    folder.mkdir(parents=True, exist_ok=True)
    utility_keys: Mapping[str, Any] = {"kind": "distance", **utility}
    lines = "".join(f'{name} = "{value}"\n' for name, value in utility_keys.items())
    (folder / "problem.toml").write_text(
        f"[records]\ngrid = {{ rows = {rows}, cols = {cols}, cell_km = {cell_km} }}\n"
        f'[distance]\nkind = "euclidean"\n[utility]\n{lines}' + settings.tables()
    )
    return folder / "problem.toml"
