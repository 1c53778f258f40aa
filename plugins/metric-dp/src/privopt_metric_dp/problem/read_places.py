"""Read the tables of a metric problem file: places, and their prior."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from privopt.arrays import Floats
from privopt.declare.schema import File
from privopt.declare.tables import Column, each_once, read_array, read_lines, read_table
from privopt.errors import Fault, InputError
from privopt_metric_dp.problem.read_points import read_points
from privopt_metric_dp.space.places import Space, check_places, grid_points

if TYPE_CHECKING:
    from privopt_metric_dp.problem.declared import Places
else:
    Places = Any

__all__ = ["prior_of", "space_of"]

SUM_TOLERANCE: Final = 1e-6
"""How far the sum of a prior may lie from 1 before it is taken for a fault."""


def space_of(places: Places, table: str, file: str, *, ids_alone: bool) -> Space:
    """Return the ids and coordinates that a table of a problem file declares.

    Args:
        places: as declared.
        table, file: its name, and that of its file, for faults.
        ids_alone: whether points without coordinates will do.
    """
    if places.grid is not None:
        grid = places.grid
        return grid_points(grid.rows, grid.cols, grid.cell_km, grid.south_west, source=file, key=f"{table}.grid")
    if places.points is not None:
        return read_points(places.points, places.columns, ids_alone=ids_alone)
    if places.mesh is not None:
        from privopt_metric_dp.region.geojson import mesh_over

        mesh = places.mesh
        return mesh_over(mesh.region, mesh.side_km, planar=mesh.planar, file=file, key=f"{table}.mesh.side_km")
    if places.vectors is not None:
        vectors = read_array(places.vectors, (None, None), what="vectors")
        if 0 in vectors.shape:
            raise InputError([Fault(places.vectors.name, "", f"an array of shape {vectors.shape}", "vectors")])
        ids = np.arange(len(vectors)).astype(np.str_) if places.ids is None else read_lines(places.ids)
        if places.ids is not None and len(ids) != len(vectors):
            raise InputError([Fault(places.ids.name, "", f"{len(ids)} ids", f"{len(vectors)}, one for each vector")])
        return Space(ids=ids.tolist(), coordinates=vectors, kind="vector", source=places.vectors.name)
    check_places(places.count or 0, f"{file}: {table}.count")
    return Space(ids=[str(number) for number in range(places.count or 0)], kind="plain", source=file)


def prior_of(prior: File | None, records: Space) -> Floats:
    """Read (N,) the probability of each record; uniform without a file."""
    count = len(records)
    if prior is None:
        return np.full(count, 1.0 / count)
    table = read_table(prior, [Column(name="id", kind="id"), Column(name="p", least=0.0, unit="probability")])
    result = np.zeros(count)
    result[each_once(prior, table["id"], records.ids)] = table["p"]
    if abs((total := float(result.sum())) - 1.0) > SUM_TOLERANCE:
        raise InputError([Fault(prior.name, "column p", f"a sum of {total:.9g}", "probabilities that sum to 1")])
    return result / total
