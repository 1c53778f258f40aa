"""Kit: MPS files read into our standard form, and where the instances are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from privopt.dsl.form import FamilyBlock, StandardForm, VariableBlock
from privopt.dsl.sets import IndexSet
from privopt.testing.data import data_path

Reader = Callable[[Path], StandardForm]


class _Mps:
    """One MPS file, free or fixed format (names without blanks), as it is read."""

    def __init__(self) -> None:
        self.senses: dict[str, str] = {}
        self.objective = ""
        self.columns: dict[str, int] = {}
        self.whole: list[bool] = []
        self.entries: list[tuple[str, int, float]] = []
        self.sides: dict[str, float] = {}
        self.ranges: dict[str, float] = {}
        self.lower: dict[int, float] = {}
        self.upper: dict[int, float] = {}
        self.maximise = False

    def read(self, path: Path) -> None:
        section, integers = "", False
        for raw in path.read_text().splitlines():
            if not raw.strip() or raw.startswith("*"):
                continue
            fields = raw.split()
            if not raw[0].isspace():
                section = fields[0]
                continue
            if section == "ROWS":
                if fields[0] == "N":
                    self.objective = self.objective or fields[1]
                self.senses[fields[1]] = fields[0]
            elif section == "COLUMNS":
                if len(fields) > 2 and fields[1] == "'MARKER'":
                    integers = fields[2] == "'INTORG'"
                    continue
                column = self.columns.setdefault(fields[0], len(self.columns))
                if column == len(self.whole):
                    self.whole.append(integers)
                self.entries += [(r, column, float(v)) for r, v in zip(fields[1::2], fields[2::2], strict=True)]
            elif section in ("RHS", "RANGES"):
                pairs = fields[1:] if len(fields) % 2 else fields
                target = self.sides if section == "RHS" else self.ranges
                target.update({r: float(v) for r, v in zip(pairs[::2], pairs[1::2], strict=True)})
            elif section == "BOUNDS":
                self.bound(fields)
            elif section == "OBJSENSE":
                self.maximise = fields[0].startswith("MAX")

    def bound(self, fields: list[str]) -> None:
        kind = fields[0]
        bare = kind in ("FR", "MI", "PL", "BV")
        named = len(fields) >= (3 if bare else 4)
        column = self.columns[fields[2 if named else 1]]
        value = 0.0 if bare else float(fields[3 if named else 2])
        if kind in ("UP", "FX", "UI"):
            self.upper[column] = value
            if kind != "FX" and value < 0 and column not in self.lower:
                self.lower[column] = -np.inf
        if kind in ("LO", "FX", "LI"):
            self.lower[column] = value
        if kind in ("FR", "MI"):
            self.lower[column] = -np.inf
        if kind in ("FR", "PL"):
            self.upper[column] = np.inf
        if kind == "BV":
            self.lower[column], self.upper[column] = 0.0, 1.0
        if kind in ("BV", "LI", "UI"):
            self.whole[column] = True

    def form(self) -> StandardForm:
        rows = {r: at for at, r in enumerate(r for r, s in self.senses.items() if s != "N")}
        m, n = len(rows), len(self.columns)
        cost = np.zeros(n)
        triples = []
        for row, column, value in self.entries:
            if row == self.objective:
                cost[column] += value
            elif row in rows:
                triples.append((rows[row], column, value))
        r, c, v = (np.array(x) for x in zip(*triples, strict=True)) if triples else (np.zeros(0, int),) * 3
        low, high = np.full(m, -np.inf), np.full(m, np.inf)
        for row, at in rows.items():
            side, sense = self.sides.get(row, 0.0), self.senses[row]
            if sense in "EG":
                low[at] = side
            if sense in "EL":
                high[at] = side
            if row in self.ranges:
                span = self.ranges[row]
                if sense == "L":
                    low[at] = side - abs(span)
                elif sense == "G":
                    high[at] = side + abs(span)
                else:
                    low[at], high[at] = min(side, side + span), max(side, side + span)
        bounded = self.lower.keys() | self.upper.keys()
        # an integer column that no bound speaks of is binary, as MPS has it
        top = np.array([1.0 if w and at not in bounded else np.inf for at, w in enumerate(self.whole)])
        bottom = np.zeros(n)
        for at, value in self.lower.items():
            bottom[at] = value
        for at, value in self.upper.items():
            top[at] = value
        return StandardForm(
            c=cost,
            c0=-self.sides.get(self.objective, 0.0),
            sense="max" if self.maximise else "min",
            A=sparse.csr_matrix((v, (r, c)), shape=(m, n)),
            row_lower=low,
            row_upper=high,
            col_lower=bottom,
            col_upper=top,
            integrality=np.array(self.whole, dtype=np.uint8),
            families=(FamilyBlock(name="rows", start=0, stop=m, kind="block"),),
            variables=(VariableBlock(name="x", start=0, sets=(IndexSet("columns", tuple(self.columns)),)),),
        )


@pytest.fixture(scope="session")
def read_mps() -> Reader:
    def read(path: Path) -> StandardForm:
        made = _Mps()
        made.read(path)
        return made.form()

    return read


@pytest.fixture(scope="session")
def instances() -> Path:
    return data_path("netlib_miplib")
