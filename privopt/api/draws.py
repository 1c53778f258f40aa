"""Draw reports about one secret (``privopt sample``), in blocks of bounded size.

A secret must not be used before the charge for its draw is on disk. Otherwise, the presence or absence of a charge
could reveal something about the secret. For this reason, an unknown id raises an error only when reports are drawn for
it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

from privopt.declare.name_forms import normal_form
from privopt.errors import UnknownNameError, UsageError
from privopt.interfaces import Release

Draw = Callable[[int], list[str]]
"""A function that draws a given number of reports about one secret. It reads the secret only when it is called."""
BLOCK_DRAWS: Final = 100_000
"""Maximum number of draws to hold in memory at a time."""


def draw_of(name: str, release: Release, input_id: str) -> Draw:
    """Return a function that draws reports for a record.

    Args:
        name: The mechanism's name, for error messages.
        release: The release to draw from.
        input_id: The record's id. If it is unknown, :class:`UnknownNameError` is raised only when reports are drawn.

    Raises:
        UsageError: The release cannot be sampled.
    """
    # Only the class is examined, because an attempt to draw would read the secret.
    if type(release).sample is Release.sample:
        raise UsageError(f"{name} has no distribution to sample: its release is one published result")
    record = normal_form(input_id)

    def draw(count: int) -> list[str]:
        """Draw ``count`` reports for the record. Error messages do not name the record, because it is secret."""
        try:
            return release.sample(record, count)
        except UnknownNameError as error:
            # The message must not name the record, which is the secret, because logs keep messages.
            raise UnknownNameError(error.kind, error.name, error.known, is_secret=True) from None

    return draw


def in_blocks(draw: Draw, count: int) -> Iterator[list[str]]:
    """Return an iterator that draws ``count`` reports in blocks of at most :data:`BLOCK_DRAWS`, to limit memory use.

    The first block is drawn before this function returns, so that an unknown secret raises an error before the caller
    starts to write reports.
    """
    first = draw(min(BLOCK_DRAWS, count))
    # A generator function would draw the first block only when the caller asks for it.
    return chain([first], (draw(min(BLOCK_DRAWS, count - start)) for start in range(BLOCK_DRAWS, count, BLOCK_DRAWS)))
