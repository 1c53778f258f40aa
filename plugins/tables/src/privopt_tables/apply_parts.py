"""Apply a release to a table, part by part: from a file (:mod:`.apply`) or in memory."""

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
"""Rows of a table's first part in which columns that state the secret are looked for."""

STEP_ROWS: Final = 1_000
"""Rows that a release draws for at once where it draws for itself: then it is said how far it is."""


@frozen(kw_only=True)
class ApplySummary:
    """What ``apply`` did.

    Attributes:
        rows: of the table.
        refused: rows without a report, by reason.
        notes: what the publisher of the table must know, a sentence each.
        warnings: what must be looked at before that, a sentence each.
        protector: that drew the reports; None where a finished batch needed none.
        sequence: what holds of all reports of a subject, where they are repeated.
        counts: of words, where sentences were protected.
        dropped: columns that were dropped because their values state the secret.
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
        """Rows with a report."""
        return self.rows - sum(self.refused.values())

    def to_json(self) -> dict[str, Any]:
        """Return the object that ``privopt apply --json`` prints."""
        more: dict[str, Any] = {} if self.sequence is None else {"sequence": self.sequence}
        if self.dropped:
            more["dropped"] = list(self.dropped)
        return {"rows": self.rows, "reported": self.reported, "refused": dict(self.refused), **self.counts, **more}


def cost_of_row(opened: OpenedFolder, asked: ApplyOptions, purpose: str) -> Cost:
    """Return what each row is charged: the cost of a report, once for each position.

    Raises:
        UsageError: a release that cannot be charged.
    """
    return cost_of(opened.folder, opened.result, opened.relation, purpose).times(max(1, len(asked.positions)))


def apply_parts(
    opened: OpenedFolder,
    source: GeoSource,
    secret: Secret,
    asked: ApplyOptions,
    target: AbstractContextManager[Callable[[nw.DataFrame[Any]], object]],
    *,
    purpose: str = "apply",
    dashes: str = "",
    batch: Batch | None = None,
    progress: Progress | None = None,
    announce: Callable[[str], object] | None = None,
) -> ApplySummary:
    """Protect a table from wherever: what is wrong is found before a charge, and a charge comes before its draw.

    The block of ``target`` gives what takes the batches with their reports; where no row has one it ends with an error.
    ``announce`` is called with what a row costs its subject, before anything is charged.
    """
    walker = opened.release.walker if isinstance(opened.release, MatrixRelease) else None
    check_subject(walker, asked.subject_column, asked.time, charged=asked.charge is not None, dashes=dashes)
    secret, charging = source.whole(secret), None
    if asked.charge is not None:
        charging = RowCharger(to=asked.charge, cost=cost_of_row(opened, asked, purpose), time=asked.time)
    sums = sha256(opened.folder / SUMS)
    coins = None if batch is None else batch.coins(sums)
    protector = _protector_of(opened, secret, asked, charging, coins)
    protector.check(list(source.columns), source.name)
    protector = _without_leaks(protector, source, asked)
    with ExitStack() as stack:
        digest = charged_digest = None
        if charging is not None:
            stack.enter_context(charging.opened(progress))
            if asked.time is not None and walker is None and not charging.by_calendar:
                cure = f"privopt budget {charging.to.path} --set AMOUNT --per day makes one"
                raise UsageError(f"apply: {dashes}time must be omitted: the ledger has no limit by calendar; {cure}")
            if batch is not None:
                digest = _digest_of_options(batch, sums, asked, source)
                charged_digest = evolve(digest)  # of the rows as they are drawn for, in the second reading
            if not _read_through(source, charging, protector, digest, progress):
                raise protector.no_report_error(source.place)
            if announce is not None and protector.price is not None:
                announce(protector.price)
            if batch is not None and digest is not None:
                charging.begin(batch)
                if charging.paid and not batch.record:
                    raise DoesNotHoldError(
                        f"{batch.folder}: changed: {asked.batch} was charged, and its record is gone"
                    )
                batch.begin(digest)
        rows, write, begun = 0, stack.enter_context(target), time.perf_counter()
        for frame in _parts(source, protector, whole=asked.time is not None and walker is not None):
            with naming(source.name):
                if charged_digest is not None:
                    protector.add_rows(charged_digest, frame, rows)
                made = protector.protect(frame, rows)
            write(made)
            rows += len(frame)
            if progress is not None:
                rate = rows / max(time.perf_counter() - begun, 1e-9)
                progress(f"{rows:,} rows protected, {rate:,.0f} a second", 0, None, None)
        if digest is not None and charged_digest is not None and digest.text != charged_digest.text:
            # a batch that is repeated draws for the rows of its digest: for others it would draw a second report
            raise DoesNotHoldError(f"{source.place}: changed while it was read; nothing written")
        done = ApplySummary(
            rows=rows,
            refused=dict(protector.refusals),
            notes=protector.notes(opened.result.guarantee),
            warnings=protector.warnings([*source.columns, *source.index]),
            protector=protector,
            sequence=protector.sequence if protector.is_sticky else None,
            counts=protector.counts,
            dropped=tuple(leak.name for leak in protector.leaks if leak.name in protector.secret.also),
        )
        if not done.reported:
            raise protector.no_report_error(source.place)
    return done


def _without_leaks(protector: RowProtector, source: GeoSource, asked: ApplyOptions) -> RowProtector:
    """Return a protector that drops the columns whose values state the secret, by a sample of the table's first part.

    A column that is named like a position of its own, such as a trip's other end, is dropped if most of the sample's
    rows state the secret in it; otherwise it is named alone: round trips state it too.
    """
    for name in asked.keep:
        if name not in source.columns:
            raise UsageError(f"keep must name columns of the table, got {cut(name)}")
    frame = next(source.batches(), None)
    if frame is None or not len(frame):
        return protector
    secret, names = protector.secret, list(source.columns)
    charged = () if asked.charge is None else (asked.charge.subject,)
    needed = {*secret.columns, *secret.also, *secret.geometries, asked.subject_column, asked.time, *charged}
    others = [
        name
        for name in names
        if name not in needed and not is_of_report(name, names) and not is_box(frame[name])  # refused by Secret.without
    ]
    positions_in_names = {*like_positions(names), *like_places(names)}
    if len(frame) > SEARCHED_ROWS:
        frame = frame[np.unique(np.linspace(0, len(frame) - 1, SEARCHED_ROWS).astype(np.int64)).tolist()]
    with naming(source.name):
        leaks = tuple(find_position_columns(frame, protector.row_secrets(frame), others))
    dropped = tuple(
        leak.name
        for leak in leaks
        if leak.name not in asked.keep
        and (leak.name not in positions_in_names or leak.rows >= MIN_DROPPED_SHARE * leak.sampled)
    )
    return evolve(protector, secret=evolve(secret, also=(*secret.also, *dropped)), leaks=leaks)


def _read_through(
    source: GeoSource, charging: RowCharger, protector: RowProtector, digest: Digest | None, progress: Progress | None
) -> int:
    """Read a table whole before anybody is charged, so that a broken row at its end costs nothing; its rows."""
    rows = 0
    for frame in source.batches():
        with naming(source.name):
            if digest is None:
                charging.subjects(frame)
                charging.periods(frame)
            else:
                protector.add_rows(digest, frame, rows)
        rows += len(frame)
        if progress is not None:
            progress("reading", 0, None, None)
    return rows


def _digest_of_options(batch: Batch, sums: str, asked: ApplyOptions, source: GeoSource) -> Digest:
    """Return the digest of a batch before its first row: release, columns and options."""
    digest = Digest(batch.key())
    options = asdict(evolve(asked, charge=None, subject=asked.subject_column))
    digest.add(b"options", json.dumps([sums, source.columns, options], sort_keys=True).encode())
    return digest


def _parts(source: GeoSource, protector: RowProtector, *, whole: bool) -> Iterator[nw.DataFrame[Any]]:
    """Yield the rows of a table in parts, or at once; in small parts where a release draws for itself, slowly maybe."""
    batches = source.batches()
    if isinstance(protector, IdProtector):
        return (
            frame[start : start + STEP_ROWS] for frame in batches for start in range(0, max(1, len(frame)), STEP_ROWS)
        )
    if not whole:
        return batches
    held = list(batches)
    return iter(held if len(held) == 1 else [nw.concat(held)])


def _protector_of(
    opened: OpenedFolder, secret: Secret, asked: ApplyOptions, charging: RowCharger | None, coins: Coins | None
) -> RowProtector:
    """Choose what protects the rows: a matrix, row by row or word by word, or whatever draws for itself.

    Raises:
        UsageError: the release draws nothing, or only for itself where a matrix is needed.
    """
    release, problem = opened.release, opened.problem
    if isinstance(release, MatrixRelease) and isinstance(problem, MetricInstance):
        if asked.text is not None:
            return WordProtector.of(release, secret, asked, charging, coins)
        return PositionProtector.of(release, problem.data, secret, asked, charging, coins)
    if type(release).sample is Release.sample or asked.text is not None:
        matrix_of(opened)
    return IdProtector.of(release, secret, asked, charging)


def combine_secret(
    columns: Mapping[str, str | None], positions: Mapping[str, Sequence[str]], text: str | None = None, dashes: str = ""
) -> Secret:
    """Return the columns that hold the secret: of one position, of all that are named, or of sentences.

    Args:
        columns: of one position, by what they hold.
        positions: the columns of each of several.
        text: the column of sentences.
        dashes: before the names of options in messages.

    Raises:
        UsageError: nothing of these, one of several kinds, or several of these.
    """
    if text is not None:
        if found := [name for name, column in {**columns, "position": positions or None}.items() if column is not None]:
            raise UsageError(f"{dashes}{found[0]} must be omitted with {dashes}text: sentences are the secret")
        return Secret.of(id=text)
    if not positions:
        return Secret.of(**columns)
    if beside := [name for name, column in columns.items() if column is not None]:
        raise UsageError(f"{beside[0]} must be omitted with positions: they name the columns of the secret")
    return Secret(kind="id", columns=tuple(column for given in positions.values() for column in given))
