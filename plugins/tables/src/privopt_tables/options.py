"""Options for applying a release to a table, checks of the options, and notes on what the guarantee does not cover."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, Literal

from attrs import field, frozen
from attrs.converters import optional

from privopt.declare.name_forms import normal_column, normal_form
from privopt.errors import UsageError
from privopt.interfaces import Guarantee
from privopt.ledger.charge import Charge
from privopt.specs import NOTHING
from privopt_metric_dp.problem.data import MetricData
from privopt_tables.row_forms import RowForms
from privopt_tables.secret_columns import Secret

__all__ = [
    "BETWEEN_RECORDS",
    "ApplyOptions",
    "check_options",
    "describe_limits",
    "format_counts",
    "list_positions",
    "positions_are_planar",
]


BETWEEN_RECORDS: Final = "the guarantee is between records: a position is reported as if it were its nearest record"
"""A note that explains what a guarantee between records means for positions that are not records."""


def _normal_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Convert column names to the Unicode normal form used when tables are read, and remove duplicates.

    Without this, a column that is named twice would be hashed twice.
    """
    return tuple(dict.fromkeys(map(normal_form, names)))


@frozen(kw_only=True)
class ApplyOptions:
    """Options for applying a release to a table.

    Attributes:
        max_snap: The maximum distance in km between a position and its nearest record or, if there is a region, the
            region. Positions that are farther away get no report. If None, there is no limit.
        seed: The seed of the random draws, intended for experiments only. Reports drawn with a seed are not private,
            and are marked as seeded.
        charge: The ledger to charge and how to charge it, or None if nothing is charged. With a ledger, the whole table
            is read first, and each report is durably charged to its subject before it is drawn.
        subject: The column that names each row's subject. It is required if the release reports traces. A subject
            column given in ``charge`` takes precedence.
        time: The column with the time of each row. For traces, each subject's rows are sorted by this time, which
            requires holding the table in memory. If None, the rows must already be in order.
        prefix: The prefix for the names of added columns. It is separated from the rest of the name by an underscore.
            If None, there is no prefix.
        positions: The columns of each position, keyed by prefix, if a row has several positions. In each row, either
            all positions are reported or none are.
        batch: The name of the batch. An interrupted run can be continued under this name. None if there is no batch.
        text: The column of sentences whose words are reported one by one, or None if rows contain ids or positions
            instead.
        forms: The formats of subjects and times.
        keep: The columns to keep even if they reveal the secret. Their contents are not protected.
        drop: The columns to omit, such as personal ids.
        hashed: The columns whose cells are replaced by keyed hashes.
        hash_key: The file that contains the key for these hashes. If None, the key is derived from the ledger's key.
        unknown: How to handle words that match no record: remove them ("drop") or replace them with a mask ("mask").
    """

    max_snap: float | None = None
    seed: int | None = None
    charge: Charge | None = None
    subject: str | None = field(default=None, converter=normal_column)
    time: str | None = field(default=None, converter=normal_column)
    prefix: str | None = None
    positions: Mapping[str, Sequence[str]] = field(factory=dict)
    batch: str | None = None
    text: str | None = field(default=None, converter=normal_column)
    unknown: Literal["drop", "mask"] = "drop"
    keep: tuple[str, ...] = field(default=(), converter=_normal_columns)
    drop: tuple[str, ...] = field(default=(), converter=_normal_columns)
    hashed: tuple[str, ...] = field(default=(), converter=_normal_columns)
    hash_key: Path | None = field(default=None, converter=optional(Path))
    forms: RowForms = field(factory=RowForms)

    @property
    def subject_column(self) -> str | None:
        """The name of the subject column, taken from ``charge`` if it is set and from ``subject`` otherwise."""
        return self.subject if self.charge is None else self.charge.subject


def format_counts(refused: Mapping[str, int]) -> str:
    """Format the numbers of rows without a report, grouped by reason, as a comma-separated list.

    >>> format_counts({"unknown id": 1200, "too far": 3})
    '1,200 unknown id, 3 too far'
    """
    return ", ".join(f"{count:,} {reason}" for reason, count in refused.items())


def describe_limits(guarantee: Guarantee) -> tuple[str, ...]:
    """Return notes on which pairs of records a guarantee does not cover, or an empty tuple if it covers all of them."""
    # If there is no guarantee, the only note says so.
    if guarantee.kind == NOTHING:
        return ("no guarantee: reports of this release may reveal what they were drawn for",)
    sentences = []
    # Mechanisms that release a separate matrix for each user have this scope.
    if guarantee.scope == "own-matrix":
        sentences.append(
            "the guarantee is within each user's own matrix: nothing is promised between rows of different users"
        )
    within = guarantee.extra.get("neighbours_within")
    if within is not None:
        unit = guarantee.unit.removeprefix("per ")
        sentences.append(
            f"the guarantee is between records up to {within:g} {unit} apart: nothing is promised beyond that"
        )
    return tuple(sentences)


def list_positions(
    secret: Secret, options: ApplyOptions, data: MetricData | None
) -> tuple[tuple[str | None, Secret], ...]:
    """Return the column prefix and the columns for each position in a row.

    If a row has a single position and no prefix is set, the prefix is None.

    Args:
        secret: The columns to use if a row has a single position.
        options: The options for applying the release.
        data: The problem's data, which determines whether positions are planar. None if the release has no records with
            positions.
    """
    if not options.positions:
        return ((options.prefix, secret),)
    is_planar = data is not None and positions_are_planar(data)
    return tuple((name, Secret.at(columns, planar=is_planar)) for name, columns in options.positions.items())


def positions_are_planar(data: MetricData) -> bool:
    """Return whether positions are given as x and y rather than as latitude and longitude."""
    # The records of a region are on a plane, but if it has a projection, positions are read in degrees.
    return data.records.kind == "planar" and (data.region is None or data.records.projection is None)


def check_options(positions: Sequence[tuple[str | None, Secret]], options: ApplyOptions, *, traces: bool) -> None:
    """Check that options are valid and compatible with one another.

    Args:
        positions: The column prefix and the columns of each position in a row, as returned by :func:`list_positions`.
        options: The options to check.
        traces: Whether the release reports traces.

    Raises:
        UsageError: The seed is negative, the prefix is empty, two positions share a column, or the options cannot be
            combined. A seed cannot be combined with a ledger. A batch requires a ledger, and cannot be combined with
            traces or with reports that are stored and repeated. Named positions cannot be combined with a prefix.
            Several positions cannot be combined with traces or with stored reports.
    """
    if options.prefix is not None and not options.prefix.strip():
        raise UsageError("prefix must be what the names of the added columns begin with, got nothing")
    if options.seed is not None and options.seed < 0:
        raise UsageError(f"seed must be a whole number of at least 0, got {options.seed}")
    if options.seed is not None and options.charge is not None:
        raise UsageError("seed must be omitted with a ledger, got both: no epsilon covers what a seed draws")
    # A repeated batch must draw the same reports, so each report must depend only on its own row.
    if options.batch is not None and (traces or options.charge is None or options.charge.sticky):
        actual = "no ledger" if options.charge is None else "traces" if traces else "kept reports"
        raise UsageError(f"batch must have a ledger and fresh reports, got {actual}: those depend on more than one row")
    if not options.positions:
        return
    if options.prefix is not None:
        raise UsageError("prefix must be omitted with positions: each has a name of its own")
    if len(positions) > 1 and traces:
        raise UsageError("positions must be one, got several: this release reports the trace of one position")
    if len(positions) > 1 and options.charge is not None and options.charge.sticky:
        raise UsageError("positions must be one with sticky, got several: places are kept one by one")
    # A column in two positions, such as one latitude for both, is probably an error.
    counts = Counter(column for _, secret in positions for column in secret.columns)
    repeated = next((column for column, count in counts.items() if count > 1), None)
    if repeated is not None:
        raise UsageError(
            f"column {repeated} must be of one position, got several; each position has columns of its own"
        )
