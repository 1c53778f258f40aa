"""The methods of hierarchical-dp: what each one measures, how it fits, and which constraints its releases satisfy.

Nothing here imports an array library, because ``privopt list`` reads this table. :mod:`.relations` defines neighbours
and how far measurements change between them. The vector of the published chain runs over all regions of a level, so an
individual who changes the size of one group changes |R_l| of its entries (docs/papers/hierarchical-dp.md,
"Corrections").
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
"""The measured values: counts, groups of size s or less, groups of size s or more, or groups of size s or less without
the largest size, whose value is known.
"""


@frozen
class Method:
    """One method of hierarchical-dp.

    Attributes:
        name: The name of the method, as given to ``--method``.
        summary: One line on what it does.
        query: What is measured on every level.
        fit: The function of :mod:`.fits` that fits a release to the noisy values.
        totals: ``"always"`` if every region's number of groups is published exactly, ``"option"`` if ``region_totals``
            decides, or ``"never"`` if the method cannot use exact numbers.
        valid: Whether a release is always consistent, with the exact total at the root.
        shares: ``"equal"`` or ``"leaves"``: the default split of epsilon over the levels.
        program: The methods to use for larger inputs, if this method solves an integer program, which is limited to
            small inputs.
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
        """The registered guarantee. It is ``"none"`` for the published chain, which does not satisfy its epsilon."""
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
"""The method that is used if none is given."""


def default_shares(method: str, depth: int) -> tuple[Fraction, ...]:
    """Return the default shares of epsilon by level.

    With ``"leaves"``, the leaves get four fifths, and the other levels share the rest in the proportion 2 : 3 : 4 ...
    from the root down (2/25, 3/25, 4/5 for three levels). Cumulative counts have half the noise of counts, but counts
    are differences of two of them. If the leaves get less than about 3/4, their errors are above those of counts that
    use the whole budget (plugins/hierarchical-dp/tests/bench/bench_leaves_only.py).

    Args:
        method: The name of the method.
        depth: The number L of levels.
    """
    # One level has the whole budget whatever the method; `rising` would be empty.
    if depth == 1 or METHODS[method].shares == "equal":
        return (Fraction(1, depth),) * depth
    rising = range(2, depth + 1)
    return (*(Fraction(step, 5 * sum(rising)) for step in rising), Fraction(4, 5))


def sensitivity(method: str, max_quantity: int, relation: Relation = SIZES, *, totals: bool = False) -> int:
    """Return the sensitivity Delta by which a level's noise is scaled (see :mod:`.relations`).

    Args:
        method: The name of the method. The published chain has the sensitivity of cumulative counts, as in the paper.
        max_quantity: Q, the largest number by which one individual may change the size of a group.
        relation: The neighbouring relation.
        totals: Whether the numbers of groups of the leaf regions, and so of all regions, are published exactly.
    """
    query: Literal["counts", "cumulative"] = "counts" if METHODS[method].query == "counts" else "cumulative"
    return relation.sensitivity(query, max_quantity, is_leaf_exact=totals)


def order_of(method: str, *, totals: bool, relation: Relation) -> Order:
    """Return the meaning of the columns of a level's measurements, as :data:`Order` explains.

    Args:
        method: The name of the method.
        totals: Whether every region's number of groups is public. The last cumulative count is then not measured.
        relation: The neighbouring relation. If it has no exact numbers, groups are counted from the largest size down.
    """
    if METHODS[method].query != "cumulative":
        return "counts"
    return "inner" if totals else "less" if relation.exact else "more"
