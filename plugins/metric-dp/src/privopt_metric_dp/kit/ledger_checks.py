"""Checks of what claims a guarantee over sequences: a ledger with whatever draws behind it, kept reports or not.

::

    from privopt_metric_dp.kit.ledger_checks import check_keeper

    def test_acme():
        assert [r for r in check_keeper(Acme) if r.status == "failed"] == []

``Acme`` makes a :class:`Keeper` for a :class:`Setting`; privopt's own is :class:`OwnKeeper`. Mathematics T1 to T3 says
what must hold.
"""

from __future__ import annotations

import os
import tempfile
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Final

from attrs import define, evolve
from hypothesis import strategies as st

from privopt.api.released import Released, solve
from privopt.declare.column_texts import REPORT
from privopt.declare.problems_in_memory import frame_of
from privopt.ledger.charge import Charge
from privopt.ledger.cost_of_report import cost_of
from privopt.ledger.entries import MICROS
from privopt.ledger.ledger import Ledger
from privopt.numbers.sampling import Source
from privopt.testing.checks.base import CheckFailedError
from privopt.testing.efforts import Effort, effort
from privopt.testing.runner import CheckResult, run_examples
from privopt_metric_dp.api.problem_parts import grid, metric_problem
from privopt_metric_dp.tables.application import Application
from privopt_metric_dp.tables.apply_table import matrix_of
from privopt_metric_dp.tables.charge_rows import Charging
from privopt_metric_dp.tables.protect import Protector
from privopt_metric_dp.tables.secret_columns import Secret

if TYPE_CHECKING:
    from typing import Any

__all__ = ["KEEPER_CHECKS", "Keeper", "OwnKeeper", "Setting", "check_keeper"]

Row = tuple[str, str]
"""A subject and its secret; an empty secret is no position."""

SLICE: Final = 16
"""Bytes that two stores have in common by no chance."""

CROWD: Final = 40
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

    epsilon: Fraction
    secrets: Sequence[str]
    keeps: ClassVar[bool] = False

    @abstractmethod
    def report(self, rows: Sequence[Row], source: Source) -> list[str | None]:
        """A report for each row; None for one that is refused. Everything random comes from ``source``."""

    @abstractmethod
    def charges(self) -> list[tuple[str, Fraction, int]]:
        """Subject, epsilon and time of every charge that is durable, as another process would read them now."""

    def stored(self) -> bytes:
        """What is kept about visits, but for a key that is a file of its own."""
        return b""

    def close(self) -> None:  # noqa: B027  (many have nothing to close)
        """Close files."""


@cache
def _release() -> Released:
    """Six places, and the exponential mechanism over them."""
    return solve("exponential", metric_problem(grid(2, 3, 1.0), distance="euclidean", epsilon="0.5/km"))


class OwnKeeper(Keeper):
    """privopt's ledger with a small release behind it."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.ledger = Ledger(self.path, clock=lambda: 1000 * setting.now)
        if setting.limit is not None:
            self.ledger.set_limit(setting.limit, hours=setting.hours)
        opened = _release().opened
        self.release, self.problem = matrix_of(opened)
        self.cost = cost_of(opened.folder, opened.result, "check")
        self.epsilon, self.secrets = self.cost.amount[0], self.release.records.tolist()

    @property
    def path(self) -> Path:
        """The ledger's file."""
        return self.setting.folder / "ledger"

    def report(self, rows: Sequence[Row], source: Source) -> list[str | None]:
        """Charge and draw as ``apply`` does."""
        columns = {"who": [who for who, _ in rows], "place": [place for _, place in rows]}
        to = Charge(ledger=self.ledger, subject="who", sticky=self.keeps)
        with Charging(to=to, cost=self.cost).opened() as charging:
            protector = self.protector(charging)
            protected = evolve(protector, source=source).protect(frame_of(columns, "table"))
        reports: list[str | None] = protected[REPORT].to_list()
        return reports

    def protector(self, charging: Charging) -> Protector:
        """Draws after it has charged."""
        return Protector.of(self.release, self.problem.data, Secret.of(id="place"), Application(), charging)

    def charges(self) -> list[tuple[str, Fraction, int]]:
        """The charges, read through a connection of its own."""
        with Ledger(self.path, make=False) as other:
            return [(charge.subject, charge.cost.amount[0], charge.time) for charge in other.charges()]

    def stored(self) -> bytes:
        """The kept reports."""
        folder = self.path.with_name("ledger.sticky")
        return b"".join(path.read_bytes() for path in sorted(folder.glob("reports*")))

    def close(self) -> None:
        """Close the ledger."""
        self.ledger.close()


class OwnStickyKeeper(OwnKeeper):
    """privopt's ledger with kept reports."""

    keeps = True


Maker = Callable[[Setting], Keeper]


class _Trial:
    """Draws rows, and makes keepers in folders that go again."""

    def __init__(self, make: Maker, data: Any, folder: Path) -> None:
        self.make, self.data, self.folder = make, data, folder
        self.made = 0

    def keeper(
        self, setting: Setting | None = None, *, limit: Fraction | None = None, hours: int | None = None
    ) -> tuple[Keeper, Setting]:
        """A new keeper in a folder of its own."""
        if setting is None:
            self.made += 1
            place = self.folder / str(self.made)
            place.mkdir()
            setting = Setting(folder=place, limit=limit, hours=hours)
        return self.make(setting), setting

    def rows(self, keeper: Keeper, most: int = 6, *, nowhere: bool = False) -> list[Row]:
        """Rows of a few subjects."""
        places = st.sampled_from([*list(keeper.secrets)[:3], *([""] if nowhere else [])])
        found: list[Row] = self.data.draw(st.lists(st.tuples(st.sampled_from("ab"), places), min_size=1, max_size=most))
        return found


def _first(trial: _Trial) -> str | None:
    """Every charge is durable before anything is drawn, and every report has its charge."""
    keeper, _ = trial.keeper()
    pairs: set[Row] = set()
    reports: Counter[str] = Counter()
    for _ in range(2):
        seen: list[int] = []

        def source(count: int, seen: list[int] = seen) -> bytes:
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


def _limit(trial: _Trial) -> str | None:
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
            spent = _spent(charges, who, at, hours)
            if spent > limit:
                window = "in all" if hours is None else f"in the {hours} hours before {at}"
                return f"{who} was charged {spent} {window}, of {limit}"
        for (who, _), report in zip(rows, made, strict=True):
            had = _spent(before, who, setting.now, hours, closed=True)
            if report is None and had + epsilon <= limit and [name for name, _ in rows].count(who) == 1:
                return f"{who} was refused with {limit - had} left, of which a report takes {epsilon}"
    keeper.close()
    return None


def _spent(
    charges: Sequence[tuple[str, Fraction, int]], who: str, at: int, hours: int | None, *, closed: bool = False
) -> Fraction:
    """What a subject spent in the window that ends at a time; ``closed`` counts its beginning too."""
    since = 0 if hours is None else at - hours * MICROS + (not closed)
    return sum((epsilon for name, epsilon, time in charges if name == who and since <= time <= at), Fraction(0))


def _blind(trial: _Trial) -> str | None:
    """What is charged is no function of a secret, but of which visits share a place where reports are kept."""
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
        return f"{rows} was charged {_shown(left[0])}, {twin} {_shown(left[1])}"
    return None


def _shown(charges: Sequence[tuple[str, Fraction]]) -> str:
    return ", ".join(f"{who} {spent}" for who, spent in charges) or "nothing"


def _kept(trial: _Trial) -> str | None:
    """A place is reported the same and charged once, and shares nothing with other places or subjects."""
    keeper, _ = trial.keeper()
    known: dict[Row, str | None] = {}
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


def _hidden(trial: _Trial) -> str | None:
    """What is kept names no place: stores of the same visits have nothing in common that others lack.

    Four stores, for a slice may hold no more than the first byte of a random key beside the store's own form: two have
    that byte in common once in 256 runs.
    """
    found: dict[str, list[set[bytes]]] = {"same": [], "other": []}
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


KEEPER_CHECKS: Final[dict[str, tuple[Callable[[_Trial], str | None], bool]]] = {
    "charged-first": (_first, False),
    "limit-kept": (_limit, False),
    "charges-blind": (_blind, False),
    "kept-once": (_kept, True),
    "places-hidden": (_hidden, True),
}
"""The checks by name, and whether they are of kept reports alone."""


def check_keeper(
    make: Maker, *, checks: Sequence[str] = tuple(KEEPER_CHECKS), how: Effort | str | None = None, seed: int = 0
) -> list[CheckResult]:
    """Run the checks of a keeper.

    Args:
        make: makes one for a setting; called again with the same setting it goes on from what is in the folder.
        checks: by name; all where left out.
        how: dev, ci or nightly, or an effort of one's own; PRIVOPT_PROFILE's, else ci, where None.
        seed: of what is drawn.
    """
    return [_try(name, make, effort(how), seed) for name in checks]


def _try(name: str, make: Maker, how: Effort, seed: int) -> CheckResult:
    function, only = KEEPER_CHECKS[name]

    def example(data: st.DataObject) -> None:
        with tempfile.TemporaryDirectory() as folder:
            found = function(_Trial(make, data, Path(folder)))
        if found is not None:
            raise CheckFailedError(found, None)

    with tempfile.TemporaryDirectory() as folder:
        keeper = make(Setting(folder=Path(folder)))
        keeps = keeper.keeps
        keeper.close()
    if only and not keeps:
        return CheckResult(check=name, version=1, status="skipped", reason="no reports are kept")
    return run_examples(name, example, how, seed)
