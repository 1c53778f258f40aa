"""What a problem's files hold: the regions, and the counts in them, which are secret."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final
from weakref import WeakKeyDictionary

from attrs import evolve, field, frozen

from privopt.arrays import Ints
from privopt.errors import Fault, InputError
from privopt_hierarchical_dp.bounds import check_limits
from privopt_hierarchical_dp.design import Design
from privopt_hierarchical_dp.groups import check_totals, read_counts, read_units
from privopt_hierarchical_dp.level_tables import LevelTable, read_regions
from privopt_hierarchical_dp.methods import METHODS
from privopt_hierarchical_dp.problem import HierarchyProblem
from privopt_hierarchical_dp.sizes import SizesDesign
from privopt_hierarchical_dp.tables.design import TablesDesign
from privopt_hierarchical_dp.tables.problem import TablesProblem
from privopt_hierarchical_dp.tables.read import read_individuals
from privopt_hierarchical_dp.tree import Regions, Tree, add_up

__all__ = ["Instance", "SizesInstance", "TablesInstance", "Truth", "read_listed"]


def read_listed(declared: HierarchyProblem) -> Regions | None:
    """Return the regions where a public table has them.

    Raises:
        InputError: they form no tree.
    """
    regions = declared.hierarchy.regions
    return None if regions is None else read_regions(regions)[0]


@frozen(kw_only=True, eq=False)
class Truth:
    """What the secret files hold.

    Attributes:
        tree: the regions.
        leaves: for each table (R_L, ...) true counts of the leaf regions.
        empty: groups that were omitted, for their quantities add up to 0.
        unread: what the files hold that is not read, a line each, for their owner alone.
    """

    tree: Tree
    leaves: tuple[Ints, ...]
    empty: int = 0
    unread: tuple[str, ...] = ()


@frozen(kw_only=True, eq=False)
class Instance(ABC):
    """A problem, and its secrets where they are there: a published copy lacks them.

    Attributes:
        declared: what the problem file says.
        file: its name, for faults.
        truth: what its secret files hold.
    """

    declared: Any
    file: str = "problem.toml"
    truth: Truth | None = field(default=None, repr=False)

    @abstractmethod
    def design(self, method: str, tree: Tree | None = None) -> Design:
        """Return what is decided of a method's release; public tables are read the first time.

        Args:
            method: its name.
            tree: the regions; by default those of the truth, or of a public table.
        """

    @property
    def listed(self) -> Tree | None:
        """Return the regions that a release must have; None: those that it has."""
        return None


class SizesInstance(Instance):
    """A problem of hierarchical-dp."""

    declared: HierarchyProblem

    @classmethod
    def of(cls, declared: HierarchyProblem, file: str = "problem.toml") -> SizesInstance:
        """Read the counts or units.

        Raises:
            InfeasibleError: bounds that clash.
            InputError: every fault of the files; neither or both of counts and units; lists whose
                length is not the number of levels; a relation that hides nothing.
        """
        declared.checked(file)
        table, settings = declared.hierarchy, declared.settings
        given = [source for source in (table.counts, table.units) if source is not None]
        if len(given) != 1:
            found = "both counts and units" if given else "neither counts nor units"
            raise InputError([Fault(file, "hierarchy", found, "one of counts and units")])
        listed = read_listed(declared)
        if table.like is not None:  # of which solve publishes what plan reads
            like = LevelTable.scan(table.like)
            like.note("size", "groups", *(name for name in like.columns if name.startswith("level_")))
        if table.counts is not None:
            groups = read_counts(table.counts, table.sizes, first=table.first_size, listed=listed)
        else:
            most = settings.max_quantity
            groups = read_units(given[0], table.sizes, max_quantity=most, first=table.first_size, listed=listed)
        settings.check_lengths(groups.tree.depth, file)
        truth = Truth(tree=groups.tree, leaves=(groups.leaves,), empty=groups.empty)
        problem = cls(declared=declared, file=file, truth=truth)
        design = problem.design(next(iter(METHODS)))
        if design.limits is not None and declared.relation.exact:
            check_limits(design.limits, add_up(groups.tree, groups.leaves.sum(axis=1)), given[0].name, "groups")
        if table.totals is not None:
            check_totals(table.totals, groups)
        return problem

    def design(self, method: str, tree: Tree | None = None) -> SizesDesign:
        """Return what is decided of a method's release over regions."""
        if tree is None:
            assert self.truth is not None  # whoever has no release has the truth
            tree = self.truth.tree
        known = _DESIGNS.get(self)
        if not isinstance(known, SizesDesign) or known.tree is not tree:
            known = SizesDesign.of(self.declared, method, tree, self.file)
        elif known.method != method:
            known = evolve(known, method=method)
        _DESIGNS[self] = known
        return known


class TablesInstance(Instance):
    """A problem of hierarchical-tables."""

    declared: TablesProblem

    @classmethod
    def of(cls, declared: TablesProblem, file: str) -> TablesInstance:
        """Read the individuals.

        Raises:
            InfeasibleError: bounds that clash.
            InputError: every fault of the files.
        """
        public = cls(declared=declared, file=file).design("margins")
        leaves, unread = read_individuals(declared, public.regions, file)
        problem = cls(declared=declared, file=file, truth=Truth(tree=public.tree, leaves=leaves, unread=unread))
        _DESIGNS[problem] = public
        if public.limits is not None:
            numbers = add_up(public.tree, leaves[0].reshape(len(leaves[0]), -1).sum(axis=1))
            check_limits(public.limits, numbers[: public.exact], file, "individuals")
        return problem

    @property
    def listed(self) -> Tree | None:
        """Return those of the public table."""
        return self.design("margins").tree

    def design(self, method: str, tree: Tree | None = None) -> TablesDesign:
        """Return what is decided of a release: the regions are those of the public table."""
        known = _DESIGNS.get(self)
        if not isinstance(known, TablesDesign):
            known = TablesDesign.of(self.declared, self.file, method)
            _DESIGNS[self] = known
        return known


_DESIGNS: Final[WeakKeyDictionary[Instance, Design]] = WeakKeyDictionary()
"""The last design of each problem: a command asks for one again and again, and a problem is changed by nobody."""
