"""Write problem files of the experiments' maps: Rome's published cells, and even grids."""

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
"""Name of the problem file with distances by air."""


@frozen(kw_only=True)
class Settings:
    """The settings that the paper varies. Radii are in km.

    The paper states neither gamma nor r_exp. These defaults suit Rome's cells, which are 0.4 to 0.5 km apart.

    Attributes:
        epsilon: Epsilon per km, as decimal text.
        within: gamma, the largest distance of a required pair. None for LR-Geo-F, which requires every pair.
        users: The key ``users`` as TOML text.
        radius: Gamma, the path distance up to which records are in a user's LR set.
        exponential_beyond: r_exp, the distance beyond which outputs follow the exponential form.
        obfuscation_radius: r_obf, the distance beyond which probabilities fall no further.
        exponent: f of exp(-epsilon f d).
        reference_cell_km: Side length of a cell of the cost reference table. None for exact costs.
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
        """Return the tables [privacy] and [lr-geo] as TOML text, and [const-opt] for comparison."""
        limit_line = "" if self.within is None else f"neighbours_within = {self.within}\n"
        cell = "" if self.reference_cell_km is None else f"reference_cell_km = {self.reference_cell_km}\n"
        return (
            f"[privacy]\nepsilon = {self.epsilon}\n{limit_line}"
            f"[lr-geo]\nusers = {self.users}\nradius = {self.radius}\n"
            f"obfuscation_radius = {self.obfuscation_radius}\nexponential_beyond = {self.exponential_beyond}\n"
            f"exponent = {self.exponent}\n{cell}[const-opt]\nradius = {self.exponential_beyond}\n"
        )


def _rows(path: Path, columns: Sequence[str]) -> list[dict[str, str]]:
    """Read the rows of a CSV file, which must have the given columns.

    Raises:
        InputError: The file cannot be read, or lacks a column.
    """
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
    """Write a problem of the first ``cells`` of Rome's published cells, or of as many random ones, and return its path.

    Distances and travel follow the whole road graph of 1,331 cells.

    Args:
        source: Folder with reget_rome_cell_node40x40.csv and reget_rome_cost_thrhold_2.csv.
        folder: Folder for points.csv, roads.csv, problem.toml and by-air.toml. The last has distances by air, which
            planar Laplace noise needs. Privacy by air implies privacy by road, because a road is never shorter.
        cells: Number of cells.
        settings: Epsilon, users and radii.
        seed: Seed of the random cells. None for the first cells.

    Raises:
        InputError: A file is missing or has another form.
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
    """Write a problem of an even grid in the plane, and return its path.

    Args:
        folder: Folder for problem.toml.
        rows, cols: Numbers of cells.
        cell_km: Side length of a cell in km.
        settings: Epsilon, users and radii.
        utility: Keys of [utility]. By default the loss is the distance.
    """
    folder.mkdir(parents=True, exist_ok=True)
    utility_keys: Mapping[str, Any] = {"kind": "distance", **utility}
    lines = "".join(f'{name} = "{value}"\n' for name, value in utility_keys.items())
    (folder / "problem.toml").write_text(
        f"[records]\ngrid = {{ rows = {rows}, cols = {cols}, cell_km = {cell_km} }}\n"
        f'[distance]\nkind = "euclidean"\n[utility]\n{lines}' + settings.tables()
    )
    return folder / "problem.toml"
