"""Kills, races and changed bytes: no report without its charge, no limit passed together, nothing changed unseen."""

import hashlib
import json
import random
import shutil
import sqlite3
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import pytest

from privopt.errors import DoesNotHoldError, InputError
from privopt.interfaces.cost import EPSILON, Cost
from privopt.ledger.ledger import Ledger

KILLING = Path(__file__).with_name("killing.py")
COST = Cost(epsilon="0.50390625", unit="per km", notion="metric-dp", mechanism="ab" * 32, purpose="morning")


def run_killing(*arguments):
    completed = subprocess.run(
        [sys.executable, KILLING, *map(str, arguments)], capture_output=True, text=True, check=False
    )
    assert completed.returncode == 0, completed.stderr
    return [int(word) for word in completed.stdout.split()]


@pytest.mark.parametrize("times", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_every_report_has_its_charge_after_kills(tmp_path, times):
    reports, charges = run_killing("kill", tmp_path / "l", tmp_path / "reports", times)
    assert reports >= times / 2
    assert charges >= reports


@pytest.mark.parametrize("repetitions", [10, pytest.param(80, marks=pytest.mark.slow)])
def test_concurrent_writers_respect_the_limit(tmp_path, repetitions):
    with Ledger(tmp_path / "l") as ledger:
        ledger.set_limit("10")
    assert run_killing("race", tmp_path / "l", 4, repetitions) == [100]
    with Ledger(tmp_path / "l") as ledger:
        ledger.check()
        assert (ledger.account("anna").spent, ledger.account("anna").left) == (10, 0)


@pytest.mark.parametrize("turns", [1, pytest.param(10, marks=pytest.mark.slow)])
def test_concurrent_creators_make_one_ledger(tmp_path, turns):
    for turn in range(turns):
        assert run_killing("race", tmp_path / f"l{turn}", 6, 2) == [36]
        with Ledger(tmp_path / f"l{turn}") as ledger:
            ledger.check()
            assert ledger.account("anna").reports == 36


def fill_ledger(path):
    with Ledger(path) as ledger:
        ledger.set_limit(8, hours=24)
        for name in ("anna", "bert", "carl"):
            ledger.charge_each([name] * 4, COST)
    return everything(path)


def everything(path):
    with Ledger(path, make=False) as ledger:
        ledger.check()
        return ledger.accounts(), ledger.charges(), ledger.limit_of(EPSILON), ledger.unit, ledger.head


def test_changed_byte_is_found_or_harmless(tmp_path):
    contents, raw = fill_ledger(tmp_path / "l"), (tmp_path / "l").read_bytes()
    chance, changed_path = random.Random(4), tmp_path / "c"
    used_positions = [position for position, byte in enumerate(raw) if byte]
    found_count = 0
    for position in chance.sample(used_positions, 250):
        spoiled = bytearray(raw)
        spoiled[position] ^= 1 << chance.randrange(8)
        changed_path.write_bytes(spoiled)
        for suffix in ("-wal", "-shm"):
            Path(f"{changed_path}{suffix}").unlink(missing_ok=True)
        try:
            assert everything(changed_path) == contents
        except DoesNotHoldError:
            found_count += 1
    assert found_count > 200


@pytest.mark.parametrize("text", ["anna", "bert", "0.50390625", "morning", "per km", "ab" * 32])
def test_changed_text_names_the_entry(tmp_path, text):
    fill_ledger(tmp_path / "l")
    raw = (tmp_path / "l").read_bytes()
    (tmp_path / "l").write_bytes(raw.replace(text.encode(), text[:-1].encode() + b"7"))
    with pytest.raises(DoesNotHoldError, match=rf"l: entry {'8' if text == 'bert' else '4'} .*: changed"):
        everything(tmp_path / "l")


CHANGES = {
    "UPDATE entries SET total = '0' WHERE number = 6": "entry 6 \\(subject anna\\)",
    "UPDATE entries SET time = time - 1 WHERE number = 9": "entry 9 \\(subject bert\\)",
    "UPDATE entries SET hash = zeroblob(32) WHERE number = 7": "entry 7 \\(subject anna\\)",
    "DELETE FROM entries WHERE number = 8": "entry 8 \\(subject bert\\)",
    "UPDATE terms SET amount = '80' WHERE kind = 'limit'": "entry 2: changed",
    "DELETE FROM accounts WHERE subject = 'carl'": "entry 12: changed",
    "INSERT INTO accounts VALUES (9, 'dora', 'epsilon', '')": "or terms, that",
    "DROP INDEX by_account": "the first page",
    "DELETE FROM entries": "entry 1: changed",
    "UPDATE entries SET count = 'x' WHERE number = 5": "entry 5 \\(subject anna\\)",
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_row_is_named(tmp_path, change):
    fill_ledger(tmp_path / "l")
    connection = sqlite3.connect(tmp_path / "l")
    connection.execute(change)
    connection.commit()
    connection.close()
    with pytest.raises(DoesNotHoldError, match=CHANGES[change]):
        everything(tmp_path / "l")


def test_chain_follows_the_documentation(tmp_path):
    """Computed by none of privopt's code."""
    head = fill_ledger(tmp_path / "l")[-1]
    connection = sqlite3.connect(tmp_path / "l")
    terms = {number: values for number, *values in connection.execute("SELECT * FROM terms")}
    accounts = {number: values for number, *values in connection.execute("SELECT * FROM accounts")}
    previous_hash = "0" * 64
    for number, account, time, details, total, count, digest in connection.execute("SELECT * FROM entries"):
        text = json.dumps(
            [previous_hash, number, time, *accounts.get(account, [""] * 3), *terms[details], total, count]
        )
        assert hashlib.sha256(text.encode("ascii")).digest() == digest
        previous_hash = digest.hex()
    connection.close()
    assert head == f"{number}:{previous_hash}"


def test_charges_ignore_changed_entries(tmp_path):
    fill_ledger(tmp_path / "l")
    connection = sqlite3.connect(tmp_path / "l")
    connection.execute("UPDATE entries SET total = '0' WHERE number = 11")  # bert's last
    connection.commit()
    connection.close()
    with Ledger(tmp_path / "l") as ledger:
        ledger.charge("anna", COST)
        with pytest.raises(DoesNotHoldError, match="entry 11: changed"):
            ledger.charge("bert", COST)
        with pytest.raises(DoesNotHoldError, match="entry 11: changed"):
            ledger.account("bert")


def test_damaged_ledger_is_no_other_file(tmp_path):
    fill_ledger(tmp_path / "l")
    raw = bytearray((tmp_path / "l").read_bytes())
    raw[0] ^= 1
    (tmp_path / "l").write_bytes(raw)
    with pytest.raises(DoesNotHoldError, match="the first page"):
        Ledger(tmp_path / "l")
    shutil.copy("/dev/null", tmp_path / "empty")
    with pytest.raises(InputError, match="expected a ledger"):
        Ledger(tmp_path / "empty")


def test_charges_scale_linearly(tmp_path):
    with Ledger(tmp_path / "l") as ledger:
        for _ in range(4):
            assert all(ledger.charge_each([f"s{n % 100}" for n in range(5_000)], COST))
        ledger.check()
        assert ledger.account("s3").spent == 200 * Fraction(COST.epsilon)
    assert (tmp_path / "l").stat().st_size < 20_000 * 130
