"""Tables by attributes, their margins, and least squares over all tables in closed form.

A margin is a tuple of attribute indices in ascending order. Its values form an array with one row per region and one
axis per attribute. A table is a sum of effects. The effect of a set e of attributes is what remains of the margin on e
after the means along every axis of e are subtracted, so it is the part not determined by any smaller margin.

If the noise on a table is independent between cells, its effects are uncorrelated. An effect determined by several
tables can therefore be estimated separately from all others, as an average weighted by inverse variance. This solves
least squares under all constraints between the tables (as in Barak et al., PODS 2007; Xiao et al., NeurIPS 2023). The
values of a margin are the sum of its effects, each divided evenly among the cells that differ only in attributes
missing from the effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import combinations
from math import prod
from typing import Final, TypeAlias

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints
from privopt_hierarchical_dp.tree import sum_axes

__all__ = ["TOTAL", "Domain", "Effects", "Margin", "Step", "steps_of"]

Margin: TypeAlias = tuple[int, ...]
Effects: TypeAlias = dict[Margin, Floats]
"""The effects in all regions at a level: for each set of attributes, an array of shape (regions, ...).

Together, they determine every margin.
"""
TOTAL: Final[Margin] = ()
"""The margin without attributes. Its only value in a region is the number of individuals."""


def _list_subsets(margin: Margin) -> list[Margin]:
    """Return all subsets of a margin in order of increasing size, from the empty set to the margin itself."""
    return [part for size in range(len(margin) + 1) for part in combinations(margin, size)]


@frozen(kw_only=True)
class Domain:
    """The attributes of individuals, and the measured tables with their weights in least squares.

    A margin is a tuple of attribute indices in ascending order. Its values are the counts by these attributes, summed
    over all others.

    Attributes:
        sizes: The number of values of each attribute.
        tables: The margin of each measured table.
        weights: The weight of each table in least squares, inversely proportional to the variance of the noise on a
            cell.
    """

    sizes: tuple[int, ...]
    tables: tuple[Margin, ...]
    weights: tuple[float, ...]

    def shape(self, margin: Margin) -> tuple[int, ...]:
        """Return the shape of a margin's values in one region, which is the number of values of each attribute."""
        return tuple(self.sizes[attribute] for attribute in margin)

    def cells(self, margin: Margin) -> int:
        """Return the number of cells of a margin in one region."""
        return prod(self.shape(margin))

    @cached_property
    def steps(self) -> list[Step]:
        """The steps in which margins are fitted, as ordered by :func:`steps_of`."""
        return steps_of(self.tables)

    def _count_remaining_cells(self, outer: Margin, inner: Margin) -> int:
        """Return the number of cells of margin ``outer`` that add up to one cell of the smaller margin ``inner``."""
        return prod(self.sizes[attribute] for attribute in outer if attribute not in inner)

    def precision(self, table: int, effect: Margin) -> float:
        """Return the precision (inverse variance, up to a factor) with which a table estimates an effect.

        The more cells of the table are summed to compute the effect, the noisier and hence less precise the estimate
        is.

        Args:
            table: The index of the table.
            effect: The attributes of the effect, which must be a subset of the table's attributes.
        """
        return self.weights[table] / self._count_remaining_cells(self.tables[table], effect)

    def effects(self, noisy: Sequence[Ints]) -> Effects:
        """Estimate every effect determined by at least one table, as a precision-weighted average over those tables.

        The effect of a set of attributes is the part of its margin that is not determined by any smaller margin.

        Args:
            noisy: For each table, an array of shape (regions, ...) with the noisy values.
        """
        effects: Effects = {}
        for effect in sorted({part for table in self.tables for part in _list_subsets(table)}):
            # `total` broadcasts to the shape of the effect.
            total, weight = np.zeros(1), 0.0
            for number, (table, values) in enumerate(zip(self.tables, noisy, strict=True)):
                if set(effect) <= set(table):
                    effect_precision = self.precision(number, effect)
                    total, weight = (
                        total + effect_precision * sum_axes(values, table, effect),
                        weight + effect_precision,
                    )
            # Subtracting the means along every axis removes the smaller effects, which are estimated separately.
            for axis in range(1, len(effect) + 1):
                total = total - total.mean(axis=axis, keepdims=True)
            effects[effect] = total / weight
        return effects

    def margin(self, effects: Effects, target: Margin) -> Floats:
        """Compute the values of a margin from effects, treating effects not determined by any table as 0.

        Args:
            effects: The effects for all regions at a level.
            target: The margin to compute, as the indices of its attributes.

        Returns:
            Array of shape (regions, ...) with the values of the margin.
        """
        rows = len(effects[TOTAL])
        values = np.zeros((rows, *self.shape(target)))
        for effect in _list_subsets(target):
            if effect in effects:
                # An effect is divided evenly among the cells of the attributes that it lacks.
                spread_effect = effects[effect] / self._count_remaining_cells(target, effect)
                values += spread_effect.reshape(rows, *(self.sizes[a] if a in effect else 1 for a in target))
        return values

    def influence_powers(
        self, margin: Margin, weights: Floats | None = None, *, contrasts_only: bool = False
    ) -> tuple[Floats, Floats]:
        """Return, for each table, the sums of the squares and of the fourth powers of the weights in :meth:`influence`.

        The weight of a table's cell depends only on which attributes have their first value there. It is therefore
        enough to compute weights for two values per axis, the first one and any other, and to multiply each power by
        the number of cells that share the weight.

        Args:
            margin: The margin of the estimated cell.
            weights: Array of shape (tables, cases) with several alternative weights for each table. If None, the
                domain's weights are used.
            contrasts_only: Whether to omit the effect without attributes, which divides the region's total among all
                cells.

        Returns:
            The sums of squares and the sums of fourth powers. Both have the shape of ``weights``, or (tables,) if
            ``weights`` is None.
        """
        cases = np.array(self.weights, dtype=np.float64)[:, None] if weights is None else weights
        effects = _list_subsets(margin)[contrasts_only:]
        # Array of shape (effects, tables) with the precision at which a table of weight 1 estimates an effect, or 0 if
        # the table does not determine it.
        unit_precisions = np.array(
            [
                [
                    1.0 / self._count_remaining_cells(table, effect) if set(effect) <= set(table) else 0.0
                    for table in self.tables
                ]
                for effect in effects
            ]
        ).reshape(len(effects), len(self.tables))
        spread = np.array([float(self._count_remaining_cells(margin, effect)) for effect in effects])
        total_precisions = (unit_precisions @ cases) * spread[:, None]
        squares, fourths = np.zeros_like(cases), np.zeros_like(cases)
        for number, table in enumerate(self.tables):
            # As in :meth:`margin`, effects that no table determines are taken as 0.
            factors = np.divide(
                unit_precisions[:, number, None] * cases[number],
                total_precisions,
                out=np.zeros((len(effects), cases.shape[1])),
                where=total_precisions > 0.0,
            )
            patterns, cell_counts = self._effect_patterns(table, margin)
            influence = patterns[contrasts_only:].T @ factors
            squares[number], fourths[number] = cell_counts @ influence**2, cell_counts @ influence**4
        return (squares[:, 0], fourths[:, 0]) if weights is None else (squares, fourths)

    @cached_property
    def _patterns(self) -> dict[tuple[Margin, Margin], tuple[Floats, Floats]]:
        """A cache of the results of :meth:`_effect_patterns`, which do not depend on weights."""
        return {}

    def _effect_patterns(self, table: Margin, margin: Margin) -> tuple[Floats, Floats]:
        """Compute the effects of a table that is 1 in its first cell and 0 elsewhere.

        Each axis is reduced to two values, the first one and any other, because the effects are the same for all values
        but the first.

        Args:
            table: The margin of the table.
            margin: The margin of the estimated cell.

        Returns:
            An array of shape (effects of the margin, reduced cells) with the effects, which are 0 if the table does not
            determine them, and an array with the number of cells represented by each reduced cell.
        """
        if (table, margin) not in self._patterns:
            cell_counts, patterns = np.ones(1), []
            for attribute in table:
                size = self.sizes[attribute]
                cell_counts = np.multiply.outer(cell_counts, [1.0, size - 1.0]).ravel()
            for effect in _list_subsets(margin):
                pattern = np.ones(1)
                for attribute in table:
                    mean = 1.0 / self.sizes[attribute]
                    axis_pattern = np.array([1.0 - mean, -mean] if attribute in effect else [1.0, 1.0])
                    pattern = np.multiply.outer(pattern, axis_pattern).ravel()
                patterns.append(pattern if set(effect) <= set(table) else np.zeros_like(pattern))
            self._patterns[table, margin] = np.array(patterns), cell_counts
        return self._patterns[table, margin]

    def influence(self, margin: Margin) -> list[Floats]:
        """Return the weight of every measured value in the least-squares estimate of the first cell of a margin.

        The estimate is linear in the measured values. For any other cell of the margin, the weights are the same
        numbers in a different order.

        Returns:
            For each table, an array of weights with the shape of the table's values in one region.
        """
        influences = [np.zeros(self.shape(table)) for table in self.tables]
        for effect in _list_subsets(margin):
            tables_with_effect = [number for number, table in enumerate(self.tables) if set(effect) <= set(table)]
            total_precision = sum(self.precision(number, effect) for number in tables_with_effect)
            for number in tables_with_effect:
                factor = np.full((1,) * len(self.tables[number]), self.precision(number, effect))
                for axis, attribute in enumerate(self.tables[number]):
                    if attribute in effect:
                        # Subtracting the mean along the axis, as `effects` does, turns a 1 in the first cell into this
                        # pattern.
                        axis_pattern = -np.full(self.sizes[attribute], 1.0 / self.sizes[attribute])
                        axis_pattern[0] += 1.0
                        factor = factor * axis_pattern.reshape([-1 if k == axis else 1 for k in range(factor.ndim)])
                influences[number] += factor / (total_precision * self._count_remaining_cells(margin, effect))
        return influences


@frozen(kw_only=True)
class Step:
    """One step in fitting several tables, which fits a margin given a smaller margin that has already been fitted.

    Attributes:
        margin: The margin to fit.
        given: The smaller margin, a subset of ``margin``, to which the fitted counts must add up.
    """

    margin: Margin
    given: Margin


def _find_cliques(tables: Iterable[Margin]) -> list[tuple[Margin, Margin]]:
    """Find sets of attributes that cover all tables, in the order of a junction tree.

    The sets are the maximal cliques of a chordal completion of the graph that connects the attributes of each table.
    They can be fitted one after another, each given the attributes that it shares with its parent.

    Args:
        tables: The margins of the tables.

    Returns:
        The attributes of each clique, and those that it shares with its parent in the junction tree.
    """
    import networkx as nx

    graph = nx.Graph()
    for table in tables:
        graph.add_nodes_from(table)
        graph.add_edges_from(combinations(table, 2))
    if not graph:
        return [(TOTAL, TOTAL)]
    chordal, _ = nx.complete_to_chordal_graph(graph)
    cliques = sorted(tuple(sorted(clique)) for clique in nx.chordal_graph_cliques(chordal))
    joined = nx.Graph()
    joined.add_nodes_from(range(len(cliques)))
    for a, b in combinations(range(len(cliques)), 2):
        joined.add_edge(a, b, weight=len(set(cliques[a]) & set(cliques[b])))
    # A spanning tree of maximum overlap is a junction tree, so the attributes that a clique shares with any earlier
    # clique are also in its parent.
    tree = nx.maximum_spanning_tree(joined)
    order = [(cliques[0], TOTAL)]
    # Parents come before their children.
    for parent, child in nx.bfs_edges(tree, 0):
        order.append((cliques[child], tuple(a for a in cliques[child] if a in cliques[parent])))
    return order


def steps_of(tables: Sequence[Margin]) -> list[Step]:
    """Return the steps that fit integers to margins, ordered so that every step has a solution and the tables agree.

    The steps for a clique of :func:`_find_cliques` fit a chain of margins, each a subset of the next, that ends with
    the clique itself. The smaller margins in the chain are measured tables and sets of attributes that cliques share.

    For every parent region and every cell of the given margin, a step is a transportation problem. Its row sums are the
    parent's counts in the cells to fit, and its column sums are the children's counts in the given cell. Both add up to
    the parent's count in the given cell, so an integer solution exists regardless of the results of earlier steps.
    Tables agree because the attributes that two cliques share are already fitted, and held fixed, when the second
    clique is fitted.

    Args:
        tables: The margins of the tables.
    """
    cliques = _find_cliques(tables)
    margins = {*tables, *(shared for _, shared in cliques)}
    steps: list[Step] = []
    for clique, shared in cliques:
        fitted_margin = shared
        inner_margins = sorted((m for m in margins if set(m) <= set(clique)), key=lambda margin: (len(margin), margin))
        for margin in [*inner_margins, clique]:
            # A margin that does not contain the last fitted one has no step. It is summed from the clique, fitted last.
            if set(fitted_margin) < set(margin):
                steps.append(Step(margin=margin, given=fitted_margin))
                fitted_margin = margin
    return steps
