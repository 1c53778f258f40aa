"""A release in the hand: solved in memory or opened from a folder, with what it promises and what it can do."""

from __future__ import annotations

import shutil
import tempfile
import warnings
import weakref
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import numpy as np
from attrs import field, fields, frozen

from privopt.declare.notebook import card
from privopt.errors import DoesNotHoldError, UsageError
from privopt.interfaces import Certificate, Guarantee, Result
from privopt.registry import registry
from privopt.run import audit as auditing
from privopt.run.folder import check_sums
from privopt.run.ledger.ledger import Ledger
from privopt.run.publish import new_folder
from privopt.run.solve import Options
from privopt.run.solve import solve as solve_into
from privopt.run.verify import Opened, open_verified
from privopt.tables.draws import ChargeDraws, draw_at, draw_of, sampled
from privopt.tables.estimate import memory as estimating
from privopt.tables.estimate.answers import Nearest
from privopt.tables.estimate.estimate import Asked, Estimate, Intervals
from privopt.tables.estimate.memory import Prior
from privopt.tables.in_memory import Application, protected
from privopt.tables.leakage import leakage as leaked
from privopt.tables.picture import small_map
from privopt.tables.problems import Problem
from privopt.tables.protect import REPORT

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["PrivoptWarning", "Released", "open_release", "solve"]

T = TypeVar("T")

FOLDER: Final = "release"


class PrivoptWarning(UserWarning):
    """What whoever uses a release or a protected table must know though all holds."""


@frozen(kw_only=True, eq=False, slots=False)
class Released:
    """A certified release.

    Attributes:
        opened: as it was read from its folder, after it was checked.
        meaning: what the guarantee comes to, a sentence each; known where it was just solved.
    """

    opened: Opened = field(repr=False)
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
        """The guarantee in one sentence for everybody."""
        said: str = registry().kind("notion", self.guarantee.kind).load().promise(self.result)
        return said

    @property
    def certificate(self) -> Certificate:
        """What was checked of it, and how."""
        return self.result.certificate

    def apply(
        self,
        table: T,
        *,
        id: str | None = None,
        lat: str | None = None,
        lon: str | None = None,
        x: str | None = None,
        y: str | None = None,
        geometry: str | None = None,
        max_snap: float | None = None,
        seed: int | None = None,
        ledger: Ledger | Path | str | None = None,
        subject: str | None = None,
        time: str | None = None,
        sticky: bool = False,
        prefix: str | None = None,
    ) -> T:
        """A table with a report in each row in place of the secret's columns; the same kind of table comes back.

        Rows without a report have none, and are counted by reason in a :class:`PrivoptWarning`; where the release
        promises less than privacy between all records, another says so. A position is reported as its nearest record,
        and what holds is between records; where the scope is "everywhere" it is reported as that very point. Metadata
        (of Arrow schemas, ``attrs`` of pandas) are left out.

        Args:
            table: pandas, polars, pyarrow, a GeoDataFrame, a dict of columns; or an array: (B,) ids, for which the ids
                of reports come back, or (B, 2) positions, for which those of reports do.
            id, lat, lon, x, y, geometry: columns of the secret, one choice of them; a GeoDataFrame's own geometry where
                none is named. None for arrays.
            max_snap: km from every record, or from the region, beyond which a position has no report; a refusal tells
                something of the position.
            seed: for experiments: what it draws is not private, and marked so.
            ledger: charges each row with a subject, whatever its position, durably and before anything is drawn; rows
                that would pass its limit have no report.
            subject: column that says whom each row is about: for a ledger, or where the release reports traces.
            time: column that a subject's rows are in the order of, for such a release; left out where they stand in it.
            sticky: keep and repeat the first report of each subject's place, charged once: charges and refusals then
                tell which visits shared a place.
            prefix: what the names of the added columns begin with: ``"end"`` for ``end_report``, ``end_report_lat``,
                ..., beside reports that are in the table already; each report of a row spends epsilon.

        Raises:
            UsageError: a release without a matrix, positions that its records do not have, no table, no row that
                could be reported, or one of ``ledger`` and ``subject`` without the other.
            InputError: columns, or a ledger, that will not do.
        """
        columns = {"id": id, "lat": lat, "lon": lon, "x": x, "y": y, "geometry": geometry}
        asked = Application(
            columns=columns,
            max_snap=max_snap,
            seed=seed,
            ledger=ledger,
            subject=subject,
            time=time,
            sticky=sticky,
            prefix=prefix,
        )
        made, notes = protected(self.opened, table, asked)
        _warn(notes)
        return made

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
        """Draws for one secret, from the operating system's entropy.

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
            raise UsageError("sample: wanted one of an id, at = (lat, lon) and xy = (x, y)")
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
            raise UsageError(f"count: found {count!r}, wanted a whole number of draws, at least 1")
        position = at if xy is None else xy
        if position is not None:
            draw = draw_at(self.opened, position, degrees=at is not None)
        else:
            draw = draw_of(self.result.mechanism, self.opened.release, str(input_id))
        if ledger is None and subject is None:
            return draw(int(count))
        if ledger is None or subject is None:
            raise UsageError("sample: found one of ledger and subject, wanted both: draws are charged to a subject")
        charge = ChargeDraws(folder=self.opened.folder, ledger=ledger, subject=subject)
        made = sampled(draw, int(count), charge, self.result)
        _warn([made.refused] if made.refused is not None else [])
        return list(chain.from_iterable(made.reports))

    def estimate(
        self,
        reports: object,
        *,
        column: str = REPORT,
        subject: str | None = None,
        by: Mapping[str, str] | None = None,
        also: Sequence[tuple[Released, object]] = (),
        prior: Prior = None,
        worth: float = 100.0,
        confidence: float = 0.95,
        gap: float = 1e-6,
        intervals: Intervals = "finite-sample",
        resolution: float | None = None,
    ) -> Estimate:
        """What reports say of the truth: shares of the records, or of groups of them, with intervals.

        Args:
            reports: any kind of table, or an array of ids of outputs; of noisy counts an array of numbers.
            column: of the table that holds the reports; empty ones are skipped and counted.
            subject: column of who sent each report, in every table: only the first of each counts, over all releases,
                for several are not independent. Left out, reports are taken for different people's.
            by: group of each record, in whose place groups are estimated.
            also: further releases over the same records, each with its reports.
            prior: for the most probable shares under a Dirichlet prior with these means, worth ``worth`` reports; left
                out: maximum likelihood.
            worth: see ``prior``.
            confidence: of the intervals.
            gap: to what ``method`` maximises, per report, at which to end: see :class:`Estimate`.
            intervals: ``"finite-sample"`` ones hold all at once, ``"asymptotic"`` ones each, for many reports.
            resolution: of smooth shares, in the unit of distance; 0 for the maximum over all distributions; left out:
                as fine as the reports bear, over more than 300 records.

        Raises:
            UsageError: a release without a channel, no reports, or options that cannot be meant so.
            InputError: reports that the release does not have.
        """
        others = [(release.opened, given) for release, given in also]
        asked = Asked(worth=worth, confidence=confidence, gap=gap, intervals=intervals, resolution=resolution)
        found = estimating.estimates(
            self.opened, reports, asked, column=column, subject=subject, by=by, also=others, prior=prior
        ).estimates[""]
        _warn([*found.notes, *self._marked()])
        return found

    def _marked(self) -> list[str]:
        """What is to be said of a release that is not to be used as it is."""
        return [f"this release: {self.result.mark}"] if self.result.mark else []

    def estimate_batches(
        self,
        reports: object,
        batch: str,
        *,
        column: str = REPORT,
        subject: str | None = None,
        asked: Asked | None = None,
    ) -> dict[str, Estimate]:
        """An estimate for each value of a column, an hour or a day say, by value; see :meth:`estimate`.

        Of several reports of a subject the first in each batch counts. A warning names each batch without reports.
        """
        found = estimating.estimates(
            self.opened, reports, asked or Asked(), column=column, subject=subject, batch=batch
        )
        notes = [f"{name}: {line}" for name, each in found.estimates.items() for line in each.notes]
        _warn([*notes, *found.left_out, *self._marked()])
        return dict(found.estimates)

    def posterior(self, report: str, *, prior: Prior = None) -> NDArray[np.float64]:
        """(N,) probability of each record, in their order, given one report.

        Args:
            report: id of an output.
            prior: how likely records are: an estimate, weights by id, an array; the problem's own where left out.
        """
        return estimating.chances(self.opened, report, prior)

    def nearest(self, report: str, places: object, k: int = 1, *, prior: Prior = None) -> Nearest:
        """Which of a list of places are nearest, and how probable it is that the true nearest is among the k.

        Args:
            report: id of an output.
            places: ids of records; or a table with columns id and lat, lon (degrees) or x, y (km).
            k: how many to answer with.
            prior: as of :meth:`posterior`.
        """
        return estimating.nearest(self.opened, report, places, k, prior)

    def radius(self, report: str, places: object = None, *, confidence: float = 0.95, prior: Prior = None) -> float:
        """How far around a report to ask, so that the true place lies inside with the confidence.

        Args:
            report: id of an output.
            places: as of :meth:`nearest`: then it is the place nearest to the truth that lies inside.
            confidence: in (0, 1).
            prior: as of :meth:`posterior`.
        """
        return estimating.radius(self.opened, report, places, confidence, prior)

    def audit(
        self, *, leakage: bool = False, gains: Path | str | None = None, over_time: int | None = None
    ) -> Mapping[str, Any]:
        """What an attacker gets from it: see ``privopt audit --json``.

        Args:
            leakage: whether to add what it leaks: min-entropy leakage, capacities, error over distance.
            gains: a file of gains, for the g-vulnerability.
            over_time: reports of one place, at most, for attacks on many reports.
        """
        found = auditing.audit(self.opened.folder, over_time=over_time)
        if leakage or gains is not None:
            found["leakage"] = leaked(self.opened.folder, None if gains is None else Path(gains))
        return found

    def save(self, folder: Path | str, *, force: bool = False) -> Path:
        """Write it as a folder, as ``privopt solve`` does.

        Raises:
            UsageError: the folder is there already, without ``force``.
            DoesNotHoldError: a file has changed since the release was opened.
        """
        target = Path(folder)
        private = self.opened.mechanism.private_folder
        with new_folder(target, force=force, private=private, called=("save:", "force=True")) as work:
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
            facts["what it comes to"] = " ".join(self.meaning)
        return card(f"Release of {self.result.mechanism}", facts, more=small_map(self.opened))


def _warn(lines: Iterable[str]) -> None:
    """Warn whoever called the public function that calls this one."""
    for line in lines:
        warnings.warn(line, PrivoptWarning, stacklevel=3)


def solve(mechanism: str, problem: Problem | Path | str, **options: object) -> Released:
    """Solve a problem, certify the release: the pipeline of ``privopt solve``, without a folder of one's own.

    Args:
        mechanism: its name.
        problem: in memory, or the path of a problem file.
        options: those of :class:`privopt.run.solve.Options`: method, gap, time_limit, jobs, seed, ...

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
        made = Released(opened=open_verified(solved.folder), meaning=solved.meaning)
    except BaseException:
        shutil.rmtree(kept, ignore_errors=True)
        raise
    weakref.finalize(made, shutil.rmtree, kept, ignore_errors=True)
    _warn(solved.warnings)
    return made


def open_release(folder: Path | str) -> Released:
    """A release from its folder, checked before it is used.

    Raises:
        DoesNotHoldError: a sum or a claim does not hold.
        InputError: it cannot be read.
    """
    opened = open_verified(Path(folder))
    meaning = opened.mechanism.meaning(opened.problem, opened.release, opened.result)
    return Released(opened=opened, meaning=tuple(meaning))
