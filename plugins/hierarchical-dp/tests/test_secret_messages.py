"""No fault of a secret table shows a count, and no fault of an input that is drawn for shows the input."""

from __future__ import annotations

import pytest

from privopt.errors import InputError, UnknownNameError
from privopt.run.solve import solve
from privopt.run.task import Options

SENTINEL = "73419"


@pytest.mark.parametrize("cell", [f"-{SENTINEL}", f"z{SENTINEL}", f"{SENTINEL}.5", f"{SENTINEL},5", f"9{SENTINEL}" * 4])
@pytest.mark.parametrize("column", ["size", "groups"])
def test_fault_of_secret_cell_does_not_show_it(tmp_path, cell, column):
    row = {"size": "1", "groups": "2"} | {column: f'"{cell}"'}
    (tmp_path / "g.csv").write_text(f"level_1,level_2,size,groups\nr,a,{row['size']},{row['groups']}\nr,b,1,1\n")
    check_concealed(tmp_path, "")


def test_fault_of_total_shows_neither_it_nor_the_sum(tmp_path):
    (tmp_path / "g.csv").write_text(f"level_1,level_2,size,groups\nr,a,1,{SENTINEL}\nr,b,1,1\n")
    (tmp_path / "t.csv").write_text("region,total\na,5\n")
    check_concealed(tmp_path, 'totals = "t.csv"\n')


def check_concealed(folder, extra_settings):
    text = f'[hierarchy]\ncounts = "g.csv"\n{extra_settings}sizes = 3\n[privacy]\nepsilon = 1.0\n'
    (folder / "p.toml").write_text(text)
    with pytest.raises(InputError) as excinfo:
        solve("hierarchical-dp", folder / "p.toml", folder / "out", Options())
    assert SENTINEL not in str(excinfo.value)
    assert ".csv: " in str(excinfo.value)


def test_secret_name_is_not_repeated():
    error = UnknownNameError("record", f"4{SENTINEL}", ["473418", "x"], is_secret=True)
    assert SENTINEL not in str(error)
    assert "473418" in str(error)
