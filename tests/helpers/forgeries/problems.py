"""Releases beside problems that they do not serve."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from helpers.forgeries.changes import Change, Forgery, beside_it, no_bound, npz, problem_change, several


def _npy(name: str, change: Callable[[Any], object]) -> Change:
    def apply_change(folder: Path) -> None:
        table = np.load(folder / "problem" / name)
        new_table = change(table)
        np.save(folder / "problem" / name, table if new_table is None else new_table)

    return apply_change


def npy_as(name: str, form: Callable[[Any], bytes]) -> Change:
    return lambda folder: (folder / "problem" / name).write_bytes(form(np.load(folder / "problem" / name)))


def _nothing_held(folder: Path) -> None:
    """No pair of records is held, and each has an output of its own."""

    def bare(arrays: dict[str, Any]) -> None:
        arrays.update(pairs=arrays["pairs"][:0], distances=arrays["distances"][:0])
        weights = np.zeros_like(arrays["weights"])
        weights[np.arange(len(weights)), np.arange(len(weights)) % weights.shape[1]] = np.uint64(2**63)
        arrays.update(weights=weights)

    npz("mechanism.npz", bare)(folder)


def _bytes(change: Callable[[bytes], bytes], name: str = "points.csv") -> Change:
    def apply_change(folder: Path) -> None:
        path = folder / "problem" / name
        path.write_bytes(change(path.read_bytes()))

    return apply_change


def _member(name: str, form: Callable[[Any], bytes]) -> Change:
    """Return an array of mechanism.npz in another form, of the same numbers."""

    def apply_change(folder: Path) -> None:
        with np.load(folder / "mechanism.npz") as archive:
            arrays = {key: archive[key] for key in archive.files}
        with zipfile.ZipFile(folder / "mechanism.npz", "w") as packed:
            for key, array in arrays.items():
                packed.writestr(f"{key}.npy", form(array) if key == name else _npy_bytes(array))

    return apply_change


def _npy_bytes(array: Any, version: tuple[int, int] = (1, 0)) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version=version)
    return stream.getvalue()


FORMS = {
    "columns first, turned bytes": lambda a: _npy_bytes(np.asfortranarray(a).astype(a.dtype.newbyteorder(">"))),
    "turned bytes": lambda a: _npy_bytes(a.astype(a.dtype.newbyteorder(">"))),
    "version 2": lambda a: _npy_bytes(a, (2, 0)),
    "version 3": lambda a: _npy_bytes(a, (3, 0)),
    "no order of bytes": lambda a: _npy_bytes(a).replace(b"'descr': '<", b"'descr': '", 1).replace(b" \n", b"  \n", 1),
    "this machine's order": lambda a: _npy_bytes(a).replace(b"'descr': '<", b"'descr': '=", 1),
}
"""What NumPy reads, and no release is written in."""
ODD = {
    "ends of lines of old": lambda raw: raw.replace(b"\n", b"\r"),
    "one such end": lambda raw: raw.replace(b"\n", b"\r", 3).replace(b"\r", b"\n", 2),
    "an empty line at the end": lambda raw: raw + b"\n",
    "two byte order marks": lambda raw: b"\xef\xbb\xbf" * 2 + raw,
    "UTF-16": lambda raw: raw.decode().encode("utf-16"),
    "a zero byte": lambda raw: raw.replace(b"p1", b"p\0", 1),
    "a column of places twice": lambda raw: raw.replace(b"\n", b",0.3\n").replace(b",0.3", b",x", 1),
    "a blank line": lambda raw: raw.replace(b"\n", b"\n\n", 2).replace(b"\n\n", b"\n", 1),
    "a blank line, ended twice": lambda raw: raw.replace(b"\n", b"\r\n").replace(b"p2", b"\r\np2", 1),
    "a blank line first": lambda raw: b"\r\n" + raw,
    "a return inside a cell": lambda raw: raw.replace(b"id,x,y", b"id,x,\ry", 1),
    "text behind a quote": lambda raw: raw.replace(b"p1", b'"p"1', 1),
    "an open quote": lambda raw: raw.replace(b"p1,", b'"p1,', 1),
    "digits of another script": lambda raw: raw.replace(b"1.1", "1.\u0661".encode(), 1),
    "a sign that is no space": lambda raw: raw.replace(b"1.1", b"1.1\x1f", 1),
    "an underscore": lambda raw: raw.replace(b"1.1", b"1_1.0e-1", 1),
}
"""Tables that programs read in more than one way."""


def _half(folder: Path) -> None:
    """Distances of .008, whose bytes are 32 each, of zeros with a sign 128; the loss does not depend on them."""
    table = np.full((5, 5), 0x2020, dtype="<u2").view("<f2").copy()
    np.fill_diagonal(table, -0.0)
    np.save(folder / "problem" / "d.npy", table)
    no_bound(folder)
    (folder / "proof.npz").unlink()


def problems_of(folder: Path, base: str) -> Iterator[Forgery]:
    """Releases beside problems that they do not serve."""
    epsilon = next(line for line in (folder / "problem" / "problem.toml").read_text().splitlines() if "epsilon" in line)
    epsilon_text = epsilon.split("= ")[1]
    smaller_epsilon = f"{float(epsilon_text) * 0.999999:.7f}"

    def claims(result: dict[str, Any], text: str = smaller_epsilon) -> None:
        result["guarantee"].update(epsilon=float(text), epsilon_text=text)
        result["guarantee"]["statement"] = result["guarantee"]["statement"].replace(
            f"exp({float(epsilon_text):g} d)", f"exp({float(text):g} d)"
        )
        result["certificate"]["allowed"] = float(text)

    yield Forgery(name="epsilon of the problem less", change=problem_change(epsilon, f"epsilon = {smaller_epsilon}"))
    yield Forgery(
        name="epsilon less, and claimed", change=problem_change(epsilon, f"epsilon = {smaller_epsilon}", also=claims)
    )
    yield Forgery(name="a key that nobody knows", change=problem_change(epsilon, f"{epsilon}\nmagic = 1"))
    yield Forgery(name="another notion", change=problem_change(epsilon, f'{epsilon}\nkind = "magic"'))
    for unit in ("9", "band"):  # not a word, and a word beside a distance in km
        yield Forgery(name=f"records by {unit}", change=problem_change("[records]", f'[records]\nunit = "{unit}"'))
    yield Forgery(name="a name outside tables", change=problem_change("[records]", "wide = 2\n[records]"))
    for limit in ("-5.0", "0", "0.0", "true", '"1.0"', "nan", "-inf"):
        change = problem_change("[privacy]", f"[privacy]\nneighbours_within = {limit}")
        if base == "roads":
            change = problem_change("neighbours_within = 0.6", f"neighbours_within = {limit}")
        yield Forgery(name=f"neighbours within {limit}", change=change)
        yield Forgery(name=f"neighbours within {limit}, and nothing held", change=several(change, _nothing_held))
    yield Forgery(name="epsilon in quotes", change=problem_change(epsilon, f'epsilon = "{epsilon_text}"'))
    yield Forgery(name="everywhere is no truth", change=problem_change(epsilon, f"{epsilon}\neverywhere = 0"))
    yield Forgery(name="no TOML", change=problem_change(epsilon, "epsilon ="))
    yield Forgery(name="epsilon is no number", change=problem_change(epsilon, 'epsilon = "inf"'))
    yield Forgery(
        name="a distance that nobody knows", change=problem_change("[distance]\nkind = ", '[distance]\nkind = "x"#')
    )
    yield Forgery(
        name="a loss that nobody knows", change=problem_change("[utility]\nkind = ", '[utility]\nkind = "x"#')
    )
    for name in ("records", "epsilon", epsilon_text, "distance", "distance.kind"):
        yield Forgery(name=f"a file {name} beside it", change=beside_it(name))
    if base == "town":
        yield Forgery(name="a table that is not there", change=problem_change('"points.csv"', '"gone.csv"'))
        yield Forgery(name="a table outside", change=problem_change('"points.csv"', '"../result.json"'))
        yield Forgery(
            name="two kinds of places",
            change=problem_change('points = "points.csv"', 'points = "points.csv"\ncount = 6'),
        )
        for description, old, new in (
            ("a cell less", "p1,0.5,0.1", "p1,0.5"),
            ("a cell more", "p1,0.5,0.1", "p1,0.5,0.1,9"),
            ("a head alone", "p0,0,0\np1,0.5,0.1\np2,1.1,0\np3,0.1,0.7\np4,0.6,0.8\np5,1.2,0.9\n", ""),
            ("degrees", "id,x,y", "id,lat,lon"),
            ("two systems", "id,x,y\n", "id,x,y,lat,lon\n"),
            ("no ids", "id,x,y", "name,x,y"),
        ):
            yield Forgery(name=f"points: {description}", change=problem_change(old, new, "points.csv"))
        yield Forgery(
            name="points beyond a pole",
            change=several(
                problem_change("p1,0.5", "p1,90.5", "points.csv"),
                problem_change("id,x,y", "id,lat,lon", "points.csv"),
                problem_change("euclidean", "haversine"),
            ),
        )
        for description, contents in ODD.items():
            yield Forgery(name=f"points: {description}", change=_bytes(contents))
        for array in ("weights", "records", "distances"):
            for description, form in FORMS.items():
                yield Forgery(name=f"{array}: {description}", change=_member(array, form))
        yield Forgery(name="a file called as the distance", change=beside_it("euclidean"))
        yield Forgery(name="points nearer", change=problem_change("p1,0.5,0.1", "p1,0.45,0.1", "points.csv"))
        yield Forgery(
            name="points in another order",
            change=problem_change("p0,0,0\np1,0.5,0.1", "p1,0.5,0.1\np0,0,0", "points.csv"),
        )
        yield Forgery(name="an id twice", change=problem_change("p1,0.5", "p0,0.5", "points.csv"))
        yield Forgery(name="a coordinate that is none", change=problem_change("p1,0.5", "p1,half", "points.csv"))
        yield Forgery(name="a point less", change=problem_change("p5,1.2,0.9\n", "", "points.csv"))
        yield Forgery(name="another prior", change=problem_change("p0,0.1\np1,0.2", "p0,0.2\np1,0.1", "prior.csv"))
        tenfold = "id,p\n" + "".join(f"p{i},{p}\n" for i, p in enumerate((1, 2, 2, 2, 2, 1)))
        yield Forgery(
            name="a prior that sums to 10", change=lambda folder: (folder / "problem" / "prior.csv").write_text(tenfold)
        )
        yield Forgery(name="a prior for fewer", change=problem_change("p5,0.1\n", "", "prior.csv"))
        yield Forgery(name="a prior below 0", change=problem_change("p0,0.1", "p0,-0.1", "prior.csv"))
        yield Forgery(name="neighbours claimed", change=problem_change(epsilon, f"{epsilon}\nneighbours_within = 0.6"))
    if base == "twins":
        yield Forgery(name="no twins", change=problem_change("p4,0.5,0.1", "p4,0.5,0.11", "points.csv"))
        yield Forgery(name="more twins", change=problem_change("p5,1.2,0.9", "p5,0.5,0.1", "points.csv"))
    if base == "roads":
        yield Forgery(name="a road shorter", change=problem_change("a,b,0.31", "a,b,0.3", "roads.csv"))
        yield Forgery(name="a road more", change=problem_change("a,b,0.31", "a,b,0.31\na,c,0.4", "roads.csv"))
        yield Forgery(name="a road of no length given", change=problem_change("a,b,0.31", "a,b,", "roads.csv"))
        yield Forgery(name="a road below 0", change=problem_change("a,b,0.31", "a,b,-0.31", "roads.csv"))
        yield Forgery(name="a node less", change=problem_change("e,a,0.5\n", "", "roads.csv"))
        yield Forgery(
            name="more neighbours", change=problem_change("neighbours_within = 0.6", "neighbours_within = 1.1")
        )
        yield Forgery(name="every pair", change=problem_change("neighbours_within = 0.6\n", ""))
        yield Forgery(name="another loss", change=problem_change('kind = "travel-cost"', 'kind = "distance"'))
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
        yield Forgery(name="anywhere between ids", change=problem_change(epsilon, f"{epsilon}\neverywhere = true"))
        yield Forgery(name="fewer ids", change=problem_change("count = 5", "count = 4"))
        yield Forgery(name="ids without end", change=problem_change("count = 5", "count = 9999999"))
        yield Forgery(name="outputs without end", change=problem_change("count = 4", "count = 9999999"))
        yield Forgery(name="outputs below 0", change=problem_change("count = 4", "count = -4"))
        yield Forgery(name="distances of half precision", change=_half)
        for description in ("version 2", "version 3", "no order of bytes"):
            yield Forgery(name=f"distances, {description}", change=npy_as("d.npy", FORMS[description]))
            yield Forgery(name=f"costs, {description}", change=npy_as("c.npy", FORMS[description]))
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
        yield Forgery(name="cells smaller", change=problem_change("cell_km = 0.5", "cell_km = 0.4999"))
        yield Forgery(name="cells fewer", change=problem_change("rows = 2", "rows = 1"))
        for south_west in ("[41.86, 1e6]", "[89.9999, 12.44]", "[-90.5, 0.0]", "[41.86]", '["41.86", "12.44"]'):
            yield Forgery(name=f"a corner at {south_west}", change=problem_change("[41.86, 12.44]", south_west))
        yield Forgery(name="cells without end", change=problem_change("cols = 3", "cols = 3000000"))
        yield Forgery(
            name="as many cells as can be", change=problem_change("rows = 2, cols = 3", "rows = 3000, cols = 3333")
        )
        yield Forgery(name="another place", change=problem_change("41.86", "61.86"))
