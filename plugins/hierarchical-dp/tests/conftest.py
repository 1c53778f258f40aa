"""Small random hierarchies and brute force, shared by the tests of this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from privopt_hierarchical_dp.tree import Tree, add_up


def _random_tree(rng: np.random.Generator, depth: int, max_children: int = 3) -> Tree:
    paths: list[tuple[str, ...]] = [("root",)]
    for level in range(1, depth):
        paths = [
            (*path, f"{level}-{index}-{child}")
            for index, path in enumerate(paths)
            for child in range(int(rng.integers(1, max_children + 1)))
        ]
    return Tree.from_paths(paths)


def _compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for remaining_parts in _compositions(total - first, parts - 1):
            yield (first, *remaining_parts)


@pytest.fixture(scope="session")
def random_tree() -> Callable[..., Tree]:
    return _random_tree


@pytest.fixture(scope="session")
def compositions() -> Callable[[int, int], Iterator[tuple[int, ...]]]:
    return _compositions


@pytest.fixture(scope="session")
def paper() -> tuple[Tree, list[np.ndarray]]:
    """Return the running example: 2 groups of size 1 and one of size 3 in GA; sizes 1, 2, 3 once each in NY."""
    tree = Tree.from_paths([("US", "GA"), ("US", "NY")])
    return tree, add_up(tree, np.array([[2, 0, 1, 0, 0], [1, 1, 1, 0, 0]]))


@pytest.fixture(scope="session")
def six_levels() -> tuple[Tree, np.ndarray]:
    """2 ^ k regions on level k + 1, 64 on the sixth; 172,906 groups of 1 to 10."""
    paths: list[tuple[str, ...]] = [("0",)]
    for level in range(5):
        paths = [(*path, f"{path[-1]}{k}") for path in paths for k in range(2 if level < 4 else 4)]
    rng = np.random.default_rng(1)
    shape = np.array([267, 328, 161, 134, 65, 26, 11, 5, 2, 1])
    return Tree.from_paths(paths), np.array(
        [rng.multinomial(rng.integers(500, 5000), shape / shape.sum()) for _ in paths]
    )
