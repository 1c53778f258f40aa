from __future__ import annotations

import itertools

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.errors import InputError
from privopt_hierarchical_dp.region_tables import read_rows, write_rows
from privopt_hierarchical_dp.tree import Regions, Tree, add_up


def test_children_are_sorted_in_any_input_order():
    paths = [("r", "b", "z"), ("r", "a", "y"), ("r", "b", "x"), ("r", "a", "é"), ("r", "a", "Z")]
    for order in itertools.permutations(paths):
        tree = Tree.from_paths(order)
        assert tree.names == (("r",), ("a", "b"), ("Z", "y", "é", "x", "z"))
        assert [tree.names[2][index] for index in tree.by_name(2)] == ["Z", "x", "y", "z", "é"]
        assert tree.parents(2).tolist() == [0, 0, 0, 1, 1]
    assert tree.regions == 8


def test_single_level_is_a_tree():
    tree = Tree.from_paths([("alone",)])
    assert tree.depth == 1
    assert [level.tolist() for level in add_up(tree, np.array([[1, 2]]))] == [[[1, 2]]]


def test_short_leaf_repeats_below_in_any_order():
    paths = [("r", "a"), ("r", "b", "y"), ("r", "b", "x", "deep"), ("r", "c", "", "")]
    for order in itertools.permutations(paths):
        tree = Tree.from_paths(order)
        assert tree.names[1:] == (("a", "b", "c"), ("a", "x", "y", "c"), ("a", "deep", "y", "c"))
        assert [tree.first_here(level).tolist() for level in (1, 2, 3)] == [
            [True] * 3, [False, True, True, False], [False, True, False, False]
        ]  # fmt: skip
        assert tree.labels(3) == ["a (level 4)", "deep", "y (level 4)", "c (level 4)"]
    counts = add_up(tree, np.array([[5], [3], [2], [1]]))
    assert [level.ravel().tolist() for level in counts] == [[11], [5, 5, 1], [5, 3, 2, 1], [5, 3, 2, 1]]


def test_repeated_names_become_paths():
    paths = [("US", "WA", "King"), ("US", "Washington", "Lake"), ("US", "OR", "Washington"), ("US", "AL", "Lake")]
    tree = Tree.from_paths(paths)
    assert tree.names[1] == ("AL", "OR", "WA", "Washington")
    assert tree.names[2] == ("AL/Lake", "OR/Washington", "King", "Washington/Lake")
    shown_paths = [("US", parent_name, name) for parent_name, name in zip(tree.names[1], tree.names[2], strict=True)]
    assert Tree.from_paths(shown_paths).names == tree.names  # read back from a release


@pytest.mark.parametrize(
    ("paths", "word"),
    [
        ([("r", "b"), ("r", "b", "b1")], "2 levels deep"),
        ([("r", "", "c"), ("r", "b", "b1")], "an empty name"),
        ([("", "", ""), ("r", "b", "b1")], "an empty name"),
        ([("r", "a", "x", "q"), ("r", "b", "x", "b/x")], "both written 'b/x'"),
        (
            [("r", "a", "x"), ("r", "b", "x"), ("r", "c", "b/x")],
            "both written 'b/x'",
        ),
        ([("r", "a", "x"), ("r", "b", "x"), ("r", "b", "b/x")], "both written 'b/x'"),
        ([("r", "a"), ("q", "b")], "one root"),
        ([("r", "r"), ("r", "r/r")], "both written 'r/r'"),
        ([], "one leaf"),
    ],
)
def test_names_faults_of_a_hierarchy(paths, word):
    with pytest.raises(InputError, match=word):
        Tree.from_paths(paths)


@st.composite
def leaf_paths(draw):
    """Paths of a random tree of up to four levels, with few names, so that many regions share one."""
    paths = [("r",)]
    for _ in range(draw(st.integers(0, 3))):
        inner = [draw(st.booleans()) for _ in paths]
        names = st.lists(st.sampled_from(["a", "b", "é", "Z", "07", "a b"]), min_size=1, max_size=4, unique=True)
        paths = [
            child
            for path, is_inner in zip(paths, inner, strict=True)
            for child in ([(*path, name) for name in draw(names)] if is_inner and len(path) else [path])
        ]
    return paths


def _written(path, paths):
    """Return the name of a region by the rule in words: its own, or its path if another region has that too."""
    regions = {p[: k + 1] for p in paths for k in range(len(p))}
    if sum(region[-1] == path[-1] for region in regions) == 1:
        return path[-1]
    keeps_root = len(path) == 1 or path[0] == path[1]
    return "/".join(path if keeps_root else path[1:])


@settings(deadline=None, max_examples=60)
@given(leaf_paths(), st.randoms(use_true_random=False))
def test_tree_is_that_of_the_paths_in_any_order(paths, random):
    shuffled = [(*path, "") if len(path) < max(map(len, paths)) else path for path in paths] + paths[:1]
    random.shuffle(shuffled)
    regions = Regions.of(shuffled, file="counts")
    tree = regions.tree
    assert tree.names == Tree.from_paths(paths).names
    # Every leaf is where its path leads, and its parents are those of the path.
    found = regions.find_leaves(pl.DataFrame([(*p, *("",) * (4 - len(p))) for p in paths], orient="row")).to_list()
    assert sorted(found) == list(range(tree.widths[-1]))
    for path, place in zip(paths, found, strict=True):
        for level in reversed(range(tree.depth)):
            part = path[: level + 1]
            assert tree.name_of(level, place) == _written(part, paths)
            assert bool(tree.first_here(level)[place]) is (len(path) > level)
            place = int(tree.parents(level)[place]) if level else place
    names = tree.listing["region"].to_list()
    assert names == sorted(names)
    assert len(names) == len({path[: k + 1] for path in paths for k in range(len(path))})


@settings(deadline=None, max_examples=30)
@given(leaf_paths())
def test_written_table_is_read_back(tmp_path_factory, paths):
    tree = Tree.from_paths(paths)
    leaves = np.arange(2 * tree.widths[-1]).reshape(-1, 2)
    file = tmp_path_factory.mktemp("rows") / "t.csv"
    write_rows(file, tree, {"size": [1, 2]}, {"groups": add_up(tree, leaves)})
    for given_tree in (None, tree):
        read, (levels,) = read_rows(file, {"size": [1, 2]}, ["groups"], given_tree)
        assert read.names == tree.names
        assert [level.tolist() for level in levels] == [level.tolist() for level in add_up(tree, leaves)]


@pytest.mark.parametrize(
    ("rows", "word"),
    [
        ("r,,1\na,b,1\nb,a,1\n", "a cycle through 'a'"),
        ("a,b,1\nb,a,1\n", "a cycle"),
        ("r,,1\nq,,1\n", "the roots 'q', 'r'"),
        ("r,,1\na,s,1\n", "parent 's' without rows"),
        ("r,,1\na,r,1\na,r,1\n", "occurs twice"),
        ("r,,1\n,r,1\n", "an empty name"),
    ],
)
def test_names_faults_of_a_published_table(tmp_path, rows, word):
    (tmp_path / "t.csv").write_text(f"region,parent,count\n{rows}")
    with pytest.raises(InputError, match=word):
        read_rows(tmp_path / "t.csv", {}, ["count"])
