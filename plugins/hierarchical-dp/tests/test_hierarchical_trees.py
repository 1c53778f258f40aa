from __future__ import annotations

import itertools

import numpy as np
import pytest

from privopt.errors import InputError
from privopt_hierarchical_dp.tree import Tree, add_up


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
