"""From the command line: solve, verify, draw, protect a table, check without privopt; and folders that do not hold."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from helpers.command import run

from privopt.checker.run import check
from privopt.files.release_folder import SUMS
from privopt_spherical_laplace.kit import great_circle_km
from privopt_spherical_laplace.law import expected_distance, rounded_loss

POINTS = "id,lat,lon\nrome,41.9,12.5\nostia,41.73,12.28\ntivoli,41.96,12.8\n"
OUTPUTS = {"digits": "digits = 3", "grid": "grid = 0.25", "points": 'points = "points.csv"'}


def write_problem(folder, outputs, epsilon="1.4", more=""):
    (folder / "points.csv").write_text(POINTS)
    (folder / "prior.csv").write_text("id,p\nrome,0.9\nostia,0.05\ntivoli,0.05\n")
    file = folder / "p.toml"
    file.write_text(f"[privacy]\nepsilon = {epsilon}\n[outputs]\n{outputs}\n{more}")
    return file


def solve(folder, outputs, epsilon="1.4", more=""):
    file = write_problem(folder, outputs, epsilon, more)
    completed = run("solve", "spherical-laplace", file, "--out", folder / "d", "--quiet", "--force")
    assert completed.exit_code == 0, completed.stderr
    return folder / "d"


def forge(folder, name, old, new):
    """Change a file, and make the checksums fit."""
    import hashlib

    path = folder / name
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    lines = []
    for line in (folder / SUMS).read_text().splitlines():
        listed = line[66:]
        lines.append(f"{hashlib.sha256((folder / listed).read_bytes()).hexdigest()}  {listed}\n")
    (folder / SUMS).write_text("".join(lines))


@pytest.mark.parametrize("kind", OUTPUTS)
def test_a_release_verifies_and_draws(tmp_path, kind):
    folder = solve(tmp_path, OUTPUTS[kind])
    verified = run("verify", folder, "--json", "--require", "proved")
    assert verified.exit_code == 0
    assert json.loads(verified.stdout)["verdict"] == "proved"
    result = json.loads((folder / "result.json").read_text())
    guarantee = result["guarantee"]
    assert (guarantee["kind"], guarantee["scope"], guarantee["unit"]) == ("metric-dp", "everywhere", "per km")
    drawn = run("sample", folder, "--at", "41.9,12.5", "-n", "5").stdout.splitlines()
    assert len(drawn) == 5
    assert run("sample", folder, "--input", "41.9,12.5").exit_code == 0
    figures = json.loads(run("audit", folder, "--json").stdout)
    assert figures["epsilon"] == {"claimed": 1.4, "achieved": 1.4}
    assert (figures["bayes_error"] is None) == (kind != "points")
    assert run("report", folder).exit_code == 0
    objective = result["objective"]
    if kind == "points":
        assert objective["lower_bound"] is None
        assert "optimal-lp" in result["details"]["no_lower_bound"]
    else:
        assert objective["lower_bound"] <= 2 / 1.4 < objective["value"]
    if kind == "digits":
        assert objective["gap"] < 2e-3


def test_reports_lie_near_the_position(tmp_path):
    folder = solve(tmp_path, OUTPUTS["digits"])
    for place in ((0.0, 0.0), (45.0, 180.0), (89.99, -30.0), (-90.0, 12.0)):
        drawn = run("sample", folder, f"--at={place[0]},{place[1]}", "-n", "200").stdout.split()
        reports = [tuple(map(float, report.split(","))) for report in drawn]
        mean = np.mean([great_circle_km(place, report) for report in reports])
        assert abs(mean - 2 / 1.4) < 6 * (math.sqrt(2) / 1.4) / math.sqrt(200)


@pytest.mark.parametrize("position", ["91,0", "0,361", "nan,0"])
def test_no_position_is_refused_without_naming_it(tmp_path, position):
    completed = run("sample", solve(tmp_path, OUTPUTS["grid"]), "--at", position)
    assert completed.exit_code == 2
    assert position not in completed.stderr or "nan" in position


def test_a_prior_remaps_outputs(tmp_path):
    folder = solve(tmp_path, OUTPUTS["points"], "0.02", '[utility]\nprior = "prior.csv"\n')
    remap = dict(line.split(",") for line in (folder / "remap.csv").read_text().splitlines()[1:])
    assert set(remap.values()) == {"rome"}
    assert set(run("sample", folder, "--at", "41.73,12.28", "-n", "20").stdout.split()) == {"rome"}


PLACES = '[records]\npoints = "points.csv"\n[distance]\nkind = "haversine"\n[privacy]\nepsilon = 0.05\n'
UTILITY = '[utility]\nkind = "distance"\nprior = "prior.csv"\n'


def write_places(folder, more=UTILITY):
    """Write a problem of places, which optimal-lp and spherical-laplace both take."""
    write_problem(folder, "digits = 3")
    file = folder / "places.toml"
    file.write_text(PLACES + more)
    return file


def test_curve_compares_the_sphere_with_mechanisms_over_places(tmp_path):
    file, out = write_places(tmp_path), tmp_path / "c.csv"
    names = "optimal-lp,exponential,spherical-laplace"
    page = tmp_path / "c.html"
    arguments = ("--mechanisms", names, "--epsilon", "0.05:0.4:3", "--out", out, "--report", page, "--quiet")
    completed = run("curve", file, *arguments)
    assert completed.exit_code == 0, completed.stderr
    losses = {name: table["loss"].to_list() for (name,), table in pl.read_csv(out).group_by("mechanism")}
    # A mechanism that protects any position loses no less than the best one that protects the three places.
    assert all(
        sphere >= best * (1 - 1e-6)
        for sphere, best in zip(*map(losses.get, ("spherical-laplace", "optimal-lp")), strict=True)
    )
    sphere = pl.read_csv(out).filter(pl.col("mechanism") == "spherical-laplace")
    assert sphere["status"].to_list() == ["feasible"] * 3
    assert sphere["lower_bound"].null_count() == 3
    assert sphere["epsilon_achieved"].to_list() == sphere["epsilon"].to_list()
    assert sphere["bayes_error"].is_sorted(descending=True)
    assert (sphere["adversary_error"] <= sphere["loss"]).all()
    assert "spherical-laplace" in page.read_text()


def test_columns_of_outputs_are_not_ignored_beside_records(tmp_path):
    file = write_places(tmp_path, '[outputs]\ncolumns = { id = "name" }\n')
    completed = run("solve", "spherical-laplace", file, "--out", tmp_path / "d")
    assert completed.exit_code == 2
    assert "outputs.columns: expected outputs.points with it" in completed.stderr


def test_checker_reads_an_empty_table_of_outputs_beside_records(tmp_path):
    """It says no more than no table, and a solve accepts it."""
    file, lines = write_places(tmp_path, "[outputs]\n"), []
    assert run("solve", "spherical-laplace", file, "--out", tmp_path / "d").exit_code == 0
    check(tmp_path / "d", write_line=lines.append)
    assert any("holds: privacy" in line for line in lines), lines


def test_curve_of_digits_has_the_bound_of_the_law(tmp_path):
    file, out = write_problem(tmp_path, "digits = 3"), tmp_path / "c.csv"
    arguments = ("--mechanisms", "spherical-laplace", "--epsilon", "1e-7:1:3", "--out", out)
    completed = run("curve", file, *arguments)
    assert completed.exit_code == 0, completed.stderr
    assert "spherical-laplace refused at epsilon 1E-7" in completed.stderr
    table = pl.read_csv(out)
    assert table["status"].to_list() == ["refused", "optimal", "feasible"]
    assert table["lower_bound"][2] == expected_distance(Fraction(1))[0]
    assert table["bayes_error"].null_count() == 3


@pytest.mark.parametrize(
    ("more", "remapped"),
    [
        (UTILITY, True),
        (UTILITY + "remap = false\n", False),
        ('[utility]\nkind = "distance"\n', False),
        ("[utility]\nremap = true\n", True),
    ],
)
def test_places_are_remapped_as_asked(tmp_path, more, remapped):
    folder = tmp_path / "d"
    completed = run("solve", "spherical-laplace", write_places(tmp_path, more), "--out", folder, "--quiet")
    assert completed.exit_code == 0, completed.stderr
    assert (folder / "remap.csv").exists() == remapped
    verified = run("verify", folder, "--require", "proved")
    assert verified.exit_code == 0, verified.stderr
    lines = []
    assert check(folder, write_line=lines.append) == 2
    assert any("holds: privacy" in line for line in lines)
    if remapped:
        (folder / "remap.csv").unlink()
        assert run("verify", folder).exit_code != 0


def test_remapped_places_are_used_by_every_command(tmp_path):
    """solve, verify, sample, apply, audit, report, estimate, with the remap in the channel of the last three."""
    folder = tmp_path / "d"
    assert run("solve", "spherical-laplace", write_places(tmp_path), "--out", folder, "--quiet").exit_code == 0
    remap = dict(line.split(",") for line in (folder / "remap.csv").read_text().splitlines()[1:])
    assert set(remap.values()) == {"rome"}
    described = run("describe", "spherical-laplace").stdout
    assert "utility.remap" in described
    assert set(run("sample", folder, "--input", "ostia", "-n", "50").stdout.split()) == {"rome"}
    (tmp_path / "t.csv").write_text("who,lat,lon\na,41.73,12.28\nb,41.96,12.8\n")
    out = tmp_path / "o.csv"
    assert run("apply", folder, tmp_path / "t.csv", "--lat", "lat", "--lon", "lon", "--out", out).exit_code == 0
    assert pl.read_csv(out)["report"].to_list() == ["rome", "rome"]
    figures = json.loads(run("audit", folder, "--json").stdout)
    assert figures["bayes_error"] == pytest.approx(0.1)
    assert run("report", folder).exit_code == 0
    (tmp_path / "reports.csv").write_text("report\n" + "rome\n" * 100)
    shares = tmp_path / "shares.csv"
    estimated = run("estimate", folder, tmp_path / "reports.csv", "--out", shares)
    assert estimated.exit_code == 0, estimated.stderr
    assert pl.read_csv(shares)["id"].to_list() == ["rome", "ostia", "tivoli"]
    forge(folder, "remap.csv", "ostia,rome", "ostia,ostia")
    assert run("verify", folder).exit_code == 1  # another loss than stated


def test_records_and_outputs_exclude_one_another(tmp_path):
    file = write_places(tmp_path, UTILITY + "[outputs]\ndigits = 3\n")
    completed = run("solve", "spherical-laplace", file, "--out", tmp_path / "d")
    assert completed.exit_code == 2
    assert "digits and records" in completed.stderr


def test_a_table_gets_reports_and_their_places(tmp_path):
    folder = solve(tmp_path, OUTPUTS["digits"])
    (tmp_path / "t.csv").write_text("who,lat,lon\na,41.9,12.5\nb,95,0\nc,,\nd,10,200\n")
    out = tmp_path / "safe.csv"
    completed = run("apply", folder, tmp_path / "t.csv", "--lat", "lat", "--lon", "lon", "--out", out, "--json")
    assert json.loads(completed.stdout)["reported"] == 2
    table = pl.read_csv(out)
    assert table.columns == ["who", "report", "report_lat", "report_lon"]
    assert great_circle_km((10.0, -160.0), (table["report_lat"][3], table["report_lon"][3])) < 30
    assert table["report"][0] == f"{table['report_lat'][0]:.3f},{table['report_lon'][0]:.3f}"
    by_seed = [tmp_path / "1.csv", tmp_path / "2.csv"]
    for path in by_seed:
        run("apply", folder, tmp_path / "t.csv", "--lat", "lat", "--lon", "lon", "--seed", "3", "--out", path)
    assert by_seed[0].read_text() == by_seed[1].read_text()
    assert pl.read_csv(by_seed[0])["seeded"].all()


def test_a_ledger_is_charged_for_every_row(tmp_path):
    folder, ledger = solve(tmp_path, OUTPUTS["digits"]), tmp_path / "l.ledger"
    assert run("budget", ledger, "--set", "1.4").exit_code == 0
    (tmp_path / "t.csv").write_text("who,lat,lon\na,41.9,12.5\na,41.9,12.5\nb,95,0\n")
    position = ("--lat", "lat", "--lon", "lon", "--ledger", ledger, "--subject", "who")
    completed = run("apply", folder, tmp_path / "t.csv", *position, "--out", tmp_path / "o.csv", "--json")
    assert json.loads(completed.stdout)["refused"] == {"impossible position": 1, "budget spent": 1}
    subjects = json.loads(run("budget", ledger, "--json").stdout)["subjects"]
    assert {entry["subject"]: entry["spent"] for entry in subjects} == {"a": "1.4", "b": "1.4"}


@pytest.mark.parametrize(
    ("outputs", "epsilon", "words"),
    [
        ("digits = 10", "1.4", "outputs.digits"),
        ("grid = 0.7", "1.4", "outputs.grid"),
        ("digits = 3\ngrid = 5", "1.4", "outputs"),
        ("", "1.4", "outputs"),
        ("digits = 3", "1e-7", "privacy.epsilon"),
        ("digits = 3", "2000000", "privacy.epsilon"),
    ],
)
def test_bad_problems_are_refused_by_key(tmp_path, outputs, epsilon, words):
    file = write_problem(tmp_path, outputs, epsilon)
    completed = run("solve", "spherical-laplace", file, "--out", tmp_path / "d")
    assert completed.exit_code == 2
    assert words in completed.stderr


def test_two_points_at_one_place_are_refused(tmp_path):
    file = write_problem(tmp_path, OUTPUTS["points"])
    (tmp_path / "points.csv").write_text("id,lat,lon\na,10,180\nb,10,-180\nc,90,5\nd,90,7\n")
    completed = run("solve", "spherical-laplace", file, "--out", tmp_path / "d")
    assert completed.exit_code == 2
    assert "row 3" in completed.stderr
    assert "row 5" in completed.stderr


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("law.csv", "1.4,", "1.5,"),
        ("law.csv", "6371.0088", "6000.0"),
        ("law.csv", "digits,3", "digits,4"),
        ("law.csv", "1.4,", "1.3,"),
        ("law.csv", "1.4,", "0.0000001,"),
        ("result.json", '"scope": "everywhere"', '"scope": "all-pairs"'),
        ("result.json", '"lower_bound": 1.4', '"lower_bound": 1.40001'),
        ("result.json", '"epsilon_text": "1.4"', '"epsilon_text": "1.3"'),
        ("result.json", '"value": 1.43', '"value": 1.42'),
    ],
)
def test_forged_folders_do_not_hold(tmp_path, name, old, new):
    folder = solve(tmp_path, OUTPUTS["digits"])
    assert check(folder, write_line=lambda line: None) == 0
    forge(folder, name, old, new)
    assert run("verify", folder).exit_code == 1
    assert check(folder, write_line=lambda line: None) == 1
    assert run("sample", folder, "--at", "41.9,12.5").exit_code == 1


@pytest.mark.parametrize(("bounded_epsilon", "code"), [("1.4", 0), ("1.3", 1)])
def test_stricter_law_has_the_bound_of_the_claim(tmp_path, bounded_epsilon, code):
    """A law that is stricter than the claim loses more, but proves nothing of mechanisms that use all of epsilon."""
    folder = solve(tmp_path, OUTPUTS["digits"])
    forge(folder, "law.csv", "1.4,", "1.3,")
    before = (folder / "result.json").read_text()
    result = json.loads(before)
    value = rounded_loss(Fraction("1.3"), Fraction(1, 1000))
    bound = expected_distance(Fraction(bounded_epsilon))[0]
    result["objective"] |= {"value": value, "lower_bound": bound, "gap": (value - bound) / value}
    result["certificate"]["worst"] = 1.3
    forge(folder, "result.json", before, json.dumps(result))
    assert check(folder, write_line=lambda line: None) == code
    assert run("verify", folder).exit_code == code


def test_epsilon_of_many_digits_is_written_exactly(tmp_path):
    epsilon = "1.23456789012345678901234567891555" + "0" * 60 + "1"
    folder = solve(tmp_path, OUTPUTS["digits"], epsilon)
    assert (folder / "law.csv").read_text().splitlines()[1].split(",")[0] == epsilon
    assert check(folder, write_line=lambda line: None) == 0
    assert run("sample", folder, "--at", "41.9,12.5").exit_code == 0


def test_the_stand_alone_checker_checks_grids_and_says_what_it_cannot(tmp_path):
    assert check(solve(tmp_path, OUTPUTS["grid"], "0.001"), write_line=lambda line: None) == 0
    lines = []
    assert check(solve(tmp_path, OUTPUTS["points"]), write_line=lines.append) == 2
    assert any("holds: privacy" in line for line in lines)
    assert "not evaluated" in lines[-1]


@pytest.mark.parametrize("epsilon", ["0.000001", "0.0001", "1000000"])
def test_checker_agrees_at_extreme_epsilon(tmp_path, epsilon):
    folder = solve(tmp_path, OUTPUTS["digits"], epsilon)
    lines = []
    assert check(folder, write_line=lines.append) == 0, lines
    assert run("sample", folder, "--at", "90,0").exit_code == 0


def test_reports_of_points_tell_how_many_were_where(tmp_path):
    folder = solve(tmp_path, OUTPUTS["points"], "0.2")
    drawn = run("sample", folder, "--input", "ostia", "-n", "3000").stdout.split()
    (tmp_path / "reports.csv").write_text("report\n" + "".join(f"{report}\n" for report in drawn))
    out = tmp_path / "shares.csv"
    completed = run("estimate", folder, tmp_path / "reports.csv", "--out", out)
    assert completed.exit_code == 0, completed.stderr
    shares = dict(zip(*pl.read_csv(out).select("id", "share"), strict=True))
    assert shares["ostia"] > 0.85
    figures = json.loads(run("audit", folder, "--json").stdout)
    assert 0 < figures["bayes_error"] < 1


def test_digits_have_no_records_to_estimate(tmp_path):
    folder = solve(tmp_path, OUTPUTS["digits"])
    (tmp_path / "reports.csv").write_text('report\n"41.9,12.5"\n')
    assert run("estimate", folder, tmp_path / "reports.csv", "--out", tmp_path / "s.csv").exit_code == 2
