"""Conformance profiles of both mechanisms, with generated problems, neighbours, measurements and checks."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Sequence
from functools import partial, reduce
from itertools import combinations_with_replacement, pairwise, product
from typing import Any, Final

import numpy as np
from attrs import evolve
from hypothesis import strategies as st
from numpy.typing import NDArray

from privopt.arrays import Ints
from privopt.interfaces import Result
from privopt.testing import GeneratedProblem, Profile, Query, csv_bytes, relabel, reorder, to_toml
from privopt.testing.noise import answer_truthfully, watch_noise
from privopt_hierarchical_dp.fits.half_prices import objective
from privopt_hierarchical_dp.instance import Instance
from privopt_hierarchical_dp.methods import METHODS
from privopt_hierarchical_dp.release import HierarchyRelease
from privopt_hierarchical_dp.tree import Tree, add_up

__all__ = [
    "PROFILE",
    "PROFILES",
    "TABLES_PROFILE",
    "draws_of",
    "least_objective",
    "make_profile",
    "neighbours",
    "problems",
    "queries_of",
    "related_tables",
    "tables_neighbours",
    "tables_problems",
]

COUNTS: Final = "counts.csv"
REGIONS: Final = "regions.csv"
RECORDS: Final = "records.csv"
BOUNDS: Final = "bounds.csv"
SHAPES: Final = (
    (("a",),),
    ((), ("a",)),
    (("a",), ("a", "b")),
    (("a", "b"), ("b", "c")),
    (("a", "b"), ("b", "c"), ("a", "c")),
)
"""The attributes that each table of a generated problem counts by, with one entry per kind of problem.

The kinds are a single table, a table of totals with a table by one attribute, a table that is contained in another, two
tables that share an attribute, and three tables, any two of which share an attribute.
"""
LEVELS: Final = ("level_1", "level_2", "level_3")
PLANTED: Final = 10**6
"""The smallest planted count.

Seven-digit numbers rarely occur by chance in published files, so the kit can search for them.
"""
_MAX_GROUPS: Final = 40
"""The maximum number of groups for which the optimum is computed from cost tables."""
BUDGETS: Final[dict[str, tuple[dict[str, float], ...]]] = {
    "pure-dp": ({"epsilon": 1.0}, {"epsilon": 0.5}, {"epsilon": 0.1}),
    "zcdp": ({"rho": 0.5}, {"rho": 0.125}, {"rho": 0.005}),
    "approx-dp": (
        {"epsilon": 1.0, "delta": 1e-3},
        {"epsilon": 0.5, "delta": 1e-6},
        {"epsilon": 0.1, "delta": 1e-9},
    ),
}
"""The budgets of generated problems, for each privacy notion."""


@st.composite
def problems(
    draw_from: st.DrawFn,
    kind: str = "pure-dp",
    relation: str = "sizes",
    first: int = 1,
    listed: bool = False,
    exact: int = 0,
) -> GeneratedProblem:
    """Generate a problem for hierarchical-dp with one to three levels, up to four leaves and up to four sizes.

    In some problems, two seven-digit counts are planted in each leaf. All other counts are at most 4.

    Args:
        draw_from: The Hypothesis function that draws from a strategy.
        kind: The privacy notion.
        relation: The neighbouring relation.
        first: The smallest group size, 0 or 1.
        listed: Whether a public table lists the regions. If so, rows with a count of 0 are left out.
        exact: The number of levels, counted from the root, at which totals are exact. If the generated hierarchy has
            fewer levels, the totals at all of its levels are exact.

    Returns:
        The problem. Its ``secrets`` are the planted counts that must not occur in published files.
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
    # A branch can be shortened only if no leaf has siblings. The parent of the first leaf then becomes a leaf itself.
    has_only_children = len({path[:-1] for path in paths}) == len(paths) > 1
    if has_only_children and draw_from(st.booleans()):  # shorten the first branch
        paths[0] = (*paths[0][:-1], "")
    sizes = draw_from(st.integers(2, 4))
    planted = draw_from(st.booleans())
    rows: list[list[Any]] = []
    secrets: list[bytes] = []
    for path in paths:
        # One count per size, from the smallest size to N.
        groups = draw_from(st.lists(st.integers(0, 4), min_size=sizes + 1 - first, max_size=sizes + 1 - first))
        # With two planted counts, neither of them equals the total of the region, which may be public.
        if planted:
            groups[:2] = [draw_from(st.integers(PLANTED, 9_999_999)) for _ in range(2)]
            secrets += [str(number).encode() for number in groups[:2]]
        rows += [[*path, size, number] for size, number in enumerate(groups, start=first)]
    header = [*(f"level_{level + 1}" for level in range(depth)), "size", "groups"]
    tables: dict[str, Any] = {
        "hierarchy": {"counts": COUNTS, "sizes": sizes, "first_size": first},
        "privacy": {"kind": kind, **draw_from(st.sampled_from(BUDGETS[kind])), "relation": relation},
    }
    if exact:
        tables["hierarchy"]["exact"] = [f"level_{min(exact, depth)}"]
    if relation == "replaced":
        tables["privacy"]["max_household"] = draw_from(st.integers(1, sizes))
    if draw_from(st.booleans()):
        tables["hierarchical-dp"] = {"budget": draw_from(st.lists(st.integers(1, 3), min_size=depth, max_size=depth))}
    # Under "replaced", individuals are persons, whose quantity is 1.
    if relation != "replaced" and draw_from(st.booleans()):
        tables.setdefault("hierarchical-dp", {})["max_quantity"] = draw_from(st.integers(1, 3))
    # A planted count that happens to equal a region's total may be published, so it is not secret.
    totals = [sum(int(row[-1]) for row in rows if tuple(row[:depth]) == path) for path in paths]
    hidden_secrets: Any = tuple(secret for secret in secrets if int(secret) not in totals)
    files = {COUNTS: csv_bytes(header, rows)}
    if listed:
        tables["hierarchy"]["regions"] = REGIONS
        files[REGIONS] = csv_bytes(header[:depth], paths)
        files[COUNTS] = csv_bytes(header, [row for row in rows if row[-1]])
    return GeneratedProblem(toml=to_toml(tables), files=files, secrets=hidden_secrets)


def _change_counts(
    problem: GeneratedProblem, file: str, header: list[str], rows: list[Any], *changes: tuple[int, int]
) -> Iterator[GeneratedProblem]:
    """Yield a copy of a problem with some counts changed, or nothing if a changed count would become negative.

    Args:
        problem: The problem.
        file: The name of the file to change.
        header: The header of the file.
        rows: The rows of the file, with the count in the last column.
        changes: Pairs of a row index and the amount to add to that row's count.
    """
    table = [list(row) for row in rows]
    for index, by in changes:
        table[index][-1] = str(int(table[index][-1]) + by)
    now = [int(table[index][-1]) for index, _ in changes]
    # A file of individuals has no rows for empty cells.
    if min(now) == 0 and file == RECORDS:
        table = [row for row in table if row[-1] != "0"]
    if min(now) >= 0:
        yield problem.with_file(file, csv_bytes(header, table))


def neighbours(problem: GeneratedProblem) -> Iterator[GeneratedProblem]:
    """Yield all neighbours of a problem for hierarchical-dp.

    This follows the definitions of the neighbouring relations and does not use the code under test.
    """
    tables = tomllib.loads(problem.toml)
    relation = tables["privacy"].get("relation", "sizes")
    max_quantity = tables.get("hierarchical-dp", {}).get("max_quantity", 1)
    header, *rows = problem.rows(COUNTS)
    if REGIONS in problem.files:  # cells without a row have a count of 0
        stored_cells = {tuple(row[:-1]) for row in rows}
        first, last = tables["hierarchy"]["first_size"], tables["hierarchy"]["sizes"]
        cells = [[*path, str(size)] for path in problem.rows(REGIONS)[1:] for size in range(first, last + 1)]
        rows += [[*cell, "0"] for cell in cells if tuple(cell) not in stored_cells]
    # The index of the row for each leaf region and size.
    where = {(tuple(row[:-2]), int(row[-2])): index for index, row in enumerate(rows)}

    changed = partial(_change_counts, problem, COUNTS, header, rows)
    household = tables["privacy"].get("max_household")
    exact = max((int(name[6:]) for name in tables["hierarchy"].get("exact", ())), default=0)
    for (path, size), index in where.items():
        # "replaced": a household is replaced by another one in its region. Both have at most the public maximum size.
        for new_size in range(household + 1) if household else ():
            if new_size != size <= household and (path, new_size) in where:
                yield from changed((index, -1), (where[path, new_size], 1))
        if household:
            continue
        # Exact totals: a group is replaced by another one in the same region on the deepest exact level.
        if relation == "groups" and exact:
            for (other_path, _), other_index in where.items():
                if other_index != index and other_path[:exact] == path[:exact]:
                    yield from changed((index, -1), (other_index, 1))
            continue
        # "groups": a group joins or leaves. "individuals": so does a group of size at most max_quantity, because it may
        # consist of one individual.
        if relation != "sizes" and (relation == "groups" or size <= max_quantity):
            yield from changed((index, 1))
            yield from changed((index, -1))
        # An individual joins or leaves a group, whose size changes by up to max_quantity.
        for new_size in () if relation == "groups" else range(size - max_quantity, size + max_quantity + 1):
            if new_size != size and (path, new_size) in where:
                yield from changed((index, -1), (where[path, new_size], 1))


def queries_of(problem: Instance, method: str) -> Sequence[Query]:
    """Return the mechanism's calls to noise functions, each with the sensitivity claimed by the design.

    To record the calls, the noise functions are temporarily replaced with functions that return the true values.

    Args:
        problem: The problem, with its secrets.
        method: The name of the method.
    """
    assert problem.truth is not None  # generated problems include their secrets
    design = problem.design(method)
    with watch_noise(answer_truthfully) as calls:
        design.draw([add_up(design.tree, leaves) for leaves in problem.truth.leaves], seed=None)
    # Exact totals are not measured.
    parts = [
        form.part(level + 1)
        for form, budgets in zip(design.layout.forms, design.budgets, strict=True)
        for level, budget in enumerate(budgets)
        if budget
    ]
    # Noise functions are not told the sensitivity of a query. It is taken from the design, and the kit searches for a
    # larger one.
    return [evolve(call, name=name, sensitivity=design.delta) for call, name in zip(calls, parts, strict=True)]


def draws_of(problem: Instance, method: str, count: int) -> NDArray[Any]:
    """Draw ``count`` independent samples of all noisy values from which a release is computed.

    Args:
        problem: The problem.
        method: The name of the method.
        count: The number of samples.

    Returns:
        A (count, values) array, with one column per cell of each region, table and level.
    """
    law = problem.declared.privacy.law
    return np.concatenate(
        [
            # With sensitivity 1, this budget leads to exactly the query's scale.
            law.draw(np.tile(query.values, (count, 1)), law.spend_of(query.scale, 1), 1, seed=None)[0]
            for query in queries_of(problem, method)
        ],
        axis=1,
    )


def least_objective(tree: Tree, noisy: Sequence[Ints], total: int) -> int:
    """Return the minimum of Model 1's objective, computed from cost tables as in the paper's mechanism M_dp^OP.

    Model 1 finds the consistent non-negative integers nearest to the noisy counts.

    Args:
        tree: The region tree.
        noisy: For each level, a (regions, sizes) array with the noisy counts.
        total: The exact total number of groups.
    """
    # For each count v of a region, a cost table contains the smallest squared distance within the region's subtree.
    values = np.arange(total + 1)

    def merge_costs(left: Ints, right: Ints) -> Ints:
        """Return the lowest cost of splitting v groups between two subtrees, for each v (a min-plus convolution)."""
        return np.array([(left[: v + 1] + right[v::-1]).min() for v in values])

    # Sizes are independent except for the total, so the trees of all sizes are merged last.
    roots = []
    for s in range(noisy[0].shape[1]):
        costs = [(values - value) ** 2 for value in noisy[-1][:, s]]
        for level, start in reversed(list(enumerate(tree.start))):
            child_costs = [reduce(merge_costs, costs[begin:end]) for begin, end in pairwise(start.tolist())]
            costs = [(values - value) ** 2 + phi for value, phi in zip(noisy[level][:, s], child_costs, strict=True)]
        roots.append(costs[0])
    return int(reduce(merge_costs, roots)[total])


def _check_optimum(problem: Instance, release: HierarchyRelease, result: Result) -> Iterator[str]:
    """Yield a message for each inconsistency in a release, and one if its objective in Model 1 is not minimal.

    The minimum is only computed for methods that solve Model 1, and only if there are few groups.
    """
    method = result.method
    # Methods that are not valid may publish inconsistent counts, and no optimum is claimed for them.
    if not METHODS[method].valid:
        return
    yield from release.complaints()
    assert problem.truth is not None  # the problem was solved, so it has secrets
    total, true_total = int(release.counts[0][0].sum()), int(problem.truth.leaves[0].sum())
    design = problem.design(method)
    if design.exact and total != true_total:
        yield f"the root's groups add up to {total}, the input's to {true_total}"
    true_levels = add_up(release.tree, problem.truth.leaves[0].sum(axis=1))
    for level, numbers in enumerate(true_levels[: design.exact]):
        if (release.counts[0][level].sum(axis=1) != numbers).any():
            yield f"level {level + 1}: a number that is exact is not the input's"
    # Merging cost tables takes time quadratic in the total, so it is only done for few groups.
    if (
        method in ("hierarchical-dp", "hierarchical")
        and total <= _MAX_GROUPS
        and design.exact < 2  # cost tables support an exact total only at the root
    ):
        (counts,), (noisy,) = release.counts, release.noisy
        value, optimum = objective(counts, noisy), least_objective(release.tree, noisy, total)
        if value != optimum:
            yield f"Model 1's objective is {value}; the cost tables reach {optimum}"


PROFILE = Profile(
    problems=problems(),
    neighbours=neighbours,
    queries=queries_of,
    draws=draws_of,
    variants={"relabelling": relabel({COUNTS: LEVELS, REGIONS: LEVELS}), "reordering": reorder(COUNTS)},
    oracle=_check_optimum,
    skip={"backends-agree": "each run draws its own noise; test_qip.py compares the backends on the same noisy values"},
    claims={"cumulative-chain-as-published": "pure-dp"},
)


def make_profile(
    relation: str, *, kind: str = "pure-dp", first: int = 1, listed: bool = False, exact: int = 0
) -> Profile:
    """Return the conformance profile of hierarchical-dp for problems with the given relation, notion and smallest size.

    Args:
        relation: The neighbouring relation.
        kind: The privacy notion.
        first: The smallest group size, 0 or 1.
        listed: Whether a public table lists the regions.
        exact: The number of levels, counted from the root, at which totals are exact.
    """
    # The paper claims that the chain as printed is private, but only under pure DP and the relation "sizes".
    claims = PROFILE.claims if relation == "sizes" and kind == "pure-dp" else {}
    strategy = problems(kind, relation, first, listed, exact)
    return evolve(PROFILE, problems=strategy, notion="" if kind == "pure-dp" else kind, claims=claims)


PROFILES: Final = {kind: make_profile("sizes", kind=kind) for kind in BUDGETS}
"""The profiles of hierarchical-dp with the relation ``sizes``, for each privacy notion."""


@st.composite
def tables_problems(
    draw_from: st.DrawFn, kind: str = "pure-dp", relation: str = "individuals", exact: int = 0
) -> GeneratedProblem:
    """Generate a problem for hierarchical-tables with a small tree and up to three attributes with two values each.

    In some problems, two seven-digit counts are planted. All other counts are at most 2.

    Args:
        draw_from: The Hypothesis function that draws from a strategy.
        kind: The privacy notion.
        relation: The neighbouring relation.
        exact: The number of levels, counted from the root, at which totals are published exactly.
    """
    # The attributes that each table counts by.
    shape: tuple[tuple[str, ...], ...] = draw_from(st.sampled_from(SHAPES))
    paths: list[tuple[str, ...]] = draw_from(
        st.sampled_from([[("all", "x"), ("all", "y")], [("all", "x", "u"), ("all", "x", "v"), ("all", "z", "")]])
    )
    attributes: list[str] = sorted({attribute for table in shape for attribute in table})
    values = {attribute: [f"{attribute}1", f"{attribute}2"] for attribute in attributes}
    cells = [(*path, *cell_values) for path in paths for cell_values in product(*values.values())]
    counts: list[int] = draw_from(st.lists(st.integers(0, 2), min_size=len(cells), max_size=len(cells)))
    # Sometimes there is only one individual, which is the smallest non-empty input.
    if draw_from(st.integers(0, 3)) == 3:
        counts = [1, *[0] * (len(cells) - 1)]
    secrets: Any = []
    if draw_from(st.booleans()):
        counts[:2] = [draw_from(st.integers(PLANTED, 9_999_999)) for _ in range(2)]
        secrets = [str(count).encode() for count in counts[:2]]
    levels = [f"level_{level + 1}" for level in range(len(paths[0]))]
    tables: dict[str, Any] = {
        "hierarchy": {
            "regions": "regions.csv",
            "records": RECORDS,
            "attributes": values,
            "tables": {f"t{number}": {"by": list(table)} for number, table in enumerate(shape)},
        },
        "privacy": {"kind": kind, **draw_from(st.sampled_from(BUDGETS[kind])), "relation": relation},
    }
    if exact:
        tables["hierarchy"]["exact"] = [f"level_{exact}"]
    # With 8 cells, households have a single person, because larger ones would have thousands of neighbours.
    if relation == "replaced":
        tables["privacy"]["max_household"] = draw_from(st.integers(1, 2 if len(attributes) < 3 else 1))
    if draw_from(st.booleans()):
        tables["hierarchy"]["budget"] = [draw_from(st.integers(1, 3)) for _ in levels]
    if draw_from(st.booleans()):
        tables["hierarchy"]["tables"]["t0"]["share"] = draw_from(st.integers(1, 3))
    files: dict[str, bytes] = {}
    # With exact totals, inputs that contradict the bounds are rejected and could not be compared.
    if draw_from(st.booleans()) and relation == "individuals" and not exact:
        tables["hierarchy"]["bounds"] = BOUNDS
        files[BOUNDS] = csv_bytes(["region", "at_most"], [["all", draw_from(st.integers(0, 3))]])
    rows = [[*cell, count] for cell, count in zip(cells, counts, strict=True)]
    return GeneratedProblem(
        toml=to_toml(tables),
        files={
            RECORDS: csv_bytes([*levels, *attributes, "count"], rows),
            "regions.csv": csv_bytes(levels, paths),
            **files,
        },
        secrets=tuple(secrets),
    )


def tables_neighbours(problem: GeneratedProblem) -> Iterator[GeneratedProblem]:
    """Yield all neighbours of a problem for hierarchical-tables.

    This follows the definitions of the neighbouring relations and does not use the code under test.
    """
    tables = tomllib.loads(problem.toml)
    relation = tables["privacy"]["relation"]
    header, *rows = problem.rows(RECORDS)
    depth = sum(name.startswith("level_") for name in header)
    exact = max((int(name[6:]) for name in tables["hierarchy"].get("exact", ())), default=0)

    changed = partial(_change_counts, problem, RECORDS, header, rows)
    if relation == "replaced":
        for path in dict.fromkeys(tuple(row[:depth]) for row in rows):
            cells = [index for index, row in enumerate(rows) if tuple(row[:depth]) == path]
            persons = range(1, tables["privacy"]["max_household"] + 1)
            # A household is a multiset of cells, one for each person.
            homes = [household for size in persons for household in combinations_with_replacement(cells, size)]
            for gone, come in product(homes, repeat=2):
                # With exact totals, a household is replaced by one of the same size.
                if exact and len(gone) != len(come):
                    continue
                # The change in each cell when the first household is replaced by the second.
                net = {cell: come.count(cell) - gone.count(cell) for cell in {*gone, *come}}
                if any(net.values()):
                    yield from changed(*net.items())
        return
    # The number of levels on which an individual stays in the same region.
    fixed_levels = {"moves": max(exact, 1), "attributes": depth}.get(relation, exact)
    for source, row in enumerate(rows):
        if not fixed_levels:
            yield from changed((source, 1))
            yield from changed((source, -1))
        for target_index, target in enumerate(rows) if fixed_levels else ():
            if target_index != source and row[:fixed_levels] == target[:fixed_levels]:
                yield from changed((source, -1), (target_index, 1))


def _check_margins(problem: Instance, release: HierarchyRelease, result: Result) -> Iterator[str]:
    """Yield a message for each region whose counts disagree with its children, another table or an exact total.

    To be independent of the mechanism, this check uses dictionaries instead of arrays.
    """
    attributes = list(problem.declared.hierarchy.attributes)
    assert problem.truth is not None  # the problem was solved, so it has secrets
    truth, tree = problem.truth, release.tree
    for level, counts in enumerate(zip(*release.counts, strict=True)):
        # The count for each region and each part of a cell, such as (region 3, sex = 1), according to the tables so
        # far.
        known_sums: dict[tuple[int, tuple[tuple[str, int], ...]], int] = {}
        for values, margin in zip(counts, problem.declared.domain.tables, strict=True):
            table_sums: dict[tuple[int, tuple[tuple[str, int], ...]], int] = {}
            for (region, *cell), count in np.ndenumerate(values):
                pairs = [(attributes[a], k) for a, k in zip(margin, cell, strict=True)]
                # Every table determines the counts in all its margins, as sums over the other attributes.
                for selection in product((False, True), repeat=len(pairs)):
                    part = tuple(pair for pair, is_selected in zip(pairs, selection, strict=True) if is_selected)
                    table_sums[region, part] = table_sums.get((region, part), 0) + int(count)
            yield from (
                f"level {level + 1}: {key} is {known_sums[key]} and {n}"
                for key, n in table_sums.items()
                if known_sums.get(key, n) != n
            )
            known_sums |= table_sums
        # The number of levels with public totals, or None if all totals are public.
        exact = problem.declared.relation.exact
        if exact is None or level < exact:
            for region in range(tree.widths[level]):
                truth_sum = int(truth.leaves[0][slice(*tree.leaf_range(level, region))].sum())
                if (number := known_sums[region, ()]) != truth_sum:
                    yield f"level {level + 1}: region {region} has {number} individuals, the input {truth_sum}"
    yield from release.complaints()


TABLES_PROFILE = Profile(
    problems=tables_problems(),
    neighbours=tables_neighbours,
    queries=queries_of,
    draws=draws_of,
    variants={"reordering": reorder(RECORDS)},
    oracle=_check_margins,
    skip={"backends-agree": "no model is solved"},
)


def related_tables(relation: str, *, kind: str = "pure-dp", exact: int = 0) -> Profile:
    """Return the conformance profile of hierarchical-tables for a relation, a notion and a number of exact levels."""
    strategy = tables_problems(kind, relation, exact)
    return evolve(TABLES_PROFILE, problems=strategy, notion="" if kind == "pure-dp" else kind)
