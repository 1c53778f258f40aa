"""The methods of hierarchical-dp, a row each: what is measured, how it is fitted, what a release can keep.

Nothing here imports an array library: ``privopt list`` reads the rows. Neighbours, and how far measurements change
between them, are those of :mod:`.relations`. The published chain's vector runs over all regions of a level, so one
individual's move of a group (mathematics H0) touches |R_l| of its entries.
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
"""The measured values: counts; groups of size s or less, or more; or of size s or less without the last, known one."""


@frozen
class Method:
    """One of the mechanism's methods.

    Attributes:
        name: as ``--method`` has it.
        summary: what it does, a line.
        query: what is measured on every level.
        fit: the function of :mod:`.fits` that makes a release of the noisy values.
        totals: ``"always"`` where every region's number of groups is published exactly, ``"option"``
            where ``region_totals`` decides, ``"never"``.
        valid: whether a release is always consistent, with the exact total at the root.
        shares: ``"equal"`` or ``"leaves"``: the default split of epsilon over the levels.
        program: where it solves an integer program, which takes small inputs alone: what takes larger ones.
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
        """The registered guarantee: ``"none"`` for the published chain, which does not keep its epsilon."""
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
"""By name."""
DEFAULT_METHOD: Final = _ROWS[0].name


def default_shares(method: str, depth: int) -> tuple[Fraction, ...]:
    """Return the default shares of epsilon by level.

    ``"leaves"``: four fifths for the leaves, the rest in the proportion 2 : 3 : 4 ... from the root down (2/25,
    3/25, 4/5 for three levels). Cumulative counts have half the noise of counts and are subtracted from each other.
    With less than about 3/4 the leaves' errors are above those of counts with all of the budget
    (tests/bench/bench_leaves_only.py).
    """
    if depth == 1 or METHODS[method].shares == "equal":
        return (Fraction(1, depth),) * depth
    rising = range(2, depth + 1)
    return (*(Fraction(step, 5 * sum(rising)) for step in rising), Fraction(4, 5))


def sensitivity(method: str, max_quantity: int, relation: Relation = SIZES) -> int:
    """Return the sensitivity Delta for which a level's noise is scaled (see :mod:`.relations`); Q for the chain."""
    return relation.sensitivity("counts" if METHODS[method].query == "counts" else "cumulative", max_quantity)


def order_of(method: str, *, totals: bool, relation: Relation) -> Order:
    """Return the meaning of the columns of a level's measurements."""
    if METHODS[method].query != "cumulative":
        return "counts"
    return "inner" if totals else "less" if relation.exact else "more"
