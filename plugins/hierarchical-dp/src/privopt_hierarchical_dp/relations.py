"""Neighbouring relations, and the sensitivity of the measurements under each.

Three relations; Q is ``max_quantity``, n_s the groups of size s in a region, and a change touches one region a level.

``sizes``: one individual moves one existing group from size s to a size at most Q away. Two n_s change by 1; of the
c_s = n_1 + ... + n_s at most Q, by 1. The number of groups does not change, so it may be published. With size 0 as a
class (vacant units) every individual's joining or leaving a unit is such a move.

``individuals``: one individual joins or leaves: such a move up or down, or a group of size at most Q that appears or
vanishes. At most two n_s change; of the h_s = n_s + n_(s+1) + ... at most Q: h_(s+1) to h_(s+q) where a group grows by
q, h_1 to h_q where one of size q appears. (Of the c_s a new group would change all.)

``groups``: one group of any size appears or vanishes. One n_s changes; of the h_s at most as many as there are sizes.

``replaced``: one group of at most m individuals (``max_household``, public) is replaced by another one in its region.
Two n_s change by 1; of the c_s at most m. The number of groups does not change. A table of the same individuals
changes by up to m in each of two cells (:data:`TABLE_RELATIONS`, of hierarchical-tables).

No entry changes by more than 1, so each number is the L1 sensitivity and the square of the L2 sensitivity too.
"""

from __future__ import annotations

from typing import Final, Literal

from attrs import frozen

__all__ = ["RELATIONS", "SIZES", "Relation", "group_cost", "larger_costs", "replaced_unit"]

RELATIONS: Final = {
    "sizes": "one individual moves one existing group by one size",
    "individuals": "one individual joins or leaves",
    "groups": "one group of any size appears or vanishes",
    "replaced": "one household is replaced by another in its region",
}
"""What neighbours differ in: the scope of a guarantee."""


@frozen(kw_only=True)
class Relation:
    """What two inputs that are alike differ in.

    Attributes:
        name: one of `RELATIONS`.
        classes: how many sizes there are.
        vacant: whether size 0 is one of them.
        household: individuals that a household that is replaced has, at most.
    """

    name: str = "sizes"
    classes: int = 0
    vacant: bool = False
    household: int = 0

    @property
    def exact(self) -> bool:
        """Whether alike inputs have as many groups in each region, so that numbers of groups may be published."""
        return self.name in ("sizes", "replaced")

    @property
    def unit(self) -> str:
        """Whom a budget is for: another one for each relation, so that no ledger adds what does not add up.

        What ``sizes`` publishes exactly no other relation bounds, and with size 0 it is units that are public.
        """
        if self.name == "sizes" and self.vacant:
            return "per individual in fixed units"
        if self.name == "replaced":
            return replaced_unit(self.household)
        return {
            "sizes": "per individual in fixed groups",
            "individuals": "per individual who joins or leaves",
            "groups": "per group",
        }[self.name]

    def sensitivity(self, query: Literal["counts", "cumulative"], most: int) -> int:
        """Greatest sum of absolute changes on one level, and of their squares.

        Args:
            query: what is measured: n_s, or c_s (h_s where numbers of groups are not public figures).
            most: Q.
        """
        if self.name == "groups":
            return 1 if query == "counts" else self.classes
        if self.name == "replaced":
            return 2 if query == "counts" else max(1, min(self.household, self.classes))
        return 2 if query == "counts" else most

    def statement(self, *, totals: bool, most: int, kind: str, listed: bool = False) -> str:
        """Return the relation in words: what is alike, what costs more, what is not covered, what is exact.

        Args:
            totals: whether every region's number of groups is published exactly.
            most: Q.
            kind: the notion.
            listed: whether a public table has the regions.
        """
        return " ".join([*_WORDS[self.name](self, totals, most, kind), LISTED if listed else REGIONS])


SIZES: Final = Relation()


def replaced_unit(household: int) -> str:
    """Return whom a budget is for where households are replaced: the same for counts of households and of persons."""
    return f"per household of at most {household} persons that is replaced"


def larger_costs(household: int, kind: str) -> str:
    """Return what is promised of households that have more persons than the budget is for."""
    cost = {"zcdp": "(k / {m})^2 rho", "approx-dp": "(k / {m})^2 of the rho that epsilon and delta stand for"}
    price = cost.get(kind, "k / {m} epsilon").format(m=household)
    return (
        f"Nothing is refused or cut off where a household has more than {household} persons, for that would tell: one "
        f"of k persons costs up to {price}."
    )


REGIONS: Final = (
    "Regions' names are public, and which of them the input lists: list all that could have groups, those without too."
)
LISTED: Final = "Regions are those of a public table, whether or not the input lists them; it has no others."


def group_cost(kind: str, steps: int) -> str:
    """State the most that several steps at once cost: the notion's group privacy."""
    if kind == "zcdp":
        return f"{steps**2} rho"
    if kind == "approx-dp":
        powers = ["1", "exp(epsilon)", *(f"exp({k} epsilon)" for k in range(2, steps))]
        return f"{steps} epsilon, at ({' + '.join(powers)}) delta"
    return f"{steps} epsilon"


def _of_sizes(relation: Relation, totals: bool, most: int, kind: str) -> tuple[str, ...]:
    step = "from size s to s + 1 or s - 1" if most == 1 else f"by up to {most} sizes (max_quantity = {most})"
    name = "unit" if relation.vacant else "group"
    told = f"Every region's number of {name}s is" if totals else f"The number of {name}s of the whole hierarchy is"
    missing = (
        "Size 0 is a class: whoever joins or leaves a unit is covered, also who lives there alone. Not covered: a "
        "unit, vacant or not, that appears or vanishes."
        if relation.vacant
        else "Not covered: a group that appears or vanishes, which includes the step between one individual and none, "
        "since size 0 is no class here."
    )
    return (
        f"Inputs are alike that differ in one individual who moves one existing {name} {step} (sizes of N or more are "
        f"one class). A person who moves from one {name} to another costs {group_cost(kind, 2)}.",
        missing,
        f"{told} published exactly.",
    )


def _of_individuals(relation: Relation, totals: bool, most: int, kind: str) -> tuple[str, ...]:
    by = "one size" if most == 1 else f"up to {most} sizes (max_quantity = {most})"
    new = "1" if most == 1 else f"at most {most}"
    whole = {"zcdp": "k^2 rho", "approx-dp": "k epsilon, at (1 + ... + exp((k - 1) epsilon)) delta"}
    return (
        f"Inputs are alike that differ in one individual who joins or leaves: an existing group grows or shrinks by "
        f"{by}, or a group of size {new} appears or vanishes (sizes of N or more are one class). So who lives alone "
        f"and leaves is covered. A person who moves from one group to another costs {group_cost(kind, 2)}; a whole "
        f"group of k individuals that appears or vanishes {whole.get(kind, 'k epsilon')}.",
        "No number of groups is published exactly.",
    )


def _of_groups(relation: Relation, totals: bool, most: int, kind: str) -> tuple[str, ...]:
    name = "unit, vacant or" if relation.vacant else "group"
    return (
        f"Inputs are alike that differ in one {name} of any size, with all its individuals, that appears or vanishes. "
        f"A group that changes its size, as where one individual joins or leaves it, costs {group_cost(kind, 2)}; a "
        f"person who moves from one group to another {group_cost(kind, 4)}.",
        "No number of groups is published exactly.",
    )


def _of_replaced(relation: Relation, totals: bool, most: int, kind: str) -> tuple[str, ...]:
    m = relation.household
    told = "Every region's number of households is" if totals else "The number of households of the whole hierarchy is"
    return (
        f"Inputs are alike that differ in one household of at most {m} persons, which is replaced by another one of at "
        f"most {m} in its region. A person who joins or leaves a household is covered by that.",
        larger_costs(m, kind),
        "Not covered: a household that appears, vanishes or moves to another region.",
        f"{told} published exactly.",
    )


_WORDS: Final = {
    "sizes": _of_sizes,
    "individuals": _of_individuals,
    "groups": _of_groups,
    "replaced": _of_replaced,
}
