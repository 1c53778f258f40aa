"""The conformance kit's profile of FL-Linear: small problems, neighbours, reports, an independent computation."""

from __future__ import annotations

import io
import math
import random
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from hypothesis import strategies as st

from privopt.interfaces import Result
from privopt.testing import GeneratedProblem, Profile, Variant, csv_bytes, npy_bytes, relabel, reorder, to_toml
from privopt_fl_linear.location import noisy_counts, spent

__all__ = ["PROFILE", "neighbours", "problems"]

POINTS, MATRIX = "locations.csv", "distances.npy"
PLANTED = 10**6
"""Counts from here on are planted: none of them may be in a public file."""


@st.composite
def problems(draw: st.DrawFn) -> GeneratedProblem:
    """Draw up to six locations in the plane, on the sphere or in a matrix; counts small or seven digits long.

    Bounds that nothing reaches are among them.
    """
    n = draw(st.integers(1, 6))
    spot = st.tuples(st.integers(0, 999), st.integers(0, 999))
    spots = draw(st.lists(spot, min_size=n, max_size=n, unique=True))
    costs = draw(st.lists(st.integers(100, 300), min_size=n, max_size=n))
    clients = draw(st.lists(st.integers(0, 8) | st.integers(PLANTED, 9_999_999), min_size=n, max_size=n))
    kind = draw(st.sampled_from(["plane", "sphere", "matrix"]))
    xy = [(x / 1000, y / 1000) for x, y in spots]
    locations: dict[str, Any] = {"points": POINTS}
    files = {POINTS: b""}  # the secret table first
    header, places = ["id"], [[] for _ in xy]  # type: list[str], list[list[float]]
    if kind == "matrix":
        locations["matrix"] = MATRIX
        table = np.array([[math.dist(a, b) for b in xy] for a in xy])
        files[MATRIX] = npy_bytes(table)
    else:
        header += ["x", "y"] if kind == "plane" else ["lat", "lon"]
        places = [list(p) for p in xy]
    header, bound = [*header, "capacity", "facility_cost", "clients"], draw(st.sampled_from(["", 10**9]))
    rows = [[f"v{i}", *p, bound, c / 1000, b] for i, (p, c, b) in enumerate(zip(places, costs, clients, strict=True))]
    files[POINTS] = csv_bytes(header, rows)
    settings: dict[str, Any] = {"delta": draw(st.sampled_from([0.0, 0.1, 0.3, "auto"]))}
    if settings["delta"] == "auto":
        settings["mean_clients"] = 3.0  # chosen by the noise, the set of facilities would differ from run to run
    settings["margin"] = draw(st.sampled_from(["exact", "paper"]))
    settings["noise"] = draw(st.sampled_from(["discrete", "continuous"]))
    tables = {
        "locations": locations,
        "privacy": {"epsilon": draw(st.sampled_from([1.0, 0.5, 2.0])), "failure_probability": 0.1},
        "fl-linear": settings,
    }
    secrets: Any = tuple(str(b).encode() for b in clients if b >= PLANTED)
    return GeneratedProblem(toml=to_toml(tables), files=files, secrets=secrets, facts={"kind": kind})


def _with_rows(problem: GeneratedProblem, header: list[str], rows: Iterable[list[str]]) -> GeneratedProblem:
    return problem.with_file(POINTS, csv_bytes(header, list(rows)))


def neighbours(problem: GeneratedProblem) -> Iterator[GeneratedProblem]:
    """Yield one client more or less at one location."""
    header, *rows = problem.rows(POINTS)
    for place, row in enumerate(rows):
        for step in (1, -1):
            clients = int(row[-1]) + step
            if clients >= 0:
                yield _with_rows(problem, header, [*rows[:place], [*row[:-1], str(clients)], *rows[place + 1 :]])


def _ties(problem: GeneratedProblem) -> bool:
    """Return whether some decision is left to the ids: then other ids may decide otherwise."""
    rows = problem.rows(POINTS)[1:]
    cost = np.array([float(r[-2]) for r in rows])
    if len(set(cost.tolist())) < len(cost):
        return True
    if problem.facts["kind"] == "matrix":
        table = np.load(io.BytesIO(problem.files[MATRIX]))
    else:
        table = np.array([[math.dist(map(float, a[1:3]), map(float, b[1:3])) for b in rows] for a in rows])
    values = np.sort(cost[:, None] + table, axis=0)
    return problem.facts["kind"] == "sphere" or bool((np.diff(values, axis=0) < 1e-9).any())


def _in_other_units(problem: GeneratedProblem, chance: random.Random) -> Variant | None:
    """Lengths and costs four times as large: exact in doubles."""
    if problem.facts["kind"] == "sphere":
        return None
    header, *rows = problem.rows(POINTS)
    lengths = [place for place, name in enumerate(header) if name in ("x", "y", "facility_cost")]
    scaled = [[repr(4.0 * float(c)) if i in lengths else c for i, c in enumerate(row)] for row in rows]
    larger = _with_rows(problem, header, scaled)
    if MATRIX in problem.files:
        larger = larger.with_file(MATRIX, npy_bytes(4.0 * np.load(io.BytesIO(problem.files[MATRIX]))))
    delta = problem.get("fl-linear.delta")
    if delta != "auto":
        larger = larger.with_key("fl-linear.delta", 4.0 * float(delta))
    return Variant(problem=larger, factor=4.0, change="lengths and costs were given in another unit")


def _draws(problem: Any, method: str, count: int) -> Any:
    """Return reports of the location's side: only these lead from a count to what is published."""
    clients = np.tile(problem.data.clients, (count, 1))
    return noisy_counts(clients, problem.declared.privacy.epsilon, noise=problem.noise)[0]


def _reach(epsilon: float, k: int) -> Any:
    """Distribution of the sum of k discrete Laplace draws by repeated convolution, from -reach to reach."""
    reach = math.ceil(40.0 / epsilon)
    one = np.exp(-epsilon * np.abs(np.arange(-reach, reach + 1))) * math.tanh(epsilon / 2.0)
    total = one
    for _ in range(k - 1):
        total = np.convolve(total, one)
    return total


def _oracle(problem: Any, release: Any, result: Result) -> Iterator[str]:
    """Capacities against sums, balls and quantiles computed without the plugin's own algorithms."""
    if result.method == "optimal":
        return
    facility, opened = release.assignment.facility, release.assignment.opened
    rule, alpha = problem.server(result.method).rule, result.details.facts["failure_probability"]["level"]
    n = len(facility)
    for place, s in enumerate(opened.tolist()):
        members = np.flatnonzero(facility == s)
        noisy = math.fsum(np.asarray(release.counts, dtype=float)[members])
        margin = release.capacities[place] - noisy
        if release.capacities[place] <= 0.0:
            continue
        if rule.kind == "exact" and rule.noise == "discrete":
            law = _reach(float(spent(problem.declared.privacy.epsilon)), len(members))
            tail = float(law[len(law) // 2 + round(margin) + 1 :].sum())
            if tail > len(members) * alpha / n * (1 + 1e-9):
                yield f"facility {s}: the noise of {len(members)} reports exceeds {margin} with probability {tail}"
        elif rule.kind == "paper":
            wanted = 2.0 / rule.epsilon * math.sqrt(len(members)) * math.log(2.0 * n / alpha)
            if margin < wanted * (1 - 1e-9):
                yield f"facility {s}: margin {margin}, the paper's is {wanted}"
    delta = result.details.facts["delta"]
    everyone, metric = np.arange(n), problem.data.site.metric
    for s in opened.tolist():
        near = everyone[metric.between(np.full(n, s), everyone) <= delta * (1 - 1e-12)]
        if result.method == "reconnection" and (facility[near] != s).any():
            yield f"a location within {delta} of facility {s} is served elsewhere"


PROFILE = Profile(
    problems=problems(),
    neighbours=neighbours,
    observed=lambda release: release.counts,
    draws=_draws,
    variants={
        "relabelling": relabel({POINTS: ["id"]}, unless=_ties),
        "reordering": reorder(POINTS, arrays={MATRIX: (0, 1)}),
        "units": _in_other_units,
    },
    oracle=_oracle,
)
