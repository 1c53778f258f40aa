"""Checks a folder of privopt with the standard library alone: ``python -I checker.py DIR`` (left out: this folder).

Each claim is printed with "holds" or the reason why not. Exit code 0: all hold, and the release is private; 1: one
does not; 2: it cannot be read, or is of a kind unknown here; 6: all hold, but no privacy is claimed. What is proved:
docs/reference/proof.md. Decimals in TOML and CSV mean what is written; reals are 2**-256ths, rounded so as to refuse.
"""

# ruff: noqa: B905, D101, D102, D103, E401, E731, I001  (what a zip would miss is compared before; formulas in one line)
from __future__ import annotations

import ast, collections, csv, decimal, functools, hashlib, heapq, io, itertools, json, math
import re, runpy, stat, struct, sys, tomllib, zipfile
from collections.abc import Callable, Sequence
from fractions import Fraction
from operator import mul, sub, truediv
from pathlib import Path
from typing import Any, cast

BITS, ONE, TOTAL, RADIUS = 256, 1 << 256, 1 << 63, 6371  # of reals; the sum of a row of weights; of the sphere, km
EXACT, TINY, FLAT = decimal.Context(prec=120), Fraction(1, 10**110), 45 * ONE  # exp(45) > 2**64; rounded correctly
low: Callable[[Fraction], int] = lambda value: (value.numerator << BITS) // value.denominator
down: Callable[[Fraction], float] = lambda x: y if (y := float(x)) <= x else math.nextafter(y, -math.inf)
number: Callable[[object], Fraction] = lambda x: rational(x if type(x) in (int, decimal.Decimal) else repr(x))
PI = sum((2 - m % 4) * (c << 320) // (n**m * m) for c, n in ((16, 5), (-4, 239)) for m in range(1, 280, 2)) >> 64
exponential: Any = lambda x, s=-TINY: low(Fraction(EXACT.exp(EXACT.divide(x, ONE))) * (1 + s)) + (s > 0) if x else ONE
PARTS = ("../privopt_metric_dp/checkers", "../plugins/metric-dp/src/privopt_metric_dp/checkers")  # installed, checkout
TABLES = """records outputs distance privacy utility photos
bd-mdp const-opt exponential fl-linear given hierarchical-dp lr-geo optimal-lp photo-censor planar-laplace"""
kept: Any = functools.lru_cache(4096)  # distances are asked for three times, and a grid has few of them
LETTERS = dict(zip(re.findall("..", "f2f4f8b1i1i2i4i8u1u2u4u8"), "efd?bhiqBHIQ"))  # of numbers, as struct has them


class Refused(Exception): ...  # noqa: N818  (a claim that does not hold: code 1; what is unknown here: code 2)


def need(holds: object, why: str, code: int = 1) -> None:
    if not holds:
        raise Refused(why, code)


def check_sums(folder: Path) -> list[str]:  # those that SHA256SUMS lists; no link, pipe or device is opened
    names = list[str]()
    for path in folder.rglob("*"):
        name, mode = path.relative_to(folder).as_posix(), path.lstat().st_mode
        need(stat.S_ISREG(mode) or (stat.S_ISDIR(mode) and any(path.iterdir())), f"{name!r}: wanted a regular file")
        need(not {*name} & {"\\", "\n", "\r"}, f"{name!r}: a name that sums can list in two ways", 2)
        names += [name] if stat.S_ISREG(mode) else []
    listed = sorted({name for name in names if not name.startswith("private/")} - {"SHA256SUMS", "report.html"})
    lines = [f"{hashlib.sha256((folder / name).read_bytes()).hexdigest()}  {name}\n" for name in listed]
    written = (folder / "SHA256SUMS").read_bytes().decode("utf-8", "surrogateescape")
    odd = sorted({line[66:].strip() for line in set(written.splitlines(True)) ^ set(lines)})[:5]
    need(written == "".join(lines), f"not as SHA256SUMS lists them: {odd}")
    return names


class Array:  # an array of an .npy file: its values row by row, and the rows of a matrix
    def __init__(self, raw: bytes, name: str) -> None:
        size = 10 + int.from_bytes(raw[8:10], "little")
        need(raw[:8] == b"\x93NUMPY\1\0" and size <= len(raw), f"{name}: no .npy file", 2)
        head, body = ast.literal_eval(raw[10:size].decode("latin-1")), raw[size:]
        kind, self.shape, turned = str(head["descr"]), head["shape"], head["fortran_order"]
        text, letter, unit = re.fullmatch(r"<U(\d+)", kind), LETTERS.get(kind[1:]), int(re.sub(r"\D", "", kind) or 0)
        sound = (text or letter) and unit and type(turned) is bool and type(self.shape) is tuple and len(head) == 3
        need(sound, f"{name}: values of type {kind}, shape {self.shape}: unknown here", 2)
        self.kind = "U" if text else kind.lstrip("<|" if unit > 1 else "<>|")
        cells, order = body.decode("utf-32-le") if text else "", ">" if kind[0] == ">" else "<"
        words = [cells[at : at + unit].rstrip("\0") for at in range(0, len(cells), unit)]
        self.flat: Sequence[Any] = words if text else struct.unpack(f"{order}{len(body) // unit}{letter}", body)
        need(math.prod(self.shape) == len(self.flat), f"{name}: not as long as its header says", 2)
        if turned and len(self.shape) == 2:
            self.flat = [value for i in range(self.shape[0]) for value in self.flat[i :: self.shape[0]]]
        self.rows = list(zip(*[iter(self.flat)] * self.shape[1])) if len(self.shape) == 2 else []


def read_npz(path: Path, wanted: str, more: int = 0) -> list[Array]:  # name:type:sides, no others; deflated: eightfold
    found, left = dict[str, Array](), (8 if more else 1) * path.stat().st_size + more
    with zipfile.ZipFile(path) as archive:
        begins = min((info.header_offset for info in archive.infolist()), default=0)
        need(not begins, f"{path.name}: {begins} bytes before the archive", 2)  # which zipfile skips, and NumPy refuses
        for info in archive.infolist():
            name, left = info.filename.removesuffix(".npy"), left - info.file_size
            need(name not in found and info.compress_type in (0, 8) and left >= 0, f"{name!r}: twice, or too large", 2)
            info.file_size += 1  # were there more than is stated, this much would be read, and have another sum
            found[name] = Array(archive.open(info).read(info.file_size), f"{path.name}: {name}")
    holds = " ".join(sorted(f"{name}:{each.kind}:{len(each.shape)}" for name, each in found.items()))
    need(re.fullmatch(" ".join(sorted(wanted.split())), holds), f"{path.name}: holds {holds!r}, wanted {wanted}", 2)
    return [found[part.split(":")[0]] for part in wanted.split()]


def rational(value: object) -> Fraction:  # what a decimal means
    sound = re.fullmatch(r"[+-]?(\d{1,999}\.?\d{0,999}|\.\d{1,999})([eE][+-]?\d{1,3})?", str(value), re.ASCII)
    need(sound, f"{str(value)[:40]!r}: wanted a number", 2)
    return Fraction(str(value))


class Problem:  # the problem file in ``problem/``, and the files that it names
    def __init__(self, folder: Path, stated: dict[str, Any], names: list[str]) -> None:
        self.folder, self.names, file = folder / "problem", names, str(stated["file"])
        self.most = sum(path.stat().st_size // 8 for path in folder.glob("mechanism.npz"))  # weights at most
        need(f"problem/{file}" in names and "/" not in file, f"problem.file: {file!r} is not in problem/", 2)
        raw, self.used = (self.folder / file).read_bytes(), {f"problem/{file}"}
        need(hashlib.sha256(raw).hexdigest() == stated["sha256"], "problem.sha256: not that of the problem file")
        self.tables = tomllib.loads(raw.decode("utf-8-sig"), parse_float=decimal.Decimal)
        need(not (odd := self.tables.keys() - set(TABLES.split())), f"problem: {sorted(odd)}: unknown here", 2)

    def table(self, name: str, keys: str) -> dict[str, Any]:  # of the problem; no other key may stand in it
        need(not (odd := self.tables[name].keys() - {*keys.split()}), f"[{name}]: {sorted(odd)}: unknown here", 2)
        return dict(self.tables[name])

    def read(self, name: object) -> bytes:
        need(f"problem/{name}" in self.names, f"problem: {name!r}: wanted the name of a file beside it", 2)
        self.used.add(f"problem/{name}")
        return (self.folder / str(name)).read_bytes()

    def array(self, name: object, *shape: int) -> Array:  # a matrix of numbers, each of them a double, none NaN
        found = Array(self.read(name), f"problem/{name}")
        fits = len(found.shape) == 2 and found.shape == (shape or found.shape) and found.kind.lstrip(">")[0] in "fiu"
        need(fits and all(float(x) == x < math.inf for x in found.flat), f"problem/{name}: wanted doubles {shape}", 2)
        return found

    def columns(self, file: object) -> dict[Any, list[str]]:  # of a CSV file, by the names in its header
        lines = list(csv.reader(io.StringIO(self.read(file).decode("utf-8-sig"), newline="\n"), strict=True))
        head, *rows = [[re.sub(r"^[^\S\x1c-\x1f]+|[^\S\x1c-\x1f]+\Z", "", c) for c in row] for row in lines]
        need(rows and head and {*map(len, rows)} == {len(head)}, f"problem/{file}: wanted rows like its header", 2)
        return dict(zip([n if head.count(n) == 1 else (n, k) for k, n in enumerate(head)], map(list, zip(*rows))))

    def roads(self, file: object) -> list[tuple[str, str, Fraction]]:  # from, to, and length of each
        found = [(a, b, rational(km)) for a, b, km in zip(*map(self.columns(file).__getitem__, ("from", "to", "km")))]
        need(min(km for _, _, km in found) >= 0, f"problem/{file}: a length below 0", 2)
        return found

    def shares(self, file: object, name: str, ids: list[str]) -> tuple[dict[str, int], int]:  # in whole numbers
        cells = self.columns(file) if file is not None else {"id": ids, name: ["1"] * len(ids)}
        found = dict(zip(cells["id"], map(rational, cells[name])))
        whole, sound = sum(found.values()), len(found) == len(cells["id"]) and min(found.values()) >= 0
        need(sound and (name != "p" or not file or abs(float(whole) - 1) <= 1e-6), f"problem/{file}: column {name}", 2)
        shared = math.lcm(*{share.denominator for share in found.values()})
        return {one: int(share * shared) for one, share in found.items()}, int(whole * shared)


def cosine(x: int) -> int:  # of |x| < 12, to 2**-228
    need(abs(x) < 12 * ONE, "problem: a place farther than once around", 2)
    following: Callable[[int, int], int] = lambda term, n: -(term * x * x >> 2 * BITS) // (n * (n - 1))
    return sum(itertools.accumulate(range(2, 160, 2), following, initial=ONE))


def arcsine_of_root(h: int) -> int:  # asin(sqrt(h)), h known to 2**-225, to 2**-110: the angle is halved 8 times
    square = min(max(h, 0), ONE) << BITS
    for _ in range(8):
        square = (square << BITS) // (2 * (ONE + math.isqrt(ONE * ONE - square)))
    following: Callable[[int, int], int] = lambda term, n: (term * square >> 2 * BITS) * n * n // ((n + 1) * (n + 2))
    return sum(itertools.accumulate(range(1, 19, 2), following, initial=math.isqrt(square))) << 8


class Places:  # ids with coordinates: rationals (planar, vector), radians of latitude and longitude, or none
    def __init__(self, problem: Problem, name: str) -> None:
        table = problem.table(name, "grid points vectors ids count columns")
        grid, given = table.get("grid", {"rows": 0, "cols": 0}), {"grid", "points", "vectors", "count"} & set(table)
        sides = [grid["rows"], grid["cols"]] if "grid" in table else [1, table.get("count", 1)]
        few = {*map(type, sides)} == {int} and min(sides) > 0 and math.prod(sides) <= problem.most
        need(len(given) == 1 and few, f"problem: [{name}]: wanted one of grid, points, vectors, count", 2)
        self.kind, self.at, self.ids = "plain", list[Any](), [str(i) for i in range(table.get("count", 0))]
        if "grid" in table:
            side, self.kind = number(grid["cell_km"]), "planar"
            cells = [*itertools.product(range(grid["rows"]), range(grid["cols"]))]
            self.ids, self.at = [f"{r}-{c}" for r, c in cells], [(c * side, r * side) for r, c in cells]
            if "south_west" in grid:
                south, west = (low(number(degrees) / 180) * PI >> BITS for degrees in grid["south_west"])
                up, right = low(side / RADIUS), low(side / RADIUS) * ONE // cosine(south)
                self.kind, self.at = "geographic", [(south + r * up, west + c * right) for r, c in cells]
                need(max(-south, self.at[-1][0]) <= PI // 2 and self.at[-1][1] - west < 2 * PI, "beyond a pole", 2)
        elif "points" in table:
            names = {key: key for key in ("id", "lat", "lon", "x", "y")} | table.get("columns", {})
            found, parts = problem.columns(table["points"]), names["id"]
            self.ids = ["/".join(n) for n in zip(*(found[c] for c in ([parts] if isinstance(parts, str) else parts)))]
            lat, lon, x, y = (list(map(rational, found.get(names[key], []))) for key in ("lat", "lon", "x", "y"))
            near = all(abs(a) <= most for most, axis in ((90, lat), (360, lon)) for a in axis)
            need(near and not all((lat, lon, x, y)), f"[{name}]: lat, lon, x, y", 2)
            self.kind = "geographic" if lat and lon else "planar" if x and y else "plain"
            self.at = list(zip(x, y)) or [tuple(low(v / 180) * PI >> BITS for v in pair) for pair in zip(lat, lon)]
        elif "vectors" in table:
            self.kind, self.at = "vector", [tuple(map(Fraction, row)) for row in problem.array(table["vectors"]).rows]
            self.ids = [str(i) for i in range(len(self.at))]
        if "ids" in table:
            self.ids = [line.strip() for line in problem.read(table["ids"]).decode("utf-8-sig").splitlines()]
        once = self.ids and "" not in self.ids and len(set(self.ids)) == len(self.ids)
        need(once and len(self.at) in (0, len(self.ids)), f"problem: [{name}]: ids that are none, or stand twice", 2)


def shortest(start: object, after: Callable[[Any], Any], most: float = math.inf) -> dict[Any, int]:  # by Dijkstra
    found, queue = dict[Any, int](), list[Any]([(0, start)])
    while queue:
        length, here = heapq.heappop(queue)
        if here not in found:
            found[here] = length
            for there, step in after(here):
                if there not in found and length + step <= most:
                    heapq.heappush(queue, (length + step, there))
    return found


def ways(given: list[tuple[str, str, Fraction]], one_way: bool = False) -> Callable[[str, list[str]], list[Any]]:
    shared = math.lcm(*{length.denominator for _, _, length in given})  # the shortest to an end from each start
    before: dict[str, list[tuple[str, int]]] = {name: [] for road in given for name in road[:2]}
    for tail, head, length in given + [(head, tail, length) for tail, head, length in given if not one_way]:
        before[head].append((tail, int(length * shared)))
    found: Any = lambda end: {name: (n << BITS) // shared for name, n in shortest(end, before.__getitem__).items()}
    return lambda end, starts: list(map(found(end).get, starts))


class Metric:  # distances to all records, ``own(i)`` of record i, ``ends(k)`` of output k, at most ``room`` too short
    places: Callable[[Problem, str], Places] = Places

    def __init__(self, problem: Problem) -> None:
        kind = problem.tables["distance"].get("kind")
        keys = {"euclidean": "kind", "haversine": "kind", "graph": "kind edges", "matrix": "kind matrix output_matrix"}
        need(kind in keys, f"problem: distance.kind {kind!r}: unknown here", 2)
        table, self.records = problem.table("distance", keys[kind]), self.places(problem, "records")
        self.outputs = self.places(problem, "outputs") if "outputs" in problem.tables else self.records
        pair, taken = (self.records.kind, self.outputs.kind), {"euclidean": "planar vector", "haversine": "geographic"}
        fits = kind not in taken or (pair[0] == pair[1] and pair[0] in taken[kind].split())
        need(fits, f"problem: {' and '.join(pair)} places beside distance.kind {kind!r}", 2)
        self.points, self.pieces, self.roads = self.records.ids, list[Any](), cast("Any", None)
        self.room = ONE >> 95 if kind == "haversine" else 1
        self.ground, self.unit = "", "unit of distance" if kind == "matrix" or self.records.kind == "vector" else "km"
        own, other, self.here, there = self.records.ids, self.outputs.ids, self.records.at, self.outputs.at
        sums: Any = lambda a, b: sum([(x - y) ** 2 for x, y in zip(a, b, strict=True)])
        if kind == "euclidean":
            shared = math.lcm(10**6 << 64, *{x.denominator for at in self.here + there for x in at})
            self.ready: Any = lambda at: tuple(int(x * shared) for x in at)
            root = kept(lambda square: math.isqrt((square << 2 * BITS) // shared**2))
            self.way: Any = lambda a, b: root(sums(a, b))
        elif kind == "haversine":  # by the chord between unit vectors
            flat: Any = lambda at, turned: cosine(at[0]) * cosine(at[1] - turned) >> BITS
            self.ready = lambda at: (flat(at, 0), flat(at, PI // 2), cosine(at[0] - PI // 2))
            arc: Any = lambda a, b: 2 * RADIUS * arcsine_of_root(sums(a, b) >> BITS + 2) - (ONE >> 96)
            self.way = lambda a, b: max(0, arc(a, b)) if a != b else 0
        self.here, self.there = ([*map(self.ready, at)] if kind in taken else at for at in (self.here, there))
        row: Any = kept(lambda at: self.roads(at, self.points) if self.roads else [self.way(at, b) for b in self.here])
        self.own: Callable[[int], list[Any]] = lambda i: row((self.points if self.roads else self.here)[i])
        self.ends: Callable[[int], list[Any]] = lambda k: row((other if self.roads else self.there)[k])
        if kind == "graph":
            self.streets, self.ground = problem.roads(table["edges"]), "lengths:f8:1"
            self.roads = ways(self.streets)
        elif kind == "matrix":
            given = problem.array(table["matrix"], len(own), len(own)).rows
            self.own = self.ends = kept(lambda i: [low(Fraction(min(row[i], d))) for row, d in zip(given, given[i])])
            if "outputs" in problem.tables:
                across = problem.array(table["output_matrix"], len(own), len(other)).rows if len(table) == 3 else []
                self.ends = lambda k: [low(Fraction(row[k])) for row in across]
        self.held = self.own

    def hold(self, pieces: list[Any], epsilon: Fraction) -> None:  # rows to pieces (a, b, 1 + a): ln(1 + a) / epsilon
        log: Any = lambda factor: Fraction(EXACT.ln(EXACT.divide(factor.numerator, factor.denominator))) * (1 - TINY)
        found = ways([(a, b, log(factor) / epsilon) for a, b, factor in pieces])
        self.held, self.room = lambda i: found(self.points[i], self.points), ONE >> 95

    def region(self, epsilon: Fraction, split: float, stored: list[Array]) -> list[Any]:  # even pieces of the streets
        points = dict[Any, Any].fromkeys([*self.points, *(street[end] for end in (0, 1) for street in self.streets)])
        for tail, head, written in self.streets:
            km, chain, step = Fraction(down(written)), [tail], 0
            parts = max(1, math.ceil(km / (Fraction(split) or 1 / (2 * epsilon))))
            while len(chain) < parts:
                need(len(self.pieces) + len(chain) < len(stored[0].rows), "mechanism.npz: fewer pieces of streets")
                chain += [name] if (name := f"{tail}~{head}~{(step := step + 1)}") not in points else []
                points |= {name: None}
            km = Fraction(down(km / parts))  # docs/guide/everywhere.md: snapped in eight steps a half
            self.pieces += [(*e, km, 2 * (1 + epsilon * km / 16) ** 8 - 1) for e in itertools.pairwise([*chain, head])]
        self.points, place = [*map(str, points)], {name: i for i, name in enumerate(points)}
        self.roads = ways([piece[:3] for piece in self.pieces])
        self.hold([(a, b, factor) for a, b, _, factor in self.pieces], epsilon)
        self.pieces = [(place[a], place[b], km, factor) for a, b, km, factor in self.pieces]
        return [[piece[:2] for piece in self.pieces], [8], [float(piece[2]) for piece in self.pieces]]

    def losses(self, problem: Problem, everywhere: Fraction | None) -> None:  # column(k): 2**-80 too low at most
        table, records, outputs = problem.tables["utility"], self.records.ids, self.outputs.ids
        keys = "kind prior cost edges directed targets" + " remap" * (type(table.get("remap")) is bool)
        kind, self.remap = map(problem.table("utility", keys).get, ("kind", "remap"))
        given, self.whole = problem.shares(table.get("prior"), "p", records)
        need(given.keys() == {*records} and kind in ("distance", "matrix", "travel-cost"), f"[utility] {table}", 2)
        self.prior, self.column = [given.get(name, 0) for name in self.points], self.ends
        self.loss_unit = self.unit.replace("unit of", "units of")
        if kind == "matrix":
            cost, self.loss_unit = problem.array(table["cost"], len(records), len(outputs)).rows, "units of cost"
            self.column = lambda k: [low(Fraction(row[k])) for row in cost]
        elif kind == "travel-cost":  # sum over targets t of q_t |way from record to t - way from output to t|
            (targets, total), travel = problem.shares(table.get("targets"), "weight", records), self.roads
            place = {name: i for i, name in enumerate(records)}
            if "edges" in table:
                travel, self.loss_unit = ways(problem.roads(table["edges"]), table.get("directed") is True), "km"
            rows: Any = lambda way, ends: ([d[place[t]] for t in targets] for d in map(way, range(len(ends))))
            if travel is not None:
                rows = lambda way, ends: zip(*(travel(t, ends) for t in targets))
            tables = rows(self.own, self.points), rows(self.ends, outputs)
            near, far = ([[q * x for q, x in zip(targets.values(), row) if q] for row in table] for table in tables)
            self.column = lambda k: [max(0, sum(map(abs, map(sub, a, far[k]))) // total - 2 * self.room) for a in near]
        if everywhere and "prior" not in table:
            self.anywhere(everywhere, kind == "distance")

    def people(self) -> list[tuple[Any, int, int]]:  # 32 points of each piece: part of the way, and mass
        parts = [(j * ONE + side * math.isqrt(ONE * ONE // 3)) // 32 for j in range(1, 32, 2) for side in (-1, 1)]
        return [(piece, part, low(piece[2])) for piece in self.pieces for part in parts]

    def anywhere(self, epsilon: Fraction, measured: bool) -> None:  # losses of people along the streets
        vertices, points = self.column, list[tuple[int, ...]]()
        for (a, b, km, factor), part, mass in self.people():
            t, (gone, rest) = epsilon * km / 16, divmod(16 * min(part, ONE - part), ONE)
            far = low(((1 + t) ** gone * (1 + rest * t / ONE) - 1) / (factor - 1)) if t else min(part, ONE - part)
            points.append((a, b, low(km), part, ONE - part, far if 2 * part < ONE else ONE - far, mass))

        def column(k: int) -> list[int]:
            d, costs = vertices(k), [0] * len(self.points)
            for a, b, km, part, rest, far, mass in points:
                here = min(d[a] * ONE + part * km, d[b] * ONE + rest * km) if measured else d[a] * rest + d[b] * part
                costs[a] += here * (ONE - far) * mass
                costs[b] += here * far * mass
            return [cost >> 2 * BITS for cost in costs]

        self.prior, self.whole, self.column = [1] * len(self.points), sum(mass for *_, mass in points), column


def compare(result: dict[str, Any], value: float, unit: str, promise: dict[str, Any], measured: dict[str, Any]) -> str:
    """What result.json says, sentences apart, beside what the files give: equal, in the promise to the last bit."""
    stated, found, bound = result["guarantee"], result["certificate"], result["objective"]["lower_bound"]
    at, asked = result["objective"]["value"], result["asked"]["gap"]
    gap = None if bound is None else max(0.0, bound - at if unit == "locations" else (at - bound) / max(abs(at), 1e-12))
    objective = {"value": value, "lower_bound": bound, "gap": gap, "unit": unit}
    promise |= {"seeded": True, "warning": "seeded, not private"} if "seeded" in stated else {}
    promise["statement"] = str(stated["statement"])
    measured |= {"arithmetic": str(found["arithmetic"]), "kind": promise["kind"], "holds": True, "evidence": "proved"}
    loose = ["certificate", "objective"][: 2 - ("value_unit" in result["details"])] if promise["epsilon"] else []
    for where, wanted in (("objective", objective), ("guarantee", promise), ("certificate", measured)):
        need(not (odd := result[where].keys() ^ wanted.keys()), f"{where}: {sorted(odd)}", 2 - (odd <= wanted.keys()))
        for name, right in wanted.items():
            said, near = result[where][name], 1e-9 if where in loose else 0.0
            numbers = type(right) is float and type(said) in (int, float)
            same = math.isclose(said, right, rel_tol=near) if numbers else type(said) is type(right) and said == right
            need(same, f"{where}.{name}: {str(said)[:99]!r} is claimed, {str(right)[:99]!r} found")
    status = "optimal" if gap is not None and gap <= asked else "feasible"
    need(status == result["status"] and type(asked) is not bool and 0 < asked < 1, f"status {status!r}, gap {asked!r}")
    return f"{promise['scope']}, epsilon {promise['epsilon_text']} {promise['unit']}; {status}"


class Matrix:  # a release of metric differential privacy: mechanism.npz, and what its problem asks of it
    measure: Callable[[Problem], Metric] = Metric

    def __init__(self, folder: Path, problem: Problem, result: dict[str, Any]) -> None:
        anywhere = self.anywhere = problem.tables["privacy"].get("everywhere", False)
        table = problem.table("privacy", "kind epsilon everywhere " + ("split_km" if anywhere else "neighbours_within"))
        asked = {key: number(table[key]) for key in ("epsilon", "neighbours_within", "split_km") if key in table}
        sound = table.get("kind", "metric-dp") == "metric-dp" and type(anywhere) is bool and min(asked.values()) > 0
        need(sound, f"problem: [privacy] {table}", 2)
        self.epsilon, self.within = asked["epsilon"], asked.get("neighbours_within")
        self.limit = low(Fraction(math.nextafter(float(self.within), math.inf))) - 1 if self.within else math.inf
        self.problem, self.folder, self.result, self.metric = problem, folder, result, self.measure(problem)
        need(self.metric.ground or not anywhere, "privacy.everywhere: neither streets nor places on a plane", 2)
        problem.used.add(f"problem/{problem.tables.get('given', table).get('matrix')}")  # as it was given

    def integers(self) -> str:  # rows and columns are those of the problem, and each row sums to 2**63
        parts, metric = "weights:u8:2 records:U:1 outputs:U:1 pairs:i8:2 distances:f8:1", self.metric
        parts += f" simplices:i8:2 snap_steps:i8:1 {metric.ground}" if self.anywhere else ""
        weights, records, outputs, pairs, distances, *ground = read_npz(self.folder / "mechanism.npz", parts)
        need(self.result["mechanism"] != "lr-geo", "mechanism lr-geo: rows of users, unknown here", 2)
        if self.anywhere:
            region = metric.region(self.epsilon, float(self.problem.tables["privacy"].get("split_km", 0)), ground)
            need(region == [a.rows or [*a.flat] for a in ground] and not pairs.flat, "mechanism.npz: another region")
        metric.losses(self.problem, self.epsilon if self.anywhere else None)
        self.size, self.width, self.rows = len(metric.points), len(metric.outputs.ids), weights.rows
        same = [*records.flat] == metric.points and [*outputs.flat] == metric.outputs.ids
        need(same, "mechanism.npz: not the records and outputs of the problem, in its order")
        fits = weights.shape == (self.size, self.width) and pairs.shape == (*distances.shape, 2)
        fits &= all(0 <= i < self.size > j >= 0 and i != j for i, j in pairs.rows)
        need(fits, "mechanism.npz: arrays that do not fit", 2)
        held: Any = lambda d: exponential(min(low(self.epsilon * Fraction(d)), FLAT))
        self.stored = [(*pair, d, held(d)) for pair, d in zip(pairs.rows, distances.flat)]
        self.stored += [(a, b, float(km), low(factor)) for a, b, km, factor in metric.pieces]
        need(all(sum(row) == TOTAL for row in self.rows), "mechanism.npz: a row does not sum to 2**63")
        return f"{self.size:,} rows of {self.width:,} weights"

    def required(self, i: int) -> dict[int, int]:  # whose distances, rounded down to doubles, pass no limit's double
        return {j: d for j, d in enumerate(self.metric.held(i)) if j != i and d is not None and d <= self.limit}

    def privacy(self) -> str:  # stored pairs hold at their distances, and imply all that are required
        self.worst, direct, after = 0.0, dict[tuple[int, int], int](), [list[Any]() for _ in self.rows]
        doubles = [[w or 2.0**-70 for w in map(float, row)] for row in self.rows]
        for i, j, d, most in self.stored:
            way = -low(-Fraction(d)) if self.rows[i] != self.rows[j] else 0  # equal rows: as at distance 0
            for a, b in ((i, j), (j, i)):
                ratios = [*map(truediv, doubles[a], doubles[b])]  # the greatest, and those near the limit, decide
                high = min(most / ONE, max(ratios)) * (1 - 2.0**-40)
                near = [(x, y) for x, y, ratio in zip(self.rows[a], self.rows[b], ratios) if ratio >= high]
                need(all(x << BITS <= most * y for x, y in near), f"records {a}, {b}: a ratio above exp(epsilon {d!r})")
                more = max([0.0, *((x - y) / (y or TOTAL) for x, y in near)])
                rate = 16 * math.expm1(math.log1p(more / 2) / 8) if self.metric.pieces else math.log1p(more)
                self.worst = max(self.worst, rate / (d or 1.0))
                after[a].append((b, way))
                direct[a, b] = min(way, direct.get((a, b), way))
        for i, j, d, _ in () if self.anywhere else self.stored:
            short = math.inf if (true := self.metric.held(i)[j]) is None else true + low(-Fraction(d))
            need(short >= -self.metric.room, f"records {i}, {j}: stored {d!r} apart, which is above their distance")
            slack = self.metric.room + ONE // 10**24  # km: what doubles lose of distances below an atom
            need(true is None or short <= true // 10**9 + slack, f"records {i}, {j}: stored {d!r} apart")
        for i in range(0 if self.anywhere else self.size):
            left = {j: d for j, d in self.required(i).items() if j > i and direct.get((i, j), d + 1) > d}
            reached = shortest(i, after.__getitem__, max(left.values())) if left else {}
            lost = [j for j, d in left.items() if reached.get(j, d + 1) > d]
            need(not lost, f"records {i} and {lost[:1]} are required, and no way over stored pairs is as short")
        return f"{len(self.stored):,} pairs of records at {self.width:,} outputs, and all that follow from them"

    def factors(self, pairs: list[Any]) -> dict[Any, int]:  # of rows (i, j), by i: exp(epsilon d), rounded up
        last, reached, after, room, growth = -1, dict[int, int](), list[Any](), self.metric.room, dict[Any, int]()
        for i, j in pairs:
            last, reached = i, self.required(i) if i != last else reached
            if j not in reached:
                after = after or [[(b, d + room) for b, d in self.required(a).items()] for a in range(self.size)]
                reached = {b: d - room for b, d in shortest(i, after.__getitem__).items()} | reached
            x = math.ceil(self.epsilon * (reached[j] + room)) if 0 <= i != j in reached else 2 * FLAT
            need(x <= FLAT + (ONE >> 40), f"proof.npz: {i}, {j}: neither required nor implied, or beyond any ratio")
            growth[i, j] = exponential(x, TINY)
        return growth

    def proof(self) -> Callable[[int, list[int]], Any]:  # rows (i, j), f, or trees climbed
        n, old = self.size, b"trees.npy" not in (path := self.folder / "proof.npz").read_bytes()
        parts = "pairs:i8:2 starts:i8:1 rows:u4:1 values:f[48]:1" if old else "prices:f8:1 trees:u[24]:2"
        version, unit, one, two, *rest = read_npz(path, f"version:i8:1 unit:f8:1 {parts}", 2**20 + 8 * n * self.width)
        self.unit, fits = Fraction(*unit.flat), two.shape == (self.width + 1,) and min(two.flat) >= 0
        fits = fits and rest[0].shape == rest[1].shape if old else (one.shape, two.shape) == ((n,), (self.width, n))
        need([*version.flat] == [3 - old] and self.unit > 0 and fits, "proof.npz: not of its form", 2)
        if old:
            self.growth, rows, at, (which, f) = self.factors(one.rows), one.rows, two.flat, (part.flat for part in rest)
            return lambda k, costs: ((*rows[which[m]], int(max(f[m], 0) * 2.0**BITS)) for m in range(*at[k : k + 2]))
        hangs = [{c: ((i + c // 2) % n, c % 2) for c in {*column}} for i, column in enumerate(zip(*two.rows))]
        ends = {(i, p) if above else (p, i) for i, on in enumerate(hangs) for p, above in on.values() if p != i}
        growth, prices = self.factors(sorted(ends)), [low(Fraction(price)) for price in one.flat]
        rate: Any = lambda i, p, above: 0 if p == i else growth[i, p] if above else ONE * ONE // growth[p, i]
        hung = [{code: (*found, rate(i, *found)) for code, found in on.items()} for i, on in enumerate(hangs)]
        return lambda k, costs: self.climb([on[code] for on, code in zip(hung, two.rows[k])], prices, costs)

    def climb(self, tree: list[Any], prices: list[int], costs: list[int]) -> None:  # in place
        waiting = collections.Counter([p for p, _, _ in tree])  # a root waits for itself, and is never free
        free = [i for i in range(self.size) if i not in waiting]
        for i in free:  # leaves first: it grows
            (p, above, times), g = tree[i], costs[i] - prices[i]
            if g and (g < 0) == above:
                costs[i], costs[p] = prices[i], costs[p] + (g * times >> BITS)
            waiting[p] -= 1
            free += [] if waiting[p] else [p]
        need(len(free) + sum(i == on[0] for i, on in enumerate(tree)) == self.size, "proof.npz: trees: in a circle")

    def objective(self) -> str:  # the loss, and the bound that no such matrix has one below, output by output
        total, least, floor, seen, claimed = 0, list[int](), 0, list[Any](), self.result["objective"]["lower_bound"]
        need(not 0 < self.result["objective"]["value"] < 2.0**-128, "objective.value: too little to be checked here", 2)
        need((proved := (self.folder / "proof.npz").exists()) == (claimed is not None), "bound or proof.npz: one alone")
        multipliers = self.proof() if proved else lambda k, costs: ()
        for k, weights in enumerate(zip(*self.rows)):
            exact = [p * c for p, c in zip(self.metric.prior, self.metric.column(k), strict=True)]
            costs, seen = [c // self.metric.whole for c in exact], seen + [exact] * bool(self.metric.remap)
            total, floor = total + sum(map(mul, costs, weights)), min(floor, *costs)
            for i, j, f in multipliers(k, costs) or ():
                costs[i], costs[j] = costs[i] + f, costs[j] - (self.growth[i, j] * f >> BITS) - 1
            least = list(map(min, least or costs, costs))
        self.value, details, top = total / (TOTAL * ONE), self.result["details"], [max(map(abs, c)) for c in zip(*seen)]
        for k, weights in enumerate(zip(*self.rows) if seen else ()):  # who sees k loses no less by others
            own, *others, most = (sum(map(mul, weights, c)) for c in (seen[k], *seen, top))
            need(10**8 * (own - min(others)) <= most, f"utility.remap: an output loses less than output {k}")
        step: Any = lambda x, unit: ((2 * x / unit + 1) // 2 * 2 - 1) * unit / 2  # down, to odd multiples of unit / 2
        if "value_unit" in details:
            need(type(unit := details["value_unit"]) is float and unit > 0, "details.value_unit: no unit", 2)
            self.value = -down(step(Fraction(-total, TOTAL * ONE), Fraction(unit)))
            need(abs(self.value) <= unit * 2**48 and unit * 2**30 <= max(1, abs(self.value)), f"value_unit: {unit!r}")
        if not proved:
            return f"{self.value!r} {self.metric.loss_unit}; no bound is claimed"
        need(abs(found := Fraction(sum(least), ONE)) <= self.unit * 2**48, "proof.npz: unit: finer than 2**-48 of it")
        bound = max(down(step(found, self.unit)), 0.0 if floor == 0 else -math.inf)  # at least 0 where all costs are
        need(type(claimed) in (int, float) and claimed == bound, f"bound: {claimed!r} is claimed, {bound!r} proved")
        return f"{self.value!r} {self.metric.loss_unit}; none is below {bound!r}"

    def words(self) -> str:
        text, epsilon = self.result["guarantee"]["epsilon_text"], float(self.epsilon)
        sound = type(text) is str and rational(text) == self.epsilon
        need(sound, f"guarantee.epsilon_text: {text} is claimed, {epsilon} found")
        promise = {"kind": "metric-dp", "epsilon": epsilon, "epsilon_text": text, "unit": f"per {self.metric.unit}"}
        promise["scope"] = "everywhere" if self.anywhere else "neighbours" if self.within else "all-pairs"
        promise |= {"neighbours_within": float(self.within)} if self.within else {}
        measured = {"worst": self.worst, "allowed": epsilon, "checked": len(self.stored) * self.width}
        return compare(self.result, self.value, self.metric.loss_unit, promise, measured)


class Photos:  # photos to delete, so that a classifier's scores do not tell the place: deletions.csv
    def __init__(self, folder: Path, problem: Problem, result: dict[str, Any]) -> None:
        keys = "scores probabilities folder classifier also subfolders copies_keep true_location keep keep_at_least"
        photos, asked = problem.table("photos", keys), problem.table("privacy", "top_k deletion_budget margin")
        self.folder, self.result, self.asked, self.k = folder, result, asked, asked.get("top_k", 0)
        self.budget, file = asked.get("deletion_budget", 0), photos.get("scores", photos.get("probabilities"))
        problem.used |= {f"problem/{name}" for name in (photos.get("classifier"), *photos.get("also", []))}
        read: Any = lambda name: csv.reader(io.StringIO((folder / name).read_text("utf-8")))
        (head, *rows), copied = read("deletions.csv"), "folder" in photos and (folder / "copies.csv").exists()
        names, true = [str(i) for i in range(len(rows))], int(photos.get("true_location", -1))
        if str(file).lower().endswith(".csv"):
            first, *_ = cells = problem.columns(file)
            names = cells.pop(first) if first.lower() in ("photo", "file", "name", "id") else names
            scores: Any = [[float(x if "nf" in x.lower() else rational(x)) for x in r] for r in zip(*cells.values())]
        else:
            parts = "scores:f8:2 true:i8:0 left_out:U:1 positioned:b1:1" + " copies:f8:2" * copied
            table, *found = [problem.array(file)] if file else read_npz(folder / "scores.npz", parts)
            names, true = ([row[0] for row in rows], found[0].flat[0]) if found else (names, true)
            scores = list(table.rows)
        odd = any(all(min(s) >= 0 >= abs(sum(s) - n) - n / 50 for s in scores) for n in (1, 100) if "scores" in photos)
        scores = [[math.log(p) if p else -math.inf for p in s] for s in scores] if "probabilities" in photos else scores
        sound = head == ["photo", "deleted"] and [row[0] for row in rows] == names and len(set(names)) == len(scores)
        need(sound and all(row[1:] in (["0"], ["1"]) for row in rows), "deletions.csv: not the photos in problem/", 2)
        self.kept, self.all = {i for i, row in enumerate(rows) if row[1] == "0"}, set(range(len(rows)))
        scores += found[3].rows if copied else []  # behind those of the photos
        self.copies = set(range(len(rows), len(scores))) if copied else self.kept
        sound = not copied or [row[0] for row in read("copies.csv")][1:] == [row[0] for row in rows if row[1] == "0"]
        sound = sound and len(self.copies) == len(self.kept) and len({*map(len, scores)}) == 1 and not odd
        need(sound and all(x < math.inf for s in scores for x in s), "scores or copies: odd, or of other photos", 2)
        self.keep = {names.index(photo) if isinstance(photo, str) else photo for photo in photos.get("keep", [])}
        self.theta, least = float(number(asked.get("margin", 0))), photos.get("keep_at_least", 1)
        self.whom = "margin" if self.theta else "these-classifiers" if photos.get("also") else "this-classifier"
        given = (photos.keys() & {"scores", "probabilities", "folder"}, asked.keys() & {"top_k", "deletion_budget"})
        told = [self.budget, self.k, least, photos.get("true_location", int(true)), *self.keep]
        sound = list(map(len, given)) == [1, 1] and {*map(type, told)} == {int} and told[3] == true
        need(sound and min(*told, self.theta, asked.get("top_k", 1) - 1) >= 0, "problem: one source, task, place", 2)
        self.least, self.blind = max(len(self.keep), least), {i for i, s in enumerate(scores) if s[true] == -math.inf}
        units: Any = lambda *s: None if -math.inf in s else int(sum(map(mul, map(Fraction, s), (1, -1, -1))) * 2**1074)
        self.gain = {j: [units(s[j], s[true], self.theta) for s in scores] for j in {*range(len(scores[0]))} - {true}}

    def privacy(self) -> str:
        one: Any = lambda own: None not in own and sum(own) >= 0
        level: Any = lambda of: of and not of & self.blind and [one([g[i] for i in of]) for g in self.gain.values()]
        self.level, copies = (sum(level(of) or [1] * len(self.gain)) for of in (self.kept, self.copies))
        self.deleted, kept = len(self.all) - len(self.kept), self.keep <= self.kept and len(self.kept) >= self.least
        enough = min(self.level, copies) >= self.k if self.k else self.deleted <= self.budget and copies >= self.level
        need(kept and enough, f"{self.deleted} deletions protect {self.level} places, or take photos that shall stay")
        return f"{self.level} of {len(self.gain)} other places are as likely as the true one, or likelier"

    def objective(self) -> str:
        self.value, claimed = float(self.deleted if self.k else self.level), self.result["objective"]["lower_bound"]
        need((self.folder / "proof.npz").exists() == (claimed is not None), "objective.lower_bound or proof.npz: alone")
        if claimed is not None:
            fewest = len(self.all) - claimed + 1 if self.k else max(self.least, len(self.all) - self.budget)
            whole = type(claimed) in (int, float) and claimed == int(claimed)
            need(whole and (claimed <= self.value if self.k else claimed >= self.value), f"lower_bound: {claimed}")
            self.prove(self.k or int(claimed) + 1, int(fewest))
        return f"{self.value:g}; " + ("no bound is claimed" if claimed is None else f"no choice passes {claimed:g}")

    def prove(self, k: int, fewest: int) -> None:  # no choice keeps so many, and protects k places: all cases end
        parts = "version:i8:1 kind:u1:1 item:i4:1 starts:i8:1 places:i4:1 values:f8:1"
        form, kinds, items, starts, places, values = (a.flat for a in read_npz(self.folder / "proof.npz", parts))
        if fewest > len(self.all) or k > len(self.gain):
            return
        need(fewest > 0 and not self.blind & self.all, "objective.lower_bound: few deletions protects all places")
        cases, leaf = [(frozenset[int](), frozenset(self.gain), frozenset(self.keep), frozenset[int]())], 0
        pairs = [(j, math.ldexp(f, BITS)) for j, f in zip(places, values, strict=True)]
        for kind, item in zip(kinds, items, strict=True):
            inside, left, kept, gone = cases.pop()
            if kind == 1:  # a place counts as protected, or does not count
                cases += [(inside, left - {item}, kept, gone), (inside | {item}, left - {item}, kept, gone)]
            elif kind == 2:  # a photo goes, or stays
                cases += [(inside, left, kept, gone | {item}), (inside, left, kept | {item}, gone)]
            else:
                own = [(self.gain[j], int(f)) for j, f in pairs[starts[leaf] : starts[leaf + 1]] if j in inside]
                out = gone | {i for i in self.all for j in inside if self.gain[j][i] is None}
                sums = {i: (1 << 1330) + sum(max(0, f) * gain[i] for gain, f in own) for i in self.all - out}
                most = sum(s for i, s in sums.items() if s > 0 or i in kept) >> 1330  # that stay (Lagrange)
                need(most < fewest or len(inside) + len(left) < k or kept & out, f"proof.npz: case {leaf} is open")
                leaf += 1
        need(not cases and [*form, len(starts), len(pairs)] == [1, leaf + 1, starts[-1]], "proof.npz: cases left open")

    def words(self) -> str:
        promise = {"kind": "top-k", "epsilon": None, "epsilon_text": None, "unit": "", "scope": self.whom}
        worst, most = [len(self.gain) - n for n in (self.level, self.k)] if self.k else [self.deleted, self.budget]
        measured = {"worst": float(worst), "allowed": float(most), "checked": len(self.gain), "protected_k": self.level}
        unit, measured["rank_after"] = "photos" if self.k else "locations", self.level + 1
        return compare(self.result, self.value, unit, self.asked | promise | {"margin": self.theta}, measured)


def check(folder: Path, say: Callable[[str], object] = print, matrix: type[Matrix] = Matrix) -> int:
    """Say of each claim whether it holds; returns the exit code."""
    name = "files"
    try:
        names = check_sums(folder)
        once = lambda pairs: dict(pairs) if len(dict(pairs)) == len(pairs) else need(False, "a name twice", 2)
        text, real = (folder / "result.json").read_text("utf8"), cast("Any", lambda x: float(rational(x)))  # finite
        result = json.loads(text, object_pairs_hook=once, parse_constant=rational, parse_float=real)
        kind: Any = {"metric-dp": matrix, "top-k": Photos}.get(result["guarantee"]["kind"])
        need(kind, f"guarantee.kind {result['guarantee']['kind']!r}: unknown here", 2)
        of = (problem := Problem(folder, result["problem"], names)).tables
        what = "positions" if "positions" in of.get("utility", {}) else "planes"
        if kind is Matrix and of["privacy"].get("everywhere") and (what, of["distance"]["kind"]) != ("planes", "graph"):
            places = [Path(__file__).resolve().parent / at / f"check_{what}.py" for at in ("", *PARTS)]
            found = [at for at in places if at.is_file() and not at.resolve().is_relative_to(folder.resolve())]
            need(found, f"such privacy.everywhere is for check_{what}.py, which does not lie beside this file", 2)
            sys.modules["checker"] = sys.modules[__name__]  # no copy in DIR is run
            return int(runpy.run_path(str(found[0]))["check"](folder, say))
        release = kind(folder, problem, result)
        say(f"holds: files: {len(names)} as SHA256SUMS lists them")
        for name in [claim for claim in ("integers", "privacy", "objective", "words") if hasattr(release, claim)]:
            say(f"holds: {name}: {getattr(release, name)()}")
        need(not (odd := [n for n in names if n.startswith("problem/") and n not in problem.used]), f"{odd}: of no use")
    except Exception as error:  # bytes that nobody meant so may raise anything
        why, code = error.args if isinstance(error, Refused) else (f"{type(error).__name__}: {error}", 2)
        say(f"{'does not hold' if code == 1 else 'cannot be checked'}: {name}: {why}")
        return int(code)
    return 6 if "seeded" in result["guarantee"] else 0


if __name__ == "__main__":
    sys.exit(check(Path(*sys.argv[1:])))
