"""``privopt apply``: a table in a file protected by the release in a folder, batch by batch."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import narwhals as nw
import polars as pl
from attrs import frozen

from privopt.errors import UsageError
from privopt.interfaces import Progress
from privopt.metric.matrix import ARTEFACT, MatrixRelease
from privopt.metric.problem import MetricInstance
from privopt.run.publish import check_file, new_file
from privopt.run.verify import Opened, open_verified
from privopt.tables.charged import ChargeRows, Charging, check_apart, cost_of
from privopt.tables.files import TableFile, TableWriter, ending_of
from privopt.tables.protect import Protector
from privopt.tables.secret import Secret, naming
from privopt.tables.traces import check_subject

__all__ = ["Applied", "apply", "matrix_of"]


@frozen(kw_only=True)
class Applied:
    """What ``apply`` did.

    Attributes:
        rows: of the table.
        refused: rows without a report, by reason.
        notes: what whoever publishes the table must know, a sentence each.
        warnings: what must be looked at before that, a sentence each.
        opened: the release that was used.
        sequence: what holds of all reports of a subject, where they are repeated.
    """

    rows: int
    refused: Mapping[str, int]
    notes: tuple[str, ...]
    opened: Opened
    sequence: str | None = None
    warnings: tuple[str, ...] = ()

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


def apply(
    folder: Path,
    table: Path,
    out: Path,
    secret: Secret,
    *,
    max_snap: float | None = None,
    seed: int | None = None,
    charge: ChargeRows | None = None,
    subject: str | None = None,
    time: str | None = None,
    prefix: str | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Applied:
    """Write a table with a report in each row, in place of the columns that hold the secret.

    Args:
        folder: the release; it is checked before it is used.
        table: CSV or Parquet.
        out: the same, by its own ending; written whole or not at all.
        secret: the columns that hold it.
        max_snap: km from every record, or from the region, beyond which a position has no report.
        seed: for experiments: the reports are not private, and marked so.
        charge: charges each report to its subject, durably, before it is drawn; the table is read through before.
        subject: column of whose each row is, for releases that report traces; that of ``charge`` where that is given.
        time: column that a subject's rows are in the order of; the table is held in memory then.
        prefix: what the names of the added columns begin with, before an underscore.
        force: replace ``out``.
        progress: called with how many rows are done.

    Raises:
        DoesNotHoldError: the release, or the ledger, does not hold.
        InputError: a table, or a ledger, that will not do.
        UsageError: a release without a matrix, positions that its records do not have, or no row with a report.
        StoppedError: interrupted, or ``out`` cannot be written; nothing was written.
    """
    ending = ending_of(out, "--out")
    check_file(out.absolute(), force=force)
    if out.absolute().resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"--out {out}: lies in {folder}, which holds the release alone; name a file elsewhere")
    if out.absolute().resolve() == table.absolute().resolve():
        raise UsageError(f"--out {out}: is read, so nothing is written over it; name another file")
    if charge is not None:
        check_apart(charge.ledger, charge.key, folder, table, out)
    source = TableFile.of(table)
    opened = open_verified(folder)
    release, problem = matrix_of(opened)
    subject = subject if charge is None else charge.subject
    check_subject(release, subject, time, charged=charge is not None, dashes="--")
    secret = source.whole(secret)
    protector = Protector.of(
        release, problem.data, secret, max_snap=max_snap, seed=seed, subject=subject, time=time, prefix=prefix
    )
    protector.check(list(source.columns), table.name)
    with ExitStack() as stack:
        if charge is not None:
            cost = cost_of(folder, opened.result, f"apply {table.name}")
            charging = stack.enter_context(charge.opened(cost, progress=progress))
            protector = protector.charged_to(charging)
            protector.check(list(source.columns), table.name)
            _read_through(source, charging, progress)
        return _write(source, out, protector, opened, ending, force, progress)


def _read_through(source: TableFile, charging: Charging, progress: Progress | None) -> None:
    """Find what is wrong with a table before anybody is charged for it."""
    for batch in source.batches():
        with naming(source.path.name):
            charging.subjects(nw.from_native(batch, eager_only=True))
        if progress is not None:
            progress("reading", 0, None, None)


def _write(
    source: TableFile,
    out: Path,
    protector: Protector,
    opened: Opened,
    ending: str,
    force: bool,
    progress: Progress | None,
) -> Applied:
    rows, charging = 0, protector.charging
    with new_file(out, force=force) as path:
        writer = TableWriter(path, ending)
        whole = protector.tracer is not None and protector.tracer.time is not None
        for batch in (pl.concat(list(source.batches())),) if whole else source.batches():
            with naming(source.path.name):
                made = protector.protect(nw.from_native(batch, eager_only=True)).to_native()
            writer.write(made)
            rows += len(batch)
            if progress is not None:
                progress(f"{rows:,} rows protected", 0, None, None)
        done = Applied(
            rows=rows,
            refused=dict(protector.refused),
            notes=protector.notes(opened.result.guarantee),
            opened=opened,
            sequence=protector.sequence if charging is not None and charging.sticky is not None else None,
            warnings=protector.warnings(source.columns),
        )
        if not done.reported:
            raise protector.nothing(str(source.path))
        if progress is not None:
            progress("writing", 0, None, None)
        writer.finish()
    return done
