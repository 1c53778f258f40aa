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
    with Ledger(tmp_path / "l.ledger") as open_ledger:
        yield open_ledger


def test_sums_are_exact(ledger):
    for _ in range(10):
        ledger.charge("anna", Cost(epsilon="0.1", unit="per km"))
    ledger.charge("anna", Cost(epsilon="1/3", unit="per km"))
    account = ledger.account("anna")
    assert (account.spent, account.reports) == (Fraction(4, 3), 11)
    assert account.to_json() == {"subject": "anna", "spent": "4/3", "left": None, "reports": 11}


def test_refuses_reports_beyond_the_limit(ledger):
    ledger.set_limit("1.5")
    assert ledger.charge_each(["anna"] * 4 + ["bert"], HALF) == [True, True, True, False, True]
    with pytest.raises(BudgetSpentError, match=r"anna.*0\.5, but 0 is left"):
        ledger.charge("anna", HALF)
    assert [(a.subject, a.left) for a in ledger.accounts()] == [("anna", 0), ("bert", 1)]
    assert [ledger.charge_times("bert", times, HALF) for times in (1, 10**12, 10**12)] == [1, 1, 0]
    assert ledger.account("bert").reports == 3
    ledger.set_limit(1)
    assert ledger.account("anna").left == 0  # it has spent more
    ledger.set_limit(2)
    ledger.charge("anna", HALF)


def test_smaller_report_may_still_fit(ledger):
    ledger.set_limit("0.7")
    assert ledger.charge_each(["anna", "anna"], HALF) == [True, False]
    ledger.charge("anna", Cost(epsilon="0.2", unit="per km", notion="metric-dp"))
    assert ledger.account("anna").left == 0


def test_uncharged_subject_has_spent_nothing(ledger):
    ledger.set_limit("0.4")
    with pytest.raises(BudgetSpentError):
        ledger.charge("anna", HALF)
    assert (ledger.account("anna").spent, ledger.accounts()) == (0, [])
    ledger.check()


@pytest.mark.parametrize("other_unit", ["per m", ""])
def test_refuses_another_unit(ledger, other_unit):
    ledger.charge("anna", HALF)
    with pytest.raises(InputError, match=r"l\.ledger: unit: .*per km"):
        ledger.charge("anna", Cost(epsilon="0.5", unit=other_unit))
    assert ledger.account("anna").reports == 1


@pytest.mark.parametrize(
    "amount",
    ["", "-1", "nan", "1e5", "1/0", "0", "0.0", "\u0668", "\uff18", "1\u0660", 0, -1, 0.5, True, None, "9" * 41],
)
def test_refuses_invalid_amounts(amount):
    with pytest.raises(UsageError, match=r"epsilon .*above 0"):
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
def test_refuses_invalid_subjects(ledger, subject):
    with pytest.raises(UsageError, match=r"1 to 1,000 characters"):
        ledger.charge(subject, HALF)
    assert ledger.accounts() == []


def test_window_includes_only_its_end(tmp_path):
    nanoseconds = 0
    with Ledger(tmp_path / "l", clock=lambda: nanoseconds) as ledger:
        ledger.set_limit(1, hours="1/2")
        ledger.charge("anna", HALF)
        nanoseconds = 1_000 * 10**9
        ledger.charge("anna", HALF)
        nanoseconds = 1_800 * 10**9 - 1_000
        with pytest.raises(BudgetSpentError):
            ledger.charge("anna", HALF)
        nanoseconds = 1_800 * 10**9
        ledger.charge("anna", HALF)
        assert ledger.account("anna").left == 0
        assert (ledger.account("anna").spent, ledger.account("anna", hours="0.5").spent) == (Fraction(3, 2), 1)


def test_daily_job_fits_a_window_of_24_hours(tmp_path):
    nanoseconds = 0
    with Ledger(tmp_path / "l", clock=lambda: nanoseconds) as ledger:
        ledger.set_limit("0.5", hours=24)
        for night in range(3):
            nanoseconds = night * 24 * 3_600 * 10**9
            ledger.charge("anna", HALF)


def test_clock_set_back_frees_no_window(tmp_path):
    nanoseconds = 10**15
    with Ledger(tmp_path / "l", clock=lambda: nanoseconds) as ledger:
        ledger.set_limit("0.5", hours=1)
        ledger.charge("anna", HALF)
        nanoseconds = 0
        with pytest.raises(BudgetSpentError):
            ledger.charge("anna", HALF)
        assert ledger.account("anna").left == 0


def test_names_are_hashed_under_a_private_key(tmp_path):
    key, path = tmp_path / "key", tmp_path / "l"
    with Ledger(path, key=key) as ledger:
        ledger.charge("anna", HALF)
        assert ledger.account("anna").reports == 1
        name = ledger.accounts()[0].subject
    assert key.stat().st_mode & 0o777 == path.stat().st_mode & 0o777 == 0o600
    assert (len(name), b"anna" in path.read_bytes()) == (64, False)
    with Ledger(path) as keyless, pytest.raises(InputError, match=r"hmac-sha256.*got plain"):
        keyless.account("anna")
    key_at(tmp_path / "other", make=True)
    with pytest.raises(InputError, match=r"hmac.*got hmac"):
        Ledger(path, key=tmp_path / "other")
    with pytest.raises(InputError, match=r"gone: .*the key"):
        Ledger(path, key=tmp_path / "gone")
    key.chmod(0o644)
    with pytest.raises(UsageError, match=r"0600.*0644"):
        Ledger(path, key=key)


def test_plain_ledger_takes_no_key(tmp_path):
    with Ledger(tmp_path / "l") as ledger:
        ledger.charge("anna", HALF)
    with pytest.raises(InputError, match=r"plain names.*a key"):
        Ledger(tmp_path / "l", key=tmp_path / "key")
    assert not (tmp_path / "key").exists()


def test_refuses_files_of_another_kind(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,2\n")
    with pytest.raises(InputError, match=r"t\.csv: .*ledger of privopt"):
        Ledger(tmp_path / "t.csv")
    with pytest.raises(InputError, match="file not found"):
        Ledger(tmp_path / "none", make=False)
    with pytest.raises(UsageError, match=r"folder .*must exist"):
        Ledger(tmp_path / "no" / "l")
    (tmp_path / "folder").mkdir()
    with pytest.raises(InputError, match="ledger of privopt"):
        Ledger(tmp_path / "folder")


def test_kept_head_reveals_cut_entries(tmp_path):
    path, old = tmp_path / "l", tmp_path / "old"
    with Ledger(path) as ledger:
        ledger.charge("anna", HALF)
        old_head = ledger.head
    shutil.copy(path, old)
    with Ledger(path) as ledger:
        ledger.charge("anna", HALF)
        ledger.check(head=old_head)
        head = ledger.head
    with Ledger(old) as cut:
        cut.check()  # a chain that was cut at its end is whole
        with pytest.raises(DoesNotHoldError, match="entries 4 to"):
            cut.check(head=head)
        cut.charge("bert", HALF)
        with pytest.raises(DoesNotHoldError, match=r"entry 4 \(subject bert\)"):
            cut.check(head=head)
        for invalid_head in ("4", "\u0664:" + "0" * 64):
            with pytest.raises(UsageError, match="must be N:HASH"):
                cut.check(head=invalid_head)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["0.1", "1/3", "2"])), max_size=30), st.data())
@settings(max_examples=12)
def test_batch_charges_match_single_charges(charges, data):
    limit = data.draw(st.sampled_from([None, "1", "2.5"]))
    folder = Path(tempfile.mkdtemp())
    try:
        outcomes = []
        for name in ("once", "each"):
            with Ledger(folder / name) as ledger:
                if limit is not None:
                    ledger.set_limit(limit)
                is_granted = []
                for epsilon in ["0.1", "1/3", "2"]:
                    subjects = [subject for subject, amount in charges if amount == epsilon]
                    cost = Cost(epsilon=epsilon, unit="")
                    if name == "once":
                        is_granted += ledger.charge_each(subjects, cost)
                    else:
                        is_granted += [ledger.charge_each([subject], cost)[0] for subject in subjects]
                ledger.check()
                outcomes.append((is_granted, ledger.accounts()))
        assert outcomes[0] == outcomes[1]
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
        return sum((amount for name, amount, time in self.charged if name == subject and time > start), Fraction(0))

    @rule(
        number=st.integers(0, 1),
        subjects=st.lists(st.sampled_from("ab"), min_size=1, max_size=4),
        tenths=st.integers(1, 9),
    )
    def charge(self, number, subjects, tenths):
        amount = Fraction(tenths, 10)
        is_granted = self.open[number].charge_each(subjects, Cost(epsilon=amount, unit="per km"))
        for subject, was in zip(subjects, is_granted, strict=True):
            is_expected = self.limit is None or self.recent(subject) + amount <= self.limit[0]
            assert was == is_expected
            if was:
                self.charged.append((subject, amount, self.now))

    @rule(number=st.integers(0, 1), amount=st.integers(0, 3), hours=st.sampled_from([None, 1, 3]))
    def set_limit(self, number, amount, hours):
        self.open[number].set_limit(amount, hours=hours)
        self.limit = (Fraction(amount), hours)

    @rule(minutes=st.integers(0, 90))
    def wait(self, minutes):
        self.now += minutes * 60_000_000

    @rule(number=st.integers(0, 1))
    def open_again(self, number):
        self.open[number].close()
        self.open[number] = Ledger(self.folder / "l", clock=lambda: self.now * 1000)

    @invariant()
    def both_say_the_same(self):
        if not hasattr(self, "open"):
            return
        for subject in "ab":
            for ledger in self.open:
                account = ledger.account(subject)
                assert account.spent == sum((x for name, x, _ in self.charged if name == subject), Fraction(0))
                expected_left = None if self.limit is None else max(Fraction(0), self.limit[0] - self.recent(subject))
                assert account.left == expected_left

    def teardown(self):
        if hasattr(self, "open"):
            self.open[0].check()
            assert self.open[0].head == self.open[1].head
            for ledger in self.open:
                ledger.close()
            shutil.rmtree(self.folder)


TestTwoConnections = TwoConnections.TestCase
TestTwoConnections.settings = settings(max_examples=15, stateful_step_count=15)


def test_finds_terms_without_an_entry(ledger):
    """A row that is not all text is no terms, and would still name the relation of all later charges."""
    ledger.charge("anna", HALF)
    ledger.close()
    with sqlite3.connect(ledger.path) as connection:
        connection.execute("INSERT INTO terms VALUES (0, 'charge', 'epsilon', 'per mile', '', '', '1', '', x'00')")
    connection.close()
    with Ledger(ledger.path) as reopened, pytest.raises(DoesNotHoldError, match="or terms, that"):
        reopened.check()


def test_empty_rows_need_no_calendar(ledger):
    assert ledger.charge_each(["anna", "bert"], HALF, [None, "2024-01-01"], [1, 0]) == [True, True]
    assert [account.subject for account in ledger.accounts()] == ["anna"]


def test_refuses_unknown_units(ledger):
    for call in (lambda: ledger.account("anna", unit="bogus"), lambda: ledger.accounts(unit="bogus")):
        with pytest.raises(UsageError, match="of epsilon, rho"):
            call()
