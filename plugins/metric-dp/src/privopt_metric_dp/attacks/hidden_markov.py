"""A hidden Markov attack on traces: forward and backward over the records, with a public model of how people move.

The attacker knows the release and the mobility; each time's guess is the record with the least expected distance given
all reports of the trace, before and after. Probabilities are scaled at each time, so nothing underflows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np
from attrs import frozen

from privopt.arrays import Bools, Floats, Ints
from privopt.numbers.sampling import draw_each, seeded
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.problem.data import MetricData
from privopt_metric_dp.space.metrics import Metric
from privopt_metric_dp.traces.draw_trace import Limit, State

if TYPE_CHECKING:
    from scipy.sparse import csr_array
else:
    csr_array = Any

__all__ = ["Mobility", "Seen", "Step", "attack_traces", "posteriors", "simulated"]

STAYS: Final = 0.95
NEAREST: Final = 8
ANYWHERE: Final = 1e-3
"""Share of moves that go anywhere, so that no trace is impossible."""

LENGTH: Final = 100
SUBJECTS: Final = 20
LEVELS: Final = 8
CELLS: Final = 40_000_000
"""Numbers that forward and backward hold at once, at most: fewer subjects are attacked where records are many."""

_ROWS: Final = 256


@frozen(kw_only=True, eq=False)
class Mobility:
    """How people move from one report to the next: they stay, or go to one of the nearest records, or anywhere.

    Attributes:
        moves: (N, N) sparse, rows sum to 1: where those go who move to somewhere near.
        stays: probability of staying.
    """

    moves: csr_array
    stays: float = STAYS

    @classmethod
    def over(cls, metric: Metric, nearest: int = NEAREST) -> Self:
        """To the nearest records by the problem's distance: along streets where that is a path's length."""
        from scipy.sparse import csr_array

        count = len(metric.rows(np.array([0]))[0])
        near = min(nearest, count - 1)
        ends: list[Ints] = []
        known: list[Bools] = []
        for start in range(0, count, _ROWS):
            some = np.arange(start, min(count, start + _ROWS))
            far = np.array(metric.rows(some))[:, :count]
            far[np.arange(len(some)), some] = np.inf
            ends.append(np.argpartition(far, max(0, near - 1), axis=1)[:, :near])
            known.append(np.isfinite(np.take_along_axis(far, ends[-1], axis=1)))
        there = np.concatenate(known)
        each = 1.0 / np.maximum(1, there.sum(axis=1))
        tails, columns = np.nonzero(there)
        heads = np.concatenate(ends)[tails, columns]
        return cls(moves=csr_array((each[tails], (tails, heads)), shape=(count, count)))

    def traces(self, first: Ints, length: int, chance: np.random.Generator) -> Ints:
        """(M, length) records of walks that start at ``first`` (M,)."""
        walks = np.empty((len(first), length), dtype=np.int64)
        walks[:, 0] = first
        starts, ends = self.moves.indptr, np.append(self.moves.indices, 0)  # 0: read, not taken, without neighbours
        for at in range(1, length):
            here = walks[:, at - 1]
            degree = starts[here + 1] - starts[here]
            picked = ends[starts[here] + (chance.random(len(here)) * degree).astype(int)]
            moved = (chance.random(len(here)) >= self.stays) & (degree > 0)
            walks[:, at] = np.where(moved, picked, here)
        return walks

    def forth(self, mass: Floats) -> Floats:
        """Where the mass (M, N, R) of those who move goes."""
        flat = np.moveaxis(mass, 1, 0).reshape(mass.shape[1], -1)
        gone = np.asarray(self.moves.T @ flat).reshape(mass.shape[1], mass.shape[0], mass.shape[2])
        near = (1.0 - ANYWHERE) * np.moveaxis(gone, 0, 1)
        return np.asarray(near + ANYWHERE * mass.mean(axis=1, keepdims=True))

    def back(self, worth: Floats) -> Floats:
        """Pull expectations (M, N, R) back by one move."""
        flat = np.moveaxis(worth, 1, 0).reshape(worth.shape[1], -1)
        come = np.asarray(self.moves @ flat).reshape(worth.shape[1], worth.shape[0], worth.shape[2])
        near = (1.0 - ANYWHERE) * np.moveaxis(come, 0, 1)
        return np.asarray(near + ANYWHERE * worth.mean(axis=1, keepdims=True))


@frozen(kw_only=True, eq=False)
class Seen:
    """Reports along walks (M, T), as the attacker sees them.

    Attributes:
        outputs: (M, T) numbers of outputs, -1 for none.
        kept: (M, T) whether an earlier one was sent again.
    """

    outputs: Ints
    kept: Bools


def simulated(release: MatrixRelease, walks: Ints, seed: int) -> dict[str, Seen]:
    """Simulate reports along walks (M, T) of records, by kind: fresh, repeated, and the release's own along traces."""
    kinds = {"fresh": _fresh, "sticky": _sticky, **({} if release.walker is None else {"predicted": _predicted})}
    return {name: draw(release, walks, seed) for name, draw in kinds.items()}


def _fresh(release: MatrixRelease, walks: Ints, seed: int) -> Seen:
    outputs = draw_each(release.weights, walks.ravel(), source=seeded(seed)).reshape(walks.shape)
    return Seen(outputs=outputs, kept=np.zeros(walks.shape, dtype=np.bool_))


def _sticky(release: MatrixRelease, walks: Ints, seed: int) -> Seen:
    """Return a place's first report again and again."""
    records, kept = len(release.records), np.ones(walks.shape, dtype=np.bool_)
    visits = (np.arange(len(walks))[:, None] * records + walks).ravel()
    places, first, which = np.unique(visits, return_index=True, return_inverse=True)
    kept.ravel()[first] = False
    outputs = draw_each(release.weights, places % records, source=seeded(seed))[which].reshape(walks.shape)
    return Seen(outputs=outputs, kept=kept)


def _predicted(release: MatrixRelease, walks: Ints, seed: int) -> Seen:
    walker = release.walker
    assert walker is not None  # asked before
    subjects = np.repeat(np.arange(len(walks)), walks.shape[1])
    drawn = walker.walk(walks.ravel(), subjects, State(), charge=Limit(walker.terms.total), source=seeded(seed))
    return Seen(outputs=drawn.outputs.reshape(walks.shape), kept=drawn.kept.reshape(walks.shape))


@frozen(kw_only=True, eq=False)
class Step:
    """How likely what was seen at one time is, by trace (M), record (N) and hidden level (R).

    Attributes:
        stayed, moved: (M, N, R) of those who stayed and of those who moved there.
        renewed: (M,) whether the hidden level is drawn again after it.
    """

    stayed: Floats
    moved: Floats
    renewed: Bools


def posteriors(mobility: Mobility, prior: Floats, levels: Floats, steps: Sequence[Step]) -> Floats:
    """(T, M, N) probability of each record at each time, given everything that was seen.

    Args:
        mobility: of the traces.
        prior: (N,) of the first record.
        levels: (R,) probabilities of the hidden level.
        steps: T of them.
    """
    stays = mobility.stays
    forward = []
    mass = np.broadcast_to(prior[:, None] * levels, steps[0].moved.shape)
    for at, step in enumerate(steps):
        if at:
            mass = stays * mass * step.stayed + (1.0 - stays) * mobility.forth(mass) * step.moved
        else:
            mass = mass * step.moved
        anew = mass.sum(axis=2, keepdims=True) * levels
        mass = np.where(step.renewed[:, None, None], anew, mass)
        mass = mass / mass.sum(axis=(1, 2), keepdims=True)
        forward.append(mass)
    worth = np.ones_like(mass)
    found = np.empty((len(steps), *mass.shape[:2]))
    for at in range(len(steps) - 1, -1, -1):
        both = (forward[at] * worth).sum(axis=2)
        found[at] = both / both.sum(axis=1, keepdims=True)
        step = steps[at]
        worth = np.where(step.renewed[:, None, None], (worth * levels).sum(axis=2, keepdims=True), worth)
        worth = stays * worth * step.stayed + (1.0 - stays) * mobility.back(worth * step.moved)
        worth = worth / worth.max(axis=(1, 2), keepdims=True)
    return found


def attack_traces(release: MatrixRelease, data: MetricData, mobility: Mobility, seed: int) -> dict[str, Any]:
    """Distances by which the attacker is off along walks of the mobility model, by kind of report.

    Returns:
        ``length`` and ``subjects``, ``stays``, and median and p95 over all times, by kind.
    """
    chance = np.random.default_rng([seed, 1])  # another stream than that of reports
    count = data.shape[0]
    levels = 1 if release.walker is None else LEVELS
    subjects = max(1, min(SUBJECTS, CELLS // (LENGTH * count * levels)))
    walks = mobility.traces(chance.choice(count, size=subjects, p=data.prior / data.prior.sum()), LENGTH, chance)
    steps_of = {"fresh": _fresh_steps, "sticky": _sticky_steps, "predicted": _predicted_steps}
    found: dict[str, Any] = {"length": LENGTH, "subjects": subjects, "stays": mobility.stays}
    for name, seen in simulated(release, walks, seed).items():
        weights, steps = steps_of[name](release, seen)
        chances = posteriors(mobility, data.prior, weights, steps)
        errors = data.distance.between(walks.T.ravel(), _guesses(chances.reshape(-1, count), data))
        median, p95 = np.quantile(errors, [0.5, 0.95]).tolist()
        found[name] = {"median": median, "p95": p95}
    return found


def _guesses(chances: Floats, data: MetricData) -> Ints:
    """(B,) record with the least expected distance under probabilities (B, N); the first among equals."""
    best, guess = np.full(len(chances), np.inf), np.zeros(len(chances), dtype=np.int64)
    for start in range(0, chances.shape[1], _ROWS):
        some = np.arange(start, min(chances.shape[1], start + _ROWS))
        far = np.array(data.distance.rows(some))[:, : chances.shape[1]]
        known = np.isfinite(far)
        far = np.where(known, far, 2.0 * far[known].max(initial=1.0))  # out of reach: farther than all else
        expected = chances @ far.T
        here = expected.argmin(axis=1)
        value = expected[np.arange(len(here)), here]
        guess = np.where(value < best, some[here], guess)
        best = np.minimum(best, value)
    return guess


def _columns(z: Floats, outputs: Ints) -> Floats:
    """(M, N, 1) how likely each record gives each of the outputs (M,), as shares of the greatest."""
    columns = z[:, outputs].T
    return np.asarray(columns / columns.max(axis=1, keepdims=True))[:, :, None]


def _fresh_steps(release: MatrixRelease, seen: Seen) -> tuple[Floats, list[Step]]:
    none, z = np.zeros(len(seen.outputs), dtype=np.bool_), release.probabilities
    columns = [_columns(z, now) for now in seen.outputs.T]
    return np.ones(1), [Step(stayed=each, moved=each, renewed=none) for each in columns]


def _sticky_steps(release: MatrixRelease, seen: Seen) -> tuple[Floats, list[Step]]:
    """Return the steps of an attacker who takes a return for a new place."""
    none, z, outputs = np.zeros(len(seen.outputs), dtype=np.bool_), release.probabilities, seen.outputs
    steps = []
    for at, now in enumerate(outputs.T):
        columns, same = _columns(z, now), now == outputs[:, at - 1]
        # relative to the greatest column: a column is a share of it, so staying is one over that
        top = z[:, now].max(axis=0)[:, None, None]
        stayed = np.broadcast_to(same[:, None, None] / top, columns.shape)
        steps.append(Step(stayed=stayed, moved=columns, renewed=none))
    return np.ones(1), steps


def _predicted_steps(release: MatrixRelease, seen: Seen) -> tuple[Floats, list[Step]]:
    """Return the threshold's noise in a few values; times after the budget is spent say nothing."""
    walker, outputs, kept = release.walker, seen.outputs, seen.kept
    assert walker is not None  # asked before
    weights, noise = walker.nodes(LEVELS)
    steps, z = [], release.probabilities
    for at, now in enumerate(outputs.T):
        likely = np.ones((len(outputs), len(release.records), LEVELS))
        for row in np.flatnonzero(now >= 0).tolist() if at else ():
            renew = walker.renewals(int(outputs[row, at - 1]), noise)
            likely[row] = 1.0 - renew if kept[row, at] else renew
        fresh = (now >= 0) & ~kept[:, at]
        likely *= np.where(fresh[:, None, None], _columns(z, np.maximum(now, 0)), 1.0)
        top = likely.max(axis=(1, 2), keepdims=True)
        likely /= np.where(top > 0, top, 1.0)
        steps.append(Step(stayed=likely, moved=likely, renewed=fresh))
    return weights, steps
