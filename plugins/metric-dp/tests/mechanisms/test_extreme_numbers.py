"""Epsilons, distances and costs near both ends of doubles: solved and verified, or refused in a clear line."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.grids import by_pairs
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.errors import InputError, PrivoptError, SolverError
from privopt.run.solve import solve
from privopt.run.task import Options
from privopt.run.verify import verify

POINTS = "id,x,y\na,0,0\nb,1000,0\nc,0,1\nd,3,2\n"
LINE = np.abs(np.subtract.outer(np.arange(4.0), np.arange(4.0)))
LR_GEO = "[lr-geo]\nusers = ['0', '3']\nradius = 1e6\nobfuscation_radius = 1e6\nexponential_beyond = 1e6\n"
MECHANISMS = ["exponential", "optimal-lp", "optimal-lp full", "const-opt", "bd-mdp", "lr-geo exact", "predictive"]


def solve_if_possible(mechanism, path, folder):
    """Solve and verify a problem; a refusal is a line of bad input, or of what a solver cannot represent."""
    name, _, method = mechanism.partition(" ")
    refusal = None
    try:
        solve(name, path, folder, Options(method=method or None))
    except PrivoptError as error:
        refusal = error
    if refusal is None:
        assert verify(folder).holds
    elif not isinstance(refusal, InputError):
        assert isinstance(refusal, SolverError)
        # What to do, or why it cannot be done.
        assert any(words in str(refusal) for words in ("optimal-lp", "--method auto", "double precision"))
    assert refusal is None or max(map(len, str(refusal).splitlines())) < 1000


@by_pairs("mechanism, epsilon", MECHANISMS, ["1e-300", "1e-100", "1e30", "1e150", "1e300"])
@pytest.mark.parametrize("everywhere", [False, True])
def test_epsilons(mechanism, epsilon, everywhere, tmp_path):
    (tmp_path / "points.csv").write_text(POINTS)
    (tmp_path / "p.toml").write_text(
        f'[records]\npoints = "points.csv"\n[distance]\nkind = "euclidean"\n[utility]\nkind = "distance"\n'
        f"[privacy]\nepsilon = {epsilon}\n{'everywhere = true' if everywhere else ''}\n[const-opt]\nradius = 1.0\n"
        + LR_GEO.replace("'0', '3'", "'a', 'd'")
    )
    solve_if_possible(mechanism, tmp_path / "p.toml", tmp_path / "out")


@by_pairs("mechanism, scale", MECHANISMS, [1e-320, 1e-300, 1e-150, 1e140])
def test_tables_of_distances(mechanism, scale, tmp_path):
    np.save(tmp_path / "d.npy", LINE * scale)
    (tmp_path / "p.toml").write_text(
        '[records]\ncount = 4\n[distance]\nkind = "matrix"\nmatrix = "d.npy"\n[utility]\nkind = "distance"\n'
        f"[privacy]\nepsilon = 1.0\n[const-opt]\nradius = {scale}\n" + LR_GEO
    )
    solve_if_possible(mechanism, tmp_path / "p.toml", tmp_path / "out")


power = st.floats(-323, 308)


@settings(max_examples=8)
@given(st.sampled_from(MECHANISMS), st.lists(power, min_size=3, max_size=3), st.floats(-300, 160))
def test_lengths_of_roads(tmp_path_factory, mechanism, powers, epsilon_power):
    folder = tmp_path_factory.mktemp("roads")
    (folder / "points.csv").write_text("id\n0\n1\n2\n3\n")
    rows = "".join(f"{n},{n + 1},{10.0**x!r}\n" for n, x in enumerate(powers))
    (folder / "roads.csv").write_text("from,to,km\n" + rows)
    (folder / "p.toml").write_text(
        '[records]\npoints = "points.csv"\n[distance]\nkind = "graph"\nedges = "roads.csv"\n'
        f'[utility]\nkind = "distance"\n[privacy]\nepsilon = {10.0**epsilon_power!r}\n[const-opt]\nradius = 1.0\n'
        + LR_GEO
    )
    solve_if_possible(mechanism, folder / "p.toml", folder / "out")


def test_numbers_beyond_the_limit_are_named_with_it(tmp_path):
    np.save(tmp_path / "d.npy", LINE * 1e300)
    (tmp_path / "p.toml").write_text(
        '[records]\ncount = 4\n[distance]\nkind = "matrix"\nmatrix = "d.npy"\n[utility]\nkind = "distance"\n'
        "[privacy]\nepsilon = 1.0\n"
    )
    with pytest.raises(InputError, match=r"d\.npy: row 0, column 1: expected a number .* at most 1e\+150, got 1e\+300"):
        solve("exponential", tmp_path / "p.toml", tmp_path / "out", Options())
