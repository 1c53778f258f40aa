"""Kit: MPS files in our standard form, and where the instances are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import highspy
import numpy as np
import pytest
from helpers.data import data_path
from scipy import sparse

from privopt.dsl.form import FamilyBlock, StandardForm, VariableBlock
from privopt.dsl.sets import IndexSet

Reader = Callable[[Path], StandardForm]


def standard_form(path: Path) -> StandardForm:
    """Return an MPS file as HiGHS reads it."""
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    assert solver.readModel(str(path)) != highspy.HighsStatus.kError
    lp = solver.getLp()
    assert lp.a_matrix_.format_ == highspy.MatrixFormat.kColwise
    columns = lp.a_matrix_.value_, lp.a_matrix_.index_, lp.a_matrix_.start_
    is_integer = [kind != highspy.HighsVarType.kContinuous for kind in lp.integrality_] or [False] * lp.num_col_
    names = IndexSet("columns", tuple(str(number) for number in range(lp.num_col_)))
    return StandardForm(
        c=np.array(lp.col_cost_),
        c0=lp.offset_,
        sense="max" if lp.sense_ == highspy.ObjSense.kMaximize else "min",
        A=sparse.csc_matrix(columns, shape=(lp.num_row_, lp.num_col_)).tocsr(),
        row_lower=np.array(lp.row_lower_),
        row_upper=np.array(lp.row_upper_),
        col_lower=np.array(lp.col_lower_),
        col_upper=np.array(lp.col_upper_),
        integrality=np.array(is_integer, dtype=np.uint8),
        families=(FamilyBlock(name="rows", start=0, stop=lp.num_row_, kind="block"),),
        variables=(VariableBlock(name="x", start=0, sets=(names,)),),
    )


@pytest.fixture(scope="session")
def read_mps() -> Reader:
    return standard_form


@pytest.fixture(scope="session")
def instances() -> Path:
    return data_path("netlib_miplib")
