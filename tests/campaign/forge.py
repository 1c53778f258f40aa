"""Folders forged on purpose, sums and all: ``verify`` refuses each, and so does all that uses a folder."""

from __future__ import annotations

import json
import os
import random
import shutil
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from problems import PROBLEMS, Given
from spoil import READERS, mend, solve_given
from trials import Ended, Tally, privopt, spread

from privopt.files.release_folder import PRIVATE, REPORT, RESULT, SUMS, sha256
from privopt.interfaces.result import LP
from privopt.testing import npy_bytes

__all__ = ["forged"]

Change = Callable[[Path], object]

WORDS: Final = ("proved", "declared", "none")

NOISY: Final = ("fl-linear", "hierarchical-dp", "hierarchical-tables")
"""Mechanisms whose release a seed marks."""


def _edit(folder: Path, change: Callable[[Any], object]) -> None:
    result = json.loads((folder / RESULT).read_text("utf-8"))
    change(result)
    (folder / RESULT).write_text(json.dumps(result), "utf-8")


def _claim(change: Callable[[Any], object]) -> Change:
    return lambda folder: _edit(folder, change)


def _other_value(value: Any) -> Any:
    """Another value of the same type, near enough to be overlooked."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return type(value)(value + 1)
    return f"{value}, certified by an institute" if isinstance(value, str) else "x"


def _claims(result: Any) -> Iterator[tuple[str, Change]]:
    """Yield claims for result.json that its problem and release do not support."""
    for table in ("guarantee", "certificate", "objective", "details"):
        for key, value in result[table].items():
            if key not in ("told", LP):  # what nobody checks
                yield (
                    f"{table}.{key} other",
                    _claim(lambda r, t=table, k=key, v=value: r[t].update({k: _other_value(v)})),
                )
                yield f"{table}.{key} taken away", _claim(lambda r, t=table, k=key: r[t].pop(k))
        for key in ("top_k", "margin", "protected_k", "neighbours_within", "radius", "gv", "certified_by"):
            if key not in result[table]:
                yield f"{table}.{key} added", _claim(lambda r, t=table, k=key: r[t].update({k: 3}))
    is_maximised = result["objective"]["unit"] == "locations"
    value = result["objective"]["value"]
    bound_beyond = value - 1 if is_maximised else value * 1.01 + 1
    yield "bound beyond the value", _claim(lambda r: r["objective"].update(lower_bound=bound_beyond, gap=0.0))
    if LP not in result["details"]:  # else the status speaks of that program
        worthless = {"lower_bound": 0.0, "gap": 1.0}
        yield "optimal at gap 1", _claim(lambda r: r.update(status="optimal") or r["objective"].update(worthless))
    yield "status other", _claim(lambda r: r.update(status="feasible" if r["status"] == "optimal" else "optimal"))
    yield "half the epsilon", _claim(lambda r: r["guarantee"].update(epsilon=0.25, epsilon_text="0.25"))
    yield "another text of epsilon", _claim(lambda r: r["guarantee"].update(epsilon_text="0.10"))
    yield "another method", _claim(lambda r: r.update(method="nobody's"))
    if result["mechanism"] != "photo-censor":
        yield "another mechanism", _claim(lambda r: r.update(mechanism="photo-censor", method="optimal"))
    yield "another plugin", _claim(lambda r: r["plugin"].update(name="acme"))
    yield "a key more", _claim(lambda r: r.update(blessed=True))
    if result["certificate"]["evidence"] != "proved":
        yield "proved by its word", _claim(lambda r: r["certificate"].update(evidence="proved"))
    if result["guarantee"].get("seeded"):
        yield "seeded left out", _claim(lambda r: (r["guarantee"].pop("seeded"), r["guarantee"].pop("warning", None)))
        yield "seed left out", _claim(lambda r: r.update(seed=None))


def _texts(folder: Path) -> Iterator[tuple[str, Change]]:
    """JSON of two meanings, too deep, with what is none."""
    text = (folder / RESULT).read_text("utf-8")
    for name, changed in {
        "a key twice": text.replace('"status"', '"status": "optimal", "status"', 1),
        "a key twice further in": text.replace('"holds"', '"holds": true, "holds"', 1),
        "900 deep": text.replace('"told": {', '"told": {"a": ' + "[" * 900 + "]" * 900 + ", ", 1).replace(", }", "}"),
        "half a character": text.replace('"solver": {', '"solver": {"a": "\\ud800", ', 1),
        "infinity": text.replace('"total": ', '"total": 1e999, "t": ', 1),
    }.items():
        yield name, lambda f, changed=changed: (f / RESULT).write_text(changed, "utf-8")


def _problems(folder: Path, file: str) -> Iterator[tuple[str, Change]]:
    """Yield changes of the problem file, with its checksum in result.json."""

    def put(old: str, new: str) -> Change:
        def change(copy: Path) -> None:
            path = copy / "problem" / file
            path.write_text(path.read_text("utf-8").replace(old, new, 1), "utf-8")
            _edit(copy, lambda r: r["problem"].update(sha256=sha256(path)))

        return change

    text = (folder / "problem" / file).read_text("utf-8")
    for key in ("epsilon = ", "top_k = ", "neighbours_within = ", "deletion_budget = "):
        if key in text:
            yield f"{key.split()[0]} other in the problem", put(key, f"{key}1")
    name = next(
        (problem_file.name for problem_file in (folder / "problem").iterdir() if problem_file.name != file), None
    )
    if name is not None:
        for where in ("/dev/zero", "/etc/passwd", f"../../{name}", "a\\u0000b", f"{name}/x"):
            yield f"the problem names {where}", put(f'"{name}"', f'"{where}"')
    yield "the problem file is elsewhere", _claim(lambda r: r["problem"].update(file="../problem/problem.toml"))


def _entries(folder: Path) -> Iterator[tuple[str, Change]]:
    """Entries of DIR that are no files of a release."""
    files = sorted(p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file())
    for name in files:

        def link(copy: Path, name: str = name) -> None:
            (copy / name).rename(copy.with_name("kept"))
            (copy / name).symlink_to(copy.with_name("kept"))

        def pipe(copy: Path, name: str = name) -> None:
            (copy / name).unlink()
            os.mkfifo(copy / name)

        def device(copy: Path, name: str = name) -> None:
            (copy / name).unlink()
            (copy / name).symlink_to("/dev/zero")

        yield f"a link for {name}", link
        yield f"a pipe for {name}", pipe
        yield f"/dev/zero for {name}", device
    for name in ("note.txt", "problem/more.csv", "a\nb", "-rf", "\u202egnp", "\x1b[2J", "a\\b", "x" * 250):
        kind = "problem" if "problem" in name else "sums as they were"  # a file may be listed, but not as the problem's
        yield f"a file {name[:20]!r} more ({kind})", lambda copy, name=name: (copy / name).write_text("x")
    yield "an empty folder", lambda copy: (copy / "empty").mkdir()
    yield "a line more in the sums", lambda copy: (copy / SUMS).write_text((copy / SUMS).read_text() + "\n")


def _archives(folder: Path) -> Iterator[tuple[str, Change]]:
    """Yield archives with a member twice, one that unpacks to much, one whose header lies; and other contents."""
    for path in sorted(folder.glob("*.npz")):
        name = path.name
        with np.load(path) as archive:
            parts = dict(archive)
        first = next(iter(parts))

        def add(copy: Path, member: str, contents: bytes, name: str = name) -> None:
            with zipfile.ZipFile(copy / name, "a", zipfile.ZIP_DEFLATED) as archive:
                archive.writestr(member, contents)

        def replace(copy: Path, member: str, contents: bytes, name: str = name, parts: Any = parts) -> None:
            with zipfile.ZipFile(copy / name, "w", zipfile.ZIP_DEFLATED) as archive:
                for name_of_part, array in parts.items():
                    archive.writestr(f"{name_of_part}.npy", contents if name_of_part == member else npy_bytes(array))

        yield f"{name}: {first} twice", lambda c, f=first, a=add, p=parts: a(c, f"./{f}.npy", npy_bytes(p[f]))
        yield f"{name}: another array", lambda c, a=add: a(c, "more.npy", npy_bytes(np.zeros(3)))
        yield f"{name}: no array", lambda c, a=add: a(c, "readme.txt", b"x")
        bomb = npy_bytes(np.zeros(4_000_000))
        yield f"{name}: {first} of 32 MB", lambda c, r=replace, f=first, b=bomb: r(c, f, b)
        lie = npy_bytes(np.zeros(3)).replace(b"(3,)", b"(3000000000,)")
        yield f"{name}: {first} lies", lambda c, r=replace, f=first, lie=lie: r(c, f, lie)
        if "weights" in parts and "pairs" in parts:
            yield from _matrices(name, parts)
        if "scales" in parts:
            half = np.array([str(float(s) / 2) if "/" not in s else "1/1000" for s in parts["scales"].tolist()])
            yield f"{name}: half the scales", lambda c, n=name, p=parts, h=half: np.savez(c / n, **{**p, "scales": h})


def _matrices(name: str, parts: dict[str, Any]) -> Iterator[tuple[str, Change]]:
    """Matrices that give more away than they say, though everything is counted again that can be."""
    weights, pairs, distances = parts["weights"], parts["pairs"], parts["distances"]
    sure = weights.copy()
    sure[0] = 0
    sure[0, 0] = 2**63
    turned = np.roll(weights, 1, axis=0)
    changes: dict[str, dict[str, Any]] = {
        "one row for sure": {"weights": sure},
        "ids of other rows": {"records": np.roll(parts["records"], 1)},
        "ids of other columns": {"outputs": np.roll(parts["outputs"], 1)},
    }
    if not np.array_equal(turned, weights):
        changes["rows one further"] = {"weights": turned}
    if len(pairs):
        changes |= {
            "no pairs": {"pairs": pairs[:0], "distances": distances[:0]},
            "a pair less": {"pairs": pairs[1:], "distances": distances[1:]},
            "distances ten times": {"distances": distances * 10},
            "one row for sure, distances too": {"weights": sure, "distances": distances * 1e9},
        }
    for kind, changed in changes.items():
        yield f"{name}: {kind}", lambda copy, c=changed: np.savez(copy / name, **{**parts, **c})


def _tables(folder: Path) -> Iterator[tuple[str, Change]]:
    """Yield published tables with other rows, or in an order that may say something."""
    for path in sorted(folder.glob("*.csv")):
        head, *rows = path.read_text("utf-8").splitlines()
        ways: dict[str, Sequence[str]] = {
            "rows reversed": rows[::-1],
            "a row less": rows[:-1],
            "a row twice": [*rows, rows[-1]],
            "no rows": [],
            "a last value other": [*rows[:-1], rows[-1].rpartition(",")[0] + ",7777"],
        }
        for kind, changed in ways.items():
            if list(changed) != rows:
                text = "\n".join([head, *changed]) + "\n"
                yield f"{path.name}: {kind}", lambda c, n=path.name, t=text: (c / n).write_text(t, "utf-8")


def _ways(folder: Path) -> Iterator[tuple[str, Change]]:
    result = json.loads((folder / RESULT).read_text("utf-8"))
    yield from _claims(result)
    yield from _texts(folder)
    yield from _problems(folder, result["problem"]["file"])
    yield from _entries(folder)
    yield from _archives(folder)
    yield from _tables(folder)


def _faults(copy: Path, command: str, ended: Ended) -> list[str]:
    wrong = ended.faults([1, 2])
    if command == "verify" and ended.out.startswith(WORDS):
        wrong.append(f"verify says {ended.out[:60]!r}")
    if command == "sample" and ended.out:
        wrong.append("something was drawn")
    if any((copy / folder_name / REPORT).exists() for folder_name in (".", PRIVATE)):
        wrong.append("a report was written")
    return wrong


def forged(folder: Path, chance: random.Random, count: int | None) -> Tally:
    """Forge solved folders, which this user's memory knows to hold: nothing may take one for what it was."""
    tally = Tally(part="forged folders")
    cases = []
    problems: list[tuple[Given, tuple[str, ...]]] = [(problem, ()) for problem in PROBLEMS]
    problems += [(problem, ("--seed", "3")) for problem in PROBLEMS if problem.mechanism in NOISY]
    for number, (problem, options) in enumerate(problems):
        home = folder / f"{number}-{problem.mechanism}"
        ended = solve_given(problem, home, *options)
        if ended.code != 0:
            tally.note(f"{problem.mechanism} {problem.method}", ended, [f"was not solved: {ended.err}{ended.raised}"])
            continue
        cases += [(problem, home / "out", kind, change) for kind, change in _ways(home / "out")]
    for number, (problem, solved_folder, kind, change) in enumerate(spread(cases, count)):
        copy = folder / "copy"
        shutil.copytree(solved_folder, copy)
        change(copy)
        if "sums" not in kind and not any(path.is_symlink() or path.is_fifo() for path in copy.rglob("*")):
            mend(copy)
        reader, *reader_options = READERS[number % len(READERS)]
        for command, arguments in (("verify", ()), (str(reader), reader_options)):
            ended = privopt(command, copy, *map(str, arguments))
            tally.note(f"{problem.mechanism}: {kind}: {command}", ended, _faults(copy, command, ended))
        shutil.rmtree(copy)
        copy.with_name("kept").unlink(missing_ok=True)
    return tally
