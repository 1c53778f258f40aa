"""Values that limits, calendars, costs, charges and ledgers refuse: one plain sentence each, in privopt's own words."""

from __future__ import annotations

import pytest

import privopt as po
from privopt.errors import UsageError
from privopt.interfaces.cost import Cost
from privopt.ledger.charge import Charge
from privopt.ledger.entries import Limit
from privopt.ledger.ledger import Ledger
from privopt.ledger.periods import Calendar

REFUSED = {
    "account": (lambda: Limit(amount=1, account="x"), "account must be one of epsilon, rho, (epsilon, delta), got 'x'"),
    "account of another type": (lambda: Limit(amount=1, account=["rho"]), "got ['rho']"),
    "calendar": (lambda: Limit(amount=1, calendar="day"), "calendar must be a Calendar such as"),
    "amount": (lambda: Limit(amount=0.5), "limit must be an amount of at least 0"),
    "window": (lambda: Limit(amount=1, hours="long"), "window must be an amount above 0"),
    "period": (lambda: Calendar("year"), "per must be one of day, week, month, got 'year'"),
    "period of another type": (lambda: Calendar(["day"]), "per must be one of day, week, month, got ['day']"),
    "zone of another type": (lambda: Calendar("day", 3), "zone must be a time zone such as Europe/Rome or UTC, got 3"),
    "epsilon": (lambda: Cost(epsilon=0.5, unit="per km"), "epsilon must be an amount above 0"),
    "unit": (lambda: Cost(epsilon="1", unit=3), "unit must be a line of at most 1,000 characters, got 3"),
    "path": (lambda: Ledger(3), "path must be the name of a file, as text or a path, got 3"),
    "key": (lambda: Ledger("l", key=3), "key must be the name of a file, as text or a path, got 3"),
    "charge": (lambda: Charge(ledger=3), "ledger must be the name of a file, as text or a path, got 3"),
    "key of a charge": (lambda: po.Charge(ledger="l", key=3), "key must be the name of a file"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refuses_in_its_own_words(name):
    make, words = REFUSED[name]
    with pytest.raises(UsageError) as refused:
        make()
    assert words in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not {"validator", "attrs", "Attribute("} & set(str(refused.value).split())


def test_names_of_files_are_text_or_paths(tmp_path):
    charge = Charge(ledger=str(tmp_path / "l"), key=str(tmp_path / "key"))
    assert (charge.path, charge.key) == (tmp_path / "l", tmp_path / "key")
    with Ledger(str(tmp_path / "l")) as ledger:
        assert Charge(ledger=ledger).ledger is ledger
