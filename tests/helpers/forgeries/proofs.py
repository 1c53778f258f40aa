"""Forged proof.npz: such as prove less than is stated, and such as are none."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.checker_parts import replace_need
from helpers.forgeries.changes import Change, Forgery, no_bound, npz
from helpers.forgeries.trees import forged_trees
from privopt import checker
from privopt.files.release_folder import sums_text


def _one_bit(folder: Path, direction: float) -> None:
    """State the double next to the bound, which agrees to fifteen digits."""
    result = json.loads((folder / "result.json").read_text())
    result["objective"]["lower_bound"] = float(np.nextafter(result["objective"]["lower_bound"], direction))
    (folder / "result.json").write_text(json.dumps(result))


def _raise_bound(change: Callable[[dict[str, Any]], object]) -> Change:
    """Return a change to the proof beside a bound raised to the value, all else made to fit."""

    def apply_change(folder: Path) -> None:
        npz("proof.npz", change)(folder)
        result = json.loads((folder / "result.json").read_text())
        result["objective"].update(lower_bound=result["objective"]["value"], gap=0.0)
        result["status"] = "optimal"
        (folder / "result.json").write_text(json.dumps(result))

    return apply_change


def proofs_of(folder: Path) -> Iterator[Forgery]:
    """Proofs that prove less than is stated, and such as are none."""
    with np.load(folder / "proof.npz") as archive:
        arrays = {key: archive[key].copy() for key in archive.files}

    def at(description: str, change: Callable[[dict[str, Any]], object], is_raised: bool = False) -> Forgery:
        return Forgery(
            name=f"proof.npz: {description}", change=_raise_bound(change) if is_raised else npz("proof.npz", change)
        )

    yield at("a bound that is the value", lambda a: None, is_raised=True)
    for description, change, is_raised in forged_trees(arrays) if "trees" in arrays else _rows(arrays):
        yield at(description, change, is_raised)
    yield at("another version", lambda a: a["version"].__setitem__(0, 7))
    yield at("an array that nothing reads", lambda a: a.update(more=np.arange(2)))
    for factor in (0.5, 1.37, 2.0, 0.0, -1.0, np.inf, np.nan):
        yield at(f"a unit times {factor}", lambda a, factor=factor: a.update(unit=a["unit"] * factor))
    yield at("a unit too fine", lambda a: a.update(unit=a["unit"] * 2.0**-20))
    yield Forgery(name="a bound at a unit too fine", change=_fine)
    for direction in (-np.inf, np.inf):
        yield Forgery(
            name=f"a bound one bit towards {direction}", change=lambda f, direction=direction: _one_bit(f, direction)
        )
    for name in arrays:
        yield at(f"without {name}", lambda a, n=name: a.pop(n))
    yield Forgery(name="proof.npz: none at all", change=lambda f: (f / "proof.npz").unlink())
    yield Forgery(name="proof.npz: beside no bound", change=no_bound)
    yield Forgery(
        name="proof.npz: cut", change=lambda f: (f / "proof.npz").write_bytes((f / "proof.npz").read_bytes()[:-30])
    )


def _rows(arrays: dict[str, Any]) -> Iterator[tuple[str, Callable[[dict[str, Any]], object], bool]]:
    """Yield changes of row-by-row multipliers, with their names, and whether the bound is raised too."""
    for factor in (0.9, 1.1, 0.5, 2.0, 100.0, -1.0, np.nan, np.inf):
        for is_raised in (False, True):
            yield (
                f"multipliers times {factor}" + ", the bound raised" * is_raised,
                lambda a, x=factor: a.update(values=(a["values"] * x).astype(np.float64)),
                is_raised,
            )
    large = np.argsort(-arrays["values"])[: max(6, len(arrays["values"]) // 3)]  # a small one may change no bound
    for position in large[np.linspace(0, len(large) - 1, min(6, len(large))).astype(int)].tolist():
        yield (
            f"multiplier {position} away",
            lambda a, p=position: a["values"].__setitem__(p, a["values"][p] * 1e-3),
            False,
        )
        yield (
            f"multiplier {position} large",
            lambda a, p=position: a["values"].__setitem__(p, a["values"][p] * 1e3 + 1),
            False,
        )
    for description, change in {
        "rows the other way": lambda a: a.update(pairs=a["pairs"][:, ::-1].copy()),
        "a row of one record": lambda a: a["pairs"].__setitem__((0, 1), a["pairs"][0, 0]),
        "a row out of range": lambda a: a["pairs"].__setitem__((0, 0), 77),
        "a row below 0": lambda a: a["pairs"].__setitem__((0, 0), -2),
        "starts that fall": lambda a: a.update(starts=a["starts"][::-1].copy()),
        "starts that end early": lambda a: a["starts"].__setitem__(-1, a["starts"][-1] - 1),
        "an output less": lambda a: a.update(starts=a["starts"][:-1]),
        "rows that are none": lambda a: a["rows"].__setitem__(0, 2**31),
        "rows less": lambda a: a.update(rows=a["rows"][1:]),
        "multipliers that no output owns": lambda a: a.update(values=np.append(a["values"], a["values"][:1])),
        "integers for multipliers": lambda a: a.update(values=np.ones(len(a["values"]), dtype=np.int64)),
        "objects for multipliers": lambda a: a.update(values=a["values"].astype(object)),
        "prices beside rows": lambda a: a.update(prices=np.zeros(6)),
    }.items():
        yield description, change, False


def _fine(folder: Path) -> None:
    """State the bound that the proof gives at another unit, as the checker computes it."""
    npz("proof.npz", lambda a: a.update(unit=a["unit"] * 2.0**-30))(folder)
    (folder / "SHA256SUMS").write_text(sums_text(folder))
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        replace_need(patch, lambda condition, reason, code=1: None)  # a checker that looks at nothing
        checker.check(folder, lines.append)
    bound_text = next(line for line in lines if "none is below" in line).split()[-1]
    result = json.loads((folder / "result.json").read_text())
    objective = result["objective"]
    objective["lower_bound"] = float(bound_text)
    objective["gap"] = max(0.0, (objective["value"] - float(bound_text)) / max(abs(objective["value"]), 1e-12))
    (folder / "result.json").write_text(json.dumps(result))
