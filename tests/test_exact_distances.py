"""Distances, limits and costs to the last bit: bounds hold of the decimals that are written, both checks agree."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from privopt import checker
from privopt.arrays import rounded_down
from privopt.command.cli import cli
from privopt.errors import InputError, UsageError
from privopt.run.folder import sums_text
from privopt.run.solve import Options, solve
from privopt.run.verify import verify

TEXT = """[records]
{records}
[distance]
{distance}
[privacy]
epsilon = {epsilon}
{within}
[utility]
{utility}
"""
SQUARE = {"points.csv": "id,x,y\na,0,0\nb,0.5,0.1\nc,1.1,0\nd,.1,.7\n"}


def solved(
    tmp: Path,
    files: dict,
    *,
    records: str = 'points = "points.csv"',
    distance: str = 'kind = "euclidean"',
    epsilon: float = 1.0,
    within: str | None = None,
    utility: str = 'kind = "distance"',
    **options,
) -> Path:
    source = tmp / "in"
    source.mkdir(parents=True)
    for name, held in files.items():
        np.save(source / name, held) if isinstance(held, np.ndarray) else (source / name).write_text(held)
    near = "" if within is None else f"neighbours_within = {within}"
    text = TEXT.format(records=records, distance=distance, epsilon=repr(epsilon), within=near, utility=utility)
    (source / "problem.toml").write_text(text)
    asked = Options(**{"method": "full", "solver": "highs", **options})
    return solve("optimal-lp", source / "problem.toml", tmp / "out", asked).folder


def hold(folder: Path) -> dict:
    """Both programs say that a folder holds; what it says of its objective."""
    lines: list[str] = []
    assert verify(folder).complaints == ()
    assert checker.check(folder, lines.append) == 0, lines
    return json.loads((folder / "result.json").read_text())["objective"]


def changed(folder: Path, **arrays) -> Path:
    path = folder / "mechanism.npz"
    with np.load(path) as found:
        parts = dict(found)
    np.savez(path, **{**parts, **{name: change(parts[name]) for name, change in arrays.items()}})
    (folder / "SHA256SUMS").write_text(sums_text(folder))
    return folder


@pytest.mark.parametrize(("name", "kind"), [("weights", ">u8"), ("pairs", ">i8"), ("distances", ">f8")])
def test_arrays_of_another_byte_order_are_refused(tmp_path, name, kind):
    folder = changed(solved(tmp_path, SQUARE), **{name: lambda array: array.astype(kind)})
    with pytest.raises(InputError, match=name):
        verify(folder)


@pytest.mark.parametrize("more", [1e-13, 1e-11, 9e-10, 2e-9])
def test_distances_above_the_true_ones_do_not_hold(tmp_path, more):
    folder = changed(solved(tmp_path, SQUARE), distances=lambda d: d * (1 + more))
    assert any("distances" in line for line in verify(folder).complaints)


def test_whole_numbers_are_rounded_down():
    whole = np.array([[2**53 + 1, 2**60 + 2**8 - 1, 2**63 - 1], [0, 1, 2**53]], dtype=np.uint64)
    found = rounded_down(whole)
    for near, number in zip(found.ravel().tolist(), whole.ravel().tolist(), strict=True):
        assert 0 <= number - int(near) <= number >> 52
    assert int(rounded_down(np.array([-(2**53) - 1]))[0]) <= -(2**53) - 1


@pytest.mark.parametrize("far", [2**53 + 3, 2**60 + 2**8 - 1, 2**62 - 1])
def test_a_table_of_large_whole_numbers(tmp_path, far):
    table = (np.ones((3, 3), dtype=np.uint64) - np.eye(3, dtype=np.uint64)) * np.uint64(far)
    hold(
        solved(
            tmp_path, {"d.npy": table}, records="count = 3", distance='kind = "matrix"\nmatrix = "d.npy"', epsilon=1e-16
        )
    )


def test_tables_of_longer_floats_are_refused(tmp_path):
    table = (1 - np.eye(3)).astype(np.longdouble)
    if table.dtype.itemsize == 8:
        pytest.skip("no longer floats here")
    with pytest.raises(InputError, match="type"):
        solved(tmp_path, {"d.npy": table}, records="count = 3", distance='kind = "matrix"\nmatrix = "d.npy"')


@pytest.mark.parametrize("gap", ["1", "1.5", "1e9", "inf", "nan", "0"])
def test_a_gap_that_calls_anything_optimal_is_refused(tmp_path, gap):
    done = CliRunner().invoke(cli, ["solve", "optimal-lp", "none.toml", "--out", str(tmp_path / "out"), "--gap", gap])
    assert done.exit_code == 2
    assert "below 1" in done.output
    with pytest.raises(UsageError, match="gap"):
        solved(tmp_path, SQUARE, gap=float(gap))
