"""A year of approximate locations at equal mean error: who finds a home, a crossed line, a walk.

Run as ``python tests/bench/bench_location.py [--persons N]``. A made town of 20 x 20 km; persons with home, work, other
places and walks, an hour a report, 15 m of noise. Every way to blur is set so that its mean error is that of a grid
of 5 km. Attackers know the way, its parameters and the town, and guess by likelihood. Draws come from fixed seeds.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from attrs import frozen
from scipy.special import ndtr

import privopt as po
from privopt.numbers.sampling import make_source
from privopt_metric_dp.traces.draw_trace import Limit, State

SIDE, CELL, SNAP, FINE = 20.0, 2.0, 5.0, 0.5
HOURS = 24 * 365
FOUND = 1.5
"""km within which a home counts as found: more than half a cell's diagonal, so that its cell is enough."""
NIGHT = np.arange(HOURS) % 24 < 6
LINE = 10.0
"""East of it is another district: a border of the grid of 5 km, and of the cells."""
ALARMS = 0.05
"""Part of the hours without a crossing at which an attacker may cry."""
DAYS, WALKERS = 14, 20
"""Of the traces that are followed."""
SLOT = 3
"""Hours of the public schedule."""


def centres(step: float) -> np.ndarray:
    """(M, 2) centres of squares over the town, km."""
    line = np.arange(step / 2, SIDE, step)
    return np.stack(np.meshgrid(line, line, indexing="ij"), axis=-1).reshape(-1, 2)


FINELY = centres(FINE)


def distances_between(points: np.ndarray, other_points: np.ndarray) -> np.ndarray:
    """Return distances between points (A, 2) and (B, 2)."""
    return np.asarray(np.hypot(*(points[:, None] - other_points[None]).transpose(2, 0, 1)))


def cell_of(places: np.ndarray, step: float = CELL) -> np.ndarray:
    """Return the number of each place's square."""
    row, column = np.moveaxis(np.clip(places // step, 0, SIDE / step - 1).astype(int), -1, 0)
    return np.asarray(row * int(SIDE / step) + column)


def year(persons: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Return homes (P, 2), and where each person is at each hour (P, HOURS, 2), km."""
    homes = rng.uniform(1, SIDE - 1, (persons, 2))
    way = rng.uniform(0, 2 * np.pi, (persons, 5))
    far_distances = np.column_stack([rng.lognormal(1.6, 0.5, persons), rng.uniform(1, 6, (persons, 4))])
    places = np.clip(
        homes[:, None] + far_distances[..., None] * np.stack([np.cos(way), np.sin(way)], axis=-1), 0.1, SIDE - 0.1
    )
    at = np.repeat(homes[:, None], HOURS, axis=1)
    for person in range(persons):
        home, work = homes[person], places[person, 0]
        for day in range(HOURS // 24):
            here = at[person, 24 * day : 24 * day + 24]
            other_place = places[person, rng.integers(1, 5)]
            if day % 7 < 5:
                here[[8, 17]] = (home + work) / 2
                here[9:17] = work
                if rng.random() < 0.3:
                    here[19:21] = other_place
            elif rng.random() < 0.5:  # a walk there and back
                part = np.minimum(np.arange(9), np.arange(8, -1, -1))[:, None] / 4
                here[9:18] = home + part * (other_place - home)
    return homes, np.clip(at + rng.normal(0, 0.015, at.shape), 0, SIDE - 1e-9)


@frozen(kw_only=True, eq=False)
class Way:
    """What an attacker sees of everybody.

    Attributes:
        name, parameter, allows: for the table.
        reports: (P, HOURS) numbers of outputs.
        told: (P, HOURS) whether it says anything that the report before did not.
        reported: (P, HOURS, 2) where these are, km.
        likelihood: (F, K) probability of each output at points of the town, when one is drawn.
        kept: (F, K) probability that an output is kept at each point, where a test decides.
    """

    name: str
    parameter: str
    allows: str
    reports: np.ndarray
    told: np.ndarray
    reported: np.ndarray
    likelihood: np.ndarray
    kept: np.ndarray | None = None

    def seen(self, person: int, hours: np.ndarray) -> np.ndarray:
        """(F,) log likelihood of what was reported at some hours, at each point of the town."""
        reports, is_told = self.reports[person], self.told[person]
        here, there = hours & is_told, hours & ~is_told
        counts = np.bincount(reports[here], minlength=self.likelihood.shape[1])
        log_likelihood = np.log(np.maximum(self.likelihood, 1e-300)) @ counts
        if self.kept is not None:
            previous_reports = np.concatenate([reports[:1], reports[:-1]])
            ended = np.bincount(previous_reports[here], minlength=self.kept.shape[1])
            stayed = np.bincount(reports[there], minlength=self.kept.shape[1])
            log_likelihood += (
                np.log(np.maximum(self.kept, 1e-12)) @ stayed + np.log(np.maximum(1 - self.kept, 1e-12)) @ ended
            )
        return np.asarray(log_likelihood)


def draw_outputs(rows: np.ndarray, z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Draw an output for each row of a matrix."""
    outputs = np.empty(rows.size, dtype=int)
    for row in np.unique(rows):
        here = np.flatnonzero(rows.ravel() == row)
        outputs[here] = rng.choice(z.shape[1], len(here), p=z[row] / z[row].sum())
    return outputs.reshape(rows.shape)


def changes(reports: np.ndarray) -> np.ndarray:
    """Return where a report is not the one before."""
    return np.concatenate([np.ones((len(reports), 1), dtype=bool), reports[:, 1:] != reports[:, :-1]], axis=1)


PROBLEM: dict[str, Any] = {"distance": "euclidean", "neighbours_within": 2.9}


@cache
def optimal(epsilon: float) -> np.ndarray:
    """Return the rows of the optimal mechanism over cells of 2 km."""
    problem = po.metric_problem(po.grid(10, 10, CELL), epsilon=f"{epsilon:.6f}/km", **PROBLEM)
    return np.asarray(po.solve("optimal-lp", problem, gap=1e-2).opened.release.probabilities)


def report_by_policy(policy: str, epsilon: float, at: np.ndarray) -> Way:
    """Return the reports of :func:`optimal`, by a policy."""
    rng, rows, outputs = np.random.default_rng(11), cell_of(at), centres(CELL)
    z = optimal(epsilon)
    likelihood = z[cell_of(FINELY)]
    if policy == "fresh":
        reports = draw_outputs(rows, z, rng)
        is_told, allows = np.ones_like(rows, dtype=bool), f"{HOURS:,} epsilon in a year"
    elif policy == "schedule":
        once = draw_outputs(rows[:, ::SLOT], z, rng)
        reports, is_told = np.repeat(once, SLOT, axis=1), np.broadcast_to(np.arange(HOURS) % SLOT == 0, rows.shape)
        allows = f"{HOURS // SLOT:,} epsilon in a year; renewals show nothing"
    else:
        first = draw_outputs(np.broadcast_to(np.arange(100), (len(rows), 100)), z, rng)
        reports = np.take_along_axis(first, rows, axis=1)
        is_told, allows = changes(reports), "epsilon a cell; crossings between cells show"
    return Way(
        name=f"ours, {policy}",
        parameter=f"epsilon {epsilon:.3g}",
        allows=allows,
        reports=reports,
        told=is_told,
        reported=outputs[reports],
        likelihood=likelihood,
    )


def report_predictively(epsilon: float, at: np.ndarray) -> Way:
    """Return the reports of ``predictive`` over the same cells."""
    rows, outputs = cell_of(at), centres(CELL)
    problem = po.metric_problem(po.grid(10, 10, CELL), epsilon=f"{epsilon:.6f}/km", predictive={}, **PROBLEM)
    release = po.solve("predictive", problem, gap=1e-2).opened.release
    subjects, limit = np.repeat(np.arange(len(rows)), HOURS), Limit(None)
    walked = release.walker.walk(rows.ravel(), subjects, State(), charge=limit, source=make_source(3))
    reports, terms = walked.outputs.reshape(rows.shape), release.walker.terms
    rng, many = np.random.default_rng(4), 20_000
    noise = rng.exponential(1 / float(terms.test), many) - rng.exponential(1 / float(terms.threshold), many)
    distances = distances_between(centres(CELL)[cell_of(FINELY)], outputs)
    kept_chances = (
        np.searchsorted(np.sort(noise), float(terms.good_within) - distances.ravel()).reshape(distances.shape) / many
    )
    spent = np.mean([float(amount) for amount in limit.spent.values()]) / epsilon
    return Way(
        name="ours, predictive",
        parameter=f"epsilon {epsilon:.3g}",
        allows=f"{spent:,.0f} epsilon in a year (charged)",
        reports=reports,
        told=~walked.kept.reshape(rows.shape),
        reported=outputs[reports],
        likelihood=release.probabilities[cell_of(FINELY)],
        kept=kept_chances,
    )


def report_on_a_grid(at: np.ndarray) -> Way:
    """Return a grid of 5 km: the centre of the square."""
    reports, outputs = cell_of(at, SNAP), centres(SNAP)
    return Way(
        name="grid",
        parameter=f"{SNAP:g} km",
        allows="nothing; the square is exact",
        reports=reports,
        told=np.ones_like(reports, dtype=bool),
        reported=outputs[reports],
        likelihood=(cell_of(FINELY, SNAP)[:, None] == np.arange(len(outputs))).astype(float),
    )


def report_by_fudger(size: float, at: np.ndarray) -> Way:
    """Return Android's published fudger: an offset that drifts hour by hour, then a grid of that accuracy."""
    rng, drift = np.random.default_rng(5), 0.03
    offset = np.empty(at.shape)
    offset[:, 0] = rng.normal(0, size / 4, (len(at), 2))
    for hour in range(1, HOURS):
        offset[:, hour] = np.sqrt(1 - drift**2) * offset[:, hour - 1] + drift * rng.normal(0, size / 4, (len(at), 2))
    lines = np.arange(-1, int(SIDE / size) + 3)
    grid_numbers = np.clip(np.rint((at + offset) / size).astype(int), lines[0], lines[-1])
    row, column = np.moveaxis(grid_numbers - lines[0], -1, 0)
    edges = np.concatenate([[-np.inf], (lines[:-1] + 0.5) * size, [np.inf]])
    axis_chances = [np.diff(ndtr((edges - FINELY[:, axis, None]) / (size / 4)), axis=1) for axis in range(2)]
    reports = row * len(lines) + column
    return Way(
        name="fudger",
        parameter=f"{size:.3g} km",
        allows="nothing",
        reports=reports,
        told=np.ones_like(reports, dtype=bool),
        reported=grid_numbers * size,
        likelihood=(axis_chances[0][:, :, None] * axis_chances[1][:, None, :]).reshape(len(FINELY), -1),
    )


def laplace(epsilon: float, at: np.ndarray) -> Way:
    """Return planar Laplace, fresh each hour; attackers read it in squares of 1 km."""
    rng = np.random.default_rng(6)
    radius, way = rng.gamma(2, 1 / epsilon, at.shape[:2]), rng.uniform(0, 2 * np.pi, at.shape[:2])
    reported = at + radius[..., None] * np.stack([np.cos(way), np.sin(way)], axis=-1)
    line = np.arange(-SIDE / 2, 1.5 * SIDE)
    row, column = np.moveaxis(np.clip(np.floor(reported - line[0]).astype(int), 0, len(line) - 1), -1, 0)
    middles = np.stack(np.meshgrid(line + 0.5, line + 0.5, indexing="ij"), axis=-1).reshape(-1, 2)
    likelihood = np.exp(-epsilon * distances_between(FINELY, middles))
    reports = row * len(line) + column
    return Way(
        name="planar Laplace",
        parameter=f"epsilon {epsilon:.3g}",
        allows=f"{HOURS:,} epsilon in a year",
        reports=reports,
        told=np.ones_like(reports, dtype=bool),
        reported=reported,
        likelihood=likelihood / likelihood.sum(axis=1, keepdims=True),
    )


def error(way: Way, at: np.ndarray) -> float:
    """Return the mean distance between where a person is and what is reported."""
    return float(np.hypot(*np.moveaxis(way.reported - at, -1, 0)).mean())


def at_error(make_way: Callable[[float], Way], at: np.ndarray, target_error: float, low: float, high: float) -> Way:
    """Return a way whose mean error is the wanted one; a greater parameter has less error if ``low`` < ``high``."""
    for _ in range(9):
        middle = float(np.sqrt(low * high))
        way = make_way(middle)
        if abs(error(way, at) - target_error) < 0.005 * target_error:
            return way
        low, high = (middle, high) if error(way, at) > target_error else (low, middle)
    return way


def guessed_home(way: Way, person: int) -> np.ndarray:
    """(2,) the likeliest place of a person's nights, km."""
    seen = way.seen(person, NIGHT)
    return np.asarray(FINELY[seen >= seen.max() - 1e-9].mean(axis=0))


def found_homes(way: Way, homes: np.ndarray) -> tuple[float, float]:
    """Return the part of the homes that are guessed within 1.5 km from the nights of a year, and the median error."""
    errors = [float(np.hypot(*(guessed_home(way, person) - home))) for person, home in enumerate(homes)]
    return float(np.mean(np.array(errors) <= FOUND)), float(np.median(errors))


def seen_crossings(way: Way, at: np.ndarray) -> float:
    """Return the part of the crossings that are seen within the hour, at 5 % false alarms: the better of two signs."""
    east = FINELY[:, 0] > LINE
    sides = [np.maximum(way.likelihood[is_side].mean(axis=0), 1e-9) for is_side in (east, ~east)]
    odds = np.log(sides[0] / sides[1])[way.reports]
    crossed = np.diff((at[..., 0] > LINE).astype(int), axis=1) != 0
    seen_shares = []
    for sign in (np.abs(np.diff(odds, axis=1)), (np.diff(way.reports, axis=1) != 0).astype(float)):
        thresholds = np.unique(np.quantile(sign[~crossed], np.linspace(0.8, 1, 201)))[::-1]
        alarms = [0.0, *((sign[~crossed] >= threshold).mean() for threshold in thresholds), 1.0]
        seen = [0.0, *((sign[crossed] >= threshold).mean() for threshold in thresholds), 1.0]
        seen_shares.append(float(np.interp(ALARMS, alarms, seen)))
    return max(seen_shares)


def follow_persons(way: Way) -> np.ndarray:
    """(H, P, 2) where a hidden Markov model finds some persons in two weeks, km."""
    coarse = cell_of(centres(1.0), FINE)  # points of the town a kilometre apart
    points = FINELY[coarse]
    moves = np.exp(-distances_between(points, points) / 3.0)
    moves = 0.7 * np.eye(len(points)) + 0.3 * moves / moves.sum(axis=1, keepdims=True)
    hours, people = 24 * DAYS, min(WALKERS, len(way.reports))
    sign = np.ones((hours, people, len(points)))
    for hour in range(hours):
        for person in range(people):
            now = np.zeros(HOURS, dtype=bool)
            now[hour] = way.kept is not None or way.told[person, hour]
            seen = way.seen(person, now)[coarse] if now.any() else np.zeros(len(points))
            sign[hour, person] = np.exp(seen - seen.max())
    ahead, back = np.empty_like(sign), np.ones_like(sign)
    belief = np.full((people, len(points)), 1 / len(points))
    for hour in range(hours):
        belief = (belief @ moves if hour else belief) * sign[hour]
        belief /= belief.sum(axis=1, keepdims=True)
        ahead[hour] = belief
    for hour in range(hours - 2, -1, -1):
        back[hour] = (back[hour + 1] * sign[hour + 1]) @ moves.T
        back[hour] /= back[hour].sum(axis=1, keepdims=True)
    joint = ahead * back
    return np.asarray((joint / joint.sum(axis=2, keepdims=True)) @ points)


def trace_error(way: Way, at: np.ndarray) -> float:
    """Return the mean error of those who follow some persons for two weeks, km."""
    guess = follow_persons(way).transpose(1, 0, 2)
    people, hours = guess.shape[:2]
    return float(np.hypot(*np.moveaxis(guess - at[:people, :hours], -1, 0)).mean())


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--persons", type=int, default=60)
    persons = parser.parse_args().persons
    homes, at = year(persons, np.random.default_rng(1))
    grid = report_on_a_grid(at)
    target_error = error(grid, at)
    print(f"{persons} persons, {at.size // 2:,} reports each way, load {os.getloadavg()[0]:.1f}")
    print("| way | parameter | mean error, km | home within 1.5 km | home, median km | crossing | walk, km | allowed |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    ways: list[Callable[[], Way]] = [
        lambda: grid,
        lambda: at_error(lambda size: report_by_fudger(size, at), at, target_error, 8.0, 2.0),
        lambda: at_error(lambda epsilon: laplace(epsilon, at), at, target_error, 0.3, 4.0),
        *(
            lambda policy=policy: at_error(
                lambda epsilon: report_by_policy(policy, epsilon, at), at, target_error, 0.2, 8.0
            )
            for policy in ("fresh", "schedule", "places")
        ),
        lambda: at_error(lambda epsilon: report_predictively(epsilon, at), at, target_error, 0.2, 16.0),
    ]
    for make_way in ways:
        way = make_way()
        home, median = found_homes(way, homes)
        cells = [f"{error(way, at):.2f}", f"{home:.0%}", f"{median:.2f}", f"{seen_crossings(way, at):.0%}"]
        print(
            f"| {way.name} | {way.parameter} | {' | '.join(cells)} | {trace_error(way, at):.2f} | {way.allows} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
