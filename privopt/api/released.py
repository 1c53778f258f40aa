"""A release in Python: solved in memory or opened from a folder, with its guarantee and its methods."""

from __future__ import annotations

import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from attrs import field, fields, frozen

from privopt.api.draws import Draw, draw_of, in_blocks
from privopt.declare.column_texts import REPORT
from privopt.declare.notebook import card
from privopt.declare.problems_in_memory import Problem
from privopt.errors import DoesNotHoldError, UsageError
from privopt.files.new_folder import new_folder
from privopt.files.release_folder import check_sums
from privopt.interfaces import Certificate, Guarantee, Result
from privopt.interfaces.abilities import meaning_of
from privopt.ledger.charge import Charge
from privopt.registry import registry
from privopt.report.promise_text import claim
from privopt.run import audit as auditing
from privopt.run.options import Options
from privopt.run.solve import solve as solve_into
from privopt.run.verify import OpenedFolder, open_verified

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

    from privopt.estimate.shares import Estimate, Intervals
    from privopt.ledger.ledger import Ledger
else:  # may not be installed
    DuckDBPyConnection = Estimate = Intervals = Ledger = Any

__all__ = ["OpenRelease", "PrivoptWarning", "handle_of", "open_release", "solve", "warn_all"]

T = TypeVar("T")

FOLDER: Final = "release"


class PrivoptWarning(UserWarning):
    """What anyone who uses a release or a protected table must know though all holds."""


@frozen(kw_only=True, eq=False, slots=False)
class OpenRelease:
    """A certified release.

    Attributes:
        opened: as it was read from its folder, after it was checked.
        meaning: what the guarantee amounts to, one sentence each; known right after a solve.
    """

    opened: OpenedFolder = field(repr=False)
    meaning: tuple[str, ...] = ()

    @property
    def result(self) -> Result:
        """Everything that result.json says of the release."""
        return self.opened.result

    @property
    def loss(self) -> float:
        """The loss of the release, in :attr:`unit`."""
        return self.result.objective.value

    @property
    def bound(self) -> float | None:
        """Proved bound on the loss of any release with this guarantee (upper where it is maximised); None for none."""
        return self.result.objective.lower_bound

    @property
    def unit(self) -> str:
        """Unit of :attr:`loss`."""
        return self.result.objective.unit

    @property
    def guarantee(self) -> Guarantee:
        """What is claimed: kind, epsilon, unit, scope."""
        return self.result.guarantee

    @property
    def promise(self) -> str:
        """The guarantee in one sentence for everybody; of a seeded release that it is not private."""
        return claim(self.result)

    @property
    def certificate(self) -> Certificate:
        """What was checked of it, and how."""
        return self.result.certificate

    def apply(self, table: T, *args: Any, **columns: Any) -> T:
        """Protect a table: a report in each row in place of the secret's columns.

        Raises:
            UsageError: this kind of release has no report for a row; those that have override this method.
        """
        raise self._no_rows("apply")

    def add_to_duckdb(self, connection: DuckDBPyConnection, name: str, ledger: Ledger | Path | str | None) -> None:
        """Register a function that draws reports: see :func:`privopt.sql.register`.

        Raises:
            UsageError: this kind of release has no report for a row; those that have override this method.
        """
        raise self._no_rows("sql.register")

    def _no_rows(self, what: str) -> UsageError:
        reason = f"{what}: no installed plugin draws a report for a row from a release of {self.result.mechanism}"
        return UsageError("; ".join([reason, *registry().describe_absences()]))

    def draws_at(
        self, position: tuple[float, float], *, degrees: bool, note: Callable[[str], None] | None = None
    ) -> Draw:
        """Return what draws reports for a position.

        Args:
            position: latitude and longitude, or x and y in km.
            degrees: which of the two.
            note: called with each sentence that the position's owner should know, before the first draw is given.

        Raises:
            UsageError: this kind of release has no places; those that have override this method.
        """
        reason = f"{self.result.mechanism} has no places to draw a report for"
        raise UsageError("; ".join([reason, *registry().describe_absences()]))

    def sample(
        self,
        input_id: str | None = None,
        count: int = 1,
        *,
        at: tuple[float, float] | None = None,
        xy: tuple[float, float] | None = None,
        ledger: Ledger | Path | str | None = None,
        subject: str | None = None,
    ) -> list[str]:
        """Draw reports for one secret, from the operating system's entropy.

        Args:
            input_id: a record's id.
            count: draws.
            at: in place of it a position, latitude and longitude; its nearest record, or that very point where the
                scope is "everywhere".
            xy: the same in km.
            ledger: charges each draw, whatever the secret, durably and before anything is drawn. Fewer come back, with
                a :class:`PrivoptWarning`, where its limit does not allow all.
            subject: whom the draws are about: with a ledger.

        Raises:
            UsageError: this kind of release cannot be sampled, the input is unknown (which is charged all the same), or
                one of ``ledger`` and ``subject`` without the other.
            BudgetSpentError: a ledger's limit allows no draw; nothing was charged.
            InputError, DoesNotHoldError: a ledger that will not do.
        """
        if sum(given is not None for given in (input_id, at, xy)) != 1:
            raise UsageError("sample: must be given one of an id, at = (lat, lon) and xy = (x, y)")
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
            raise UsageError(f"count must be a whole number of draws, at least 1, got {count!r}")
        position = at if xy is None else xy
        if position is not None:
            draw = self.draws_at(position, degrees=at is not None)
        else:
            draw = draw_of(self.result.mechanism, self.opened.release, str(input_id))
        if ledger is None and subject is None:
            return draw(int(count))
        if ledger is None or subject is None:
            raise UsageError(
                "sample: ledger and subject must be given together, got one of them: draws are charged to a subject"
            )
        charge = Charge(ledger=ledger, subject=subject)
        made = charge.charge_draws(
            partial(in_blocks, draw),
            int(count),
            folder=self.opened.folder,
            result=self.result,
            relation=self.opened.relation,
        )
        warn_all([made.refused] if made.refused is not None else [])
        return list(chain.from_iterable(made.reports))

    def estimate(
        self,
        reports: object,
        *,
        column: str = REPORT,
        subject: str | None = None,
        by: Mapping[str, str] | None = None,
        also: Sequence[tuple[OpenRelease, object]] = (),
        confidence: float = 0.95,
        gap: float = 1e-6,
        intervals: Intervals = "finite-sample",
        resolution: float | None = None,
    ) -> Estimate:
        """Estimate the shares of the records, or of groups of them, from reports, with intervals.

        Args:
            reports: any kind of table, or an array of ids of outputs; of noisy counts an array of numbers.
            column: of the table that holds the reports; empty ones are skipped and counted.
            subject: column of who sent each report, in every table: only the first of each counts, over all releases,
                for several are not independent. By default every report is taken to be another person's.
            by: group of each record, in whose place groups are estimated.
            also: further releases over the same records, each with its reports.
            confidence: of the intervals.
            gap: to what ``method`` maximises, per report, at which to end: see :class:`Estimate`.
            intervals: ``"finite-sample"`` ones hold all at once, ``"asymptotic"`` ones each, for many reports.
            resolution: of smooth shares, in the unit of distance; 0 for the maximum over all distributions; omitted:
                as fine as the reports support, over more than 300 records.

        Raises:
            UsageError: a release without a channel, no reports, or options that
                cannot be meant so.
            InputError: reports that the release does not have.
        """
        from privopt.estimate.estimate_tables import estimate_of

        estimated = estimate_of(
            self.opened,
            reports,
            column=column,
            subject=subject,
            by=by,
            also=[(release.opened, given) for release, given in also],
            confidence=confidence,
            gap=gap,
            intervals=intervals,
            resolution=resolution,
        )
        warn_all([*estimated.notes, *self._marked()])
        return estimated

    def _marked(self) -> list[str]:
        """Return the warnings on a release that should not be used as it is."""
        return [f"this release: {self.result.mark}"] if self.result.mark else []

    def audit(self, *, over_time: int | None = None) -> Mapping[str, Any]:
        """Return what an attacker learns from the release: see ``privopt audit --json``.

        Args:
            over_time: reports of one place, at most, for attacks on many reports.
        """
        return auditing.audit(self.opened.folder, over_time=over_time)

    def save(self, folder: Path | str, *, force: bool = False) -> Path:
        """Write it as a folder, as ``privopt solve`` does.

        Raises:
            UsageError: the folder is there already, without ``force``.
            DoesNotHoldError: a file has changed since the release was opened.
        """
        target = Path(folder)
        private = self.opened.release.private_folder
        with new_folder(target, force=force, private=private, option="save:") as work:
            shutil.copytree(self.opened.folder, work, dirs_exist_ok=True)
            changed = check_sums(work)  # new_folder will write sums of whatever is there
            if changed:
                raise DoesNotHoldError("\n".join(f"{self.opened.folder}: {line}" for line in changed))
        return target

    def _repr_html_(self) -> str:
        facts: dict[str, Any] = {
            "loss": f"{self.loss:.6g} {self.unit}",
            "bound": "none" if self.bound is None else f"{self.bound:.6g} {self.unit}",
            "guarantee": self.promise,
            "certificate": f"{self.certificate.evidence}: {self.certificate.arithmetic}",
        }
        if self.result.mark:
            facts["warning"] = self.result.mark
        if self.meaning:
            facts["what it means"] = " ".join(self.meaning)
        return card(f"Release of {self.result.mechanism}", facts)


def warn_all(lines: Iterable[str]) -> None:
    """Warn the user who called the public function that calls this one."""
    for line in lines:
        warnings.warn(line, PrivoptWarning, stacklevel=3)


def handle_of(opened: OpenedFolder, meaning: Iterable[str] = ()) -> OpenRelease:
    """Return an opened release as the object that a plugin gives for it (``privopt_handle``), or else as a plain one.

    Raises:
        RegistryError: what the plugin gives is not an :class:`OpenRelease`.
    """
    handle_class = registry().find_handle_class(opened.release, OpenRelease)
    return handle_class(opened=opened, meaning=tuple(meaning))


def solve(mechanism: str, problem: Problem | Path | str, **options: object) -> OpenRelease:
    """Solve a problem, certify the release: the pipeline of ``privopt solve``, without a folder of one's own.

    Args:
        mechanism: its name.
        problem: in memory, or the path of a problem file.
        options: those of :class:`privopt.run.options.Options`: method, gap, time_limit, jobs, seed, ...

    Raises:
        PrivoptError: as ``privopt solve`` would end.
    """
    given = problem.source if isinstance(problem, Problem) else Path(problem)
    known = [field.name for field in fields(Options)]
    if unknown := sorted(set(options) - set(known)):
        raise UsageError(f"solve: no option {', '.join(unknown)}; there are {', '.join(known)}")
    kept = Path(tempfile.mkdtemp(prefix="privopt-"))  # its owner's alone, gone with the release
    try:
        solved = solve_into(mechanism, given, kept / FOLDER, Options(**options))  # type: ignore[arg-type]
        made = handle_of(open_verified(solved.folder), solved.meaning)
    except BaseException:
        shutil.rmtree(kept, ignore_errors=True)
        raise
    weakref.finalize(made, shutil.rmtree, kept, ignore_errors=True)
    warn_all(solved.warnings)
    return made


def open_release(folder: Path | str) -> OpenRelease:
    """Return a release from its folder, checked before it is used.

    Raises:
        DoesNotHoldError: a sum or a claim does not hold.
        InputError: it cannot be read.
    """
    opened = open_verified(Path(folder))
    return handle_of(opened, meaning_of(opened.mechanism, opened.problem, opened.release, opened.result))
