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
from privopt.run.build_result import differences
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify

FULL = Options(method="full", solver="highs")


def test_folder_has_the_contracted_files(solved_toy, result_of):
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
def test_finds_any_changed_byte(solved_toy, tmp_path_factory, data):
    folder = shutil.copytree(solved_toy, tmp_path_factory.mktemp("changed") / "out")
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    path = data.draw(st.sampled_from(files), label="file")
    raw = bytearray(path.read_bytes())
    position = data.draw(st.integers(0, len(raw) - 1), label="byte")
    raw[position] ^= data.draw(st.integers(1, 255), label="flip")
    path.write_bytes(raw)
    complaints = verify(folder).complaints
    assert complaints


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda r: r.update(time=None), "time: expected a"),
        (lambda r: r["objective"].update(lower_bound="low"), "objective.lower_bound: expected a"),
        (lambda r: r["certificate"].update(checked=-1), "certificate.checked: expected a"),
        (lambda r: r["certificate"].update(holds="yes"), "certificate.holds: expected true"),
        (lambda r: r["guarantee"].update(epsilon=10**400), "guarantee.epsilon: claims 1000"),
        (lambda r: r.update(details=True), "details: expected a"),
    ],
)
def test_all_readers_name_an_invalid_result(solved_toy, tmp_path, change, word):
    from privopt.run.audit import audit

    folder = shutil.copytree(solved_toy, tmp_path / "out")
    edit(folder, change)
    assert any(word in line for line in verify(folder).complaints)
    with pytest.raises(DoesNotHoldError, match=re.escape(word)):
        audit(folder)


@pytest.mark.parametrize("name", ["result.json", "SHA256SUMS"])
def test_unreadable_folder_is_an_input_error(solved_toy, tmp_path, name):
    folder = shutil.copytree(solved_toy, tmp_path / "out")
    (folder / name).unlink()
    if name == "result.json":
        mend(folder)
    with pytest.raises(InputError):
        verify(folder)
    with pytest.raises(InputError):
        verify(tmp_path / "nowhere")


# --- the folder --------------------------------------------------------------------------------------


def test_keeps_existing_folder_without_force(toy, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("keep me")
    for options in (FULL, Options(method="full", solver="highs", force=True)):
        with pytest.raises(UsageError, match="exists"):
            solve("optimal-lp", toy, tmp_path / "out", options)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine.txt"]


def test_force_replaces_and_empty_folder_needs_none(toy, tmp_path):
    (tmp_path / "out").mkdir()
    solve("exponential", toy, tmp_path / "out")
    solve("optimal-lp", toy, tmp_path / "out", Options(method="full", solver="highs", force=True))
    assert json.loads((tmp_path / "out" / "result.json").read_text())["mechanism"] == "optimal-lp"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "toy"]


def test_creates_missing_parent_folders(toy, tmp_path):
    solve("exponential", toy, tmp_path / "new" / "deep" / "out")
    assert [path.name for path in (tmp_path / "new" / "deep").iterdir()] == ["out"]


def test_removes_folders_created_in_vain(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="not a folder"), new_folder(tmp_path / "file" / "out"):
        raise AssertionError("it is refused before")
    with pytest.raises(StoppedError), new_folder(tmp_path / "new" / "deep" / "out"):
        raise OSError(28, "No space left on device")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_json_has_no_nan_and_no_infinity():
    value = {"a": math.nan, "b": [math.inf, -math.inf], "c": np.float64(1.5), "d": np.array([1, 2])}
    assert jsonable(value) == {"a": None, "b": ["inf", "-inf"], "c": 1.5, "d": [1, 2]}


# --- stopping and killing ----------------------------------------------------------------------------


def test_slightly_stretched_distances_do_not_hold(tmp_path):
    """A matrix that needs epsilon and 5e-10 of it more is refused, whatever distances it states."""
    from fractions import Fraction

    from privopt.numbers import exp_fixed

    (tmp_path / "points.csv").write_text("id,x,y\na,0,0\nb,3,0\n")
    text = '[records]\npoints = "points.csv"\n[distance]\nkind = "euclidean"\n[privacy]\nepsilon = 1\n'
    (tmp_path / "problem.toml").write_text(text + '[utility]\nkind = "distance"\n')
    folder = solve("exponential", tmp_path / "problem.toml", tmp_path / "out").folder
    for stretch in (1 + 5e-10, 1 - 5e-10):
        growth = Fraction(exp_fixed(Fraction(3.0 * stretch), 120)[0], 2**120)
        small_weight = int(2**63 / (1 + growth)) + 1
        rows = np.array([[2**63 - small_weight, small_weight], [small_weight, 2**63 - small_weight]], dtype=np.uint64)
        forged_folder = shutil.copytree(folder, tmp_path / f"forged {stretch}")
        rewrite(forged_folder, weights=lambda _, rows=rows: rows, distances=lambda d, stretch=stretch: d * stretch)
        complaints = verify(forged_folder).complaints
        assert any(line.startswith("certificate: worst") for line in complaints) == (stretch > 1)
        names_distances = any("distances" in line for line in complaints)
        assert names_distances == (stretch > 1)  # below the true ones they are within the tolerance


def test_limit_while_reading_leaves_nothing(toy, tmp_path, monkeypatch):
    monkeypatch.setattr("privopt_metric_dp.mechanisms.base.MetricMechanism.load", lambda *_: check("it was read"))
    with pytest.raises(StoppedError, match="time limit"):
        solve("optimal-lp", toy, tmp_path / "out", Options(time_limit=1e-9))
    assert not (tmp_path / "out").exists()


def test_certifies_offers_after_the_limit(toy, tmp_path):
    release = solve("optimal-lp", toy, tmp_path / "out", Options(time_limit=1e-9))
    assert release.stopped
    assert verify(tmp_path / "out").verdict == "proved"


def test_writes_release_if_its_bound_takes_too_long(toy, tmp_path, monkeypatch):
    def raise_stop(*_, **__):
        raise StoppedError("late")

    monkeypatch.setattr("privopt_metric_dp.mechanisms.certifier.MatrixCertifier.prove", raise_stop)
    release = solve("optimal-lp", toy, tmp_path / "out", Options(time_limit=600.0))
    assert release.result.objective.lower_bound is None
    assert "cannot prove: late" in release.result.solver["path"]
    assert verify(tmp_path / "out").holds


@pytest.mark.parametrize(
    "function_path",
    [
        "privopt.interfaces.release.UtilityLoss.restate",
        "privopt_metric_dp.mechanisms.base.MetricMechanism.proved_bound",
        "privopt.run.verify.details_of",
    ],
)
def test_limit_while_verifying_is_no_verdict(solved_toy, monkeypatch, function_path):
    def raise_stop(*_, **__):
        raise StoppedError("late")

    monkeypatch.setattr(function_path, raise_stop)
    with pytest.raises(StoppedError, match="late"):
        verify(solved_toy)


@pytest.mark.parametrize("claim", [float("inf"), float("-inf"), float("nan"), 10**400])
def test_claims_that_are_no_finite_number_differ_from_finite_ones(claim):
    assert list(differences({"value": claim}, {"value": 1.5}, "objective")) != []
    assert list(differences({"value": 1.5}, {"value": claim}, "objective")) != []
