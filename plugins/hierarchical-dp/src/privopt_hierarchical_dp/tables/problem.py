"""The problem file of hierarchical-tables: public regions, attributes and tables, and the secret individuals."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np
from attrs import frozen

from privopt.declare import File, between, key, non_negative, one_of
from privopt.declare.table_words import find_total_names
from privopt.errors import Fault, InputError
from privopt_hierarchical_dp.exact_levels import EXACT_HELP, check_level_names, count_exact_levels
from privopt_hierarchical_dp.problem import Privacy, PublishRules, by_level
from privopt_hierarchical_dp.region_names import KEEP
from privopt_hierarchical_dp.region_tables import Cells, Form, Layout
from privopt_hierarchical_dp.relations import TABLE_RELATIONS, TableRelation
from privopt_hierarchical_dp.tables.margins import Domain, Margin

__all__ = ["TablesProblem"]

NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")
"""A pattern for valid table names, which are used as file names."""
MOST_UNEVEN: Final = 10**6
"""The largest ratio allowed between two shares. More unequal weights cannot be combined reliably in doubles."""
RESERVED: Final = frozenset({"region", "parent", "count", "low", "high"})
"""The names of the columns in ``tables/NAME.csv`` that are not attributes."""


def _check_attributes(value: Any) -> str | None:
    """Return None if the names and values of the attributes are valid, and otherwise a description of what is expected.

    Names become column headers in CSV files, so they must not clash with other columns or require quotes.

    Args:
        value: The values of each attribute, by name.
    """
    if len({name.casefold() for name in value}) < len(value):
        return "names that differ in more than case"
    for name, values in value.items():
        if not name.strip() or name != name.strip() or is_reserved(name):
            return f"other names than {', '.join(sorted(RESERVED))} and level_...; {name!r} is taken"
        if not name.isprintable() or '"' in name:
            return f"names without quotes and line ends, as they head columns; {name!r} has some"
        # Cells are stripped before they are compared, so values must not have surrounding whitespace.
        cleaned = [value_text.strip() for value_text in values]
        if not values or len(set(values)) < len(values) or cleaned != list(values) or not all(values):
            return f"for {name!r} a list of different values, none empty, without spaces around them"
    return None


def is_reserved(name: str) -> bool:
    """Return whether a name is reserved for another column and cannot be used for an attribute. Case is ignored."""
    return name.casefold() in RESERVED or name.casefold().startswith("level_")


def _check_total_words(value: str | Mapping[str, Sequence[str]]) -> str | None:
    """Return None if ``value`` is valid for the ``totals`` key, and otherwise a description of valid values.

    If it is a mapping, :meth:`TablesProblem.check_keys` checks that its columns exist.
    """
    return None if value == KEEP or not isinstance(value, str) else f'"{KEEP}", or a table of values by column'


def _check_error_weights(value: Mapping[str, Mapping[str, Fraction]]) -> str | None:
    """Return None if ``value`` contains valid error weights, and otherwise a description of valid weights.

    Args:
        value: The error weights by table and level.
    """
    weights = [weight for table_weights in value.values() for weight in table_weights.values()]
    is_valid = weights and min(weights) >= 0 and max(weights) > 0
    return None if is_valid else "numbers of at least 0 by table and level, one of them above 0"


@frozen(kw_only=True)
class CountTable:
    """The declaration of a table to be published for every region."""

    by: tuple[str, ...] = key(help="attributes that individuals are counted by; none: numbers of individuals")
    share: Fraction = key(
        default=Fraction(1),
        help="of the budget, beside the shares of the other tables; 0 where another table has all its attributes: "
        "it is added up from that one",
        check=non_negative,
    )


@frozen(kw_only=True)
class TablesHierarchy:
    """The ``[hierarchy]`` table of a problem file: regions, attributes, tables, and the file of individuals."""

    regions: File = key(
        help="public: level_1,...,level_L, one row a leaf region, empty ones too (CSV or Parquet); the last levels of "
        "a leaf are empty where its branch is short"
    )
    records: File | None = key(
        default=None,
        secret=True,
        help="level_1,...,level_L and every attribute, one row an individual; or with a column count that many alike",
    )
    count: str | None = key(
        default=None,
        help="the column of records that says how many individuals a row counts; default: the column count, if there "
        "is one",
    )
    persons: bool = key(
        default=False,
        help="true: every row of records is one individual, although a column looks like counts",
    )
    totals: str | Mapping[str, tuple[str, ...]] | None = key(
        default=None,
        help='"keep": values and regions that are called like totals (Total, All, Insgesamt) are categories like '
        "others; or column = [values]: rows of these totals are not read; default: such values are refused",
        check=_check_total_words,
    )
    attributes: Mapping[str, tuple[str, ...]] = key(
        factory=dict,
        help="name = [values]: all that can be, in the order in which tables list them; none for plain totals",
        check=_check_attributes,
    )
    tables: Mapping[str, CountTable] = key(help="what is published: one table a name")
    bounds: File | None = key(
        default=None, help="public: region,at_least,at_most numbers of individuals, which every release satisfies"
    )
    exact: tuple[str, ...] | None = key(default=None, help=EXACT_HELP.format("individuals"), check=check_level_names)
    budget: tuple[Fraction, ...] | None = key(
        default=None,
        help="shares of the budget by level, the root's first; default, if no table has a share: the split that "
        "privopt plan finds; else 127/128 for the leaves",
        check=by_level,
    )
    confidence: float = key(default=0.95, help="that a true count lies between its low and high", check=between(0, 1))


@frozen(kw_only=True)
class TablesPrivacy(Privacy):
    """The privacy guarantee: its notion, budget and neighbouring relation."""

    relation: str = key(
        default="individuals",
        help="what is hidden: individuals (one joins or leaves), moves (one changes any values, its region too; the "
        "number of all is exact), attributes (one changes values and stays in its region; regions' numbers are exact), "
        "replaced (a household of at most max_household persons is replaced by another in its region)",
        check=one_of(TABLE_RELATIONS),
    )


@frozen(kw_only=True)
class TablesPlan:
    """The ``[plan]`` table of a problem file: how ``privopt plan`` weights the errors of each table at each level."""

    errors: Mapping[str, Mapping[str, Fraction]] | None = key(
        default=None,
        help="for privopt plan alone: NAME = { level_1 = 1, ... }, what errors of a table's levels weigh; default: 1",
        check=_check_error_weights,
    )


@frozen(kw_only=True)
class TablesProblem:
    """The problem file of hierarchical-tables: several tables of the same individuals by region, and a guarantee."""

    hierarchy: TablesHierarchy = key(help="the regions and what is counted in them")
    privacy: TablesPrivacy = key(help="what is promised")
    plan: TablesPlan = key(factory=TablesPlan, help="what matters, for privopt plan")
    publish: PublishRules = key(factory=PublishRules, help="which cells readers are told not to use")

    @property
    def relation(self) -> TableRelation:
        """The neighbouring relation, which depends on the levels with exact totals and the largest household size."""
        max_household, kind = self.privacy.max_household, self.privacy.kind
        exact_levels = count_exact_levels(self.hierarchy.exact)
        relation = TABLE_RELATIONS[self.privacy.relation].with_exact_levels(exact_levels)
        return relation if max_household is None else relation.of_households(max_household, kind)

    @property
    def has_split(self) -> bool:
        """Whether the problem file fixes the budget split, by level shares or by a table share other than 1."""
        return self.hierarchy.budget is not None or any(table.share != 1 for table in self.hierarchy.tables.values())

    @property
    def confidence(self) -> float:
        """The confidence level of the intervals."""
        return self.hierarchy.confidence

    @property
    def skipped_totals(self) -> Mapping[str, Sequence[str]]:
        """The values declared to be totals, by column. Rows with these values are not read."""
        totals = self.hierarchy.totals
        return {} if totals is None or isinstance(totals, str) else totals

    def check_totals(self, file: str) -> None:
        """Check that no value of an attribute is named like a total of its other values.

        If such a value really were a total, every individual would be counted twice.

        Args:
            file: The name of the problem file, for error messages.

        Raises:
            InputError: A value has such a name. There is one fault for each attribute with such values.
        """
        if self.hierarchy.totals == KEEP:
            return
        faults = []
        for name, values in self.hierarchy.attributes.items():
            if totals := find_total_names(values):
                actual = f"{', '.join(map(repr, totals))}: a total of the other values, by its name"
                expectation = f'the other values alone, or totals = "{KEEP}" in [hierarchy] if it is a category'
                faults.append(Fault(file, f"hierarchy.attributes.{name}", actual, expectation))
        if faults:
            raise InputError(faults)

    @property
    def layout(self) -> Layout:
        """The layout of a release: one CSV file per table, with counts and intervals."""
        domain = self.domain
        forms = [
            Form(
                name=name,
                file=f"tables/{name}.csv",
                count="count",
                intervals=f"tables/{name}.csv",
                private=f"tables/{name}.csv",
                cells=self.cells(name),
                shape=domain.shape(margin),
                margin=margin,
                measured=domain.shape(margin),
            )
            for name, margin in zip(self.hierarchy.tables, domain.tables, strict=True)
        ]
        return Layout(forms=tuple(forms), noun="individuals")

    def margin(self, name: str) -> Margin:
        """Return the margin of a table: the indices of its attributes in ascending order.

        Args:
            name: The name of the table.
        """
        table_attributes = self.hierarchy.tables[name].by
        return tuple(
            number for number, attribute in enumerate(self.hierarchy.attributes) if attribute in table_attributes
        )

    def cells(self, name: str) -> Cells:
        """Return the values of a table's attributes in every cell, in the published order of cells.

        Args:
            name: The name of the table.
        """
        margin, domain = self.margin(name), self.domain
        # Array of shape (attributes of the table, cells) with the index of each cell's values, in the order of a
        # flattened array.
        cell_values = np.indices(domain.shape(margin)).reshape(len(margin), domain.cells(margin))
        attributes = list(self.hierarchy.attributes.items())
        return {
            attributes[attribute][0]: [attributes[attribute][1][k] for k in cell_values[axis]]
            for axis, attribute in enumerate(margin)
        }

    @property
    def domain(self) -> Domain:
        """The attributes and tables, all with equal weights. The design later substitutes the actual weights."""
        tables = self.hierarchy.tables
        return Domain(
            # Margins refer to attributes by index, so the order of the attributes matters.
            sizes=tuple(map(len, self.hierarchy.attributes.values())),
            tables=tuple(map(self.margin, tables)),
            weights=(1.0,) * len(tables),
        )

    def check_keys(self, file: str) -> None:
        """Check that the keys are consistent, for example that tables refer only to existing attributes.

        Args:
            file: The name of the problem file, for error messages.

        Raises:
            InputError: Keys are inconsistent. There is one fault per inconsistency.
        """
        self.privacy.check_keys(file)
        hierarchy, faults = self.hierarchy, []
        if hierarchy.exact is not None and self.privacy.relation == "attributes":
            expectation = 'no such key with relation = "attributes", with which the numbers of all regions are exact'
            faults.append(Fault(file, "hierarchy.exact", str(list(hierarchy.exact)), expectation))
        if hierarchy.persons and hierarchy.count is not None:
            expectation = "persons = true, or the column of counts, but not both"
            faults.append(Fault(file, "hierarchy.count", repr(hierarchy.count), expectation))
        # Attribute values are published, but counts are secret.
        if hierarchy.count in hierarchy.attributes:
            actual, expectation = repr(hierarchy.count), "a column of counts that is no attribute"
            faults.append(Fault(file, "hierarchy.count", actual, expectation))
        faults += [
            Fault(file, f"hierarchy.totals.{name}", repr(name), "level_1, ..., level_L, or an attribute")
            for name in self.skipped_totals
            if name not in hierarchy.attributes and not name.startswith("level_")
        ]
        attribute_names = ", ".join(hierarchy.attributes)
        for name, table in hierarchy.tables.items():
            where = f"hierarchy.tables.{name}"
            if not NAME.fullmatch(name) or len(name) > 60:
                faults.append(Fault(file, where, repr(name), "up to 60 letters, digits, _ and - (it names a file)"))
            unknown = [attribute for attribute in table.by if attribute not in hierarchy.attributes]
            faults += [
                Fault(file, f"{where}.by", repr(attribute), f"attributes among {attribute_names}")
                for attribute in unknown
            ]
            if len(set(table.by)) < len(table.by):
                faults.append(Fault(file, f"{where}.by", "an attribute twice", "each attribute once"))
            # A table without a share is summed from a measured table, which must have all of its attributes and more.
            others = [other for other_name, other in hierarchy.tables.items() if other_name != name and other.share]
            if not table.share and not any(set(table.by) < set(other.by) for other in others):
                expectation = "a share above 0 (no other table that is measured has all of its attributes)"
                faults.append(Fault(file, f"{where}.share", "0", expectation))
        faults += self._find_uneven_shares(file)
        # The names are also file names, and some file systems ignore case.
        lowercase_names = [name.lower() for name in hierarchy.tables]
        if not lowercase_names or len(set(lowercase_names)) < len(lowercase_names):
            actual = "names that differ in case alone" if lowercase_names else "no table"
            faults.append(Fault(file, "hierarchy.tables", actual, "at least one, with names of files that differ"))
        if faults:
            raise InputError(faults)

    def _find_uneven_shares(self, file: str) -> list[Fault]:
        """Return a fault if the shares of the levels are too uneven, and another if the shares of the tables are.

        Shares are too uneven if the ratio of the largest to the smallest exceeds :data:`MOST_UNEVEN`, because double
        precision is not sufficient to combine such different weights. Shares of 0 are ignored, because nothing is
        measured with them.
        """
        budget = self.hierarchy.budget or ()
        levels = {f"hierarchy.budget, level {n}": share for n, share in enumerate(budget, start=1) if share}
        named = self.hierarchy.tables.items()
        tables = {f"hierarchy.tables.{name}.share": table.share for name, table in named if table.share}
        faults = []
        for shares in (levels, tables):
            smallest, largest = (find(shares, key=shares.__getitem__, default="") for find in (min, max))
            if shares and shares[smallest] * MOST_UNEVEN < shares[largest]:
                actual = f"less than 1 / {MOST_UNEVEN:,} of {largest}"
                faults.append(Fault(file, smallest, actual, "shares that differ by less"))
        return faults
