"""Accounts in several units: what notions add up, what they come to as (epsilon, delta), what is refused."""

from __future__ import annotations

import json
from fractions import Fraction

import mpmath
import narwhals as nw
import polars as pl
import pytest
from helpers.command import run
from helpers.grids import by_pairs

from privopt.errors import BudgetSpentError, InputError, UsageError
from privopt.interfaces.cost import EPSILON, PAIR, RHO, Cost
from privopt.ledger.batches import Batch, Digest
from privopt.ledger.charge import Charge
from privopt.ledger.entries import AccountKey
from privopt.ledger.ledger import Ledger
from privopt.ledger.total_epsilon import total_epsilon
from privopt.numbers.gaussian import delta_of, epsilon_of
from privopt_tables.charge_rows import RowCharger

WHO = "per individual in fixed groups"
PURE = Cost(epsilon="0.5", unit=WHO, notion="pure-dp")
CONCENTRATED = Cost(rho="0.1", unit=WHO, notion="zcdp")
BOTH = Cost(epsilon="1", delta="1/1000000", unit=WHO, notion="approx-dp")


def read_budget(path, *words):
    completed = run("budget", str(path), "--json", *words)
    assert completed.exit_code == 0, completed.output
    return json.loads(completed.stdout), completed.stderr


def test_each_notion_has_an_account(tmp_path):
    path = tmp_path / "l"
    with Ledger(path) as book:
        book.charge("anna", PURE)
        book.charge("anna", PURE)
    budget, _ = read_budget(path)
    assert budget == {
        "unit": WHO,
        "limit": None,
        "window_hours": None,
        "subjects": [{"subject": "anna", "spent": "1", "left": None, "reports": 2}],
    }
    with Ledger(path) as book:
        for cost in (CONCENTRATED, CONCENTRATED, BOTH, BOTH, BOTH):
            book.charge("anna", cost)
        book.charge("ben", CONCENTRATED)
        book.check()
        assert book.units == (EPSILON, RHO, PAIR)
        assert book.account("anna", unit=RHO).spent == Fraction(1, 5)
        assert len(book.charges("anna")) == 7
        assert {charge.subject for charge in book.charges()} == {"anna", "ben"}
    budget, _ = read_budget(path)
    assert [unit_budget["unit"] for unit_budget in budget["units"]] == ["epsilon", "rho", "(epsilon, delta)"]
    spent_by_subject = [
        {account["subject"]: account["spent"] for account in unit_budget["subjects"]} for unit_budget in budget["units"]
    ]
    assert spent_by_subject == [{"anna": "1"}, {"anna": "0.2", "ben": "0.1"}, {"anna": "(3, 0.000003)"}]


def test_ledger_of_rho_says_so(tmp_path):
    with Ledger(tmp_path / "l") as book:
        book.charge("anna", CONCENTRATED)
    budget, _ = read_budget(tmp_path / "l")
    assert (budget["unit"], budget["relation"]) == ("rho", WHO)


def test_limits_apply_by_unit(tmp_path):
    with Ledger(tmp_path / "l") as book:
        book.set_limit("0.25", unit=RHO)
        book.charge("anna", CONCENTRATED)
        book.charge("anna", CONCENTRATED)
        with pytest.raises(BudgetSpentError, match=r"rho 0\.1.*0\.05"):
            book.charge("anna", CONCENTRATED)
        with pytest.raises(InputError, match=r"in rho.*of epsilon"):
            book.charge("anna", PURE)
        book.set_limit(1)
        assert book.limit_of(RHO).amount == 1
        book.set_limit(2, delta="1/500000")
        book.charge("anna", BOTH)
        book.charge("anna", BOTH)
        with pytest.raises(BudgetSpentError):
            book.charge("anna", BOTH)
        with pytest.raises(UsageError, match="--unit"):
            book.set_limit(3)
    completed = run("budget", str(tmp_path / "l"), "--set", "4", "--unit", "epsilon")
    assert completed.exit_code == 0
    budget, _ = read_budget(tmp_path / "l", "--set", "3,1e-5")
    assert [unit_budget["limit"] for unit_budget in budget["units"]] == ["4", "1", "(3, 0.00001)"]


def test_other_relation_does_not_add_up(tmp_path):
    with Ledger(tmp_path / "l") as book:
        book.charge("anna", PURE)
        with pytest.raises(InputError, match="another relation bounds"):
            book.charge("anna", Cost(rho="0.1", unit="per group", notion="zcdp"))


def test_delta_gives_a_total_with_its_condition(tmp_path):
    with Ledger(tmp_path / "l") as book:
        book.charge("anna", CONCENTRATED)
        book.set_limit("0.5")
    budget, message = read_budget(tmp_path / "l", "--delta", "1e-6")
    assert budget["epsilon"] == "5.22154"
    (anna,) = budget["subjects"]
    assert Fraction(anna["epsilon"]) == epsilon_of(Fraction(1, 10), Fraction(1, 10**6))
    assert "fixed beforehand" in message
    with Ledger(tmp_path / "l") as book:
        book.set_limit(9, unit=EPSILON)
        book.charge("anna", PURE)
    budget, _ = read_budget(tmp_path / "l", "--delta", "0.000001")
    assert Fraction(budget["subjects"][0]["epsilon"]) > Fraction(anna["epsilon"])
    assert Fraction(budget["epsilon"]) > 9
    text = run("budget", str(tmp_path / "l"), "--delta", "1e-6").stdout
    assert "all accounts: epsilon" in text


@by_pairs(
    "rho, delta",
    ["1/1000000", "1/100", "1/2", "7/3", "90"],
    ["1/10", "893/100000", "1/1000000", "1/1000000000000"],
)
def test_rho_bound_is_proved_and_tight(rho, delta):
    """Corollary 13 of Canonne, Kamath and Steinke, to 60 digits over a grid of orders."""
    rho, delta = Fraction(rho), Fraction(delta)
    epsilon = epsilon_of(rho, delta)
    assert delta_of(rho, epsilon) <= delta
    with mpmath.workdps(60):
        r, log = mpmath.mpf(rho.numerator) / rho.denominator, mpmath.log(1 / mpmath.mpf(float(delta)))
        orders = [1 + mpmath.exp(mpmath.mpf(k) / 100 - 7) for k in range(2400)]
        optimal_epsilon = float(min(a * r + mpmath.log((a - 1) / a) + (log - mpmath.log(a)) / (a - 1) for a in orders))
    assert float(epsilon) >= max(0.0, optimal_epsilon) * (1 - 1e-4)
    assert float(epsilon) <= max(optimal_epsilon * (1 + 1e-4), 1e-11)


def test_mixed_accounts_take_the_smaller_total():
    rho, pure, delta = Fraction(1, 10), Fraction(1, 2), Fraction(1, 10**6)
    rho_total = total_epsilon({RHO: (rho,)}, delta)
    assert rho_total == epsilon_of(rho, delta)
    assert total_epsilon({EPSILON: (pure,)}, delta) == pure
    many_total = total_epsilon({EPSILON: (Fraction(50),)}, delta, squares=Fraction(1, 4) * 100)
    assert many_total == epsilon_of(Fraction(1, 8) * 100, delta) < 50
    mixed_total = total_epsilon({EPSILON: (pure,), RHO: (rho,)}, delta)
    assert mixed_total == min(pure + rho_total, epsilon_of(rho + pure**2 / 2, delta))
    pair = (Fraction(1), Fraction(1, 2 * 10**6))
    assert total_epsilon({RHO: (rho,), PAIR: pair}, delta) == 1 + epsilon_of(rho, delta - pair[1])
    assert total_epsilon({RHO: (rho,), PAIR: (Fraction(1), delta)}, delta) is None
    with pytest.raises(UsageError):
        total_epsilon({}, Fraction(0))


@pytest.mark.parametrize(
    "amounts", [{}, {"epsilon": 1, "rho": 1}, {"rho": 1, "delta": "1/10"}, {"delta": "1/10"}], ids=str
)
def test_cost_has_one_unit(amounts):
    with pytest.raises(UsageError, match="or of rho"):
        Cost(**amounts, unit=WHO)


@pytest.mark.parametrize(
    ("privacy", "unit", "amount"),
    [
        ("epsilon = 0.5", WHO, "0.5"),
        ('kind = "zcdp"\nrho = 0.125', "rho", "0.125"),
        ('kind = "approx-dp"\nepsilon = 1.0\ndelta = 1e-6', "(epsilon, delta)", "(1, 0.000001)"),
    ],
)
def test_solve_charges_in_its_unit(tmp_path, privacy, unit, amount):
    (tmp_path / "c.csv").write_text("level_1,level_2,size,groups\nUS,a,1,40\nUS,b,2,30\n")
    (tmp_path / "p.toml").write_text(f'[hierarchy]\ncounts = "c.csv"\nsizes = 3\n[privacy]\n{privacy}\n')
    words = ["solve", "hierarchical-dp", str(tmp_path / "p.toml"), "--quiet", "--ledger", str(tmp_path / "l")]
    for number in range(2):
        completed = run(*words, "--subject", "census", "--out", str(tmp_path / f"out{number}"))
        assert completed.exit_code == 0, completed.output
    budget, _ = read_budget(tmp_path / "l")
    assert budget["unit"] == unit
    (account,) = budget["subjects"]
    assert (account["subject"], account["reports"]) == ("census", 2)
    assert account["spent"] == {"0.5": "1", "0.125": "0.25"}.get(amount, "(2, 0.000002)")


def test_total_at_delta_counts_hashed_names(tmp_path):
    for key in (None, tmp_path / "key"):
        path = tmp_path / f"l{key is None}"
        with Ledger(path, key=key) as book:
            for _ in range(3):
                book.charge("anna", Cost(epsilon="1", unit=WHO, notion="pure-dp"))
        words = () if key is None else ("--hash-subjects", str(key))
        budget, _ = read_budget(path, "--delta", "0.000001", *words)
        assert Fraction(budget["subjects"][0]["epsilon"]) == 3


def test_epsilon_per_km_has_no_total_at_delta(tmp_path):
    """Delta grows with the distance: what was said of 100 reports of .1 per km at 1e-5 was 18 times over at 3 km."""
    for notion in ("metric-dp", ""):
        path = tmp_path / f"k{notion}"
        with Ledger(path) as book:
            book.charge("anna", Cost(epsilon="0.1", unit="per km", notion=notion))
        completed = run("budget", str(path), "--delta", "0.00001")
        assert (completed.exit_code, "leave --delta out" in completed.stderr) == (2, True)


def test_limits_of_different_periods_do_not_add(tmp_path):
    with Ledger(tmp_path / "l") as book:
        book.set_limit(1, per="day", unit=EPSILON)
        book.set_limit("0.5", unit=RHO)
    budget, message = read_budget(tmp_path / "l", "--delta", "1e-6")
    assert (budget["epsilon"], "different periods" in message) == (None, True)
    with Ledger(tmp_path / "l") as book:
        book.set_limit("0.5", per="day", unit=RHO)
    budget, _ = read_budget(tmp_path / "l", "--delta", "1e-6")
    assert (budget["per"], budget["zone"]) == ("day", "UTC")
    assert Fraction(budget["epsilon"]) > 1


@pytest.mark.parametrize("unit", [EPSILON, RHO])
def test_refuses_window_beside_a_calendar(tmp_path, unit):
    with Ledger(tmp_path / "l") as book:
        for unit_name in (EPSILON, RHO):
            book.set_limit(1, per="day" if unit_name == unit else None, unit=unit_name)
    completed = run("budget", str(tmp_path / "l"), "--window", "24")
    assert (completed.exit_code, f"counts {unit} by day" in completed.stderr) == (2, True)


@pytest.mark.parametrize("delta", ["1e-9999999999999999", "1e999999999999", "1e-41"])
def test_refuses_delta_of_endless_digits(tmp_path, delta):
    with Ledger(tmp_path / "l") as book:
        book.charge("anna", PURE)
    completed = run("budget", tmp_path / "l", "--delta", delta)
    assert (completed.exit_code, "an amount" in completed.stderr) == (2, True)


def test_other_metric_does_not_add_up(tmp_path):
    road, crow = (
        Cost(epsilon="0.5", unit=f"per km {metric_name}", notion="metric-dp")
        for metric_name in ("by road", "as the crow flies")
    )
    with Ledger(tmp_path / "l") as book:
        book.charge("anna", road)
        for other_cost in (crow, Cost(epsilon="0.5", unit="per km"), PURE):
            with pytest.raises(InputError, match=r"per km by road.*got per"):
                book.charge("anna", other_cost)
        book.set_limit(2)
        book.check()
    completed = run("budget", tmp_path / "l")
    assert "0.5 km apart" in completed.stdout


def test_table_rows_use_the_limit_of_their_unit(tmp_path):
    with Ledger(tmp_path / "l") as book:
        book.set_limit(3, per="day")
        book.set_limit("0.3", unit=RHO)
    frame = nw.from_native(pl.DataFrame({"who": ["anna"] * 5}), eager_only=True)
    charging = RowCharger(charge=Charge(ledger=tmp_path / "l", subject="who"), cost=CONCENTRATED)
    with charging.open_ledger():  # asks for no time, which the limit of epsilon alone has
        is_granted, _ = charging.charge_table(frame)
        assert is_granted.tolist() == [True] * 3 + [False] * 2
        assert "period" not in charging.sequence
    dated = RowCharger(charge=Charge(ledger=tmp_path / "l", subject="who"), cost=PURE)
    with pytest.raises(UsageError, match="time COLUMN"), dated.open_ledger():
        pass


@pytest.mark.parametrize("cost", [PURE, CONCENTRATED, BOTH], ids=["epsilon", "rho", "both"])
def test_batch_is_charged_once_in_any_unit(tmp_path, cost):
    frame = nw.from_native(pl.DataFrame({"who": ["anna", "ben", "anna"]}), eager_only=True)
    path = tmp_path / "l"
    for _ in range(2):
        with Batch(ledger=path, name="one").open_folder() as batch:
            charging = RowCharger(charge=Charge(ledger=path, subject="who"), cost=cost)
            with charging.open_ledger():
                charging.begin(batch)
                batch.begin(Digest(batch.key()))
                assert charging.charge_table(frame)[0].all()
    with Ledger(path) as book:
        assert len(book.charges()) == 3


def test_closed_account_still_fits_smaller_reports(tmp_path):
    with Ledger(tmp_path / "l") as book:
        book.set_limit(2)
        first_charge = ["anna", "anna", "ben", "anna"], PURE, None, [3, 2, 1, 1]
        assert book.charge_each(*first_charge) == [True, False, True, True]
    with Ledger(tmp_path / "m") as book:
        book.set_limit(2)
        closed = {}
        assert book.charge_each(*first_charge, closed) == [True, False, True, True]
        assert closed == {AccountKey("anna"): 2}
        book.set_limit(9)
        second_charge = ["anna", "ben", "anna"], PURE, None, [2, 2, 1]
        assert book.charge_each(*second_charge, closed) == [False, True, True]
