"""Batches: after a kill the same command gives each row the report that it was charged for, and charges once."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from fractions import Fraction

import numpy as np
import polars as pl
import pytest
from helpers.charging import charged, said, table
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from privopt.errors import UsageError
from privopt.interfaces.cost import Cost
from privopt.ledger.batches import Batch, Coins, Digest, encode_parts, secrets_of
from privopt.ledger.entries import AccountKey
from privopt.ledger.ledger import Ledger
from privopt.numbers import TOTAL
from privopt.run.solve import solve
from privopt.run.verify import open_verified
from privopt_tables import apply as apply_module
from privopt_tables.rows.by_position import PositionProtector

NAME = "night of 2026-03-29"
SLOW = pytest.mark.slow


@pytest.fixture
def job(town, tmp_path):
    """Return a command, as its words, over 200 rows of 20 people with a limit of 4 reports each."""
    rows = [f"s{n % 20},p{n % 12},p{(5 * n) % 12}" for n in range(200)]
    trips = table(tmp_path / "trips.csv", rows, "who,start,end")
    said("budget", tmp_path / "book", "--set", "2")
    ends = ["--position", "s=start", "--position", "e=end"]
    more = ["--out", tmp_path / "safe.csv", "--ledger", tmp_path / "book", "--subject", "who", "--batch", NAME]
    return ["apply", town, trips, *ends, *more]


def key_file(folder):
    return next((folder / "book.batches").glob("*/key"), None)


def test_a_batch_that_ends_is_not_run_again(job, tmp_path):
    code, out, err = said(*job, "--json")
    assert code == 0, err
    assert json.loads(out) == {"rows": 200, "reported": 40, "refused": {"budget spent": 160}}
    first, entries = (tmp_path / "safe.csv").read_bytes(), charged(tmp_path / "book")
    assert key_file(tmp_path) is None
    code, again, err = said(*job, "--json")
    assert (code, json.loads(again)) == (0, json.loads(out))
    assert "is finished" in err
    assert (tmp_path / "safe.csv").read_bytes() == first
    assert charged(tmp_path / "book") == entries
    trips = (tmp_path / "trips.csv").read_text()
    for other in ("who,start,end\ns1,p1,p1\n", trips.replace("s3,p3,p3", "s3,p4,p3")):
        (tmp_path / "trips.csv").write_text(other)
        code, _, err = said(*job)
        assert (code, "finished with" in err) == (2, True)
    (tmp_path / "safe.csv").unlink()
    assert said(*job)[0] == 2


def test_what_is_lost_of_a_batch_is_told(job, tmp_path, monkeypatch):
    assert said("budget", tmp_path / "book", "--forget-batch", "no such batch")[0] == 2
    with monkeypatch.context() as patch:
        patch.setattr(Batch, "finish", lambda *_: None)
        assert said(*job)[0] == 0
    next((tmp_path / "book.batches").glob("*/record.json")).unlink()
    code, _, err = said(*job, "--force")  # with the record gone other data could have passed for the batch's
    assert (code, "its record is gone" in err) == (1, True)


@pytest.mark.parametrize("moment", ["drawn", "written", "named"])
def test_what_is_stopped_goes_on_with_the_same_reports(job, tmp_path, monkeypatch, moment):
    def stop(*given, **more):
        raise KeyboardInterrupt

    drawn = []
    with monkeypatch.context() as patch:
        if moment == "drawn":
            patch.setattr(PositionProtector, "notes", stop)
        if moment == "written":
            patch.setattr(apply_module.TableWriter, "finish", stop)
        if moment == "named":
            patch.setattr(Batch, "finish", stop)
        protect = PositionProtector.protect
        patch.setattr(PositionProtector, "protect", lambda *of: drawn.append(protect(*of)) or drawn[-1])
        assert said(*job)[0] in (1, 5)
    entries = charged(tmp_path / "book")
    assert len(entries) == 40
    code, _, err = said(*job)
    assert code == 0, err
    assert charged(tmp_path / "book") == entries
    again = pl.read_csv(tmp_path / "safe.csv")
    assert again["s_report"].to_list() == drawn[0]["s_report"].to_list()
    assert again["e_report"].to_list() == drawn[0]["e_report"].to_list()


def test_a_table_that_changes_while_it_is_read_gives_no_reports(job, tmp_path, monkeypatch):
    # a batch that is killed after its table has its name draws again, and then for the rows of its digest
    trips, begin = tmp_path / "trips.csv", Batch.begin
    first = trips.read_text()

    def begin_and_change(batch, digest):
        begin(batch, digest)
        trips.write_text(first.replace("s3,p3,p3", "s3,p4,p3"))

    with monkeypatch.context() as patch:
        patch.setattr(Batch, "begin", begin_and_change)
        code, _, err = said(*job)
    assert (code, "changed while it was read" in err) == (1, True)
    assert not (tmp_path / "safe.csv").exists()
    trips.write_text(first)
    assert said(*job)[0] == 0


def kill_at(words, seconds, begun=None):
    """Run a command and kill it after some time: from its start, or from when a file of its batch is there."""
    process = subprocess.Popen(
        [sys.executable, "-m", "privopt", *map(str, words), "--quiet"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while begun is not None and not begun.exists() and process.poll() is None:
        time.sleep(0.001)
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def state_of(folder, book, name):
    """How far a batch has come."""
    if not (folder / "record.json").exists():
        return "not begun"
    state = json.loads((folder / "record.json").read_bytes())["state"]
    some = any(f"batch {name} " in cost.purpose for _, cost in charged(book))
    return "charged" if state == "begun" and some else state


@pytest.mark.parametrize(("kills", "seed"), [(4, 0), *(pytest.param(20, seed, marks=SLOW) for seed in range(1, 4))])
def test_after_kills_every_row_has_its_one_report(job, tmp_path, kills, seed):
    chance, found = random.Random(seed), Counter()
    begun = time.monotonic()
    assert subprocess.run([sys.executable, "-m", "privopt", "list"], capture_output=True, check=False).returncode == 0
    whole = 3 * (time.monotonic() - begun)  # about what the command takes on this machine, now
    for number in range(kills):
        name = f"{NAME}, {number // 4}"
        words = [name if word == NAME else word for word in job]
        folder = tmp_path / "book.batches" / hashlib.sha256(name.encode()).hexdigest()[:32]
        if number % 4:  # from the folder on, or from just before the first charge
            since, longest = (folder, 0.3) if number % 4 == 1 else (folder / "record.json", 0.1)
            ended = kill_at(words, chance.uniform(0, longest) * whole, since)
        else:
            ended = kill_at(words, chance.uniform(0, 1.2) * whole)
        found[state_of(folder, tmp_path / "book", name) if ended == -signal.SIGKILL else "ended before"] += 1
        if number % 4 == 3:
            code, _, err = said(*words)
            assert code == 0, err
            safe = pl.read_csv(tmp_path / "safe.csv")
            reported = safe.filter(pl.col("s_report").is_not_null() & pl.col("e_report").is_not_null())
            of_batch = [cost for _, cost in charged(tmp_path / "book") if f"batch {name} " in cost.purpose]
            assert len(of_batch) == len(reported) == 40
            assert sum(cost.epsilon for cost in of_batch) == len(reported)
            (tmp_path / "safe.csv").unlink()
            said("budget", tmp_path / "book", "--set", str(2 * (number // 4 + 2)))
    print(f"seed {seed}, batches when they were killed: {dict(found)}")


def test_an_unfinished_batch_replaces_its_own_table_alone(job, tmp_path, monkeypatch):
    def killed(self, made):
        noted(self, made)
        raise KeyboardInterrupt

    noted = Batch.begin_writing
    with monkeypatch.context() as patch:
        patch.setattr(Batch, "begin_writing", killed)
        assert said(*job)[0] in (1, 5)
    (tmp_path / "safe.csv").write_text("somebody else's\n")
    code, _, err = said(*job)
    assert (code, "exists already" in err) == (2, True)
    assert (tmp_path / "safe.csv").read_text() == "somebody else's\n"


def test_an_empty_table_leaves_nothing_of_its_batch(job, tmp_path):
    whole = (tmp_path / "trips.csv").read_text()
    (tmp_path / "trips.csv").write_text("who,start,end\n")
    code, _, err = said(*job)
    assert (code, "it has no rows" in err) == (2, True)
    assert {path.name for path in (tmp_path / "book.batches").rglob("*") if path.is_file()} == {"lock"}
    (tmp_path / "trips.csv").write_text(whole)
    assert said(*job)[0] == 0


def test_other_data_release_or_options_are_refused(job, town, tmp_path, monkeypatch):
    monkeypatch.setattr(Batch, "finish", lambda *_: None)
    assert said(*job)[0] == 0
    trips = tmp_path / "trips.csv"
    before = trips.read_text()
    other = solve("optimal-lp", town.parent / "p.toml", tmp_path / "other").folder
    changed = [
        lambda: trips.write_text(before.replace("s3,p3,p3", "s3,p4,p3")),
        lambda: trips.write_text(before.replace("s3,p3,p3", "s4,p3,p3")),
        lambda: trips.write_text(before + "s1,p1,p1\n"),
        lambda: trips.write_text("who,start,end\n" + "\n".join(reversed(before.split()[1:])) + "\n"),
    ]
    for change in changed:
        change()
        code, _, err = said(*job)
        assert (code, "it began with" in err) == (2, True)
    trips.write_text(before)
    for words in (
        [other if word == town else word for word in job],
        ["e=start" if word == "e=end" else "s=end" if word == "s=start" else word for word in job],
    ):
        assert said(*words)[0] == 2
    assert said(*job)[0] == 0
    assert len(charged(tmp_path / "book")) == 40


def test_a_forgotten_name_is_used_up(job, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Batch, "finish", lambda *_: None)
        assert said(*job)[0] == 0
    assert key_file(tmp_path) is not None
    assert said("budget", tmp_path / "book", "--forget-batch", NAME)[0] == 0
    assert key_file(tmp_path) is None
    code, _, err = said(*job, "--force")
    assert (code, "forgotten" in err) == (2, True)
    for path in sorted((tmp_path / "book.batches").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    code, _, err = said(*job, "--force")  # the record is gone, too; the ledger knows
    assert (code, "whose key is gone" in err) == (2, True)
    assert len(charged(tmp_path / "book")) == 40


def test_a_batch_whose_key_is_gone_does_not_hold(job, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Batch, "finish", lambda *_: None)
        said(*job)
    key_file(tmp_path).unlink()
    assert said(*job)[0] == 1


@pytest.mark.parametrize("more", [["--seed", "1"], ["--sticky"]])
def test_what_depends_on_more_than_a_row_has_no_batch(town, tmp_path, more):
    trips = table(tmp_path / "trips.csv", ["a,p1"])
    words = ["apply", town, trips, "--id", "place", "--out", tmp_path / "safe.csv", "--batch", "x"]
    assert said(*words)[0] == 2
    assert said(*words, "--ledger", tmp_path / "book", "--subject", "who", *more)[0] == 2


def test_a_batch_runs_once_at_a_time(tmp_path):
    with Batch(ledger=tmp_path / "book", name="x").opened():
        with pytest.raises(UsageError, match="another process"), Batch(ledger=tmp_path / "book", name="x").opened():
            pass
        with Batch(ledger=tmp_path / "book", name="y").opened():
            pass
    for name in ("", " ", "a\nb", "x" * 201):
        with pytest.raises(UsageError, match="batch must be"):
            Batch(ledger=tmp_path / "book", name=name)


def test_reports_of_batches_are_as_likely_as_certified_and_apart(town, tmp_path):
    """Start and end are one place in every row: streams without the name of the position would be equal."""
    count = 6_000
    trips = tmp_path / "trips.csv"
    pl.DataFrame({"who": [f"s{n}" for n in range(count)], "start": ["p0"] * count, "end": ["p0"] * count}).write_csv(
        trips
    )
    ends = ["--position", "s=start", "--position", "e=end"]
    more = ["--out", tmp_path / "safe.csv", "--ledger", tmp_path / "book", "--subject", "who", "--batch", "x"]
    assert said("apply", town, trips, *ends, *more)[0] == 0
    safe = pl.read_csv(tmp_path / "safe.csv")
    release = open_verified(town).release
    names = release.outputs.tolist()
    chances = release.weights[names.index("p0")] / TOTAL
    pairs = Counter(zip(safe["s_report"], safe["e_report"], strict=True))
    found = np.array([[pairs[a, b] for b in names] for a in names])
    expected = count * np.outer(chances, chances)
    assert chisquare(found.ravel(), expected.ravel()).pvalue > 1e-6


@given(st.lists(st.binary(max_size=4), max_size=4), st.lists(st.binary(max_size=4), max_size=4))
def test_no_two_lists_of_parts_are_encoded_alike(one, other):
    assert (encode_parts(one) == encode_parts(other)) == (one == other)


def test_streams_are_those_of_shake_and_their_bytes_hang_together():
    coins = Coins(encode_parts([b"k" * 32, b"x"]))
    whole = coins.stream("output", b"7", "start", b"p1", 0, 40)
    parts = (b"output", b"7", b"start", b"p1")
    assert whole == hashlib.shake_256(encode_parts([b"k" * 32, b"x"]) + encode_parts(parts)).digest(40)
    assert coins.stream("output", b"7", "start", b"p1", 8, 8) == whole[8:16]
    assert secrets_of([[0.0, None], [1.5, 1.5]]) == secrets_of([[-0.0, None], [1.5, 1.5]])


def test_a_digest_does_not_depend_on_the_order_in_which_rows_come():
    rows = [(bytes([n]), b"x") for n in range(5)]
    one, other = Digest(bytes(32)), Digest(bytes(32))
    for row in rows:
        one.add(*row)
    for row in reversed(rows):
        other.add(*row)
    assert one.text == other.text
    other.add(*rows[0])
    assert one.text != other.text


def test_charges_for_a_purpose_are_told_by_account(tmp_path):
    with Ledger(tmp_path / "book") as ledger:
        ledger.charge_each(["a", "a", "b"], Cost(epsilon=1, unit="per km", purpose="x"))
        ledger.charge("a", Cost(epsilon=1, unit="per km", purpose="y"))
        ledger.charge("b", Cost(epsilon="0.5", unit="per km", purpose="x"))
        assert ledger.charges_for("x") == {AccountKey("a"): [1, 1], AccountKey("b"): [1, Fraction(1, 2)]}
        assert sorted(ledger.purposes()) == ["x", "y"]
