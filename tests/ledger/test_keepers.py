"""A ledger with whatever draws behind it, kept reports or not: charged before drawn, limits, blindness, kept reports.

Mathematics T1 to T3 says what must hold. privopt's own ledger does, and so does a right twin; planted faults are each
caught by the check named for them.
"""

import hashlib
import json
import os
import tempfile
from collections import Counter
from fractions import Fraction
from functools import cache
from pathlib import Path

import pytest
from attrs import define, evolve
from hypothesis import strategies as st

from privopt.api.released import solve
from privopt.declare.column_texts import REPORT
from privopt.declare.problems_in_memory import frame_of
from privopt.ledger.charge import Charge
from privopt.ledger.cost_of_report import cost_of
from privopt.ledger.entries import MICROS
from privopt.ledger.kept_reports import Sticky
from privopt.ledger.ledger import Ledger
from privopt.testing.checks.base import CheckFailedError
from privopt.testing.efforts import Effort
from privopt.testing.runner import run_examples
from privopt_metric_dp.api.problem_parts import grid, metric_problem
from privopt_metric_dp.tables.application import Application
from privopt_metric_dp.tables.apply_table import matrix_of
from privopt_metric_dp.tables.charge_rows import Charging
from privopt_metric_dp.tables.protect import Protector
from privopt_metric_dp.tables.secret_columns import Secret

SLICE = 16
"""Bytes that two stores have in common by no chance."""

CROWD = 40
"""Subjects at one place, whose first reports are all the same by no chance."""


@define(kw_only=True)
class Setting:
    """Where a keeper works.

    Attributes:
        folder: its own; what was there before is its to find again.
        limit: what a subject may spend; None for no limit.
        hours: length of the windows that the limit is of; None: once, for ever.
        now: microseconds since 1970; it may go on between calls.
    """

    folder: Path
    limit: Fraction | None = None
    hours: int | None = None
    now: int = 10**15


class Keeper:
    """Something that gives reports of subjects and charges for them.

    Attributes:
        epsilon: what a report costs.
        secrets: some that may be reported on, each a place of its own.
        keeps: whether a subject's first report of a place is repeated.
    """

    keeps = False

    def stored(self):
        """Return what is stored about visits, without the key in its own file."""
        return b""

    def close(self):
        """Close files."""


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


class Trial:
    """Draws rows, and makes keepers in folders that go again."""

    def __init__(self, make, data, folder):
        self.make, self.data, self.folder = make, data, folder
        self.made = 0

    def keeper(self, setting=None, *, limit=None, hours=None):
        """Return a new keeper in a folder of its own."""
        if setting is None:
            self.made += 1
            place = self.folder / str(self.made)
            place.mkdir()
            setting = Setting(folder=place, limit=limit, hours=hours)
        return self.make(setting), setting

    def rows(self, keeper, most=6, *, nowhere=False):
        """Rows of a few subjects."""
        places = st.sampled_from([*list(keeper.secrets)[:3], *([""] if nowhere else [])])
        return self.data.draw(st.lists(st.tuples(st.sampled_from("ab"), places), min_size=1, max_size=most))


def charged_first(trial):
    """Every charge is durable before anything is drawn, and every report has its charge."""
    keeper, _ = trial.keeper()
    pairs = set()
    reports = Counter()
    for _ in range(2):
        seen = []

        def source(count, seen=seen):
            seen.append(len(keeper.charges()))
            return os.urandom(count)

        rows = trial.rows(keeper)
        made = keeper.report(rows, source)
        charges = keeper.charges()
        if seen and min(seen) < len(charges):
            return f"{rows}: {min(seen)} of {len(charges)} charges were durable when bytes were drawn"
        pairs |= {row for row, report in zip(rows, made, strict=True) if report is not None}
        reports.update(who for (who, _), report in zip(rows, made, strict=True) if report is not None)
        wanted = Counter(who for who, _ in pairs) if keeper.keeps else reports
        charged = Counter(who for who, _, _ in charges)
        for who, count in wanted.items():
            if charged[who] < count:
                return f"{rows}: {count} reports of {who}, and {charged[who]} charges"
    keeper.close()
    return None


def limit_kept(trial):
    """No window holds more than the limit, however it lies, and what fits is not refused.

    A window holds its end and not its beginning. A keeper whose windows hold both refuses a little more: that passes.
    """
    probe, _ = trial.keeper()
    epsilon = probe.epsilon
    probe.close()
    hours = trial.data.draw(st.sampled_from([1, None]))
    limit = trial.data.draw(st.integers(1, 3)) * epsilon
    keeper, setting = trial.keeper(limit=limit, hours=hours)
    for _ in range(trial.data.draw(st.integers(2, 5))):
        setting.now += trial.data.draw(st.sampled_from([20, 45, 70])) * MICROS // 60
        if trial.data.draw(st.booleans()):
            keeper.close()
            keeper, _ = trial.keeper(setting)
        rows = trial.rows(keeper, most=3)
        before, made = keeper.charges(), keeper.report(rows, os.urandom)
        charges = keeper.charges()
        for who, _, at in charges:
            spent = spent_by(charges, who, at, hours)
            if spent > limit:
                window = "in all" if hours is None else f"in the {hours} hours before {at}"
                return f"{who} was charged {spent} {window}, of {limit}"
        for (who, _), report in zip(rows, made, strict=True):
            had = spent_by(before, who, setting.now, hours, closed=True)
            if report is None and had + epsilon <= limit and [name for name, _ in rows].count(who) == 1:
                return f"{who} was refused with {limit - had} left, of which a report takes {epsilon}"
    keeper.close()
    return None


def spent_by(charges, who, at, hours, *, closed=False):
    """Return what a subject spent in the window that ends at a time; ``closed`` includes its beginning."""
    since = 0 if hours is None else at - hours * MICROS + (not closed)
    return sum((epsilon for name, epsilon, time in charges if name == who and since <= time <= at), Fraction(0))


def charges_blind(trial):
    """Check that charges depend on no secret, except on which visits share a place if reports are kept."""
    probe, _ = trial.keeper()
    rows, epsilon = trial.rows(probe, nowhere=True), probe.epsilon
    places = ["", *list(probe.secrets)[:3]]
    if probe.keeps:
        other = dict(zip(places, trial.data.draw(st.permutations(places)), strict=True))
        twin = [(who, other[place]) for who, place in rows]
    else:
        twin = [(who, trial.data.draw(st.sampled_from(places))) for who, _ in rows]
    probe.close()
    left = []
    for each in (rows, twin):
        keeper, _ = trial.keeper(limit=2 * epsilon)
        keeper.report(each, os.urandom)
        left.append([(who, spent) for who, spent, _ in keeper.charges()])
        keeper.close()
    if left[0] != left[1]:
        return f"{rows} was charged {shown(left[0])}, {twin} {shown(left[1])}"
    return None


def shown(charges):
    return ", ".join(f"{who} {spent}" for who, spent in charges) or "nothing"


def kept_once(trial):
    """Check that a place is reported the same, charged once, and shares nothing with others."""
    keeper, _ = trial.keeper()
    known = {}
    for _ in range(2):
        rows = trial.rows(keeper)
        for row, report in zip(rows, keeper.report(rows, os.urandom), strict=True):
            if known.setdefault(row, report) != report:
                return f"{row} was reported as {known[row]} and as {report}"
    charged, places = Counter(who for who, _, _ in keeper.charges()), Counter(who for who, _ in known)
    if charged != places:
        return f"{rows}: charged {dict(charged)}, wanted once a place: {dict(places)}"
    crowd = keeper.report([(f"s{n}", keeper.secrets[0]) for n in range(CROWD)], os.urandom)
    keeper.close()
    return f"{CROWD} subjects at one place share the report {crowd[0]}" if len(set(crowd)) == 1 else None


def places_hidden(trial):
    """Check that stores name no place: those of the same visits have nothing in common that others lack.

    Four stores, for a slice may hold no more than the first byte of a random key beside the store's own form: two have
    that byte in common once in 256 runs.
    """
    found = {"same": [], "other": []}
    for visits in (*["same"] * 4, *["other"] * 2):
        keeper, _ = trial.keeper()
        here, there = list(keeper.secrets)[:2]
        keeper.report([("anna", here)] if visits == "same" else [("bert", there)], bytes)  # all draw the first output
        raw = keeper.stored()
        found[visits].append({raw[place : place + SLICE] for place in range(len(raw) - SLICE + 1)})
        keeper.close()
    common = found["same"][0].intersection(*found["same"][1:]).difference(*found["other"])
    if common:
        return f"{sorted(common)[0].hex()} stands in all stores of the same visit: its key is made of the secret alone"
    return None


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


def found_by(check, make, examples):
    """Return the faults that a check finds in a keeper."""

    def example(data):
        with tempfile.TemporaryDirectory() as folder:
            found = check(Trial(make, data, Path(folder)))
        if found is not None:
            raise CheckFailedError(found, None)

    how = Effort(name="some", examples=examples, seconds=60, shrinking=2, draws=1)
    result = run_examples(check.__name__, example, how, 0)
    assert result.status in ("passed", "failed")
    return result.reason


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
