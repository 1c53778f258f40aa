"""What export writes: bytes that certify, that no change survives, and that the reference client draws from."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
import re
from contextlib import suppress
from fractions import Fraction

import numpy as np
import pytest
from attrs import evolve
from helpers.client_exports import EXPORTS, RELEASES
from scipy.stats import chisquare

from privopt.errors import UsageError
from privopt.numbers.sampling import draw
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import open_verified
from privopt_clients import export as export_module
from privopt_clients.artefact import KIND_DEGREES, KIND_PLANE, Places
from privopt_clients.client import DamagedArtefactError, open_artefact
from privopt_clients.command import export as export_command
from privopt_clients.export import export
from privopt_clients.fewer_outputs import fewer_outputs
from privopt_metric_dp.matrix.certify import certify
from privopt_metric_dp.matrix.release import MatrixRelease, matrix_of
from privopt_metric_dp.region.snap_to_region import Snapper

KINDS = ("earth", "plane", "streets", "words")


def open_client(folder):
    return open_artefact((folder / "mechanism.bin").read_bytes())


def test_folder_holds_contracted_files(export_folders):
    for folder in export_folders.values():
        names = {path.name for path in folder.iterdir()}
        assert names >= {"privopt-client.mjs", "privopt-client.d.ts", "mechanism.bin", "vectors.json", "index.html"}
        vectors = json.loads((folder / "vectors.json").read_text("utf-8"))
        assert all(list(vector) == ["input", "entropy", "report"] for vector in vectors)
        assert len({vector["report"]["id"] for vector in vectors}) > 1


@pytest.mark.parametrize("name", KINDS)
def test_reports_match_release_for_same_entropy(releases, export_folders, name):
    """The core's own draw is the oracle."""
    release, client = MatrixRelease.read_without_problem(releases[name]), open_client(export_folders[name])
    source = random.Random(5)
    for _ in range(500):
        row, entropy = source.randrange(len(release.records)), source.randbytes(8)
        expected = release.outputs[
            draw(release.weights[row], source=lambda count, entropy_bytes=entropy: entropy_bytes)[0]
        ]
        assert client.report_from(str(release.records[row]), entropy)["id"] == expected


def test_reports_have_output_coordinates(export_folders):
    for name, keys in {"earth": ["id", "lat", "lon"], "plane": ["id", "x", "y"], "words": ["id"]}.items():
        client = open_client(export_folders[name])
        report = client.report(client.ids[0])
        assert list(report) == keys
        if len(keys) == 3:
            assert client.positions[client.ids.index(report["id"])] == (report[keys[1]], report[keys[2]])


ANYWHERE = [name for name in RELEASES if name.endswith("anywhere")]


@pytest.mark.parametrize("name", ANYWHERE)
def test_position_mixes_rows_like_the_core(releases, export_folders, name):
    """The core's shares are the oracle, and each is the same rational: within the region, at its rim and far off."""
    client = open_client(export_folders[name])
    client._mechanism.reach = 1 << 62  # the core refuses nothing
    data = matrix_of(open_verified(releases[name]))[1].data
    points, rng = np.array(client.positions), np.random.default_rng(4)
    middles = (points[:-1] + points[1:]) / 2
    nearby_points = points[rng.integers(len(points), size=400)] + rng.normal(size=(400, 2)) * points.std(axis=0) / 3
    positions = np.concatenate(
        [points, middles, nearby_points, points.mean(axis=0) + 30 * (nearby_points[:50] - points.mean(axis=0))]
    )
    positions = np.round(positions, 6 if client.limits[0][0] == -1000 else 7)  # as both read it, but for ties
    snapped = Snapper.of(data.region, data.epsilon).snap(positions)
    for row, position in enumerate(positions.tolist()):
        shares = client._find_rows(position)
        exact_shares = zip(snapped.corners[row].tolist(), snapped.exact(row), strict=True)
        total = sum(share for _, share in shares)
        client_shares = {(corner, Fraction(share, total)) for corner, share in shares if share}
        assert client_shares == {(corner, share) for corner, share in exact_shares if share}, position


def test_region_record_uses_its_own_row(releases, export_folders):
    client, release = (
        open_client(export_folders["streets anywhere"]),
        MatrixRelease.read_without_problem(releases["streets anywhere"]),
    )
    assert client._find_rows("r1c2") == ((release.records.tolist().index("r1c2"), 1),)


@pytest.mark.parametrize("name", ["earth", "plane", "streets"])
def test_position_maps_to_nearest_record(releases, export_folders, name):
    """Against great circles, or straight lines, in doubles."""
    client = open_client(export_folders[name])
    points = np.array(client.positions)
    rng = np.random.default_rng(1)
    for _ in range(300):
        position = points[rng.integers(len(points))] + rng.normal(size=2) * points.std(axis=0) / 4
        if not client.covers(position.tolist()):
            continue  # beside the outermost cells
        offsets = points - position
        if name != "plane":
            offsets[:, 1] *= np.cos(np.radians(position[0]))
        distances = np.hypot(*offsets.T)
        if np.ptp(np.partition(distances, 1)[:2]) < 1e-4 * distances.min():
            continue  # as near as another
        entropy = rng.bytes(8)
        nearest = client.ids[int(distances.argmin())]
        assert client.report_from(position.tolist(), entropy) == client.report_from(nearest, entropy)


def test_positions_across_date_line_are_near():
    from privopt_clients.client import Places as Read
    from privopt_clients.client import _find_nearest, _to_units

    places = Places.of(("a", "b"), np.array([[0.0, 179.9], [0.0, 190.0]]), degrees=True)
    assert places.kind == KIND_DEGREES
    read = Read(places.ids, KIND_DEGREES, tuple(map(tuple, places.points.tolist())), (65536, 65536))
    easts = (-179.9, 180.1, -171.0, 188.0, 360.0)
    assert [_find_nearest(read, *_to_units(KIND_DEGREES, 0.0, east))[0] for east in easts] == [0, 0, 1, 1, 1]


RIMS = {
    "id,lat,lon": ("haversine", ["-89.9995,10", "90,0", "12,-180", "12,179.9999"]),
    "id,x,y": ("euclidean", ["-1000,0", "1000,1000", "0,-1000", "0,0"]),
}


@pytest.mark.parametrize("columns", RIMS)
def test_exports_places_at_coordinate_limits(tmp_path, columns):
    # vectors lie a little beside records: one below -180 degrees ended export with a traceback
    kind, places = RIMS[columns]
    rows = [f"{name},{coordinates}" for name, coordinates in zip("abcd", places, strict=True)]
    (tmp_path / "points.csv").write_text("\n".join([columns, *rows]) + "\n")
    (tmp_path / "problem.toml").write_text(
        f'[records]\npoints = "points.csv"\n[distance]\nkind = "{kind}"\n'
        '[privacy]\nepsilon = 0.001\n[utility]\nkind = "distance"\n'
    )
    solve("exponential", tmp_path / "problem.toml", tmp_path / "out", Options())
    folder = export(tmp_path / "out", tmp_path / "client").folder
    client = open_client(folder)
    vectors = json.loads((folder / "vectors.json").read_text("utf-8"))
    assert {client.report_from(vector["input"], bytes.fromhex(vector["entropy"]))["id"] for vector in vectors} > {"a"}


LARGEST = ("streets anywhere", "mesh anywhere", "mesh")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LARGEST)) for name in EXPORTS])
def test_refuses_any_changed_bit(export_folders, name):
    """Each bit alone, in Python; test_clients_agree.py asks the clients of other languages."""
    data = bytearray((export_folders[name] / "mechanism.bin").read_bytes())
    opened_all_the_same = []
    for bit in range(8 * len(data)):
        data[bit >> 3] ^= 1 << (bit & 7)
        with suppress(DamagedArtefactError):
            opened_all_the_same.append((bit, open_artefact(bytes(data))))
        data[bit >> 3] ^= 1 << (bit & 7)
    assert opened_all_the_same == []


@pytest.mark.parametrize("name", KINDS)
def test_refuses_truncated_or_longer_bytes(export_folders, name):
    data = (export_folders[name] / "mechanism.bin").read_bytes()
    for invalid_data in (data[:-1], data + b"\0", b"", data[:39]):
        with pytest.raises(DamagedArtefactError):
            open_artefact(invalid_data)


def test_forged_checksum_changes_the_promise(export_folders):
    data = (export_folders["words"] / "mechanism.bin").read_bytes()
    body = bytearray(data[40:])
    body[20] ^= 1  # within the promise
    forged_data = data[:8] + hashlib.sha256(body).digest() + bytes(body)
    assert open_artefact(forged_data).promise != open_artefact(data).promise
    with pytest.raises(DamagedArtefactError, match="SHA-256"):
        open_artefact(forged_data, sha256=hashlib.sha256(data).hexdigest())


@pytest.mark.parametrize(
    "secret", ["nowhere", (91.0, 0.0), (0.0, 361.0), (float("nan"), 0.0), (float("inf"), 0.0)], ids=str
)
def test_refuses_invalid_place(export_folders, secret):
    with pytest.raises(ValueError, match="must"):
        open_client(export_folders["earth"]).report(secret)


def test_refuses_too_little_entropy(export_folders):
    client = open_client(export_folders["earth"])
    with pytest.raises(ValueError, match="8 bytes"):
        client.report_from(client.ids[0], b"1234567")


def test_joined_outputs_certify_with_stated_price(releases, tmp_path):
    folder = releases["earth"]
    release = MatrixRelease.read_without_problem(folder)
    exported = export(folder, tmp_path / "few", max_bytes=8 * len(release.records) * 7, allow_larger_loss=True)
    assert exported.form == "rows"
    assert exported.price >= 0
    assert "merged" in exported.notes[0]
    source = random.Random(2)
    client = open_client(tmp_path / "few")
    assert len({client.report_from(client.ids[0], source.randbytes(8))["id"] for _ in range(2000)}) <= 7


def test_joined_columns_keep_inequalities_and_sums():
    """A brute force over all ways to join would take the same columns: each goes where it loses least."""
    rng = np.random.default_rng(0)
    cost = rng.random((4, 5))
    z = np.full((4, 5), 0.2)
    weights = np.full((4, 5), (1 << 63) // 5, dtype=np.uint64)
    weights[:, 0] += np.uint64((1 << 63) - 5 * ((1 << 63) // 5))
    joined, kept_columns = fewer_outputs(weights, cost / 4, 2)
    assert kept_columns.tolist() == [0, 1]
    assert [sum(row) for row in joined.tolist()] == [1 << 63] * 4
    loss = sum(min((z[:, k] @ cost[:, y]) / 4 for y in ((k,) if k in kept_columns else kept_columns)) for k in range(5))
    assert float((joined / 2.0**63 * cost[:, kept_columns] / 4).sum()) == pytest.approx(loss)
    pairs = np.array([[0, 1], [2, 3]])
    assert certify(joined, pairs, np.ones(2), Fraction(1, 1000)).holds
    with pytest.raises(UsageError, match="max-bytes"):
        fewer_outputs(weights, cost, 0)


def test_coordinates_keep_last_digit():
    places = Places.of(("a",), np.array([[-33.8567844, 151.2152967]]), degrees=True)
    assert places.points.tolist() == [[-338567844, 1512152967]]
    assert Places.of(("a",), np.array([[0.0, 359.0]]), degrees=True).points.tolist() == [[0, -10_000_000]]
    plane = Places.of(("a",), np.array([[-999.999999, 12.5]]), degrees=False)
    assert (plane.kind, plane.points.tolist()) == (KIND_PLANE, [[-999_999_999, 12_500_000]])
    with pytest.raises(UsageError, match="origin"):
        Places.of(("a",), np.array([[1000.5, 0.0]]), degrees=False)


def test_system_draws_follow_the_row(releases, export_folders):
    release, client = MatrixRelease.read_without_problem(releases["earth"]), open_client(export_folders["earth"])
    count, row = 20_000, 7
    column = {name: k for k, name in enumerate(release.outputs.tolist())}
    observed = np.zeros(len(column))
    for _ in range(count):
        observed[column[client.report(str(release.records[row]))["id"]]] += 1
    expected = release.weights[row] / 2.0**63 * count
    often = expected >= 5
    observed, expected = (np.append(x[often], x[~often].sum()) for x in (observed, expected))
    assert chisquare(observed[expected > 0], expected[expected > 0]).pvalue > 1e-6


def test_command_writes_once_and_prints_digest(releases, tmp_path, capsys):
    arguments = ["export", str(releases["earth"]), "--target", "js", "--out", str(tmp_path / "client")]
    assert exit_code_of(arguments) == 0
    digest = hashlib.sha256((tmp_path / "client" / "mechanism.bin").read_bytes()).hexdigest()
    assert digest in capsys.readouterr().err
    assert exit_code_of(arguments) == 2
    assert exit_code_of([*arguments, "--force"]) == 0


def test_command_without_release_writes_modules(tmp_path, capsys):
    arguments = ["export", "--out", str(tmp_path / "client")]
    assert exit_code_of(arguments) == 0
    names = {path.name for path in (tmp_path / "client").iterdir()}
    assert names >= {"privopt-sphere.mjs", "privopt-sphere.d.ts", "privopt-location.mjs", "privopt-policy.mjs"}
    assert not names & {"mechanism.bin", "index.html"}
    assert exit_code_of(arguments) == 2
    assert exit_code_of([*arguments, "--force"]) == 0


def test_refuses_rows_for_some_records_only(releases, tmp_path, monkeypatch):
    """lr-geo's releases have rows for its users."""
    read = export_module.matrix_of

    def fewer(folder):
        release, problem = read(folder)
        return evolve(release, records=release.records[1:], weights=release.weights[1:]), problem

    monkeypatch.setattr(export_module, "matrix_of", fewer)
    with pytest.raises(UsageError, match="every record"):
        export(releases["plane"], tmp_path / "client")
    assert not (tmp_path / "client").exists()


def test_export_is_reproducible(releases, export_folders, tmp_path):
    export(releases["streets"], tmp_path / "again")
    for path in export_folders["streets"].iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()


def test_modules_are_small_and_self_contained(export_folders):
    """Their sources are what people read; the page has them inside and names nothing outside it."""
    longest = {
        "privopt-client.mjs": 530,
        "privopt-prediction.mjs": 100,
        "privopt-policy.mjs": 300,
        "privopt-sphere.mjs": 300,
        "privopt-points.mjs": 50,
        "privopt-location.mjs": 150,
    }
    imports = {"privopt-policy.mjs": 1, "privopt-points.mjs": 1, "privopt-location.mjs": 3}
    for name, max_lines in longest.items():
        text = (export_folders["earth"] / name).read_text("utf-8")
        assert len(text.splitlines()) <= max_lines
        assert max(map(len, text.splitlines())) <= 120
        assert set(re.findall(r'^import .* from "\./([\w.-]+)";$', text, re.MULTILINE)) <= longest.keys()
        assert len(re.findall(r"^import ", text, re.MULTILINE)) == imports.get(name, 0)
    assert len(gzip.compress((export_folders["earth"] / "privopt-client.mjs").read_bytes())) < 12_000
    assert (export_folders["earth"] / "privopt-sphere.mjs").stat().st_size <= 12 * 1024
    page = (export_folders["earth"] / "index.html").read_text("utf-8")
    assert not re.search(r"^import |(src|href)=|https?://(?!www\.w3\.org/2000/svg)", page, re.MULTILINE)


def exit_code_of(arguments):
    with pytest.raises(SystemExit) as ending:
        export_command.main(arguments[1:])
    return ending.value.code or 0
