"""Neighbouring relations: which inputs are neighbours, and how much measured values can change between them.

**Relations for counts of groups by size** (:class:`Relation`). Let Q be ``max_quantity``, N the largest size, and n_s
the number of groups of size s in a region. A change affects one region at each level.

``sizes``: one individual moves one existing group from size s to a size at most Q away. Two n_s change by 1. Of the
cumulative counts c_s = n_1 + ... + n_s, at most Q change, by 1 each. The number of groups does not change, so it may be
published. If size 0 is a class (vacant units), every individual who joins or leaves a unit is covered by this relation.

``individuals``: one individual joins or leaves. Either one group changes its size as under ``sizes``, or a group of
size at most Q appears or vanishes. At most two n_s change. Of the h_s = n_s + n_(s+1) + ..., at most Q change: h_(s+1)
to h_(s+q) if a group of size s grows by q, or h_1 to h_q if a group of size q appears. (A new group could change all
c_s.)

``groups``: one group of any size appears or vanishes. One n_s changes. The number of h_s that may change is the number
of sizes.

``replaced``: one group of at most m individuals (``max_household``, public) is replaced by another group in its region.
Two n_s change by 1. If the size changes from i to j > i, the c_s with i <= s < j change by 1. There are at most min(m,
N) - 1 of these for sizes from 1 to N, and at most min(m, N) if size 0 is a class. The number of groups does not change.

**Relations for tables of individuals** (:class:`TableRelation`). Each individual is counted once, in one leaf region
and one cell of every table. As an individual is in all tables and levels at once, their budgets add up. The changes
below are for one table at one level.

``individuals``: one individual joins or leaves, so one cell changes by 1.

``moves``: one individual changes any of its values, which may include its region. At most one cell decreases by 1 and
one increases by 1, and the number of individuals does not change.

``attributes``: the same as ``moves``, but the individual stays in its leaf region, so no region's total changes.

``replaced``: one household of at most m persons is replaced by another one in its leaf region. At most m persons leave
the table, all from one cell if they have the same values, and at most m join. The sum of absolute changes is up to 2 m,
and the sum of squared changes up to 2 m^2. A search in the tests confirms both.

**Exact levels** (``[hierarchy] exact``). If the totals of all regions down to level k are published exactly, two inputs
are neighbours only if these totals agree. Then a single individual or group cannot appear or vanish, but can only be
replaced by another one in the same region at level k.

In tables of individuals, one cell decreases by 1 and one increases by 1 in each table at each level, as under
``moves``. This holds for any two leaf regions. If two individuals in different regions at level k exchange places,
these are two such changes, because tables show only the number of individuals in a cell. Under ``replaced``, the new
household has as many persons as the old one, so every two neighbours are also neighbours without exact levels.

In counts of groups under ``groups``, two n_s change by 1 at each level. At most N of the h_s decrease because of the
old group, and at most N increase because of the new one. If both are in the same region, common changes cancel and at
most N - 1 remain, because h_s for the smallest size s does not change. Under ``sizes`` and ``replaced``, no region's
number of groups changes, whether or not it is published.

**Norms.** Except for tables under ``replaced``, no value changes by more than 1, so each sensitivity is both the L1
sensitivity and the square of the L2 sensitivity.
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
"""How neighbouring inputs differ under each relation. This is also the scope of a guarantee."""


@frozen(kw_only=True)
class Relation:
    """The neighbouring relation for counts of groups by size.

    Attributes:
        name: A key of :data:`RELATIONS`.
        classes: The number of size classes.
        vacant: Whether size 0 is one of the classes.
        household: The largest number of individuals in a replaced household, or 0 under other relations.
        exact_levels: The number of levels, from the root down, whose totals are exact according to the ``exact`` key,
            or 0 if the key is missing.
    """

    name: str = "sizes"
    classes: int = 0
    vacant: bool = False
    household: int = 0
    exact_levels: int = 0

    @property
    def exact(self) -> bool:
        """Whether neighbouring inputs have the same number of groups in each region.

        If they do, these numbers may be published exactly.
        """
        return self.name in ("sizes", "replaced")

    @property
    def scope(self) -> str:
        """A description of how neighbouring inputs differ, in words."""
        if self.name == "groups" and self.exact_levels:
            return f"one group is replaced by another of any size in its region of level_{self.exact_levels}"
        return RELATIONS[self.name]

    @property
    def exposure_warning(self) -> str:
        """A warning for releases that publish every region's number of groups exactly."""
        noun = "unit" if self.vacant else "group"
        alternative = "" if self.vacant else 'relation = "individuals" or '
        return (
            f"every region's number of {noun}s is published exactly, without noise: nothing hides a {noun} that "
            "appears or vanishes, and if all have the same size, the counts are the true ones; "
            f'{alternative}"groups" hides them{" without hierarchy.exact" * bool(self.exact_levels)}'
        )

    @property
    def unit(self) -> str:
        """The unit of the budget, which identifies the relation.

        This prevents ledgers from adding up budgets that do not compose. For example, budgets under ``sizes`` do not
        compose with those under other relations, because the guarantee under ``sizes`` does not cover the totals that
        are published exactly. These totals are numbers of groups, or numbers of units if size 0 is a class.
        """
        if self.name == "sizes" and self.vacant:
            return "per individual in fixed units"
        if self.name == "replaced":
            return _replaced_unit(self.household)
        if self.name == "groups" and self.exact_levels:
            return f"per group of the public numbers of level_{self.exact_levels}"
        return {
            "sizes": "per individual in fixed groups",
            "individuals": "per individual who joins or leaves",
            "groups": "per group",
        }[self.name]

    def sensitivity(
        self, query: Literal["counts", "cumulative"], max_quantity: int, *, is_leaf_exact: bool = False
    ) -> int:
        """Return the sensitivity at one level, which is both the L1 sensitivity and the squared L2 sensitivity.

        Args:
            query: The measured values, ``counts`` or ``cumulative`` counts. Cumulative counts are numbers of groups of
                size s or less or, if numbers of groups are not public, of size s or more.
            max_quantity: The largest amount Q by which one individual may change the size of a group.
            is_leaf_exact: Whether the leaf level is exact, so that a replaced group stays in its leaf region.
        """
        if self.name == "groups" and self.exact_levels:
            if query == "counts":
                return 2
            # The h_s of the old group decrease, and those of the new one increase. In the same region, common changes
            # cancel.
            return max(1, self.classes - 1) if is_leaf_exact else 2 * self.classes
        if self.name == "groups":
            # A group of size s changes only n_s, but all of h_1, ..., h_s. A group of the largest size changes every
            # h_s.
            return 1 if query == "counts" else self.classes
        if self.name == "replaced":
            largest = min(self.household, self.classes - self.vacant)
            # If all households have the same size, no cumulative count changes, but noise needs a positive sensitivity.
            return 2 if query == "counts" else max(1, largest - (not self.vacant))
        # If a group changes its size by at most Q, two counts and at most Q cumulative counts change. Under
        # "individuals", it may also appear or vanish, which changes no more values than that.
        return 2 if query == "counts" else max_quantity

    def statement(
        self, *, totals: bool, max_quantity: int, kind: str, listed: bool = False, exact_levels: int = 0
    ) -> str:
        """Describe the guarantee in words, for readers of a release.

        The description says which inputs are neighbours, how large the privacy loss is for larger changes, which
        changes are not covered, and which numbers of groups are published exactly.

        Args:
            totals: Whether every region's number of groups is published exactly.
            max_quantity: The largest amount Q by which one individual may change the size of a group.
            kind: The privacy notion, such as "pure-dp".
            listed: Whether a public table lists the regions.
            exact_levels: The number of levels, from the root down, whose numbers of groups are published exactly.
        """
        name, is_single_step = "unit" if self.vacant else "group", max_quantity == 1
        many = f"up to {max_quantity} sizes (max_quantity = {max_quantity})"
        # The privacy loss over k neighbouring steps. For pure-dp, it is "k epsilon".
        group_costs = {"zcdp": "k^2 rho", "approx-dp": "k epsilon, at (1 + ... + exp((k - 1) epsilon)) delta"}
        is_swap = self.name == "groups" and self.exact_levels > 0
        promise = PROMISES["exact groups" if is_swap else self.name].format(
            level=self.exact_levels,
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
        if exact_levels > 1 and not totals:
            total_sentence = f"{describe_exact_levels(exact_levels, name + 's')}."
        elif is_swap:
            total_sentence = f"{describe_exact_levels(exact_levels, name + 's')}: nothing hides them."
        return " ".join([promise, total_sentence, LISTED if listed else REGIONS])


PROMISES: Final = {
    "sizes": "The guarantee compares inputs that differ in one individual who moves one existing {name} {step} "
    "(sizes of N or more are one class). A person who moves from one {name} to another costs {two}. {missing}",
    "individuals": "The guarantee compares inputs that differ in one individual who joins or leaves: an existing "
    "group grows or shrinks by {by}, or a group of size {new} appears or vanishes (sizes of N or more are one "
    "class). So who lives alone and leaves is covered. A person who moves from one group to another costs {two}; a "
    "whole group of k individuals that appears or vanishes {whole}.",
    "groups": "The guarantee compares inputs that differ in one {any} of any size, with all its individuals, that "
    "appears or vanishes. A group that changes its size, as where one individual joins or leaves it, costs {two}; a "
    "person who moves from one group to another {four}.",
    "exact groups": "The guarantee compares inputs that differ in one {any} of any size, with all its individuals, "
    "which is replaced by another of any size in the same region of level_{level}; so one individual who joins or "
    "leaves a group, and a group that moves inside that region, are covered. Two groups of different regions of "
    "level_{level} that exchange places cost {two}, as does a person who moves from one group to another. Not "
    "covered: a group that appears, vanishes or moves between these regions.",
    "replaced": "The guarantee compares inputs that differ in one household of at most {m} persons, which is "
    "replaced by another one of at most {m} in its region. A person who joins or leaves a household is covered by "
    "that. {larger} Not covered: a household that appears, vanishes or moves to another region.",
}
"""For each relation, sentences about neighbouring inputs, larger changes, and changes that are not covered.

:meth:`Relation.statement` fills in the placeholders in braces.
"""
MISSING: Final = {
    True: "Size 0 is a class: whoever joins or leaves a unit is covered, also who lives there alone. Not covered: a "
    "unit, vacant or not, that appears or vanishes.",
    False: "Not covered: a group that appears or vanishes, which includes the step between one individual and none, "
    "since size 0 is no class here.",
}
"""Sentences about changes that are not covered if numbers of groups are exact, keyed by whether size 0 is a class."""
REGIONS: Final = (
    "Regions' names are public, and which of them the input lists: list all that could have groups, those without too."
)
LISTED: Final = "Regions are those of a public table, whether or not the input lists them; it has no others."


SIZES: Final = Relation()


def describe_exact_levels(count: int, noun: str) -> str:
    """Return a clause saying which totals are published exactly.

    Args:
        count: The number of exact levels, from the root down. At least 1.
        noun: The plural noun for what is counted.

    >>> describe_exact_levels(1, "groups")
    'The number of groups of the whole hierarchy (level_1) is published exactly, without noise'
    """
    if count == 1:
        return f"The number of {noun} of the whole hierarchy (level_1) is published exactly, without noise"
    return f"The number of {noun} of every region from level_1 to level_{count} is published exactly, without noise"


def _replaced_unit(household: int) -> str:
    """Return the unit of budgets under the ``replaced`` relation.

    It is the same for counts of groups and for tables of individuals.
    """
    return f"per household of at most {household} persons that is replaced"


def _larger_costs(household: int, kind: str, *, steps: bool) -> str:
    """Return a sentence about the privacy loss of a household with more persons than the budget covers.

    If a household of k persons changes k - 1 cumulative counts, each by 1, the privacy loss exceeds the budget by a
    factor of (k - 1) / (m - 1), because the noise is calibrated to max(1, m - 1) changes. This is more than k / m.
    Under Gaussian notions, rho increases by the same factor, which is less than (k / m)^2.

    Args:
        household: The largest number m of persons that the budget covers.
        kind: The privacy notion.
        steps: Whether a household of k persons changes only k - 1 values rather than k, because there is no size class
            0.
    """
    cost = {"zcdp": "(k / {m})^2 rho", "approx-dp": "(k / {m})^2 of the rho that epsilon and delta stand for"}
    pure = "k / {m} epsilon" if household == 1 or not steps else "(k - 1) / ({m} - 1) epsilon"
    price = cost.get(kind, pure).format(m=household)
    return (
        f"Nothing is refused or cut off where a household has more than {household} persons, for that would tell: one "
        f"of k persons costs up to {price}."
    )


def group_cost(kind: str, steps: int) -> str:
    """Describe the privacy loss between two inputs that are several neighbouring steps apart.

    Args:
        kind: The privacy notion.
        steps: The number of steps, each to a neighbouring input.
    """
    if kind == "zcdp":
        return f"{steps**2} rho"
    if kind == "approx-dp":
        # Over k steps of (epsilon, delta)-DP, delta grows to (1 + e^epsilon + ... + e^((k - 1) epsilon)) delta.
        powers = ["1", "exp(epsilon)", *(f"exp({k} epsilon)" for k in range(2, steps))]
        return f"{steps} epsilon, at ({' + '.join(powers)}) delta"
    return f"{steps} epsilon"


@frozen(kw_only=True)
class TableRelation:
    """The neighbouring relation for tables of individuals.

    Attributes:
        scope: A description of how neighbouring inputs differ, in words.
        unit: The unit of the budget.
        sensitivity: The sensitivity of one table's counts at one level: the largest L1 distance between the counts of
            two neighbouring inputs or, for Gaussian notions, the largest squared L2 distance.
        exact: The number of levels, from the root down, whose totals are public. None if all totals are public.
        promise: Sentences that tell readers which inputs are neighbours, and what the privacy loss is for larger
            changes.
        public: Sentences that tell readers which totals are published exactly.
        is_of_households: Whether neighbouring inputs differ by the replacement of a whole household.
    """

    scope: str
    unit: str
    sensitivity: int
    exact: int | None
    promise: str
    public: str
    is_of_households: bool = False

    @property
    def exposure_warning(self) -> str:
        """A warning for releases that publish every region's number of individuals exactly."""
        return (
            "every region's number of individuals is published exactly, without noise: nothing hides one who joins, "
            'leaves or moves to another region; relation = "individuals" without hierarchy.exact does'
        )

    def with_exact_levels(self, count: int) -> TableRelation:
        """Return a relation under which neighbours also agree on the totals of all regions at the top levels.

        An individual then neither joins nor leaves, but is replaced by another one in the same region at the deepest
        exact level. The new individual may have any values. A household is replaced by one with the same number of
        persons.

        Args:
            count: The number of exact levels, from the root down. If it is 0, or if all totals are public anyway, the
                relation is returned unchanged.
        """
        # `exact` is None under `attributes`, where individuals stay in their leaf regions and all totals are exact
        # anyway.
        if not count or self.exact is None:
            return self
        numbers = describe_exact_levels(count, "individuals")
        if self.is_of_households:
            return evolve(
                self,
                scope=self.scope.replace("replaced by another in", "replaced by one of as many persons in"),
                promise=EXACT_HOUSEHOLDS,
                exact=count,
                public=f"{numbers}. Not covered: a household whose number of persons changes.",
            )
        if count == 1:
            return TABLE_RELATIONS["moves"]
        return evolve(
            TABLE_RELATIONS["moves"],
            scope=f"the values of one individual are replaced by others in the same region of level_{count}",
            unit=f"per individual of the public numbers of level_{count}",
            exact=count,
            promise="The guarantee compares inputs that differ in the values of one individual, who stays in its "
            "region of "
            f"level_{count} and may change its leaf region inside that. Two individuals of different regions of "
            f"level_{count} who exchange places cost {{two}}.",
            public=f"{numbers}; one who joins, leaves or moves between regions of level_{count} is not covered.",
        )

    def of_households(self, max_household: int, kind: str) -> TableRelation:
        """Return a copy of the ``replaced`` relation for a given limit on household sizes and a given privacy notion.

        Args:
            max_household: The public upper limit on the number of persons in a household.
            kind: The privacy notion, which determines the sensitivity.
        """
        return evolve(
            self,
            scope=self.scope.format(most=max_household),
            # If totals are exact, the new household must have as many persons as the old one.
            unit=_replaced_unit(max_household) + " by one of as many" * (self.exact != 0),
            # All m persons may have the same values and move from one cell to another. Then the absolute changes add up
            # to 2 m, and the squared changes to 2 m^2.
            sensitivity=2 * max_household if kind == "pure-dp" else 2 * max_household**2,
            promise=f"{self.promise.format(most=max_household)} {_larger_costs(max_household, kind, steps=False)}",
        )

    def statement(self, kind: str) -> str:
        """Describe the guarantee under the privacy notion ``kind`` in words, for readers of a release."""
        # A table of trips or visits counts some people more than once, so the statement must cover them.
        repeated = "" if self.is_of_households else f" {COUNTED_AGAIN[kind]}"
        return (
            f"{self.promise.format(two=group_cost(kind, 2))} Every individual is in one cell of each table, and what "
            f"all tables and levels spend is added up.{repeated} {self.public} Names of regions, attributes and their "
            "values are public, and come from public files alone."
        )


COUNTED_AGAIN: Final = {
    "pure-dp": "A person who is counted k times, such as once for each trip, costs k epsilon.",
    "zcdp": "A person who is counted k times, such as once for each trip, costs k^2 rho.",
    "approx-dp": "A person who is counted k times, such as once for each trip, costs k epsilon and over k delta.",
}
"""For each privacy notion, a sentence on the privacy loss of a person counted as several individuals in a table."""


EXACT_HOUSEHOLDS: Final = (
    "The guarantee compares inputs that differ in one household of at most {most} persons, which is replaced by "
    "another one of as many persons in its leaf region; so persons who change values are covered, but not one who "
    "joins or leaves."
)
"""The text of the promise for replaced households when totals are exact."""
TABLE_RELATIONS: Final = {
    "individuals": TableRelation(
        scope="one individual joins or leaves",
        unit="per individual who joins or leaves",
        sensitivity=1,
        exact=0,
        promise="The guarantee compares inputs that differ in one individual who joins or leaves. One who changes "
        "values, or moves to another region, costs {two}.",
        public="No number of individuals is published exactly.",
    ),
    "moves": TableRelation(
        scope="the values of one individual, its region among them, are replaced by others",
        unit="per individual of a public number",
        sensitivity=2,
        exact=1,
        promise="The guarantee compares inputs that differ in the values of one individual, its region among them.",
        public="The number of individuals of the whole hierarchy is published exactly; one who joins or leaves is not "
        "covered.",
    ),
    "attributes": TableRelation(
        scope="the values of one individual are replaced by others in the same region",
        unit="per individual of a region's public number",
        sensitivity=2,
        exact=None,
        promise="The guarantee compares inputs that differ in the values of one individual, who stays in its leaf "
        "region.",
        public="Every region's number of individuals is published exactly; one who joins, leaves or moves to another "
        "region is not covered.",
    ),
    "replaced": TableRelation(
        scope="one household of at most {most} persons is replaced by another in its region",
        unit="",
        sensitivity=0,
        exact=0,
        promise="The guarantee compares inputs that differ in one household of at most {most} persons, which is "
        "replaced by another one of at most {most} in its leaf region; so a person who joins or leaves a household, "
        "or changes values, is covered.",
        public="No number of individuals is published exactly.",
        is_of_households=True,
    ),
}
"""The relations, keyed by their names in ``[privacy] relation``.

The ``replaced`` entry is incomplete; :meth:`TableRelation.of_households` returns a completed copy.
"""
