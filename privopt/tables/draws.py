"""Draws for one secret, by hand (``privopt sample``), each charged to a subject before it is drawn, where asked for.

As ``apply`` charges rows: whatever the secret is, even where no record is called so, and as many as the limit allows.
What tables and ledgers take is imported where it is needed: a draw for a record needs neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from attrs import field, frozen

from privopt.errors import UsageError, cut
from privopt.interfaces import Progress, Release

if TYPE_CHECKING:
    from privopt.interfaces import Result
    from privopt.run.ledger.ledger import Ledger
    from privopt.run.verify import Opened

__all__ = ["ChargeDraws", "Draw", "Sampled", "draw_at", "draw_of", "in_blocks", "sampled"]

Draw = Callable[[int], list[str]]
"""So many reports of one secret, which is not looked at before it is called."""
BLOCK: Final = 100_000
"""Draws that are held at once."""


def draw_of(name: str, release: Release, input_id: str) -> Draw:
    """Draws for a record.

    Args:
        name: of the mechanism, for messages.
        release: to draw from.
        input_id: the record's id; one that is none raises :class:`UnknownNameError` when it is drawn for.

    Raises:
        UsageError: this kind of release cannot be sampled.
    """
    if type(release).sample is Release.sample:
        raise UsageError(f"{name} has no distribution to sample: its release is one published result")
    return lambda count: release.sample(input_id, count)


def draw_at(
    opened: Opened, at: tuple[float, float], *, degrees: bool, note: Callable[[str], None] | None = None
) -> Draw:
    """Draws for a position: of the nearest record that the release has a row for, or at that very point.

    Args:
        opened: the release.
        at: latitude and longitude, or x and y in km; no such position raises :class:`UsageError` when it is drawn for.
        degrees: which of the two.
        note: called with each sentence that the position's owner should know, before the first draw is given.

    Raises:
        UsageError: these are no two numbers, the release has no matrix, or its records no such coordinates.
    """
    import narwhals as nw
    import numpy as np
    import polars as pl

    from privopt.exact.sample import draw_each
    from privopt.tables.apply import matrix_of
    from privopt.tables.protect import Protector
    from privopt.tables.secret import Secret
    from privopt.tables.snap import REASONS

    at = _pair(at, "at" if degrees else "xy")
    release, problem = matrix_of(opened)
    names = {"lat": "lat", "lon": "lon"} if degrees else {"x": "x", "y": "y"}
    secret = Secret.of(**names)
    protector = Protector.of(release, problem.data, secret)
    snap, strays = protector.snap, protector.strays
    unsaid = [note] if note is not None else []

    def draw(count: int) -> list[str]:
        frame = nw.from_native(pl.DataFrame([at], schema=list(names), orient="row"), eager_only=True)
        if snap.region is not None:  # each draw begins with the position
            frame = nw.concat([frame] * count)
        rows, reason = snap.rows(frame, secret, strays=strays)
        if reason[0] >= 0:
            raise UsageError(
                f"{at[0]:g},{at[1]:g}: found {REASONS[reason[0]]}, wanted {' and '.join(names)} of a record's row"
            )
        while unsaid:
            say = unsaid.pop()
            for sentence in protector.notes(opened.result.guarantee):
                say(sentence)
            if strays.rows:
                say(
                    f"the position lies {strays.farthest:,.0f} km from every record and is drawn for as the "
                    "nearest: are its numbers swapped? (this note is for its owner alone)"
                )
        drawn: list[str] = release.outputs[draw_each(release.weights, np.resize(rows, count))].tolist()
        return drawn

    return draw


def _named(subject: str) -> str:
    """A subject as a table's column would name it, so that it has one budget."""
    import narwhals as nw

    from privopt.run.ledger.names import Names
    from privopt.tables.secret import subjects_of

    Names().of(subject)  # refuses what is no text
    name: str | None = subjects_of(nw.new_series("subject", [subject], backend="polars"))[0]
    if name is None:
        raise UsageError(f"subject: found {cut(repr(subject))}, wanted whom the draws are about")
    return name


def _pair(position: object, name: str) -> tuple[float, float]:
    """Two numbers of a position.

    Raises:
        UsageError: something else.
    """
    import numpy as np

    try:
        first, second = map(float, np.asarray(position, dtype=np.float64))
    except (TypeError, ValueError):
        raise UsageError(f"{name}: found {position!r}, wanted two numbers") from None
    return first, second


@frozen(kw_only=True)
class ChargeDraws:
    """Where and whom to charge.

    Attributes:
        folder: of the release.
        ledger: open, or its file, made where there is none.
        subject: whom the draws are about; named as in a table.
        key: file with the key under which a ledger's file hashes subjects; None for names as they are.

    Raises:
        UsageError: nobody.
    """

    folder: Path
    ledger: Ledger | Path | str
    subject: str = field(converter=_named)
    key: Path | None = None


@frozen(kw_only=True)
class Sampled:
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
    """So many draws, a block at a time: the first at once, so that a secret that is none is known before any is used.

    Raises:
        UsageError: as ``draw`` does.
    """
    first = draw(min(BLOCK, count))
    return chain([first], (draw(min(BLOCK, count - begun)) for begun in range(BLOCK, count, BLOCK)))


def sampled(draw: Draw, count: int, charge: ChargeDraws, result: Result, progress: Progress | None = None) -> Sampled:
    """Charge draws to their subject, durably, and then draw.

    All are charged, or as many as the limit allows; which is no function of the secret, for that is not looked at
    before.

    Args:
        draw: for the secret.
        count: draws.
        charge: whom, and where.
        result: of the release.
        progress: called with what is being done.

    Raises:
        BudgetSpentError: the limit allows none; nothing was charged.
        UsageError: a release that promises nothing, or a secret that is none: what was charged for it is said.
        InputError, DoesNotHoldError: a ledger that will not do.
    """
    from privopt.declare.exact_text import exact_text
    from privopt.tables.charged import checked, cost_of, sequence_of

    cost, subject = cost_of(charge.folder, result, "sample"), charge.subject
    with checked(charge.ledger, key=charge.key, progress=progress) as ledger:
        if progress is not None:
            progress("charging", 0, None, None)
        granted = ledger.charge_times(subject, count, cost)
        if not granted:
            raise ledger.refusal(subject, cost)
        left, limit = ledger.account(subject).left, ledger.limit
    try:
        reports = in_blocks(draw, granted)
    except UsageError as error:
        raise UsageError(f"{error}; {granted:,} draws were charged all the same") from error
    refused = None
    if granted < count and left is not None:
        refused = (
            f"{count - granted:,} of {count:,} draws refused: budget spent: subject {cut(subject)} has "
            f"{exact_text(left)} left, each takes {exact_text(cost.epsilon)}"
        )
    return Sampled(reports=reports, refused=refused, sequence=sequence_of(cost, limit, "draw"))
