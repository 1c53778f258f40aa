"""Read MPS files through HiGHS."""

from __future__ import annotations

import os

import numpy as np
from scipy import sparse

from privopt.backends._highs_calls import create_solver, highspy_module
from privopt.dsl.form import SEMICONTINUOUS, FamilyBlock, StandardForm, VariableBlock
from privopt.dsl.quadratic import QuadraticPart, check_convexity
from privopt.dsl.sets import IndexSet
from privopt.errors import ModelError, UsageError


def read_mps(path: str | os.PathLike[str]) -> StandardForm:
    """Read a linear, mixed-integer or convex quadratic program from an MPS file in free or fixed format.

    In the model, the columns of the file become a single variable called ``column``, and its rows a single family
    called ``row``. The names in the file are used as labels. Coefficients of at most 1e-12 in absolute value are
    dropped, and so are rows without bounds.

    Args:
        path: The path of the file, which may be compressed (``.mps.gz``).

    Raises:
        UsageError: The file does not exist, or HiGHS cannot read it.
        ModelError: The model has semi-integer columns, which privopt does not support, or a quadratic objective with
            the wrong curvature (not convex if minimised, or not concave if maximised).
    """
    if not os.path.isfile(path):
        raise UsageError(f"{os.fspath(path)}: no such file")
    highspy = highspy_module()
    solver = create_solver()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("small_matrix_value", 1e-12)
    if solver.readModel(os.fspath(path)) == highspy.HighsStatus.kError:
        raise UsageError(f"{os.fspath(path)}: HiGHS cannot read it as a model")
    lp = solver.getLp()
    codes = {
        highspy.HighsVarType.kContinuous: 0,
        highspy.HighsVarType.kInteger: 1,
        highspy.HighsVarType.kSemiContinuous: SEMICONTINUOUS,
    }
    if any(kind not in codes for kind in lp.integrality_):
        raise ModelError(f"{os.fspath(path)}: semi-integer columns cannot be in a model here")
    hessian = solver.getModel().hessian_
    if hessian.dim_:
        triangle = sparse.csc_matrix((hessian.value_, hessian.index_, hessian.start_), shape=(hessian.dim_,) * 2)
        quadratic = triangle + sparse.tril(triangle, -1).T
    m, n = lp.num_row_, lp.num_col_
    entries = lp.a_matrix_
    arrays = (np.array(entries.value_), np.array(entries.index_), np.array(entries.start_))
    is_by_column = entries.format_ == highspy.MatrixFormat.kColwise
    matrix = (sparse.csc_matrix if is_by_column else sparse.csr_matrix)(arrays, shape=(m, n)).tocsr()
    columns, rows = IndexSet("columns", list(lp.col_names_)), IndexSet("rows", list(lp.row_names_))
    integrality = [codes[kind] for kind in lp.integrality_] or np.zeros(n)
    form = StandardForm(
        c=np.array(lp.col_cost_),
        c0=float(lp.offset_),
        sense="max" if lp.sense_ == highspy.ObjSense.kMaximize else "min",
        A=matrix,
        row_lower=np.array(lp.row_lower_),
        row_upper=np.array(lp.row_upper_),
        col_lower=np.array(lp.col_lower_),
        col_upper=np.array(lp.col_upper_),
        integrality=integrality,
        families=(FamilyBlock(name="row", start=0, stop=m, indices=("row",), sets=(rows,), positions=(np.arange(m),)),),
        variables=(VariableBlock(name="column", start=0, sets=(columns,)),),
        Q=quadratic if hessian.dim_ else None,
    )
    if form.Q is not None:
        # With the sign 0, check_convexity computes eigenvalues, because an MPS file does not say whether the objective
        # is a sum of squares.
        check_convexity(QuadraticPart(form.Q, form.c, form.c0, square_sign=0), form.sense, form.column_name)
    return form
