"""Positions outside a release's region get no report: a client for Rome does not make New York a place in Rome."""

from __future__ import annotations

import json
import shutil
import subprocess
from typing import Any

import numpy as np
import pytest

from privopt.errors import UsageError
from privopt_clients.client import OutsideRegionError, open_artefact
from privopt_clients.command import export as export_command
from privopt_clients.export import export

NODE = shutil.which("node")
NAMES = ("earth", "streets", "mesh", "predictive", "earth anywhere", "streets anywhere", "mesh anywhere")
NEW_YORK = [40.7, -74.0]
KM = 1 / 111.19
"""A kilometre, in degrees of latitude."""
COSINE = np.cos(np.radians(41.86))
"""That of the latitude of all releases on the Earth."""
RUN = """
import { readFileSync } from "node:fs";
const folder = process.argv[1];
const { open, OutsideRegionError } = await import(`file://${folder}/privopt-client.mjs`);
const { Policy, inMemory } = await import(`file://${folder}/privopt-policy.mjs`);
const mechanism = await open(readFileSync(`${folder}/mechanism.bin`));
const positions = JSON.parse(process.argv[2]);
const kept = [];
const storage = { get: async () => undefined, set: async (state) => kept.push(state) };
const refusals = [];
for (const position of positions) {
  const failures = [() => mechanism.report(position), () => mechanism.cell(position)].map((act) => {
    try { act(); return "none"; } catch (error) { return error instanceof OutsideRegionError ? "outside" : error.name; }
  });
  const policy = new Policy(mechanism, { storage: { ...storage } });
  await policy.report(position).then(() => failures.push("none"), (error) => failures.push(error.constructor.name));
  refusals.push([mechanism.covers(position), ...failures]);
}
console.log(JSON.stringify({ refusals, kept: kept.length, ids: mechanism.ids.every((id) => mechanism.covers(id)),
  wrong: [mechanism.covers("nowhere"), mechanism.covers([NaN, 0]), mechanism.covers([1])] }));
"""


def open_client(folder):
    return open_artefact((folder / "mechanism.bin").read_bytes())


def covers_in_python(client, position) -> bool:
    if client.covers(position):
        assert client.report(position)["id"]
        return True
    with pytest.raises(OutsideRegionError) as refusal:
        client.report(position)
    assert not any(str(number) in str(refusal.value) for number in position)
    return False


def ask_node(folder, positions) -> dict[str, Any]:
    if NODE is None:
        pytest.skip("no node on this machine")
    command = [NODE, "--input-type=module", "-e", RUN, str(folder), json.dumps(positions)]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert completed.returncode == 0, completed.stderr
    answers: dict[str, Any] = json.loads(completed.stdout)
    return answers


@pytest.mark.parametrize("name", NAMES)
def test_far_positions_get_no_report(export_folders, name):
    client = open_client(export_folders[name])
    positions = [NEW_YORK, [-33.9, 151.2], [90, 0], [41.9, -167.5], *map(list, client.positions)]
    is_near = [False] * 4 + [True] * len(client.positions)
    assert [covers_in_python(client, position) for position in positions] == is_near
    answers = ask_node(export_folders[name], positions)
    refused, accepted = [False, "outside", "outside", "OutsideRegionError"], [True, "none", "none", "none"]
    assert answers["refusals"] == [accepted if covered else refused for covered in is_near]
    assert answers["kept"] == len(client.positions)
    assert answers["ids"]
    assert answers["wrong"] == [False] * 3


def test_grid_covers_its_cells(export_folders):
    """Cells of 0.5 km: their corners are inside, and half a cell beyond an edge is outside."""
    for name in ("earth", "earth anywhere"):
        client = open_client(export_folders[name])
        (south, west), (north, east) = np.min(client.positions, axis=0), np.max(client.positions, axis=0)
        half = 0.249 * KM
        corners = [(south - half, west - half / COSINE), (north + half, east + half / COSINE)]
        beyond = [(south - 2 * half, west), (north, east + 2 * half / COSINE)]
        assert all(covers_in_python(client, corner) for corner in corners), name
        assert not any(covers_in_python(client, position) for position in beyond), name


def test_mesh_covers_its_triangles_alone(export_folders):
    client = open_client(export_folders["mesh anywhere"])
    south = min(latitude for latitude, _ in client.positions)
    row = sorted(longitude for latitude, longitude in client.positions if latitude == south)
    middle = (row[0] + row[-1]) / 2
    assert covers_in_python(client, [south + 0.001 * KM, middle])
    assert not covers_in_python(client, [south - 0.001 * KM, middle])


def test_points_reach_as_far_as_apply_expects(export_folders):
    """The diagonal of the box around the points: 12 points of 3 by 1.6 km or so, in km."""
    client = open_client(export_folders["plane"])
    points = np.array(client.positions)
    reach = float(np.hypot(*np.ptp(points, axis=0)))
    x, y = points[points[:, 0].argmax()].tolist()
    assert covers_in_python(client, [x + 0.999 * reach, y])
    assert not covers_in_python(client, [x + 1.001 * reach, y])


def test_reach_is_an_option(releases, tmp_path):
    exported = export(releases["streets anywhere"], tmp_path / "near", reach_km=0.2)
    client = open_client(tmp_path / "near")
    assert exported.reach_km == 0.2
    south, west = min(client.positions)
    assert covers_in_python(client, [south - 0.19 * KM, west])
    assert not covers_in_python(client, [south - 0.21 * KM, west])


@pytest.mark.parametrize("reach_km", [float("nan"), -1.0])
def test_reach_must_be_a_distance(tmp_path, reach_km):
    with pytest.raises(UsageError, match="reach"):
        export(tmp_path, tmp_path / "client", reach_km=reach_km)


def exit_code_of(arguments) -> int:
    with pytest.raises(SystemExit) as ending:
        export_command.main(arguments)
    return int(ending.value.code or 0)


def test_larger_loss_must_be_allowed(releases, tmp_path, capsys):
    arguments = [str(releases["earth"]), "--out", str(tmp_path / "client"), "--max-bytes", "1200"]
    assert exit_code_of(arguments) == 2
    message = capsys.readouterr().err
    for remedy in ("--max-bytes 3200", "at most 7 outputs", "neighbours_within", "spherical-laplace", "--allow-larger"):
        assert remedy in message.replace("\n", " "), remedy
    assert "the loss is" in message
    assert not (tmp_path / "client").exists()
    assert exit_code_of([*arguments, "--allow-larger-loss"]) == 0
    assert "that of the release's rows" in capsys.readouterr().err.replace("\n", " ")


def test_rows_that_fit_need_no_permission(releases, tmp_path):
    exported = export(releases["earth"], tmp_path / "client", max_bytes=3200)
    assert exported.price == pytest.approx(0, abs=1e-12)
    assert not exported.notes
    with pytest.raises(UsageError, match="max-bytes"):
        export(releases["predictive"], tmp_path / "none", max_bytes=1)
