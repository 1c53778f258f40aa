"""A key in the wrong table, or of another kind, is refused with a sentence that says where it belongs."""

from __future__ import annotations

import pytest

from privopt.errors import InputError
from privopt.registry import registry
from privopt.run.task import read_problem

PROBLEM = {
    "records": "grid = { rows = 1, cols = 3, cell_km = 1.0 }",
    "distance": 'kind = "euclidean"',
    "privacy": "epsilon = 1.0",
    "utility": 'kind = "distance"',
}


@pytest.mark.parametrize(
    ("table", "line", "expected"),
    [
        ("distance", "neighbours_within = 1.5", "neighbours_within is a key of [privacy]"),
        ("utility", "epsilon = 1.0", "epsilon is a key of [privacy]"),
        ("distance", 'edges = "streets.csv"', "edges is a key of [distance] with another kind"),
        ("distance", 'streets = "streets.csv"', "expected no further key in this table"),
        ("utility", "per_kn = 2.0", "did you mean per_km?"),
    ],
)
def test_refusal_says_where_the_key_belongs(tmp_path, table, line, expected):
    tables = PROBLEM | {table: f"{PROBLEM[table]}\n{line}"}
    source = tmp_path / "problem.toml"
    source.write_text("\n".join(f"[{name}]\n{text}" for name, text in tables.items()))
    with pytest.raises(InputError) as refused:
        read_problem(registry().mechanisms["optimal-lp"].load(), source)
    assert expected in str(refused.value)
    assert len(refused.value.faults) == 1
