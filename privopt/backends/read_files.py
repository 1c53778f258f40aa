"""Read MPS files through HiGHS."""

from __future__ import annotations

import os

import numpy as np
from scipy import sparse

from privopt.backends._highs_calls import create_solver, highspy_module
from privopt.dsl.form import FamilyBlock, StandardForm, VariableBlock
from privopt.dsl.sets import IndexSet
from privopt.errors import ModelError, UsageError


def read_mps(path: str | os.PathLike[str]) -> StandardForm:
    """Read a linear or mixed-integer program from an MPS file, in free or fixed format.

    The columns of the file become one variable ``column``, and its rows become one family ``row``; the names in the
    file are the labels. Coefficients of at most 1e-12 in absolute value are dropped, and so are rows without sides.

    Args:
        path: The file, which may be compressed (``.mps.gz``).

    Raises:
        UsageError: The file does not exist, or HiGHS cannot read it.
        ModelError: The model has semicontinuous columns or a quadratic objective, which privopt does not support.
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
    simple_kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
    if any(kind not in simple_kinds for kind in lp.integrality_) or solver.getModel().hessian_.dim_:
        raise ModelError(
            f"{os.fspath(path)}: semicontinuous columns and quadratic objectives cannot be in a model here"
        )
    m, n = lp.num_row_, lp.num_col_
    part = lp.a_matrix_
    arrays = (np.array(part.value_), np.array(part.index_), np.array(part.start_))
    is_by_column = part.format_ == highspy.MatrixFormat.kColwise
    matrix = (sparse.csc_matrix if is_by_column else sparse.csr_matrix)(arrays, shape=(m, n)).tocsr()
    columns, rows = IndexSet("columns", list(lp.col_names_)), IndexSet("rows", list(lp.row_names_))
    integrality = [kind == highspy.HighsVarType.kInteger for kind in lp.integrality_] or np.zeros(n)
    return StandardForm(
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
    )
