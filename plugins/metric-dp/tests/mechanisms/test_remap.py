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
from privopt.run.options import Options
from privopt.run.solve import solve
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
def test_each_column_goes_to_the_output_that_brute_force_finds(data):
    from privopt_metric_dp.matrix.expected_loss import ExpectedLoss

    n, k = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 5))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    z = rng.dirichlet(np.full(k, 0.5), n) * (rng.random(k) < 0.8)
    weights = (z * 2.0**60).astype(np.uint64)
    weights[:, 0] += np.uint64(TOTAL) - weights.sum(axis=1, dtype=np.uint64)
    loss = ExpectedLoss(weighted=rng.random((n, k)) * rng.dirichlet(np.ones(n))[:, None], unit="km")
    before = release_of(weights)
    after = remap_outputs(before, loss, Data)
    assert (after.weights.sum(axis=1, dtype=np.uint64) == TOTAL).all()
    wanted = np.zeros((n, k))
    for out in range(k):
        guesses = before.probabilities[:, out] @ loss.weighted
        wanted[:, guesses.argmin() if before.weights[:, out].any() else out] += before.probabilities[:, out]
    assert np.allclose(after.probabilities, wanted)
    assert loss.evaluate(after) <= loss.evaluate(before) * (1 + 1e-12)
    assert improvable_outputs(after, loss, Data) == []


def test_outputs_that_are_as_good_stay_where_they_are():
    weights = np.full((2, 2), TOTAL // 2, dtype=np.uint64)
    assert best_outputs(release_of(weights), np.array([[0.1, 0.1 + 1e-13], [0.3, 0.3]])).tolist() == [0, 1]


@often(
    "mechanism",
    ["planar-laplace", "exponential", "optimal-lp", "const-opt", "bd-mdp"],
    ["planar-laplace", "optimal-lp", "bd-mdp"],
)
def test_a_remapped_release_is_certified_like_any_other(tmp_path, mechanism):
    more = "[const-opt]\nradius = 1.0\n[bd-mdp]\nsubsets = 2\n"
    plain = solve(mechanism, write_toy(tmp_path / "a", text=TOY + more), tmp_path / "plain")
    asked = TOY.replace("[utility]", "[utility]\nremap = true")
    done = solve(mechanism, write_toy(tmp_path / "b", text=asked + more), tmp_path / "out")
    result = done.result
    assert result.guarantee == plain.result.guarantee
    assert result.certificate.holds
    assert result.certificate.worst <= plain.result.certificate.worst
    assert result.objective.value <= plain.result.objective.value * (1 + 1e-9)
    assert result.details.told["remap"]["loss_after"] == result.objective.value
    assert verify(done.folder).verdict == "proved"


def test_verify_sees_that_a_claimed_remapping_was_not_done(tmp_path):
    asked = TOY.replace("[utility]", "[utility]\nremap = true").replace("0.9", "0.2")
    done = solve("optimal-lp", write_toy(tmp_path / "a", text=asked), tmp_path / "out", Options(method="full"))
    opened = load_release(done.folder)
    plain = solve("exponential", write_toy(tmp_path / "b", text=TOY.replace("0.9", "0.2")), tmp_path / "plain")
    other = load_release(plain.folder)
    lines = opened.mechanism.verify(opened.problem, other.release, opened.result)
    assert any("utility.remap is claimed" in line for line in lines)
    assert opened.mechanism.verify(opened.problem, opened.release, opened.result) == []


def test_lr_geo_refuses_what_it_cannot_do(tmp_path):
    from helpers.examples import EXAMPLES

    problem = EXAMPLES["lr-geo"].write(tmp_path / "problem")
    problem.write_text(problem.read_text().replace("[utility]", "[utility]\nremap = true"))
    with pytest.raises(InputError, match=r"utility\.remap"):
        solve("lr-geo", problem, tmp_path / "out")


def test_in_memory_too():
    places = po.records({"id": list("abcd"), "x": [0.0, 1.0, 2.0, 3.0], "y": [0.0] * 4}, id="id", x="x", y="y")
    given = {"distance": "euclidean", "epsilon": "1/km", "prior": np.array([0.7, 0.1, 0.1, 0.1])}
    plain = po.solve("planar-laplace", po.metric_problem(places, **given))
    moved = po.solve("planar-laplace", po.metric_problem(places, **given, remap=True))
    assert moved.loss < plain.loss


def test_planar_laplace_under_romes_truth_loses_at_most_85_hundredths(tmp_path):
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
    given = {"distance": "haversine", "epsilon": "1/km", "prior": truth}
    plain = po.solve("planar-laplace", po.metric_problem(places, **given))
    moved = po.solve("planar-laplace", po.metric_problem(places, **given, remap=True))
    assert moved.guarantee == plain.guarantee
    assert moved.certificate.holds
    assert moved.loss <= 0.85 * plain.loss
