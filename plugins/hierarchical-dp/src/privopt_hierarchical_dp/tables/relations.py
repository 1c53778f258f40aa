"""Neighbouring relations for individuals in one cell of each table, and the sensitivity of a table.

All tables are of one set of individuals, each of whom is counted once in one leaf region and one cell of every table.
Of one table and level:

``individuals``: one individual joins or leaves: one cell changes by 1.

``moves``: one individual changes any of its values, its region too: at most one cell loses 1, and one gains 1. The
number of individuals does not change, so it may be published.

``attributes``: one individual changes any of its values and stays in its region: the same two cells; no region's number
changes.

``replaced``: one household of at most m persons is replaced by another one in its leaf region: at most m of a table's
persons go, out of one cell if they are alike, and at most m come. The sum of absolute changes is up to 2 m, that of
their squares up to 2 m^2 (searched for in the tests).

In the others no cell changes by more than 1, so each number is the L1 sensitivity and the square of the L2 sensitivity
too. An
individual is in all tables and levels at once, so what they spend adds up.
"""

from __future__ import annotations

from typing import Final

from attrs import evolve, frozen

from privopt_hierarchical_dp.relations import group_cost, larger_costs, replaced_unit

__all__ = ["TABLE_RELATIONS", "TableRelation"]


@frozen(kw_only=True)
class TableRelation:
    """What two inputs that are alike differ in.

    Attributes:
        scope: in words.
        unit: whom a budget is for.
        sensitivity: greatest sum of absolute changes of one table on one level, and of their squares.
        exact: levels whose regions have public numbers of individuals: 0, 1 (the root's), or all (None).
        promise: what is alike, what costs more.
        public: what is exact.
    """

    scope: str
    unit: str
    sensitivity: int
    exact: int | None
    promise: str
    public: str

    def of_households(self, most: int, kind: str) -> TableRelation:
        """Return the relation of households of at most so many persons, with the sensitivity of a notion's noise."""
        return evolve(
            self,
            scope=self.scope.format(most=most),
            unit=replaced_unit(most),
            sensitivity=2 * most if kind == "pure-dp" else 2 * most**2,
            promise=f"{self.promise.format(most=most)} {larger_costs(most, kind)}",
        )

    def statement(self, kind: str) -> str:
        """Return the relation in words; ``kind`` is the notion."""
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
"""By name, as ``[privacy] relation`` has it; that of households is :meth:`TableRelation.of_households`."""
