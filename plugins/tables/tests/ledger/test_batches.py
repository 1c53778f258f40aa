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
from helpers.charging import read_charges, run_command, table
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
    run_command("budget", tmp_path / "book", "--set", "2")
    positions = ["--position", "s=start", "--position", "e=end"]
    more = ["--out", tmp_path / "safe.csv", "--ledger", tmp_path / "book", "--subject", "who", "--batch", NAME]
    return ["apply", town, trips, *positions, *more]


def key_file(folder):
    return next((folder / "book.batches").glob("*/key"), None)


def test_finished_batch_is_not_run_again(job, tmp_path):
    code, output, err = run_command(*job, "--json")
    assert code == 0, err
    assert json.loads(output) == {"rows": 200, "reported": 40, "refused": {"budget spent": 160}}
    first, entries = (tmp_path / "safe.csv").read_bytes(), read_charges(tmp_path / "book")
    assert key_file(tmp_path) is None
    code, second_output, err = run_command(*job, "--json")
    assert (code, json.loads(second_output)) == (0, json.loads(output))
    assert "is finished" in err
    assert (tmp_path / "safe.csv").read_bytes() == first
    assert read_charges(tmp_path / "book") == entries
    trips = (tmp_path / "trips.csv").read_text()
    for changed_text in ("who,start,end\ns1,p1,p1\n", trips.replace("s3,p3,p3", "s3,p4,p3")):
        (tmp_path / "trips.csv").write_text(changed_text)
        code, _, err = run_command(*job)
        assert (code, "finished with" in err) == (2, True)
    (tmp_path / "safe.csv").unlink()
    assert run_command(*job)[0] == 2


OTHER_OPTIONS = {
    "--drop": ("--drop", "note"),
    "--hash": ("--hash", "note", "--hash-key", "KEY"),
    "--prefix": ("--prefix", "safe"),
    "--max-snap": ("--max-snap", "5"),
    "--keep": ("--keep", "note"),
}


@pytest.mark.parametrize("option", OTHER_OPTIONS)
def test_finished_batch_refuses_other_options(town, tmp_path, option):
    """Its table is not written again, so a column that is to be dropped now would stay without a word."""
    trips = table(tmp_path / "trips.csv", [f"s{n},p{n},x" for n in range(6)], "who,place,note")
    job = ["apply", town, trips, "--id", "place", "--out", tmp_path / "safe.csv"]
    job += ["--ledger", tmp_path / "book", "--subject", "who", "--batch", NAME]
    assert run_command(*job)[0] == 0
    first, entries = (tmp_path / "safe.csv").read_bytes(), read_charges(tmp_path / "book")
    more = [str(tmp_path / "key") if word == "KEY" else word for word in OTHER_OPTIONS[option]]
    code, output, err = run_command(*job, *more)
    assert code == 2, output
    assert option in err
    assert "finished" in err
    assert not (tmp_path / "key").exists()
    assert (tmp_path / "safe.csv").read_bytes() == first
    assert read_charges(tmp_path / "book") == entries
    assert run_command(*job)[0] == 0  # and with its own it says that it is finished


def test_finished_batch_refuses_another_hash_key(town, tmp_path):
    trips = table(tmp_path / "trips.csv", [f"s{n},p{n},x" for n in range(6)], "who,place,note")
    job = ["apply", town, trips, "--id", "place", "--out", tmp_path / "safe.csv", "--hash", "note"]
    job += ["--ledger", tmp_path / "book", "--subject", "who", "--batch", NAME]
    code, _, err = run_command(*job, "--hash-key", tmp_path / "first.key")
    assert code == 0, err
    (tmp_path / "moved.key").write_bytes((tmp_path / "first.key").read_bytes())
    (tmp_path / "moved.key").chmod(0o600)
    assert run_command(*job, "--hash-key", tmp_path / "moved.key")[0] == 0  # the same key under another name
    code, _, err = run_command(*job, "--hash-key", tmp_path / "second.key")
    assert (code, "--hash-key" in err) == (2, True)
    assert not (tmp_path / "second.key").exists()


def test_states_what_is_lost_of_a_batch(job, tmp_path, monkeypatch):
    assert run_command("budget", tmp_path / "book", "--forget-batch", "no such batch")[0] == 2
    with monkeypatch.context() as patch:
        patch.setattr(Batch, "finish", lambda *_: None)
        assert run_command(*job)[0] == 0
    next((tmp_path / "book.batches").glob("*/record.json")).unlink()
    code, _, err = run_command(*job, "--force")  # with the record gone other data could have passed for the batch's
    assert (code, "record is gone" in err) == (1, True)


@pytest.mark.parametrize("moment", ["drawn", "written", "named"])
def test_stopped_batch_continues_with_same_reports(job, tmp_path, monkeypatch, moment):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    drawn_tables = []
    with monkeypatch.context() as patch:
        if moment == "drawn":
            patch.setattr(PositionProtector, "notes", stop)
        if moment == "written":
            patch.setattr(apply_module.TableWriter, "finish", stop)
        if moment == "named":
            patch.setattr(Batch, "finish", stop)
        protect = PositionProtector.protect
        patch.setattr(PositionProtector, "protect", lambda *of: drawn_tables.append(protect(*of)) or drawn_tables[-1])
        assert run_command(*job)[0] in (1, 5)
    entries = read_charges(tmp_path / "book")
    assert len(entries) == 40
    code, _, err = run_command(*job)
    assert code == 0, err
    assert read_charges(tmp_path / "book") == entries
    second_table = pl.read_csv(tmp_path / "safe.csv")
    assert second_table["s_report"].to_list() == drawn_tables[0]["s_report"].to_list()
    assert second_table["e_report"].to_list() == drawn_tables[0]["e_report"].to_list()


def test_table_changed_while_read_gives_no_reports(job, tmp_path, monkeypatch):
    # a batch that is killed after its table has its name draws again, and then for the rows of its digest
    trips, begin = tmp_path / "trips.csv", Batch.begin
    first = trips.read_text()

    def begin_and_change(batch, digest):
        begin(batch, digest)
        trips.write_text(first.replace("s3,p3,p3", "s3,p4,p3"))

    with monkeypatch.context() as patch:
        patch.setattr(Batch, "begin", begin_and_change)
        code, _, err = run_command(*job)
    assert (code, "while it was" in err) == (1, True)
    assert not (tmp_path / "safe.csv").exists()
    trips.write_text(first)
    assert run_command(*job)[0] == 0


def kill_at(words, seconds, batch_file=None):
    """Run a command and kill it after some time: from its start, or from when a file of its batch is there."""
    process = subprocess.Popen(
        [sys.executable, "-m", "privopt", *map(str, words), "--quiet"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while batch_file is not None and not batch_file.exists() and process.poll() is None:
        time.sleep(0.001)
    try:
        process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
    return process.wait()


def batch_state(folder, book, name):
    """How far a batch has come."""
    if not (folder / "record.json").exists():
        return "not begun"
    state = json.loads((folder / "record.json").read_bytes())["state"]
    is_charged = any(f"batch {name} " in cost.purpose for _, cost in read_charges(book))
    return "charged" if state == "begun" and is_charged else state


@pytest.mark.parametrize(("kills", "seed"), [(4, 0), *(pytest.param(20, seed, marks=SLOW) for seed in range(1, 4))])
def test_killed_batch_gives_each_row_one_report(job, tmp_path, kills, seed):
    chance, states_seen = random.Random(seed), Counter()
    start_seconds = time.monotonic()
    assert subprocess.run([sys.executable, "-m", "privopt", "list"], capture_output=True, check=False).returncode == 0
    full_seconds = 3 * (time.monotonic() - start_seconds)  # about what the command takes on this machine, now
    for number in range(kills):
        name = f"{NAME}, {number // 4}"
        words = [name if word == NAME else word for word in job]
        folder = tmp_path / "book.batches" / hashlib.sha256(name.encode()).hexdigest()[:32]
        if number % 4:  # from the folder on, or from just before the first charge
            since, longest = (folder, 0.3) if number % 4 == 1 else (folder / "record.json", 0.1)
            process = kill_at(words, chance.uniform(0, longest) * full_seconds, since)
        else:
            process = kill_at(words, chance.uniform(0, 1.2) * full_seconds)
        states_seen[batch_state(folder, tmp_path / "book", name) if process == -signal.SIGKILL else "ended before"] += 1
        if number % 4 == 3:
            code, _, err = run_command(*words)
            assert code == 0, err
            safe = pl.read_csv(tmp_path / "safe.csv")
            reported = safe.filter(pl.col("s_report").is_not_null() & pl.col("e_report").is_not_null())
            of_batch = [cost for _, cost in read_charges(tmp_path / "book") if f"batch {name} " in cost.purpose]
            assert len(of_batch) == len(reported) == 40
            assert sum(cost.epsilon for cost in of_batch) == len(reported)
            (tmp_path / "safe.csv").unlink()
            run_command("budget", tmp_path / "book", "--set", str(2 * (number // 4 + 2)))
    print(f"seed {seed}, batches when they were killed: {dict(states_seen)}")


def test_unfinished_batch_replaces_only_its_table(job, tmp_path, monkeypatch):
    def note_and_kill(self, batch):
        noted(self, batch)
        raise KeyboardInterrupt

    noted = Batch.begin_writing
    with monkeypatch.context() as patch:
        patch.setattr(Batch, "begin_writing", note_and_kill)
        assert run_command(*job)[0] in (1, 5)
    (tmp_path / "safe.csv").write_text("somebody else's\n")
    code, _, err = run_command(*job)
    assert (code, "exists already" in err) == (2, True)
    assert (tmp_path / "safe.csv").read_text() == "somebody else's\n"


def test_empty_table_leaves_no_batch(job, tmp_path):
    original_text = (tmp_path / "trips.csv").read_text()
    (tmp_path / "trips.csv").write_text("who,start,end\n")
    code, _, err = run_command(*job)
    assert (code, "no rows" in err) == (2, True)
    assert {path.name for path in (tmp_path / "book.batches").rglob("*") if path.is_file()} == {"lock"}
    (tmp_path / "trips.csv").write_text(original_text)
    assert run_command(*job)[0] == 0


def test_refuses_other_data_release_or_options(job, town, tmp_path, monkeypatch):
    monkeypatch.setattr(Batch, "finish", lambda *_: None)
    assert run_command(*job)[0] == 0
    trips = tmp_path / "trips.csv"
    original_text = trips.read_text()
    other_release = solve("optimal-lp", town.parent / "p.toml", tmp_path / "other").folder
    changes = [
        lambda: trips.write_text(original_text.replace("s3,p3,p3", "s3,p4,p3")),
        lambda: trips.write_text(original_text.replace("s3,p3,p3", "s4,p3,p3")),
        lambda: trips.write_text(original_text + "s1,p1,p1\n"),
        lambda: trips.write_text("who,start,end\n" + "\n".join(reversed(original_text.split()[1:])) + "\n"),
    ]
    for change in changes:
        change()
        code, _, err = run_command(*job)
        assert (code, "it began with" in err) == (2, True)
    trips.write_text(original_text)
    for words in (
        [other_release if word == town else word for word in job],
        ["e=start" if word == "e=end" else "s=end" if word == "s=start" else word for word in job],
    ):
        assert run_command(*words)[0] == 2
    assert run_command(*job)[0] == 0
    assert len(read_charges(tmp_path / "book")) == 40


def test_forgotten_name_is_used_up(job, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Batch, "finish", lambda *_: None)
        assert run_command(*job)[0] == 0
    assert key_file(tmp_path) is not None
    assert run_command("budget", tmp_path / "book", "--forget-batch", NAME)[0] == 0
    assert key_file(tmp_path) is None
    code, _, err = run_command(*job, "--force")
    assert (code, "forgotten" in err) == (2, True)
    for path in sorted((tmp_path / "book.batches").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    code, _, err = run_command(*job, "--force")  # the record is gone, too; the ledger knows
    assert (code, "key is gone" in err) == (2, True)
    assert len(read_charges(tmp_path / "book")) == 40


def test_batch_without_key_does_not_hold(job, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Batch, "finish", lambda *_: None)
        run_command(*job)
    key_file(tmp_path).unlink()
    assert run_command(*job)[0] == 1


@pytest.mark.parametrize("extra_options", [["--seed", "1"], ["--sticky"]])
def test_refuses_batches_that_depend_on_other_rows(town, tmp_path, extra_options):
    trips = table(tmp_path / "trips.csv", ["a,p1"])
    words = ["apply", town, trips, "--id", "place", "--out", tmp_path / "safe.csv", "--batch", "x"]
    assert run_command(*words)[0] == 2
    assert run_command(*words, "--ledger", tmp_path / "book", "--subject", "who", *extra_options)[0] == 2


def test_batch_runs_once_at_a_time(tmp_path):
    with Batch(ledger=tmp_path / "book", name="x").open_folder() as batch:
        access = batch.grant_access()
        with (
            pytest.raises(UsageError, match="another process"),
            Batch(ledger=tmp_path / "book", name="x").open_folder(),
        ):
            pass
        assert access.read_key() == batch.key()
        with Batch(ledger=tmp_path / "book", name="y").open_folder():
            pass
    for name in ("", " ", "a\nb", "x" * 201):
        with pytest.raises(UsageError, match="batch must be"):
            Batch(ledger=tmp_path / "book", name=name)


def test_batch_reports_follow_the_law_independently(town, tmp_path):
    """Start and end are one place in every row: streams without the name of the position would be equal."""
    count = 6_000
    trips = tmp_path / "trips.csv"
    pl.DataFrame({"who": [f"s{n}" for n in range(count)], "start": ["p0"] * count, "end": ["p0"] * count}).write_csv(
        trips
    )
    positions = ["--position", "s=start", "--position", "e=end"]
    extra_options = ["--out", tmp_path / "safe.csv", "--ledger", tmp_path / "book", "--subject", "who", "--batch", "x"]
    assert run_command("apply", town, trips, *positions, *extra_options)[0] == 0
    safe = pl.read_csv(tmp_path / "safe.csv")
    release = open_verified(town).release
    names = release.outputs.tolist()
    chances = release.weights[names.index("p0")] / TOTAL
    pairs = Counter(zip(safe["s_report"], safe["e_report"], strict=True))
    pair_counts = np.array([[pairs[a, b] for b in names] for a in names])
    expected = count * np.outer(chances, chances)
    assert chisquare(pair_counts.ravel(), expected.ravel()).pvalue > 1e-6


@given(st.lists(st.binary(max_size=4), max_size=4), st.lists(st.binary(max_size=4), max_size=4))
def test_part_lists_have_distinct_encodings(parts, other_parts):
    assert (encode_parts(parts) == encode_parts(other_parts)) == (parts == other_parts)


def test_streams_are_shake_and_continuous():
    coins = Coins(encode_parts([b"k" * 32, b"x"]))
    long_stream = coins.stream("output", b"7", "start", b"p1", 0, 40)
    parts = (b"output", b"7", b"start", b"p1")
    assert long_stream == hashlib.shake_256(encode_parts([b"k" * 32, b"x"]) + encode_parts(parts)).digest(40)
    assert coins.stream("output", b"7", "start", b"p1", 8, 8) == long_stream[8:16]
    assert secrets_of([[0.0, None], [1.5, 1.5]]) == secrets_of([[-0.0, None], [1.5, 1.5]])


def test_digest_is_independent_of_row_order():
    rows = [(bytes([n]), b"x") for n in range(5)]
    digest, other_digest = Digest(bytes(32)), Digest(bytes(32))
    for row in rows:
        digest.add(*row)
    for row in reversed(rows):
        other_digest.add(*row)
    assert digest.text == other_digest.text
    other_digest.add(*rows[0])
    assert digest.text != other_digest.text


def test_charges_for_a_purpose_are_by_account(tmp_path):
    with Ledger(tmp_path / "book") as ledger:
        ledger.charge_each(["a", "a", "b"], Cost(epsilon=1, unit="per km", purpose="x"))
        ledger.charge("a", Cost(epsilon=1, unit="per km", purpose="y"))
        ledger.charge("b", Cost(epsilon="0.5", unit="per km", purpose="x"))
        assert ledger.charges_for("x") == {AccountKey("a"): [1, 1], AccountKey("b"): [1, Fraction(1, 2)]}
        assert sorted(ledger.purposes()) == ["x", "y"]
