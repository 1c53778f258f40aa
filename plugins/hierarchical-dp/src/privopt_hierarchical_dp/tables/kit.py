"""What the conformance kit needs to try hierarchical-tables: small problems, neighbours, measurements, an oracle."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from itertools import combinations_with_replacement, product
from typing import Any, Final

import numpy as np
from attrs import evolve
from hypothesis import strategies as st

from privopt.interfaces import Result
from privopt.testing import GeneratedProblem, Profile, csv_bytes, reorder, to_toml
from privopt_hierarchical_dp.instance import Instance
from privopt_hierarchical_dp.kit import BUDGETS, PLANTED, draws_of, queries_of
from privopt_hierarchical_dp.release import HierarchyRelease

__all__ = ["PROFILE", "neighbours", "problems", "related"]

RECORDS: Final = "records.csv"
ZEROS: Final = "zeros.csv"
BOUNDS: Final = "bounds.csv"
SHAPES: Final = (
    (("a",),),
    ((), ("a",)),
    (("a",), ("a", "b")),
    (("a", "b"), ("b", "c")),
    (("a", "b"), ("b", "c"), ("a", "c")),
)
"""Tables: one; numbers of individuals beside one; one within another; two that share one; a ring of three."""


@st.composite
def problems(draw_from: st.DrawFn, kind: str = "pure-dp", relation: str = "individuals") -> GeneratedProblem:
    """Draw a small tree, up to three attributes of two values; counts small, or long."""
    shape: tuple[tuple[str, ...], ...] = draw_from(st.sampled_from(SHAPES))
    paths: list[tuple[str, ...]] = draw_from(
        st.sampled_from([[("all", "x"), ("all", "y")], [("all", "x", "u"), ("all", "x", "v"), ("all", "z", "")]])
    )
    used: list[str] = sorted({attribute for table in shape for attribute in table})
    values = {attribute: [f"{attribute}1", f"{attribute}2"] for attribute in used}
    cells = [(*path, *own) for path in paths for own in product(*values.values())]
    counts: list[int] = draw_from(st.lists(st.integers(0, 2), min_size=len(cells), max_size=len(cells)))
    if draw_from(st.integers(0, 3)) == 3:  # an individual alone, like whom is nobody
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
    if relation == "replaced":  # with 8 cells, households of one: else neighbours are thousands
        tables["privacy"]["max_household"] = draw_from(st.integers(1, 2 if len(used) < 3 else 1))
    if draw_from(st.booleans()):
        tables["hierarchy"]["budget"] = [draw_from(st.integers(1, 3)) for _ in levels]
    if draw_from(st.booleans()):
        tables["hierarchy"]["tables"]["t0"]["share"] = draw_from(st.integers(1, 3))
    files: dict[str, bytes] = {}
    two_left = relation != "attributes" or max(map(len, shape)) > 1  # cells: else the relation hides nothing
    if draw_from(st.booleans()) and shape[0] and two_left:
        tables["hierarchy"]["tables"]["t0"]["impossible"] = ZEROS
        files[ZEROS] = csv_bytes(list(shape[0]), [[values[attribute][0] for attribute in shape[0]]])
    if draw_from(st.booleans()) and relation == "individuals":  # where numbers are exact, some inputs are refused
        tables["hierarchy"]["bounds"] = BOUNDS
        files[BOUNDS] = csv_bytes(["region", "at_most"], [["all", draw_from(st.integers(0, 3))]])
    rows = [[*cell, count] for cell, count in zip(cells, counts, strict=True)]
    return GeneratedProblem(
        toml=to_toml(tables),
        files={RECORDS: csv_bytes([*levels, *used, "count"], rows), "regions.csv": csv_bytes(levels, paths), **files},
        secrets=tuple(secrets),
    )


def neighbours(problem: GeneratedProblem) -> Iterator[GeneratedProblem]:
    """Yield all neighbours of a problem, written from its relation's words."""
    tables = tomllib.loads(problem.toml)
    relation = tables["privacy"]["relation"]
    header, *rows = problem.rows(RECORDS)
    depth = sum(name.startswith("level_") for name in header)

    def changed(*changes: tuple[int, int]) -> Iterator[GeneratedProblem]:
        found = [list(row) for row in rows]
        for index, by in changes:
            found[index][-1] = str(int(found[index][-1]) + by)
        now = [int(found[index][-1]) for index, _ in changes]
        if min(now) == 0:  # who is not there has no row
            found = [row for row in found if row[-1] != "0"]
        if min(now) >= 0:
            yield problem.with_file(RECORDS, csv_bytes(header, found))

    if relation == "replaced":
        for path in dict.fromkeys(tuple(row[:depth]) for row in rows):
            cells = [index for index, row in enumerate(rows) if tuple(row[:depth]) == path]
            persons = range(1, tables["privacy"]["max_household"] + 1)
            homes = [own for size in persons for own in combinations_with_replacement(cells, size)]
            for gone, come in product(homes, repeat=2):
                net = {cell: come.count(cell) - gone.count(cell) for cell in {*gone, *come}}
                if any(net.values()):
                    yield from changed(*net.items())
        return
    for one, row in enumerate(rows):
        if relation == "individuals":
            yield from changed((one, 1))
            yield from changed((one, -1))
        for other, target in enumerate(rows) if relation != "individuals" else ():
            if other != one and (relation == "moves" or row[:depth] == target[:depth]):
                yield from changed((one, -1), (other, 1))


def _oracle(problem: Instance, release: HierarchyRelease, result: Result) -> Iterator[str]:
    """Check sums over children, and of every pair of tables, by dictionaries."""
    attributes = list(problem.declared.hierarchy.attributes)
    assert problem.truth is not None  # a problem that was solved
    truth = problem.truth
    for level, counts in enumerate(zip(*release.counts, strict=True)):
        told: dict[tuple[int, tuple[tuple[str, int], ...]], int] = {}
        for values, margin in zip(counts, problem.declared.domain.tables, strict=True):
            own: dict[tuple[int, tuple[tuple[str, int], ...]], int] = {}
            for (region, *at), count in np.ndenumerate(values):
                pairs = [(attributes[a], k) for a, k in zip(margin, at, strict=True)]
                for chosen in product((False, True), repeat=len(pairs)):
                    part = tuple(pair for pair, yes in zip(pairs, chosen, strict=True) if yes)
                    own[region, part] = own.get((region, part), 0) + int(count)
            yield from (
                f"level {level + 1}: {key} is {told[key]} and {n}" for key, n in own.items() if told.get(key, n) != n
            )
            told |= own
        exact = problem.declared.relation.exact
        if exact is None or level < exact:
            for region in range(truth.tree.widths[level]):
                known = int(truth.leaves[0][slice(*truth.tree.leaf_range(level, region))].sum())
                if told[region, ()] != known:
                    yield f"level {level + 1}: region {region} has {told[region, ()]} individuals, the input {known}"
    yield from release.complaints()


PROFILE = Profile(
    problems=problems(),
    neighbours=neighbours,
    queries=queries_of,
    draws=draws_of,
    variants={"reordering": reorder(RECORDS)},
    oracle=_oracle,
    skip={"backends-agree": "no model is solved"},
)


def related(relation: str, *, kind: str = "pure-dp") -> Profile:
    """Return the profile for problems of a relation of neighbours and a notion."""
    return evolve(PROFILE, problems=problems(kind, relation), notion="" if kind == "pure-dp" else kind)
