"""Draw reports for the partitions of a table that Spark or Dask holds: one report and one charge for each row.

Engines run tasks again, twice at a time, or lose them. So a task decides nothing and keeps nothing. Every draw follows
from the batch's key, the row's subject and id, and its secret. The driver alone writes the ledger, between two passes:
the first counts the rows of each subject and adds up a digest, the second draws.

Source:
    docs/adr/0028-partitions.md; coins and digest as in ADR 24.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

import narwhals as nw
import numpy as np
import numpy.typing as npt
import polars as pl
from attrs import define, evolve, field, frozen

from privopt.declare.column_texts import subjects_of, texts_of
from privopt.declare.problems_in_memory import frame_of
from privopt.errors import DoesNotHoldError, Fault, InputError, UsageError
from privopt.files.release_folder import SUMS, sha256
from privopt.interfaces.cost import Cost
from privopt.ledger.batches import Batch, Digest, row_names
from privopt.ledger.charge import Charge
from privopt.ledger.entries import AccountKey
from privopt.ledger.ledger import Ledger
from privopt.run.verify import OpenedFolder
from privopt_metric_dp.matrix.release import matrix_of
from privopt_tables.application import Application
from privopt_tables.apply_table import cost_of_row
from privopt_tables.charge_rows import check_no_calendar
from privopt_tables.protect import Protector
from privopt_tables.secret_columns import Secret

if TYPE_CHECKING:
    from pyarrow import Schema, Table
else:  # loaded late
    Schema = Table = Any

__all__ = ["TALLY", "PartitionedBatch", "Partitions"]

T = TypeVar("T")

TALLY: Final = "subject string, rows long, digest string"
"""Columns of what a first pass gives, as Spark names types."""

_TABLE, _ORDER = "table", "privopt order"


@frozen(kw_only=True, eq=False)
class Partitions:
    """Tallies and draws for partitions, in any process: it can be pickled, and holds the key of its batch.

    Attributes:
        protector: draws, with the batch's coins.
        key: of the batch, for the digest.
        few: subjects that the ledger allows fewer reports than they have rows, and how many.
        counted: sorted marks of all subjects and their numbers of rows, as charged; None before the charge.
    """

    protector: Protector
    key: bytes = field(repr=False)
    few: Mapping[str, int] = field(factory=dict)
    counted: npt.NDArray[np.uint64] | None = field(default=None, repr=False)

    @property
    def _named_by(self) -> tuple[str, str]:
        assert self.protector.named_by is not None  # PartitionedBatch saw to it
        return self.protector.named_by

    def tally(self, partition: T) -> T:
        """Count the rows of each subject of a partition, and add up the digest of its rows.

        Args:
            partition: an iterator of Arrow batches, as ``mapInArrow`` passes it, or a frame of pandas.

        Returns:
            Batches with the columns of :data:`TALLY`, or a frame.

        Raises:
            InputError: a column is missing, a row has no id, or a subject has two rows of one id.
        """
        return self._over(partition, self._tally)

    def reports(self, partition: T) -> T:
        """Draw the reports of a partition, the same ones each time.

        Args:
            partition: as of :meth:`tally`.

        Returns:
            Batches, or a frame, with reports in place of the secret's columns. The order of rows is kept in a frame.

        Raises:
            InputError: as of :meth:`tally`.
            DoesNotHoldError: a subject has another number of rows than were counted. Of batches it comes behind the
                last one: an engine commits nothing of a task that fails.
            UsageError: these are of the first pass, and nothing was charged.
        """
        if self.counted is None:
            raise UsageError("plan must be what charge of the batch returned, got one before the charge")
        own = evolve(self, protector=evolve(self.protector, refused=Counter()))  # a thread may run each task
        return own._over(partition, own._reports)

    def schema(self, schema: Schema) -> Schema:
        """Return the schema of reports for a table's schema."""
        made, *_ = self._reports(iter([schema.empty_table()]))
        return made.schema

    def _over(self, partition: T, run: Callable[[Iterator[Any]], Iterator[Table]]) -> T:
        """Run over batches, or over a frame as one batch whose rows keep their order and index."""
        import pyarrow as pa

        given: Any = partition
        if not nw.dependencies.is_pandas_dataframe(given):
            if not isinstance(given, Iterator):
                wanted = "an iterator of Arrow batches or a frame of pandas"
                raise UsageError(f"partition must be {wanted}, got {type(given).__name__}")
            return cast("T", (batch for table in run(iter(given)) for batch in table.to_batches()))
        order = pa.array(range(len(given)), pa.int64())
        made = pa.concat_tables(
            list(run(iter([pa.Table.from_pandas(given, preserve_index=False).append_column(_ORDER, order)])))
        )
        if _ORDER not in made.column_names:
            return cast("T", made.to_pandas())
        made = made.sort_by(_ORDER).drop_columns(_ORDER)
        own = [name for name in given.columns if name in made.column_names]  # with types that Arrow would not give back
        return cast("T", given[own].assign(**made.drop_columns(own).to_pandas().set_index(given.index)))

    def _tally(self, batches: Iterator[Any]) -> Iterator[Table]:
        import pyarrow as pa

        digest, rows, seen = Digest(self.key), Counter[str](), []
        for batch in batches:
            frame = self._frame(batch)
            names = row_names(frame, self._named_by)
            secrets = [columns.bytes_of(frame) for _, columns in self.protector.positions]
            for name, *secret in zip(names, *secrets, strict=True):
                digest.add(b"row", name, *secret)
            subjects, ids = self._subjects(frame), texts_of(frame[self._named_by[1]])
            rows.update(subjects.drop_nulls().to_list())
            seen.append(pl.DataFrame({"subject": subjects, "id": ids}).drop_nulls("subject"))
        if seen and (twice := pl.concat(seen).is_duplicated().sum()):
            found = f"an id twice among the rows of a subject ({twice:,} such rows)"
            raise InputError([Fault(_TABLE, f"column {self._named_by[1]}", found, "ids that differ")])
        form = pa.schema([("subject", pa.string()), ("rows", pa.int64()), ("digest", pa.string())])
        columns = [[None, *rows], [0, *rows.values()], [digest.text, *[None] * len(rows)]]
        yield pa.table([pa.array(column, part.type) for column, part in zip(columns, form, strict=True)], schema=form)

    def _reports(self, batches: Iterator[Any]) -> Iterator[Table]:
        """Draw for rows of subjects that may have all reports at once, and for those of the others at the end."""
        held, last, rows = [], None, Counter[str]()
        for batch in batches:
            frame, last = self._frame(batch), batch.schema
            subjects = self._subjects(frame)
            rows.update(subjects.drop_nulls().to_list())
            few, nobody = subjects.is_in(list(self.few)).fill_null(value=False), subjects.is_null()
            yield self._draw_part(frame, ~few & ~nobody, last, without=nobody)
            held.append(_chosen(frame, few))
        self._check_counts(rows)
        if last is not None and self.few:
            frame = nw.concat(held)
            first = self._first(frame)
            yield self._draw_part(frame, first, last, without=~first)

    def _check_counts(self, rows: Mapping[str, int]) -> None:
        """Refuse rows that have come, or gone, since they were counted: what was not charged has no report."""
        found, counted = self.marks(rows), self.counted
        assert counted is not None  # nothing is drawn before the charge
        near = counted.take(np.searchsorted(counted, found), mode="clip") if counted.size else counted
        if not np.array_equal(near, found):
            raise DoesNotHoldError(f"{_TABLE}: changed: a subject has another number of rows than were counted")

    def marks(self, rows: Mapping[str, int]) -> npt.NDArray[np.uint64]:
        """Return 8 bytes of each subject and its number of rows: all of them fit where a table of names would not."""
        made = b"".join(
            hashlib.blake2b(f"{count} {name}".encode(), digest_size=8, key=self.key).digest()
            for name, count in rows.items()
        )
        return np.frombuffer(made, np.uint64)

    def _first(self, frame: nw.DataFrame[Any]) -> pl.Series:
        """Mark the rows that have a report of those subjects that may have few: the first ones by their ids."""
        subjects, ids = self._subjects(frame), texts_of(frame[self._named_by[1]])
        place = pl.DataFrame({"subject": subjects, "id": ids}).select(pl.col("id").rank("ordinal").over("subject"))
        return place["id"] <= subjects.replace_strict(self.few, return_dtype=pl.UInt32)

    def _draw_part(self, frame: nw.DataFrame[Any], good: pl.Series, form: Schema, *, without: pl.Series) -> Table:
        """Draw reports for some rows of a part and leave others without, with the types that the table has."""
        import pyarrow as pa

        drawn = self.protector.protect(_chosen(frame, good)).to_native()
        left = self.protector.secret.without(_chosen(frame, without)).to_native()
        made = pl.concat([drawn, left], how="diagonal").to_arrow()
        own = set(form.names) - {*self.protector.secret.columns, *self.protector.secret.also}
        types = {part.name: part.type if pa.types.is_floating(part.type) else pa.string() for part in made.schema}
        types |= {name: form.field(name).type for name in own}
        return made.cast(pa.schema([(name, types[name]) for name in made.column_names]))

    def _frame(self, batch: Any) -> nw.DataFrame[Any]:
        frame: nw.DataFrame[Any] = nw.from_native(pl.from_arrow(batch), eager_only=True)
        names = [name for name in frame.columns if name != _ORDER]
        self.protector.check(names, _TABLE)
        beside = dict(zip(self._named_by, ("the subject of each row", "the id of each row"), strict=True))
        self.protector.secret.check_other_columns(beside, names, _TABLE)
        return frame

    def _subjects(self, frame: nw.DataFrame[Any]) -> pl.Series:
        return subjects_of(frame[self._named_by[0]])


def _chosen(frame: nw.DataFrame[Any], rows: pl.Series) -> nw.DataFrame[Any]:
    chosen: nw.DataFrame[Any] = nw.from_native(frame.to_native().filter(rows), eager_only=True)
    return chosen


@define(kw_only=True, eq=False)
class PartitionedBatch:
    """A batch of one table in partitions, in the driver: it charges between the two passes.

    Attributes:
        partitions: what workers need for the first pass.
        batch: the key and the record.
        ledger: of the charges.
        cost: of one row.
        options: the digest before the first row.
        charged: whether the second pass may run.
    """

    partitions: Partitions
    batch: Batch
    ledger: Ledger
    cost: Cost
    options: Digest
    charged: bool = False

    @classmethod
    @contextmanager
    def opened(
        cls, opened: OpenedFolder, name: str, charge: Charge, row: str, secret: Secret, asked: Application
    ) -> Iterator[Self]:
        """Open a batch that ends with the block; after an error in the block it can be repeated.

        Args:
            opened: the release.
            name: of the batch.
            charge: the ledger, and the column of subjects.
            row: column of ids, which differ among the rows of a subject.
            secret: columns of the secret.
            asked: positions and how far they may be.

        Raises:
            UsageError: a release without a matrix or of traces, a batch that is over, or a ledger by the calendar.
            InputError, DoesNotHoldError: a ledger, or a batch, that will not do.
        """
        release, problem = matrix_of(opened, traces=False)
        sums, subject = sha256(opened.folder / SUMS), str(charge.subject)
        with Batch(ledger=charge.path, name=name).opened() as batch, charge.opened() as ledger:
            cost = cost_of_row(opened, asked, "batch")
            check_no_calendar(ledger, cost.account)
            protector = Protector.of(release, problem.data, secret, asked, coins=batch.coins(sums))
            protector = evolve(protector, named_by=(subject, row))
            options = Digest(batch.key())
            told = [
                sums,
                subject,
                row,
                asked.max_snap,
                {name: columns.columns for name, columns in protector.positions},
            ]
            options.add(b"partitions", json.dumps(told, sort_keys=True).encode())
            made = cls(
                partitions=Partitions(protector=protector, key=batch.key()),
                batch=batch,
                ledger=ledger,
                cost=evolve(cost, purpose=batch.purpose(ledger.purposes())),
                options=options,
            )
            yield made
            if made.charged:
                batch.end()

    @property
    def tally(self) -> Callable[[Any], Any]:
        """The first pass over a partition: :meth:`Partitions.tally`."""
        return self.partitions.tally

    def charge(self, tallies: object) -> Partitions:
        """Charge every subject for its rows, durably: one entry of the ledger for each subject.

        Args:
            tallies: what the first pass gave for all partitions, any kind of table.

        Returns:
            What draws the reports in the second pass. Subjects with too little left have reports for their first rows,
            by id.

        Raises:
            UsageError: other tables than the first pass gives, a subject with rows in two partitions, or a batch that
                began with another table or other options.
            DoesNotHoldError: the batch was charged, and its record is gone.
        """
        found = frame_of(tallies, "tallies")
        if {"subject", "rows", "digest"} - {*found.columns}:
            raise UsageError(f"tallies must be what tally gives ({TALLY}), got columns {', '.join(found.columns)}")
        digest = evolve(self.options)
        for text in texts_of(found["digest"]).drop_nulls().to_list():
            digest.add_sum(text)
        counts = pl.DataFrame({"subject": texts_of(found["subject"]), "rows": found["rows"].to_list()}).drop_nulls()
        if (counts["rows"] < 1).any():
            raise UsageError("tallies must be what tally gives, got a subject without rows")
        if counts["subject"].is_duplicated().any():
            raise UsageError("rows of a subject must be in one partition, got two: repartition the table by subject")
        before = self.ledger.charges_for(self.cost.purpose)
        if before and not self.batch.record:
            raise DoesNotHoldError(f"{self.batch.folder}: changed: the batch was charged, and its record is gone")
        self.batch.begin(digest)
        rows_of = dict(counts.iter_rows())
        granted = self._granted(
            rows_of, {name: int(sum(charged) / self.cost.amount[0]) for name, charged in before.items()}
        )
        self.charged = True
        few = {name: granted[name] for name, rows in rows_of.items() if granted[name] < rows}
        return evolve(self.partitions, few=few, counted=np.sort(self.partitions.marks(rows_of)))

    def _granted(self, counts: Mapping[str, int], paid: Mapping[AccountKey, int]) -> dict[str, int]:
        """Charge subjects for as many of their rows as the limit allows; an earlier run's charges are not repeated."""
        unit = self.cost.account
        called = {name: AccountKey(self.ledger.name_of(name), unit) for name in counts}
        granted = {name: min(rows, paid.get(called[name], 0)) for name, rows in counts.items()}
        due = {name: rows for name, rows in counts.items() if not granted[name]}
        while due:
            charged = self.ledger.charge_each(list(due), self.cost, times=list(due.values()))
            refused = []
            for name, good in zip(due, charged, strict=True):
                if good:
                    granted[name] = due[name]
                else:
                    refused.append((name, self.ledger.account(name, unit=unit).left or 0))
            fits = {name: min(due[name] - 1, int(left / self.cost.amount[0])) for name, left in refused}
            due = {name: rows for name, rows in fits.items() if rows}
        return granted
