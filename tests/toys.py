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


def write_toy(folder: Path, n: int = 5, text: str = TOY) -> Path:
    """A problem file over n points of a line with a kink, and the files it names."""
    folder.mkdir(parents=True, exist_ok=True)
    points = [(f"p{i}", 0.7 * i, 0.3 * (i % 2)) for i in range(n)]
    (folder / "points.csv").write_text("id,x,y\n" + "".join(f"{a},{x},{y}\n" for a, x, y in points))
    shares = np.arange(1, n + 1) / (n * (n + 1) / 2)
    (folder / "prior.csv").write_text("id,p\n" + "".join(f"p{i},{p!r}\n" for i, p in enumerate(shares.tolist())))
    (folder / "problem.toml").write_text(text)
    return folder / "problem.toml"
