"""Tables by attributes, their margins, and least squares over all of them in closed form.

A margin is a tuple of attributes, by number and ascending; its values are an array of a row for each region and an axis
for each attribute. A table splits into effects: for each set e of its attributes the part of its margin on e that no
smaller margin determines (means subtracted along every axis of e). Noise of a table that is independent from cell to
cell stays uncorrelated between effects. So tables that share an effect are pooled effect by effect, by inverse
variance. That is least squares under all constraints between them (as in Barak et al., PODS 2007; Xiao et al., NeurIPS
2023). A margin's values are the sums of its effects, each spread evenly over what it does not speak of.
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
"""Effects (R, ...) of all regions of a level, from which any margin follows."""
TOTAL: Final[Margin] = ()
"""The margin on no attribute: numbers of individuals."""


def _list_subsets(margin: Margin) -> list[Margin]:
    return [part for size in range(len(margin) + 1) for part in combinations(margin, size)]


@frozen(kw_only=True)
class Domain:
    """The attributes and the measured tables.

    Attributes:
        sizes: The number of values of each attribute.
        tables: The measured margins.
        weights: The weight of each table in least squares, in proportion to 1 / variance of its cells.
    """

    sizes: tuple[int, ...]
    tables: tuple[Margin, ...]
    weights: tuple[float, ...]

    def shape(self, margin: Margin) -> tuple[int, ...]:
        """Return the lengths of the axes of one region's values."""
        return tuple(self.sizes[attribute] for attribute in margin)

    def cells(self, margin: Margin) -> int:
        """Return the number of values of one region."""
        return prod(self.shape(margin))

    @cached_property
    def steps(self) -> list[Step]:
        """The order in which margins are fitted."""
        return steps_of(self.tables)

    def _count_remaining_cells(self, outer: Margin, inner: Margin) -> int:
        return prod(self.sizes[attribute] for attribute in outer if attribute not in inner)

    def precision(self, table: int, effect: Margin) -> float:
        """Return the weight of a table's estimate of an effect, which is lower if the effect sums over more cells."""
        return self.weights[table] / self._count_remaining_cells(self.tables[table], effect)

    def effects(self, noisy: Sequence[Ints]) -> Effects:
        """Estimate all effects that some table determines, pooled over the tables by precision.

        Args:
            noisy: For each table (R, ...) its noisy values.
        """
        effects: Effects = {}
        for effect in sorted({part for table in self.tables for part in _list_subsets(table)}):
            total, weight = np.zeros(1), 0.0
            for number, (table, values) in enumerate(zip(self.tables, noisy, strict=True)):
                if set(effect) <= set(table):
                    effect_precision = self.precision(number, effect)
                    total, weight = (
                        total + effect_precision * sum_axes(values, table, effect),
                        weight + effect_precision,
                    )
            # Subtracting means along every axis removes the smaller effects, which are estimated by themselves.
            for axis in range(1, len(effect) + 1):
                total = total - total.mean(axis=axis, keepdims=True)
            effects[effect] = total / weight
        return effects

    def margin(self, effects: Effects, target: Margin) -> Floats:
        """Estimate a margin (R, ...) from effects; effects that no table determines are taken to be 0."""
        rows = len(effects[TOTAL])
        values = np.zeros((rows, *self.shape(target)))
        for effect in _list_subsets(target):
            if effect in effects:
                spread_effect = effects[effect] / self._count_remaining_cells(target, effect)
                values += spread_effect.reshape(rows, *(self.sizes[a] if a in effect else 1 for a in target))
        return values

    def influence(self, margin: Margin) -> list[Floats]:
        """Return by how much each measured value moves the first estimated value of a margin, for each table.

        The other values of the margin have the same numbers in another order.
        """
        influences = [np.zeros(self.shape(table)) for table in self.tables]
        for effect in _list_subsets(margin):
            tables_with_effect = [number for number, table in enumerate(self.tables) if set(effect) <= set(table)]
            total_precision = sum(self.precision(number, effect) for number in tables_with_effect)
            for number in tables_with_effect:
                factor = np.full((1,) * len(self.tables[number]), self.precision(number, effect))
                for axis, attribute in enumerate(self.tables[number]):
                    if attribute in effect:
                        course = -np.full(self.sizes[attribute], 1.0 / self.sizes[attribute])
                        course[0] += 1.0
                        factor = factor * course.reshape([-1 if k == axis else 1 for k in range(factor.ndim)])
                influences[number] += factor / (total_precision * self._count_remaining_cells(margin, effect))
        return influences


@frozen(kw_only=True)
class Step:
    """A margin that is fitted after a smaller one.

    Attributes:
        margin: The fitted margin.
        given: The smaller margin to which it must add up; a part of ``margin``.
    """

    margin: Margin
    given: Margin


def _find_cliques(tables: Iterable[Margin]) -> list[tuple[Margin, Margin]]:
    """Return sets of attributes that cover all tables; each comes with the attributes that it shares with its parent.

    They are the maximal cliques of a chordal completion of the graph that joins the attributes of each table, in the
    order of a junction tree.
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
    # A spanning tree of greatest overlaps is a junction tree: what a clique shares with all before is in its parent.
    tree = nx.maximum_spanning_tree(joined)
    order = [(cliques[0], TOTAL)]
    for parent, child in nx.bfs_edges(tree, 0):
        order.append((cliques[child], tuple(a for a in cliques[child] if a in cliques[parent])))
    return order


def steps_of(tables: Sequence[Margin]) -> list[Step]:
    """Return the order in which margins are made whole numbers, so that each can be, and all tables agree.

    In a clique, margins that were measured, or that later cliques share, come before it, each part of the next. A
    step's margin and what is given of it make, for every parent and every cell given, a transportation problem: rows
    are the parent's cells, columns the children's given numbers. Both add up to the parent's given number, so whole
    numbers exist, whatever was chosen before. Cliques meet in what is given, so tables agree.
    """
    cliques = _find_cliques(tables)
    margins = {*tables, *(shared for _, shared in cliques)}
    steps: list[Step] = []
    for clique, shared in cliques:
        at = shared
        inner_margins = sorted((m for m in margins if set(m) <= set(clique)), key=lambda margin: (len(margin), margin))
        for margin in [*inner_margins, clique]:
            if set(at) < set(margin):
                steps.append(Step(margin=margin, given=at))
                at = margin
    return steps
