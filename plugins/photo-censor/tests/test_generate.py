"""The generator is as hard as the paper's collections (Table 1), and the experiments run."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.grids import often

from experiments.tables import read_rows
from photo_censor_paper import command
from photo_censor_paper.command import main
from photo_censor_paper.generate import COLLECTIONS, collections, sizes
from photo_censor_paper.published import PAPER
from privopt_photo_censor.rank import protected_k

COUNTS = {"single": 3000, "R-16": 500, "R-32": 150, "R-64": 60, "R-128": 30, "Albums": 600}


@often("kind", COUNTS, ("R-32", "R-64", "R-128", "Albums"))
def test_table_1_within_three_points(kind):
    protected_counts = np.array([protected_k(album) for album in collections(kind, COUNTS[kind], seed=5)])
    top1, top5, mean = PAPER["table1"][kind]
    assert abs((protected_counts < 1).mean() - top1) <= 0.03
    assert abs((protected_counts < 5).mean() - top5) <= 0.03
    assert abs(protected_counts.mean() - mean) <= max(0.1 * mean, 0.1)


def test_albums_have_the_sizes_of_the_paper():
    album_sizes = sizes(np.random.default_rng(0), 20000)
    assert min(album_sizes) == 16
    assert max(album_sizes) <= 250
    assert np.mean(album_sizes) == pytest.approx(33, abs=0.5)


def test_scores_are_repeatable_log_probabilities():
    first, repeated = (list(collections("Albums", 3, seed=1)) for _ in range(2))
    for album, repeated_album in zip(first, repeated, strict=True):
        assert (album.scores == repeated_album.scores).all()
        np.testing.assert_allclose(np.exp(album.scores).sum(axis=1), 1.0)
        assert album.locations == 512
    with pytest.raises(ValueError, match="R-17"):
        next(collections("R-17", 1))


@pytest.mark.slow
def test_one_command_makes_every_table_and_picture(tmp_path, monkeypatch):
    assert main(["--quick", "--out", str(tmp_path)]) == 0
    for name in ("figure1", "figure2", "figure3", "table3"):
        assert (tmp_path / f"{name}.png").stat().st_size > 5000
    table2 = read_rows(tmp_path / "table2.csv")
    assert [row["type"] for row in table2] == list(COLLECTIONS)
    for row in table2[:4]:
        assert 0 < float(row["top1_optimal"]) <= float(row["top1_greedy"]) <= 1
        assert float(row["top1_optimal"]) <= float(row["top5_optimal"]) <= float(row["top5_greedy"])
    table3 = read_rows(tmp_path / "table3.csv")
    for best, base in zip(table3[::2], table3[1::2], strict=True):
        for deleted_share in ("12.5%", "25.0%"):
            assert float(best[deleted_share]) >= float(base[deleted_share])
    assert [int(row["optimal"]) for row in read_rows(tmp_path / "table5.csv")] == [2] * 5
    assert all(int(row["greedy"]) > int(row["N"]) for row in read_rows(tmp_path / "table5.csv"))
    assert {row["type"] for row in read_rows(tmp_path / "figure2.csv")} == {"R-16", "R-32"}
    assert {row["k"] for row in read_rows(tmp_path / "figure3.csv")} == {"1", "5"}
    assert len(read_rows(tmp_path / "table4.csv")) == 4
    assert len(read_rows(tmp_path / "figure1.csv")) == 3
    proofs = read_rows(tmp_path / "proofs.csv")
    assert {row["what"] for row in proofs} >= {"table5", "figure1", "table2 R-16 top-1", "table3 Albums 25.0%"}
    assert all(0 <= int(row["unproved_within_limit"]) <= int(row["solved"]) for row in proofs)
    bytes_by_name = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    monkeypatch.setattr(command, "solve", lambda *_, **__: pytest.fail("solved again"))
    assert main(["--quick", "--out", str(tmp_path)]) == 0
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == bytes_by_name
