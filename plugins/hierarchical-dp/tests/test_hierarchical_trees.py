from __future__ import annotations

import numpy as np
import pytest

from privopt.errors import InputError
from privopt_hierarchical_dp.tree import Tree, add_up


def test_children_stand_together_and_the_order_of_the_input_comes_back():
    tree = Tree.from_paths([("r", "a", "a1"), ("r", "b", "b1"), ("r", "a", "a2"), ("r", "b", "b2")])
    assert tree.names[2] == ("a1", "a2", "b1", "b2")
    assert [tree.names[2][place] for place in tree.order[2]] == ["a1", "b1", "a2", "b2"]
    assert tree.parents(2).tolist() == [0, 0, 1, 1]
    assert tree.regions == 7


def test_one_level_is_a_tree():
    tree = Tree.from_paths([("alone",)])
    assert tree.depth == 1
    assert [level.tolist() for level in add_up(tree, np.array([[1, 2]]))] == [[[1, 2]]]


@pytest.mark.parametrize(
    ("paths", "word"),
    [
        ([("r", "a"), ("r", "b", "b1")], "levels deep"),
        ([("r", "a", ""), ("r", "b", "b1")], "levels deep"),
        ([("r", "a", "x"), ("r", "b", "x")], "under 'a' and under 'b'"),
        ([("r", "a"), ("q", "b")], "one root"),
        ([("r", "r")], "unique"),
        ([], "at least one leaf"),
    ],
)
def test_faults_of_a_hierarchy_are_named(paths, word):
    with pytest.raises(InputError, match=word):
        Tree.from_paths(paths)
