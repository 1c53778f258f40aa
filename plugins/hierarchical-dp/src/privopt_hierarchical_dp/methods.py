"""The methods of hierarchical-dp: what each one measures, how it fits counts, and the constraints it satisfies.

``privopt list`` reads the table of methods. To keep that command fast, this module imports no array library.

:mod:`.relations` defines neighbours and the sensitivities of the queries. The published chain is one vector across all
regions at a level. An individual who changes the size of one group therefore changes as many entries as there are
regions at the level (docs/papers/hierarchical-dp.md, "Corrections").
"""

from __future__ import annotations

from fractions import Fraction
from typing import Final, Literal

from attrs import frozen

from privopt_hierarchical_dp.relations import SIZES, Relation

__all__ = [
    "DEFAULT_METHOD",
    "METHODS",
    "Method",
    "Order",
    "default_shares",
    "order_of",
    "sensitivity",
]

Query = Literal["counts", "cumulative", "chain"]
Order = Literal["counts", "less", "more", "inner"]
"""What the measured columns of a level contain.

``counts`` are the numbers of groups of each size. ``less`` and ``more`` are the numbers of groups of size s or less,
and of size s or more. ``inner`` is ``less`` without the last column, whose value is known.
"""


@frozen
class Method:
    """A method of hierarchical-dp: what it measures, and how it fits counts to the noisy measurements.

    Attributes:
        name: The name of the method, as given to ``--method``.
        summary: A one-line description.
        query: The values measured at every level.
        fit: The name of the function in :mod:`.fits` that fits a release to the noisy values.
        totals: ``"always"`` if every region's number of groups is published exactly, ``"option"`` if the key
            ``region_totals`` decides this, or ``"never"`` if the method cannot use exact totals.
        valid: Whether all releases of the method are consistent, and agree with the known or estimated total at the
            root.
        shares: The default split of the budget across the levels, ``"equal"`` or ``"leaves"`` (see
            :func:`default_shares`).
        program: Advice on which methods to use for large inputs, if the method solves an integer program and is
            therefore limited to small ones. Empty for all other methods.
    """

    name: str
    summary: str
    query: Query
    fit: str
    totals: Literal["always", "option", "never"] = "option"
    valid: bool = True
    shares: Literal["equal", "leaves"] = "equal"
    program: str = ""

    @property
    def guarantee(self) -> str | None:
        """The guarantee to register for the method, or None to register the mechanism's own guarantee.

        It is ``"none"`` for the method that reproduces the chain as it was published, because its privacy loss exceeds
        its epsilon. It is None for all other methods.
        """
        return "none" if self.query == "chain" else None


_ROWS: Final = (
    Method("cumulative-smoothed", "cumulative counts, exact region totals, strength borrowed from the parent region",
           "cumulative", "fit_smoothed", totals="always", shares="leaves"),
    Method("cumulative-chain", "cumulative counts, exact region totals, all constraints jointly (Model 2), made valid",
           "cumulative", "fit_jointly", totals="always", shares="leaves"),
    Method("cumulative-dp", "M_c^dp: cumulative counts, isotonic steps, then half-prices",
           "cumulative", "fit_isotonic"),
    Method("cumulative", "M_c: Model 2 as an integer program (small inputs)",
           "cumulative", "fit_program", program="cumulative-chain and cumulative-dp take any size"),
    Method("cumulative-relaxed", "M_c^r: Model 2 relaxed and rounded; may be inconsistent",
           "cumulative", "fit_cumulative_relaxed", valid=False),
    Method("hierarchical-dp", "M_H^dp: counts, Model 1 solved exactly by half-prices",
           "counts", "fit_counts"),
    Method("hierarchical", "M_H: Model 1 as an integer program (small inputs)",
           "counts", "fit_program", program="hierarchical-dp solves the same model exactly at any size"),
    Method("hierarchical-relaxed", "M_H^r: Model 1 relaxed and rounded; may be inconsistent",
           "counts", "fit_counts_relaxed", totals="never", valid=False),
    Method("top-down", "level by level with controlled rounding (TopDown, 2018)",
           "counts", "fit_top_down", totals="never"),
    Method("cumulative-chain-as-published", "M_c^ch as printed: not private at its epsilon, for comparison",
           "chain", "fit_published_chain", totals="never", valid=False),
)  # fmt: skip
METHODS: Final[dict[str, Method]] = {row.name: row for row in _ROWS}
"""The methods by name."""
DEFAULT_METHOD: Final = _ROWS[0].name
"""The name of the default method."""


def default_shares(method: str, depth: int) -> tuple[Fraction, ...]:
    """Return a method's default budget shares by level, from the root down.

    Methods with ``shares="equal"`` divide the budget evenly. With ``"leaves"``, the leaves get four fifths, and the
    other levels share the rest in the proportions 2 : 3 : 4 ... (2/25, 3/25, 4/5 for three levels). The leaves need a
    large share because each count is the difference of two cumulative counts, even though cumulative counts have half
    the noise of counts. With less than about 3/4 of the budget on the leaves, their errors exceed those of a method
    that spends the whole budget on counts at the leaves (plugins/hierarchical-dp/tests/bench/bench_leaves_only.py).

    Args:
        method: The name of the method.
        depth: The number of levels.
    """
    # A single level gets the whole budget in any case, and `rising` would be empty.
    if depth == 1 or METHODS[method].shares == "equal":
        return (Fraction(1, depth),) * depth
    rising = range(2, depth + 1)
    return (*(Fraction(step, 5 * sum(rising)) for step in rising), Fraction(4, 5))


def sensitivity(method: str, max_quantity: int, relation: Relation = SIZES, *, totals: bool = False) -> int:
    """Return the sensitivity Delta to which the noise at a level is calibrated (see :mod:`.relations`).

    Args:
        method: The name of the method. For the published chain, the result is the sensitivity of cumulative counts, as
            in the paper.
        max_quantity: The largest amount Q by which one individual may change the size of a group.
        relation: The neighbouring relation.
        totals: Whether the totals of the leaf regions, and therefore of all regions, are published exactly.
    """
    query: Literal["counts", "cumulative"] = "counts" if METHODS[method].query == "counts" else "cumulative"
    return relation.sensitivity(query, max_quantity, is_leaf_exact=totals)


def order_of(method: str, *, totals: bool, relation: Relation) -> Order:
    """Return the kind of values in the columns that a method measures (see :data:`Order`).

    Args:
        method: The name of the method.
        totals: Whether every region's total is public, so that the last cumulative count need not be measured.
        relation: The neighbouring relation. If neighbours can have different numbers of groups, cumulative counts are
            taken from the largest size downwards.
    """
    if METHODS[method].query != "cumulative":
        return "counts"
    return "inner" if totals else "less" if relation.exact else "more"
