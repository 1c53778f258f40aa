"""Small folders made by hand, what an outside reader of docs/proof forged of them, and how each ends."""

import json
import re
from pathlib import Path

import numpy as np
import pytest
from helpers.forgeries.archives import archives_of
from helpers.kernels import PROOF, needs_kernel, run_kernel
from helpers.mentions import assert_mentions

TEXT = """[records]
points = "points.csv"
[distance]
kind = "graph"
edges = "roads.csv"
[privacy]
epsilon = 1.0
[utility]
kind = "travel-cost"
"""
FILES = {"points.csv": "id\na\nb\n", "roads.csv": "from,to,km\na,m,0.25\nb,m,0.75\na,b,3\n"}
COSTS = {'kind = "travel-cost"': 'kind = "matrix"\ncost = "d.npy"'}
GUARANTEE = {"kind": "metric-dp", "epsilon_text": "1.0", "epsilon": 1.0, "scope": "all-pairs"}
RESULT = {
    "mechanism": "optimal-lp",
    "problem": {"file": "problem.toml"},
    "guarantee": GUARANTEE,
    "details": {},
    "objective": {"value": 0.27, "lower_bound": 0.25},
}
MODEST, BOLD = 6733061586903986176, 2**63
"""Weights on the diagonal: 0.73, which is below e / (1 + e), and 1."""

PROVED, NOT_PROVED, UNKNOWN = 0, 1, 2


def write(
    folder: Path,
    *,
    toml: dict[str, str] | None = None,
    files: dict[str, str] | None = None,
    result: dict | None = None,
    words: dict[str, str] | None = None,
    diagonal: int = MODEST,
    distances: np.ndarray | None = None,
    ids: tuple[str, str] = ("a", "b"),
) -> Path:
    """Two records, 1 apart, each of which reports itself with some probability, and a proof of nearly as much loss.

    Args:
        folder: where it goes.
        toml: parts of the problem file, each with what stands in its place.
        files: tables by name, in place of or beside those there are.
        result: objects of result.json, in place of or beside those there are.
        words: parts of the text of result.json, each with what stands in its place.
        diagonal: weight of each record's own output.
        distances: d.npy.
        ids: of the records.
    """
    text = TEXT
    for old, new in (toml or {}).items():
        assert old in text
        text = text.replace(old, new)
    folder.mkdir()
    (folder / "problem").mkdir()
    (folder / "problem" / "problem.toml").write_bytes(text.encode())
    for name, table in (FILES | (files or {})).items():
        (folder / "problem" / name).write_bytes(table.encode())
    np.save(folder / "problem" / "d.npy", np.array([[0.0, 1.0], [1.0, 0.0]]) if distances is None else distances)
    result_text = json.dumps(RESULT | (result or {}))
    for old, new in (words or {}).items():
        assert old in result_text
        result_text = result_text.replace(old, new, 1)
    (folder / "result.json").write_text(result_text)
    weights = np.full((2, 2), 2**63 - diagonal, dtype=np.uint64)
    np.fill_diagonal(weights, diagonal)
    np.savez(folder / "mechanism.npz", weights=weights, records=np.array(ids), outputs=np.array(ids))
    pairs, starts = np.array([[0, 1], [1, 0]]), np.array([0, 1, 2])
    values = np.array([0.125, 0.125])
    np.savez(folder / "proof.npz", pairs=pairs, starts=starts, rows=np.array([0, 1], dtype=np.uint32), values=values)
    return folder


def of_objective(value: float, bound: float | None, **details: float) -> dict:
    return {"result": {"objective": {"value": value, "lower_bound": bound}, "details": details}}


def of_guarantee(**changes: object) -> dict:
    return {"result": {"guarantee": {key: x for key, x in (GUARANTEE | changes).items() if x is not None}}}


APART = {"roads.csv": "from,to,km\na,m,0.25\nb,n,0.75\n"}
TINY = np.array([[0.0, 1e-12], [1e-12, 0.0]])
PRIOR = {'kind = "travel-cost"\n': 'kind = "travel-cost"\nprior = "prior.csv"\n'}
TARGETS = {'kind = "travel-cost"\n': 'kind = "travel-cost"\ntargets = "t.csv"\n'}
TABLE = {'kind = "graph"\nedges = "roads.csv"': 'kind = "matrix"\nmatrix = "d.npy"'}
LIMIT = {"epsilon = 1.0": "epsilon = 1.0\nneighbours_within = 5"}
CELLS = {'points = "points.csv"': "grid = {rows = 1, cols = 2, cell_km = -1.0}"} | {
    'kind = "graph"\nedges = "roads.csv"': 'kind = "euclidean"',
    '"travel-cost"': '"distance"',
}

FOLDERS = {
    "as it is": (PROVED, {}),
    "too bold": (NOT_PROVED, {"diagonal": BOLD}),
    # distances
    "no road joins the records": (
        NOT_PROVED,
        {"toml": COSTS, "files": APART, "diagonal": BOLD, **of_objective(0.0, None)},
    ),
    "nor with a limit, where nothing is asked of them": (
        PROVED,
        {"toml": COSTS | LIMIT, "files": APART, "diagonal": BOLD}
        | {"result": {"objective": {"value": 0.0, "lower_bound": None}}}
        | {"words": {'"all-pairs"': '"neighbours", "neighbours_within": 5.0'}},
    ),
    "a road below 0": (NOT_PROVED, {"files": {"roads.csv": "from,to,km\na,b,1\na,m,-0.25\n"}}),
    "cells below 0": (UNKNOWN, {"toml": CELLS, "ids": ("r0c0", "r0c1")}),
    "a matrix with a diagonal": (
        PROVED,
        {"toml": TABLE | {'"travel-cost"': '"distance"'}, "distances": np.array([[0.1, 1.0], [1.0, 0.1]])}
        | of_objective(0.343, None),
    ),
    "a matrix with infinity": (UNKNOWN, {"toml": TABLE, "distances": np.array([[0, 1.0], [np.inf, 0]])}),
    # the value and its unit
    "a unit of 100": (NOT_PROVED, of_objective(100.0, 0.25, value_unit=100)),
    "a unit of 0": (NOT_PROVED, of_objective(0.27, 0.25, value_unit=0)),
    "a unit of 2^-29": (NOT_PROVED, of_objective(0.27, 0.25, value_unit=2.0**-29)),
    "a unit of 2^-31": (PROVED, of_objective(0.27, 0.25, value_unit=2.0**-31)),
    "costs below the unit, as README says": (
        PROVED,
        {"toml": COSTS, "distances": TINY} | of_objective(9e-10, None, value_unit=9e-10),
    ),
    "a bound above the least": (NOT_PROVED, of_objective(0.27, 0.26895)),
    "a true bound that the proof does not give": (NOT_PROVED, of_objective(0.27, 0.2689)),
    # the guarantee
    "another epsilon beside the right one": (NOT_PROVED, of_guarantee(epsilon=0.001)),
    "no epsilon beside it": (UNKNOWN, of_guarantee(epsilon=None)),
    "epsilon's last bit": (PROVED, of_guarantee(epsilon=1.0 + 2**-52)),
    "a limit that nobody asked for": (NOT_PROVED, of_guarantee(neighbours_within=7)),
    "another limit": (NOT_PROVED, {"toml": LIMIT} | of_guarantee(scope="neighbours", neighbours_within=7)),
    "the limit": (PROVED, {"toml": LIMIT} | of_guarantee(scope="neighbours", neighbours_within=5.0)),
    "no limit beside it": (NOT_PROVED, {"toml": LIMIT} | of_guarantee(scope="neighbours")),
    "another scope": (NOT_PROVED, of_guarantee(scope="neighbours")),
    # who made it
    "lr-geo": (UNKNOWN, {"result": {"mechanism": "lr-geo"}}),
    "lr-geo, escaped": (UNKNOWN, {"words": {'"optimal-lp"': r'"lr\u002dgeo"'}}),
    "no mechanism": (UNKNOWN, {"words": {'"mechanism": "optimal-lp", ': ""}}),
    "a number for a mechanism": (UNKNOWN, {"result": {"mechanism": 7}}),
    "a table of the mechanism": (PROVED, {"toml": {"[utility]": "[optimal-lp]\n[bd-mdp]\nsubsets = 2\n[utility]"}}),
    "remap there": (UNKNOWN, {"toml": {"[utility]": "[exponential]\nremap = true\n[utility]"}}),
    "a key of it twice": (UNKNOWN, {"toml": {"[utility]": "[bd-mdp]\nsubsets = 2\nsubsets = 3\n[utility]"}}),
    "a table of lr-geo": (UNKNOWN, {"toml": {"[utility]": "[lr-geo]\nradius = 1\n[utility]"}}),
    # shares
    "a prior": (PROVED, {"toml": PRIOR, "files": {"prior.csv": "id,p\nb,0.5\na,5e-1\n"}}),
    "a prior of one more": (NOT_PROVED, {"toml": PRIOR, "files": {"prior.csv": "id,p\na,0.5\nb,0.5\nc,0\n"}}),
    "a prior of one twice": (NOT_PROVED, {"toml": PRIOR, "files": {"prior.csv": "id,p\na,0.5\na,0\nb,0.5\n"}}),
    "a prior below 0": (NOT_PROVED, {"toml": PRIOR, "files": {"prior.csv": "id,p\na,1.5\nb,-0.5\n"}}),
    "a target twice": (NOT_PROVED, {"toml": TARGETS, "files": {"t.csv": "id,weight\na,1\na,1\nb,2\n"}}),
    "a target that is no record": (NOT_PROVED, {"toml": TARGETS, "files": {"t.csv": "id,weight\na,1\nm,0\n"}}),
    "targets": (PROVED, {"toml": TARGETS, "files": {"t.csv": "id,weight\na,1\nb,1\n"}}),
    # forms
    "JSON: 00.27": (UNKNOWN, {"words": {"0.27": "00.27"}}),
    "JSON: +0.27": (UNKNOWN, {"words": {"0.27": "+0.27"}}),
    "JSON: 0.2 7": (UNKNOWN, {"words": {"0.27": "0.2 7"}}),
    "TOML: 001.0": (UNKNOWN, {"toml": {"1.0": "001.0"}}),
    "TOML: 1 . 0": (UNKNOWN, {"toml": {"1.0": "1 . 0"}}),
    "TOML: [rec ords]": (UNKNOWN, {"toml": {"[records]": "[rec ords]"}}),
    "TOML: blanks where they may be": (PROVED, {"toml": {"epsilon = 1.0": "epsilon\t =  1.0  # 1 . 0"}}),
    "TOML: CRLF": (UNKNOWN, {"toml": {"\n": "\r\n"}}),
    "CSV: no last line end": (UNKNOWN, {"files": {"points.csv": "id\na\nb"}}),
    "CSV: CRLF": (UNKNOWN, {"files": {"points.csv": "id\r\na\r\nb\r\n"}}),
    "a file name with a blank": (UNKNOWN, {"files": {"more roads.csv": ""}}),
}
"""How each ends, and what is changed."""


@needs_kernel
@pytest.mark.parametrize("name", FOLDERS)
def test_small_folders_have_expected_verdicts(tmp_path, name):
    code, changes = FOLDERS[name]
    assert run_kernel(write(tmp_path / "out", **changes))[0] == code


@needs_kernel
@pytest.mark.parametrize("forgery", [*archives_of()], ids=lambda forgery: forgery.name)
def test_refuses_ambiguous_archive(tmp_path, forgery):
    folder = write(tmp_path / "out")
    forgery.change(folder)
    assert run_kernel(folder)[0] == UNKNOWN


@needs_kernel
def test_reads_archives_of_other_numpy_ways(tmp_path):
    folder = write(tmp_path / "out")
    for name in ("mechanism.npz", "proof.npz"):
        with np.load(folder / name) as arrays:
            parts = dict(arrays)
        np.savez_compressed(folder / name, **parts)
    assert run_kernel(folder)[0] == PROVED


@needs_kernel
def test_names_what_is_not_proved(tmp_path):
    messages = {
        name: run_kernel(write(tmp_path / name.replace(" ", ""), **FOLDERS[name][1]))[1]
        for name in ("too bold", "another scope", "a unit of 100", "a true bound that the proof does not give")
    }
    assert [text.split(":")[0] for text in messages.values()] == ["not proved"] * 4
    assert "by this proof.npz" in messages["a true bound that the proof does not give"]


def test_readme_counts_the_lines_to_read():
    page = (PROOF / "README.md").read_text()

    def lines(*names: str) -> int:
        return sum((PROOF / name).read_text().count("\n") for name in names)

    statement = lines("Basics.v", "Spec.v", "Claims.v", "Grammar.v", "Folder.v")
    program_lines, unzip = lines("program/whole.ml", "Extract.v"), lines("program/unzip.ml")
    kernel = lines("program/privopt_kernel.ml")
    assert f"| {statement} | Coq |" in page
    assert f"(`program/whole.ml` and Extract.v | {program_lines} |".lstrip("(") in page
    assert f"`program/unzip.ml` | {unzip} |" in page
    assert f"`program/privopt_kernel.ml` | {kernel} |" in page
    assert_mentions(page, f"the statement ({statement})", f"the edges ({program_lines + unzip + kernel})")


def test_statement_imports_nothing_else():
    """The files in bold import no others: whoever reads them has read the whole statement."""
    bold = {"Basics", "Spec", "Claims", "Grammar", "Folder"}
    for name in bold:
        text = (PROOF / f"{name}.v").read_text()
        imported = {word for line in re.findall(r"From Privopt Require \w+ (.*)\.", text) for word in line.split()}
        assert imported <= bold, name


def test_statement_lines_fit_a_screen():
    for name in ("Basics", "Spec", "Claims", "Grammar", "Folder"):
        for line in (PROOF / f"{name}.v").read_text().splitlines():
            assert len(line) <= 120, (name, line)
