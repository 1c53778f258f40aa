"""The kinds of data and the experiments, in their quick forms."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from privopt.errors import InputError
from privopt_bd_mdp import data as kinds
from privopt_bd_mdp.experiments import main


@pytest.mark.parametrize("epsilon", ["1", "10"])
def test_the_quick_form_writes_both_tables(tmp_path, capsys, epsilon):
    main(["--quick", "--out", str(tmp_path), "--epsilon", epsilon])
    with (tmp_path / "times.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert {row["data"] for row in rows} == {"grid", "synthetic"}
    assert len(rows) == 8
    assert (tmp_path / "sizes.csv").exists()


def test_road_nodes_of_rome(data):
    instance = kinds.roads(data("rome99", "rome99.gr"), 60, 10.0)
    assert instance.records == 60
    assert instance.distances.max() <= 2.0


def test_words_from_a_file_and_from_texts(data, tmp_path):
    words, vectors = kinds.read_vectors(data("wordvec", "test_glove.txt"))
    assert vectors.shape == (len(words), 50)
    text = "the cat sat with the dog near the old mill while the dog saw the cat and the mill"
    chosen, made = kinds.train_vectors([text] * 3, 6, 4)
    assert len(chosen) == len(made) == 6
    assert np.allclose(np.linalg.norm(made, axis=1), 1)
    (tmp_path / "bad.txt").write_text("one 1 2\ntwo 1 x\n")
    with pytest.raises(InputError, match="line 2"):
        kinds.read_vectors(tmp_path / "bad.txt")
