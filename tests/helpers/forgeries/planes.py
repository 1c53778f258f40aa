"""Forged regions of a plane: what is changed in mechanism.npz, and in the problem's files beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__all__ = ["SQUARES", "TRIANGLES", "forged_planes", "forged_regions"]

Arrays = dict[str, Any]
Pair = tuple[str, Callable[[Arrays], object]]
TRIANGLES = """[records]
points = "points.csv"
[distance]
kind = "euclidean"
[privacy]
epsilon = 2.0
everywhere = true
[utility]
kind = "distance"
prior = "prior.csv"
"""
"""Beside six points with shares, between which lie triangles."""
SQUARES = TRIANGLES.replace('points = "points.csv"', "grid = { rows = 2, cols = 3, cell_km = 0.5 }").replace(
    "everywhere = true", "everywhere = true\nsplit_km = 0.4"
)
"""Halves of the squares between cells of a grid, each in quarters."""


def _move_weight(i: int, divisor: int) -> Callable[[Arrays], object]:
    """Return a part of a row's greatest weight goes to its least."""

    def change(arrays: Arrays) -> None:
        row = arrays["weights"][i]
        top, min_index, part = row.argmax(), row.argmin(), row.max() // np.uint64(divisor)
        row[top] -= part
        row[min_index] += part

    return change


def _flip_triangles(arrays: Arrays) -> None:
    """Two triangles with a common side have the other diagonal of their four corners."""
    triangles = [tuple(t) for t in arrays["simplices"].tolist()]
    for n, (a, b, c) in enumerate(triangles):
        for m, other_triangle in enumerate(triangles):
            if m > n and {b, c} < {*other_triangle} and a not in other_triangle:
                (d,) = {*other_triangle} - {b, c}
                arrays["simplices"][[n, m]] = (a, b, d), (a, d, c)
                return


def forged_planes(arrays: Arrays) -> Iterator[Pair]:
    """Yield changes of a region's arrays, with their names."""
    weights, corners = arrays["weights"], arrays["vertices"]
    for i in range(len(weights)):
        yield f"weights: row {i}: a third moved", _move_weight(i, 3)
        yield f"weights: row {i}: one too many", lambda a, i=i: a["weights"].__setitem__((i, 0), a["weights"][i, 0] + 1)
        for axis in (0, 1):
            yield (
                f"vertices: {i} moved by a millimetre",
                lambda a, i=i, axis=axis: a["vertices"].__setitem__((i, axis), a["vertices"][i, axis] + 1),
            )
    yield "weights: rows turned over", lambda a: a.update(weights=a["weights"][::-1].copy())
    for factor in (2, 10):
        yield f"vertices: times {factor}", lambda a, x=factor: a.update(vertices=a["vertices"] * x)
    yield "vertices: turned over", lambda a: a.update(vertices=a["vertices"][::-1].copy())
    yield "vertices: mirrored", lambda a: a.update(vertices=a["vertices"][:, ::-1].copy())
    yield "vertices: one twice", lambda a: a["vertices"].__setitem__(0, a["vertices"][1])
    yield "vertices: far away", lambda a: a["vertices"].__setitem__((0, 0), 2**60)
    yield "vertices: doubles", lambda a: a.update(vertices=a["vertices"].astype(np.float64))
    yield "vertices: one less", lambda a: a.update(vertices=a["vertices"][1:])
    for n in range(len(arrays["simplices"])):
        yield f"simplices: without {n}", lambda a, n=n: a.update(simplices=np.delete(a["simplices"], n, 0))
    yield "simplices: a side flipped", _flip_triangles
    yield "simplices: one twice", lambda a: a.update(simplices=np.concatenate([a["simplices"], a["simplices"][:1]]))
    yield "simplices: one for another", lambda a: a["simplices"].__setitem__(0, a["simplices"][-1])
    yield "simplices: one more over others", lambda a: a.update(simplices=np.append(a["simplices"], [[0, 1, 5]], 0))
    yield "simplices: none", lambda a: a.update(simplices=a["simplices"][:0])
    yield "simplices: turned over", lambda a: a.update(simplices=a["simplices"][::-1].copy())
    yield "simplices: clockwise", lambda a: a.update(simplices=a["simplices"][:, [0, 2, 1]])
    yield "simplices: another corner first", lambda a: a.update(simplices=np.roll(a["simplices"], 1, axis=1))
    yield "simplices: to another corner", lambda a: a["simplices"].__setitem__((0, 1), 4)
    yield "simplices: out of range", lambda a: a["simplices"].__setitem__((0, 1), 99)
    yield "simplices: below 0", lambda a: a["simplices"].__setitem__((0, 1), -1)
    yield "simplices: in one row", lambda a: a.update(simplices=a["simplices"].reshape(1, -1))
    yield "simplices: streets", lambda a: a.update(simplices=a["simplices"][:, :2].copy())
    for steps in (1, 8, -1):
        yield f"snap_steps: {steps}", lambda a, steps=steps: a["snap_steps"].__setitem__(0, steps)
    yield "pairs: one", lambda a: a.update(pairs=np.array([[0, 1]]), distances=np.array([1.0]))
    yield "lengths: beside a plane", lambda a: a.update(lengths=np.ones(len(a["simplices"])))
    yield "records: one renamed", lambda a: a["records"].__setitem__(-1, "x")
    yield "outputs: turned over", lambda a: a.update(outputs=a["outputs"][::-1].copy())
    for name in arrays:
        yield f"{name}: gone", lambda a, n=name: a.pop(n)
    # each vertex tells itself: rows of its own, private nowhere
    yield (
        "weights: the truth",
        lambda a: a.update(weights=np.eye(len(corners), weights.shape[1], dtype=np.uint64) * np.uint64(2**63)),
    )


def forged_regions(squares: bool) -> Iterator[tuple[str, str, str, str]]:
    """Other problems beside a release: what, the old text, the new one, and the file where it stands."""
    problem = "problem.toml"
    yield "epsilon less", "epsilon = 2.0", "epsilon = 1.9999999", problem
    yield "no region", "everywhere = true", "", problem
    yield "everywhere is no truth", "everywhere = true", "everywhere = 1", problem
    yield "neighbours beside it", "everywhere = true", "everywhere = true\nneighbours_within = 0.6", problem
    yield "another loss", 'kind = "distance"\n', 'kind = "travel-cost"\n', problem
    yield "people anywhere", 'prior = "prior.csv"\n', "", problem
    if squares:
        for split in ("0.3", "1e-9", "0.001", "0.8", "-0.4", "0", "true", '"0.4"'):
            yield f"split {split}", "split_km = 0.4", f"split_km = {split}", problem
        yield "cells a hair smaller", "cell_km = 0.5", "cell_km = 0.499999", problem
        yield "cells on the earth", "cell_km = 0.5", "cell_km = 0.5, south_west = [41.8, 12.4]", problem
        yield "cells turned", "rows = 2, cols = 3", "rows = 3, cols = 2", problem
    else:
        yield "finer triangles", "everywhere = true", "everywhere = true\nsplit_km = 0.4", problem
        yield "a point a hair nearer", "p1,0.5,0.1", "p1,0.499999,0.1", "points.csv"
        yield "points changed over", "p0,0,0\np1,0.5,0.1", "p1,0.5,0.1\np0,0,0", "points.csv"
        yield "points in one place", "p1,0.5,0.1", "p1,0,0", "points.csv"
        yield "points less", "p5,1.2,0.9\n", "", "points.csv"
