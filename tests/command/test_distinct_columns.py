"""Two options of one command that name one column where only two columns make sense."""

import pytest
from helpers.charging import run_command, table
from helpers.mentions import assert_mentions

from privopt.declare.name_forms import check_distinct_columns
from privopt.errors import UsageError


def test_normal_forms_are_compared():
    check_distinct_columns({"--lat": "a", "--lon": "A", "--id": None, "--geometry": None})
    with pytest.raises(UsageError, match="--lat and --id must name different columns, got \u00fc"):
        check_distinct_columns({"--lat": "u\u0308", "--lon": "b", "--id": "\u00fc"})


@pytest.mark.parametrize(
    ("options", "pair"),
    [
        (("--subject", "report"), ("--column", "--subject")),
        (("--column", "who", "--subject", "who"), ("--column", "--subject")),
        (("--from", "report", "--to", "report"), ("--from", "--to")),
        (("--from", "report", "--to", "end", "--subject", "end"), ("--to", "--subject")),
    ],
)
def test_estimate_refuses_one_column_for_two(town, tmp_path, options, pair):
    reports = table(tmp_path / "t.csv", ["x,p0,p1", "y,p1,p2"], header="who,report,end")
    groups = table(tmp_path / "g.csv", ["p0,a", "p1,b"], header="id,group")
    by = ("--by", groups) if "--from" in options else ()
    code, _, err = run_command("estimate", town, reports, *options, *by, "--out", tmp_path / "e.csv")
    assert code == 2, err
    assert_mentions(err, *pair, "must name different columns")
    assert not (tmp_path / "e.csv").exists()


def test_apply_refuses_one_column_for_subjects_and_times(town, tmp_path):
    rows = table(tmp_path / "t.csv", ["2026-01-01,p0", "2026-01-02,p1"], header="day,place")
    options = ("--id", "place", "--subject", "day", "--time", "day", "--ledger", tmp_path / "ledger")
    code, _, err = run_command("apply", town, rows, *options, "--out", tmp_path / "o.csv")
    assert code == 2, err
    assert_mentions(err, "--subject and --time must name different columns, got day")
    assert not (tmp_path / "ledger").exists()
