"""The container for a model: its variables, parameters, constraint families and objective.

A model consists of symbols only. It is compiled to arrays, which a backend then solves.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal, NoReturn, Unpack, cast, get_args

import numpy as np
import sympy
from numpy.typing import ArrayLike
from scipy import sparse

from privopt.arrays import Ints
from privopt.dsl import show
from privopt.dsl.compile import CompiledParts, compile_model
from privopt.dsl.curvature import check_curvature
from privopt.dsl.extrema import Epigraph, FunctionReplacer
from privopt.dsl.form import StandardForm
from privopt.dsl.labelled import as_double_matrix
from privopt.dsl.linear import Eq, Expression, Ge, Le, Term, Where, as_expression
from privopt.dsl.lowering import Block, Family, Relation, broadcast_side, build_family, line_families, piecewise_lines
from privopt.dsl.outcome import Basis
from privopt.dsl.quadratic import QuadraticTerm, quadratic_terms
from privopt.dsl.relations import refuse_copy
from privopt.dsl.sets import IndexSet
from privopt.dsl.solution import (
    BackendOptions,
    Solution,
    SolveOptions,
    Solver,
    complete_extremum,
    load_solver,
    solve_form,
    start_vector,
)
from privopt.dsl.symbols import Index, Param, Source, VectorRelation
from privopt.dsl.variables import Kind, Variable
from privopt.errors import ModelError


class Model:
    """A linear or mixed-integer model, written as formulas.

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

    Parameters may be declared without their sets. They can then be indexed over any sets of the right sizes.
    """

    # With slots, setting an attribute that does not exist is an error.
    __slots__ = (
        "_columns",
        "_families",
        "_last_solve",
        "_lines",
        "_names",
        "_objective",
        "_objective_epigraphs",
        "_objective_terms",
        "_params",
        "_parts",
        "_piecewise_terms",
        "_quadratic_terms",
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
        self._quadratic_terms: tuple[QuadraticTerm, ...] = ()
        self._objective_epigraphs: tuple[Epigraph, ...] = ()
        # The families with the lines of each absolute value or extremum in use.
        self._lines: dict[Epigraph, list[Family]] = {}
        # Names of variables, params and families together, the number of columns so far, and for each piecewise term
        # its variable, its curvature and the name of its rows, which compile() checks.
        self._names: set[str] = set()
        self._columns = 0
        self._piecewise_terms: list[tuple[Variable, str, str]] = []
        # Results of the last compilation and solve, which are reused if the model is changed and solved again.
        self._parts = CompiledParts()
        self._last_solve: tuple[StandardForm, Basis] | None = None

    @property
    def variables(self) -> tuple[Variable, ...]:
        """The variables, in the order of their columns."""
        return tuple(self._variables)

    @property
    def families(self) -> tuple[Family | Block, ...]:
        """The families of constraints, in the order of their rows."""
        return tuple(self._families)

    @property
    def params(self) -> dict[str, Param]:
        """The parameters, keyed by name."""
        return dict(self._params)

    @property
    def objective(self) -> sympy.Expr | None:
        """The formula of the objective, or None if the model has none."""
        return self._objective

    @property
    def sense(self) -> Literal["min", "max"]:
        """The direction of the objective: "min" or "max"."""
        return self._sense

    def _check_name(self, name: str, kind: str) -> None:
        """Raise an error if a name is empty or taken. ``kind`` says what the name is for, such as "variable"."""
        # Names must be distinct, because errors, duals and values are looked up by them.
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
        """Add a decision variable over a product of sets.

        Args:
            name: The name that identifies the variable in printed models and in solutions.
            sets: The sets that the variable is indexed by; none for a scalar.
            lower, upper: Bounds, as numbers or as arrays that broadcast to the variable's shape, or None for no bound.
                They can be changed later: ``z.upper = 2``.
            kind: "continuous", "integer", "binary" or "semicontinuous". A binary variable is 0 or 1. A semicontinuous
                variable is 0 or within its bounds, which must be finite and at least 0.

        Raises:
            ModelError: The name is taken, or the kind, a set or a bound is invalid.
        """
        if kind not in get_args(Kind):
            kinds = "continuous, integer, semicontinuous or binary"
            raise ModelError(f"variable {name}: kind must be {kinds}, got {kind!r}")
        self._check_name(name, "variable")
        not_sets = [value for value in sets if not isinstance(value, IndexSet)]
        if not_sets:
            expectation = "its sets must be IndexSets, such as IndexSet('X', 3)"
            raise ModelError(f"variable {name}: {expectation}, got {not_sets[0]!r}")
        variable = self._create_variable(name, sets, lower, upper, kind)
        self._add_variable(variable)
        return variable

    def _create_variable(
        self, name: str, sets: tuple[IndexSet, ...], lower: ArrayLike | None, upper: ArrayLike | None, kind: Kind
    ) -> Variable:
        """Create a variable whose columns follow the model's last column, without adding it to the model yet."""
        variable = Variable(name, tuple(sets), kind)
        variable.owner, variable.start = self, self._columns
        variable.lower, variable.upper = lower, upper
        variable.check_bounds()
        return variable

    def _add_variable(self, variable: Variable) -> None:
        """Add a variable to the model. The caller must check it first, so that errors leave the model unchanged."""
        self._names.add(variable.name)
        self._columns += variable.size
        self._variables.append(variable)

    def _check_owner(self, where: str, variables: Iterable[Variable | None]) -> None:
        """Raise a ModelError whose message begins with ``where`` if a variable belongs to another model."""
        # The column indices of another model's variable would refer to other variables in this one.
        for variable in variables:
            if variable is not None and variable.owner is not self:
                owner_name = variable.owner.name
                owner_text = f"model {owner_name}" if owner_name != self.name else f"another model called {owner_name}"
                raise ModelError(
                    f"{where}: variable {variable.name} must be one of model {self.name}, got one of {owner_text}"
                )

    def param(self, name: str, source: ArrayLike | Source, *sets: IndexSet) -> Param:
        """Add a parameter: one or more known numbers with a name, for use in formulas.

        Args:
            name: The name under which the parameter is printed.
            source: A number, an array, or a function that takes an integer array of positions for each index and
                returns an array of values. Labelled numbers (a dict, pandas, a polars table) are matched to the labels
                of the sets, which are then required.
            sets: The sets that the parameter is indexed by. If they are omitted, indices over any sets of the right
                sizes may be used.

        Returns:
            The parameter. Its numbers can be changed later: ``p.value = ...``, or ``solve(params={"p": ...})``.

        Raises:
            ModelError: The name is taken, or the values do not fit the sets.
        """
        self._check_name(name, "param")
        param = Param(name, tuple(sets) or None, source)
        self._names.add(name)
        self._params[name] = param
        return param

    def minimize(self, expression: Expression, *, replace: bool = False) -> None:
        """Set a linear or quadratic objective to minimise. To replace an existing objective, ``replace`` must be True.

        A quadratic objective must be convex, which :meth:`compile` checks, and needs a solver such as HiGHS.

        Raises:
            ModelError: The model already has an objective, or the expression is not a valid objective. The message says
                why.
        """
        self._set_objective(expression, "min", replace)

    def maximize(self, expression: Expression, *, replace: bool = False) -> None:
        """Set an objective to maximise. See :meth:`minimize` for details. A quadratic objective must be concave."""
        self._set_objective(expression, "max", replace)

    def remove_objective(self) -> None:
        """Remove the objective. Every point that satisfies the rows is then a solution."""
        self._put_objective(None, "min", [], (), ())

    def _put_objective(
        self,
        formula: sympy.Expr | None,
        sense: Literal["min", "max"],
        terms: list[Term],
        quadratic: Sequence[QuadraticTerm],
        epigraphs: Sequence[Epigraph],
    ) -> None:
        """Replace the objective with one that has already been checked.

        In ``terms`` and ``quadratic``, the variables of ``epigraphs`` represent absolute values, minima and maxima.
        """
        self._objective, self._sense, self._objective_terms = formula, sense, terms
        self._quadratic_terms, self._objective_epigraphs = tuple(quadratic), tuple(epigraphs)

    def _set_objective(self, expression: Expression, sense: Literal["min", "max"], replace: bool) -> None:
        """Set the objective, as described for :meth:`minimize` and :meth:`maximize`."""
        if self._objective is not None and not replace:
            raise ModelError(f"model {self.name}: the objective is set already; replace=True replaces it")
        formula = as_expression(expression)
        replacer = FunctionReplacer("objective")
        terms, quadratic = quadratic_terms(replacer.replace(formula), "objective")
        self._adopt_epigraphs("objective", replacer.epigraphs)
        factors = [t for term in quadratic for t in (*term.left, *term.right)]
        self._check_owner("objective", (t.variable for t in (*terms, *factors)))
        free = [(index, str(term)) for term in terms for index in term.free_indices()]
        free += [(index, str(formula)) for term in quadratic for index in term.free_indices()]
        for index, text in sorted(free, key=str):
            raise ModelError(f"objective: index {index} of the term {text} is not summed over")
        self._put_objective(formula, sense, terms, quadratic, replacer.epigraphs)

    def _adopt_epigraphs(self, where: str, epigraphs: Iterable[Epigraph]) -> None:
        """Assign the epigraphs' variables to this model. Raise an error if a line uses another model's variables."""
        for epigraph in epigraphs:
            epigraph.variable.owner, epigraph.variable.start = self, 0  # compile() assigns the columns
            for lines in line_families(epigraph):
                self._check_owner(where, (t.variable for t in lines.all_terms))

    def require(
        self,
        name: str,
        relation: Relation | VectorRelation,
        *,
        forall: Index | Sequence[Index] = (),
        where: Where | None = None,
        privacy: bool | None = None,
        replace: bool = False,
    ) -> None:
        """Add a family of rows: one relation that holds for each of its index tuples.

        Args:
            name: The family's name, which is used in errors, duals and explanations of infeasibility.
            relation: ``Le``, ``Ge`` or ``Eq`` of linear expressions, ``between(lower, expression, upper)``,
                ``implies(binary, relation)``, or a relation written without indices, such as ``A @ x <= b``.
            forall: The indices that the rows run over. Omit them for a relation written without indices.
            where: The index tuples to create rows for, or None for all. An integer array of positions, shape (P, m), or
                a sequence of tuples of m labels, restricts the first m indices in ``forall``. A pair
                ``((i, k), tuples)`` restricts the indices that it names. All other indices run over their whole sets.
            privacy: Whether the rows are privacy rows ``z_i <= exp(L) z_j``. The exponents L of privacy rows are stored
                separately, and scaling for a solver may tighten but never loosen these rows. By default, rows of this
                form are privacy rows if a factor is written with ``exp``.
            replace: Whether the family replaces the existing family of the same name.

        Raises:
            ModelError: The relation is not linear, an index is neither in ``forall`` nor summed over, a label is not in
                its set, a variable belongs to another model, or the family to be replaced does not exist.
        """
        if isinstance(relation, VectorRelation):
            if forall != ():
                raise ModelError(f"family {name}: a relation of whole variables has its own indices, got forall")
            relation, forall = relation.relation, relation.indices
        family = build_family(name, relation, forall, where, privacy, "rows")
        self._adopt_epigraphs(f"family {name}", family.epigraphs)
        self._check_owner(f"family {name}", (t.variable for t in family.all_terms))
        # Added last, so that the model is unchanged if the family is rejected.
        self._insert_rows(family, replace)

    def _insert_rows(self, rows: Family | Block, replace: bool) -> None:
        """Append a family of rows, or replace the family of the same name if ``replace`` is True."""
        if replace:
            self._families[self._family_number(rows.name)] = rows
        else:
            self._check_name(rows.name, "family" if isinstance(rows, Family) else "block")
            self._names.add(rows.name)
            self._families.append(rows)

    def remove_family(self, name: str) -> None:
        """Remove a family of rows.

        Raises:
            ModelError: No family has this name, or its rows belong to a piecewise-linear term.
        """
        del self._families[self._family_number(name)]
        self._names.remove(name)

    def _family_number(self, name: str) -> int:
        """Return the position of a family, which must exist and must not belong to a piecewise-linear term."""
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
        """Add a convex or concave piecewise-linear term, represented by a variable.

        The variable lies on or above all lines of a convex function, or on or below those of a concave one. It equals
        the function only if the rest of the model pushes it onto the lines. A convex term must therefore be minimised
        or bounded from above, and a concave term maximised or bounded from below. :meth:`compile` checks this.

        Args:
            name: The name of the variable; its rows are called ``<name> lines``.
            expression: The linear expression that the function is applied to.
            breakpoints: Two or more increasing numbers, as an array of shape (B,); or separate breakpoints for each
                index tuple, with one axis for each index in ``forall`` followed by an axis of length B.
            values: The function's values at the breakpoints. The first and last pieces extend beyond the breakpoints.
            forall: The term's indices. There is one function for each tuple of their values.
            where: The index tuples to create rows for, as positions of shape (P, m) or as tuples of labels, or None for
                all.

        Returns:
            The variable over the sets of ``forall``, for use in formulas such as ``total(w[i] * t[i], over=i)``.

        Raises:
            ModelError: A function is neither convex nor concave, a name is taken, or an argument is invalid.
        """
        indices = (forall,) if isinstance(forall, Index) else tuple(forall)
        sets = tuple(i.index_set for i in indices)
        slopes, intercepts, curvature = piecewise_lines(name, tuple(len(s) for s in sets), breakpoints, values)
        rows = f"{name} lines"
        # Everything is checked before anything is added, so that the model is unchanged if the term is rejected.
        self._check_name(name, "variable")
        self._check_name(rows, "family")
        # Without bounds, because the function may be negative. Only the lines bound the variable.
        variable = self._create_variable(name, sets, lower=None, upper=None, kind="continuous")
        pieces = IndexSet(f"{name} pieces", slopes.shape[-1])
        # The pieces are one more index of the family, so that a single relation covers all lines.
        q = Index("q", pieces)
        slope = Param(f"{name} slope", (*sets, pieces), slopes)
        intercept = Param(f"{name} lift", (*sets, pieces), intercepts)
        line_indices = (*indices, q)
        line = slope[line_indices] * as_expression(expression) + intercept[line_indices]
        term = variable[indices] if indices else variable
        relation = {"convex": Ge, "concave": Le, "linear": Eq}[curvature](term, line)
        lines = build_family(rows, relation, line_indices, where, False, "piecewise")
        self._check_owner(f"family {rows}", (t.variable for t in lines.all_terms))
        self._add_variable(variable)
        self._insert_rows(lines, replace=False)
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
        """Add rows ``lower <= matrix x[columns] <= upper``, given as arrays instead of a formula.

        Args:
            name: The name of the new family of rows.
            matrix: (rows, columns) The coefficients, sparse or dense.
            columns: The model's column for each column of ``matrix``: one or more variables (row-major), or column
                indices from ``Variable.columns``.
            lower, upper: The lower and upper bounds of the rows: numbers, or arrays with one entry for each row.
            replace: Whether the rows replace the existing family of the same name.

        Raises:
            ModelError: An argument is invalid; the message says why.
        """
        try:
            block_matrix = sparse.csr_matrix(as_double_matrix(matrix))
        except (TypeError, ValueError):
            raise ModelError(f"block {name}: its matrix must be of numbers, sparse or of two dimensions") from None
        # Variables are replaced by the indices of their columns; indices are used unchanged.
        if isinstance(columns, Variable):
            columns = [columns]
        if not isinstance(columns, np.ndarray):
            self._check_owner(f"block {name}", (c for c in columns if isinstance(c, Variable)))
            parts = [c.columns() if isinstance(c, Variable) else np.atleast_1d(c) for c in columns]
            columns = np.concatenate(parts) if parts else np.empty(0, dtype=np.int64)
        # Masks and fractions would silently become other indices.
        if len(columns) and columns.dtype.kind not in "iu":
            raise ModelError(f"block {name}: columns must be integers, got an array of {columns.dtype}")
        columns = columns.astype(np.int64)
        rows = block_matrix.shape[0]
        if block_matrix.shape[1] != len(columns):
            raise ModelError(f"block {name}: matrix of shape {block_matrix.shape} for {len(columns)} columns")
        is_outside = (columns < 0) | (columns >= self._columns)
        if is_outside.any():
            raise ModelError(f"block {name}: columns must be 0 to {self._columns - 1}, got {columns[is_outside][0]}")
        if not np.isfinite(block_matrix.data).all():
            raise ModelError(f"block {name}: a coefficient is {block_matrix.data[~np.isfinite(block_matrix.data)][0]}")
        sides = [
            broadcast_side(name, side_name, value, rows) for side_name, value in (("lower", lower), ("upper", upper))
        ]
        block = Block(name=name, matrix=block_matrix, lower=sides[0], upper=sides[1], columns=columns)
        self._insert_rows(block, replace)

    def compile(self) -> StandardForm:
        """Compile the model to arrays. A million rows take a second or two.

        Families whose parameters and bounds have not changed since the last call are not compiled again.

        Raises:
            ModelError: A part of the model cannot be compiled; the message names it.
        """
        families = list(self._families)
        epigraphs = [*self._objective_epigraphs]
        epigraphs += [e for rows in families if isinstance(rows, Family) for e in rows.epigraphs]
        # The columns and rows of absolute values and extrema follow those of the model, whose indices do not change.
        start = self._columns
        for epigraph in epigraphs:
            epigraph.variable.start = start
            start += epigraph.variable.size
            families += self._line_families(epigraph)
        self._lines = {epigraph: lines for epigraph, lines in self._lines.items() if epigraph in epigraphs}
        self._check_function_names(epigraphs)
        variables = [*self._variables, *(epigraph.variable for epigraph in epigraphs)]
        form = compile_model(
            variables, families, self._objective_terms, self._sense, self._parts, self._quadratic_terms
        )
        for variable, curvature, rows in self._piecewise_terms:
            use = "minimised or bounded from above" if curvature == "convex" else "maximised or bounded from below"
            advice = f"piecewise {variable.name} is {curvature} and may only be {use}"
            check_curvature(form, variable, curvature == "convex", (rows,), advice)
        for epigraph in epigraphs:
            check_curvature(form, epigraph.variable, epigraph.is_convex, epigraph.line_names, epigraph.advice)
        return form

    def _check_function_names(self, epigraphs: Iterable[Epigraph]) -> None:
        """Raise an error if a name needed for absolute values, minima or maxima is already taken."""
        taken = set(self._names)
        for epigraph in epigraphs:
            names = {epigraph.variable.name, *epigraph.line_names}
            for name in sorted(names & taken):
                raise ModelError(f"model {self.name}: the name {name!r} is that of {epigraph.statement}; take another")
            # The functions of a family called "objective" have the names of those of the objective.
            taken |= names

    def _line_families(self, epigraph: Epigraph) -> list[Family]:
        """Return the families of rows for an epigraph's lines. They are created only once and then reused."""
        if epigraph not in self._lines:
            self._lines[epigraph] = line_families(epigraph)
        return self._lines[epigraph]

    def set_params(self, values: Mapping[str, ArrayLike | Source]) -> None:
        """Change the values of parameters. If any new value is invalid, no parameter is changed.

        Args:
            values: New values by parameter name, in any form that :attr:`Param.value` accepts.

        Raises:
            ModelError: A name does not belong to a parameter of the model, or a value does not fit the parameter's
                sets.
        """
        for name in values:
            if name not in self._params:
                names = ", ".join(self._params) or "none"
                raise ModelError(f"model {self.name}: no param is called {name!r}; there are {names}")
        # Checked first, so that no parameter changes if a value is rejected.
        sources = {name: self._params[name].check_value(value) for name, value in values.items()}
        for name, source in sources.items():
            self._params[name].value = source

    def solve(
        self,
        backend: str | Solver = "cbc",
        *,
        params: Mapping[str, ArrayLike | Source] | None = None,
        start: Solution | Mapping[str, ArrayLike] | None = None,
        **options: Unpack[SolveOptions],
    ) -> Solution:
        """Compile and solve the model.

        A model can be changed and solved again. Only families whose numbers have changed are then recompiled, and HiGHS
        starts from the last basis, so it may return a different optimal point than it would for a new model.

        Args:
            backend: "cbc", "highs", or a backend object.
            params: New parameter values, keyed by name. They remain in effect, as if set by ``param.value = ...``.
            start: A point from which to start the search for an integer solution: an earlier solution, or values by
                variable name. If variables are omitted, the solver completes the point.
            options: Options for any solver: time_limit (seconds), gap (the relative gap at which the search for an
                integer solution may stop), log (whether to show the solver's log on standard error), method, threads,
                seed.

        Raises:
            InfeasibleError: No point satisfies all rows; the message names the conflicting families.
            UnboundedError: The objective improves without limit.
            StoppedError: The solver reached a limit before it found a feasible point.
            SolverError: The solver failed, or none of its answers passed the checks.
            ModelError: The model cannot be compiled, or ``params`` or ``start`` does not fit it.
            UsageError: An option is unknown or not allowed, or the solver does not support this kind of model.
        """
        if params is not None:
            self.set_params(params)
        solver = load_solver(backend, is_soon=True)
        form = self.compile()
        all_options: BackendOptions = {}
        all_options.update(cast("BackendOptions", options))
        if self._last_solve is not None and "basis" not in options:
            old_form, old_basis = self._last_solve
            all_options["basis"] = old_basis.carry_over(old_form, form)
        if start is not None:
            vector = start_vector(form, start)
            # The user cannot give values for the columns that the model adds for absolute values and extrema.
            for epigraph in self._lines:
                variable = epigraph.variable
                columns = slice(variable.start, variable.start + variable.size)
                complete_extremum(form, vector, columns, epigraph.line_names, is_convex=epigraph.is_convex)
            all_options["start"] = vector
        solution = solve_form(form, solver, name=self.name, **all_options)
        if solution.basis is not None:
            self._last_solve = form, solution.basis
        return solution

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write the model and its names to a file. The file extension (``.mps`` or ``.lp``) determines the format.

        In privacy rows, the factors exp(L) are rounded down and the exponents L are capped at 700, so that none of
        these rows is looser in the file than in the model. See :func:`privopt.dsl.write_form` for details.

        Raises:
            ModelError, UsageError: See :meth:`compile` and ``write_form``.
        """
        from privopt.dsl.model_files import write_form

        write_form(self.compile(), path, self.name)

    def __str__(self) -> str:
        return show.format_model(self)

    __repr__ = __str__

    def __reduce_ex__(self, protocol: object) -> NoReturn:
        refuse_copy(f"model {self.name}")

    def latex(self) -> str:
        """Return the model as one aligned formula in LaTeX, without dollar signs."""
        return show.format_latex(self)

    def _repr_latex_(self) -> str:
        return f"$\\displaystyle {self.latex()}$"

    def _repr_html_(self) -> str:
        return show.format_html(self)
