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
from helpers.charging import charged, said
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


def table(path, *texts, who=None):
    pl.DataFrame({"who": who or ["anna"] * len(texts), "said": texts, "n": range(len(texts))}).write_csv(path)
    return path


def test_words_of_any_script():
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
    asked = ("the", "The", "THE", "STRASSE", "caf\u00e9", "x")
    assert [word_number(numbers, word) for word in asked] == [0, 1, 0, 2, 3, -1]


@given(st.text())
def test_no_sign_but_letters_marks_digits_and_inner_apostrophes_is_in_a_word(text):
    for word in split_words(text):
        assert word
        assert not re.search(r"[\s_.,;:!?()-]", word)
        assert not word.startswith("'")
        assert not word.endswith("'")


def test_nothing_of_a_sentence_survives_but_protected_words_and_masks(words, tmp_path, privopt):
    texts = ["The cat, 30 km from Rome -- sat!", "don\u2019t", "12:45", None]
    rows = table(tmp_path / "t.csv", *texts)
    done = privopt("apply", words, rows, "--text", "said", "--out", tmp_path / "o.csv", "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    refused = {"no known word": 1, "no text": 1}
    assert found == {"rows": 4, "reported": 2, "refused": refused, "words": 5, "dropped": 3}
    assert "row by row, the same number of known words" in done.stderr
    out = pl.read_csv(tmp_path / "o.csv")
    assert out.columns == ["who", "said", "n"]
    assert [len((text or "").split(" ")) for text in out["said"][:2]] == [4, 1]
    assert out["said"][2:].is_null().all()
    assert {word for text in out["said"][:2] for word in text.split(" ")} <= set(WORDS)
    masked = apply(words, rows, tmp_path / "m.csv", TEXT, ApplyOptions(text="said", unknown="mask"))
    counts = {"rows": 4, "reported": 3, "words": 5, "dropped": 0, "masked": 5}
    assert masked.to_json() | {"refused": {}} == counts | {"refused": {}}
    shown = pl.read_csv(tmp_path / "m.csv")["said"].to_list()
    assert [word == MASK for word in shown[0].split(" ")] == [False, False, True, True, True, False, False]
    assert shown[2] == f"{MASK} {MASK}"


def test_words_are_as_likely_as_certified_and_of_their_own_coins(words, tmp_path):
    rows = table(tmp_path / "t.csv", *["cat cat sat"] * 6_000)
    apply(words, rows, tmp_path / "o.csv", TEXT, ApplyOptions(text="said"))
    release = open_verified(words).release
    parted = [text.split(" ") for text in pl.read_csv(tmp_path / "o.csv")["said"]]
    for at, word in enumerate(["cat", "cat", "sat"]):
        counts = Counter(row[at] for row in parted)
        weights = release.weights[release.records.tolist().index(word)] / TOTAL
        found = [counts[name] for name in release.outputs.tolist()]
        assert chisquare(found, weights * len(parted)).pvalue > 1e-6
    same = sum(row[0] == row[1] for row in parted) / len(parted)
    weights = release.weights[release.records.tolist().index("cat")] / TOTAL
    assert same == pytest.approx(float((weights**2).sum()), abs=0.04)


def test_each_known_word_is_charged_and_a_shorter_sentence_that_fits_is_reported(words, tmp_path):
    said("budget", tmp_path / "book", "--set", "2")
    rows = table(tmp_path / "t.csv", "the cat", "the cat sat", "30 40", "don't 30")
    asked = ApplyOptions(text="said", charge=Charge(ledger=tmp_path / "book", subject="who"))
    done = apply(words, rows, tmp_path / "o.csv", TEXT, asked)
    assert done.to_json()["refused"] == {"no known word": 1, "budget spent": 1}
    assert done.counts == {"words": 3, "dropped": 1}
    code, out, _ = said("budget", tmp_path / "book", "--json")
    (anna,) = json.loads(out)["subjects"]
    assert (code, Fraction(anna["spent"]), anna["reports"]) == (0, Fraction(3, 2), 2)
    (charged_so,) = [note for note in done.notes if "charges and refusals show how many" in note]
    assert "at epsilon 0.5 per unit of distance between vectors times their number" in charged_so
    assert not any("tell nothing of it" in note for note in done.notes)


LONGEST = 4


@settings(max_examples=15)
@given(
    st.lists(st.tuples(st.sampled_from(["anna", "bert"]), st.integers(0, LONGEST)), min_size=1, max_size=24),
    st.lists(st.integers(0, 24), max_size=3),
    st.lists(st.integers(0, 20), min_size=4, max_size=4),
)
def test_a_batch_that_goes_on_finds_which_sentences_were_charged(rows, stops, limits):
    """After each stop the limit is another one; what was granted stays so, and each granted word has its charge."""
    with tempfile.TemporaryDirectory() as place:
        book, cost = Path(place, "book"), Cost(epsilon="0.5", unit="per word")
        frame = nw.from_native(pl.DataFrame({"who": [who for who, _ in rows]}), eager_only=True)
        times, before = np.array([count for _, count in rows]), np.zeros(len(rows), dtype=bool)
        for stop, limit in zip([*stops, len(rows)], limits, strict=False):
            with Ledger(book) as ledger:
                ledger.set_limit(limit)
            charging = RowCharger(to=Charge(ledger=book, subject="who"), cost=cost)
            with Batch(ledger=book, name="one").opened() as batch, charging.opened():
                charging.begin(batch)
                batch.begin(Digest(batch.key()))
                granted, _ = charging.granted(frame[:stop], times[:stop])
            assert (granted >= before[:stop]).all()
            before[:stop] = granted
            with Ledger(book) as ledger:
                spent = {account.subject: account.spent for account in ledger.accounts()}
            for who in ("anna", "bert"):
                mine = np.array([name == who for name, _ in rows])
                assert spent.get(who, 0) == Fraction(int(times[before & mine].sum()), 2)


def test_a_batch_of_sentences_is_charged_once_and_repeats_its_words(words, tmp_path, monkeypatch):
    said("budget", tmp_path / "book", "--set", "3")
    texts = ["cat cat", "30", "the cat sat", "Rome", "sat sat"] * 3
    rows = table(tmp_path / "t.csv", *texts, who=["anna", "bert", "anna", "bert", "anna"] * 3)
    asked = ApplyOptions(text="said", charge=Charge(ledger=tmp_path / "book", subject="who"), batch="one")
    from privopt_tables.rows.by_word import WordProtector

    drawn = []
    protect = WordProtector.protect

    def killed(self, frame, first=0):
        drawn.append(protect(self, frame, first))
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(WordProtector, "protect", killed)
        with pytest.raises(StoppedError):
            apply(words, rows, tmp_path / "o.csv", TEXT, asked)
    before = charged(tmp_path / "book")
    done = apply(words, rows, tmp_path / "o.csv", TEXT, asked)
    assert charged(tmp_path / "book") == before
    out = pl.read_csv(tmp_path / "o.csv")["said"].to_list()
    assert out == drawn[0]["said"].to_list()
    of_anna = [text is not None for text, who in zip(out, pl.read_csv(rows)["who"], strict=True) if who == "anna"]
    assert of_anna == [True, True, False, False, False, False, False, False, False]
    assert done.counts["words"] == sum(len(text.split(" ")) for text in out if text)
    whose = pl.read_csv(rows)["who"].to_list()
    for name in ("anna", "bert"):
        known = [text for text, who in zip(out, whose, strict=True) if text and who == name]
        assert sum(Fraction(len(text.split(" ")), 2) for text in known) <= 3
    again = apply(words, rows, tmp_path / "o.csv", TEXT, asked)
    assert again.counts == done.counts


@pytest.mark.parametrize(
    ("more", "words_of_error"),
    [
        (["--id", "n"], "--id must be omitted with --text"),
        (["--position", "a=n"], "--position must be omitted with --text"),
        (["--prefix", "a"], "prefix must be omitted"),
        (["--sticky", "--ledger", "book", "--subject", "who"], "sticky must be omitted"),
    ],
)
def test_what_a_sentence_cannot_have_says_so(words, tmp_path, more, words_of_error):
    rows = table(tmp_path / "t.csv", "the cat")
    code, _, err = said("apply", words, rows, "--text", "said", "--out", tmp_path / "o.csv", *more)
    assert (code, words_of_error in err) == (2, True), err
    code, _, err = said("apply", words, rows, "--id", "said", "--unknown", "mask", "--out", tmp_path / "o.csv")
    assert (code, "--unknown must be given with --text" in err) == (2, True)
    with pytest.raises(UsageError, match="drop or mask"):
        apply(words, rows, tmp_path / "o.csv", TEXT, ApplyOptions(text="said", unknown="keep"))


def test_in_memory(words):
    import privopt as po

    release = po.open(words)
    frame = pl.DataFrame({"said": ["the cat sat", "30"], "n": [1, 2]})
    with pytest.warns(UserWarning, match="1 of 2 rows without a report"):
        made = release.apply(frame, text="said")
    assert made.columns == ["said", "n"]
    assert len(made["said"][0].split(" ")) == 3
    with pytest.raises(UsageError, match="id must be omitted with text"):
        release.apply(frame, text="said", id="n")
    with pytest.raises(UsageError, match="sticky_within must be given with a ledger"):
        release.apply(frame, id="said", sticky_within=1.0)
