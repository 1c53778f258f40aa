"""Weights of the users' own stay in private/, and rows around a public reference keep the promise whatever they are."""

from __future__ import annotations

import json
import shutil
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linprog

from privopt.declare import load_problem
from privopt.errors import DoesNotHoldError, InputError
from privopt.numbers.exp_log_bounds import log_bounds
from privopt.numbers.sampling import TOTAL
from privopt.run.options import Options
from privopt.run.solve import solve
from privopt.run.verify import load_release, open_to_sample, verify
from privopt_lr_geo.private import Band, own_row
from privopt_lr_geo.problem import LRGeoInstance, LRGeoProblem
from privopt_metric_dp.matrix.certify import certify
from privopt_metric_dp.matrix.release import MatrixRelease

EXTRA = 'private_weights = "weights.csv"\n'
MINE = "user,id,weight\n1-1,0-0,3\n1-1,4-4,1\n2-3,2-3,1\n"
THEIRS = "user,id,weight\n2-3,0-4,5\n1-1,4-0,2\n"


@pytest.fixture
def private(write):
    """Return a problem whose users have weights of their own."""

    def made(name, weights=MINE, extra=EXTRA, **changes):
        path = write(name, extra, **changes)
        path.write_text(path.read_text().replace('kind = "distance"', 'kind = "travel-cost"'))
        (path.parent / "weights.csv").write_text(weights)
        return path

    return made


def solved(path, method="exact"):
    return solve("lr-geo", path, path.parent / "out", Options(method=method, gap=1e-3))


def public_files(folder):
    """Bytes of all outside private/, without seconds."""
    found = {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}
    found = {name: raw for name, raw in found.items() if not name.startswith("private/") and name != "SHA256SUMS"}
    result = json.loads(found.pop("result.json"))
    result.pop("time")
    result["details"].get("told", {}).pop("trajectory", None)  # seconds again
    return found | {"result.json": result}


@pytest.mark.parametrize("others", [THEIRS, "user,id,weight\n1-1,1-1,1e-9\n"])
def test_nothing_published_depends_on_the_weights(private, others):
    one, other = solved(private("one")).folder, solved(private("other", others)).folder
    assert public_files(one) == public_files(other)
    assert "weights.csv" not in public_files(one)
    rows = [MatrixRelease.load(folder / "private" / "mechanism.npz").weights for folder in (one, other)]
    assert not np.array_equal(*rows)
    assert set(json.loads((one / "private" / "truth.json").read_text())) == {"1-1", "2-3"}


def test_rows_of_any_two_users_keep_the_promise_whatever_their_weights(private):
    folders = [solved(private(f"p{n}", weights)).folder for n, weights in enumerate((MINE, THEIRS))]
    releases = [load_release(folder) for folder in folders]
    data, band = releases[0].problem.data, releases[0].problem.band
    assert releases[0].result.guarantee.epsilon == data.epsilon
    assert releases[0].result.certificate.worst <= data.epsilon
    places = [data.records.ids.index(name) for name in releases[0].release.records.tolist()]
    near = float(data.metric.between(np.array(places[:1]), np.array(places[1:]))[0])
    rows = [row for opened in releases for row in opened.release.own.weights]
    for (a, first), (b, second) in combinations(enumerate(rows), 2):
        if a % 2 != b % 2:
            assert certify(np.array([first, second]), np.array([[0, 1]]), np.array([near]), data.epsilon).holds
        for x, y in zip(first.tolist(), second.tolist(), strict=True):
            if a % 2 == b % 2:
                assert x <= band.ratio * y
                assert y <= band.ratio * x


@given(
    weights=st.lists(st.integers(0, 1000), min_size=2, max_size=7).filter(any),
    costs=st.lists(st.integers(0, 5), min_size=7, max_size=7),
    low=st.fractions(Fraction(1, 20), 1, max_denominator=30),
    high=st.fractions(1, 20, max_denominator=30),
)
def test_the_row_is_the_best_inside_the_band(weights, costs, low, high):
    reference = [w * (TOTAL // sum(weights)) for w in weights]
    reference[int(np.argmax(weights))] += TOTAL - sum(reference)
    band = Band(epsilon=Fraction(1), low=low, high=high, least=Fraction(1))
    g, cost = np.array(reference, dtype=np.uint64), np.array(costs[: len(weights)], dtype=float)
    row = own_row(g, cost, band)
    assert band.holds(row, g)
    shares = np.array(reference) / TOTAL
    ends = [(float(low) * p, float(high) * p) for p in shares]
    best = linprog(cost, A_eq=np.ones((1, len(shares))), b_eq=[1], bounds=ends)
    assert float(cost @ (row / TOTAL)) == pytest.approx(best.fun, abs=1e-9)


@given(epsilon=st.fractions(Fraction(1, 100), 40), share=st.fractions(Fraction(1, 50), Fraction(49, 50)))
def test_the_band_takes_no_more_than_its_share(epsilon, share):
    class Map:
        distances = np.array([0.0, 0.75, 1.0])

    Map.epsilon = epsilon
    band = Band.from_share(Map(), share)
    assert band.low <= 1 <= band.high
    assert band.epsilon + Fraction(band.spent) <= epsilon * (1 + Fraction(1, 2**50))
    assert Fraction(log_bounds(band.ratio, Fraction(3, 4))[0]) <= epsilon * share


def test_users_draw_from_their_own_rows_and_everybody_else_from_the_published(private):
    folder = solved(private("p")).folder
    _, mine = open_to_sample(folder)
    own = MatrixRelease.load(folder / "private" / "mechanism.npz")
    assert np.array_equal(mine.weights, own.weights)
    truth = json.loads((folder / "private" / "truth.json").read_text())
    assert all(loss["own_row"] < loss["published_row"] for loss in truth.values())
    assert verify(folder).verdict == "proved"
    shutil.rmtree(folder / "private")
    assert verify(folder).verdict == "proved"
    _, others = open_to_sample(folder)
    assert np.array_equal(others.weights, load_release(folder).release.weights)
    assert not np.array_equal(others.weights, own.weights)


def test_a_row_beyond_the_band_does_not_hold(private):
    folder = solved(private("p")).folder
    opened = load_release(folder)
    forged = opened.release.own.weights.copy()
    forged[0] = 0
    forged[0, 3] = TOTAL
    with np.load(folder / "private" / "mechanism.npz") as archive:
        parts = dict(archive)
    np.savez(folder / "private" / "mechanism.npz", **(parts | {"weights": forged}))
    lines = opened.mechanism.verify(opened.problem, load_release(folder).release, opened.result)
    assert lines == ["private/mechanism.npz: weights: row 1-1 lies beyond what the promise allows"]
    with pytest.raises(DoesNotHoldError):
        open_to_sample(folder)


@pytest.mark.parametrize(
    ("weights", "what"),
    [
        ("user,id,weight\n0-0,0-0,1\n", "user: found 0-0, wanted one of lr-geo.users"),
        ("user,id,weight\n1-1,9-9,1\n", "column id: found '9-9', wanted the id of a record"),
        ("user,id,weight\n1-1,0-0,1\n1-1,0-0,2\n", "a target of user '1-1' twice"),
        ("user,id,weight\n1-1,0-0,0\n", "a sum of 0 of user '1-1'"),
        ("user,id\n1-1,0-0\n", "weight"),
    ],
)
def test_bad_weights_are_one_line_each(private, weights, what):
    with pytest.raises(InputError, match=r"weights\.csv") as caught:
        LRGeoInstance.of(load_problem(LRGeoProblem, private("p", weights)))
    assert what in str(caught.value)


@pytest.mark.parametrize("method", ["benders", "full"])
def test_methods_that_upload_costs_refuse_private_weights(private, method):
    with pytest.raises(InputError, match=r"lr-geo\.private_weights: .* upload their costs"):
        solved(private("p"), method)


def test_what_does_not_go_with_private_weights(private):
    path = private("p")
    path.write_text(path.read_text().replace('kind = "travel-cost"', 'kind = "distance"'))
    with pytest.raises(InputError, match=r'wanted utility\.kind = "travel-cost"'):
        solved(path)
    path = private("q", extra=EXTRA + "private_share = 1\n")
    with pytest.raises(InputError, match=r"private_share.*a number above 0 and below 1"):
        load_problem(LRGeoProblem, path)
