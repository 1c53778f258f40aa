"""Forged mechanism.npz: of a matrix, of streets, of a plane."""

from __future__ import annotations

import json
import warnings
import zipfile
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from helpers.forgeries.changes import Change, Forgery, npz, problem_change, several
from helpers.forgeries.planes import forged_planes, forged_regions
from privopt import checker
from privopt.checker.exact import ONE, down
from privopt_metric_dp.checkers.matrix import Matrix


def arrays_of(folder: Path, base: str) -> Iterator[Forgery]:
    """Every array of a matrix release."""
    with np.load(folder / "mechanism.npz") as archive:
        weights, pairs, distances = archive["weights"], archive["pairs"], archive["distances"]
        names = archive.files
    exact = exact_distances(folder)

    def at(name: str, description: str, change: Callable[[dict[str, Any]], object]) -> Forgery:
        return Forgery(name=f"{name}: {description}", change=npz("mechanism.npz", change))

    for i in range(len(weights)):
        top, low = int(weights[i].argmax()), int(weights[i].argmin())

        def all_on_one(a: Any, i: int = i, top: int = top) -> None:
            a["weights"][i] = 0
            a["weights"][i, top] = 2**63

        def move_third(a: Any, i: int = i, top: int = top, low: int = low) -> None:
            part = a["weights"][i, top] // np.uint64(3)
            a["weights"][i, top] -= part
            a["weights"][i, low] += part

        def one_more(a: Any, i: int = i, top: int = top) -> None:
            a["weights"][i, top] += np.uint64(1)

        for description, change in (
            ("all on one", all_on_one),
            ("a third moved", move_third),
            ("one too many", one_more),
        ):
            yield at("weights", f"row {i}: {description}", change)
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
        for description, factor in (("longer", 1 + 1e-6), ("shorter", 1 - 1e-8)) if distances[p] > 0.0 else ():
            yield at(
                "distances",
                f"{description} {pairs[p].tolist()}",
                lambda a, p=p, factor=factor: a["distances"].__setitem__(p, a["distances"][p] * factor),
            )
        if distances[p] > 0.0:
            yield at(
                "distances",
                f"a bit above {pairs[p].tolist()}",
                lambda a, p=p, d=exact[p]: a["distances"].__setitem__(p, np.nextafter(d, np.inf)),
            )
    yield at("pairs", "none", lambda a: a.update(pairs=a["pairs"][:0], distances=a["distances"][:0]))
    for description, step in (("again", 1), ("again, the other way", -1)):
        yield at(
            "pairs",
            f"one {description}",
            lambda a, step=step: a.update(
                pairs=np.concatenate([a["pairs"], a["pairs"][:1, ::step]]),
                distances=np.append(a["distances"], a["distances"][0]),
            ),
        )
    yield at("pairs", "of one record", lambda a: a["pairs"].__setitem__((0, 1), a["pairs"][0, 0]))
    yield at("pairs", "out of range", lambda a: a["pairs"].__setitem__((0, 1), 99))
    yield at("pairs", "below 0", lambda a: a["pairs"].__setitem__((0, 0), -1))
    yield at("pairs", "one for another", lambda a: a["pairs"].__setitem__(0, a["pairs"][-1]))
    for factor in (1 - 1e-7, 1 + 1e-7, 1 - 1e-3, 2.0, 0.0, -1.0, np.nan, np.inf):
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
    for description, change in {
        "no array": lambda raw: b"no array",
        "cut": lambda raw: raw[:-8],
        "longer": lambda raw: raw + bytes(8),
        "a header without end": lambda raw: raw[:8] + b"\xff\xff" + raw[10:],
        "another version": lambda raw: raw[:6] + b"\x02" + raw[7:],
    }.items():
        yield Forgery(
            name=f"mechanism.npz: a member: {description}", change=lambda f, x=change: _member(f / "mechanism.npz", x)
        )
    for name in ("mechanism.npz", "proof.npz"):
        yield Forgery(name=f"{name}: a member twice", change=lambda f, n=name: _twice(f / n))
        for junk in (b"x" * 40, b"PK\x03\x04" + bytes(36)):
            yield Forgery(name=f"{name}: behind {junk[:4]!r}", change=lambda f, n=name, j=junk: _before(f / n, j))
        yield Forgery(name=f"{name}: a zip bomb", change=lambda f, n=name: _bomb(f / n))


def exact_distances(folder: Path) -> list[float]:
    """Return the greatest doubles that the exact distances of the stored pairs are not below."""
    names = [str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()]
    result = json.loads((folder / "result.json").read_text())
    matrix = Matrix(folder, checker.Problem(folder, result["problem"], names), result)
    matrix.integers()
    return [down(Fraction(matrix.metric.held(i)[j], ONE)) for i, j, *_ in matrix.stored]


def regions_of(folder: Path) -> Iterator[Forgery]:
    """Every array of a release over streets, and other streets."""
    with np.load(folder / "mechanism.npz") as archive:
        weights, names = archive["weights"], archive.files

    def at(name: str, description: str, change: Callable[[dict[str, Any]], object]) -> Forgery:
        return Forgery(name=f"{name}: {description}", change=npz("mechanism.npz", change))

    for i in range(len(weights)):

        def move_third(a: Any, i: int = i) -> None:
            part = a["weights"][i, 0] // np.uint64(3)
            a["weights"][i, 0] -= part
            a["weights"][i, 1] += part

        yield at("weights", f"row {i}: a third moved", move_third)
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
    yield Forgery(name="a road shorter", change=problem_change("a,b,0.31", "a,b,0.3", "roads.csv"))
    yield Forgery(name="a road more", change=problem_change("a,b,0.31", "a,b,0.31\na,c,0.4", "roads.csv"))
    yield Forgery(name="a node renamed", change=problem_change("b,n,0.2\nn,d,0.3", "b,m,0.2\nm,d,0.3", "roads.csv"))
    yield Forgery(name="epsilon less", change=problem_change("epsilon = 2.0", "epsilon = 1.999"))
    yield Forgery(name="no region", change=problem_change("everywhere = true\nsplit_km = 0.35", ""))
    yield Forgery(name="other pieces", change=problem_change("split_km = 0.35", "split_km = 0.3"))
    yield Forgery(
        name="a street round the earth, in pieces", change=problem_change("a,b,0.31", "a,b,100000", "roads.csv")
    )
    for split in ("0.00001", "1e-300", "-0.35", "0", "true", '"0.35"'):
        yield Forgery(name=f"split {split}", change=problem_change("split_km = 0.35", f"split_km = {split}"))
    yield Forgery(name="no split", change=problem_change("split_km = 0.35", ""))
    yield Forgery(
        name="neighbours beside it",
        change=problem_change("split_km = 0.35", "split_km = 0.35\nneighbours_within = 0.6"),
    )
    yield Forgery(name="another loss", change=problem_change('kind = "distance"\n', 'kind = "travel-cost"\n'))


def planes_of(folder: Path, base: str) -> Iterator[Forgery]:
    """Every array of a release over a plane, and other regions."""
    with np.load(folder / "mechanism.npz") as archive:
        arrays = {name: archive[name] for name in archive.files}
    for description, change in forged_planes(arrays):
        yield Forgery(name=description, change=npz("mechanism.npz", change))
    for description, old, new, file in forged_regions(base == "squares"):
        yield Forgery(name=description, change=problem_change(old, new, file))
    if base == "squares":
        for side_km, description in (
            ("0.001", "0.001 km"),  # the suite tries the first alone: too many triangles
            ("0.0001", "0.0001 km"),
            ("0.4", "0.4 km"),
            ("1e-9", "a micrometre"),
            ('"0.4"', "a text"),
        ):
            yield Forgery(name=f"a mesh of sides of {description}", change=_mesh_change(side_km))
        yield Forgery(
            name="a mesh over no polygon",
            change=several(_mesh_change("0.4"), problem_change("Polygon", "Point", "r.geojson")),
        )
    else:
        for description, south_west, north_east in (
            ("near a pole", "0.5,0.1", "89.2,0.9"),
            ("half way round", "0.5,100", "1.2,-100"),
        ):
            earth = (
                problem_change("euclidean", "haversine"),
                problem_change("p5,1.2,0.9", f"p5,{north_east}", "points.csv"),
            )
            head = problem_change("id,x,y\np0,0,0\np1,0.5,0.1", f"id,lat,lon\np0,0,0\np1,{south_west}", "points.csv")
            yield Forgery(name=f"points {description}", change=several(*earth, head))


def _mesh_change(side_km: str) -> Change:
    """Return a mesh in place of the squares."""
    ring = [[0, 0], [1, 0.1], [0.7, 1], [0, 0]]
    text = json.dumps({"type": "Polygon", "coordinates": [ring]})
    mesh = f'mesh = {{ region = "r.geojson", side_km = {side_km}, planar = true }}'
    return several(
        lambda folder: (folder / "problem" / "r.geojson").write_text(text),
        problem_change("grid = { rows = 2, cols = 3, cell_km = 0.5 }", mesh),
    )


def _member(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Change the bytes of the first member, and its checksum in the archive."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    first = next(iter(members))
    with zipfile.ZipFile(path, "w") as archive:
        for name, raw in (members | {first: change(members[first])}).items():
            archive.writestr(name, raw)


def _before(path: Path, junk: bytes) -> None:
    path.write_bytes(junk + path.read_bytes())


def _twice(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        name = archive.namelist()[0]
        contents = archive.read(name)
    with warnings.catch_warnings(), zipfile.ZipFile(path, "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr(name, contents)


def _bomb(path: Path) -> None:
    """One array of 64 MiB of zeros in some 64 kB."""
    with np.load(path) as archive:
        arrays = {key: archive[key] for key in archive.files}
    largest = max(arrays, key=lambda key: arrays[key].nbytes)
    arrays[largest] = np.zeros(2**26 // arrays[largest].itemsize, dtype=arrays[largest].dtype)
    np.savez_compressed(path, **arrays)


def _times(distances: Any, factor: float) -> Any:
    with np.errstate(invalid="ignore"):  # 0 times infinity
        return distances * factor
