"""Forged folders, made by code: changes to a folder that held, its sums mended, after which it says what is not so."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from attrs import frozen
from examples import EXAMPLES
from forged_planes import SQUARES, TRIANGLES, forged_planes, forged_regions
from forged_trees import forged_trees, forged_units

from privopt import checker
from privopt.metric.everywhere import check_planes
from privopt.run.folder import sums_text
from privopt.run.solve import Options, solve

__all__ = ["BASES", "Forgery", "forge", "forgeries", "make"]

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


def _town(folder: Path) -> Path:
    folder.mkdir(parents=True)
    rows = [(0, 0), (0.5, 0.1), (1.1, 0), (0.1, 0.7), (0.6, 0.8), (1.2, 0.9)]
    (folder / "points.csv").write_text("id,x,y\n" + "".join(f"p{i},{x},{y}\n" for i, (x, y) in enumerate(rows)))
    (folder / "prior.csv").write_text(
        "id,p\n" + "".join(f"p{i},{p}\n" for i, p in enumerate((0.1, 0.2, 0.2, 0.2, 0.2, 0.1)))
    )
    text = '[records]\npoints = "points.csv"\n[distance]\nkind = "euclidean"\n[privacy]\nepsilon = 1.5\n'
    (folder / "problem.toml").write_text(text + '[utility]\nkind = "distance"\nprior = "prior.csv"\n')
    return folder / "problem.toml"


def _twins(folder: Path) -> Path:
    problem = _town(folder)
    points = folder / "points.csv"
    points.write_text(points.read_text().replace("p4,0.6,0.8", "p4,0.5,0.1"))
    return problem


def _roads(folder: Path) -> Path:
    folder.mkdir(parents=True)
    edges = "a,b,0.31\nb,c,0.42\nc,d,0.25\nd,e,0.6\ne,a,0.5\nb,n,0.2\nn,d,0.3\n"
    (folder / "roads.csv").write_text("from,to,km\n" + edges)
    (folder / "points.csv").write_text("id\na\nb\nc\nd\ne\n")
    text = (
        '[records]\npoints = "points.csv"\n[distance]\nkind = "graph"\nedges = "roads.csv"\n[privacy]\nepsilon = 2.0\n'
    )
    (folder / "problem.toml").write_text(text + 'neighbours_within = 0.6\n[utility]\nkind = "travel-cost"\n')
    return folder / "problem.toml"


def _streets(folder: Path) -> Path:
    problem = _roads(folder)
    text = problem.read_text().replace("neighbours_within = 0.6", "everywhere = true\nsplit_km = 0.35")
    problem.write_text(text.replace("travel-cost", "distance"))
    return problem


def _plane(text: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        problem = _town(folder)
        problem.write_text(text)
        if text == SQUARES:
            (folder / "points.csv").unlink()
            shares = (folder / "prior.csv").read_text()
            for i in range(6):
                shares = shares.replace(f"p{i},", f"{i // 3}-{i % 3},")
            (folder / "prior.csv").write_text(shares)
        return problem

    return write


def _table(folder: Path) -> Path:
    folder.mkdir(parents=True)
    rng = np.random.default_rng(3)
    table = rng.uniform(0.5, 1.5, (5, 5))
    table = (table + table.T) * (1 - np.eye(5))
    np.save(folder / "d.npy", table)
    np.save(folder / "c.npy", rng.uniform(0, 2, (5, 4)))
    text = '[records]\ncount = 5\n[outputs]\ncount = 4\n[distance]\nkind = "matrix"\nmatrix = "d.npy"\n[privacy]\n'
    (folder / "problem.toml").write_text(text + 'epsilon = 1.0\n[utility]\nkind = "matrix"\ncost = "c.npy"\n')
    return folder / "problem.toml"


def _grid(folder: Path) -> Path:
    folder.mkdir(parents=True)
    grid = "grid = { rows = 2, cols = 3, cell_km = 0.5, south_west = [41.86, 12.44] }"
    text = (
        f'[records]\n{grid}\n[distance]\nkind = "haversine"\n[privacy]\nepsilon = 2.0\n[utility]\nkind = "distance"\n'
    )
    (folder / "problem.toml").write_text(text)
    return folder / "problem.toml"


def _photos(task: str) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        problem = EXAMPLES["photo-censor"].write(folder)
        problem.write_text(problem.read_text().replace("top_k = 5", task))
        return problem

    return write


BASES: dict[str, tuple[str, Callable[[Path], Path]]] = {
    "town": ("optimal-lp", _town),
    "twins": ("optimal-lp", _twins),
    "roads": ("optimal-lp", _roads),
    "table": ("optimal-lp", _table),
    "grid": ("optimal-lp", _grid),
    "streets": ("optimal-lp", _streets),
    "triangles": ("optimal-lp", _plane(TRIANGLES)),
    "squares": ("optimal-lp", _plane(SQUARES)),
    "soft": ("optimal-lp", _town),
    "fewest": ("photo-censor", _photos("top_k = 5")),
    "highest": ("photo-censor", _photos("deletion_budget = 4")),
}
METRIC = ("town", "twins", "roads", "table", "grid", "soft")
PLANES = ("triangles", "squares")
REGIONS = ("streets", *PLANES)


def make(base: str, folder: Path) -> Path:
    """The DIR of a base, solved."""
    mechanism, write = BASES[base]
    method = "interior-point" if base == "soft" else "full"  # its multipliers make no trees
    options = Options(method=method, solver="highs") if base in METRIC + REGIONS else Options()
    return solve(mechanism, write(folder / "problem"), folder / "out", options).folder


def forgeries(base: str, folder: Path) -> Iterator[Forgery]:
    """All forgeries of a base whose DIR lies at ``folder``."""
    yield from _claims(json.loads((folder / "result.json").read_text()))
    yield from _files(folder)
    if base in METRIC:
        yield from _arrays(folder, base)
        yield from _proofs(folder)
        yield from _problems(folder, base)
    elif base in REGIONS:
        yield from _planes(folder, base) if base in PLANES else _regions(folder)
        yield from _proofs(folder)
    else:
        yield from _deletions(folder)


def forge(folder: Path, forgery: Forgery, target: Path) -> Path:
    """A copy of a DIR with a forgery."""
    shutil.copytree(folder, target)
    forgery.change(target)
    if forgery.mended:
        (target / "SHA256SUMS").write_text(sums_text(target))
    return target


# ---------------------------------------------------------------- result.json


def _set(*path: Any, to: Any) -> Change:
    def change(folder: Path) -> None:
        result = json.loads((folder / "result.json").read_text())
        at = result
        for name in path[:-1]:
            at = at[name]
        at[path[-1]] = to
        (folder / "result.json").write_text(json.dumps(result))

    return change


def _drop(*path: Any) -> Change:
    def change(folder: Path) -> None:
        result = json.loads((folder / "result.json").read_text())
        at = result
        for name in path[:-1]:
            at = at[name]
        del at[path[-1]]
        (folder / "result.json").write_text(json.dumps(result))

    return change


def _claims(result: dict[str, Any]) -> Iterator[Forgery]:
    """Every claim changed, taken away and given beside others."""
    for table in ("guarantee", "objective", "certificate"):
        yield Forgery(name=f"{table} says more", change=_set(table, "blessed_by", to="an institute"))
        yield Forgery(name=f"{table} is gone", change=_drop(table))
        for name, value in result[table].items():
            if (table, name) in {
                ("guarantee", "statement"),
                ("certificate", "arithmetic"),
                ("objective", "lower_bound"),
            }:
                continue
            yield Forgery(name=f"{table}.{name} is gone", change=_drop(table, name))
            for other in _others(value):
                yield Forgery(name=f"{table}.{name} = {other!r}", change=_set(table, name, to=other))
    for name, other in forged_units(result) if "value_unit" in result["details"] else ():
        text = json.dumps(other)
        yield Forgery(name=name, change=lambda f, text=text: (f / "result.json").write_text(text))
    for status in ("optimal", "feasible", "perfect", None):
        if status != result["status"]:
            yield Forgery(name=f"status = {status}", change=_set("status", to=status))
    value, bound = result["objective"]["value"], result["objective"]["lower_bound"]
    better = [value * 1.01 + 1, bound * (1 + 1e-6) + 1e-9, "inf", True] if "privacy" not in result else []
    for other in better:
        yield Forgery(name=f"objective.lower_bound = {other!r}", change=_set("objective", "lower_bound", to=other))
    for other in (-1.0, 0, 1.0, True, None, "1e-3"):
        yield Forgery(name=f"asked.gap = {other!r}", change=_set("asked", "gap", to=other))
    yield Forgery(name="problem.sha256", change=_set("problem", "sha256", to="0" * 64))
    for file in ("other.toml", "../problem/problem.toml", "", "/etc/passwd"):
        yield Forgery(name=f"problem.file = {file}", change=_set("problem", "file", to=file))
    text = json.dumps(result)
    for name, forged in (
        ("a name twice", text.replace('"status":', '"status": "optimal", "status":', 1)),
        ("NaN", text.replace('"details": {', '"details": {"x": NaN, ', 1)),
        ("a byte order mark", "\ufeff" + text),
        ("no object", "[]"),
        ("cut", text[: len(text) // 2]),
        ("no text", "\x00"),
        ("deep", '{"a": ' * 3000 + "1" + "}" * 3000),
    ):
        yield Forgery(
            name=f"result.json: {name}",
            change=lambda folder, forged=forged: (folder / "result.json").write_text(forged),
        )


def _others(value: Any) -> list[Any]:
    if value is None:
        return [1.0]
    if isinstance(value, bool):
        return [not value, None]
    if isinstance(value, int | float):
        return [value * 1.00001 + 1e-5, value * 0.5 - 1, None]
    return [f"{value}1" if value[:1].isdigit() else f"not {value}", None]


# ---------------------------------------------------------------- files


def _files(folder: Path) -> Iterator[Forgery]:
    """Sums that do not fit, and what is no file."""
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
    yield Forgery(
        name="a file that the problem does not name", change=lambda f: (f / "problem" / "x.csv").write_text("x")
    )
    yield Forgery(name="no sums", change=lambda f: (f / "SHA256SUMS").unlink(), mended=False)
    yield Forgery(
        name="sums twice", change=lambda f: _append(f / "SHA256SUMS", (f / "SHA256SUMS").read_bytes()), mended=False
    )


def _append(path: Path, more: bytes) -> None:
    path.write_bytes(path.read_bytes() + more)


def _link(path: Path) -> None:
    kept = path.with_name(path.name + ".kept")
    path.rename(kept)
    path.symlink_to(kept.name)


# ---------------------------------------------------------------- mechanism.npz


def _npz(name: str, change: Callable[[dict[str, Any]], object]) -> Change:
    def changed(folder: Path) -> None:
        with np.load(folder / name) as archive:
            arrays = {key: archive[key].copy() for key in archive.files}
        made = change(arrays)
        np.savez(folder / name, **(made if isinstance(made, dict) else arrays))

    return changed


def _arrays(folder: Path, base: str) -> Iterator[Forgery]:
    """Every array of a matrix release."""
    with np.load(folder / "mechanism.npz") as archive:
        weights, pairs, distances = archive["weights"], archive["pairs"], archive["distances"]
        names = archive.files

    def at(name: str, what: str, change: Callable[[dict[str, Any]], object]) -> Forgery:
        return Forgery(name=f"{name}: {what}", change=_npz("mechanism.npz", change))

    for i in range(len(weights)):
        top, low = int(weights[i].argmax()), int(weights[i].argmin())

        def all_on_one(a: Any, i: int = i, top: int = top) -> None:
            a["weights"][i] = 0
            a["weights"][i, top] = 2**63

        def moved(a: Any, i: int = i, top: int = top, low: int = low) -> None:
            part = a["weights"][i, top] // np.uint64(3)
            a["weights"][i, top] -= part
            a["weights"][i, low] += part

        def one_more(a: Any, i: int = i, top: int = top) -> None:
            a["weights"][i, top] += np.uint64(1)

        for what, change in (("all on one", all_on_one), ("a third moved", moved), ("one too many", one_more)):
            yield at("weights", f"row {i}: {what}", change)
    yield at("weights", "rows turned over", lambda a: a.update(weights=a["weights"][::-1].copy()))
    yield at("weights", "columns turned over", lambda a: a.update(weights=a["weights"][:, ::-1].copy()))
    yield at("weights", "doubles", lambda a: a.update(weights=a["weights"].astype(np.float64)))
    yield at("weights", "signed", lambda a: a.update(weights=a["weights"].astype(np.int64)))
    yield at("weights", "a row less", lambda a: a.update(weights=a["weights"][1:]))
    yield at("weights", "by 2**64", lambda a: a["weights"].__setitem__((0, 0), a["weights"][0, 0] ^ np.uint64(2**63)))
    for name in ("records", "outputs"):
        yield at(name, "turned over", lambda a, n=name: a.update({n: a[n][::-1].copy()}))
        yield at(name, "renamed", lambda a, n=name: a[n].__setitem__(0, "x"))
        yield at(name, "one twice", lambda a, n=name: a[n].__setitem__(0, a[n][1]))
        yield at(name, "objects", lambda a, n=name: a.update({n: a[n].astype(object)}))
    for p in range(len(pairs)):
        yield at(
            "pairs",
            f"without {pairs[p].tolist()}",
            lambda a, p=p: a.update(pairs=np.delete(a["pairs"], p, 0), distances=np.delete(a["distances"], p)),
        )
        if base != "table" and distances[p] > 0.0:
            yield at(
                "distances",
                f"longer {pairs[p].tolist()}",
                lambda a, p=p: a["distances"].__setitem__(p, a["distances"][p] * (1 + 1e-6)),
            )
    yield at("pairs", "none", lambda a: a.update(pairs=a["pairs"][:0], distances=a["distances"][:0]))
    yield at("pairs", "of one record", lambda a: a["pairs"].__setitem__((0, 1), a["pairs"][0, 0]))
    yield at("pairs", "out of range", lambda a: a["pairs"].__setitem__((0, 1), 99))
    yield at("pairs", "below 0", lambda a: a["pairs"].__setitem__((0, 0), -1))
    yield at("pairs", "one for another", lambda a: a["pairs"].__setitem__(0, a["pairs"][-1]))
    for factor in (1 - 1e-7, 1 - 1e-3, 1 + 1e-7, 2.0, 0.0, -1.0, np.nan, np.inf):
        yield at(
            "distances", f"times {factor}", lambda a, factor=factor: a.update(distances=_times(a["distances"], factor))
        )
    yield at("distances", "one less", lambda a: a.update(distances=a["distances"][1:]))
    for name in names:
        yield at(name, "gone", lambda a, n=name: a.pop(n))
    yield at("more", "an array that nothing reads", lambda a: a.update(truth=np.arange(3)))
    yield Forgery(
        name="mechanism.npz: cut",
        change=lambda f: (f / "mechanism.npz").write_bytes((f / "mechanism.npz").read_bytes()[:-40]),
    )
    yield Forgery(name="mechanism.npz: no archive", change=lambda f: (f / "mechanism.npz").write_bytes(b"PK"))
    for name in ("mechanism.npz", "proof.npz"):
        yield Forgery(name=f"{name}: a member twice", change=lambda f, n=name: _twice(f / n))
        yield Forgery(name=f"{name}: a zip bomb", change=lambda f, n=name: _bomb(f / n))


def _regions(folder: Path) -> Iterator[Forgery]:
    """Every array of a release over streets, and other streets."""
    with np.load(folder / "mechanism.npz") as archive:
        weights, names = archive["weights"], archive.files

    def at(name: str, what: str, change: Callable[[dict[str, Any]], object]) -> Forgery:
        return Forgery(name=f"{name}: {what}", change=_npz("mechanism.npz", change))

    for i in range(len(weights)):

        def moved(a: Any, i: int = i) -> None:
            part = a["weights"][i, 0] // np.uint64(3)
            a["weights"][i, 0] -= part
            a["weights"][i, 1] += part

        yield at("weights", f"row {i}: a third moved", moved)
        yield at(
            "weights",
            f"row {i}: one too many",
            lambda a, i=i: a["weights"].__setitem__((i, 0), a["weights"][i, 0] + np.uint64(1)),
        )
    yield at("weights", "rows turned over", lambda a: a.update(weights=a["weights"][::-1].copy()))
    for name in ("records", "outputs"):
        yield at(name, "turned over", lambda a, n=name: a.update({n: a[n][::-1].copy()}))
    yield at("records", "a vertex renamed", lambda a: a["records"].__setitem__(-1, "x"))
    for factor in (1 - 1e-15, 1 + 1e-15, 0.5, 2.0, 0.0, -1.0, np.nan, np.inf):
        yield at("lengths", f"times {factor}", lambda a, factor=factor: a.update(lengths=a["lengths"] * factor))
    yield at("lengths", "one less", lambda a: a.update(lengths=a["lengths"][1:]))
    yield at("simplices", "one less", lambda a: a.update(simplices=a["simplices"][1:], lengths=a["lengths"][1:]))
    yield at("simplices", "turned over", lambda a: a.update(simplices=a["simplices"][::-1].copy()))
    yield at("simplices", "to another vertex", lambda a: a["simplices"].__setitem__((0, 1), 4))
    yield at("simplices", "out of range", lambda a: a["simplices"].__setitem__((0, 1), 99))
    for steps in (0, 4, 16, -1):
        yield at("snap_steps", f"{steps}", lambda a, steps=steps: a["snap_steps"].__setitem__(0, steps))
    yield at("pairs", "one", lambda a: a.update(pairs=np.array([[0, 1]]), distances=np.array([1.0])))
    for name in names:
        yield at(name, "gone", lambda a, n=name: a.pop(n))
    yield at(
        "vertices", "beside streets", lambda a: a.update(vertices=np.zeros((len(a["weights"]), 2), dtype=np.int64))
    )
    yield Forgery(name="a road shorter", change=_problem("a,b,0.31", "a,b,0.3", "roads.csv"))
    yield Forgery(name="a road more", change=_problem("a,b,0.31", "a,b,0.31\na,c,0.4", "roads.csv"))
    yield Forgery(name="a node renamed", change=_problem("b,n,0.2\nn,d,0.3", "b,m,0.2\nm,d,0.3", "roads.csv"))
    yield Forgery(name="epsilon less", change=_problem("epsilon = 2.0", "epsilon = 1.999"))
    yield Forgery(name="no region", change=_problem("everywhere = true\nsplit_km = 0.35", ""))
    yield Forgery(name="other pieces", change=_problem("split_km = 0.35", "split_km = 0.3"))
    for split in ("-0.35", "0", "true", '"0.35"'):
        yield Forgery(name=f"split {split}", change=_problem("split_km = 0.35", f"split_km = {split}"))
    yield Forgery(name="no split", change=_problem("split_km = 0.35", ""))
    yield Forgery(
        name="neighbours beside it", change=_problem("split_km = 0.35", "split_km = 0.35\nneighbours_within = 0.6")
    )
    yield Forgery(name="another loss", change=_problem('kind = "distance"\n', 'kind = "travel-cost"\n'))


def _planes(folder: Path, base: str) -> Iterator[Forgery]:
    """Every array of a release over a plane, and other regions."""
    with np.load(folder / "mechanism.npz") as archive:
        arrays = {name: archive[name] for name in archive.files}
    for what, change in forged_planes(arrays):
        yield Forgery(name=what, change=_npz("mechanism.npz", change))
    for what, old, new, file in forged_regions(base == "squares"):
        yield Forgery(name=what, change=_problem(old, new, file))


def _twice(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        name = archive.namelist()[0]
        contents = archive.read(name)
    import warnings

    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr(name, contents)


def _bomb(path: Path) -> None:
    """One array of 64 MiB of zeros in some 64 kB."""
    with np.load(path) as stored:
        arrays = {key: stored[key] for key in stored.files}
    largest = max(arrays, key=lambda key: arrays[key].nbytes)
    arrays[largest] = np.zeros(2**26 // arrays[largest].itemsize, dtype=arrays[largest].dtype)
    np.savez_compressed(path, **arrays)


# ---------------------------------------------------------------- proof.npz


def _one_bit(folder: Path, beside: float) -> None:
    """The bound that is next to the stated one, which says the same to fifteen digits."""
    result = json.loads((folder / "result.json").read_text())
    result["objective"]["lower_bound"] = float(np.nextafter(result["objective"]["lower_bound"], beside))
    (folder / "result.json").write_text(json.dumps(result))


def _raised(change: Callable[[dict[str, Any]], object], by: float = 0.0) -> Change:
    """A change to the proof beside a bound raised to the value, all else made to fit."""

    def changed(folder: Path) -> None:
        _npz("proof.npz", change)(folder)
        result = json.loads((folder / "result.json").read_text())
        result["objective"].update(lower_bound=result["objective"]["value"], gap=0.0)
        result["status"] = "optimal"
        (folder / "result.json").write_text(json.dumps(result))

    return changed


def _proofs(folder: Path) -> Iterator[Forgery]:
    """Proofs that prove less than is stated, and such as are none."""
    with np.load(folder / "proof.npz") as archive:
        arrays = {key: archive[key].copy() for key in archive.files}

    def at(what: str, change: Callable[[dict[str, Any]], object], raised: bool = False) -> Forgery:
        return Forgery(name=f"proof.npz: {what}", change=_raised(change) if raised else _npz("proof.npz", change))

    yield at("a bound that is the value", lambda a: None, raised=True)
    for what, change, raised in forged_trees(arrays) if "trees" in arrays else _rows(arrays):
        yield at(what, change, raised)
    yield at("another version", lambda a: a["version"].__setitem__(0, 7))
    yield at("an array that nothing reads", lambda a: a.update(more=np.arange(2)))
    for factor in (0.0, 0.5, 1.37, 2.0, -1.0, np.inf, np.nan):
        yield at(f"a unit times {factor}", lambda a, factor=factor: a.update(unit=a["unit"] * factor))
    yield at("a unit too fine", lambda a: a.update(unit=a["unit"] * 2.0**-20))
    yield Forgery(name="a bound at a unit too fine", change=_fine)
    for beside in (-np.inf, np.inf):
        yield Forgery(name=f"a bound one bit towards {beside}", change=lambda f, beside=beside: _one_bit(f, beside))
    for name in arrays:
        yield at(f"without {name}", lambda a, n=name: a.pop(n))
    yield Forgery(name="proof.npz: none at all", change=lambda f: (f / "proof.npz").unlink())
    yield Forgery(name="proof.npz: beside no bound", change=_no_bound)
    yield Forgery(
        name="proof.npz: cut", change=lambda f: (f / "proof.npz").write_bytes((f / "proof.npz").read_bytes()[:-30])
    )


def _rows(arrays: dict[str, Any]) -> Iterator[tuple[str, Callable[[dict[str, Any]], object], bool]]:
    """What is changed of multipliers row by row, how, and whether the bound is raised besides."""
    for factor in (0.5, 0.9, 1.1, 2.0, 100.0, -1.0, np.nan, np.inf):
        for raised in (False, True):
            yield (
                f"multipliers times {factor}" + ", the bound raised" * raised,
                lambda a, x=factor: a.update(values=(a["values"] * x).astype(np.float64)),
                raised,
            )
    for place in np.linspace(0, len(arrays["values"]) - 1, 6).astype(int).tolist():
        yield f"multiplier {place} away", lambda a, p=place: a["values"].__setitem__(p, a["values"][p] * 1e-3), False
        yield (
            f"multiplier {place} large",
            lambda a, p=place: a["values"].__setitem__(p, a["values"][p] * 1e3 + 1),
            False,
        )
    for what, change in {
        "rows the other way": lambda a: a.update(pairs=a["pairs"][:, ::-1].copy()),
        "a row of one record": lambda a: a["pairs"].__setitem__((0, 1), a["pairs"][0, 0]),
        "a row out of range": lambda a: a["pairs"].__setitem__((0, 0), 77),
        "a row below 0": lambda a: a["pairs"].__setitem__((0, 0), -2),
        "starts that fall": lambda a: a.update(starts=a["starts"][::-1].copy()),
        "starts that end early": lambda a: a["starts"].__setitem__(-1, a["starts"][-1] - 1),
        "an output less": lambda a: a.update(starts=a["starts"][:-1]),
        "rows that are none": lambda a: a["rows"].__setitem__(0, 2**31),
        "rows less": lambda a: a.update(rows=a["rows"][1:]),
        "integers for multipliers": lambda a: a.update(values=np.ones(len(a["values"]), dtype=np.int64)),
        "objects for multipliers": lambda a: a.update(values=a["values"].astype(object)),
        "prices beside rows": lambda a: a.update(prices=np.zeros(6)),
    }.items():
        yield what, change, False


def _times(distances: Any, factor: float) -> Any:
    with np.errstate(invalid="ignore"):  # 0 times infinity
        return distances * factor


def _fine(folder: Path) -> None:
    """The bound that the proof gives at another unit, stated as the checker has it."""
    _npz("proof.npz", lambda a: a.update(unit=a["unit"] * 2.0**-30))(folder)
    (folder / "SHA256SUMS").write_text(sums_text(folder))
    lines: list[str] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checker, "need", lambda holds, why, code=1: None)  # a checker that looks at nothing
        check_planes.check(folder, lines.append)
    found = next(line for line in lines if "none is below" in line).split()[-1]
    result = json.loads((folder / "result.json").read_text())
    objective = result["objective"]
    objective["lower_bound"] = float(found)
    objective["gap"] = max(0.0, (objective["value"] - float(found)) / max(abs(objective["value"]), 1e-12))
    (folder / "result.json").write_text(json.dumps(result))


def _no_bound(folder: Path) -> None:
    result = json.loads((folder / "result.json").read_text())
    result["objective"].update(lower_bound=None, gap=None)
    result["status"] = "feasible"
    (folder / "result.json").write_text(json.dumps(result))


# ---------------------------------------------------------------- problem/


def _problem(
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


def _npy(name: str, change: Callable[[Any], object]) -> Change:
    def changed(folder: Path) -> None:
        table = np.load(folder / "problem" / name)
        made = change(table)
        np.save(folder / "problem" / name, table if made is None else made)

    return changed


def _several(*changes: Change) -> Change:
    return lambda folder: [change(folder) for change in changes]


def _nothing_held(folder: Path) -> None:
    """No pair of records is held, and each has an output of its own."""

    def bare(arrays: dict[str, Any]) -> None:
        arrays.update(pairs=arrays["pairs"][:0], distances=arrays["distances"][:0])
        weights = np.zeros_like(arrays["weights"])
        weights[np.arange(len(weights)), np.arange(len(weights)) % weights.shape[1]] = np.uint64(2**63)
        arrays.update(weights=weights)

    _npz("mechanism.npz", bare)(folder)


def _half(folder: Path) -> None:
    """Distances of .008, whose bytes are 32 each, of zeros with a sign 128; the loss does not depend on them."""
    table = np.full((5, 5), 0x2020, dtype="<u2").view("<f2").copy()
    np.fill_diagonal(table, -0.0)
    np.save(folder / "problem" / "d.npy", table)
    _no_bound(folder)
    (folder / "proof.npz").unlink()


def _beside(name: str) -> Change:
    return lambda folder: (folder / "problem" / name).write_text("more than the release needs\n")


def _problems(folder: Path, base: str) -> Iterator[Forgery]:
    """Releases beside problems that they do not serve."""
    epsilon = next(line for line in (folder / "problem" / "problem.toml").read_text().splitlines() if "epsilon" in line)
    stated = epsilon.split("= ")[1]
    less = f"{float(stated) * 0.999999:.7f}"

    def claims(result: dict[str, Any], text: str = less) -> None:
        result["guarantee"].update(epsilon=float(text), epsilon_text=text)
        result["guarantee"]["statement"] = result["guarantee"]["statement"].replace(
            f"exp({float(stated):g} d)", f"exp({float(text):g} d)"
        )
        result["certificate"]["allowed"] = float(text)

    yield Forgery(name="epsilon of the problem less", change=_problem(epsilon, f"epsilon = {less}"))
    yield Forgery(name="epsilon less, and claimed", change=_problem(epsilon, f"epsilon = {less}", also=claims))
    yield Forgery(name="a key that nobody knows", change=_problem(epsilon, f"{epsilon}\nmagic = 1"))
    yield Forgery(name="another notion", change=_problem(epsilon, f'{epsilon}\nkind = "magic"'))
    yield Forgery(name="a table that nobody knows", change=_problem("[privacy]", "[zones]\nwide = 2\n[privacy]"))
    yield Forgery(name="a name outside tables", change=_problem("[records]", "wide = 2\n[records]"))
    for within in ("-5.0", "0", "0.0", "true", '"1.0"', "nan", "-inf"):
        change = _problem("[privacy]", f"[privacy]\nneighbours_within = {within}")
        if base == "roads":
            change = _problem("neighbours_within = 0.6", f"neighbours_within = {within}")
        yield Forgery(name=f"neighbours within {within}", change=change)
        yield Forgery(name=f"neighbours within {within}, and nothing held", change=_several(change, _nothing_held))
    yield Forgery(name="epsilon in quotes", change=_problem(epsilon, f'epsilon = "{stated}"'))
    yield Forgery(name="everywhere is no truth", change=_problem(epsilon, f"{epsilon}\neverywhere = 0"))
    yield Forgery(name="no TOML", change=_problem(epsilon, "epsilon ="))
    yield Forgery(name="epsilon is no number", change=_problem(epsilon, 'epsilon = "inf"'))
    yield Forgery(
        name="a distance that nobody knows", change=_problem("[distance]\nkind = ", '[distance]\nkind = "x"#')
    )
    yield Forgery(name="a loss that nobody knows", change=_problem("[utility]\nkind = ", '[utility]\nkind = "x"#'))
    for name in ("records", "epsilon", stated, "distance", "distance.kind"):
        yield Forgery(name=f"a file {name} beside it", change=_beside(name))
    if base == "town":
        yield Forgery(name="a file called as the distance", change=_beside("euclidean"))
        yield Forgery(name="points nearer", change=_problem("p1,0.5,0.1", "p1,0.45,0.1", "points.csv"))
        yield Forgery(
            name="points in another order", change=_problem("p0,0,0\np1,0.5,0.1", "p1,0.5,0.1\np0,0,0", "points.csv")
        )
        yield Forgery(name="an id twice", change=_problem("p1,0.5", "p0,0.5", "points.csv"))
        yield Forgery(name="a coordinate that is none", change=_problem("p1,0.5", "p1,half", "points.csv"))
        yield Forgery(name="a point less", change=_problem("p5,1.2,0.9\n", "", "points.csv"))
        yield Forgery(name="another prior", change=_problem("p0,0.1\np1,0.2", "p0,0.2\np1,0.1", "prior.csv"))
        tenfold = "id,p\n" + "".join(f"p{i},{p}\n" for i, p in enumerate((1, 2, 2, 2, 2, 1)))
        yield Forgery(
            name="a prior that sums to 10",
            change=lambda folder: (folder / "problem" / "prior.csv").write_text(tenfold),
        )
        yield Forgery(name="a prior for fewer", change=_problem("p5,0.1\n", "", "prior.csv"))
        yield Forgery(name="a prior below 0", change=_problem("p0,0.1", "p0,-0.1", "prior.csv"))
        yield Forgery(name="neighbours claimed", change=_problem(epsilon, f"{epsilon}\nneighbours_within = 0.6"))
    if base == "twins":
        yield Forgery(name="no twins", change=_problem("p4,0.5,0.1", "p4,0.5,0.11", "points.csv"))
        yield Forgery(name="more twins", change=_problem("p5,1.2,0.9", "p5,0.5,0.1", "points.csv"))
    if base == "roads":
        yield Forgery(name="a road shorter", change=_problem("a,b,0.31", "a,b,0.3", "roads.csv"))
        yield Forgery(name="a road more", change=_problem("a,b,0.31", "a,b,0.31\na,c,0.4", "roads.csv"))
        yield Forgery(name="a road below 0", change=_problem("a,b,0.31", "a,b,-0.31", "roads.csv"))
        yield Forgery(name="a node less", change=_problem("e,a,0.5\n", "", "roads.csv"))
        yield Forgery(name="more neighbours", change=_problem("neighbours_within = 0.6", "neighbours_within = 1.1"))
        yield Forgery(name="every pair", change=_problem("neighbours_within = 0.6\n", ""))
        yield Forgery(name="another loss", change=_problem('kind = "travel-cost"', 'kind = "distance"'))
    if base == "table":
        yield Forgery(
            name="a distance less", change=_npy("d.npy", lambda d: d.__setitem__(([0, 1], [1, 0]), d[0, 1] * 0.9))
        )
        yield Forgery(
            name="a distance of one way", change=_npy("d.npy", lambda d: d.__setitem__((0, 1), d[0, 1] * 0.9))
        )
        yield Forgery(name="a distance below 0", change=_npy("d.npy", lambda d: d.__setitem__(([0, 1], [1, 0]), -1.0)))
        yield Forgery(
            name="distances that are no numbers", change=_npy("d.npy", lambda d: d.__setitem__((0, 1), np.nan))
        )
        yield Forgery(name="distances of half precision", change=_half)
        for kind in ("f2", ">f2", "f4", ">f8", "i1", ">i4", "u1"):
            yield Forgery(
                name=f"distances {kind}", change=_npy("d.npy", lambda d, k=kind: (d > 0).astype(np.int8).astype(k))
            )
            yield Forgery(name=f"costs {kind}", change=_npy("c.npy", lambda c, k=kind: np.round(c).astype(k)))
        for kind in (">f8", "i8", "u8", ">i8", "f4", "f2", "u1", "c16"):
            yield Forgery(name=f"costs read as {kind}", change=_npy("c.npy", lambda c, k=kind: c.view(k)))
        yield Forgery(name="a cost more", change=_npy("c.npy", lambda c: c + 0.1))
        yield Forgery(name="costs turned over", change=_npy("c.npy", lambda c: c[::-1].copy()))
        yield Forgery(name="costs of fewer", change=_npy("c.npy", lambda c: c[1:].copy()))
    if base == "grid":
        yield Forgery(name="cells smaller", change=_problem("cell_km = 0.5", "cell_km = 0.4999"))
        yield Forgery(name="cells fewer", change=_problem("rows = 2", "rows = 1"))
        yield Forgery(name="another place", change=_problem("41.86", "61.86"))


# ---------------------------------------------------------------- photos


def _cells(change: Callable[[list[str]], list[str] | None]) -> Change:
    def changed(folder: Path) -> None:
        path = folder / "deletions.csv"
        lines = path.read_text().splitlines()
        made = change(lines)
        path.write_text("\n".join(lines if made is None else made) + "\n")

    return changed


def _signed(folder: Path) -> None:
    """Scores that shall hide the place if 255 is read where -1 is written."""
    table = np.full((16, 40), -1, dtype=np.int8)
    table[:, 17] = 1
    np.save(folder / "problem" / "scores.npy", table)
    result = json.loads((folder / "result.json").read_text())
    lines = (folder / "deletions.csv").read_text().splitlines()
    if result["objective"]["unit"] == "photos":
        kept = [f"{line.rpartition(',')[0]},0" for line in lines[1:]]
        (folder / "deletions.csv").write_text("\n".join([lines[0], *kept]) + "\n")
        result["objective"]["value"] = 0.0
        result["certificate"].update(protected_k=39, rank_after=40, worst=0.0)
    result["objective"].update(lower_bound=None, gap=None)
    result["status"] = "feasible"
    (folder / "proof.npz").unlink()
    (folder / "result.json").write_text(json.dumps(result))


def _trivial(change: Callable[[Path], object]) -> Change:
    """The bound that needs no proof, beside a proof that is changed."""

    def changed(folder: Path) -> None:
        result = json.loads((folder / "result.json").read_text())
        value, fewest = result["objective"]["value"], result["objective"]["unit"] == "photos"
        bound = 0.0 if fewest else 39.0
        result["objective"].update(lower_bound=bound, gap=1.0 if fewest else bound - value)
        result["status"] = "feasible" if bound != value else "optimal"
        (folder / "result.json").write_text(json.dumps(result))
        change(folder / "proof.npz")

    return changed


def _deletions(folder: Path) -> Iterator[Forgery]:
    """Photos toggled, lists that are none, and trees with a hole."""
    lines = (folder / "deletions.csv").read_text().splitlines()
    for row in range(1, len(lines)):

        def toggle(found: list[str], row: int = row) -> None:
            name, _, gone = found[row].rpartition(",")
            found[row] = f"{name},{1 - int(gone)}"

        yield Forgery(name=f"photo {row - 1} toggled", change=_cells(toggle))
    yield Forgery(name="scores of bytes with a sign", change=_signed)
    yield Forgery(name="a third field", change=_cells(lambda found: found.__setitem__(1, f"{found[1]},secret")))
    yield Forgery(name="a table that nobody knows", change=_problem("[privacy]", "[zones]\nwide = 2\n[privacy]"))
    yield Forgery(name="keep_at_least below 0", change=_problem("[privacy]", "keep_at_least = -5\n[privacy]"))
    yield Forgery(name="true_location below 0", change=_problem("location = 17", "location = -23"))
    for odd in ('"0.0"', "false", "nan", "-0.1", "0.1"):
        yield Forgery(name=f"margin = {odd}", change=_problem("[privacy]\n", f"[privacy]\nmargin = {odd}\n"))
    yield Forgery(name="keep_at_least no number", change=_problem("[privacy]", "keep_at_least = true\n[privacy]"))
    yield Forgery(name="a folder beside scores", change=_problem("[privacy]", 'folder = "x"\n[privacy]'))
    for task in ("top_k = 5", "deletion_budget = 4"):
        if task not in (folder / "problem" / "problem.toml").read_text():
            yield Forgery(name="two tasks", change=_problem("[privacy]\n", f"[privacy]\n{task}\n"))
    yield Forgery(name="proof.npz: beside no bound", change=_no_bound)
    yield Forgery(name="proof.npz: none beside a trivial bound", change=_trivial(lambda proof: proof.unlink()))
    yield Forgery(name="proof.npz: no archive", change=_trivial(lambda proof: proof.write_bytes(b"x")))
    yield Forgery(name="a file that nothing reads", change=_beside("photo"))
    yield Forgery(name="a photo less", change=_cells(lambda found: found[:-1]))
    yield Forgery(name="photos in another order", change=_cells(lambda found: [found[0], *found[:0:-1]]))
    yield Forgery(name="a photo renamed", change=_cells(lambda found: found.__setitem__(1, "x,0")))
    yield Forgery(name="another header", change=_cells(lambda found: found.__setitem__(0, "photo,kept")))
    yield Forgery(name="neither 0 nor 1", change=_cells(lambda found: found.__setitem__(1, found[1][:-1] + "2")))
    with np.load(folder / "proof.npz") as archive:
        arrays = {key: archive[key].copy() for key in archive.files}

    def at(what: str, change: Callable[[dict[str, Any]], object]) -> Forgery:
        return Forgery(name=f"proof.npz: {what}", change=_npz("proof.npz", change))

    if len(arrays["kind"]) > 1:
        yield at("multipliers 0", lambda a: a.update(values=a["values"] * 0))
        yield at("multipliers below 0", lambda a: a.update(values=-1 - a["values"]))
        yield at(
            "the last case gone", lambda a: a.update(kind=a["kind"][:-1], item=a["item"][:-1], starts=a["starts"][:-1])
        )
        yield at(
            "one case alone",
            lambda a: a.update(
                kind=a["kind"][-1:],
                item=a["item"][-1:],
                starts=a["starts"][:1].repeat(2),
                places=a["places"][:0],
                values=a["values"][:0],
            ),
        )
        yield at("another location", lambda a: a["item"].__setitem__(0, 10_000))
        yield at("multipliers of others", lambda a: a.update(places=a["places"][::-1].copy()))
    for name in arrays:
        yield at(f"without {name}", lambda a, n=name: a.pop(n))
    yield at("another version", lambda a: a["version"].__setitem__(0, 7))
    yield at("an array that nothing reads", lambda a: a.update(more=np.arange(2)))
    yield Forgery(name="proof.npz: none at all", change=lambda f: (f / "proof.npz").unlink())
