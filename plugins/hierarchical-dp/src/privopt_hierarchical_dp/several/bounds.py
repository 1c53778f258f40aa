"""Public bounds on single cells: no more households in rented flats than there are flats.

Steps of the fit know nothing of them. Where what they find breaks one, all cells of cliques of attributes
(:mod:`.margins`) are changed by as little as can be, summed over cells and regions: whole numbers with bounds on sums
over regions and over what a table does not tell, cliques agreeing, numbers of individuals that are exact kept. Whether
there are any does not depend on the noise, and is known before it is drawn.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Final

import numpy as np
from attrs import field, frozen

from privopt.arrays import Bools, Ints
from privopt.errors import Fault, InfeasibleError, InputError, UsageError
from privopt_hierarchical_dp.bounds import UNBOUNDED, Range, Source, bounds_of_rows, capped, in_words
from privopt_hierarchical_dp.nearest import MOST_CELLS, least_moved
from privopt_hierarchical_dp.public_tables import Bound
from privopt_hierarchical_dp.several.margins import TOTAL, Domain, Margin
from privopt_hierarchical_dp.tree import Tree, add_up

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["SIDES", "CellBounds", "read_rows"]

SIDES: Final = ("at_least", "at_most")
WHOLE: Final = re.compile(r"(\d{1,15})(?:\.0*)?", re.ASCII)


def read_rows(
    name: str, rows: Sequence[Mapping[str, str]], attributes: Mapping[str, Sequence[str]], tree: Tree
) -> list[Bound]:
    """Bounds of ``region``, a value of each attribute, ``at_least`` and ``at_most``; an empty side bounds nothing.

    Raises:
        InputError: a region or value that is none, a cell twice, a number that is none, the least above the most.
    """
    places, shape = tree.places(), [len(values) for values in attributes.values()]
    found: dict[tuple[str, int], Bound] = {}
    faults = []
    for line, row in enumerate(rows, start=2):

        def tell(column: str, value: str, wanted: str, line: int = line) -> None:
            faults.append(Fault(name, f"row {line}, column {column}", repr(value), wanted))

        before, at = len(faults), []
        if row["region"] not in places:
            tell("region", row["region"], "a region of hierarchy.regions")
        for attribute, values in attributes.items():
            if row[attribute] in values:
                at.append(list(values).index(row[attribute]))
            else:
                wanted = (
                    f"a value of hierarchy.attributes.{attribute}; all of them together are a cell of another table"
                )
                tell(attribute, row[attribute], wanted)
        sides: list[int | None] = []
        for side in SIDES:
            text = row.get(side, "")
            number = WHOLE.fullmatch(text)
            if text and number is None:
                tell(side, text, "a whole number of individuals, 0 or more, below 10^15, or nothing")
            sides.append(None if number is None else int(number[1]))
        if len(faults) > before:
            continue
        least, most = sides
        cell = int(np.ravel_multi_index(at, shape)) if shape else 0
        if (row["region"], cell) in found:
            tell("region", row["region"], "one row for each region and cell")
        elif least is not None and most is not None and least > most:
            tell("at_most", str(most), f"at_least, {least}, or more")
        else:
            found[row["region"], cell] = Bound(*places[row["region"]], cell, least, most)
    if faults:
        raise InputError(faults)
    return list(found.values())


@frozen(kw_only=True, eq=False)
class CellBounds:
    """What all tables' bounds come to.

    Attributes:
        tree: the regions.
        domain: the tables.
        allowed: for each margin the cells that somebody can be in.
        ranges: for each table least and most of its cells (R_l, cells), drawn together over the tree; None without.
    """

    tree: Tree
    domain: Domain
    allowed: Mapping[Margin, Bools] = field(repr=False)
    ranges: tuple[Range | None, ...] = field(repr=False)

    @classmethod
    def of(
        cls,
        tree: Tree,
        domain: Domain,
        zeros: Sequence[Bools],
        rows: Sequence[tuple[str, Sequence[Bound]] | None],
        attributes: Mapping[str, Sequence[str]],
    ) -> CellBounds | None:
        """From each table's file and its rows; None where no table has any.

        Raises:
            InfeasibleError: bounds that clash: with those of the regions inside, with impossible cells, or between
                tables that share attributes.
            UsageError: more cells than can be looked through.
        """
        if all(own is None for own in rows):
            return None
        names, allowed = list(attributes), domain.allowed(zeros)
        ranges: list[Range | None] = []
        for table, own in zip(domain.tables, rows, strict=True):
            if own is None:
                ranges.append(None)
                continue
            cells = [
                ", ".join(attributes[names[a]][k] for a, k in zip(table, at, strict=True))
                for at in np.ndindex(domain.shape(table))
            ]
            source = Source(file=own[0], tree=tree, cell=partial(_named, cells))
            least, most = bounds_of_rows([(width, len(cells)) for width in tree.widths], own[1])
            most = [np.where(allowed[table].ravel(), level, 0) for level in most]
            source.check_possible(least, most, "the tables' impossible cells")
            ranges.append(Range.over(tree, least, most, source))
        found = cls(tree=tree, domain=domain, allowed=allowed, ranges=tuple(ranges))
        found._check_between([own and own[0] for own in rows])
        if found.leaf_cells > MOST_CELLS:
            what = f"{tree.widths[-1]:,} leaf regions with {found.leaf_cells:,} cells that bounds are kept in"
            raise UsageError(f"bounds on cells: found {what}, at most {MOST_CELLS:,} are taken; wanted fewer")
        return found

    def _check_between(self, files: Sequence[str | None]) -> None:
        """Refuse what two tables say of the values that they share, where sums alone tell that it clashes."""
        bounded = [(n, own) for n, own in enumerate(self.ranges) if own is not None]
        for (a, one), (b, two) in combinations(bounded, 2):
            shared = tuple(own for own in self.domain.tables[a] if own in self.domain.tables[b])
            for level, names in enumerate(self.tree.names):
                ends = [self._projected(n, own, level, shared) for n, own in ((a, one), (b, two))]
                clashing = (ends[0][0] > ends[1][1]) | (ends[1][0] > ends[0][1])
                for region, cell in np.argwhere(clashing)[:1].tolist():
                    told = [in_words(low[region, cell], high[region, cell]) for low, high in ends]
                    raise InfeasibleError(
                        f"{files[a]} and {files[b]}: region {names[region]!r} has {told[0]} by the one and {told[1]} "
                        "by the other, of the same individuals"
                    )

    def _projected(self, number: int, own: Range, level: int, shared: Margin) -> tuple[Ints, Ints]:
        """Least and most (R, cells) of a margin of a table, as sums of its cells' bounds."""
        table = self.domain.tables[number]
        away = [axis for axis, a in enumerate(table, start=1) if a not in shared]
        low, high = (
            np.moveaxis(side[level].reshape(-1, *self.domain.shape(table)), away, list(range(-len(away), 0)))
            .reshape(len(side[level]), self.domain.cells(shared), -1)
            for side in (own.least, own.most)
        )  # fmt: skip
        return capped(low, axis=2), capped(high, axis=2)

    @property
    def cliques(self) -> list[Margin]:
        """The largest margins that are fitted, along a tree: what each shares with all before it one of these holds."""
        every = dict.fromkeys([TOTAL, *(step.margin for step in self.domain.steps)])
        return [margin for margin in every if not any(set(margin) < set(other) for other in every)]

    def outside(self, number: int, level: int, values: Ints) -> Bools:
        """(R,) regions of a level with a cell (R, ...) of a table that is out of bounds."""
        own = self.ranges[number]
        flat = values.reshape(len(values), -1)
        if own is None:
            return np.zeros(len(values), dtype=bool)
        return np.asarray(((flat < own.least[level]) | (flat > own.most[level])).any(axis=1))

    def broken(self, counts: Sequence[Sequence[Ints]]) -> int:
        """How many cells of tables, by level and table, are out of bounds."""
        return sum(
            len(own.outside([level[number].reshape(len(level[number]), -1) for level in counts]))
            for number, own in enumerate(self.ranges)
            if own is not None
        )

    def moved(self, whole: Mapping[Margin, Sequence[Ints]], totals: Sequence[Ints]) -> dict[Margin, list[Ints]]:
        """Margins of all cliques within bounds, near those found: the least sum of changes over all regions and cells.

        The root's number of individuals stays, or where no tables have it becomes the nearest that some have.

        Args:
            whole: margins found, by level (R_l, ...), consistent.
            totals: exact numbers of individuals: for each level (R_l,), the root's alone, or none.

        Raises:
            InfeasibleError: there are no tables within bounds.
        """
        near = [np.concatenate([whole[clique][level].ravel() for clique in self.cliques])
                for level in reversed(range(self.tree.depth))]  # fmt: skip
        kept = list(totals) or [np.array([int(whole[self.cliques[0]][0].sum())])]
        found = self._nearest(near, kept)
        if found is None and not totals:
            found = self._nearest(near, [np.array([self.nearest_total(int(kept[0][0]))])])
        if found is None:
            raise InfeasibleError("bounds on cells of hierarchy.tables: no tables keep them together")
        margins, first = {}, 0
        for clique in self.cliques:
            size = self.tree.widths[-1] * self.domain.cells(clique)
            leaves = found[first : first + size].reshape(-1, *self.domain.shape(clique))
            margins[clique], first = add_up(self.tree, leaves), first + size
        return margins

    def check_room(self, totals: Sequence[Ints]) -> None:
        """Whether there are tables within bounds with exact, public numbers of individuals (none: with any).

        Raises:
            InfeasibleError: there are none.
        """
        if self._nearest([np.zeros(self.leaf_cells, np.int64)], totals) is None:
            beside = " together with the public numbers of individuals" if totals else " together"
            raise InfeasibleError(f"bounds on cells of hierarchy.tables: no tables keep them{beside}")

    def nearest_total(self, wanted: int) -> int:
        """The number of individuals of the whole hierarchy nearest to one wanted that tables within bounds can have.

        Raises:
            InfeasibleError: there are no tables within bounds.
        """
        from scipy import sparse

        sums, low, high = self._sums([])
        off = sparse.csr_array(([-1.0], ([len(low) - 1], [0])), shape=(len(low), 1))  # of what the last row adds up
        low[-1] = high[-1] = wanted
        cells = sums.shape[1]
        found = least_moved(
            np.zeros(cells + 1, np.int64),
            sparse.hstack([sums, off]).tocsr(),
            low,
            high,
            np.append(np.zeros(cells, np.int64), -UNBOUNDED),
            np.append(self._most(), UNBOUNDED),
            costs=np.append(np.zeros(cells), 1.0),
        )
        if found is None:
            raise InfeasibleError("bounds on cells of hierarchy.tables: no tables keep them together")
        return wanted + int(found[-1])

    @property
    def leaf_cells(self) -> int:
        """Cells of all cliques and leaf regions."""
        return self.tree.widths[-1] * sum(map(self.domain.cells, self.cliques))

    def _nearest(self, near: Sequence[Ints], totals: Sequence[Ints]) -> Ints | None:
        """Cells of all cliques of the leaf regions, then of those above, near given ones, that keep all that must hold.

        Args:
            near: for each level that counts, the leaves' first, cells of all regions and cliques.
            totals: exact numbers of individuals, by level.
        """
        from scipy import sparse

        sums, low, high = self._sums(totals)
        blocks: list[list[csr_array | None]] = [[sums]]
        for above in range(1, len(near)):
            level = self.tree.depth - 1 - above
            up = _up(self.tree.start[level])
            cells = map(self.domain.cells, self.cliques)
            added = sparse.block_diag([sparse.kron(up, sparse.eye_array(own)) for own in cells])
            blocks = [[*row, None] for row in blocks]
            blocks.append([*[None] * (above - 1), added, -sparse.eye_array(len(near[above]))])
        links = np.zeros(sum(map(len, near[1:])), np.int64)
        given = np.concatenate(near)
        most = np.append(self._most(), np.full(len(links), UNBOUNDED))
        return least_moved(
            given,
            sparse.block_array(blocks, format="csr"),
            np.append(low, links),
            np.append(high, links),
            np.zeros_like(given),
            most,
        )

    def _most(self) -> Ints:
        leaves = self.tree.widths[-1]
        able = [np.tile(self.allowed[clique].ravel(), leaves) for clique in self.cliques]
        return np.where(np.concatenate(able), UNBOUNDED, 0)

    def _sums(self, totals: Sequence[Ints]) -> tuple[csr_array, Ints, Ints]:
        """Sums of leaf regions' cells, and their bounds: of tables, of what cliques share, of all at last."""
        from scipy import sparse

        cliques, tree, domain = self.cliques, self.tree, self.domain
        rows, low, high = [], [], []

        def add(parts: Mapping[int, csr_array], least: Ints, most: Ints, within: csr_array) -> None:
            held = np.flatnonzero((least > 0) | (most < UNBOUNDED))
            blocks = [
                sparse.kron(within, parts[k], format="csr")[held]
                if k in parts
                else sparse.csr_array((len(held), tree.widths[-1] * domain.cells(clique)))
                for k, clique in enumerate(cliques)
            ]
            rows.append(sparse.hstack(blocks))
            low.append(least[held])
            high.append(most[held])

        within = [_inside(tree, level) for level in range(tree.depth)]
        for at, clique in enumerate(cliques[1:], start=1):
            overlap = [len(set(own) & set(clique)) for own in cliques[:at]]
            other = overlap.index(max(overlap))
            shared = tuple(a for a in clique if a in cliques[other])
            same = np.zeros(tree.widths[-1] * domain.cells(shared), np.int64)
            parts = {other: _onto(domain, cliques[other], shared), at: -_onto(domain, clique, shared)}
            add(parts, same, same, within[-1])
        for table, own in zip(domain.tables, self.ranges, strict=True):
            holder = next(k for k, clique in enumerate(cliques) if set(table) <= set(clique))
            for level in range(tree.depth if own is not None else 0):
                assert own is not None
                part = {holder: _onto(domain, cliques[holder], table)}
                add(part, own.least[level].ravel(), own.most[level].ravel(), within[level])
        everyone = {0: _onto(domain, cliques[0], TOTAL)}
        for level in reversed(range(1, len(totals))):
            add(everyone, totals[level], totals[level], within[level])
        root = totals[0] if totals else np.zeros(1, np.int64)
        ends = (root, root if totals else np.array([UNBOUNDED - 1]))  # held, whatever it is
        add(everyone, *ends, within[0])
        return sparse.vstack(rows).tocsr(), np.concatenate(low), np.concatenate(high)


def _inside(tree: Tree, level: int) -> csr_array:
    """(R_l, R_L) which leaf regions lie in which region."""
    from scipy import sparse

    found = sparse.eye_array(tree.widths[-1], format="csr")
    for start in reversed(tree.start[level:]):
        found = (_up(start) @ found).tocsr()
    return found


def _up(start: Ints) -> csr_array:
    """(R_l, R_l+1) which region is whose parent."""
    from scipy import sparse

    parent = np.repeat(np.arange(len(start) - 1), np.diff(start))
    return sparse.csr_array((np.ones(len(parent)), (parent, np.arange(len(parent)))))


def _onto(domain: Domain, whole: Margin, part: Margin) -> csr_array:
    """(cells of a margin, cells of a larger one) what adds up to what."""
    from scipy import sparse

    cells = np.arange(domain.cells(part)).reshape([domain.sizes[a] if a in part else 1 for a in whole])
    rows = np.broadcast_to(cells, domain.shape(whole)).ravel()
    return sparse.csr_array((np.ones(len(rows)), (rows, np.arange(len(rows)))), shape=(cells.size, len(rows)))


def _named(cells: Sequence[str], column: int) -> str:
    return f"of ({cells[column]})"
