"""Conformance profiles of the classic mechanisms, which generate small problems and neighbouring inputs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from random import Random
from typing import Any

from hypothesis import strategies as st

from privopt.testing import GeneratedProblem, Profile, Variant, csv_bytes, to_toml
from privopt_classics.choices import ChoiceMechanism, Choices
from privopt_classics.noisy_max import NoisyMax
from privopt_classics.permute_and_flip import PermuteAndFlip

EPSILONS = st.sampled_from([1.0, 0.5, 3.0, 0.01, 12.0])


def _halve_epsilon(problem: GeneratedProblem) -> GeneratedProblem:
    """Return a copy of the problem with half the epsilon."""
    return problem.with_key("privacy.epsilon", problem.get("privacy.epsilon") / 2)


def _make_question(count: int, epsilon: float) -> GeneratedProblem:
    """Return a problem that asks a question with ``count`` possible answers."""
    answers = [f"answer {number}" for number in range(count)]
    return GeneratedProblem(toml=to_toml({"answers": answers, "privacy": {"epsilon": epsilon}}))


SKIPPED = {
    "oracle": "any report may be drawn; the check channel compares each probability with epsilon",
    "relabelling": "secrets are identified only by their positions",
    "reordering": "positions have no meaning of their own",
    "units": "there is no unit",
}

# In a profile without `alike`, the kit treats every two answers as neighbours at distance 1.
QUESTIONS = Profile(
    problems=st.builds(_make_question, st.integers(2, 5), EPSILONS), stricter=_halve_epsilon, skip=SKIPPED
)


def _make_numbers(sizes: dict[str, int], epsilon: float) -> GeneratedProblem:
    """Return a problem whose secret is a number.

    Args:
        sizes: The integer keys of the problem file and their values, such as ``{"largest": 5}``.
        epsilon: The budget per person.
    """
    return GeneratedProblem(toml=to_toml({**sizes, "privacy": {"epsilon": epsilon}}))


def _alike_numbers(problem: Any) -> Iterator[tuple[str, str, float]]:
    """Yield every pair of numbers from 0 to ``largest``, formatted as strings, with the distance between them.

    The distance is the minimum number of people needed to change one number into the other.
    """
    change = getattr(problem, "sensitivity", 1)
    for number in range(problem.largest + 1):
        for smaller in range(number):
            # The difference divided by what one person can change, rounded up.
            yield str(smaller), str(number), float(-(-(number - smaller) // change))


COUNTS = Profile(
    problems=st.builds(lambda n, epsilon: _make_numbers({"largest": n}, epsilon), st.integers(1, 6), EPSILONS),
    alike=_alike_numbers,
    stricter=_halve_epsilon,
    skip=SKIPPED,
)

SUMS = Profile(
    problems=st.builds(
        lambda n, change, epsilon: _make_numbers({"largest": n, "sensitivity": change}, epsilon),
        st.integers(1, 8),
        st.integers(1, 4),
        EPSILONS,
    ),
    alike=_alike_numbers,
    stricter=_halve_epsilon,
    skip=SKIPPED,
)

NUMBERS = Profile(
    problems=st.builds(lambda n, epsilon: _make_numbers({"steps": n}, epsilon), st.integers(1, 8), EPSILONS),
    stricter=_halve_epsilon,
    skip=SKIPPED,
)


def _make_choices(scores: Sequence[int], epsilon: float, monotone: bool) -> GeneratedProblem:
    """Return a problem with one choice per score. The choices are named "choice 0", "choice 1" and so on."""
    names = [f"choice {number}" for number in range(len(scores))]
    return _with_rows(names, list(zip(names, scores, strict=True)), epsilon, monotone)


def _with_rows(
    names: Sequence[str], rows: Sequence[tuple[str, int]], epsilon: float, monotone: bool
) -> GeneratedProblem:
    """Return a problem with the given choices and a score file with the given rows.

    Args:
        names: The choices in their public order.
        rows: The (choice, score) rows of the score file.
        epsilon: The budget per person.
        monotone: Whether all scores changed by one person move in the same direction.
    """
    keys = {"choices": names, "scores": "scores.csv", "monotone": monotone, "privacy": {"epsilon": epsilon}}
    return GeneratedProblem(
        toml=to_toml(keys),
        files={"scores.csv": csv_bytes(["choice", "score"], rows)},
        # Byte strings that no published file may contain. Smaller scores are left out, because their digits could occur
        # by chance.
        secrets=[str(score).encode() for _, score in rows if score > 10**6],
        facts={"names": names, "rows": rows, "monotone": monotone},
    )


def _neighbouring_scores(problem: GeneratedProblem) -> Iterator[GeneratedProblem]:
    """Yield every problem that differs from the given one in at least one score, and in each score by at most 1.

    If scores are monotone, all changed scores move in the same direction.
    """
    names, rows, monotone = (problem.facts[name] for name in ("names", "rows", "monotone"))
    for changes in product((0, 1, -1), repeat=len(rows)):
        if any(changes) and not (monotone and {1, -1} <= set(changes)):
            changed_rows = [(name, score + change) for (name, score), change in zip(rows, changes, strict=True)]
            yield _with_rows(names, changed_rows, problem.get("privacy.epsilon"), monotone)


def _reorder_rows(problem: GeneratedProblem, chance: Random) -> Variant:
    """Return a variant of the problem in which the rows of the score file are shuffled."""
    names, rows, monotone = (problem.facts[name] for name in ("names", "rows", "monotone"))
    shuffled_rows = chance.sample(rows, len(rows))
    reordered = _with_rows(names, shuffled_rows, problem.get("privacy.epsilon"), monotone)
    return Variant(problem=reordered, change="the rows were put in another order")


def make_choice_profile(mechanism: type[ChoiceMechanism], **skip: str) -> Profile:
    """Return the conformance profile of a mechanism that publishes a choice.

    Args:
        mechanism: The mechanism. The kit compares its draws with the distribution returned by ``chances``.
        skip: Further checks to skip. Each key is a check's name with underscores instead of hyphens, and each value the
            reason for skipping it.
    """

    def probabilities(problem: Choices, method: str) -> list[float]:
        """Return the probability of being published for each of the problem's choices."""
        return mechanism.chances(problem.read_scores(), problem.rate)

    return Profile(
        problems=st.builds(
            _make_choices,
            st.lists(st.integers(-3, 5) | st.integers(40, 200) | st.just(1_000_003), min_size=2, max_size=3),
            st.sampled_from([1.0, 0.5, 2.0, 20.0]),
            st.booleans(),
        ),
        neighbours=_neighbouring_scores,
        probabilities=probabilities,
        observed=lambda release: int(release.choice.split()[1]),  # choices are named "choice 0", "choice 1", ...
        variants={"reordering": _reorder_rows},
        skip={
            "verify-catches": "any choice may be what was drawn",
            "oracle": "any choice may be right; exact-epsilon compares `probabilities` with epsilon",
            "relabelling": "choices are public, and identified only by their positions",
            "units": "scores have no other unit",
            **{name.replace("_", "-"): reason for name, reason in skip.items()},
        },
    )


PERMUTE_AND_FLIP = make_choice_profile(
    PermuteAndFlip, own_scale="coins are flipped; no noise is added whose scale could be changed"
)
NOISY_MAX = make_choice_profile(NoisyMax)
