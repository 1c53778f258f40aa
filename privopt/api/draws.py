"""Draw reports for one secret (``privopt sample``), in blocks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

from privopt.declare.name_forms import normal_form
from privopt.errors import UnknownNameError, UsageError
from privopt.interfaces import Release

Draw = Callable[[int], list[str]]
"""So many reports of one secret, which is not looked at before it is called."""
BLOCK_DRAWS: Final = 100_000
"""Draws that are held at once."""


def draw_of(name: str, release: Release, input_id: str) -> Draw:
    """Return the function that draws reports for a record.

    Args:
        name: of the mechanism, for messages.
        release: to draw from.
        input_id: the record's id; an unknown id raises :class:`UnknownNameError` when it is drawn for.
    """
    if type(release).sample is Release.sample:
        raise UsageError(f"{name} has no distribution to sample: its release is one published result")
    record = normal_form(input_id)

    def draw(count: int) -> list[str]:
        try:
            return release.sample(record, count)
        except UnknownNameError as error:  # a job's log keeps messages, and the record is the secret
            raise UnknownNameError(error.kind, error.name, error.known, is_secret=True) from None

    return draw


def in_blocks(draw: Draw, count: int) -> Iterator[list[str]]:
    """Yield ``count`` draws in blocks, the first drawn at once: an unknown secret is refused before any use."""
    first = draw(min(BLOCK_DRAWS, count))
    return chain([first], (draw(min(BLOCK_DRAWS, count - begun)) for begun in range(BLOCK_DRAWS, count, BLOCK_DRAWS)))
