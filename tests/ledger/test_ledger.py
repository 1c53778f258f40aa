"""The ledger: exact sums, limits, windows, names; what it refuses."""

import shutil
import sqlite3
import tempfile
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from privopt.errors import BudgetSpentError, DoesNotHoldError, InputError, UsageError
from privopt.interfaces.cost import Cost
from privopt.ledger.ledger import Ledger
from privopt.ledger.subject_names import key_at

HALF = Cost(epsilon="0.5", unit="per km", notion="metric-dp", mechanism="ab" * 32, purpose="morning")
ONE = Cost(epsilon=1, unit="per km", notion="metric-dp", mechanism="ab" * 32, purpose="morning")


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "l.ledger") as made:
        yield made


def test_sums_are_exact(ledger):
    for _ in range(10):
        ledger.charge("anna", Cost(epsilon="0.1", unit="per km"))
    ledger.charge("anna", Cost(epsilon="1/3", unit="per km"))
    found = ledger.account("anna")
    assert (found.spent, found.reports) == (Fraction(4, 3), 11)
    assert found.to_json() == {"subject": "anna", "spent": "4/3", "left": None, "reports": 11}


def test_a_report_that_would_pass_the_limit_is_refused_and_the_last_that_fits_is_not(ledger):
    ledger.set_limit("1.5")
    assert ledger.charge_each(["anna"] * 4 + ["bert"], HALF) == [True, True, True, False, True]
    with pytest.raises(BudgetSpentError, match=r"anna.*0\.5 where 0 is left"):
        ledger.charge("anna", HALF)
    assert [(a.subject, a.left) for a in ledger.accounts()] == [("anna", 0), ("bert", 1)]
    assert [ledger.charge_times("bert", times, HALF) for times in (1, 10**12, 10**12)] == [1, 1, 0]
    assert ledger.account("bert").reports == 3
    ledger.set_limit(1)
    assert ledger.account("anna").left == 0  # it has spent more
    ledger.set_limit(2)
    ledger.charge("anna", HALF)


def test_a_smaller_report_fits_where_a_larger_did_not(ledger):
    ledger.set_limit("0.7")
    assert ledger.charge_each(["anna", "anna"], HALF) == [True, False]
    ledger.charge("anna", Cost(epsilon="0.2", unit="per km", notion="metric-dp"))
    assert ledger.account("anna").left == 0


def test_who_was_never_charged_has_spent_nothing_and_is_no_subject(ledger):
    ledger.set_limit("0.4")
    with pytest.raises(BudgetSpentError):
        ledger.charge("anna", HALF)
    assert (ledger.account("anna").spent, ledger.accounts()) == (0, [])
    ledger.check()


@pytest.mark.parametrize("other", ["per m", ""])
def test_another_unit_is_bad_input(ledger, other):
    ledger.charge("anna", HALF)
    with pytest.raises(InputError, match=r"l\.ledger: unit: expected per km, as charged.*, got .*"):
        ledger.charge("anna", Cost(epsilon="0.5", unit=other))
    assert ledger.account("anna").reports == 1


@pytest.mark.parametrize(
    "amount",
    ["", "-1", "nan", "1e5", "1/0", "0", "0.0", "\u0668", "\uff18", "1\u0660", 0, -1, 0.5, True, None, "9" * 41],
)
def test_what_is_no_amount_is_refused(amount):
    with pytest.raises(UsageError, match=r"epsilon must be an amount above 0.*, got "):
        Cost(epsilon=amount, unit="")


@pytest.mark.parametrize(
    "subject",
    [
        "",
        "x" * 1001,
        "\ud800",
        7,
        "\ufeff \u200b",
        "a\0b",
        "a\x1bb",
        "\ue000",
        "\u0378",
        pytest.param("\ufdfa" * 99, id="long once folded"),
    ],
)
def test_who_is_no_subject_is_refused(ledger, subject):
    with pytest.raises(UsageError, match="subject must be text of 1 to 1,000 characters that can be seen, got"):
        ledger.charge(subject, HALF)
    assert ledger.accounts() == []


def test_a_window_holds_its_end_and_not_its_beginning(tmp_path):
    now = 0
    with Ledger(tmp_path / "l", clock=lambda: now) as ledger:
        ledger.set_limit(1, hours="1/2")
        ledger.charge("anna", HALF)
        now = 1_000 * 10**9
        ledger.charge("anna", HALF)
        now = 1_800 * 10**9 - 1_000
        with pytest.raises(BudgetSpentError):
            ledger.charge("anna", HALF)
        now = 1_800 * 10**9
        ledger.charge("anna", HALF)
        assert ledger.account("anna").left == 0
        assert (ledger.account("anna").spent, ledger.account("anna", hours="0.5").spent) == (Fraction(3, 2), 1)


def test_a_job_that_runs_each_24_hours_to_the_microsecond_reports_each_time_within_24_hours(tmp_path):
    now = 0
    with Ledger(tmp_path / "l", clock=lambda: now) as ledger:
        ledger.set_limit("0.5", hours=24)
        for night in range(3):
            now = night * 24 * 3_600 * 10**9
            ledger.charge("anna", HALF)


def test_a_clock_that_is_put_back_frees_no_window(tmp_path):
    now = 10**15
    with Ledger(tmp_path / "l", clock=lambda: now) as ledger:
        ledger.set_limit("0.5", hours=1)
        ledger.charge("anna", HALF)
        now = 0
        with pytest.raises(BudgetSpentError):
            ledger.charge("anna", HALF)
        assert ledger.account("anna").left == 0


def test_names_are_hashed_under_a_key_that_is_its_owners_alone(tmp_path):
    key, path = tmp_path / "key", tmp_path / "l"
    with Ledger(path, key=key) as ledger:
        ledger.charge("anna", HALF)
        assert ledger.account("anna").reports == 1
        name = ledger.accounts()[0].subject
    assert key.stat().st_mode & 0o777 == path.stat().st_mode & 0o777 == 0o600
    assert (len(name), b"anna" in path.read_bytes()) == (64, False)
    with Ledger(path) as plain, pytest.raises(InputError, match=r"expected hmac-sha256.*, got plain"):
        plain.account("anna")
    key_at(tmp_path / "other", make=True)
    with pytest.raises(InputError, match=r"expected hmac.*got hmac"):
        Ledger(path, key=tmp_path / "other")
    with pytest.raises(InputError, match=r"gone: expected the key.*, got no such file"):
        Ledger(path, key=tmp_path / "gone")
    key.chmod(0o644)
    with pytest.raises(UsageError, match="must have mode 0600, got 0644"):
        Ledger(path, key=key)


def test_a_ledger_of_plain_names_takes_no_key(tmp_path):
    with Ledger(tmp_path / "l") as ledger:
        ledger.charge("anna", HALF)
    with pytest.raises(InputError, match=r"expected plain names.*, got a key to hash them"):
        Ledger(tmp_path / "l", key=tmp_path / "key")
    assert not (tmp_path / "key").exists()


def test_a_file_that_is_something_else_is_bad_input(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=r"t\.csv: expected a ledger of privopt.*, got a file that is not one"):
        Ledger(tmp_path / "t.csv")
    with pytest.raises(InputError, match="no such file"):
        Ledger(tmp_path / "none", make=False)
    with pytest.raises(UsageError, match=r"the folder .* must exist"):
        Ledger(tmp_path / "no" / "l")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="expected a ledger of privopt"):
        Ledger(tmp_path / "folder")


def test_entries_that_are_cut_off_are_told_by_a_head_that_was_kept(tmp_path):
    path, old = tmp_path / "l", tmp_path / "old"
    with Ledger(path) as ledger:
        ledger.charge("anna", HALF)
        before = ledger.head
    shutil.copy(path, old)
    with Ledger(path) as ledger:
        ledger.charge("anna", HALF)
        ledger.check(head=before)
        head = ledger.head
    with Ledger(old) as cut:
        cut.check()  # a chain that was cut at its end is whole
        with pytest.raises(DoesNotHoldError, match="entries 4 to 4 are missing"):
            cut.check(head=head)
        cut.charge("bert", HALF)
        with pytest.raises(DoesNotHoldError, match=r"entry 4 \(subject bert\).*kept elsewhere"):
            cut.check(head=head)
        for wrong in ("4", "\u0664:" + "0" * 64):
            with pytest.raises(UsageError, match="head must be N:HASH"):
                cut.check(head=wrong)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["0.1", "1/3", "2"])), max_size=30), st.data())
@settings(max_examples=12)
def test_rows_at_once_are_charged_as_one_by_one(charges, data):
    limit = data.draw(st.sampled_from([None, "1", "2.5"]))
    folder = Path(tempfile.mkdtemp())
    try:
        found = []
        for name in ("once", "each"):
            with Ledger(folder / name) as ledger:
                if limit is not None:
                    ledger.set_limit(limit)
                granted = []
                for epsilon in ["0.1", "1/3", "2"]:
                    who = [subject for subject, amount in charges if amount == epsilon]
                    cost = Cost(epsilon=epsilon, unit="")
                    if name == "once":
                        granted += ledger.charge_each(who, cost)
                    else:
                        granted += [ledger.charge_each([subject], cost)[0] for subject in who]
                ledger.check()
                found.append((granted, ledger.accounts()))
        assert found[0] == found[1]
    finally:
        shutil.rmtree(folder)


class TwoConnections(RuleBasedStateMachine):
    """Two connections to one ledger, whatever each does, against lists in memory."""

    @initialize()
    def begin(self):
        self.folder = Path(tempfile.mkdtemp())
        self.now, self.limit, self.charged = 0, None, []
        self.open = [Ledger(self.folder / "l", clock=lambda: self.now * 1000) for _ in range(2)]

    def recent(self, subject):
        hours = None if self.limit is None else self.limit[1]
        start = -1 if hours is None else self.now - hours * 3_600_000_000
        return sum((amount for who, amount, at in self.charged if who == subject and at > start), Fraction(0))

    @rule(
        which=st.integers(0, 1), who=st.lists(st.sampled_from("ab"), min_size=1, max_size=4), tenths=st.integers(1, 9)
    )
    def charge(self, which, who, tenths):
        amount = Fraction(tenths, 10)
        granted = self.open[which].charge_each(who, Cost(epsilon=amount, unit="per km"))
        for subject, was in zip(who, granted, strict=True):
            wanted = self.limit is None or self.recent(subject) + amount <= self.limit[0]
            assert was == wanted
            if was:
                self.charged.append((subject, amount, self.now))

    @rule(which=st.integers(0, 1), amount=st.integers(0, 3), hours=st.sampled_from([None, 1, 3]))
    def set_limit(self, which, amount, hours):
        self.open[which].set_limit(amount, hours=hours)
        self.limit = (Fraction(amount), hours)

    @rule(minutes=st.integers(0, 90))
    def wait(self, minutes):
        self.now += minutes * 60_000_000

    @rule(which=st.integers(0, 1))
    def open_again(self, which):
        self.open[which].close()
        self.open[which] = Ledger(self.folder / "l", clock=lambda: self.now * 1000)

    @invariant()
    def both_say_the_same(self):
        if not hasattr(self, "open"):
            return
        for subject in "ab":
            for ledger in self.open:
                found = ledger.account(subject)
                assert found.spent == sum((x for who, x, _ in self.charged if who == subject), Fraction(0))
                wanted = None if self.limit is None else max(Fraction(0), self.limit[0] - self.recent(subject))
                assert found.left == wanted

    def teardown(self):
        if hasattr(self, "open"):
            self.open[0].check()
            assert self.open[0].head == self.open[1].head
            for ledger in self.open:
                ledger.close()
            shutil.rmtree(self.folder)


TestTwoConnections = TwoConnections.TestCase
TestTwoConnections.settings = settings(max_examples=15, stateful_step_count=15)


def test_terms_that_no_entry_can_have_are_found(ledger):
    """A row that is not all text is no terms, and would still name the relation of all later charges."""
    ledger.charge("anna", HALF)
    ledger.close()
    with sqlite3.connect(ledger.path) as connection:
        connection.execute("INSERT INTO terms VALUES (0, 'charge', 'epsilon', 'per mile', '', '', '1', '', x'00')")
    connection.close()
    with Ledger(ledger.path) as again, pytest.raises(DoesNotHoldError, match="subjects, or terms, that no entry has"):
        again.check()


def test_rows_of_no_report_need_no_calendar(ledger):
    assert ledger.charge_each(["anna", "bert"], HALF, [None, "2024-01-01"], [1, 0]) == [True, True]
    assert [account.subject for account in ledger.accounts()] == ["anna"]


def test_a_unit_that_there_is_not_is_refused(ledger):
    for ask in (lambda: ledger.account("anna", unit="bogus"), lambda: ledger.accounts(unit="bogus")):
        with pytest.raises(UsageError, match="unit must be one of epsilon, rho"):
            ask()
