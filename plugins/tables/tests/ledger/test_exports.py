"""Charges as events of other accountants: what is refused, and that none is told less than was spent."""

import sys
from fractions import Fraction
from types import SimpleNamespace

import flint
import pytest
from helpers.charging import BY_ID, table

from privopt.errors import UsageError
from privopt.interfaces.cost import Cost
from privopt.ledger.charge import Charge
from privopt.ledger.exports import to_dp_accounting, to_opendp
from privopt.ledger.ledger import Ledger
from privopt_tables.apply import apply
from privopt_tables.options import ApplyOptions


def test_export_is_only_for_differential_privacy(town, tmp_path):
    rows = table(tmp_path / "t.csv", ["anna,p0"])
    apply(town, rows, tmp_path / "o.csv", BY_ID, ApplyOptions(charge=Charge(ledger=tmp_path / "l", subject="who")))
    with Ledger(tmp_path / "l") as ledger:
        with pytest.raises(UsageError, match="metric-dp, per km"):
            to_opendp(charge.cost for charge in ledger.charges("anna"))
        with pytest.raises(UsageError, match="charge to export"):
            to_opendp(charge.cost for charge in ledger.charges("bert"))


@pytest.mark.parametrize("epsilon", ["0.001", "0.25", "1", "30", "700"])
def test_other_accountant_gets_at_least_the_spent(monkeypatch, epsilon):
    """Randomized response of noise p between two answers has epsilon ln(2 / p - 1)."""
    events = SimpleNamespace(RandomizedResponseDpEvent=lambda **fields: fields, ComposedDpEvent=list)
    monkeypatch.setitem(sys.modules, "dp_accounting", events)
    cost = Cost(epsilon=epsilon, unit="per client", notion="local-dp")
    event, second_event = to_dp_accounting([cost, cost])
    assert event == second_event
    assert event["num_buckets"] == 2
    fields = (2 / flint.arb(event["noise_parameter"]) - 1).log()
    assert 0 <= Fraction(str(fields.mid().str(30, radius=False))) - Fraction(epsilon) <= Fraction(1, 10**10)
    with pytest.raises(UsageError, match=r"at most 700.*got 701"):
        to_dp_accounting([Cost(epsilon="701", unit="per client", notion="local-dp")])


def test_charges_add_up_in_other_accountants(tmp_path):
    events = pytest.importorskip("dp_accounting")
    pld = pytest.importorskip("dp_accounting.pld")
    with Ledger(tmp_path / "l") as ledger:
        for epsilon in ("0.1", "0.1", "0.25"):
            ledger.charge("anna", Cost(epsilon=epsilon, unit="per client", notion="local-dp"))
        accountant = pld.PLDAccountant(neighboring_relation=events.NeighboringRelation.REPLACE_ONE)
        accountant.compose(to_dp_accounting(charge.cost for charge in ledger.charges("anna")))
    assert 0.45 <= accountant.get_epsilon(0.0) <= 0.451


def test_export_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    with Ledger(tmp_path / "l") as ledger:
        ledger.charge("anna", Cost(epsilon="0.1", unit="per client", notion="local-dp"))
        with pytest.raises(UsageError, match="install dp-accounting"):
            to_dp_accounting(charge.cost for charge in ledger.charges("anna"))
