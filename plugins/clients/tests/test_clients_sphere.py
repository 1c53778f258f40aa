"""privopt-sphere.mjs draws what the Python sampler draws from the same bytes, anywhere on Earth."""

from __future__ import annotations

import csv
import json
import random
import shutil
import subprocess
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.browser import open_browser

from privopt.errors import UsageError
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import open_verified
from privopt_clients.export import CLIENT, export
from privopt_metric_dp.space.places import Space
from privopt_spherical_laplace.places import coordinates_of, ids_of
from privopt_spherical_laplace.release import SphereRelease
from privopt_spherical_laplace.sampler.exact import Digits, GridCells, NearestPoint, Rounding, draw_exactly

NODE = shutil.which("node")
HERE = Path(__file__).parent
VECTORS = HERE.parents[1] / "spherical-laplace" / "tests" / "sphere_vectors.jsonl"
NAMES = ("privopt-sphere.mjs", "privopt-points.mjs")
IN_NODE = """
import { readFileSync } from "node:fs";
const given = JSON.parse(readFileSync(0, "utf8"));
const [sphere, points, replay] = await Promise.all(given.modules.map((name) => import(name)));
process.stdout.write(replay.replaySphere({ ...sphere, ...points, ...given }));
"""
IN_PAGE = """
async (given) => {
  const names = ["/privopt-sphere.mjs", "/privopt-points.mjs", "/replay_sphere.mjs"];
  const [sphere, points, replay] = await Promise.all(names.map((name) => import(name)));
  return replay.replaySphere({ ...sphere, ...points, ...given });
}
"""
Ask = Callable[[list[dict[str, Any]], int], str]
TOWNS = [(41.9, 12.5), (41.95, 12.4), (41.85, 12.6), (90.0, 0.0), (-90.0, 0.0), (-33.9, 151.2), (0.0, 180.0)]


def ask_node(cases: list[dict[str, Any]], draws: int) -> str:
    if NODE is None:
        pytest.skip("no node on this machine")
    modules = [(CLIENT / name).as_uri() for name in NAMES] + [(HERE / "replay_sphere.mjs").as_uri()]
    request = json.dumps({"modules": modules, "cases": cases, "draws": draws})
    command = [NODE, "--input-type=module", "-e", IN_NODE]
    completed = subprocess.run(command, input=request, capture_output=True, text=True, timeout=600, check=False)
    assert completed.returncode == 0, completed.stderr
    return completed.stdout


@pytest.fixture(scope="module", params=["node", "browser"])
def ask(request) -> Iterator[Ask]:
    if request.param == "node":
        yield ask_node
        return
    with open_browser() as browser:
        page = browser.new_page()
        page.set_default_timeout(600_000)
        paths = {name: CLIENT / name for name in NAMES} | {"replay_sphere.mjs": HERE / "replay_sphere.mjs"}

        def serve(route: Any) -> None:
            name = route.request.url.rsplit("/", 1)[1]
            kind = "text/javascript" if name else "text/html"
            route.fulfill(body=paths[name].read_bytes() if name else b"<!doctype html>", content_type=kind)

        page.route("**/*", serve)
        page.goto("https://sphere.example/")
        yield lambda cases, draws: page.evaluate(IN_PAGE, {"cases": cases, "draws": draws})


def make_cases(count: int, seed: int) -> list[dict[str, Any]]:
    """Draw positions, epsilons, outputs and entropy; poles, the antimeridian and extreme words among them."""
    source, cases = random.Random(seed), []
    for _ in range(count):
        latitude = source.choice([source.uniform(-90, 90), source.choice([90.0, -90.0, 0.0, 89.9, 45.0])])
        longitude = source.choice([source.uniform(-180, 180), source.choice([180.0, -180.0, 0.0, 179.9999])])
        epsilon = source.choice(["1e-6", "0.0003", "0.01", "0.5", "1.4", "20", "3e4", "1000000"])
        kind = source.choice(["digits", "digits", "grid", "points"])
        argument: Any = source.randrange(10)
        if kind == "grid":
            argument = source.choice(["0.25", "0.0005", "1.5", "90", "10"])
        if kind == "points":
            argument = [{"id": f"t{k}", "lat": lat, "lon": lon} for k, (lat, lon) in enumerate(TOWNS)]
        words = [source.choice([source.randbytes(8)] * 8 + [b"\0" * 8, b"\xff" * 8]) for _ in range(2)]
        cases.append(
            {
                "position": [latitude, longitude],
                "epsilon": f"{epsilon}/km",
                "kind": kind,
                "argument": argument,
                "entropy": (b"".join(words) + source.randbytes(240)).hex(),
            }
        )
    return cases


def rounding_of(case: dict[str, Any]) -> tuple[Rounding, Space | None]:
    if case["kind"] == "digits":
        return Digits(case["argument"]), None
    if case["kind"] == "grid":
        return GridCells(Fraction(case["argument"])), None
    towns = [(point["lat"], point["lon"]) for point in case["argument"]]
    places = tuple((Fraction(lat), (Fraction(lon) + 180) % 360 - 180) for lat, lon in towns)
    ids = [point["id"] for point in case["argument"]]
    return NearestPoint(places), Space(ids=ids, coordinates=towns, kind="geographic")


def draw_in_python(case: dict[str, Any]) -> list[Any]:
    """Return the report of a case, and note how many bytes it takes."""
    entropy, size = bytes.fromhex(case["entropy"]), 0

    def read(count: int) -> bytes:
        nonlocal size
        size += count
        assert size <= len(entropy)
        return entropy[size - count : size]

    rounding, points = rounding_of(case)
    position = map(Fraction, case["position"])
    output = draw_exactly(*position, Fraction(case["epsilon"].removesuffix("/km")), rounding, source=read)
    case["size"] = size
    outputs = np.array([output])
    [report_id] = ids_of(rounding, outputs, () if points is None else points.ids)
    return [report_id, *coordinates_of(rounding, outputs, points)[0].tolist()]


def check_agreement(ask: Ask, count: int, seed: int) -> None:
    cases = make_cases(count, seed)
    expected = [draw_in_python(case) for case in cases]
    assert {case["size"] for case in cases} >= {16, 32}
    for case, report, line in zip(cases, expected, ask(cases, 0).splitlines(), strict=True):
        assert json.loads(line) == report, case


def test_same_entropy_gives_same_reports(ask):
    check_agreement(ask, 500, 1)


@pytest.mark.slow
def test_ten_thousand_strings_give_same_reports(ask):
    check_agreement(ask, 10_000, 2)


def test_stored_vectors_hold(ask):
    vectors = [json.loads(line) for line in VECTORS.read_text("utf-8").splitlines()]
    cases = []
    for vector in vectors:
        argument = vector["argument"]
        if vector["kind"] == "points":
            argument = [{"id": f"t{k}", "lat": lat, "lon": lon} for k, (lat, lon) in enumerate(argument)]
        cases.append(
            {
                "position": [vector["latitude"], vector["longitude"]],
                "epsilon": f"{vector['epsilon_per_km']}/km",
                "kind": vector["kind"],
                "argument": argument,
                "entropy": vector["entropy"],
                "size": vector["bytes"],
            }
        )
    for vector, line in zip(vectors, ask(cases, 0).splitlines(), strict=True):
        first, lat, lon = json.loads(line)
        output, kind = vector["output"], vector["kind"]
        if kind == "digits":
            assert [lat, lon] == [number / 10 ** vector["argument"] for number in output]
        else:
            assert first == ("-".join(map(str, output)) if kind == "grid" else f"t{output[0]}")


def test_draw_takes_at_most_a_few_milliseconds(ask):
    """One millisecond is asked of a free machine, and measured in docs/benchmarks/location.md."""
    case = {"position": [40.7128, -74.006], "epsilon": "1.4/km", "kind": "digits", "argument": 3}
    assert float(ask([case], 500)) < 10


def solve_remapped(folder: Path) -> Any:
    """Solve over towns around Rome with a prior under which most are remapped; returns the folder of the release."""
    chance = random.Random(4)
    rows = [(f"town {k}", 41.9 + chance.uniform(-0.3, 0.3), 12.5 + chance.uniform(-0.3, 0.3)) for k in range(20)]
    weights = [1.0 if k % 5 else 200.0 for k in range(20)]
    points = "".join(f"{name},{lat!r},{lon!r}\n" for name, lat, lon in rows)
    shares = "".join(f"{row[0]},{weight / sum(weights)!r}\n" for row, weight in zip(rows, weights, strict=True))
    (folder / "points.csv").write_text("id,lat,lon\n" + points)
    (folder / "prior.csv").write_text("id,p\n" + shares)
    text = '[privacy]\nepsilon = 0.15\n[outputs]\npoints = "points.csv"\n[utility]\nprior = "prior.csv"\n'
    (folder / "problem.toml").write_text(text)
    return solve("spherical-laplace", folder / "problem.toml", folder / "out", Options()).folder


def check_remap_agreement(ask: Ask, folder: Path, count: int) -> None:
    """Compare reports of a folder in Python and by its remap.csv in JavaScript, from the same bytes."""
    release = open_verified(solve_remapped(folder)).release
    assert isinstance(release, SphereRelease)
    table = csv.DictReader((folder / "out" / "remap.csv").read_text("utf8").splitlines())
    remap = {row["point"]: row["report"] for row in table}
    assert 3 <= len(set(remap.values())) < len(remap)
    places = csv.DictReader((folder / "points.csv").read_text("utf8").splitlines())
    points = [{"id": row["id"], "lat": float(row["lat"]), "lon": float(row["lon"])} for row in places]
    source, cases, expected = random.Random(5), [], []
    for _ in range(count):
        position = [41.9 + source.uniform(-0.5, 0.5), 12.5 + source.uniform(-0.5, 0.5)]
        case = {"position": position, "epsilon": "0.15/km", "kind": "points", "argument": points}
        cases.append({**case, "remap": remap, "entropy": source.randbytes(256).hex()})
        draw_in_python(cases[-1])  # notes how many bytes the draw takes
        entropy = make_source(bytes.fromhex(cases[-1]["entropy"]))
        [report_id], [at] = release.draw(*np.array([position]).T, source=entropy)
        expected.append([report_id, *at.tolist()])
    assert any(row[0] != draw_in_python(case)[0] for row, case in zip(expected, cases, strict=True))
    for case, report, line in zip(cases, expected, ask(cases, 0).splitlines(), strict=True):
        assert json.loads(line) == report, case


def make_source(entropy: bytes) -> Callable[[int], bytes]:
    """Return a source of the bytes of a text, one after the other."""
    start = 0

    def read(count: int) -> bytes:
        nonlocal start
        start += count
        assert start <= len(entropy)
        return entropy[start - count : start]

    return read


def test_remapped_points_are_those_of_the_folder(ask, tmp_path):
    check_remap_agreement(ask, tmp_path, 300)


@pytest.mark.slow
def test_ten_thousand_remapped_points_are_those_of_the_folder(ask, tmp_path):
    check_remap_agreement(ask, tmp_path, 10_000)


IN_NODE_RUN = """
const { fromEpsilon } = await import(process.argv[1] + "/privopt-sphere.mjs");
const { nearestOf } = await import(process.argv[1] + "/privopt-points.mjs");
const { Policy, inMemory } = await import(process.argv[1] + "/privopt-policy.mjs");
const told = {};
const nameOf = (act) => { try { return typeof act(); } catch (error) { return error.constructor.name; } };
%s
console.log(JSON.stringify(told));
"""


def run(script: str) -> dict[str, Any]:
    if NODE is None:
        pytest.skip("no node on this machine")
    command = [NODE, "--input-type=module", "-e", IN_NODE_RUN % script, CLIENT.as_uri()]
    completed = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert completed.returncode == 0, completed.stderr
    answers: dict[str, Any] = json.loads(completed.stdout)
    return answers


def test_refuses_wrong_arguments_and_positions():
    answers = run(
        """
        const digits = { digits: 3 };
        told.epsilon = ["1.4", "1.4/m", "0/km", "-1/km", "1e-7/km", "2e6/km", "x/km", 1.4, undefined, "1.4.1/km", "/km"]
          .map((text) => nameOf(() => fromEpsilon(text, digits)));
        told.outputs = [undefined, null, {}, { digits: 10 }, { digits: -1 }, { digits: 1.5 }, { grid: 7 }, { grid: 0 },
          { grid: "1e-10" }, { digits: 3, grid: 1 }, { cells: 3 }, []]
          .map((outputs) => nameOf(() => fromEpsilon("1.4/km", outputs)));
        const town = { id: "a", lat: 1, lon: 2 };
        told.points = [[], [town, town], [town, { ...town, id: "b" }], [{ id: 1, lat: 1, lon: 2 }], [{ id: "a" }],
          [{ id: "a", lat: 91, lon: 2 }], [{ id: "n", lat: 90, lon: 0 }, { id: "m", lat: 90, lon: 5 }]]
          .map((points) => nameOf(() => fromEpsilon("1.4/km", nearestOf(points))));
        const both = [town, { id: "b", lat: 3, lon: 4 }];
        told.remaps = [{ a: "c" }, { c: "a" }, { a: 1 }, { __proto__: "a", z: "b" }, { a: "b" }, undefined]
          .map((remap) => nameOf(() => fromEpsilon("1.4/km", nearestOf(both, remap))));
        told.same_name = new Set([undefined, {}, { a: "b" }]
          .map((remap) => fromEpsilon("1.4/km", nearestOf(both, remap)).release)).size;
        told.map_is_object = [new Map([["a", "b"]]), { a: "b" }]
          .map((remap) => fromEpsilon("1.4/km", nearestOf(both, remap)).release);
        const client = fromEpsilon(" 1.4 / km ", digits);
        const wrong = [[91, 0], [0, 361], [NaN, 0], ["1", "2"], [1], [1, 2, 3], "a", undefined, null,
          { lat: 1, lon: 2 }];
        told.positions = wrong.map((position) => nameOf(() => client.report(position)));
        told.covers = [...wrong, [90, 360], [-90, -180]].map((position) => client.covers(position));
        told.entropy = [undefined, new Uint8Array(15), Array(16).fill(0)]
          .map((bytes) => nameOf(() => client.reportFrom([0, 0], bytes)));
        told.turned = [[5, 190], [5, -170]].map((position) => client.reportFrom(position, new Uint8Array(16).fill(9)));
        const towns = fromEpsilon("0.1/km", nearestOf([town, { id: "b", lat: 3, lon: 4 }]));
        told.town = [towns.ids, towns.positions, towns.covers("b"), towns.covers("c"), typeof towns.report("b").id];
        told.promise = client.promise.includes("exp(1.4 d)");
        const long = "1.40000000000000000000001";
        told.promises_no_less = fromEpsilon(`${long}/km`, digits).promise.includes(`exp(${long} d)`);
        """
    )
    assert answers["epsilon"] == ["RangeError"] * 11
    assert set(answers["outputs"]) <= {"RangeError", "TypeError"}
    assert set(answers["points"]) <= {"RangeError", "TypeError"}
    assert answers["remaps"] == ["RangeError"] * 4 + ["object"] * 2
    assert answers["same_name"] == 3
    assert len(set(answers["map_is_object"])) == 1
    assert answers["positions"] == ["RangeError"] * 10
    assert answers["covers"] == [False] * 10 + [True] * 2
    assert answers["entropy"] == ["RangeError"] * 3
    assert answers["turned"][0] == answers["turned"][1]
    assert answers["town"] == [["a", "b"], [[1, 2], [3, 4]], True, False, "string"]
    assert answers["promise"]
    assert answers["promises_no_less"]


def test_law_is_not_exported(tmp_path):
    (tmp_path / "problem.toml").write_text("[privacy]\nepsilon = 1.4\n[outputs]\ndigits = 3\n")
    folder = solve("spherical-laplace", tmp_path / "problem.toml", tmp_path / "out", Options()).folder
    with pytest.raises(UsageError, match="fromEpsilon"):
        export(folder, tmp_path / "client")


def test_policies_take_the_sphere():
    answers = run(
        """
        const client = fromEpsilon("1.4/km", { digits: 3 });
        for (const keep of ["time", "place", "nothing"]) {
          const policy = new Policy(client, { storage: inMemory(), keep, limit: 3 });
          const given = [];
          for (const place of [[48.85, 2.35], [48.85, 2.35], [48.85, 2.45], [48.85, 2.35]]) {
            given.push(await policy.report(place, 1e12));
          }
          told[keep] = given.map(({ drawn, left }) => [drawn, left]);
          told.same = (told.same ?? []).concat(given[0].report.id === given[3].report.id);
        }
        """
    )
    assert answers["time"] == [[True, 2], [False, 2], [False, 2], [False, 2]]
    assert answers["place"] == [[True, 2], [False, 2], [True, 1], [False, 1]]
    assert answers["nothing"] == [[True, 2], [True, 1], [True, 0], [False, 0]]
    assert answers["same"][:2] == [True, True]


def test_policy_keeps_places_for_reports_that_are_points():
    """Cells are squares, not points: what is kept of them must be believed again."""
    answers = run(
        """
        const towns = [{ id: "a", lat: 1, lon: 2 }, { id: "b", lat: 3, lon: 4 }];
        const client = fromEpsilon("0.1/km", nearestOf(towns));
        const storage = inMemory();
        const policy = new Policy(client, { storage, keep: "place" });
        told.given = [];
        for (const place of [[1.05, 2.05], [1.05, 2.05], "b", [-1e-9, 0], "b"]) {
          const { drawn, left } = await policy.report(place, 1e12);
          told.given.push([drawn, left]);
        }
        const state = await storage.get();
        await storage.set({ ...state, kept: state.kept.map(({ report }) => ({ report, cell: "a" })) });
        told.refused = await policy.report("a", 1e12).then(() => "none", (error) => error.constructor.name);
        told.km = nameOf(() => new Policy(client, { storage: inMemory(), keep: "place", km: 2 }));
        """
    )
    assert answers["given"] == [[True, 29], [False, 29], [True, 28], [True, 27], [False, 27]]
    assert answers["refused"] == "LostReportsError"
    assert answers["km"] == "RangeError"
