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


def told(path, *words):
    done = run("budget", str(path), "--json", *words)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout), done.stderr


def test_each_notion_has_an_account_and_a_ledger_of_one_is_as_before(tmp_path):
    path = tmp_path / "l"
    with Ledger(path) as book:
        book.charge("anna", PURE)
        book.charge("anna", PURE)
    found, _ = told(path)
    assert found == {
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
    found, _ = told(path)
    assert [own["unit"] for own in found["units"]] == ["epsilon", "rho", "(epsilon, delta)"]
    spent = [{each["subject"]: each["spent"] for each in own["subjects"]} for own in found["units"]]
    assert spent == [{"anna": "1"}, {"anna": "0.2", "ben": "0.1"}, {"anna": "(3, 0.000003)"}]


def test_a_ledger_of_rho_alone_says_so(tmp_path):
    with Ledger(tmp_path / "l") as book:
        book.charge("anna", CONCENTRATED)
    found, _ = told(tmp_path / "l")
    assert (found["unit"], found["relation"]) == ("rho", WHO)


def test_limits_hold_by_unit_and_nothing_is_charged_where_another_is_limited(tmp_path):
    with Ledger(tmp_path / "l") as book:
        book.set_limit("0.25", unit=RHO)
        book.charge("anna", CONCENTRATED)
        book.charge("anna", CONCENTRATED)
        with pytest.raises(BudgetSpentError, match=r"rho 0\.1 where 0\.05 is left"):
            book.charge("anna", CONCENTRATED)
        with pytest.raises(InputError, match=r"expected one in rho, which is limited.*, got .*a charge of epsilon"):
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
    done = run("budget", str(tmp_path / "l"), "--set", "4", "--unit", "epsilon")
    assert done.exit_code == 0
    found, _ = told(tmp_path / "l", "--set", "3,1e-5")
    assert [own["limit"] for own in found["units"]] == ["4", "1", "(3, 0.00001)"]


def test_what_another_relation_bounds_does_not_add_up(tmp_path):
    with Ledger(tmp_path / "l") as book:
        book.charge("anna", PURE)
        with pytest.raises(InputError, match="what another relation bounds is for another file"):
            book.charge("anna", Cost(rho="0.1", unit="per group", notion="zcdp"))


def test_a_delta_tells_the_total_and_when_that_holds(tmp_path):
    with Ledger(tmp_path / "l") as book:
        book.charge("anna", CONCENTRATED)
        book.set_limit("0.5")
    found, said = told(tmp_path / "l", "--delta", "1e-6")
    assert found["epsilon"] == "5.22154"
    (anna,) = found["subjects"]
    assert Fraction(anna["epsilon"]) == epsilon_of(Fraction(1, 10), Fraction(1, 10**6))
    assert "fixed beforehand" in said
    with Ledger(tmp_path / "l") as book:
        book.set_limit(9, unit=EPSILON)
        book.charge("anna", PURE)
    found, _ = told(tmp_path / "l", "--delta", "0.000001")
    assert Fraction(found["subjects"][0]["epsilon"]) > Fraction(anna["epsilon"])
    assert Fraction(found["epsilon"]) > 9
    text = run("budget", str(tmp_path / "l"), "--delta", "1e-6").stdout
    assert "all accounts: epsilon" in text


@by_pairs(
    "rho, delta",
    ["1/1000000", "1/100", "1/2", "7/3", "90"],
    ["1/10", "893/100000", "1/1000000", "1/1000000000000"],
)
def test_the_bound_of_rho_is_proved_rounded_up_and_tight(rho, delta):
    """Corollary 13 of Canonne, Kamath and Steinke, to 60 digits over a grid of orders."""
    rho, delta = Fraction(rho), Fraction(delta)
    found = epsilon_of(rho, delta)
    assert delta_of(rho, found) <= delta
    with mpmath.workdps(60):
        r, log = mpmath.mpf(rho.numerator) / rho.denominator, mpmath.log(1 / mpmath.mpf(float(delta)))
        orders = [1 + mpmath.exp(mpmath.mpf(k) / 100 - 7) for k in range(2400)]
        least = float(min(a * r + mpmath.log((a - 1) / a) + (log - mpmath.log(a)) / (a - 1) for a in orders))
    assert float(found) >= max(0.0, least) * (1 - 1e-4)
    assert float(found) <= max(least * (1 + 1e-4), 1e-11)


def test_mixed_accounts_take_the_lesser_way_and_deltas_add_up():
    rho, pure, delta = Fraction(1, 10), Fraction(1, 2), Fraction(1, 10**6)
    alone = total_epsilon({RHO: (rho,)}, delta)
    assert alone == epsilon_of(rho, delta)
    assert total_epsilon({EPSILON: (pure,)}, delta) == pure
    many = total_epsilon({EPSILON: (Fraction(50),)}, delta, squares=Fraction(1, 4) * 100)
    assert many == epsilon_of(Fraction(1, 8) * 100, delta) < 50
    mixed = total_epsilon({EPSILON: (pure,), RHO: (rho,)}, delta)
    assert mixed == min(pure + alone, epsilon_of(rho + pure**2 / 2, delta))
    both = (Fraction(1), Fraction(1, 2 * 10**6))
    assert total_epsilon({RHO: (rho,), PAIR: both}, delta) == 1 + epsilon_of(rho, delta - both[1])
    assert total_epsilon({RHO: (rho,), PAIR: (Fraction(1), delta)}, delta) is None
    with pytest.raises(UsageError):
        total_epsilon({}, Fraction(0))


@pytest.mark.parametrize(
    "wrong", [{}, {"epsilon": 1, "rho": 1}, {"rho": 1, "delta": "1/10"}, {"delta": "1/10"}], ids=str
)
def test_a_cost_is_of_one_unit(wrong):
    with pytest.raises(UsageError, match="or of rho, or of epsilon and delta"):
        Cost(**wrong, unit=WHO)


@pytest.mark.parametrize(
    ("privacy", "unit", "spent"),
    [
        ("epsilon = 0.5", WHO, "0.5"),
        ('kind = "zcdp"\nrho = 0.125', "rho", "0.125"),
        ('kind = "approx-dp"\nepsilon = 1.0\ndelta = 1e-6', "(epsilon, delta)", "(1, 0.000001)"),
    ],
)
def test_solve_charges_what_its_notion_adds_up(tmp_path, privacy, unit, spent):
    (tmp_path / "c.csv").write_text("level_1,level_2,size,groups\nUS,a,1,40\nUS,b,2,30\n")
    (tmp_path / "p.toml").write_text(f'[hierarchy]\ncounts = "c.csv"\nsizes = 3\n[privacy]\n{privacy}\n')
    words = ["solve", "hierarchical-dp", str(tmp_path / "p.toml"), "--quiet", "--ledger", str(tmp_path / "l")]
    for number in range(2):
        done = run(*words, "--subject", "census", "--out", str(tmp_path / f"out{number}"))
        assert done.exit_code == 0, done.output
    found, _ = told(tmp_path / "l")
    assert found["unit"] == unit
    (own,) = found["subjects"]
    assert (own["subject"], own["reports"]) == ("census", 2)
    assert own["spent"] == {"0.5": "1", "0.125": "0.25"}.get(spent, "(2, 0.000002)")


def test_a_total_at_a_delta_counts_hashed_names_as_plain_ones(tmp_path):
    for key in (None, tmp_path / "key"):
        path = tmp_path / f"l{key is None}"
        with Ledger(path, key=key) as book:
            for _ in range(3):
                book.charge("anna", Cost(epsilon="1", unit=WHO, notion="pure-dp"))
        words = () if key is None else ("--hash-subjects", str(key))
        found, _ = told(path, "--delta", "0.000001", *words)
        assert Fraction(found["subjects"][0]["epsilon"]) == 3


def test_epsilon_per_km_has_no_total_at_a_delta(tmp_path):
    """Delta grows with the distance: what was said of 100 reports of .1 per km at 1e-5 was 18 times over at 3 km."""
    for notion in ("metric-dp", ""):
        path = tmp_path / f"k{notion}"
        with Ledger(path) as book:
            book.charge("anna", Cost(epsilon="0.1", unit="per km", notion=notion))
        done = run("budget", str(path), "--delta", "0.00001")
        assert (done.exit_code, "leave --delta out" in done.stderr) == (2, True)


def test_limits_of_different_periods_come_to_no_epsilon_together(tmp_path):
    with Ledger(tmp_path / "l") as book:
        book.set_limit(1, per="day", unit=EPSILON)
        book.set_limit("0.5", unit=RHO)
    found, said = told(tmp_path / "l", "--delta", "1e-6")
    assert (found["epsilon"], "different periods" in said) == (None, True)
    with Ledger(tmp_path / "l") as book:
        book.set_limit("0.5", per="day", unit=RHO)
    found, _ = told(tmp_path / "l", "--delta", "1e-6")
    assert (found["per"], found["zone"]) == ("day", "UTC")
    assert Fraction(found["epsilon"]) > 1


@pytest.mark.parametrize("unit", [EPSILON, RHO])
def test_a_window_is_refused_where_any_unit_has_a_calendar(tmp_path, unit):
    with Ledger(tmp_path / "l") as book:
        for own in (EPSILON, RHO):
            book.set_limit(1, per="day" if own == unit else None, unit=own)
    done = run("budget", str(tmp_path / "l"), "--window", "24")
    assert (done.exit_code, f"counts {unit} by day" in done.stderr) == (2, True)


@pytest.mark.parametrize("delta", ["1e-9999999999999999", "1e999999999999", "1e-41"])
def test_a_delta_of_endless_digits_is_refused(tmp_path, delta):
    with Ledger(tmp_path / "l") as book:
        book.charge("anna", PURE)
    done = run("budget", tmp_path / "l", "--delta", delta)
    assert (done.exit_code, "must be an amount" in done.stderr) == (2, True)


def test_another_relation_does_not_add_up(tmp_path):
    road, crow = (
        Cost(epsilon="0.5", unit=f"per km {way}", notion="metric-dp") for way in ("by road", "as the crow flies")
    )
    with Ledger(tmp_path / "l") as book:
        book.charge("anna", road)
        for other in (crow, Cost(epsilon="0.5", unit="per km"), PURE):
            with pytest.raises(InputError, match=r"expected per km by road, as charged.*, got per "):
                book.charge("anna", other)
        book.set_limit(2)
        book.check()
    done = run("budget", tmp_path / "l")
    assert "the odds between two places 0.5 km apart by road by a factor" in done.stdout


def test_rows_of_tables_go_by_the_limit_of_the_unit_that_they_are_charged_in(tmp_path):
    with Ledger(tmp_path / "l") as book:
        book.set_limit(3, per="day")
        book.set_limit("0.3", unit=RHO)
    frame = nw.from_native(pl.DataFrame({"who": ["anna"] * 5}), eager_only=True)
    charging = RowCharger(to=Charge(ledger=tmp_path / "l", subject="who"), cost=CONCENTRATED)
    with charging.opened():  # asks for no time, which the limit of epsilon alone has
        granted, _ = charging.granted(frame)
        assert granted.tolist() == [True] * 3 + [False] * 2
        assert "period" not in charging.sequence
    dated = RowCharger(to=Charge(ledger=tmp_path / "l", subject="who"), cost=PURE)
    with pytest.raises(UsageError, match="time COLUMN must be given"), dated.opened():
        pass


@pytest.mark.parametrize("cost", [PURE, CONCENTRATED, BOTH], ids=["epsilon", "rho", "both"])
def test_a_batch_is_charged_once_in_any_unit(tmp_path, cost):
    frame = nw.from_native(pl.DataFrame({"who": ["anna", "ben", "anna"]}), eager_only=True)
    path = tmp_path / "l"
    for _ in range(2):
        with Batch(ledger=path, name="one").opened() as batch:
            charging = RowCharger(to=Charge(ledger=path, subject="who"), cost=cost)
            with charging.opened():
                charging.begin(batch)
                batch.begin(Digest(batch.key()))
                assert charging.granted(frame)[0].all()
    with Ledger(path) as book:
        assert len(book.charges()) == 3


def test_after_a_refusal_a_closed_account_is_charged_for_smaller_reports_alone(tmp_path):
    with Ledger(tmp_path / "l") as book:
        book.set_limit(2)
        asked = ["anna", "anna", "ben", "anna"], PURE, None, [3, 2, 1, 1]
        assert book.charge_each(*asked) == [True, False, True, True]
    with Ledger(tmp_path / "m") as book:
        book.set_limit(2)
        closed = {}
        assert book.charge_each(*asked, closed) == [True, False, True, True]
        assert closed == {AccountKey("anna"): 2}
        book.set_limit(9)
        again = ["anna", "ben", "anna"], PURE, None, [2, 2, 1]
        assert book.charge_each(*again, closed) == [False, True, True]
