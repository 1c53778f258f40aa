"""Method exact at every point: whoever stands anywhere computes the rows of the vertices around it."""

import json

import numpy as np
import pytest
from helpers.mended_sums import rewrite

import privopt as po
from privopt.errors import InputError
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify

PROBLEM = """
[records]
grid = { rows = 4, cols = 4, cell_km = 0.4 }
[distance]
kind = "euclidean"
[privacy]
epsilon = EPSILON
everywhere = true
[utility]
kind = "distance"
[lr-geo]
users = USERS
radius = 1.0
obfuscation_radius = 0.5
exponential_beyond = 0.5
"""


def run(folder, epsilon="4.0", users='"all"', method="exact"):
    (folder / "p.toml").write_text(PROBLEM.replace("EPSILON", epsilon).replace("USERS", users))
    return solve("lr-geo", folder / "p.toml", folder / "out", Options(method=method, force=True))


@pytest.mark.parametrize("epsilon", ["4.0", "0.5"])  # column weights; the whole matrix
def test_exact_method_holds_at_every_point(tmp_path, epsilon):
    completed = run(tmp_path, epsilon)
    result = completed.result
    assert (result.guarantee.scope, result.certificate.holds) == ("everywhere", True)
    assert result.certificate.checked == 18 * 16  # triangles times outputs
    assert verify(completed.folder).complaints == ()
    with np.load(completed.folder / "mechanism.npz") as archive:
        assert archive["simplices"].shape == (18, 3)
        assert len(archive["pairs"]) == 0
    release = po.open(completed.folder)
    data = release.opened.problem.data
    assert result.objective.value == pytest.approx(float((data.weighted * release.opened.release.probabilities).sum()))
    assert len(release.sample(xy=(0.3, 0.5), count=10)) == 10


def test_finds_moved_vertices(tmp_path):
    """As if the same rows lay on a larger map, where they would promise more per km."""
    verification = verify(rewrite(run(tmp_path).folder, vertices=lambda mm: mm * 2))
    assert verification.verdict is None
    assert any("vertices" in line for line in verification.complaints)


def test_refuses_methods_and_users_with_weaker_promise(tmp_path):
    with pytest.raises(InputError, match=r"expected --method exact.*own matrix"):
        run(tmp_path, method="benders")
    with pytest.raises(InputError, match=r"lr-geo\.users.*some users"):
        run(tmp_path, users=json.dumps(["r1c1"]))
