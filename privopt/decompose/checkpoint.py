"""The state of a run in one file: cuts, bases, the best point. Arrays alone, written whole or not at all."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from privopt.archive import read_npz
from privopt.decompose.engine import Basis
from privopt.decompose.split import Cut, Split
from privopt.errors import Fault, InputError
from privopt.files import open_private, private_folder

if TYPE_CHECKING:
    from privopt.decompose.master import Master

__all__ = ["NAME", "read_checkpoint", "write_checkpoint"]

NAME: Final = "benders.npz"
_NUMBERS = ("lower", "upper", "share", "rounds", "seconds", "cuts", "dropped")
_VECTORS = ("x", "duals", "centre", "block_times", "first_feasible")


def fingerprint(split: Split) -> str:
    """Of the form and its blocks: a checkpoint belongs to one of them."""
    form, digest = split.form, hashlib.sha256()
    arrays = (
        form.c,
        form.A.data,
        form.A.indices,
        form.A.indptr,
        form.row_lower,
        form.row_upper,
        form.col_lower,
        form.col_upper,
        split.outer,
        *(piece.columns for piece in split.pieces),
    )
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def write_checkpoint(folder: Path, split: Split, master: Master, state: Any) -> None:
    """Write ``folder/benders.npz``, replacing the one before: it holds parts of private matrices, so its owner alone
    can read it.
    """
    private_folder(folder)
    parts: dict[str, Any] = {name: np.asarray(getattr(state, name)) for name in _NUMBERS}
    parts["form"] = np.asarray(fingerprint(split))
    parts["master_times"] = np.asarray(state.master_times, dtype=np.float64)
    parts["trajectory"] = np.asarray(state.trajectory, dtype=np.float64).reshape(-1, 3)
    for name in _VECTORS:
        if getattr(state, name) is not None:
            parts[name] = getattr(state, name)
    for number, basis in [*enumerate(state.bases), (-1, master.basis)]:
        if basis is not None:
            parts[f"basis_{number}_columns"], parts[f"basis_{number}_rows"] = basis.columns, basis.rows
    rows = master.rows
    parts["box"] = np.asarray(master.box)
    parts["idle"] = np.asarray(master.idle, dtype=np.int64)
    parts["kind"] = np.array([-1 if r.cut is None else int(r.cut.feasibility) for r in rows], dtype=np.int8)
    parts["block"] = np.array([-1 if r.cut is None else r.cut.block for r in rows], dtype=np.int64)
    parts["upper_side"] = np.array([r.upper for r in rows])
    proofs = [(r.proof_rows, r.proof) if r.cut is None else (r.cut.rows, r.cut.duals) for r in rows]
    for name, lists in (
        ("places", [r.places for r in rows]),
        ("slope", [r.slope for r in rows]),
        ("proof_rows", [p for p, _ in proofs]),
        ("proof", [p for _, p in proofs]),
    ):
        parts[name] = np.concatenate(lists) if lists else np.zeros(0)
    parts["slope_start"] = np.cumsum([0, *(len(r.places) for r in rows)])
    parts["proof_start"] = np.cumsum([0, *(len(p) for p, _ in proofs)])
    with open_private(folder / NAME) as file:
        np.savez(file, **parts)


def read_checkpoint(folder: Path, split: Split, master: Master) -> dict[str, Any] | None:
    """Put the cuts back into a fresh master.

    Returns:
        The fields of the state; None where there is no checkpoint.

    Raises:
        InputError: it belongs to another problem, or cannot be read.
    """
    path = folder / NAME
    if not os.path.lexists(path):
        return None
    parts = read_npz(path, "the checkpoint of a run")
    if missing := [name for name in ("form", *_NUMBERS) if name not in parts]:
        raise InputError([Fault(str(path), missing[0], "no such array", "the checkpoint of a run")])
    if str(parts["form"]) != fingerprint(split):
        raise InputError([Fault(str(path), "", "the checkpoint of another problem", "that of this one")])
    _fill(master, parts)
    bases = [_basis(parts, number) for number in range(len(split.pieces))]
    state: dict[str, Any] = {name: parts[name].item() for name in _NUMBERS}
    state |= {name: parts.get(name) for name in _VECTORS}
    state |= {"bases": bases, "master_times": parts["master_times"].tolist()}
    return {**state, "trajectory": [tuple(row) for row in parts["trajectory"].tolist()]}


def _basis(parts: dict[str, Any], number: int) -> Basis | None:
    columns = parts.get(f"basis_{number}_columns")
    return None if columns is None else Basis(columns=columns, rows=parts[f"basis_{number}_rows"])


def _fill(master: Master, parts: dict[str, Any]) -> None:
    """The box, the appended rows in their order, and the basis."""
    if np.isfinite(parts["box"]):
        master.set_box(float(parts["box"]))
    first, last = parts["slope_start"], parts["proof_start"]
    for r, kind in enumerate(parts["kind"].tolist()):
        slope, proof = slice(first[r], first[r + 1]), slice(last[r], last[r + 1])
        upper = float(parts["upper_side"][r])
        if kind < 0:
            master.put_valid(
                parts["places"][slope].astype(np.int64),
                parts["slope"][slope],
                upper,
                parts["proof_rows"][proof].astype(np.int64),
                parts["proof"][proof],
            )
            continue
        master.add_cuts(
            [
                Cut(
                    block=int(parts["block"][r]),
                    feasibility=bool(kind),
                    constant=-upper,
                    places=parts["places"][slope].astype(np.int64),
                    slope=parts["slope"][slope],
                    rows=parts["proof_rows"][proof].astype(np.int64),
                    duals=parts["proof"][proof],
                )
            ]
        )
    master.idle = parts["idle"].tolist()
    master.basis = _basis(parts, -1)
