"""Figure 7: how long post-processing takes, over N."""

from __future__ import annotations

from concurrent.futures import ProcessPoolExecutor, TimeoutError
from fractions import Fraction
from multiprocessing import get_context
from time import perf_counter
from typing import Any

import numpy as np

from hierarchical_dp_paper.generate import Census, taxi
from hierarchical_dp_paper.tables import merge_by_optimisation, paper_domain, table_merge, tree_tables
from hierarchical_dp_paper.trials import run_methods, task_of
from privopt.errors import StoppedError
from privopt.execution import clock
from privopt_hierarchical_dp.fits import qip
from privopt_hierarchical_dp.fits.fit import fit
from privopt_hierarchical_dp.tree import Tree

__all__ = ["METHODS", "seconds_within"]

METHODS = ("hierarchical", "cumulative", "tables-by-optimisation", "tables-by-merge")
"""What takes too long for Table 7."""


def _measure_seconds(method: str, sizes: int, seed: int, is_small: bool, limit: float) -> float:
    """Seconds that one method's post-processing takes on taxi data cut to N sizes."""
    data = _cut_taxi(sizes, seed, is_small)
    levels = data.levels
    method_name = {"hierarchical": "hierarchical-dp", "cumulative": "cumulative-dp"}.get(method, method)
    tables = method.startswith("tables")
    task = task_of("hierarchical-dp" if tables else method_name, data, levels, Fraction(1), seed=seed)
    if not tables:  # compiled and loaded before the clock starts
        little = _cut_taxi(3, seed, is_small=True)
        run_methods([task.method], little, little.levels, Fraction(1), seed=seed)
        fit(task)
    begin = perf_counter()
    if tables:
        merge = merge_by_optimisation if method == "tables-by-optimisation" else table_merge
        scale = Fraction(2 * data.tree.depth)
        _tables_within(tree_tables, task, merge, lambda _level, value: paper_domain(value, scale))
    elif method in ("hierarchical", "cumulative"):
        start = fit(task)
        cumulative = method == "cumulative"
        values = [np.cumsum(c, axis=1) for c in start.counts] if cumulative else start.counts
        try:
            with clock.limit(limit):
                solution = qip.solve_exactly(
                    task.tree, task.noisy, start=values, total=task.total, cumulative=cumulative
                )
        except StoppedError:
            return float("inf")
        if not solution.proved:
            return float("inf")
    else:
        fit(task)
    return perf_counter() - begin


def _tables_within(solve: Any, task: Any, merge: Any, domain: Any) -> None:
    """Fill the cost tables of every subtree, under the paper's domain rule; each size by itself.

    The last step, the choice among sizes, needs domains that reach G together; it is left out where
    the rule does not let them, as its cost is small beside the tables'.
    """
    for s in range(task.noisy[0].shape[1]):
        size_levels = [level[:, s : s + 1] for level in task.noisy]
        try:
            solve(task.tree, size_levels, total=max(0, int(size_levels[0][0, 0])), domain=domain, merge=merge)
        except (ValueError, IndexError):
            continue


def _cut_taxi(sizes: int, seed: int, is_small: bool) -> Census:
    """Taxi data with the groups above N removed, as the paper does for its runtimes; ``small``: six zones."""
    if is_small:
        rows = [("city", f"borough {zone % 2}", f"zone {zone}") for zone in range(6)]
        rng = np.random.default_rng(seed)
        return Census(tree=Tree.from_paths(rows), leaves=rng.poisson(3.0, size=(6, sizes)).astype(np.int64))
    full = taxi(seed=seed)
    return Census(tree=full.tree, leaves=np.ascontiguousarray(full.leaves[:, :sizes]))


def seconds_within(limit: float, method: str, sizes: int, seed: int, is_small: bool) -> float:
    """Seconds of one method in a process of its own, infinite where it was ended at the limit.

    Args:
        limit: seconds.
        method: one of :data:`METHODS`.
        sizes: N.
        seed: of data and noise.
        small: six zones instead of the city.
    """
    # Not a fork: a copy of a process in which polars has started threads waits for them forever.
    pool = ProcessPoolExecutor(max_workers=1, mp_context=get_context("spawn"))
    try:
        return pool.submit(_measure_seconds, method, sizes, seed, is_small, limit).result(timeout=limit + 30)
    except TimeoutError:
        for process in list(pool._processes.values()):
            process.kill()
        return float("inf")
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
