"""What a promise comes to: figures always, warnings where it hides next to nothing."""

import math
import re
from decimal import Decimal

import numpy as np
import pytest
from helpers.command import run
from helpers.mentions import assert_mentions
from hypothesis import given
from hypothesis import strategies as st

from privopt.errors import InputError
from privopt.report.write_report import write_report
from privopt.run.solve import solve
from privopt_metric_dp.attacks.meaning import _format_factor

PROBLEM = """
[records]
{records}
[distance]
kind = "euclidean"
[privacy]
epsilon = {epsilon}
{within}
[utility]
kind = "distance"
{prior}
"""


def write_problem(folder, points, epsilon, *, limit="", prior=None):
    """Return a problem over planar points or vectors."""
    folder.mkdir(exist_ok=True)
    points = np.asarray(points, dtype=float)
    if points.shape[1] == 2:
        rows = "".join(f"p{n},{x!r},{y!r}\n" for n, (x, y) in enumerate(points.tolist()))
        (folder / "points.csv").write_text("id,x,y\n" + rows)
        records = 'points = "points.csv"'
    else:
        np.save(folder / "v.npy", points)
        records = 'vectors = "v.npy"'
    if prior is not None:
        (folder / "prior.csv").write_text("id,p\n" + "".join(f"p{n},{p!r}\n" for n, p in enumerate(prior)))
    text = PROBLEM.format(
        records=records,
        epsilon=epsilon,
        within=f"neighbours_within = {limit}" if limit else "",
        prior='prior = "prior.csv"' if prior is not None else "",
    )
    (folder / "problem.toml").write_text(text)
    return folder / "problem.toml"


def solve_exponential(problem):
    return solve("exponential", problem, problem.parent / "out")


def line(n, step=1.0):
    return [(step * index, 0.0) for index in range(n)]


def test_warns_if_the_promise_hides_nothing(tmp_path, undrawn):
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(60, 40))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    release = solve_exponential(write_problem(tmp_path / "v", vectors, 20))
    distances = np.linalg.norm(vectors[:, None] - vectors[None], axis=2)
    distances[np.eye(60, dtype=bool)] = np.inf
    assert f"by at most {math.ceil(math.exp(20 * distances.min())):,}." in release.meaning[0]
    assert any("next to nothing" in text and "at the median" in text for text in release.warnings)
    assert any("best guess" in text for text in release.warnings)
    report = write_report(release.folder).read_text()
    assert "next to nothing" in report
    assert "the promise means" in report


def test_figures_match_the_release(tmp_path):
    release = solve_exponential(
        write_problem(tmp_path / "line", [(0, 0), (1, 0), (3, 0), (3, 2.5)], 0.25, prior=[0.1, 0.2, 0.3, 0.4])
    )
    with np.load(release.folder / "mechanism.npz") as archive:
        z = archive["weights"] / 2.0**63
    guess = (np.array([0.1, 0.2, 0.3, 0.4])[:, None] * z).max(axis=0).sum()
    assert release.warnings == ()
    # nearest neighbours at 1, 1, 2 and 2.5
    assert_mentions(
        release.meaning[0],
        f"at most {math.ceil(100 * math.exp(0.25 * 1.5)) / 100};",
        "(1.5 km apart as the crow flies)",
    )
    assert_mentions(release.meaning[0], "p0 (x 0 km", "p1 (x 1 km", f"at most {math.ceil(100 * math.exp(0.25)) / 100}")
    assert_mentions(release.meaning[1], f" {100 * guess:.3g} times in 100", "without a report, 40 times.")


def test_revealing_prior_is_not_blamed_on_release(tmp_path):
    release = solve_exponential(write_problem(tmp_path / "sure", line(2), 0.1, prior=[0.97, 0.03]))
    assert_mentions(release.meaning[1], " 97 times in 100", "without a report, 97 times.")
    assert release.warnings == ()


def test_records_at_one_place_hide_each_other(tmp_path):
    release = solve_exponential(write_problem(tmp_path / "one", [(1, 1)] * 3, 1.0))
    coincidence, guess = release.meaning
    assert "coincide" in coincidence
    assert_mentions(guess, " 33.3 times in 100", "without a report, 33.3 times.")
    assert release.warnings == ()


def test_certainty_is_never_rounded_up(tmp_path):
    release = solve_exponential(write_problem(tmp_path / "far", line(3, 20.0), 1.0))
    percent = re.search(r" (\d[\d.]*) times in 100", release.meaning[1])
    assert percent is not None
    assert 99.0 < float(percent[1]) < 100.0


def test_refuses_limit_below_smallest_distance(tmp_path):
    problem = write_problem(tmp_path / "apart", line(4), 1.0, limit="0.999")
    with pytest.raises(InputError, match=r"neighbours_within: .*1\.0.*0\.999 km.*1\.0"):
        solve_exponential(problem)
    assert (
        solve_exponential(write_problem(tmp_path / "joined", line(4), 1.0, limit="1.0")).result.certificate.checked
        == 12
    )


def test_names_records_without_neighbours(tmp_path):
    places = [*line(4), (50, 0), (60, 0), (70, 0), (80, 0)]
    release = solve_exponential(write_problem(tmp_path / "lone", places, 0.5, limit="1.5"))
    assert_mentions(release.warnings[0], "4 of 8 records", "1.5 km", "p4 (x 50 km", "p5", "p6", "promised for them")
    release = solve_exponential(write_problem(tmp_path / "single", [*line(4), (50, 0)], 0.5, limit="1.5"))
    assert_mentions(release.warnings[0], "1 of 5 records has", "p4 (x 50 km", "promised for it")


@given(st.floats(0, 700))
def test_factors_are_never_rounded_down(exponent):
    """The text follows "at most", so it states no less than the factor, and at most one hundredth more."""
    stated, factor = Decimal(_format_factor(exponent).replace(",", "")), Decimal(exponent).exp()
    assert factor <= stated <= factor * Decimal("1.01")


def test_solve_prints_warnings_and_meaning(tmp_path):
    problem = write_problem(tmp_path / "far", line(3, 20.0), 1.0)
    completed = run("solve", "exponential", problem, "--out", tmp_path / "out")
    assert completed.exit_code == 0
    assert "next to nothing" in completed.stderr
    assert "changes the odds" in completed.stderr


@pytest.mark.parametrize(("epsilon", "is_warned"), [(0.5, False), (2.0, True), (20.0, True)])
def test_warns_if_one_report_names_the_place_in_half_of_the_cases(tmp_path, epsilon, is_warned):
    release = solve_exponential(write_problem(tmp_path / "line", line(6), epsilon))
    with np.load(release.folder / "mechanism.npz") as archive:
        guess_rate = (archive["weights"] / 2.0**63).max(axis=0).sum() / 6
    assert (guess_rate >= 0.5) == is_warned
    assert any("best guess" in text for text in release.warnings) == is_warned
