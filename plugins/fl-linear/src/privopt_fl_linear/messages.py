"""What a location sends, as text: one line of JSON, and what the server makes of many of them.

A message holds the noisy count and what the server must know to use it, and nothing else::

    {"format": "privopt-fl-linear/1", "location": "v7", "round": "2026-11", "epsilon": "0.1", "noise": "discrete",
     "noisy_clients": 57}

A round is one collection. A location that is asked twice in a round sends the same message again: a second draw would
spend a second epsilon, and the mean of both tells more.
"""

from __future__ import annotations

import fcntl
import io
import json
import math
import os
import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import BinaryIO, Final, Literal

import numpy as np
from attrs import field, frozen

from privopt.declare import File
from privopt.declare.tables import is_parquet, table_of
from privopt.errors import Fault, InputError, UsageError, cut, reason_of
from privopt_fl_linear.location import MOST_NOISY, noisy_counts
from privopt_fl_linear.privacy import LocalLaplace
from privopt_fl_linear.quantiles import Noise

__all__ = ["FORMAT", "Message", "budget", "collected", "decimal", "kept_or_drawn", "read_messages", "report"]

FORMAT: Final = "privopt-fl-linear/1"
BEGIN: Final = json.dumps({"format": FORMAT})[:-1].encode() + b","
"""What every line that was written here begins with."""
MOST_FAULTS: Final = 20


def _stripped(text: str) -> str:
    return text.strip()


@frozen(kw_only=True)
class Message:
    """One location's report in one round.

    >>> Message.read(Message(location="a", round="1", epsilon=Fraction(1, 10), noise="discrete", noisy=4).line()).noisy
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
        """The message as it is sent."""
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
    def read(cls, line: str) -> Message:
        """Read a message.

        Raises:
            ValueError: it is none; says what is wrong.
        """
        found = json.loads(line, parse_constant=_refused)
        wanted = {"format", "location", "round", "epsilon", "noise", "noisy_clients"}
        if not isinstance(found, dict) or set(found) != wanted or found["format"] != FORMAT:
            raise ValueError(f"no message of the format {FORMAT}")
        texts = [found[name] for name in ("location", "round", "epsilon")]
        if not all(isinstance(text, str) and text.isprintable() and text.strip() for text in texts):
            raise ValueError("location, round and epsilon are no texts of a line")
        epsilon, noise, noisy = budget(found["epsilon"]), found["noise"], found["noisy_clients"]
        if noise not in ("discrete", "continuous"):
            raise ValueError("noise is neither discrete nor continuous")
        whole = isinstance(noisy, int) and not isinstance(noisy, bool)
        if not (whole or (noise == "continuous" and isinstance(noisy, float) and math.isfinite(noisy))):
            raise ValueError("noisy_clients is no number, or not a whole one with discrete noise")
        if abs(noisy) > MOST_NOISY:
            raise ValueError(f"noisy_clients is not between -{MOST_NOISY:g} and {MOST_NOISY:g}")
        return cls(location=texts[0], round=texts[1], epsilon=epsilon, noise=noise, noisy=noisy)


def budget(text: str) -> Fraction:
    """An epsilon from its decimal.

    Raises:
        ValueError: it is none, or outside of 1e-10 to 1e6.
    """
    if not re.fullmatch(r"\d{1,7}(\.\d{1,20})?", text, re.ASCII):
        raise ValueError(f"epsilon {cut(text)} is no decimal like 0.1")
    epsilon = Fraction(text)
    if not Fraction(1, 10**10) <= epsilon <= 10**6:
        raise ValueError(f"epsilon {cut(text)} is not between 1e-10 and 1e6")
    return epsilon


def decimal(epsilon: Fraction) -> str:
    """The decimal of an epsilon that :func:`budget` read.

    >>> decimal(Fraction(1, 10)), decimal(Fraction(2))
    ('0.1', '2')
    """
    places = next(n for n in range(21) if (epsilon * 10**n).denominator == 1)
    whole, rest = divmod(int(epsilon * 10**places), 10**places)
    return f"{whole}.{rest:0{places}d}" if places else str(whole)


def _refused(constant: str) -> float:
    raise ValueError(f"{constant} is no number")


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


def kept_or_drawn(
    kept: Path,
    location: str,
    clients: int,
    epsilon: Fraction,
    round_: str,
    noise: Noise = "discrete",
    *,
    ledger: Path | None = None,
) -> tuple[Message, bool]:
    """The message of this round, drawn where the file of those sent has none; and whether it was drawn.

    Args:
        kept: file of the messages sent, a line each; made where there is none. It is locked meanwhile. The
            message lies on the disk before this returns; what a killed write left of a line, never sent, is cut off.
        location, clients, epsilon, round_, noise: see :func:`report`.
        ledger: file of a :class:`privopt.Ledger` that is charged before the draw, with the location as subject.

    Raises:
        InputError: the file holds what is no message, or this round's had another epsilon or noise.
        BudgetSpentError: the location has not enough left; nothing was drawn.
        UsageError: the file cannot be opened; nothing was drawn.
    """
    location, round_ = location.strip(), round_.strip()
    with _opened(kept) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        text = file.read()
        whole = _without_torn(text)
        sent = {(message.location, message.round): message for message in _parsed(kept.name, whole)}
        message = sent.get((location, round_))
        if message is not None and (message.epsilon, message.noise) != (epsilon, noise):
            found = f"epsilon {message.epsilon} and {message.noise} noise in round {cut(round_)}"
            raise InputError([Fault(kept.name, "", found, f"epsilon {epsilon} and {noise} noise")])
        drawn = message is None
        if message is None:
            if ledger is not None:
                _charge(ledger, location, epsilon, round_, noise)
            message = report(location, clients, epsilon, round_, noise)
            file.truncate(len(whole))
            file.write(b"\n" * (whole[-1:] not in (b"", b"\n")) + message.line().encode() + b"\n")
            file.flush()
        os.fsync(file.fileno())
        _sync_folder(kept)
    return message, drawn


def _opened(kept: Path) -> BinaryIO:
    """The file of messages, made where there is none; not its folder, for one that is misspelt would draw anew."""
    try:
        return kept.open("a+b")
    except OSError as error:
        raise UsageError(f"{kept}: {error.strerror}; wanted a file to write to, in a folder that is there") from None


def _without_torn(text: bytes) -> bytes:
    """The file less a last line without its end that is the beginning of a message and no message."""
    place = text.rfind(b"\n") + 1
    last = text[place:]
    begins = last.startswith(BEGIN) or (bool(last) and BEGIN.startswith(last))
    try:
        Message.read(last.decode())
    except (ValueError, RecursionError):
        return text[:place] if begins else text
    return text


def _sync_folder(path: Path) -> None:
    """Put the name of a file that may be new on the disk."""
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _charge(ledger: Path, location: str, epsilon: Fraction, round_: str, noise: Noise) -> None:
    from privopt import Cost, Ledger

    promise = LocalLaplace(epsilon=epsilon, locations=1, noise=noise).guarantee
    cost = Cost(epsilon=epsilon, unit=promise.unit, notion=promise.kind, purpose=f"round {round_}")
    with Ledger(ledger) as book:
        book.charge(location, cost)


def _parsed(name: str, text: bytes) -> list[Message]:
    """Messages of a file; a line that is none is named and not quoted: it may be of a file of true counts."""
    found, faults = [], []
    text = text.removeprefix(BOM_UTF8)
    try:
        lines = text.decode().splitlines()
    except UnicodeDecodeError as error:
        number = text.count(b"\n", 0, error.start) + 1
        raise InputError(
            [Fault(name, f"line {number}", "bytes that are no UTF-8", "a message of a location")]
        ) from None
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            found.append(Message.read(line))
        except (ValueError, ZeroDivisionError, RecursionError) as error:
            faults.append(Fault(name, f"line {number}", f"no message ({reason_of(error)})", "a message of a location"))
    if faults:
        raise InputError(faults[:MOST_FAULTS])
    return found


def read_messages(paths: Sequence[Path]) -> list[Message]:
    """Read the messages of files, a line each.

    Raises:
        InputError: every line that is no message; or they are of several rounds, epsilons or kinds of noise, or a
            location has two that differ (the same message twice counts once).
    """
    found: dict[str, Message] = {}
    faults: list[Fault] = []
    first: Message | None = None
    for path in paths:
        for message in _parsed(path.name, path.read_bytes()):
            first = first or message
            same = ("round", "epsilon", "noise")
            if any(getattr(message, key) != getattr(first, key) for key in same):
                shown = [", ".join(f"{key} {getattr(each, key)}" for key in same) for each in (message, first)]
                faults.append(Fault(path.name, f"location {message.location}", shown[0], f"{shown[1]}, as the first"))
            elif found.setdefault(message.location, message) != message:
                faults.append(Fault(path.name, f"location {message.location}", "two reports that differ", "one"))
    if faults:
        raise InputError(faults[:MOST_FAULTS])
    return list(found.values())


def collected(
    sites: Path, messages: Sequence[Message], *, missing: Literal["refuse", "leave out"] = "refuse"
) -> tuple[bytes, list[str]]:
    """The locations file of the server's side: public columns, and what each location sent.

    Args:
        sites: CSV with a column ``id`` and the public columns of a locations file, without counts; ``sends`` is 0 at
            sites where a facility may stand and nobody is counted.
        messages: of one round.
        missing: what becomes of sites that sent nothing.

    Returns:
        The CSV with a column ``noisy_clients``, empty at sites that send nothing, and the ids left out.

    Raises:
        InputError: no such table, columns of counts in it, messages of other locations, sites without one.
    """
    import polars as pl

    file = File.read(sites)
    table = table_of(file)  # every column as text: numbers stay as they are written
    if is_parquet(file):
        raise InputError([Fault(sites.name, "", "a Parquet file", "a CSV table")])
    table = table.with_columns(pl.all().str.strip_chars())
    if "id" not in table.columns or {"clients", "noisy_clients"} & set(table.columns):
        raise InputError([Fault(sites.name, "header", ",".join(table.columns), "a column id, and none of counts")])
    blank = (table["id"] == "").arg_true().head(MOST_FAULTS).to_list()
    if blank:
        raise InputError([Fault(sites.name, f"row {row + 2}, column id", "nothing", "an id") for row in blank])
    ids, sent = table["id"].to_list(), {message.location: message.noisy for message in messages}
    times = Counter(str(name) for name in ids)
    faults = [
        Fault(sites.name, "column id", f"{cut(name)} {n} times", "each once") for name, n in times.items() if n > 1
    ]
    faults += [
        Fault(sites.name, "column id", "no such id", f"{cut(name)}, which sent a report")
        for name in sent
        if name not in times
    ]
    marks = table["sends"].to_list() if "sends" in table.columns else ["1"] * len(ids)
    faults += [
        Fault(sites.name, f"row {row}, column sends", cut(str(mark)), "0 or 1") for row, mark in enumerate(marks, 2)
        if str(mark).strip() not in ("0", "1")
    ]  # fmt: skip
    alone = {str(name) for name, mark in zip(ids, marks, strict=True) if str(mark).strip() == "0"}
    faults += [
        Fault(sites.name, "column sends", f"0 for {cut(name)}, which sent a report", "1, or no report of it")
        for name in sent
        if name in alone
    ]
    silent = [str(name) for name in ids if name not in sent and str(name) not in alone]
    if silent and missing == "refuse":
        shown = ", ".join(cut(name) for name in silent[:5]) + (f" and {len(silent) - 5} more" if silent[5:] else "")
        faults.append(Fault(sites.name, "column id", f"no report of {shown}", "a report of each"))
    if faults or not sent:
        raise InputError(faults[:MOST_FAULTS] or [Fault(sites.name, "", "no reports", "a report of some site")])
    table = table.filter(pl.col("id").is_in([*sent, *alone])).drop("sends", strict=False)
    counts = [str(sent[name]) if name in sent else None for name in table["id"].to_list()]
    out = io.BytesIO()
    table.with_columns(pl.Series("noisy_clients", counts)).write_csv(out)
    return out.getvalue(), silent
