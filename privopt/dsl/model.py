"""The container of a model: variables, params, families of constraints, and the objective.

A model holds symbols only. Compiling turns it into arrays, and solving hands these to a backend.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, Unpack

import numpy as np
import sympy
from numpy.typing import ArrayLike
from scipy import sparse

from privopt.arrays import Floats, Ints
from privopt.dsl import show
from privopt.dsl.compile import CompiledParts, compile_model
from privopt.dsl.form import StandardForm
from privopt.dsl.linear import Eq, Expression, Ge, Le, Term, Where, as_expression, linear_terms
from privopt.dsl.lowering import Block, Family, Relation, family, piecewise_lines
from privopt.dsl.outcome import Basis
from privopt.dsl.sets import IndexSet
from privopt.dsl.solution import Solution, SolveOptions, Solver, solve_form
from privopt.dsl.symbols import Index, Kind, Param, Source, Variable
from privopt.errors import ModelError


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

    Params may be given without their sets. Indices over any sets of the right sizes are then accepted.
    """

    # Slots, so that setting an attribute that does not exist is an error.
    __slots__ = (
        "_columns",
        "_families",
        "_last_solve",
        "_names",
        "_objective",
        "_objective_terms",
        "_params",
        "_parts",
        "_piecewise_terms",
        "_sense",
        "_variables",
        "name",
    )

    def __init__(self, name: str) -> None:
        """Create an empty model called ``name``."""
        self.name = name
        self._variables: list[Variable] = []
        self._families: list[Family | Block] = []
        self._params: dict[str, Param] = {}
        self._objective: sympy.Expr | None = None
        self._sense: Literal["min", "max"] = "min"
        self._objective_terms: list[Term] = []
        # Names of variables, params and families together, the number of columns so far, and for each piecewise term
        # its variable, its curvature and the name of its rows, which compile() checks.
        self._names: set[str] = set()
        self._columns = 0
        self._piecewise_terms: list[tuple[Variable, str, str]] = []
        self._parts = CompiledParts()
        self._last_solve: tuple[StandardForm, Basis] | None = None

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The variables, in the order of their columns."""
        return tuple(self._variables)

    @property
    def families(self) -> tuple[Family | Block, ...]:
        """The families, in the order of their rows."""
        return tuple(self._families)

    @property
    def params(self) -> dict[str, Param]:
        """The parameters by name."""
        return dict(self._params)

    @property
    def objective(self) -> sympy.Expr | None:
        """The formula of the objective, or None if the model has none."""
        return self._objective

    @property
    def sense(self) -> Literal["min", "max"]:
        """Direction of the objective: "min" or "max"."""
        return self._sense

    def _check_name(self, name: str, kind: str) -> None:
        """Refuse a name that is empty or taken, because errors, duals and values are looked up by name.

        ``kind`` says in the message what the name is for, such as "variable".
        """
        if not isinstance(name, str) or not name:
            raise ModelError(f"{kind}: its name must be a text, got {name!r}")
        if name in self._names:
            raise ModelError(f"model {self.name}: the name {name!r} is taken")

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
            name: The name that is printed, and under which a solution has the values.
            sets: The sets that the variable is indexed by; none for a scalar.
            lower, upper: Bounds, as numbers or as arrays that broadcast to the sizes of the sets; None for no bound.
                They can be changed later: ``z.upper = 2``.
            kind: "continuous", "integer", or "binary" for an integer between 0 and 1.
        """
        if kind not in ("continuous", "integer", "binary"):
            raise ModelError(f"variable {name}: kind must be continuous, integer or binary, got {kind!r}")
        self._check_name(name, "variable")
        variable = Variable(name, tuple(sets), kind)
        variable.owner, variable.start = self, self._columns
        variable.lower, variable.upper = lower, upper
        variable.check_bounds()
        # Added last, so that a refused variable leaves the model, and its name, as they were.
        self._names.add(name)
        self._columns += variable.size
        self._variables.append(variable)
        return variable

    def _check_owner(self, where: str, variables: Iterable[Variable | None]) -> None:
        """Refuse variables of another model, because the numbers of their columns mean other variables in this one.

        ``where`` is the place that the error message names.
        """
        for variable in variables:
            if variable is not None and variable.owner is not self:
                owner_name = variable.owner.name
                owner_text = f"model {owner_name}" if owner_name != self.name else f"another model called {owner_name}"
                raise ModelError(
                    f"{where}: variable {variable.name} must be one of model {self.name}, got one of {owner_text}"
                )

    def param(self, name: str, source: ArrayLike | Source, *sets: IndexSet) -> Param:
        """Declare known numbers that formulas may use.

        Args:
            name: The name that is printed.
            source: A number, an array, or a function that takes an integer array of positions for each index and
                returns an array of values. Numbers with labels (a dict, pandas, a polars table) are matched with the
                labels of the sets, which must be given.
            sets: The sets that the parameter is indexed by. If they are omitted, indices over any sets of the right
                sizes may be used.

        Returns:
            The parameter. Its numbers can be changed later: ``p.value = ...``, or ``solve(params={"p": ...})``.
        """
        self._check_name(name, "param")
        param = Param(name, tuple(sets) or None, source)
        self._names.add(name)
        self._params[name] = param
        return param

    def minimize(self, expression: Expression, *, replace: bool = False) -> None:
        """Set an objective to minimise. ``replace`` must be True if the model already has an objective."""
        self._set_objective(expression, "min", replace)

    def maximize(self, expression: Expression, *, replace: bool = False) -> None:
        """Set an objective to maximise. ``replace`` must be True if the model already has an objective."""
        self._set_objective(expression, "max", replace)

    def remove_objective(self) -> None:
        """Remove the objective; without one, any point that satisfies the rows is a solution."""
        self._objective, self._sense, self._objective_terms = None, "min", []

    def _set_objective(self, expression: Expression, sense: Literal["min", "max"], replace: bool) -> None:
        """Set the objective, a linear expression whose indices are all summed over."""
        if self._objective is not None and not replace:
            raise ModelError(f"model {self.name}: the objective is set already; replace=True puts another in its place")
        formula = as_expression(expression)
        terms = linear_terms(formula, "objective")
        self._check_owner("objective", (t.variable for t in terms))
        for term in terms:
            for index in sorted(term.free_indices(), key=str):
                raise ModelError(f"objective: index {index} of the term {term} is not summed over")
        self._objective, self._sense, self._objective_terms = formula, sense, terms

    def require(
        self,
        name: str,
        relation: Relation,
        *,
        forall: Index | Sequence[Index] = (),
        where: Where | None = None,
        privacy: bool | None = None,
        replace: bool = False,
    ) -> None:
        """Add a family of rows: one relation for all index tuples.

        Args:
            name: The family's name, which appears in errors, duals and explanations of infeasibility.
            relation: ``Le``, ``Ge`` or ``Eq`` of linear expressions, ``between(lower, expression, upper)``, or
                ``implies(binary, relation)``.
            forall: The indices of the rows.
            where: The index tuples that get a row; None for all. Either an integer array (P, m) of positions or a
                sequence of tuples of labels, for the first m indices of forall (the others run over their whole sets);
                or ``((i, k), tuples)``, which names the restricted indices.
            privacy: Whether the rows are privacy rows ``z_i <= exp(L) z_j``. Their exponents are stored separately, and
                a solver may get tightened rows, but never loosened ones. By default, a family of this shape is a
                privacy family if a factor is written with ``exp``.
            replace: Whether the family replaces the existing family of the same name.

        Raises:
            ModelError: The relation is not linear, an index is neither in forall nor summed over, a label is not in its
                set, a variable belongs to another model, or the family to be replaced does not exist.
        """
        self._add_family(family(name, relation, forall, where, privacy, "rows"), replace)

    def _add_family(self, family: Family, replace: bool = False) -> None:
        """Add a family of rows, whose variables must all belong to this model."""
        self._check_owner(f"family {family.name}", (t.variable for t in family.all_terms))
        # Added last, so that a refused family leaves the model as it was.
        self._insert_rows(family, replace)

    def _insert_rows(self, rows: Family | Block, replace: bool) -> None:
        """Append rows, or put them in the place of the rows of the same name."""
        if replace:
            self._families[self._family_number(rows.name)] = rows
        else:
            self._check_name(rows.name, "family" if isinstance(rows, Family) else "block")
            self._names.add(rows.name)
            self._families.append(rows)

    def remove_family(self, name: str) -> None:
        """Remove a family of rows.

        Raises:
            ModelError: No family has this name, or its rows define a piecewise term.
        """
        del self._families[self._family_number(name)]
        self._names.remove(name)

    def _family_number(self, name: str) -> int:
        """Return the position of a family among the families, or refuse one that must not be replaced or removed."""
        names = [rows.name for rows in self._families]
        if name not in names:
            raise ModelError(f"no family is called {name!r}; there are {', '.join(names) or 'none'}")
        number = names.index(name)
        if self._families[number].kind == "piecewise":
            raise ModelError(f"family {name}: its rows define a piecewise term, so that they can only be added")
        return number

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
        """Add a convex (concave) piecewise-linear term, as a variable that lies above (below) all of its lines.

        The variable equals the function only if the model pushes it onto the lines. So a convex term must be minimised
        or bounded from above, and a concave term must be maximised or bounded from below; :meth:`compile` checks this.

        Args:
            name: Name of the variable; its rows are called ``<name> lines``.
            expression: The linear expression that the function is applied to.
            breakpoints: Two or more increasing numbers, shape (B,), or one such row for each index tuple, shape
                (sizes of forall ..., B).
            values: The function at the breakpoints. The first and the last piece extend beyond them.
            forall: The indices of the term, which has one function for each tuple of their values.
            where: The index tuples that get rows, as an integer array (P, m) of positions or a sequence of tuples of
                labels; None for all.

        Returns:
            The variable, over the sets of forall, for use as in ``m.minimize(total(w[i] * t[i], over=i))``.
        """
        indices = (forall,) if isinstance(forall, Index) else tuple(forall)
        sets = tuple(i.index_set for i in indices)
        slopes, intercepts, curvature = piecewise_lines(name, tuple(len(s) for s in sets), breakpoints, values)
        # Free, because the function's values may be negative: only its lines bound it.
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
        replace: bool = False,
    ) -> None:
        """Add rows ``lower <= matrix x[columns] <= upper`` that are given as arrays instead of a formula.

        Args:
            name: The family's name.
            matrix: Coefficients, sparse or dense, shape (rows, columns).
            columns: The model's column for each column of ``matrix``: one or more variables (row-major), or column
                numbers from ``Variable.columns``.
            lower, upper: Sides of the rows: numbers, or arrays with one entry for each row.
            replace: Whether the rows replace the existing family of the same name.
        """
        block_matrix = sparse.csr_matrix(matrix, dtype=np.float64)
        # Variables become the numbers of their columns; numbers are taken as they are.
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
        block = Block(name=name, matrix=block_matrix, lower=sides[0], upper=sides[1], columns=columns)
        self._insert_rows(block, replace)

    def compile(self) -> StandardForm:
        """Compile the model to arrays, which takes a second or two for 1e6 rows.

        Families whose parameters and bounds have not changed since the last call are not compiled again.
        """
        form = compile_model(self._variables, self._families, self._objective_terms, self._sense, self._parts)
        for variable, curvature, rows in self._piecewise_terms:
            _check_curvature(form, variable, curvature, rows)
        return form

    def set_params(self, values: Mapping[str, ArrayLike | Source]) -> None:
        """Change the values of parameters. If one of the new values is refused, none is changed.

        Args:
            values: New values by the name of the parameter, in any form that :attr:`Param.value` accepts.

        Raises:
            ModelError: The model has no parameter of such a name, or a value does not fit the parameter's sets.
        """
        for name in values:
            if name not in self._params:
                names = ", ".join(self._params) or "none"
                raise ModelError(f"model {self.name}: no param is called {name!r}; there are {names}")
        # Checked first, so that a refused value leaves all parameters as they were.
        sources = {name: self._params[name].check_value(value) for name, value in values.items()}
        for name, source in sources.items():
            self._params[name].value = source

    def solve(
        self,
        backend: str | Solver = "cbc",
        *,
        params: Mapping[str, ArrayLike | Source] | None = None,
        **options: Unpack[SolveOptions],
    ) -> Solution:
        """Compile and solve the model.

        A changed model can be solved again. Only families whose numbers changed are compiled, and HiGHS starts from the
        basis of the last solve. If there are several optimal points, it may therefore return another one than for a new
        model.

        Args:
            backend: "cbc", "highs", or a backend object.
            params: New values of parameters by name. They remain in effect, as if set by ``param.value = ...``.
            options: Options of ``Backend.solve``, the same for all solvers: time_limit (seconds), gap (the relative gap
                at which a search over integers may stop), log (True shows the solver's log on standard error), method,
                threads, seed.

        Raises:
            InfeasibleError: No point satisfies all rows; the message names the families that clash.
            UnboundedError: The objective improves without limit.
            StoppedError: The solver reached a limit before it found a feasible point.
            SolverError: The solver failed, or none of its answers passed the checks.
        """
        if params is not None:
            self.set_params(params)
        form = self.compile()
        if self._last_solve is not None and "basis" not in options:
            old_form, old_basis = self._last_solve
            options["basis"] = old_basis.carry_over(old_form, form)
        solution = solve_form(form, backend, name=self.name, **options)
        if solution.basis is not None:
            self._last_solve = form, solution.basis
        return solution

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the model to an MPS or LP file, as the path ends in ``.mps`` or ``.lp``, with row and column names.

        See :func:`privopt.dsl.write_form`. Privacy rows are written with their factors exp(L), for which exponents L
        above 700 are reduced to 700.
        """
        from privopt.dsl.model_files import write_form

        write_form(self.compile(), path, self.name)

    def __str__(self) -> str:
        return show.format_model(self)

    __repr__ = __str__

    def latex(self) -> str:
        """Return the model as one aligned formula in LaTeX, without dollar signs."""
        return show.format_latex(self)

    def _repr_latex_(self) -> str:
        return f"$\\displaystyle {self.latex()}$"

    def _repr_html_(self) -> str:
        return show.format_html(self)


def _check_curvature(form: StandardForm, variable: Variable, curvature: str, rows: str) -> None:
    """Check that the objective and all other families push a piecewise variable onto its lines.

    A convex term lies above its lines, so everything else must push it down. A concave term must be pushed up.

    Args:
        form: The compiled model.
        variable: The variable of the piecewise term.
        curvature: "convex" or "concave".
        rows: Name of the family of its lines.
    """
    # A concave term is treated as its negative, which is convex.
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
    """Return a side of a block's rows as one number for each row, shape (rows,).

    Args:
        name: The block, for messages.
        side_name: "lower" or "upper", for messages.
        value: One number for all rows, or one for each row.
        rows: Number of rows.
    """
    try:
        sides = np.broadcast_to(np.asarray(value, dtype=np.float64), (rows,)).copy()
    except ValueError:
        raise ModelError(f"block {name}: {side_name} must have shape ({rows},), got {np.shape(value)}") from None
    if np.isnan(sides).any():
        raise ModelError(f"block {name}: {side_name} holds a NaN")
    return sides
