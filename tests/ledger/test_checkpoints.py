"""Checkpoints: a later check reads later entries alone, finds what is changed there, and never hides a full check."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from helpers.command import run as privopt

from privopt.errors import DoesNotHoldError
from privopt.interfaces.cost import Cost
from privopt.ledger import checkpoints
from privopt.ledger.ledger import Ledger

COST = Cost(epsilon="0.5", unit="per km", notion="metric-dp", purpose="work")


@pytest.fixture
def checked(tmp_path):
    """Make a ledger with a checkpoint after thirty charges, and ten more."""
    path = tmp_path / "l"
    with Ledger(path) as ledger:
        ledger.set_limit(80)
        ledger.charge_each([f"s{number % 7}" for number in range(30)], COST)
        ledger.check()
        ledger.charge_each([f"s{number % 9}" for number in range(10)], COST)
    return path


def change(path, statement):
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


def count_checked(path, monkeypatch, **options):
    """Return the numbers of the entries that a check walks over."""
    numbers = []
    check_entry = checkpoints.Walk.check_entry

    def count(walk, entry):
        numbers.append(entry.number)
        check_entry(walk, entry)

    monkeypatch.setattr(checkpoints.Walk, "check_entry", count)
    with Ledger(path) as ledger:
        ledger.check(**options)
    monkeypatch.undo()
    return numbers


def test_only_later_entries_are_walked(checked, monkeypatch):
    # The entries are the beginning, the limit, the names, and the charges.
    assert count_checked(checked, monkeypatch, full=False) == list(range(34, 44))
    assert count_checked(checked, monkeypatch, full=False) == []
    assert count_checked(checked, monkeypatch) == list(range(1, 44))


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE entries SET total = '9' WHERE number = 36",
        "UPDATE entries SET hash = zeroblob(32) WHERE number = 38",
        "UPDATE entries SET time = 1 WHERE number = 40",
        "DELETE FROM entries WHERE number = 39",
        "UPDATE accounts SET subject = 'x' WHERE subject = 's2'",
        "UPDATE terms SET amount = '1/4' WHERE kind = 'charge'",
        # Before the checkpoint, but the newest charge of an account that is charged after it.
        "UPDATE entries SET total = '1/2' WHERE number = (SELECT max(number) FROM entries WHERE number < 34 AND "
        "account = (SELECT account FROM entries WHERE number = 35))",
    ],
)
def test_changes_of_what_counts_are_found(checked, statement):
    change(checked, statement)
    with pytest.raises(DoesNotHoldError), Ledger(checked) as ledger:
        ledger.check(full=False)


def test_older_changes_are_found_by_a_full_check(checked):
    change(checked, "UPDATE entries SET total = '9' WHERE number = 6")
    with Ledger(checked) as ledger:
        ledger.check(full=False)
        with pytest.raises(DoesNotHoldError, match="entry 6"):
            ledger.check()
    assert privopt("budget", checked).exit_code == 1
    assert privopt("budget", checked, "--subject", "s1", "--head", f"3:{'0' * 64}").exit_code == 1


@pytest.mark.parametrize("content", ["", "privopt ledger checked\n", "\0" * 2000, None])
def test_without_a_valid_checkpoint_everything_is_checked(checked, monkeypatch, content):
    checkpoint = checked.with_name("l.checked")
    if content is None:
        checkpoint.unlink()
        checkpoint.mkdir()  # which cannot be read, nor replaced
    else:
        checkpoint.write_text(content)
    assert count_checked(checked, monkeypatch, full=False) == list(range(1, 44))


def test_checkpoint_of_another_ledger_does_not_count(checked, tmp_path, monkeypatch):
    with Ledger(tmp_path / "other") as ledger:
        ledger.charge_each(["a"] * 50, COST)
        ledger.check()
    (tmp_path / "other.checked").replace(tmp_path / "l.checked")
    assert count_checked(checked, monkeypatch, full=False) == list(range(1, 44))


def test_rotation_begins_anew(checked, monkeypatch):
    with Ledger(checked) as ledger:
        ledger.rotate()
    entries = count_checked(checked, monkeypatch, full=False)
    assert entries[0] == 1
    assert count_checked(checked, monkeypatch, full=False) == []
