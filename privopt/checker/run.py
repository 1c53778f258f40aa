"""Check a folder with the part for its kind of guarantee, and print whether each claim holds.

This module is the checker's entry point. A part is the code that a plugin supplies to check one kind of guarantee. The
result depends only on the folder and on the installed parts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from privopt.checker.exact import RefusedError, need, rational
from privopt.checker.files import Problem, check_sums, describe_sums
from privopt.checker.parts import choose_part, find_parts, part_name

__all__ = ["Part", "Release", "check", "main"]


class Release(Protocol):
    """A release as read by a part of the checker (the code for one kind of guarantee)."""

    def claims(self) -> Mapping[str, Callable[[], str]]:
        """Return the claims to check, in order, as a mapping from names to functions.

        Each function returns a description of what it found, or raises RefusedError if the claim fails.
        """


Part = Callable[[Path, Problem, dict[str, Any]], Release]
"""A function that reads a release with one kind of guarantee. Its arguments are the folder, the problem in it and the
contents of result.json."""


def check(
    folder: Path,
    write_line: Callable[[str], object] = print,
    parts: Mapping[str, str] | None = None,
) -> int:
    """Check a release's claims one by one, and write a line about each.

    Args:
        folder: A folder written by ``privopt solve``.
        write_line: The function to call with each of these lines.
        parts: A mapping from each kind of guarantee, or from ``KIND.MECHANISM``, to the ``module:Part`` that checks it.
            Plugins supply these parts. If None, all installed parts are used.

    Returns:
        The exit code. It is 0 if all claims hold and the release is private, 1 if a claim does not hold, 2 if the
        folder cannot be read or its kind of guarantee is unknown, and 6 if all claims hold but the noise was seeded, so
        that no privacy is claimed.
    """
    # The name of the claim that is currently being checked, for the message in case it fails.
    claim = "files"
    try:
        names = check_sums(folder)
        result = _read_result(folder / "result.json")
        kind = result["guarantee"]["kind"]
        mechanism = str(result["mechanism"])
        if parts is None:
            target = choose_part(find_parts(), kind, mechanism, _plugin_name(result))
        else:
            name = part_name(parts, kind, mechanism)
            need(name in parts, f"guarantee.kind {kind!r}: unknown here", 2)
            target = parts[name]
        module, _, attribute = target.partition(":")
        part: Any = import_module(module)
        for name in attribute.split("."):  # a part may be nested, such as ``module:Class.method``
            part = getattr(part, name)
        problem = Problem(folder, result["problem"], names)
        release: Release = part(folder, problem, result)
        write_line(f"holds: files: {describe_sums(names)}")
        # holds() checks the claim and returns a finding in words, or raises RefusedError.
        for claim, holds in release.claims().items():
            write_line(f"holds: {claim}: {holds()}")
        # A part may read files until its last claim has been checked, so unused files are known only now.
        unused_files = [n for n in names if n.startswith("problem/") and n not in problem.used]
        need(not unused_files, f"{unused_files}: files that no claim uses")
    except RefusedError as refused:
        verdict = "does not hold" if refused.code == 1 else "cannot be checked"
        write_line(f"{verdict}: {claim}: {refused}")
        return refused.code
    except Exception as error:  # a forged folder can make a parser raise any type of error
        write_line(f"cannot be checked: {claim}: {type(error).__name__}: {error}")
        return 2
    return 6 if "seeded" in result["guarantee"] else 0


def main(arguments: list[str], parts: Mapping[str, str] | None = None) -> int:
    """Run the checker with command-line arguments, and return its exit code (see :func:`check`).

    Args:
        arguments: A single argument, the folder to check.
        parts: The ``module:Part`` for each kind of guarantee, as passed by a checker that was written to a single file.
            If None, all installed parts are used.
    """
    if len(arguments) != 1:
        print("usage: give one folder that privopt wrote", file=sys.stderr)
        return 2
    return check(Path(arguments[0]), parts=parts)


def _plugin_name(result: dict[str, Any]) -> object:
    """Return the name of the mechanism's distribution as stated in result.json, or None if it is not stated."""
    plugin = result.get("plugin")
    return plugin.get("name") if isinstance(plugin, dict) else None


def _read_result(file: Path) -> dict[str, Any]:
    """Read result.json, and reject objects with repeated names and numbers that are not finite.

    Raises:
        RefusedError: A name occurs twice in an object, or a number is not finite.
    """
    # If a name occurs twice, json keeps the last value and other readers keep the first, so they would see different
    # claims. parse_constant is called for NaN and Infinity, which rational() rejects.

    def refuse_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        """Build the dictionary for a JSON object, or raise a RefusedError if one of its names is repeated."""
        need(len(dict(pairs)) == len(pairs), "result.json: a name twice in one object", 2)
        return dict(pairs)

    def parse_finite(text: str) -> float:
        """Convert a JSON number with a decimal point or an exponent, and reject exponents of four or more digits."""
        return float(rational(text))

    result: dict[str, Any] = json.loads(
        file.read_text("utf8"),
        object_pairs_hook=refuse_duplicates,
        parse_constant=rational,
        parse_float=parse_finite,
    )
    return result
