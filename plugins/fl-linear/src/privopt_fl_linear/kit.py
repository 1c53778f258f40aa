"""The conformance profile of FL-Linear, with small problems, their neighbours, reports and an independent check."""

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
from privopt_fl_linear.location import compute_noise_budget, noisy_counts

__all__ = ["PROFILE", "neighbours", "problems"]

POINTS, MATRIX = "locations.csv", "distances.npy"
PLANTED = 10**6
"""The smallest count planted as a secret. The kit must not find such a count in any public file."""


@st.composite
def problems(draw: st.DrawFn) -> GeneratedProblem:
    """Draw a small problem for the conformance kit (a Hypothesis strategy).

    The problem has up to six locations, which are given by positions in the plane or on the sphere, or by a distance
    matrix. Counts are either small or have seven digits, so that they can be recognised in files. Some problems have
    capacity bounds that are too large to bind.
    """
    n = draw(st.integers(1, 6))
    spot = st.tuples(st.integers(0, 999), st.integers(0, 999))
    spots = draw(st.lists(spot, min_size=n, max_size=n, unique=True))
    costs = draw(st.lists(st.integers(100, 300), min_size=n, max_size=n))
    clients = draw(st.lists(st.integers(0, 8) | st.integers(PLANTED, 9_999_999), min_size=n, max_size=n))
    kind = draw(st.sampled_from(["plane", "sphere", "matrix"]))
    # Coordinates have three decimals, so that their decimal form is short and exact.
    xy = [(x / 1000, y / 1000) for x, y in spots]
    locations: dict[str, Any] = {"points": POINTS}
    files = {POINTS: b""}  # filled below, but added now because the secret table must be the first file
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
        # Without a public mean, the radius would depend on the noise, and the facilities would differ between runs.
        settings["mean_clients"] = 3.0
    settings["margin"] = draw(st.sampled_from(["exact", "paper"]))
    settings["noise"] = draw(st.sampled_from(["discrete", "continuous"]))
    tables = {
        "locations": locations,
        "privacy": {"epsilon": draw(st.sampled_from([1.0, 0.5, 2.0])), "failure_probability": 0.1},
        "fl-linear": settings,
    }
    secrets: Any = tuple(str(b).encode() for b in clients if b >= PLANTED)
    return GeneratedProblem(toml=to_toml(tables), files=files, secrets=secrets, facts={"kind": kind})


def _replace_rows(problem: GeneratedProblem, header: list[str], rows: Iterable[list[str]]) -> GeneratedProblem:
    """Return a copy of the problem in which the table of locations has the given header and rows."""
    return problem.with_file(POINTS, csv_bytes(header, list(rows)))


def neighbours(problem: GeneratedProblem) -> Iterator[GeneratedProblem]:
    """Yield the neighbouring problems, in which a single location has one more or one fewer client."""
    header, *rows = problem.rows(POINTS)
    for row_number, row in enumerate(rows):
        for step in (1, -1):
            # The last column contains the clients. A location without clients cannot lose one.
            clients = int(row[-1]) + step
            if clients >= 0:
                yield _replace_rows(
                    problem, header, [*rows[:row_number], [*row[:-1], str(clients)], *rows[row_number + 1 :]]
                )


def _has_ties(problem: GeneratedProblem) -> bool:
    """Return whether any location might cost the same to serve from two different facilities.

    Ties are broken in favour of the first id, so renaming ids can change the plan. If ties are possible, the kit skips
    the check that renames ids. On the sphere, ties are always assumed to be possible.
    """
    # The columns are the id, the coordinates (unless there is a matrix), the capacity, the facility cost and the
    # clients.
    rows = problem.rows(POINTS)[1:]
    cost = np.array([float(r[-2]) for r in rows])
    if len(set(cost.tolist())) < len(cost):
        return True
    if problem.facts["kind"] == "matrix":
        table = np.load(io.BytesIO(problem.files[MATRIX]))
    else:
        table = np.array([[math.dist(map(float, a[1:3]), map(float, b[1:3])) for b in rows] for a in rows])
    # values[:, v] contains the costs of location v at each facility in ascending order. They are not computed from
    # distances on the sphere, for which the answer is always True.
    values = np.sort(cost[:, None] + table, axis=0)
    return problem.facts["kind"] == "sphere" or bool((np.diff(values, axis=0) < 1e-9).any())


def _change_units(problem: GeneratedProblem, chance: random.Random) -> Variant | None:
    """Return a variant with all lengths and costs multiplied by 4, to check that results do not depend on units.

    The factor is a power of two, so that the multiplication is exact in floating point. The result is None on the
    sphere, where the unit is always km. ``chance``, the kit's random number generator, is not used.
    """
    if problem.facts["kind"] == "sphere":
        return None
    header, *rows = problem.rows(POINTS)
    lengths = [position for position, name in enumerate(header) if name in ("x", "y", "facility_cost")]
    scaled = [[repr(4.0 * float(c)) if i in lengths else c for i, c in enumerate(row)] for row in rows]
    larger = _replace_rows(problem, header, scaled)
    if MATRIX in problem.files:
        larger = larger.with_file(MATRIX, npy_bytes(4.0 * np.load(io.BytesIO(problem.files[MATRIX]))))
    delta = problem.get("fl-linear.delta")
    if delta != "auto":
        larger = larger.with_key("fl-linear.delta", 4.0 * float(delta))
    return Variant(problem=larger, factor=4.0, change="lengths and costs were given in another unit")


def _draw_reports(problem: Any, method: str, count: int) -> Any:
    """Draw ``count`` independent reports for each of the n locations, as a (count, n) array.

    The conformance kit uses these reports for its statistical attacks, because no other part of the release depends
    directly on the secret counts. ``method`` is not used, because reports have the same distribution for every private
    method.
    """
    clients = np.tile(problem.data.clients, (count, 1))
    return noisy_counts(clients, problem.declared.privacy.epsilon, noise=problem.noise)[0]


def _sum_distribution(epsilon: float, k: int) -> Any:
    """Return the distribution of the sum of k discrete Laplace draws of rate ``epsilon``, computed by convolution.

    The result is an array with the probabilities of consecutive integers. Its middle entry is the probability of 0.
    """
    # A draw exceeds 40 / epsilon only with probability e**-40. The factor tanh(epsilon / 2) normalises the
    # distribution.
    max_value = math.ceil(40.0 / epsilon)
    single_draw = np.exp(-epsilon * np.abs(np.arange(-max_value, max_value + 1))) * math.tanh(epsilon / 2.0)
    total = single_draw
    for _ in range(k - 1):
        total = np.convolve(total, single_draw)
    return total


def _check_release(problem: Any, release: Any, result: Result) -> Iterator[str]:
    """Check a release without using the plugin's own algorithms, and yield a message for each error found.

    Exact margins for discrete noise are compared with tails computed by convolution, and the paper's margins with the
    paper's formula. For the method ``reconnection``, every location within the radius of an open facility must be
    served by it.

    Args:
        problem: The problem, with its public data and the server's choices.
        release: The release to check.
        result: The contents of result.json, which provide the method and the details.
    """
    if result.method == "optimal":
        return
    facility, opened = release.assignment.facility, release.assignment.opened
    # `alpha` is the total failure probability for which the margins were computed.
    rule, alpha = problem.make_server(result.method).rule, result.details.facts["failure_probability"]["level"]
    n = len(facility)
    for position, s in enumerate(opened.tolist()):
        members = np.flatnonzero(facility == s)
        noisy = math.fsum(np.asarray(release.counts, dtype=float)[members])
        margin = release.capacities[position] - noisy
        # If the capacity was raised to 0, the margin cannot be recovered from it.
        if release.capacities[position] <= 0.0:
            continue
        if rule.kind == "exact" and rule.noise == "discrete":
            probabilities = _sum_distribution(
                float(compute_noise_budget(problem.declared.privacy.epsilon)), len(members)
            )
            # The probability that the noise exceeds the margin. For a facility that serves |L| of n locations, it may
            # be at most |L| alpha / n (Theorem 3). The middle entry is the probability of the sum 0.
            tail = float(probabilities[len(probabilities) // 2 + round(margin) + 1 :].sum())
            if tail > len(members) * alpha / n * (1 + 1e-9):
                yield f"facility {s}: the noise of {len(members)} reports exceeds {margin} with probability {tail}"
        elif rule.kind == "paper":
            paper_margin = 2.0 / rule.epsilon * math.sqrt(len(members)) * math.log(2.0 * n / alpha)
            if margin < paper_margin * (1 - 1e-9):
                yield f"facility {s}: margin {margin}, the paper's is {paper_margin}"
    delta = result.details.facts["delta"]
    everyone, metric = np.arange(n), problem.data.site.metric
    for s in opened.tolist():
        # The radius is slightly smaller than delta, so that locations exactly at the edge of a ball do not depend on
        # rounding.
        nearby = everyone[metric.distances_between(np.full(n, s), everyone) <= delta * (1 - 1e-12)]
        if result.method == "reconnection" and (facility[nearby] != s).any():
            yield f"a location within {delta} of facility {s} is served elsewhere"


PROFILE = Profile(
    problems=problems(),
    neighbours=neighbours,
    observed=lambda release: release.counts,
    draws=_draw_reports,
    variants={
        "relabelling": relabel({POINTS: ["id"]}, unless=_has_ties),
        "reordering": reorder(POINTS, arrays={MATRIX: (0, 1)}),
        "units": _change_units,
    },
    oracle=_check_release,
)
