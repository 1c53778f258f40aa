"""Draw reports for the partitions of a table in Spark or Dask, with one report and one charge for each row.

Engines may repeat a task, run it twice at a time, or lose it. So a task decides nothing and stores nothing: every
report follows from the batch's key and from the row's subject, id and secret. Only the driver writes the ledger,
between two passes over the table. The first pass, the tally, adds up keyed hashes of each subject's rows. The second
pass draws reports for subjects whose rows still have the same sums.

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

from privopt.api.released import warn_all
from privopt.declare.column_texts import subjects_of, texts_of
from privopt.declare.name_forms import normal_form
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
from privopt_tables.apply_parts import columns_to_search, cost_of_row, drop_columns
from privopt_tables.charge_rows import check_no_calendar
from privopt_tables.find_positions import ColumnSearch
from privopt_tables.options import ApplyOptions
from privopt_tables.rows.by_position import PositionProtector
from privopt_tables.secret_columns import Secret

if TYPE_CHECKING:
    from pyarrow import Schema, Table
else:  # loaded late
    Schema = Table = Any

__all__ = ["TALLY", "ChargedRows", "PartitionedBatch", "Partitions", "RowSums"]

T = TypeVar("T")

TALLY: Final = "subject string, rows long, total long, squares long, digest string, search string"
"""Columns that the first pass returns, with types as Spark names them."""

SEARCHED_ROWS: Final = 200_000
"""Number of rows whose other columns are searched for the secret in one step."""

FIELD: Final = (1 << 61) - 1
"""The prime p of the field GF(p) in which rows are summed: its elements fit a signed column of 64 bits."""

MAX_NAMED_IDS: Final = 5
"""Number of row ids that an error lists if it cannot tell which row of a subject changed."""

_TABLE, _ORDER = "table", "privopt order"
"""The name of the table in faults, and of a temporary column with the order of rows."""
_UNSTABLE_IDS = "ids that an engine makes, such as uuid() or monotonically_increasing_id(), must be stored first"


@define
class RowSums:
    """A keyed hash of the set of a subject's rows: the sum of their hashes, and of the squares of these, in GF(p).

    Each row becomes an element of the field, its HMAC under the batch's key. Without the key, an attempt to replace
    rows without changing the sum succeeds with probability 2^-61. The squares show which row was replaced.

    Attributes:
        rows: Number of rows.
        total: Sum of the elements of the rows.
        squares: Sum of the squares of these elements.
    """

    rows: int = 0
    total: int = 0
    squares: int = 0

    def add(self, element: int) -> None:
        """Add a row, given as its element of the field."""
        self.rows += 1
        self.total = (self.total + element) % FIELD
        self.squares = (self.squares + element * element) % FIELD

    def changed_element(self, charged: RowSums) -> int | None:
        """Return the element of the new row, assuming that exactly one row was added or replaced.

        If n is the new element and o the charged one, the sums differ by n - o and n^2 - o^2, whose quotient is n + o.
        An added row is the case o = 0, and a missing row the case n = 0.

        Args:
            charged: The sums of the rows that were charged.

        Returns:
            The element, 0 if a row is missing, or None if the totals are equal. If several rows changed, the result
            matches no row.
        """
        # In GF(p), where every number but 0 has an inverse.
        difference = (self.total - charged.total) % FIELD
        if not difference:
            return None
        sum_of_both = (self.squares - charged.squares) * pow(difference, -1, FIELD)
        return (sum_of_both + difference) * pow(2, -1, FIELD) % FIELD


@frozen(eq=False)
class ChargedRows:
    """The sums over all rows that were charged, by subject.

    They take 24 bytes per subject. A table of names would not fit into each worker's memory.

    Attributes:
        marks: (S,) Keyed hashes of the subjects' names, ascending.
        totals, squares: (S,) The sums of each subject, as in :class:`RowSums`.
    """

    marks: npt.NDArray[np.uint64]
    totals: npt.NDArray[np.int64]
    squares: npt.NDArray[np.int64]

    @classmethod
    def of(cls, key: bytes, subjects: Sequence[str], totals: Sequence[int], squares: Sequence[int]) -> ChargedRows:
        """Collect the sums of all subjects, sorted by the hashes of their names.

        Args:
            key: The batch's key.
            subjects: The names of the subjects.
            totals, squares: The sums of each subject, as in :class:`RowSums`.
        """
        # Two subjects with the same hash, one pair in 2^64, would fail the check of their rows: an error, no leak.
        marks = np.array([_hash_subject(key, subject) for subject in subjects], dtype=np.uint64)
        order = np.argsort(marks, kind="stable")
        columns = (np.array(column, dtype=np.int64)[order] for column in (totals, squares))
        return cls(marks[order], *columns)

    def sums_of(self, key: bytes, subject: str) -> RowSums:
        """Return the charged sums of a subject, which are zero for a subject that was not charged."""
        mark = np.uint64(_hash_subject(key, subject))
        # The marks are sorted, so that a subject is found without a dictionary of millions of Python objects.
        row = int(np.searchsorted(self.marks, mark))
        if row == len(self.marks) or self.marks[row] != mark:
            return RowSums()
        return RowSums(total=int(self.totals[row]), squares=int(self.squares[row]))


def _hash_subject(key: bytes, subject: str) -> int:
    """Return a keyed 64-bit hash of a subject's name, so that sums can be looked up without storing names."""
    return int.from_bytes(hashlib.blake2b(subject.encode("utf-8"), digest_size=8, key=key).digest(), "big")


@frozen(kw_only=True, eq=False)
class Partitions:
    """Tallies partitions and draws their reports, in any process that can read the batch's folder.

    It works until the batch's ``with`` block ends. It can be pickled without revealing the key, which it reads from the
    folder.

    Attributes:
        protector: Draws reports once it has the batch's coins, the random numbers that are derived from the batch's
            key.
        access: Reads the key of the batch.
        release: SHA-256 of the release's file of checksums.
        granted: Number of allowed reports by subject, only for subjects to whom the ledger allows fewer reports than
            rows.
        charged: Sums of the rows that were charged; None before the charge.
    """

    protector: PositionProtector
    access: BatchAccess
    release: str
    granted: Mapping[str, int] = field(factory=dict)
    charged: ChargedRows | None = field(default=None, repr=False)

    @property
    def _row_key_columns(self) -> tuple[str, str]:
        """The names of the columns of subjects and row ids."""
        assert self.protector.row_key_columns is not None  # PartitionedBatch.open_batch has set it
        return self.protector.row_key_columns

    def tally(self, partition: T) -> T:
        """Compute the sums over each subject's rows in a partition, and a digest of all its rows.

        Args:
            partition: An iterator of Arrow batches, as ``mapInArrow`` passes it, or a pandas frame.

        Returns:
            Arrow batches, or a frame, with the columns of :data:`TALLY`.

        Raises:
            InputError: A column is missing, a row has no id, or a subject has two rows with the same id.
            UsageError: The batch's block has ended, or its key cannot be read here.
        """
        key = self.access.read_key()
        return self._map(partition, lambda batches: self._tally(batches, key))

    def reports(self, partition: T) -> T:
        """Draw the reports of a partition. Repeated calls draw the same reports.

        The partition must have all rows of its subjects. It is held in memory, because nothing is drawn before all its
        rows are compared with the charged ones.

        Args:
            partition: An iterator of Arrow batches, as ``mapInArrow`` passes it, or a pandas frame.

        Returns:
            Arrow batches, or a frame, with reports in place of the secret's columns. A frame keeps the order of its
            rows.

        Raises:
            InputError: A column is missing, or a row has no id.
            DoesNotHoldError: The rows are not the charged ones. The error names the id of one such row.
            UsageError: Nothing has been charged yet, the block has ended, or the key cannot be read here.
        """
        if self.charged is None:
            raise UsageError("plan must be what charge of the batch returned, got one before the charge")
        key = self.access.read_key()
        coins = self.access.coins(key, self.release)
        # A thread may run each task, so each has its own counter of refusals.
        task = evolve(self, protector=evolve(self.protector, coins=coins, refusals=Counter()))
        return task._map(partition, lambda batches: task._reports(batches, key))

    def schema(self, schema: Schema) -> Schema:
        """Return the Arrow schema of the table of reports, given the schema of the original table."""
        # Found by protecting a table without rows.
        frame, nothing = self._frame(schema.empty_table()), pl.Series([], dtype=pl.Boolean)
        return self._draw_part(frame, nothing, schema, without=nothing).schema

    def _map(self, partition: T, transform: Callable[[Iterator[Any]], Iterator[Table]]) -> T:
        """Transform a partition into a table of the same kind.

        Args:
            partition: An iterator of Arrow batches, or a pandas frame. A frame is a single batch. Its rows keep their
                order and index if the result has as many rows.
            transform: Function from Arrow batches to Arrow tables.
        """
        import pyarrow as pa

        table: Any = partition
        if not nw.dependencies.is_pandas_dataframe(table):
            if not isinstance(table, Iterator):
                expected = "an iterator of Arrow batches or a frame of pandas"
                raise UsageError(f"partition must be {expected}, got {type(table).__name__}")
            # A generator, since engines take batches one by one.
            return cast("T", (batch for part in transform(iter(table)) for batch in part.to_batches()))
        order = pa.array(range(len(table)), pa.int64())
        batch = _to_arrow(table).append_column(_ORDER, order)
        result = pa.concat_tables(list(transform(iter([batch]))))
        # A tally has a row for each subject instead of each row, so there is no order to restore.
        if _ORDER not in result.column_names:
            return cast("T", result.to_pandas())
        result = result.sort_by(_ORDER).drop_columns(_ORDER)
        # Columns that stay are taken from the frame itself: Arrow would not give all of their types back.
        remaining = [name for name in table.columns if name in result.column_names]
        reports = result.drop_columns(remaining).to_pandas().set_index(table.index)
        return cast("T", table[remaining].assign(**reports))

    def _tally(self, batches: Iterator[Any], key: bytes) -> Iterator[Table]:
        """Yield one table with the sums of each subject's rows.

        The table has an additional row without a subject. This row has the digest of all rows, and the evidence that
        other columns state the secret.

        Args:
            batches: The Arrow batches of a partition.
            key: The key of the batch.
        """
        import pyarrow as pa

        digest, sums, ids_by_batch = Digest(key), dict[str, RowSums](), []
        search, unsearched = ColumnSearch([]), list[nw.DataFrame[Any]]()
        for batch in batches:
            frame = self._frame(batch)
            unsearched.append(frame)
            if sum(map(len, unsearched)) >= SEARCHED_ROWS:
                self._search_columns(unsearched, search)
                unsearched = []
            subjects, ids = self._subjects(frame), texts_of(frame[self._row_key_columns[1]])
            for subject, mac in zip(subjects.to_list(), self._row_macs(frame, digest), strict=True):
                # Rows without a subject are not charged, but the batch is bound to them as well.
                digest.add_number(mac)
                if subject is not None:
                    sums.setdefault(subject, RowSums()).add(mac % FIELD)
            ids_by_batch.append(pl.DataFrame({"subject": subjects, "id": ids}).drop_nulls("subject"))
        self._search_columns(unsearched, search)
        # Reports follow from subject, id and secret: two rows that have all three in common would have the same report.
        if ids_by_batch and (count := pl.concat(ids_by_batch).is_duplicated().sum()):
            actual = f"an id twice among the rows of a subject ({count:,} such rows)"
            raise InputError([Fault(_TABLE, f"column {self._row_key_columns[1]}", actual, "ids that differ")])
        row: dict[str, Any] = {"subject": None, "rows": 0, "total": 0, "squares": 0, "digest": digest.text}
        # The evidence travels to the driver as text, since a tally has columns of plain types.
        row["search"] = json.dumps({"names": list(search.names), "evidence": search.to_json()})
        tallies = [row, *({"subject": subject, **_to_columns(row_sums)} for subject, row_sums in sums.items())]
        numbers = [(name, pa.int64()) for name in ("rows", "total", "squares")]
        schema = pa.schema([("subject", pa.string()), *numbers, ("digest", pa.string()), ("search", pa.string())])
        yield pa.Table.from_pylist(tallies, schema=schema)

    def _search_columns(self, frames: Sequence[nw.DataFrame[Any]], search: ColumnSearch) -> None:
        """Search the other columns for the secret in several batches at once, because engines pass small batches.

        Args:
            frames: The batches.
            search: The search, to which the evidence is added.
        """
        if not frames:
            return
        frame = frames[0] if len(frames) == 1 else nw.concat(frames)
        if not search.names:
            names = columns_to_search(self.protector, frame, ApplyOptions())
            # Subjects are needed for the charge, and the order is temporary.
            search.names = [name for name in names if name not in (self._row_key_columns[0], _ORDER)]
        search.add_part(frame, self.protector.row_secrets(frame))

    def _reports(self, batches: Iterator[Any], key: bytes) -> Iterator[Table]:
        """Draw reports batch by batch, and at the end those of subjects who may have fewer reports than rows.

        Args:
            batches: The Arrow batches of a partition.
            key: The key of the batch.
        """
        parts = [(self._frame(batch), batch.schema) for batch in batches]
        # All rows are compared before the first one is drawn, so the whole partition is in memory.
        self._check_rows([frame for frame, _ in parts], key)
        limited_frames = []
        for frame, schema in parts:
            subjects = self._subjects(frame)
            # Which rows of a limited subject have a report depends on all of its rows, so these rows wait.
            is_limited = subjects.is_in(list(self.granted)).fill_null(value=False)
            yield self._draw_part(frame, ~is_limited & subjects.is_not_null(), schema, without=subjects.is_null())
            limited_frames.append(_filter_rows(frame, is_limited))
        if parts and self.granted:
            frame = nw.concat(limited_frames)
            is_granted = self._is_granted(frame)
            yield self._draw_part(frame, is_granted, parts[-1][1], without=~is_granted)

    def _row_macs(self, frame: nw.DataFrame[Any], digest: Digest) -> list[int]:
        """Return the HMAC of each row's subject, id and secrets, as an integer below 2^256.

        Args:
            frame: The rows.
            digest: Computes HMACs under the batch's key.
        """
        secrets = [columns.bytes_of(frame) for _, columns in self.protector.positions]
        names = row_names(frame, self._row_key_columns)
        return [digest.mac(b"row", name, *of_row) for name, *of_row in zip(names, *secrets, strict=True)]

    def _check_rows(self, frames: Sequence[nw.DataFrame[Any]], key: bytes) -> None:
        """Refuse rows unless they are, for each subject, exactly the rows that were charged.

        Args:
            frames: All rows of a partition.
            key: The key of the batch.

        Raises:
            DoesNotHoldError: Some rows differ. The error names the id of one row, never its secret.
        """
        assert self.charged is not None  # reports() refuses a plan before the charge
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
        """Return a description of the subject's row that was not charged, which names the row's id.

        Args:
            frames: All rows of a partition.
            digest: Computes HMACs under the batch's key.
            subject: The subject.
            charged: The sums of the subject's charged rows.
        """
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
        # One row is new or changed. Otherwise, 0 means that one is missing, and anything else that several changed.
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
        """Return a mask of the rows that get a report: the granted number of each subject's first rows by id."""
        subjects, ids = self._subjects(frame), texts_of(frame[self._row_key_columns[1]])
        table = pl.DataFrame({"subject": subjects, "id": ids})
        # Ranks count from 1, so that the first n rows are those with ranks up to n.
        ranks = table.select(pl.col("id").rank("ordinal").over("subject"))["id"]
        return ranks <= subjects.replace_strict(self.granted, return_dtype=pl.UInt32)

    def _draw_part(self, frame: nw.DataFrame[Any], rows: pl.Series, schema: Schema, *, without: pl.Series) -> Table:
        """Draw reports for selected rows of a part, and return the rows with the column types of the table.

        Args:
            frame: The part.
            rows: Mask of the rows that get a report.
            schema: The Arrow schema of the table.
            without: Mask of the rows that are returned without a report. Rows in neither mask are left out.
        """
        import pyarrow as pa

        reported_frame = self.protector.protect(_filter_rows(frame, rows)).to_native()
        unreported_frame = self.protector.secret.without(_filter_rows(frame, without)).to_native()
        table = pl.concat([reported_frame, unreported_frame], how="diagonal").to_arrow()
        types_by_name = dict(zip(_normal_names(schema.names), schema.types, strict=True))
        remaining = set(types_by_name) - {*self.protector.secret.columns, *self.protector.secret.also}
        # polars returns some columns with another Arrow type (large strings), so columns that stay get that of the
        # schema.
        types = {
            column.name: column.type if pa.types.is_floating(column.type) else pa.string() for column in table.schema
        }
        types |= {name: types_by_name[name] for name in remaining}
        return table.cast(pa.schema([(name, types[name]) for name in table.column_names]))

    def _frame(self, batch: Any) -> nw.DataFrame[Any]:
        """Convert a batch to a polars frame, and check its columns.

        Raises:
            InputError: A column is missing, or a column that would be added already exists.
        """
        native = cast("pl.DataFrame", pl.from_arrow(batch))
        native.columns = _normal_names(native.columns)
        frame: nw.DataFrame[Any] = nw.from_native(native, eager_only=True)
        names = [name for name in frame.columns if name != _ORDER]
        self.protector.check(names, _TABLE)
        roles = dict(zip(self._row_key_columns, ("the subject of each row", "the id of each row"), strict=True))
        self.protector.secret.check_other_columns(roles, names, _TABLE)
        return frame

    def _subjects(self, frame: nw.DataFrame[Any]) -> pl.Series:
        """Return the normalised name of each row's subject, or null for a row without a subject."""
        return subjects_of(frame[self._row_key_columns[0]])


def _to_arrow(frame: Any) -> Table:
    """Convert a pandas frame to an Arrow table.

    An error for a column with values of mixed types names only the column, because Arrow's own error quotes one of the
    values.
    """
    import pyarrow as pa

    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, OverflowError, TypeError):
        # Arrow does not say which column failed, so each is tried by itself.
        names = [name for name in frame.columns if not _fits_arrow(frame[name])]
        faults = [Fault(_TABLE, f"column {name}", "values of several types", "values of one type") for name in names]
        raise InputError(faults or [Fault(_TABLE, "", "another table", "a table of Arrow's types")]) from None


def _fits_arrow(column: Any) -> bool:
    """Return whether a pandas column can be converted to an Arrow array."""
    import pyarrow as pa

    try:
        pa.Array.from_pandas(column)
    except (pa.ArrowException, OverflowError, TypeError):
        return False
    return True


def _to_columns(sums: RowSums) -> dict[str, Any]:
    """Return the sums of a subject as columns of its row in the tally."""
    return {"rows": sums.rows, "total": sums.total, "squares": sums.squares, "digest": None, "search": None}


def _normal_names(names: Sequence[str]) -> list[str]:
    """Return column names in Unicode normal form, or unchanged if two of them would become equal."""
    forms = list(map(normal_form, names))
    return forms if len({*forms}) == len(forms) else list(names)


def _filter_rows(frame: nw.DataFrame[Any], rows: pl.Series) -> nw.DataFrame[Any]:
    """Return the rows of a frame that a Boolean column selects."""
    filtered: nw.DataFrame[Any] = nw.from_native(frame.to_native().filter(rows), eager_only=True)
    return filtered


@define(kw_only=True, eq=False)
class PartitionedBatch:
    """The driver's side of a batch over a partitioned table, which charges subjects between the two passes.

    Attributes:
        partitions: The object that workers need for the first pass.
        batch: The batch, with its key and record.
        ledger: The ledger that is charged.
        cost: The cost of one row.
        options: The digest of the options, to which the rows are added later.
        keep: Columns to keep although they state the secret.
        is_charged: Whether the subjects were charged, so that the second pass may run.
    """

    partitions: Partitions
    batch: Batch
    ledger: Ledger
    cost: Cost
    options: Digest
    keep: tuple[str, ...] = ()
    is_charged: bool = False

    @classmethod
    @contextmanager
    def open_batch(
        cls, opened: OpenedFolder, name: str, charge: Charge, row: str, secret: Secret, options: ApplyOptions
    ) -> Iterator[Self]:
        """Open a batch that ends with the ``with`` block, unless the block raises: then the batch can be repeated.

        Args:
            opened: The release.
            name: The batch's name.
            charge: The ledger, and the column of subjects.
            row: Column of row ids, which must be distinct among the rows of a subject.
            secret: Columns of the secret.
            options: The positions, their maximum distance from a record, and columns to keep.

        Raises:
            UsageError: The release has no matrix or reports traces, the batch has ended, or the ledger has a calendar
                limit.
            InputError, DoesNotHoldError: The ledger or the batch cannot be used.
        """
        release, problem = matrix_of(opened, traces=False)
        sums, subject, row = sha256(opened.folder / SUMS), normal_form(str(charge.subject)), normal_form(row)
        with Batch(ledger=charge.path, name=name).open_folder() as batch, charge.open_ledger() as ledger:
            cost = cost_of_row(opened, options, "batch")
            check_no_calendar(ledger, cost.account)
            protector = evolve(
                PositionProtector.of(release, problem.data, secret, options),
                row_key_columns=(subject, row),
            )
            digest = Digest(batch.key())
            columns = {name: position.columns for name, position in protector.positions}
            # A repeated batch must have the same release, columns and options: its digest is compared with the recorded
            # one.
            bound = [sums, subject, row, options.max_snap, columns]
            digest.add(b"partitions", json.dumps(bound, sort_keys=True).encode())
            partitioned = cls(
                partitions=Partitions(protector=protector, access=batch.grant_access(), release=sums),
                batch=batch,
                ledger=ledger,
                cost=evolve(cost, purpose=batch.purpose(ledger.purposes())),
                options=digest,
                keep=options.keep,
            )
            # An error in the block is raised here, so that the batch stays open and can be repeated.
            yield partitioned
            if partitioned.is_charged:
                batch.end()

    @property
    def tally(self) -> Callable[[Any], Any]:
        """The first pass over a partition: :meth:`Partitions.tally`."""
        return self.partitions.tally

    def charge(self, tallies: object) -> Partitions:
        """Charge every subject durably for its rows, with one ledger entry per subject.

        Args:
            tallies: The results of the first pass for all partitions, as any kind of table.

        Returns:
            The object that draws reports in the second pass, only for the rows that were tallied. Subjects whose
            remaining budget is too small get reports for their first rows by id. Columns that state the secret are
            dropped, and a :class:`PrivoptWarning` names each of them.

        Raises:
            UsageError: The tables are not results of the first pass, a subject has rows in two partitions, or the batch
                was begun with another table or other options.
            DoesNotHoldError: The batch has charges, but its record is missing.
        """
        table = frame_of(tallies, "tallies")
        numbers = ("rows", "total", "squares")
        if {"subject", "digest", "search", *numbers} - {*table.columns}:
            raise UsageError(f"tallies must be what tally gives ({TALLY}), got columns {', '.join(table.columns)}")
        # A copy, so that a repeated call begins with the options again.
        digest = evolve(self.options)
        # The sum does not depend on the order of partitions.
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
        protector = self._drop_columns(table["search"].drop_nulls().to_list())
        paid = self.ledger.charges_for(self.cost.purpose)
        # Without its record the batch could be continued with another table, whose reports nobody paid for.
        if paid and not self.batch.record:
            raise DoesNotHoldError(f"{self.batch.folder}: changed: the batch was charged, and its record is gone")
        self.batch.begin(digest)
        counts = dict(sums.select("subject", "rows").iter_rows())
        granted = self._charge_subjects(
            # Amounts that an earlier run charged, converted to numbers of rows.
            counts,
            {account: int(sum(charges) / self.cost.amount[0]) for account, charges in paid.items()},
        )
        self.is_charged = True
        warn_all(protector.leak_warnings)
        subjects, totals, squares = (sums[name].to_list() for name in ("subject", "total", "squares"))
        return evolve(
            self.partitions,
            protector=protector,
            granted={name: granted[name] for name, rows in counts.items() if granted[name] < rows},
            charged=ChargedRows.of(self.batch.key(), subjects, totals, squares),
        )

    def _drop_columns(self, searches: Sequence[str]) -> PositionProtector:
        """Return a protector that drops the columns that state the secret according to the first pass.

        The column of row ids is kept, because the second pass needs it.

        Args:
            searches: The evidence of each partition, as JSON.

        Raises:
            UsageError: A column to keep is not in the table, or the evidence is malformed.
        """
        protector = self.partitions.protector
        try:
            parts = [json.loads(text) for text in searches]
            names = list(dict.fromkeys(name for part in parts for name in part["names"]))
            search = ColumnSearch(names)
            for part in parts:
                search.add_json(part["evidence"])
        except (ValueError, KeyError, TypeError):
            raise UsageError(f"tallies must be what tally gives ({TALLY}), got another search") from None
        for name in self.keep:
            if names and name not in names:
                raise UsageError(f"keep must name columns of the table that hold no secret, got {cut(name)}")
        assert protector.row_key_columns is not None  # open_batch has set it
        kept = (*self.keep, protector.row_key_columns[1])
        return drop_columns(protector, search, names, ApplyOptions(keep=kept))

    def _charge_subjects(self, counts: Mapping[str, int], paid: Mapping[AccountKey, int]) -> dict[str, int]:
        """Charge subjects for as many of their rows as their limits allow, minus the charges of an earlier run.

        Args:
            counts: Number of rows of each subject.
            paid: Number of rows for which an earlier run of the batch charged each account.

        Returns:
            Number of rows of each subject that are granted.
        """
        unit = self.cost.account
        accounts = {name: AccountKey(self.ledger.name_of(name), unit) for name in counts}
        # A subject that an earlier run has charged is not charged again, although it may have been granted fewer rows.
        granted = {name: min(rows, paid.get(accounts[name], 0)) for name, rows in counts.items()}
        due = {name: rows for name, rows in counts.items() if not granted[name]}
        while due:
            is_charged = self.ledger.charge_each(list(due), self.cost, times=list(due.values()))
            refused = []
            for name, success in zip(due, is_charged, strict=True):
                if success:
                    # All rows of a subject are charged at once; a refused subject is tried again below with what its
                    # budget allows.
                    granted[name] = due[name]
                else:
                    refused.append((name, self.ledger.account(name, unit=unit).left or 0))
            # Fewer rows than were refused, so that the loop ends also if the limit changes meanwhile.
            affordable = {
                name: min(due[name] - 1, int(remaining_budget / self.cost.amount[0]))
                for name, remaining_budget in refused
            }
            due = {name: rows for name, rows in affordable.items() if rows}
        return granted
