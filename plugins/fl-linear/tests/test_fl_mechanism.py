"""FL-Linear through the pipeline: files in, DIR out, verified; secrets in ``private/`` alone."""

from __future__ import annotations

import json
import math
import shutil

import numpy as np
import pytest
from attrs import evolve
from helpers.grids import by_pairs, first_alone
from helpers.mended_sums import edit, mend
from helpers.mentions import assert_mentions

from privopt.errors import InputError, UsageError
from privopt.interfaces import SolveContext
from privopt.report.write_report import write_report
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import load_release, verify
from privopt_fl_linear import serve

TOML = """[locations]
points = "locations.csv"
{matrix}
[privacy]
epsilon = {epsilon}
failure_probability = 0.1
[fl-linear]
{settings}
"""


@pytest.fixture
def problem(tmp_path, rng):
    def make(n=40, *, columns=("x", "y"), counts=("clients",), settings="", epsilon="0.5", matrix="", **overrides):
        folder = tmp_path / f"in-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        table = {"id": [f"v{i}" for i in range(n)]}
        if columns:
            table |= {columns[0]: 41 + rng.random(n), columns[1]: 12 + rng.random(n)}
        table["facility_cost"] = rng.uniform(0.1, 0.3, n)
        for name in counts:
            table[name] = rng.integers(0, 9, n) if name == "clients" else rng.integers(-20, 40, n)
        table |= overrides
        lines = [",".join(table)] + [",".join(str(v) for v in row) for row in zip(*table.values(), strict=True)]
        (folder / "locations.csv").write_text("\n".join(lines) + "\n")
        (folder / "problem.toml").write_text(TOML.format(matrix=matrix, epsilon=epsilon, settings=settings))
        return folder / "problem.toml"

    return make


def run(path, method=None, **options):
    # A published problem lies in a release, beside which the second one is written.
    folder = path.parents[2] / "again" if path.parent.name == "problem" else path.parent
    output_folder = folder / f"out-{method}"
    release = solve("fl-linear", path, output_folder, Options(method=method, force=True, **options))
    return output_folder, json.loads((output_folder / "result.json").read_text()), release


def rows(path):
    return [line.split(",") for line in path.read_text().splitlines()[1:]]


def test_empty_count_is_a_fault(problem):
    with pytest.raises(InputError, match="column clients"):
        run(problem(3, clients=[4, "", 7]))
    assert run(problem(3, clients=[4, 0, 7]))[2].warnings == ()


def test_totals_row_is_refused_unless_it_is_kept(problem):
    """A client of a location would count in the totals row too, and epsilon pays for one location."""
    ids = ["Trento", "Torino", "All areas"]
    with pytest.raises(InputError, match=r"row 4, column id: .*totals = \"keep\".*, got a total of the other") as e:
        run(problem(3, id=ids, clients=[4, 3, 7]))
    assert "All areas" not in str(e.value)  # ids are of a secret file
    for name in ("Total", "Totale", "Insgesamt", "Grand total"):
        with pytest.raises(InputError, match="a total of the other locations"):
            run(problem(3, id=["a", name, "b"], clients=[4, 3, 7]))
    path = problem(3, id=["Total", "Torino", "Roma"], clients=[4, 3, 7])
    path.write_text(path.read_text().replace("[privacy]", 'totals = "keep"\n[privacy]'))
    assert verify(run(path)[0]).verdict == "declared"
    # Single letters are codes of locations, and a name alone is a total of nothing.
    assert run(problem(3, id=["S", "T", "U"], clients=[4, 3, 7]))[2].result
    assert run(problem(1, id=["Total"], clients=[4]))[2].result


def test_warns_of_epsilon_that_hides_nothing(problem):
    path = problem(3, epsilon="1000")
    release = run(path)[2]
    assert_mentions(release.warnings[0], "next to nothing", "e^1000")
    page = write_report(release.folder).read_text("utf-8")
    assert "<small>units of cost</small>" in page
    assert page.count("next to nothing") >= 2
    assert "learns much" not in page


@by_pairs("method, columns", ["reconnection", "laplace"], [("lat", "lon"), ("x", "y")])
def test_solve_and_verify(problem, method, columns):
    path = problem(columns=columns)
    output_folder, result, release = run(path, method)
    assert not release.stopped
    assert result["guarantee"]["kind"] == "local-dp"
    assert result["guarantee"]["epsilon"] == 0.5
    assert result["certificate"]["holds"] is True
    assert result["certificate"]["worst"] <= result["certificate"]["allowed"] == 0.5
    assert result["status"] == "feasible"
    assert result["objective"]["lower_bound"] is None
    assert verify(output_folder).complaints == ()
    shutil.rmtree(output_folder / "private")
    assert verify(output_folder).complaints == ()
    links, sizes = rows(output_folder / "connections.csv"), dict(rows(output_folder / "capacities.csv"))
    assert [r[0] for r in links] == sorted(f"v{i}" for i in range(40))
    assert {r[1] for r in links} == set(sizes)
    noisy = {r[0]: float(r[-1]) for r in rows(output_folder / "problem" / "locations.csv")}
    margin = result["details"]["margin"]
    total = sum(max(0.0, float(c)) for c in sizes.values())
    assert total == result["details"]["capacities"]["total"] >= sum(noisy.values()) + margin["total"] - 1e-9


def test_server_side_repeats_from_published_folder(problem):
    output_folder, first, _ = run(problem(settings="delta = 0.1"))
    second_folder, second, _ = run(output_folder / "problem" / "problem.toml")
    for name in ("connections.csv", "capacities.csv"):
        assert (output_folder / name).read_bytes() == (second_folder / name).read_bytes()
    assert second["certificate"]["arithmetic"] == "exact rationals: sum of sensitivity / scale"
    assert second["guarantee"]["kind"] == "local-dp"
    assert first["objective"] == second["objective"]
    assert not (second_folder / "private" / "truth.json").exists()
    assert verify(second_folder).complaints == ()


def test_fractional_noisy_counts(problem, rng):
    path = problem(counts=(), noisy_clients=rng.normal(3, 20, 40), settings="delta = 0.2")
    output_folder, result, _ = run(path)
    assert result["details"]["margin"]["noise"] == "continuous"
    assert verify(output_folder).complaints == ()


def test_both_columns_keep_truth_private(problem):
    clients = np.arange(40) * 7919 + 10**9 + 12345
    noisy = np.full(40, 5)
    path = problem(counts=(), clients=clients, noisy_clients=noisy, settings="delta = 0.3")
    output_folder, result, _ = run(path)
    truth = json.loads((output_folder / "private" / "truth.json").read_text())
    assert truth["clients"] == clients.sum()
    assert len(truth["overflow"]) == result["details"]["facilities"]
    assert truth["normalised_cost"] == pytest.approx(truth["cost"]["total"] / truth["optimum"])
    public = [
        p for p in output_folder.rglob("*") if p.is_file() and "private" not in p.relative_to(output_folder).parts
    ]
    secrets = [str(c) for c in clients] + [str(clients.sum()), repr(truth["optimum"]), "overflow", "nu"]
    for file in public:
        text = file.read_text()
        assert "\nid" not in text
        assert not [s for s in secrets[:-1] if s in text], file
    for name in ("clients,", "true"):
        assert name not in (output_folder / "problem" / "locations.csv").read_text().replace("noisy_clients", "")


def test_matrix_distances(problem, rng):
    points = rng.random((40, 2))
    path = problem(columns=None, matrix='matrix = "d.npy"')
    np.save(path.parent / "d.npy", np.hypot(*(points[:, None] - points[None]).transpose(2, 0, 1)))
    output_folder, _, _ = run(path)
    assert verify(output_folder).complaints == ()
    invalid_matrix = np.ones((40, 40))
    np.save(path.parent / "d.npy", invalid_matrix)
    with pytest.raises(InputError, match=r"d\.npy"):
        run(path)


def test_optimal_needs_consent_and_claims_nothing(problem):
    path = problem()
    with pytest.raises(UsageError, match="allow-unsafe"):
        run(path, "optimal")
    output_folder, result, _ = run(path, "optimal", allow_unsafe=True)
    assert result["guarantee"]["kind"] == "none"
    assert result["status"] == "optimal"
    assert 0.0 <= result["objective"]["gap"] < 1e-12  # sums of doubles, the bound rounded down
    assert "clients" not in (output_folder / "problem" / "locations.csv").read_text()
    assert verify(output_folder).complaints == ()
    completed = run(problem(counts=("clients", "noisy_clients")), "optimal", allow_unsafe=True)[0]
    # the true counts are not called noisy
    assert "clients" not in (completed / "problem" / "locations.csv").read_text()
    assert verify(completed).complaints == ()
    with pytest.raises(InputError, match="clients"):
        run(problem(counts=("noisy_clients",)), "optimal", allow_unsafe=True)


def test_verify_notices_changes(problem):
    output_folder, _, _ = run(problem(settings="delta = 0.2"))

    def complaints(name, change):
        copy = output_folder.with_name("copy")
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(output_folder, copy)
        (copy / name).write_text(change((copy / name).read_text()))
        return verify(mend(copy)).complaints

    size = rows(output_folder / "capacities.csv")[0][1]
    assert complaints("capacities.csv", lambda t: t.replace(size, str(float(size) - 5), 1))
    assert complaints("result.json", lambda t: t.replace('"level": 0.1', '"level": 0.3'))
    assert complaints("result.json", lambda t: t.replace('"delta": 0.2', '"delta": 0.7'))
    assert complaints("result.json", lambda t: t.replace('"level": 0.1', '"level": 0.0999'))
    links = rows(output_folder / "connections.csv")
    other_facility = next(r[1] for r in links if r[1] != links[0][1])
    assert complaints("connections.csv", lambda t: t.replace(",".join(links[0]), f"{links[0][0]},{other_facility}", 1))
    with pytest.raises(InputError):
        complaints("connections.csv", lambda t: t.replace("v0,", "nobody,", 1))
    with pytest.raises(InputError):
        complaints("capacities.csv", lambda t: "\n".join(t.splitlines()[:-1]) + "\n")


@pytest.mark.parametrize(
    ("change", "location"),
    [
        ({"clients": ["-1"] * 5}, "column clients"),
        ({"clients": ["1.5"] * 5}, "column clients"),
        ({"clients": [str(10**13)] * 5}, "column clients"),
        ({"facility_cost": ["-0.1"] * 5}, "column facility_cost"),
        ({"x": ["nan"] * 5}, "column x"),
        ({"id": ["a"] * 5}, "again"),
        ({"x": ["1e101"] * 5}, "column x"),
        ({"lat": [1] * 5, "lon": [1] * 5}, "one of these"),
        ({"columns": ("lat", "lon"), "lat": [91.0] * 5}, "column lat"),
        ({"counts": ()}, "noisy_clients"),
        (
            {"counts": (), "noisy_clients": [1, 2.5, 3, 4, 5], "settings": 'noise = "discrete"'},
            "row 3, column noisy_clients",
        ),
        *(
            ({"settings": text}, text.split()[0])
            for text in ("delta = -1", 'delta = "some"', 'margin = "small"', "mean_clients = -2")
        ),
        # noise that passes the largest count
        *(({"epsilon": text}, r"privacy\.epsilon: expected") for text in ("9e-11", "1e-300", "1e400")),
    ],
)
def test_refuses_wrong_input(problem, change, location):
    with pytest.raises(InputError, match=location):
        run(problem(5, **change))


def test_audit(problem):
    output_folder, result, _ = run(problem(settings="delta = 0.1", epsilon="1.0"))
    opened_release = load_release(output_folder)
    mechanism, loaded_problem, release, read = (
        opened_release.mechanism,
        opened_release.problem,
        opened_release.release,
        opened_release.result,
    )
    findings = mechanism.audit(loaded_problem, release, read)
    assert findings["epsilon"] == {"claimed": 1.0, "achieved": result["certificate"]["worst"]}
    assert 0.5 < findings["statistical"]["epsilon_lower"] <= 1.0
    second_folder, _, _ = run(output_folder / "problem" / "problem.toml")
    opened_release = load_release(second_folder)
    mechanism, loaded_problem, release, read = (
        opened_release.mechanism,
        opened_release.problem,
        opened_release.release,
        opened_release.result,
    )
    assert mechanism.audit(loaded_problem, release, read)["statistical"] is None


def test_epsilon_with_many_digits(problem):
    output_folder, result, _ = run(problem(epsilon="0.12345678901234567890123"))
    assert result["certificate"]["worst"] <= result["certificate"]["allowed"]
    assert math.isclose(result["certificate"]["worst"], 0.12345678901234568, rel_tol=1e-9)
    assert verify(output_folder).complaints == ()


@pytest.mark.parametrize("settings", ["", "mean_clients = 3"])
def test_time_limit_gives_certified_plan(problem, monkeypatch, settings):
    """The limit passes while radii are tried: no one is reconnected, under the union bound over all radii."""
    monkeypatch.setattr(SolveContext, "remaining", property(lambda _: 0.0))
    output_folder, result, release = run(problem(settings=settings), time_limit=60.0)
    monkeypatch.undo()
    assert release.stopped
    assert result["details"]["told"]["auto"] == {"radii_cut_short": True}
    assert result["details"]["delta"] == 0.0
    assert result["details"]["failure_probability"]["level"] == 0.1 / 25
    assert verify(output_folder).complaints == ()
    _seal_forged_auto(output_folder, result, {"radii_cut_short": False})
    assert not verify(output_folder).holds


def _seal_forged_auto(output_folder, result, auto):
    """Write into the folder another text on how the radius was chosen, checksums included."""
    result["details"]["told"]["auto"] = auto
    edit(output_folder, lambda claims: claims.update(result))


@first_alone("cut_short", [False, True])
def test_verify_refuses_radius_chosen_by_noise(problem, monkeypatch, cut_short):
    """Called cut short, or not: a cheaper radius than the rule's, at the rule's level."""
    path, rules = problem(counts=("noisy_clients",)), serve.choose_policy
    _, honest, _ = run(path)
    auto_record, used_radius = honest["details"]["told"]["auto"], honest["details"]["delta"]
    level, cheaper_radius = (
        auto_record["level"],
        next(radius for radius in [*auto_record["radii"], 0.0] if radius != used_radius),
    )

    def forged(choices, *arguments, **options):
        rule = rules(choices, *arguments, **options)
        return evolve(rule, choices=tuple(c for c in choices if c.delta == cheaper_radius), thresholds=np.empty(0))

    monkeypatch.setattr(serve, "choose_policy", forged)
    output_folder, result, _ = run(path)
    monkeypatch.setattr(serve, "choose_policy", rules)
    assert result["details"]["delta"] == cheaper_radius
    auto = {"delta": cheaper_radius, "level": level, "radii_cut_short": cut_short}
    _seal_forged_auto(output_folder, result, auto)
    assert not verify(output_folder).holds


@pytest.mark.parametrize("alpha", ["5e-324", "1e-101", "0.0", "1.0"])
def test_refuses_failure_probability_beyond_quantiles(problem, alpha):
    path = problem(5)
    path.write_text(path.read_text().replace("failure_probability = 0.1", f"failure_probability = {alpha}"))
    with pytest.raises(InputError, match=r"failure_probability: .*1e-100.*below 1"):
        run(path)


@pytest.mark.slow
@pytest.mark.parametrize("settings", ["", 'noise = "continuous"', 'margin = "paper"'])
@pytest.mark.parametrize("parameters", [("1e-100", "0.5"), ("0.1", "1e-10"), ("1e-100", "1e300")])
def test_smallest_failure_probability_and_epsilon(problem, settings, parameters):
    """``auto`` bounds the failure by sums whose error is above 1e-100: then the union bound serves."""
    alpha, epsilon = parameters
    path = problem(5, settings=settings, epsilon=epsilon)
    path.write_text(path.read_text().replace("failure_probability = 0.1", f"failure_probability = {alpha}"))
    output_folder, result, _ = run(path)
    assert 0 < result["details"]["failure_probability"]["level"] <= float(alpha)
    assert not verify(output_folder).complaints


def test_single_location(problem):
    for settings in ("", "delta = 0.0", "mean_clients = 2"):
        output_folder, result, _ = run(problem(1, settings=settings))
        assert result["details"]["facilities"] == 1
        assert not verify(output_folder).complaints


def test_largest_count_can_be_published(problem):
    output_folder, _, _ = run(problem(2, clients=[10**12, 0], epsilon="0.001"))
    assert not verify(output_folder).complaints


def test_map_axes_are_in_degrees(problem):
    from privopt_fl_linear.report import plan_map

    output_folder, _, _ = run(problem(columns=("lat", "lon")))
    opened_release = load_release(output_folder)
    figure = plan_map(opened_release.release, opened_release.problem)
    axes = figure.axes[0]
    lat, lon = opened_release.problem.data.coordinates[1].T
    assert axes.get_xlabel() == "longitude (degrees)"
    assert axes.get_xlim()[0] < lon.min() < lon.max() < axes.get_xlim()[1] < lon.max() + 1
    assert axes.get_ylim()[0] < lat.min()
    assert axes.get_aspect() == pytest.approx(1 / math.cos(math.radians(lat.mean())))


def test_page_compares_the_plan_with_others_only(problem):
    """The plan was shown twice, once by the name of the counts that chose it, and all costs had the same digits."""
    path = problem(30, settings="most_facilities = 3\nmean_clients = 4", epsilon="2")
    output_folder, result, release = run(path)
    chosen = result["details"]["told"]["plans"]["chosen"]
    other = ({"prior", "reports"} - {chosen}).pop()
    page = write_report(release.folder).read_text("utf-8")
    assert f"this release (facilities chosen by the {chosen})" in page
    assert f">facilities chosen by the {chosen}<" not in page
    assert f">facilities chosen by the {other}<" in page
    assert "<dt>cost</dt>" in page
    assert "<dt>loss</dt>" not in page
    # Discrete noise gives whole numbers of places.
    assert all(capacity.isdigit() for _, capacity in rows(output_folder / "capacities.csv"))
    assert verify(output_folder).verdict == "declared"


@pytest.mark.parametrize(("name", "delta"), [("n" * 10_000, "0.2"), ("$x_{", "1e300"), ("a\nb", "0")])
def test_page_is_drawn_of_any_name_and_radius(tmp_path, name, delta):
    """Matplotlib warns if names leave no room for the axes, or if an axis would reach to 1e300."""
    (tmp_path / "locations.csv").write_text(
        f'id,x,y,facility_cost,clients\n"{name}",0,0,0.2,40\nb,0.1,0,0.3,35\nc,1,1,0.1,60\n'
    )
    (tmp_path / "p.toml").write_text(
        '[locations]\npoints = "locations.csv"\n[privacy]\nepsilon = 0.5\nfailure_probability = 0.1\n'
        f"[fl-linear]\ndelta = {delta}\n"
    )
    output_folder, _, _ = run(tmp_path / "p.toml")
    page = write_report(output_folder).read_text("utf-8")
    assert ("right of these" in page) == (delta == "1e300")
