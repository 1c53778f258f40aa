"""Protect rows with a certified matrix. The report for a position or id is drawn from its record's matrix row.

In a batch, the random bytes are derived from the batch's key, so that each row gets the same report in every run (ADR
24).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import narwhals as nw
import numpy as np
import polars as pl
from attrs import evolve, field, frozen

from privopt.arrays import Bools, Floats, Ints
from privopt.declare.column_texts import FIRST, KEPT, STICKY, prefix_name, texts_of
from privopt.declare.name_forms import visible_text
from privopt.errors import DoesNotHoldError, UsageError, cut, number_of
from privopt.interfaces import Guarantee
from privopt.ledger.batches import Coins, row_names
from privopt.numbers.sampling import RowStreams, make_source
from privopt.specs import NOTHING
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.problem.declared import MetricPrivacy
from privopt_metric_dp.problem.read_points import COORDINATES
from privopt_metric_dp.region.snap_to_region import Snapper
from privopt_metric_dp.space.places import Space
from privopt_metric_dp.traces.interpolate import Ways
from privopt_tables.charge_rows import RowCharger, RowOutputs, RowPlaces
from privopt_tables.column_cells import spread_rows
from privopt_tables.find_positions import RowSecrets
from privopt_tables.nearest_record import Snap, Strays, to_degrees, unusable_reasons
from privopt_tables.options import BETWEEN_RECORDS, ApplyOptions, check_options, describe_limits, list_positions
from privopt_tables.position_units import UnitSearch
from privopt_tables.rows.protector import SEEDED, RowProtector
from privopt_tables.secret_columns import Secret, positions_of
from privopt_tables.secret_texts import MAX_TEXT_ROWS
from privopt_tables.trace_rows import Tracer

__all__ = ["PositionProtector"]

UNIT_ROWS: Final = 5_000
"""Maximum number of rows per part of a table whose positions are compared with the records in other units."""

_READING_PRECISION: Final = "to the millimetre (degrees: to 1e-7, so two may be taken for up to 17.2 mm farther apart)"
_EVERYWHERE_NOTES: Final = {
    2: (
        "the guarantee is between points of streets, by the lengths of paths along them: a position is read "
        f"{_READING_PRECISION} and reported as the nearest such point, so two positions, however close, may be "
        "distinguished as well as their nearest streets"
    ),
    3: (
        f"the guarantee is between positions as they are read, {_READING_PRECISION}, by the lengths of paths inside "
        "the region; a position outside is reported as the nearest point of its boundary"
    ),
}
"""Notes on a guarantee that covers every point in a region, keyed by the number of corners of the region's simplices (2
for street segments, 3 for triangles in an area)."""


@frozen(kw_only=True, eq=False)
class PositionProtector(RowProtector):
    """A protector that draws a report for each position or id from a matrix, with exactly the certified probabilities.

    Attributes:
        release: The matrix to draw reports from.
        snap: The rule that finds each row's record: the one nearest to its position, or the one with its id.
        outputs: The outputs with their coordinates, or None if they have no coordinates.
        tracer: The object that draws reports along traces. None if the release reports each row independently.
        find_neighbours: A function that finds the places near a position. Reports stored for these places may be
            repeated at the position. If None, only the report stored for the position's own place may be repeated.
        row_key_columns: The subject column and the column of row ids, which together identify a row in a batch. If
            None, rows are identified by their index in the table.
        ways: The object that measures path lengths from any point to the outputs, which is needed for traces in a
            region. None if there are no traces, or if positions are replaced by records.
        strays: A count of the positions that are far from every record.
        unit_searches: Searches for the unit of the table's numbers, one for each position that has two columns. Empty
            if the records have no coordinates.
        look_alike_counts: The number of rows so far whose id looks like a record's id but differs from it, keyed by
            column.
    """

    release: MatrixRelease
    snap: Snap
    outputs: Space | None
    tracer: Tracer | None = None
    ways: Ways | None = None
    find_neighbours: Callable[[Floats, Ints], list[list[int]]] | None = None
    row_key_columns: tuple[str, str] | None = None
    unit_searches: tuple[UnitSearch, ...] = ()
    look_alike_counts: Counter[str] = field(factory=Counter)
    strays: Strays = field(init=False)

    def __attrs_post_init__(self) -> None:
        # attrs does not allow plain assignments to a frozen class.
        object.__setattr__(self, "strays", Strays(reach=self.snap.reach))

    @classmethod
    def of(
        cls,
        release: MatrixRelease,
        data: MetricData,
        secret: Secret,
        options: ApplyOptions,
        charger: RowCharger | None = None,
        coins: Coins | None = None,
    ) -> PositionProtector:
        """Create a protector for a matrix, after checking the options.

        Args:
            release: The matrix to draw from.
            data: The problem's data, which contains the coordinates and the region.
            secret: The columns that hold the secret.
            options: The options for applying the release.
            charger: The object that charges the rows, which must be open before the first row is protected. If None,
                nothing is charged.
            coins: The source of the batch's random bytes. None if there is no batch.

        Raises:
            UsageError: The prefix is blank, the records have no positions of the secret's kind, the maximum distance or
                the seed is invalid, or some options cannot be combined.
        """
        positions = list_positions(secret, options, data)
        kind = positions[0][1].kind
        # Only releases that report traces have a walker.
        check_options(positions, options, traces=release.walker is not None)
        source = make_source(options.seed)
        # on_map is None for records without positions, such as words. A region's vertices are used even then.
        places = data.records if data.region is not None or data.records.on_map is not None else None
        snapper = None
        if data.region is not None and kind != "id":
            # A position in a region is replaced with one of the vertices around it, drawn at random. An id already
            # names a vertex.
            snapper = Snapper.of(data.region, data.epsilon)
        snap = Snap(ids=release.records, places=places, region=snapper, source=source, max_distance=options.max_snap)
        for _, columns in positions:
            snap.check(columns)
        # A release may use only some of the problem's outputs.
        outputs = _select_outputs(release.outputs.tolist(), data.outputs)
        if outputs is not None and kind == "geographic":
            # The reports' coordinates are of the same kind as the table's.
            outputs = to_degrees(outputs)
        return cls(
            release=release,
            secret=secret,
            positions=positions,
            snap=snap,
            outputs=outputs,
            source=source,
            is_seeded=options.seed is not None,
            charger=charger,
            tracer=Tracer.of(release, data, options.subject_column, options.time, source, charger, options.forms),
            coins=coins,
            find_neighbours=_make_neighbour_finder(options, snap, kind),
            unit_searches=_make_unit_searches(positions, places),
            ways=None if snapper is None or release.walker is None else Ways.of(data),
        )

    @property
    def first_position(self) -> Secret:
        """The columns of a row's first position.

        If reports are stored or the release reports traces, a row has no other position.
        """
        return self.positions[0][1]

    def _prefix_names(self, *names: str) -> tuple[str, ...]:
        """Add the position's prefix to the names of columns that apply to the whole row.

        If rows have several positions, or a single position without a prefix, the names are returned unchanged.
        """
        prefix = self.positions[0][0] if len(self.positions) == 1 else None
        return tuple(prefix_name(prefix, name) for name in names)

    def coordinate_columns(self, report: str) -> tuple[str, ...]:
        """Return the names of the coordinate columns that belong to the report column ``report``.

        The tuple is empty if the outputs have no coordinates.
        """
        axes = () if self.outputs is None else COORDINATES[self.outputs.kind]
        return tuple(f"{report}_{axis}" for axis in axes)

    @property
    def _trace_columns(self) -> tuple[str, ...]:
        """The names of the columns that mark repeated reports and the first report of each trace.

        The tuple is empty if the release does not report traces.
        """
        return () if self.tracer is None else self._prefix_names(KEPT, FIRST)

    @property
    def _mark_columns(self) -> tuple[str, ...]:
        """The names of the columns that mark reports as drawn with a seed or as stored."""
        return self._prefix_names(*((SEEDED,) if self.is_seeded else ()), *((STICKY,) if self.is_sticky else ()))

    @property
    def added_columns(self) -> tuple[str, ...]:
        """The names of the columns that are added to the table."""
        reports = [name for report in self.report_columns for name in (report, *self.coordinate_columns(report))]
        return (*reports, *self._trace_columns, *self._mark_columns)

    def check(self, names: list[str], table: str) -> None:
        """Run the base class's checks on a table's columns, and check that the columns needed for traces exist.

        Args:
            names: The names of the table's columns.
            table: The table's name, used in error messages.

        Raises:
            InputError: A required column is missing or is a column of the secret, two columns have the same name, or a
                column to be added already exists.
        """
        super().check(names, table)
        if self.tracer is not None:
            roles = {self.tracer.subject: "whose each row is"}
            if self.tracer.time is not None:
                roles[self.tracer.time] = "when each row was"
            self.secret.check_other_columns(roles, names, table)

    def protect(self, frame: nw.DataFrame[Any], first: int = 0) -> nw.DataFrame[Any]:
        """Return the rows with reports in place of positions or ids, and count the rows that get no report.

        With a ledger, reports are drawn only for rows that were charged.

        Args:
            frame: Rows of the table.
            first: The index of the frame's first row in the whole table.
        """
        marks: list[Bools] = []
        if self.tracer is not None:
            rows, reason = self.snap.rows(frame, self.first_position, strays=self.strays)
            measure_steps = None if self.ways is None else partial(self._distances_to_outputs, frame)
            # For traces, each row has two marks, which say whether its report is repeated and whether it is the trace's
            # first.
            (output_numbers, reason), *marks = self.tracer.draw_reports(
                frame, rows, reason, measure_steps=measure_steps
            )
        elif self.charger is None:
            output_numbers, reason = self._draw_reports(frame, first)
        else:
            output_numbers, reason = self.charger.draw_reports(
                frame,
                partial(self._draw_reports, frame, first),
                lambda rows: self._find_places(frame[rows]),
                len(self.positions),
            )
            # Stored reports come from the ledger's files, which someone may have changed.
            if not (output_numbers.min(initial=0) >= -1 and output_numbers.max(initial=0) < len(self.release.outputs)):
                raise DoesNotHoldError("kept reports: changed: an output that the release does not have")
        self.count_refusals(reason, first)
        columns = []
        for position, report in enumerate(self.report_columns):
            # -1 means no report.
            outputs = pl.Series(np.ascontiguousarray(output_numbers[:, position])).replace(-1, None)
            columns.append(pl.Series(report, self.release.outputs.tolist(), dtype=pl.String).gather(outputs))
            if self.outputs is not None and self.outputs.coordinates is not None:
                for axis, name in enumerate(self.coordinate_columns(report)):
                    columns.append(pl.Series(name, self.outputs.coordinates[:, axis]).gather(outputs))
        columns += [pl.Series(name, mark) for name, mark in zip(self._trace_columns, marks, strict=True)]
        columns += [pl.Series(name, [True]).new_from_index(0, len(frame)) for name in self._mark_columns]
        return self.replace_secret(frame, columns)

    def draw_outputs(self, frame: nw.DataFrame[Any]) -> Ints:
        """Draw a report for the first position in each of B rows.

        Nothing is charged, and rows without a report are not counted.

        Returns:
            (B,) The index of each row's output, or -1 for a row without a report.
        """
        return self._draw_reports(frame, 0)[0][:, 0]

    def row_secrets(self, frame: nw.DataFrame[Any]) -> list[RowSecrets]:
        """Return the secrets to search for in other columns: positions, and the ids and names of records.

        Positions are taken from all rows, whereas ids and names are taken from an evenly spaced sample of the rows. If
        the table contains positions, the ids and names of the records found by :meth:`_record_ids` are used.
        """
        text_rows = spread_rows(len(frame), MAX_TEXT_ROWS)
        places, secrets = self.snap.places, []
        row_of_id = {} if places is None else {name: row for row, name in enumerate(places.ids)}
        for _, columns in self.positions:
            record_ids = self._record_ids(frame.select(*columns.columns)[text_rows.tolist()], columns)
            texts: list[list[str | None]] = [record_ids]
            if places is not None and places.names is not None:
                texts.append([None if name not in row_of_id else places.names[row_of_id[name]] for name in record_ids])
            positions, is_geographic = None, columns.kind == "geographic"
            if columns.kind != "id":
                positions, fault = positions_of(frame, columns)
                # Unusable positions, such as those outside the globe, are not secrets to search for.
                is_usable = unusable_reasons(positions, fault, geographic=is_geographic) < 0
                positions = np.where(is_usable[:, None], positions, np.nan)
            elif self.outputs is not None and places is not None and places.on_map is not None:
                is_geographic = places.kind == "geographic"
                # An id reveals the position of its record, so that position must not occur in another column either.
                place_of_record = np.array([row_of_id.get(name, -1) for name in self.release.records.tolist()])
                records, reason = self.snap.rows(frame, columns, fixed=True)
                rows = np.where(reason < 0, place_of_record[records], -1)
                positions = np.where(rows[:, None] >= 0, places.on_map[rows], np.nan)
            secrets.append(
                RowSecrets(
                    positions=positions,
                    is_geographic=is_geographic,
                    texts=tuple(texts),
                    text_rows=text_rows,
                    # This is the probability that a cell which names some record names its own row's record by
                    # coincidence.
                    text_chance=1.0 / max(2, len(self.release.records)),
                )
            )
        return secrets

    def look_at_secrets(self, frame: nw.DataFrame[Any]) -> None:
        """Count the positions that would fit another unit, and the ids that look like a record's id but differ from it.

        The counts accumulate over all parts of the table, and are used in warnings and error messages.
        """
        for _, columns in self.positions:
            if columns.kind == "id":
                self._count_look_alikes(texts_of(frame[columns.columns[0]]))
        sample = frame[spread_rows(len(frame), UNIT_ROWS).tolist()]
        for search in self.unit_searches:
            # The numbers may be in any unit, so they are read as planar ones, which skips the checks for degrees.
            search.add_positions(positions_of(sample, Secret(kind="planar", columns=search.columns))[0])

    def _count_look_alikes(self, texts: pl.Series) -> None:
        """Count the ids in a column that look like a record's id but differ from it.

        Args:
            texts: The ids to examine.
        """
        # Ids of visible ASCII characters only are skipped, because they cannot look like a different id.
        unusual = texts.filter(texts.str.contains(r"[^\x21-\x7e]").fill_null(False))
        if not len(unusual):
            return
        ids = set(self.release.records.tolist())
        visible_ids = set(map(visible_text, ids))
        look_alikes = [
            text for text in unusual.unique().to_list() if text not in ids and visible_text(text) in visible_ids
        ]
        if look_alikes:
            self.look_alike_counts[texts.name] += int(unusual.is_in(look_alikes).sum())

    @property
    def _spelling_notes(self) -> tuple[str, ...]:
        """Notes on positions that are probably in another unit, and on ids that only look like a record's id.

        The notes do not quote any cells, because these may be secret.
        """
        look_alikes = (
            f"column {cut(name)}: {number_of(count, 'row')} without a report: the id looks like a record's, and "
            "differs from it by characters that no one sees"
            for name, count in self.look_alike_counts.items()
        )
        return (*(note for search in self.unit_searches for note in search.notes), *look_alikes)

    def no_report_error(self, table: str) -> UsageError:
        """Return the error to raise if no row of a table got a report.

        The message mentions any positions that may be in another unit, and any ids that only look like records' ids.
        """
        return UsageError("; ".join((str(super().no_report_error(table)), *self._spelling_notes)))

    def _record_ids(self, frame: nw.DataFrame[Any], columns: Secret) -> list[str | None]:
        """Return the id of each row's record, or None for a row without a record.

        A position's record is the nearest one. In a region, it is the vertex with the largest barycentric coordinate.

        Args:
            frame: The rows whose records to find.
            columns: The columns of one position.
        """
        ids = self.release.records.tolist()
        numbers, reason = self.snap.rows(frame, columns, fixed=True)
        return [
            # In a region, ``row`` is the index of a vertex, which need not be one of the release's records.
            ids[row] if row_has_record and row < len(ids) else None
            for row, row_has_record in zip(numbers.tolist(), (reason < 0).tolist(), strict=True)
        ]

    def _draw_reports(self, frame: nw.DataFrame[Any], first: int, rows: Ints | None = None) -> RowOutputs:
        """Draw reports for some rows. In each row, either all positions get a report or none do.

        Args:
            frame: A part of the table.
            first: The index of the part's first row in the whole table.
            rows: The indices, within the part, of the rows to draw for. If None, reports are drawn for all rows.

        Returns:
            The rows' reports, as described in :data:`.charge_rows.RowOutputs`.
        """
        # If reports are stored, strays were already counted when the rows' places were looked up.
        strays = None if self.is_sticky else self.strays
        part = frame if rows is None else frame[rows]
        make_streams = partial(self._make_streams, part, first + (np.arange(len(part)) if rows is None else rows))
        records_by_position = [
            self.snap.rows(part, columns, strays=strays, streams=make_streams("vertex", name, columns))
            for name, columns in self.positions
        ]
        reason = np.full(len(part), -1, dtype=np.int64)
        # The positions are visited in reverse order, so that the first position without a record determines the reason.
        for _, position_reason in reversed(records_by_position):
            reason = np.where(position_reason >= 0, position_reason, reason)
        usable_rows = np.flatnonzero(reason < 0)
        output_numbers = np.full((len(part), len(self.positions)), -1, dtype=np.int64)
        for position, (name, columns) in enumerate(self.positions):
            streams = make_streams("output", name, columns)
            # In a batch, each row draws from its own stream, so that a repeated run draws the same reports.
            source = self.source if streams is None else streams.of(usable_rows)
            records = records_by_position[position][0][usable_rows]
            output_numbers[usable_rows, position] = self.release.sampler.draw_each(records, source=source)
        return output_numbers, reason

    def _make_streams(
        self, frame: nw.DataFrame[Any], numbers: Ints, purpose: str, name: str | None, columns: Secret
    ) -> RowStreams | None:
        """Return the rows' streams of random bytes for one position, or None if there is no batch.

        A stream is derived from the batch's key, the row and its secret, so that a repeated run draws the same report.

        Args:
            frame: The rows to draw for.
            numbers: The rows' indices in the whole table, which identify the rows if there are no row ids.
            purpose: What the bytes are used to draw, either ``"vertex"`` or ``"output"``.
            name: The position's prefix, or None if it has none.
            columns: The columns of the position.
        """
        if self.coins is None:
            return None
        coins, secrets = self.coins, columns.bytes_of(frame)
        names = (
            row_names(frame, self.row_key_columns)
            if self.row_key_columns
            else [row.to_bytes(8, "big") for row in numbers.tolist()]
        )

        def read(row: int, start: int, count: int) -> bytes:
            """Return ``count`` bytes from a row's stream of random bytes, starting at index ``start``."""
            return coins.stream(purpose, names[row], name or "", secrets[row], start, count)

        return RowStreams(read, np.arange(len(names)))

    def _distances_to_outputs(self, frame: nw.DataFrame[Any], rows: Ints) -> Ints:
        """Return the path lengths from the positions of M rows to the K outputs, in steps.

        Args:
            frame: A part of the table.
            rows: (M,) The indices of the rows within the part.

        Returns:
            (M, K) The path lengths.
        """
        assert self.ways is not None  # protect() uses this method only then
        return self.ways.of_points(self.snap.snap_positions(frame[rows], self.first_position))

    def _find_places(self, frame: nw.DataFrame[Any]) -> RowPlaces:
        """Find the place under which each row's report is stored: a record or a vertex near the position.

        The place is a deterministic function of the position, so that all visits to the position share one stored
        report.

        Returns:
            The rows' places, as described in :data:`.charge_rows.RowPlaces`.
        """
        numbers, reason = self.snap.rows(frame, self.first_position, fixed=True, strays=self.strays)
        if self.find_neighbours is None:
            return numbers, reason, None
        return numbers, reason, self.find_neighbours(positions_of(frame, self.first_position)[0], reason)

    @property
    def price(self) -> str | None:
        """A sentence that states what is charged for a row, or None if nothing is charged.

        For traces, it states the charges for a first report and for each later segment.
        """
        return super().price if self.tracer is None else self.tracer.price

    @property
    def sequence(self) -> str | None:
        """A sentence that states the guarantee for all reports about a subject together.

        It is None if nothing is charged and the release does not report traces.
        """
        # Traces add up the epsilon that each subject spends, even if there is no ledger.
        counter = self.tracer or self.charger
        return None if counter is None else counter.sequence

    def warnings(self, names: Sequence[str]) -> tuple[str, ...]:
        """Return warnings about distant positions, other units and similar ids, then the base class's warnings."""
        return (*self.strays.notes, *self._spelling_notes, *super().warnings(names))

    def notes(self, guarantee: Guarantee) -> tuple[str, ...]:
        """Return the base class's notes, followed by one on positions that are not records.

        The additional note explains what the guarantee means for such positions. It is omitted if the secret is an id
        or the release has no guarantee.
        """
        base_notes = super().notes(guarantee)
        if self.positions[0][1].kind == "id" or guarantee.kind == NOTHING:
            return base_notes
        if self.snap.region is not None:
            # Simplices have two corners if the region consists of streets, and three if it is an area.
            return (*base_notes, _EVERYWHERE_NOTES[self.snap.region.simplices.shape[1]])
        # A factor can be stated only for metric DP between all pairs.
        difference = "as well as those"
        if guarantee.kind == MetricPrivacy.kind and guarantee.epsilon is not None and not describe_limits(guarantee):
            factor = f"exp({float(guarantee.epsilon):g} d)"
            difference = f"by a factor of at most {factor} in the odds, where d is the distance of those records"
        return (
            *base_notes,
            f"{BETWEEN_RECORDS}. Two positions near each other may have different nearest records, and are then "
            f"distinguished {difference}",
        )


def _make_unit_searches(positions: Sequence[tuple[str | None, Secret]], places: Space | None) -> tuple[UnitSearch, ...]:
    """Return one search for each position that consists of two columns, used to detect numbers in an unexpected unit.

    Args:
        positions: The prefix and the columns of each position.
        places: The records, or None if they have no coordinates. Positions of a different kind from the records are
            left out.
    """
    if places is None or places.on_map is None:
        return ()
    return tuple(
        UnitSearch(columns=columns.columns, records=places.on_map, is_geographic=columns.kind == "geographic")
        for _, columns in positions
        if columns.kind == places.kind and len(columns.columns) == 2
    )


def _make_neighbour_finder(
    options: ApplyOptions, snap: Snap, kind: str
) -> Callable[[Floats, Ints], list[list[int]]] | None:
    """Return a function that finds the places near each position. Their stored reports may be repeated at the position.

    Returns None if ``charge.within`` is not set. In this case, only the report stored for a position's own place may be
    repeated.

    Args:
        options: The options for applying the release. ``charge.within`` is the maximum distance to nearby places in km,
            or None.
        snap: The rule that finds the record of each row.
        kind: The kind of secret (:class:`Secret`).

    Raises:
        UsageError: The distance is not a number above 0 or is too small (see :meth:`.Snap.make_neighbour_finder`), or
            it is given although reports are not stored or the secret is an id.
    """
    if options.charge is None or options.charge.within is None:
        return None
    if not options.charge.sticky:
        raise UsageError("sticky-within must be given with sticky: it repeats kept reports")
    if kind == "id":
        raise UsageError("sticky-within must have positions to measure from, got ids")
    return snap.make_neighbour_finder(options.charge.within, degrees=kind == "geographic")


def _select_outputs(ids: list[str], space: Space) -> Space | None:
    """Return a release's outputs and their coordinates, or None if they have no coordinates on a map.

    Args:
        ids: The ids of the release's outputs, which are a subset of those in ``space``.
        space: The outputs of the problem.
    """
    points = space.on_map
    if points is None or list(space.ids) == ids:
        return None if points is None else space
    return evolve(space, ids=ids, coordinates=points[space.numbers(ids)], triangles=None)
