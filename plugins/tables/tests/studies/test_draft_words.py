"""`init --vectors`: epsilon proposed by how many others hide a word; the report of words has the field's figures."""

import re

import numpy as np
import pytest
from helpers.charging import run_command

from privopt.errors import InputError, UsageError
from privopt.run.solve import solve
from privopt.run.verify import open_verified
from privopt_metric_dp.report.word_figures import DRAWS_PER_WORD, word_figures, word_section
from privopt_tables.studies.draft_words import RANKS, init_words


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    np.save(folder / "v.npy", np.random.default_rng(4).normal(size=(120, 5)))
    (folder / "w.txt").write_text("".join(f"word{n}\n" for n in range(120)))
    return folder


def test_epsilon_hides_a_word_among_many(folder):
    drafted = init_words("exponential", folder / "v.npy", folder / "w.txt", folder / "p.toml")
    vectors = np.load(folder / "v.npy")
    sorted_distances = np.sort(np.linalg.norm(vectors[:, None] - vectors, axis=2), axis=1)
    epsilon = float(re.search(r"^epsilon = (.*)$", drafted.text, re.M)[1])
    assert ((epsilon * sorted_distances <= 1).sum(axis=1) - 1 >= RANKS[0]).mean() >= 0.95
    assert epsilon == pytest.approx(1 / np.quantile(sorted_distances[:, RANKS[0]], 0.95, method="higher"), rel=0.11)
    (twenty,) = re.findall(r"at least 20 others: epsilon ([\d.]+)", "\n".join(drafted.notes))
    assert ((float(twenty) * sorted_distances <= 1).sum(axis=1) - 1 >= 20).mean() >= 0.95
    assert any("at most e, 2.72" in note for note in drafted.notes)
    assert all(line.startswith("#") for line in drafted.text.splitlines() if "at least" in line)
    solve("exponential", folder / "p.toml", folder / "out")  # as it stands


def test_command_and_its_refusals(folder, tmp_path):
    arguments = ["init", "exponential", "--vectors", folder / "v.npy", "--out", tmp_path / "p.toml"]
    code, _, err = run_command(*arguments)
    assert (code, "v.npy" in err, "120" in err) == (0, True, True), err
    code, _, err = run_command(*arguments, "--within", "1", "--force")
    assert (code, "--vectors takes" in err) == (2, True)
    code, _, err = run_command("init", "exponential", "--ids", folder / "w.txt", "--out", tmp_path / "q.toml")
    assert (code, "of the three" in err) == (2, True)
    np.save(tmp_path / "few.npy", np.eye(5))
    with pytest.raises(InputError, match="more than 11"):
        init_words("exponential", tmp_path / "few.npy", None, tmp_path / "q.toml")
    np.save(tmp_path / "same.npy", np.ones((30, 2)))
    with pytest.raises(InputError, match="from one another"):
        init_words("exponential", tmp_path / "same.npy", None, tmp_path / "q.toml")
    with pytest.raises(UsageError, match="places or words"):
        init_words("hierarchical-dp", folder / "v.npy", None, tmp_path / "q.toml")


def test_figures_for_words(folder, undrawn):
    if not (folder / "out").exists():
        init_words("exponential", folder / "v.npy", folder / "w.txt", folder / "p.toml", force=True)
        solve("exponential", folder / "p.toml", folder / "out")
    release_folder = open_verified(folder / "out")
    release, data = release_folder.release, release_folder.problem.data
    figures = word_figures(release, data)
    z = release.probabilities
    assert figures.stays == pytest.approx(np.diag(z))
    assert figures.distinct == pytest.approx((1 - (1 - z) ** DRAWS_PER_WORD).sum(axis=1), rel=1e-9)
    assert figures.away == pytest.approx((z * data.to_outputs).sum(axis=1))
    section = word_section(release, data)
    assert section.html.count("<tr>") >= 3 + 12
    assert "word0" in section.html
    code, _, err = run_command("report", folder / "out")
    assert code == 0, err
    page = (folder / "out" / "report.html").read_text()
    assert "replaces some words" in page
    assert "distinct words in 1,000 reports" in page


def vector_text(words, vectors):
    return "".join(f"{word} {' '.join(map(repr, row))}\n" for word, row in zip(words, vectors.tolist(), strict=True))


@pytest.mark.parametrize("header", ["", "33 4\n"])
def test_names_tokens_that_are_left_out(header, tmp_path):
    vectors = np.random.default_rng(2).normal(size=(33, 4))
    words = [f"word{n}" for n in range(30)] + ["word3", "New York", "..."]
    (tmp_path / "glove.txt").write_text(header + vector_text(words, vectors), "utf-8")
    command = "init", "exponential", "--vectors", tmp_path / "glove.txt", "--out", tmp_path / "p.toml"
    code, _, err = run_command(*command)
    assert code == 0, err
    first = 31 + bool(header)
    assert re.search(rf"1 token left.*row {first}\b", err)
    assert re.search(rf"2 tokens left.*row {first + 1}\b", err)
    assert (tmp_path / "p-words.txt").read_text().split() == words[:30]
    assert (np.load(tmp_path / "p-vectors.npy") == vectors[:30]).all()
    solve("exponential", tmp_path / "p.toml", tmp_path / "out")


@pytest.mark.parametrize("line", ["word 1 2", "word 1 2 x 4", "word 1 2 nan 4", "word"])
def test_names_the_row_of_a_broken_vector(line, tmp_path):
    vectors = np.random.default_rng(2).normal(size=(20, 4))
    text = vector_text([f"w{n}" for n in range(20)], vectors)
    (tmp_path / "glove.txt").write_text(text + line + "\n")
    with pytest.raises(InputError, match="row 21"):
        init_words("exponential", tmp_path / "glove.txt", None, tmp_path / "p.toml")
    assert [path.name for path in tmp_path.iterdir()] == ["glove.txt"]
