"""The Python class for releases that were solved in memory or opened from a folder (:class:`OpenRelease`).

Plugins can provide subclasses with more methods through the ``privopt_handle`` hook.
"""

from __future__ import annotations

import shutil
import tempfile
import warnings
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

import numpy as np
from attrs import field, frozen

from privopt.api.draws import Draw, draw_of, in_blocks
from privopt.declare.column_texts import REPORT
from privopt.declare.notebook import card
from privopt.declare.problems_in_memory import Problem
from privopt.errors import DoesNotHoldError, UsageError
from privopt.files.new_folder import check_file, new_file, new_folder
from privopt.files.release_folder import check_sums
from privopt.interfaces import Certificate, Guarantee, Progress, Result
from privopt.interfaces.abilities import meaning_of
from privopt.ledger.charge import Charge
from privopt.registry import registry
from privopt.report.promise_text import claim
from privopt.run import audit as auditing
from privopt.run.solve import solve as solve_into
from privopt.run.task import Options
from privopt.run.verify import OpenedFolder, Verdict, open_verified
from privopt.run.verify import verify as verify_folder

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection
    from matplotlib.figure import Figure

    from privopt.estimate.flows import Flows
    from privopt.estimate.shares import Estimate, Intervals
    from privopt.ledger.ledger import Ledger
else:  # may not be installed
    DuckDBPyConnection = Estimate = Figure = Flows = Intervals = Ledger = Any

__all__ = ["OpenRelease", "PrivoptWarning", "handle_of", "open_release", "solve", "warn_all"]

T = TypeVar("T")

FOLDER: Final = "release"
"""The name of the release folder inside a temporary folder."""


class PrivoptWarning(UserWarning):
    """A warning about a limitation of a valid release or of a protected table."""


@frozen(kw_only=True, eq=False, slots=False)
class OpenRelease:
    """A certified release, which can be sampled, applied to tables, audited, reported on and saved.

    Attributes:
        opened: The contents of the verified release folder.
        meaning: Sentences that explain what the guarantee means for this problem.
    """

    opened: OpenedFolder = field(repr=lambda opened: repr(opened.result))
    meaning: tuple[str, ...] = field(default=(), repr=False)

    @property
    def result(self) -> Result:
        """The contents of result.json."""
        return self.opened.result

    @property
    def loss(self) -> float:
        """The loss of the release, in :attr:`unit`."""
        return self.result.objective.value

    @property
    def bound(self) -> float | None:
        """The proved lower bound on the loss of every release with this guarantee, or None if no bound is known.

        If the objective is maximised, it is an upper bound instead.
        """
        return self.result.objective.lower_bound

    @property
    def unit(self) -> str:
        """The unit in which :attr:`loss` is measured."""
        return self.result.objective.unit

    @property
    def guarantee(self) -> Guarantee:
        """The claimed guarantee: kind, epsilon, unit and scope."""
        return self.result.guarantee

    @property
    def promise(self) -> str:
        """The guarantee in one plain sentence.

        If the release was drawn with a seed, the sentence says that it is not private.
        """
        return claim(self.result)

    @property
    def certificate(self) -> Certificate:
        """The record of what was checked about the release, and how."""
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
        positions: Mapping[str, Sequence[str]] | None = None,
        sticky_within: float | None = None,
        time_format: str | None = None,
        null_names: bool = False,
        text: str | None = None,
        unknown: Literal["drop", "mask"] = "drop",
        keep: Sequence[str] = (),
        drop: Sequence[str] = (),
        hash: Sequence[str] = (),
        hash_key: Path | str | None = None,
    ) -> T:
        """Return a table of the same type in which the secret columns are replaced by reports.

        If some rows get no report, a :class:`PrivoptWarning` states the number of such rows for each reason. Another
        warning is issued if the release has no guarantee, or if its guarantee does not cover all pairs of records. By
        default, a position is first replaced by its nearest record, and the guarantee holds between records. If the
        scope is "everywhere", the exact position is used instead. Metadata in Arrow schemas and in pandas' ``attrs`` is
        dropped. A release without a matrix can only be applied to tables, not to arrays. For such a release, the
        secrets must be ids, but positions are also accepted if the scope is "everywhere".

        Args:
            table: A pandas, polars or pyarrow table, a GeoDataFrame or a dict of columns. An array of ids of shape (B,)
                or of positions of shape (B, 2) is also accepted, in which case an array of reported ids or positions is
                returned.
            id, lat, lon, x, y, geometry: The columns that contain the secret: an id, two coordinates or a geometry. A
                GeoDataFrame's own geometry is the default. Omit all of them for arrays.
            max_snap: The distance in km from the nearest record, or from the region, beyond which a position gets no
                report. The absence of a report reveals something about the position.
            seed: A seed for experiments. Reports drawn with a seed are not private and are marked accordingly.
            ledger: The ledger to charge for each row that has a subject, regardless of the position in the row. Charges
                are written to disk before any report is drawn. Rows that would exceed the limit get no report.
            subject: The column that names each row's subject, for a ledger or for a release that reports traces.
            time: The column that contains the time of each row. A release that reports traces uses it to order a
                subject's rows; if None, the rows must already be in order. A ledger with a calendar limit uses it to
                select the period to charge; rows without a usable time get no report.
            sticky: Whether to store the first report about each place that a subject visits and repeat it on later
                visits at no further charge. An observer who sees which rows are charged or get no report can then tell
                which visits were to the same place.
            prefix: The prefix of the added columns, for a table that already has reports: ``"end"`` gives
                ``end_report``, ``end_report_lat`` and so on. Each report in a row spends epsilon.
            positions: Several positions per row, instead of ``id``, ``lat`` and so on: a mapping from the prefix of
                each position's added columns to the columns of that position (two coordinates or one id). A row gets
                all of its reports or none, and is charged epsilon for each column of reports, whether or not its
                positions can be used.
            sticky_within: The maximum distance in km from the centre of a cell at which the report stored for that cell
                is repeated. It can only be used with ``sticky``.
            time_format: The format of ``time``: a pattern such as ``DD/MM/YYYY HH:MM``, or ``unix``, ``unix-ms``,
                ``unix-us`` or ``unix-ns``. The default is ISO 8601.
            null_names: Whether to accept NULL, NA, None and the like as names of subjects. If not, rows with such a
                name have no subject.
            text: The column of sentences. Use it instead of ``id`` and the other columns if records are words.
            keep: Columns to keep even though their values reveal the row's own position or record. Other such columns
                are dropped, and a :class:`PrivoptWarning` names them.
            drop: Additional columns to omit. They may include the columns of subjects and times, which are read first.
            hash: Columns whose cells are replaced by keyed hashes (HMAC-SHA256). Equal ids have equal hashes, and a
                hash can be matched to its id only with the key.
            hash_key: The file that contains the key for ``hash``. The file is created if it does not exist. If None,
                the key is derived from the key of ``ledger``, which must then be a :class:`Ledger` with ``key``.
            unknown: Whether to "drop" or "mask" unknown words in sentences.

        Raises:
            UsageError: This kind of release cannot draw a report for each row, its records have no positions of this
                kind, ``table`` is not a supported table or array, no row gets a report, or only one of ``ledger`` and
                ``subject`` is given.
            InputError: A column or the ledger is invalid.
        """
        # Subclasses for releases that draw a report for each row override this method.
        raise self._no_rows("apply")

    def add_to_duckdb(self, connection: DuckDBPyConnection, name: str, ledger: Ledger | Path | str | None) -> None:
        """Register an SQL function that draws a report for each row (see :func:`privopt.sql.register`).

        Args:
            connection: The DuckDB connection.
            name: The name of the function.
            ledger: The ledger to charge for each row, or its path. If None, nothing is charged.

        Raises:
            UsageError: This kind of release cannot draw a report for each row. Subclasses for releases that can do so
                override this method.
        """
        raise self._no_rows("sql.register")

    def _no_rows(self, what: str) -> UsageError:
        """Return the error for an operation that requires a release that can draw a report for each row.

        Args:
            what: The name of the operation, for the error message.
        """
        reason = f"{what}: no installed plugin draws a report for a row from a release of {self.result.mechanism}"
        return UsageError("; ".join([reason, *registry().describe_absences()]))

    def draws_at(
        self, position: tuple[float, float], *, degrees: bool, note: Callable[[str], None] | None = None
    ) -> Draw:
        """Return a function that draws reports for a position.

        Args:
            position: Latitude and longitude in degrees, or x and y in km.
            degrees: Whether the position is in degrees.
            note: A function to call before the first draw, once for each notice that the person at this position should
                read.

        Raises:
            UsageError: This kind of release has no places. Subclasses for releases with places override this method.
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
        """Draw reports for one secret, with randomness from the operating system.

        Exactly one of ``input_id``, ``at`` and ``xy`` must be given.

        Args:
            input_id: The id of a record.
            count: The number of reports to draw.
            at: A position, given as latitude and longitude in degrees. The nearest record is used, or the exact
                position if the scope is "everywhere".
            xy: A position, given as x and y in km.
            ledger: The ledger to charge for each draw, regardless of the secret, before anything is drawn. If its limit
                does not allow all draws, fewer reports are returned and a :class:`PrivoptWarning` is issued.
            subject: The subject to charge for the draws. It is required if ``ledger`` is given and must otherwise be
                omitted.

        Raises:
            UsageError: This kind of release cannot be sampled, the input is unknown (the draws are charged
                nevertheless), or only one of ``ledger`` and ``subject`` is given.
            BudgetSpentError: The ledger's limit does not allow a single draw. Nothing was charged.
            InputError, DoesNotHoldError: The ledger cannot be read, or has been tampered with.
        """
        if sum(option is not None for option in (input_id, at, xy)) != 1:
            raise UsageError("sample: must be given one of an id, at = (lat, lon) and xy = (x, y)")
        # NumPy's integers are accepted because counts often come from arrays. True is an int in Python, but not a
        # count.
        if isinstance(count, bool) or not isinstance(count, int | np.integer) or count < 1:
            raise UsageError(f"count must be a whole number of draws, at least 1, got {count!r}")
        # The draw is only prepared here. The secret is not read before the charge below is made.
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
        charged_draws = charge.charge_draws(
            partial(in_blocks, draw),
            int(count),
            folder=self.opened.folder,
            result=self.result,
            relation=self.opened.relation,
        )
        warn_all([charged_draws.refused] if charged_draws.refused is not None else [])
        return list(chain.from_iterable(charged_draws.reports))

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
        """Estimate the shares of records, or of groups of records, from reports, with confidence intervals.

        Args:
            reports: A table of any kind or an array of output ids. For a release of noisy counts, an array of numbers.
            column: The column of the table that contains the reports. Empty reports are skipped and counted.
            subject: The column that names the subject of each report, in every table. Only each subject's first report
                across all releases counts, because several reports about one subject are not independent. By default,
                every report is assumed to come from a different person.
            by: A mapping from records to groups. If given, the shares of groups are estimated.
            also: Other releases over the same records, each with its own reports.
            confidence: The confidence level of the intervals.
            gap: The fit ends once its log-likelihood per report is proved to be within this distance of the maximum.
                See :class:`Estimate`.
            intervals: The kind of intervals. ``"finite-sample"`` intervals hold simultaneously and for any number of
                reports. ``"asymptotic"`` intervals hold individually and only for large numbers of reports.
                ``"smooth"`` intervals hold simultaneously, but only for large numbers of reports and if shares are
                smooth over the map. A :class:`PrivoptWarning` states this condition.
            resolution: The resolution of smooth shares, in the same unit as distances, or 0 if shares should not be
                smoothed. By default, shares are smoothed only if ``intervals`` is ``"smooth"`` or if there are more
                than 300 records with distances. The resolution is then the finest that the reports support.

        Raises:
            UsageError: Shares cannot be estimated from reports of this kind of release, there are no reports, or the
                options are invalid.
            InputError: A report is not an output of the release.
        """
        from privopt.estimate.estimate_tables import estimate_of

        estimated = estimate_of(
            self.opened,
            reports,
            column=column,
            subject=subject,
            by=by,
            also=[(release.opened, further_reports) for release, further_reports in also],
            confidence=confidence,
            gap=gap,
            intervals=intervals,
            resolution=resolution,
        )
        warn_all([*estimated.notes, *self._mark_warnings()])
        return estimated

    def estimate_flows(
        self,
        reports: object,
        *,
        start: str,
        end: str,
        by: Mapping[str, str],
        subject: str | None = None,
        confidence: float = 0.95,
        gap: float = 1e-6,
        resolution: float | None = None,
    ) -> Flows:
        """Estimate the share of trips for each pair of a start and an end group, from two reports about each trip.

        Groups consist of records. Trips within a group are included.

        The two reports about a trip must have been drawn from this release independently of one another, so together
        they cost twice its epsilon (:attr:`Flows.pair_guarantee`). The intervals are computed by a parametric
        bootstrap, whose assumptions are stated in a :class:`PrivoptWarning`.

        Args:
            reports: A table of any kind, with a row for each trip.
            start: The column that contains the reports about where trips start.
            end: The column that contains the reports about where trips end. Rows with a missing report are skipped and
                counted.
            by: A mapping from records to groups.
            subject: The column that names the subject of each trip. Only each subject's first trip counts. By default,
                every trip is assumed to be made by a different person.
            confidence: The nominal joint confidence level of the intervals. Their actual coverage was measured, not
                proved.
            gap: The fit ends early if its log-likelihood per trip is proved to be within this distance of the maximum.
            resolution: The resolution of smooth flows, in the same unit as distances, or 0 for flows that are not
                smooth. Flows between more than 300 records are always smooth. By default, flows between fewer records
                are not smooth, and the resolution of smooth flows is a quarter of the finest resolution supported by
                the starts or the ends. A resolution that is too fine to compute is made coarser.

        Raises:
            UsageError: The release draws no reports, there are no trips, or the options are invalid.
            InputError: A column is missing or has repeated reports, or a report is not an output of the release.
        """
        from privopt.estimate.count_trips import TripColumns
        from privopt.estimate.estimate_flow_tables import flows_of
        from privopt.estimate.shares import EstimateOptions

        options = EstimateOptions(confidence=confidence, gap=gap, resolution=resolution)
        flows = flows_of(self.opened, reports, by, TripColumns(start=start, end=end, subject=subject), options)
        warn_all([*flows.notes, *self._mark_warnings()])
        return flows

    def _mark_warnings(self) -> list[str]:
        """Return a list with one warning if the release is marked as not private, and an empty list otherwise."""
        return [f"this release: {self.result.mark}"] if self.result.mark else []

    def audit(self, *, over_time: int | None = None) -> Mapping[str, Any]:
        """Measure what an attacker can learn from the release, and return the metrics of ``privopt audit --json``.

        Args:
            over_time: The maximum number of reports about one place that an attacker collects over time. By default,
                attacks over time are not measured.
        """
        return auditing.audit(self.opened.folder, over_time=over_time)

    def verify(self) -> Verdict:
        """Verify the release's checksums and claims again from its files, as ``privopt verify`` does.

        Returns:
            The verdict. Its ``holds`` attribute says whether all checksums and claims hold. If not, ``complaints``
            lists the ones that do not hold.
        """
        return verify_folder(self.opened.folder)

    def report(self, path: Path | str, *, force: bool = False) -> Path:
        """Write an HTML page that explains the release to readers, as ``privopt report`` does.

        Args:
            path: The HTML file to create.
            force: Whether to replace an existing file.

        Returns:
            The path of the page.

        Raises:
            UsageError: The file exists, and ``force`` is not set.
            DoesNotHoldError: A file has changed since the release was opened.
        """
        from privopt.report.write_report import write_report

        target = Path(path)
        # The target is checked before the release is verified, which takes minutes for a large one.
        check_file(target.absolute(), force=force, option="report:")
        with tempfile.TemporaryDirectory(prefix="privopt-") as folder:
            # The page is made in a copy, so that the folder of the release is not changed.
            page = write_report(self.save(Path(folder) / FOLDER))
            with new_file(target, force=force, option="report:") as unfinished:
                shutil.copyfile(page, unfinished)
        return target

    def map(self, record: str | None = None) -> Figure:
        """Return a map as a matplotlib figure, which notebooks display.

        Args:
            record: The id of a record for which to show the probability of each output. By default, the map shows the
                expected loss of each record.

        Raises:
            UsageError: This kind of release has no map. Subclasses for other kinds override this method.
            UnknownNameError: No record has this id.
        """
        raise UsageError(f"map: a release of {self.result.mechanism} has no places to draw")

    def save(self, folder: Path | str, *, force: bool = False) -> Path:
        """Write the release to a folder, as ``privopt solve`` does.

        Args:
            folder: The folder to create.
            force: Whether to replace an existing release folder.

        Returns:
            The path of the folder.

        Raises:
            UsageError: The folder exists, and ``force`` is not set.
            DoesNotHoldError: A file has changed since the release was opened.
        """
        target = Path(folder)
        private = self.opened.release.private_folder
        with new_folder(target, force=force, private=private, option="save:") as work:
            shutil.copytree(self.opened.folder, work, dirs_exist_ok=True)
            # The copy is checked here because new_folder would write new checksums for changed files.
            changed = check_sums(work)
            if changed:
                raise DoesNotHoldError("\n".join(f"{self.opened.folder}: {line}" for line in changed))
        return target

    def _repr_html_(self) -> str:
        """Return an HTML card with the release's loss, bound and guarantee, for display in Jupyter."""
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
    """Issue a :class:`PrivoptWarning` for each line, attributed to the caller of the public function."""
    for line in lines:
        warnings.warn(line, PrivoptWarning, stacklevel=3)  # 1 is this function, 2 the public one, 3 the user's code


def handle_of(opened: OpenedFolder, meaning: Iterable[str] = ()) -> OpenRelease:
    """Wrap an opened release in :class:`OpenRelease`, or in the subclass chosen by the ``privopt_handle`` hook.

    Raises:
        RegistryError: The class chosen by a plugin is not a subclass of :class:`OpenRelease`.
    """
    handle_class = registry().find_handle_class(opened.release, OpenRelease)
    return handle_class(opened=opened, meaning=tuple(meaning))


def solve(
    mechanism: str,
    problem: Problem | Path | str,
    *,
    method: str | None = None,
    solver: str = "cbc",
    gap: float | None = None,
    time_limit: float | None = None,
    memory: float | None = None,
    jobs: int | None = None,
    executor: str | None = None,
    seed: int | None = None,
    allow_unsafe: bool = False,
    copy_to: Path | None = None,
    charged: Charge | None = None,
    progress: Progress | None = None,
) -> OpenRelease:
    """Solve a problem as ``privopt solve`` does, but in a temporary folder, and return the certified release.

    Args:
        mechanism: The mechanism's name.
        problem: A problem in memory, or the path of a problem file.
        method: The name of the method. If None, the mechanism's default is used.
        solver: ``"cbc"``, ``"highs"`` or another registered solver.
        gap: The relative gap between the loss and the proved bound at which the search ends, above 0 and below 1. If
            None, the method's default is used.
        time_limit: The time limit of the search in seconds, or None for no limit. It does not cover the subsequent
            certification and writing of files.
        memory: The amount of memory that the process may use, in gigabytes (10^9 bytes). If None, all free and
            permitted memory may be used.
        jobs: The number of processes, and of threads in each. If None, there is one process with one thread per
            processor, up to 8.
        executor: The URL of a cluster (``"dask://host:port"``), or None to use only this machine.
        seed: The seed of the noise, for experiments only. A release with a seed is not private and is marked
            accordingly.
        allow_unsafe: Whether methods without a privacy guarantee are permitted.
        copy_to: The folder to create for clean copies of the released files, if the mechanism can write them.
        charged: The charge to make to a ledger before any noise is drawn.
        progress: A function that is called from time to time with the phase, the round, and the lower and upper bounds.

    Raises:
        PrivoptError: Any error that would end ``privopt solve``.
    """
    problem_source = problem.source if isinstance(problem, Problem) else Path(problem)
    options = Options(
        method=method,
        solver=solver,
        gap=gap,
        time_limit=time_limit,
        memory=memory,
        jobs=jobs,
        executor=executor,
        seed=seed,
        allow_unsafe=allow_unsafe,
        copy_to=copy_to,
        charged=charged,
        progress=progress,
    )
    # The folder is readable only by its owner. The finalizer below removes it together with the release.
    workspace = Path(tempfile.mkdtemp(prefix="privopt-"))
    try:
        solved = solve_into(mechanism, problem_source, workspace / FOLDER, options)
        handle = handle_of(open_verified(solved.folder), solved.meaning)
    except BaseException:
        shutil.rmtree(workspace, ignore_errors=True)
        raise
    # Methods such as audit and save read the folder again, so it must live as long as the handle.
    weakref.finalize(handle, shutil.rmtree, workspace, ignore_errors=True)
    warn_all(solved.warnings)
    return handle


def open_release(folder: Path | str) -> OpenRelease:
    """Verify a release folder and return its release.

    Raises:
        DoesNotHoldError: A checksum or a claim does not hold.
        InputError: The folder cannot be read.
    """
    opened = open_verified(Path(folder))
    return handle_of(opened, meaning_of(opened.mechanism, opened.problem, opened.release, opened.result))
