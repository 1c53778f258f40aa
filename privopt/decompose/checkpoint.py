"""Checkpoints of a Benders run: a single file with the cuts, the bases and the best point, written atomically."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any, Final

import numpy as np

from privopt.backends import Basis
from privopt.decompose.master import Master, is_implied, prove_bound
from privopt.decompose.result import check_start
from privopt.decompose.split import Split, cut_of
from privopt.decompose.state import State
from privopt.errors import Fault, InputError, UsageError, reason_of
from privopt.files.archive import read_npz
from privopt.files.regular import open_private, private_folder

NAME: Final = "benders.npz"
# The names of State's fields that are numbers, and of those that are arrays (or None).
_NUMBERS = ("share", "rounds", "seconds", "cuts", "dropped")
_VECTORS = ("x", "duals", "centre", "block_times", "first_feasible")


def fingerprint(split: Split) -> str:
    """Return a SHA-256 hash of a form and its blocks, which identifies the problem that a checkpoint belongs to."""
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
    # The exact bytes are hashed, because cuts may differ even if two problems differ only in the last bit.
    for array in arrays:
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


def write_checkpoint(folder: Path, split: Split, master: Master, state: State) -> None:
    """Write the checkpoint ``folder/benders.npz``, which is readable only by its owner.

    This protection is necessary because the file contains parts of private matrices.

    Args:
        folder: The folder for checkpoints, which is created if it does not exist.
        split: The problem, whose fingerprint is stored.
        master: The master problem, whose appended rows and basis are stored.
        state: The bounds, the best point, the blocks' bases and the log.
    """
    private_folder(folder)
    parts: dict[str, Any] = {name: np.asarray(getattr(state, name)) for name in _NUMBERS}
    parts["form"] = np.asarray(fingerprint(split))
    parts["master_times"] = np.asarray(state.master_times, dtype=np.float64)
    parts["trajectory"] = np.asarray(state.trajectory, dtype=np.float64).reshape(-1, 3)
    for name in _VECTORS:
        if getattr(state, name) is not None:
            parts[name] = getattr(state, name)
    # The bases of the blocks by their numbers, and the master's basis with the number -1.
    for number, basis in [*enumerate(state.bases), (-1, master.basis)]:
        if basis is not None:
            parts[f"basis_{number}_columns"], parts[f"basis_{number}_rows"] = basis.columns, basis.rows
    # There is one entry for each row added to the master. Its kind is -1 for a valid row, 0 for an optimality cut and 1
    # for a feasibility cut. A cut is stored as its multipliers, and a valid row as its slope and its proof.
    rows = master.rows
    parts["box"] = np.asarray(master.box)
    # For each added row, the number of solves since its multiplier was last nonzero.
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
    # The slopes and proofs of all rows are concatenated. Those of row r extend from start[r] to start[r + 1].
    parts["slope_start"] = np.cumsum([0, *(len(r.places) for r in rows)])
    parts["proof_start"] = np.cumsum([0, *(len(p) for p, _ in proofs)])
    with open_private(folder / NAME) as file:
        np.savez(file, **parts)


def read_checkpoint(folder: Path, split: Split, master: Master) -> State | None:
    """Restore the master and the state of a run from ``folder/benders.npz``, and return the state.

    The contents of the file are not trusted. Bounds are recomputed from the stored multipliers and point, cuts are
    derived again from their multipliers, and valid rows must follow from their proofs.

    Args:
        folder: The folder for checkpoints.
        split: The problem, which must be the one that the checkpoint was written for.
        master: A new master, to which the stored rows are added.

    Returns:
        The state, or None if there is no checkpoint.

    Raises:
        InputError: The file belongs to another problem, cannot be read, or contradicts the problem.
    """
    path = folder / NAME
    if not os.path.lexists(path):
        return None
    parts = read_npz(path, "the checkpoint of a run")
    try:
        if str(parts["form"]) != fingerprint(split):
            raise InputError(
                [Fault(str(path), "", "the checkpoint of another problem", "the checkpoint of this problem")]
            )
        state = _restore_state(split, parts)
        _restore_master(master, parts)
    except (KeyError, IndexError, TypeError, ValueError, UsageError) as error:
        raise InputError([Fault(str(path), "", reason_of(error), "the checkpoint of a run")]) from None
    return state


def _restore_state(split: Split, parts: dict[str, Any]) -> State:
    """Restore the state stored in a checkpoint, with the bounds proved by the stored point and multipliers.

    Args:
        split: The problem that the checkpoint was written for.
        parts: The file's arrays, keyed by name.

    Raises:
        ValueError: An array has the wrong size, or a number is out of range.
        UsageError: The point violates a row.
    """
    blocks, (m, n) = len(split.pieces), split.form.shape
    sizes = {"x": n, "duals": m, "centre": len(split.outer), "block_times": blocks, "first_feasible": blocks}
    for name, size in sizes.items():
        if name in parts and (parts[name].shape != (size,) or not np.isfinite(parts[name]).all()):
            raise ValueError(f"{name} is not {size} finite numbers")
    # The bounds, point and multipliers in the file are not trusted, so the state begins without them.
    query_share = float(parts["share"])
    if not 0.0 < query_share <= 1.0:
        raise ValueError(f"share {query_share}")
    state = State(
        centre=parts.get("centre"),
        share=query_share,
        bases=[_read_basis(parts, number) for number in range(blocks)],
        trajectory=[(float(t), float(lower), float(upper)) for t, lower, upper in parts["trajectory"]],
        master_times=parts["master_times"].tolist(),
        block_times=parts["block_times"],
        first_feasible=parts["first_feasible"],
        rounds=int(parts["rounds"]),
        seconds=float(parts["seconds"]),
        cuts=int(parts["cuts"]),
        dropped=int(parts["dropped"]),
    )
    if "x" in parts:
        x = check_start(split.form, parts["x"])
        state.lower_upper(float(split.form.c @ x), x)
    # The bound is computed from the multipliers, so that a forged bound in the file has no effect.
    if "duals" in parts:
        state.raise_lower(*prove_bound(split, parts["duals"]))
    return state


def _read_basis(parts: dict[str, Any], number: int) -> Basis | None:
    """Return the stored basis of a block, or of the master if ``number`` is -1. Return None if there is none."""
    columns = parts.get(f"basis_{number}_columns")
    return None if columns is None else Basis(columns=columns, rows=parts[f"basis_{number}_rows"])


def _restore_master(master: Master, parts: dict[str, Any]) -> None:
    """Restore the master's box (the limit for its unbounded columns), its added rows in order, and its basis.

    Args:
        master: A new master, to which everything is restored.
        parts: The file's arrays, keyed by name, as written by :func:`write_checkpoint`.

    Raises:
        ValueError: A row or cut does not follow from its proof, or the file does not contain one idle count per row.
    """
    if np.isfinite(parts["box"]):
        master.set_box(float(parts["box"]))
    split = master.split
    slope_starts, proof_starts = parts["slope_start"], parts["proof_start"]
    for r, kind in enumerate(parts["kind"].tolist()):
        slope, proof = slice(slope_starts[r], slope_starts[r + 1]), slice(proof_starts[r], proof_starts[r + 1])
        rows, multipliers = parts["proof_rows"][proof].astype(np.int64), parts["proof"][proof]
        duals = np.zeros(split.form.shape[0])
        duals[rows] = multipliers
        # A negative kind is a valid row. All others are cuts, and feasibility cuts have kind 1.
        if kind < 0:
            places, values = parts["places"][slope].astype(np.int64), parts["slope"][slope]
            upper = float(parts["upper_side"][r])
            if not is_implied(split, places, values, upper, duals):
                raise ValueError(f"row {r} does not follow from its proof")
            master.put_valid(places, values, upper, rows, multipliers)
            continue
        piece = split.pieces[int(parts["block"][r])]
        # The cut is derived again from its multipliers, so that an altered file cannot introduce an invalid cut.
        cut = cut_of(piece, duals[piece.rows], feasibility=bool(kind))
        if cut is None:
            raise ValueError(f"cut {r} is proved by nothing")
        master.add_cuts([cut])
    master.idle = parts["idle"].tolist()
    if len(master.idle) != len(master.rows):
        raise ValueError(f"{len(master.idle)} ages of {len(master.rows)} rows")
    master.basis = _read_basis(parts, -1)
