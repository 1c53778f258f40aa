"""Partitions: sizes of blocks and of the master's components (Tables 1 and 2, Fig. 12), and pictures of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from bd_mdp_paper.kinds import Kinds
from bd_mdp_paper.sources import Source
from experiments.command import say
from experiments.tables import Sheet, write_rows
from privopt_bd_mdp.partition import boundary_of, make_partition
from privopt_bd_mdp.partitioners import Records, partition
from privopt_bd_mdp.problem import PARTITIONS

__all__ = ["KEY", "Sizes", "plane"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

KEY: Final = ("kind", "seed", "records", "subsets", "pairs", "partition")
SLACK: Final = 1e-9
"""Pairs count as implied by paths longer by this share: what doubles add up to is off by the last bit."""

VALUES: Final = (
    "crossing",
    "boundary",
    "cover",
    "block_mean",
    "block_max",
    "component_mean",
    "component_max",
    "crossing_mean",
    "crossing_max",
)


def _records(source: Source, pairs: Ints) -> Records:
    return Records(
        edges=pairs,
        lengths=source.distances[pairs[:, 0], pairs[:, 1]],
        count=len(source.distances),
        coordinates=source.coordinates,
    )


def plane(source: Source) -> Floats:
    """(N, 2) places for a picture: the coordinates, their two main directions, or a scaling of the distances."""
    points = source.coordinates
    if points is None:
        squares = source.distances**2
        middle = squares - squares.mean(axis=0) - squares.mean(axis=1)[:, None] + squares.mean()
        values, vectors = np.linalg.eigh(-middle / 2)
        return np.asarray(vectors[:, -2:] * np.sqrt(np.maximum(values[-2:], 0.0)))
    if points.shape[1] == 2:
        return points
    centred = points - points.mean(axis=0)
    return np.asarray(centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T)


class Sizes:
    """The sheet of partitions in a folder."""

    def __init__(self, kinds: Kinds, folder: Path) -> None:
        self.kinds, self.folder = kinds, folder
        self.sheet = Sheet(folder / "sizes.csv", KEY, VALUES)

    def do(self, kind: str, records: int, seed: int, subsets: int, *, names: tuple[str, ...] = PARTITIONS) -> None:
        """Every partitioner on the pairs within eta (as the paper counts) and on those that imply them."""
        source: Source | None = None
        for reduced in (False, True):
            key = {
                "kind": kind,
                "seed": seed,
                "records": records,
                "subsets": subsets,
                "pairs": "reduced" if reduced else "all",
            }
            missing_names = [name for name in names if not self.sheet.has(**key, partition=name)]
            if not missing_names:
                continue
            source = source or self.kinds.make(kind, records, seed)
            pairs = source.pairs(reduced=reduced, slack=SLACK)
            self.sheet.add(
                *({**key, "partition": name, **_sizes(source, pairs, name, subsets)} for name in missing_names)
            )
        say(f"sizes: {kind} {seed}, {subsets} subsets")

    def map(self, kind: str, records: int, subsets: int) -> None:
        """Figures 13 to 16: place and subset of each record, partitioner by partitioner."""
        file = self.folder / "partitions" / f"{kind}-{records}-{subsets}.csv"
        if file.exists():
            return
        source = self.kinds.make(kind, records)
        pairs = source.pairs()
        labels = {name: partition(name, _records(source, pairs), subsets) for name in PARTITIONS}
        rows = [
            {"x": f"{x:.6g}", "y": f"{y:.6g}", **{name: int(label[n]) for name, label in labels.items()}}
            for n, (x, y) in enumerate(plane(source).tolist())
        ]
        write_rows(file, ("x", "y", *PARTITIONS), rows)


def _sizes(source: Source, pairs: Ints, name: str, subsets: int) -> dict[str, Any]:
    """Return internal records of each subset, and components of the boundary records, both ends counted.

    Components are joined by all pairs of boundary records, as the master's program is; and by those alone that cross
    subsets, as the authors' code counts them.
    """
    subset = partition(name, _records(source, pairs), subsets)
    is_boundary = boundary_of(subset, pairs)
    internal = np.bincount(subset[~is_boundary], minlength=int(subset.max()) + 1)
    parts = _components(len(subset), pairs[is_boundary[pairs].all(axis=1)], is_boundary)
    across = _components(len(subset), pairs[subset[pairs[:, 0]] != subset[pairs[:, 1]]], is_boundary)
    partition_made = make_partition(subset, pairs)
    return {
        "crossing": partition_made.crossing,
        "boundary": int(is_boundary.sum()),
        "cover": int(partition_made.boundary.sum()),
        "block_mean": f"{internal.mean():.4g}",
        "block_max": int(internal.max()),
        "component_mean": f"{parts.mean():.4g}" if parts.size else 0,
        "component_max": int(parts.max(initial=0)),
        "crossing_mean": f"{across.mean():.4g}" if across.size else 0,
        "crossing_max": int(across.max(initial=0)),
    }


def _components(records: int, pairs: Ints, is_selected: NDArray[np.bool_]) -> Ints:
    from privopt.numbers.graphs import components

    return np.bincount(np.unique(components(records, pairs)[is_selected], return_inverse=True)[1])
