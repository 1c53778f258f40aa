"""Check a folder by the part for its kind of guarantee, and print each claim."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from privopt.checker.exact import RefusedError, need, rational
from privopt.checker.files import Problem, check_sums
from privopt.checker.parts import choose_part, find_parts

__all__ = ["Part", "Release", "check", "main"]


class Release(Protocol):
    """A release whose claims are checked."""

    def claims(self) -> Mapping[str, Callable[[], str]]:
        """Return the claims to check, in order: each returns a finding or raises RefusedError."""


Part = Callable[[Path, Problem, dict[str, Any]], Release]
"""Reads a release: of the folder, its problem, and what result.json says."""


def check(
    folder: Path,
    write_line: Callable[[str], object] = print,
    parts: Mapping[str, str] | None = None,
) -> int:
    """Say of each claim whether it holds.

    Args:
        folder: what ``privopt solve`` wrote.
        write_line: called with a line for each claim.
        parts: kinds of guarantees and what checks them; None for all that are installed.

    Returns:
        0 where all hold, and the release is private; 1 where one does not; 2 where it cannot be
        read or is of a kind unknown here; 6 where all hold, but no privacy is claimed.
    """
    claim = "files"
    try:
        names = check_sums(folder)
        result = _read_result(folder / "result.json")
        kind = result["guarantee"]["kind"]
        need(parts is None or kind in parts, f"guarantee.kind {kind!r}: unknown here", 2)
        target = choose_part(find_parts(), kind) if parts is None else parts[kind]
        module, _, attribute = target.partition(":")
        part: Any = import_module(module)
        for name in attribute.split("."):
            part = getattr(part, name)
        problem = Problem(folder, result["problem"], names)
        release: Release = part(folder, problem, result)
        write_line(f"holds: files: {len(names)} as SHA256SUMS lists them")
        for claim, holds in release.claims().items():
            write_line(f"holds: {claim}: {holds()}")
        odd = [n for n in names if n.startswith("problem/") and n not in problem.used]
        need(not odd, f"{odd}: of no use")
    except RefusedError as refused:
        said = "does not hold" if refused.code == 1 else "cannot be checked"
        write_line(f"{said}: {claim}: {refused}")
        return refused.code
    except Exception as error:  # bytes that no one meant so may raise anything
        write_line(f"cannot be checked: {claim}: {type(error).__name__}: {error}")
        return 2
    return 6 if "seeded" in result["guarantee"] else 0


def main(arguments: list[str], parts: Mapping[str, str] | None = None) -> int:
    """Run ``python -I FILE.pyz DIR``; returns the exit code."""
    if len(arguments) != 1:
        print("usage: give one folder that privopt wrote", file=sys.stderr)
        return 2
    return check(Path(arguments[0]), parts=parts)


def _read_result(file: Path) -> dict[str, Any]:
    """result.json, in which no name occurs twice and all numbers are finite."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        need(len(dict(pairs)) == len(pairs), "a name twice", 2)
        return dict(pairs)

    def finite(text: str) -> float:
        return float(rational(text))

    result: dict[str, Any] = json.loads(
        file.read_text("utf8"),
        object_pairs_hook=once,
        parse_constant=rational,
        parse_float=finite,
    )
    return result
