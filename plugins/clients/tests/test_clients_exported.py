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
from privopt.run.options import Options
from privopt.run.solve import solve
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


def opened(folder):
    return open_artefact((folder / "mechanism.bin").read_bytes())


def test_a_folder_has_what_the_contract_says(exported):
    for folder in exported.values():
        names = {path.name for path in folder.iterdir()}
        assert names >= {"privopt-client.mjs", "privopt-client.d.ts", "mechanism.bin", "vectors.json", "index.html"}
        vectors = json.loads((folder / "vectors.json").read_text("utf-8"))
        assert all(list(vector) == ["input", "entropy", "report"] for vector in vectors)
        assert len({vector["report"]["id"] for vector in vectors}) > 1


@pytest.mark.parametrize("name", KINDS)
def test_reports_are_those_of_the_release_for_the_same_entropy(releases, exported, name):
    """The core's own draw is the oracle."""
    release, client = MatrixRelease.alone(releases[name]), opened(exported[name])
    source = random.Random(5)
    for _ in range(500):
        row, entropy = source.randrange(len(release.records)), source.randbytes(8)
        wanted = release.outputs[draw(release.weights[row], source=lambda count, given=entropy: given)[0]]
        assert client.report_from(str(release.records[row]), entropy)["id"] == wanted


def test_reports_have_the_coordinates_of_their_outputs(exported):
    for name, keys in {"earth": ["id", "lat", "lon"], "plane": ["id", "x", "y"], "words": ["id"]}.items():
        client = opened(exported[name])
        report = client.report(client.ids[0])
        assert list(report) == keys
        if len(keys) == 3:
            assert client.positions[client.ids.index(report["id"])] == (report[keys[1]], report[keys[2]])


ANYWHERE = [name for name in RELEASES if name.endswith("anywhere")]


@pytest.mark.parametrize("name", ANYWHERE)
def test_a_position_mixes_the_rows_that_the_core_draws_from(releases, exported, name):
    """The core's shares are the oracle, and each is the same rational: within the region, at its rim and far off."""
    client = opened(exported[name])
    data = matrix_of(open_verified(releases[name]))[1].data
    points, rng = np.array(client.positions), np.random.default_rng(4)
    middles = (points[:-1] + points[1:]) / 2
    near = points[rng.integers(len(points), size=400)] + rng.normal(size=(400, 2)) * points.std(axis=0) / 3
    positions = np.concatenate([points, middles, near, points.mean(axis=0) + 30 * (near[:50] - points.mean(axis=0))])
    positions = np.round(positions, 6 if client.limits[0][0] == -1000 else 7)  # as both read it, but for ties
    snapped = Snapper.of(data.region, data.epsilon).snap(positions)
    for row, position in enumerate(positions.tolist()):
        shares = client._find_rows(position)
        wanted = zip(snapped.corners[row].tolist(), snapped.exact(row), strict=True)
        total = sum(share for _, share in shares)
        found = {(corner, Fraction(share, total)) for corner, share in shares if share}
        assert found == {(corner, share) for corner, share in wanted if share}, position


def test_a_record_of_a_region_has_its_own_row(releases, exported):
    client, release = opened(exported["streets anywhere"]), MatrixRelease.alone(releases["streets anywhere"])
    assert client._find_rows("r1c2") == ((release.records.tolist().index("r1c2"), 1),)


@pytest.mark.parametrize("name", ["earth", "plane", "streets"])
def test_a_position_is_its_nearest_record(releases, exported, name):
    """Against great circles, or straight lines, in doubles."""
    client = opened(exported[name])
    points = np.array(client.positions)
    rng = np.random.default_rng(1)
    for _ in range(300):
        at = points[rng.integers(len(points))] + rng.normal(size=2) * points.std(axis=0) / 4
        apart = points - at
        if name != "plane":
            apart[:, 1] *= np.cos(np.radians(at[0]))
        distances = np.hypot(*apart.T)
        if np.ptp(np.partition(distances, 1)[:2]) < 1e-4 * distances.min():
            continue  # as near as another
        entropy = rng.bytes(8)
        nearest = client.ids[int(distances.argmin())]
        assert client.report_from(at.tolist(), entropy) == client.report_from(nearest, entropy)


def test_positions_across_the_date_line_are_near():
    from privopt_clients.client import Places as Read
    from privopt_clients.client import _find_nearest, _to_units

    places = Places.of(("a", "b"), np.array([[0.0, 179.9], [0.0, 190.0]]), degrees=True)
    assert places.kind == KIND_DEGREES
    read = Read(places.ids, KIND_DEGREES, tuple(map(tuple, places.points.tolist())), (65536, 65536))
    easts = (-179.9, 180.1, -171.0, 188.0, 360.0)
    assert [_find_nearest(read, *_to_units(KIND_DEGREES, 0.0, east)) for east in easts] == [0, 0, 1, 1, 1]


RIMS = {
    "id,lat,lon": ("haversine", ["-89.9995,10", "90,0", "12,-180", "12,179.9999"]),
    "id,x,y": ("euclidean", ["-1000,0", "1000,1000", "0,-1000", "0,0"]),
}


@pytest.mark.parametrize("columns", RIMS)
def test_places_at_the_rim_of_what_a_position_may_be_are_exported(tmp_path, columns):
    # vectors lie a little beside records: one below -180 degrees ended export with a traceback
    kind, places = RIMS[columns]
    rows = [f"{name},{place}" for name, place in zip("abcd", places, strict=True)]
    (tmp_path / "points.csv").write_text("\n".join([columns, *rows]) + "\n")
    (tmp_path / "problem.toml").write_text(
        f'[records]\npoints = "points.csv"\n[distance]\nkind = "{kind}"\n'
        '[privacy]\nepsilon = 0.001\n[utility]\nkind = "distance"\n'
    )
    solve("exponential", tmp_path / "problem.toml", tmp_path / "out", Options())
    folder = export(tmp_path / "out", tmp_path / "client").folder
    client = opened(folder)
    vectors = json.loads((folder / "vectors.json").read_text("utf-8"))
    assert {client.report_from(each["input"], bytes.fromhex(each["entropy"]))["id"] for each in vectors} > {"a"}


LARGEST = ("streets anywhere", "mesh anywhere", "mesh")


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LARGEST)) for name in EXPORTS])
def test_any_bit_changed_is_refused(exported, name):
    """Each bit alone, in Python; test_clients_agree.py asks the clients of other languages."""
    data = bytearray((exported[name] / "mechanism.bin").read_bytes())
    opened_all_the_same = []
    for bit in range(8 * len(data)):
        data[bit >> 3] ^= 1 << (bit & 7)
        with suppress(DamagedArtefactError):
            opened_all_the_same.append((bit, open_artefact(bytes(data))))
        data[bit >> 3] ^= 1 << (bit & 7)
    assert opened_all_the_same == []


@pytest.mark.parametrize("name", KINDS)
def test_bytes_too_few_or_too_many_are_refused(exported, name):
    data = (exported[name] / "mechanism.bin").read_bytes()
    for wrong in (data[:-1], data + b"\0", b"", data[:39]):
        with pytest.raises(DamagedArtefactError):
            open_artefact(wrong)


def test_a_sum_made_to_fit_is_refused_by_the_sum_that_was_said(exported):
    data = (exported["words"] / "mechanism.bin").read_bytes()
    body = bytearray(data[40:])
    body[20] ^= 1  # within the promise
    forged = data[:8] + hashlib.sha256(body).digest() + bytes(body)
    assert open_artefact(forged).promise != open_artefact(data).promise
    with pytest.raises(DamagedArtefactError, match="SHA-256"):
        open_artefact(forged, sha256=hashlib.sha256(data).hexdigest())


@pytest.mark.parametrize(
    "secret", ["nowhere", (91.0, 0.0), (0.0, 361.0), (float("nan"), 0.0), (float("inf"), 0.0)], ids=str
)
def test_what_is_no_place_is_refused(exported, secret):
    with pytest.raises(ValueError, match="must"):
        opened(exported["earth"]).report(secret)


def test_too_little_entropy_is_refused(exported):
    client = opened(exported["earth"])
    with pytest.raises(ValueError, match="8 bytes"):
        client.report_from(client.ids[0], b"1234567")


def test_joined_outputs_certify_and_their_price_is_stated(releases, tmp_path):
    folder = releases["earth"]
    release = MatrixRelease.alone(folder)
    made = export(folder, tmp_path / "few", largest=8 * len(release.records) * 7)
    assert made.form == "rows"
    assert made.price >= 0
    assert "joined" in made.notes[0]
    source = random.Random(2)
    client = opened(tmp_path / "few")
    assert len({client.report_from(client.ids[0], source.randbytes(8))["id"] for _ in range(2000)}) <= 7


def test_joined_columns_keep_every_inequality_and_sum():
    """A brute force over all ways to join would take the same columns: each goes where it loses least."""
    rng = np.random.default_rng(0)
    cost = rng.random((4, 5))
    z = np.full((4, 5), 0.2)
    weights = np.full((4, 5), (1 << 63) // 5, dtype=np.uint64)
    weights[:, 0] += np.uint64((1 << 63) - 5 * ((1 << 63) // 5))
    made, kept = fewer_outputs(weights, cost / 4, 2)
    assert kept.tolist() == [0, 1]
    assert [sum(row) for row in made.tolist()] == [1 << 63] * 4
    loss = sum(min((z[:, k] @ cost[:, y]) / 4 for y in ((k,) if k in kept else kept)) for k in range(5))
    assert float((made / 2.0**63 * cost[:, kept] / 4).sum()) == pytest.approx(loss)
    pairs = np.array([[0, 1], [2, 3]])
    assert certify(made, pairs, np.ones(2), Fraction(1, 1000)).holds
    with pytest.raises(UsageError, match="1 MB"):
        fewer_outputs(weights, cost, 0)


def test_coordinates_keep_their_last_digit():
    made = Places.of(("a",), np.array([[-33.8567844, 151.2152967]]), degrees=True)
    assert made.points.tolist() == [[-338567844, 1512152967]]
    assert Places.of(("a",), np.array([[0.0, 359.0]]), degrees=True).points.tolist() == [[0, -10_000_000]]
    plane = Places.of(("a",), np.array([[-999.999999, 12.5]]), degrees=False)
    assert (plane.kind, plane.points.tolist()) == (KIND_PLANE, [[-999_999_999, 12_500_000]])
    with pytest.raises(UsageError, match="origin"):
        Places.of(("a",), np.array([[1000.5, 0.0]]), degrees=False)


def test_draws_from_the_system_follow_the_row(releases, exported):
    release, client = MatrixRelease.alone(releases["earth"]), opened(exported["earth"])
    count, row = 20_000, 7
    column = {name: k for k, name in enumerate(release.outputs.tolist())}
    seen = np.zeros(len(column))
    for _ in range(count):
        seen[column[client.report(str(release.records[row]))["id"]]] += 1
    expected = release.weights[row] / 2.0**63 * count
    often = expected >= 5
    seen, expected = (np.append(x[often], x[~often].sum()) for x in (seen, expected))
    assert chisquare(seen[expected > 0], expected[expected > 0]).pvalue > 1e-6


def test_the_command_writes_once_and_says_the_digest(releases, tmp_path, capsys):
    asked = ["export", str(releases["earth"]), "--target", "js", "--out", str(tmp_path / "client")]
    assert ended(asked) == 0
    digest = hashlib.sha256((tmp_path / "client" / "mechanism.bin").read_bytes()).hexdigest()
    assert digest in capsys.readouterr().err
    assert ended(asked) == 2
    assert ended([*asked, "--force"]) == 0


def test_rows_for_some_records_alone_are_refused(releases, tmp_path, monkeypatch):
    """lr-geo's releases have rows for its users."""
    read = export_module.matrix_of

    def fewer(opened):
        release, problem = read(opened)
        return evolve(release, records=release.records[1:], weights=release.weights[1:]), problem

    monkeypatch.setattr(export_module, "matrix_of", fewer)
    with pytest.raises(UsageError, match="a row for every record"):
        export(releases["plane"], tmp_path / "client")
    assert not (tmp_path / "client").exists()


def test_the_same_release_gives_the_same_bytes(releases, exported, tmp_path):
    export(releases["streets"], tmp_path / "again")
    for path in exported["streets"].iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()


def test_the_modules_are_small_and_stand_alone(exported):
    """Their sources are what people read; the page has them inside and names nothing outside it."""
    longest = {
        "privopt-client.mjs": 500,
        "privopt-prediction.mjs": 100,
        "privopt-policy.mjs": 300,
        "privopt-location.mjs": 150,
    }
    imports = {"privopt-policy.mjs": 1, "privopt-location.mjs": 2}
    for name, most in longest.items():
        text = (exported["earth"] / name).read_text("utf-8")
        assert len(text.splitlines()) <= most
        assert max(map(len, text.splitlines())) <= 120
        assert set(re.findall(r'^import .* from "\./([\w.-]+)";$', text, re.MULTILINE)) <= longest.keys()
        assert len(re.findall(r"^import ", text, re.MULTILINE)) == imports.get(name, 0)
    assert len(gzip.compress((exported["earth"] / "privopt-client.mjs").read_bytes())) < 12_000
    page = (exported["earth"] / "index.html").read_text("utf-8")
    assert not re.search(r"^import |(src|href)=|https?://(?!www\.w3\.org/2000/svg)", page, re.MULTILINE)


def ended(arguments):
    with pytest.raises(SystemExit) as ending:
        export_command.main(arguments[1:])
    return ending.value.code or 0
