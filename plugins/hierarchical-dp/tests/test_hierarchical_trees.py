from __future__ import annotations

import itertools

import numpy as np
import pytest

from privopt.errors import InputError
from privopt_hierarchical_dp.tree import Tree, add_up


def test_children_stand_together_sorted_by_name_whatever_the_order_of_the_input():
    paths = [("r", "b", "z"), ("r", "a", "y"), ("r", "b", "x"), ("r", "a", "é"), ("r", "a", "Z")]
    for order in itertools.permutations(paths):
        tree = Tree.from_paths(order)
        assert tree.names == (("r",), ("a", "b"), ("Z", "y", "é", "x", "z"))
        assert [tree.names[2][place] for place in tree.by_name(2)] == ["Z", "x", "y", "z", "é"]
        assert tree.parents(2).tolist() == [0, 0, 0, 1, 1]
    assert tree.regions == 8


def test_one_level_is_a_tree():
    tree = Tree.from_paths([("alone",)])
    assert tree.depth == 1
    assert [level.tolist() for level in add_up(tree, np.array([[1, 2]]))] == [[[1, 2]]]


def test_names_that_repeat_are_paths():
    paths = [("US", "WA", "King"), ("US", "Washington", "Lake"), ("US", "OR", "Washington"), ("US", "AL", "Lake")]
    tree = Tree.from_paths(paths)
    assert tree.names[1] == ("AL", "OR", "WA", "Washington")
    assert tree.names[2] == ("AL/Lake", "OR/Washington", "King", "Washington/Lake")
    shown = [("US", above, name) for above, name in zip(tree.names[1], tree.names[2], strict=True)]
    assert Tree.from_paths(shown).names == tree.names  # read back from a release


@pytest.mark.parametrize(
    ("paths", "word"),
    [
        ([("r", "a"), ("r", "b", "b1")], "levels deep"),
        ([("r", "a", ""), ("r", "b", "b1")], "levels deep"),
        ([("r", "a", "x"), ("r", "b", "x"), ("r", "c", "b/x")], "under 'b' and under 'c'"),
        ([("r", "a"), ("q", "b")], "one root"),
        ([("r", "r")], "unique"),
        ([], "at least one leaf"),
    ],
)
def test_faults_of_a_hierarchy_are_named(paths, word):
    with pytest.raises(InputError, match=word):
        Tree.from_paths(paths)
