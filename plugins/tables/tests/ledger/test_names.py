"""One person, one budget, however a name is written."""

import unicodedata

import pytest
from helpers.charging import BY_ID, read_charges, run_command, table
from hypothesis import given
from hypothesis import strategies as st

import privopt as po
from privopt.declare.name_forms import fold_subject_name
from privopt.errors import BudgetSpentError, InputError, UsageError
from privopt.interfaces.cost import Cost
from privopt.ledger.charge import Charge
from privopt.ledger.ledger import Ledger
from privopt_tables.apply import apply
from privopt_tables.options import ApplyOptions

ONE = Cost(epsilon=1, unit="per km", notion="metric-dp", mechanism="ab" * 32, purpose="morning")
UNSEEN = "\ufeff\u200b\u200c\u200d\u2060\u00ad\u034f\u115f\u3164\uffa0\u180b\ufe0f\u202e\U000e0001\U000e0101\u2800"
BLANKS = " \u00a0\u2003\u3000\t\n\u2028\u1680\x85"
NAMES = st.text(min_size=1, max_size=8)
ANNA = ["anna", "\ufeffanna", "an\u200bna", "anna\u00a0", " anna", "anna\ufe0f", "\uff41nna", "an\u00adna"]
SEVEN = ["7", "7.0", "007", "+7", "7.", "\u0667", "\uff17", "\u2466"]


# --- the form --------------------------------------------------------------------------------------------


@given(NAMES)
def test_normal_form_is_idempotent(name):
    assert fold_subject_name(fold_subject_name(name)) == fold_subject_name(name)


@given(NAMES, st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]))
def test_normal_forms_are_one_name(name, form):
    assert fold_subject_name(unicodedata.normalize(form, name)) == fold_subject_name(name)


@given(NAMES, st.lists(st.tuples(st.integers(0, 8), st.sampled_from(UNSEEN)), max_size=4), st.data())
def test_invisible_characters_make_no_new_name(name, unseen, data):
    variant = name
    for position, letter in unseen:
        variant = variant[:position] + letter + variant[position:]
    blanks = data.draw(st.tuples(*[st.text(BLANKS, max_size=3)] * 2))
    assert fold_subject_name(blanks[0] + variant + blanks[1]) == fold_subject_name(name)


@given(st.integers(-(10**20), 10**20), st.integers(0, 5), st.sampled_from(["", ".", ".0", ".000"]))
def test_whole_number_is_one_name_in_any_form(number, zeros, end):
    sign, digits = ("-" if number < 0 else ""), str(abs(number))
    assert fold_subject_name(f"{sign}{'0' * zeros}{digits}{end}") == str(number)


def test_distinct_names_stay_distinct():
    names = ["anna", "Anna", "ann a", "7", "-7", "7.5", "7e0", "7a", "07-1", "1,000", "1000", "zo\u00eb", "zoe"]
    assert len({fold_subject_name(name) for name in names}) == len(names)


# --- ledgers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hashed", [False, True])
@pytest.mark.parametrize("names", [ANNA, SEVEN, ["Zo\u00eb", "Zoe\u0308"]])
def test_spellings_of_a_name_share_a_budget(tmp_path, names, hashed):
    with Ledger(tmp_path / "l", key=tmp_path / "key" if hashed else None) as ledger:
        ledger.set_limit(2)
        assert ledger.charge_each(names, ONE) == [True, True] + [False] * (len(names) - 2)
        with pytest.raises(BudgetSpentError, match="0 is left"):
            ledger.charge(names[-1], ONE)
        assert len({ledger.name_of(name) for name in names}) == len(ledger.accounts()) == 1
        assert [ledger.account(name).spent for name in names] == [2] * len(names)
        assert {len(ledger.charges(name)) for name in names} == {2}
        ledger.check()


def test_table_has_one_subject_for_all_spellings(town, tmp_path):
    run_command("budget", tmp_path / "l", "--set", "1")
    rows = table(tmp_path / "t.csv", [f'"{name}",p{number}' for number, name in enumerate([*ANNA, *SEVEN[:5]])])
    charge = Charge(ledger=tmp_path / "l", subject="who")
    assert apply(town, rows, tmp_path / "o.csv", BY_ID, ApplyOptions(charge=charge)).refused == {"budget spent": 6 + 3}
    assert [name for name, _ in read_charges(tmp_path / "l")] == ["anna", "anna", "7", "7"]
    with pytest.raises(UsageError, match="no row could"):
        po.open(town).apply({"who": [7.0, 7.0], "at": ["p0"] * 2}, id="at", ledger=tmp_path / "l", subject="who")
    code, _, err = run_command("sample", town, "--input", "p0", "--ledger", tmp_path / "l", "--subject", "0\uff17.0")
    assert (code, "budget spent" in err) == (2, True)
    assert run_command("budget", tmp_path / "l", "--subject", "\u200banna")[1].count("1 spent, 0 left, 2 charges") == 1


@pytest.mark.parametrize("name", ["a\0b", "a\x1b[31m", "\ue000", "\u0378", "x" * 1001])
def test_refuses_invisible_names_before_a_charge(town, tmp_path, name):
    frame = {"who": ["bert", name, name], "at": ["p0"] * 3}
    with pytest.raises(InputError, match=r"column who: .*(U\+|of 1,001 char).*\(2 such"):
        po.open(town).apply(frame, id="at", ledger=tmp_path / "l", subject="who")
    assert not (tmp_path / "l").exists()


def test_blank_names_are_nobody(town, tmp_path):
    rows = table(tmp_path / "t.csv", ["\ufeff\u200b,p0", "\u3164,p0", "anna,p0"])
    charge = Charge(ledger=tmp_path / "l", subject="who")
    assert apply(town, rows, tmp_path / "o.csv", BY_ID, ApplyOptions(charge=charge)).refused == {"no subject": 2}


def test_limit_needs_ascii_digits(tmp_path):
    for amount in ("\u0668", "\uff18", "1\u0660", "0.\u0665", "1/\u0663"):
        code, _, err = run_command("budget", tmp_path / "l", "--set", amount)
        assert (code, "an amount" in err) == (2, True)
        assert run_command("budget", tmp_path / "l", "--set", "1", "--window", amount)[0] == 2
    assert not (tmp_path / "l").exists()
