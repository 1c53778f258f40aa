"""Users' own weights over targets, which stay with them: rows of their own around a public reference mechanism.

The server publishes a reference g at epsilon' < epsilon. Each user moves the probabilities of its own row within
low g_k <= z_k <= high g_k, low <= 1 <= high, as its secret costs ask for. Where high / low <= exp((epsilon - epsilon')
d_min), d_min the least distance of two records, rows of two records hold the promise at epsilon, whatever weights are
behind them: z_i <= high g_i <= high exp(epsilon' d) g_j <= (high / low) exp(epsilon' d) z_j. A report tells one's
weights from any others by odds of at most high / low. No row of the program is needed: the best row is a greedy
fractional knapsack, ties by index.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final, Self

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Ints, Unsigned
from privopt.declare import File
from privopt.declare.tables import Column, check_ids, read_table
from privopt.errors import Fault, InputError
from privopt.numbers.exp_log_bounds import log_bounds
from privopt.numbers.sampling import TOTAL
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.problem.loss_kinds import TravelCost

__all__ = ["Band", "Wishes", "own_costs", "own_row", "wishes_of"]

TERMS: Final = 80
"""Of the series of exp, all positive: a sum of them is below it."""
STEEPEST: Final = 30
"""(epsilon - epsilon') d_min counts for no more than this: a row of e^30 times the reference is any row at all."""
FINE: Final = 1 << 48


@frozen(kw_only=True)
class Band:
    """How far a user's row may lie from the reference, in exact rationals.

    Attributes:
        epsilon: epsilon', which the reference keeps.
        low: at most 1; high: at least 1; high / low <= exp((epsilon - epsilon') d_min).
        least: d_min, the least distance of two records that must be alike; None where there are no two.
    """

    epsilon: Fraction
    low: Fraction
    high: Fraction
    least: Fraction | None

    @classmethod
    def of(cls, data: MetricData, share: Fraction) -> Self:
        """The band that ``share`` of epsilon pays for, on a map without records at distance 0."""
        lengths = data.distances[data.distances > 0]
        least = Fraction(float(lengths.min())) if lengths.size else None
        spent = min(Fraction(STEEPEST), data.epsilon * share * (least or 0))
        total = term = Fraction(1)
        for n in range(1, TERMS):
            term = Fraction(math.floor(term * spent / n * FINE**2), FINE**2)
            total += term
        ratio = Fraction(math.floor(total * FINE), FINE)
        high = Fraction(math.isqrt(math.floor(ratio * FINE**2)), FINE)  # the root moves the most mass
        return cls(epsilon=data.epsilon * (1 - share), low=high / ratio, high=high, least=least)

    @property
    def ratio(self) -> Fraction:
        """What a report tells of the weights: odds of two users at one record change by no more."""
        return self.high / self.low

    @property
    def spent(self) -> float:
        """What the band takes of epsilon, rounded up: log(high / low) / d_min."""
        if self.least is None or self.ratio == 1:
            return 0.0
        return log_bounds(self.ratio, self.least)[1]

    def ends(self, reference: Unsigned) -> tuple[list[int], list[int]]:
        """Least and greatest weights that a row may have, of the reference's (K,), rounded inwards."""
        given = [int(weight) for weight in reference]
        least = [-(-weight * self.low.numerator // self.low.denominator) for weight in given]
        most = [weight * self.high.numerator // self.high.denominator for weight in given]
        return least, most

    def holds(self, row: Unsigned, reference: Unsigned) -> bool:
        """Whether a row of weights (K,) lies inside and sums to 2**63."""
        own, (least, most) = [int(weight) for weight in row], self.ends(reference)
        return sum(own) == TOTAL and all(a <= w <= b for a, w, b in zip(least, own, most, strict=True))


def own_row(reference: Unsigned, costs: Floats, band: Band) -> Unsigned:
    """The row (K,) of least cost inside the band around the reference, in integers that sum to 2**63."""
    row, most = band.ends(reference)
    left = TOTAL - sum(row)  # at least 0, and never more than there is room for: the reference itself is inside
    for k in np.argsort(costs, kind="stable").tolist():
        more = min(left, most[k] - row[k])
        row[k] += more
        left -= more
        if not left:
            break
    return np.array(row, dtype=np.uint64)


@frozen(kw_only=True, eq=False)
class Wishes:
    """One user's targets (T,), by id, and their shares (T,), which sum to 1: secret."""

    targets: Sequence[str]
    shares: Floats


def wishes_of(file: File, users: Sequence[str], source: str) -> dict[str, Wishes]:
    """The users' own weights by user; those who are not in the file have none.

    Args:
        file: user, id, weight; secret.
        users: ids of all users.
        source: name of the problem file, which lists them.

    Raises:
        InputError: no users of the problem, targets twice, or weights without a sum.
    """
    table = read_table(
        file, [Column(name="user", kind="id"), Column(name="id", kind="id"), Column(name="weight", least=0.0)]
    )
    check_ids(file, table["user"], np.asarray(users, dtype=np.str_), "user", f"one of lr-geo.users in {source}")
    found: dict[str, Wishes] = {}
    faults = []
    for user in dict.fromkeys(table["user"].tolist()):
        rows = np.flatnonzero(table["user"] == user)
        targets, weights = table["id"][rows].tolist(), table["weight"][rows]
        total = float(weights.sum())
        if len(set(targets)) < len(targets):
            faults.append(Fault(file.name, "column id", f"a target of user {user!r} twice", "each target once a user"))
        if not 0 < total < math.inf:
            wanted = "a finite sum above 0"
            faults.append(Fault(file.name, "column weight", f"a sum of {total:g} of user {user!r}", wanted))
        else:
            found[str(user)] = Wishes(targets=targets, shares=weights / total)
    if faults:
        raise InputError(faults)
    return found


def own_costs(data: MetricData, utility: TravelCost, wishes: Mapping[str, Wishes], file: File) -> dict[str, Floats]:
    """What each output costs each user, (K,): sum over its targets of share times |travel difference|.

    Raises:
        InputError: targets that are not there, or that no way leads to.
    """
    roads, _, _ = utility.ends(data.records, data.metric)
    targets = list(dict.fromkeys(target for wish in wishes.values() for target in wish.targets))
    place = {target: column for column, target in enumerate(targets)}
    row = {str(user): number for number, user in enumerate(data.records.ids)}
    if roads is not None:
        start = roads.travel(list(wishes), targets, targets_source=file.name)
        ends = roads.travel(data.outputs.ids, targets, targets_source=file.name)
    else:
        if absent := [target for target in targets if target not in row]:
            raise InputError([Fault(file.name, "column id", repr(t), "the id of a record") for t in absent[:20]])
        at = np.array([row[target] for target in targets], dtype=np.int64)
        start = data.metric.rows(at).T[[row[user] for user in wishes]]
        ends = data.metric.to_outputs(at).T
    costs = {}
    for number, (user, wish) in enumerate(wishes.items()):
        columns: Ints = np.array([place[target] for target in wish.targets], dtype=np.int64)
        used = wish.shares > 0
        apart = np.abs(ends[:, columns[used]] - start[number, columns[used]])
        if not np.isfinite(apart).all():
            fault = Fault(file.name, "column id", f"a target that user {user!r} cannot reach", "roads that lead there")
            raise InputError([fault])
        costs[user] = np.asarray(apart @ wish.shares[used])
    return costs
