"""Forged tables of people at listed positions, and problems that they do not serve."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from helpers.forgeries.changes import Forgery, beside_it, edited, several

__all__ = ["PEOPLE", "RIDERS", "people_of"]

PEOPLE = "x,y,weight\n0.5,0.1,2\n0.3,0.05,1\n0.61,0.4,1\n3,-1,0.5\n0.61,0.4,0\n0.5,0.1,0.5\n"
"""At a corner, at two sides, inside, outside; one weighs nothing, one stands twice."""
RIDERS = "lat,lon\n41.9,12.4\n41.904,12.4071\n41.91,12.41\n42.3,11.9\n41.91,12.41\n"
"""At a node, beside streets, far off, twice."""


def people_of(base: str) -> Iterator[Forgery]:
    """Other people than those whose loss is stated."""
    file, (head, *rows) = "people.csv", (PEOPLE if base == "people" else RIDERS).splitlines()
    key, weighed, degrees = 'positions = "people.csv"\n', "weight" in head, "lat" in head
    for n, row in enumerate(rows):
        first, *rest = row.split(",")
        if not row.endswith(",0"):  # else nobody is there
            yield Forgery(name=f"row {n} less", change=edited(row + "\n", "", file))
        if not row.endswith(",0") and (weighed or n < 2):  # else the nearest point of a street stays the same
            moved = ",".join([f"{float(first) + 1e-3!r}", *rest])
            yield Forgery(name=f"row {n} moved", change=edited(row, moved, file))
    last, (first, *rest) = rows[-1] + "\n", rows[0].split(",")
    for bad in ("nan", "inf", "1e200", "-400", "", "half", "0x1"):
        yield Forgery(name=f"a position at {bad!r}", change=edited(rows[0], ",".join([bad, *rest]), file))
    for what, old, new in (
        ("one more", last, last + ("0,0,1\n" if weighed else "0,0\n")),
        ("nobody", "\n".join(rows) + "\n", ""),
        ("nothing", "\n".join([head, *rows]) + "\n", ""),
        ("a cell more", rows[0], rows[0] + ",9"),
        ("a cell less", rows[0], rows[0].split(",")[0]),
        ("places changed over", head, "lon,lat" if degrees else "y,x,weight"),
        ("another system", head, "x,y" if degrees else "lat,lon,weight"),
        ("a column twice", head, "lat,lat" if degrees else "x,x,weight"),
        ("a column renamed", head, "lat,east" if degrees else "x,north,weight"),
    ):
        yield Forgery(name=f"people: {what}", change=edited(old, new, file))
    more = ",x,y" if degrees else ",lat,lon"
    both = [edited(row, row + ",1,1", file) for row in sorted({*rows}) for _ in range(rows.count(row))]
    yield Forgery(name="people: two systems", change=several(*both, edited(head, head + more, file)))
    yield Forgery(name="somebody twice", change=edited(rows[0], f"{rows[0]}\n{rows[0]}", file))
    if weighed:
        yield Forgery(name="a millimetre", change=edited("0.5,0.1,2", "0.500001,0.1,2", file))
        yield Forgery(name="two swapped", change=edited("0.5,0.1,2\n0.3,0.05,1", "0.3,0.05,2\n0.5,0.1,1", file))
        for weight in ("1.999999", "-2", "", "two", "nan"):
            yield Forgery(name=f"a weight {weight!r}", change=edited("0.5,0.1,2", f"0.5,0.1,{weight}", file))
        gone = [edited(row, f"{row.rpartition(',')[0]},0", file) for row in rows]
        yield Forgery(name="weights of nobody", change=several(*gone))
        yield Forgery(name="weights not read", change=edited("weight", "share", file))
    else:
        yield Forgery(name="weights read", change=edited(head, "lat,lon,weight", file))
        bare = edited("id,lat,lon", "id", "points.csv"), *(edited(f"{i},{at}", i, "points.csv") for i, at in _NODES)
        yield Forgery(name="streets without coordinates", change=several(*bare))
        yield Forgery(name="a node moved", change=edited("b,41.9,12.41", "b,41.9,12.411", "points.csv"))
        yield Forgery(name="a street first", change=edited("a,b,0.9\nb,c,1.2\n", "b,c,1.2\na,b,0.9\n", "roads.csv"))
        yield Forgery(name="a street longer", change=edited("a,b,0.9", "a,b,0.91", "roads.csv"))
    yield Forgery(name="nobody named", change=edited(key, ""))
    yield Forgery(name="no region", change=edited("everywhere = true", ""))
    yield Forgery(name="another loss", change=edited('kind = "distance"\n', 'kind = "travel-cost"\n'))
    shares = "id,p\n" + "".join(f"{'p' * (base == 'people')}{i},{p}\n" for i, p in zip(*_shares(base), strict=True))
    prior = several(
        lambda folder: (folder / "problem" / "prior.csv").write_text(shares), edited(key, 'prior = "prior.csv"\n')
    )
    yield Forgery(name="a prior", change=prior)
    yield Forgery(name="a prior beside them", change=several(prior, edited("prior =", f"{key}prior =")))
    for name in ('"gone.csv"', '"../result.json"', "3", "true", '""', '["people.csv"]'):
        yield Forgery(name=f"people in {name}", change=edited('"people.csv"', name))
    yield Forgery(name="more people beside them", change=beside_it("others.csv"))


_NODES = [("a", "41.9,12.4"), ("b", "41.9,12.41"), ("c", "41.91,12.41"), ("d", "41.91,12.4")]


def _shares(base: str) -> tuple[list[object], list[float]]:
    """Return a prior of the base's records."""
    return ([*range(6)], [0.1, 0.2, 0.2, 0.2, 0.2, 0.1]) if base == "people" else ([*"abcd"], [0.25] * 4)


def write_riders(folder: Path) -> Path:
    """Streets of the earth, and people beside them."""
    folder.mkdir(parents=True)
    (folder / "points.csv").write_text("id,lat,lon\n" + "".join(f"{i},{at}\n" for i, at in _NODES))
    (folder / "roads.csv").write_text("from,to,km\na,b,0.9\nb,c,1.2\nc,d,0.85\nd,a,1.15\nc,far,0.3\nb,b,0.4\n")
    (folder / "people.csv").write_text(RIDERS)
    text = '[records]\npoints = "points.csv"\n[distance]\nkind = "graph"\nedges = "roads.csv"\n[privacy]\n'
    text += "epsilon = 2.0\neverywhere = true\nsplit_km = 0.7\n"
    (folder / "problem.toml").write_text(text + '[utility]\nkind = "distance"\npositions = "people.csv"\n')
    return folder / "problem.toml"
