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
from privopt.run.task import Options
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
def test_proportional_rows_are_equal(factor):
    """Logarithms of a sum's numerator and denominator are tens, and their last places were taken for a difference."""
    measurement = least_epsilon(np.array([[1.0], [factor]]), np.array([[0, 1]]), np.array([0.0]), Fraction(1))
    assert measurement.epsilon == 0.0


@given(st.data())
def test_smallest_epsilon_matches_calculation(data):
    rows, columns = data.draw(st.integers(2, 4)), data.draw(st.integers(1, 4))
    z = np.array(
        data.draw(st.lists(st.lists(entries, min_size=columns, max_size=columns), min_size=rows, max_size=rows))
    )
    z[:, 0] += z.sum(axis=1) == 0
    if data.draw(st.booleans()):
        z = (z * 2.0**60).astype(np.uint64) + np.uint64(1)
    pairs = np.array([(i, j) for i in range(rows) for j in range(i + 1, rows)])
    distances = np.array([data.draw(st.sampled_from([0.0, 0.1, 1.0, 3.0])) for _ in pairs])
    target_epsilon = Fraction(data.draw(st.sampled_from(["0.5", "1", "700"])))
    measurement, expected = least_epsilon(z, pairs, distances, target_epsilon), by_hand(z, pairs, distances)
    assert expected <= mpf(measurement.epsilon) <= expected * (1 + mpf(2) ** -50)
    assert measurement.holds is bool(expected <= mpf(target_epsilon.numerator) / target_epsilon.denominator)
    if measurement.pair is None:
        assert expected == 0
    elif expected < mp.inf:
        i, j = measurement.pair
        pair_rows = np.flatnonzero(np.sort(pairs, axis=1)[:, 0] * rows + pairs[:, 1] == min(i, j) * rows + max(i, j))
        pair_epsilon = (
            by_hand(z[[i, j]][:, [measurement.output]], np.array([[0, 1]]), distances[pair_rows])
            if columns == 1
            else None
        )
        assert pair_epsilon is None or pair_epsilon == expected
        sums = [Fraction(sum(map(Fraction, z[row].tolist()))) for row in (i, j)]
        assert Fraction(z[i, measurement.output].item()) / sums[0] > Fraction(z[j, measurement.output].item()) / sums[1]


def test_matrix_at_its_epsilon_holds():
    """exp(-d) over a line, truncated: every neighbouring pair is at its limit, up to the roundings of doubles."""
    weights = as_weights(exponential(0.7))
    distances = APART[PAIRS[:, 0], PAIRS[:, 1]]
    measurement = least_epsilon(weights, PAIRS, distances, Fraction(1))
    for epsilon in (Fraction(measurement.epsilon), Fraction(math.nextafter(measurement.epsilon, 0)), Fraction(1, 3)):
        certified = certify_weights(weights, PAIRS, distances, epsilon)
        assert least_epsilon(weights, PAIRS, distances, epsilon).holds is certified.holds
    assert not least_epsilon(weights, PAIRS, distances, Fraction(math.nextafter(measurement.epsilon, 0))).holds


@pytest.fixture
def run(privopt):
    """Return the command line, its exit code looked at."""

    def run_command(*arguments, code=0):
        completed = privopt(*arguments, *(["--quiet"] if arguments[0] == "certify" else []))
        assert completed.returncode == code, completed.stderr
        return completed

    return run_command


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
def test_command_states_what_a_matrix_keeps(folder, run, name, code):
    completed = run("certify", str(folder / f"{name}.npy"), str(folder / "problem.toml"), "--json", code=code)
    findings = json.loads(completed.stdout)
    assert list(findings) == KEYS
    assert (findings["asked"], findings["holds"], findings["lower_bound"]) == (1.0, code == 0, None)
    z = np.load(folder / f"{name}.npy")
    worst = by_hand(z, PAIRS, APART[PAIRS[:, 0], PAIRS[:, 1]])
    assert (
        findings["epsilon"] == "inf" if name == "eye" else worst <= findings["epsilon"] <= worst * (1 + mpf(2) ** -50)
    )
    assert findings["loss"] == pytest.approx(float((z / z.sum(axis=1, keepdims=True) * APART).sum() / 9))
    i, j = (int(name[1]) * 3 + int(name[3]) for name in findings["pair"])
    k = int(findings["output"][1]) * 3 + int(findings["output"][3])
    assert name == "eye" or math.log(z[i, k] / z[j, k]) / APART[i, j] == pytest.approx(findings["epsilon"], rel=1e-9)


def test_gap_adds_a_bound(folder, run):
    paths = str(folder / "good.npy"), str(folder / "problem.toml")
    findings = json.loads(run("certify", *paths, "--gap", "1e-4", "--json").stdout)
    best = po.solve("optimal-lp", folder / "problem.toml", gap=1e-4)
    assert best.loss * (1 - 2e-4) <= findings["lower_bound"] <= best.loss <= findings["loss"]


@pytest.mark.parametrize("name", ["good", "weights", "steep", "eye"])
def test_repaired_matrix_is_a_release(folder, run, name):
    output_folder = folder / "out"
    options = ["--gap", "1e-3"] if name == "eye" else []
    files = [folder / f"{name}.npy", folder / "problem.toml"]
    completed = run("certify", *files, "--repair", "--out", output_folder, *options, "--json")
    assert list(json.loads(completed.stdout)) == KEYS
    result = verify(output_folder)
    assert (result.holds, result.verdict, checker.check(output_folder, lambda line: None)) == (True, "proved", 0)
    release = po.open(output_folder)
    assert release.result.mechanism == "given"
    assert (release.bound is None) is (name != "eye")
    assert release.sample("r1c1")
    assert release.audit()["epsilon"]["achieved"] <= 1.0
    assert len(release.apply({"id": ["r0c0", "r2c2"]}, id="id")["report"]) == 2
    if name == "weights":
        assert np.array_equal(release.opened.release.weights, np.load(folder / "weights.npy"))


def test_python_accepts_arrays_and_memory_problems():
    places = po.grid(rows=3, cols=3, cell_km=1)
    problem = po.metric_problem(places, distance="euclidean", epsilon="1/km")
    certified = po.certify(exponential(0.9), problem)
    assert not certified.holds
    assert f"epsilon {certified.epsilon:.12g} per km" in certified.sentences()[0]
    assert po.solve("given", certified.problem).certificate.holds
    assert po.certify(np.full((9, 9), 1 / 9), problem).pair is None


def made_faulty():
    nan, negative, endless, not_normalised = (exponential(0.4) for _ in range(4))
    nan[0, 1], negative[2, 3], endless[4, 4] = np.nan, -1e-300, np.inf
    not_normalised[5] *= 1 + 3e-6
    weights = as_weights(exponential(0.4))
    weights[7, 1] += np.uint64(1)
    yield nan, r"row 0, column 1 \(from 0\): expected a probability.*, got nan"
    yield negative, r"row 2, column 3 \(from 0\): expected a probability.*, got -1e-300"
    yield endless, r"row 4, column 4 \(from 0\): expected a probability.*, got inf"
    yield not_normalised, r"row 5 \(from 0\): expected .*, got a sum of 1\.000003"
    yield weights, r"row 7 \(from 0\): expected 2\*\*63.*, got a sum of 9223372036854775809"
    shape_fault = r"expected probabilities or uint64 weights, 9 records x 9 outputs, got an array of shape 9 x 5"
    yield exponential(0.4)[:, :5], shape_fault
    yield exponential(0.4).astype(complex), "got values of type complex128"


@pytest.mark.parametrize("transposed", [exponential(0.4).T, as_weights(exponential(0.4)).T], ids=["doubles", "weights"])
def test_transposed_matrix_is_one_line(folder, transposed):
    np.save(folder / "turned.npy", transposed)
    with pytest.raises(InputError, match="transposed matrix") as excinfo:
        certify(folder / "turned.npy", folder / "problem.toml")
    assert len(excinfo.value.faults) == 1
    assert "for each record" in str(excinfo.value)


def test_names_transposed_shape():
    with pytest.raises(InputError, match=r"3 records x 2.*2 x 3 \(transposed\?\)"):
        GivenMatrix.of(np.full((2, 3), 0.5), (3, 2))


@pytest.mark.parametrize(("matrix", "words"), list(made_faulty()))
def test_refuses_invalid_matrices(folder, run, matrix, words):
    np.save(folder / "bad.npy", matrix)
    with pytest.raises(InputError, match=words):
        certify(folder / "bad.npy", folder / "problem.toml")
    files = [folder / "bad.npy", folder / "problem.toml"]
    completed = run("certify", *files, "--repair", "--out", folder / "out", code=2)
    assert not (folder / "out").exists()
    assert not completed.stdout
    assert completed.stderr.startswith("bad.npy: ")


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
def test_wrong_usage_exits_2_and_writes_nothing(folder, run, arguments):
    paths = [str(folder / argument) if "." in argument and argument[0] != "-" else argument for argument in arguments]
    completed = run("certify", *paths, code=2)
    assert "Traceback" not in completed.stderr
    assert not completed.stdout
    assert not (folder / "out").exists()


def test_names_missing_files(folder, run, monkeypatch):
    monkeypatch.chdir(folder)
    for arguments, file_name in (
        (["good.npy", "gone.toml"], "gone.toml: "),
        ([".", "problem.toml"], ".: expected a .npy of probabilities or uint64 weights, got a folder"),
    ):
        assert run("certify", *arguments, code=2).stderr.startswith(file_name)


def test_distinguishes_matrix_by_file_name(folder):
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
def test_certifies_any_two_points_of_a_plane(folder, rate):
    (folder / "problem.toml").write_text(TEXT.replace("epsilon = 1.0", "epsilon = 1.0\neverywhere = true"))
    certified = certify(exponential(rate), folder / "problem.toml")
    assert certified.holds is (rate == 0.2)
    assert certified.holds is (certified.epsilon <= 1.0)
    i, j = (int(name[1]) * 3 + int(name[3]) for name in certified.pair)
    assert APART[i, j] < 1.5
    assert certified.output is not None
    between = po.metric_problem(po.grid(rows=3, cols=3, cell_km=1), distance="euclidean", epsilon="1/km")
    assert certified.epsilon > certify(exponential(rate), between).epsilon
    with pytest.warns(po.PrivoptWarning, match="mesh is coarse"):
        release = po.solve("given", certified.problem)
    assert release.guarantee.scope == "everywhere"


def test_tiny_distance_has_no_double_rate(tmp_path):
    np.save(tmp_path / "d.npy", [[0.0, 1e-310, 1.0], [1e-310, 0.0, 1.0], [1.0, 1.0, 0.0]])
    np.save(tmp_path / "z.npy", [[0.5, 0.3, 0.2], [0.4, 0.4, 0.2], [0.3, 0.3, 0.4]])
    (tmp_path / "p.toml").write_text(
        "[records]\ncount = 3\n[distance]\nkind = 'matrix'\nmatrix = 'd.npy'\n[privacy]\nepsilon = 1.0\n"
        "[utility]\nkind = 'distance'\n"
    )
    options = Options()
    measurement = measure(File.read(tmp_path / "z.npy"), File.read(tmp_path / "p.toml"), options)
    assert not measurement.holds
    assert measurement.epsilon == math.inf
    assert verify(repair(measurement, tmp_path / "given", options).folder).verdict == "proved"
