"""One-sentence explanations of words in reports that readers may not know."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from privopt.interfaces.reporting import Section

__all__ = ["explain_words"]

MEANINGS: Final = {
    "attacker": "Whoever tries to learn a secret from what is published.",
    "budget": "The epsilon or rho that may be spent on one person in all.",
    "classifier": "A program that guesses from a picture, with a probability for each answer.",
    "epsilon": "How much what is published may depend on one secret: the smaller, the more private.",
    "ledger": "A file that counts the budget that each person has used.",
    "loss": "What errors cost, in the unit given: the smaller, the better.",
    "mechanism": "A way to make random answers or noisy numbers.",
    "noise": "Random amounts that are added so that no single person shows.",
    "odds": "How much likelier one thing is than another: 2 to 1 is 67 to 33 in 100.",
    "prior": "How common each place or value is, as the public knows it.",
    "release": "What is published: a table of probabilities or of noisy numbers, with its guarantee.",
    "report": "A random or noisy answer that is sent instead of the true one.",
    "rho": "Like epsilon, for noise that follows a bell curve: the smaller, the more private.",
}
"""The explained words, in alphabetical order. docs/reference/glossary.md explains the words used on all pages."""

_NO_TEXT: Final = re.compile(r"<(script|style)\b.*?</\1>|<[^>]*>", re.DOTALL)
"""Matches markup that readers do not see as text: scripts, style sheets and tags."""


def explain_words(texts: Iterable[str], sections: Iterable[Section]) -> dict[str, str]:
    """Return the words from :data:`MEANINGS` that occur on a page, with their meanings, sorted by word.

    >>> list(explain_words(["Reports add up."], []))
    ['report']

    Args:
        texts: The page's plain texts outside the sections.
        sections: The page's sections. Scripts and style sheets in their markup are not searched.
    """
    parts = list(texts)
    for section in sections:
        parts += [section.title, section.lead, *section.paragraphs, _NO_TEXT.sub(" ", str(section.html))]
    page_words = set(re.findall(r"[a-z]+", " ".join(parts).lower()))
    return {word: meaning for word, meaning in MEANINGS.items() if page_words & {word, f"{word}s", f"{word}es"}}
