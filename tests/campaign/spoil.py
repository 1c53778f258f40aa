"""The two parts that run in this process: bad inputs to ``solve``, tampered folders to everything that reads one."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
from inputs import spoiled
from problems import PROBLEMS, Given
from trials import Ended, Tally, privopt, spread

from privopt.files.release_folder import PRIVATE, RESULT, SUMS, sums_text

__all__ = ["bad_inputs", "tamper_with_folders"]

BEYOND: Final = "differ by more than double precision solvers can represent"
"""A problem that is well said, with numbers that no solver takes: code 5 tells so."""

LEAVES: Final[dict[str, Any]] = {
    "null": None,
    "true": True,
    "text": "x",
    "number": -1.5,
    "whole": 10**40,
    "list": [1],
    "object": {"a": {}},
}
"""In place of each value of result.json."""


def solve_given(problem: Given, folder: Path, *options: str) -> Ended:
    """Solve a problem into ``folder``/out."""
    path = problem.write(folder / "given")
    command = ["solve", problem.mechanism, path, "--method", problem.method, "--out", folder / "out", "--quiet"]
    return privopt(*command, "--time-limit", "600", *options)


def bad_inputs(folder: Path, chance: random.Random, count: int | None) -> Tally:
    """Solve spoiled problems: 2 or 3 with clear lines and nothing written, or 0 and a folder that verifies."""
    tally = Tally(part="bad inputs")
    for number, spoiled_problem in enumerate(spread(list(spoiled(chance)), count)):
        home = folder / str(number)
        ended = solve_given(spoiled_problem.given, home)
        wrong = ended.faults([0, 2, 3, 5] if BEYOND in ended.err else [0, 2, 3])
        if ended.code == 0:
            verified = privopt("verify", home / "out")
            wrong += [f"was solved, but verify says {fault}" for fault in verified.faults([0])]
        elif any(path.name != "given" for path in home.iterdir()):
            wrong.append(f"left {sorted(path.name for path in home.iterdir())}")
        tally.note(f"{spoiled_problem.given.mechanism}: {spoiled_problem.name}", ended, wrong)
        shutil.rmtree(home)
    return tally


# --- folders that somebody changed ---------------------------------------------------------------------


def _bytes(path: Path, chance: random.Random) -> Iterator[tuple[str, Callable[[], object]]]:
    """Ways to spoil any file."""
    contents = path.read_bytes()
    at = chance.randrange(max(1, len(contents)))

    def flip() -> None:
        changed = bytearray(contents)
        changed[at] ^= 1 << chance.randrange(8)
        path.write_bytes(bytes(changed))

    if contents:
        yield "one bit", flip
    yield "cut short", lambda: path.write_bytes(contents[:at])
    yield "empty", lambda: path.write_bytes(b"")
    yield "garbage", lambda: path.write_bytes(chance.randbytes(200))
    yield "missing", path.unlink
    yield "a byte more", lambda: path.write_bytes(contents + b"\n")


def _arrays(path: Path, chance: random.Random) -> Iterator[tuple[str, Callable[[], object]]]:
    """Ways to spoil an archive of arrays."""
    with np.load(path) as archive:
        parts = {name: np.atleast_1d(archive[name]) for name in archive.files}

    def save(**changes: Any) -> None:
        np.savez(path, **{name: part for name, part in {**parts, **changes}.items() if part is not None})

    for name, part in parts.items():
        for kind, changed in {
            "missing": None,
            "reversed": part[::-1],
            "one row less": part[:-1],
            "one row twice": np.concatenate([part, part[:1]]),
            "as text": part.astype("U"),
            "as doubles": part.astype(float) if part.dtype.kind in "uif" else np.zeros(len(part)),
            "a number": np.asarray(3),
            "bytes": np.asarray(part.tobytes()),
            "zeros": np.zeros_like(part),
            "one axis more": part[None],
        }.items():
            yield f"{name} {kind}", lambda name=name, changed=changed: save(**{name: changed})


def _leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else ()
    for name, item in inner:
        yield from _leaves(item, (*path, name))


def _claims(path: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """Ways to spoil result.json."""
    text = path.read_text("utf-8")

    def put(where: tuple[Any, ...], value: Any, *, drop: bool) -> None:
        result: Any = json.loads(text)
        inner = result
        for name in where[:-1]:
            inner = inner[name]
        if not where:
            result = value
        elif drop:
            inner.pop(where[-1])
        else:
            inner[where[-1]] = value
        path.write_text(json.dumps(result), "utf-8")

    for where in _leaves(json.loads(text)):
        if len(where) > 3 and where[0] == "details":
            continue
        name = ".".join(map(str, where)) or "all of it"
        for kind, value in LEAVES.items():
            yield f"{name} = {kind}", lambda where=where, value=value: put(where, value, drop=False)
        if where:
            yield f"{name} left out", lambda where=where: put(where, None, drop=True)
    yield "NaN", lambda: path.write_text(text.replace('"value":', '"value": NaN, "was":'), "utf-8")
    yield "deep", lambda: path.write_text("[" * 100_000, "utf-8")
    yield "another file", lambda: put(("problem", "file"), "../given/problem.toml", drop=False)
    yield "another mechanism", lambda: put(("mechanism",), "exponential", drop=False)


def mend(folder: Path) -> None:
    """Write the sums again: who tampers can do that too."""
    if (folder / SUMS).exists():
        (folder / SUMS).write_text(sums_text(folder), "utf-8")
    if (folder / PRIVATE / SUMS).exists():
        (folder / PRIVATE / SUMS).write_text(sums_text(folder / PRIVATE, private=True), "utf-8")


READERS: Final[list[list[str | int]]] = [["audit", "--json"], ["sample", "--input", "p0", "-n", 3], ["report"]]
"""What else reads a folder; ``verify`` reads each, of these one at a time does."""


def are_same_matrices(folder: Path, other_folder: Path) -> bool:
    """Whether two folders' matrices hold the same, whatever their bytes and the order of their pairs."""
    with np.load(folder / "mechanism.npz") as first, np.load(other_folder / "mechanism.npz") as second:
        read = [dict(first), dict(second)]
    pairs = [
        sorted(zip(arrays.pop("pairs").tolist(), arrays.pop("distances").tolist(), strict=True)) for arrays in read
    ]
    return pairs[0] == pairs[1] and all(np.array_equal(read[0][name], read[1][name]) for name in read[1])


def claims_of(folder: Path) -> Any:
    """Return a folder's claims that only its files can confirm: all but how the run went and what was asked for."""
    result = json.loads((folder / RESULT).read_text("utf-8"))
    free = {"time", "solver", "asked", "seed", "privopt"}
    details = {name: value for name, value in result["details"].items() if name not in ("told", "lp")}
    plugin = result["plugin"]["name"]
    checked_claims = {name: value for name, value in result.items() if name not in free}
    return checked_claims | {"plugin": plugin, "details": details, "asked": result["asked"]["method"]}


def tamper_with_folders(folder: Path, chance: random.Random, count: int | None) -> Tally:
    """Change every file of a folder: with the sums as they were verify must complain; mended, nothing may break."""
    tally = Tally(part="tampered folders")
    cases = []
    for number, problem in enumerate(PROBLEMS):
        home = folder / f"{number}-{problem.mechanism}"
        ended = solve_given(problem, home)
        if ended.code != 0:
            tally.note(
                f"{problem.mechanism} --method {problem.method}", ended, [f"was not solved: {ended.err}{ended.raised}"]
            )
            continue
        for path in sorted((home / "out").rglob("*")):
            if path.is_file():
                name = path.relative_to(home / "out").as_posix()
                ways = [kind for kind, _ in _ways(path, random.Random(0))]
                cases += [(problem, home / "out", name, kind, mended) for kind in ways for mended in (False, True)]
    for number, (problem, solved_folder, name, kind, mended) in enumerate(spread(cases, count)):
        copy = folder / "copy"
        shutil.copytree(solved_folder, copy)
        dict(_ways(copy / name, chance))[kind]()
        if mended and name not in (SUMS, f"{PRIVATE}/{SUMS}"):
            mend(copy)
        changed = {path.relative_to(copy): path.read_bytes() for path in copy.rglob("*") if path.is_file()}
        original_files = {
            path.relative_to(solved_folder): path.read_bytes() for path in solved_folder.rglob("*") if path.is_file()
        }
        verified = privopt("verify", copy)
        wrong = verified.faults([0, 1, 2])
        if verified.code == 0 and changed != original_files and not mended:
            wrong.append("verify found nothing")
        if verified.code == 0 and mended and name == "mechanism.npz" and not are_same_matrices(copy, solved_folder):
            wrong.append("verify takes another matrix")
        if verified.code == 0 and mended and name == RESULT and claims_of(copy) != claims_of(solved_folder):
            wrong.append("verify takes another claim")
        what = f"{problem.mechanism}: {name}: {kind}{', sums mended' * mended}"
        tally.note(f"{what}: verify", verified, wrong)
        reader, *reader_options = READERS[number % len(READERS)]
        completed = privopt(reader, copy, *map(str, reader_options))
        tally.note(f"{what}: {reader}", completed, completed.faults([0, 2] if verified.code == 0 else [1, 2]))
        shutil.rmtree(copy)
    return tally


def _ways(path: Path, chance: random.Random) -> Iterator[tuple[str, Callable[[], object]]]:
    yield from _bytes(path, chance)
    if path.suffix == ".npz":
        yield from _arrays(path, chance)
    if path.name == RESULT:
        yield from _claims(path)
