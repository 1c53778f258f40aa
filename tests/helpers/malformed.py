"""Tables as programs, spreadsheets and people break them: bytes of a whole file, or one cell."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable, Iterator, Sequence
from typing import Final

SENTINEL: Final = "734197341"
"""What each secret cell contains: so long that no message contains it by chance."""

Rows = Sequence[Sequence[str]]


def csv_text(rows: Rows, mark: str = ",", end: str = "\n") -> bytes:
    return "".join(mark.join(row) + end for row in rows).encode()


def _html(rows: Rows) -> bytes:
    return b"<html><body><table><tr><td>" + rows[1][0].encode() + b"</td></tr></table></body></html>"


def _twice(rows: Rows) -> bytes:
    """Return a table two columns of which have the name of the second."""
    return csv_text([[*rows[0][:2], rows[0][1], *rows[0][3:]], *rows[1:]])


FILES: Final[dict[str, Callable[[Rows], bytes]]] = {
    "an open quote": lambda rows: csv_text(rows).replace(b"7341", b'"7341', 1),
    "an open quote in the last row": lambda rows: csv_text(rows) + b'"x\n',
    "two byte order marks": lambda rows: b"\xef\xbb\xbf" * 2 + csv_text(rows),
    "UTF-16": lambda rows: csv_text(rows).decode().encode("utf-16"),
    "UTF-16 without a mark": lambda rows: csv_text(rows).decode().encode("utf-16-le"),
    "UTF-32": lambda rows: csv_text(rows).decode().encode("utf-32"),
    "Latin-1": lambda rows: csv_text([*rows[:2], ["Z\u00fcrich", *rows[2][1:]]]).decode().encode("latin-1"),
    "a zero byte in the header": lambda rows: csv_text(rows).replace(b",", b",\0", 1),
    "a short row": lambda rows: csv_text([*rows[:3], rows[3][:2], *rows[4:]]),
    "a long row": lambda rows: csv_text([*rows[:3], [*rows[3], SENTINEL, "x"], *rows[4:]]),
    "nothing": lambda rows: b"",
    "blank lines": lambda rows: b"\n \n\n",
    "no header": lambda rows: csv_text(rows[1:]),
    "a column twice": _twice,
    "carriage returns": lambda rows: csv_text(rows, end="\r"),
    "a row of many fields": lambda rows: csv_text(rows) + b",".join([SENTINEL.encode()] * 20_000) + b"\n",
    "many columns": lambda rows: csv_text([[f"c{n}" for n in range(3_000)], [SENTINEL] * 3_000]),
    "gzip": lambda rows: gzip.compress(csv_text(rows)),
    "gzip, cut": lambda rows: gzip.compress(csv_text(rows))[:30],
    "a spreadsheet": lambda rows: b"PK\x03\x04\x14\0\x06\0" + csv_text(rows),
    "an old spreadsheet": lambda rows: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + csv_text(rows),
    "SQLite": lambda rows: b"SQLite format 3\0" + csv_text(rows),
    "Parquet's mark alone": lambda rows: b"PAR1",
    "Parquet's mark before text": lambda rows: b"PAR1" + csv_text(rows),
    "JSON": lambda rows: json.dumps([dict(zip(rows[0], row, strict=True)) for row in rows[1:]]).encode(),
    "lines of JSON": lambda rows: b"\n".join(
        json.dumps(dict(zip(rows[0], row, strict=True))).encode() for row in rows[1:]
    ),
    "HTML": _html,
    "a line sep=": lambda rows: b"sep=,\n" + csv_text(rows),
    "a comment first": lambda rows: f"# of {SENTINEL}\n".encode() + csv_text(rows),
    "a title first": lambda rows: csv_text([[f"Table {SENTINEL}", *[""] * (len(rows[0]) - 1)], *rows]),
    "a footnote": lambda rows: csv_text(rows) + f"Source: {SENTINEL}\n".encode(),
    "semicolons": lambda rows: csv_text(rows, ";"),
    "bars": lambda rows: csv_text(rows, "|"),
    "tabs below a header of commas": lambda rows: csv_text(rows[:1]) + csv_text(rows[1:], "\t"),
}
"""Files that no command may take for a table, by what is wrong with them."""

CELLS: Final = (
    *("inf", "-inf", "nan", "1e400", f"-{SENTINEL}", f"{SENTINEL}.5", f"9{SENTINEL}{SENTINEL}{SENTINEL}", "1" * 400),
    *(f'"1,{SENTINEL}"', f'"1.{SENTINEL[:3]},19"', f"1 {SENTINEL}", f"1'{SENTINEL}", f"1_{SENTINEL}", f"{SENTINEL}%"),
    *("#REF!", "#N/A", "#VALUE!", "#DIV/0!", f"${SENTINEL}", f"{SENTINEL} EUR", f"\u20ac{SENTINEL}", "05-Jan"),
    *("2026-02-30", "1/2", f"0x{SENTINEL}", "\u0661\u0662", "\uff17", "TRUE", "null", "NA", "-", ".", "..", ":", "c"),
    *(f"~{SENTINEL}", f"<{SENTINEL}", f"{SENTINEL}*", f"({SENTINEL})", f"{SENTINEL}-", f"4.5.{SENTINEL}", "", " "),
    *(f"'{SENTINEL}", f"={SENTINEL}+1", f"\x1b[31m{SENTINEL}", f"{SENTINEL}\u202e", "x" * 5_000),
)
"""Cells that are no coordinate and no count of individuals."""


def broken_cells(rows: Rows, column: int) -> Iterator[tuple[str, bytes]]:
    """Yield each broken cell, and the file in whose row 4 it is."""
    for cell in CELLS:
        row = [*rows[3][:column], cell, *rows[3][column + 1 :]]
        yield cell, csv_text([*rows[:3], row, *rows[4:]])
