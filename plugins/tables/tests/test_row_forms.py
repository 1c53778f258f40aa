"""Times, subjects and rows in the forms in which people write them: read, or refused by row."""

from datetime import UTC, datetime

import narwhals as nw
import numpy as np
import polars as pl
import pytest
from helpers.charging import run_command
from hypothesis import given
from hypothesis import strategies as st

from privopt.declare.schema import File
from privopt.declare.table_files import TableSource
from privopt.declare.tables import road_table
from privopt.errors import InputError, UsageError
from privopt.ledger.periods import Calendar, periods_of
from privopt_metric_dp.space.places import Space
from privopt_tables.nearest_record import REASONS, Snap
from privopt_tables.row_forms import NULL_WORDS, RowForms
from privopt_tables.secret_columns import Secret
from privopt_tables.studies.draft_columns import recognize_table

MOMENTS = st.datetimes(datetime(1971, 1, 1), datetime(2100, 1, 1)).map(lambda moment: moment.replace(tzinfo=UTC))
FORMS = {
    "DD/MM/YYYY HH:MM": "%d/%m/%Y %H:%M",
    "MM/DD/YYYY HH:MM:SS": "%m/%d/%Y %H:%M:%S",
    "DD.MM.YYYY": "%d.%m.%Y",
    "%Y-%d-%m %H.%M": "%Y-%d-%m %H.%M",
}


def days(texts, time_format):
    column = nw.from_native(pl.Series("at", texts, dtype=pl.String), series_only=True)
    return periods_of(RowForms(time_format).times(column), Calendar("day"))


@given(MOMENTS, st.sampled_from(sorted(FORMS)))
def test_reads_the_day_in_a_named_form(moment, time_format):
    assert days([moment.strftime(FORMS[time_format]), None, "soon"], time_format) == [
        moment.date().isoformat(),
        None,
        None,
    ]


@given(MOMENTS, st.sampled_from([("unix", 1), ("unix-ms", 1_000), ("unix-us", 10**6), ("unix-ns", 10**9)]))
def test_reads_the_day_of_an_epoch(moment, unit):
    name, scale = unit
    micros = int(moment.timestamp()) * 10**6
    assert days([str(micros * scale // 10**6)], name) == [moment.date().isoformat()]


@pytest.mark.parametrize("time_format", ["", "HH:MM", "nonsense", "DD/MM", "%", "UNIX"])
def test_refuses_forms_without_a_day(time_format):
    with pytest.raises(UsageError, match="time-format"):
        RowForms(time_format)


@given(st.sampled_from(sorted(NULL_WORDS)), st.sampled_from([str.upper, str.title, str.lower]))
def test_words_for_nothing_are_no_subjects(word, case):
    column = nw.from_native(pl.Series("who", [case(word), "ann"]), series_only=True)
    assert RowForms().subjects(column).to_list() == [None, "ann"]
    assert RowForms(null_names=True).subjects(column).null_count() == 0


@pytest.mark.parametrize(
    ("cell", "reason"),
    [("45,5", "decimal comma"), ("-0,25", "decimal comma"), ("NULL", "empty"), ("", "empty"), ("north", "impossible")],
)
def test_says_what_is_wrong_with_a_position(cell, reason):
    frame = nw.from_native(pl.DataFrame({"lat": [cell], "lon": ["7.5"]}), eager_only=True)
    space = Space(ids=["a"], coordinates=np.array([[45.0, 7.0]]), kind="geographic", source="p.csv")
    _, reasons = Snap(ids=np.array(["a"]), places=space).rows(frame, Secret.of(lat="lat", lon="lon"))
    assert REASONS[reasons[0]].startswith(reason)


@pytest.mark.parametrize("rows", [["a,b,c", "1,2"], ["a,b,c", "1,2,3", '"x\ny",2,', "", "1"], ["a,b", "1"]])
def test_names_the_row_with_too_few_fields(tmp_path, rows):
    (tmp_path / "t.csv").write_text("\n".join(rows) + "\n")
    with pytest.raises(InputError, match=f"row {len(rows)}.*fields"):
        list(TableSource.of_file(tmp_path / "t.csv").batches())


@pytest.mark.parametrize("mark", [";", "\t"])
def test_names_the_separator_of_a_header(tmp_path, mark):
    (tmp_path / "t.csv").write_text(f"n{mark}lat\n1{mark}2\n")
    with pytest.raises(InputError, match="commas between fields"):
        TableSource.of_file(tmp_path / "t.csv")


def test_names_rows_with_repeated_ids_only(tmp_path):
    (tmp_path / "p.csv").write_text("id,lat,lon\na7,45,7\nb7,45.1,7\na7,45.2,7\nc7,45.3,7\n")
    with pytest.raises(InputError, match="row 4, column id") as error:
        recognize_table(tmp_path / "p.csv", tmp_path, ids_alone=False)
    assert "a7" not in str(error.value)


@given(st.decimals(0, 10**7, allow_nan=False, places=4))
def test_reads_osmnx_metres_exactly_as_km(metres):
    file = File(name="e.csv", path=None, kept=f"u,v,key,length\n1,2,0,{metres}\n".encode())
    table = road_table(file)
    assert table["km"][0] == pytest.approx(float(metres) / 1000, rel=1e-14)
    assert table["from"].tolist() == ["1"]
    assert table["to"].tolist() == ["2"]
    assert file.seen.instead.startswith(b"from,to,km")


def test_names_first_rows_without_time_or_subject(town, tmp_path):
    assert run_command("budget", tmp_path / "l", "--set", "9", "--per", "day")[0] == 0
    (tmp_path / "t.csv").write_text("who,at,place\nann,2026-01-01,p0\nbob,25/10/2026,p1\nNULL,2026-01-01,p1\n")
    options = ["--id", "place", "--ledger", tmp_path / "l", "--subject", "who", "--time", "at"]
    code, _, err = run_command("apply", town, tmp_path / "t.csv", "--out", tmp_path / "o.csv", *options)
    assert code == 0
    assert "row 3, column at" in err
    assert "row 4, column who" in err
    assert "25/10/2026" not in err
    form = ["--time-format", "DD/MM/YYYY"]
    code, _, err = run_command(
        "apply", town, tmp_path / "t.csv", "--out", tmp_path / "o.csv", *options, *form, "--force"
    )
    assert code == 0
    assert "row 2, column at" in err
