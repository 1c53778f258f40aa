"""`privopt plan`: what it tells occurs, no secret is opened for it, and who cannot tell says so."""

from __future__ import annotations

import json
from fractions import Fraction

import numpy as np
import pytest
from attrs import evolve
from click.testing import CliRunner
from helpers.grids import first_alone

from privopt.command.cli import cli
from privopt.declare import load_problem
from privopt.errors import InputError
from privopt.interfaces import SolveContext
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt_hierarchical_dp.groups import read_counts
from privopt_hierarchical_dp.plan import _is_surely_better, errors_on, plan
from privopt_hierarchical_dp.problem import HierarchyProblem, HierarchyTable, Privacy
from privopt_hierarchical_dp.sizes import SizesDesign
from privopt_hierarchical_dp.tree import Tree

COUNTS = "level_1,level_2,size,groups\n" + "".join(
    f"US,S{state},{size},{400 // size + 30 * state}\n" for state in range(4) for size in range(1, 7)
)
REGIONS = "level_1,level_2\n" + "".join(f"US,S{state}\n" for state in range(4))


def _problem(folder, like, extra_settings="", counts=COUNTS):
    if counts is not None:
        (folder / "counts.csv").write_text(counts)
    (folder / "like.csv").write_text(like)
    key = "like" if "groups" in like.split("\n")[0] else "regions"
    path = folder / "p.toml"
    path.write_text(
        f'[hierarchy]\ncounts = "counts.csv"\n{key} = "like.csv"\nsizes = 6\n[privacy]\nepsilon = 0.4\n{extra_settings}'
    )
    return path


def _plan(path, *options):
    completed = CliRunner().invoke(
        cli, ["plan", "hierarchical-dp", str(path), "--json", "--quiet", *options], standalone_mode=False
    )
    return (
        completed.return_value or completed.exit_code,
        json.loads(completed.stdout) if completed.stdout else None,
        completed.stderr,
    )


@first_alone("method", ["hierarchical-dp", "cumulative-smoothed"])
def test_forecast_matches_public_counts(tmp_path, method):
    path = _problem(tmp_path, COUNTS)
    _, forecast, _ = _plan(path, "--method", method)
    assert forecast["parts"] == ["level 1 (1)", "level 2 (4)"]
    assert [row["epsilon"] for row in forecast["errors"]] == ["0.1", "0.2", "0.4", "0.8", "1.6"]
    assert forecast["errors"][0]["by_part"][1] > forecast["errors"][4]["by_part"][1]
    measured = []
    for seed in range(12):
        solve("hierarchical-dp", path, tmp_path / str(seed), Options(method=method, seed=100 + seed))
        measured.append(json.loads((tmp_path / str(seed) / "private/truth.json").read_text())["l1_error_by_level"])
    ratio = np.array(forecast["errors"][2]["by_part"]) / np.mean(measured, axis=0)
    assert ((ratio > 0.6) & (ratio < 1.6)).all()
    best = [Fraction(fraction) for fraction in forecast["best"]["shares"]]
    assert sum(best) == 1
    assert sum(forecast["best"]["by_part"]) <= sum(forecast["errors"][2]["by_part"])


@pytest.mark.slow
@pytest.mark.parametrize("method", ["cumulative-smoothed", "cumulative-dp", "hierarchical-dp"])
def test_best_split_is_forecast_without_luck(tmp_path, method):
    """Three trials of 36 splits have a winner that is lucky by a fifth; fresh ones tell its errors."""
    rng = np.random.default_rng(0)
    (tmp_path / "like.csv").write_text(
        "level_1,level_2,level_3,size,groups\n"
        + "".join(
            f"US,s{s},c{c},{z},{rng.poisson(m)}\n"
            for s in range(3)
            for c in range(4)
            for z, m in enumerate((200, 150, 60, 30, 10), 1)
        )
    )
    path = tmp_path / "p.toml"
    path.write_text('[hierarchy]\nlike = "like.csv"\nsizes = 5\n[privacy]\nepsilon = 0.2\n')
    problem = load_problem(HierarchyProblem, path)
    forecast = plan(problem, "p.toml", SolveContext(method=method))
    groups = read_counts(problem.hierarchy.like, 5)

    def measure_errors(shares):
        split_problem = evolve(problem, settings=evolve(problem.settings, budget=shares))
        return errors_on([groups.leaves] * 150, SizesDesign.of(split_problem, method, groups.tree), seed=5000).sum(
            axis=1
        )

    shares, by_part = forecast.best
    best, default_error = measure_errors(shares), measure_errors(forecast.shares)
    # Thirty trials have a standard error of 4.6 % with four fifths of the budget for the leaves; three are allowed.
    assert sum(by_part) == pytest.approx(best.mean(), rel=0.14)
    assert sum(forecast.errors[Fraction(1, 5)]) == pytest.approx(default_error.mean(), rel=0.14)
    assert shares == forecast.shares or best.mean() < default_error.mean()


def test_split_is_better_only_beyond_chance():
    rng = np.random.default_rng(3)
    errors = 300 + rng.normal(0, 17, 30)
    assert not _is_surely_better(errors, errors)
    assert _is_surely_better(errors - 1, errors)  # the same draws: the difference is sure
    lucky = errors + rng.normal(0, 17, errors.shape)
    lucky += (errors - lucky).mean() - 3.0  # better by 3, of which the doubt is 3
    assert not _is_surely_better(lucky, errors)
    assert _is_surely_better(np.array([3.0]), np.array([4.0]))


def test_plan_opens_no_secret(tmp_path):
    forecast = _plan(_problem(tmp_path, COUNTS))
    assert _plan(_problem(tmp_path, COUNTS, counts="nonsense")) == forecast
    (tmp_path / "counts.csv").unlink()
    assert _plan(_problem(tmp_path, COUNTS, counts=None)) == forecast


@pytest.mark.parametrize(
    ("method", "extra_settings"),
    [
        ("cumulative-dp", ""),
        pytest.param("cumulative-smoothed", "", marks=pytest.mark.slow),
        ("cumulative-smoothed", "[hierarchical-dp]\nbudget = [1, 10000]\n"),  # noise as narrow as 1 on the leaves
        pytest.param("top-down", "", marks=pytest.mark.slow),
        ("hierarchical-dp", "[hierarchical-dp]\nbudget = [1, 3]\n"),
        pytest.param("hierarchical-dp", "[hierarchical-dp]\nregion_totals = true\n", marks=pytest.mark.slow),
    ],
)
def test_regions_alone_forecast_the_fit(tmp_path, method, extra_settings):
    """400 seeded releases of counts so large that nothing is cut off at 0 (tests/bench/bench_forecasts.py has all)."""
    path = _problem(tmp_path, REGIONS, extra_settings)
    _, forecast, _ = _plan(path, "--method", method)
    assert "non-negative" in forecast["notes"][0]
    tree = Tree.from_paths([("US", f"S{state}") for state in range(4)])
    leaves = np.random.default_rng(1).integers(4_000, 40_000, (4, 6))
    design = SizesDesign.of(load_problem(HierarchyProblem, path), method, tree)
    measured = errors_on([leaves] * 400, design).mean(axis=0)
    np.testing.assert_allclose(forecast["errors"][2]["by_part"], measured, rtol=0.07)


@pytest.mark.parametrize(
    ("like", "extra_settings", "words"),
    [
        (COUNTS, "[hierarchical-dp]\nbudget = [1, 2, 3]\n", "hierarchical-dp.budget"),
        ("level_1,size\n", "", "a header alone"),
        ("region\nUS\n", "", "level_1"),
        (COUNTS.replace("400", "-4"), "", "like.csv"),
    ],
)
def test_names_wrong_input(tmp_path, like, extra_settings, words):
    code, forecast, message = _plan(_problem(tmp_path, like, extra_settings))
    assert (code, forecast) == (2, None)
    assert words in message


def test_refuses_mechanisms_without_forecast(tmp_path):
    path = tmp_path / "p.toml"
    path.write_text("[records]\ngrid = { rows = 2, cols = 2, cell_km = 1.0 }\n[privacy]\nepsilon = 1.0\n")
    completed = CliRunner().invoke(cli, ["plan", "exponential", str(path)], standalone_mode=False)
    assert (completed.return_value or completed.exit_code) == 2
    assert "cannot predict" in completed.stderr
    assert _plan(_problem(tmp_path, COUNTS), "--method", "cumulative-chain-as-published")[0] == 2
    path.write_text("[hierarchy]\nsizes = 6\n[privacy]\nepsilon = 1\n")
    code, _, message = _plan(path)
    assert code == 2
    assert "hierarchy.like" in message


@pytest.mark.parametrize(
    ("epsilon", "method", "extra_settings", "words"),
    [
        (
            "1e-200",
            "cumulative-dp",
            "",
            "at most 1,099,511,627,776",
        ),
        ("1e-400", "hierarchical-dp", "", "privacy.epsilon"),
        ("0.4", "cumulative-smoothed", "[hierarchical-dp]\nregion_totals = false\n", "hierarchical-dp.region_totals"),
        ("0.4", "hierarchical-relaxed", "[hierarchical-dp]\nregion_totals = true\n", "hierarchical-dp.region_totals"),
    ],
)
@pytest.mark.parametrize("like", [COUNTS, REGIONS])
def test_has_no_plan_for_what_solve_refuses(tmp_path, like, epsilon, method, extra_settings, words):
    path = _problem(tmp_path, like, extra_settings)
    path.write_text(path.read_text().replace("0.4", epsilon))
    code, forecast, message = _plan(path, "--method", method)
    assert (code, forecast) == (2, None)
    assert words in message
    with pytest.raises(InputError, match=words.rsplit(":", maxsplit=1)[0].replace("+", r"\+")):
        solve("hierarchical-dp", path, tmp_path / "o", Options(method=method))


def test_plans_within_the_smallest_budget(tmp_path):
    """Half of the least epsilon would be refused, and so is what splits it unevenly."""
    path = _problem(tmp_path, "level_1,level_2\nUS,S1\nUS,S2\n")
    path.write_text(path.read_text().replace("0.4", "2e-12"))
    code, forecast, _ = _plan(path, "--method", "cumulative-dp")
    assert code == 0
    assert [Fraction(row["epsilon"]) / Fraction("2e-12") for row in forecast["errors"]] == [1, 2, 4]


@pytest.mark.parametrize(
    "privacy",
    [
        *(Privacy(epsilon=Fraction(epsilon_text)) for epsilon_text in ("1/10", "1/5", "1")),
        Privacy(kind="zcdp", rho=Fraction(1, 50)),
    ],
    ids=lambda epsilon_text: f"{epsilon_text.kind} {epsilon_text.budget}",
)
def test_default_split_is_as_good_as_leaves_only(privacy):
    """20 seeded releases of 24 districts in 4 quarters; with half of the budget the leaves had 1.16 to 1.25 times."""
    tree = Tree.from_paths([("city", f"q{k // 6}", f"d{k}") for k in range(24)])
    rng = np.random.default_rng(7)
    leaves = np.array([rng.multinomial(9_000 + 400 * k, [0.38, 0.29, 0.14, 0.12, 0.07]) for k in range(24)])
    problem = HierarchyProblem(hierarchy=HierarchyTable(sizes=5), privacy=privacy)
    design = SizesDesign.of(problem, "cumulative-smoothed", tree)
    ratio = errors_on([leaves] * 20, design).mean(axis=0) / design.leaves_only()
    assert (ratio < 1.02).all()
