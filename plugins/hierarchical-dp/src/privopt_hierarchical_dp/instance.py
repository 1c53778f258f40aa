"""Problems with their input files, which contain public regions and secret counts for these regions."""

from __future__ import annotations

from typing import Any

from attrs import field, frozen

from privopt.arrays import Ints
from privopt.declare import File
from privopt.errors import Fault, InputError
from privopt_hierarchical_dp.bounds import check_limits
from privopt_hierarchical_dp.design import Design
from privopt_hierarchical_dp.groups import check_totals, read_counts, read_units
from privopt_hierarchical_dp.level_tables import LevelTable, read_regions
from privopt_hierarchical_dp.methods import DEFAULT_METHOD
from privopt_hierarchical_dp.problem import HierarchyProblem
from privopt_hierarchical_dp.region_names import KEEP, check_totals_among_regions
from privopt_hierarchical_dp.sizes import SizesDesign
from privopt_hierarchical_dp.tables.design import TablesDesign
from privopt_hierarchical_dp.tables.problem import TablesProblem
from privopt_hierarchical_dp.tables.read import read_individuals
from privopt_hierarchical_dp.tree import add_up

__all__ = ["Instance", "Truth", "read_groups", "read_tables"]


@frozen(kw_only=True, eq=False)
class Truth:
    """The true counts from the secret files, with notes on anything that was not read.

    Attributes:
        leaves: For each table, a (leaf regions, ...) array with the true counts.
        empty: The number of groups that were left out because their quantities add up to 0.
        unread: Messages about parts of the files that were not read. Only the owner may see them.
    """

    leaves: tuple[Ints, ...]
    empty: int = 0
    unread: tuple[str, ...] = ()


@frozen(kw_only=True, eq=False)
class Instance:
    """A problem with its public inputs and its secrets.

    Attributes:
        public: The design of a release by one of the mechanism's methods, which contains all public inputs.
        truth: The contents of the secret files, or None for a published copy.
    """

    public: Design
    truth: Truth | None = field(default=None, repr=False)

    @property
    def declared(self) -> Any:
        """The contents of the problem file."""
        return self.public.problem

    def design(self, method: str) -> Design:
        """Return the design of a release by the given method."""
        return self.public.with_method(method)


def read_groups(declared: HierarchyProblem, file: str = "problem.toml") -> Instance:
    """Read the files of a problem for hierarchical-dp, i.e. the public regions and the secret counts or units.

    Args:
        declared: The contents of the problem file.
        file: The name of the problem file, used in error messages.

    Raises:
        InfeasibleError: The bounds contradict one another or the exact totals.
        InputError: A file has invalid contents. The error lists the faults that were found. Also raised if the problem
            file names both counts and units or neither, or if the length of a list differs from the number of levels.
    """
    declared.check_keys(file)
    table, settings = declared.hierarchy, declared.settings
    # Counts and units are two forms of the same secret. With both, it would be unclear which of them is right.
    sources = [source for source in (table.counts, table.units) if source is not None]
    if len(sources) != 1:
        actual = "both counts and units" if sources else "neither counts nor units"
        raise InputError([Fault(file, "hierarchy", actual, "one of counts and units")])
    listed = None if table.regions is None else read_regions(table.regions)
    # The columns of `like` are marked as read, so that `solve` publishes the columns that `plan` needs.
    if table.like is not None:
        like = LevelTable.read(table.like, "size", "groups")
        like.note("size", "groups", *like.levels)
    if table.counts is not None:
        groups = read_counts(table.counts, table.sizes, first=table.first_size, listed=listed)
    else:
        quantity_limit = settings.max_quantity
        groups = read_units(sources[0], table.sizes, max_quantity=quantity_limit, first=table.first_size, listed=listed)
    settings.check_lengths(groups.tree.depth, file)
    if table.totals != KEEP:
        check_totals_among_regions(groups.regions.paths, (table.regions or sources[0]).name)
    public = SizesDesign.of(declared, DEFAULT_METHOD, groups.tree, file)
    # If neighbours have the same totals in every region (relation.exact), all totals are checked, because rejecting
    # them reveals nothing about an individual. Otherwise only the totals on exact levels are.
    if public.limits is not None and declared.relation.exact:
        numbers = add_up(groups.tree, groups.leaves.sum(axis=1))
        # Every method publishes the root's total and those that the problem file makes exact.
        published_levels = declared.relation.exact_levels or 1
        check_limits(public.limits, numbers, sources[0].name, "groups", published_levels)
    elif public.limits is not None and public.exact:
        numbers = add_up(groups.tree, groups.leaves.sum(axis=1))[: public.exact]
        check_limits(public.limits, numbers, sources[0].name, "groups", public.exact)
    if isinstance(table.totals, File):
        check_totals(table.totals, groups)
    return Instance(public=public, truth=Truth(leaves=(groups.leaves,), empty=groups.empty))


def read_tables(declared: TablesProblem, file: str) -> Instance:
    """Read the files of a problem for hierarchical-tables, i.e. the public regions and the secret individual records.

    Args:
        declared: The contents of the problem file.
        file: The name of the problem file, used in error messages.

    Raises:
        InfeasibleError: The bounds contradict one another or the exact totals.
        InputError: A file has invalid contents. The error lists the faults that were found.
    """
    public = TablesDesign.of(declared, file)
    declared.check_totals(file)
    if declared.hierarchy.totals != KEEP:
        check_totals_among_regions(public.regions.paths, declared.hierarchy.regions.name)
    # Public files are checked before the secret one is read.
    leaves, unread = read_individuals(declared, public.regions, file)
    # Only exact totals are checked, because rejecting others would reveal secrets (see check_limits).
    if public.limits is not None:
        numbers = add_up(public.tree, leaves[0].reshape(len(leaves[0]), -1).sum(axis=1))
        check_limits(public.limits, numbers[: public.exact], file, "individuals", public.exact)
    return Instance(public=public, truth=Truth(leaves=leaves, unread=unread))
