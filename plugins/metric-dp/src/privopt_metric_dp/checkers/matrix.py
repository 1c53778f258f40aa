"""Check a release of metric DP: mechanism.npz, and what its problem asks of it."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from operator import mul, truediv
from pathlib import Path
from typing import Any

from privopt.checker.arrays import read_npz, read_texts
from privopt.checker.compare import compare
from privopt.checker.exact import (
    BITS,
    FLAT,
    ONE,
    down,
    exp_down,
    low,
    need,
    number,
    rational,
)
from privopt.checker.files import Problem
from privopt_metric_dp.checkers.bound import (
    least_over_streets,
    odd_halves,
    read_proof,
    required,
    stated_bound,
)
from privopt_metric_dp.checkers.losses import Losses, read_losses
from privopt_metric_dp.checkers.metric import Metric
from privopt_metric_dp.checkers.plane import Plane
from privopt_metric_dp.checkers.roads import shortest
from privopt_metric_dp.checkers.streets import Streets

__all__ = ["Matrix"]

TOTAL = 1 << 63
"""The sum of a row of weights."""

TABLES = {
    *("records", "outputs", "distance", "privacy", "utility"),
    *("bd-mdp", "const-opt", "exponential", "given", "lr-geo", "optimal-lp", "planar-laplace"),
    *("fl-linear", "hierarchical-dp", "photo-censor", "photos"),
}
"""Tables of a problem; those of mechanisms say how it was solved, which no claim depends on."""

AS_PAIRS = "weights:u8:2 records:U:1 outputs:U:1 pairs:i8:2 distances:f8:1"
"""Arrays of mechanism.npz; of a region further ones."""

FOLLOW = "implied:i8:1"
"""In place of pairs that are all that the problem requires: an array without values."""

LEAST = 2.0**-128
"""Losses below it are too little for whole numbers of 2**-256."""

GUESS = 10**8
"""A best guess loses no more than another by a part in so many of the most there is to lose."""

Held = tuple[int, int, float, int]
"""Two rows, their distance as it is stored, and the factor by which they may differ."""


class Matrix:
    """Weights ``w_ik`` of record i and output k, whose rows sum to 2**63."""

    def __init__(self, folder: Path, problem: Problem, result: dict[str, Any]) -> None:
        """Read what is asked; the weights are read by the first claim.

        Raises:
            RefusedError: something that is unknown here.
        """
        problem.allow(TABLES)
        self.folder, self.problem, self.result = folder, problem, result
        privacy = problem.tables["privacy"]
        self.everywhere = privacy.get("everywhere", False)
        more = "split_km" if self.everywhere else "neighbours_within"
        table = problem.table("privacy", f"kind epsilon everywhere {more}")
        numbers = ("epsilon", "neighbours_within", "split_km")
        asked = {key: number(table[key]) for key in numbers if key in table}
        known = table.get("kind", "metric-dp") == "metric-dp" and type(self.everywhere) is bool
        need(known and min(asked.values()) > 0, f"problem: [privacy] {table}", 2)
        self.epsilon, self.within = asked["epsilon"], asked.get("neighbours_within")
        self.limit: float = math.inf
        if self.within:  # all distances that round down to a double at most the limit's
            self.limit = low(Fraction(math.nextafter(float(self.within), math.inf))) - 1
        chooses = "choose" in problem.tables.get("outputs", {})
        self.metric = Metric(
            problem, read_texts(folder / "mechanism.npz", "outputs") if chooses else None
        )
        if self.metric.network and self.within is None and not self.everywhere:
            need(
                None not in self.metric.own(0),
                "distance: roads that do not join all records, and no neighbours_within",
                2,
            )
        self.over = "chosen" if chooses else None
        self.region = self._region() if self.everywhere else None
        given = problem.tables.get("given", table).get("matrix")
        problem.used.add(f"problem/{given}")  # as it was given

    def _region(self) -> Streets | Plane:
        """Streets, or triangles between places."""
        if self.metric.kind == "graph":
            return Streets(self.metric)
        on_plane = self.metric.records.kind in ("planar", "geographic")
        need(on_plane, "privacy.everywhere: neither streets nor places on a plane", 2)
        cols = self.problem.tables["records"].get("grid", {}).get("cols", 0)
        return Plane(self.metric, cols)

    def claims(self) -> Mapping[str, Callable[[], str]]:
        """Return the claims to check, in order."""
        return {
            "integers": self.integers,
            "privacy": self.privacy,
            "objective": self.objective,
            "words": self.words,
        }

    def integers(self) -> str:
        """Check that rows and columns are the problem's, and that sum over k of w_ik = 2**63.

        Raises:
            RefusedError: so it is not; a region whose pieces or triangles are others.
        """
        parts, metric, region = AS_PAIRS, self.metric, self.region
        if region is not None:
            parts += f" simplices:i8:2 snap_steps:i8:1 {region.arrays}"
        weights, records, outputs, pairs, distances, *ground = read_npz(
            self.folder / "mechanism.npz", parts, maybe=FOLLOW if region is None else ""
        )
        follow = region is None and bool(ground)
        need(
            self.result["mechanism"] != "lr-geo", "mechanism lr-geo: rows of users, unknown here", 2
        )
        if region is not None:
            split = float(self.problem.tables["privacy"].get("split_km", 0))
            built = region.build(self.epsilon, split, ground)
            same = built == [array.rows or [*array.flat] for array in ground]
            need(same and not pairs.flat, "mechanism.npz: another region")
        self.losses = self._losses()
        self.size, self.width = len(metric.points), len(metric.outputs.ids)
        self.rows = weights.rows
        same = [*records.flat] == metric.points and [*outputs.flat] == metric.outputs.ids
        need(same, "mechanism.npz: not the records and outputs of the problem, in its order")
        fits = weights.shape == (self.size, self.width) and pairs.shape == (*distances.shape, 2)
        fits &= all(0 <= i < self.size > j >= 0 and i != j for i, j in pairs.rows)
        fits &= not (follow and (pairs.flat or ground[0].flat))
        need(fits, "mechanism.npz: arrays that do not fit", 2)
        counts = Counter(tuple(sorted(pair)) for pair in pairs.rows)
        again = next(([*pair] for pair, count in counts.items() if count > 1), None)
        twice = f"mechanism.npz: pairs: found {again} more than once, wanted each pair once"
        need(again is None, twice, 2)
        self.stored: list[Held] = [] if region is None else region.held()
        stored = zip(pairs.rows, distances.flat, strict=True)
        for (i, j), d in self._all_required() if follow else stored:
            factor = exp_down(min(low(self.epsilon * Fraction(d)), FLAT))
            self.stored.append((i, j, d, factor))
        need(
            all(sum(row) == TOTAL for row in self.rows),
            "mechanism.npz: a row does not sum to 2**63",
        )
        return f"{self.size:,} rows of {self.width:,} weights"

    def _all_required(self) -> Iterator[tuple[Sequence[int], float]]:
        """Yield all required pairs, at the greatest doubles that their distances may be."""
        room = self.metric.room
        for i in range(self.size):
            for j, d in required(self.metric, self.limit, i).items():
                if j > i:
                    yield (i, j), down(Fraction(d + room, ONE))

    def _losses(self) -> Losses:
        losses = read_losses(self.problem, self.metric)
        if self.region is None or losses.given:
            return losses
        return self.region.losses(losses, self.epsilon)

    def privacy(self) -> str:
        """Check that stored pairs hold at their distances, and imply all required pairs.

        The check is w_ik <= exp(epsilon d) w_jk for each stored pair at distance d, in both
        directions, and every output k. Required pairs then follow by paths of stored pairs that are
        not longer. In a region its pieces or triangles are checked instead.

        Raises:
            RefusedError: one does not hold or does not follow.
        """
        self.worst = 0.0
        direct: dict[tuple[int, int], int] = {}
        after: list[list[tuple[int, int]]] = [[] for _ in self.rows]
        doubles = [[weight or 2.0**-70 for weight in map(float, row)] for row in self.rows]
        for i, j, d, factor in self.stored:
            way = (
                -low(-Fraction(d)) if self.rows[i] != self.rows[j] else 0
            )  # equal rows: as at distance 0
            for a, b in ((i, j), (j, i)):
                more = self._excess(doubles, a, b, factor, d)
                rate = math.log1p(more) if self.region is None else self.region.rate(more)
                self.worst = max(self.worst, rate / (d or 1.0))
                after[a].append((b, way))
                direct[a, b] = min(way, direct.get((a, b), way))
        self.held = len(self.stored)
        said = f"{self.held:,} pairs of records at {self.width:,} outputs, and all that follow"
        if self.region is None:
            self._check_stored()
            for i in range(self.size):
                self._check_required(i, direct, after)
            return said
        count, worst = self.region.check_inside(self.rows, self.epsilon)
        if not count:
            return said
        self.held, self.worst = count, max(self.worst, worst)
        return (
            f"{count:,} triangles at {self.width:,} outputs, and so between any two points of them"
        )

    def _excess(self, doubles: list[list[float]], a: int, b: int, factor: int, d: float) -> float:
        """By how much the greatest w_ak / w_bk is above 1; doubles choose, whole numbers decide.

        Raises:
            RefusedError: one is above ``factor``.
        """
        ratios = [*map(truediv, doubles[a], doubles[b])]
        high = min(factor / ONE, max(ratios)) * (1 - 2.0**-40)
        pairs = zip(self.rows[a], self.rows[b], ratios, strict=True)
        near = [(x, y) for x, y, ratio in pairs if ratio >= high]
        holds = all(x << BITS <= factor * y for x, y in near)
        need(holds, f"records {a}, {b}: a ratio above exp(epsilon {d!r})")
        excesses: list[float] = [(x - y) / (y or TOTAL) for x, y in near]
        return max([0.0, *excesses])

    def _check_stored(self) -> None:
        """Check that stored distances are at most the true ones, at most a relative 1e-9 less.

        Raises:
            RefusedError: so they are not.
        """
        room = self.metric.room
        slack = room + ONE // 10**24  # km: what doubles lose of distances below an atom
        for i, j, d, _ in self.stored:
            most = low(Fraction(d) * Fraction(1 + 2.0**-29)) + slack
            true = self.metric.near(i, most).get(j) if self.metric.network else None
            if true is None:
                true = self.metric.held(i)[j]
            where = f"records {i}, {j}: stored {d!r} apart"
            if true is None:  # no way: any distance is less
                continue
            short = true + low(-Fraction(d))
            need(short >= -room, f"{where}, which is above their distance")
            need(short <= true // 10**9 + slack, where)

    def _check_required(
        self,
        i: int,
        direct: Mapping[tuple[int, int], int],
        neighbours: list[list[tuple[int, int]]],
    ) -> None:
        """Check that stored pairs join the required pairs of a record by paths that are as short.

        Along roads it is enough to look at the first records that they reach.

        Raises:
            RefusedError: one is not.
        """
        first = self.metric.first(i)
        near = required(self.metric, self.limit, i) if first is None else first
        within = ((j, d) for j, d in near.items() if j > i and d <= self.limit)
        left = {j: d for j, d in within if direct.get((i, j), d + 1) > d}
        reached = shortest(i, neighbours.__getitem__, max(left.values())) if left else {}
        lost = [j for j, d in left.items() if reached.get(j, d + 1) > d]
        why = f"records {i} and {lost[:1]} are required, and no way over stored pairs is as short"
        need(not lost, why)

    def objective(self) -> str:
        """Check that the loss is as stated, and that no such matrix has one below the bound.

        Loss: sum over i, k of p_i c_ik w_ik / 2**63. Bound: sum over i of the least of its costs,
            output by output, after the multipliers moved them
            (:mod:`privopt_metric_dp.checkers.bound`).

        Raises:
            RefusedError: so it is not.
        """
        stated = self.result["objective"]
        claimed, losses = stated["lower_bound"], self.losses
        too_little = 0 < stated["value"] < LEAST
        need(not too_little, "objective.value: too little to be checked here", 2)
        proved = (self.folder / "proof.npz").exists()
        need(proved == (claimed is not None), "bound or proof.npz: one alone")
        proof = read_proof(self.folder, self.metric, self.epsilon, self.limit) if proved else None
        streets = proof is not None and bool(proof[0].priced)
        need(not streets or self.over is not None, "proof.npz: bound_outputs: none were chosen")
        total, floor = 0, 0
        least: list[int] = []
        seen: list[list[int]] = []
        for k, weights in enumerate(zip(*self.rows, strict=True)):
            exact = [p * c for p, c in zip(losses.prior, losses.column(k), strict=True)]
            costs = [c // losses.whole for c in exact]
            if losses.remap:
                seen.append(exact)
            total += sum(map(mul, costs, weights))
            floor = min(floor, *costs)
            if proof is not None and not streets:
                proof[0].move(k, costs)
            least = list(map(min, least or costs, costs))
        self._check_guesses(seen)
        self._read_value(total)
        if proof is None:
            return f"{self.value!r} {losses.unit}; no bound is claimed"
        if streets:
            self.over, least = "all", least_over_streets(self.metric, losses, proof[0])
        lowest = 0.0 if floor == 0 else -math.inf  # at least 0 where all costs are
        bound = stated_bound(Fraction(sum(least), ONE), proof[1], min_bound=lowest)
        same = type(claimed) in (int, float) and claimed == bound
        need(same, f"bound: {claimed!r} is claimed, {bound!r} proved")
        return f"{self.value!r} {losses.unit}; none is below {bound!r}"

    def _check_guesses(self, seen: list[list[int]]) -> None:
        """With ``remap`` each output is the best guess of who sees it: another loses no less.

        Raises:
            RefusedError: another would lose less by more than 1e-8 of the most there is to lose.
        """
        top = [max(map(abs, costs)) for costs in zip(*seen, strict=True)]
        for k, weights in enumerate(zip(*self.rows, strict=True) if seen else ()):
            own = sum(map(mul, weights, seen[k]))
            others = (sum(map(mul, weights, costs)) for costs in seen)
            most = sum(map(mul, weights, top))
            best = GUESS * (own - min(others)) <= most
            need(best, f"utility.remap: an output loses less than output {k}")

    def _read_value(self, total: int) -> None:
        """Read the loss, rounded as it is stated.

        Raises:
            RefusedError: a unit that is none.
        """
        details = self.result["details"]
        self.value = total / (TOTAL * ONE)
        self.rounded = "value_unit" in details
        if not self.rounded:
            return
        unit = details["value_unit"]
        need(type(unit) is float and unit > 0, "details.value_unit: no unit", 2)
        self.value = -down(odd_halves(Fraction(-total, TOTAL * ONE), Fraction(unit)))
        neither_fine_nor_coarse = abs(self.value) <= unit * 2**48 and unit * 2**30 <= max(
            1, abs(self.value)
        )
        need(neither_fine_nor_coarse, f"value_unit: {unit!r}")

    def words(self) -> str:
        """Check that result.json states what was measured.

        Raises:
            RefusedError: it is not.
        """
        text, epsilon = self.result["guarantee"]["epsilon_text"], float(self.epsilon)
        sound = type(text) is str and rational(text) == self.epsilon
        need(sound, f"guarantee.epsilon_text: {text} is claimed, {epsilon} found")
        scope = "everywhere" if self.everywhere else "neighbours" if self.within else "all-pairs"
        promise = {
            "kind": "metric-dp",
            "epsilon": epsilon,
            "epsilon_text": text,
            "unit": f"per {self.metric.unit}",
            "scope": scope,
        }
        if self.within:
            promise["neighbours_within"] = float(self.within)
        checked = self.held * self.width
        measured = {"worst": self.worst, "allowed": epsilon, "checked": checked}
        return compare(
            self.result,
            promise=promise,
            measured=measured,
            value=self.value,
            unit=self.losses.unit,
            gap=_gap(self.result["objective"]),
            over=self.over,
            close=frozenset({"certificate"} if self.rounded else {"certificate", "objective"}),
        )


def _gap(stated: Mapping[str, Any]) -> float | None:
    """Between the loss and its bound, as a share of the loss."""
    value, bound = stated["value"], stated["lower_bound"]
    return None if bound is None else max(0.0, (value - bound) / max(abs(value), 1e-12))
