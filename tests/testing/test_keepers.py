"""The kit for sequences: privopt's own ledger passes, planted faults are each caught by the check named for them."""

import hashlib
import json
import os
from fractions import Fraction

import pytest

from privopt.ledger.entries import MICROS
from privopt.ledger.kept_reports import Sticky
from privopt.testing.efforts import Effort
from privopt_metric_dp.kit.ledger_checks import (
    KEEPER_CHECKS,
    Keeper,
    OwnKeeper,
    OwnStickyKeeper,
    check_keeper,
)

HOW = Effort(name="quick", examples=6, seconds=60, shrinking=2, draws=1)
HARDER = Effort(name="more", examples=60, seconds=60, shrinking=2, draws=1)
"""It ends at the first fault."""


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
        Sticky.visits = lambda self, mechanism, rows: visits(self, mechanism, [("", place) for _, place in rows])
        try:
            return super().report(rows, source)
        finally:
            Sticky.visits = visits


class DrawsAgain(Listed):
    """Says that it keeps reports."""

    keeps = True


@pytest.mark.parametrize("make", [OwnKeeper, OwnStickyKeeper, Listed])
def test_right_keepers_pass(make):
    results = check_keeper(make, how=HOW)
    assert [result.check for result in results] == list(KEEPER_CHECKS)
    assert {result.check: result.reason for result in results if result.status == "failed"} == {}
    assert {result.status for result in results[:3]} == {"passed"}
    assert {result.status for result in results[3:]} == {"passed" if make.keeps else "skipped"}


@pytest.mark.parametrize(
    ("make", "check"),
    [
        (DrawsFirst, "charged-first"),
        (NeverCharges, "charged-first"),
        (ByTheClock, "limit-kept"),
        (ForgetsWhenClosed, "limit-kept"),
        (RefusesTooMuch, "limit-kept"),
        (ChargesWhereThereIsAPlace, "charges-blind"),
        (SharesPlaces, "kept-once"),
        (DrawsAgain, "kept-once"),
        (OpenKeys, "places-hidden"),
    ],
)
def test_a_planted_fault_is_caught_by_its_check(make, check):
    (found,) = check_keeper(make, checks=[check], how=HARDER)
    assert (found.status, found.reason != "") == ("failed", True)


def test_one_random_byte_that_two_stores_have_in_common_is_not_blamed():
    """Beside fifteen bytes that every store has: 20 of 1,021 runs over SQLite's pages met such a pair."""
    bytes_in_order = iter([1, 1, 2, 3, 4, 5] * 60)

    class OneByte(Listed):
        keeps = True

        def stored(self):
            return bytes(15) + bytes([next(bytes_in_order)])

    [found] = check_keeper(OneByte, checks=("places-hidden",), how=HOW)
    assert found.status == "passed", found.reason
