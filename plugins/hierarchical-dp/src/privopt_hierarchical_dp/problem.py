"""The problem file of hierarchical-dp, and the counts that it names."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from attrs import frozen

from privopt.declare import File, at_least, between, key, one_of, positive, problem_html
from privopt.errors import Fault, InputError
from privopt_hierarchical_dp.laws import KINDS
from privopt_hierarchical_dp.relations import RELATIONS, check_relation, relation_of

if TYPE_CHECKING:
    from privopt_hierarchical_dp.counts import Groups
else:
    Groups = Any

__all__ = ["HierarchyInstance", "HierarchyProblem", "Privacy", "PublishedHierarchy", "shares_wanted"]


def shares_wanted(value: Sequence[Fraction] | None) -> str | None:
    """Check: shares of the levels."""
    return None if value and min(value) > 0 else "a list of numbers above 0, one a level"


def _weights(value: Any) -> str | None:
    return (
        None if value and min(value) >= 0 and value[-1] > 0 else "numbers of at least 0, one a level, the last above 0"
    )


@frozen(kw_only=True)
class HierarchyTable:
    """Where the counts are."""

    counts: File | None = key(
        default=None,
        secret=True,
        help="level_1,...,level_L,size,groups: one row a leaf region and size (CSV or Parquet); absent pairs are 0; "
        "unless regions has them, which ones are listed is published: list all that could have groups, empty ones too; "
        "the last levels of a leaf are empty where its branch is short",
    )
    units: File | None = key(
        default=None,
        secret=True,
        help="instead of counts: level_1,...,level_L,unit,quantity, one row an individual, added up by unit and leaf; "
        "a region without any is listed by a row of quantity 0",
    )
    regions: File | None = key(
        default=None,
        help="public: level_1,...,level_L, all leaf regions; the secret file has no others; of those that it lacks "
        "all counts are 0",
    )
    totals: File | None = key(
        default=None, secret=True, help="region,total: numbers of groups, checked against the leaves"
    )
    like: File | None = key(
        default=None,
        help="public, for privopt plan alone: regions, level_1,...,level_L, and where the like of the counts is known "
        "(an earlier census) size,groups as counts has them",
    )
    impossible: File | None = key(
        default=None,
        help="public: region,size of groups that cannot be (a region of any level; without region everywhere): not "
        "measured, and 0 in the release",
    )
    bounds: File | None = key(
        default=None,
        help="public: region,at_least,at_most numbers of groups (of dwellings, say), which every release keeps",
    )
    sizes: int = key(help="N; size N means N or more", unit="individuals", check=between(0, 1e7))
    first_size: int = key(
        default=1,
        help="the least size that is a class; 0: vacant units are one, and the number of units is public",
        unit="individuals",
        check=one_of((0, 1)),
    )

    @property
    def classes(self) -> int:
        """How many sizes there are."""
        return self.sizes + 1 - self.first_size


@frozen(kw_only=True)
class Privacy:
    """How much may leak."""

    kind: str = key(default="pure-dp", help="the notion: pure-dp, zcdp or approx-dp", check=one_of(KINDS))
    epsilon: Fraction | None = key(
        default=None,
        help="pure-dp, approx-dp: budget of one individual, over all levels",
        unit="1/individual",
        check=positive,
    )
    rho: Fraction | None = key(
        default=None, help="zcdp: budget of one individual, over all levels", unit="1/individual", check=positive
    )
    delta: Fraction | None = key(
        default=None, help="approx-dp: beside epsilon, between 0 and 1", unit="probability", check=between(0, 1)
    )
    relation: str = key(
        default="sizes",
        help="what is hidden: sizes (an individual moves an existing group by a size; numbers of groups are exact), "
        "individuals (one joins or leaves, who lives alone too), groups (one of any size appears or vanishes; the "
        "budget is a group's); in the last two no number of groups is exact",
        check=one_of(RELATIONS),
    )

    def checked(self, file: str) -> None:
        """Whether the notion has the keys that say how much, and no others.

        Raises:
            InputError: it has not.
        """
        wanted = KINDS[self.kind][1]
        given = {name: getattr(self, name) for name in ("epsilon", "rho", "delta")}
        has = f"{self.kind} has {' and '.join(wanted)}"
        faults = [
            Fault(file, f"privacy.{name}", "nothing" if value is None else str(value), f"{what}: {has}")
            for name, value in given.items()
            for what in ["a number" if name in wanted else "no such key"]
            if (value is None) == (name in wanted)
        ]
        if faults:
            raise InputError(faults)


@frozen(kw_only=True)
class Settings:
    """How the budget is spent and the noise undone."""

    budget: tuple[Fraction, ...] | None = key(
        default=None,
        help="shares of the budget by level, the root's first; left out: the method's own",
        check=shares_wanted,
    )
    level_weights: tuple[Fraction, ...] | None = key(
        default=None, help="weights of the levels in the objective, the root's first; left out: all 1", check=_weights
    )
    region_totals: bool | None = key(
        default=None, help="publish every region's number of groups exactly; left out: the method's own"
    )
    confidence: float = key(default=0.95, help="of each interval in intervals.csv by itself", check=between(0, 1))
    max_quantity: int = key(default=1, help="Q: what one individual may count for", unit="quantity", check=at_least(1))


@frozen(kw_only=True)
class HierarchyProblem:
    """Counts of groups by size in a hierarchy of regions, and how much may leak of them."""

    hierarchy: HierarchyTable = key(help="the regions and their groups")
    privacy: Privacy = key(help="what is promised")
    settings: Settings = key(name="hierarchical-dp", factory=Settings, help="the method's choices")

    def _repr_html_(self) -> str:
        return problem_html(self)

    def checked(self, file: str) -> None:
        """Whether the notion has its keys, and the relation a sense.

        Raises:
            InputError: a key is missing, too many, or contradicts another.
        """
        self.privacy.checked(file)
        check_relation(self, file)


@frozen(kw_only=True, eq=False)
class PublishedHierarchy:
    """What everybody may know of a problem: a published copy lacks the secret files.

    Attributes:
        declared: what the problem file says.
    """

    declared: HierarchyProblem

    def _repr_html_(self) -> str:
        return problem_html(self.declared)


@frozen(kw_only=True, eq=False)
class HierarchyInstance(PublishedHierarchy):
    """A problem and its groups.

    Attributes:
        groups: the regions and their groups, which are secret.
    """

    groups: Groups

    def _repr_html_(self) -> str:
        return problem_html(self.declared, {"regions by level": self.groups.tree.widths})

    @classmethod
    def of(cls, declared: HierarchyProblem, file: str = "problem") -> HierarchyInstance:
        """Read the counts or units.

        Raises:
            InfeasibleError: bounds that clash.
            InputError: every fault of the files; neither or both of counts and units; lists whose
                length is not the number of levels; a relation that hides nothing.
        """
        from privopt_hierarchical_dp.bounds import check_limits, limits_of
        from privopt_hierarchical_dp.counts import check_totals, read_counts, read_units
        from privopt_hierarchical_dp.public_tables import note_like, read_regions
        from privopt_hierarchical_dp.refusals import check_hidden
        from privopt_hierarchical_dp.tree import add_up
        from privopt_hierarchical_dp.zeros import zeros_of

        declared.checked(file)
        table, settings = declared.hierarchy, declared.settings
        given = [source for source in (table.counts, table.units) if source is not None]
        if len(given) != 1:
            found = "both counts and units" if given else "neither counts nor units"
            raise InputError([Fault(file, "hierarchy", found, "one of counts and units")])
        listed = None if table.regions is None else read_regions(table.regions)[0]
        if table.like is not None:
            note_like(table.like)
        if table.counts is not None:
            groups = read_counts(table.counts, table.sizes, first=table.first_size, listed=listed)
        else:
            assert table.units is not None
            most = settings.max_quantity
            groups = read_units(table.units, table.sizes, most=most, first=table.first_size, listed=listed)
        check_hidden(declared, zeros_of(declared, groups.tree), file)
        limits = limits_of(table.bounds, groups.tree)
        if limits is not None and relation_of(declared).exact:
            check_limits(limits, add_up(groups.tree, groups.leaves.sum(axis=1)), given[0].name, "groups")
        if table.totals is not None:
            check_totals(table.totals, groups)
        depth = groups.tree.depth
        lists = {"budget": settings.budget, "level_weights": settings.level_weights}
        faults = [
            Fault(file, f"hierarchical-dp.{name}", f"{len(values)} numbers", f"{depth}, one for each level")
            for name, values in lists.items()
            if values is not None and len(values) != depth
        ]
        if faults:
            raise InputError(faults)
        return cls(declared=declared, groups=groups)
