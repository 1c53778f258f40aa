"""Tables for readers: cells that are too noisy are marked or suppressed, by public values alone; verify checks them."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from helpers.command import run as privopt
from helpers.mended_sums import mend
from hypothesis import given
from hypothesis import strategies as st

from privopt.errors import InputError
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify
from privopt_hierarchical_dp.least_squares import Ends
from privopt_hierarchical_dp.publication import MARK, describe_margins, find_noisy_cells, margins_of

AGES = ("child", "adult", "old")


def write_tables(folder, publish="coefficient_of_variation = 0.3"):
    counts = [(f"r{region}", age, 1 + 400 * region * (age == "adult")) for region in range(4) for age in AGES]
    rows = "".join(f"Town,{region},{age},{count}\n" for region, age, count in counts)
    (folder / "records.csv").write_text("level_1,level_2,age,count\n" + rows)
    (folder / "regions.csv").write_text("level_1,level_2\n" + "".join(f"Town,r{region}\n" for region in range(4)))
    (folder / "p.toml").write_text(
        '[hierarchy]\nregions = "regions.csv"\nrecords = "records.csv"\n'
        f"[hierarchy.attributes]\nage = {json.dumps(AGES)}\n[hierarchy.tables.age]\nby = ['age']\n"
        f"[hierarchy.tables.people]\nby = []\n[privacy]\nepsilon = 1.0\n[publish]\n{publish}\n"
    )
    return folder / "p.toml"


def write_groups(folder, publish="coefficient_of_variation = 0.5"):
    rows = [f"Land,R{region},{size},{900 // size**3}" for region in range(3) for size in range(1, 6)]
    (folder / "counts.csv").write_text("level_1,level_2,size,groups\n" + "\n".join(rows) + "\n")
    (folder / "p.toml").write_text(
        f'[hierarchy]\ncounts = "counts.csv"\nsizes = 5\n[privacy]\nepsilon = 0.5\n[publish]\n{publish}\n'
    )
    return folder / "p.toml"


@pytest.mark.parametrize("too_noisy", ["mark", "suppress"])
def test_marks_or_suppresses_noisy_cells(tmp_path, too_noisy):
    path = write_tables(tmp_path, f'coefficient_of_variation = 0.3\ntoo_noisy = "{too_noisy}"')
    outcome = solve("hierarchical-tables", path, tmp_path / "out", Options(seed=1))
    released = pl.read_csv(tmp_path / "out" / "tables" / "age.csv")
    readers = pl.read_csv(tmp_path / "out" / "publish" / "age.csv")
    assert readers.columns == ["region", "parent", "age", "count", "low", "high", "margin", "quality"]
    # Offices' rule by hand: margin / 1.96 against 30 % of the count.
    is_noisy = readers["margin"] > 0.3 * 1.96 * released["count"]
    assert (readers["quality"] == MARK).fill_null(False).to_list() == is_noisy.to_list()
    assert 0 < is_noisy.sum() < len(readers)
    usable = readers.filter(~is_noisy)
    assert usable["count"].to_list() == released.filter(~is_noisy)["count"].to_list()
    if too_noisy == "suppress":
        assert readers.filter(is_noisy)[["count", "low", "high"]].null_count().row(0) == (is_noisy.sum(),) * 3
    else:
        assert readers["count"].to_list() == released["count"].to_list()
    assert outcome.result.details.facts["tables"]["age"]["too_noisy_cells"] == is_noisy.sum()
    assert privopt("report", tmp_path / "out").exit_code == 0
    page = (tmp_path / "out" / "report.html").read_text().replace("\u00a0", " ")
    assert page.count("Margins of error at 95 %, in individuals: at most ") == 2  # one a table
    assert f"{int(is_noisy.sum())} of {len(readers)} cells have a standard error above 30 %" in page


def test_groups_have_tables_for_readers(tmp_path):
    solve("hierarchical-dp", write_groups(tmp_path), tmp_path / "out")
    readers = pl.read_csv(tmp_path / "out" / "publish" / "release.csv")
    assert readers.columns == ["region", "parent", "size", "groups", "low", "high", "margin", "quality"]
    assert MARK in readers["quality"].to_list()
    assert verify(tmp_path / "out").verdict == "declared"
    assert privopt("report", tmp_path / "out").exit_code == 0


def test_nothing_is_added_without_the_rule(tmp_path):
    solve("hierarchical-tables", write_tables(tmp_path, ""), tmp_path / "out")
    assert not (tmp_path / "out" / "publish").exists()


def test_verify_names_a_changed_table_for_readers(tmp_path):
    solve("hierarchical-tables", write_tables(tmp_path), tmp_path / "out")
    path = tmp_path / "out" / "publish" / "age.csv"
    text = path.read_text()
    for changed_text in (text.replace(f",{MARK}", ",", 1), text + text.splitlines()[-1] + "\n", text[: len(text) // 2]):
        path.write_text(changed_text)
        mend(tmp_path / "out")
        failures = verify(tmp_path / "out").complaints
        assert any("publish/age.csv: line" in line for line in failures), failures
    path.unlink()
    mend(tmp_path / "out")
    assert any("publish/age.csv: line 1 " in line for line in verify(tmp_path / "out").complaints)


def test_chain_has_no_margins_to_publish_by(tmp_path):
    options = Options(method="cumulative-chain-as-published", allow_unsafe=True)
    with pytest.raises(InputError, match=r"publish.coefficient_of_variation.*no intervals"):
        solve("hierarchical-dp", write_groups(tmp_path), tmp_path / "out", options)


@given(
    st.lists(st.integers(0, 10**6), min_size=1, max_size=5),
    st.floats(0, 1e4),
    st.fractions(Fraction(1, 100), 3),
    st.sampled_from([0.5, 0.9, 0.95]),
)
def test_mark_depends_on_count_and_noise_alone(counts, reach, coefficient, confidence):
    """A smaller count or a larger margin is never marked less; no interval that was cut at 0 looks exact."""
    released = np.array([counts])
    ends = Ends(mean=released + 0.25, reach=np.array([[reach]]), max_counts=np.array([[10**7]]), released=released)
    margins = margins_of(ends)
    assert (margins >= reach).all()
    assert (margins - 1 <= reach).all()
    is_noisy = find_noisy_cells(released, margins, coefficient, confidence)
    assert (find_noisy_cells(released, margins + 1, coefficient, confidence) >= is_noisy).all()
    assert (find_noisy_cells(np.maximum(released - 1, 0), margins, coefficient, confidence) >= is_noisy).all()
    assert is_noisy[released == 0].all() == (reach > 0 or not (released == 0).any())
    assert f"at most {margins.max():,} on level 1." in describe_margins([ends], confidence, "groups")


@pytest.mark.parametrize("reach", [1e19, 1e300, np.inf])
def test_noise_beyond_64_bits_is_never_exact(reach):
    released = np.array([[0, 7, 1 << 60]])
    ends = Ends(mean=released + 0.0, reach=np.array([[reach]]), max_counts=np.array([[1 << 62]]), released=released)
    assert (margins_of(ends) == 1 << 62).all()
    assert find_noisy_cells(released, margins_of(ends), Fraction(1, 2), 0.95).all()


def test_confidence_next_to_one_has_a_quantile():
    confidence = float(np.nextafter(1.0, 0.0))
    assert find_noisy_cells(np.array([[10]]), np.array([[30]]), Fraction(1), confidence).tolist() == [[False]]
