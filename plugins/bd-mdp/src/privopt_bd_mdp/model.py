"""The linear program for perturbation matrix optimisation (Qiu, IJCAI 2024, Equations (4) to (7)) and its path cuts.

:class:`PMO` compiles the program for an instance. It also converts between matrices and primal solutions of the
program, and between multipliers and dual solutions. Benders decomposition splits the program by record. The master
problem contains the matrix entries of the boundary records, and each block contains the entries of a connected set of
other records, so that no constraint involves two blocks. :class:`PathRows` finds violated path cuts (Property 3.2),
which are implied constraints between boundary records.
"""

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
from privopt_metric_dp.proof.lagrangian_bound import Multipliers
from privopt_metric_dp.solvers.instance import Instance

__all__ = ["PMO", "PathRows"]


@frozen(kw_only=True, eq=False)
class PMO:
    """The compiled linear program of an instance, called perturbation matrix optimisation (PMO) in the paper.

    Attributes:
        instance: The instance, with N records, K outputs, P required pairs and an (N, K) array of costs.
        form: The linear program. It minimises the expected loss over all row-stochastic matrices that satisfy the
            privacy constraint of every required pair in both directions.
    """

    instance: Instance
    form: StandardForm

    @classmethod
    def of(cls, instance: Instance) -> PMO:
        """Build the instance's linear program in the modelling language and compile it.

        The variables are the entries z_ik of the (N, K) obfuscation matrix. The ``mass`` constraints make each record's
        probabilities sum to 1. The ``geo-ind`` constraints require ``z_ik <= exp(d_ij) z_jk`` for every pair in both
        directions, where ``d_ij`` is the log-ratio allowed for the pair.
        """
        n, count = instance.records, instance.outputs
        lengths = instance.lengths  # (P,) the log-ratio d_ij that each pair allows
        # Each pair gets a single integer key, so that its length can be looked up by binary search.
        order = np.lexsort((instance.pairs[:, 1], instance.pairs[:, 0]))
        keys = (instance.pairs[:, 0] * n + instance.pairs[:, 1])[order]

        def length(a: Ints, b: Ints) -> Floats:
            """Return the log-ratios allowed for the required pairs of records (``a``, ``b``), given in either order."""
            # Each pair is stored once, with the smaller record first.
            low, high = np.minimum(a, b), np.maximum(a, b)
            pair_lengths: Floats = lengths[order[np.searchsorted(keys, low * n + high)]]
            return pair_lengths

        model = Model("perturbation-matrix")
        X, Y = IndexSet("X", n), IndexSet("Y", count)
        i, j, k = Index("i", X), Index("j", X), Index("k", Y)  # records i and j, output k
        z = model.variable("z", X, Y, lower=0)
        d, c = model.param("d", length), model.param("c", instance.cost)
        model.minimize(total(c[i, k] * z[i, k], over=(i, k)))
        model.require("mass", Eq(total(z[i, k], over=k), 1), forall=i)
        if len(instance.pairs):
            # First all pairs as stored, then all pairs reversed. to_duals(), multipliers() and PathRows rely on this
            # order.
            directed_pairs = np.concatenate([instance.pairs, instance.pairs[:, ::-1]])
            model.require("geo-ind", Le(z[i, k], exp(d[i, j]) * z[j, k]), forall=(i, j, k), where=directed_pairs)
        return cls(instance=instance, form=model.compile())

    def columns_of(self, records: Ints) -> Ints:
        """Return the column indices of the given records' matrix entries, ordered by record and then by output."""
        k = self.instance.outputs
        return (records[:, None] * k + np.arange(k)).ravel() + self.form.variable("z").start

    def matrix(self, x: Floats) -> Floats:
        """Return the (N, K) obfuscation matrix for a solution ``x`` with one value per column of the program.

        Solvers satisfy constraints only within a tolerance. Negative entries are therefore set to 0, and each row is
        rescaled to sum to 1.
        """
        start = self.form.variable("z").start
        z = np.maximum(x[start : start + self.instance.cost.size].reshape(self.instance.cost.shape), 0.0)
        return np.asarray(z / z.sum(axis=1, keepdims=True))

    def to_duals(self, multipliers: Multipliers) -> Floats:
        """Extend multipliers to a dual feasible solution, with one value per row of the program.

        The dual values of the ``geo-ind`` rows are the negated multipliers. The dual values of the ``mass`` rows are
        made as large as dual feasibility allows, which gives the best bound provable with these multipliers.

        Args:
            multipliers: The non-negative multipliers of the privacy constraints.
        """
        duals = np.zeros(self.form.shape[0])
        if len(self.instance.pairs):
            forward, backward = multipliers.arrays(len(self.instance.pairs), self.instance.outputs)
            rows = self.form.family("geo-ind")
            # The rows are z_ik - exp(d) z_jk <= 0, so their duals are at most 0 in a minimisation.
            duals[rows.start : rows.stop] = -np.concatenate([forward, backward]).ravel()
        # The largest feasible dual value of a record's ``mass`` row is the smallest reduced cost among its entries
        # z_ik.
        reduced = self.form.c - self.form.A.T @ duals
        mass = self.form.family("mass")
        duals[mass.start : mass.stop] = reduced.reshape(self.instance.cost.shape).min(axis=1)
        return duals

    def multipliers(self, duals: Floats) -> Multipliers:
        """Extract the multipliers of the privacy constraints from a dual solution.

        This is the inverse of :meth:`to_duals`. The dual values of the ``mass`` rows are ignored, because they follow
        from the multipliers. Dual values with the wrong sign, which result from rounding, are treated as 0.

        Args:
            duals: The dual value of each row of the program.
        """
        shape = (2, len(self.instance.pairs), self.instance.outputs)
        if not shape[1]:
            return Multipliers.zero()
        rows = self.form.family("geo-ind")
        # Multipliers must not be negative. A dual value with the wrong sign is a rounding error of the solver.
        values = np.maximum(-duals[rows.start : rows.stop], 0.0).reshape(shape)
        return Multipliers.from_arrays(values[0], values[1])


class PathRows:
    """A separator that finds violated path cuts ``z_ik <= exp(D_ij) z_jk`` in the master problem (Property 3.2).

    Here ``i`` and ``j`` are boundary records, ``k`` is an output and ``D_ij`` is the length of a shortest path from
    ``i`` to ``j``. Each cut is a non-negative combination of the privacy constraints along the path. The coefficients
    of this combination prove that the cut is valid.

    Attributes:
        pmo: The compiled linear program.
        boundary: (B,) The indices of the boundary records, in ascending order.
        _before: (B, N) The predecessor of each record on a shortest path from each boundary record.
        _number: (N, N) The index of each directed pair in the order used by :meth:`PMO.of`, or -1 if the pair is not
            required.
        _from, _to: (C,) The first and last record of each path that can yield a cut, as indices into ``boundary``.
        _length: (C,) The length D_ij of each of these paths.
    """

    MOST_ROWS = 4000
    """The maximum number of cuts returned per call. If more are violated, the most violated ones are returned."""

    DEEPEST = 25.0
    """The path length (a log-ratio) at or above which paths are omitted.

    Doubles cannot represent the cuts of such long paths accurately.
    """

    MISSED = 1e-7
    """The violation above which a cut is returned. It is close to the feasibility tolerance of solvers."""

    def __init__(self, pmo: PMO, partition: Partition) -> None:
        """Compute the shortest paths between all boundary records.

        Args:
            pmo: The compiled program of an instance.
            partition: The partition of the instance's records, which determines the boundary.
        """
        self.pmo = pmo
        instance, n = pmo.instance, pmo.instance.records
        self.boundary = np.flatnonzero(partition.boundary)
        pairs, graph = instance.pairs, edge_matrix(n, instance.pairs, instance.lengths)
        distances, self._before = dijkstra(graph, directed=False, indices=self.boundary, return_predecessors=True)
        between = distances[:, self.boundary]
        # The rows of PMO.of are those of all pairs as stored, then those of all pairs reversed.
        self._number = np.full((n, n), -1, dtype=np.int64)
        self._number[pairs[:, 0], pairs[:, 1]] = np.arange(len(pairs))
        self._number[pairs[:, 1], pairs[:, 0]] = len(pairs) + np.arange(len(pairs))
        # If two boundary records form a required pair, the program already has the row for it, and only other paths can
        # be violated.
        has_no_pair = self._number[np.ix_(self.boundary, self.boundary)] < 0
        a, b = np.nonzero(has_no_pair & (between < self.DEEPEST) & ~np.eye(len(self.boundary), dtype=np.bool_))
        self._from, self._to, self._length = a, b, between[a, b]

    def __call__(self, z: Floats) -> ValidRows | None:
        """Return the path cuts violated by a solution of the master problem, or None if there are none.

        At most :attr:`MOST_ROWS` cuts are returned, starting with the most violated ones.

        Args:
            z: (B * K,) The matrix entries of the B boundary records for the K outputs, ordered by record and then by
                output.

        Returns:
            The cuts in the form ``matrix @ z <= 0``, each with a proof of its validity.
        """
        outputs = self.pmo.instance.outputs
        table = np.maximum(z.reshape(len(self.boundary), outputs), 0.0)
        excess = table[self._from] - np.exp(self._length)[:, None] * table[self._to]
        path, k = np.nonzero(excess > self.MISSED)
        if not len(path):
            return None
        # A stable sort breaks ties by the index of the path and then of the output, which makes runs repeatable.
        worst = np.argsort(-excess[path, k], kind="stable")[: self.MOST_ROWS]
        path, k = path[worst], k[worst]
        # Rows are scaled by exp(-D / 2), so that on a log scale their two coefficients are equally far from 1.
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
        """Return a proof of each cut: the multipliers that combine the program's rows into that cut.

        The ``geo-ind`` row of each pair along the path is multiplied by the exponential of the length of the path up to
        that pair. As a result, the matrix entries of all intermediate records cancel out.

        Args:
            path: (C,) The index of each cut's path in ``self._from`` and ``self._to``.
            k: (C,) The index of each cut's output.
            half: (C,) The factor by which each cut is scaled.

        Returns:
            A sparse matrix with one row per cut and one column per row of the program. Its non-zero entries are
            negative, following the sign convention for dual values of ``<= 0`` constraints.
        """
        form, instance = self.pmo.form, self.pmo.instance
        start = form.family("geo-ind").start
        # A path can have a cut for every output, but is traced only once.
        steps: dict[int, tuple[list[int], list[float]]] = {}
        columns: list[int] = []
        values: list[float] = []
        row_ends = [0]
        for p, output, scale in zip(path.tolist(), k.tolist(), half.tolist(), strict=True):
            if p not in steps:
                steps[p] = self._trace_steps(p)
            numbers, growth = steps[p]
            columns += [start + number * instance.outputs + output for number in numbers]
            values += [-scale * g for g in growth]
            row_ends.append(len(columns))
        return sparse.csr_matrix((values, columns, row_ends), shape=(len(path), form.shape[0]))

    def _trace_steps(self, p: int) -> tuple[list[int], list[float]]:
        """Return the indices of the directed pairs along a path and the multipliers of their rows.

        The multiplier of a pair is the exponential of the length of the path up to that pair.

        Args:
            p: The index of the path in ``self._from`` and ``self._to``.
        """
        # Dijkstra's algorithm stores predecessors, so the path is traced from its end to its start.
        first, node = int(self.boundary[self._from[p]]), int(self.boundary[self._to[p]])
        nodes = [node]
        while node != first:
            node = int(self._before[self._from[p], node])
            nodes.append(node)
        nodes.reverse()
        numbers = self._number[nodes[:-1], nodes[1:]]
        # Reversed pairs are numbered after all stored ones, so the remainder is the index of the undirected pair.
        lengths = self.pmo.instance.lengths[numbers % len(self.pmo.instance.pairs)]
        # z_0 <= exp(d_1) z_1 <= exp(d_1 + d_2) z_2 ...: each row is multiplied by the growth up to its first record.
        reached = np.concatenate([[0.0], np.cumsum(lengths)[:-1]])
        return numbers.tolist(), np.exp(reached).tolist()
