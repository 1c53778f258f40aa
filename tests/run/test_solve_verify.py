"""The pipeline and the way back: whole folders, tampering, stopping."""

import json
import math
import re
import shutil

import numpy as np
import pytest
from helpers.mended_sums import edit, mend, rewrite
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.errors import DoesNotHoldError, InputError, StoppedError, UsageError
from privopt.execution.clock import check
from privopt.files.new_folder import new_folder
from privopt.files.release_folder import jsonable
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import verify

FULL = Options(method="full", solver="highs")


def test_a_folder_has_what_the_contract_names(solved_toy, result_of):
    files = sorted(path.relative_to(solved_toy).as_posix() for path in solved_toy.rglob("*") if path.is_file())
    names = ["SHA256SUMS", "mechanism.npz", "problem/points.csv", "problem/prior.csv", "problem/problem.toml"]
    assert files == [*names, "proof.npz", "result.json"]
    result = result_of(solved_toy)
    assert list(result) == [
        "mechanism", "method", "plugin", "privopt", "problem", "seed", "status", "asked", "guarantee", "objective",
        "certificate", "time", "solver", "details",
    ]  # fmt: skip
    assert result["status"] == "optimal"
    assert result["guarantee"]["epsilon"] == 0.9
    assert result["certificate"]["holds"] is True
    assert result["certificate"]["worst"] <= result["certificate"]["allowed"]
    assert result["certificate"]["checked"] == 9 * 5  # of ten pairs one is implied by two others
    assert 0 <= result["objective"]["gap"] <= 1e-6
    assert set(result["time"]) == {"build", "solve", "repair", "verify", "total"}
    archive = np.load(solved_toy / "mechanism.npz", allow_pickle=False)
    assert archive["weights"].dtype == np.uint64
    assert [sum(row) for row in archive["weights"].tolist()] == [2**63] * 5
    assert archive["pairs"].dtype == np.int64
    assert archive["distances"].dtype == np.float64
    assert verify(solved_toy).complaints == ()


@settings(max_examples=25)
@given(data=st.data())
def test_any_changed_byte_is_found(solved_toy, tmp_path_factory, data):
    folder = shutil.copytree(solved_toy, tmp_path_factory.mktemp("changed") / "out")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = data.draw(st.sampled_from(files), label="file")
    raw = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(raw) - 1), label="byte")
    raw[place] ^= data.draw(st.integers(1, 255), label="flip")
    path.write_bytes(raw)
    complaints = verify(folder).complaints
    assert complaints


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda r: r.update(time=None), "time: expected a table, got None"),
        (lambda r: r["objective"].update(lower_bound="low"), "objective.lower_bound: expected a number, got 'low'"),
        (lambda r: r["certificate"].update(checked=-1), "certificate.checked: expected a number of at least 0, got -1"),
        (lambda r: r["certificate"].update(holds="yes"), "certificate.holds: expected true or false, got 'yes'"),
        (lambda r: r["guarantee"].update(epsilon=10**400), "guarantee.epsilon: claims 1000"),
        (lambda r: r.update(details=True), "details: expected a table, got true"),
    ],
)
def test_a_result_of_another_shape_is_told_by_everything_that_reads_it(solved_toy, tmp_path, change, word):
    from privopt.run.audit import audit

    folder = shutil.copytree(solved_toy, tmp_path / "out")
    edit(folder, change)
    assert any(word in line for line in verify(folder).complaints)
    with pytest.raises(DoesNotHoldError, match=re.escape(word)):
        audit(folder)


@pytest.mark.parametrize("name", ["result.json", "SHA256SUMS"])
def test_a_folder_that_cannot_be_read_is_an_input_error(solved_toy, tmp_path, name):
    folder = shutil.copytree(solved_toy, tmp_path / "out")
    (folder / name).unlink()
    if name == "result.json":
        mend(folder)
    with pytest.raises(InputError):
        verify(folder)
    with pytest.raises(InputError):
        verify(tmp_path / "nowhere")


# --- the folder --------------------------------------------------------------------------------------


def test_an_existing_folder_is_kept_without_force(toy, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("keep me")
    for options in (FULL, Options(method="full", solver="highs", force=True)):
        with pytest.raises(UsageError, match="exists"):
            solve("optimal-lp", toy, tmp_path / "out", options)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_force_replaces_a_result_and_an_empty_folder_needs_none(toy, tmp_path):
    (tmp_path / "out").mkdir()
    solve("exponential", toy, tmp_path / "out")
    solve("optimal-lp", toy, tmp_path / "out", Options(method="full", solver="highs", force=True))
    assert json.loads((tmp_path / "out" / "result.json").read_text())["mechanism"] == "optimal-lp"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "toy"]


def test_missing_folders_around_the_target_are_made(toy, tmp_path):
    solve("exponential", toy, tmp_path / "new" / "deep" / "out")
    assert [path.name for path in (tmp_path / "new" / "deep").iterdir()] == ["out"]


def test_folders_that_were_made_for_nothing_go_again(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="file is not a folder"), new_folder(tmp_path / "file" / "out"):
        raise AssertionError("it is refused before")
    with pytest.raises(StoppedError), new_folder(tmp_path / "new" / "deep" / "out"):
        raise OSError(28, "No space left on device")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_json_has_no_nan_and_no_infinity():
    value = {"a": math.nan, "b": [math.inf, -math.inf], "c": np.float64(1.5), "d": np.array([1, 2])}
    assert jsonable(value) == {"a": None, "b": ["inf", "-inf"], "c": 1.5, "d": [1, 2]}


# --- stopping and killing ----------------------------------------------------------------------------


def test_distances_stretched_within_the_tolerance_do_not_hold(tmp_path):
    """A matrix that needs epsilon and 5e-10 of it more is refused, whatever distances it states."""
    from fractions import Fraction

    from privopt.numbers import exp_fixed

    (tmp_path / "points.csv").write_text("id,x,y\na,0,0\nb,3,0\n")
    text = '[records]\npoints = "points.csv"\n[distance]\nkind = "euclidean"\n[privacy]\nepsilon = 1\n'
    (tmp_path / "problem.toml").write_text(text + '[utility]\nkind = "distance"\n')
    folder = solve("exponential", tmp_path / "problem.toml", tmp_path / "out").folder
    for stretch in (1 + 5e-10, 1 - 5e-10):
        growth = Fraction(exp_fixed(Fraction(3.0 * stretch), 120)[0], 2**120)
        small = int(2**63 / (1 + growth)) + 1
        rows = np.array([[2**63 - small, small], [small, 2**63 - small]], dtype=np.uint64)
        forged = shutil.copytree(folder, tmp_path / f"forged {stretch}")
        rewrite(forged, weights=lambda _, rows=rows: rows, distances=lambda d, stretch=stretch: d * stretch)
        complaints = verify(forged).complaints
        assert any(line.startswith("certificate: worst") for line in complaints) == (stretch > 1)
        above = any("distances" in line for line in complaints)
        assert above == (stretch > 1)  # below the true ones they are within the tolerance


def test_a_limit_that_ends_while_the_problem_is_read_leaves_nothing(toy, tmp_path, monkeypatch):
    monkeypatch.setattr("privopt_metric_dp.mechanisms.base.MetricMechanism.load", lambda *_: check("it was read"))
    with pytest.raises(StoppedError, match="time limit"):
        solve("optimal-lp", toy, tmp_path / "out", Options(time_limit=1e-9))
    assert not (tmp_path / "out").exists()


def test_what_was_offered_before_the_limit_is_certified_and_written_after_it(toy, tmp_path):
    solved = solve("optimal-lp", toy, tmp_path / "out", Options(time_limit=1e-9))
    assert solved.stopped
    assert verify(tmp_path / "out").verdict == "proved"


def test_a_certified_release_is_written_where_its_bound_takes_too_long(toy, tmp_path, monkeypatch):
    def late(*_, **__):
        raise StoppedError("late")

    monkeypatch.setattr("privopt_metric_dp.mechanisms.certifier.MatrixCertifier.prove", late)
    done = solve("optimal-lp", toy, tmp_path / "out", Options(time_limit=600.0))
    assert done.result.objective.lower_bound is None
    assert "cannot prove: late" in done.result.solver["path"]
    assert verify(tmp_path / "out").holds


@pytest.mark.parametrize(
    "asked",
    [
        "privopt.interfaces.utility.UtilityLoss.restate",
        "privopt_metric_dp.mechanisms.base.MetricMechanism.proved",
        "privopt.run.verify.details_of",
    ],
)
def test_a_limit_that_comes_while_a_folder_is_verified_says_nothing_of_it(solved_toy, monkeypatch, asked):
    def late(*_, **__):
        raise StoppedError("late")

    monkeypatch.setattr(asked, late)
    with pytest.raises(StoppedError, match="late"):
        verify(solved_toy)
