"""Draw reports for a table's partitions in Spark or Dask, with one report and one charge per row.

Engines may repeat a task, run two copies of it concurrently, or lose it. Tasks are therefore stateless: every report is
a function of the batch's key and of the row's subject, id and secret. Only the driver writes to the ledger, between two
passes over the table. The first pass, the tally, adds up keyed hashes of each subject's rows. The second pass draws
reports only if each subject's rows still have the same sums.

Source: docs/adr/0028-partitions.md. ADR 24 defines the digests and the coins, which are random bytes derived from the
batch's key.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import narwhals as nw
import polars as pl
from attrs import evolve, field, frozen

from privopt.declare.column_texts import subjects_of, texts_of
from privopt.declare.name_forms import normal_form
from privopt.errors import DoesNotHoldError, Fault, InputError, UsageError, cut
from privopt.ledger.batches import BatchAccess, Digest, row_names
from privopt_tables.apply_parts import columns_to_search
from privopt_tables.find_positions import ColumnSearch
from privopt_tables.options import ApplyOptions
from privopt_tables.partition_sums import FIELD, ChargedRows, RowSums
from privopt_tables.rows.by_position import PositionProtector

if TYPE_CHECKING:
    from pyarrow import Schema, Table
else:  # loaded late
    Schema = Table = Any

__all__ = ["TALLY", "Partitions"]

T = TypeVar("T")

TALLY: Final = "subject string, rows long, total long, squares long, digest string, search string"
"""The columns that the first pass returns, with their types in Spark's notation."""

SEARCHED_ROWS: Final = 200_000
"""Number of rows to collect before searching them together for columns that contain the secret."""

MAX_NAMED_IDS: Final = 5
"""Maximum number of row ids listed in an error message if it is not known which of a subject's rows changed."""

_TABLE, _ORDER = "table", "privopt order"
"""The table's name in error messages, and the name of a temporary column that stores the order of the rows."""
_UNSTABLE_IDS = "ids that an engine makes, such as uuid() or monotonically_increasing_id(), must be stored first"


@frozen(kw_only=True, eq=False)
class Partitions:
    """The workers' side of a batch, which can tally partitions and draw their reports in any process.

    The object can be pickled without revealing the batch's key, because each process reads the key from the batch's
    folder. Each process must be able to read that folder, and the batch's ``with`` block must not have ended.

    Attributes:
        protector: The protector that draws reports. Each task uses a copy of it that also holds the batch's coins,
            which are random bytes derived from the batch's key.
        access: The object through which each process reads the batch's key.
        release: The SHA-256 digest of the release's checksum file.
        granted: The number of reports granted to each subject whose budget does not cover all its rows. Other subjects
            get a report for every row with a usable position.
        charged: The keyed sums over the rows that were charged, or None if nothing has been charged yet.
    """

    protector: PositionProtector
    access: BatchAccess
    release: str
    granted: Mapping[str, int] = field(factory=dict)
    charged: ChargedRows | None = field(default=None, repr=False)

    @property
    def _row_key_columns(self) -> tuple[str, str]:
        """The names of the subject column and of the column of row ids."""
        assert self.protector.row_key_columns is not None  # set by PartitionedBatch.open_batch
        return self.protector.row_key_columns

    def tally(self, partition: T) -> T:
        """Compute keyed sums over each subject's rows in a partition, and a digest of all rows.

        Args:
            partition: An iterator of Arrow batches, as passed by ``mapInArrow``, or a pandas frame.

        Returns:
            Arrow batches, or a pandas frame, with the columns of :data:`TALLY`.

        Raises:
            InputError: A column is missing, a row has no id, or a subject has two rows with the same id.
            UsageError: The batch's ``with`` block has ended, or its key cannot be read in this process.
        """
        key = self.access.read_key()
        return self._map(partition, lambda batches: self._tally(batches, key))

    def reports(self, partition: T) -> T:
        """Draw the reports for a partition. Repeated calls draw the same reports.

        The partition must contain all rows of each of its subjects. It is held in memory, because all its rows are
        compared with the charged rows before anything is drawn.

        Args:
            partition: An iterator of Arrow batches, as passed by ``mapInArrow``, or a pandas frame.

        Returns:
            Arrow batches, or a pandas frame, with reports in place of the secret's columns. The rows of a frame keep
            their order, but the rows of batches may not. A row has no report if it has no subject or no usable
            position, or if the charge did not grant a report for it.

        Raises:
            InputError: A column is missing, or a row has no id.
            DoesNotHoldError: The rows differ from those that were charged. The error names the id of the row that
                differs or, if that is not known, the ids of up to five of the subject's rows.
            UsageError: Nothing has been charged yet, the batch's ``with`` block has ended, or its key cannot be read in
                this process.
        """
        if self.charged is None:
            raise UsageError("plan must be what charge of the batch returned, got one before the charge")
        key = self.access.read_key()
        coins = self.access.coins(key, self.release)
        # Tasks may run in several threads, so each task gets a counter of refusals to itself. Nobody reads the counter.
        task = evolve(self, protector=evolve(self.protector, coins=coins, refusals=Counter()))
        return task._map(partition, lambda batches: task._reports(batches, key))

    def schema(self, schema: Schema) -> Schema:
        """Return the Arrow schema of the table of reports, given the schema of the original table."""
        # The schema is determined by protecting a table without rows.
        frame, nothing = self._frame(schema.empty_table()), pl.Series([], dtype=pl.Boolean)
        return self._draw_part(frame, nothing, schema, without=nothing).schema

    def _map(self, partition: T, transform: Callable[[Iterator[Any]], Iterator[Table]]) -> T:
        """Apply a function that works on Arrow data to a partition, and convert the result to the partition's type.

        Args:
            partition: An iterator of Arrow batches, or a pandas frame. A frame is passed on as a single batch. If the
                result contains the rows of the frame, they keep their order and index.
            transform: A function that takes an iterator of Arrow batches and returns an iterator of Arrow tables.
        """
        import pyarrow as pa

        table: Any = partition
        if not nw.dependencies.is_pandas_dataframe(table):
            if not isinstance(table, Iterator):
                expected = "an iterator of Arrow batches or a frame of pandas"
                raise UsageError(f"partition must be {expected}, got {type(table).__name__}")
            # This is a generator, because engines take batches one by one.
            return cast("T", (batch for part in transform(iter(table)) for batch in part.to_batches()))
        order = pa.array(range(len(table)), pa.int64())
        batch = _to_arrow(table).append_column(_ORDER, order)
        result = pa.concat_tables(list(transform(iter([batch]))))
        # A tally has one row per subject rather than one per row of the table, so there is no order to restore.
        if _ORDER not in result.column_names:
            return cast("T", result.to_pandas())
        result = result.sort_by(_ORDER).drop_columns(_ORDER)
        # Columns that stay are taken from the original frame, because Arrow does not preserve all of their types.
        remaining = [name for name in table.columns if name in result.column_names]
        reports = result.drop_columns(remaining).to_pandas().set_index(table.index)
        return cast("T", table[remaining].assign(**reports))

    def _tally(self, batches: Iterator[Any], key: bytes) -> Iterator[Table]:
        """Yield one table with the sums of each subject's rows.

        An additional row without a subject contains a digest of all rows and any evidence that other columns contain
        the secret.

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
                # Rows without a subject are not charged. They are digested nevertheless, because a repeated batch must
                # have them too.
                digest.add_number(mac)
                if subject is not None:
                    sums.setdefault(subject, RowSums()).add(mac % FIELD)
            ids_by_batch.append(pl.DataFrame({"subject": subjects, "id": ids}).drop_nulls("subject"))
        self._search_columns(unsearched, search)
        # A report follows from the subject, id and secret, so two rows with the same three would get the same report.
        if ids_by_batch and (count := pl.concat(ids_by_batch).is_duplicated().sum()):
            actual = f"an id twice among the rows of a subject ({count:,} such rows)"
            raise InputError([Fault(_TABLE, f"column {self._row_key_columns[1]}", actual, "ids that differ")])
        row: dict[str, Any] = {"subject": None, "rows": 0, "total": 0, "squares": 0, "digest": digest.text}
        # The evidence is passed to the driver as text, because the columns of a tally have plain types only.
        row["search"] = json.dumps({"names": list(search.names), "evidence": search.to_json()})
        tallies = [row, *({"subject": subject, **_to_columns(row_sums)} for subject, row_sums in sums.items())]
        numbers = [(name, pa.int64()) for name in ("rows", "total", "squares")]
        schema = pa.schema([("subject", pa.string()), *numbers, ("digest", pa.string()), ("search", pa.string())])
        yield pa.Table.from_pylist(tallies, schema=schema)

    def _search_columns(self, frames: Sequence[nw.DataFrame[Any]], search: ColumnSearch) -> None:
        """Search the columns of several batches for the secret.

        Batches are combined, because engines may pass very small ones.

        Args:
            frames: The batches to search.
            search: The search to add the evidence to.
        """
        if not frames:
            return
        frame = frames[0] if len(frames) == 1 else nw.concat(frames)
        if not search.names:
            names = columns_to_search(self.protector, frame, ApplyOptions())
            # The column with the order is temporary.
            search.names = [name for name in names if name != _ORDER]
        search.add_part(frame, self.protector.row_secrets(frame))

    def _reports(self, batches: Iterator[Any], key: bytes) -> Iterator[Table]:
        """Draw reports batch by batch.

        If a subject does not get a report for every row, its rows are processed last, because all the subject's rows
        are needed to decide which of them get one.

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
            # Which of a limited subject's rows get a report depends on all of its rows, so these rows are drawn last.
            is_limited = subjects.is_in(list(self.granted)).fill_null(value=False)
            yield self._draw_part(frame, ~is_limited & subjects.is_not_null(), schema, without=subjects.is_null())
            limited_frames.append(_filter_rows(frame, is_limited))
        if parts and self.granted:
            frame = nw.concat(limited_frames)
            is_granted = self._is_granted(frame)
            yield self._draw_part(frame, is_granted, parts[-1][1], without=~is_granted)

    def _row_macs(self, frame: nw.DataFrame[Any], digest: Digest) -> list[int]:
        """Return an HMAC over each row's subject, id and secrets, as an integer below 2^256.

        Args:
            frame: The rows to hash.
            digest: The object that computes HMACs under the batch's key.
        """
        secrets = [columns.bytes_of(frame) for _, columns in self.protector.positions]
        names = row_names(frame, self._row_key_columns)
        return [digest.mac(b"row", name, *of_row) for name, *of_row in zip(names, *secrets, strict=True)]

    def _check_rows(self, frames: Sequence[nw.DataFrame[Any]], key: bytes) -> None:
        """Check that each subject's rows are exactly those that were charged.

        Args:
            frames: All rows of a partition.
            key: The key of the batch.

        Raises:
            DoesNotHoldError: A subject's rows differ from the charged ones. The error names the id of the row that
                differs or, if that is not known, the ids of up to five of the subject's rows. It never names a secret.
        """
        assert self.charged is not None  # reports() raises an error before the charge
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
        """Describe how a subject's rows differ from the charged ones, referring to rows by their ids.

        Args:
            frames: All rows of a partition.
            digest: The object that computes HMACs under the batch's key.
            subject: The subject whose rows differ.
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
        # If the element is that of a row, this row is new or changed. Otherwise, 0 means that one row is missing, and
        # any other value means that several rows changed.
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
        """Return a mask of the rows that get a report.

        These are the first rows of each subject when sorted by id, up to the number granted.
        """
        subjects, ids = self._subjects(frame), texts_of(frame[self._row_key_columns[1]])
        table = pl.DataFrame({"subject": subjects, "id": ids})
        # Ranks count from 1, so the first n rows are those with ranks up to n.
        ranks = table.select(pl.col("id").rank("ordinal").over("subject"))["id"]
        return ranks <= subjects.replace_strict(self.granted, return_dtype=pl.UInt32)

    def _draw_part(self, frame: nw.DataFrame[Any], rows: pl.Series, schema: Schema, *, without: pl.Series) -> Table:
        """Draw reports for some rows, and return an Arrow table in which the remaining columns keep their types.

        Args:
            frame: A part of the partition.
            rows: A mask of the rows that get a report.
            schema: The Arrow schema of the original table.
            without: A mask of the rows that are returned without a report. Rows in neither mask are omitted.
        """
        import pyarrow as pa

        reported_frame = self.protector.protect(_filter_rows(frame, rows)).to_native()
        unreported_frame = self.protector.secret.without(_filter_rows(frame, without)).to_native()
        table = pl.concat([reported_frame, unreported_frame], how="diagonal").to_arrow()
        types_by_name = dict(zip(_normal_names(schema.names), schema.types, strict=True))
        remaining = set(types_by_name) - {*self.protector.secret.columns, *self.protector.secret.also}
        # polars returns some columns with a different Arrow type, such as large strings, so columns that stay are cast
        # to their type in the schema.
        types = {
            column.name: column.type if pa.types.is_floating(column.type) else pa.string() for column in table.schema
        }
        types |= {name: types_by_name[name] for name in remaining}
        return table.cast(pa.schema([(name, types[name]) for name in table.column_names]))

    def _frame(self, batch: Any) -> nw.DataFrame[Any]:
        """Convert an Arrow batch to a polars frame, and check its columns.

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

    Raises:
        InputError: A column cannot be converted, for example because it contains values of several types. Unlike
            Arrow's own error, this one never quotes a value.
    """
    import pyarrow as pa

    try:
        return pa.Table.from_pandas(frame, preserve_index=False)
    except (pa.ArrowException, OverflowError, TypeError):
        # Arrow does not say which column failed, so each column is tried separately.
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
    """Convert a subject's sums to a row of the tally, as a dict from column names to values."""
    return {"rows": sums.rows, "total": sums.total, "squares": sums.squares, "digest": None, "search": None}


def _normal_names(names: Sequence[str]) -> list[str]:
    """Return column names in Unicode normal form, or unchanged if two of them would become equal."""
    forms = list(map(normal_form, names))
    return forms if len({*forms}) == len(forms) else list(names)


def _filter_rows(frame: nw.DataFrame[Any], rows: pl.Series) -> nw.DataFrame[Any]:
    """Return the rows of a frame that are selected by a Boolean series."""
    filtered: nw.DataFrame[Any] = nw.from_native(frame.to_native().filter(rows), eager_only=True)
    return filtered
