"""What the conformance kit needs to try hierarchical-dp: small problems, neighbours, measurements, an oracle."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from fractions import Fraction
from functools import lru_cache, reduce
from itertools import pairwise
from typing import Any, Final

import numpy as np
from attrs import evolve
from hypothesis import strategies as st
from numpy.typing import NDArray

from privopt.arrays import Ints
from privopt.interfaces import Result
from privopt.testing import GeneratedProblem, Profile, Query, csv_bytes, relabel, reorder, to_toml
from privopt.testing.noise import truth, watched
from privopt_hierarchical_dp.fits.half_prices import objective
from privopt_hierarchical_dp.instance import Instance
from privopt_hierarchical_dp.methods import METHODS
from privopt_hierarchical_dp.noise_distributions import NoiseDistribution
from privopt_hierarchical_dp.release import HierarchyRelease
from privopt_hierarchical_dp.tree import Tree, add_up

__all__ = ["PROFILE", "PROFILES", "draws_of", "least_objective", "neighbours", "problems", "queries_of", "related"]

COUNTS = "counts.csv"
REGIONS = "regions.csv"
LEVELS: Final = ("level_1", "level_2", "level_3")
PLANTED = 10**6
_MAX_GROUPS = 40


BUDGETS: Final[dict[str, tuple[dict[str, float], ...]]] = {
    "pure-dp": ({"epsilon": 1.0}, {"epsilon": 0.5}, {"epsilon": 0.1}),
    "zcdp": ({"rho": 0.5}, {"rho": 0.125}, {"rho": 0.005}),
    "approx-dp": (
        {"epsilon": 1.0, "delta": 1e-3},
        {"epsilon": 0.5, "delta": 1e-6},
        {"epsilon": 0.1, "delta": 1e-9},
    ),
}
"""Budgets that problems of each notion have."""


@st.composite
def problems(
    draw_from: st.DrawFn,
    kind: str = "pure-dp",
    relation: str = "sizes",
    first: int = 1,
    listed: bool = False,
) -> GeneratedProblem:
    """Draw trees of one to three levels with up to four leaves and four sizes; counts small, or seven digits long.

    ``listed``: a public table has the regions, and the counts those rows alone that are not 0.
    """
    depth = draw_from(st.integers(1, 3))
    paths: list[tuple[str, ...]] = [("all",)]
    for level in range(1, depth):
        children = [draw_from(st.integers(1, 2)) for _ in paths]
        paths = [
            (*path, f"{path[-1]} {chr(96 + level)}{child}")
            for path, number in zip(paths, children, strict=True)
            for child in range(number)
        ]
    alone = len({path[:-1] for path in paths}) == len(paths) > 1
    if alone and draw_from(st.booleans()):  # a short branch
        paths[0] = (*paths[0][:-1], "")
    sizes = draw_from(st.integers(2, 4))
    planted = draw_from(st.booleans())
    rows: list[list[Any]] = []
    secrets: list[bytes] = []
    for path in paths:
        groups = draw_from(st.lists(st.integers(0, 4), min_size=sizes + 1 - first, max_size=sizes + 1 - first))
        if planted:  # two of them, so that a region's total, which may be public, is neither
            groups[:2] = [draw_from(st.integers(PLANTED, 9_999_999)) for _ in range(2)]
            secrets += [str(number).encode() for number in groups[:2]]
        rows += [[*path, size, number] for size, number in enumerate(groups, start=first)]
    header = [*(f"level_{level + 1}" for level in range(depth)), "size", "groups"]
    tables: dict[str, Any] = {
        "hierarchy": {"counts": COUNTS, "sizes": sizes, "first_size": first},
        "privacy": {"kind": kind, **draw_from(st.sampled_from(BUDGETS[kind])), "relation": relation},
    }
    if relation == "replaced":
        tables["privacy"]["max_household"] = draw_from(st.integers(1, sizes))
    if draw_from(st.booleans()):
        tables["hierarchical-dp"] = {"budget": draw_from(st.lists(st.integers(1, 3), min_size=depth, max_size=depth))}
    if relation != "replaced" and draw_from(st.booleans()):  # households are counted in persons
        tables.setdefault("hierarchical-dp", {})["max_quantity"] = draw_from(st.integers(1, 3))
    totals = [sum(int(row[-1]) for row in rows if tuple(row[:depth]) == path) for path in paths]
    kept: Any = tuple(secret for secret in secrets if int(secret) not in totals)
    files = {COUNTS: csv_bytes(header, rows)}
    if listed:
        tables["hierarchy"]["regions"] = REGIONS
        files[REGIONS] = csv_bytes(header[:depth], paths)
        files[COUNTS] = csv_bytes(header, [row for row in rows if row[-1]])
    return GeneratedProblem(toml=to_toml(tables), files=files, secrets=kept)


def _leaf(row: Sequence[Any]) -> str:
    """Return the name of a row's leaf region; those that the generator makes are unique."""
    return str(next(name for name in reversed(row[:-2]) if name))


def neighbours(problem: GeneratedProblem) -> Iterator[GeneratedProblem]:
    """Yield all neighbours of a problem, written from its relation's words."""
    tables = tomllib.loads(problem.toml)
    relation = tables["privacy"].get("relation", "sizes")
    most = tables.get("hierarchical-dp", {}).get("max_quantity", 1)
    header, *rows = problem.rows(COUNTS)
    if REGIONS in problem.files:  # regions without rows have groups all the same
        held = {tuple(row[:-1]) for row in rows}
        first, last = tables["hierarchy"]["first_size"], tables["hierarchy"]["sizes"]
        cells = [[*path, str(size)] for path in problem.rows(REGIONS)[1:] for size in range(first, last + 1)]
        rows += [[*cell, "0"] for cell in cells if tuple(cell) not in held]
    where = {(tuple(row[:-2]), int(row[-2])): index for index, row in enumerate(rows)}

    def changed(*changes: tuple[int, int]) -> Iterator[GeneratedProblem]:
        table = [list(row) for row in rows]
        for index, by in changes:
            table[index][-1] = str(int(table[index][-1]) + by)
        if all(int(table[index][-1]) >= 0 for index, _ in changes):
            yield problem.with_file(COUNTS, csv_bytes(header, table))

    household = tables["privacy"].get("max_household")
    for (path, size), index in where.items():
        for other in range(household + 1) if household else ():
            if other != size <= household and (path, other) in where:
                yield from changed((index, -1), (where[path, other], 1))
        if household:
            continue
        if relation != "sizes" and (relation == "groups" or size <= most):
            yield from changed((index, 1))
            yield from changed((index, -1))
        for other in () if relation == "groups" else range(size - most, size + most + 1):
            if other != size and (path, other) in where:
                yield from changed((index, -1), (where[path, other], 1))


def queries_of(problem: Instance, method: str) -> Sequence[Query]:
    """Return the calls of the noise, as the mechanism makes them, with its sensitivity."""
    assert problem.truth is not None  # a problem to be solved
    design = problem.design(method)
    with watched(truth) as calls:
        design.draw([add_up(design.tree, own) for own in problem.truth.leaves], seed=None)
    parts = [form.part(level + 1) for form in design.layout.forms for level in range(design.tree.depth)]
    return [evolve(call, name=name, sensitivity=design.delta) for call, name in zip(calls, parts, strict=True)]


def draws_of(problem: Instance, method: str, count: int) -> NDArray[Any]:
    """Draw noisy values of all tables and levels, ``count`` times: everything that a release is made of."""
    values = tuple((tuple(map(int, query.values)), query.scale) for query in queries_of(problem, method))
    return _noisy(values, problem.declared.privacy.law, count)


@lru_cache(maxsize=64)
def _noisy(parts: tuple[tuple[tuple[int, ...], Fraction], ...], law: NoiseDistribution, count: int) -> NDArray[Any]:
    """Kept whole, for methods that measure the same differ only in what they make of it.

    Not part by part: equal levels, and those that a neighbour does not change, have noise of their own.
    """
    return np.concatenate(
        [
            law.draw(np.tile(np.array(values, dtype=np.int64), (count, 1)), law.spent(scale, 1), 1, seed=None)[0]
            for values, scale in parts
        ],
        axis=1,
    )


def least_objective(tree: Tree, noisy: Sequence[Ints], total: int) -> int:
    """Return the optimum of Model 1, by the paper's cost tables (M_dp^OP)."""
    values = np.arange(total + 1)

    def merged(one: Ints, other: Ints) -> Ints:
        return np.array([(one[: v + 1] + other[v::-1]).min() for v in values])

    roots = []
    for s in range(noisy[0].shape[1]):
        costs = [(values - value) ** 2 for value in noisy[-1][:, s]]
        for level, start in reversed(list(enumerate(tree.start))):
            below = [reduce(merged, costs[low:high]) for low, high in pairwise(start.tolist())]
            costs = [(values - value) ** 2 + phi for value, phi in zip(noisy[level][:, s], below, strict=True)]
        roots.append(costs[0])
    return int(reduce(merged, roots)[total])


def _oracle(problem: Instance, release: HierarchyRelease, result: Result) -> Iterator[str]:
    """Check that releases are consistent; solve Model 1 again by the paper's tables."""
    method = result.method
    if not METHODS[method].valid:
        return
    yield from release.complaints()
    assert problem.truth is not None  # a problem that was solved
    total, known = int(release.counts[0][0].sum()), int(problem.truth.leaves[0].sum())
    if problem.declared.relation.exact and total != known:
        yield f"the root's groups add up to {total}, the input's to {known}"
    if (
        method in ("hierarchical-dp", "hierarchical")
        and total <= _MAX_GROUPS
        and not problem.declared.settings.region_totals
    ):
        (counts,), (noisy,) = release.counts, release.noisy
        found, least = objective(counts, noisy), least_objective(release.tree, noisy, total)
        if found != least:
            yield f"Model 1's objective is {found}; the cost tables reach {least}"


PROFILE = Profile(
    problems=problems(),
    neighbours=neighbours,
    queries=queries_of,
    draws=draws_of,
    variants={"relabelling": relabel({COUNTS: LEVELS, REGIONS: LEVELS}), "reordering": reorder(COUNTS)},
    oracle=_oracle,
    skip={"backends-agree": "each run draws its own noise; test_qip.py compares the backends on the same noisy values"},
    claims={"cumulative-chain-as-published": "pure-dp"},
)


def related(relation: str, *, kind: str = "pure-dp", first: int = 1, listed: bool = False) -> Profile:
    """Return the profile for problems of a relation of neighbours, a notion and a least size.

    ``listed``: a table has the regions.
    """
    claims = PROFILE.claims if relation == "sizes" and kind == "pure-dp" else {}
    asked = problems(kind, relation, first, listed)
    return evolve(PROFILE, problems=asked, notion="" if kind == "pure-dp" else kind, claims=claims)


PROFILES: Final = {kind: related("sizes", kind=kind) for kind in BUDGETS}
"""Of each notion the profile for problems that name it."""
