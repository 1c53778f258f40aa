"""Checks of a ledger and what draws behind it: charged before drawn, limits, blindness, kept reports.

Mathematics T1 to T3 says what must hold.
"""

import os
import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from fractions import Fraction
from pathlib import Path

from attrs import define
from hypothesis import strategies as st

from privopt.ledger.entries import MICROS
from privopt.testing.checks.base import CheckFailedError
from privopt.testing.efforts import Effort
from privopt.testing.runner import run_examples

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


class Keeper(ABC):
    """Something that gives reports of subjects and charges for them.

    Attributes:
        epsilon: what a report costs.
        secrets: some that may be reported on, each a place of its own.
        keeps: whether a subject's first report of a place is repeated.
    """

    keeps = False

    @abstractmethod
    def report(self, rows, source):
        """Charge for rows (subject, place), then draw a report of each: bytes come from ``source``; None: refused."""

    @abstractmethod
    def charges(self):
        """Return subject, epsilon and time of every charge that is durable."""

    def stored(self):
        """Return what is stored about visits, without the key in its own file."""
        return b""

    def close(self):  # noqa: B027 - not every keeper holds a file open
        """Close files."""


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
