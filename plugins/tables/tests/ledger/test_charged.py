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
from helpers.charging import BY_ID, BY_PLACE, CENSUS, read_charges, run_command, table
from helpers.mentions import assert_mentions
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


def test_charges_every_row_to_its_subject(town, tmp_path):
    rows = table(tmp_path / "t.csv", ["anna,p0", "bert,p1", "anna,p2", ",p1", " ,p1"])
    summary = apply(
        town, rows, tmp_path / "o.csv", BY_ID, ApplyOptions(charge=Charge(ledger=tmp_path / "l", subject="who"))
    )
    assert summary.refused == {"no subject": 2}
    assert [name for name, _ in read_charges(tmp_path / "l")] == ["anna", "bert", "anna"]
    cost = read_charges(tmp_path / "l")[0][1]
    assert (cost.epsilon, cost.unit, cost.notion) == (Fraction(1, 2), "per km as the crow flies", "metric-dp")
    assert (cost.mechanism, cost.purpose) == (sha256(town / SUMS), "apply t.csv")
    output = pl.read_csv(tmp_path / "o.csv")
    assert output.columns == ["who", "report", "report_x", "report_y"]
    assert output["report"].is_null().to_list() == [False, False, False, True, True]


def test_reports_until_the_budget_is_spent(town, tmp_path):
    assert run_command("budget", tmp_path / "l", "--set", "1.2", "--json")[0] == 0
    rows = table(tmp_path / "t.csv", ["anna,p0"] * 3 + ["bert,p1"] + ["anna,p1"])
    options = ["--id", "place", "--ledger", tmp_path / "l", "--subject", "who", "--json"]
    code, output, err = run_command("apply", town, rows, "--out", tmp_path / "o.csv", *options)
    assert code == 0, err
    assert json.loads(output) == {"rows": 5, "reported": 3, "refused": {"budget spent": 2}}
    reports = pl.read_csv(tmp_path / "o.csv")["report"].is_null().to_list()
    assert reports == [False, False, True, False, True]
    code, output, err = run_command("budget", tmp_path / "l", "--json")
    budget, head = json.loads(output), err.partition("head ")[2].partition(": ")[0]
    assert budget == {
        "unit": "per km as the crow flies",
        "limit": "1.2",
        "window_hours": None,
        "subjects": [
            {"subject": "anna", "spent": "1", "left": "0.2", "reports": 2},
            {"subject": "bert", "spent": "0.5", "left": "0.7", "reports": 1},
        ],
    }
    assert run_command("budget", tmp_path / "l", "--head", head)[0] == 0
    subject_budget = json.loads(run_command("budget", tmp_path / "l", "--json", "--subject", "bert")[1])
    assert subject_budget["subjects"] == [budget["subjects"][1]]
    code, _, err = run_command("apply", town, rows, "--out", tmp_path / "o.csv", "--force", *options)
    assert code == 0  # bert has one left
    code, _, err = run_command("apply", town, rows, "--out", tmp_path / "o.csv", "--force", *options)
    assert (code, "5 budget spent" in err) == (2, True)


@pytest.mark.parametrize("examples", [5, pytest.param(40, marks=pytest.mark.slow)])
def test_charges_are_independent_of_the_secret(town, examples):
    """Tables that differ in the secret alone leave ledgers that differ in times alone, and refuse the same rows."""
    folder = town.parent / "twins"

    @settings(max_examples=examples)
    @given(st.data())
    def check_charges(data):
        subjects = data.draw(st.lists(st.sampled_from(["anna", "bert", ""]), min_size=1, max_size=12))
        places = st.tuples(*[st.sampled_from(["0,0", "3.2,1", ",", "x,1", "1e9,0", "900,900"])] * len(subjects))
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        outcomes = []
        for variant in ("one", "two"):
            (folder / variant).mkdir()
            rows = [f"{name},{cells}" for name, cells in zip(subjects, data.draw(places), strict=True)]
            source = table(folder / variant / "t.csv", rows, "who,x,y")
            charge = Charge(ledger=folder / variant / "l", subject="who")
            run_command("budget", charge.ledger, "--set", "1.4")
            try:
                apply(town, source, folder / variant / "o.csv", BY_PLACE, ApplyOptions(max_snap=2.0, charge=charge))
            except UsageError:  # no row could be reported
                assert not (folder / variant / "o.csv").exists()
            budget_output = run_command("budget", charge.ledger, "--json")[1]
            outcomes.append((read_charges(charge.ledger), json.loads(budget_output)["subjects"]))
        assert outcomes[0] == outcomes[1]
        expected_reports = {name: min(subjects.count(name), 2) for name in ("anna", "bert") if name in subjects}
        assert {account["subject"]: account["reports"] for account in outcomes[0][1]} == expected_reports

    check_charges()


def test_charges_are_durable_before_drawing(town, tmp_path, monkeypatch):
    charge_counts = []
    draw = PositionProtector._draw_reports

    def draw_and_record(self, frame, first, rows):
        with Ledger(tmp_path / "l", make=False) as second_ledger:
            charge_counts.append((len(rows), sum(account.reports for account in second_ledger.accounts())))
        return draw(self, frame, first, rows)

    monkeypatch.setattr(PositionProtector, "_draw_reports", draw_and_record)
    rows = table(tmp_path / "t.csv", ["anna,p0", "bert,p1", "anna,nowhere"])
    apply(town, rows, tmp_path / "o.csv", BY_ID, ApplyOptions(charge=Charge(ledger=tmp_path / "l", subject="who")))
    assert charge_counts == [(3, 3)]


def test_charges_nobody_for_an_unfit_table(town, tmp_path):
    charge = Charge(ledger=tmp_path / "l", subject="who")
    rows = [f"s{n},p1" for n in range(1500)]
    for row, words in (("anna,p0,7", "row 1502"), ("x" * 1001 + ",p0", r"a name of 1,001 characters \(1 such rows\)")):
        source = table(tmp_path / "t.csv", [*rows, row])
        with pytest.raises(InputError, match=words):
            apply(town, source, tmp_path / "o.csv", BY_ID, ApplyOptions(charge=charge))
    for column, message in (("nobody", "no such column"), ("place", "the secret")):
        invalid_charge = Charge(ledger=tmp_path / "m", subject=column)
        with pytest.raises(InputError, match=f"column {column}: expected .*, got {message}"):
            apply(town, table(tmp_path / "t.csv", rows), tmp_path / "o.csv", BY_ID, ApplyOptions(charge=invalid_charge))
        with pytest.raises(InputError, match=f"column {column}: expected .*, got {message}"):
            po.open(town).apply({"place": ["p0"]}, id="place", ledger=tmp_path / "m", subject=column)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv"]


def test_states_the_price_before_charging(town, tmp_path):
    rows, book, announcements = table(tmp_path / "t.csv", ["anna,p0"] * 3), tmp_path / "book", []
    run_command("budget", book, "--set", "1.4", "--window", "24")
    apply_options = ApplyOptions(charge=Charge(ledger=book, subject="who"))
    summary = apply(
        town,
        rows,
        tmp_path / "o.csv",
        BY_ID,
        apply_options,
        announce=lambda line: announcements.append((line, read_charges(book))),
    )
    assert summary.refused == {"budget spent": 1}
    price = "each row costs its subject epsilon 0.5 per km as the crow flies"
    assert [accounts for _, accounts in announcements] == [[]]
    assert_mentions(announcements[0][0], price, "limit of 1.4", "24 hours", "2 rows")
    free = ["--id", "place", "--ledger", tmp_path / "free", "--subject", "who"]
    _, _, err = run_command("apply", town, rows, "--out", tmp_path / "p.csv", *free)
    assert_mentions(err, f"note: {price}", str(tmp_path / "free"), "no limit")


def test_interrupt_leaves_charges_and_no_table(town, tmp_path, monkeypatch):
    def raise_interrupt(self, batch):
        raise KeyboardInterrupt

    monkeypatch.setattr(module.TableWriter, "write", raise_interrupt)
    rows = table(tmp_path / "t.csv", ["anna,p0"])
    with pytest.raises(StoppedError):
        apply(town, rows, tmp_path / "o.csv", BY_ID, ApplyOptions(charge=Charge(ledger=tmp_path / "l", subject="who")))
    assert len(read_charges(tmp_path / "l")) == 1
    assert not [path for path in tmp_path.iterdir() if "o.csv" in path.name]


def test_changed_ledger_exits_1_and_writes_nothing(town, tmp_path):
    rows = table(tmp_path / "t.csv", ["anna,p0", "bert,p0"])
    options = ["--id", "place", "--ledger", tmp_path / "l", "--subject", "who"]
    assert run_command("apply", town, rows, "--out", tmp_path / "o.csv", *options)[0] == 0
    raw = (tmp_path / "l").read_bytes()
    (tmp_path / "l").write_bytes(raw.replace(b"anna", b"anne"))
    for command in (["apply", town, rows, "--out", tmp_path / "o2.csv", *options], ["budget", tmp_path / "l"]):
        code, output, err = run_command(*command)
        assert (code, output) == (1, "")
        assert "subject anne): changed" in err
    assert not (tmp_path / "o2.csv").exists()


@pytest.mark.parametrize(
    ("extra_options", "message"),
    [
        (["--sticky"], "--sticky must be"),
        (["--subject", "who"], "--subject must be"),
        (["--ledger", "l"], "--ledger must be"),
        (["--ledger", "l", "--subject", "who", "--seed", "1"], "--seed must be"),
    ],
)
def test_refuses_contradictory_options(town, tmp_path, extra_options, message, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = table(tmp_path / "t.csv", ["anna,p0"])
    code, output, err = run_command("apply", town, rows, "--out", tmp_path / "o.csv", "--id", "place", *extra_options)
    assert (code, output, message in err) == (2, "", True), err
    assert sorted(os.listdir(tmp_path)) == ["t.csv"]


def test_budget_exits_2_on_bad_input(tmp_path):
    table(tmp_path / "t.csv", ["anna,p0"])
    options = ["l --set x", "l --set 1 --window 0", "l --head x"]
    for arguments in map(str.split, ["none", "t.csv", *options]):
        code, output, err = run_command("budget", tmp_path / arguments[0], *arguments[1:])
        assert (code, output) == (2, ""), arguments
        assert "must be" in err or ": expected " in err or "file not found" in err
    assert not (tmp_path / "l").exists()


def test_ledger_is_a_separate_file(town, tmp_path):
    rows = table(tmp_path / "t.csv", ["anna,p0"])
    for ledger_path, message in (
        (town / "l", "holds the release alone"),
        (tmp_path / "o.csv", "must be a file of its own, got the name of a table"),
    ):
        with pytest.raises(UsageError, match=message):
            apply(town, rows, tmp_path / "o.csv", BY_ID, ApplyOptions(charge=Charge(ledger=ledger_path, subject="who")))
        key = Charge(ledger=tmp_path / "l", subject="who", key=ledger_path)
        with pytest.raises(UsageError, match=message):
            apply(town, rows, tmp_path / "o.csv", BY_ID, ApplyOptions(charge=key))
    assert [path.name for path in tmp_path.iterdir()] == ["t.csv"]


def run_concurrently(town, source, tmp_path, *extra_options):
    """Let two processes apply a release to one table, by one ledger; return their tables, and who was charged."""
    command = [sys.executable, "-m", "privopt", "apply", town, source, "--id", "place", "--subject", "who"]
    outs = [tmp_path / f"o{n}.csv" for n in range(2)]
    runs = [
        subprocess.Popen(
            [*command, "--ledger", tmp_path / "l", "--out", table_path, *extra_options], stderr=subprocess.PIPE
        )
        for table_path in outs
    ]
    said_by = [run.communicate()[1] for run in runs]
    assert {run.returncode for run in runs} <= {0, 2}, said_by
    return [pl.read_csv(table_path) for table_path in outs if table_path.exists()], Counter(
        name for name, _ in read_charges(tmp_path / "l")
    )


def test_concurrent_commands_keep_one_report(town, tmp_path):
    stays = table(tmp_path / "s.csv", [f"s{n},p{n % 12}" for n in range(60)])
    tables, charges_by_name = run_concurrently(town, stays, tmp_path, "--sticky")
    assert tables[0]["report"].to_list() == tables[1]["report"].to_list()
    assert charges_by_name == {f"s{n}": 1 for n in range(60)}


@pytest.mark.slow  # test_shocks.py has writers of a ledger at once
def test_concurrent_commands_respect_the_limit(town, tmp_path):
    run_command("budget", tmp_path / "l", "--set", "5")  # ten reports of each
    tables, charges_by_name = run_concurrently(town, table(tmp_path / "t.csv", ["anna,p0", "bert,p1"] * 8), tmp_path)
    assert sum(output["report"].drop_nulls().len() for output in tables) == 20
    assert charges_by_name == {"anna": 10, "bert": 10}


def test_charges_tables_in_memory(town, tmp_path):
    release = po.open(town)
    frame = pl.DataFrame({"who": ["anna", "anna", "bert"], "place": ["p0", "p0", "p1"]})
    with po.Ledger(tmp_path / "l") as ledger:
        ledger.set_limit("0.5")
        with pytest.warns(po.PrivoptWarning, match="1 of 3 rows"):
            reported = release.apply(frame, id="place", ledger=ledger, subject="who")
        assert reported["report"].is_null().to_list() == [False, True, False]
        with pytest.warns(po.PrivoptWarning, match="the same place"):
            release.apply(
                {"who": ["carl"] * 5, "place": ["p3"] * 5}, id="place", ledger=ledger, subject="who", sticky=True
            )
        assert ledger.account("carl").reports == 1
    with pytest.raises(UsageError, match="ledger and subject"):
        release.apply(frame, id="place", subject="who")
    with pytest.raises(UsageError, match="seed must be"):
        release.apply(frame, id="place", subject="who", ledger=tmp_path / "l", seed=1)
    with pytest.raises(UsageError, match="column of subjects"):
        release.apply(frame["place"].to_numpy(), subject="who", ledger=tmp_path / "l")


@pytest.fixture
def census(tmp_path):
    (tmp_path / "counts.csv").write_text("level_1,level_2,size,groups\nUS,A,1,5\nUS,A,2,3\nUS,B,1,7\n")
    (tmp_path / "c.toml").write_text(CENSUS)
    return tmp_path / "c.toml"


def test_noise_is_charged_before_drawing(census, tmp_path):
    """Several tables of one data set under one epsilon: the third does not fit."""
    ledger = tmp_path / "l"
    run_command("budget", ledger, "--set", "1")
    codes = []
    for turn in range(3):
        codes.append(
            run_command("solve", "hierarchical-dp", census, "--out", tmp_path / f"o{turn}", "--ledger", ledger)[0]
        )
    assert codes == [0, 0, 2]
    assert not (tmp_path / "o2").exists()
    assert [(name, cost.unit, cost.epsilon) for name, cost in read_charges(ledger)] == [
        ("counts.csv", "per individual in fixed groups", Fraction(2, 5))
    ] * 2
    assert read_charges(ledger)[0][1].mechanism == sha256(tmp_path / "o0" / "problem" / "c.toml")
    with Ledger(ledger) as book:
        assert to_opendp(charge.cost for charge in book.charges("counts.csv")).map(1) == pytest.approx(0.8)


@pytest.mark.parametrize("hashed", [False, True])
def test_copied_file_has_no_new_budget(census, tmp_path, hashed):
    key = ["--hash-subjects", tmp_path / "key"] if hashed else []
    ledger = ["--ledger", tmp_path / "l", *key]
    assert run_command("solve", "hierarchical-dp", census, "--out", tmp_path / "o1", *ledger)[0] == 0
    (tmp_path / "counts.csv").rename(tmp_path / "counts-2027.csv")
    census.write_text(CENSUS.replace("counts.csv", "counts-2027.csv"))
    code, _, err = run_command("solve", "hierarchical-dp", census, "--out", tmp_path / "o2", *ledger)
    assert (code, "has other subjects" in err, "--subject ID" in err) == (2, True, True), err
    assert not (tmp_path / "o2").exists()
    for number, subject in enumerate(["counts.csv", "town"]):
        ledger_options = [*ledger, "--subject", subject]
        assert (
            run_command("solve", "hierarchical-dp", census, "--out", tmp_path / f"o3{number}", *ledger_options)[0] == 0
        )
    (tmp_path / "counts-2027.csv").rename(tmp_path / "counts.csv")
    census.write_text(CENSUS)
    assert run_command("solve", "hierarchical-dp", census, "--out", tmp_path / "o4", *ledger)[0] == 2
    accounts = json.loads(run_command("budget", tmp_path / "l", *key, "--json")[1])["subjects"]
    assert sorted(account["spent"] for account in accounts) == ["0.4", "0.8"]


def test_failure_after_a_charge_is_stated(census, tmp_path, monkeypatch):
    def raise_stop(*arguments):
        raise StoppedError("the time limit came")

    monkeypatch.setattr("privopt_hierarchical_dp.mechanism.HierarchicalDP.solve", raise_stop)
    arguments = ["hierarchical-dp", census, "--out", tmp_path / "o", "--ledger", tmp_path / "l", "--subject", "town"]
    code, _, err = run_command("solve", *arguments)
    assert (code, "subject town was charged" in err) == (5, True), err
    assert [cost.epsilon for _, cost in read_charges(tmp_path / "l")] == [Fraction(2, 5)]


def test_does_not_charge_without_noise_or_privacy(census, town, tmp_path):
    for arguments, message in (
        (["hierarchical-dp", census, "--seed", "1"], "got a seed"),
        (["exponential", town.parent / "p.toml"], "got metric-dp, whose reports are drawn later"),
        (
            ["hierarchical-dp", census, "--method", "cumulative-chain-as-published", "--allow-unsafe"],
            "got none, without epsilon",
        ),
    ):
        code, _, err = run_command("solve", *arguments, "--out", tmp_path / "o", "--ledger", tmp_path / "l")
        assert (code, message in err) == (2, True), err
    assert not (tmp_path / "l").exists()
    assert run_command("solve", "hierarchical-dp", census, "--out", tmp_path / "o", "--subject", "x")[0] == 2


def test_name_with_line_break_is_one_budget_line(tmp_path):
    with Ledger(tmp_path / "l") as ledger:
        ledger.charge("anna\nbert  0 spent", po.Cost(epsilon="0.5", unit="per km"))
    code, output, _ = run_command("budget", tmp_path / "l")
    assert code == 0
    assert output.splitlines()[1:] == ["anna bert 0 spent  0.5 spent, 1 charge"]


def test_multiplied_cost_holds_in_the_chain(tmp_path):
    cost = Cost(epsilon="0.5", unit="per km")
    with Ledger(tmp_path / "l") as ledger:
        ledger.set_limit("2.5")
        is_granted = ledger.charge_each(["anna", "bert", "anna", "anna", "anna"], cost, times=[2, 0, 4, 3, 0])
        assert is_granted == [True, True, False, True, True]
        ledger.check()
        account = ledger.account("anna")
        assert (account.spent, account.left) == (Fraction(5, 2), 0)
        assert [charge.cost.epsilon for charge in ledger.charges()] == [1, Fraction(3, 2)]
        assert cost.times(3).epsilon == Fraction(3, 2)
        assert Cost(rho="0.1", unit="u").times(2).rho == Fraction(1, 5)
        assert Cost(epsilon=1, delta="1/1000", unit="u").times(2).delta == Fraction(1, 500)
