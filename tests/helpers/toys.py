"""A toy problem that many tests solve."""

from pathlib import Path

import numpy as np

TOY = """
[records]
points = "points.csv"
[distance]
kind = "euclidean"
[privacy]
epsilon = 0.9
[utility]
kind = "distance"
prior = "prior.csv"
"""


def grid_text(rows: int, cols: int, cell: object = 1.0, epsilon: object = 1.0, *, within: object = None) -> str:
    """Return a problem file over an even grid of a plane; tables of mechanisms may follow."""
    limit_line = "" if within is None else f"neighbours_within = {within}\n"
    return (
        f'[records]\ngrid = {{ rows = {rows}, cols = {cols}, cell_km = {cell} }}\n[distance]\nkind = "euclidean"\n'
        f'[privacy]\nepsilon = {epsilon}\n{limit_line}[utility]\nkind = "distance"\n'
    )


def write_toy(folder: Path, n: int = 5, text: str = TOY) -> Path:
    """Return a problem file over n points of a line with a kink, and the files it names."""
    folder.mkdir(parents=True, exist_ok=True)
    points = [(f"p{i}", 0.7 * i, 0.3 * (i % 2)) for i in range(n)]
    (folder / "points.csv").write_text("id,x,y\n" + "".join(f"{a},{x},{y}\n" for a, x, y in points))
    shares = np.arange(1, n + 1) / (n * (n + 1) / 2)
    (folder / "prior.csv").write_text("id,p\n" + "".join(f"p{i},{p!r}\n" for i, p in enumerate(shares.tolist())))
    (folder / "problem.toml").write_text(text)
    return folder / "problem.toml"
