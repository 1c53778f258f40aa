"""Several positions in a row: all are reported or none, and all are charged as one sum."""

import json
from collections import Counter
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from helpers.charging import read_charges, run_command, table
from scipy.stats import chisquare

import privopt
from privopt.numbers import TOTAL
from privopt.run.verify import open_verified

ENDS = ["--position", "start=x,y", "--position", "end=x2,y2"]
HEADER = "who,x,y,x2,y2,fare"


def test_row_is_reported_and_charged_completely(town, tmp_path):
    rows = ["a,0,0,1,1,5", "a,0,0,,1,6", "b,0,0,1,1,7", ",0,0,1,1,8", "a,0,0,3,2,9", "a,1,0,3,2,9"]
    trips, book = table(tmp_path / "trips.csv", rows, HEADER), tmp_path / "book"
    run_command("budget", book, "--set", "3")
    outcome = run_command(
        "apply", town, trips, "--out", tmp_path / "safe.csv", *ENDS, "--ledger", book, "--subject", "who", "--json"
    )
    assert outcome[0] == 0
    refusal_counts = {"empty position": 1, "budget spent": 1, "no subject": 1}
    assert json.loads(outcome[1]) == {"rows": 6, "reported": 3, "refused": refusal_counts}
    assert "its 2 positions" in outcome[2]
    safe = pl.read_csv(tmp_path / "safe.csv", infer_schema=False)
    report_columns = ["start_report", "start_report_x", "start_report_y", "end_report", "end_report_x", "end_report_y"]
    assert safe.columns == ["who", "fare", *report_columns]
    has_all = [all(cell is not None for cell in row) for row in safe.select(report_columns).rows()]
    has_none = [all(cell is None for cell in row) for row in safe.select(report_columns).rows()]
    assert has_all == [True, False, True, False, True, False]
    assert has_none == [not is_whole for is_whole in has_all]
    assert [cost.epsilon for _, cost in read_charges(book)] == [Fraction(1)] * 4  # the row that could not be used, too


def test_positions_of_a_row_are_independent(town, tmp_path):
    count = 40_000
    rows = {"start": ["p0"] * count, "end": ["p5"] * count}
    with pytest.warns(privopt.PrivoptWarning) as notes:
        reports = privopt.open(town).apply(rows, positions={"s": ["start"], "e": ["end"]}, seed=3)
    assert any("seed" in str(note.message) for note in notes)
    assert sorted(reports) == ["e_report", "e_report_x", "e_report_y", "s_report", "s_report_x", "s_report_y", "seeded"]
    release = open_verified(town).release
    names = release.outputs.tolist()
    chances = [release.weights[names.index(name)] / TOTAL for name in ("p0", "p5")]
    pairs = Counter(zip(reports["s_report"], reports["e_report"], strict=True))
    pair_counts = np.array([[pairs[a, b] for b in names] for a in names])
    expected = count * np.outer(*chances)
    assert expected.min() > 5
    assert chisquare(pair_counts.ravel(), expected.ravel()).pvalue > 1e-6


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--position", "start=x,y", "--position", "start=x2,y2"], "got it twice"),
        (["--position", "start=x,y", "--position", "end=x,y2"], "of one position"),
        (["--position", "start"], "NAME=COLUMN,COLUMN"),
        (["--position", "start=x,y,x2"], "NAME=COLUMN,COLUMN"),
        (["--position", "start=x,z"], "no such column"),
        ([*ENDS, "--x", "x", "--y", "y"], "omitted with positions"),
        ([*ENDS, "--prefix", "a"], "omitted with positions"),
        ([*ENDS, "--sticky", "--ledger", "book", "--subject", "who"], "one by one"),
    ],
)
def test_refuses_contradictory_positions(town, tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    trips = table(tmp_path / "trips.csv", ["a,0,0,1,1,5"], HEADER)
    code, _, err = run_command("apply", town, trips, "--out", tmp_path / "safe.csv", *options)
    assert code == 2
    assert message in err


def test_single_position_works_like_a_prefix(town, tmp_path):
    trips = table(tmp_path / "trips.csv", ["a,0,0,1,1,5"] * 20, HEADER)
    ways = {"one": ["--position", "start=x,y"], "other": ["--x", "x", "--y", "y", "--prefix", "start"]}
    for name, options in ways.items():
        assert run_command("apply", town, trips, "--out", tmp_path / f"{name}.csv", "--seed", 1, *options)[0] == 0
    assert (tmp_path / "one.csv").read_text() == (tmp_path / "other.csv").read_text()


def test_single_position_may_be_sticky(town, tmp_path):
    trips, book = (
        table(tmp_path / "trips.csv", ["a,0,0,1,1,5", "a,0,0,1,1,5", "a,3,2,1,1,5"], HEADER),
        tmp_path / "book",
    )
    words = ["--position", "start=x,y", "--sticky", "--ledger", book, "--subject", "who", "--json"]
    code, output, err = run_command("apply", town, trips, "--out", tmp_path / "safe.csv", *words)
    assert code == 0, err
    assert json.loads(output)["reported"] == 3
    assert len(read_charges(book)) == 2
