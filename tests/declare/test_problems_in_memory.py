"""Problems in memory: every problem that ``privopt new`` writes can be built, top-level keys included."""

import tomllib
from decimal import Decimal

import polars as pl
import pytest
from click.testing import CliRunner

import privopt as po
from privopt.command.cli import cli

VOTES = {"choice": ["tea", "coffee", "water"], "votes": [3, 4, 5]}

EXAMPLES = {
    "noise": {"people": b"Ada\nEmmy\n", "privacy": {"epsilon": 0.5}},
    "selection": {
        "privacy": {"epsilon": 1.0},
        "choices": VOTES["choice"],
        "votes": pl.DataFrame(VOTES),
    },
    "sampler": {"privacy": {"epsilon": Decimal("0.5")}, "places": 12},
    "matrix": {
        "records": {"grid": {"rows": 4, "cols": 4, "cell_km": 0.5}},
        "distance": {"kind": "euclidean"},
        "privacy": {"epsilon": 2.0},
        "utility": {"kind": "distance"},
        "acme_mech": {"penalty": 0.0},
    },
}


@pytest.mark.parametrize("kind", EXAMPLES)
def test_builds_the_example_of_each_kind_of_project(kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    completed = CliRunner().invoke(cli, ["new", "acme-mech", "--kind", kind])
    assert completed.exit_code == 0, completed.output
    problem = po.problem(**EXAMPLES[kind])
    expected = tomllib.loads((tmp_path / "acme-mech" / "example.toml").read_text("utf-8"))
    assert tomllib.loads(problem.toml) == expected


def test_data_become_files():
    selection = po.problem(**EXAMPLES["selection"])
    assert selection.source.in_memory["votes.csv"].splitlines()[0] == b"choice,votes"
    assert po.problem(**EXAMPLES["noise"]).source.in_memory == {"people.txt": b"Ada\nEmmy\n"}
