"""``privopt apply``: a table with a report in each row, batch by batch; from a file into a file, or in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import narwhals as nw
import numpy as np
from attrs import evolve, frozen

from privopt.declare.column_texts import REPORT, naming
from privopt.declare.table_files import TableWriter, ending_of
from privopt.errors import DoesNotHoldError, Fault, InputError, UsageError
from privopt.files.release_folder import SUMS, sha256
from privopt.interfaces import Progress
from privopt.interfaces.result import SEEDED
from privopt.ledger.batches import Batch, Digest
from privopt.ledger.charge import Charge
from privopt.ledger.cost_of_report import cost_of
from privopt.run.publish import check_files, new_file
from privopt.run.verify import Opened, open_verified
from privopt_metric_dp.matrix.release import ARTEFACT, MatrixRelease
from privopt_metric_dp.problem.data import MetricInstance
from privopt_metric_dp.tables.application import Application, limits_of, words_of
from privopt_metric_dp.tables.charge_rows import Charging
from privopt_metric_dp.tables.protect import Protector
from privopt_metric_dp.tables.secret_columns import Secret
from privopt_metric_dp.tables.table_source import GeoSource
from privopt_metric_dp.tables.trace_rows import check_subject

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Applied", "apply", "matrix_of", "protected", "whole_secret"]

T = TypeVar("T")


@frozen(kw_only=True)
class Applied:
    """What ``apply`` did.

    Attributes:
        rows: of the table.
        refused: rows without a report, by reason.
        notes: what whoever publishes the table must know, a sentence each.
        warnings: what must be looked at before that, a sentence each.
        protector: that drew the reports; None where a finished batch needed none.
        sequence: what holds of all reports of a subject, where they are repeated.
    """

    rows: int
    refused: Mapping[str, int]
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    protector: Protector | None = None
    sequence: str | None = None

    @property
    def reported(self) -> int:
        """Rows with a report."""
        return self.rows - sum(self.refused.values())

    def to_json(self) -> dict[str, Any]:
        """What ``privopt apply --json`` prints."""
        more = {} if self.sequence is None else {"sequence": self.sequence}
        return {"rows": self.rows, "reported": self.reported, "refused": dict(self.refused), **more}


def matrix_of(opened: Opened) -> tuple[MatrixRelease, MetricInstance[Any]]:
    """The matrix in a folder, and its problem.

    Raises:
        UsageError: the folder's mechanism has none.
    """
    if not isinstance(opened.release, MatrixRelease) or not isinstance(opened.problem, MetricInstance):
        name = opened.registered.spec.name
        raise UsageError(f"{opened.folder}: {name} writes no {ARTEFACT} to draw from: its release is one result")
    return opened.release, opened.problem


def _applied(
    opened: Opened,
    source: GeoSource,
    secret: Secret,
    asked: Application,
    target: AbstractContextManager[Callable[[nw.DataFrame[Any]], object]],
    *,
    purpose: str = "apply",
    dashes: str = "",
    batch: Batch | None = None,
    progress: Progress | None = None,
) -> Applied:
    """Protect a table from wherever: what is wrong is found before a charge, and a charge comes before its draw.

    The block of ``target`` gives what takes the batches with their reports; where no row has one it ends with an error.
    """
    release, problem = matrix_of(opened)
    check_subject(release, asked.whose, asked.time, charged=asked.charge is not None, dashes=dashes)
    secret, charging = source.whole(secret), None
    if asked.charge is not None:
        cost = cost_of(opened.folder, opened.result, purpose)
        cost = evolve(cost, epsilon=max(1, len(asked.positions)) * cost.amount[0])
        charging = Charging(to=asked.charge, cost=cost, time=asked.time)
    sums = sha256(opened.folder / SUMS)
    coins = None if batch is None else batch.coins(sums)
    protector = Protector.of(release, problem.data, secret, asked, charging, coins)
    protector.check(list(source.columns), source.name)
    with ExitStack() as stack:
        if charging is not None:
            stack.enter_context(charging.opened(progress))
            if asked.time is not None and release.walker is None and not charging.by_calendar:
                cure = f"privopt budget {charging.to.path} --set AMOUNT --per day makes one"
                raise UsageError(f"apply: {dashes}time must be left out: the ledger has no limit by calendar; {cure}")
            digest = None if batch is None else _digest_of_options(batch, sums, asked, source)
            _read_through(source, charging, protector, digest, progress)
            if batch is not None and digest is not None:
                charging.begin(batch)
                if charging.paid and not batch.record:
                    raise DoesNotHoldError(
                        f"{batch.folder}: changed: {asked.batch} was charged, and its record is gone"
                    )
                batch.begin(digest)
        rows, write = 0, stack.enter_context(target)
        for frame in _parts(source, whole=asked.time is not None and release.walker is not None):
            with naming(source.name):
                made = protector.protect(frame, rows)
            write(made)
            rows += len(frame)
            if progress is not None:
                progress(f"{rows:,} rows protected", 0, None, None)
        done = Applied(
            rows=rows,
            refused=dict(protector.refused),
            notes=protector.notes(opened.result.guarantee),
            warnings=protector.warnings([*source.columns, *source.index]),
            protector=protector,
            sequence=protector.sequence if protector.keeps else None,
        )
        if not done.reported:
            raise protector.nothing(source.place)
    return done


def _read_through(
    source: GeoSource, charging: Charging, protector: Protector, digest: Digest | None, progress: Progress | None
) -> None:
    """Read a table whole before anybody is charged, so that a broken row at its end costs nothing."""
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


def _digest_of_options(batch: Batch, sums: str, asked: Application, source: GeoSource) -> Digest:
    """The digest of a batch before its first row: release, columns and options."""
    digest = Digest(batch.key())
    options = {
        "release": sums,
        "columns": source.columns,
        "positions": {name: list(columns) for name, columns in asked.positions.items()},
        "max_snap": asked.max_snap,
        "subject": asked.whose,
        "time": asked.time,
        "prefix": asked.prefix,
    }
    digest.add(b"options", json.dumps(options, sort_keys=True).encode())
    return digest


def _parts(source: GeoSource, *, whole: bool) -> Iterator[nw.DataFrame[Any]]:
    """The rows of a table in batches, or at once."""
    batches = source.batches()
    if not whole:
        return batches
    held = list(batches)
    return iter(held if len(held) == 1 else [nw.concat(held)])


# --- from a file into a file ------------------------------------------------------------------------------


def apply(
    folder: Path,
    table: Path,
    out: Path,
    secret: Secret,
    *,
    max_snap: float | None = None,
    seed: int | None = None,
    charge: Charge | None = None,
    subject: str | None = None,
    time: str | None = None,
    prefix: str | None = None,
    positions: Mapping[str, Sequence[str]] | None = None,
    batch: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Applied:
    """Write a table with a report in each row, in place of the columns that hold the secret.

    Args:
        folder: the release; it is checked before it is used.
        table: CSV or Parquet.
        out: the same, by its own ending; written whole or not at all.
        secret: the columns that hold it, of all positions.
        max_snap, seed, charge, subject, time, prefix, positions, batch: as of :class:`Application`.
        force: replace ``out``.
        progress: called with how many rows are done.

    Raises:
        DoesNotHoldError: the release, or the ledger, does not hold.
        InputError: a table, or a ledger, that will not do.
        UsageError: a release without a matrix, positions that its records do not have, or no row with a report.
        StoppedError: interrupted, or ``out`` cannot be written; nothing was written.
    """
    asked = Application(
        max_snap=max_snap,
        seed=seed,
        charge=charge,
        subject=subject,
        time=time,
        prefix=prefix,
        positions=positions or {},
        batch=batch,
    )
    ending = ending_of(out, "--out")
    if batch is None:
        return _apply_file(folder, table, out, ending, secret, asked, None, force=force, progress=progress)
    if charge is None:
        raise UsageError("--batch NAME must have --ledger FILE and --subject COLUMN beside it, got it alone")
    with Batch(ledger=charge.path, name=batch, target=out).opened() as begun:
        if (counts := begun.counts) is not None:
            _check_same(begun, folder, table)
            done = f"batch {batch} is finished: {out} is as it was written, and nothing was charged again"
            return Applied(**counts, notes=(done,), warnings=())
        begun.check_open()
        force = force or begun.left_target
        applied = _apply_file(folder, table, out, ending, secret, asked, begun, force=force, progress=progress)
        begun.finish({"rows": applied.rows, "refused": dict(applied.refused)}, _source_text(folder, table))
        return applied


def _source_text(folder: Path, table: Path) -> str:
    """What a finished batch was made of, without a digest of secrets: release, file and its size in bytes."""
    return f"{sha256(folder / SUMS)} {table.name} {table.stat().st_size}"


def _check_same(batch: Batch, folder: Path, table: Path) -> None:
    """Refuse to take another table, or another release, for what a finished batch was made of.

    Raises:
        UsageError: it is another.
    """
    if batch.record.get("source") != _source_text(folder, table):
        raise UsageError(f"batch {batch.name} must be of the table and release that it was finished with, got others")


def _apply_file(
    folder: Path,
    table: Path,
    out: Path,
    ending: str,
    secret: Secret,
    asked: Application,
    batch: Batch | None,
    *,
    force: bool,
    progress: Progress | None,
) -> Applied:
    check_files({"--out": out}, force=force, read=[table], folders=[folder])
    if asked.charge is not None:
        asked.charge.check_apart(folder, table, out)
    source = GeoSource.of_file(table)
    if secret.geometry:
        secret.check(list(source.columns), source.name)
        if table.suffix.lower() == ".csv":
            found = "CSV, which holds no points in binary"
            raise InputError([Fault(source.name, f"column {secret.columns[0]}", found, "GeoParquet")])
    target = _file(out, ending, force, progress, batch)
    purpose = f"apply {table.name}"
    return _applied(
        open_verified(folder),
        source,
        secret,
        asked,
        target,
        purpose=purpose,
        dashes="--",
        batch=batch,
        progress=progress,
    )


@contextmanager
def _file(
    out: Path, ending: str, force: bool, progress: Progress | None, batch: Batch | None
) -> Iterator[Callable[[nw.DataFrame[Any]], object]]:
    """What writes batches into a file, which appears whole, or not at all."""
    with new_file(out, force=force) as path:
        writer = TableWriter(path, ending)
        yield lambda made: writer.write(made.to_native())
        if progress is not None:
            progress("writing", 0, None, None)
        writer.finish()
        if batch is not None:
            batch.begin_writing()


# --- in memory --------------------------------------------------------------------------------------------


def protected(opened: Opened, table: T, columns: Mapping[str, str | None], asked: Application) -> tuple[T, list[str]]:
    """The same kind of table with reports in place of the secret's columns, and what its user must know.

    Args:
        opened: the release.
        table: of whatever library; or an array of ids or positions.
        columns: of the secret, by what they hold: ``id``, ``lat``, ``lon``, ``x``, ``y``, ``geometry``.
        asked: how.

    Raises:
        UsageError, InputError: as of :meth:`privopt.api.released.Released.apply`.
    """
    if isinstance(table, np.ndarray):
        return _array(opened, table, asked)  # type: ignore[return-value]
    source = GeoSource.of_memory(table)
    if source.active is not None and not any(columns.values()):
        columns = {"geometry": source.active}
    frames: list[nw.DataFrame[Any]] = []
    done = _applied(opened, source, whole_secret(columns, asked.positions), asked, nullcontext(frames.append))
    [made], left, result = frames, done.rows - done.reported, opened.result
    notes = [f"{left:,} of {done.rows:,} rows without a report: {words_of(done.refused)}"] if left else []
    notes += limits_of(result.guarantee)
    notes += [] if done.sequence is None else [done.sequence]
    notes += [f"this release: {result.mark}"] if result.mark else []
    notes += [f"this table: {SEEDED}"] if asked.seed is not None else []
    notes += done.warnings
    if isinstance(table, Mapping):
        return made.to_dict(as_series=False), notes  # type: ignore[return-value]
    native = _bare(made.to_native())
    return native if source.active is None or done.protector is None else _with_points(
        table, native, source.active, done.protector
    ), notes


def whole_secret(columns: Mapping[str, str | None], positions: Mapping[str, Sequence[str]]) -> Secret:
    """The columns that hold the secret: of one position, or of all that are named.

    Raises:
        UsageError: no position, one of several kinds, or positions beside one.
    """
    if not positions:
        return Secret.of(**columns)
    if beside := [name for name, column in columns.items() if column is not None]:
        raise UsageError(f"{beside[0]} must be left out beside positions: they name the columns of the secret")
    return Secret(kind="id", columns=tuple(column for given in positions.values() for column in given))


def _array(opened: Opened, given: NDArray[Any], asked: Application) -> tuple[NDArray[Any], list[str]]:
    if asked.subject is not None:
        raise UsageError("table: found an array, wanted a table with a column of subjects")
    release, problem = matrix_of(opened)
    asked = evolve(asked, prefix=None, positions={})
    if given.ndim == 1:
        ids, notes = protected(opened, {"id": given.tolist()}, {"id": "id"}, asked)
        return np.array(ids[REPORT], dtype=object), notes
    if given.ndim != 2 or given.shape[1] != 2:
        raise UsageError(f"table: found an array of shape {given.shape}, wanted (B,) ids or (B, 2) positions")
    ends = ("x", "y") if problem.data.records.kind == "planar" else ("lat", "lon")
    table = {end: given[:, axis].tolist() for axis, end in enumerate(ends)}
    made, notes = protected(opened, table, dict(zip(ends, ends, strict=True)), asked)
    if f"{REPORT}_{ends[0]}" not in made:
        raise UsageError(f"table: found positions, wanted ids: the {len(release.outputs)} outputs lie nowhere")
    return np.array([made[f"{REPORT}_{end}"] for end in ends], dtype=np.float64).T, notes


def _bare(table: T) -> T:
    """A table without metadata: they may describe columns that are gone, to the box around all positions."""
    native: Any = table
    if nw.dependencies.is_pyarrow_table(native):
        schema = native.schema.remove_metadata()
        for place, column in enumerate(schema):
            schema = schema.set(place, column.remove_metadata())
        return cast("T", type(native).from_arrays(native.columns, schema=schema))
    if nw.dependencies.is_pandas_dataframe(native):
        native.attrs = {}
    return table


def _with_points(table: object, made: T, column: str, protector: Protector) -> T:
    """A GeoDataFrame again, its geometry the places of reports."""
    if protector.outputs is None:
        return made
    before, native = cast("Any", table), cast("Any", made)
    first, second = (
        nw.from_native(native, eager_only=True)[name].to_numpy().astype(np.float64)
        for name in protector.places(protector.reports[0])
    )
    degrees = protector.outputs.kind == "geographic"
    across, up = (second, first) if degrees else (first, second)
    points = type(before[column]).from_xy(across, up, index=native.index, crs=4326 if degrees else None)
    points[np.isnan(across)] = None
    return cast("T", type(before)(native.assign(**{column: points}), geometry=column))
