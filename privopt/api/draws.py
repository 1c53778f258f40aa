"""Draw reports for one secret (``privopt sample``), each charged to a subject first if a ledger is given.

As ``apply`` charges rows: whatever the secret is, even where no record is called so, and as many as the limit allows.
What tables and ledgers take is imported where it is needed: a draw for a record needs neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from typing import Final

from attrs import frozen

from privopt.errors import UsageError, cut, number_of
from privopt.interfaces import Progress, Release
from privopt.ledger.charge import Charge
from privopt.run.verify import OpenedFolder

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
    return lambda count: release.sample(input_id, count)


@frozen(kw_only=True)
class DrawnReports:
    """What is drawn, and was charged.

    Attributes:
        reports: ids of outputs, a block at a time, drawn as they are asked for.
        refused: how many draws the limit did not allow, in words; None where it allowed all.
        sequence: what holds of all reports of the subject.
    """

    reports: Iterator[list[str]]
    refused: str | None
    sequence: str


def in_blocks(draw: Draw, count: int) -> Iterator[list[str]]:
    """Yield ``count`` draws in blocks, the first drawn at once: an unknown secret is refused before any use."""
    first = draw(min(BLOCK_DRAWS, count))
    return chain([first], (draw(min(BLOCK_DRAWS, count - begun)) for begun in range(BLOCK_DRAWS, count, BLOCK_DRAWS)))


def sampled(
    draw: Draw, count: int, charge: Charge, opened: OpenedFolder, progress: Progress | None = None
) -> DrawnReports:
    """Charge draws to their subject, durably, and then draw.

    All are charged, or as many as the limit allows; which is not a function of the secret, for that is not looked at
    before.

    Args:
        draw: for the secret.
        charge: whom, and where.
        progress: called with what is being done.

    Raises:
        BudgetSpentError: the limit allows none; nothing was charged.
        UsageError: no name of a subject, a release that promises nothing, or a secret that is none: what was charged
            for it is said.
        InputError, DoesNotHoldError: a ledger that will not do.
    """
    from privopt.ledger.cost_of_report import cost_of, sequence_of
    from privopt.ledger.entries import sum_text
    from privopt.ledger.subject_names import subject_name

    subject = charge.subject or ""
    subject_name(subject)  # what is none is refused before a ledger is made
    cost = cost_of(opened.folder, opened.result, opened.relation, "sample")
    with charge.opened(progress) as ledger:
        if progress is not None:
            progress("charging", 0, None, None)
        granted = ledger.charge_times(subject, count, cost)
        if not granted:
            raise ledger.refusal(subject, cost)
        left, limit = ledger.account(subject, unit=cost.account).left_text, ledger.limit_of(cost.account)
    try:
        reports = in_blocks(draw, granted)
    except UsageError as error:
        raise UsageError(f"{error}; charged all the same: {number_of(granted, 'draw')}") from error
    refused = None
    if granted < count and left is not None:
        refused = (
            f"{count - granted:,} of {count:,} draws refused: budget spent: subject {cut(subject)} has "
            f"{left} left, each takes {sum_text(cost.amount)}"
        )
    return DrawnReports(reports=reports, refused=refused, sequence=sequence_of(cost, limit, "draw"))
