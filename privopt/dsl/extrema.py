"""Use variables and linear rows to model absolute values, maxima and minima of linear expressions.

Each such function is represented by a variable. ``abs(e)`` and ``maximum(...)`` are convex, because they are the
maximum of several linear expressions, which are called their lines. Rows keep the variable above each line, and it
equals the function if the rest of the model pushes it down. ``minimum(...)`` is concave. Its variable is kept below the
lines, and must be pushed up.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import sympy
from attrs import define, field, frozen

from privopt.dsl.linear import Expression, Where, as_expression, free_indices, linear_terms, read_indices, read_tuples
from privopt.dsl.operators import Operators
from privopt.dsl.symbols import Index, Restriction, Total
from privopt.dsl.variables import Variable
from privopt.errors import ModelError

MAX_COLUMNS = 10_000_000
"""The maximum number of columns that an absolute value or extremum may need."""


class Extremum(Operators, sympy.Expr):  # type: ignore[misc]
    """The largest or smallest of several expressions, or their largest or smallest value over some indices.

    It is created by :func:`maximum` and :func:`minimum`.
    """

    __slots__ = ()
    is_commutative = True
    is_real = True

    @property
    def is_maximum(self) -> bool:
        """Whether the extremum is a maximum rather than a minimum."""
        return bool(self.args[0])

    @property
    def bodies(self) -> tuple[sympy.Expr, ...]:
        """The expressions whose largest or smallest value is taken."""
        return tuple(self.args[1])

    @property
    def over(self) -> tuple[Index, ...]:
        """The indices that the extremum runs over. Empty if it is taken only over the expressions."""
        return tuple(self.args[2])

    @property
    def restriction(self) -> Restriction | None:
        """The index tuples that the extremum is restricted to, or None if it runs over all tuples."""
        return self.args[3] if len(self.args) > 3 else None

    def _sympystr(self, printer: Any) -> str:
        text = ", ".join(printer._print(body) for body in self.bodies)
        if self.over:
            text += f" for {', '.join(f'{index.name} in {index.index_set.name}' for index in self.over)}"
        return f"{'max' if self.is_maximum else 'min'}({text})"

    _sympyrepr = _sympystr

    def _latex(self, printer: Any) -> str:
        over = ", ".join(printer._print(index) for index in self.over)
        text = ", ".join(printer._print(body) for body in self.bodies)
        operator = (r"\max" if self.is_maximum else r"\min") + (f"_{{{over}}}" if over else "")
        return rf"{operator}\left({text}\right)"


def maximum(
    *expressions: Expression, over: Index | Sequence[Index] | None = None, where: Where | None = None
) -> sympy.Expr:
    """Return the largest of several expressions, or their largest value over some indices.

    >>> from privopt.dsl import Index, IndexSet, Model
    >>> m, X = Model("minimax"), IndexSet("X", 3)
    >>> i = Index("i", X)
    >>> x = m.variable("x", X)
    >>> maximum(x[i], over=i)
    max(x[i] for i in X)

    The result may be minimised or bounded from above, both of which can be expressed by linear rows. Any other use
    raises an error when the model is compiled.

    Args:
        expressions: One or more linear expressions.
        over: The indices that the maximum runs over.
        where: The tuples of index values to consider, in any form that :func:`total` accepts. If None, all tuples are
            considered.

    Raises:
        ModelError: An argument is invalid, ``where`` is given without ``over``, or ``over`` is given although no
            expression contains a variable.
    """
    return _extremum(True, expressions, over, where)


def minimum(
    *expressions: Expression, over: Index | Sequence[Index] | None = None, where: Where | None = None
) -> sympy.Expr:
    """Return the smallest of several expressions, or their smallest value over some indices.

    The result may be maximised or bounded from below, both of which can be expressed by linear rows. Any other use
    raises an error when the model is compiled.

    Args:
        expressions: One or more linear expressions.
        over: The indices that the minimum runs over.
        where: The tuples of index values to consider, in any form that :func:`total` accepts. If None, all tuples are
            considered.

    Raises:
        ModelError: An argument is invalid, ``where`` is given without ``over``, or ``over`` is given although no
            expression contains a variable.
    """
    return _extremum(False, expressions, over, where)


def _extremum(
    is_maximum: bool,
    expressions: tuple[Expression, ...],
    over: Index | Sequence[Index] | None,
    where: Where | None,
) -> sympy.Expr:
    """Return a maximum or minimum that can be used in formulas.

    If no expression contains a variable, the result is sympy's own ``Max`` or ``Min``.

    Args:
        is_maximum: Whether to return a maximum rather than a minimum.
        expressions, over, where: The arguments of :func:`maximum` or :func:`minimum`.

    Raises:
        ModelError: There is no expression, ``where`` is given without ``over``, or ``over`` is given although no
            expression contains a variable.
    """
    name = "maximum" if is_maximum else "minimum"
    if not expressions:
        raise ModelError(f"{name}: must have an expression, got none")
    if over is None and where is not None:
        raise ModelError(f"{name}: where needs the indices of over")
    indices = () if over is None else read_indices(over, name)
    bodies = [as_expression(expression) for expression in expressions]
    if not any(body.has(Variable) for body in bodies):
        if indices:
            raise ModelError(f"{name}: an expression over indices must have a variable; give {bodies[0]} as a param")
        return (sympy.Max if is_maximum else sympy.Min)(*bodies)
    args: list[Any] = [
        sympy.true if is_maximum else sympy.false,
        sympy.Tuple(*bodies),
        sympy.Tuple(*indices),
    ]
    if where is not None:
        args.append(Restriction(*read_tuples(indices, where)))
    return Extremum(*args)


@frozen(eq=False)
class Line:
    """A linear expression that bounds a convex function from below or a concave function from above.

    A convex function is the maximum of its lines, and a concave function the minimum. The variable that stands for the
    function is constrained by rows to be at least the value of each line if the function is convex, and at most that
    value if it is concave.

    Attributes:
        body: The expression.
        indices: The indices that the line's rows run over.
        where: The index tuples to create rows for, in a form that ``Model.require`` accepts. If None, there is a row
            for every tuple.
    """

    body: sympy.Expr
    indices: tuple[Index, ...]
    where: Any


@frozen(eq=False)
class Epigraph:
    """A variable that stands for an absolute value or extremum.

    Attributes:
        statement: The function as it was written.
        variable: The variable, which is indexed by the sets of the function's free indices.
        term: The variable with its indices, which replaces the function in formulas.
        lines: The expressions that bound the variable from below or above.
        is_convex: Whether the variable must lie above the lines rather than below them.
    """

    statement: sympy.Expr
    variable: Variable
    term: sympy.Expr
    lines: tuple[Line, ...]
    is_convex: bool

    @property
    def line_names(self) -> tuple[str, ...]:
        """The names of the constraint families for the lines."""
        return tuple(f"{self.variable.name} line {number + 1}" for number in range(len(self.lines)))

    @property
    def advice(self) -> str:
        """The beginning of an error message, which states how the function may be used and what to write instead."""
        use = "minimised or bounded from above" if self.is_convex else "maximised or bounded from below"
        if isinstance(self.statement, sympy.Abs):
            body = self.statement.args[0]
            replacement = f"implies(h, {body} >= b) and implies(1 - h, {body} <= -b)"
        else:
            replacement = f"an implies(h[...], expression {'>=' if self.is_convex else '<='} b) for each expression"
        return (
            f"{self.statement} may only be {use}; to bound it by b the other way, write {replacement}, with "
            "binaries of which one must be 1"
        )


@define(eq=False)
class FunctionReplacer:
    """An object that replaces absolute values and extrema in expressions with variables.

    Attributes:
        name: The name of the constraint family, or "objective". It is used as a prefix for the variables' names.
        restricted: The family's restrictions. Each is a pair of the restricted indices and the positions of their
            values in each tuple.
        epigraphs: The functions that have been replaced so far, inner ones first.
        contexts: For each of these functions, the restrictions on the sums that enclose it. They determine the index
            tuples for which the function's variable needs lines.
    """

    name: str
    restricted: tuple[tuple[tuple[Index, ...], Any], ...] = ()
    epigraphs: list[Epigraph] = field(factory=list)
    contexts: list[tuple[Any, ...]] = field(factory=list)

    def replace(self, expression: sympy.Expr, restrictions: tuple[Any, ...] = ()) -> sympy.Expr:
        """Return a copy of an expression with variables in place of absolute values and extrema.

        Args:
            expression: The expression to rewrite.
            restrictions: The restrictions on the sums that enclose the expression, as pairs of indices and positions.
        """
        if not has_functions(expression):
            return expression
        if isinstance(expression, _FUNCTIONS) and expression.has(Variable):
            return self._replace_function(expression, restrictions)
        inner = _restrictions_inside(restrictions, expression.over) if isinstance(expression, Total) else restrictions
        for argument in expression.args:
            if isinstance(argument, Restriction):
                inner = (*inner, (argument.indices, argument.positions))
        return expression.func(*(self.replace(argument, inner) for argument in expression.args))

    def _replace_function(self, function: sympy.Expr, restrictions: tuple[Any, ...]) -> sympy.Expr:
        """Return the indexed variable that stands for a function, adding an epigraph for it if the function is new.

        Args:
            function: An absolute value, maximum or minimum.
            restrictions: The restrictions on the sums that enclose the function, as in :meth:`replace`.

        Raises:
            ModelError: An argument of the function is not linear, or the function would need too many columns.
        """
        # The same function in a sum over other tuples gets another variable, because it needs other lines.
        for epigraph, context in zip(self.epigraphs, self.contexts, strict=True):
            if epigraph.statement == function and _are_same_restrictions(context, restrictions):
                return epigraph.term
        over: tuple[Index, ...] = ()
        restriction = None
        if isinstance(function, sympy.Abs):
            kind, is_convex, bodies = "abs", True, [function.args[0], -function.args[0]]
        elif isinstance(function, Extremum):
            kind, is_convex = ("max", True) if function.is_maximum else ("min", False)
            bodies, over, restriction = list(function.bodies), function.over, function.restriction
        else:
            is_convex = isinstance(function, sympy.Max)
            kind, bodies = ("max" if is_convex else "min"), list(function.args)
        around = _restrictions_inside(restrictions, over)
        if restriction is not None:
            around = (*around, (restriction.indices, restriction.positions))
        bodies = [self.replace(body, around) for body in bodies]
        location = f"{self.name}: {function}"
        # There is one column for each tuple of the indices that the function does not run over.
        free = free_indices([term for body in bodies for term in linear_terms(body, location)])
        if restriction is not None:
            free |= set(restriction.indices)
        free -= set(over)
        # The indices are sorted, because the order of a set differs from run to run.
        indices = tuple(sorted(free, key=lambda index: (str(index), index.dummy_index)))
        size = int(np.prod([float(len(index.index_set)) for index in indices]))
        if size > MAX_COLUMNS:
            raise ModelError(
                f"{location}: needs {size} columns, one for each tuple of indices; state it with a variable"
            )
        variable = Variable(f"{self.name} {kind} {len(self.epigraphs) + 1}", tuple(i.index_set for i in indices))
        if restriction is not None:
            where = (restriction.indices, np.stack(restriction.positions, axis=1))
        else:
            where = self._tuples_of(indices, restrictions)
            if where is not None:
                # The columns of all other tuples have no rows and are not used, so they are fixed to 0.
                bound = np.zeros(variable.shape)
                bound[tuple(where[1].T[[where[0].index(index) for index in indices]])] = np.inf
                variable.lower, variable.upper = -bound, bound
        term = variable[indices] if indices else variable
        lines = tuple(Line(body, (*indices, *over), where) for body in bodies)
        self.epigraphs.append(Epigraph(function, variable, term, lines, is_convex))
        self.contexts.append(restrictions)
        return term

    def _tuples_of(self, indices: tuple[Index, ...], restrictions: tuple[Any, ...]) -> Any:
        """Return the tuples to which indices are restricted, as a ``where`` argument, or None if they are unrestricted.

        Only a restriction on exactly these indices counts. If there is none, there is a row for every tuple, because
        rows for unused tuples are harmless.

        Args:
            indices: The indices whose tuples are returned.
            restrictions: The restrictions on the enclosing sums, which take precedence over those of the family.
        """
        for restricted, positions in (*restrictions, *self.restricted):
            if indices and set(restricted) == set(indices):
                return tuple(restricted), np.unique(np.stack(positions, axis=1), axis=0)
        return None


def _restrictions_inside(restrictions: tuple[Any, ...], over: tuple[Index, ...]) -> tuple[Any, ...]:
    """Return the restrictions that still apply inside a sum or extremum over the indices ``over``.

    A restriction on any of these indices no longer applies, because the inner sum or extremum binds the index.
    """
    return tuple(restriction for restriction in restrictions if not set(restriction[0]) & set(over))


def _are_same_restrictions(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    """Return whether two sequences of restrictions have equal indices and share the same position arrays."""
    return len(a) == len(b) and all(x[0] == y[0] and x[1] is y[1] for x, y in zip(a, b, strict=True))


_FUNCTIONS = (sympy.Abs, sympy.Max, sympy.Min, Extremum)


def has_functions(expression: sympy.Expr) -> bool:
    """Return whether an expression contains an absolute value or an extremum of variables."""
    return any(function.has(Variable) for function in expression.atoms(*_FUNCTIONS))
