"""The container of a model: variables, params, families of constraints, and the objective.

A model holds symbols only. Compiling turns it into arrays, and solving hands these to a backend.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, Unpack

import numpy as np
import sympy
from numpy.typing import ArrayLike
from scipy import sparse

from privopt.arrays import Floats, Ints
from privopt.dsl import show
from privopt.dsl.compile import compile_model
from privopt.dsl.form import StandardForm
from privopt.dsl.linear import Eq, Expression, Ge, Le, Term, Where, as_expression, linear_terms
from privopt.dsl.lowering import Block, Family, Relation, family, piecewise_lines
from privopt.dsl.sets import IndexSet
from privopt.dsl.solution import Solution, SolveOptions, Solver, solve_form
from privopt.dsl.symbols import Index, Param, Source, Variable
from privopt.errors import ModelError

Kind = Literal["continuous", "integer", "binary"]


class Model:
    """A linear or mixed-integer model, written as its formula.

    >>> import numpy as np
    >>> from privopt.dsl import Eq, Index, IndexSet, Le, Model, exp, total
    >>> X = IndexSet("X", ["home", "work"])
    >>> i, j, k = Index("i", X), Index("j", X), Index("k", X)
    >>> m = Model("optimal")
    >>> z = m.variable("z", X, X, lower=0)
    >>> d = m.param("d", np.array([[0.0, 1.0], [1.0, 0.0]]))
    >>> m.minimize(total(d[i, k] * z[i, k] / 2, over=(i, k)))
    >>> m.require("mass", Eq(total(z[i, k], over=k), 1), forall=i)
    >>> m.require("geo-ind", Le(z[i, k], exp(d[i, j]) * z[j, k]), forall=(i, j, k), where=[("home", "work"),
    ...                                                                                  ("work", "home")])
    >>> print(m)
    optimal: minimize sum(d[i, k]*z[i, k]/2 for i in X, k in X)
      mass: sum(z[i, k] for k in X) == 1  for i in X
      geo-ind: z[i, k] <= exp(d[i, j])*z[j, k]  for (i, j) in 2 tuples, k in X
      z[X, X] >= 0
    >>> m.compile().shape
    (6, 4)

    Params may be given without their sets where those follow from the first use, as in the architecture's example;
    the shape is checked then.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.variables: list[Variable] = []
        self.families: list[Family | Block] = []
        self.objective: sympy.Expr | None = None
        self.sense: Literal["min", "max"] = "min"
        self._objective_terms: list[Term] = []
        self._names: set[str] = set()
        self._columns = 0
        self._piecewise_terms: list[tuple[Variable, str, str]] = []

    def _reserve_name(self, name: str, kind: str) -> None:
        """Reserve a name, since errors, duals and values are looked up by it."""
        if not isinstance(name, str) or not name:
            raise ModelError(f"{kind}: its name must be a text, got {name!r}")
        if name in self._names:
            raise ModelError(f"model {self.name}: the name {name!r} is taken")
        self._names.add(name)

    def variable(
        self,
        name: str,
        *sets: IndexSet,
        lower: ArrayLike | None = 0.0,
        upper: ArrayLike | None = np.inf,
        kind: Kind = "continuous",
    ) -> Variable:
        """Add a decision variable over the product of sets.

        Args:
            name: as it is printed.
            sets: what it is indexed by; none for a scalar.
            lower, upper: bounds, numbers or arrays that broadcast to the sets' sizes; None for no bound.
            kind: "binary" is integer within 0 and 1.
        """
        if kind not in ("continuous", "integer", "binary"):
            raise ModelError(f"variable {name}: kind must be continuous, integer or binary, got {kind!r}")
        self._reserve_name(name, "variable")
        variable = Variable(name, tuple(sets))
        variable.owner, variable.start, variable.integer = self, self._columns, kind != "continuous"
        variable.lower = self._broadcast_bound(name, "lower", -np.inf if lower is None else lower, variable)
        variable.upper = self._broadcast_bound(name, "upper", np.inf if upper is None else upper, variable)
        if kind == "binary":
            variable.lower, variable.upper = np.maximum(variable.lower, 0.0), np.minimum(variable.upper, 1.0)
        crossed = np.flatnonzero(variable.lower > variable.upper)
        if crossed.size:
            raise ModelError(
                f"variable {name}: lower bound {variable.lower[crossed[0]]} above upper {variable.upper[crossed[0]]}"
            )
        self._columns += variable.size
        self.variables.append(variable)
        return variable

    def _check_owner(self, where: str, variables: Iterable[Variable | None]) -> None:
        """Refuse variables of another model, whose columns are other variables here."""
        for variable in variables:
            if variable is not None and variable.owner is not self:
                owner_name = variable.owner.name
                owner_text = f"model {owner_name}" if owner_name != self.name else f"another model called {owner_name}"
                raise ModelError(
                    f"{where}: variable {variable.name} must be one of model {self.name}, got one of {owner_text}"
                )

    def _broadcast_bound(self, name: str, bound_name: str, value: ArrayLike, variable: Variable) -> Floats:
        """Broadcast a bound to the variable's columns, shape (size,)."""
        try:
            bounds = np.broadcast_to(np.asarray(value, dtype=np.float64), variable.shape).ravel().copy()
        except ValueError:
            shapes = f"shape {variable.shape}, got {np.shape(value)}"
            raise ModelError(f"variable {name}: {bound_name} must have {shapes}") from None
        if np.isnan(bounds).any():
            raise ModelError(f"variable {name}: {bound_name} bound is NaN")
        return bounds

    def param(self, name: str, source: ArrayLike | Source, *sets: IndexSet) -> Param:
        """Declare known numbers.

        Args:
            name: as it is printed.
            source: a number, an array, or a function that maps one integer array an index to an array.
            sets: what it is indexed by; may be omitted, then any index of the right size fits.
        """
        self._reserve_name(name, "param")
        return Param(name, tuple(sets) or None, source)

    def minimize(self, expression: Expression) -> None:
        """Set the objective, which is to be minimised."""
        self._set_objective(expression, "min")

    def maximize(self, expression: Expression) -> None:
        """Set the objective, which is to be maximised."""
        self._set_objective(expression, "max")

    def _set_objective(self, expression: Expression, sense: Literal["min", "max"]) -> None:
        """Read the objective, and check that it is linear and has no free index."""
        if self.objective is not None:
            raise ModelError(f"model {self.name}: the objective is set already")
        formula = as_expression(expression)
        terms = linear_terms(formula, "objective")
        self._check_owner("objective", (t.variable for t in terms))
        for term in terms:
            for index in sorted(term.free_indices(), key=str):
                raise ModelError(f"objective: index {index} of the term {term} is not summed over")
        self.objective, self.sense, self._objective_terms = formula, sense, terms

    def require(
        self,
        name: str,
        relation: Relation,
        *,
        forall: Index | Sequence[Index] = (),
        where: Where | None = None,
        privacy: bool | None = None,
    ) -> None:
        """Add a family of rows: one relation for all index tuples.

        Args:
            name: of the family; errors, duals and infeasibility speak of it.
            relation: ``Le``, ``Ge`` or ``Eq`` of linear expressions, or ``implies(binary, relation)``.
            forall: the indices of its rows.
            where: tuples that count: an integer array (P, m) of places or a sequence of tuples of labels, for the
                first m indices of forall (the rest run over their whole sets), or ``((i, k), tuples)``.
            privacy: whether ``z_i <= exp(L) z_j`` is a privacy family, whose exponents are kept apart and whose
                rows may be tightened, never loosened, for a solver. Default: it is if it has that shape and a
                factor is written with ``exp``.

        Raises:
            ModelError: not linear, an index neither in forall nor summed over, a label that is not in its set, a
                variable of another model.
        """
        self._add_family(family(name, relation, forall, where, privacy, "rows"))

    def _add_family(self, family: Family) -> None:
        self._check_owner(f"family {family.name}", (t.variable for t in (*family.terms, *family.switch)))
        # Reserved last, so that a refused family leaves its name free.
        self._reserve_name(family.name, "family")
        self.families.append(family)

    def piecewise(
        self,
        name: str,
        expression: Expression,
        breakpoints: ArrayLike,
        values: ArrayLike,
        *,
        forall: Index | Sequence[Index] = (),
        where: Where | None = None,
    ) -> Variable:
        """Add a convex (concave) piecewise-linear term, as a variable above (below) all its lines.

        The variable takes the function's value where the model pushes it there: a convex one must be minimised or
        bounded from above, a concave one the other way; compiling checks that.

        Args:
            name: of the variable and of its rows.
            expression: linear expression that the function is applied to.
            breakpoints: two or more, rising, shape (B,) or one row for each index tuple, (sizes of forall ..., B).
            values: the function at the breakpoints; its outer pieces go on beyond them.
            forall, where: as in ``require``.

        Returns:
            The variable, over the sets of forall: ``m.minimize(total(w[i] * t[i], over=i))``.
        """
        indices = (forall,) if isinstance(forall, Index) else tuple(forall)
        sets = tuple(i.index_set for i in indices)
        slopes, intercepts, curvature = piecewise_lines(name, tuple(len(s) for s in sets), breakpoints, values)
        variable = self.variable(name, *sets, lower=None)
        pieces = IndexSet(f"{name} pieces", slopes.shape[-1])
        # The pieces are one more index of the family, so that a single relation states all lines.
        q = Index("q", pieces)
        slope = Param(f"{name} slope", (*sets, pieces), slopes)
        intercept = Param(f"{name} lift", (*sets, pieces), intercepts)
        line_indices = (*indices, q)
        line = slope[line_indices] * as_expression(expression) + intercept[line_indices]
        term = variable[indices] if indices else variable
        relation = {"convex": Ge, "concave": Le, "linear": Eq}[curvature](term, line)
        rows = f"{name} lines"
        self._add_family(family(rows, relation, line_indices, where, False, "piecewise"))
        if curvature != "linear":
            self._piecewise_terms.append((variable, curvature, rows))
        return variable

    def add_block(
        self,
        name: str,
        matrix: ArrayLike | sparse.csr_matrix,
        *,
        columns: Variable | Sequence[Variable] | Ints,
        lower: ArrayLike = -np.inf,
        upper: ArrayLike = np.inf,
    ) -> None:
        """Add ready rows ``lower <= matrix x[columns] <= upper``.

        Args:
            name: of the family.
            matrix: sparse or dense, shape (rows, columns).
            columns: the columns of the model that its columns are: a variable or several (row-major), or numbers
                from ``Variable.columns``.
            lower, upper: numbers or arrays of one entry a row.
        """
        block_matrix = sparse.csr_matrix(matrix, dtype=np.float64)
        if isinstance(columns, Variable):
            columns = [columns]
        if not isinstance(columns, np.ndarray):
            self._check_owner(f"block {name}", (c for c in columns if isinstance(c, Variable)))
            columns = np.concatenate([c.columns() if isinstance(c, Variable) else np.atleast_1d(c) for c in columns])
        columns = columns.astype(np.int64)
        rows = block_matrix.shape[0]
        if block_matrix.shape[1] != len(columns):
            raise ModelError(f"block {name}: matrix of shape {block_matrix.shape} for {len(columns)} columns")
        if len(columns) and (columns.min() < 0 or columns.max() >= self._columns):
            raise ModelError(f"block {name}: columns must be 0 to {self._columns - 1}, got {columns.max()}")
        if not np.isfinite(block_matrix.data).all():
            raise ModelError(f"block {name}: a coefficient is {block_matrix.data[~np.isfinite(block_matrix.data)][0]}")
        sides = [
            _broadcast_side(name, side_name, value, rows) for side_name, value in (("lower", lower), ("upper", upper))
        ]
        self._reserve_name(name, "block")
        self.families.append(Block(name=name, matrix=block_matrix, lower=sides[0], upper=sides[1], columns=columns))

    def compile(self) -> StandardForm:
        """Compile the model to arrays. This takes a second or two for 1e6 rows."""
        form = compile_model(self.variables, self.families, self._objective_terms, self.sense)
        for variable, curvature, rows in self._piecewise_terms:
            _check_curvature(form, variable, curvature, rows)
        return form

    def solve(self, backend: str | Solver = "cbc", **options: Unpack[SolveOptions]) -> Solution:
        """Compile and solve the model.

        Args:
            backend: "cbc", "highs", or a backend object.
            options: of ``Backend.solve``: time_limit (seconds), gap (relative), method, threads, seed.

        Raises:
            InfeasibleError: naming the families that clash. UnboundedError.
            StoppedError: a limit came before anything feasible. SolverError: the solver died or lied.
        """
        return solve_form(self.compile(), backend, name=self.name, **options)

    def __str__(self) -> str:
        return show.format_model(self)

    __repr__ = __str__


def _check_curvature(form: StandardForm, variable: Variable, curvature: str, rows: str) -> None:
    """Check that nothing but its own lines holds a convex term up (a concave one down)."""
    sign = 1.0 if curvature == "convex" else -1.0
    columns = slice(variable.start, variable.start + variable.size)
    # Positive costs push a convex variable down onto its lines; a negative one would let it float.
    cost = sign * form.c[columns] * (1.0 if form.sense == "min" else -1.0)
    line_block = form.family(rows)
    elsewhere = [f"objective ({form.sense}imize)"] if (cost < 0).any() else []
    for block in form.families:
        if block is line_block:
            continue
        # An entry of another family pulls the wrong way if a side of its row stops the term from meeting its lines.
        part = form.A[block.start : block.stop, columns].tocoo()
        pull = sign * part.data
        at_least = np.isfinite(form.row_lower[block.start : block.stop])[part.row]
        at_most = np.isfinite(form.row_upper[block.start : block.stop])[part.row]
        if (at_least & (pull > 0)).any() or (at_most & (pull < 0)).any():
            elsewhere.append(f"family {block.name}")
    if elsewhere:
        use = "minimised or bounded from above" if curvature == "convex" else "maximised or bounded from below"
        raise ModelError(
            f"piecewise {variable.name} is {curvature} and may only be {use}, which {', '.join(elsewhere)} is not"
        )


def _broadcast_side(name: str, side_name: str, value: ArrayLike, rows: int) -> Floats:
    """Broadcast the lower or the upper side of a block's rows, shape (rows,)."""
    try:
        sides = np.broadcast_to(np.asarray(value, dtype=np.float64), (rows,)).copy()
    except ValueError:
        raise ModelError(f"block {name}: {side_name} must have shape ({rows},), got {np.shape(value)}") from None
    if np.isnan(sides).any():
        raise ModelError(f"block {name}: {side_name} holds a NaN")
    return sides
