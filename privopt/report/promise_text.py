"""The guarantee of a release in plain words: the claim, what was checked, and what was not."""

from __future__ import annotations

from privopt.interfaces import Result
from privopt.registry import registry
from privopt.specs import NOTHING


def claim(result: Result) -> str:
    """Return the promise in one sentence, in the words of its notion of privacy."""
    guarantee = result.guarantee
    if guarantee.seeded and guarantee.kind != NOTHING:
        return "This result is not private: its noise came from --seed, so anyone who knows the seed can remove it."
    words: str = registry().kind("notion", guarantee.kind).load().promise(result)
    return words


def limits(result: Result) -> tuple[list[str], list[str]]:
    """Return what was checked of the release, and what was not: a line each."""
    lines: tuple[list[str], list[str]] = registry().kind("notion", result.guarantee.kind).load().limits(result)
    return lines
