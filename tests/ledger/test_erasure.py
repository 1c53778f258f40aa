"""`budget --erase`: what can be removed goes, what stays is named with its reason, and the ledger still holds."""

import json
from datetime import UTC, datetime

import pytest
from helpers.command import run
from hypothesis import given
from hypothesis import strategies as st

from privopt.errors import StoppedError
from privopt.files import log_file
from privopt.interfaces.cost import Cost
from privopt.ledger.batches import Batch
from privopt.ledger.erasure import erase_subject
from privopt.ledger.kept_reports import KeptReports
from privopt.ledger.ledger import Ledger

COST = Cost(epsilon="0.5", unit="per km", purpose="morning")


def keep_report(book, subject, report):
    book.charge(subject, COST)
    number, digest = book.head.split(":")
    with KeptReports(book) as kept_reports, kept_reports.visits("m", [(book.name_of(subject), "p0")]) as visits:
        visits.keep(0, report, (int(number), bytes.fromhex(digest)))


@pytest.mark.parametrize("has_key", [True, False])
def test_erases_kept_reports_and_names_what_stays(tmp_path, has_key):
    key = ["--hash-subjects", tmp_path / "key"] if has_key else []
    with Ledger(tmp_path / "l", key=tmp_path / "key" if has_key else None) as book:
        keep_report(book, "anna", 3)
        keep_report(book, "bert", 4)
        book.charge("anna", COST)
    completed = run("budget", tmp_path / "l", *key, "--erase", "anna")
    assert completed.exit_code == 0, completed.output
    assert "erased: 1 kept report:" in completed.stdout
    assert "stays: 2 charges in the ledger" in completed.stdout
    assert ("in clear" in completed.stdout) != has_key
    if has_key:
        assert "anna" not in completed.output
        assert (tmp_path / "key").read_text().strip() not in completed.output
    # The second time nothing is left to erase; bert is untouched, and the chain holds.
    completed = run("budget", tmp_path / "l", *key, "--erase", "anna", "--json")
    erasure = json.loads(completed.stdout)
    assert (erasure["erased"]["kept_reports"], erasure["remaining"]["charges"]) == (0, 2)
    completed = run("budget", tmp_path / "l", *key, "--erase", "bert", "--json")
    assert json.loads(completed.stdout)["erased"]["kept_reports"] == 1
    assert run("budget", tmp_path / "l", *key).exit_code == 0


def test_needs_no_kept_reports_and_no_known_subject(tmp_path):
    with Ledger(tmp_path / "l") as book:
        book.charge("anna", COST)
    completed = run("budget", tmp_path / "l", "--erase", "nobody")
    assert completed.exit_code == 0, completed.output
    assert "erased: 0 kept reports" in completed.stdout
    assert "charge" not in completed.stdout.partition("stays")[2].partition(":")[0]
    assert not (tmp_path / "l.sticky").exists()


@pytest.mark.parametrize(
    "options",
    [["--subject", "anna"], ["--set", "8"], ["--forget", "anna"], ["--window", "24"], ["--forget-batch", "b"]],
)
def test_is_about_one_subject_alone(tmp_path, options):
    with Ledger(tmp_path / "l") as book:
        book.charge("anna", COST)
    completed = run("budget", tmp_path / "l", "--erase", "anna", *options)
    assert (completed.exit_code, "must be omitted with --erase" in completed.output) == (2, True)


def test_refuses_another_key(tmp_path):
    with Ledger(tmp_path / "l", key=tmp_path / "key") as book:
        book.charge("anna", COST)
    assert run("budget", tmp_path / "l", "--erase", "anna").exit_code == 2
    assert run("budget", tmp_path / "l", "--hash-subjects", tmp_path / "new", "--erase", "anna").exit_code == 2


@given(charged=st.lists(st.sampled_from("abc"), max_size=6), erased=st.sampled_from("abcd"))
def test_erasing_never_gives_budget_back(tmp_path_factory, charged, erased):
    path = tmp_path_factory.mktemp("ledger") / "l"
    with Ledger(path) as book:
        book.set_limit(4)
        for subject in charged:
            book.charge(subject, COST)
        before = {account.subject: account.spent for account in book.accounts()}
        erasure = erase_subject(book, erased)
        assert erasure.charges == charged.count(erased)
        assert {account.subject: account.spent for account in book.accounts()} == before
        book.check()


def test_says_that_keys_of_unfinished_batches_stay(tmp_path):
    with Ledger(tmp_path / "l") as book:
        book.charge("anna", COST)
        assert not [line for line in erase_subject(book, "anna").remaining if "batch" in line]
        batch = Batch(ledger=tmp_path / "l", name="night")
        with batch.open_folder():
            batch.key()
            batch._write_record({"state": "begun"})
        assert any("the key of 1 unfinished batch" in line for line in erase_subject(book, "anna").remaining)


@pytest.mark.parametrize("has_key", [False, True])
def test_names_charges_of_archived_periods(tmp_path, has_key):
    """Of closed periods the ledger has no charges any more, but their files name the subject."""
    start = int(datetime(2026, 3, 5, tzinfo=UTC).timestamp()) * 10**9
    days = [0]
    key = tmp_path / "key" if has_key else None
    with Ledger(tmp_path / "l", key=key, clock=lambda: start + days[0] * 86_400 * 10**9) as book:
        book.set_limit(8, per="month")
        for subject in ("anna", "anna", "bert"):
            book.charge(subject, Cost(epsilon="1", unit="per km"))
        days[0] = 90
        archive = book.rotate().archive
        book.charge("anna", Cost(epsilon="1", unit="per km"))
        days[0] = 180
        book.rotate()
        erasure = erase_subject(book, "anna")
        assert (erasure.charges, erasure.archived_charges) == (0, 3)
        (line,) = (line for line in erasure.remaining if line.startswith("3 charges in archived periods ("))
        assert archive.name in line
        assert any(("a hash instead" if has_key else "in clear") in line for line in erasure.remaining)
        assert erase_subject(book, "carl").archived_charges == 0


def test_another_reader_of_the_log_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(log_file, "LOCK_TIMEOUT_SECONDS", 0.1)
    with Ledger(tmp_path / "l") as book:
        keep_report(book, "anna", 3)
        with KeptReports(book) as reader, reader.reading() as connection:
            connection.execute("SELECT * FROM reports").fetchall()
            with pytest.raises(StoppedError, match=r"1 report removed, but another process reads"):
                erase_subject(book, "anna")
        assert erase_subject(book, "anna").kept_reports == 0
