"""Indices, sums over indices, and names in LaTeX."""

from __future__ import annotations

import re
from typing import Any

import sympy
from sympy.printing.precedence import PRECEDENCE

from privopt.arrays import Ints
from privopt.dsl.operators import Operators
from privopt.dsl.sets import IndexSet

_GREEK = re.compile(
    "alpha|beta|gamma|delta|epsilon|zeta|eta|theta|iota|kappa|lambda|mu|nu|xi|pi|rho|sigma|tau|phi|chi|psi|omega"
)
_LATEX_ESCAPES = {letter: f"\\{letter}" for letter in "_&%$#{}"} | {
    " ": "\\ ",
    "-": "\\text{-}",
    "\\": "\\backslash{}",
    "^": "\\hat{}",
    "~": "\\sim{}",
}


def latex_text(text: str) -> str:
    r"""Return LaTeX code that sets a string in upright letters.

    >>> print(latex_text("a_b"))
    \mathrm{a\_b}
    """
    return rf"\mathrm{{{''.join(_LATEX_ESCAPES.get(letter, letter) for letter in text)}}}"


def latex_name(name: str) -> str:
    """Return the LaTeX code for a name.

    Single letters and numbers are left unchanged, names of Greek letters become commands, and all other names are set
    in upright letters.
    """
    if _GREEK.fullmatch(name):
        return f"\\{name}"
    is_short = (len(name) == 1 and name.isalpha()) or name.replace(".", "").isdigit()
    return name if is_short else latex_text(name)


class Index(sympy.Dummy):  # type: ignore[misc]
    """An index that runs over a set. Two indices with the same name are different indices.

    >>> Index("i", IndexSet("X", 4))
    i

    Attributes:
        index_set: The set that the index runs over.
    """

    __slots__ = ("index_set",)

    index_set: IndexSet

    def __new__(cls, name: str, index_set: IndexSet) -> Index:
        """Create an index called ``name``."""
        index: Index = sympy.Dummy.__new__(cls, name, integer=True)
        index.index_set = index_set
        return index

    def _sympystr(self, printer: Any) -> str:
        return str(self.name)

    _sympyrepr = _sympystr

    def _latex(self, printer: Any) -> str:
        return latex_name(self.name)


class Restriction(sympy.Dummy):  # type: ignore[misc]
    """The index tuples that a sum is restricted to.

    Attributes:
        indices: The restricted indices.
        positions: For each restricted index, an array of shape (P,) with the positions in its set of the values that it
            takes in the P tuples.
    """

    __slots__ = ("indices", "positions")

    indices: tuple[Index, ...]
    positions: tuple[Ints, ...]

    def __new__(cls, indices: tuple[Index, ...], positions: tuple[Ints, ...]) -> Restriction:
        """Create a restriction of ``indices`` to the tuples given by ``positions``."""
        # Each restriction is a new symbol, so that sympy never merges sums over different tuples.
        restriction: Restriction = sympy.Dummy.__new__(cls, "T")
        # The arguments of sympy expressions must be sympy objects, so the arrays are attributes.
        restriction.indices, restriction.positions = indices, positions
        return restriction


class Total(Operators, sympy.Expr):  # type: ignore[misc]
    """A finite sum over index tuples, created by ``total``."""

    __slots__ = ()
    # With this precedence, sympy encloses a sum in brackets when it prints a power of it, as for a product.
    precedence = PRECEDENCE["Mul"]
    is_commutative = True
    is_real = True

    @property
    def body(self) -> sympy.Expr:
        """The summed expression."""
        return self.args[0]

    @property
    def over(self) -> tuple[Index, ...]:
        """The indices summed over."""
        return tuple(self.args[1])

    @property
    def restriction(self) -> Restriction | None:
        """The index tuples that the sum is restricted to, or None for a sum over all tuples."""
        return self.args[2] if len(self.args) > 2 else None

    def _restriction_text(self) -> str:
        """Return a description of the restriction, such as ``(i, k) in 5 tuples``, or "" if there is none."""
        restriction = self.restriction
        if restriction is None:
            return ""
        return f"({', '.join(str(x.name) for x in restriction.indices)}) in {len(restriction.positions[0])} tuples"

    def _sympystr(self, printer: Any) -> str:
        ranges = ", ".join(f"{x.name} in {x.index_set.name}" for x in self.over)
        where = f"; {self._restriction_text()}" if self.restriction else ""
        return f"sum({printer._print(self.body)} for {ranges}{where})"

    _sympyrepr = _sympystr

    def _latex(self, printer: Any) -> str:
        over = list(self.over)
        ranges = []
        if self.restriction is not None:
            restricted = self.restriction.indices
            listed = ", ".join(latex_name(x.name) for x in restricted)
            ranges.append(rf"({listed}) \in \text{{{len(self.restriction.positions[0])} tuples}}")
            over = [x for x in over if x not in restricted]
        ranges += [rf"{latex_name(x.name)} \in {latex_name(x.index_set.name)}" for x in over]
        body = printer._print(self.body)
        body = rf"\left({body}\right)" if self.body.is_Add else body
        return rf"\sum_{{{', '.join(ranges)}}} {body}"
