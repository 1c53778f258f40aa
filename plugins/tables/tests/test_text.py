"""`apply --text`: what stays of a sentence is protected words and masks, each word is charged, and batches repeat."""

import json
import re
import tempfile
from collections import Counter
from fractions import Fraction
from pathlib import Path

import narwhals as nw
import numpy as np
import polars as pl
import pytest
from helpers.charging import read_charges, run_command
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from privopt.errors import StoppedError, UsageError
from privopt.interfaces.cost import Cost
from privopt.ledger.batches import Batch, Digest
from privopt.ledger.charge import Charge
from privopt.ledger.ledger import Ledger
from privopt.numbers import TOTAL
from privopt.run.solve import solve
from privopt.run.verify import open_verified
from privopt_tables.apply import apply
from privopt_tables.charge_rows import RowCharger
from privopt_tables.options import ApplyOptions
from privopt_tables.rows.by_word import MASK, split_words, vocabulary, word_number
from privopt_tables.secret_columns import Secret

WORDS = ["the", "cat", "café", "sat", "Rome", "don't"]
TEXT = Secret.of(id="said")
PROBLEM = """
[records]
vectors = "v.npy"
ids = "ids.txt"
[distance]
kind = "euclidean"
[privacy]
epsilon = 0.5
[utility]
kind = "distance"
"""


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """DIR of six words."""
    folder = tmp_path_factory.mktemp("words")
    np.save(folder / "v.npy", np.random.default_rng(1).normal(size=(len(WORDS), 3)))
    (folder / "ids.txt").write_text("\n".join(WORDS) + "\n")
    (folder / "p.toml").write_text(PROBLEM)
    return solve("exponential", folder / "p.toml", folder / "out").folder


def write_texts(path, *texts, names=None):
    pl.DataFrame({"who": names or ["anna"] * len(texts), "said": texts, "n": range(len(texts))}).write_csv(path)
    return path


def test_finds_words_of_any_script():
    assert split_words("He\u2019s 30, 'cafe\u0301-owner' at 12:45!") == [
        "He's",
        "30",
        "café",
        "owner",
        "at",
        "12",
        "45",
    ]
    assert split_words("नमस्ते दुनिया") == ["नमस्ते", "दुनिया"]  # marks are letters' own
    assert split_words("a_b\u00a0c\u200bd 'n' ''") == ["a", "b", "c", "d", "n"]
    numbers = vocabulary(["the", "The", "Straße", "cafe\u0301"])
    words = ("the", "The", "THE", "STRASSE", "caf\u00e9", "x")
    assert [word_number(numbers, word) for word in words] == [0, 1, 0, 2, 3, -1]


@given(st.text())
def test_words_hold_letters_digits_and_apostrophes(text):
    for word in split_words(text):
        assert word
        assert not re.search(r"[\s_.,;:!?()-]", word)
        assert not word.startswith("'")
        assert not word.endswith("'")


def test_only_protected_words_and_masks_survive(words, tmp_path, privopt):
    texts = ["The cat, 30 km from Rome -- sat!", "don\u2019t", "12:45", None]
    rows = write_texts(tmp_path / "t.csv", *texts)
    completed = privopt("apply", words, rows, "--text", "said", "--out", tmp_path / "o.csv", "--json")
    assert completed.returncode == 0, completed.stderr
    summary = json.loads(completed.stdout)
    refusal_counts = {"no known word": 1, "no text": 1}
    assert summary == {"rows": 4, "reported": 2, "refused": refusal_counts, "words": 5, "dropped": 3}
    assert "number of known" in completed.stderr
    output = pl.read_csv(tmp_path / "o.csv")
    assert output.columns == ["who", "said", "n"]
    assert [len((text or "").split(" ")) for text in output["said"][:2]] == [4, 1]
    assert output["said"][2:].is_null().all()
    assert {word for text in output["said"][:2] for word in text.split(" ")} <= set(WORDS)
    masked = apply(words, rows, tmp_path / "m.csv", TEXT, ApplyOptions(text="said", unknown="mask"))
    counts = {"rows": 4, "reported": 3, "words": 5, "dropped": 0, "masked": 5}
    assert masked.to_json() | {"refused": {}} == counts | {"refused": {}}
    masked_texts = pl.read_csv(tmp_path / "m.csv")["said"].to_list()
    assert [word == MASK for word in masked_texts[0].split(" ")] == [False, False, True, True, True, False, False]
    assert masked_texts[2] == f"{MASK} {MASK}"


def test_words_follow_the_law_independently(words, tmp_path):
    rows = write_texts(tmp_path / "t.csv", *["cat cat sat"] * 6_000)
    apply(words, rows, tmp_path / "o.csv", TEXT, ApplyOptions(text="said"))
    release = open_verified(words).release
    parted = [text.split(" ") for text in pl.read_csv(tmp_path / "o.csv")["said"]]
    for index, word in enumerate(["cat", "cat", "sat"]):
        counts = Counter(row[index] for row in parted)
        weights = release.weights[release.records.tolist().index(word)] / TOTAL
        word_counts = [counts[name] for name in release.outputs.tolist()]
        assert chisquare(word_counts, weights * len(parted)).pvalue > 1e-6
    equal_share = sum(row[0] == row[1] for row in parted) / len(parted)
    weights = release.weights[release.records.tolist().index("cat")] / TOTAL
    assert equal_share == pytest.approx(float((weights**2).sum()), abs=0.04)


def test_each_known_word_is_charged(words, tmp_path):
    run_command("budget", tmp_path / "book", "--set", "2")
    rows = write_texts(tmp_path / "t.csv", "the cat", "the cat sat", "30 40", "don't 30")
    apply_options = ApplyOptions(text="said", charge=Charge(ledger=tmp_path / "book", subject="who"))
    summary = apply(words, rows, tmp_path / "o.csv", TEXT, apply_options)
    assert summary.to_json()["refused"] == {"no known word": 1, "budget spent": 1}
    assert summary.counts == {"words": 3, "dropped": 1}
    code, output, _ = run_command("budget", tmp_path / "book", "--json")
    (anna,) = json.loads(output)["subjects"]
    assert (code, Fraction(anna["spent"]), anna["reports"]) == (0, Fraction(3, 2), 2)
    (charged_so,) = [note for note in summary.notes if "charges and refusals show how many" in note]
    assert "epsilon 0.5 per" in charged_so
    assert not any("tell nothing" in note for note in summary.notes)


LONGEST = 4


@settings(max_examples=15)
@given(
    st.lists(st.tuples(st.sampled_from(["anna", "bert"]), st.integers(0, LONGEST)), min_size=1, max_size=24),
    st.lists(st.integers(0, 24), max_size=3),
    st.lists(st.integers(0, 20), min_size=4, max_size=4),
)
def test_resumed_batch_finds_charged_sentences(rows, stops, limits):
    """After each stop the limit is another one; what was granted stays so, and each granted word has its charge."""
    with tempfile.TemporaryDirectory() as workspace:
        book, cost = Path(workspace, "book"), Cost(epsilon="0.5", unit="per word")
        frame = nw.from_native(pl.DataFrame({"who": [subject for subject, _ in rows]}), eager_only=True)
        times, previous = np.array([count for _, count in rows]), np.zeros(len(rows), dtype=bool)
        for stop, limit in zip([*stops, len(rows)], limits, strict=False):
            with Ledger(book) as ledger:
                ledger.set_limit(limit)
            charging = RowCharger(charge=Charge(ledger=book, subject="who"), cost=cost)
            with Batch(ledger=book, name="one").open_folder() as batch, charging.open_ledger():
                charging.begin(batch)
                batch.begin(Digest(batch.key()))
                is_granted, _ = charging.charge_table(frame[:stop], times[:stop])
            assert (is_granted >= previous[:stop]).all()
            previous[:stop] = is_granted
            with Ledger(book) as ledger:
                spent_by_subject = {account.subject: account.spent for account in ledger.accounts()}
            for subject in ("anna", "bert"):
                mine = np.array([name == subject for name, _ in rows])
                assert spent_by_subject.get(subject, 0) == Fraction(int(times[previous & mine].sum()), 2)


def test_batch_of_sentences_is_charged_once(words, tmp_path, monkeypatch):
    run_command("budget", tmp_path / "book", "--set", "3")
    texts = ["cat cat", "30", "the cat sat", "Rome", "sat sat"] * 3
    rows = write_texts(tmp_path / "t.csv", *texts, names=["anna", "bert", "anna", "bert", "anna"] * 3)
    apply_options = ApplyOptions(text="said", charge=Charge(ledger=tmp_path / "book", subject="who"), batch="one")
    from privopt_tables.rows.by_word import WordProtector

    drawn_tables = []
    protect = WordProtector.protect

    def protect_and_kill(self, frame, first=0):
        drawn_tables.append(protect(self, frame, first))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(WordProtector, "protect", protect_and_kill)
        with pytest.raises(StoppedError):
            apply(words, rows, tmp_path / "o.csv", TEXT, apply_options)
    first_charges = read_charges(tmp_path / "book")
    summary = apply(words, rows, tmp_path / "o.csv", TEXT, apply_options)
    assert read_charges(tmp_path / "book") == first_charges
    written_texts = pl.read_csv(tmp_path / "o.csv")["said"].to_list()
    assert written_texts == drawn_tables[0]["said"].to_list()
    of_anna = [
        text is not None
        for text, subject in zip(written_texts, pl.read_csv(rows)["who"], strict=True)
        if subject == "anna"
    ]
    assert of_anna == [True, True, False, False, False, False, False, False, False]
    assert summary.counts["words"] == sum(len(text.split(" ")) for text in written_texts if text)
    subjects = pl.read_csv(rows)["who"].to_list()
    for name in ("anna", "bert"):
        known_texts = [text for text, subject in zip(written_texts, subjects, strict=True) if text and subject == name]
        assert sum(Fraction(len(text.split(" ")), 2) for text in known_texts) <= 3
    second_summary = apply(words, rows, tmp_path / "o.csv", TEXT, apply_options)
    assert second_summary.counts == summary.counts


@pytest.mark.parametrize(
    ("options", "words_of_error"),
    [
        (["--id", "n"], "--id must be"),
        (["--position", "a=n"], "--position must be"),
        (["--prefix", "a"], "prefix must be"),
        (["--sticky", "--ledger", "book", "--subject", "who"], "sticky must be"),
    ],
)
def test_refuses_options_that_do_not_fit_text(words, tmp_path, options, words_of_error):
    rows = write_texts(tmp_path / "t.csv", "the cat")
    code, _, err = run_command("apply", words, rows, "--text", "said", "--out", tmp_path / "o.csv", *options)
    assert (code, words_of_error in err) == (2, True), err
    code, _, err = run_command("apply", words, rows, "--id", "said", "--unknown", "mask", "--out", tmp_path / "o.csv")
    assert (code, "--unknown must be" in err) == (2, True)
    with pytest.raises(UsageError, match="drop or mask"):
        apply(words, rows, tmp_path / "o.csv", TEXT, ApplyOptions(text="said", unknown="keep"))


def test_protects_texts_in_memory(words):
    import privopt as po

    release = po.open(words)
    frame = pl.DataFrame({"said": ["the cat sat", "30"], "n": [1, 2]})
    with pytest.warns(UserWarning, match="1 of 2 rows"):
        result = release.apply(frame, text="said")
    assert result.columns == ["said", "n"]
    assert len(result["said"][0].split(" ")) == 3
    with pytest.raises(UsageError, match="id must be"):
        release.apply(frame, text="said", id="n")
    with pytest.raises(UsageError, match="sticky_within must be"):
        release.apply(frame, id="said", sticky_within=1.0)
