"""What a forgery is, and changes that several kinds of forgeries are made of."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from attrs import frozen

Change = Callable[[Path], object]


@frozen(kw_only=True)
class Forgery:
    """A change to the folder of a base.

    Attributes:
        name: what was done.
        change: does it.
        mended: whether SHA256SUMS is made to fit again.
    """

    name: str
    change: Change
    mended: bool = True


def npz(name: str, change: Callable[[dict[str, Any]], object]) -> Change:
    def apply_change(folder: Path) -> None:
        with np.load(folder / name) as archive:
            arrays = {key: archive[key].copy() for key in archive.files}
        result = change(arrays)
        np.savez(folder / name, **(result if isinstance(result, dict) else arrays))

    return apply_change


def no_bound(folder: Path) -> None:
    result = json.loads((folder / "result.json").read_text())
    result["objective"].update(lower_bound=None, gap=None)
    result["status"] = "feasible"
    (folder / "result.json").write_text(json.dumps(result))


def problem_change(
    old: str, new: str, file: str = "problem.toml", also: Callable[[dict[str, Any]], object] | None = None
) -> Change:
    """Another problem beside the release, its sum in result.json mended."""

    def change(folder: Path) -> None:
        path = folder / "problem" / file
        text = path.read_text()
        assert old in text, f"{old!r} is not in {file}"
        path.write_text(text.replace(old, new, 1))
        result = json.loads((folder / "result.json").read_text())
        result["problem"]["sha256"] = hashlib.sha256((folder / "problem" / "problem.toml").read_bytes()).hexdigest()
        if also is not None:
            also(result)
        (folder / "result.json").write_text(json.dumps(result))

    return change


def several(*changes: Change) -> Change:
    return lambda folder: [change(folder) for change in changes]


def beside_it(name: str) -> Change:
    return lambda folder: (folder / "problem" / name).write_text("more than the release needs\n")
