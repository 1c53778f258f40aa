"""privopt's own ledger passes every check of a ledger, and so does a right twin; a check catches each planted fault."""

import hashlib
import json
import os
from fractions import Fraction
from functools import cache

import pytest
from attrs import evolve
from helpers.ledger_checks import (
    Keeper,
    charged_first,
    charges_blind,
    found_by,
    kept_once,
    limit_kept,
    places_hidden,
)

from privopt.api.released import solve
from privopt.declare.column_texts import REPORT
from privopt.declare.problems_in_memory import frame_of
from privopt.ledger.charge import Charge
from privopt.ledger.cost_of_report import cost_of
from privopt.ledger.entries import MICROS
from privopt.ledger.kept_reports import Sticky
from privopt.ledger.ledger import Ledger
from privopt_metric_dp.api.problem_parts import grid, metric_problem
from privopt_metric_dp.tables.application import Application
from privopt_metric_dp.tables.apply_table import matrix_of
from privopt_metric_dp.tables.charge_rows import Charging
from privopt_metric_dp.tables.protect import Protector
from privopt_metric_dp.tables.secret_columns import Secret


@cache
def small_release():
    """Six places, and the exponential mechanism over them."""
    return solve("exponential", metric_problem(grid(2, 3, 1.0), distance="euclidean", epsilon="0.5/km"))


class OwnKeeper(Keeper):
    """privopt's ledger with a small release behind it."""

    def __init__(self, setting):
        self.setting = setting
        self.ledger = Ledger(self.path, clock=lambda: 1000 * setting.now)
        if setting.limit is not None:
            self.ledger.set_limit(setting.limit, hours=setting.hours)
        opened = small_release().opened
        self.release, self.problem = matrix_of(opened)
        self.cost = cost_of(opened.folder, opened.result, opened.relation, "check")
        self.epsilon, self.secrets = self.cost.amount[0], self.release.records.tolist()

    @property
    def path(self):
        """The ledger's file."""
        return self.setting.folder / "ledger"

    def report(self, rows, source):
        """Charge and draw as ``apply`` does."""
        columns = {"who": [who for who, _ in rows], "place": [place for _, place in rows]}
        to = Charge(ledger=self.ledger, subject="who", sticky=self.keeps)
        with Charging(to=to, cost=self.cost).opened() as charging:
            protected = evolve(self.protector(charging), source=source).protect(frame_of(columns, "table"))
        return protected[REPORT].to_list()

    def protector(self, charging):
        """Draws after it has charged."""
        return Protector.of(self.release, self.problem.data, Secret.of(id="place"), Application(), charging)

    def charges(self):
        """Return the charges, read through a connection of its own."""
        with Ledger(self.path, make=False) as other:
            return [(charge.subject, charge.cost.amount[0], charge.time) for charge in other.charges()]

    def stored(self):
        """Return the kept reports."""
        folder = self.path.with_name("ledger.sticky")
        return b"".join(path.read_bytes() for path in sorted(folder.glob("reports*")))

    def close(self):
        """Close the ledger."""
        self.ledger.close()


class OwnStickyKeeper(OwnKeeper):
    """privopt's ledger with kept reports."""

    keeps = True


class Listed(Keeper):
    """A ledger of lines in a file, written and synced before each draw; a right twin."""

    epsilon = Fraction(1, 4)
    secrets = ("home", "work", "elsewhere")

    def __init__(self, setting):
        self.setting = setting
        self.path = setting.folder / "lines"

    def charges(self):
        if not self.path.exists():
            return []
        lines = [json.loads(line) for line in self.path.read_text().splitlines()]
        return [(who, Fraction(epsilon), at) for who, epsilon, at in lines]

    def counts(self, at):
        hours = self.setting.hours
        return hours is None or at >= self.setting.now - hours * MICROS

    def charge(self, who):
        spent = sum((epsilon for name, epsilon, at in self.charges() if name == who and self.counts(at)), Fraction(0))
        if self.setting.limit is not None and spent + self.epsilon > self.setting.limit:
            return False
        with self.path.open("a") as out:
            out.write(json.dumps([who, str(self.epsilon), self.setting.now]) + "\n")
            out.flush()
            os.fsync(out.fileno())
        return True

    def draw(self, place, source):
        return self.secrets[source(1)[0] % 3] if place else None

    def report(self, rows, source):
        charged = [self.charge(who) for who, _ in rows]
        return [self.draw(place, source) if was else None for (_, place), was in zip(rows, charged, strict=True)]


class DrawsFirst(Listed):
    def report(self, rows, source):
        drawn = [self.draw(place, source) for _, place in rows]
        return [each if self.charge(who) else None for (who, _), each in zip(rows, drawn, strict=True)]


class NeverCharges(Listed):
    def charge(self, who):
        return True


class ByTheClock(Listed):
    """A window that forgets: it counts from the full hour, so two hours meet with twice the limit."""

    def counts(self, at):
        hours = self.setting.hours
        return hours is None or at // (hours * MICROS) == self.setting.now // (hours * MICROS)


class ForgetsWhenClosed(Listed):
    """Counts in memory, from nothing each time."""

    def __init__(self, setting):
        super().__init__(setting)
        self.since = len(self.charges())

    def charge(self, who):
        mine = self.charges()[self.since :]
        spent = sum((epsilon for name, epsilon, at in mine if name == who and self.counts(at)), Fraction(0))
        if self.setting.limit is not None and spent + self.epsilon > self.setting.limit:
            return False
        free, self.setting.limit = self.setting.limit, None
        try:
            return super().charge(who)
        finally:
            self.setting.limit = free


class RefusesTooMuch(Listed):
    def charge(self, who):
        return len([name for name, _, _ in self.charges() if name == who]) < 1 and super().charge(who)


class ChargesWhereThereIsAPlace(Listed):
    def report(self, rows, source):
        charged = [bool(place) and self.charge(who) for who, place in rows]
        return [self.draw(place, source) if was else None for (_, place), was in zip(rows, charged, strict=True)]


class OpenKeys(OwnStickyKeeper):
    """Kept reports under a hash of subject and place that has no key."""

    def report(self, rows, source):
        keyed = Sticky._hashed
        Sticky._hashed = lambda self, *parts: hashlib.sha256(json.dumps(parts).encode()).digest()
        try:
            return super().report(rows, source)
        finally:
            Sticky._hashed = keyed


class SharesPlaces(OwnStickyKeeper):
    """One report of a place for everybody."""

    def report(self, rows, source):
        visits = Sticky.visits

        def shared(self, mechanism, rows, near=None):
            return visits(self, mechanism, [("", place) for _, place in rows], near)

        Sticky.visits = shared
        try:
            return super().report(rows, source)
        finally:
            Sticky.visits = visits


class DrawsAgain(Listed):
    """Says that it keeps reports."""

    keeps = True


ALWAYS = (charged_first, limit_kept, charges_blind)


OF_KEPT_REPORTS = (kept_once, places_hidden)


@pytest.mark.parametrize(
    ("make", "check"),
    [
        *((make, check) for make in (OwnKeeper, OwnStickyKeeper, Listed) for check in ALWAYS),
        *((OwnStickyKeeper, check) for check in OF_KEPT_REPORTS),
    ],
)
def test_right_keepers_pass(make, check):
    assert not found_by(check, make, 6)


@pytest.mark.parametrize(
    ("make", "check"),
    [
        (DrawsFirst, charged_first),
        (NeverCharges, charged_first),
        (ByTheClock, limit_kept),
        (ForgetsWhenClosed, limit_kept),
        (RefusesTooMuch, limit_kept),
        (ChargesWhereThereIsAPlace, charges_blind),
        (SharesPlaces, kept_once),
        (DrawsAgain, kept_once),
        (OpenKeys, places_hidden),
    ],
)
def test_a_planted_fault_is_caught_by_its_check(make, check):
    assert found_by(check, make, 60)


def test_one_random_byte_that_two_stores_have_in_common_is_not_blamed():
    """Beside fifteen bytes that every store has: 20 of 1,021 runs over SQLite's pages met such a pair."""
    bytes_in_order = iter([1, 1, 2, 3, 4, 5] * 60)

    class OneByte(Listed):
        keeps = True

        def stored(self):
            return bytes(15) + bytes([next(bytes_in_order)])

    assert not found_by(places_hidden, OneByte, 6)
