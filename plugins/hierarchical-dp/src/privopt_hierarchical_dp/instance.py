"""The contents of a problem's files: the regions, and the groups in them, which are secret."""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from attrs import frozen

from privopt.errors import Fault, InputError
from privopt_hierarchical_dp.bounds import check_limits
from privopt_hierarchical_dp.design import Design
from privopt_hierarchical_dp.groups import Groups, check_totals, read_counts, read_units
from privopt_hierarchical_dp.level_tables import LevelTable, read_regions
from privopt_hierarchical_dp.methods import METHODS
from privopt_hierarchical_dp.problem import HierarchyProblem
from privopt_hierarchical_dp.tree import Regions, Tree, add_up

__all__ = ["HierarchyInstance", "PublishedHierarchy", "read_listed"]


def read_listed(declared: HierarchyProblem) -> Regions | None:
    """Return the regions where a public table has them.

    Raises:
        InputError: they form no tree.
    """
    regions = declared.hierarchy.regions
    return None if regions is None else read_regions(regions)[0]


@frozen(kw_only=True, eq=False)
class PublishedHierarchy:
    """What everybody may know of a problem: a published copy lacks the secret files.

    Attributes:
        declared: what the problem file says.
        file: its name, for faults.
    """

    declared: HierarchyProblem
    file: str = "problem.toml"

    def design(self, method: str, tree: Tree) -> Design:
        """Return what is decided of a method's release over regions; public tables are read the first time."""
        known = _DESIGNS.get(self)
        if known is None or known.tree is not tree:
            known = Design.of(self.declared, method, tree, self.file)
        elif known.method != method:
            known = Design.from_tables(
                self.declared, method, tree, zeros=known.zeros, limits=known.limits, file=self.file
            )
        _DESIGNS[self] = known
        return known


@frozen(kw_only=True, eq=False)
class HierarchyInstance(PublishedHierarchy):
    """A problem and its groups.

    Attributes:
        groups: the regions and their groups, which are secret.
    """

    groups: Groups

    @classmethod
    def of(cls, declared: HierarchyProblem, file: str = "problem.toml") -> HierarchyInstance:
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
            assert table.units is not None
            most = settings.max_quantity
            groups = read_units(table.units, table.sizes, most=most, first=table.first_size, listed=listed)
        settings.check_lengths(groups.tree.depth, file)
        problem = cls(declared=declared, file=file, groups=groups)
        design = problem.design(next(iter(METHODS)), groups.tree)
        if design.limits is not None and declared.relation.exact:
            check_limits(design.limits, add_up(groups.tree, groups.leaves.sum(axis=1)), given[0].name, "groups")
        if table.totals is not None:
            check_totals(table.totals, groups)
        return problem


_DESIGNS: Final[WeakKeyDictionary[PublishedHierarchy, Design]] = WeakKeyDictionary()
"""The last design of each problem: a command asks for one again and again, and a problem is changed by no one."""
