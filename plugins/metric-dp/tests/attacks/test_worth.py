"""What a promise comes to: figures always, warnings where it hides next to nothing."""

import math
import re

import numpy as np
import pytest
from helpers.command import run

from privopt.errors import InputError
from privopt.report.write_report import write_report
from privopt.run.solve import solve

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


def written(folder, points, epsilon, *, within="", prior=None):
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
        within=f"neighbours_within = {within}" if within else "",
        prior='prior = "prior.csv"' if prior is not None else "",
    )
    (folder / "problem.toml").write_text(text)
    return folder / "problem.toml"


def found(problem):
    return solve("exponential", problem, problem.parent / "out")


def line(n, step=1.0):
    return [(step * place, 0.0) for place in range(n)]


def test_a_promise_that_hides_nothing_is_called_so(tmp_path, undrawn):
    rng = np.random.default_rng(3)
    vectors = rng.normal(size=(60, 40))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    done = found(written(tmp_path / "v", vectors, 20))
    away = np.linalg.norm(vectors[:, None] - vectors[None], axis=2)
    away[np.eye(60, dtype=bool)] = np.inf
    assert f"by at most {math.exp(20 * away.min()):,.0f}." in done.meaning[0]
    assert any("hides next to nothing" in text and "at the median" in text for text in done.warnings)
    assert any("best guess" in text for text in done.warnings)
    report = write_report(done.folder).read_text()
    assert "Warning: the promise hides next to nothing" in report
    assert "What the promise means" in report


def test_figures_are_those_of_the_release(tmp_path):
    done = found(written(tmp_path / "line", [(0, 0), (1, 0), (3, 0), (3, 2.5)], 0.25, prior=[0.1, 0.2, 0.3, 0.4]))
    with np.load(done.folder / "mechanism.npz") as archive:
        z = archive["weights"] / 2.0**63
    guess = (np.array([0.1, 0.2, 0.3, 0.4])[:, None] * z).max(axis=0).sum()
    assert done.warnings == ()
    # nearest neighbours at 1, 1, 2 and 2.5
    assert f"factor of at most {math.exp(0.25 * 1.5):.3g} at the median distance of 1.5 km" in done.meaning[0]
    assert f"p0 (x 0 km, y 0 km) and p1 (x 1 km, y 0 km), by at most {math.exp(0.25):.3g}" in done.meaning[0]
    assert f"right in {100 * guess:.1f} % of cases; without any report in 40.0 %" in done.meaning[1]


def test_a_prior_that_gives_the_record_away_is_no_fault_of_the_release(tmp_path):
    done = found(written(tmp_path / "sure", line(2), 0.1, prior=[0.97, 0.03]))
    assert "right in 97.0 % of cases; without any report in 97.0 %" in done.meaning[1]
    assert done.warnings == ()


def test_records_at_one_place_are_hidden_among_each_other(tmp_path):
    done = found(written(tmp_path / "one", [(1, 1)] * 3, 1.0))
    assert len(done.meaning) == 1
    assert "right in 33.3 % of cases; without any report in 33.3 %" in done.meaning[0]
    assert done.warnings == ()


def test_certainty_is_never_rounded_up(tmp_path):
    done = found(written(tmp_path / "far", line(3, 20.0), 1.0))
    percent = re.search(r"right in ([\d.]+) %", done.meaning[1])
    assert percent is not None
    assert 99.0 < float(percent[1]) < 100.0


def test_a_limit_below_the_least_distance_is_bad_input(tmp_path):
    problem = written(tmp_path / "apart", line(4), 1.0, within="0.999")
    with pytest.raises(InputError, match=r"neighbours_within: expected at least 1\.0.*, got 0\.999 km, below .* 1\.0"):
        found(problem)
    assert found(written(tmp_path / "joined", line(4), 1.0, within="1.0")).result.certificate.checked == 12


def test_records_without_a_neighbour_are_named(tmp_path):
    places = [*line(4), (50, 0), (60, 0), (70, 0), (80, 0)]
    done = found(written(tmp_path / "lone", places, 0.5, within="1.5"))
    assert done.warnings[0] == (
        "4 of 8 records have no neighbour within 1.5 km (p4 (x 50 km, y 0 km), p5 (x 60 km, y 0 km), "
        "p6 (x 70 km, y 0 km), ...): nothing is promised of them"
    )


def test_solve_says_it_in_the_terminal(tmp_path):
    problem = written(tmp_path / "far", line(3, 20.0), 1.0)
    done = run("solve", "exponential", problem, "--out", tmp_path / "out")
    assert done.exit_code == 0
    assert "warning: the promise hides next to nothing" in done.stderr
    assert "One report changes the odds" in done.stderr
