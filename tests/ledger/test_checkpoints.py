"""Checkpoints: a later check reads later entries alone, finds what is changed there, and never hides a full check."""

from __future__ import annotations

import re
import shutil
import sqlite3
from contextlib import closing, suppress

import pytest
from helpers.command import run as privopt
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from privopt.errors import BudgetSpentError, DoesNotHoldError, InputError
from privopt.interfaces.cost import Cost
from privopt.ledger import checkpoints
from privopt.ledger.balances import LedgerTransaction
from privopt.ledger.entries import Entry
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


HOUR = 3_600 * 10**9
COLUMNS = {
    "accounts": {"id": [2, 9, 77], "subject": ["s0", "s1", "x", b"s1"], "unit": ["rho"], "period": ["2026-05"]},
    "terms": {
        "id": [2, 4, 77],
        "kind": ["Limit", "charge", "names", "begin"],
        "unit": ["rho", ""],
        "relation": ["", "per mile"],
        "notion": ["x"],
        "mechanism": ["x"],
        "amount": ["1/4", "80", "0"],
        "within": ["1", "24", "", "day UTC"],
        "purpose": ["x", "work", "earlier"],
    },
    "entries": {
        "number": [-3, 0, 500],
        "account": [1, 2, 3, 77, None, "x"],
        "time": [1, 3_600_000_000, 5 * 3_600_000_000, 2**50, "x"],
        "terms": [1, 2, 3, 4, 5, 77],
        "total": ["0", "1/2", "9", 3],
        "count": [0, 1, 2, 9],
        "hash": [bytes(32), "x", None],
    },
}


class Clock:
    """A clock that stands still until it is moved."""

    now = HOUR

    def __call__(self):
        return self.now


@pytest.fixture(scope="module", params=[{}, {"hours": 6}, {"per": "day"}], ids=["all time", "window", "calendar"])
def original(request, tmp_path_factory):
    """Make a ledger with charges over a day, its checkpoint in their midst, and return its path and its clock."""
    path, clock = tmp_path_factory.mktemp("original") / "l", Clock()
    with Ledger(path, clock=clock) as ledger:
        ledger.set_limit(4, **request.param)
        for number in range(24):
            if number == 16:
                ledger.set_limit(5, **request.param)
            if number == 20:
                ledger.check()
            clock.now += HOUR
            purpose = "earlier" if number < 9 else "work"
            ledger.charge(f"s{number % 3}", Cost(epsilon="0.5", unit="per km", notion="metric-dp", purpose=purpose))
    return path, clock


def copy_ledger(original, folder):
    """Copy a ledger with its checkpoint, without the log of changes, which was written back when it was closed."""
    folder.mkdir(exist_ok=True)
    for name in ("l-wal", "l-shm"):
        (folder / name).unlink(missing_ok=True)
    for name in ("l", "l.checked"):
        shutil.copyfile(original.with_name(name), folder / name)
    return folder / "l"


def answer(path, clock, subject):
    """Return what a ledger says of a subject after a quick check, and how many charges it then grants."""
    with Ledger(path, clock=clock) as ledger:
        ledger.check(full=False)
        periods = ledger.periods(subject, "epsilon")
        accounts = [ledger.account(subject, period=period) for period in periods] or [ledger.account(subject)]
        limit, paid = ledger.limit_of("epsilon"), ledger.charges_for("earlier")
        return accounts, limit, paid, ledger.charge_times(subject, 20, COST)


edits = st.one_of(
    st.tuples(st.just("DELETE FROM {table} WHERE rowid = ?"), st.sampled_from(sorted(COLUMNS)), st.none(), st.none()),
    st.sampled_from([(table, column) for table, columns in COLUMNS.items() for column in columns]).flatmap(
        lambda names: st.tuples(
            st.just("UPDATE OR IGNORE {table} SET {column} = ? WHERE rowid = ?"),
            st.just(names[0]),
            st.just(names[1]),
            st.sampled_from(COLUMNS[names[0]][names[1]]),
        )
    ),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    edit=st.lists(st.tuples(edits, st.integers(1, 30)), min_size=1, max_size=2),
    subject=st.sampled_from(["s0", "s1", "s2", "nobody"]),
)
def test_after_edits_answers_are_true_or_refused(original, tmp_path, edit, subject):
    path, clock = original
    truth = answer(copy_ledger(path, tmp_path / "true"), clock, subject)
    copy = copy_ledger(path, tmp_path / "edited")
    with closing(sqlite3.connect(copy)) as connection:
        for (statement, table, column, value), row in edit:
            number = row % 6 + 1 if table != "entries" else row
            values = (number,) if column is None else (value, number)
            try:
                connection.execute(statement.format(table=table, column=column), values)
            except sqlite3.IntegrityError:
                continue
        connection.commit()
    with suppress(DoesNotHoldError, InputError, BudgetSpentError):
        *answers, paid, granted = answer(copy, clock, subject)
        assert [*answers, granted] == [*truth[:2], truth[3]]
        # What a batch has paid may seem less, which charges it again, and never more.
        assert all(sum(amounts) <= sum(truth[2][key]) for key, amounts in paid.items())


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE accounts SET subject = 't' WHERE subject = 's1'",
        "DELETE FROM accounts WHERE subject = 's1'",
        "INSERT INTO accounts (subject, unit, period) VALUES ('t', 'epsilon', '')",
        "UPDATE terms SET kind = 'Limit' WHERE kind = 'limit'",
        "INSERT INTO terms SELECT NULL, kind, unit, relation, notion, mechanism, '900', within, purpose FROM terms "
        "WHERE kind = 'limit'",
        "UPDATE entries SET account = 77 WHERE number = (SELECT max(number) FROM entries WHERE account = 2)",
        "UPDATE entries SET time = 1 WHERE number = (SELECT max(number) FROM entries WHERE account = 2)",
        "UPDATE entries SET account = 1 WHERE account IS NULL AND number > 3",
        "DELETE FROM entries WHERE number = (SELECT max(number) FROM entries WHERE account = 2)",
    ],
)
def test_edits_that_give_budget_back_are_found(original, tmp_path, statement):
    path, clock = original
    copy = copy_ledger(path, tmp_path / "edited")
    change(copy, statement)
    with Ledger(copy, clock=clock) as ledger, pytest.raises(DoesNotHoldError):
        ledger.check(full=False)


@pytest.mark.parametrize("columns", ["account, CASE WHEN number = 22 THEN 0 ELSE time END", "account + 7, time"])
@pytest.mark.parametrize("size", [0, 23, 100], ids=["index until the end", "index since", "whole index"])
def test_damaged_index_is_found(original, tmp_path, columns, size):
    """The index is made of other values or for some rows alone, and then called what it was."""
    path, clock = original
    copy = copy_ledger(path, tmp_path / "edited")
    with closing(sqlite3.connect(copy)) as connection:
        (index,) = connection.execute("SELECT sql FROM sqlite_master WHERE name = 'by_account'").fetchone()
        connection.execute("DROP INDEX by_account")
        condition = {0: "number > 20", 23: "number <= 23", 100: "number"}[size]
        connection.execute(f"CREATE INDEX by_account ON entries ({columns}) WHERE {condition}")
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("UPDATE sqlite_master SET sql = ? WHERE name = 'by_account'", (index,))
        connection.commit()
    with pytest.raises(DoesNotHoldError), Ledger(copy, clock=clock) as ledger:
        ledger.check(full=False)


def test_damaged_names_are_refused(original, tmp_path):
    """The name is in the table and in its index, which are changed one without the other."""
    path, clock = original
    truth = answer(copy_ledger(path, tmp_path / "true"), clock, "s1")
    content = copy_ledger(path, tmp_path / "edited").read_bytes()
    places = [match.start() for match in re.finditer(b"s1epsilon", content)]
    refused = 0
    for place in places:
        copy = copy_ledger(path, tmp_path / "edited")
        copy.write_bytes(content[: place + 1] + b"9" + content[place + 2 :])
        try:
            assert answer(copy, clock, "s1") == truth
        except DoesNotHoldError:
            refused += 1
    assert refused >= 2


def test_newest_entry_with_a_hash_computed_anew_is_refused(original, tmp_path):
    """Its hash fits its content, and only the next entry, which a quick check does not read, shows the change."""
    path, clock = original
    copy = copy_ledger(path, tmp_path / "edited")
    with Ledger(copy, clock=clock) as ledger:
        ledger.check()
    query = "SELECT * FROM entries WHERE number IN (SELECT max(number) FROM entries GROUP BY account)"
    with closing(sqlite3.connect(copy)) as connection:
        # Of the newest charges of all accounts the earliest, which other entries follow.
        newest = [Entry(*row) for row in connection.execute(query)]
        entry = min((entry for entry in newest if entry.account is not None), key=lambda entry: entry.number)
        (previous,) = connection.execute("SELECT hash FROM entries WHERE number = ?", (entry.number - 1,)).fetchone()
        book = LedgerTransaction(connection=connection, path=copy, clock=clock)
        key, terms = book.key_at(entry.account), book.terms_at(entry.terms)
        forged_hash = entry._replace(total="1/2").compute_hash(previous, key, terms)
        connection.execute("UPDATE entries SET total = '1/2', hash = ? WHERE number = ?", (forged_hash, entry.number))
        connection.commit()
    with pytest.raises(DoesNotHoldError, match="changed"), Ledger(copy, clock=clock) as ledger:
        ledger.check(full=False)


def test_words_say_what_was_checked(checked):
    assert "every entry is intact" in privopt("budget", checked).stderr
    quick = privopt("budget", checked, "--subject", "s1").stderr
    assert "every entry is intact" not in quick
    assert "and all entries since then, are intact" in quick
    change(checked, "UPDATE entries SET total = '9' WHERE number = 6")
    assert privopt("budget", checked, "--subject", "s1").exit_code == 0
    # This reads all charges, so all are checked.
    assert privopt("budget", checked, "--subject", "s1", "--delta", "1e-6").exit_code == 1
