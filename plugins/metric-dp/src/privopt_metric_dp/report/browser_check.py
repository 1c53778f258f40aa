"""A report section that contains a release and a button that checks it in the browser (``check*.js``).

The button can check guarantees between records. If a guarantee covers a region, the section refers readers to the
stand-alone checker instead.
"""

from __future__ import annotations

import base64
import json
import tomllib
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privopt.files.release_folder import PROBLEM, RESULT
from privopt.interfaces import Result
from privopt.interfaces.reporting import Section
from privopt.report.templates import render
from privopt_metric_dp.matrix.release import MatrixRelease
from privopt_metric_dp.proof import PROOF, read_proof

__all__ = ["MOST_RECORDS", "check_section"]

MOST_RECORDS: Final = 150
"""The maximum number of records, and of outputs, in an embedded release. A browser can check this many in seconds."""
SCRIPTS: Final = ("privopt_metric_dp.checkers/check_read.js", "privopt_metric_dp.checkers/check.js")
"""The JavaScript files that check releases in the browser."""
SCOPES: Final = ("all-pairs", "neighbours")
"""The scopes of guarantees that the browser can check."""
CHECKER: Final = "privopt checker --out check.pyz; python -I check.pyz DIR"
"""The shell commands for checking a release folder with the stand-alone checker."""
TABLES: Final = ("records", "outputs", "distance", "privacy", "utility")
"""The tables of a problem file that affect the checked claims."""


def check_section(folder: Path, release: MatrixRelease, result: Result) -> Section | None:
    """Return a section in which readers can check a release without the program that produced it.

    Args:
        folder: The release folder.
        release: The release in the folder.
        result: The contents of its result.json.

    Returns:
        A section with the release and a button that checks it, or None if the release cannot be checked in the browser.
        If the guarantee covers a region, the section refers to the stand-alone checker instead.

        A release cannot be checked if it is marked as not private, has more than ``MOST_RECORDS`` records or outputs,
        has an unsupported scope, has several records but no pairs, or uses outputs that were chosen from the records.
    """
    # `mark` is a label for a release that is not private, such as a seeded one, and None for a private release.
    if release.region is not None and not result.mark:
        return Section(
            title="Check it yourself",
            lead="The guarantee is between any two points of a region, which this page does not prove. The stand-alone "
            "checker does, and shares no code with the program that made the release.",
            commands=CHECKER,
        )
    size, file = release.weights.shape, folder / PROBLEM / result.problem.file
    # Decimals remain strings, because the page computes with rationals and doubles would already be rounded.
    problem = tomllib.loads(file.read_text("utf-8-sig"), parse_float=lambda text: text.replace("_", ""))
    # A single record has no pairs to check.
    has_pairs = bool(len(release.pairs)) or size[0] == 1
    # The problem does not list outputs that were chosen from the records.
    has_chosen_outputs = result.objective.bound_over is not None
    is_known = result.guarantee.scope in SCOPES and has_pairs and not has_chosen_outputs
    if max(size) > MOST_RECORDS or result.mark or not is_known:
        return None
    tables = {name: problem[name] for name in TABLES if name in problem}
    paths_by_name = {
        str(path.relative_to(folder / PROBLEM)): path for path in (folder / PROBLEM).rglob("*") if path.is_file()
    }
    # To keep the page small, it contains only the files that these tables name.
    used_files = [name for name in paths_by_name if any(_names_file(table, name) for table in tables.values())]
    content: dict[str, Any] = {
        "problem": _integers_to_text(tables),
        "files": {name: _to_base64(paths_by_name[name].read_bytes()) for name in used_files},
        "result": json.loads((folder / RESULT).read_bytes()),
        "records": release.records.tolist(),
        "outputs": release.outputs.tolist(),
        "weights": _encode_as(release.weights, "<u8"),
        "pairs": _encode_as(release.pairs, "<i8"),
        "distances": _encode_as(release.distances, "<f8"),
    }
    if (folder / PROOF).exists():
        proof = read_proof(folder, size)
        parts = {name: getattr(proof, name) for name in proof.KINDS} | {"unit": np.array([proof.unit])}
        content["proof"] = {name: _encode_array(part) for name, part in parts.items()}
    return Section(
        title="Check it here",
        lead="This page carries the release, its problem and its proof. The button proves privacy and bound again in "
        "this browser, in whole numbers, by a program that shares no code with the one that made them. The stand-alone "
        f"checker proves all of the folder: {CHECKER}",
        html=render("privopt_metric_dp.report/browser_check.html", content=content, scripts=SCRIPTS),
    )


def _integers_to_text(value: Any) -> Any:
    """Convert integers beyond 2**53 in a JSON value to strings, because JavaScript would round them."""
    if isinstance(value, dict):
        return {name: _integers_to_text(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_integers_to_text(inner) for inner in value]
    return str(value) if type(value) is int and abs(value) > 2**53 else value


def _names_file(table: Any, name: str) -> bool:
    """Return whether ``name`` is a value in a table of a problem file, including its nested tables."""
    if isinstance(table, dict):
        return any(_names_file(value, name) for value in table.values())
    return bool(table == name)


def _to_base64(raw: bytes) -> str:
    """Encode bytes as a base64 string for JSON."""
    return base64.b64encode(raw).decode()


def _encode_array(array: NDArray[Any]) -> list[str]:
    """Return an array's NumPy type, such as "<f8", and its bytes as a base64 string."""
    return [array.dtype.str, _encode_as(array, array.dtype.str)]


def _encode_as(array: NDArray[Any], kind: str) -> str:
    """Convert an array to the NumPy type ``kind`` and return its bytes, in row-major order, as a base64 string."""
    return _to_base64(np.ascontiguousarray(array).astype(kind).tobytes())
