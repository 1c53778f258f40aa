"""The kinds of data and the experiments, in their quick forms."""

from __future__ import annotations

import numpy as np
import pytest

from bd_mdp_paper import data as readers
from bd_mdp_paper import sources
from bd_mdp_paper.command import main
from bd_mdp_paper.kinds import CODE, Kinds
from bd_mdp_paper.losses import exponential
from bd_mdp_paper.runs import Cell, Runs
from bd_mdp_paper.sizes import Sizes
from bd_mdp_paper.tables import size_tables
from experiments.tables import read_rows
from privopt.errors import InputError, UsageError


@pytest.mark.slow
def test_quick_form_writes_tables_and_resumes(tmp_path, capsys, monkeypatch):
    monkeypatch.delenv("PRIVOPT_DATA", raising=False)
    main(["--quick", "--out", str(tmp_path), "--limit", "2"])
    first = capsys.readouterr().err
    assert "text: left out" in first
    runs = read_rows(tmp_path / "runs.csv")
    assert {row["kind"] for row in runs} == {"grid", "synthetic"}
    assert {row["method"] for row in runs} == {
        "cold",
        "star",
        "benders",
        "auto",
        "simplex",
        "interior-point",
    }
    for row in runs:
        if row["lower_bound"]:
            assert float(row["lower_bound"]) <= float(row["loss"]) * (1 + 1e-9)
        assert row["shown"] == (row["seconds"] if row["status"] == "optimal" else "> 2")
    for row in read_rows(tmp_path / "losses.csv"):
        assert float(row["benders"]) < float(row["exponential"])
    for number in (1, 2, 3, 4):
        assert read_rows(tmp_path / f"table-{number}.csv")
    figure_names = {file.stem for file in (tmp_path / "figures").glob("*.png")}
    # no roads, no words here
    expected_names = {f"fig-{number:02}" for number in (6, 7, 8, 9, 10, 11, 12, 14, 16, 18, 20)}
    assert figure_names == expected_names | {"convergence"}
    assert all(file.stat().st_size < 100_000 for file in (tmp_path / "figures").glob("*.png"))
    main(["--quick", "--out", str(tmp_path), "--limit", "2"])
    assert "method" not in capsys.readouterr().err
    assert read_rows(tmp_path / "runs.csv") == runs


def test_killed_run_leaves_no_block_twice(tmp_path):
    cell = Cell(kind="grid", records=8, epsilon=1.0, method="cold", limit=4.0, subsets=2)
    Runs(Kinds(), tmp_path).do(cell)
    rows_by_file = {name: read_rows(tmp_path / name) for name in ("blocks.csv", "masters.csv")}
    assert all(rows_by_file.values())
    (tmp_path / "runs.csv").unlink()
    Runs(Kinds(), tmp_path).do(cell)
    assert len(read_rows(tmp_path / "runs.csv")) == 1
    assert {name: read_rows(tmp_path / name) for name in rows_by_file} == rows_by_file


def test_exponential_mechanism_keeps_metric_dp():
    source = sources.grid(3, 3)
    z = exponential(source.distances, 2.0)
    assert np.allclose(z.sum(axis=1), 1)
    grown = np.exp(2.0 * source.distances)
    assert (z[:, None, :] <= grown[:, :, None] * z[None, :, :] * (1 + 1e-12)).all()


def test_loss_of_equation_48():
    source = sources.grid(2, 3)
    loss = source.loss(np.arange(6))
    destinations = np.random.default_rng([0, 48]).integers(0, 6, sources.DESTINATIONS)
    for i in range(6):
        for k in range(6):
            expected = np.mean([abs(source.travel[i, end] - source.travel[k, end]) for end in destinations])
            assert loss[i, k] == pytest.approx(expected)
    assert source.instance(1.0, outputs=2).cost.shape == (6, 2)


def test_road_nodes_of_rome(data):
    graph = readers.read_road_graph(data("rome99", "rome99.gr"))
    source = sources.roads(graph, 60)
    instance = source.instance(10.0)
    assert instance.records == 60
    assert instance.distances.max() <= 2.0
    other_source = sources.roads(graph, 60, seed=1)
    assert not np.array_equal(source.distances, other_source.distances)
    with pytest.raises(UsageError, match="such nodes"):
        sources.roads(graph, 10**6)


def test_crossings_of_helsinki(data):
    pytest.importorskip("osmium")
    graph = readers.read_streets(data("osm_small", "Helsinki.osm.pbf"))
    source = sources.roads(graph, 100, within=None, crossings=True, name="helsinki")
    assert source.degree >= 8
    assert source.distances.max() < 5  # km: it is the middle of the city
    assert (source.distances == source.distances.T).all()
    straight = np.hypot(*((source.coordinates[0] - source.coordinates[1]) * [111.2 * np.cos(np.radians(60.17)), 111.2]))
    assert source.distances[0, 1] >= straight * 0.99


def test_author_nodes_travel_along_stand_in(data):
    source = sources.nodes(data("bdmdp_rome", "rome500.csv"), 80)
    assert np.isfinite(source.travel).all()
    assert (source.travel >= source.distances - 1e-9).all()


def test_refuses_road_file_without_arcs(tmp_path):
    (tmp_path / "a.gr").write_text("c nothing\n")
    with pytest.raises(InputError, match="FROM TO LENGTH"):
        readers.read_road_graph(tmp_path / "a.gr")


def test_words_from_file_and_texts(data, tmp_path):
    words, vectors = readers.read_vectors(data("wordvec", "test_glove.txt"))
    assert vectors.shape == (len(words), 50)
    file_words = readers.read_vectors(data("wordvec", "EN.1-10.cbow1_wind5_hs0_neg10_size300_smpl1e-05.txt"))
    assert file_words[1].shape[1] == 300
    assert sources.words(file_words[1]).degree >= 8
    text = r"\\alpha the cat sat with the dog near the old mill while the dog saw the cat and the mill"
    trained_words, trained_vectors = readers.train_vectors([text] * 3, 6, 4)
    assert len(trained_words) == len(trained_vectors) == 6
    assert "alpha" not in trained_words
    assert np.allclose(np.linalg.norm(trained_vectors, axis=1), 1)
    (tmp_path / "bad.txt").write_text("one 1 2\ntwo 1 x\n")
    with pytest.raises(InputError, match="line 2"):
        readers.read_vectors(tmp_path / "bad.txt")


def test_symmetric_counts_give_singular_vectors():
    text = "red green blue red green yellow blue red yellow green blue blue red"
    _, vectors = readers.train_vectors([text], 4, 4)
    _, fewer = readers.train_vectors([text], 4, 2)
    assert vectors.shape[1] == 3
    assert fewer.shape[1] == 2


def test_names_kind_without_source():
    with pytest.raises(UsageError, match=r"'road'.*grid, synthetic"):
        Kinds().make("road", 10)


def test_implied_road_pairs_allow_rounding():
    """Distances along one street: a last bit keeps pairs that the neighbours imply."""
    places = np.cumsum(np.random.default_rng(0).random(40))
    street = sources.Source(name="street", distances=np.abs(places[:, None] - places), within=3.0)
    assert len(street.pairs(slack=1e-9)) == 39
    assert len(street.pairs()) > 39


def test_author_code_differs_from_paper(tmp_path):
    """Cells of 1.5 km have 4 neighbours within 2 km, those of 1 km have 12; crossing pairs alone join fewer records."""
    sheet = Sizes(Kinds(), tmp_path)
    for kind in ("grid", CODE):
        sheet.do(kind, 100, 0, 5, names=("records",))
    assert len(Kinds().make(CODE, 100).pairs()) == 180 < len(Kinds().make("grid", 100).pairs())
    paper_row, code = (sheet.sheet.where(kind=kind, pairs="all", partition="records")[0] for kind in ("grid", CODE))
    assert float(code["block_mean"]) > float(paper_row["block_mean"])
    for row in (paper_row, code):
        assert float(row["crossing_mean"]) <= float(row["component_mean"])
        assert int(row["crossing_max"]) <= int(row["component_max"])
    size_tables(sheet, tmp_path, ("grid", CODE), 5)
    assert CODE in (tmp_path / "table-2-crossing.csv").read_text()
