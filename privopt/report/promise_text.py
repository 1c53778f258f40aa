"""A release's guarantee in plain words: what it claims, which parts of the claim were checked, and which were not."""

from __future__ import annotations

from privopt.interfaces import Result
from privopt.registry import registry
from privopt.specs import NOTHING


def claim(result: Result) -> str:
    """Return a release's guarantee as a sentence in the words of its privacy notion.

    If the release's noise came from a seed, the sentence says that the release is not private.
    """
    guarantee = result.guarantee
    # A notion's promise assumes fresh noise. It would be false for noise that anyone who has the seed can draw again.
    if guarantee.seeded and guarantee.kind != NOTHING:
        return "This result is not private: its noise came from --seed, so anyone who knows the seed can remove it."
    sentence: str = registry().kind("notion", guarantee.kind).load().promise(result)
    return sentence


def trust(result: Result) -> str:
    """Return a sentence that says who must be trusted, or an empty string if the privacy notion does not say."""
    sentence: str = registry().kind("notion", result.guarantee.kind).load().trust(result)
    return sentence


def exposed_to(result: Result) -> str:
    """Return a phrase naming the parties against whom the guarantee does not hold, or "" if there are none."""
    observer: str = registry().kind("notion", result.guarantee.kind).load().exposed_to(result)
    return observer


def limits(result: Result) -> tuple[list[str], list[str]]:
    """Return two lists of one-line descriptions: what was checked about the guarantee, and what was not."""
    lines: tuple[list[str], list[str]] = registry().kind("notion", result.guarantee.kind).load().limits(result)
    return lines
