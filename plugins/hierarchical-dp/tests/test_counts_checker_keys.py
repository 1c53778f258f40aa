"""The stand-alone checker knows every key of the problem files of counts."""

import attrs
import pytest

from privopt_hierarchical_dp.checkers.keys import (
    BUDGETS,
    OPTIONAL_TABLES,
    PRIVACY_KEYS,
    SIZES_KEYS,
    TABLE_KEYS,
    TABLES_KEYS,
)
from privopt_hierarchical_dp.noise_distributions import KINDS
from privopt_hierarchical_dp.problem import HierarchyTable, PlanSettings, Privacy, PublishRules, Settings
from privopt_hierarchical_dp.tables.problem import CountTable, TablesHierarchy, TablesPlan, TablesPrivacy


@pytest.mark.parametrize(
    ("keys", "declared"),
    [
        (SIZES_KEYS, HierarchyTable),
        (TABLES_KEYS, TablesHierarchy),
        (TABLE_KEYS, CountTable),
        (PRIVACY_KEYS, Privacy),
        (PRIVACY_KEYS, TablesPrivacy),
        (OPTIONAL_TABLES["hierarchical-dp"], Settings),
        (OPTIONAL_TABLES["plan"], PlanSettings),
        (OPTIONAL_TABLES["plan"], TablesPlan),
        (OPTIONAL_TABLES["publish"], PublishRules),
    ],
)
def test_checker_knows_every_key(keys, declared):
    # A key that the checker does not know makes it refuse releases that verify accepts.
    assert sorted(keys.split()) == sorted(field.name for field in attrs.fields(declared))


def test_checker_knows_the_budget_of_every_notion():
    assert {kind: tuple(keys) for kind, (_, keys, *_) in KINDS.items()} == BUDGETS
