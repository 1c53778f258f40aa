"""Options of applying a release to a table, their checks, and sentences about limits of the guarantee."""

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


BETWEEN_RECORDS: Final = "what holds is between records: a position is reported as if it were its nearest record"
"""What a release promises of positions if it does not hold everywhere."""


@frozen(kw_only=True)
class ApplyOptions:
    """How a release is applied to a table.

    Attributes:
        max_snap: Distance in km from every record, or from the region, beyond which a position has no report.
        seed: A seed for experiments: the reports are not private, and are marked so.
        charge: Charges each report to its subject, durably, before it is drawn. The whole table is read before that.
        subject: Column that says whose each row is, for releases that report traces. ``charge`` has precedence.
        time: Column by which a subject's rows are ordered; the table is held in memory then. None if they are in order.
        prefix: Beginning of the names of the added columns, before an underscore; None for none.
        positions: Columns of several positions of a row, by the prefix of each: all are reported, or none.
        batch: Name of a batch, which can be repeated after a kill.
        text: Column of sentences whose words are reported one by one, in place of a secret of one record a row.
        forms: The forms of subjects and times.
        keep: Columns that stay although they state the secret; nothing protects them there.
        unknown: What becomes of words that no record is called: "drop" or "mask".
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
    forms: RowForms = field(factory=RowForms)

    @property
    def subject_column(self) -> str | None:
        """The column of subjects, from the ledger's options or those of traces."""
        return self.subject if self.charge is None else self.charge.subject


def format_counts(refused: Mapping[str, int]) -> str:
    """Return counts by reason, in words.

    >>> format_counts({"unknown id": 1200, "too far": 3})
    '1,200 unknown id, 3 too far'
    """
    return ", ".join(f"{count:,} {reason}" for reason, count in refused.items())


def describe_limits(guarantee: Guarantee) -> tuple[str, ...]:
    """Return a sentence on each limit of the guarantee for a table's rows; none if it covers all records."""
    if guarantee.kind == NOTHING:
        return ("nothing holds: reports of this release may reveal what they were drawn for",)
    sentences = []
    if guarantee.scope == "own-matrix":
        sentences.append(
            "what holds is inside each user's own matrix: nothing is promised between rows of different users"
        )
    within = guarantee.extra.get("neighbours_within")
    if within is not None:
        unit = guarantee.unit.removeprefix("per ")
        sentences.append(
            f"what holds is between records up to {within:g} {unit} apart: nothing is promised beyond that"
        )
    return tuple(sentences)


def list_positions(
    secret: Secret, options: ApplyOptions, data: MetricData | None
) -> tuple[tuple[str | None, Secret], ...]:
    """Return the positions of each row: the prefix of their report columns, and their own columns.

    Args:
        secret: The secret of a row with one position.
        options: How the release is applied.
        data: The problem's data, which says whether records are on a plane; None if records have no place.
    """
    if not options.positions:
        return ((options.prefix, secret),)
    is_planar = data is not None and positions_are_planar(data)
    return tuple((name, Secret.at(columns, planar=is_planar)) for name, columns in options.positions.items())


def positions_are_planar(data: MetricData) -> bool:
    """Return whether the two columns of a position are x and y, not latitude and longitude."""
    return data.records.kind == "planar" and (data.region is None or data.records.projection is None)


def check_options(positions: Sequence[tuple[str | None, Secret]], options: ApplyOptions, *, traces: bool) -> None:
    """Refuse options that exclude one another.

    Args:
        positions: The positions of each row, as of :func:`list_positions`.
        options: The options.
        traces: Whether the release reports traces.

    Raises:
        UsageError: A seed below 0 or with a ledger. A batch without a ledger, or of reports that depend on earlier
            ones. Several positions with a prefix, stored reports or traces. A column that is given twice.
    """
    if options.prefix is not None and not options.prefix.strip():
        raise UsageError("prefix must be what the names of the added columns begin with, got nothing")
    if options.seed is not None and options.seed < 0:
        raise UsageError(f"seed must be a whole number of at least 0, got {options.seed}")
    if options.seed is not None and options.charge is not None:
        raise UsageError("seed must be omitted with a ledger, got both: no epsilon covers what a seed draws")
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
    counts = Counter(column for _, secret in positions for column in secret.columns)
    repeated = next((column for column, count in counts.items() if count > 1), None)
    if repeated is not None:
        raise UsageError(
            f"column {repeated} must be of one position, got several; each position has columns of its own"
        )
