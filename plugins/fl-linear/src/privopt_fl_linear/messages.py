"""Messages from locations (one line of JSON each), and the table that the server builds from them.

A message contains only the noisy count and the parameters that the server needs to interpret it::

    {"format": "privopt-fl-linear/1", "location": "v7", "round": "2026-11", "epsilon": "0.1", "noise": "discrete",
     "noisy_clients": 57}

A round is one collection of reports. A location that is asked twice in a round repeats its message, because the mean of
two independent draws would reveal more than a single draw and so spend epsilon again.
"""

from __future__ import annotations

import io
import json
import math
import re
from collections.abc import Iterator, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from pathlib import Path
from typing import Final, Literal

import numpy as np
from attrs import field, frozen

from privopt.declare import File
from privopt.declare.frames import text_of
from privopt.declare.tables import Column, check_column, duplicate_faults, is_parquet, table_of
from privopt.errors import Fault, Faults, InputError, cut, reason_of
from privopt.files.durable_log import DurableLog
from privopt_fl_linear.location import MOST_NOISY, noisy_counts
from privopt_fl_linear.privacy import LocalLaplace
from privopt_fl_linear.quantiles import Noise

__all__ = [
    "FORMAT",
    "Message",
    "collect_reports",
    "draw_report",
    "format_epsilon",
    "parse_epsilon",
    "read_messages",
    "repeat_or_draw",
]

FORMAT: Final = "privopt-fl-linear/1"
APPLICATION_ID: Final = 0x666C6D31
"""The SQLite application id (the bytes "flm1") of files that store sent messages."""


def _strip_blanks(text: str) -> str:
    """Return a string with leading and trailing whitespace removed."""
    return text.strip()


@frozen(kw_only=True)
class Message:
    """One location's report in one round.

    >>> sent = Message(location="a", round="1", epsilon=Fraction(1, 10), noise="discrete", noisy=4)
    >>> Message.from_line(sent.to_line()).noisy
    4

    Attributes:
        location: The location's id, without surrounding whitespace.
        round: The name of the round, without surrounding whitespace.
        epsilon: The privacy budget for one client at this location in this round.
        noise: The kind of noise that was added.
        noisy: The noisy count, which is an integer if the noise is discrete.
    """

    location: str = field(converter=_strip_blanks)
    round: str = field(converter=_strip_blanks)
    epsilon: Fraction
    noise: Noise
    noisy: int | float

    def to_line(self) -> str:
        """Serialise the message as one line of JSON, which :meth:`from_line` can parse."""
        return json.dumps(
            {
                "format": FORMAT,
                "location": self.location,
                "round": self.round,
                "epsilon": format_epsilon(self.epsilon),
                "noise": self.noise,
                "noisy_clients": self.noisy,
            },
            ensure_ascii=False,
        )

    @classmethod
    def from_line(cls, line: str) -> Message:
        """Parse a message from a line of JSON and check all of its fields.

        Raises:
            ValueError: The line is not a valid message. The error message gives the reason.
        """
        fields = json.loads(line)
        names = {"format", "location", "round", "epsilon", "noise", "noisy_clients"}
        if not isinstance(fields, dict) or set(fields) != names or fields["format"] != FORMAT:
            raise ValueError(f"not a message of the format {FORMAT}")
        texts = [fields[name] for name in ("location", "round", "epsilon")]
        if not all(isinstance(text, str) and text.isprintable() and text.strip() for text in texts):
            raise ValueError("location, round and epsilon must be texts of one line each")
        epsilon, noise, noisy = parse_epsilon(fields["epsilon"]), fields["noise"], fields["noisy_clients"]
        if noise not in ("discrete", "continuous"):
            raise ValueError("noise is neither discrete nor continuous")
        # Booleans are excluded because Python, unlike JSON, considers True and False to be integers.
        is_whole = isinstance(noisy, int) and not isinstance(noisy, bool)
        if not (is_whole or (noise == "continuous" and isinstance(noisy, float) and math.isfinite(noisy))):
            raise ValueError("noisy_clients must be a number, a whole one with discrete noise")
        if abs(noisy) > MOST_NOISY:
            raise ValueError(f"noisy_clients is not between -{MOST_NOISY:g} and {MOST_NOISY:g}")
        return cls(location=texts[0], round=texts[1], epsilon=epsilon, noise=noise, noisy=noisy)


def parse_epsilon(text: str) -> Fraction:
    """Convert a decimal representation of epsilon to an exact fraction.

    Raises:
        ValueError: ``text`` is not a decimal number between 1e-10 and 1e6.
    """
    if not re.fullmatch(r"\d{1,7}(\.\d{1,20})?", text, re.ASCII):
        raise ValueError(f"epsilon must be a decimal like 0.1, got {cut(text)}")
    epsilon = Fraction(text)
    if not Fraction(1, 10**10) <= epsilon <= 10**6:
        raise ValueError(f"epsilon {cut(text)} is not between 1e-10 and 1e6")
    return epsilon


def format_epsilon(epsilon: Fraction) -> str:
    """Format an epsilon returned by :func:`parse_epsilon` as a decimal number.

    >>> format_epsilon(Fraction(1, 10)), format_epsilon(Fraction(2))
    ('0.1', '2')
    """
    # parse_epsilon accepts at most 27 digits, so 60 digits suffice for the exact decimal.
    quotient = Context(prec=60).divide(Decimal(epsilon.numerator), Decimal(epsilon.denominator))
    return format(quotient, "f")


def draw_report(location: str, clients: int, epsilon: Fraction, round_: str, noise: Noise = "discrete") -> Message:
    """Draw a location's report, using the operating system's entropy.

    This is the only part of the mechanism that runs at a location.

    Args:
        location: The location's id, which is public.
        clients: The location's number of clients, which is secret.
        epsilon: The privacy budget for one client in this round.
        round_: The name of the round.
        noise: The kind of Laplace noise. Its scale is 1 / epsilon.
    """
    noisy_count = noisy_counts(np.array([clients], dtype=np.int64), epsilon, noise=noise)[0][0]
    noisy = int(noisy_count) if noise == "discrete" else float(noisy_count)
    return Message(location=location, round=round_, epsilon=epsilon, noise=noise, noisy=noisy)


def repeat_or_draw(
    sent_file: Path,
    location: str,
    clients: int,
    epsilon: Fraction,
    round_: str,
    noise: Noise = "discrete",
    *,
    ledger: Path | None = None,
) -> tuple[Message, bool]:
    """Return the message that a location already sent in a round, or draw and store a new one.

    Args:
        sent_file: The file of the location's sent messages (a :class:`privopt.files.durable_log.DurableLog`), to which
            a new message is written before it is returned. A missing file is created. A missing folder is an error,
            because a misspelt path would otherwise cause a second message to be drawn.
        location: The location's id, which is public.
        clients: The location's number of clients, which is secret. It is not used if this round's message was already
            sent.
        epsilon: The privacy budget for one client in this round.
        round_: The name of the round.
        noise: The kind of Laplace noise. Its scale is 1 / epsilon.
        ledger: The ledger file to charge before a new message is drawn, or None to charge no ledger.

    Returns:
        The message, and whether it is new.

    Raises:
        InputError: The file is not a file of sent messages, or the message already sent in this round has a different
            epsilon or kind of noise.
        BudgetSpentError: The location's remaining budget is too small. Nothing was drawn.
        UsageError: A file cannot be opened. Nothing was drawn.
    """
    location, round_ = location.strip(), round_.strip()
    # `adding` locks the file, so that two concurrent processes cannot both draw a message for the same round.
    with DurableLog(sent_file, name="file of messages sent", mark=APPLICATION_ID) as log, log.adding():
        sent = {(message.location, message.round): message for message in map(Message.from_line, log.texts())}
        message = sent.get((location, round_))
        # A second message with other parameters would spend epsilon twice.
        if message is not None and (message.epsilon, message.noise) != (epsilon, noise):
            actual = f"epsilon {message.epsilon} and {message.noise} noise in round {cut(round_)}"
            raise InputError([Fault(sent_file.name, "", actual, f"epsilon {epsilon} and {noise} noise")])
        if message is not None:
            return message, False
        # The ledger is charged first. If the process is killed before the message is stored, the ledger overstates what
        # was revealed, but never understates it.
        if ledger is not None:
            from privopt import Cost, Ledger

            promise = LocalLaplace(epsilon=epsilon, locations=1, noise=noise).guarantee
            cost = Cost(epsilon=epsilon, unit=promise.unit, notion=promise.kind, purpose=f"round {round_}")
            with Ledger(ledger) as book:
                book.charge(location, cost)
        message = draw_report(location, clients, epsilon, round_, noise)
        # The message is stored before anyone sees it. Otherwise a lost message would be drawn again with different
        # noise.
        log.add(message.to_line())
    return message, True


def _parse_file(path: Path, faults: Faults) -> Iterator[Message]:
    """Yield the messages in a file, and record a fault in ``faults`` for each line that is not a message.

    A fault gives the line's number but does not quote the line, because a file passed by mistake may contain true
    counts.
    """
    try:
        file = File.read(path)
        # Instead of the printed lines, users may pass the file of sent messages (option --kept), an SQLite database.
        if file.contents.startswith(b"SQLite format 3"):
            expectation = "the lines that report printed, in a text file"
            faults.add(path.name, "", "a file of messages sent (--kept)", expectation)
            return
        lines = text_of(file).decode().splitlines()
    except InputError as error:  # the faults of all files are reported together
        faults.extend(error.faults, len(error.faults))
        return
    for number, line in enumerate(lines, start=1):
        try:
            if line.strip():
                yield Message.from_line(line)
        # Deeply nested JSON raises RecursionError.
        except (ValueError, ZeroDivisionError, RecursionError) as error:
            faults.add(
                path.name,
                f"line {number}",
                f"text that is not a message ({reason_of(error)})",
                "a message of a location",
            )


def read_messages(paths: Sequence[Path]) -> list[Message]:
    """Read the messages of a round from files with one message per line.

    A message that occurs several times is returned only once.

    Raises:
        InputError: A line is not a message, the messages differ in round, epsilon or kind of noise, or there are two
            different messages from the same location.
    """
    messages: dict[str, Message] = {}
    faults = Faults()
    first_message: Message | None = None
    for path in paths:
        for message in _parse_file(path, faults):
            first_message = first_message or message
            # Messages must agree in these, because a plan's margins are valid only for counts with the same epsilon and
            # kind of noise.
            where, common_keys = f"location {message.location}", ("round", "epsilon", "noise")
            if any(getattr(message, key) != getattr(first_message, key) for key in common_keys):
                descriptions = [
                    ", ".join(f"{key} {getattr(entry, key)}" for key in common_keys)
                    for entry in (message, first_message)
                ]
                faults.add(path.name, where, descriptions[0], f"{descriptions[1]}, as the first")
            elif messages.setdefault(message.location, message) != message:
                faults.add(path.name, where, "two reports that differ", "one report")
    faults.check()
    return list(messages.values())


def collect_reports(
    sites: Path, messages: Sequence[Message], *, missing: Literal["refuse", "leave out"] = "refuse"
) -> tuple[bytes, list[str]]:
    """Return the contents of the server's locations file, which adds the reported counts to the public columns.

    Args:
        sites: A CSV file with a column ``id`` and the other public columns of a locations file, but no counts.
        messages: The messages of one round.
        missing: Whether sites without a message are an error (``"refuse"``) or are omitted (``"leave out"``).

    Returns:
        The contents of the CSV file with the added column ``noisy_clients``, and the ids of the sites without a
        message.

    Raises:
        InputError: The table cannot be read or contains counts, an id is missing or occurs twice, a message does not
            belong to any site, no site has a message, or ``missing`` is ``"refuse"`` and a site has no message.
    """
    import polars as pl

    file, faults = File.read(sites), Faults()
    table = table_of(file)  # all columns as text, to keep numbers as they were written
    if is_parquet(file):
        raise InputError([Fault(sites.name, "", "a Parquet file", "a CSV table")])
    table = table.with_columns(pl.all().str.strip_chars())
    if "id" not in table.columns or {"clients", "noisy_clients"} & set(table.columns):
        raise InputError([Fault(sites.name, "header", ",".join(table.columns), "a column id, and none of counts")])
    sent = {message.location: message.noisy for message in messages}
    # All faults are collected first, so that they are reported together.
    ids = check_column(sites.name, table["id"], Column(name="id", kind="id"), faults).to_list()
    # All faults are counted, although only some are shown.
    faults.extend(repeated := duplicate_faults(sites.name, np.array(ids)), len(repeated))
    # Empty ids have already been added to the faults.
    silent, known_ids = [name for name in ids if name and name not in sent], set(ids)
    for name in sent:
        if name not in known_ids:
            faults.add(sites.name, "column id", "no such id", f"{cut(name)}, which sent a report")
    if silent and missing == "refuse":
        silent_text = ", ".join(map(cut, silent[:5])) + (f" and {len(silent) - 5} more" if silent[5:] else "")
        faults.add(sites.name, "column id", f"no report of {silent_text}", "a report of each")
    elif not sent:
        faults.add(sites.name, "", "no reports", "a report of some site")
    faults.check()
    table = table.filter(pl.col("id").is_in([*sent]))
    counts = [str(sent[name]) for name in table["id"].to_list()]
    buffer = io.BytesIO()
    table.with_columns(pl.Series("noisy_clients", counts)).write_csv(buffer)
    return buffer.getvalue(), silent
