"""Rotation: no budget comes back, a kill leaves the old ledger or the new one, and the history holds."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from contextlib import closing
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from helpers.command import run as privopt
from hypothesis import given, settings
from hypothesis import strategies as st

from privopt.errors import BudgetSpentError, DoesNotHoldError, InputError, StoppedError, UsageError
from privopt.interfaces.cost import EPSILON, Cost
from privopt.ledger.balances import LedgerTransaction
from privopt.ledger.entries import Terms
from privopt.ledger.kept_reports import KeptReports
from privopt.ledger.ledger import FORM, Ledger
from privopt.ledger.rotation import _Carried, _write_ledger

HOUR = 3_600 * 10**9
START = int(datetime(2026, 5, 20, tzinfo=UTC).timestamp()) * 10**9
STEPS = ("write the new ledger", "name the archive", "switch", "flush the folder", "close the archive")
SUBJECTS = ("anna", "bert", "carl")


class Clock:
    """A clock that stands still until it is moved."""

    def __init__(self):
        self.now = START

    def __call__(self):
        return self.now


def cost(amount="0.5", notion="metric-dp", purpose="work"):
    return Cost(epsilon=amount, unit="per km", notion=notion, purpose=purpose)


def balances(ledger):
    """Return what is left, and spent where nothing limits it, by subject and period."""
    limit = ledger.limit_of(EPSILON)
    return {
        (account.subject, account.period): account.spent if limit is None else account.left
        for account in ledger.accounts()
    }


LIMITS = [{}, {"amount": 8}, {"amount": 8, "hours": 24}, {"amount": 8, "per": "month", "zone": "Europe/Rome"}]


def fill_ledger(path, limit, clock, charges=40):
    """Charges over ten days."""
    with Ledger(path, clock=clock) as ledger:
        if limit:
            ledger.set_limit(**limit)
        for number in range(charges):
            clock.now += 6 * HOUR
            ledger.charge_each([SUBJECTS[number % 3]], cost(purpose=f"run {number % 4}"))


@pytest.mark.parametrize("limit", LIMITS, ids=["none", "all time", "window", "calendar"])
def test_accounts_are_the_same_after_rotation(tmp_path, limit):
    clock, path = Clock(), tmp_path / "l"
    fill_ledger(path, limit, clock)
    with Ledger(path, clock=clock) as ledger:
        before, head, beginning = balances(ledger), ledger.head, ledger.beginning
        marks = [(number, ledger_hash(path, number)) for number in (5, 9)]
        rotation = ledger.rotate()
        assert rotation.head == head
        ledger.check()
        assert ledger.check_history() == 1
        after = balances(ledger)
        assert {key: after.get(key) for key in before} == before
        assert ledger.limit_of(EPSILON) == (ledger.limit_of(EPSILON))
        assert ledger.unit == "per km"
        # What belongs to the ledger still does: kept reports by their marks, and the runs of batches.
        assert ledger.beginning == beginning
        assert ledger.standing(marks) == set(marks)
        assert sum(ledger.charges_for("run 1")[("anna", "epsilon", "2026-05" if "per" in limit else "")], Fraction(0))
        assert {"run 0", "run 3"} <= set(ledger.purposes())
        # A second rotation, after more charges.
        clock.now += HOUR
        ledger.charge_each(["anna"], cost())
        between = balances(ledger)
        ledger.rotate()
        ledger.check()
        assert ledger.check_history() == 2
        assert {key: balances(ledger).get(key) for key in between} == between


def ledger_hash(path, number):
    connection = sqlite3.connect(path)
    (digest,) = connection.execute("SELECT hash FROM entries WHERE number = ?", (number,)).fetchone()
    connection.close()
    return digest


@settings(max_examples=30, deadline=None)
@given(
    limit=st.sampled_from(LIMITS),
    actions=st.lists(
        st.one_of(
            st.just("rotate"),
            st.tuples(st.sampled_from(SUBJECTS), st.sampled_from(["0.5", "1", "3"]), st.sampled_from(["a", "b"])),
            st.integers(1, 400),
        ),
        max_size=25,
    ),
)
def test_rotation_never_gives_budget_back(limit, actions):
    """Beside a ledger that is never rotated: whatever the latter refuses, the former refuses, now and in the end."""
    clock = Clock()
    with (
        TemporaryDirectory() as folder,
        Ledger(Path(folder) / "plain", clock=clock) as plain,
        Ledger(Path(folder) / "r", clock=clock) as rotated,
    ):
        for ledger in (plain, rotated):
            if limit:
                ledger.set_limit(**limit)
        for action in actions:
            if action == "rotate":
                if rotated.unit is not None:
                    rotated.rotate()
            elif isinstance(action, int):
                clock.now += action * HOUR
            else:
                subject, amount, purpose = action
                grants = [
                    ledger.charge_each([subject], cost(amount, purpose=purpose))[0] for ledger in (plain, rotated)
                ]
                # Equal, and so not only on the safe side.
                assert grants[0] == grants[1]
        left = balances(plain)
        after = balances(rotated)
        # Closed periods have no account any more, and refuse every charge.
        assert all(after[key] == left[key] for key in after)
        for subject, period in left.keys() - after.keys():
            assert rotated.account(subject, period=period).left == 0
            assert rotated.charge_each([subject], cost("0.001"), [period]) == [False]
        rotated.check()
        rotated.check_history()


def test_closed_periods_refuse_charges(tmp_path):
    clock, path = Clock(), tmp_path / "l"
    with Ledger(path, clock=clock) as ledger:
        ledger.set_limit(8, per="month")
        ledger.charge("anna", cost(), period="2026-03")
        ledger.charge("anna", cost(), period="2026-04")
        rotation = ledger.rotate()
        assert rotation.closed == {EPSILON: "2026-04"}
        with pytest.raises(BudgetSpentError, match="but 0 is left"):
            ledger.charge("anna", cost(), period="2026-03")
        # The period before the current one stays open, for rows that come late.
        ledger.charge("anna", cost(), period="2026-04")
        assert ledger.account("anna", period="2026-04").spent == 1
        # Nothing was carried from the closed period, but its calendar and relation still bind.
        with pytest.raises(UsageError, match="calendar must be"):
            ledger.set_limit(8, per="week")


def set_clock(clock, *day):
    clock.now = int(datetime(*day, tzinfo=UTC).timestamp()) * 10**9


def test_a_clock_set_back_opens_no_closed_period(tmp_path):
    """The ledger's last entry is older than its rotation, so a clock between the two is not noticed."""
    clock, path = Clock(), tmp_path / "l"
    set_clock(clock, 2026, 4, 2)
    with Ledger(path, clock=clock) as ledger:
        ledger.set_limit(1, per="month")
        ledger.charge("anna", cost("1"), period="2026-03")
        ledger.charge("bert", cost("1"), period="2026-04")
        set_clock(clock, 2026, 5, 3)
        assert ledger.rotate().closed == {EPSILON: "2026-04"}
        set_clock(clock, 2026, 4, 3)
        assert ledger.rotate().closed == {EPSILON: "2026-04"}
        assert ledger.charge_each(["anna", "bert"], cost("1"), ["2026-03", "2026-04"]) == [False, False]
        ledger.check()
        assert ledger.check_history() == 2


def test_a_clock_set_back_dates_no_charge_before_the_rotation(tmp_path):
    """As in a ledger that is not rotated, whose last entry says how late it is."""
    clock, grants = Clock(), []
    for name in ("plain", "rotated"):
        clock.now = START
        with Ledger(tmp_path / name, clock=clock) as ledger:
            ledger.set_limit(1, hours=24)
            ledger.charge("bert", cost("1"))
            clock.now = START + 100 * HOUR
            ledger.set_limit(1, hours=24)
            if name == "rotated":
                ledger.rotate()
            for hours in (60, 110, 125):
                clock.now = START + hours * HOUR
                grants += ledger.charge_each(["anna"], cost("1"))
            ledger.check()
            assert ledger.check_history() == (name == "rotated")
    assert grants == [True, False, True] * 2


def test_quiet_periods_keep_the_relation(tmp_path):
    """Two rotations with no charge between them, after which no account is left."""
    clock, path = Clock(), tmp_path / "l"
    with Ledger(path, clock=clock) as ledger:
        ledger.set_limit(1, per="month")
        ledger.charge("anna", cost("1"))
        for month in (8, 9, 10):
            set_clock(clock, 2026, month, 1)
            ledger.rotate()
        assert ledger.unit == "per km"
        with pytest.raises(InputError, match="what another relation bounds"):
            ledger.charge("anna", Cost(epsilon="1", unit="per client", notion="local-dp", purpose="work"))
        ledger.charge("anna", cost("1"))
        ledger.check()
        assert ledger.check_history() == 3


def test_link_is_not_rotated(tmp_path):
    """The old ledger would stay in use under its own name, beside a new one with the same budgets."""
    clock, path, link = Clock(), tmp_path / "l", tmp_path / "link"
    fill_ledger(path, {"amount": 80}, clock)
    link.symlink_to(path)
    with Ledger(link, clock=clock) as ledger, pytest.raises(UsageError, match="got a link to"):
        ledger.rotate()
    assert link.is_symlink()
    with Ledger(path, clock=clock) as ledger:
        ledger.charge("anna", cost())
        ledger.rotate()
        assert ledger.check_history() == 1


def test_second_name_of_the_file_is_refused(tmp_path):
    """SQLite would keep another log of changes for each name, and neither program would see the other's charges."""
    clock, path, other = Clock(), tmp_path / "l", tmp_path / "other"
    fill_ledger(path, {"amount": 80}, clock)
    os.link(path, other)
    # The name is like that of an archive, and its file is gone: it excuses no second name.
    path.with_name("l.until-x").symlink_to(tmp_path / "gone")
    for name in (path, other):
        with pytest.raises(UsageError, match="must be the only name of its file, got one of 2"):
            Ledger(name, clock=clock)
    other.unlink()
    with Ledger(path, clock=clock) as ledger:
        ledger.check()


def test_refused_rotation_keeps_the_log_of_changes(tmp_path):
    """Without it, processes that charge and that read would wait for one another from then on."""
    clock, path = Clock(), tmp_path / "l"

    def mode():
        with closing(sqlite3.connect(path)) as connection:
            return connection.execute("PRAGMA journal_mode").fetchone()[0]

    with Ledger(path, clock=clock) as ledger:
        ledger.set_limit(8)
        with pytest.raises(UsageError, match="there must be charges"):
            ledger.rotate()
    assert mode() == "wal"
    fill_ledger(path, {"amount": 8}, clock, charges=3)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE entries SET total = '9' WHERE account IS NOT NULL")
        connection.commit()
    with Ledger(path, clock=clock) as ledger, pytest.raises(DoesNotHoldError):
        ledger.rotate()
    assert mode() == "wal"


def test_failure_after_the_switch_leaves_no_log_under_the_new_name(tmp_path):
    clock, path = Clock(), tmp_path / "l"
    fill_ledger(path, {"amount": 80}, clock)

    def fail(name):
        if name == "flush the folder":
            raise OSError("disk")

    with Ledger(path, clock=clock) as ledger:
        with pytest.raises(StoppedError):
            ledger.rotate(step=fail)
        ledger.charge("anna", cost())
        ledger.check()
        assert ledger.check_history() == 1


def test_heads_of_closed_periods_are_recognised(tmp_path):
    """Also those from the midst of a period, and of older periods; a head that never was is still refused."""
    clock, path = Clock(), tmp_path / "l"
    fill_ledger(path, {"amount": 80}, clock, charges=10)
    with Ledger(path, clock=clock) as ledger:
        midst = ledger.head
        ledger.charge("anna", cost())
        first_end, first = ledger.head, ledger.rotate().archive
        clock.now += HOUR
        ledger.charge("bert", cost())
        second_end, second = ledger.head, ledger.rotate().archive
        ledger.charge("bert", cost())
        assert ledger.check(head=ledger.head) is None
        for head, archive in ((midst, first), (first_end, first), (second_end, second)):
            assert ledger.check(head=head) == archive
        forged = f"3:{'ab' * 32}"
        with pytest.raises(DoesNotHoldError, match="which was kept elsewhere"):
            ledger.check(head=forged)
    completed = privopt("budget", path, "--head", midst)
    assert completed.exit_code == 0
    assert "is of a closed period" in completed.stderr
    # A changed archive does not vouch for a head in its midst.
    first.chmod(0o600)
    with closing(sqlite3.connect(first)) as connection:
        connection.execute("UPDATE entries SET total = '9' WHERE number = 4")
        connection.commit()
    with Ledger(path, clock=clock) as ledger, pytest.raises(DoesNotHoldError):
        ledger.check(head=midst)


def test_head_of_a_closed_period_does_not_vouch_for_a_forged_one(tmp_path):
    """The forged ledger names the true archive, but begins without what the archive left."""
    clock, path = Clock(), tmp_path / "l"
    fill_ledger(path, {"amount": 8}, clock, charges=10)
    with Ledger(path, clock=clock) as ledger:
        midst = ledger.head
        ledger.charge("anna", cost())
        end, archive = ledger.head, ledger.rotate().archive
        with ledger.reading() as connection:
            book = LedgerTransaction(connection=connection, path=path, clock=clock)
            beginning, (time, _, limit) = book.first_terms, book.first_entries(1)[0]
    for name in ("l", "l-wal", "l-shm"):
        path.with_name(name).unlink(missing_ok=True)
    entries = (beginning, limit._replace(amount="300"), Terms(kind="names", purpose="plain"))
    _write_ledger(path, FORM, clock, [_Carried(time, None, terms) for terms in entries])
    with Ledger(path, clock=clock) as ledger:
        ledger.check()
        for head in (midst, end):
            with pytest.raises(DoesNotHoldError, match=f"not what {archive.name} leaves"):
                ledger.check(head=head)
    # Without the archive nobody can tell what counts, so its head is not confirmed either.
    archive.unlink()
    for head in (midst, end):
        completed = privopt("budget", path, "--head", head)
        assert completed.exit_code == 1
        assert "missing: without it nobody can check" in completed.stderr


@pytest.mark.parametrize("is_archive_there", [True, False])
def test_default_subject_is_refused_after_rotation_too(tmp_path, is_archive_there):
    """The accounts of closed periods stay in the archive: whoever was charged there is another subject all the same."""
    clock, path = Clock(), tmp_path / "l"
    with Ledger(path, clock=clock) as ledger:
        ledger.set_limit(8, per="month")
        ledger.charge("people.csv", cost(), alone=True)
        set_clock(clock, 2026, 9, 1)
        archive = ledger.rotate().archive
        if is_archive_there:
            # The only subject so far is the default one, in this period and in the closed one.
            ledger.charge("people.csv", cost(), alone=True)
        else:
            archive.rename(tmp_path / "elsewhere")
        with pytest.raises(UsageError, match="name the subject"):
            ledger.charge("copy.csv", cost(), alone=True)


def test_history_finds_charges_of_an_archive(tmp_path):
    """A rotation was killed before its last step, and the archive charged by its own name."""
    clock, path = Clock(), tmp_path / "l"
    fill_ledger(path, {"amount": 80}, clock)

    class KilledError(Exception):
        """Ends the rotation."""

    def end_here(name):
        if name == "close the archive":
            raise KilledError

    with Ledger(path, clock=clock) as ledger, pytest.raises(KilledError):
        ledger.rotate(step=end_here)
    (archive,) = tmp_path.glob("l.until-*")
    with Ledger(path, clock=clock) as ledger:
        assert ledger.check_history() == 1
        with Ledger(archive, clock=clock) as archived:
            archived.charge("anna", cost())
        with pytest.raises(DoesNotHoldError, match="written after the rotation"):
            ledger.check_history()
        # The next rotation ends the archive, which does not hide the charge.
        ledger.rotate()
        with pytest.raises(DoesNotHoldError, match="written after the rotation"):
            ledger.check_history()


def test_earliest_report_stays_the_same_over_rotations(tmp_path):
    """A new ledger numbers its entries from 1: a later report must not count as the earlier one."""
    clock, path = Clock(), tmp_path / "l"
    with Ledger(path, clock=clock) as ledger:
        ledger.charge_each(["bert"] * 20, cost())

        def visit(place, report, nearby):
            """Visit a place, for which a report is drawn if none is stored; return the report that is given."""
            with (
                KeptReports(ledger) as kept,
                kept.visits("m", [(ledger.name_of("anna"), place)], [nearby]) as visits,
            ):
                for number in visits.first:
                    (mark,) = ledger.charge_rows(["anna"], cost())
                    visits.keep(number, report, mark)
                return visits.report(0)

        assert visit("old", 1, []) == 1
        ledger.rotate()
        assert visit("new", 2, []) == 2
        assert visit("between", 3, ["old", "new"]) == 1
        ledger.rotate()
        assert visit("newest", 4, []) == 4
        assert visit("between", 3, ["newest", "new"]) == 2
        assert visit("between", 3, ["newest", "new", "old"]) == 1
        assert ledger.account("anna").spent == Fraction(3, 2)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("limit", [LIMITS[1], LIMITS[2]], ids=["all time", "window"])
def test_killed_at_any_step_leaves_old_or_new(tmp_path, step, limit):
    """Ended in a child process without any clean-up, as by SIGKILL."""
    clock, path = Clock(), tmp_path / "l"
    fill_ledger(path, limit, clock)
    with Ledger(path, clock=clock) as ledger:
        before, head = balances(ledger), ledger.head

    def end_here(name):
        if name == step:
            os._exit(9)

    child = os.fork()
    if child == 0:
        try:
            with Ledger(path, clock=clock) as ledger:
                ledger.rotate(step=end_here)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 9
    with Ledger(path, clock=clock, make=False) as ledger:
        ledger.check()
        assert balances(ledger) == before
        is_old = ledger.head == head
        assert is_old == (STEPS.index(step) <= STEPS.index("switch"))
        assert ledger.check_history() == (0 if is_old else 1)
        # It goes on: charges, and another rotation.
        clock.now += HOUR
        assert ledger.charge_each(["anna"], cost("0.25")) == [True]
        between = balances(ledger)
        ledger.rotate()
        ledger.check()
        assert balances(ledger) == between
        assert ledger.check_history() == (1 if is_old else 2)


def test_charges_of_a_process_that_waited_are_in_the_new_ledger(tmp_path):
    """A ledger that was open before the rotation does not charge the archive."""
    clock, path = Clock(), tmp_path / "l"
    fill_ledger(path, {"amount": 8}, clock)
    waiting = Ledger(path, clock=clock)
    # SQLite lets nobody change the kind of log while another process is connected.
    with Ledger(path, clock=clock) as ledger, pytest.raises(StoppedError, match="locked"):
        ledger.rotate()
    waiting.close()
    waiting = Ledger(path, clock=clock)
    waiting._connection.close()  # the operating system closed it, as after a fork
    with Ledger(path, clock=clock) as ledger:
        archive = ledger.rotate().archive
    assert waiting.charge_each(["anna"], cost()) == [True]
    waiting.close()
    with Ledger(path, clock=clock) as ledger:
        assert ledger.account("anna").spent == Fraction(15, 2)
    with Ledger(archive, clock=clock) as archived, pytest.raises(UsageError, match="was rotated"):
        archived.charge("anna", cost())


@pytest.mark.parametrize("forgery", ["carry less", "archive changed", "archive missing", "another archive"])
def test_history_finds_forgeries(tmp_path, forgery):
    clock, path = Clock(), tmp_path / "l"
    fill_ledger(path, {"amount": 80}, clock)
    fill_ledger(tmp_path / "other", {"amount": 80}, Clock(), charges=40)
    with Ledger(path, clock=clock) as ledger:
        archive = ledger.rotate().archive
    archive.chmod(0o600)
    if forgery == "archive missing":
        archive.unlink()
    elif forgery == "another archive":
        shutil.copy(tmp_path / "other", archive)
    elif forgery == "archive changed":
        with sqlite3.connect(archive) as connection:
            connection.execute("UPDATE entries SET total = '0' WHERE number = 12")
    else:
        _begin_with_less(path, clock)
    with Ledger(path, clock=clock) as ledger:
        ledger.check()  # the open period is a valid chain by itself
        with pytest.raises(DoesNotHoldError):
            ledger.check_history()


def _begin_with_less(path, clock):
    """Write the ledger again, chain and all, with the first charge halved: only the archive can tell."""

    with sqlite3.connect(path, isolation_level=None) as connection:
        book = LedgerTransaction(connection=connection, path=path, clock=clock)
        entries = [(book.head.time, None, book.first_terms), *book.first_entries(100)]
        entries[0] = (entries[1][0], None, entries[0][2])
        connection.execute("BEGIN IMMEDIATE")
        for table in ("entries", "accounts", "terms"):
            connection.execute(f"DELETE FROM {table}")
        book = LedgerTransaction(connection=connection, path=path, clock=clock)
        is_first = True
        for time, key, terms in entries:
            changed = terms
            if key is not None and is_first:
                changed, is_first = terms._replace(amount="1/2"), False
            book.carry(key, changed, time)
        book.close()
        connection.execute("COMMIT")
    connection.close()


def test_command_rotates_and_checks_history(tmp_path):
    path = tmp_path / "l"
    fill_ledger(path, {"amount": 80}, Clock())
    rotated = json.loads(privopt("budget", path, "--rotate", "--json").stdout)
    assert rotated["archived_entries"] == 43
    assert rotated["carried_charges"] == 3
    assert Path(rotated["archive"]).exists()
    completed = privopt("budget", path, "--history", "--subject", "anna")
    assert completed.exit_code == 0
    assert "1 archived period" in completed.stderr
    assert "7 spent, 73 left" in completed.stdout
    assert privopt("budget", path, "--rotate", "--subject", "anna").exit_code == 2
    assert privopt("budget", tmp_path / "none", "--rotate").exit_code == 2
