"""Outputs of any kind as cells: views of them that are chosen and cut on some draws, and read off others."""

from __future__ import annotations

import math
import re
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final, NamedTuple

import numpy as np
from attrs import field, frozen
from numpy.typing import NDArray

from privopt.arrays import Floats, Ints

CELLS_PER_VIEW: Final = 64
"""Cells of a view, about."""
MAX_ATOMS: Final = 64
"""Values that have a cell each if there are no more of them; of more values only the frequent ones have."""
MAX_KINDS: Final = 256
"""How many outputs that are not numbers are kept apart: the most frequent ones."""
ODD_CELLS: Final = 3
"""Cells of outputs that are not numbers, infinite, or not a number, at the end of a view of numbers."""
ODD_OUTPUTS: Final = ("another number of numbers", "infinite", "not a number")
END_BYTES: Final = 64
"""Bytes of an output that are looked at one by one: the first and the last."""
LARGEST: Final = int(sys.float_info.max)
MAX_COLUMNS: Final = 24
"""Columns of an output that are looked at one by one: those whose means differ most."""
MANTISSA_BITS: Final = 53
"""Bits of a double's mantissa, the first one included."""
ZERO_PLACE: Final = 1024
"""Place of the last bit of 0, beyond that of all doubles: 0 is a multiple of any power of two."""


class BitPattern(NamedTuple):
    """The size of a number, as a power of two, and the place of its last bit; both mean nothing if it is odd."""

    sign: int
    exponent: int
    place: int
    odd: int

    def __repr__(self) -> str:
        if self.odd:
            return ODD_OUTPUTS[self.odd - 1]
        if self.sign == 0:
            return "0"
        sign = "-" if self.sign < 0 else ""
        return f"{sign}[2**{self.exponent - 1}, 2**{self.exponent}) with last bit 2**{self.place}"


@frozen
class ErrorOutput:
    """An output of a mechanism that raised an error in place of giving one: its type, and what it says."""

    name: str
    text: str = ""

    @classmethod
    def of(cls, error: BaseException) -> ErrorOutput:
        """Return an error, the addresses of objects omitted from its text."""
        return cls(type(error).__name__, re.sub(r"0x[0-9a-fA-F]+", "0x", str(error)))


def _numbers(output: Any) -> Floats | None:
    """Return the numbers of an output, flat; of integers beyond doubles the last 32 bits, too; None if it has none."""
    if isinstance(output, bytes):
        ends = output if len(output) <= END_BYTES else output[: END_BYTES // 2] + output[-END_BYTES // 2 :]
        return np.frombuffer(ends, dtype=np.uint8).astype(np.float64)
    try:
        if isinstance(output, str):
            output = int(output) if re.fullmatch(r"[+-]?\d{1,4000}", output) else float(output)
        raw = np.asarray(output)
        if raw.dtype.kind == "c":
            return np.stack([raw.real.ravel(), raw.imag.ravel()], axis=1).ravel().astype(np.float64)
        if raw.dtype.kind in "iu" or (raw.dtype.kind == "O" and all(type(each) is int for each in raw.flat)):
            beyond = raw.size and max(int(raw.max()), -int(raw.min())) > 2**53
            whole = [int(each) for each in raw.flat] if beyond else []
            if whole:
                sizes = [float(min(max(each, -LARGEST), LARGEST)) for each in whole]
                return np.array([*sizes, *(each % 2**32 for each in whole)], dtype=np.float64)
        return np.asarray(output, dtype=np.float64).ravel()
    except (TypeError, ValueError, OverflowError):
        return None


def _apart(output: Any, numbers: list[Floats], others: list[Hashable]) -> None:
    """Sort the parts of an output into numbers and all else; of mappings, records and lists each part for itself."""
    if isinstance(output, Mapping):
        for name in output:
            others.append(_name(name))
            _apart(output[name], numbers, others)
        return
    found = None if isinstance(output, ErrorOutput) or output is None else _numbers(output)
    if found is not None:
        numbers.append(found)
        if isinstance(output, str | bytes):  # how it is written tells, too
            others.append(f"{type(output).__name__} of {len(output)}")
        elif (np.signbit(found) & (found == 0)).any():
            others.append("-0.0")
    elif isinstance(output, tuple | list):
        for part in output:
            _apart(part, numbers, others)
    else:
        others.append(output.name if isinstance(output, ErrorOutput) else _name(output))


def _name(output: Any) -> Hashable:
    """Return an output as something that can be compared; doubles bit by bit."""
    if isinstance(output, np.ndarray):
        return output.shape, output.tobytes()
    if isinstance(output, float | complex):
        return type(output).__name__, repr(output)
    if isinstance(output, tuple):
        return type(output).__name__, tuple(_name(part) for part in output)
    try:
        hash(output)
    except TypeError:
        return repr(output)
    return type(output).__name__, output


def _read(output: Any) -> tuple[Floats, Hashable, Hashable]:
    """Return the numbers of an output, flat; what of it is not a number; and itself."""
    numbers: list[Floats] = []
    others: list[Hashable] = []
    _apart(output, numbers, others)
    flat = np.concatenate(numbers) if numbers else np.zeros(0)
    return flat, (others[0] if len(others) == 1 else tuple(others)), _name(output)


@frozen(eq=False)
class Table:
    """Outputs, read once.

    Attributes:
        names: each itself, as something that can be compared.
        labels: what of each is not a number.
        numbers: (n, d) the numbers of each, d as most have.
        odd: (n,) which have not d of them, or not finite ones.
    """

    names: list[Hashable]
    labels: list[Hashable]
    numbers: Floats
    odd: Ints

    @classmethod
    def of(cls, outputs: Sequence[Any] | NDArray[Any], width: int | None = None) -> Table:
        """Read outputs.

        Args:
            outputs: any.
            width: how many numbers each is, known from other outputs; found out where None.
        """
        outputs = list(outputs)  # all are there at once, so that no two have one identity
        known: dict[int, tuple[Floats, Hashable, Hashable]] = {}  # what is one object is read once
        for output in outputs:
            if id(output) not in known:
                known[id(output)] = _read(output)
        read = [known[id(output)] for output in outputs]
        sizes = [numbers.size for numbers, _, _ in read]
        width = max(set(sizes), key=sizes.count) if width is None else width
        table, odd = np.zeros((len(read), width)), np.zeros(len(read), dtype=np.int64)
        for place, (row, _, _) in enumerate(read):
            if row.size != width:
                odd[place] = 1
            elif not np.isfinite(row).all():
                odd[place] = 2 + int(np.isnan(row).any())
            else:
                table[place] = row
        names, labels = [name for _, _, name in read], [label for _, label, _ in read]
        return cls(names=names, labels=labels, numbers=table, odd=odd)

    def part(self, some: slice) -> Table:
        """Return some of the outputs."""
        return Table(names=self.names[some], labels=self.labels[some], numbers=self.numbers[some], odd=self.odd[some])


@frozen(kw_only=True, eq=False)
class View:
    """A partition of the outputs: each falls into one cell.

    Attributes:
        words: what is looked at.
        cells: outputs -> (n,) numbers of cells.
        count: of cells.
        said: numbers of cells, ascending -> them in words.
        ordered: whether cells follow one another, so that the first or the last of them are an event.
    """

    words: str
    cells: Callable[[Table], Ints] = field(repr=False)
    count: int
    said: Callable[[list[int]], list[str]] = field(repr=False)
    ordered: bool


def views_of(one: Table, two: Table) -> list[View]:
    """Return views that may distinguish two samples, made from these alone.

    Args:
        one, two: draws from each of two inputs; what is made of them is tried on others.
    """
    made = [_kinds(one, two, "the output", lambda table: table.names)]
    made.append(_kinds(one, two, "what is no number of the output", lambda table: table.labels))
    if not one.numbers.shape[1]:
        return made
    means = [table.numbers.mean(axis=0) for table in (one, two)]
    spread = np.concatenate([one.numbers, two.numbers]).std(axis=0)
    spread = np.where(spread > 0, spread, 1.0)
    single = one.numbers.shape[1] == 1
    for column in np.argsort(-np.abs(means[0] - means[1]) / spread, kind="stable")[:MAX_COLUMNS].tolist():
        words = "the number" if single else f"number {column}"
        made += [_cut(one, two, partial(_changed, column, change), what + words) for what, change in CHANGES.items()]
        made.append(_kinds(one, two, f"size and last bit of {words}", partial(_sizes_and_last_bits, column)))
    if single:
        return made
    direction = (means[0] - means[1]) / spread**2
    whole: list[tuple[str, Callable[[Floats], Floats]]] = [
        ("the sum that tells means apart", lambda numbers: np.asarray(numbers @ direction)),
        ("the sum", lambda numbers: np.asarray(numbers.sum(axis=1))),
        ("the place of the greatest", lambda numbers: numbers.argmax(axis=1).astype(np.float64)),
        ("greatest less least", lambda numbers: np.asarray(np.ptp(numbers, axis=1))),
        ("a classifier's score", _classifier(one.numbers, two.numbers)),
    ]
    return made + [_cut(one, two, values, words) for words, values in whole]


def _last_bit_places(values: Floats) -> Floats:
    """Return the place of the last bit of each number that is not 0: the greatest p with the number in 2**p Z."""
    fractions, exponents = np.frexp(values)
    mantissas = np.ldexp(fractions, MANTISSA_BITS).astype(np.int64)
    trailing_zeros = np.log2(np.maximum(mantissas & -mantissas, 1).astype(np.float64))
    return np.asarray(np.where(mantissas == 0, float(ZERO_PLACE), exponents - MANTISSA_BITS + trailing_zeros))


def _sizes_and_last_bits(column: int, table: Table) -> list[Hashable]:
    """Return, of each number of a column, in which powers of two it lies and where its last bit is.

    A double near 0 has finer bits than one far from it. So noise in doubles that is added to an input x reaches
    numbers y that are fine and small where x is small, and misses them where x - y is coarse.
    """
    numbers = table.numbers[:, column]
    exponents, places = np.frexp(numbers)[1], _last_bit_places(numbers).astype(np.int64)
    signs = np.sign(numbers).astype(np.int64)
    return [*map(BitPattern, signs.tolist(), exponents.tolist(), places.tolist(), table.odd.tolist())]


CHANGES: Final[Mapping[str, Callable[[Floats], Floats]]] = {
    "": np.asarray,
    "what is above a whole of ": lambda values: np.asarray(values % 1.0),
    "place of the last bit of ": _last_bit_places,
}
"""What is looked at of each number, in words."""


def _changed(column: int, change: Callable[[Floats], Floats], numbers: Floats) -> Floats:
    return change(numbers[:, column])


def never_again(one: Table, two: Table) -> float:
    """Return the share of outputs that occurred once and have no numbers: they are not compared."""
    counts = Counter([*one.names, *two.names])
    lone = sum(
        counts[name] == 1 and (not width or odd == 1)
        for table, width in ((one, one.numbers.shape[1]), (two, two.numbers.shape[1]))
        for name, odd in zip(table.names, table.odd.tolist(), strict=True)
    )
    return float(lone / (len(one.names) + len(two.names)))


def _kinds(one: Table, two: Table, words: str, named: Callable[[Table], list[Hashable]]) -> View:
    """Return a cell each of the most frequent outputs, and one for all others."""
    counts = Counter([*named(one), *named(two)])
    often = sorted((name for name in counts if counts[name] > 1), key=lambda name: -counts[name])[:MAX_KINDS]
    place = {name: number for number, name in enumerate(often)}
    other = len(often)

    def cells(table: Table) -> Ints:
        return np.array([place.get(name, other) for name in named(table)], dtype=np.int64)

    def describe(some: list[int]) -> list[str]:
        return ["any other" if cell == other else _shown(often[cell]) for cell in some]

    return View(words=words, cells=cells, count=other + 1, said=describe, ordered=False)


def _shown(name: Hashable) -> str:
    inner = name[1] if isinstance(name, tuple) and len(name) == 2 else name
    if isinstance(name, tuple) and len(name) == 2 and name[0] in ("float", "complex"):
        return str(inner)
    text = f"bytes {inner[:8].hex()}" if isinstance(inner, bytes) else repr(inner)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _cut(one: Table, two: Table, values: Callable[[Floats], Floats], words: str) -> View:
    """Cells between quantiles of both samples; frequent values have one of their own, odd outputs three."""
    both = np.concatenate([values(table.numbers)[table.odd == 0] for table in (one, two)])
    both = both if both.size else np.zeros(1)
    found, counts = np.unique(both, return_counts=True)
    atoms = found[counts * CELLS_PER_VIEW >= both.size] if found.size > MAX_ATOMS else found
    edges = np.unique(np.quantile(both, np.linspace(0, 1, CELLS_PER_VIEW + 1)[1:-1], method="lower"))
    edges = np.union1d(edges, np.concatenate([atoms, np.nextafter(atoms, math.inf)]))
    last = len(edges) + 1
    bounds = [-math.inf, *edges.tolist(), math.inf]

    def cells(table: Table) -> Ints:
        here = np.searchsorted(edges, values(table.numbers), side="right")
        return np.where(table.odd > 0, last - 1 + table.odd, here).astype(np.int64)

    def describe(some: list[int]) -> list[str]:
        """Cells side by side as one."""
        lines: list[str] = []
        inner = [cell for cell in some if cell < last]
        for _, run in groupby(enumerate(inner), lambda placed: placed[1] - placed[0]):
            side = [cell for _, cell in run]
            low, high = bounds[side[0]], bounds[side[-1] + 1]
            lines.append(f"{low:.6g}" if high == math.nextafter(low, math.inf) else f"[{low:.6g}, {high:.6g})")
        return [*lines, *(ODD_OUTPUTS[cell - last] for cell in some[len(inner) :])]

    return View(words=words, cells=cells, count=last + ODD_CELLS, said=describe, ordered=True)


def _classifier(one: Floats, two: Floats) -> Callable[[Floats], Floats]:
    """Logistic regression on numbers and their squares: its score rises where sample one is likelier."""
    both = np.concatenate([one, two])
    middle, width = np.median(both, axis=0), np.subtract(*np.quantile(both, (0.75, 0.25), axis=0))
    width = np.where(width > 0, width, 1.0)
    order = np.argsort(-np.abs(one.mean(axis=0) - two.mean(axis=0)), kind="stable")[:CELLS_PER_VIEW]

    def features(numbers: Floats) -> Floats:
        x = np.clip((numbers[:, order] - middle[order]) / width[order], -10.0, 10.0)
        return np.concatenate([np.ones((len(x), 1)), x, x * x], axis=1)

    x, label = features(both), np.repeat([1.0, 0.0], [len(one), len(two)])
    w = np.zeros(x.shape[1])
    for _ in range(8):
        p = 1.0 / (1.0 + np.exp(-np.clip(x @ w, -30.0, 30.0)))
        slope = x.T @ (label - p) - 0.1 * w
        curve = (x * (p * (1.0 - p))[:, None]).T @ x + 0.1 * np.eye(len(w))
        w = w + np.linalg.solve(curve, slope)
    return lambda numbers: features(numbers) @ w
