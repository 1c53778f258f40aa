"""Draw reports for the partitions of a table that Spark or Dask holds: one report and one charge for each row.

Engines run tasks again, twice at a time, or lose them. So a task decides nothing and keeps nothing. Every report
follows from the batch's key, the row's subject and id, and its secret. The driver alone writes the ledger, between two
passes: the first sums up the rows of each subject under the key, the second draws for rows that have the same sums.

Source:
    docs/adr/0028-partitions.md; coins and digest as in ADR 24.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar, cast

import narwhals as nw
import numpy as np
import numpy.typing as npt
import polars as pl
from attrs import define, evolve, field, frozen

from privopt.declare.column_texts import subjects_of, texts_of
from privopt.declare.problems_in_memory import frame_of
from privopt.errors import DoesNotHoldError, Fault, InputError, UsageError, cut
from privopt.files.release_folder import SUMS, sha256
from privopt.interfaces.cost import Cost
from privopt.ledger.batches import Batch, BatchAccess, Digest, row_names
from privopt.ledger.charge import Charge
from privopt.ledger.entries import AccountKey
from privopt.ledger.ledger import Ledger
from privopt.run.verify import OpenedFolder
from privopt_metric_dp.matrix.release import matrix_of
from privopt_tables.apply_parts import cost_of_row
from privopt_tables.charge_rows import check_no_calendar
from privopt_tables.options import ApplyOptions
from privopt_tables.rows.by_position import PositionProtector
from privopt_tables.secret_columns import Secret

if TYPE_CHECKING:
    from pyarrow import Schema, Table
else:  # loaded late
    Schema = Table = Any

__all__ = ["TALLY", "ChargedRows", "PartitionedBatch", "Partitions", "RowSums"]

T = TypeVar("T")

TALLY: Final = "subject string, rows long, total long, squares long, digest string"
"""Columns that the first pass returns, with types as Spark names them."""

FIELD: Final = (1 << 61) - 1
"""The prime p of the field GF(p) in which rows are summed: its elements fit a signed column of 64 bits."""

MAX_NAMED_IDS: Final = 5
"""How many row ids an error lists if it cannot tell which row of a subject changed."""

_TABLE, _ORDER = "table", "privopt order"
_UNSTABLE_IDS = "ids that an engine makes, such as uuid() or monotonically_increasing_id(), must be stored first"


@define
class RowSums:
    """The sum of a subject's rows, and of their squares, in GF(p): a keyed hash of the set of rows.

    Each row is an element of the field, its HMAC under the batch's key. Without the key nobody can exchange rows and
    keep the sum, but by a chance of 1 in 2^61 for each try. The squares say which row was exchanged.
    """

    rows: int = 0
    total: int = 0
    squares: int = 0

    def add(self, element: int) -> None:
        """Add a row."""
        self.rows += 1
        self.total = (self.total + element) % FIELD
        self.squares = (self.squares + element * element) % FIELD

    def changed_element(self, charged: RowSums) -> int | None:
        """Return the element that one row must have if it alone was added, or exchanged for a row that was charged.

        With new element n and charged element o the differences of the sums are n - o and n^2 - o^2, whose quotient is
        n + o. An added row is the case o = 0, a missing one n = 0.
        """
        difference = (self.total - charged.total) % FIELD
        if not difference:
            return None
        sum_of_both = (self.squares - charged.squares) * pow(difference, -1, FIELD)
        return (sum_of_both + difference) * pow(2, -1, FIELD) % FIELD


@frozen(eq=False)
class ChargedRows:
    """The sums over all rows that were charged, by subject: 24 bytes a subject, where a table of names would not fit.

    Attributes:
        marks: (S,) keyed hashes of the subjects' names, in ascending order.
        totals, squares: (S,) of :class:`RowSums`.
    """

    marks: npt.NDArray[np.uint64]
    totals: npt.NDArray[np.int64]
    squares: npt.NDArray[np.int64]

    @classmethod
    def of(cls, key: bytes, subjects: Sequence[str], totals: Sequence[int], squares: Sequence[int]) -> ChargedRows:
        """Sort the sums of all subjects by their marks."""
        marks = np.array([_mark(key, subject) for subject in subjects], dtype=np.uint64)
        order = np.argsort(marks, kind="stable")
        columns = (np.array(column, dtype=np.int64)[order] for column in (totals, squares))
        return cls(marks[order], *columns)

    def sums_of(self, key: bytes, subject: str) -> RowSums:
        """Return the charged sums of a subject; those of no rows for a subject that was not charged."""
        mark = np.uint64(_mark(key, subject))
        row = int(np.searchsorted(self.marks, mark))
        if row == len(self.marks) or self.marks[row] != mark:
            return RowSums()
        return RowSums(total=int(self.totals[row]), squares=int(self.squares[row]))


def _mark(key: bytes, subject: str) -> int:
    return int.from_bytes(hashlib.blake2b(subject.encode("utf-8"), digest_size=8, key=key).digest(), "big")


@frozen(kw_only=True, eq=False)
class Partitions:
    """Tallies and draws for partitions, in any process that can read the batch's folder while its block is open.

    It can be pickled. It holds no key, so that nothing can be drawn with it once the block has ended.

    Attributes:
        protector: Draws reports once it has the batch's coins.
        access: Reads the key of the batch.
        release: SHA-256 of the release's sums.
        granted: Number of reports of each subject that the ledger allows fewer reports than it has rows.
        charged: Sums of the rows that were charged; None before the charge.
    """

    protector: PositionProtector
    access: BatchAccess
    release: str
    granted: Mapping[str, int] = field(factory=dict)
    charged: ChargedRows | None = field(default=None, repr=False)

    @property
    def _row_key_columns(self) -> tuple[str, str]:
        assert self.protector.row_key_columns is not None  # PartitionedBatch.opened has set it
        return self.protector.row_key_columns

    def tally(self, partition: T) -> T:
        """Sum up the rows of each subject of a partition, and its digest.

        Args:
            partition: An iterator of Arrow batches, as ``mapInArrow`` passes it, or a frame of pandas.

        Returns:
            Batches with the columns of :data:`TALLY`, or a frame.

        Raises:
            InputError: A column is missing, a row has no id, or a subject has two rows of one id.
            UsageError: The block of the batch has ended, or its key cannot be read here.
        """
        key = self.access.read_key()
        return self._map(partition, lambda batches: self._tally(batches, key))

    def reports(self, partition: T) -> T:
        """Draw the reports of a partition, the same ones each time.

        All rows of a subject must be in the partition. Nothing is drawn before all its rows are compared with those
        that were charged, so a partition is held in memory.

        Args:
            partition: As of :meth:`tally`.

        Returns:
            Batches, or a frame, with reports in place of the secret's columns. A frame keeps the order of its rows.

        Raises:
            InputError: As of :meth:`tally`.
            DoesNotHoldError: Rows are not those that were charged; names the id of one.
            UsageError: Nothing was charged yet, the block has ended, or the key cannot be read here.
        """
        if self.charged is None:
            raise UsageError("plan must be what charge of the batch returned, got one before the charge")
        key = self.access.read_key()
        coins = self.access.coins(key, self.release)
        # A thread may run each task, so each has its own counter of refusals.
        task = evolve(self, protector=evolve(self.protector, coins=coins, refusals=Counter()))
        return task._map(partition, lambda batches: task._reports(batches, key))

    def schema(self, schema: Schema) -> Schema:
        """Return the schema of reports for a table's schema."""
        frame, nothing = self._frame(schema.empty_table()), pl.Series([], dtype=pl.Boolean)
        return self._draw_part(frame, nothing, schema, without=nothing).schema

    def _map(self, partition: T, run: Callable[[Iterator[Any]], Iterator[Table]]) -> T:
        """Run over batches, or over a frame as one batch whose rows keep their order and index."""
        import pyarrow as pa

        table: Any = partition
        if not nw.dependencies.is_pandas_dataframe(table):
            if not isinstance(table, Iterator):
                expected = "an iterator of Arrow batches or a frame of pandas"
                raise UsageError(f"partition must be {expected}, got {type(table).__name__}")
            return cast("T", (batch for part in run(iter(table)) for batch in part.to_batches()))
        order = pa.array(range(len(table)), pa.int64())
        batch = pa.Table.from_pandas(table, preserve_index=False).append_column(_ORDER, order)
        result = pa.concat_tables(list(run(iter([batch]))))
        if _ORDER not in result.column_names:
            return cast("T", result.to_pandas())
        result = result.sort_by(_ORDER).drop_columns(_ORDER)
        # Columns that stay are taken from the frame itself: Arrow would not give all of their types back.
        remaining = [name for name in table.columns if name in result.column_names]
        reports = result.drop_columns(remaining).to_pandas().set_index(table.index)
        return cast("T", table[remaining].assign(**reports))

    def _tally(self, batches: Iterator[Any], key: bytes) -> Iterator[Table]:
        import pyarrow as pa

        digest, sums, ids_by_batch = Digest(key), dict[str, RowSums](), []
        for batch in batches:
            frame = self._frame(batch)
            subjects, ids = self._subjects(frame), texts_of(frame[self._row_key_columns[1]])
            for subject, mac in zip(subjects.to_list(), self._row_macs(frame, digest), strict=True):
                digest.add_number(mac)
                if subject is not None:
                    sums.setdefault(subject, RowSums()).add(mac % FIELD)
            ids_by_batch.append(pl.DataFrame({"subject": subjects, "id": ids}).drop_nulls("subject"))
        if ids_by_batch and (count := pl.concat(ids_by_batch).is_duplicated().sum()):
            actual = f"an id twice among the rows of a subject ({count:,} such rows)"
            raise InputError([Fault(_TABLE, f"column {self._row_key_columns[1]}", actual, "ids that differ")])
        rows = {"subject": None, "rows": 0, "total": 0, "squares": 0, "digest": digest.text}
        tallies = [rows, *({"subject": subject, **_to_columns(found)} for subject, found in sums.items())]
        numbers = [(name, pa.int64()) for name in ("rows", "total", "squares")]
        schema = pa.schema([("subject", pa.string()), *numbers, ("digest", pa.string())])
        yield pa.Table.from_pylist(tallies, schema=schema)

    def _reports(self, batches: Iterator[Any], key: bytes) -> Iterator[Table]:
        """Draw batch by batch for subjects that may have all reports, and at the end for those of the others."""
        parts = [(self._frame(batch), batch.schema) for batch in batches]
        self._check_rows([frame for frame, _ in parts], key)
        limited_frames = []
        for frame, schema in parts:
            subjects = self._subjects(frame)
            is_limited = subjects.is_in(list(self.granted)).fill_null(value=False)
            yield self._draw_part(frame, ~is_limited & subjects.is_not_null(), schema, without=subjects.is_null())
            limited_frames.append(_filter_rows(frame, is_limited))
        if parts and self.granted:
            frame = nw.concat(limited_frames)
            is_granted = self._is_granted(frame)
            yield self._draw_part(frame, is_granted, parts[-1][1], without=~is_granted)

    def _row_macs(self, frame: nw.DataFrame[Any], digest: Digest) -> list[int]:
        """Return a whole number below 2^256 for each row: the HMAC of its subject, its id and its secrets."""
        secrets = [columns.bytes_of(frame) for _, columns in self.protector.positions]
        names = row_names(frame, self._row_key_columns)
        return [digest.mac(b"row", name, *of_row) for name, *of_row in zip(names, *secrets, strict=True)]

    def _check_rows(self, frames: Sequence[nw.DataFrame[Any]], key: bytes) -> None:
        """Refuse rows that are not, subject by subject, the rows that were charged.

        Raises:
            DoesNotHoldError: So it is; names the id of a row, never its secret.
        """
        assert self.charged is not None  # reports has looked
        digest, sums = Digest(key), dict[str, RowSums]()
        for frame in frames:
            elements = (mac % FIELD for mac in self._row_macs(frame, digest))
            for subject, element in zip(self._subjects(frame).to_list(), elements, strict=True):
                if subject is not None:
                    sums.setdefault(subject, RowSums()).add(element)
        for subject, actual in sums.items():
            charged = self.charged.sums_of(key, subject)
            if (actual.total, actual.squares) != (charged.total, charged.squares):
                raise DoesNotHoldError(f"{_TABLE}: changed: {self._describe_change(frames, digest, subject, charged)}")

    def _describe_change(
        self, frames: Sequence[nw.DataFrame[Any]], digest: Digest, subject: str, charged: RowSums
    ) -> str:
        """Say which row of a subject is not one that was charged, by its id."""
        ids_by_element: dict[int, str] = {}
        actual = RowSums()
        for frame in frames:
            ids = texts_of(frame[self._row_key_columns[1]]).to_list()
            rows = zip(self._subjects(frame).to_list(), ids, self._row_macs(frame, digest), strict=True)
            for name, row_id, mac in rows:
                if name == subject:
                    ids_by_element[mac % FIELD] = str(row_id)
                    actual.add(mac % FIELD)
        element = actual.changed_element(charged)
        column = self._row_key_columns[1]
        if element in ids_by_element:
            row = f"the row with {column} {cut(ids_by_element[element])}"
            return f"{row} is not as it was charged: its id is new, or its secret is another; {_UNSTABLE_IDS}"
        ids = [cut(row_id) for row_id in ids_by_element.values()]
        listed = ", ".join(ids[:MAX_NAMED_IDS]) + (", ..." if len(ids) > MAX_NAMED_IDS else "")
        if element == 0:
            return f"a row is missing beside the subject's rows with {column} {listed}"
        return (
            f"among the subject's rows with {column} {listed} several are new, changed or missing; {_UNSTABLE_IDS}, "
            "and all rows of a subject must be in one partition in both passes"
        )

    def _is_granted(self, frame: nw.DataFrame[Any]) -> pl.Series:
        """Mark the rows that have a report of those subjects that are granted few: the first ones by their ids."""
        subjects, ids = self._subjects(frame), texts_of(frame[self._row_key_columns[1]])
        table = pl.DataFrame({"subject": subjects, "id": ids})
        ranks = table.select(pl.col("id").rank("ordinal").over("subject"))["id"]
        return ranks <= subjects.replace_strict(self.granted, return_dtype=pl.UInt32)

    def _draw_part(self, frame: nw.DataFrame[Any], rows: pl.Series, schema: Schema, *, without: pl.Series) -> Table:
        """Draw reports for some rows of a part and leave others without, with the types that the table has."""
        import pyarrow as pa

        reported = self.protector.protect(_filter_rows(frame, rows)).to_native()
        unreported = self.protector.secret.without(_filter_rows(frame, without)).to_native()
        table = pl.concat([reported, unreported], how="diagonal").to_arrow()
        remaining = set(schema.names) - {*self.protector.secret.columns, *self.protector.secret.also}
        types = {part.name: part.type if pa.types.is_floating(part.type) else pa.string() for part in table.schema}
        types |= {name: schema.field(name).type for name in remaining}
        return table.cast(pa.schema([(name, types[name]) for name in table.column_names]))

    def _frame(self, batch: Any) -> nw.DataFrame[Any]:
        frame: nw.DataFrame[Any] = nw.from_native(pl.from_arrow(batch), eager_only=True)
        names = [name for name in frame.columns if name != _ORDER]
        self.protector.check(names, _TABLE)
        roles = dict(zip(self._row_key_columns, ("the subject of each row", "the id of each row"), strict=True))
        self.protector.secret.check_other_columns(roles, names, _TABLE)
        return frame

    def _subjects(self, frame: nw.DataFrame[Any]) -> pl.Series:
        return subjects_of(frame[self._row_key_columns[0]])


def _to_columns(sums: RowSums) -> dict[str, Any]:
    return {"rows": sums.rows, "total": sums.total, "squares": sums.squares, "digest": None}


def _filter_rows(frame: nw.DataFrame[Any], rows: pl.Series) -> nw.DataFrame[Any]:
    filtered: nw.DataFrame[Any] = nw.from_native(frame.to_native().filter(rows), eager_only=True)
    return filtered


@define(kw_only=True, eq=False)
class PartitionedBatch:
    """A batch of one table in partitions, in the driver: it charges between the two passes.

    Attributes:
        partitions: What workers need for the first pass.
        batch: The key and the record.
        ledger: The ledger that is charged.
        cost: The cost of one row.
        options: The digest before the first row.
        is_charged: Whether the second pass may run.
    """

    partitions: Partitions
    batch: Batch
    ledger: Ledger
    cost: Cost
    options: Digest
    is_charged: bool = False

    @classmethod
    @contextmanager
    def opened(
        cls, opened: OpenedFolder, name: str, charge: Charge, row: str, secret: Secret, options: ApplyOptions
    ) -> Iterator[Self]:
        """Open a batch that ends with the block; after an error in the block it can be repeated.

        Args:
            opened: The release.
            name: The batch's name.
            charge: The ledger, and the column of subjects.
            row: Column of ids, which differ among the rows of a subject.
            secret: Columns of the secret.
            options: Positions, and how far they may be from a record.

        Raises:
            UsageError: A release without a matrix or of traces, a batch that is over, or a ledger by the calendar.
            InputError, DoesNotHoldError: A ledger, or a batch, that cannot be used.
        """
        release, problem = matrix_of(opened, traces=False)
        sums, subject = sha256(opened.folder / SUMS), str(charge.subject)
        with Batch(ledger=charge.path, name=name).opened() as batch, charge.opened() as ledger:
            cost = cost_of_row(opened, options, "batch")
            check_no_calendar(ledger, cost.account)
            protector = evolve(
                PositionProtector.of(release, problem.data, secret, options),
                row_key_columns=(subject, row),
            )
            digest = Digest(batch.key())
            columns = {name: position.columns for name, position in protector.positions}
            bound = [sums, subject, row, options.max_snap, columns]
            digest.add(b"partitions", json.dumps(bound, sort_keys=True).encode())
            partitioned = cls(
                partitions=Partitions(protector=protector, access=batch.grant_access(), release=sums),
                batch=batch,
                ledger=ledger,
                cost=evolve(cost, purpose=batch.purpose(ledger.purposes())),
                options=digest,
            )
            yield partitioned
            if partitioned.is_charged:
                batch.end()

    @property
    def tally(self) -> Callable[[Any], Any]:
        """The first pass over a partition: :meth:`Partitions.tally`."""
        return self.partitions.tally

    def charge(self, tallies: object) -> Partitions:
        """Charge every subject for its rows, durably: one entry of the ledger for each subject.

        Args:
            tallies: What the first pass returned for all partitions, any kind of table.

        Returns:
            What draws the reports in the second pass, for the rows that were tallied and no others. Subjects with too
            little left have reports for their first rows, by id.

        Raises:
            UsageError: Other tables than the first pass returns, a subject with rows in two partitions, or a batch that
                began with another table or other options.
            DoesNotHoldError: The batch was charged, and its record is gone.
        """
        table = frame_of(tallies, "tallies")
        numbers = ("rows", "total", "squares")
        if {"subject", "digest", *numbers} - {*table.columns}:
            raise UsageError(f"tallies must be what tally gives ({TALLY}), got columns {', '.join(table.columns)}")
        digest = evolve(self.options)
        for text in texts_of(table["digest"]).drop_nulls().to_list():
            digest.add_sum(text)
        columns = {name: table[name].to_list() for name in numbers}
        sums = pl.DataFrame({"subject": texts_of(table["subject"]), **columns}).drop_nulls("subject")
        if (sums["rows"] < 1).any():
            raise UsageError("tallies must be what tally gives, got a subject without rows")
        if sums["subject"].is_duplicated().any():
            raise UsageError(
                "rows of a subject must be in one partition, got two: repartition the table by subject. If names are "
                "spelled in several ways (blanks, 7 and 7.0, forms of Unicode), write them in one way first"
            )
        paid = self.ledger.charges_for(self.cost.purpose)
        if paid and not self.batch.record:
            raise DoesNotHoldError(f"{self.batch.folder}: changed: the batch was charged, and its record is gone")
        self.batch.begin(digest)
        counts = dict(sums.select("subject", "rows").iter_rows())
        granted = self._charge_subjects(
            counts, {account: int(sum(charges) / self.cost.amount[0]) for account, charges in paid.items()}
        )
        self.is_charged = True
        subjects, totals, squares = (sums[name].to_list() for name in ("subject", "total", "squares"))
        return evolve(
            self.partitions,
            granted={name: granted[name] for name, rows in counts.items() if granted[name] < rows},
            charged=ChargedRows.of(self.batch.key(), subjects, totals, squares),
        )

    def _charge_subjects(self, counts: Mapping[str, int], paid: Mapping[AccountKey, int]) -> dict[str, int]:
        """Charge subjects for as many of their rows as the limit allows; an earlier run's charges are not repeated."""
        unit = self.cost.account
        accounts = {name: AccountKey(self.ledger.name_of(name), unit) for name in counts}
        granted = {name: min(rows, paid.get(accounts[name], 0)) for name, rows in counts.items()}
        due = {name: rows for name, rows in counts.items() if not granted[name]}
        while due:
            is_charged = self.ledger.charge_each(list(due), self.cost, times=list(due.values()))
            refused = []
            for name, success in zip(due, is_charged, strict=True):
                if success:
                    granted[name] = due[name]
                else:
                    refused.append((name, self.ledger.account(name, unit=unit).left or 0))
            affordable = {name: min(due[name] - 1, int(left / self.cost.amount[0])) for name, left in refused}
            due = {name: rows for name, rows in affordable.items() if rows}
        return granted
