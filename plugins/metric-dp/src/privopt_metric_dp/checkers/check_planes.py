"""Checks a folder of scope "everywhere" over a plane, and all that checker.py knows: ``python -I check_planes.py DIR``.

It lies beside ``privopt/checker.py``, which hands planes over to it, or where privopt has it, and takes from there how
files, numbers, distances and proofs are read; from the rest of privopt it takes nothing. The region is made again from
the problem's files, in whole millimetres; triangles between points are those of the folder, where they are the
triangles of all points. What is proved and how: docs/reference/proof.md.
"""

# ruff: noqa: B905, E401, E731, I001  (as in checker.py)
from __future__ import annotations

import importlib.util, itertools, json, math, sys
from collections.abc import Callable, Iterator
from fractions import Fraction
from operator import mul
from pathlib import Path
from typing import Any, cast

if __package__:
    from privopt import checker
else:  # run by itself, as python -I does
    if "checker" not in sys.modules:  # loaded by its path: the folder around it has modules with names of Python's own
        above = Path(__file__).resolve().parents
        places = [above[0], *(folder / "privopt" for folder in above)]  # beside this file, installed, in a checkout
        file = next(place / "checker.py" for place in places if (place / "checker.py").is_file())
        spec = cast("Any", importlib.util.spec_from_file_location("checker", file))
        sys.modules["checker"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules["checker"])
    import checker  # type: ignore[import-not-found,no-redef]

BITS, ONE, PI = checker.BITS, checker.ONE, checker.PI
TURN = 360 * 10**7  # in units of 1e-7 degrees
POINTS = 20_000  # that stand for a region, at least

Point = tuple[int, int]  # millimetres
Corners = tuple[int, int, int]
turn: Any = lambda a, b, c: (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])  # twice its area
dot: Any = lambda a, b, c: (a[0] - b[0]) * (c[0] - b[0]) + (a[1] - b[1]) * (c[1] - b[1])
flat: Any = lambda a, b, c: (
    dot(a, b, c) < 0 and 4 * dot(a, b, c) ** 2 > 3 * dot(a, b, a) * dot(c, b, c)
)  # > 150 degrees
quarters: Any = lambda a, b, c, ab, ac, bc: ((a, ab, ac), (ab, b, bc), (ac, bc, c), (bc, ac, ab))
radians: Any = lambda degrees: checker.low(Fraction(degrees) / 180) * PI >> BITS
millimetres: Any = lambda x, y: tuple(round(max(-(2.0**50), min(km * 1e6, 2.0**50))) for km in (x, y))


class Projection:
    """The earth on a plane where no way is longer than on it: x = R cos(phi*) longitude, y = R latitude.

    phi* is the highest latitude that a great circle reaches between points of a box: tan phi* = tan top / cos half.
    """

    def __init__(self, degrees: list[tuple[float, float]], margin: float = 0.0) -> None:
        units = [[round(x * 1e7) for x in at] for at in degrees]
        first = units[0][1]
        east = [(lon - first + TURN // 2) % TURN - TURN // 2 for _, lon in units]
        self.south, north, self.middle = min(units)[0], max(units)[0], first + (min(east) + max(east)) // 2
        per_unit = Fraction(math.pi) * checker.RADIUS * 2**24 * 10**6 / (180 * 10**7)  # of 2**-24 mm, rounded down
        self.up, room = math.floor(per_unit), Fraction(margin) * 2**24
        high = wide = math.ceil(room / self.up) + 1  # the region reaches as far beyond its points
        while True:
            top = max(high - self.south, north + high) / 1e7
            half = ((max(east) - min(east) + 1) // 2 + wide) / 1e7
            checker.need(max(top, half) < 90, "problem: ways that come near a pole", 2)
            reach = math.degrees(math.atan(math.tan(math.radians(top)) / math.cos(math.radians(half))))
            parallel = (math.floor(reach * 1e6) + 2) / 1e6
            checker.need(parallel <= 85, "problem: ways that come near a pole", 2)
            self.right = math.floor(per_unit * Fraction(math.cos(math.radians(parallel)) * (1.0 - 1e-12)))
            if (needed := math.ceil(room / self.right) + 1) <= wide:
                break
            wide = needed + needed // 1000

    def millimetres(self, lat: float, lon: float) -> Point:
        """Where a position in degrees comes to lie."""
        east = (round(lon * 1e7) - self.middle + TURN // 2) % TURN - TURN // 2
        return east * self.right + 2**23 >> 24, (round(lat * 1e7) - self.south) * self.up + 2**23 >> 24

    def radians(self, x: Fraction, y: Fraction) -> tuple[int, int]:
        """Latitude and longitude of a point in millimetres."""
        units = y * 2**24 / self.up + self.south, x * 2**24 / self.right + self.middle
        return radians(units[0] / 10**7), radians(units[1] / 10**7)


def polygons(shape: dict[str, Any]) -> Iterator[list[list[tuple[float, float]]]]:
    """The polygons of a GeoJSON object, each its rings."""
    kind = str(shape["type"])
    for part in shape.get({"FeatureCollection": "features", "GeometryCollection": "geometries"}.get(kind, ""), []):
        yield from polygons(part)
    if kind == "Feature":
        yield from polygons(shape["geometry"])
    if kind in ("Polygon", "MultiPolygon"):
        several = shape["coordinates"] if kind == "MultiPolygon" else [shape["coordinates"]]
        yield from ([[(float(at[0]), float(at[1])) for at in ring] for ring in rings] for rings in several)


class Places(checker.Places):
    """Ids with coordinates; also the corners of even triangles, those of one lattice that meet polygons."""

    def __init__(self, problem: checker.Problem, name: str) -> None:
        self.mesh, self.projection = list[Corners](), cast("Projection | None", None)
        if "mesh" not in problem.tables[name]:
            super().__init__(problem, name)
            return
        mesh = problem.table(name, "mesh")["mesh"]
        side, planar = float(checker.number(mesh["side_km"])) * 1e6, mesh.get("planar", False)
        sound = mesh.keys() <= {"region", "side_km", "planar"} and type(planar) is bool and side >= 1e3
        checker.need(sound, f"problem: [{name}]: mesh {mesh}", 2)
        found = list(polygons(json.loads(problem.read(mesh["region"]))))
        if planar:
            flattened: Any = lambda x, y: (x * 1e6, y * 1e6)
        else:
            self.projection = Projection([(y, x) for rings in found for ring in rings for x, y in ring], side + 4)
            flattened = lambda x, y: tuple(map(float, self.projection.millimetres(y, x)))
        found = [[[flattened(*at) for at in ring] for ring in rings] for rings in found]
        corners, self.mesh = lattice(found, side, problem.most)
        self.kind, self.ids = "planar", [str(i) for i in range(len(corners))]
        self.at = [(Fraction(x / 1e6), Fraction(y / 1e6)) for x, y in corners]

    def doubles(self) -> list[tuple[float, float]]:
        """Coordinates in km or degrees."""
        scale: Any = lambda x: float(Fraction(180 * x, PI)) if self.kind == "geographic" else float(x)
        return [(scale(x), scale(y)) for x, y in self.at]


def lattice(found: list[Any], side: float, most: int) -> tuple[list[Point], list[Corners]]:
    """Corners and triangles of the lattice whose inside polygons meet: rims pass there, or its middle is in one."""
    pieces = [piece for rings in found for ring in rings for piece in itertools.pairwise(ring)]
    xs, ys = ([at[axis] for piece in pieces for at in piece] for axis in (0, 1))
    height, west, south = side * 0.75**0.5, min(xs) - side, min(ys)
    cols, rows = math.ceil((max(xs) - min(xs)) / side + 3), math.ceil((max(ys) - south) / height + 1)
    checker.need(cols * rows <= min(10**7, most + 1000), "problem: mesh: too many triangles", 2)
    at = [(west + (c + r % 2 / 2) * side, south + r * height) for r in range(rows + 1) for c in range(cols + 1)]
    triangles = list[Corners]()
    for a in [r * (cols + 1) + c for r in range(rows) for c in range(cols)]:
        b = a + cols + 1
        triangles += [(a, a + 1, b + 1), (a, b + 1, b)] if a // (cols + 1) % 2 else [(a, a + 1, b), (a + 1, b + 1, b)]
    middles = [[sum(at[v][axis] for v in t) / 3 for axis in (0, 1)] for t in triangles]
    chosen = {n for n, middle in enumerate(middles) if inside(middle, found)}
    for tail, head in pieces:
        parts = max(1, math.ceil(math.hypot(head[0] - tail[0], head[1] - tail[1]) / side))
        stops = [[x + (y - x) * (n / parts) for x, y in zip(tail, head)] for n in range(parts + 1)]
        for one, other in itertools.pairwise(stops):
            first = math.floor((min(one[1], other[1]) - south) / height) - 1
            left = math.floor((min(one[0], other[0]) - west) / side) - 1
            around = itertools.product(range(first, first + 4), range(left, left + 4), (0, 1))
            near = [2 * (r * cols + c) + half for r, c, half in around if 0 <= r < rows and 0 <= c < cols]
            chosen |= {n for n in near if meet([at[v] for v in triangles[n]], one, other)}
    used = sorted({v for n in chosen for v in triangles[n]})
    place = {v: i for i, v in enumerate(used)}
    mesh = [(place[a], place[b], place[c]) for a, b, c in (triangles[n] for n in sorted(chosen))]
    return [(round(at[v][0]), round(at[v][1])) for v in used], mesh


def inside(middle: list[float], found: list[Any]) -> bool:
    """Whether a point lies in one of the polygons: an odd number of sides of its rings stand to the west."""
    x, y = middle
    west: Any = lambda a, b: (a[1] <= y) != (b[1] <= y) and a[0] + (y - a[1]) * ((b[0] - a[0]) / (b[1] - a[1])) < x
    return any(sum(west(*piece) for ring in rings for piece in itertools.pairwise(ring)) % 2 for rings in found)


def meet(corners: list[Any], one: list[float], other: list[float]) -> bool:
    """Whether a segment passes through the inside of a triangle: no direction of their sides has one past the other."""
    for a, b in [(corners[0], corners[1]), (corners[1], corners[2]), (corners[2], corners[0]), (one, other)]:
        across: Any = lambda at, x=a[1] - b[1], y=b[0] - a[0]: x * at[0] + y * at[1]
        these, those = list(map(across, corners)), list(map(across, (one, other)))
        if max(these) <= min(those) or max(those) <= min(these):
            return False
    return True


def triangulates(at: list[Point], triangles: list[Corners]) -> bool:
    """Whether triangles are Delaunay's: they share whole sides, and fill the hull of all points but for flat notches.

    With these filled, the one rim turns left all the way, once around: so no point lies in two triangles. It may pass a
    corner where two triangles touch twice, and goes on there by the next side to the left.
    """
    if not triangles:
        return False
    apex = {(t[i - 2], t[i - 1]): t[i] for t in triangles for i in range(3)}
    inner = {(a, b): c for (a, b), c in apex.items() if (b, a) in apex}
    after: dict[int, list[int]] = {a: [] for a, b in apex if (b, a) not in apex}
    for a, b in apex.keys() - {(b, a) for a, b in apex}:
        after[a].append(b)
    rim = [start := min(after), after[start].pop()]
    while ways := after.get(rim[-1]):
        u, v, w, x = (at[i] for i in (*rim[-2:], ways[0], ways[-1]))  # around v: u, w, x, or u, x, w
        first = turn(v, u, w), turn(v, w, x), turn(v, x, u)
        rim.append(ways.pop(0 if sum(side > 0 for side in first) > 1 else -1))
    sound = rim.pop() == start and len(apex) == 3 * len(triangles) and len(rim) == len(apex) - len(inner)
    sound &= {*apex.values()} == {*range(len(at))} and all(turn(at[a], at[b], at[c]) > 0 for (a, b), c in apex.items())
    for p, q, r, s in [(at[a], at[b], at[c], at[apex[b, a]]) for (a, b), c in inner.items()]:
        sound &= dot(p, r, q) * turn(q, p, s) + dot(p, s, q) * turn(p, q, r) >= 0  # their angles: 180 degrees or less
    for (a, b), c in apex.items():  # none with one side at the rim is flat there
        sound &= (a, b) in inner or not {(b, c), (c, a)} <= inner.keys() or not flat(at[a], at[c], at[b])
    return sound and fills(at, rim, apex)


def fills(at: list[Point], rim: list[int], apex: dict[tuple[int, int], int]) -> bool:
    """Whether triangles with this rim fill the hull but for pockets that nearly flat triangles of Delaunay's fill.

    A side of a pocket, from its outside in, has the corner beyond it whose circle holds no other: so the order is one.
    """
    places, hull = [at[v] for v in rim], [*range(len(rim))]
    while left := [i for i in range(len(hull)) if turn(*(places[hull[j]] for j in (i - 2, i - 1, i))) < 0]:
        del hull[left[0] - 1]
    places, rim = places * 2, rim * 2
    waiting: list[tuple[int, int, Point | None]] = [
        (a, b if a < b else b + len(places) // 2, None) for a, b in zip(hull, [*hull[1:], hull[0]])
    ]
    while waiting:
        a, b, outer = waiting.pop()
        p, q = places[a], places[b]
        cotangents = [
            (Fraction(dot(p, c, q), -area), n) for n, c in enumerate(places[a:b]) if (area := turn(p, c, q)) < 0
        ]
        if b == a + 1:
            corner = at[apex[rim[a], rim[b]]]
        elif not cotangents or not flat(p, corner := places[c := a + min(cotangents)[1]], q):
            return False
        else:
            waiting += [(a, c, q), (c, b, p)]
        if outer and dot(p, corner, q) * turn(q, p, outer) + dot(p, outer, q) * turn(p, q, corner) < 0:
            return False
    edge = [places[i] for i in hull]
    return [edge[i - 2] > edge[i - 1] < edge[i] for i in range(len(edge))].count(True) == 1


def ratios(corners: list[Point], rate: float) -> list[float]:
    """How much rows may differ along a triangle's sides, opposite each corner: s epsilon l, with s as large as will do.

    docs/guide/everywhere.md has the polygon, at whose corners the gradient is greatest; ``rate`` is epsilon per mm.
    """
    sides = [[float(x - y) for x, y in zip(corners[i - 1], corners[i - 2])] for i in range(3)]
    length, least, most = [math.sqrt(x * x + y * y) for x, y in sides], 0.0, 1.0
    for _ in range(50):
        s, worst = (least + most) / 2, 0.0
        along = [s * rate * each for each in length]
        for i, j, k in itertools.permutations(range(3)):  # z is least at i, (1 + p) z at j, (1 + q) z at k
            top, across = min(along[k], along[j] + along[i] * (1 + along[j])), along[i]
            ends = max(0.0, (top - across) / (1 + across)), min(along[j], top + across * (1 + top))
            for p, q in ((top, ends[0]), (top, ends[1]), (min(along[k], across), 0.0)):
                bend = 2 * p * q * (sides[j][0] * sides[k][0] + sides[j][1] * sides[k][1])
                worst = max(worst, (p * length[j]) ** 2 + (q * length[k]) ** 2 + bend)
        least, most = (s, most) if math.sqrt(worst) <= rate * turn(*corners) else (least, s)
    return [least * (1.0 - 1e-11) * rate * each for each in length]


class Plane(checker.Metric):
    """Distances of a plane or of the earth, and the triangles of a region between places there."""

    places = Places
    records: Places

    def __init__(self, problem: checker.Problem) -> None:
        super().__init__(problem)
        self.ground = self.ground or ("vertices:i8:2" if self.records.kind in ("planar", "geographic") else "")
        self.cols = problem.tables["records"].get("grid", {}).get("cols", 0)
        self.corners, self.at = list[Corners](), list[Point]()

    def region(self, epsilon: Fraction, split: float, stored: list[checker.Array]) -> list[Any]:
        """Any two points of triangles, in quarters until sides are short; of streets where there are any."""
        if self.roads:
            return super().region(epsilon, split, stored)
        self.place, self.at, triangles = self.places_on_plane(stored[0].rows)
        count, ids = len(self.at), [*self.points]
        taken = set(ids)
        while True:
            sides = sorted({(min(side), max(side)) for t in triangles for side in itertools.combinations(t, 2)})
            longest = max(dot(self.at[a], self.at[b], self.at[a]) for a, b in sides)
            if not split or longest <= (split * 1e6) ** 2:
                break
            fewer = 4 * len(triangles) <= len(stored[0].rows)
            checker.need(fewer, "mechanism.npz: fewer triangles than the region has")
            middle = {frozenset(side): len(self.at) + n for n, side in enumerate(sides)}
            for a, b in sides:
                self.at.append((self.at[a][0] + self.at[b][0] >> 1, self.at[a][1] + self.at[b][1] >> 1))
                names = (f"{ids[a]}~{ids[b]}~{step}" for step in itertools.count(1))
                ids.append(next(name for name in names if name not in taken))
                taken.add(ids[-1])
            halves = [[middle[frozenset(side)] for side in itertools.combinations(t, 2)] for t in triangles]
            triangles = [quarter for t, new in zip(triangles, halves) for quarter in quarters(*t, *new)]
        allowed = dict[frozenset[int], float]()  # by side: the least of its triangles'
        for t in triangles:
            for i, ratio in enumerate(ratios([self.at[v] for v in t], float(epsilon / 10**6))):
                side = frozenset({t[i - 1], t[i - 2]})
                allowed[side] = min(ratio, allowed.get(side, ratio))
        self.points, self.corners = ids, triangles
        self.here += [self.ready(self.place(Fraction(x), Fraction(y))) for x, y in self.at[count:]]
        self.hold([(*(ids[v] for v in side), 1 + Fraction(ratio)) for side, ratio in allowed.items()], epsilon)
        return [triangles, [0], self.at]

    def places_on_plane(self, stored: list[Any]) -> tuple[Callable[[Fraction, Fraction], Any], list[Point], list[Any]]:
        """The way back from the plane; records in millimetres there; triangles between them."""
        places, cols = self.records, self.cols
        if places.kind == "planar":
            back: Any = lambda x, y: (x / 10**6, y / 10**6)
            at = [millimetres(*each) for each in places.doubles()]
        else:
            projection = places.projection = Projection(places.doubles())
            back, at = projection.radians, [projection.millimetres(*each) for each in places.doubles()]
        if places.mesh:
            return back, at, list(places.mesh)
        checker.need(len({*at}) == len(at), "problem: places that are one in whole millimetres", 2)
        if cols:
            lower = [a for a in range(len(at) - cols) if (a + 1) % cols]  # cells with one to the right and one above
            return back, at, [t for a in lower for t in ((a, a + 1, a + cols), (a + 1, a + cols + 1, a + cols))]
        while max(map(max, stored)) >= len(at):  # what was cut into quarters is put together again
            stored = [(p[0], q[1], r[2]) for p, q, r, _ in zip(*[iter(stored)] * 4, strict=True)]
        ordered = stored == sorted(stored) and all(min(t) == t[0] for t in stored)
        checker.need(ordered and triangulates(at, stored), "mechanism.npz: simplices: not the triangles of all points")
        return back, at, stored

    def spread(self) -> Iterator[tuple[int, tuple[int, ...], list[int], Any]]:
        """Points that stand for people anywhere: mass, triangle, barycentric coordinates, where ways start.

        Seven in each triangle or even part of it (Radon's, of degree 5); on the earth masses go by its area.
        """
        projection = self.records.projection
        root, parts = math.isqrt(15 << 2 * BITS), [((ONE, 0, 0), (0, ONE, 0), (0, 0, ONE))]
        while 7 * len(parts) * len(self.corners) < POINTS:
            halves: Any = lambda t: [tuple(x + y >> 1 for x, y in zip(*s)) for s in itertools.combinations(t, 2)]
            parts = [quarter for t in parts for quarter in quarters(*t, *halves(t))]
        seven = [(270 * ONE, [ONE // 3] * 3)]
        for share, weight in [((6 * ONE + x) // 21, 155 * ONE + x) for x in (-root, root)]:
            seven += [(weight, [ONE - 2 * share if i == j else share for j in range(3)]) for i in range(3)]
        shares: Any = lambda part, seventh: [sum(map(mul, seventh, axis)) >> BITS for axis in zip(*part)]
        inside = [(weight, shares(part, seventh)) for part in parts for weight, seventh in seven]
        for t in self.corners:
            corners = [self.at[v] for v in t]
            for weight, inner in inside:
                x, y = (Fraction(sum(map(mul, inner, axis)), ONE) for axis in zip(*corners))
                thin = checker.cosine(projection.radians(x, y)[0]) if projection else ONE
                yield turn(*corners) * weight * thin >> BITS, t, inner, self.ready(self.place(x, y))

    def anywhere(self, epsilon: Fraction, measured: bool) -> None:
        """Losses of people all over the region, by whom they are drawn as."""
        if self.roads:
            super().anywhere(epsilon, measured)
            return
        points, vertices = list(self.spread()), self.column
        total = sum(mass for mass, *_ in points)

        def column(k: int) -> list[int]:
            to, there, costs = [] if measured else vertices(k), self.there[k], [0] * len(self.points)
            for mass, corners, shares, place in points:
                far = sum(to[v] * share for v, share in zip(corners, shares)) >> BITS if to else self.way(there, place)
                for v, share in zip(corners, shares):
                    costs[v] += far * share * mass
            return [cost // (total << BITS) for cost in costs]

        self.prior, self.whole, self.column = [1] * len(self.points), 1, column


class Matrix(checker.Matrix):
    """A release of metric differential privacy, between any two points of a plane too."""

    measure = Plane
    metric: Plane

    def privacy(self) -> str:
        """Whether |grad z| is at most epsilon times the least z on each triangle, for each output; in whole numbers."""
        said, at = super().privacy(), self.metric.at
        for corners in self.metric.corners:
            (ax, ay), (bx, by), (cx, cy) = (at[v] for v in corners)
            bx, by, cx, cy, top, bottom = bx - ax, by - ay, cx - ax, cy - ay, 0, 1
            for least, p, q in [(min(z), z[1] - z[0], z[2] - z[0]) for z in zip(*(self.rows[v] for v in corners))]:
                slope = (p * cy - q * by) ** 2 + (q * bx - p * cx) ** 2
                if slope * bottom > least * least * top:
                    top, bottom = slope, least * least
            twice = bx * cy - by * cx
            most = self.epsilon * twice / 10**6
            kept = twice > 0 and top * most.denominator**2 <= bottom * most.numerator**2
            checker.need(
                kept, f"in triangle {[*corners]} a weight changes by more than epsilon times the least, per km"
            )
            self.worst = max(self.worst, math.sqrt(Fraction(top, bottom)) * 1e6 / twice)
        if not self.metric.corners:
            return said
        self.stored = self.metric.corners
        return f"{len(self.stored):,} triangles at {self.width:,} outputs, and so between any two points of them"


def check(folder: Path, say: Callable[[str], object] = print) -> int:
    """Say of each claim whether it holds; returns the exit code."""
    return checker.check(folder, say, Matrix)


if __name__ == "__main__":
    sys.exit(check(Path(*sys.argv[1:])))
