"""One person, one budget: however a name is written, in ledgers of this version and of those before."""

import unicodedata
from fractions import Fraction

import pytest
from charging import BY_ID, charged, said, table
from hypothesis import given, settings
from hypothesis import strategies as st

import privopt as po
from privopt.errors import BudgetSpentError, InputError, UsageError
from privopt.ledger.charge import Charge
from privopt.ledger.entries import Cost
from privopt.ledger.ledger import Ledger
from privopt.ledger.subject_names import folded
from privopt_metric_dp.tables.apply_table import apply

ONE = Cost(epsilon=1, unit="per km", notion="metric-dp", mechanism="ab" * 32, purpose="morning")
UNSEEN = "\ufeff\u200b\u200c\u200d\u2060\u00ad\u034f\u115f\u3164\uffa0\u180b\ufe0f\u202e\U000e0001\U000e0101\u2800"
BLANKS = " \u00a0\u2003\u3000\t\n\u2028\u1680\x85"
NAMES = st.text(min_size=1, max_size=8)
ANNA = ["anna", "\ufeffanna", "an\u200bna", "anna\u00a0", " anna", "anna\ufe0f", "\uff41nna", "an\u00adna"]
SEVEN = ["7", "7.0", "007", "+7", "7.", "\u0667", "\uff17", "\u2466"]


def earlier(monkeypatch):
    """Charge as the version before did: each spelling (NFC) is a subject of its own."""

    def stored(ledger, book, subject):
        return (ledger._names._called(unicodedata.normalize("NFC", subject)),)

    monkeypatch.setattr(Ledger, "_stored", stored)


# --- the form --------------------------------------------------------------------------------------------


@given(NAMES)
def test_the_form_of_a_name_has_itself_as_form(name):
    assert folded(folded(name)) == folded(name)


@given(NAMES, st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]))
def test_every_normal_form_of_a_name_is_one_name(name, form):
    assert folded(unicodedata.normalize(form, name)) == folded(name)


@given(NAMES, st.lists(st.tuples(st.integers(0, 8), st.sampled_from(UNSEEN)), max_size=4), st.data())
def test_what_nobody_sees_makes_no_other_name(name, unseen, data):
    other = name
    for place, letter in unseen:
        other = other[:place] + letter + other[place:]
    ends = data.draw(st.tuples(*[st.text(BLANKS, max_size=3)] * 2))
    assert folded(ends[0] + other + ends[1]) == folded(name)


@given(st.integers(-(10**20), 10**20), st.integers(0, 5), st.sampled_from(["", ".", ".0", ".000"]))
def test_a_whole_number_is_one_name_however_it_is_written(number, zeros, end):
    sign, digits = ("-" if number < 0 else ""), str(abs(number))
    assert folded(f"{sign}{'0' * zeros}{digits}{end}") == str(number)


def test_what_can_be_told_apart_stays_apart():
    names = ["anna", "Anna", "ann a", "7", "-7", "7.5", "7e0", "7a", "07-1", "1,000", "1000", "zo\u00eb", "zoe"]
    assert len({folded(name) for name in names}) == len(names)


# --- ledgers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hashed", [False, True])
@pytest.mark.parametrize("names", [ANNA, SEVEN, ["Zo\u00eb", "Zoe\u0308"]])
def test_a_name_has_one_budget_however_it_is_written(tmp_path, names, hashed):
    with Ledger(tmp_path / "l", key=tmp_path / "key" if hashed else None) as ledger:
        ledger.set_limit(2)
        assert ledger.charge_each(names, ONE) == [True, True] + [False] * (len(names) - 2)
        with pytest.raises(BudgetSpentError, match="0 is left"):
            ledger.charge(names[-1], ONE)
        assert len({called[0] for called in ledger.names_of(names).values()}) == len(ledger.accounts()) == 1
        assert [ledger.account(name).spent for name in names] == [2] * len(names)
        assert {len(ledger.charges(name)) for name in names} == {2}
        with pytest.raises(UsageError, match="twice, wanted each once"):
            ledger.charge_disjoint(names[:2], ONE)
        ledger.check()


def test_a_table_has_one_subject_for_all_spellings_of_a_name(town, tmp_path):
    said("budget", tmp_path / "l", "--set", "1")
    rows = table(tmp_path / "t.csv", [f'"{name}",p{number}' for number, name in enumerate([*ANNA, *SEVEN[:5]])])
    charge = Charge(ledger=tmp_path / "l", subject="who")
    assert apply(town, rows, tmp_path / "o.csv", BY_ID, charge=charge).refused == {"budget spent": 6 + 3}
    assert [name for name, _ in charged(tmp_path / "l")] == ["anna", "anna", "7", "7"]
    with pytest.raises(UsageError, match="no row could be reported"):
        po.open(town).apply({"who": [7.0, 7.0], "at": ["p0"] * 2}, id="at", ledger=tmp_path / "l", subject="who")
    code, _, err = said("sample", town, "--input", "p0", "--ledger", tmp_path / "l", "--subject", "0\uff17.0")
    assert (code, "budget spent" in err) == (2, True)
    assert said("budget", tmp_path / "l", "--subject", "\u200banna")[1].count("1 spent, 0 left, 2 charges") == 1


@pytest.mark.parametrize("name", ["a\0b", "a\x1b[31m", "\ue000", "\u0378", "x" * 1001])
def test_a_table_with_a_name_that_cannot_be_seen_is_refused_before_anybody_is_charged(town, tmp_path, name):
    frame = {"who": ["bert", name, name], "at": ["p0"] * 3}
    with pytest.raises(InputError, match=r"column who: found a name (with U\+|of 1,001 char).* \(2 such rows\)"):
        po.open(town).apply(frame, id="at", ledger=tmp_path / "l", subject="who")
    assert charged(tmp_path / "l") == []


def test_names_that_show_nothing_are_nobody(town, tmp_path):
    rows = table(tmp_path / "t.csv", ["\ufeff\u200b,p0", "\u3164,p0", "anna,p0"])
    charge = Charge(ledger=tmp_path / "l", subject="who")
    assert apply(town, rows, tmp_path / "o.csv", BY_ID, charge=charge).refused == {"no subject": 2}


def test_a_limit_is_said_in_ascii_digits(tmp_path):
    for amount in ("\u0668", "\uff18", "1\u0660", "0.\u0665", "1/\u0663"):
        code, _, err = said("budget", tmp_path / "l", "--set", amount)
        assert (code, "wanted an amount" in err) == (2, True)
        assert said("budget", tmp_path / "l", "--set", "1", "--window", amount)[0] == 2
    assert not (tmp_path / "l").exists()


# --- ledgers of the version before -----------------------------------------------------------------------


@given(
    st.lists(st.tuples(st.sampled_from(ANNA + SEVEN), st.integers(1, 3)), min_size=1, max_size=8),
    st.sampled_from(ANNA + SEVEN),
)
@settings(max_examples=25, deadline=None)
def test_no_spelling_of_an_earlier_ledger_has_a_budget_of_its_own(tmp_path_factory, before, asked):
    path = tmp_path_factory.mktemp("l") / "l"
    same = sum(times for name, times in before if folded(name) == folded(asked))
    with pytest.MonkeyPatch.context() as patch, Ledger(path) as ledger:
        earlier(patch)
        for name, times in before:
            ledger.charge_times(name, times, ONE)
    with Ledger(path) as ledger:
        ledger.set_limit(same + 2)
        assert (ledger.account(asked).spent, ledger.account(asked).reports, ledger.account(asked).left) == (
            same,
            same,
            2,
        )
        assert ledger.charge_each([folded(asked), asked, asked], ONE) == [True, True, False]
        assert {each.subject: each.spent for each in ledger.accounts()}[folded(asked)] == same + 2
        assert {each.subject for each in ledger.accounts()} == {folded(name) for name, _ in before} | {folded(asked)}
        assert len(ledger.charges(asked)) == same + 2
        ledger.check()


@pytest.mark.parametrize("name", ["007", "7.0", "anna\u200b", "\uff41nna"])
def test_a_hashed_name_of_an_earlier_ledger_is_found_as_it_is_written(town, tmp_path, monkeypatch, name):
    """Also where it stands in a table, which is read before the ledger is asked."""
    with monkeypatch.context() as patch, Ledger(tmp_path / "l", key=tmp_path / "key") as ledger:
        earlier(patch)
        ledger.set_limit("1.4")
        ledger.charge(name, ONE)
    with Ledger(tmp_path / "l", key=tmp_path / "key") as ledger:
        assert ledger.account(name).left == Fraction(2, 5)
        for table in ({"who": [name], "at": ["p0"]}, {"who": [f" {name}", ""], "at": ["p0", "p0"]}):
            with pytest.raises(UsageError, match="no row could be reported"):
                po.open(town).apply(table, id="at", ledger=ledger, subject="who")
        ledger.set_limit(2)
        assert ledger.charge_each([folded(name), name], ONE) == [True, False]  # what both spent counts
        ledger.check()


def test_kept_reports_of_an_earlier_ledger_are_repeated_and_forgotten(town, tmp_path, monkeypatch):
    rows = table(tmp_path / "t.csv", ["007,p0", "\ufeffanna,p1"])
    charge = Charge(ledger=tmp_path / "l", subject="who", sticky=True)
    with monkeypatch.context() as patch:
        earlier(patch)
        apply(town, rows, tmp_path / "before.csv", BY_ID, charge=charge)
    apply(town, rows, tmp_path / "after.csv", BY_ID, charge=charge)
    assert (tmp_path / "before.csv").read_text() == (tmp_path / "after.csv").read_text()
    assert [name for name, _ in charged(tmp_path / "l")] == ["007", "\ufeffanna"]
    assert "1 kept reports of 7 removed" in said("budget", tmp_path / "l", "--forget", "7")[2]
