"""Users' private weights over targets: their own rows around a public reference mechanism.

The server publishes a reference g at epsilon' < epsilon. Each user moves the probabilities of its own row within low
g_k <= z_k <= high g_k, low <= 1 <= high, as its secret costs ask for. Let d_min be the least distance of two records,
and high / low <= exp((epsilon - epsilon') d_min). Then rows of two records satisfy the guarantee at epsilon, whatever
weights are behind them: z_i <= high g_i <= high exp(epsilon' d) g_j <= (high / low) exp(epsilon' d) z_j. A report
distinguishes one user's weights from any others by odds of at most high / low. No row of the program is needed: the
best row is a greedy fractional knapsack, ties by index.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final, Self

import numpy as np
from attrs import frozen

from privopt.arrays import Floats, Unsigned
from privopt.declare import File
from privopt.declare.tables import Column, check_ids, read_table
from privopt.errors import Fault, Faults, InputError
from privopt.numbers.exp_log_bounds import exp_fixed, log_bounds
from privopt.numbers.sampling import TOTAL
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.problem.loss_kinds import TravelCost

__all__ = ["Band", "UserTargets", "own_costs", "own_row", "read_targets"]

STEEPEST: Final = 30
"""(epsilon - epsilon') d_min counts for no more than this: a row of e^30 times the reference is any row at all."""
BITS: Final = 48
"""Of a band's ends behind the point; they are rounded so that the promise holds."""


@frozen(kw_only=True)
class Band:
    """How far a user's row may lie from the reference, in exact rationals.

    Attributes:
        epsilon: epsilon', which the reference keeps.
        low: at most 1; high: at least 1; high / low <= exp((epsilon - epsilon') d_min).
        least: d_min, the least distance of two records that must be alike; None without two such records.
    """

    epsilon: Fraction
    low: Fraction
    high: Fraction
    least: Fraction | None

    @classmethod
    def from_share(cls, data: MetricData, share: Fraction) -> Self:
        """Return the band that ``share`` of epsilon pays for, on a map without records at distance 0."""
        lengths = data.distances[data.distances > 0]
        least = Fraction(float(lengths.min())) if lengths.size else None
        spent = min(Fraction(STEEPEST), data.epsilon * share * (least or 0))
        ratio = Fraction(exp_fixed(spent, BITS)[0], 1 << BITS)
        high = Fraction(math.isqrt(math.floor(ratio * (1 << 2 * BITS))), 1 << BITS)  # the root moves the most mass
        return cls(epsilon=data.epsilon * (1 - share), low=high / ratio, high=high, least=least)

    @property
    def ratio(self) -> Fraction:
        """Return what a report reveals about the weights: odds of two users at one record change by no more."""
        return self.high / self.low

    @property
    def spent(self) -> float:
        """Return what the band takes of epsilon, rounded up: log(high / low) / d_min."""
        if self.least is None or self.ratio == 1:
            return 0.0
        return log_bounds(self.ratio, self.least)[1]

    def ends(self, reference: Unsigned) -> tuple[list[int], list[int]]:
        """Return the least and greatest weights that a row may have, of the reference's (K,), rounded inwards."""
        given = [int(weight) for weight in reference]
        least = [-(-weight * self.low.numerator // self.low.denominator) for weight in given]
        most = [weight * self.high.numerator // self.high.denominator for weight in given]
        return least, most

    def holds(self, row: Unsigned, reference: Unsigned) -> bool:
        """Return whether a row of weights (K,) lies inside and sums to 2**63."""
        own, (least, most) = [int(weight) for weight in row], self.ends(reference)
        return sum(own) == TOTAL and all(a <= w <= b for a, w, b in zip(least, own, most, strict=True))


def own_row(reference: Unsigned, costs: Floats, band: Band) -> Unsigned:
    """Return the row (K,) of least cost inside the band around the reference, in integers that sum to 2**63."""
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
class UserTargets:
    """One user's targets (T,), by id, and their shares (T,), which sum to 1: secret."""

    targets: Sequence[str]
    shares: Floats


def read_targets(file: File, users: Sequence[str], source: str) -> dict[str, UserTargets]:
    """Read the users' own weights by user; those who are not in the file have none.

    Args:
        file: user, id, weight; secret.
        users: ids of all users.
        source: name of the problem file, which lists them.

    Raises:
        InputError: no users of the problem, targets twice, or weights without a sum.
    """
    columns = [Column(name="user", kind="id"), Column(name="id", kind="id"), Column(name="weight", least=0.0)]
    table, faults = read_table(file, columns), Faults()
    check_ids(file, table["user"], np.asarray(users, dtype=np.str_), "user", f"one of lr-geo.users in {source}")
    found: dict[str, UserTargets] = {}
    for user in dict.fromkeys(table["user"].tolist()):
        rows = np.flatnonzero(table["user"] == user)
        targets, weights = table["id"][rows].tolist(), table["weight"][rows]
        total = float(weights.sum())
        if len(set(targets)) < len(targets):
            faults.add(file.name, "column id", f"a target of user {user!r} twice", "each target once a user")
        if not 0 < total < math.inf:
            wanted = "a finite sum above 0"
            faults.add(file.name, "column weight", f"a sum of {total:g} of user {user!r}", wanted)
        else:
            found[str(user)] = UserTargets(targets=targets, shares=weights / total)
    faults.check()
    return found


def own_costs(data: MetricData, utility: TravelCost, users: Mapping[str, UserTargets], file: File) -> dict[str, Floats]:
    """Return what each output costs each user, (K,): sum over its targets of share times |travel difference|.

    Raises:
        InputError: targets that are not there, or that no way leads to.
    """
    roads, _, _ = utility.ends(data.records, data.metric)
    targets = list(dict.fromkeys(target for user in users.values() for target in user.targets))
    column = {target: number for number, target in enumerate(targets)}
    if roads is not None:
        start = roads.travel(list(users), targets, targets_source=file.name)
        ends = roads.travel(data.outputs.ids, targets, targets_source=file.name)
    else:
        known, faults = set(data.records.ids), Faults()
        for target in targets:
            if target not in known:
                faults.add(file.name, "column id", repr(target), "the id of a record")
        faults.check()
        at = data.records.numbers(targets)
        start = data.metric.rows(at).T[data.records.numbers(users)]
        ends = data.metric.to_outputs(at).T
    costs = {}
    for number, (name, user) in enumerate(users.items()):
        used = user.shares > 0
        columns = np.array([column[target] for target in user.targets], dtype=np.int64)[used]
        apart = np.abs(ends[:, columns] - start[number, columns])
        if not np.isfinite(apart).all():
            found, wanted = f"a target that user {name!r} cannot reach", "roads that lead there"
            raise InputError([Fault(file.name, "column id", found, wanted)])
        costs[name] = np.asarray(apart @ user.shares[used])
    return costs
