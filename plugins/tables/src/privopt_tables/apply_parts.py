"""Apply a release to a table part by part, for tables in files and in memory (see :mod:`.apply`).

Privacy and correct accounting depend on the order of the steps. The whole table is read before anyone is charged, and
each row's charge is stored durably before its report is drawn.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Final, TypeVar

import narwhals as nw
from attrs import asdict, evolve, field, frozen

from privopt.declare.column_texts import naming, texts_of
from privopt.declare.name_forms import normal_form
from privopt.errors import DoesNotHoldError, UsageError, cut
from privopt.files.release_folder import SUMS, sha256
from privopt.interfaces import Progress, Release
from privopt.interfaces.cost import Cost
from privopt.ledger.batches import Batch, Coins, Digest
from privopt.ledger.cost_of_report import cost_of
from privopt.run.verify import OpenedFolder
from privopt_metric_dp.matrix.release import MatrixRelease, PositionRelease, matrix_of
from privopt_metric_dp.problem.data import MetricInstance
from privopt_tables.charge_rows import RowCharger
from privopt_tables.clear_columns import (
    ColumnHashes,
    check_column_options,
    describe_clear_ids,
    describe_hashes,
    read_column_key,
)
from privopt_tables.column_names import is_of_report, select_place_names, select_position_names
from privopt_tables.find_positions import MIN_DROPPED_SHARE, ColumnSearch
from privopt_tables.options import ApplyOptions
from privopt_tables.rows.anywhere import AnywhereProtector
from privopt_tables.rows.by_id import IdProtector
from privopt_tables.rows.by_position import PositionProtector
from privopt_tables.rows.by_word import WordProtector
from privopt_tables.rows.protector import RowProtector
from privopt_tables.secret_columns import GeoSource, Secret, is_box
from privopt_tables.trace_rows import check_subject

__all__ = ["ApplySummary", "apply_parts", "combine_secret", "cost_of_row"]

P = TypeVar("P", bound=RowProtector)

STEP_ROWS: Final = 1_000
"""The maximum number of rows per part for a release with its own sampler.

Such samplers may be slow, and progress is shown after each part.
"""


@frozen(kw_only=True)
class ApplySummary:
    """The outcome of applying a release to a table.

    Attributes:
        rows: The number of rows in the table.
        refused: The number of rows without a report, by reason.
        notes: Notes for the publisher of the table.
        warnings: Warnings that the owner must consider before publishing the table.
        protector: The protector that drew the reports. None for a batch that was finished by an earlier run.
        sequence: A sentence that states the guarantee for all of a subject's reports together. None unless stored
            reports are repeated.
        counts: The numbers of reported, dropped and masked words, by kind. Empty unless sentences were protected.
        dropped: The columns that were dropped because their values reveal the secret.
    """

    rows: int
    refused: Mapping[str, int]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    protector: RowProtector | None = None
    sequence: str | None = None
    counts: Mapping[str, int] = field(factory=dict)
    dropped: tuple[str, ...] = ()

    @property
    def reported(self) -> int:
        """The number of rows with a report."""
        return self.rows - sum(self.refused.values())

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object printed by ``privopt apply --json``."""
        optional: dict[str, Any] = {} if self.sequence is None else {"sequence": self.sequence}
        if self.dropped:
            optional["dropped"] = list(self.dropped)
        return {"rows": self.rows, "reported": self.reported, "refused": dict(self.refused), **self.counts, **optional}


def cost_of_row(opened: OpenedFolder, options: ApplyOptions, purpose: str) -> Cost:
    """Return the charge for one row: the cost of a report times the number of positions in the row.

    Args:
        opened: The verified release.
        options: How the release is applied.
        purpose: The purpose of the charge in words, for the ledger.

    Raises:
        UsageError: The release has no cost that can be charged.
    """
    # If no positions are named, a row has a single one.
    return cost_of(opened.folder, opened.result, opened.relation, purpose).times(max(1, len(options.positions)))


def apply_parts(
    opened: OpenedFolder,
    source: GeoSource,
    secret: Secret,
    options: ApplyOptions,
    target: AbstractContextManager[Callable[[nw.DataFrame[Any]], object]],
    *,
    purpose: str = "apply",
    dashes: str = "",
    batch: Batch | None = None,
    progress: Progress | None = None,
    announce: Callable[[str], object] | None = None,
) -> ApplySummary:
    """Protect a table part by part, and return a summary.

    Args:
        opened: The verified release.
        source: The table, which is read twice, or three times with a ledger.
        secret: The columns that hold the secret.
        options: How the release is applied.
        target: A context manager that yields a function to write the protected parts. If no row received a report, the
            error is raised inside the manager's ``with`` block, so that the manager can discard what was written.
        purpose: The purpose of the charges in words, for the ledger.
        dashes: The prefix of option names in messages, such as ``--``.
        batch: The batch, which makes it possible to continue an interrupted run. None if there is no batch.
        progress: A function that is called with the progress so far, such as the number of protected rows.
        announce: A function that is called before anything is charged, with a sentence that states how much a subject
            is charged for each row.

    Raises:
        DoesNotHoldError: The ledger or the batch fails verification, or the table changed while it was being read.
        InputError: The table or the ledger is invalid or cannot be read.
        UsageError: Options are mutually exclusive or do not match the table or the ledger, or no row received a report.
    """
    # A walker draws the reports along a trace, that is, for one subject's rows in order of time. Only a matrix release
    # can have one.
    walker = opened.release.walker if isinstance(opened.release, MatrixRelease) else None
    check_subject(walker, options.subject_column, options.time, charged=options.charge is not None, dashes=dashes)
    check_column_options(options, list(source.columns), secret.columns, dashes)
    secret, charger = source.complete_secret(evolve(secret, unwanted=options.drop)), None
    if options.charge is not None:
        cost = cost_of_row(opened, options, purpose)
        charger = RowCharger(charge=options.charge, cost=cost, time=options.time, forms=options.forms)
    # The digest of the folder's file of checksums identifies the release.
    sums = sha256(opened.folder / SUMS)
    coins = None if batch is None else batch.coins(sums)
    protector = _make_protector(opened, secret, options, charger, coins)
    protector.check(list(source.columns), source.name)
    protector = _drop_leaks(protector, source, options, progress)
    with ExitStack() as stack:
        digest = second_digest = None
        # The key file is read or created before anybody is charged, because this may fail.
        key = None if not options.hashed or options.hash_key is None else read_column_key(options.hash_key)
        if charger is not None:
            stack.enter_context(charger.open_ledger(progress))
            if options.time is not None and walker is None and not charger.has_calendar:
                cure = f"privopt budget {charger.charge.path} --set AMOUNT --per day makes one"
                raise UsageError(f"apply: {dashes}time must be omitted: the ledger has no limit by calendar; {cure}")
            if batch is not None:
                digest = _digest_of_options(batch, sums, options, source)
                # The table is read twice from here on. The second digest tells whether both readings saw the same rows.
                second_digest = evolve(digest)
            # A malformed row raises its error here, before anybody is charged.
            if not _read_through(source, charger, protector, digest, progress):
                raise protector.no_report_error(source.place)
            # The price is announced before the first charge, while the user can still interrupt the run.
            if announce is not None and protector.price is not None:
                announce(protector.price)
            if batch is not None and digest is not None:
                _begin_batch(batch, charger, digest)
        if options.hashed:
            if key is None:
                assert charger is not None  # check_column_options has rejected hashes without any key
                key = charger.column_key()
            protector.column_hashes.append(ColumnHashes(columns=options.hashed, key=key))
        write = stack.enter_context(target)
        parts = _iter_parts(source, protector, at_once=options.time is not None and walker is not None)
        rows = _protect_parts(parts, source, protector, write, second_digest, progress)
        if digest is not None and second_digest is not None and digest.text != second_digest.text:
            # A repeated run of the batch would draw second reports for the rows that have changed.
            raise DoesNotHoldError(f"{source.place}: changed while it was read; nothing written")
        # `omitted` has the columns that are left out in addition to those replaced by reports.
        remaining_names = [name for name in source.columns if name not in (*secret.columns, *protector.secret.omitted)]
        # A column to hash may have been dropped because it contains the secret, so only the remaining ones count as
        # hashed.
        hashed_names = [name for name in options.hashed if name in remaining_names]
        id_notes = (*describe_hashes(hashed_names, dashes), *describe_clear_ids(remaining_names, options, dashes))
        summary = ApplySummary(
            rows=rows,
            refused=dict(protector.refusals),
            notes=(*protector.notes(opened.result.guarantee), *id_notes),
            warnings=(*protector.warnings([*source.columns, *source.index]), *_describe_unreadable(source)),
            protector=protector,
            sequence=protector.sequence if protector.is_sticky else None,
            counts=protector.counts,
            dropped=tuple(leak.name for leak in protector.leaks if leak.name in protector.secret.also),
        )
        if not summary.reported:
            raise protector.no_report_error(source.place)
    return summary


def _describe_unreadable(source: GeoSource) -> tuple[str, ...]:
    """Return a note on the columns omitted because their type cannot be read, or an empty tuple if there are none."""
    if not source.unreadable:
        return ()
    names = ", ".join(source.unreadable)
    return (f"columns of a type that cannot be read are left out of the protected table: {names}",)


def _protect_parts(
    parts: Iterator[nw.DataFrame[Any]],
    source: GeoSource,
    protector: RowProtector,
    write: Callable[[nw.DataFrame[Any]], object],
    digest: Digest | None,
    progress: Progress | None,
) -> int:
    """Draw and write the reports for each part of a table, and return the number of rows.

    Args:
        parts: The parts of the table, in order.
        source: The source of the table, whose name is added to error messages.
        protector: The protector that draws the reports.
        write: A function that writes a part with its reports.
        digest: A digest to which the rows are added as they are read. The caller compares it with the digest of the
            rows that were read before the first charge. None if there is no batch.
        progress: A function that is called after each part with the number of protected rows so far.
    """
    rows, start = 0, time.perf_counter()
    for frame in parts:
        with naming(source.name):
            if digest is not None:
                protector.add_rows(digest, frame, rows)
            # `rows` is the index of this part's first row in the whole table.
            reported_frame = protector.protect(frame, rows)
        write(reported_frame)
        rows += len(frame)
        if progress is not None:
            # The lower limit avoids a division by zero if the clock has not advanced since the start.
            rate = rows / max(time.perf_counter() - start, 1e-9)
            progress(f"{rows:,} rows protected, {rate:,.0f} a second", 0, None, None)
    return rows


def _begin_batch(batch: Batch, charger: RowCharger, digest: Digest) -> None:
    """Record the inputs of a new batch, or check that the inputs of a continued batch are unchanged.

    Args:
        batch: The batch to begin or to continue.
        charger: The charger, which reads the batch's earlier charges from the ledger.
        digest: The digest of the inputs, which are the release, the options and the rows.

    Raises:
        DoesNotHoldError: The batch has charges, but its record is missing.
        UsageError: The batch was started with a different table, release or options.
    """
    charger.begin(batch)
    # Without the record, the batch could be continued with another table, for whose reports nobody was charged.
    if charger.earlier_charges and not batch.record:
        raise DoesNotHoldError(f"{batch.folder}: changed: {batch.name} was charged, but its record is gone")
    batch.begin(digest)


def _drop_leaks(
    protector: RowProtector, source: GeoSource, options: ApplyOptions, progress: Progress | None
) -> RowProtector:
    """Return a protector that also drops any columns whose values reveal the secret (see :func:`drop_columns`).

    All parts are searched before anything is charged or written, because a column may reveal the secret only in its
    last rows.

    Args:
        protector: The protector to modify.
        source: The table.
        options: How the release is applied. Columns in ``keep`` are never dropped.
        progress: A function that is called after each part.

    Raises:
        UsageError: ``keep`` names a column that is not in the table.
        InputError: A column to hash has a type that cannot be converted to strings.
    """
    # A misspelt name must be rejected, because the column that the owner meant to keep would be dropped.
    for name in options.keep:
        if name not in source.columns:
            raise UsageError(f"keep must name columns of the table, got {cut(name)}")
    search: ColumnSearch | None = None
    for frame in source.batches():
        with naming(source.name):
            for name in options.hashed:
                # Converting zero rows is enough to raise the error for an unsuitable type before anything is charged.
                texts_of(frame[name][:0])
            if search is None:
                # All parts have the same columns, so the first one determines which columns are searched.
                search = ColumnSearch(columns_to_search(protector, frame, options))
            search.add_part(frame, protector.row_secrets(frame))
            protector.look_at_secrets(frame)
        if progress is not None:
            progress("searching other columns for the secret", 0, None, None)
    return protector if search is None else drop_columns(protector, search, list(source.columns), options)


def columns_to_search(protector: RowProtector, frame: nw.DataFrame[Any], options: ApplyOptions) -> list[str]:
    """Return the names of the columns that would remain in a protected table and must be searched for the secret.

    They include the columns of subjects and times, which may state the secret too.

    Args:
        protector: The protector, which names the columns of the secret.
        frame: A part of the table.
        options: How the release is applied.
    """
    secret, names = protector.secret, frame.columns
    # These columns are not searched, because they are dropped or have a warning of their own.
    excluded = {*secret.columns, *secret.omitted, *secret.geometries}
    # Nor are subjects and times that are hashed. They are needed, so they could not be dropped if they were found.
    excluded |= {*options.hashed} & {options.subject_column, options.time}
    return [
        name
        for name in names
        # Reports from an earlier run of apply are not searched. Bounding boxes are rejected by Secret.without.
        if name not in excluded and not is_of_report(name, names) and not is_box(frame[name])
    ]


def drop_columns(protector: P, search: ColumnSearch, names: Sequence[str], options: ApplyOptions) -> P:
    """Return a protector that drops the columns in which a search has found the secret.

    A column for another position, such as the other end of a trip, may contain the secret in some rows, for example on
    round trips. Therefore, a column whose name suggests a position or a place is dropped only if it contains the secret
    in at least half of the rows searched. Otherwise, the column is kept and a warning is added.

    Args:
        protector: The protector to modify.
        search: The search, to which all parts of the table have been added.
        names: The names of the table's columns.
        options: How the release is applied. Columns in ``keep`` and those of subjects and times are never dropped.
    """
    leaks = tuple(search.columns())
    names_to_keep = {*options.keep, options.subject_column, options.time}
    positions_in_names = {*select_position_names(names), *select_place_names(names)}
    dropped = tuple(
        leak.name
        for leak in leaks
        if leak.name not in names_to_keep
        and (leak.name not in positions_in_names or leak.rows >= MIN_DROPPED_SHARE * leak.sampled)
    )
    # Columns in `also` are left out of the protected table, like those that hold the secret.
    return evolve(protector, secret=evolve(protector.secret, also=(*protector.secret.also, *dropped)), leaks=leaks)


def _read_through(
    source: GeoSource, charger: RowCharger, protector: RowProtector, digest: Digest | None, progress: Progress | None
) -> int:
    """Read the whole table, and return the number of rows.

    This ensures that malformed rows are found before anyone is charged.

    Args:
        source: The table.
        charger: The charger, which records the first row without a subject and the first without a usable time.
        protector: The protector, which adds the rows to ``digest``.
        digest: The batch's digest, to which the rows are added. None if there is no batch.
        progress: A function that is called after each part.
    """
    rows = 0
    for frame in source.batches():
        with naming(source.name):
            # Reading the parts already reveals malformed rows. The charger charges nothing here. It notes the first
            # rows without a subject or a time, for warnings, and rejects times that are numbers.
            charger.note_skipped_rows(frame, rows)
            if digest is not None:
                protector.add_rows(digest, frame, rows)
        rows += len(frame)
        if progress is not None:
            progress("reading", 0, None, None)
    return rows


def _digest_of_options(batch: Batch, sums: str, options: ApplyOptions, source: GeoSource) -> Digest:
    """Return a keyed digest of a batch's release, columns and options, to which the rows are added later.

    Args:
        batch: The batch, which provides the key of the digest.
        sums: The SHA-256 digest of the release's checksum file.
        options: How the release is applied.
        source: The table, whose column names are included in the digest.
    """
    digest = Digest(batch.key())
    # The path of the key file is left out. It does not affect the reports, and the file may be moved between two runs.
    values = asdict(evolve(options, charge=None, subject=options.subject_column, hash_key=None))
    digest.add(b"options", json.dumps([sums, source.columns, values], sort_keys=True).encode())
    return digest


def _iter_parts(source: GeoSource, protector: RowProtector, *, at_once: bool) -> Iterator[nw.DataFrame[Any]]:
    """Iterate over the parts of a table, in sizes that suit the protector.

    Args:
        source: The table.
        protector: The protector. An :class:`IdProtector` gets parts of at most :data:`STEP_ROWS` rows, because its
            release may draw slowly.
        at_once: Whether the whole table must be a single part.
    """
    batches = source.batches()
    if isinstance(protector, IdProtector):
        return (
            # An empty frame is still yielded once, so that a table without rows keeps its columns.
            frame[start : start + STEP_ROWS]
            for frame in batches
            for start in range(0, max(1, len(frame)), STEP_ROWS)
        )
    if not at_once:
        return batches
    frames = list(batches)
    # For traces, a subject's rows are sorted by time across the whole table, so the table must be a single part.
    return iter(frames if len(frames) == 1 else [nw.concat(frames)])


def _make_protector(
    opened: OpenedFolder, secret: Secret, options: ApplyOptions, charger: RowCharger | None, coins: Coins | None
) -> RowProtector:
    """Return the protector that draws reports for a table's rows from a release.

    A release with a matrix can protect positions, ids and words. Any other release can protect only positions or ids.

    Args:
        opened: The verified release and its problem.
        secret: The columns that hold the secret.
        options: How the release is applied.
        charger: The charger, which charges each row to its subject. None if there is no ledger.
        coins: The source of the batch's random bytes. None if there is no batch.

    Raises:
        UsageError: The release cannot draw reports, or has no matrix although the options require one.
    """
    release, problem = opened.release, opened.problem
    if isinstance(release, MatrixRelease) and isinstance(problem, MetricInstance):
        if options.text is not None:
            return WordProtector.of(release, secret, options, charger, coins)
        return PositionProtector.of(release, problem.data, secret, options, charger, coins)
    # A release class that does not override `sample` can only draw from a matrix, and sentences require a matrix over
    # words.
    if type(release).sample is Release.sample or options.text is not None:
        # This raises the error that the release has no matrix.
        matrix_of(opened)
    if isinstance(release, PositionRelease) and (options.positions or secret.kind != "id"):
        return AnywhereProtector.of(release, secret, options, charger)
    return IdProtector.of(release, secret, options, charger)


def combine_secret(
    columns: Mapping[str, str | None], positions: Mapping[str, Sequence[str]], text: str | None = None, dashes: str = ""
) -> Secret:
    """Combine the columns that hold the secret: a single position or id, several named positions, or sentences.

    Args:
        columns: The columns of a single position or id, keyed by what they contain. Columns that are not given are
            None.
        positions: The columns of several positions, keyed by the name of the position. Empty if there are no named
            positions.
        text: The column of sentences. None if there is no such column.
        dashes: The prefix of option names in messages, such as ``--``.

    Raises:
        UsageError: More than one of the three is given, or the given columns do not form a valid combination.
    """
    if text is not None:
        # An empty mapping stands for no named positions, and must not count as a choice.
        choices = {**columns, "position": positions or None}
        if names := [name for name, choice in choices.items() if choice is not None]:
            raise UsageError(f"{dashes}{names[0]} must be omitted with {dashes}text: sentences are the secret")
        return Secret.of(id=text)
    if not positions:
        return Secret.of(**columns)
    if names := [name for name, column in columns.items() if column is not None]:
        raise UsageError(f"{names[0]} must be omitted with positions: they name the columns of the secret")
    # This secret only lists the columns to replace. Each position gets a secret of its own, so `kind` has no effect
    # here.
    return Secret(kind="id", columns=tuple(normal_form(column) for pair in positions.values() for column in pair))
