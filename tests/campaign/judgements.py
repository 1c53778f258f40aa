"""Judges mechanisms of other libraries and writes docs/judgements.md: ``python tests/campaign/judgements.py``.

Wants privopt and the libraries installed beside one another; what is not installed is named as such. Each mechanism has
the claim that its own documentation makes of the arguments that it is given here.
"""

from __future__ import annotations

import argparse
import platform
import random
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import other_libraries as adapters
from attrs import evolve

DRAWS, LIMIT, CONFIDENCE = 120_000, 60.0, 0.9999
Case = tuple[Any, Any, Callable[[Any], Any] | None]
"""What is claimed, inputs, neighbours."""


def within(low: float, high: float) -> Callable[[float], list[float]]:
    return lambda x: [y for y in (x - 1, x + 1) if low <= y <= high]


def all_scores(scores: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Every score changes by one, up or down: those that matter most."""
    size = len(scores)
    return [
        tuple(s + (1 if i == k else -1) * sign for i, s in enumerate(scores)) for k in range(size) for sign in (1, -1)
    ]


def of_diffprivlib() -> Iterator[Case]:
    import diffprivlib.mechanisms as m

    reals, integers = [0.0, 0.25, 1.0, 3.7, 10.0], [0, 1, 3, 9, 10]
    bounded = {"lower": 0, "upper": 10}
    pure = {"epsilon": 1.0, "sensitivity": 1}
    neighbours = within(0, 10)
    yield adapters.diffprivlib(m.Laplace(**pure)), reals, neighbours
    yield adapters.diffprivlib(m.LaplaceTruncated(**pure, **bounded)), reals, neighbours
    yield adapters.diffprivlib(m.LaplaceFolded(**pure, **bounded)), reals, neighbours
    yield adapters.diffprivlib(m.LaplaceBoundedDomain(**pure, **bounded)), reals, neighbours
    yield adapters.diffprivlib(m.LaplaceBoundedNoise(epsilon=1.0, delta=0.1, sensitivity=1)), reals, neighbours
    yield adapters.diffprivlib(m.Staircase(**pure)), reals, neighbours
    yield adapters.diffprivlib(m.Snapping(**pure, **bounded)), reals, neighbours
    yield adapters.diffprivlib(m.Geometric(**pure)), integers, neighbours
    yield adapters.diffprivlib(m.GeometricTruncated(**pure, **bounded)), integers, neighbours
    yield adapters.diffprivlib(m.GeometricFolded(**pure, **bounded)), integers, neighbours
    yield adapters.diffprivlib(m.Gaussian(epsilon=1.0, delta=0.01, sensitivity=1)), reals, neighbours
    yield adapters.diffprivlib(m.GaussianAnalytic(epsilon=1.0, delta=0.01, sensitivity=1)), reals, neighbours
    yield adapters.diffprivlib(m.GaussianDiscrete(epsilon=1.0, delta=0.01, sensitivity=1)), integers, neighbours
    yield adapters.diffprivlib(m.Binary(epsilon=1.0, value0="no", value1="yes")), ["no", "yes"], None
    for mechanism_class in (m.Exponential, m.PermuteAndFlip):
        yield of_scores(mechanism_class), [(0, 1, 2), (0, 0, 4), (3, 3, 3)], all_scores
    yield (
        adapters.diffprivlib(
            m.ExponentialCategorical(epsilon=1.0, utility_list=[["a", "b", 1], ["a", "c", 2], ["b", "c", 2]])
        ),
        ["a", "b", "c"],
        None,
    )


def of_scores(mechanism_class: Any) -> Any:
    """Mechanisms that take their scores when they are made: an input is the scores."""
    claimed = adapters.diffprivlib(mechanism_class(epsilon=1.0, sensitivity=1, utility=[0, 1, 2]))

    def choose(scores: tuple[int, ...]) -> Any:
        return mechanism_class(epsilon=1.0, sensitivity=1, utility=list(scores)).randomise()

    return evolve(claimed, mechanism=choose)


def of_opendp() -> Iterator[Case]:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    integer_domain = dp.atom_domain(T=int), dp.absolute_distance(T=int)
    reals = dp.atom_domain(T=float, nan=False), dp.absolute_distance(T=float)
    neighbours = within(-1e9, 1e9)
    yield (
        adapters.opendp(dp.m.make_laplace(*integer_domain, scale=1.0), name="make_laplace (int)"),
        [0, 3, 10],
        neighbours,
    )
    yield (
        adapters.opendp(dp.m.make_laplace(*reals, scale=1.0), 1.0, name="make_laplace (float)"),
        [0.0, 0.25, 3.7],
        neighbours,
    )
    yield (
        adapters.opendp(dp.m.make_geometric(*integer_domain, scale=1.0), name="make_geometric"),
        [0, 3, 10],
        neighbours,
    )
    yield (
        adapters.opendp(dp.m.make_gaussian(*integer_domain, scale=1.0), name="make_gaussian (int)"),
        [0, 3, 10],
        neighbours,
    )
    yield (
        adapters.opendp(dp.m.make_gaussian(*reals, scale=1.0), 1.0, name="make_gaussian (float)"),
        [0.0, 0.25, 3.7],
        neighbours,
    )
    yield (
        adapters.opendp(dp.m.make_randomized_response_bool(prob=0.75), name="make_randomized_response_bool"),
        [
            False,
            True,
        ],
        None,
    )
    scores = dp.vector_domain(dp.atom_domain(T=int)), dp.linf_distance(T=int)
    yield (
        adapters.opendp(dp.m.make_noisy_max(*scores, dp.max_divergence(), scale=1.0), name="make_noisy_max"),
        [[0, 1, 2], [0, 0, 4], [3, 3, 3]],
        lambda x: [list(y) for y in all_scores(tuple(x))],
    )


def of_multi_freq_ldpy() -> Iterator[Case]:
    from multi_freq_ldpy.pure_frequency_oracles.GRR import GRR_Client
    from multi_freq_ldpy.pure_frequency_oracles.HE import HE_Client
    from multi_freq_ldpy.pure_frequency_oracles.LH import LH_Client
    from multi_freq_ldpy.pure_frequency_oracles.SS import SS_Client
    from multi_freq_ldpy.pure_frequency_oracles.UE import UE_Client

    values = [0, 1, 2, 3]
    yield adapters.multi_freq_ldpy(GRR_Client, 4, 1.0), values, None
    yield evolve(adapters.multi_freq_ldpy(UE_Client, 4, 1.0, optimal=True), name="UE_Client (optimal)"), values, None
    yield evolve(adapters.multi_freq_ldpy(UE_Client, 4, 1.0, optimal=False), name="UE_Client (symmetric)"), values, None
    yield adapters.multi_freq_ldpy(LH_Client, 4, 1.0, optimal=True), values, None
    yield adapters.multi_freq_ldpy(SS_Client, 4, 1.0), values, None
    yield adapters.multi_freq_ldpy(HE_Client, 4, 1.0), values, None


def of_privkit() -> Iterator[Case]:
    from privkit.ppms import PlanarLaplace

    places = [(41.15, -8.61), (41.1501, -8.61), (41.151, -8.612), (41.16, -8.60)]
    yield adapters.privkit(PlanarLaplace(epsilon=0.01)), places, None


def of_libqif() -> Iterator[tuple[str, Any, Callable[[int, int], float], float]]:
    """Matrices, measured exactly: name, channel, distance of rows, epsilon claimed."""
    import qif

    line = lambda i, j: float(abs(i - j))  # noqa: E731
    grid = lambda i, j: float(np.hypot(i // 5 - j // 5, i % 5 - j % 5))  # noqa: E731
    yield "d_privacy.geometric(10, 1)", qif.mechanism.d_privacy.geometric(10, 1.0), line, 1.0
    yield "d_privacy.exponential(10, abs)", qif.mechanism.d_privacy.exponential(10, line), line, 1.0
    yield (
        "d_privacy.randomized_response(10, 1)",
        qif.mechanism.d_privacy.randomized_response(10, 1.0),
        lambda i, j: 1.0,
        1.0,
    )
    yield "d_privacy.tight_constraints(10, abs)", qif.mechanism.d_privacy.tight_constraints(10, line), line, 1.0
    yield (
        "geo_ind.planar_laplace_grid(5, 5, 1, 1)",
        qif.mechanism.geo_ind.planar_laplace_grid(5, 5, 1.0, 1.0),
        grid,
        1.0,
    )
    yield (
        "geo_ind.planar_geometric_grid(5, 5, 1, 1)",
        qif.mechanism.geo_ind.planar_geometric_grid(5, 5, 1.0, 1.0),
        grid,
        1.0,
    )


SAMPLED = {
    "diffprivlib": of_diffprivlib,
    "opendp": of_opendp,
    "multi-freq-ldpy": of_multi_freq_ldpy,
    "privkit": of_privkit,
}


def words(claimed: Any) -> str:
    delta = f", delta {claimed.delta:g}" if claimed.delta else ""
    return f"epsilon {claimed.epsilon:.6g}{delta}"


def judge_case(case: Case, seed: int) -> str:
    """Return a line of the table."""
    claimed, inputs, neighbours = case
    random.seed(seed)  # what a library draws from NumPy's or Python's own generators is the same each time
    np.random.seed(seed)  # noqa: NPY002
    verdict = claimed.judge(inputs, neighbours, draws=DRAWS, time_limit=LIMIT, confidence=CONFIDENCE, seed=seed)
    print(f"{claimed.library} {claimed.name}\n{verdict}\n", file=sys.stderr)
    finding = "**does not hold**" if verdict.violated else "nothing found"
    power = "" if verdict.power is None or verdict.violated else f"{np.ceil(100 * verdict.power) / 100:g}"
    shown_by = (
        "" if not verdict.violated or verdict.pair is None else f"{' against '.join(verdict.pair)}: {verdict.event}"
    )
    if not verdict.epsilon_lower:  # a bare 0 says too little
        tried = f"no event of {verdict.pairs} pairs came surely more often from one input"
        shown_by = (
            f"{tried}; an output of probability {verdict.rarest:.1g} that the other never gives would have been seen"
        )
    return (
        f"| {claimed.name} | {words(claimed)} | {finding} | {verdict.epsilon_lower:.4g} | {power} | {verdict.draws:,} "
        f"| {verdict.seconds:.0f} | {shown_by.replace('|', '/')} |"
    )


def table_of_samples(library: str, seed: int) -> Iterator[str]:
    yield "| mechanism | claim | | epsilon at least | power | draws | seconds | shown by |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    cases = SAMPLED[library]()
    while True:
        try:
            case = next(cases)
        except StopIteration:
            return
        if case[1]:
            yield judge_case(case, seed)


def table_of_matrices() -> Iterator[str]:
    yield "| matrix | claim | | least epsilon, exactly | seconds |"
    yield "| --- | --- | --- | --- | --- |"
    for name, channel, distance, epsilon in of_libqif():
        start = time.perf_counter()
        measurement = adapters.least_of(np.asarray(channel), distance, epsilon)
        verdict = "holds" if measurement.holds else f"above by {measurement.epsilon - epsilon:.2g}"
        seconds = time.perf_counter() - start
        yield f"| `{name}` | epsilon {epsilon:g} | {verdict} | {measurement.epsilon:.17g} | {seconds:.1f} |"


def main() -> None:
    """Judge, and write the tables."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--only", nargs="*", default=[*SAMPLED, "qif"])
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--out", type=Path, help="file for the tables; default: standard output")
    arguments = options.parse_args()
    lines = [f"Python {platform.python_version()}, NumPy {np.__version__}; {DRAWS:,} draws, {LIMIT:g} s at most each, "]
    lines[0] += f"confidence {CONFIDENCE:g} each, seed {arguments.seed}."
    for library in arguments.only:
        try:
            rows = list(table_of_matrices() if library == "qif" else table_of_samples(library, arguments.seed))
            lines += ["", f"### {library} {adapters.version(library)}", "", *rows]
        except ImportError as error:
            lines += ["", f"### {library}", "", f"Not judged: it could not be imported here ({error})."]
    text = "\n".join(lines) + "\n"
    print(text) if arguments.out is None else arguments.out.write_text(text, "utf-8")


if __name__ == "__main__":
    main()
