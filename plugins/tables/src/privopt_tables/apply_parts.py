"""Apply a release to a table part by part, from a file (:mod:`.apply`) or in memory.

The order is what privacy and a ledger's owner rest on: the whole table is read before anybody is charged, and every row
is charged, durably, before anything is drawn for it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from typing import Any, Final

import narwhals as nw
import numpy as np
from attrs import asdict, evolve, field, frozen

from privopt.declare.column_texts import naming
from privopt.errors import DoesNotHoldError, UsageError, cut
from privopt.files.release_folder import SUMS, sha256
from privopt.interfaces import Progress, Release
from privopt.interfaces.cost import Cost
from privopt.ledger.batches import Batch, Coins, Digest
from privopt.ledger.cost_of_report import cost_of
from privopt.run.verify import OpenedFolder
from privopt_metric_dp.matrix.release import MatrixRelease, matrix_of
from privopt_metric_dp.problem.data import MetricInstance
from privopt_tables.charge_rows import RowCharger
from privopt_tables.column_names import is_of_report, like_places, like_positions
from privopt_tables.find_positions import MIN_DROPPED_SHARE, find_position_columns
from privopt_tables.options import ApplyOptions
from privopt_tables.rows.by_id import IdProtector
from privopt_tables.rows.by_position import PositionProtector
from privopt_tables.rows.by_word import WordProtector
from privopt_tables.rows.protector import RowProtector
from privopt_tables.secret_columns import GeoSource, Secret, is_box
from privopt_tables.trace_rows import check_subject

__all__ = ["ApplySummary", "apply_parts", "combine_secret", "cost_of_row"]

SEARCHED_ROWS: Final = 5_000
"""Number of rows of a table's first part in which columns that state the secret are looked for."""

STEP_ROWS: Final = 1_000
"""Number of rows drawn at once by a release that draws for itself: it may be slow, and progress is told in between."""


@frozen(kw_only=True)
class ApplySummary:
    """What ``apply`` did.

    Attributes:
        rows: Number of rows of the table.
        refused: Number of rows without a report, by reason.
        notes: Sentences that the publisher of the table must know.
        warnings: Sentences on what the owner must look at before publishing the table.
        protector: What drew the reports; None if a finished batch needed none.
        sequence: What holds of all reports of a subject, if stored reports are repeated.
        counts: Numbers of words, if sentences were protected.
        dropped: Columns that were dropped because their values state the secret.
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
        """Number of rows with a report."""
        return self.rows - sum(self.refused.values())

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``privopt apply --json`` prints."""
        optional: dict[str, Any] = {} if self.sequence is None else {"sequence": self.sequence}
        if self.dropped:
            optional["dropped"] = list(self.dropped)
        return {"rows": self.rows, "reported": self.reported, "refused": dict(self.refused), **self.counts, **optional}


def cost_of_row(opened: OpenedFolder, options: ApplyOptions, purpose: str) -> Cost:
    """Return what each row is charged: the cost of a report, once for each position.

    Raises:
        UsageError: The release cannot be charged.
    """
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
    """Protect a table of any source.

    Args:
        opened: The release.
        source: The table; it is read twice if there is a ledger.
        secret: The columns that hold the secret.
        options: How the release is applied.
        target: Its block yields a function that takes the parts with their reports. If the table has no report at all,
            the block ends with an error.
        purpose: The purpose of charges, in words.
        dashes: Dashes before the names of options in messages.
        batch: The batch, which can be repeated after a kill; None for none.
        progress: Called with the number of rows that are done.
        announce: Called with what a row costs its subject, before anything is charged.

    Raises:
        DoesNotHoldError: The ledger or the batch does not hold, or the table changed while it was read.
        InputError: A table, or a ledger, that cannot be used.
        UsageError: Options that exclude one another, or no row with a report.
    """
    walker = opened.release.walker if isinstance(opened.release, MatrixRelease) else None
    check_subject(walker, options.subject_column, options.time, charged=options.charge is not None, dashes=dashes)
    secret, charger = source.whole(secret), None
    if options.charge is not None:
        cost = cost_of_row(opened, options, purpose)
        charger = RowCharger(to=options.charge, cost=cost, time=options.time, forms=options.forms)
    sums = sha256(opened.folder / SUMS)
    coins = None if batch is None else batch.coins(sums)
    protector = _make_protector(opened, secret, options, charger, coins)
    protector.check(list(source.columns), source.name)
    protector = _drop_leaks(protector, source, options)
    with ExitStack() as stack:
        digest = second_digest = None
        if charger is not None:
            stack.enter_context(charger.opened(progress))
            if options.time is not None and walker is None and not charger.by_calendar:
                cure = f"privopt budget {charger.to.path} --set AMOUNT --per day makes one"
                raise UsageError(f"apply: {dashes}time must be omitted: the ledger has no limit by calendar; {cure}")
            if batch is not None:
                digest = _digest_of_options(batch, sums, options, source)
                second_digest = evolve(digest)
            if not _read_through(source, charger, protector, digest, progress):
                raise protector.no_report_error(source.place)
            if announce is not None and protector.price is not None:
                announce(protector.price)
            if batch is not None and digest is not None:
                _begin_batch(batch, charger, digest)
        write = stack.enter_context(target)
        parts = _iter_parts(source, protector, at_once=options.time is not None and walker is not None)
        rows = _protect_parts(parts, source, protector, write, second_digest, progress)
        if digest is not None and second_digest is not None and digest.text != second_digest.text:
            # A repeated batch draws for the rows of its digest. For other rows it would draw a second report.
            raise DoesNotHoldError(f"{source.place}: changed while it was read; nothing written")
        summary = ApplySummary(
            rows=rows,
            refused=dict(protector.refusals),
            notes=protector.notes(opened.result.guarantee),
            warnings=protector.warnings([*source.columns, *source.index]),
            protector=protector,
            sequence=protector.sequence if protector.is_sticky else None,
            counts=protector.counts,
            dropped=tuple(leak.name for leak in protector.leaks if leak.name in protector.secret.also),
        )
        if not summary.reported:
            raise protector.no_report_error(source.place)
    return summary


def _protect_parts(
    parts: Iterator[nw.DataFrame[Any]],
    source: GeoSource,
    protector: RowProtector,
    write: Callable[[nw.DataFrame[Any]], object],
    digest: Digest | None,
    progress: Progress | None,
) -> int:
    """Draw and write the reports of each part; return the number of rows.

    Args:
        parts: The table.
        source: The table's source, for messages.
        protector: Draws the reports.
        write: Takes each part with its reports.
        digest: Is changed to that of the rows as they are drawn for; None without a batch.
        progress: Called with the number of rows that are done.
    """
    rows, start = 0, time.perf_counter()
    for frame in parts:
        with naming(source.name):
            if digest is not None:
                protector.add_rows(digest, frame, rows)
            reported_frame = protector.protect(frame, rows)
        write(reported_frame)
        rows += len(frame)
        if progress is not None:
            rate = rows / max(time.perf_counter() - start, 1e-9)
            progress(f"{rows:,} rows protected, {rate:,.0f} a second", 0, None, None)
    return rows


def _begin_batch(batch: Batch, charger: RowCharger, digest: Digest) -> None:
    """Bind a batch to its table, or hold it to the table that it was bound to.

    Raises:
        DoesNotHoldError: The batch was charged, and its record is gone.
        UsageError: The batch began with another table, release or options.
    """
    charger.begin(batch)
    # Without its record the batch could be continued with another table, whose reports nobody paid for.
    if charger.paid and not batch.record:
        raise DoesNotHoldError(f"{batch.folder}: changed: {batch.name} was charged, and its record is gone")
    batch.begin(digest)


def _drop_leaks(protector: RowProtector, source: GeoSource, options: ApplyOptions) -> RowProtector:
    """Return a protector that drops the columns whose values state the secret, by a sample of the table's first part.

    A column that is named like a position of its own, such as a trip's other end, is dropped if most of the sample's
    rows state the secret in it; otherwise it is named alone: round trips state it too.
    """
    for name in options.keep:
        if name not in source.columns:
            raise UsageError(f"keep must name columns of the table, got {cut(name)}")
    frame = next(source.batches(), None)
    if frame is None or not len(frame):
        return protector
    secret, names = protector.secret, list(source.columns)
    charge_columns = () if options.charge is None else (options.charge.subject,)
    needed = {*secret.columns, *secret.also, *secret.geometries, options.subject_column, options.time, *charge_columns}
    searched = [
        name
        for name in names
        if name not in needed and not is_of_report(name, names) and not is_box(frame[name])  # refused by Secret.without
    ]
    positions_in_names = {*like_positions(names), *like_places(names)}
    if len(frame) > SEARCHED_ROWS:
        frame = frame[np.unique(np.linspace(0, len(frame) - 1, SEARCHED_ROWS).astype(np.int64)).tolist()]
    with naming(source.name):
        leaks = tuple(find_position_columns(frame, protector.row_secrets(frame), searched))
    dropped = tuple(
        leak.name
        for leak in leaks
        if leak.name not in options.keep
        and (leak.name not in positions_in_names or leak.rows >= MIN_DROPPED_SHARE * leak.sampled)
    )
    return evolve(protector, secret=evolve(secret, also=(*secret.also, *dropped)), leaks=leaks)


def _read_through(
    source: GeoSource, charger: RowCharger, protector: RowProtector, digest: Digest | None, progress: Progress | None
) -> int:
    """Read the whole table, so that a broken row at its end is found before anybody is charged.

    Args:
        source: The table.
        charger: Reads subjects and periods.
        protector: Adds rows to the digest.
        digest: The digest of a batch, changed in place; None without a batch.
        progress: Called after each part.

    Returns:
        The number of rows.
    """
    rows = 0
    for frame in source.batches():
        with naming(source.name):
            charger.look(frame, rows)
            if digest is not None:
                protector.add_rows(digest, frame, rows)
        rows += len(frame)
        if progress is not None:
            progress("reading", 0, None, None)
    return rows


def _digest_of_options(batch: Batch, sums: str, options: ApplyOptions, source: GeoSource) -> Digest:
    """Return the digest of a batch before its first row: release, columns and options."""
    digest = Digest(batch.key())
    values = asdict(evolve(options, charge=None, subject=options.subject_column))
    digest.add(b"options", json.dumps([sums, source.columns, values], sort_keys=True).encode())
    return digest


def _iter_parts(source: GeoSource, protector: RowProtector, *, at_once: bool) -> Iterator[nw.DataFrame[Any]]:
    """Iterate over the parts of a table: small ones for a release that draws for itself, or the table at once."""
    batches = source.batches()
    if isinstance(protector, IdProtector):
        return (
            frame[start : start + STEP_ROWS] for frame in batches for start in range(0, max(1, len(frame)), STEP_ROWS)
        )
    if not at_once:
        return batches
    frames = list(batches)
    return iter(frames if len(frames) == 1 else [nw.concat(frames)])


def _make_protector(
    opened: OpenedFolder, secret: Secret, options: ApplyOptions, charger: RowCharger | None, coins: Coins | None
) -> RowProtector:
    """Make the protector for a release: by position or by word for a matrix, by id for a release that draws for itself.

    Raises:
        UsageError: The release draws nothing, or has no matrix although the options need one.
    """
    release, problem = opened.release, opened.problem
    if isinstance(release, MatrixRelease) and isinstance(problem, MetricInstance):
        if options.text is not None:
            return WordProtector.of(release, secret, options, charger, coins)
        return PositionProtector.of(release, problem.data, secret, options, charger, coins)
    if type(release).sample is Release.sample or options.text is not None:
        matrix_of(opened)
    return IdProtector.of(release, secret, options, charger)


def combine_secret(
    columns: Mapping[str, str | None], positions: Mapping[str, Sequence[str]], text: str | None = None, dashes: str = ""
) -> Secret:
    """Return the columns that hold the secret: those of one position, of several positions, or of sentences.

    Args:
        columns: Columns of one position, by what they hold; None for those that are not given.
        positions: Columns of each of several positions, by name.
        text: The column of sentences.
        dashes: Dashes before the names of options in messages.

    Raises:
        UsageError: No choice, or more than one of them.
    """
    if text is not None:
        choices = {**columns, "position": positions or None}
        if names := [name for name, choice in choices.items() if choice is not None]:
            raise UsageError(f"{dashes}{names[0]} must be omitted with {dashes}text: sentences are the secret")
        return Secret.of(id=text)
    if not positions:
        return Secret.of(**columns)
    if names := [name for name, column in columns.items() if column is not None]:
        raise UsageError(f"{names[0]} must be omitted with positions: they name the columns of the secret")
    return Secret(kind="id", columns=tuple(column for pair in positions.values() for column in pair))
