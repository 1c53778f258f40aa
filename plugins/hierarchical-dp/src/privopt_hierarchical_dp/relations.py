"""Neighbouring relations: which inputs must be alike, and how far measured values can change between neighbours.

Counts of groups by size (:class:`Relation`). Q is ``max_quantity``, n_s the groups of size s in a region, and a change
touches one region a level.

``sizes``: one individual moves one existing group from size s to a size at most Q away. Two n_s change by 1; of the
c_s = n_1 + ... + n_s at most Q, by 1. The number of groups does not change, so it may be published. With size 0 as a
class (vacant units) every individual's joining or leaving a unit is such a move.

``individuals``: one individual joins or leaves: such a move up or down, or a group of size at most Q that appears or
vanishes. At most two n_s change; of the h_s = n_s + n_(s+1) + ... at most Q: h_(s+1) to h_(s+q) where a group grows by
q, h_1 to h_q where one of size q appears. (Of the c_s a new group would change all.)

``groups``: one group of any size appears or vanishes. One n_s changes; of the h_s at most as many as there are sizes.

``replaced``: one group of at most m individuals (``max_household``, public) is replaced by another one in its region.
Two n_s change by 1. From size i to size j > i the c_s of i <= s < j change, by 1. Of sizes from 1 to N these are at
most min(m, N) - 1, and with size 0 as a class min(m, N). The number of groups does not change.

Tables of individuals (:class:`TableRelation`): each individual is counted once in one leaf region and one cell of every
table. Of one table and level: ``individuals``: one joins or leaves, one cell changes by 1. ``moves``: one changes any
of its values, its region too; at most one cell loses 1, and one gains 1, and the number of individuals does not change.
``attributes``: the same where it stays in its region; no region's number changes. ``replaced``: one household of at
most m persons is replaced by another one in its leaf region. At most m of a table's persons go, out of one cell if they
are alike, and at most m come. The sum of absolute changes is up to 2 m, that of their squares up to 2 m^2 (searched for
in the tests). An individual is in all tables and levels at once, so what they spend adds up.

But for tables under ``replaced`` no entry changes by more than 1, so each number is the L1 sensitivity and the square
of the L2 sensitivity too.
"""

from __future__ import annotations

from typing import Final, Literal

from attrs import evolve, frozen

__all__ = ["RELATIONS", "SIZES", "TABLE_RELATIONS", "Relation", "TableRelation", "group_cost"]

RELATIONS: Final = {
    "sizes": "one individual moves one existing group by one size",
    "individuals": "one individual joins or leaves",
    "groups": "one group of any size appears or vanishes",
    "replaced": "one household is replaced by another in its region",
}
"""The difference between neighbouring inputs, by relation: the scope of a guarantee."""


@frozen(kw_only=True)
class Relation:
    """The neighbouring relation of counts of groups by size.

    Attributes:
        name: One of `RELATIONS`.
        classes: The number of size classes.
        vacant: Whether size 0 is one of them.
        household: The greatest number of individuals in a replaced household.
    """

    name: str = "sizes"
    classes: int = 0
    vacant: bool = False
    household: int = 0

    @property
    def exact(self) -> bool:
        """Whether neighbouring inputs have equal numbers of groups in each region, so that these may be published."""
        return self.name in ("sizes", "replaced")

    @property
    def scope(self) -> str:
        """The difference between neighbouring inputs, in one line."""
        return RELATIONS[self.name]

    @property
    def exposure_warning(self) -> str:
        """The warning for releases in which every region's number of groups is exact."""
        noun = "unit" if self.vacant else "group"
        alternative = "" if self.vacant else 'relation = "individuals" or '
        return (
            f"every region's number of {noun}s is published exactly, without noise: nothing hides a {noun} that "
            "appears or vanishes, and where all have one size the counts are the true ones; "
            f'{alternative}"groups" hides them'
        )

    @property
    def unit(self) -> str:
        """The unit of a budget. It differs between relations, so that no ledger adds up budgets that do not compose.

        The numbers that ``sizes`` publishes exactly are not covered by any other relation, and with size 0 as a class
        it is the number of units that is public.
        """
        if self.name == "sizes" and self.vacant:
            return "per individual in fixed units"
        if self.name == "replaced":
            return _replaced_unit(self.household)
        return {
            "sizes": "per individual in fixed groups",
            "individuals": "per individual who joins or leaves",
            "groups": "per group",
        }[self.name]

    def sensitivity(self, query: Literal["counts", "cumulative"], max_quantity: int) -> int:
        """Return the greatest sum of absolute changes on one level, and of their squares.

        Args:
            query: The measured values: n_s, or c_s (h_s if numbers of groups are not public).
            max_quantity: Q.
        """
        if self.name == "groups":
            return 1 if query == "counts" else self.classes
        if self.name == "replaced":
            largest = min(self.household, self.classes - self.vacant)
            return 2 if query == "counts" else max(1, largest - (not self.vacant))
        return 2 if query == "counts" else max_quantity

    def statement(self, *, totals: bool, max_quantity: int, kind: str, listed: bool = False) -> str:
        """Describe the relation: which inputs are neighbours, what costs more, what is not covered, what is exact.

        Args:
            totals: Whether every region's number of groups is published exactly.
            max_quantity: Q.
            kind: The notion.
            listed: Whether a public table has the regions.
        """
        name, is_single_step = "unit" if self.vacant else "group", max_quantity == 1
        many = f"up to {max_quantity} sizes (max_quantity = {max_quantity})"
        group_costs = {"zcdp": "k^2 rho", "approx-dp": "k epsilon, at (1 + ... + exp((k - 1) epsilon)) delta"}
        promise = PROMISES[self.name].format(
            name=name,
            any="unit, vacant or" if self.vacant else "group",
            step="from size s to s + 1 or s - 1" if is_single_step else f"by {many}",
            by="one size" if is_single_step else many,
            new="1" if is_single_step else f"at most {max_quantity}",
            two=group_cost(kind, 2),
            four=group_cost(kind, 4),
            whole=group_costs.get(kind, "k epsilon"),
            missing=MISSING[self.vacant],
            m=self.household,
            larger=_larger_costs(self.household, kind, steps=not self.vacant),
        )
        total_sentence = "No number of groups is published exactly."
        if self.exact:
            name = "household" if self.name == "replaced" else name
            which = f"Every region's number of {name}s" if totals else f"The number of {name}s of the whole hierarchy"
            total_sentence = f"{which} is published exactly."
        return " ".join([promise, total_sentence, LISTED if listed else REGIONS])


PROMISES: Final = {
    "sizes": "Inputs are alike that differ in one individual who moves one existing {name} {step} (sizes of N or more "
    "are one class). A person who moves from one {name} to another costs {two}. {missing}",
    "individuals": "Inputs are alike that differ in one individual who joins or leaves: an existing group grows or "
    "shrinks by {by}, or a group of size {new} appears or vanishes (sizes of N or more are one class). So who lives "
    "alone and leaves is covered. A person who moves from one group to another costs {two}; a whole group of k "
    "individuals that appears or vanishes {whole}.",
    "groups": "Inputs are alike that differ in one {any} of any size, with all its individuals, that appears or "
    "vanishes. A group that changes its size, as where one individual joins or leaves it, costs {two}; a person who "
    "moves from one group to another {four}.",
    "replaced": "Inputs are alike that differ in one household of at most {m} persons, which is replaced by another "
    "one of at most {m} in its region. A person who joins or leaves a household is covered by that. {larger} Not "
    "covered: a household that appears, vanishes or moves to another region.",
}
"""Sentences on neighbouring inputs, on larger changes and on changes that are not covered, by relation."""
MISSING: Final = {
    True: "Size 0 is a class: whoever joins or leaves a unit is covered, also who lives there alone. Not covered: a "
    "unit, vacant or not, that appears or vanishes.",
    False: "Not covered: a group that appears or vanishes, which includes the step between one individual and none, "
    "since size 0 is no class here.",
}
"""Sentences on changes that are not covered if numbers of groups are exact, by whether size 0 is a class."""
REGIONS: Final = (
    "Regions' names are public, and which of them the input lists: list all that could have groups, those without too."
)
LISTED: Final = "Regions are those of a public table, whether or not the input lists them; it has no others."


SIZES: Final = Relation()


def _replaced_unit(household: int) -> str:
    """Return the unit of a budget for replaced households; it is the same for counts of households and of persons."""
    return f"per household of at most {household} persons that is replaced"


def _larger_costs(household: int, kind: str, *, steps: bool) -> str:
    """Return a sentence on the privacy loss of households that have more persons than the budget is for.

    ``steps``: of k persons k - 1 numbers change, where m - 1 (at least 1) were allowed for, each by 1: a ratio above
    k / m. Under Gaussian notions it multiplies rho as it is, and is below (k / m)^2.
    """
    cost = {"zcdp": "(k / {m})^2 rho", "approx-dp": "(k / {m})^2 of the rho that epsilon and delta stand for"}
    pure = "k / {m} epsilon" if household == 1 or not steps else "(k - 1) / ({m} - 1) epsilon"
    price = cost.get(kind, pure).format(m=household)
    return (
        f"Nothing is refused or cut off where a household has more than {household} persons, for that would tell: one "
        f"of k persons costs up to {price}."
    )


def group_cost(kind: str, steps: int) -> str:
    """Return the greatest privacy loss of several steps at once, by group privacy of the notion."""
    if kind == "zcdp":
        return f"{steps**2} rho"
    if kind == "approx-dp":
        powers = ["1", "exp(epsilon)", *(f"exp({k} epsilon)" for k in range(2, steps))]
        return f"{steps} epsilon, at ({' + '.join(powers)}) delta"
    return f"{steps} epsilon"


@frozen(kw_only=True)
class TableRelation:
    """The neighbouring relation of tables of individuals.

    Attributes:
        scope: The difference between neighbouring inputs, in words.
        unit: The unit of a budget.
        sensitivity: The greatest sum of absolute changes of one table on one level, and of their squares.
        exact: The number of levels whose regions have public numbers of individuals: 0, 1 (the root's), or all (None).
        promise: Sentences on neighbouring inputs and on larger changes.
        public: A sentence on exact numbers.
    """

    scope: str
    unit: str
    sensitivity: int
    exact: int | None
    promise: str
    public: str

    @property
    def exposure_warning(self) -> str:
        """The warning for releases in which every region's number of individuals is exact."""
        return (
            "every region's number of individuals is published exactly, without noise: nothing hides one who joins, "
            'leaves or moves to another region; relation = "individuals" does'
        )

    def of_households(self, max_household: int, kind: str) -> TableRelation:
        """Return the relation of households up to a public size, with the sensitivity for a notion's noise."""
        return evolve(
            self,
            scope=self.scope.format(most=max_household),
            unit=_replaced_unit(max_household),
            sensitivity=2 * max_household if kind == "pure-dp" else 2 * max_household**2,
            promise=f"{self.promise.format(most=max_household)} {_larger_costs(max_household, kind, steps=False)}",
        )

    def statement(self, kind: str) -> str:
        """Describe the relation under the notion ``kind``."""
        return (
            f"{self.promise.format(two=group_cost(kind, 2))} Every individual is in one cell of each table, and what "
            f"all tables and levels spend is added up. {self.public} Names of regions, attributes and their values "
            "are public, and come from public files alone."
        )


TABLE_RELATIONS: Final = {
    "individuals": TableRelation(
        scope="one individual joins or leaves",
        unit="per individual who joins or leaves",
        sensitivity=1,
        exact=0,
        promise="Inputs are alike that differ in one individual who joins or leaves. One who changes values, or moves "
        "to another region, costs {two}.",
        public="No number of individuals is published exactly.",
    ),
    "moves": TableRelation(
        scope="one individual changes any values, or region",
        unit="per individual of a public number",
        sensitivity=2,
        exact=1,
        promise="Inputs are alike that differ in the values of one individual, its region among them.",
        public="The number of individuals of the whole hierarchy is published exactly; one who joins or leaves is not "
        "covered.",
    ),
    "attributes": TableRelation(
        scope="one individual changes any values and stays in its region",
        unit="per individual of a region's public number",
        sensitivity=2,
        exact=None,
        promise="Inputs are alike that differ in the values of one individual, who stays in its leaf region.",
        public="Every region's number of individuals is published exactly; one who joins, leaves or moves to another "
        "region is not covered.",
    ),
    "replaced": TableRelation(
        scope="one household of at most {most} persons is replaced by another in its region",
        unit="",
        sensitivity=0,
        exact=0,
        promise="Inputs are alike that differ in one household of at most {most} persons, which is replaced by another "
        "one of at most {most} in its leaf region; so a person who joins or leaves a household, or changes values, is "
        "covered.",
        public="No number of individuals is published exactly.",
    ),
}
"""Relations by their name in ``[privacy] relation``; :meth:`TableRelation.of_households` completes ``replaced``."""
