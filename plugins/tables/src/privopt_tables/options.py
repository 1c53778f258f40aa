"""Apply a release to a table: the checks before it, and the sentences about its guarantee."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, Literal

from attrs import field, frozen

from privopt.declare.name_forms import normal_column
from privopt.errors import UsageError
from privopt.interfaces import Guarantee
from privopt.ledger.charge import Charge
from privopt.specs import NOTHING
from privopt_metric_dp.problem.data import MetricData
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


BETWEEN_RECORDS: Final = "what holds is between records: a position is reported as if it were its nearest record"
"""What a release promises of positions if it does not hold everywhere."""


@frozen(kw_only=True)
class ApplyOptions:
    """How a release is applied to a table.

    Attributes:
        max_snap: km from every record, or from the region, beyond which a position has no report.
        seed: for experiments: the reports are not private, and marked so.
        charge: charges each report to its subject, durably, before it is drawn; the table is read through before.
        subject: column of whose each row is, for releases that report traces; that of ``charge`` where that is given.
        time: column by which a subject's rows are ordered; the table is held in memory then. None if they are in order.
        prefix: what the names of the added columns begin with, before an underscore; None for nothing.
        positions: several positions of a row, by the prefix of each: all are reported, or none.
        batch: name of a batch, which can be repeated after a kill.
        text: column of sentences whose words are reported one by one, in place of a secret of one record a row.
        keep: columns that stay although they state the secret; nothing protects them there.
        unknown: what becomes of words there that no record is called: "drop" or "mask".
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
    keep: tuple[str, ...] = ()

    @property
    def whose(self) -> str | None:
        """The column of subjects."""
        return self.subject if self.charge is None else self.charge.subject


def format_counts(refused: Mapping[str, int]) -> str:
    """Return counts by reason, in words.

    >>> format_counts({"unknown id": 1200, "too far": 3})
    '1,200 unknown id, 3 too far'
    """
    return ", ".join(f"{count:,} {reason}" for reason, count in refused.items())


def describe_limits(guarantee: Guarantee) -> tuple[str, ...]:
    """Return one sentence for each limit of the guarantee on a table's rows; none if it covers all records."""
    if guarantee.kind == NOTHING:
        return ("nothing holds: reports of this release may reveal what they were drawn for",)
    lines = []
    if guarantee.scope == "own-matrix":
        lines.append("what holds is inside each user's own matrix: nothing is promised between rows of different users")
    within = guarantee.extra.get("neighbours_within")
    if within is not None:
        unit = guarantee.unit.removeprefix("per ")
        lines.append(f"what holds is between records up to {within:g} {unit} apart: nothing is promised beyond that")
    return tuple(lines)


def list_positions(
    secret: Secret, asked: ApplyOptions, data: MetricData | None
) -> tuple[tuple[str | None, Secret], ...]:
    """Return the positions of a row: the prefix of each, and its columns; data, of records that lie somewhere."""
    if not asked.positions:
        return ((asked.prefix, secret),)
    planar = data is not None and positions_are_planar(data)
    return tuple((name, Secret.at(columns, planar=planar)) for name, columns in asked.positions.items())


def positions_are_planar(data: MetricData) -> bool:
    """Check whether two columns of a position are x and y, not latitude and longitude."""
    return data.records.kind == "planar" and (data.region is None or data.records.projection is None)


def check_options(positions: Sequence[tuple[str | None, Secret]], asked: ApplyOptions, *, traces: bool) -> None:
    """Refuse seeds, batches and several positions where they cannot be; ``traces`` are what the release reports.

    Raises:
        UsageError: a seed below 0 or with a ledger. A batch without a ledger, or of reports that depend on earlier
            ones. Several positions next to a prefix of one, kept reports or traces. A column given twice.
    """
    if asked.prefix is not None and not asked.prefix.strip():
        raise UsageError("prefix must be what the names of the added columns begin with, got nothing")
    if asked.seed is not None and asked.seed < 0:
        raise UsageError(f"seed must be a whole number of at least 0, got {asked.seed}")
    if asked.seed is not None and asked.charge is not None:
        raise UsageError("seed must be omitted with a ledger, got both: no epsilon covers what a seed draws")
    if asked.batch is not None and (traces or asked.charge is None or asked.charge.sticky):
        found = "no ledger" if asked.charge is None else "traces" if traces else "kept reports"
        raise UsageError(f"batch must have a ledger and fresh reports, got {found}: those depend on more than one row")
    if not asked.positions:
        return
    if asked.prefix is not None:
        raise UsageError("prefix must be omitted with positions: each has a name of its own")
    if len(positions) > 1 and traces:
        raise UsageError("positions must be one, got several: this release reports the trace of one position")
    if len(positions) > 1 and asked.charge is not None and asked.charge.sticky:
        raise UsageError("positions must be one with sticky, got several: places are kept one by one")
    columns = Counter(column for _, secret in positions for column in secret.columns)
    twice = next((column for column, times in columns.items() if times > 1), None)
    if twice is not None:
        raise UsageError(f"column {twice} must be of one position, got several; each position has columns of its own")
