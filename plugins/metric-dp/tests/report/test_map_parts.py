"""What a map is made of: cells of even grids alone, and counts of hidden records that no report contradicts."""

import numpy as np
import pytest
from attrs import evolve
from helpers.toys import grid_text

import privopt as po
from privopt.run.solve import solve
from privopt.run.verify import load_release
from privopt_metric_dp.report.explorer import cell_around, hidden_among, lines_between

ODDS = (2, 3, 5, 10, 20)


def test_draws_cells_of_even_grids_only():
    grid = np.stack(np.meshgrid(np.arange(4) * 0.5, np.arange(3) * 0.25), axis=-1).reshape(-1, 2)
    assert cell_around(grid) == (0.5, 0.25)
    assert cell_around(grid[:-1]) is None
    assert cell_around(grid[:4]) is None  # a row of places
    assert cell_around(grid + 0.01 * np.random.default_rng(0).random(grid.shape)) is None
    assert cell_around(np.concatenate([grid[:-1], grid[:1]])) is None


@pytest.mark.parametrize("limit", [None, 0.8])
def test_hidden_records_are_reached_by_paths(limit, tmp_path):
    (tmp_path / "p.toml").write_text(grid_text(4, 5, 0.5, 1.5, within=limit))
    opened_release = load_release(solve("exponential", tmp_path / "p.toml", tmp_path / "out").folder)
    release, data = opened_release.release, opened_release.problem.data
    lengths = np.full((20, 20), np.inf)
    np.fill_diagonal(lengths, 0.0)
    i, j = release.pairs.T
    lengths[i, j] = lengths[j, i] = release.distances
    for k in range(20):
        lengths = np.minimum(lengths, lengths[:, [k]] + lengths[[k]])
    hidden_counts = hidden_among(release, opened_release.result, ODDS)
    assert hidden_counts.tolist() == [[int((1.5 * row <= np.log(f)).sum()) - 1 for f in ODDS] for row in lengths]
    logs = np.log(release.probabilities)
    worst = np.abs(logs[:, None] - logs[None]).max(axis=2)
    for column, factor in enumerate(ODDS):
        assert (hidden_counts[:, column] <= (worst <= np.log(factor) + 1e-9).sum(axis=1) - 1).all()
    assert hidden_counts.max() > 0
    assert lines_between(data) is None


def test_counts_nothing_without_metric_dp():
    release = po.solve("exponential", po.metric_problem(po.grid(2, 2, 0.5), distance="euclidean", epsilon=2)).opened
    result = release.result
    assert hidden_among(release.release, result, ODDS).shape == (4, 5)
    other_result = evolve(result, guarantee=evolve(result.guarantee, kind="local-dp"))
    assert hidden_among(release.release, other_result, ODDS) is None
