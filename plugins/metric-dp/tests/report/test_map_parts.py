"""What a map is made of: cells of even grids alone, and counts of hidden records that no report contradicts."""

import numpy as np
import pytest
from attrs import evolve
from helpers.toys import grid_text

import privopt as po
from privopt.run.solve import solve
from privopt.run.verify import load_release
from privopt_metric_dp.report import explorer
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
@pytest.mark.parametrize("block_records", [3, 500])
def test_hidden_records_are_reached_by_paths(limit, block_records, tmp_path, monkeypatch):
    monkeypatch.setattr(explorer, "BLOCK_RECORDS", block_records)
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


@pytest.mark.parametrize("turned", [False, True])
def test_curve_goes_from_cell_to_adjacent_cell(turned):
    cells = np.stack(np.meshgrid(np.arange(16.0), np.arange(16.0)), axis=-1).reshape(-1, 2)
    places = np.random.default_rng(0).permutation(cells) * 0.3 + 7.0
    order = explorer._order_along_curve(places[:, ::-1] if turned else places)
    assert sorted(order.tolist()) == list(range(256))
    steps = np.abs(np.diff(places[order], axis=0)).sum(axis=1)
    assert np.allclose(steps, 0.3)


def test_curve_orders_any_places():
    same_place, line = np.zeros((5, 2)), np.array([[3.0, 0.0], [1.0, 0.0], [2.0, 0.0], [0.0, 0.0]])
    assert sorted(explorer._order_along_curve(same_place).tolist()) == [0, 1, 2, 3, 4]
    assert explorer._order_along_curve(line).tolist() == [3, 1, 2, 0]


def test_nothing_is_counted_for_a_map_that_does_not_fit(monkeypatch):
    def fail():
        raise AssertionError

    monkeypatch.setattr(explorer, "MOST_ENTRIES", 3)
    monkeypatch.setattr(explorer, "_order_along_curve", fail)
    page = explorer.ExplorerData(
        rows=["a", "b"], outputs=["a", "b"], probabilities=np.eye(2), places=np.eye(2), output_places=np.eye(2),
        axes=("x", "y"), facts={}, unit={}, hidden=fail,
    )  # fmt: skip
    assert explorer.explorer_section(page) is None


def test_map_keeps_the_letters_of_a_unit():
    page = explorer.ExplorerData(
        rows=["a", "b"], outputs=["a", "b"], probabilities=np.eye(2), places=np.eye(2), output_places=np.eye(2),
        axes=("x (dB)", "y (dB)"), facts={}, unit={},
    )  # fmt: skip
    section = explorer.explorer_section(page)
    assert section is not None
    assert "X (dB) is to the right, y (dB) upwards." in section.html
