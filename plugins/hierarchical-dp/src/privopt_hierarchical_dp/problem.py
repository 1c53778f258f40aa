"""The problem file for counts of groups by size: its keys, the budget for each level, and the guarantee."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from functools import cached_property
from typing import Any, Literal

from attrs import frozen

from privopt.declare import File, at_least, between, key, one_of, positive
from privopt.declare.toml_text import exact_text
from privopt.errors import Fault, InputError
from privopt.numbers.gaussian import rho_of
from privopt_hierarchical_dp.exact_levels import EXACT_HELP, check_level_names, count_exact_levels
from privopt_hierarchical_dp.noise_distributions import KINDS, NoiseDistribution
from privopt_hierarchical_dp.region_tables import Form, Layout
from privopt_hierarchical_dp.relations import RELATIONS, Relation

__all__ = ["HierarchyProblem", "HierarchyTable", "PlanSettings", "Privacy", "PublishRules", "Settings", "by_level"]


def by_level(value: Sequence[Fraction]) -> str | None:
    """Check that a list of budget shares or weights by level is valid.

    No number may be negative. The number for the leaves must be positive, because the leaves' values cannot be computed
    from values at other levels.

    Args:
        value: The budget share or weight of each level, from the root down.

    Returns:
        None if the list is valid, or else a description of valid lists.
    """
    is_valid = value and min(value) >= 0 and value[-1] > 0
    return None if is_valid else "numbers of at least 0, one a level, the last above 0"


def _check_error_weights(value: Mapping[str, Fraction]) -> str | None:
    """Check that the error weights are valid: none is negative, and at least one is positive.

    Args:
        value: The error weight of each level, by the level's name.

    Returns:
        None if the weights are valid, or else a description of valid weights.
    """
    is_valid = value and min(value.values()) >= 0 and max(value.values()) > 0
    return None if is_valid else "numbers of at least 0 by level, level_1 the root's, one of them above 0"


@frozen(kw_only=True)
class HierarchyTable:
    """The ``[hierarchy]`` table of a problem file: the regions and the files with counts."""

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
    totals: Literal["keep"] | File | None = key(
        default=None,
        secret=True,
        help='region,total: numbers of groups, checked against the leaves; or "keep": a region that is called like a '
        "total (Total, All, Insgesamt) next to others is treated like them; default: it is refused",
    )
    like: File | None = key(
        default=None,
        help="public, for privopt plan alone: counts like the secret ones (an earlier census), in the form of counts",
    )
    bounds: File | None = key(
        default=None,
        help="public: region,at_least,at_most numbers of groups (of dwellings, say), which every release satisfies",
    )
    exact: tuple[str, ...] | None = key(default=None, help=EXACT_HELP.format("groups"), check=check_level_names)
    sizes: int = key(help="N; size N means N or more", unit="individuals", check=between(0, 1e7))
    first_size: int = key(
        default=1,
        help="the least size that is a class; 0: vacant units are one, and the number of units is public",
        unit="individuals",
        check=one_of((0, 1)),
    )

    @property
    def classes(self) -> int:
        """The number of size classes."""
        return self.sizes + 1 - self.first_size


@frozen(kw_only=True)
class Privacy:
    """The ``[privacy]`` table of a problem file, with the privacy notion, the budget and the neighbouring relation."""

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
        "budget is a group's), replaced (a household of at most max_household persons is replaced by another in its "
        "region); numbers of groups are exact in the first and the last alone",
        check=one_of(RELATIONS),
    )
    max_household: int | None = key(
        default=None,
        help='with relation = "replaced": public; persons of a household that the budget is for, at most',
        unit="persons",
        check=at_least(1),
    )

    @property
    def law(self) -> NoiseDistribution:
        """The noise distribution required by the privacy notion."""
        return KINDS[self.kind][0]

    @cached_property
    def budget(self) -> Fraction:
        """The total budget for all levels: epsilon, rho, or the largest rho proved to imply (epsilon, delta)-DP."""
        if self.rho is not None:
            return self.rho
        assert self.epsilon is not None  # every notion without rho requires it
        # Budgets for Gaussian noise add up in rho, so (epsilon, delta) is converted once, for all levels together.
        return self.epsilon if self.delta is None else rho_of(self.epsilon, self.delta)

    @property
    def amounts(self) -> dict[str, Any]:
        """The values of rho and delta from the problem file, as doubles and exact strings, for use in the guarantee."""
        stated_amounts = {name: getattr(self, name) for name in ("rho", "delta") if getattr(self, name) is not None}
        return {
            key: entry
            for amount_name, amount in stated_amounts.items()
            for key, entry in ((amount_name, float(amount)), (f"{amount_name}_text", exact_text(amount)))
        }

    def check_keys(self, file: str) -> None:
        """Check that the budget and household keys match the privacy notion and the neighbouring relation.

        Args:
            file: The name of the problem file, for error messages.

        Raises:
            InputError: A key is missing, or does not belong to this notion or relation.
        """
        required_keys = KINDS[self.kind][1]
        amounts = {name: getattr(self, name) for name in ("epsilon", "rho", "delta")}
        has = f"{self.kind} has {' and '.join(required_keys)}"
        faults = [
            Fault(file, f"privacy.{name}", "nothing" if value is None else str(value), f"{expectation} ({has})")
            for name, value in amounts.items()
            # This loop over a single value only gives the expectation a name inside the comprehension.
            for expectation in ["a number" if name in required_keys else "no such key"]
            if (value is None) == (name in required_keys)
        ]
        # The key is required under this relation, and rejected under others.
        if (self.max_household is None) == (self.relation == "replaced"):
            actual = "nothing" if self.max_household is None else str(self.max_household)
            household_expectation = 'a public number of persons with relation = "replaced", and no such key with others'
            faults.append(Fault(file, "privacy.max_household", actual, household_expectation))
        if faults:
            raise InputError(faults)


@frozen(kw_only=True)
class Settings:
    """The ``[hierarchical-dp]`` table of a problem file: the options of the method."""

    budget: tuple[Fraction, ...] | None = key(
        default=None,
        help="shares of the budget by level, the root's first; 0: the level is the sum of the one below; default: "
        "the method's own",
        check=by_level,
    )
    level_weights: tuple[Fraction, ...] | None = key(
        default=None, help="weights of the levels in the objective, the root's first; default: all 1", check=by_level
    )
    region_totals: bool | None = key(
        default=None, help="publish every region's number of groups exactly; default: the method's own"
    )
    confidence: float = key(default=0.95, help="of each interval in intervals.csv by itself", check=between(0, 1))
    max_quantity: int = key(default=1, help="Q: what one individual may count for", unit="quantity", check=at_least(1))

    def check_lengths(self, depth: int, file: str) -> None:
        """Check that ``budget`` and ``level_weights``, if given, contain one number per level.

        Args:
            depth: The number of levels.
            file: The name of the problem file, for error messages.

        Raises:
            InputError: A list has the wrong length. There is one fault for each such list.
        """
        lists = {"budget": self.budget, "level_weights": self.level_weights}
        faults = [
            Fault(file, f"hierarchical-dp.{name}", f"{len(values)} numbers", f"{depth} numbers, one for each level")
            for name, values in lists.items()
            if values is not None and len(values) != depth
        ]
        if faults:
            raise InputError(faults)


@frozen(kw_only=True)
class PlanSettings:
    """The ``[plan]`` table of a problem file: the error weights used by ``privopt plan``."""

    errors: Mapping[str, Fraction] | None = key(
        default=None,
        help="for privopt plan alone: what errors of each level weigh, level_1 the root's; default: all 1",
        check=_check_error_weights,
    )


@frozen(kw_only=True)
class PublishRules:
    """The ``[publish]`` table of a problem file: the rules for marking noisy cells in tables for readers."""

    coefficient_of_variation: Fraction | None = key(
        default=None,
        help="the largest standard error of a usable cell, divided by its count, such as 0.3; publish/ has tables that "
        "say which cells have a larger one; default: there are no such tables",
        check=positive,
    )
    too_noisy: Literal["mark", "suppress"] = key(
        default="mark", help="what publish/ does with cells above it: says so beside the count, or leaves it out"
    )


@frozen(kw_only=True)
class HierarchyProblem:
    """A problem file for hierarchical-dp, which publishes counts of groups by size in a hierarchy of regions."""

    hierarchy: HierarchyTable = key(help="the regions and their groups")
    privacy: Privacy = key(help="what is promised")
    settings: Settings = key(name="hierarchical-dp", factory=Settings, help="the method's choices")
    plan: PlanSettings = key(factory=PlanSettings, help="what matters, for privopt plan")
    publish: PublishRules = key(factory=PublishRules, help="which cells readers are told not to use")

    @property
    def relation(self) -> Relation:
        """The neighbouring relation, including the exact levels, size classes and largest household size it uses."""
        table = self.hierarchy
        return Relation(
            name=self.privacy.relation,
            exact_levels=count_exact_levels(table.exact),
            classes=table.classes,
            vacant=table.first_size == 0,
            household=self.privacy.max_household or 0,
        )

    @property
    def confidence(self) -> float:
        """The confidence level of the intervals."""
        return self.settings.confidence

    @property
    def layout(self) -> Layout:
        """The files of a release: a table of groups by size, its intervals, and the private true counts."""
        table = self.hierarchy
        sizes = range(table.first_size, table.sizes + 1)
        form = Form(
            file="release.csv",
            count="groups",
            intervals="intervals.csv",
            private="counts.csv",
            cells={"size": sizes},
            shape=(table.classes,),
            # The number of measured columns depends on the method.
            measured=(None,),
        )
        return Layout(forms=(form,), noun="groups")

    def check_keys(self, file: str) -> None:
        """Check that the keys of the problem file are consistent with one another.

        For example, the relation ``individuals`` is rejected if ``first_size`` is 0. In that case, an individual who
        joins a vacant unit moves the unit from size 0 to size 1, which the relation ``sizes`` already covers.

        Args:
            file: The name of the problem file, for error messages.

        Raises:
            InputError: A key is missing, unexpected, or inconsistent with another key.
        """
        self.privacy.check_keys(file)
        exact = self.hierarchy.exact
        if exact is not None and self.privacy.relation == "individuals":
            # If a person who lives alone leaves, the number of groups changes. So if numbers are exact, neighbours can
            # only differ in members of existing groups or in whole groups.
            expectation = '"sizes" (who joins or leaves an existing group) or "groups" (a group is replaced by another)'
            raise InputError([Fault(file, "privacy.relation", '"individuals" with exact numbers', expectation)])
        if exact is not None and self.settings.region_totals is not None:
            expectation = "no such key with hierarchy.exact, which says on what levels numbers are exact"
            actual = str(self.settings.region_totals).lower()
            raise InputError([Fault(file, "hierarchical-dp.region_totals", actual, expectation)])
        if self.privacy.relation == "replaced" and (max_quantity := self.settings.max_quantity) > 1:
            expectation = '1 with relation = "replaced" (max_household counts persons, each of one quantity)'
            raise InputError([Fault(file, "hierarchical-dp.max_quantity", str(max_quantity), expectation)])
        # If vacant units are a class, joining a vacant unit moves it from size 0 to 1, and no unit appears. The
        # relation "sizes" covers this, even though numbers of units are exact.
        if self.privacy.relation == "individuals" and self.hierarchy.first_size == 0:
            expectation = '"sizes" with first_size = 0, which covers who joins or leaves a unit, or first_size = 1'
            raise InputError([Fault(file, "privacy.relation", '"individuals" with first_size = 0', expectation)])
