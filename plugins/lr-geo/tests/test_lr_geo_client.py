"""The client of `exact`: any record's row from public.npz, in Python and in JavaScript, with the same reports."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers.client_engines import ENGINES
from helpers.client_strings import entropy_of, hash_in_python, inputs_of, open_export, write_inputs
from helpers.grids import first_alone

from privopt.declare import load_problem
from privopt.errors import UsageError
from privopt.numbers.sampling import draw
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt_clients.export import export
from privopt_lr_geo.problem import LRGeoInstance, LRGeoProblem
from privopt_lr_geo.release import PublicNumbers

USERS = '["r1c1", "r2c3"]'
"""Others than these are asked about too: whoever has public.npz can be at any record."""


def solve_folder(path: Path, method: str) -> Path:
    solver = "cbc" if method == "exact" else "highs"
    return solve("lr-geo", path, path.parent / "out", Options(method=method, solver=solver)).folder


def read_public_numbers(path: Path, folder: Path) -> PublicNumbers:
    data = LRGeoInstance.of(load_problem(LRGeoProblem, path)).data
    return PublicNumbers.read(folder / "public.npz", data)


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    if shutil.which("node") is None:
        pytest.skip("no node on this machine")
    with ENGINES["node"](tmp_path_factory.mktemp("node")) as ask:
        yield ask


@first_alone("epsilon", ["2.0", "0.3"])
def test_client_has_every_row_of_public_npz(write, node, tmp_path, epsilon):
    path = write(users=USERS, epsilon=epsilon)
    folder = solve_folder(path, "exact")
    public = read_public_numbers(path, folder)
    assert all(np.array_equal(public.row(record), public.all_rows[record]) for record in range(25))
    client = export(folder, tmp_path / "client").folder
    ids, source = open_export(client).ids, random.Random(3)
    for record, name in enumerate(ids):
        for _ in range(40):
            entropy = source.randbytes(8)
            expected = ids[draw(public.row(record), source=lambda count, entropy_bytes=entropy: entropy_bytes)[0]]
            assert open_export(client).report_from(name, entropy)["id"] == expected
    entropy, size = entropy_of(open_export(client), 1, 5_000)
    (tmp_path / "entropy.bin").write_bytes(entropy)
    files = {"inputs.tsv": write_inputs(tmp_path / "inputs.tsv", inputs_of(open_export(client)))}
    hashes = node(client, "hash", size, {**files, "entropy.bin": tmp_path / "entropy.bin"})
    assert hashes == hash_in_python(client, 1, 5_000)


def test_refuses_client_for_rows_of_one_user(write, tmp_path):
    with pytest.raises(UsageError, match="own-matrix"):
        export(solve_folder(write(users=USERS), "full"), tmp_path / "client")
