"""Evaluation of proof.npz, which proves a lower bound on the loss (docs/reference/proof.md).

Let w_ik be the weight of output k for record i, and c_ik the cost of output k times the prior of record i. The privacy
constraints are w_ik <= g_ij w_jk with g_ij = exp(epsilon d_ij), where d_ij is the distance between records i and j. For
any multipliers f_ijk >= 0 of these constraints, the reduced cost of output k for record i is c_ik + sum over j of
(f_ijk - g_ji f_jik). The loss of every mechanism is at least the sum over i of the smallest reduced cost over k. The
file contains the multipliers themselves, or prices and trees that determine them.

Numbers are integers scaled by 2**256, and are rounded so that no false claim can pass (:mod:`privopt.checker.exact`).
``need`` raises RefusedError with code 1 if a claim is false, and with code 2 if it cannot be checked.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Protocol

from privopt.checker.arrays import Array, read_npz
from privopt.checker.exact import BITS, FLAT, ONE, RefusedError, down, exp_up, low, need
from privopt_metric_dp.checkers.losses import Losses
from privopt_metric_dp.checkers.metric import Metric
from privopt_metric_dp.checkers.roads import shortest

__all__ = ["Moves", "least_over_streets", "odd_halves", "read_proof", "required_distances", "stated_bound"]

Row = tuple[int, int]
"""The records i and j in the privacy constraints w_ik <= exp(epsilon d_ij) w_jk, one for each output k."""

BASE_BYTES = 2**20
"""The constant term of the limit on the memory that an unpacked proof may occupy, in bytes.

The other terms are 8 times the file's size and 8 bytes per matrix entry.
"""

FINEST = 2**48
"""The largest allowed ratio of a bound to its unit of rounding. A finer unit would claim too many digits."""


class Moves(Protocol):
    """The dual multipliers of a proof, which turn costs into reduced costs for one output at a time.

    Attributes:
        priced: The indices of the records used as outputs in the proof. Empty if the proof uses the release's outputs.
    """

    priced: list[int]

    def move(self, k: int, costs: list[int]) -> None:
        """Turn the costs of an output into reduced costs, in place.

        Args:
            k: The index of the output.
            costs: For each record, the cost of the output times the prior, scaled by 2**256.
        """


def required_distances(metric: Metric, limit: float, i: int) -> dict[int, int]:
    """Return the distance from record i to every other record with which it forms a required pair.

    Args:
        metric: The problem's metric.
        limit: The largest distance at which a pair is required, scaled by 2**256, or infinity if all pairs are
            required.
        i: The index of the record.

    Returns:
        The distances by the index of the other record, scaled by 2**256.
    """
    # In a region, these distances are measured along its edges. A distance is None if there is no path.
    distances = enumerate(metric.held(i))
    return {j: d for j, d in distances if j != i and d is not None and d <= limit}


class _Growth:
    """The factors exp(epsilon d) in privacy constraints, where d is the distance of a required or implied pair.

    Attributes:
        metric: The problem's metric. Its distances may be too small by up to ``metric.room``.
        epsilon: Epsilon per unit of distance.
        limit: The largest distance at which a pair is required, scaled by 2**256.
        size: The number of records.
    """

    def __init__(self, metric: Metric, epsilon: Fraction, limit: float) -> None:
        """Store the arguments as attributes of the same names."""
        self.metric, self.epsilon, self.limit = metric, epsilon, limit
        self.size = len(metric.points)
        self._adjacency: list[list[tuple[int, int]]] = []

    def of(self, rows: Iterable[Sequence[int]]) -> dict[Row, int]:
        """Compute the factor exp(epsilon d_ij) for each given pair (i, j), scaled by 2**256 and rounded up.

        Args:
            rows: The pairs of record indices. They should be sorted by i, so that distances are computed only once per
                record.

        Raises:
            RefusedError: A pair is neither required nor implied by required pairs, or its factor exceeds any possible
                ratio of weights.
        """
        error, growth = self.metric.room, dict[Row, int]()
        last, reached = -1, dict[int, int]()
        for i, j in rows:
            if i != last:
                last, reached = i, self._required_distances(i)
            # The cheapest search comes first: nearby required pairs, then all required pairs, then paths over required
            # pairs.
            if j not in reached:
                reached = required_distances(self.metric, self.limit, i)
            if j not in reached:
                implied = shortest(i, self._neighbours().__getitem__)
                # `_neighbours` has added the error, which is added again below, so it is subtracted here. Required
                # pairs keep their own distances.
                reached = {b: d - error for b, d in implied.items()} | reached
            where = f"proof.npz: {i}, {j}"
            is_reached = 0 <= i != j in reached
            # A larger factor yields a smaller bound, so the exponent is rounded up from the largest distance possible.
            # A pair that is not reached gets an exponent that the next condition rejects.
            x = math.ceil(self.epsilon * (reached[j] + error)) if is_reached else 2 * FLAT
            # Beyond FLAT, a constraint allows every ratio of weights and proves nothing. The margin of 2**-40 covers
            # rounding.
            has_ratio = x <= FLAT + (ONE >> 40)
            need(
                has_ratio,
                f"{where}: this pair is neither required nor implied, or is so far apart that any ratio is allowed",
            )
            growth[i, j] = exp_up(x)
        return growth

    def _required_distances(self, i: int) -> dict[int, int]:
        """Return the distances from record i to other records with which it forms required pairs.

        Along roads, the search extends only to the farthest record that can be reached from i without passing another
        record. More distant records are omitted, because most constraints in a proof join records that are close to
        each other.
        """
        first_reached = self.metric.first(i)
        if first_reached is None:
            return required_distances(self.metric, self.limit, i)
        distances = self.metric.rows_within(i, max(first_reached.values(), default=0))
        return {j: d for j, d in distances.items() if j != i and d <= self.limit}

    def _neighbours(self) -> list[list[tuple[int, int]]]:
        """Return, for each record, its neighbours in required pairs, with upper bounds on their distances.

        The lists are computed on the first call and cached.
        """
        if not self._adjacency:
            error = self.metric.room
            all_distances = (required_distances(self.metric, self.limit, a) for a in range(self.size))
            self._adjacency = [[(b, d + error) for b, d in distances.items()] for distances in all_distances]
        return self._adjacency


class _Rows:
    """The dual multipliers f of the privacy constraints for each output, as listed in proof.npz.

    Attributes:
        growth: The factor exp(epsilon d_ij) for each pair (i, j), scaled by 2**256 and rounded up.
        pairs, starts, rows, f: The contents of the arrays passed to the constructor.
        priced: The indices of the records used as outputs in the proof, as in :class:`Moves`.
    """

    def __init__(self, growth: _Growth, pairs: Array, starts: Array, rows: Array, f: Array) -> None:
        """Store the multipliers from proof.npz (docs/reference/proof.md), and compute the factors in their constraints.

        Args:
            growth: The source of the factors exp(epsilon d) in the constraints.
            pairs: Array of shape (P, 2) with the pairs (i, j) of records that have multipliers.
            starts: Array of shape (K + 1,) with offsets. The multipliers for output k begin at ``starts[k]`` and end
                before ``starts[k + 1]``.
            rows: Array of shape (M,) with the index in ``pairs`` of each multiplier's pair.
            f: Array of shape (M,) with the positive multipliers.
        """
        self.growth, self.pairs = growth.of(pairs.rows), pairs.rows
        self.starts, self.rows, self.f = starts.flat, rows.flat, f.flat
        self.priced: list[int] = []

    def move(self, k: int, costs: list[int]) -> None:
        """Turn the costs of output k into reduced costs, in place (:meth:`Moves.move`).

        For each multiplier f of output k, with the pair (i, j), add f to c_ik and subtract exp(epsilon d_ij) f from
        c_jk. Results are rounded down.
        """
        for m in range(self.starts[k], self.starts[k + 1]):
            i, j = self.pairs[self.rows[m]]
            # Cutting f off is harmless, because any multiplier proves a bound. The product is subtracted, so it is
            # rounded up.
            f = int(self.f[m] * 2.0**BITS)
            costs[i] += f
            costs[j] -= (self.growth[i, j] * f >> BITS) + 1


class _Trees:
    """Dual multipliers that follow from a price for each record and, for each output, a forest over the records.

    An edge of the forest stands for a tight privacy constraint (one that holds with equality) between a record and its
    parent. The constraint's multiplier moves the record's difference, which is its cost minus its price, to the parent.
    In this way, differences are passed up to the roots.

    Attributes:
        size: The number of records N.
        trees: For each of K outputs, the encoded parent of each record.
        prices: The price of each record, scaled by 2**256.
        parents_by_code: For each record, a mapping from each code that occurs (:meth:`_decode_parent`) to a tuple of
            the parent, whether the tight constraint is (record, parent) rather than (parent, record), and the change in
            the parent's cost per unit of cost moved from the record.
        priced: Always empty, because these proofs use the release's outputs (:class:`Moves`).
    """

    def __init__(self, growth: _Growth, prices: Array, trees: Array) -> None:
        """Decode the forests in proof.npz, and compute the factors in their constraints (docs/reference/proof.md).

        Args:
            growth: The source of the factors exp(epsilon d) in the constraints.
            prices: Array of shape (N,) with the price of each record.
            trees: Array of shape (K, N) with the code of each record's parent, for each output.
        """
        self.size, self.trees = growth.size, trees.rows
        self.prices = [low(Fraction(price)) for price in prices.flat]
        self.priced: list[int] = []
        # A record has the same parent for many outputs, so each code is decoded only once.
        parents: list[dict[int, tuple[int, bool]]] = [
            {code: self._decode_parent(i, code) for code in {*codes}}
            for i, codes in enumerate(zip(*trees.rows, strict=True))
        ]
        # If (record, parent) is tight, the record's weight is exp(epsilon d) times the parent's, so it is above.
        tight_rows = {
            (i, p) if is_above else (p, i)
            for i, by_code in enumerate(parents)
            for p, is_above in by_code.values()
            if p != i
        }
        growths = growth.of(sorted(tight_rows))

        def rate(i: int, p: int, is_above: bool) -> int:
            """Return the change in the cost of parent p per unit of cost moved from record i, scaled by 2**256."""
            if p == i:
                return 0  # nothing is moved from a root
            # If the record's weight is the parent's divided by the factor, the rate is the reciprocal of the factor.
            return growths[i, p] if is_above else ONE * ONE // growths[p, i]

        self.parents_by_code = [
            {code: (p, is_above, rate(i, p, is_above)) for code, (p, is_above) in by_code.items()}
            for i, by_code in enumerate(parents)
        ]

    def _decode_parent(self, i: int, code: int) -> tuple[int, bool]:
        """Return the parent of record i, and whether the constraint (record, parent) is tight.

        The code is 2 ((parent - record) mod N), plus 1 if the constraint (record, parent) is tight. An even code means
        that the constraint (parent, record) is tight. A root is its own parent.
        """
        return (i + code // 2) % self.size, code % 2 == 1

    def move(self, k: int, costs: list[int]) -> None:
        """Turn the costs of output k into reduced costs, in place (:meth:`Moves.move`).

        From the leaves of the forest to its roots, each record's difference (its cost minus its price) is moved to its
        parent. A positive difference is moved only if the constraint (parent, record) is tight, and a negative one only
        if (record, parent) is. Otherwise, the multiplier would have to be negative.

        Raises:
            RefusedError: The parents form a cycle.
        """
        tree = [by_code[code] for by_code, code in zip(self.parents_by_code, self.trees[k], strict=True)]
        # Records are processed from the leaves up. A root is its own parent, so it waits for itself and is never ready.
        waiting = Counter([parent for parent, _, _ in tree])
        ready = [i for i in range(self.size) if i not in waiting]
        for i in ready:  # grows in the loop
            parent, is_above, times = tree[i]
            surplus = costs[i] - self.prices[i]
            if surplus and (surplus < 0) == is_above:
                # Moving the difference leaves exactly the price behind.
                costs[i] = self.prices[i]
                # The shift rounds down, even if the surplus is negative, so that the bound is never too high.
                costs[parent] += surplus * times >> BITS
            waiting[parent] -= 1
            if not waiting[parent]:
                ready.append(parent)
        # Every record is a root or has been processed, unless some records wait for one another in a cycle.
        roots = sum(i == parent for i, (parent, _, _) in enumerate(tree))
        need(len(ready) + roots == self.size, "proof.npz: trees: records form a cycle")


def read_proof(folder: Path, metric: Metric, epsilon: Fraction, limit: float) -> tuple[Moves, Fraction]:
    """Read proof.npz, and return its multipliers and the unit to which the bound is rounded.

    Args:
        folder: The release folder.
        metric: The problem's metric.
        epsilon: Epsilon per unit of distance.
        limit: The largest distance at which a pair is required, scaled by 2**256.

    Raises:
        RefusedError: The file has an unknown format or contains invalid arrays.
    """
    path, size, width = folder / "proof.npz", len(metric.points), len(metric.outputs.ids)
    # The names of the arrays are not compressed, so they reveal the kind of proof before the file is unpacked.
    as_trees, as_streets = (name in path.read_bytes() for name in (b"trees.npy", b"bound_outputs.npy"))
    # The name, type and number of dimensions of each array.
    if as_trees:
        parts = "prices:f8:1 trees:u[24]:2"
    else:
        parts = "pairs:i8:2 starts:i8:1 rows:u4:1 values:f[48]:1"
        parts += " bound_outputs:i8:1" if as_streets else ""
    # Limiting the unpacked size keeps a small file from filling the memory.
    extra_bytes = BASE_BYTES + 8 * size * width
    version, unit, *arrays = read_npz(path, f"version:i8:1 unit:f8:1 {parts}", extra_bytes)
    # Version 2 lists multipliers, version 3 contains trees, and version 4 lists multipliers for a proof over all
    # streets.
    _check_array(
        "version", [*version.flat] == [3 if as_trees else 4 if as_streets else 2], "the version that has these arrays"
    )
    is_valid_unit = len(unit.flat) == 1 and 0 < unit.flat[0] < math.inf
    _check_array("unit", is_valid_unit, "a finite number above 0")
    growth, stated_unit = _Growth(metric, epsilon, limit), Fraction(unit.flat[0])
    if as_trees:
        prices, trees = arrays
        _check_array("prices", prices.shape == (size,), "one a record")
        _check_array("prices", all(map(math.isfinite, prices.flat)), "finite numbers")
        _check_array("trees", trees.shape == (width, size), "one per record and output")
        return _Trees(growth, prices, trees), stated_unit
    pairs, starts, rows, f, *priced_arrays = arrays
    priced = [*priced_arrays[0].flat] if priced_arrays else []
    are_records = all(0 <= record < size for record in priced)
    _check_array("bound_outputs", are_records and priced == sorted({*priced}), "record numbers in increasing order")
    _check_array("pairs", all(0 <= i < size > j >= 0 for i, j in pairs.rows), "records")
    width = len(priced) if priced_arrays else width
    # With 0 in front and the number of multipliers at the end, a sorted list means that offsets never decrease and stay
    # in range.
    offsets = [0, *starts.flat, len(rows.flat)]
    has_all_offsets = len(starts.flat) == width + 1 and offsets[1] == 0 and offsets[-2] == offsets[-1]
    _check_array(
        "starts",
        has_all_offsets and offsets == sorted(offsets),
        "offsets from 0 to the number of rows, one more than there are outputs",
    )
    _check_array("rows", all(row < len(pairs.rows) for row in rows.flat), "positions in pairs")
    _check_array("values", len(f.flat) == len(rows.flat), "one per row")
    _check_array("values", all(0 < value < math.inf for value in f.flat), "finite numbers above 0")
    multipliers = _Rows(growth, pairs, starts, rows, f)
    multipliers.priced = priced
    return multipliers, stated_unit


def _check_array(name: str, holds: bool, expectation: str) -> None:
    """Raise RefusedError if an array in proof.npz does not satisfy a condition.

    Args:
        name: The name of the array.
        holds: Whether the array satisfies the condition.
        expectation: A description of the condition for the error message.

    Raises:
        RefusedError: The array does not satisfy the condition.
    """
    need(holds, f"proof.npz: {name}: expected {expectation}, got other numbers", 2)


def least_over_streets(metric: Metric, losses: Losses, moves: Moves) -> list[int]:
    """Return the smallest reduced cost of each record over all possible reports on the streets.

    It is enough to consider two kinds of reports, because no other point on the streets has a smaller reduced cost
    (docs/reference/proof.md, "Over all streets"). The first kind is a report of a priced record. The second is a report
    of the record itself, whose cost is 0, if the record lies on a piece of street between two priced records. The
    multipliers for this report are interpolated between the multipliers of the two priced records.

    Args:
        metric: The metric along roads.
        losses: The prior and the losses, which must be distances along the same roads.
        moves: The multipliers and the priced records.

    Returns:
        The smallest reduced cost of each record, scaled by 2**256.

    Raises:
        RefusedError: Losses are not path lengths along undirected streets, or a record is neither priced nor on a piece
            of street between priced records.
    """
    network, size = metric.network, len(metric.points)
    if network is None or not losses.measured:
        raise RefusedError("proof.npz: bound_outputs: the loss must be the length of a path along streets", 1)
    pieces = network.pieces([metric.points[record] for record in moves.priced])
    # For each priced record, the records inside pieces that end there, with this end's share in the interpolation as a
    # fraction part / length, which is smaller the farther away the record is.
    records_by_end: list[list[tuple[int, int, int]]] = [[] for _ in moves.priced]
    for i, name in enumerate(metric.points):
        if name in pieces:
            tail, head, distance, length = pieces[name]
            records_by_end[tail].append((i, length - distance, length))
            records_by_end[head].append((i, distance, length))
    covered = {*moves.priced} | {i for end_records in records_by_end for i, _, _ in end_records}
    need(
        len(covered) == size,
        "proof.npz: bound_outputs: a record is neither one of them nor on a street between two of them",
    )
    min_costs, between = list[int](), dict[int, int]()
    for k, record in enumerate(moves.priced):
        column = metric.own(record)
        # Losses are distances, so the costs of reporting a priced record are the distances to it.
        plain_costs = [p * c // losses.whole for p, c in zip(losses.prior, column, strict=True)]
        costs = [*plain_costs]
        moves.move(k, costs)
        min_costs = list(map(min, min_costs or costs, costs))
        for i, part, length in records_by_end[k]:
            # What the multipliers add is interpolated between both ends. Each division rounds down.
            between[i] = between.get(i, 0) + (costs[i] - plain_costs[i]) * part // length
    return [min(cost, between.get(i, cost)) for i, cost in enumerate(min_costs)]


def stated_bound(proved: Fraction, unit: Fraction, *, min_bound: float) -> float:
    """Return the lower bound as it must be stated in a release.

    This is the bound rounded down to an odd multiple of ``unit / 2``, or ``min_bound`` if that is larger. Because of
    the rounding, programs with slightly different rounding errors state the same value.

    Args:
        proved: The evaluated bound.
        unit: The unit of rounding from proof.npz.
        min_bound: A bound that is valid without a proof, such as 0 for non-negative costs.

    Raises:
        RefusedError: The unit is too fine for the size of the bound.
    """
    need(abs(proved) <= unit * FINEST, "proof.npz: unit: must be at least 2**-48 of the bound")
    return max(down(odd_halves(proved, unit)), min_bound)


def odd_halves(x: Fraction, unit: Fraction) -> Fraction:
    """Round x down to an odd multiple of ``unit / 2``. The unit must be positive."""
    # `solve` chooses the unit so that all evaluations of the bound lie between the same two multiples.
    return ((2 * x / unit + 1) // 2 * 2 - 1) * unit / 2
