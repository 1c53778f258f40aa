"""Outputs remapped to best guesses: never a greater loss, the same promise, and a claim that verify checks."""

import csv

import numpy as np
import pytest
from helpers.data import data_path
from helpers.grids import often
from helpers.toys import TOY, write_toy
from hypothesis import given
from hypothesis import strategies as st

import privopt as po
from privopt.errors import InputError
from privopt.numbers.sampling import TOTAL
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import load_release, verify
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.matrix.remap import best_outputs, improvable_outputs, remap_outputs


def release_of(weights):
    n, k = weights.shape
    return MatrixRelease(
        weights=weights,
        records=np.array([f"r{i}" for i in range(n)]),
        outputs=np.array([f"o{i}" for i in range(k)]),
        pairs=np.zeros((0, 2), np.int64),
        distances=np.zeros(0),
    )


class Data:
    file = "problem.toml"


@given(st.data())
def test_columns_go_to_the_best_output(data):
    from privopt_metric_dp.matrix.expected_loss import ExpectedLoss

    n, k = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    z = rng.dirichlet(np.full(k, 0.5), n) * (rng.random(k) < 0.8)
    weights = (z * 2.0**60).astype(np.uint64)
    weights[:, 0] += np.uint64(TOTAL) - weights.sum(axis=1, dtype=np.uint64)
    loss = ExpectedLoss(weighted=rng.random((n, k)) * rng.dirichlet(np.ones(n))[:, None], unit="km")
    original = release_of(weights)
    remapped = remap_outputs(original, loss, Data)
    assert (remapped.weights.sum(axis=1, dtype=np.uint64) == TOTAL).all()
    expected = np.zeros((n, k))
    for output in range(k):
        guesses = original.probabilities[:, output] @ loss.weighted
        expected[:, guesses.argmin() if original.weights[:, output].any() else output] += original.probabilities[
            :, output
        ]
    assert np.allclose(remapped.probabilities, expected)
    assert loss.evaluate(remapped) <= loss.evaluate(original) * (1 + 1e-12)
    assert improvable_outputs(remapped, loss, Data) == []


def test_equally_good_outputs_stay():
    weights = np.full((2, 2), TOTAL // 2, dtype=np.uint64)
    assert best_outputs(release_of(weights), np.array([[0.1, 0.1 + 1e-13], [0.3, 0.3]])).tolist() == [0, 1]


@often(
    "mechanism",
    ["planar-laplace", "exponential", "optimal-lp", "const-opt", "bd-mdp"],
    ["planar-laplace", "optimal-lp", "bd-mdp"],
)
def test_remapped_release_is_certified(tmp_path, mechanism):
    settings = "[const-opt]\nradius = 1.0\n[bd-mdp]\nsubsets = 2\n"
    plain_release = solve(mechanism, write_toy(tmp_path / "a", text=TOY + settings), tmp_path / "plain")
    remap_text = TOY.replace("[utility]", "[utility]\nremap = true")
    release = solve(mechanism, write_toy(tmp_path / "b", text=remap_text + settings), tmp_path / "out")
    result = release.result
    assert result.guarantee == plain_release.result.guarantee
    assert result.certificate.holds
    assert result.certificate.worst <= plain_release.result.certificate.worst
    assert result.objective.value <= plain_release.result.objective.value * (1 + 1e-9)
    assert result.details.told["remap"]["loss_after"] == result.objective.value
    assert verify(release.folder).verdict == "proved"


def test_verify_finds_missing_remapping(tmp_path):
    remap_text = TOY.replace("[utility]", "[utility]\nremap = true").replace("0.9", "0.2")
    release = solve("optimal-lp", write_toy(tmp_path / "a", text=remap_text), tmp_path / "out", Options(method="full"))
    opened_release = load_release(release.folder)
    plain_release = solve("exponential", write_toy(tmp_path / "b", text=TOY.replace("0.9", "0.2")), tmp_path / "plain")
    plain_opened = load_release(plain_release.folder)
    lines = opened_release.mechanism.verify(opened_release.problem, plain_opened.release, opened_release.result)
    assert any("utility.remap is claimed" in line for line in lines)
    assert opened_release.mechanism.verify(opened_release.problem, opened_release.release, opened_release.result) == []


def test_lr_geo_refuses_remapping(tmp_path):
    from helpers.examples import EXAMPLES

    problem = EXAMPLES["lr-geo"].write(tmp_path / "problem")
    problem.write_text(problem.read_text().replace("[utility]", "[utility]\nremap = true"))
    with pytest.raises(InputError, match=r"utility\.remap"):
        solve("lr-geo", problem, tmp_path / "out")


def test_remaps_in_memory():
    places = po.records({"id": list("abcd"), "x": [0.0, 1.0, 2.0, 3.0], "y": [0.0] * 4}, id="id", x="x", y="y")
    options = {"distance": "euclidean", "epsilon": "1/km", "prior": np.array([0.7, 0.1, 0.1, 0.1])}
    unmapped = po.solve("planar-laplace", po.metric_problem(places, **options))
    remapped = po.solve("planar-laplace", po.metric_problem(places, **options, remap=True))
    assert remapped.loss < unmapped.loss


def test_remapped_laplace_in_rome(tmp_path):
    """Show 4 of the step: epsilon 1 per km, the prior a mixture of five hot spots."""
    with data_path("lrgeo_rome", "reget_rome_cell_node40x40.csv").open() as stream:
        rows = list(csv.DictReader(stream))[:500]
    xy = np.array([[float(row["x"]) * 83.0, float(row["y"]) * 111.2] for row in rows])
    rng = np.random.default_rng(5)
    spots = xy[rng.choice(len(xy), 5, replace=False)]
    d = np.linalg.norm(xy[:, None] - spots, axis=2)
    truth = np.exp(-((d / 0.4) ** 2) / 2).sum(axis=1)
    truth /= truth.sum()
    table = {
        "id": [row["grid_index"] for row in rows],
        "lat": [row["y"] for row in rows],
        "lon": [row["x"] for row in rows],
    }
    places = po.records(table, id="id", lat="lat", lon="lon")
    options = {"distance": "haversine", "epsilon": "1/km", "prior": truth}
    unmapped = po.solve("planar-laplace", po.metric_problem(places, **options))
    remapped = po.solve("planar-laplace", po.metric_problem(places, **options, remap=True))
    assert remapped.guarantee == unmapped.guarantee
    assert remapped.certificate.holds
    assert remapped.loss <= 0.85 * unmapped.loss
