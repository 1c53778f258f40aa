"""What a problem's files hold: the regions, and the groups in them, which are secret."""

from __future__ import annotations

from typing import Final
from weakref import WeakKeyDictionary

from attrs import frozen

from privopt.declare import problem_html
from privopt.errors import Fault, InputError
from privopt_hierarchical_dp.bounds import Limits, check_limits, limits_of
from privopt_hierarchical_dp.counts import Groups, check_totals, read_counts, read_units
from privopt_hierarchical_dp.design import Design
from privopt_hierarchical_dp.problem import HierarchyProblem
from privopt_hierarchical_dp.public_tables import note_like, read_regions, zeros_of
from privopt_hierarchical_dp.refusals import check_hidden
from privopt_hierarchical_dp.tree import Tree, add_up
from privopt_hierarchical_dp.zeros import Zeros

__all__ = ["HierarchyInstance", "PublishedHierarchy"]


@frozen(kw_only=True, eq=False)
class PublishedHierarchy:
    """What everybody may know of a problem: a published copy lacks the secret files.

    Attributes:
        declared: what the problem file says.
    """

    declared: HierarchyProblem

    def design(self, method: str, tree: Tree) -> Design:
        """Return what is decided of a method's release over regions; public tables are read the first time."""
        known = _DESIGNS.get(self)
        if known is None or known.method != method or known.tree is not tree:
            known = _DESIGNS[self] = self._designed(method, tree)
        return known

    def _designed(self, method: str, tree: Tree) -> Design:
        return Design.of(self.declared, method, tree)

    def _repr_html_(self) -> str:
        return problem_html(self.declared)


@frozen(kw_only=True, eq=False)
class HierarchyInstance(PublishedHierarchy):
    """A problem and its groups.

    Attributes:
        groups: the regions and their groups, which are secret.
        zeros: sizes that cannot be; None without any.
        limits: public bounds on numbers of groups; None without any.
    """

    groups: Groups
    zeros: Zeros | None
    limits: Limits | None

    def _designed(self, method: str, tree: Tree) -> Design:
        return Design.from_tables(self.declared, method, tree, zeros=self.zeros, limits=self.limits)

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
        zeros, limits = zeros_of(declared, groups.tree), limits_of(table.bounds, groups.tree)
        check_hidden(declared, zeros, file)
        if limits is not None and declared.relation.exact:
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
        return cls(declared=declared, groups=groups, zeros=zeros, limits=limits)


_DESIGNS: Final[WeakKeyDictionary[PublishedHierarchy, Design]] = WeakKeyDictionary()
"""The last design of each problem: a command asks for one again and again, and a problem is changed by nobody."""
