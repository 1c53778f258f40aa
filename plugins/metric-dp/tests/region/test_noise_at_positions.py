"""What noise at the position itself would lose, against integrals, and the sentence of optimal-lp about it."""

import json
import re

import numpy as np
import pytest
from helpers.command import run

from privopt_metric_dp.solvers.noise_at_positions import estimate_noise_loss

MESH = """
[records]
mesh = {{ region = "region.geojson", side_km = {side}, planar = true }}
[distance]
kind = "euclidean"
[privacy]
epsilon = {epsilon}
everywhere = true
[utility]
kind = "distance"
"""


def square_people(side, count):
    """Return people at the middles of count x count cells of a square, in random order."""
    axis = (np.arange(count) + 0.5) * side / count
    people = np.stack(np.meshgrid(axis, axis), axis=-1).reshape(-1, 2)
    return np.random.default_rng(1).permutation(people), np.full(count**2, 1 / count**2)


# docs/benchmarks/everywhere.md: integrals over a lattice, good to about .5 %.
@pytest.mark.parametrize(("epsilon", "integral"), [(1, 1.650), (2, 0.913), (4, 0.479)])
def test_estimate_agrees_with_integrals(epsilon, integral):
    assert estimate_noise_loss(*square_people(10.0, 150), epsilon) == pytest.approx(integral, rel=0.03)


def test_estimate_is_at_most_the_loss_without_a_remap():
    far, shares = np.array([[0.0, 0.0], [1e4, 0.0]]), np.full(2, 0.5)
    assert estimate_noise_loss(far, shares, 1.0) < 1e-3  # each report says who of the two it is
    assert estimate_noise_loss(np.zeros((1, 2)), np.ones(1), 1.0) == pytest.approx(0.0, abs=1e-6)
    people, shares = square_people(1000.0, 100)
    assert estimate_noise_loss(people, shares, 5.0) <= 0.4


def write_mesh(folder, side, epsilon):
    ring = [[0, 0], [4, 0], [4, 4], [0, 4], [0, 0]]
    (folder / "region.geojson").write_text(json.dumps({"type": "Polygon", "coordinates": [ring]}))
    (folder / "p.toml").write_text(MESH.format(side=side, epsilon=epsilon))
    return folder / "p.toml"


@pytest.mark.parametrize(("epsilon", "is_said"), [(2.0, True), (0.05, False)])
def test_mesh_says_where_noise_loses_less(tmp_path, epsilon, is_said):
    file = write_mesh(tmp_path, 1.0, epsilon)
    completed = run("solve", "optimal-lp", file, "--out", tmp_path / "d", "--gap", "1e-2")
    assert completed.exit_code == 0, completed.stderr
    words = " ".join((completed.stdout + completed.stderr).split())
    assert ("spherical-laplace" in words) == is_said
    if is_said:
        value = json.loads((tmp_path / "d" / "result.json").read_text())["objective"]["value"]
        stated = float(re.search(r"would lose about ([0-9.]+):", words)[1])
        assert stated < 0.98 * value
        # The mesh reaches beyond the square, so that people there lose more than those inside.
        assert estimate_noise_loss(*square_people(4.0, 100), epsilon) * 0.97 < stated <= 2 / epsilon
