"""Partition a mechanism's outputs (of any type) into cells, so that a test can count the outputs in each cell.

A :class:`Table` splits outputs into numbers and labels. A :class:`View` maps outputs to cells. It is constructed from
some draws and then applied to others. Views can be based on values, sums, a classifier's score, or the last bits of
doubles, which reveal the input if noise is naively added in floating point (Mironov 2012).
"""

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
"""The approximate number of cells in a view."""
MAX_ATOMS: Final = 64
"""The maximum number of distinct values at which each has its own cell. If there are more, only frequent ones do."""
MAX_KINDS: Final = 256
"""The maximum number of outputs that get their own cells in a view by equality. The most frequent ones are chosen."""
ODD_CELLS: Final = 3
"""The number of cells at the end of a view by numbers, one for each kind of output in :data:`ODD_OUTPUTS`."""
ODD_OUTPUTS: Final = ("another count of numbers", "infinite", "not a number")
"""The kinds of odd outputs, which have an unusual count of numbers or a number that is not finite."""
END_BYTES: Final = 64
"""The maximum number of bytes of an output to read as numbers, half of them from its start and half from its end."""
LARGEST: Final = int(sys.float_info.max)
"""The largest double, as an integer."""
MAX_COLUMNS: Final = 24
"""The maximum number of columns that get their own views. The columns whose means differ most are chosen."""
MANTISSA_BITS: Final = 53
"""The number of bits in a double's mantissa, including the implicit first one."""
GRID_BITS: Final = 40
"""The maximum number of significant binary digits that a number on a grid is assumed to have.

A sum that contains floating-point noise nearly always has more.
"""
ZERO_PLACE: Final = 1024
"""The position assigned to the last bit of 0.

It is higher than that of any other double, because 0 is a multiple of every 2**p.
"""


class BitPattern(NamedTuple):
    """The magnitude of a double and the position of its last bit, both as powers of two.

    Attributes:
        sign: -1, 0 or 1.
        exponent: The absolute value is at least 2**(exponent - 1) and less than 2**exponent.
        place: The number is a multiple of 2**place, but not of any larger power of two.
        oddity: 0 for a finite number. For any other output, 1 plus the index of its description in :data:`ODD_OUTPUTS`,
            in which case the other attributes have no meaning.
    """

    sign: int
    exponent: int
    place: int
    oddity: int

    def __repr__(self) -> str:
        """Describe the pattern in words, for messages."""
        if self.oddity:
            return ODD_OUTPUTS[self.oddity - 1]
        if self.sign == 0:
            return "0"
        sign = "-" if self.sign < 0 else ""
        return f"{sign}[2**{self.exponent - 1}, 2**{self.exponent}) with last bit 2**{self.place}"


@frozen
class ErrorOutput:
    """A stand-in for the output of a mechanism that raised an error instead.

    Attributes:
        name: The type of the error.
        text: The text of the error.
    """

    name: str
    text: str = ""

    @classmethod
    def of(cls, error: BaseException) -> ErrorOutput:
        """Convert an error to an output, removing memory addresses, which differ from run to run."""
        return cls(type(error).__name__, re.sub(r"0x[0-9a-fA-F]+", "0x", str(error)))


def _read_numbers(output: Any) -> Floats | None:
    """Return an output's numbers as a flat array, or None if the output contains anything else.

    A byte counts as a number from 0 to 255, a string as the number that it represents, and a complex number as two
    numbers. If some of the output's integers cannot be represented by doubles, the rounded values are followed by the
    last 32 bits of each integer.
    """
    if isinstance(output, bytes):
        end_bytes = output if len(output) <= END_BYTES else output[: END_BYTES // 2] + output[-END_BYTES // 2 :]
        return np.frombuffer(end_bytes, dtype=np.uint8).astype(np.float64)
    try:
        if isinstance(output, str):
            # Python does not convert texts of more than 4,300 digits to integers.
            output = int(output) if re.fullmatch(r"[+-]?\d{1,4000}", output) else float(output)
        raw = np.asarray(output)
        if raw.dtype.kind == "c":
            return np.stack([raw.real.ravel(), raw.imag.ravel()], axis=1).ravel().astype(np.float64)
        if raw.dtype.kind in "iu" or (raw.dtype.kind == "O" and all(type(element) is int for element in raw.flat)):
            # If large integers were only rounded to doubles, they would lose their last bits, which may reveal the
            # input.
            exceeds_doubles = raw.size and max(int(raw.max()), -int(raw.min())) > 2**53
            integers = [int(element) for element in raw.flat] if exceeds_doubles else []
            if integers:
                clipped_values = [float(min(max(element, -LARGEST), LARGEST)) for element in integers]
                return np.array([*clipped_values, *(element % 2**32 for element in integers)], dtype=np.float64)
        return np.asarray(output, dtype=np.float64).ravel()
    except (TypeError, ValueError, OverflowError):
        return None


def _split_output(output: Any, numbers: list[Floats], others: list[Hashable]) -> None:
    """Split an output into numbers and other parts, recursing into mappings, lists and tuples.

    Args:
        output: The output, of any type.
        numbers: The list to which arrays of numbers are appended.
        others: The list to which the comparison keys of the other parts are appended.
    """
    if isinstance(output, Mapping):
        for name in output:
            others.append(_comparison_key(name))
            _split_output(output[name], numbers, others)
        return
    flat_numbers = None if isinstance(output, ErrorOutput) or output is None else _read_numbers(output)
    if flat_numbers is not None:
        numbers.append(flat_numbers)
        if isinstance(output, str | bytes):  # the length of a text can reveal something that its number does not
            others.append(f"{type(output).__name__} of {len(output)}")
        elif (np.signbit(flat_numbers) & (flat_numbers == 0)).any():  # -0.0 == 0.0, but the sign can reveal something
            others.append("-0.0")
    elif isinstance(output, tuple | list):  # not all parts are numbers, or they have different lengths
        for part in output:
            _split_output(part, numbers, others)
    else:
        others.append(output.name if isinstance(output, ErrorOutput) else _comparison_key(output))


def _comparison_key(output: Any) -> Hashable:
    """Return a hashable key for an output. Equal outputs of the same type have equal keys.

    The keys distinguish 0.0 from -0.0 and 1 from True, and treat NaN as equal to NaN.
    """
    if isinstance(output, np.ndarray):
        return output.shape, output.tobytes()
    if isinstance(output, float | complex):
        return type(output).__name__, repr(output)
    if isinstance(output, tuple):
        return type(output).__name__, tuple(_comparison_key(part) for part in output)
    try:
        hash(output)
    except TypeError:
        return repr(output)
    return type(output).__name__, output


def _read_output(output: Any) -> tuple[Floats, Hashable, Hashable]:
    """Return an output's numbers as a flat array, a key for its other parts, and the whole output's comparison key."""
    numbers: list[Floats] = []
    others: list[Hashable] = []
    _split_output(output, numbers, others)
    flat = np.concatenate(numbers) if numbers else np.zeros(0)
    return flat, (others[0] if len(others) == 1 else tuple(others)), _comparison_key(output)


@frozen(eq=False)
class Table:
    """A sample of n outputs, each split into numbers and labels.

    Draws often repeat the same few objects. Each distinct object, called a *kind*, is therefore stored and examined
    only once, and each output refers to its kind. Let d be the number of columns, which by default is the most common
    count of numbers in an output. A kind is *odd* if it does not have exactly d finite numbers.

    Attributes:
        index: (n,) The kind of each output. Kinds are numbered from 0 in the order in which they first occur.
        names: The comparison key of each kind. Objects that are equal but not identical are separate kinds with the
            same key.
        labels: The key of each kind's parts that are not numbers.
        kind_numbers: (kinds, d) The numbers of each kind. The rows of odd kinds contain zeros.
        kind_oddity: (kinds,) 0 for each kind with d finite numbers and, for each odd kind, 1 plus the index of its
            description in :data:`ODD_OUTPUTS`.
    """

    index: Ints
    names: list[Hashable]
    labels: list[Hashable]
    kind_numbers: Floats
    kind_oddity: Ints

    @classmethod
    def of(cls, outputs: Sequence[Any] | NDArray[Any], width: int | None = None) -> Table:
        """Create a table from a sample of outputs.

        Args:
            outputs: The outputs, of any type.
            width: The number of columns, i.e. the count of numbers in a regular output. If None, the most common count
                is used.
        """
        # An object that occurs several times is read only once. The list keeps all outputs alive, so that their ids
        # stay unique.
        outputs = list(outputs)
        output_by_id = {id(output): output for output in outputs}
        kind_by_id = {identity: kind for kind, identity in enumerate(output_by_id)}
        index = np.array([kind_by_id[id(output)] for output in outputs], dtype=np.int64)
        parts = [_read_output(output) for output in output_by_id.values()]
        sizes = np.array([numbers.size for numbers, _, _ in parts], dtype=np.int64)
        if width is None:
            counts_by_size = Counter(sizes[index].tolist())
            width = max(counts_by_size, key=counts_by_size.__getitem__)
        table, oddity = np.zeros((len(parts), width)), np.zeros(len(parts), dtype=np.int64)
        for kind, (row, _, _) in enumerate(parts):
            # The code is 1 plus an index of ODD_OUTPUTS: another count of numbers (1), infinite (2) or not a number
            # (3).
            if row.size != width:
                oddity[kind] = 1
            elif not np.isfinite(row).all():
                oddity[kind] = 2 + int(np.isnan(row).any())
            else:
                table[kind] = row
        names, labels = [name for _, _, name in parts], [label for _, label, _ in parts]
        return cls(index=index, names=names, labels=labels, kind_numbers=table, kind_oddity=oddity)

    @classmethod
    def pair_of(cls, first: Sequence[Any], second: Sequence[Any], width: int | None = None) -> tuple[Table, Table]:
        """Create a table from each of two samples of outputs. Both tables have the same number of columns.

        Args:
            first: The outputs for one input.
            second: The outputs for the other input.
            width: The number of columns, as in :meth:`of`. If None, the most common count in the two samples combined
                is used.
        """
        joint_table = cls.of([*first, *second], width)
        return joint_table.part(slice(len(first))), joint_table.part(slice(len(first), None))

    def __len__(self) -> int:
        """Return n, the number of outputs."""
        return len(self.index)

    @property
    def numbers(self) -> Floats:
        """The numbers of each output, as an array of shape (n, d)."""
        return self.kind_numbers[self.index]

    @property
    def oddity(self) -> Ints:
        """The oddity of each output, as an array of shape (n,). It is encoded as in :attr:`kind_oddity`."""
        return self.kind_oddity[self.index]

    def count_keys(self, keys: Sequence[Hashable]) -> Counter[Hashable]:
        """Return the number of outputs with each key, in the order in which the keys first occur.

        Args:
            keys: One key per kind, such as :attr:`names`.
        """
        counts: Counter[Hashable] = Counter()
        for key, count in zip(keys, np.bincount(self.index, minlength=len(keys)).tolist(), strict=True):
            counts[key] += count
        return counts

    def part(self, rows: slice) -> Table:
        """Return a table of a slice of the outputs, containing only the kinds that occur in the slice."""
        used_kinds, first_places, index = np.unique(self.index[rows], return_index=True, return_inverse=True)
        # np.unique sorts the kinds by number. Here they are put in the order in which they first occur in the slice.
        order = np.argsort(first_places)
        new_number = np.empty(len(order), dtype=np.int64)
        new_number[order] = np.arange(len(order))
        kinds = used_kinds[order]
        return Table(
            index=new_number[index],
            names=[self.names[kind] for kind in kinds.tolist()],
            labels=[self.labels[kind] for kind in kinds.tolist()],
            kind_numbers=self.kind_numbers[kinds],
            kind_oddity=self.kind_oddity[kinds],
        )


@frozen(kw_only=True, eq=False)
class View:
    """A partition of outputs into cells.

    Attributes:
        words: A phrase that names the property used to partition the outputs.
        cells: A function that takes a table of n outputs and returns the indices of their cells as an array of shape
            (n,).
        count: The number of cells.
        describe: A function that describes cells in words, given their indices in ascending order.
        ordered: Whether the cells have a natural order, so that the first or last few cells form a meaningful event.
    """

    words: str
    cells: Callable[[Table], Ints] = field(repr=False)
    count: int
    describe: Callable[[list[int]], list[str]] = field(repr=False)
    ordered: bool


def views_of(first: Table, second: Table) -> list[View]:
    """Return views that may distinguish two inputs. A view is a partition of the outputs into cells.

    Views partition outputs by equality, by each number and its last bits, and by sums and other summaries of all
    numbers. A test that uses the views must not use the same draws again.

    Args:
        first: Draws for the first input.
        second: Draws for the second input.
    """
    views = [_frequent_values_view(first, second, "the output", lambda table: table.names)]
    views.append(
        _frequent_values_view(first, second, "the parts of the output that are not numbers", lambda table: table.labels)
    )
    numbers = first.numbers, second.numbers
    if not numbers[0].shape[1]:
        return views
    means = [values.mean(axis=0) for values in numbers]
    spread = np.concatenate(numbers).std(axis=0)
    # The means of a constant column are equal, so it can be divided by any number other than 0.
    spread = np.where(spread > 0, spread, 1.0)
    is_single = numbers[0].shape[1] == 1
    for column in np.argsort(-np.abs(means[0] - means[1]) / spread, kind="stable")[:MAX_COLUMNS].tolist():
        words = "the number" if is_single else f"number {column}"
        views += [
            _quantile_view(first, second, partial(_transform_column, column, change), prefix + words)
            for prefix, change in CHANGES.items()
        ]
        views.append(
            _frequent_values_view(first, second, f"size and last bit of {words}", partial(_sizes_and_last_bits, column))
        )
    if is_single:
        return views
    # Fisher's linear discriminant for independent columns: a sum with these weights separates the two means best.
    direction = (means[0] - means[1]) / spread**2
    summaries: list[tuple[str, Callable[[Floats], Floats]]] = [
        ("the weighted sum that best separates the means", lambda numbers: weighted_sums(numbers, direction)),
        ("the sum", lambda numbers: weighted_sums(numbers, np.ones(numbers.shape[1]))),
        ("the position of the greatest number", lambda numbers: numbers.argmax(axis=1).astype(np.float64)),
        ("the greatest number minus the least", lambda numbers: np.asarray(np.ptp(numbers, axis=1))),
        ("a classifier's score", _fit_classifier(*numbers)),
    ]
    return views + [_quantile_view(first, second, values, words) for words, values in summaries]


def weighted_sums(numbers: Floats, weights: Floats) -> Floats:
    """Return the weighted sum of each row of an array of shape (n, d). Equal rows have exactly equal sums.

    A matrix product is not used, because its rounding depends on a row's position. Equal outputs could then have
    different sums, and a view would wrongly tell two inputs apart.
    """
    sums = np.zeros(len(numbers))
    for column, weight in zip(numbers.T, weights.tolist(), strict=True):
        sums += column * weight
    return sums


def last_bit_places(values: Floats) -> Floats:
    """Return the position of each number's last bit, that is, the largest p such that the number is a multiple of 2**p.

    For the number 0, the result is :data:`ZERO_PLACE`.
    """
    # A double is its mantissa, an integer of 53 bits, times 2**(exponent - 53). m & -m is the last bit of m.
    fractions, exponents = np.frexp(values)
    mantissas = np.ldexp(fractions, MANTISSA_BITS).astype(np.int64)
    trailing_zeros = np.log2(np.maximum(mantissas & -mantissas, 1).astype(np.float64))
    return np.asarray(np.where(mantissas == 0, float(ZERO_PLACE), exponents - MANTISSA_BITS + trailing_zeros))


def has_fine_bits(values: Floats) -> bool:
    """Return whether the finite nonzero numbers have a median of more than :data:`GRID_BITS` significant bits.

    Noise drawn on a grid of fixed steps gives numbers with few bits, whereas floating-point noise uses nearly all bits.
    If there are no finite nonzero numbers, the result is False.
    """
    finite = values[np.isfinite(values) & (values != 0)]
    if not finite.size:
        return False
    bit_counts = np.frexp(finite)[1] - last_bit_places(finite)
    return bool(np.median(bit_counts) > GRID_BITS)


def _sizes_and_last_bits(column: int, table: Table) -> list[Hashable]:
    """Return the magnitude and the position of the last bit of each kind's number in the given column.

    Doubles near 0 can have finer bits than doubles far from 0. Suppose that an output is the sum of an input x and
    noise, both doubles, and that this sum is near 0. Its bits can be fine if x is small, but not if x is large, because
    the noise that cancels a large x is itself large and therefore coarse (Mironov 2012).
    """
    numbers = table.kind_numbers[:, column]
    exponents, places = np.frexp(numbers)[1], last_bit_places(numbers).astype(np.int64)
    signs = np.sign(numbers).astype(np.int64)
    return [*map(BitPattern, signs.tolist(), exponents.tolist(), places.tolist(), table.kind_oddity.tolist())]


CHANGES: Final[Mapping[str, Callable[[Floats], Floats]]] = {
    "": np.asarray,
    "fractional part of ": lambda values: np.asarray(values % 1.0),
    "place of the last bit of ": last_bit_places,
}
"""The column transformations used to partition outputs, keyed by a prefix for the column's name."""


def _transform_column(column: int, change: Callable[[Floats], Floats], numbers: Floats) -> Floats:
    """Apply a transformation from :data:`CHANGES` to one column of the two-dimensional array ``numbers``."""
    return change(numbers[:, column])


def uncompared_share(first: Table, second: Table) -> float:
    """Return the fraction of outputs in two samples that contain no numbers and occur only once in the two combined.

    Such outputs cannot be compared, because a count of 1 says nothing about a probability. Outputs that occur once and
    have an unusual count of numbers (oddity 1) are included, because their numbers are not in any column.
    """
    counts = first.count_keys(first.names) + second.count_keys(second.names)
    # An output that occurs only once is the only output of its kind, so it suffices to go through the kinds.
    lone_count = sum(
        counts[name] == 1 and (not table.kind_numbers.shape[1] or oddity == 1)
        for table in (first, second)
        for name, oddity in zip(table.names, table.kind_oddity.tolist(), strict=True)
    )
    return float(lone_count / (len(first) + len(second)))


def _frequent_values_view(first: Table, second: Table, words: str, keys_of: Callable[[Table], list[Hashable]]) -> View:
    """Return a view with one cell for each of the most frequent outputs, and one cell for all other outputs.

    Args:
        first: Draws for the first input.
        second: Draws for the second input.
        words: A phrase that names the property examined by the view.
        keys_of: A function that returns the key of each kind in a table. Outputs with equal keys share a cell.
    """
    counts = first.count_keys(keys_of(first)) + second.count_keys(keys_of(second))
    # An output that occurred only once says nothing about frequencies, so it belongs to the cell for all others.
    frequent_keys = sorted((name for name in counts if counts[name] > 1), key=lambda name: -counts[name])[:MAX_KINDS]
    cell_by_key = {name: number for number, name in enumerate(frequent_keys)}
    rest_cell = len(frequent_keys)

    def cells(table: Table) -> Ints:
        """Return the index of each output's cell."""
        kind_cells = np.array([cell_by_key.get(name, rest_cell) for name in keys_of(table)], dtype=np.int64)
        return kind_cells[table.index]

    def describe(cell_numbers: list[int]) -> list[str]:
        """Describe each cell by the output that it represents."""
        return ["any other" if cell == rest_cell else _format_key(frequent_keys[cell]) for cell in cell_numbers]

    return View(words=words, cells=cells, count=rest_cell + 1, describe=describe, ordered=False)


def _format_key(name: Hashable) -> str:
    """Format the output with a given comparison key as a short string."""
    # Most keys are pairs of a type's name and a value. For a float or complex number, the value is already a text.
    inner = name[1] if isinstance(name, tuple) and len(name) == 2 else name
    if isinstance(name, tuple) and len(name) == 2 and name[0] in ("float", "complex"):
        return str(inner)
    text = f"bytes {inner[:8].hex()}" if isinstance(inner, bytes) else repr(inner)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _quantile_view(first: Table, second: Table, values: Callable[[Floats], Floats], words: str) -> View:
    """Return a view whose cells are intervals between quantiles of a number computed for each output.

    Each frequent value has a cell of its own. The last cells contain the odd outputs, one cell for each kind in
    :data:`ODD_OUTPUTS`.

    Args:
        first: Draws for the first input.
        second: Draws for the second input.
        values: A function that computes one number for each kind of output. It takes the kinds' numbers, of shape
            (kinds, d), and returns an array of shape (kinds,).
        words: A phrase that names the computed number.
    """
    samples = np.concatenate([values(table.kind_numbers)[table.index][table.oddity == 0] for table in (first, second)])
    samples = samples if samples.size else np.zeros(1)
    distinct, counts = np.unique(samples, return_counts=True)
    # A value gets its own cell if it is as frequent as an average cell, or if there are only few values.
    atoms = distinct[counts * CELLS_PER_VIEW >= samples.size] if distinct.size > MAX_ATOMS else distinct
    edges = np.unique(np.quantile(samples, np.linspace(0, 1, CELLS_PER_VIEW + 1)[1:-1], method="lower"))
    # A value v has the cell [v, next double) to itself.
    edges = np.union1d(edges, np.concatenate([atoms, np.nextafter(atoms, math.inf)]))
    last = len(edges) + 1
    bounds = [-math.inf, *edges.tolist(), math.inf]

    def cells(table: Table) -> Ints:
        """Return the index of each output's cell."""
        quantile_cells = np.searchsorted(edges, values(table.kind_numbers), side="right")
        # Oddities are counted from 1, and the cells for odd outputs begin at ``last``.
        kind_cells = np.where(table.kind_oddity > 0, last - 1 + table.kind_oddity, quantile_cells)
        return kind_cells.astype(np.int64)[table.index]

    def describe(cell_numbers: list[int]) -> list[str]:
        """Describe the given cells, merging adjacent ones into a single interval."""
        lines: list[str] = []
        inner = [cell for cell in cell_numbers if cell < last]
        # A cell's index minus its position in the list is constant along a run of adjacent cells.
        for _, run in groupby(enumerate(inner), lambda placed: placed[1] - placed[0]):
            adjacent_cells = [cell for _, cell in run]
            lower, upper = bounds[adjacent_cells[0]], bounds[adjacent_cells[-1] + 1]
            lines.append(f"{lower:.6g}" if upper == math.nextafter(lower, math.inf) else f"[{lower:.6g}, {upper:.6g})")
        return [*lines, *(ODD_OUTPUTS[cell - last] for cell in cell_numbers[len(inner) :])]

    return View(words=words, cells=cells, count=last + ODD_CELLS, describe=describe, ordered=True)


def _fit_classifier(first: Floats, second: Floats) -> Callable[[Floats], Floats]:
    """Fit a logistic regression that distinguishes two inputs by the numbers in their outputs.

    The features are the numbers and their squares.

    Args:
        first: (n, d) The numbers in the first input's outputs.
        second: (m, d) The numbers in the second input's outputs.

    Returns:
        A function that takes numbers of shape (k, d) and returns scores of shape (k,). A higher score means that the
        first input is more likely.
    """
    samples = np.concatenate([first, second])
    medians, spreads = np.median(samples, axis=0), np.subtract(*np.quantile(samples, (0.75, 0.25), axis=0))
    spreads = np.where(spreads > 0, spreads, 1.0)
    # Only the CELLS_PER_VIEW columns whose means differ most are used, because the size of the fit's linear system is
    # twice the number of columns.
    order = np.argsort(-np.abs(first.mean(axis=0) - second.mean(axis=0)), kind="stable")[:CELLS_PER_VIEW]

    def features(numbers: Floats) -> Floats:
        """Return one row of features per output: a constant, the standardised numbers and their squares."""
        # Outliers are clipped, because a single one could dominate the fit by its square.
        x = np.clip((numbers[:, order] - medians[order]) / spreads[order], -10.0, 10.0)
        return np.concatenate([np.ones((len(x), 1)), x, x * x], axis=1)

    x, label = features(samples), np.repeat([1.0, 0.0], [len(first), len(second)])
    # Take eight Newton steps. The penalty of 0.05 on each squared weight keeps the Hessian regular if the samples are
    # separable.
    w = np.zeros(x.shape[1])
    for _ in range(8):
        # The exponents are clipped, so that exp does not overflow.
        p = 1.0 / (1.0 + np.exp(-np.clip(x @ w, -30.0, 30.0)))
        gradient = x.T @ (label - p) - 0.1 * w
        hessian = (x * (p * (1.0 - p))[:, None]).T @ x + 0.1 * np.eye(len(w))
        w = w + np.linalg.solve(hessian, gradient)
    return lambda numbers: weighted_sums(features(numbers), w)
