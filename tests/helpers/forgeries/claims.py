"""Forged result.json: every claim changed, taken away, given beside others; and files that are none."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from helpers.forgeries.changes import Change, Forgery
from helpers.forgeries.trees import forged_units


def put(*path: Any, to: Any) -> Change:
    def change(folder: Path) -> None:
        result = json.loads((folder / "result.json").read_text())
        table = result
        for name in path[:-1]:
            table = table[name]
        table[path[-1]] = to
        (folder / "result.json").write_text(json.dumps(result))

    return change


def drop(*path: Any) -> Change:
    def change(folder: Path) -> None:
        result = json.loads((folder / "result.json").read_text())
        table = result
        for name in path[:-1]:
            table = table[name]
        del table[path[-1]]
        (folder / "result.json").write_text(json.dumps(result))

    return change


def claims_of(result: dict[str, Any]) -> Iterator[Forgery]:
    """Every claim changed, taken away and given beside others."""
    for table in ("guarantee", "objective", "certificate"):
        yield Forgery(name=f"{table} says more", change=put(table, "blessed_by", to="an institute"))
        yield Forgery(name=f"{table} is gone", change=drop(table))
        for name, value in result[table].items():
            if (table, name) in {
                ("guarantee", "statement"),
                ("certificate", "arithmetic"),
                ("objective", "lower_bound"),
            }:
                continue
            yield Forgery(name=f"{table}.{name} is gone", change=drop(table, name))
            for other_value in [
                *_other_values(value),
                *(_spellings(value) if name == "epsilon_text" and value else []),
            ]:
                yield Forgery(name=f"{table}.{name} = {other_value!r}", change=put(table, name, to=other_value))
    for name, other_value in forged_units(result) if "value_unit" in result["details"] else ():
        text = json.dumps(other_value)
        yield Forgery(name=name, change=lambda f, text=text: (f / "result.json").write_text(text))
    for status in ("optimal", "feasible", "perfect", None):
        if status != result["status"]:
            yield Forgery(name=f"status = {status}", change=put("status", to=status))
    value, bound = result["objective"]["value"], result["objective"]["lower_bound"]
    if result["guarantee"]["kind"] == "metric-dp":
        yield Forgery(name="rows of users", change=put("mechanism", to="lr-geo"))
        yield Forgery(name="a value below all that counts", change=put("objective", "value", to=1e-300))
    better = [value * 1.01 + 1, bound * (1 + 1e-6) + 1e-9, "inf", True] if bound is not None else []
    for other_value in better:
        yield Forgery(
            name=f"objective.lower_bound = {other_value!r}", change=put("objective", "lower_bound", to=other_value)
        )
    for other_value in (-1.0, 0, 1.0, True, None, "1e-3"):
        yield Forgery(name=f"asked.gap = {other_value!r}", change=put("asked", "gap", to=other_value))
    yield Forgery(name="problem.sha256", change=put("problem", "sha256", to="0" * 64))
    for file in ("other.toml", "../problem/problem.toml", "", "/etc/passwd"):
        yield Forgery(name=f"problem.file = {file}", change=put("problem", "file", to=file))
    text = json.dumps(result)
    for name, forged_text in (
        ("a name twice", text.replace('"status":', '"status": "optimal", "status":', 1)),
        *(
            (number, text.replace('"details": {', f'"details": {{"x": {number}, ', 1))
            for number in ("NaN", "Infinity", "-Infinity", "1e999", "-1e999")
        ),
        (
            "a value of 1e999",
            json.dumps(result | {"objective": result["objective"] | {"value": "@"}}).replace('"@"', "1e999"),
        ),
        ("a byte order mark", "\ufeff" + text),
        ("no object", "[]"),
        ("cut", text[: len(text) // 2]),
        ("no text", "\x00"),
        ("deep", '{"a": ' * 3000 + "1" + "}" * 3000),
    ):
        yield Forgery(
            name=f"result.json: {name}",
            change=lambda folder, forged_text=forged_text: (folder / "result.json").write_text(forged_text),
        )


def _other_values(value: Any) -> list[Any]:
    if value is None:
        return [1.0]
    if isinstance(value, bool):
        return [not value, None]
    if isinstance(value, int | float):
        return [value * 1.00001 + 1e-5, value * 0.5 - 1, None]
    return [f"{value}1" if value[:1].isdigit() else f"not {value}", None]


def _spellings(text: str) -> list[Any]:
    """Return the same number by no text that verify takes."""
    return [[text], float(text), f"{text} ", f" {text}", f"{text}\n", f"\ufeff{text}"]


def files_of(folder: Path) -> Iterator[Forgery]:
    """Yield sums that do not fit, and what is no file."""
    names = sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())
    for name in names:
        if name not in ("SHA256SUMS", "report.html"):
            yield Forgery(name=f"{name} is gone", change=lambda f, n=name: (f / n).unlink(), mended=False)
            yield Forgery(name=f"{name} grew", change=lambda f, n=name: _append(f / n, b"\n"), mended=False)
        if name != "report.html":
            yield Forgery(name=f"{name} is a link", change=lambda f, n=name: _link(f / n), mended=False)
    yield Forgery(name="a pipe", change=lambda f: os.mkfifo(f / "pipe"), mended=False)
    yield Forgery(name="an empty folder", change=lambda f: (f / "more").mkdir(), mended=False)
    yield Forgery(name="an unlisted file", change=lambda f: (f / "more.txt").write_text("x"), mended=False)
    for sign in ("\n", "\r", "\\"):
        yield Forgery(
            name=f"{sign!r} in a name", change=lambda f, s=sign: _add_listed_file(f, f"more{s}.txt"), mended=False
        )
    yield Forgery(
        name="a file that the problem does not name", change=lambda f: (f / "problem" / "x.csv").write_text("x")
    )
    yield Forgery(name="no sums", change=lambda f: (f / "SHA256SUMS").unlink(), mended=False)
    yield Forgery(
        name="sums twice", change=lambda f: _append(f / "SHA256SUMS", (f / "SHA256SUMS").read_bytes()), mended=False
    )


def _append(path: Path, extra_bytes: bytes) -> None:
    path.write_bytes(path.read_bytes() + extra_bytes)


def _add_listed_file(folder: Path, name: str) -> None:
    """One more file, which SHA256SUMS lists by its name as it stands: not as sha256sum writes such names."""
    (folder / name).write_text("x")
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    sums = {n: hashlib.sha256((folder / n).read_bytes()).hexdigest() for n in names}
    lines = [f"{digest}  {n}\n" for n, digest in sums.items() if n not in ("SHA256SUMS", "report.html")]
    (folder / "SHA256SUMS").write_text("".join(lines), newline="")


def _link(path: Path) -> None:
    moved_path = path.with_name(path.name + ".kept")
    path.rename(moved_path)
    path.symlink_to(moved_path.name)
