"""certify: the least epsilon of a matrix from elsewhere, and a release made from it."""

import json
import math
from fractions import Fraction

import numpy as np
import pytest
from helpers.toys import grid_text
from hypothesis import given
from hypothesis import strategies as st
from mpmath import mp, mpf

import privopt as po
from privopt import checker
from privopt.declare.schema import File
from privopt.errors import InputError
from privopt.numbers import TOTAL
from privopt.run.options import Options
from privopt.run.verify import verify
from privopt_metric_dp.matrix.certify import certify as certify_weights
from privopt_metric_dp.matrix.least_epsilon import least_epsilon
from privopt_metric_dp.mechanisms.certify_matrix import certify, measure, repair
from privopt_metric_dp.mechanisms.given_matrix import GivenMatrix

TEXT = grid_text(3, 3) + "[lr-geo]\nradius = 3.0\n"
PLACES = np.array([(c, r) for r in range(3) for c in range(3)], dtype=float)
APART = np.hypot(*(PLACES[:, None] - PLACES).transpose(2, 0, 1))
PAIRS = np.array([(i, j) for i in range(9) for j in range(i + 1, 9)])


def exponential(rate):
    z = np.exp(-rate * APART)
    return z / z.sum(axis=1, keepdims=True)


def as_weights(z):
    weights = np.floor(z * (float(TOTAL) * (1.0 - 2.0**-40))).astype(np.uint64)
    for row in weights:
        row[row.argmax()] += np.uint64(TOTAL - sum(row.tolist()))
    return weights


def by_hand(z, pairs, distances):
    """Greatest log ratio / distance, in 300 bits."""
    sums = [sum(map(Fraction, row.tolist())) for row in z]
    worst = mpf(0)
    with mp.workprec(300):
        for (i, j), distance in zip(pairs.tolist(), distances.tolist(), strict=True):
            for k in range(z.shape[1]):
                a, b = (Fraction(z[row, k].item()) / sums[row] for row in (i, j))
                if a == b:
                    continue
                if not a or not b or not distance:
                    return mpf("inf")
                ratio = max(a / b, b / a)
                worst = max(worst, mp.log(mpf(ratio.numerator) / mpf(ratio.denominator)) / mpf(distance))
    return worst


entries = st.one_of(st.floats(0.0, 1.0), st.sampled_from([0.0, 5e-324, 1e-300, 1e-18, 1.0]))


@pytest.mark.parametrize("factor", [0.6369616873214543, 0.537, 3e-310, 1e300])
def test_rows_that_differ_by_a_factor_are_equal(factor):
    """Logarithms of a sum's numerator and denominator are tens, and their last places were taken for a difference."""
    found = least_epsilon(np.array([[1.0], [factor]]), np.array([[0, 1]]), np.array([0.0]), Fraction(1))
    assert found.epsilon == 0.0


@given(st.data())
def test_the_least_epsilon_is_the_one_by_hand(data):
    rows, columns = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 4))
    z = np.array(
        data.draw(st.lists(st.lists(entries, min_size=columns, max_size=columns), min_size=rows, max_size=rows))
    )
    z[:, 0] += z.sum(axis=1) == 0
    if data.draw(st.booleans()):
        z = (z * 2.0**60).astype(np.uint64) + np.uint64(1)
    pairs = np.array([(i, j) for i in range(rows) for j in range(i + 1, rows)])
    distances = np.array([data.draw(st.sampled_from([0.0, 0.1, 1.0, 3.0])) for _ in pairs])
    asked = Fraction(data.draw(st.sampled_from(["0.5", "1", "700"])))
    found, wanted = least_epsilon(z, pairs, distances, asked), by_hand(z, pairs, distances)
    assert wanted <= mpf(found.epsilon) <= wanted * (1 + mpf(2) ** -50)
    assert found.holds is bool(wanted <= mpf(asked.numerator) / asked.denominator)
    if found.pair is None:
        assert wanted == 0
    elif wanted < mp.inf:
        i, j = found.pair
        at = np.flatnonzero(np.sort(pairs, axis=1)[:, 0] * rows + pairs[:, 1] == min(i, j) * rows + max(i, j))
        own = by_hand(z[[i, j]][:, [found.output]], np.array([[0, 1]]), distances[at]) if columns == 1 else None
        assert own is None or own == wanted
        sums = [Fraction(sum(map(Fraction, z[row].tolist()))) for row in (i, j)]
        assert Fraction(z[i, found.output].item()) / sums[0] > Fraction(z[j, found.output].item()) / sums[1]


def test_a_matrix_that_keeps_epsilon_to_the_last_bit_holds():
    """exp(-d) over a line, truncated: every neighbouring pair is at its limit, up to the roundings of doubles."""
    weights = as_weights(exponential(0.7))
    distances = APART[PAIRS[:, 0], PAIRS[:, 1]]
    least = least_epsilon(weights, PAIRS, distances, Fraction(1))
    for epsilon in (Fraction(least.epsilon), Fraction(math.nextafter(least.epsilon, 0)), Fraction(1, 3)):
        certified = certify_weights(weights, PAIRS, distances, epsilon)
        assert least_epsilon(weights, PAIRS, distances, epsilon).holds is certified.holds
    assert not least_epsilon(weights, PAIRS, distances, Fraction(math.nextafter(least.epsilon, 0))).holds


@pytest.fixture
def run(privopt):
    """Return the command line, its exit code looked at."""

    def done(*arguments, code=0):
        found = privopt(*arguments, *(["--quiet"] if arguments[0] == "certify" else []))
        assert found.returncode == code, found.stderr
        return found

    return done


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "problem.toml").write_text(TEXT)
    np.save(tmp_path / "good.npy", exponential(0.4))
    np.save(tmp_path / "weights.npy", as_weights(exponential(0.4)))
    np.save(tmp_path / "steep.npy", exponential(0.9))
    np.save(tmp_path / "eye.npy", np.eye(9))
    return tmp_path


KEYS = ["epsilon", "asked", "holds", "pair", "output", "loss", "lower_bound"]


@pytest.mark.parametrize(("name", "code"), [("good", 0), ("weights", 0), ("steep", 1), ("eye", 1)])
def test_the_command_says_what_a_matrix_keeps(folder, run, name, code):
    done = run("certify", str(folder / f"{name}.npy"), str(folder / "problem.toml"), "--json", code=code)
    found = json.loads(done.stdout)
    assert list(found) == KEYS
    assert (found["asked"], found["holds"], found["lower_bound"]) == (1.0, code == 0, None)
    z = np.load(folder / f"{name}.npy")
    worst = by_hand(z, PAIRS, APART[PAIRS[:, 0], PAIRS[:, 1]])
    assert found["epsilon"] == "inf" if name == "eye" else worst <= found["epsilon"] <= worst * (1 + mpf(2) ** -50)
    assert found["loss"] == pytest.approx(float((z / z.sum(axis=1, keepdims=True) * APART).sum() / 9))
    i, j = (int(name[1]) * 3 + int(name[3]) for name in found["pair"])
    k = int(found["output"][1]) * 3 + int(found["output"][3])
    assert name == "eye" or math.log(z[i, k] / z[j, k]) / APART[i, j] == pytest.approx(found["epsilon"], rel=1e-9)


def test_a_bound_is_there_where_a_gap_is_asked_for(folder, run):
    paths = str(folder / "good.npy"), str(folder / "problem.toml")
    found = json.loads(run("certify", *paths, "--gap", "1e-4", "--json").stdout)
    best = po.solve("optimal-lp", folder / "problem.toml", gap=1e-4)
    assert best.loss * (1 - 2e-4) <= found["lower_bound"] <= best.loss <= found["loss"]


@pytest.mark.parametrize("name", ["good", "weights", "steep", "eye"])
def test_a_repaired_matrix_is_a_release_like_any_other(folder, run, name):
    out = folder / "out"
    more = ["--gap", "1e-3"] if name == "eye" else []
    files = [folder / f"{name}.npy", folder / "problem.toml"]
    done = run("certify", *files, "--repair", "--out", out, *more, "--json")
    assert list(json.loads(done.stdout)) == KEYS
    result = verify(out)
    assert (result.holds, result.verdict, checker.check(out, lambda line: None)) == (True, "proved", 0)
    released = po.open(out)
    assert released.result.mechanism == "given"
    assert (released.bound is None) is (name != "eye")
    assert released.sample("r1c1")
    assert released.audit()["epsilon"]["achieved"] <= 1.0
    assert len(released.apply({"id": ["r0c0", "r2c2"]}, id="id")["report"]) == 2
    if name == "weights":
        assert np.array_equal(released.opened.release.weights, np.load(folder / "weights.npy"))


def test_python_takes_arrays_and_problems_in_memory():
    places = po.grid(rows=3, cols=3, cell_km=1)
    problem = po.metric_problem(places, distance="euclidean", epsilon="1/km")
    found = po.certify(exponential(0.9), problem)
    assert not found.holds
    assert found.sentences()[0].startswith(f"keeps epsilon {found.epsilon:.12g} per km, reached by")
    assert po.solve("given", found.problem).certificate.holds
    assert po.certify(np.full((9, 9), 1 / 9), problem).pair is None


def made_faulty():
    nan, negative, endless, off = (exponential(0.4) for _ in range(4))
    nan[0, 1], negative[2, 3], endless[4, 4] = np.nan, -1e-300, np.inf
    off[5] *= 1 + 3e-6
    weights = as_weights(exponential(0.4))
    weights[7, 1] += np.uint64(1)
    yield nan, r"row 0, column 1 \(from 0\): expected a probability.*, got nan"
    yield negative, r"row 2, column 3 \(from 0\): expected a probability.*, got -1e-300"
    yield endless, r"row 4, column 4 \(from 0\): expected a probability.*, got inf"
    yield off, r"row 5 \(from 0\): expected .*, got a sum of 1\.000003"
    yield weights, r"row 7 \(from 0\): expected 2\*\*63.*, got a sum of 9223372036854775809"
    wide = r"expected probabilities or uint64 weights, 9 records x 9 outputs, got an array of shape 9 x 5"
    yield exponential(0.4)[:, :5], wide
    yield exponential(0.4).astype(complex), "got values of type complex128"


@pytest.mark.parametrize("turned", [exponential(0.4).T, as_weights(exponential(0.4)).T], ids=["doubles", "weights"])
def test_a_transposed_matrix_is_one_line(folder, turned):
    np.save(folder / "turned.npy", turned)
    with pytest.raises(InputError, match="got a transposed matrix") as caught:
        certify(folder / "turned.npy", folder / "problem.toml")
    assert len(caught.value.faults) == 1
    assert "a row for each record" in str(caught.value)


def test_a_matrix_of_the_transposed_shape_is_called_so():
    with pytest.raises(InputError, match=r"expected .* 3 records x 2.*, got an array of shape 2 x 3 \(transposed\?\)"):
        GivenMatrix.of(np.full((2, 3), 0.5), (3, 2))


@pytest.mark.parametrize(("matrix", "words"), list(made_faulty()))
def test_what_is_no_matrix_is_refused(folder, run, matrix, words):
    np.save(folder / "bad.npy", matrix)
    with pytest.raises(InputError, match=words):
        certify(folder / "bad.npy", folder / "problem.toml")
    files = [folder / "bad.npy", folder / "problem.toml"]
    done = run("certify", *files, "--repair", "--out", folder / "out", code=2)
    assert not (folder / "out").exists()
    assert not done.stdout
    assert done.stderr.startswith("bad.npy: ")


@pytest.mark.parametrize(
    "arguments",
    [
        ["good.npy", "gone.toml"],
        ["gone.npy", "problem.toml"],
        ["problem.toml", "problem.toml"],
        ["good.npy", "problem.toml", "--repair"],
        ["good.npy", "problem.toml", "--out", "out"],
        ["good.npy", "problem.toml", "--gap", "1"],
        ["good.npy", "problem.toml", "--gap", "1e-3", "--solver", "nosuch"],
    ],
)
def test_bad_usage_ends_with_2_and_writes_nothing(folder, run, arguments):
    named = [str(folder / one) if "." in one and one[0] != "-" else one for one in arguments]
    done = run("certify", *named, code=2)
    assert "Traceback" not in done.stderr
    assert not done.stdout
    assert not (folder / "out").exists()


def test_what_is_missing_is_named(folder, run, monkeypatch):
    monkeypatch.chdir(folder)
    for arguments, named in (
        (["good.npy", "gone.toml"], "gone.toml: "),
        ([".", "problem.toml"], ".: expected a .npy of probabilities or uint64 weights, got a folder"),
    ):
        assert run("certify", *arguments, code=2).stderr.startswith(named)


def test_a_matrix_of_the_name_of_another_file_is_told_from_it(folder):
    (folder / "d.npy").write_bytes(b"")
    np.save(folder / "d.npy", APART)
    text = TEXT.replace('kind = "euclidean"', 'kind = "matrix"\nmatrix = "d.npy"').replace(
        "grid = { rows = 3, cols = 3, cell_km = 1.0 }", "count = 9"
    )
    (folder / "problem.toml").write_text(text)
    (folder / "other").mkdir()
    np.save(folder / "other" / "d.npy", exponential(0.4))
    assert certify(folder / "other" / "d.npy", folder / "problem.toml").holds


@pytest.mark.parametrize("rate", [0.2, 0.9])
def test_between_any_two_points_of_a_plane(folder, rate):
    (folder / "problem.toml").write_text(TEXT.replace("epsilon = 1.0", "epsilon = 1.0\neverywhere = true"))
    found = certify(exponential(rate), folder / "problem.toml")
    assert found.holds is (rate == 0.2)
    assert found.holds is (found.epsilon <= 1.0)
    i, j = (int(name[1]) * 3 + int(name[3]) for name in found.pair)
    assert APART[i, j] < 1.5
    assert found.output is not None
    between = po.metric_problem(po.grid(rows=3, cols=3, cell_km=1), distance="euclidean", epsilon="1/km")
    assert found.epsilon > certify(exponential(rate), between).epsilon
    with pytest.warns(po.PrivoptWarning, match="mesh is coarse"):
        released = po.solve("given", found.problem)
    assert released.guarantee.scope == "everywhere"


def test_a_distance_so_small_that_no_rate_is_a_double(tmp_path):
    np.save(tmp_path / "d.npy", [[0.0, 1e-310, 1.0], [1e-310, 0.0, 1.0], [1.0, 1.0, 0.0]])
    np.save(tmp_path / "z.npy", [[0.5, 0.3, 0.2], [0.4, 0.4, 0.2], [0.3, 0.3, 0.4]])
    (tmp_path / "p.toml").write_text(
        "[records]\ncount = 3\n[distance]\nkind = 'matrix'\nmatrix = 'd.npy'\n[privacy]\nepsilon = 1.0\n"
        "[utility]\nkind = 'distance'\n"
    )
    options = Options()
    found = measure(File.read(tmp_path / "z.npy"), File.read(tmp_path / "p.toml"), options)
    assert not found.holds
    assert found.epsilon == math.inf
    assert verify(repair(found, tmp_path / "given", options).folder).verdict == "proved"
