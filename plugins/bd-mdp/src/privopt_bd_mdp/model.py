"""The perturbation matrix optimisation (paper, Equations (4) to (7)) as a compiled model, and its rows by number."""

from __future__ import annotations

from typing import Any

import numpy as np
from attrs import frozen
from scipy import sparse
from scipy.sparse.csgraph import dijkstra

from privopt.arrays import Floats, Ints
from privopt.decompose.benders import ValidRows
from privopt.dsl import Eq, Index, IndexSet, Le, Model, exp, total
from privopt.dsl.form import StandardForm
from privopt.numbers.graphs import edge_matrix
from privopt_bd_mdp.partition import Partition
from privopt_metric_dp.proof.multipliers import Multipliers
from privopt_metric_dp.solvers.instance import Instance

__all__ = ["PMO", "PathRows"]


@frozen(kw_only=True, eq=False)
class PMO:
    """The perturbation matrix optimisation of an instance, compiled.

    Attributes:
        instance: The records, outputs and pairs.
        form: The linear program: minimise the expected loss over rows that add up to one and satisfy the privacy
            constraint of each pair in both directions.
    """

    instance: Instance
    form: StandardForm

    @classmethod
    def of(cls, instance: Instance) -> PMO:
        """Compile the model of an instance."""
        n, count = instance.records, instance.outputs
        lengths = instance.lengths
        # Pairs are sorted by a single key, so that the length of any pair is found by binary search.
        order = np.lexsort((instance.pairs[:, 1], instance.pairs[:, 0]))
        keys = (instance.pairs[:, 0] * n + instance.pairs[:, 1])[order]

        def length(a: Ints, b: Ints) -> Floats:
            low, high = np.minimum(a, b), np.maximum(a, b)
            pair_lengths: Floats = lengths[order[np.searchsorted(keys, low * n + high)]]
            return pair_lengths

        model = Model("perturbation-matrix")
        X, Y = IndexSet("X", n), IndexSet("Y", count)
        i, j, k = Index("i", X), Index("j", X), Index("k", Y)
        z = model.variable("z", X, Y, lower=0)
        d, c = model.param("d", length), model.param("c", instance.cost)
        model.minimize(total(c[i, k] * z[i, k], over=(i, k)))
        model.require("mass", Eq(total(z[i, k], over=k), 1), forall=i)
        if len(instance.pairs):
            directed_pairs = np.concatenate([instance.pairs, instance.pairs[:, ::-1]])
            model.require("geo-ind", Le(z[i, k], exp(d[i, j]) * z[j, k]), forall=(i, j, k), where=directed_pairs)
        return cls(instance=instance, form=model.compile())

    def columns_of(self, records: Ints) -> Ints:
        """Return the columns of the entries z_ik of some records."""
        k = self.instance.outputs
        return (records[:, None] * k + np.arange(k)).ravel() + self.form.variable("z").start

    def matrix(self, x: Floats) -> Floats:
        """Return the (N, K) mechanism of a point; its rows are scaled to add up to one."""
        start = self.form.variable("z").start
        z = np.maximum(x[start : start + self.instance.cost.size].reshape(self.instance.cost.shape), 0.0)
        return np.asarray(z / z.sum(axis=1, keepdims=True))

    def mass_prices(self, duals: Floats) -> Floats:
        """Return the (N,) multipliers of the rows that fix the sum of each record's probabilities."""
        mass = self.form.family("mass")
        return duals[mass.start : mass.stop]

    def to_duals(self, multipliers: Multipliers) -> Floats:
        """Return multipliers of the privacy rows as a vector over all rows, with the best mass prices."""
        duals = np.zeros(self.form.shape[0])
        if len(self.instance.pairs):
            forward, backward = multipliers.arrays(len(self.instance.pairs), self.instance.outputs)
            rows = self.form.family("geo-ind")
            duals[rows.start : rows.stop] = -np.concatenate([forward, backward]).ravel()
        # The largest feasible price of a record's mass is the least reduced cost in its row.
        reduced = self.form.c - self.form.A.T @ duals
        mass = self.form.family("mass")
        duals[mass.start : mass.stop] = reduced.reshape(self.instance.cost.shape).min(axis=1)
        return duals

    def multipliers(self, duals: Floats) -> Multipliers:
        """Return the multipliers of the privacy rows from a vector over all rows."""
        shape = (2, len(self.instance.pairs), self.instance.outputs)
        if not shape[1]:
            return Multipliers.zero()
        rows = self.form.family("geo-ind")
        values = np.maximum(-duals[rows.start : rows.stop], 0.0).reshape(shape)
        return Multipliers.whole(values[0], values[1])


class PathRows:
    """Path cuts (Property 3.2), added if the master's point violates them: ``z_ik <= exp(D_ij) z_jk``.

    ``i`` and ``j`` are boundary records, and ``D_ij`` is the length of a shortest path between them. Each cut is a
    combination of the rows along the path, which is its proof.
    """

    MOST_ROWS = 4000
    """The greatest number of cuts added at a time; the most violated come first."""

    DEEPEST = 25.0
    """Longer paths (as log-ratios) are omitted, because doubles could not tell what they cut off."""

    MISSED = 1e-7

    def __init__(self, pmo: PMO, partition: Partition) -> None:
        self.pmo = pmo
        instance, n = pmo.instance, pmo.instance.records
        self.boundary = np.flatnonzero(partition.boundary)
        pairs, graph = instance.pairs, edge_matrix(n, instance.pairs, instance.lengths)
        distances, self._before = dijkstra(graph, directed=False, indices=self.boundary, return_predecessors=True)
        between = distances[:, self.boundary]
        # Number of the row of each directed pair among the privacy rows; -1 if there is none.
        self._number = np.full((n, n), -1, dtype=np.int64)
        self._number[pairs[:, 0], pairs[:, 1]] = np.arange(len(pairs))
        self._number[pairs[:, 1], pairs[:, 0]] = len(pairs) + np.arange(len(pairs))
        # Paths of one pair are rows of the program already; longer paths can be violated by the master alone.
        has_no_pair = self._number[np.ix_(self.boundary, self.boundary)] < 0
        a, b = np.nonzero(has_no_pair & (between < self.DEEPEST) & ~np.eye(len(self.boundary), dtype=np.bool_))
        self._from, self._to, self._length = a, b, between[a, b]

    def __call__(self, z: Floats) -> ValidRows | None:
        """Return the cuts that ``z``, the entries of the boundary records, violates; None if there are none."""
        outputs = self.pmo.instance.outputs
        table = np.maximum(z.reshape(len(self.boundary), outputs), 0.0)
        excess = table[self._from] - np.exp(self._length)[:, None] * table[self._to]
        path, k = np.nonzero(excess > self.MISSED)
        if not len(path):
            return None
        worst = np.argsort(-excess[path, k], kind="stable")[: self.MOST_ROWS]
        path, k = path[worst], k[worst]
        # Rows are scaled by exp(-D / 2), so that both coefficients are equally far from 1.
        a, b, half = self._from[path], self._to[path], np.exp(-self._length[path] / 2)
        rows = np.arange(len(path))
        matrix = sparse.csr_matrix(
            (
                np.concatenate([half, -1.0 / half]),
                (np.concatenate([rows, rows]), np.concatenate([a * outputs + k, b * outputs + k])),
            ),
            shape=(len(path), z.size),
        )
        return ValidRows(matrix=matrix, upper=np.zeros(len(path)), proof=self._prove_rows(path, k, half))

    def _prove_rows(self, path: Ints, k: Ints, half: Floats) -> Any:
        """Return each cut as a negative combination of the rows along its path, each times the growth before it."""
        form, instance = self.pmo.form, self.pmo.instance
        start = form.family("geo-ind").start
        steps: dict[int, tuple[list[int], list[float]]] = {}
        places: list[int] = []
        values: list[float] = []
        row_ends = [0]
        for p, output, scale in zip(path.tolist(), k.tolist(), half.tolist(), strict=True):
            if p not in steps:
                steps[p] = self._trace_steps(p)
            numbers, growth = steps[p]
            places += [start + number * instance.outputs + output for number in numbers]
            values += [-scale * g for g in growth]
            row_ends.append(len(places))
        return sparse.csr_matrix((values, places, row_ends), shape=(len(path), form.shape[0]))

    def _trace_steps(self, p: int) -> tuple[list[int], list[float]]:
        """Return the numbers of the directed pairs along a path from its first record, and the growth before each."""
        first, node = int(self.boundary[self._from[p]]), int(self.boundary[self._to[p]])
        nodes = [node]
        while node != first:
            node = int(self._before[self._from[p], node])
            nodes.append(node)
        nodes.reverse()
        numbers = self._number[nodes[:-1], nodes[1:]]
        lengths = self.pmo.instance.lengths[numbers % len(self.pmo.instance.pairs)]
        reached = np.concatenate([[0.0], np.cumsum(lengths)[:-1]])
        return numbers.tolist(), np.exp(reached).tolist()
