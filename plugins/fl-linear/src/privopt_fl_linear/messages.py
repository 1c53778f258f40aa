"""Messages: a location's report as one line of JSON, and the server's problem from many of them.

A message holds the noisy count and what the server must know to use it, and nothing else::

    {"format": "privopt-fl-linear/1", "location": "v7", "round": "2026-11", "epsilon": "0.1", "noise": "discrete",
     "noisy_clients": 57}

A round is one collection. A location that is asked twice in a round sends the same message again: a second draw would
spend a second epsilon, and the mean of both would reveal more.
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

__all__ = ["FORMAT", "Message", "budget", "collect_reports", "decimal", "read_messages", "repeat_or_draw", "report"]

FORMAT: Final = "privopt-fl-linear/1"
APPLICATION_ID: Final = 0x666C6D31
"""SQLite's application id of a file of messages sent: "flm1"."""


def _stripped(text: str) -> str:
    return text.strip()


@frozen(kw_only=True)
class Message:
    """One location's report in one round.

    >>> sent = Message(location="a", round="1", epsilon=Fraction(1, 10), noise="discrete", noisy=4)
    >>> Message.from_line(sent.line()).noisy
    4

    Attributes:
        location: its id, without blanks around it.
        round: name of the collection, likewise.
        epsilon: budget of one client at this location, in this round.
        noise: what was added.
        noisy: the noisy count; whole with discrete noise.
    """

    location: str = field(converter=_stripped)
    round: str = field(converter=_stripped)
    epsilon: Fraction
    noise: Noise
    noisy: int | float

    def line(self) -> str:
        """Return the message as it is sent."""
        return json.dumps(
            {
                "format": FORMAT,
                "location": self.location,
                "round": self.round,
                "epsilon": decimal(self.epsilon),
                "noise": self.noise,
                "noisy_clients": self.noisy,
            },
            ensure_ascii=False,
        )

    @classmethod
    def from_line(cls, line: str) -> Message:
        """Read a message.

        Raises:
            ValueError: it is none; says what is wrong.
        """
        found = json.loads(line)
        wanted = {"format", "location", "round", "epsilon", "noise", "noisy_clients"}
        if not isinstance(found, dict) or set(found) != wanted or found["format"] != FORMAT:
            raise ValueError(f"no message of the format {FORMAT}")
        texts = [found[name] for name in ("location", "round", "epsilon")]
        if not all(isinstance(text, str) and text.isprintable() and text.strip() for text in texts):
            raise ValueError("location, round and epsilon must be texts of one line each")
        epsilon, noise, noisy = budget(found["epsilon"]), found["noise"], found["noisy_clients"]
        if noise not in ("discrete", "continuous"):
            raise ValueError("noise is neither discrete nor continuous")
        whole = isinstance(noisy, int) and not isinstance(noisy, bool)
        if not (whole or (noise == "continuous" and isinstance(noisy, float) and math.isfinite(noisy))):
            raise ValueError("noisy_clients must be a number, a whole one with discrete noise")
        if abs(noisy) > MOST_NOISY:
            raise ValueError(f"noisy_clients is not between -{MOST_NOISY:g} and {MOST_NOISY:g}")
        return cls(location=texts[0], round=texts[1], epsilon=epsilon, noise=noise, noisy=noisy)


def budget(text: str) -> Fraction:
    """Return an epsilon from its decimal.

    Raises:
        ValueError: it is none, or outside of 1e-10 to 1e6.
    """
    if not re.fullmatch(r"\d{1,7}(\.\d{1,20})?", text, re.ASCII):
        raise ValueError(f"epsilon must be a decimal like 0.1, got {cut(text)}")
    epsilon = Fraction(text)
    if not Fraction(1, 10**10) <= epsilon <= 10**6:
        raise ValueError(f"epsilon {cut(text)} is not between 1e-10 and 1e6")
    return epsilon


def decimal(epsilon: Fraction) -> str:
    """Return the decimal of an epsilon that :func:`budget` read.

    >>> decimal(Fraction(1, 10)), decimal(Fraction(2))
    ('0.1', '2')
    """
    quotient = Context(prec=60).divide(Decimal(epsilon.numerator), Decimal(epsilon.denominator))
    return format(quotient, "f")


def report(location: str, clients: int, epsilon: Fraction, round_: str, noise: Noise = "discrete") -> Message:
    """Draw a location's report from the operating system's entropy: all that its side runs.

    Args:
        location: its id, public.
        clients: how many it has, secret.
        epsilon: budget of one client, in this round.
        round_: name of the collection.
        noise: discrete or continuous Laplace noise of scale 1 / epsilon.
    """
    drawn = noisy_counts(np.array([clients], dtype=np.int64), epsilon, noise=noise)[0][0]
    noisy = int(drawn) if noise == "discrete" else float(drawn)
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
    """Return the message of a round: the one that was sent before, or a new one, kept on the disk before it returns.

    Args:
        sent_file: the location's messages sent (:class:`privopt.files.durable_log.DurableLog`); made if missing, but
            not its folder, for one that is misspelt would draw again.
        location, clients, epsilon, round_, noise: as `report` takes them; ``clients`` is not read for a message sent.
        ledger: charged before a message is drawn.

    Returns:
        The message, and whether it was drawn now.

    Raises:
        InputError: the file is not such a file, or the round's message had another epsilon or noise.
        BudgetSpentError: the location has not enough left; nothing was drawn.
        UsageError: a file cannot be opened; nothing was drawn.
    """
    location, round_ = location.strip(), round_.strip()
    with DurableLog(sent_file, name="file of messages sent", mark=APPLICATION_ID) as log, log.adding():
        sent = {(message.location, message.round): message for message in map(Message.from_line, log.texts())}
        message = sent.get((location, round_))
        if message is not None and (message.epsilon, message.noise) != (epsilon, noise):
            found = f"epsilon {message.epsilon} and {message.noise} noise in round {cut(round_)}"
            raise InputError([Fault(sent_file.name, "", found, f"epsilon {epsilon} and {noise} noise")])
        if message is not None:
            return message, False
        if ledger is not None:
            from privopt import Cost, Ledger

            promise = LocalLaplace(epsilon=epsilon, locations=1, noise=noise).guarantee
            cost = Cost(epsilon=epsilon, unit=promise.unit, notion=promise.kind, purpose=f"round {round_}")
            with Ledger(ledger) as book:
                book.charge(location, cost)
        message = report(location, clients, epsilon, round_, noise)
        log.add(message.line())
    return message, True


def _parse(path: Path, faults: Faults) -> Iterator[Message]:
    """Read the messages of a file; a line that is none is named and not quoted: the file may hold true counts."""
    try:
        file = File.read(path)
        if file.contents.startswith(b"SQLite format 3"):
            wanted = "the lines that report printed, in a text file"
            faults.add(path.name, "", "a file of messages sent (--kept)", wanted)
            return
        lines = text_of(file).decode().splitlines()
    except InputError as error:  # what is wrong with each file is told, not with the first alone
        faults.extend(error.faults, len(error.faults))
        return
    for number, line in enumerate(lines, start=1):
        try:
            if line.strip():
                yield Message.from_line(line)
        except (ValueError, ZeroDivisionError, RecursionError) as error:
            faults.add(path.name, f"line {number}", f"no message ({reason_of(error)})", "a message of a location")


def read_messages(paths: Sequence[Path]) -> list[Message]:
    """Read the messages of files, a line each.

    Raises:
        InputError: every line that is not a message; or they are of several rounds, epsilons or kinds of noise, or a
            location has two that differ (the same message twice counts once).
    """
    found: dict[str, Message] = {}
    faults = Faults()
    first: Message | None = None
    for path in paths:
        for message in _parse(path, faults):
            first = first or message
            where, same = f"location {message.location}", ("round", "epsilon", "noise")
            if any(getattr(message, key) != getattr(first, key) for key in same):
                shown = [", ".join(f"{key} {getattr(each, key)}" for key in same) for each in (message, first)]
                faults.add(path.name, where, shown[0], f"{shown[1]}, as the first")
            elif found.setdefault(message.location, message) != message:
                faults.add(path.name, where, "two reports that differ", "one report")
    faults.check()
    return list(found.values())


def collect_reports(
    sites: Path, messages: Sequence[Message], *, missing: Literal["refuse", "leave out"] = "refuse"
) -> tuple[bytes, list[str]]:
    """Return the locations file of the server's side: public columns, and what each location sent.

    Args:
        sites: CSV with a column ``id`` and the public columns of a locations file, without counts.
        messages: of one round.
        missing: what becomes of sites that sent nothing.

    Returns:
        The CSV with a column ``noisy_clients``, and the ids omitted.

    Raises:
        InputError: no such table, columns of counts in it, messages of other locations, sites without one.
    """
    import polars as pl

    file, faults = File.read(sites), Faults()
    table = table_of(file)  # every column as text: numbers stay as they are written
    if is_parquet(file):
        raise InputError([Fault(sites.name, "", "a Parquet file", "a CSV table")])
    table = table.with_columns(pl.all().str.strip_chars())
    if "id" not in table.columns or {"clients", "noisy_clients"} & set(table.columns):
        raise InputError([Fault(sites.name, "header", ",".join(table.columns), "a column id, and none of counts")])
    sent = {message.location: message.noisy for message in messages}
    ids = check_column(sites.name, table["id"], Column(name="id", kind="id"), faults).to_list()
    faults.extend(again := duplicate_faults(sites.name, np.array(ids)), len(again))
    silent, known = [name for name in ids if name and name not in sent], set(ids)
    for name in sent:
        if name not in known:
            faults.add(sites.name, "column id", "no such id", f"{cut(name)}, which sent a report")
    if silent and missing == "refuse":
        shown = ", ".join(map(cut, silent[:5])) + (f" and {len(silent) - 5} more" if silent[5:] else "")
        faults.add(sites.name, "column id", f"no report of {shown}", "a report of each")
    elif not sent:
        faults.add(sites.name, "", "no reports", "a report of some site")
    faults.check()
    table = table.filter(pl.col("id").is_in([*sent]))
    counts = [str(sent[name]) for name in table["id"].to_list()]
    out = io.BytesIO()
    table.with_columns(pl.Series("noisy_clients", counts)).write_csv(out)
    return out.getvalue(), silent
