"""The paper's Examples 1 to 6 and Tables 2 to 6, figure by figure."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hierarchical_dp_paper.tables import (
    Table,
    chain_tables,
    leaf_table,
    merge_by_optimisation,
    node_table,
    paper_domain,
    table_merge,
    tree_tables,
)
from privopt_hierarchical_dp.tree import Tree

DOMAIN = range(5)


def test_example_2_and_table_4(paper):
    tree, counts = paper
    assert counts[1].tolist() == [[2, 0, 1, 0, 0], [1, 1, 1, 0, 0]]
    assert counts[0].tolist() == [[3, 1, 2, 0, 0]]
    assert counts[0].sum() == 6  # Example 3: G
    assert tree.names == (("US",), ("GA", "NY"))


def test_table_5_cost_tables():
    ga, ny = leaf_table(3, DOMAIN), leaf_table(0, DOMAIN)
    assert ga.costs == (9, 4, 1, 0, 1)
    assert ny.costs == (0, 1, 4, 9, 16)
    us = node_table(2, DOMAIN, merge_by_optimisation([ga, ny]))
    # noisy US = 2; the table prints 4 + min(9 + 0), 1 + min(9 + 1, 4 + 0), 0 + min(0 + 4 ...)
    assert us.costs == (4 + 9, 1 + 4, 0 + 1, 1 + 0, 4 + 1)
    assert us == node_table(2, DOMAIN, table_merge([ga, ny]))


def test_example_4_phi_and_first_merge_steps():
    ga, ny = leaf_table(3, DOMAIN), leaf_table(0, DOMAIN)
    phi = table_merge([ny, ga])
    assert (ny.best, ga.best) == (0, 3)
    assert [phi(value) for value in (3, 4, 5)] == [0, 1, 2]  # phi(V0), then (1, 3), then (1, 4)


def test_example_5_costs_of_algorithm_1():
    ga, ny = leaf_table(3, DOMAIN), leaf_table(0, DOMAIN)
    us = node_table(2, range(10), table_merge([ny, ga]))
    assert [us(value) for value in (3, 4, 5)] == [1, 5, 11]


def test_table_6_and_example_6_chain():
    # GA 3, NY 3, US 2; domains 0 to 4, NY -> US is an equality
    tables, _ = chain_tables([3, 3, 2], [False, True, False], total=4)
    assert tables[0].costs == (9, 4, 1, 0, 1)
    assert tables[1].costs == (18, 8, 2, 0, 1)
    assert tables[2].costs == (4 + 18, 1 + 8, 0 + 2, 1 + 0, 4 + 1)
    _, values = chain_tables([3, 3, 2], [False, True, False], total=3)
    assert values == [3, 3, 3]  # the starred entries


@settings(max_examples=150)
@given(st.lists(st.tuples(st.integers(-3, 6), st.integers(1, 3), st.integers(0, 2)), min_size=1, max_size=4))
def test_merge_by_slopes_is_optimal(leaves):
    tables = [leaf_table(noisy, range(low, low + 5), weight) for noisy, weight, low in leaves]
    assert table_merge(tables) == merge_by_optimisation(tables)
    slopes = np.diff(table_merge(tables).costs)
    assert (np.diff(slopes) >= 0).all()  # Lemma 5: convex


def test_domain_rule_may_leave_no_solution():
    assert paper_domain(4, Fraction(1)) == range(11)
    assert paper_domain(-20, 1) == range(1)
    tree = Tree.from_paths([("r", "a"), ("r", "b")])
    noisy = [np.array([[0]]), np.array([[90], [90]])]
    with pytest.raises(ValueError, match="no value"):
        tree_tables(tree, noisy, total=100, domain=lambda _level, value: paper_domain(value, 1))
    free = tree_tables(tree, noisy, total=100)
    assert [level.ravel().tolist() for level in free] == [[100], [50, 50]]


def test_table_outside_its_domain_costs_infinity():
    assert Table(2, (1, 0))(5) == float("inf")
    assert Table(2, (1, 0)).last == 3
