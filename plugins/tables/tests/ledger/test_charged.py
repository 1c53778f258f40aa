"""`apply`, `solve` and `budget` with a ledger: what is charged, when, and that no secret decides it."""

import json
import os
import shutil
import subprocess
import sys
from collections import Counter
from fractions import Fraction

import polars as pl
import pytest
from helpers.charging import BY_ID, BY_PLACE, CENSUS, charged, said, table
from hypothesis import given, settings
from hypothesis import strategies as st

import privopt as po
from privopt.errors import InputError, StoppedError, UsageError
from privopt.files.release_folder import SUMS, sha256
from privopt.interfaces.cost import Cost
from privopt.ledger.charge import Charge
from privopt.ledger.exports import to_opendp
from privopt.ledger.ledger import Ledger
from privopt_tables import apply as module
from privopt_tables.apply import apply
from privopt_tables.options import ApplyOptions
from privopt_tables.rows.by_position import PositionProtector


def test_every_row_is_charged_to_its_subject(town, tmp_path):
    rows = table(tmp_path / "t.csv", ["anna,p0", "bert,p1", "anna,p2", ",p1", " ,p1"])
    done = apply(
        town, rows, tmp_path / "o.csv", BY_ID, ApplyOptions(charge=Charge(ledger=tmp_path / "l", subject="who"))
    )
    assert done.refused == {"no subject": 2}
    assert [name for name, _ in charged(tmp_path / "l")] == ["anna", "bert", "anna"]
    cost = charged(tmp_path / "l")[0][1]
    assert (cost.epsilon, cost.unit, cost.notion) == (Fraction(1, 2), "per km as the crow flies", "metric-dp")
    assert (cost.mechanism, cost.purpose) == (sha256(town / SUMS), "apply t.csv")
    out = pl.read_csv(tmp_path / "o.csv")
    assert out.columns == ["who", "report", "report_x", "report_y"]
    assert out["report"].is_null().to_list() == [False, False, False, True, True]


def test_the_first_reports_of_a_subject_fit_and_the_rest_are_refused(town, tmp_path):
    assert said("budget", tmp_path / "l", "--set", "1.2", "--json")[0] == 0
    rows = table(tmp_path / "t.csv", ["anna,p0"] * 3 + ["bert,p1"] + ["anna,p1"])
    options = ["--id", "place", "--ledger", tmp_path / "l", "--subject", "who", "--json"]
    code, out, err = said("apply", town, rows, "--out", tmp_path / "o.csv", *options)
    assert code == 0, err
    assert json.loads(out) == {"rows": 5, "reported": 3, "refused": {"budget spent": 2}}
    reports = pl.read_csv(tmp_path / "o.csv")["report"].is_null().to_list()
    assert reports == [False, False, True, False, True]
    code, out, err = said("budget", tmp_path / "l", "--json")
    found, head = json.loads(out), err.partition("head ")[2].partition(": ")[0]
    assert found == {
        "unit": "per km as the crow flies",
        "limit": "1.2",
        "window_hours": None,
        "subjects": [
            {"subject": "anna", "spent": "1", "left": "0.2", "reports": 2},
            {"subject": "bert", "spent": "0.5", "left": "0.7", "reports": 1},
        ],
    }
    assert said("budget", tmp_path / "l", "--head", head)[0] == 0
    one = json.loads(said("budget", tmp_path / "l", "--json", "--subject", "bert")[1])
    assert one["subjects"] == [found["subjects"][1]]
    code, _, err = said("apply", town, rows, "--out", tmp_path / "o.csv", "--force", *options)
    assert code == 0  # bert has one left
    code, _, err = said("apply", town, rows, "--out", tmp_path / "o.csv", "--force", *options)
    assert (code, "no row could be reported: 5 budget spent" in err) == (2, True)


@pytest.mark.parametrize("examples", [5, pytest.param(40, marks=pytest.mark.slow)])
def test_what_is_charged_and_refused_is_no_function_of_the_secret(town, examples):
    """Tables that differ in the secret alone leave ledgers that differ in times alone, and refuse the same rows."""
    folder = town.parent / "twins"

    @settings(max_examples=examples)
    @given(st.data())
    def alike(data):
        subjects = data.draw(st.lists(st.sampled_from(["anna", "bert", ""]), min_size=1, max_size=12))
        places = st.tuples(*[st.sampled_from(["0,0", "3.2,1", ",", "x,1", "1e9,0", "900,900"])] * len(subjects))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        left = []
        for side in ("one", "two"):
            (folder / side).mkdir()
            rows = [f"{who},{place}" for who, place in zip(subjects, data.draw(places), strict=True)]
            source = table(folder / side / "t.csv", rows, "who,x,y")
            charge = Charge(ledger=folder / side / "l", subject="who")
            said("budget", charge.ledger, "--set", "1.4")
            try:
                apply(town, source, folder / side / "o.csv", BY_PLACE, ApplyOptions(max_snap=2.0, charge=charge))
            except UsageError:  # no row could be reported
                assert not (folder / side / "o.csv").exists()
            spent = said("budget", charge.ledger, "--json")[1]
            left.append((charged(charge.ledger), json.loads(spent)["subjects"]))
        assert left[0] == left[1]
        most = {who: min(subjects.count(who), 2) for who in ("anna", "bert") if who in subjects}
        assert {each["subject"]: each["reports"] for each in left[0][1]} == most

    alike()


def test_all_charges_are_durable_before_anything_is_drawn(town, tmp_path, monkeypatch):
    seen = []
    draw = PositionProtector._draw_reports

    def watched(self, frame, first, rows):
        with Ledger(tmp_path / "l", make=False) as other:
            seen.append((len(rows), sum(account.reports for account in other.accounts())))
        return draw(self, frame, first, rows)

    monkeypatch.setattr(PositionProtector, "_draw_reports", watched)
    rows = table(tmp_path / "t.csv", ["anna,p0", "bert,p1", "anna,nowhere"])
    apply(town, rows, tmp_path / "o.csv", BY_ID, ApplyOptions(charge=Charge(ledger=tmp_path / "l", subject="who")))
    assert seen == [(3, 3)]


def test_nobody_is_charged_for_a_table_that_will_not_do(town, tmp_path):
    charge = Charge(ledger=tmp_path / "l", subject="who")
    rows = [f"s{n},p1" for n in range(1500)]
    for row, words in (("anna,p0,7", "row 1502"), ("x" * 1001 + ",p0", r"a name of 1,001 characters \(1 such rows\)")):
        source = table(tmp_path / "t.csv", [*rows, row])
        with pytest.raises(InputError, match=words):
            apply(town, source, tmp_path / "o.csv", BY_ID, ApplyOptions(charge=charge))
    for column, found in (("nobody", "no such column"), ("place", "the secret")):
        wrong = Charge(ledger=tmp_path / "m", subject=column)
        with pytest.raises(InputError, match=f"column {column}: expected .*, got {found}"):
            apply(town, table(tmp_path / "t.csv", rows), tmp_path / "o.csv", BY_ID, ApplyOptions(charge=wrong))
        with pytest.raises(InputError, match=f"column {column}: expected .*, got {found}"):
            po.open(town).apply({"place": ["p0"]}, id="place", ledger=tmp_path / "m", subject=column)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv"]


def test_the_price_of_a_row_is_said_before_anybody_is_charged(town, tmp_path):
    rows, book, heard = table(tmp_path / "t.csv", ["anna,p0"] * 3), tmp_path / "book", []
    said("budget", book, "--set", "1.4", "--window", "24")
    asked = ApplyOptions(charge=Charge(ledger=book, subject="who"))
    done = apply(
        town, rows, tmp_path / "o.csv", BY_ID, asked, announce=lambda line: heard.append((line, charged(book)))
    )
    assert done.refused == {"budget spent": 1}
    price = "each row costs its subject epsilon 0.5 per km as the crow flies"
    assert heard == [(f"{price}; the limit of 1.4 in any 24 hours is enough for 2 rows", [])]
    free = ["--id", "place", "--ledger", tmp_path / "free", "--subject", "who"]
    _, _, err = said("apply", town, rows, "--out", tmp_path / "p.csv", *free)
    assert err.startswith(f"note: {price}; {tmp_path / 'free'} has no limit and only counts")


def test_an_interrupt_leaves_charges_and_no_table(town, tmp_path, monkeypatch):
    def interrupted(self, batch):
        raise KeyboardInterrupt

    monkeypatch.setattr(module.TableWriter, "write", interrupted)
    rows = table(tmp_path / "t.csv", ["anna,p0"])
    with pytest.raises(StoppedError):
        apply(town, rows, tmp_path / "o.csv", BY_ID, ApplyOptions(charge=Charge(ledger=tmp_path / "l", subject="who")))
    assert len(charged(tmp_path / "l")) == 1
    assert not [path for path in tmp_path.iterdir() if "o.csv" in path.name]


def test_a_changed_ledger_ends_with_1_and_nothing_is_written(town, tmp_path):
    rows = table(tmp_path / "t.csv", ["anna,p0", "bert,p0"])
    options = ["--id", "place", "--ledger", tmp_path / "l", "--subject", "who"]
    assert said("apply", town, rows, "--out", tmp_path / "o.csv", *options)[0] == 0
    raw = (tmp_path / "l").read_bytes()
    (tmp_path / "l").write_bytes(raw.replace(b"anna", b"anne"))
    for command in (["apply", town, rows, "--out", tmp_path / "o2.csv", *options], ["budget", tmp_path / "l"]):
        code, out, err = said(*command)
        assert (code, out) == (1, "")
        assert "entry 3 (subject anne): changed" in err
    assert not (tmp_path / "o2.csv").exists()


@pytest.mark.parametrize(
    ("more", "found"),
    [
        (["--sticky"], "--sticky must be used with --ledger FILE"),
        (["--subject", "who"], "--subject must be used with --ledger FILE"),
        (["--ledger", "l"], "--ledger must be used with --subject COLUMN"),
        (["--ledger", "l", "--subject", "who", "--seed", "1"], "--seed must be omitted with --ledger"),
    ],
)
def test_options_that_cannot_be_meant_so_are_bad_usage(town, tmp_path, more, found, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = table(tmp_path / "t.csv", ["anna,p0"])
    code, out, err = said("apply", town, rows, "--out", tmp_path / "o.csv", "--id", "place", *more)
    assert (code, out, found in err) == (2, "", True), err
    assert sorted(os.listdir(tmp_path)) == ["t.csv"]


def test_budget_ends_with_2_on_bad_input(tmp_path):
    table(tmp_path / "t.csv", ["anna,p0"])
    options = ["l --set x", "l --set 1 --window 0", "l --head x"]
    for arguments in map(str.split, ["none", "t.csv", *options]):
        code, out, err = said("budget", tmp_path / arguments[0], *arguments[1:])
        assert (code, out) == (2, ""), arguments
        assert "must be" in err or ": expected " in err
    assert not (tmp_path / "l").exists()


def test_a_ledger_is_a_file_of_its_own(town, tmp_path):
    rows = table(tmp_path / "t.csv", ["anna,p0"])
    for place, found in (
        (town / "l", "holds the release alone"),
        (tmp_path / "o.csv", "must be a file of its own, got the name of a table"),
    ):
        with pytest.raises(UsageError, match=found):
            apply(town, rows, tmp_path / "o.csv", BY_ID, ApplyOptions(charge=Charge(ledger=place, subject="who")))
        key = Charge(ledger=tmp_path / "l", subject="who", key=place)
        with pytest.raises(UsageError, match=found):
            apply(town, rows, tmp_path / "o.csv", BY_ID, ApplyOptions(charge=key))
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def at_once(town, source, tmp_path, *more):
    """Let two processes apply a release to one table, by one ledger; return their tables, and who was charged."""
    command = [sys.executable, "-m", "privopt", "apply", town, source, "--id", "place", "--subject", "who"]
    outs = [tmp_path / f"o{n}.csv" for n in range(2)]
    runs = [
        subprocess.Popen([*command, "--ledger", tmp_path / "l", "--out", out, *more], stderr=subprocess.PIPE)
        for out in outs
    ]
    said_by = [run.communicate()[1] for run in runs]
    assert {run.returncode for run in runs} <= {0, 2}, said_by
    return [pl.read_csv(out) for out in outs if out.exists()], Counter(who for who, _ in charged(tmp_path / "l"))


def test_two_commands_at_once_keep_one_report_of_a_place(town, tmp_path):
    stays = table(tmp_path / "s.csv", [f"s{n},p{n % 12}" for n in range(60)])
    made, spent = at_once(town, stays, tmp_path, "--sticky")
    assert made[0]["report"].to_list() == made[1]["report"].to_list()
    assert spent == {f"s{n}": 1 for n in range(60)}


@pytest.mark.slow  # test_shocks.py has writers of a ledger at once
def test_two_commands_at_once_pass_no_limit_together(town, tmp_path):
    said("budget", tmp_path / "l", "--set", "5")  # ten reports of each
    made, spent = at_once(town, table(tmp_path / "t.csv", ["anna,p0", "bert,p1"] * 8), tmp_path)
    assert sum(out["report"].drop_nulls().len() for out in made) == 20
    assert spent == {"anna": 10, "bert": 10}


def test_tables_in_memory_are_charged_too(town, tmp_path):
    release = po.open(town)
    frame = pl.DataFrame({"who": ["anna", "anna", "bert"], "place": ["p0", "p0", "p1"]})
    with po.Ledger(tmp_path / "l") as ledger:
        ledger.set_limit("0.5")
        with pytest.warns(po.PrivoptWarning, match="1 of 3 rows without a report: 1 budget spent"):
            made = release.apply(frame, id="place", ledger=ledger, subject="who")
        assert made["report"].is_null().to_list() == [False, True, False]
        with pytest.warns(po.PrivoptWarning, match="which of its visits were to the same place"):
            release.apply(
                {"who": ["carl"] * 5, "place": ["p3"] * 5}, id="place", ledger=ledger, subject="who", sticky=True
            )
        assert ledger.account("carl").reports == 1
    with pytest.raises(UsageError, match="ledger and subject must be given together"):
        release.apply(frame, id="place", subject="who")
    with pytest.raises(UsageError, match="seed must be omitted with a ledger"):
        release.apply(frame, id="place", subject="who", ledger=tmp_path / "l", seed=1)
    with pytest.raises(UsageError, match="table must be one with a column of subjects, got an array"):
        release.apply(frame["place"].to_numpy(), subject="who", ledger=tmp_path / "l")


@pytest.fixture
def census(tmp_path):
    (tmp_path / "counts.csv").write_text("level_1,level_2,size,groups\nUS,A,1,5\nUS,A,2,3\nUS,B,1,7\n")
    (tmp_path / "c.toml").write_text(CENSUS)
    return tmp_path / "c.toml"


def test_noise_is_charged_before_it_is_drawn(census, tmp_path):
    """Several tables of one data set under one epsilon: the third does not fit."""
    ledger = tmp_path / "l"
    said("budget", ledger, "--set", "1")
    codes = []
    for turn in range(3):
        codes.append(said("solve", "hierarchical-dp", census, "--out", tmp_path / f"o{turn}", "--ledger", ledger)[0])
    assert codes == [0, 0, 2]
    assert not (tmp_path / "o2").exists()
    assert [(name, cost.unit, cost.epsilon) for name, cost in charged(ledger)] == [
        ("counts.csv", "per individual in fixed groups", Fraction(2, 5))
    ] * 2
    assert charged(ledger)[0][1].mechanism == sha256(tmp_path / "o0" / "problem" / "c.toml")
    with Ledger(ledger) as book:
        assert to_opendp(charge.cost for charge in book.charges("counts.csv")).map(1) == pytest.approx(0.8)


@pytest.mark.parametrize("hashed", [False, True])
def test_a_copy_of_the_file_under_another_name_has_no_budget_of_its_own(census, tmp_path, hashed):
    key = ["--hash-subjects", tmp_path / "key"] if hashed else []
    ledger = ["--ledger", tmp_path / "l", *key]
    assert said("solve", "hierarchical-dp", census, "--out", tmp_path / "o1", *ledger)[0] == 0
    (tmp_path / "counts.csv").rename(tmp_path / "counts-2027.csv")
    census.write_text(CENSUS.replace("counts.csv", "counts-2027.csv"))
    code, _, err = said("solve", "hierarchical-dp", census, "--out", tmp_path / "o2", *ledger)
    assert (code, "knows other subjects" in err, "--subject ID" in err) == (2, True, True), err
    assert not (tmp_path / "o2").exists()
    for number, subject in enumerate(["counts.csv", "town"]):
        named = [*ledger, "--subject", subject]
        assert said("solve", "hierarchical-dp", census, "--out", tmp_path / f"o3{number}", *named)[0] == 0
    (tmp_path / "counts-2027.csv").rename(tmp_path / "counts.csv")
    census.write_text(CENSUS)
    assert said("solve", "hierarchical-dp", census, "--out", tmp_path / "o4", *ledger)[0] == 2
    found = json.loads(said("budget", tmp_path / "l", *key, "--json")[1])["subjects"]
    assert sorted(each["spent"] for each in found) == ["0.4", "0.8"]


def test_work_that_fails_after_its_charge_says_what_stays_charged(census, tmp_path, monkeypatch):
    def stopped(*given):
        raise StoppedError("the time limit came")

    monkeypatch.setattr("privopt_hierarchical_dp.mechanism.HierarchicalDP.solve", stopped)
    arguments = ["hierarchical-dp", census, "--out", tmp_path / "o", "--ledger", tmp_path / "l", "--subject", "town"]
    code, _, err = said("solve", *arguments)
    assert (code, "subject town was charged 0.4 all the same" in err) == (5, True), err
    assert [cost.epsilon for _, cost in charged(tmp_path / "l")] == [Fraction(2, 5)]


def test_what_draws_no_noise_or_gives_no_privacy_is_not_charged(census, town, tmp_path):
    for arguments, found in (
        (["hierarchical-dp", census, "--seed", "1"], "got a seed"),
        (["exponential", town.parent / "p.toml"], "got metric-dp, whose reports are drawn later"),
        (
            ["hierarchical-dp", census, "--method", "cumulative-chain-as-published", "--allow-unsafe"],
            "got none, without epsilon",
        ),
    ):
        code, _, err = said("solve", *arguments, "--out", tmp_path / "o", "--ledger", tmp_path / "l")
        assert (code, found in err) == (2, True), err
    assert not (tmp_path / "l").exists()
    assert said("solve", "hierarchical-dp", census, "--out", tmp_path / "o", "--subject", "x")[0] == 2


def test_a_name_with_a_line_break_is_one_line_of_budget(tmp_path):
    with Ledger(tmp_path / "l") as ledger:
        ledger.charge("anna\nbert  0 spent", po.Cost(epsilon="0.5", unit="per km"))
    code, out, _ = said("budget", tmp_path / "l")
    assert code == 0
    assert out.splitlines()[1:] == ["anna bert 0 spent  0.5 spent, 1 charge"]


def test_a_cost_that_is_multiplied_holds_in_the_chain(tmp_path):
    cost = Cost(epsilon="0.5", unit="per km")
    with Ledger(tmp_path / "l") as ledger:
        ledger.set_limit("2.5")
        granted = ledger.charge_each(["anna", "bert", "anna", "anna", "anna"], cost, times=[2, 0, 4, 3, 0])
        assert granted == [True, True, False, True, True]
        ledger.check()
        account = ledger.account("anna")
        assert (account.spent, account.left) == (Fraction(5, 2), 0)
        assert [charge.cost.epsilon for charge in ledger.charges()] == [1, Fraction(3, 2)]
        assert cost.times(3).epsilon == Fraction(3, 2)
        assert Cost(rho="0.1", unit="u").times(2).rho == Fraction(1, 5)
        assert Cost(epsilon=1, delta="1/1000", unit="u").times(2).delta == Fraction(1, 500)
