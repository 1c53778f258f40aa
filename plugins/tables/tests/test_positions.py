"""Several positions in a row: all are reported or none, and all are charged as one sum."""

import json
from collections import Counter
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from helpers.charging import charged, said, table
from scipy.stats import chisquare

import privopt
from privopt.numbers import TOTAL
from privopt.run.verify import open_verified

ENDS = ["--position", "start=x,y", "--position", "end=x2,y2"]
HEADER = "who,x,y,x2,y2,fare"


def test_a_row_gets_all_its_reports_or_none_and_is_charged_for_all(town, tmp_path):
    rows = ["a,0,0,1,1,5", "a,0,0,,1,6", "b,0,0,1,1,7", ",0,0,1,1,8", "a,0,0,3,2,9", "a,1,0,3,2,9"]
    trips, book = table(tmp_path / "trips.csv", rows, HEADER), tmp_path / "book"
    said("budget", book, "--set", "3")
    done = said(
        "apply", town, trips, "--out", tmp_path / "safe.csv", *ENDS, "--ledger", book, "--subject", "who", "--json"
    )
    assert done[0] == 0
    refused = {"empty position": 1, "budget spent": 1, "no subject": 1}
    assert json.loads(done[1]) == {"rows": 6, "reported": 3, "refused": refused}
    assert "adds up over its 2 positions, epsilon 0.5 each" in done[2]
    safe = pl.read_csv(tmp_path / "safe.csv", infer_schema=False)
    ends = ["start_report", "start_report_x", "start_report_y", "end_report", "end_report_x", "end_report_y"]
    assert safe.columns == ["who", "fare", *ends]
    whole = [all(cell is not None for cell in row) for row in safe.select(ends).rows()]
    none = [all(cell is None for cell in row) for row in safe.select(ends).rows()]
    assert whole == [True, False, True, False, True, False]
    assert none == [not each for each in whole]
    assert [cost.epsilon for _, cost in charged(book)] == [Fraction(1)] * 4  # the row that could not be used, too


def test_the_positions_of_a_row_are_drawn_apart_and_as_certified(town, tmp_path):
    count = 40_000
    given = {"start": ["p0"] * count, "end": ["p5"] * count}
    with pytest.warns(privopt.PrivoptWarning) as notes:
        drawn = privopt.open(town).apply(given, positions={"s": ["start"], "e": ["end"]}, seed=3)
    assert any("seed" in str(note.message) for note in notes)
    assert sorted(drawn) == ["e_report", "e_report_x", "e_report_y", "s_report", "s_report_x", "s_report_y", "seeded"]
    release = open_verified(town).release
    names = release.outputs.tolist()
    chances = [release.weights[names.index(place)] / TOTAL for place in ("p0", "p5")]
    pairs = Counter(zip(drawn["s_report"], drawn["e_report"], strict=True))
    found = np.array([[pairs[a, b] for b in names] for a in names])
    expected = count * np.outer(*chances)
    assert expected.min() > 5
    assert chisquare(found.ravel(), expected.ravel()).pvalue > 1e-6


@pytest.mark.parametrize(
    ("options", "found"),
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
def test_positions_that_cannot_be_meant_so(town, tmp_path, monkeypatch, options, found):
    monkeypatch.chdir(tmp_path)
    trips = table(tmp_path / "trips.csv", ["a,0,0,1,1,5"], HEADER)
    code, _, err = said("apply", town, trips, "--out", tmp_path / "safe.csv", *options)
    assert code == 2
    assert found in err


def test_one_position_is_as_a_prefix_has_it(town, tmp_path):
    trips = table(tmp_path / "trips.csv", ["a,0,0,1,1,5"] * 20, HEADER)
    ways = {"one": ["--position", "start=x,y"], "other": ["--x", "x", "--y", "y", "--prefix", "start"]}
    for name, options in ways.items():
        assert said("apply", town, trips, "--out", tmp_path / f"{name}.csv", "--seed", 1, *options)[0] == 0
    assert (tmp_path / "one.csv").read_text() == (tmp_path / "other.csv").read_text()


def test_one_position_may_be_kept(town, tmp_path):
    trips, book = (
        table(tmp_path / "trips.csv", ["a,0,0,1,1,5", "a,0,0,1,1,5", "a,3,2,1,1,5"], HEADER),
        tmp_path / "book",
    )
    words = ["--position", "start=x,y", "--sticky", "--ledger", book, "--subject", "who", "--json"]
    code, out, err = said("apply", town, trips, "--out", tmp_path / "safe.csv", *words)
    assert code == 0, err
    assert json.loads(out)["reported"] == 3
    assert len(charged(book)) == 2
