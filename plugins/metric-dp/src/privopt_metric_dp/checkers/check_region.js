// Regions whose every point is kept, and where people in them are: what streets.py, plane.py and lattice.py of the
// checker do with streets in pieces and triangles of a plane. Places there are whole millimetres.
"use strict";
const regions = (tools) => {
  const { need, readable, div, up, low, root, cosine, radians, ways, PI, ONE, ROOM, RADIUS, tables, data } = tools;
  const { exactly, nearest, above, even, words, numbers, bytes } = reading;
  const TURN = 3600000000n, POINTS = 20000, EDGE = 2 ** 50; // of 1e-7 degrees; that stand for a plane; mm
  const max = (list) => list.reduce((a, b) => (a > b ? a : b)), min = (list) => list.reduce((a, b) => (a < b ? a : b));
  const mod = (a, b) => ((a % b) + b) % b;
  const below = (r) => { const x = nearest(r), [n, d] = exactly(x); return n * r[1] <= r[0] * d ? x : -above(-x); };
  const turn = (a, b, c) => (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0]); // twice its area
  const dot = (a, b, c) => (a[0] - b[0]) * (c[0] - b[0]) + (a[1] - b[1]) * (c[1] - b[1]);
  const flat = (a, b, c) => dot(a, b, c) < 0n && 4n * dot(a, b, c) ** 2n > 3n * dot(a, b, a) * dot(c, b, c); // > 150 degrees
  const pairs = ([a, b, c]) => [[a, b], [a, c], [b, c]], sides = ([a, b, c]) => [[a, b], [b, c], [c, a]];
  const quarters = ([a, b, c], [ab, ac, bc]) => [[a, ab, ac], [ab, b, bc], [ac, bc, c], [bc, ac, ab]];
  const millimetres = (x, y) => [x, y].map((km) => BigInt(even(Math.max(-EDGE, Math.min(km * 1e6, EDGE)))));
  const units = (degrees) => BigInt(even(degrees * 1e7));
  const doubles = (places) => places.at.map((at) => at.map((x) => nearest(places.kind === "geographic" ? [180n * x, PI] : x)));

  const LN2 = (() => { let total = 0n; for (let n = 1n; n < 400n; n += 2n) total += (2n << 320n) / (n * 3n ** n); return total; })();
  function logarithm([n, d]) { // of at least 1, rounded down by less than 2^-240
    let k = 0n, top = n;
    while (top >= 2n * d) { k++; d *= 2n; }
    const u = ((top - d) << 320n) / (top + d), square = (u * u) >> 320n;
    let power = u, total = 0n;
    for (let m = 1n; power; m += 2n) { total += power / m; power = (power * square) >> 320n; }
    const found = ((2n * total + k * LN2) >> 64n) - 1024n;
    return found > 0n ? found : 0n;
  }
  function hold(of, pieces, epsilon) { // rows to pieces [a, b, factor]
    const found = ways(pieces.map(([a, b, factor]) => [a, b, [logarithm(factor) * epsilon[1], ONE * epsilon[0]]]), false);
    of.held = (i) => found(of.points[i], of.points);
    of.room = ONE >> 95n;
  }

  // ---- the earth on a plane
  function projection(degrees, margin) {
    const at = degrees.map((pair) => pair.map(units)), first = at[0][1], south = min(at.map(([lat]) => lat));
    const east = at.map(([, lon]) => mod(lon - first + TURN / 2n, TURN) - TURN / 2n), north = max(at.map(([lat]) => lat));
    const middle = first + div(min(east) + max(east), 2n), [p, q] = exactly(Math.PI), [m, n] = exactly(margin);
    const perUnit = [p * RADIUS * 2n ** 24n * 10n ** 6n, q * 180n * 10n ** 7n], north_ = perUnit[0] / perUnit[1];
    const high = up(m << 24n, n * north_) + 1n, angle = Math.PI / 180, back = 180 / Math.PI;
    for (let wide = high; ;) {
      const top = Number(max([high - south, north + high])) / 1e7;
      const half = Number(div(max(east) - min(east) + 1n, 2n) + wide) / 1e7;
      readable(Math.max(top, half) < 90, "ways that come near a pole");
      const reach = Math.atan(Math.tan(top * angle) / Math.cos(half * angle)) * back;
      const parallel = (Math.floor(reach * 1e6) + 2) / 1e6;
      readable(parallel <= 85, "ways that come near a pole");
      const [c, d] = exactly(Math.cos(parallel * angle) * (1 - 1e-12)), right = (perUnit[0] * c) / (perUnit[1] * d);
      const needed = up(m << 24n, n * right) + 1n;
      if (needed > wide) { wide = needed + needed / 1000n; continue; }
      return {
        millimetres(lat, lon) {
          const x = mod(units(lon) - middle + TURN / 2n, TURN) - TURN / 2n;
          return [(x * right + 2n ** 23n) >> 24n, ((units(lat) - south) * north_ + 2n ** 23n) >> 24n];
        },
        radians: ([x, d1], [y, d2]) => [ // of a point in millimetres: latitude and longitude
          radians([(y << 24n) + south * north_ * d2, north_ * d2 * 10n ** 7n]),
          radians([(x << 24n) + middle * right * d1, right * d1 * 10n ** 7n])],
      };
    }
  }

  // ---- triangles over polygons
  function polygons(shape) {
    const list = { FeatureCollection: "features", GeometryCollection: "geometries" }[shape.type];
    const inner = list ? shape[list] : shape.type === "Feature" ? [shape.geometry] : [];
    const own = { Polygon: [shape.coordinates], MultiPolygon: shape.coordinates }[shape.type] || [];
    return [...inner.flatMap(polygons), ...own.map((rings) => rings.map((ring) => ring.map(([x, y]) => [Number(x), Number(y)])))];
  }
  function mesh(given) { // places, and the triangles of one lattice that polygons meet
    const side = Number(given.side_km) * 1e6, planar = given.planar ?? false, found = { kind: "planar" };
    readable(Object.keys(given).every((key) => ["region", "side_km", "planar"].includes(key)) && side >= 1e3, "mesh");
    const read = polygons(JSON.parse(words(given.region)));
    if (!planar) found.projection = projection(read.flat(2).map(([x, y]) => [y, x]), side + 4);
    const flattened = planar ? (x, y) => [x * 1e6, y * 1e6] : (x, y) => found.projection.millimetres(y, x).map(Number);
    const made = lattice(read.map((rings) => rings.map((ring) => ring.map((at) => flattened(...at)))), side);
    found.mesh = made.triangles;
    found.at = made.at.map((at) => at.map((x) => exactly(x / 1e6)));
    found.ids = found.at.map((_, i) => String(i));
    return found;
  }
  function lattice(shapes, side) {
    const steps = (ring) => ring.slice(1).map((at, n) => [ring[n], at]), pieces = shapes.flat().flatMap(steps);
    const [xs, ys] = [0, 1].map((axis) => pieces.flatMap((piece) => piece.map((at) => at[axis])));
    const height = side * Math.sqrt(0.75), west = min(xs) - side, south = min(ys);
    const cols = Math.ceil((max(xs) - min(xs)) / side + 3), rows = Math.ceil((max(ys) - south) / height + 1);
    readable(cols * rows <= 100000, "too many triangles");
    const at = [], triangles = [], chosen = new Set();
    for (let r = 0; r <= rows; r++) for (let c = 0; c <= cols; c++) at.push([west + (c + (r % 2) / 2) * side, south + r * height]);
    for (let r = 0; r < rows; r++) for (let c = 0; c < cols; c++) {
      const a = r * (cols + 1) + c, b = a + cols + 1;
      triangles.push(...(r % 2 ? [[a, a + 1, b + 1], [a, b + 1, b]] : [[a, a + 1, b], [a + 1, b + 1, b]]));
    }
    const inside = (x, y) => shapes.some((rings) => rings.flatMap(steps).filter(([a, b]) =>
      (a[1] <= y) !== (b[1] <= y) && a[0] + (y - a[1]) * ((b[0] - a[0]) / (b[1] - a[1])) < x).length % 2);
    triangles.forEach((t, n) => {
      const [x, y] = [0, 1].map((axis) => (at[t[0]][axis] + at[t[1]][axis] + at[t[2]][axis]) / 3);
      if (inside(x, y)) chosen.add(n);
    });
    const meets = (t, one, other) => ![...sides(t), [one, other]].some(([a, b]) => { // no direction parts them
      const [x, y] = [a[1] - b[1], b[0] - a[0]], across = (p) => x * p[0] + y * p[1];
      const these = t.map(across), those = [one, other].map(across);
      return max(these) <= min(those) || max(those) <= min(these);
    });
    for (const [tail, head] of pieces) {
      const parts = Math.max(1, Math.ceil(Math.hypot(head[0] - tail[0], head[1] - tail[1]) / side));
      const stops = Array.from({ length: parts + 1 }, (_, n) => [0, 1].map((axis) => tail[axis] + (head[axis] - tail[axis]) * (n / parts)));
      for (const [one, other] of steps(stops)) {
        const first = Math.floor((Math.min(one[1], other[1]) - south) / height) - 1;
        const left = Math.floor((Math.min(one[0], other[0]) - west) / side) - 1;
        for (let r = Math.max(first, 0); r < Math.min(first + 4, rows); r++)
          for (let c = Math.max(left, 0); c < Math.min(left + 4, cols); c++)
            for (const n of [2 * (r * cols + c), 2 * (r * cols + c) + 1])
              if (meets(triangles[n].map((v) => at[v]), one, other)) chosen.add(n);
      }
    }
    const kept = [...chosen].sort((a, b) => a - b), used = [...new Set(kept.flatMap((n) => triangles[n]))].sort((a, b) => a - b);
    const place = new Map(used.map((v, i) => [v, i]));
    return { at: used.map((v) => at[v].map(even)), triangles: kept.map((n) => triangles[n].map((v) => place.get(v))) };
  }

  // ---- whether triangles between points are Delaunay's (docs: check_planes.py)
  function triangulates(at, triangles) {
    const key = (a, b) => a * at.length + b, apex = new Map(), after = new Map();
    for (const t of triangles) for (let i = 0; i < 3; i++) apex.set(key(t[i], t[(i + 1) % 3]), t[(i + 2) % 3]);
    const split = (code) => [Math.floor(code / at.length), code % at.length], inner = (a, b) => apex.has(key(a, b)) && apex.has(key(b, a));
    if (apex.size !== 3 * triangles.length || !triangles.length) return false;
    let border = 0;
    for (const [a, b] of [...apex.keys()].map(split)) if (!inner(a, b)) { border++; after.set(a, [...(after.get(a) || []), b]); }
    if (!border) return false;
    const start = min([...after.keys()]), rim = [start, after.get(start).pop()];
    for (let next; (next = after.get(rim[rim.length - 1]))?.length;) {
      const [u, v, w, x] = [...rim.slice(-2), next[0], next[next.length - 1]].map((p) => at[p]);
      const left = [turn(v, u, w), turn(v, w, x), turn(v, x, u)].filter((side) => side > 0n).length > 1;
      rim.push(left ? next.shift() : next.pop());
    }
    if (rim.pop() !== start || rim.length !== border || new Set(apex.values()).size !== at.length) return false;
    for (const [code, c] of apex) {
      const [a, b] = split(code), [p, q, r] = [at[a], at[b], at[c]];
      if (turn(p, q, r) <= 0n) return false;
      if (!inner(a, b)) { if (inner(b, c) && inner(c, a) && flat(p, r, q)) return false; continue; }
      const s = at[apex.get(key(b, a))];
      if (dot(p, r, q) * turn(q, p, s) + dot(p, s, q) * turn(p, q, r) < 0n) return false;
    }
    return fills(at, rim, (a, b) => apex.get(key(a, b)));
  }
  function fills(at, rim, apex) { // whether the rest of the hull are pockets of nearly flat triangles
    const count = rim.length, around = [...rim, ...rim], places = around.map((v) => at[v]), hull = rim.map((_, i) => i);
    for (let bent; bent !== -1;) {
      const n = hull.length;
      bent = hull.findIndex((_, i) => turn(...[n + i - 2, n + i - 1, n + i].map((j) => places[hull[j % n]])) < 0n);
      if (bent !== -1) hull.splice((n + bent - 1) % n, 1);
    }
    const waiting = hull.map((a, i) => [a, hull[(i + 1) % hull.length], null]).map(([a, b]) => [a, a < b ? b : b + count, null]);
    while (waiting.length) {
      const [a, b, outer] = waiting.pop(), p = places[a], q = places[b];
      let corner = at[apex(around[a], around[b]) ?? 0];
      if (b !== a + 1) {
        let best = null;
        for (let c = a; c < b; c++) {
          const area = -turn(p, places[c], q), height = dot(p, places[c], q);
          if (area > 0n && (!best || height * best[1] < best[0] * area)) best = [height, area, c];
        }
        if (!best || !flat(p, (corner = places[best[2]]), q)) return false;
        waiting.push([a, best[2], q], [best[2], b, p]);
      }
      if (outer && dot(p, corner, q) * turn(q, p, outer) + dot(p, outer, q) * turn(p, q, corner) < 0n) return false;
    }
    const edge = hull.map((i) => places[i]), less = (a, b) => a[0] < b[0] || (a[0] === b[0] && a[1] < b[1]), n = edge.length;
    return edge.filter((_, i) => less(edge[(n + i - 1) % n], edge[(n + i - 2) % n]) && less(edge[(n + i - 1) % n], edge[i])).length === 1;
  }
  function ratios(corners, rate) { // how much rows may differ along each side of a triangle (docs/guide/everywhere.md)
    const way = [0, 1, 2].map((i) => [0, 1].map((axis) => Number(corners[(i + 2) % 3][axis] - corners[(i + 1) % 3][axis])));
    const length = way.map(([x, y]) => Math.sqrt(x * x + y * y)), area = Number(turn(...corners));
    let least = 0, most = 1;
    for (let n = 0; n < 50; n++) {
      const s = (least + most) / 2, along = length.map((each) => s * rate * each);
      let worst = 0;
      for (const [i, j, k] of [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]) {
        const top = Math.min(along[k], along[j] + along[i] * (1 + along[j])), across = along[i];
        const ends = [Math.max(0, (top - across) / (1 + across)), Math.min(along[j], top + across * (1 + top))];
        for (const [p, q] of [[top, ends[0]], [top, ends[1]], [Math.min(along[k], across), 0]]) {
          const bend = 2 * p * q * (way[j][0] * way[k][0] + way[j][1] * way[k][1]);
          worst = Math.max(worst, (p * length[j]) * (p * length[j]) + (q * length[k]) * (q * length[k]) + bend);
        }
      }
      if (Math.sqrt(worst) <= rate * area) least = s; else most = s;
    }
    return length.map((each) => least * (1 - 1e-11) * rate * each);
  }

  // ---- the region of a problem: vertices, simplices, what rows keep along them
  function streets(of, epsilon, split, stored) {
    const points = new Set([...of.records.ids, ...of.streets.map(([a]) => a), ...of.streets.map(([, b]) => b)]);
    const made = [];
    for (const [tail, head, written] of of.streets) {
      const [n, d] = exactly(below(written)), [p, q] = split ? exactly(split) : [epsilon[1], 2n * epsilon[0]], chain = [tail];
      const parts = up(n * q, d * p) > 1n ? up(n * q, d * p) : 1n, each = exactly(below([n, d * parts]));
      need(made.length + Number(parts) <= stored.length, "fewer pieces of streets");
      for (let step = 1; chain.length < parts; step++) {
        const name = `${tail}~${head}~${step}`;
        if (!points.has(name)) chain.push(name);
        points.add(name);
      }
      const t = [epsilon[0] * each[0], 16n * epsilon[1] * each[1]], power = t[1] ** 8n;
      const factor = [2n * (t[0] + t[1]) ** 8n - power, power];
      [...chain, head].slice(1).forEach((end, at) => made.push([chain[at], end, each, factor, t]));
    }
    of.points = [...points];
    const place = new Map(of.points.map((name, i) => [name, i]));
    of.roads = ways(made.map(([a, b, km]) => [a, b, km]), false);
    hold(of, made.map(([a, b, , factor]) => [a, b, factor]), epsilon);
    of.pieces = made.map(([a, b, ...rest]) => [place.get(a), place.get(b), ...rest]);
    return { simplices: of.pieces.map(([a, b]) => [a, b]), steps: 8, ground: of.pieces.map(([, , km]) => nearest(km)) };
  }
  function plane(of, epsilon, split, stored) {
    const places = of.records, cols = tables.records.grid?.cols;
    let triangles = places.mesh, at;
    if (places.kind === "planar") {
      of.back = ([x, d1], [y, d2]) => [[x, d1 * 10n ** 6n], [y, d2 * 10n ** 6n]];
      at = doubles(places).map((pair) => millimetres(...pair));
    } else {
      places.projection = projection(doubles(places), 0);
      of.back = places.projection.radians;
      at = doubles(places).map((pair) => places.projection.millimetres(...pair));
    }
    const code = ([x, y]) => `${x} ${y}`, count = at.length;
    if (!triangles) readable(new Set(at.map(code)).size === count, "places that are one in whole millimetres");
    if (!triangles && cols) {
      triangles = [];
      for (let a = 0; a < count - cols; a++) if ((a + 1) % cols) triangles.push([a, a + 1, a + cols], [a + 1, a + cols + 1, a + cols]);
    } else if (!triangles) {
      triangles = stored;
      while (max(triangles.flat()) >= count) {
        readable(triangles.length % 4 === 0 && triangles.length > 3, "triangles that are no quarters");
        triangles = triangles.filter((_, n) => n % 4 === 0).map((t, n) => [t[0], triangles[4 * n + 1][1], triangles[4 * n + 2][2]]);
      }
      const less = (s, t) => s[0] - t[0] || s[1] - t[1] || s[2] - t[2];
      const ordered = triangles.every((t, n) => min(t) === t[0] && t[0] >= 0 && (!n || less(triangles[n - 1], t) <= 0));
      need(ordered && triangulates(at, triangles), "not the triangles of all points");
    }
    const ids = [...of.records.ids], taken = new Set(ids), square = split * 1e6 * (split * 1e6);
    for (;;) {
      const ends = new Map(triangles.flatMap(pairs).map(([a, b]) => [Math.min(a, b), Math.max(a, b)]).map((side) => [side.join(" "), side]));
      const all = [...ends.values()].sort((s, t) => s[0] - t[0] || s[1] - t[1]);
      if (!split || max(all.map(([a, b]) => dot(at[a], at[b], at[a]))) <= square) break;
      need(4 * triangles.length <= stored.length, "fewer triangles than the region has");
      const middle = new Map(all.map(([a, b], n) => [`${a} ${b}`, at.length + n]));
      for (const [a, b] of all) {
        at.push([(at[a][0] + at[b][0]) >> 1n, (at[a][1] + at[b][1]) >> 1n]);
        let step = 1;
        while (taken.has(`${ids[a]}~${ids[b]}~${step}`)) step++;
        taken.add(`${ids[a]}~${ids[b]}~${step}`);
        ids.push(`${ids[a]}~${ids[b]}~${step}`);
      }
      triangles = triangles.flatMap((t) => quarters(t, pairs(t).map(([a, b]) => middle.get(`${Math.min(a, b)} ${Math.max(a, b)}`))));
    }
    const allowed = new Map(), rate = nearest([epsilon[0], epsilon[1] * 10n ** 6n]);
    for (const t of triangles) ratios(t.map((v) => at[v]), rate).forEach((ratio, i) => {
      const side = [t[(i + 2) % 3], t[(i + 1) % 3]].sort((a, b) => a - b), known = allowed.get(side.join(" "));
      allowed.set(side.join(" "), [...side, Math.min(ratio, known ? known[2] : ratio)]);
    });
    Object.assign(of, { points: ids, triangles, vertices: at });
    of.place(at.slice(count).map(([x, y]) => of.back([x, 1n], [y, 1n])));
    hold(of, [...allowed.values()].map(([a, b, ratio]) => {
      const [n, d] = exactly(ratio);
      return [ids[a], ids[b], [n + d, d]];
    }), epsilon);
    return { simplices: triangles, steps: 0, ground: at.flat().map(Number) };
  }
  function region(of, epsilon) { // of a problem, which is that of the release
    const stored = [], wide = of.streets ? 2 : 3, kind = of.streets ? "lengths" : "vertices";
    readable(data.region?.[kind] && (of.streets || ["planar", "geographic"].includes(of.records.kind)), "no region, or none of such places");
    const part = (name) => numbers(bytes(data.region[name][1]), data.region[name][0]).map(Number), flatly = part("simplices");
    for (let n = 0; n < flatly.length; n += wide) stored.push(flatly.slice(n, n + wide));
    const split = tables.privacy.split_km === undefined ? 0 : Number(tables.privacy.split_km);
    readable(split >= 0 && (split > 0 || tables.privacy.split_km === undefined), "split_km is not above 0");
    const made = (of.streets ? streets : plane)(of, epsilon, split, stored);
    const same = (a, b) => a.length === b.length && a.every((x, n) => x === b[n]);
    const fits = same(made.simplices.flat(), flatly) && same(made.ground, part(kind)) && same([made.steps], part("snap_steps"));
    need(fits && !data.pairs && !data.distances, "another region than the problem's, or pairs beside it");
  }

  // ---- where people are
  function alongPeople(of) { // [piece, part of the way, mass]
    const third = root((ONE * ONE) / 3n), parts = [];
    for (let j = 1n; j < 32n; j += 2n) for (const side of [-1n, 1n]) parts.push((j * ONE + side * third) / 32n);
    return of.pieces.flatMap((piece) => parts.map((part) => [piece, part, low(piece[2])]));
  }
  function* overPlane(of) { // [mass, triangle, shares, where ways start]
    const fifteen = root(15n << (2n * ROOM)), seven = [[270n * ONE, [ONE / 3n, ONE / 3n, ONE / 3n]]];
    for (const x of [-fifteen, fifteen]) for (let i = 0; i < 3; i++)
      seven.push([155n * ONE + x, [0, 1, 2].map((j) => (i === j ? ONE - 2n * ((6n * ONE + x) / 21n) : (6n * ONE + x) / 21n))]);
    let parts = [[[ONE, 0n, 0n], [0n, ONE, 0n], [0n, 0n, ONE]]];
    const half = ([s, t]) => s.map((x, n) => (x + t[n]) >> 1n);
    while (7 * parts.length * of.triangles.length < POINTS) parts = parts.flatMap((t) => quarters(t, pairs(t).map(half)));
    const mixed = (part, seventh) => [0, 1, 2].map((axis) => (seventh[0] * part[0][axis] + seventh[1] * part[1][axis] + seventh[2] * part[2][axis]) >> ROOM);
    const within = parts.flatMap((part) => seven.map(([weight, seventh]) => [weight, mixed(part, seventh)]));
    for (const t of of.triangles) {
      const corners = t.map((v) => of.vertices[v]), area = turn(...corners);
      for (const [weight, shares] of within) {
        const [x, y] = [0, 1].map((axis) => [shares.reduce((sum, share, n) => sum + share * corners[n][axis], 0n), ONE]);
        const thin = of.records.projection ? cosine(of.records.projection.radians(x, y)[0]) : ONE;
        yield [(area * weight * thin) >> ROOM, t, shares, of.ready(of.back(x, y))];
      }
    }
  }
  function anywhere(of, epsilon, vertices, measured) { // losses by output of people all over the region, by whom they are drawn as
    const spread = [];
    if (of.pieces) for (const [[a, b, km, factor, t], part, mass] of alongPeople(of)) {
      const nearer = part < ONE - part ? part : ONE - part, gone = (16n * nearer) / ONE, rest = (16n * nearer) % ONE;
      const [tn, td] = t, [fn, fd] = [factor[0] - factor[1], factor[1]];
      const top = (tn + td) ** gone * (td * ONE + rest * tn), bottom = td ** gone * td * ONE;
      const far = tn ? ((top - bottom) * fd << ROOM) / (bottom * fn) : nearer, there = 2n * part < ONE ? far : ONE - far;
      spread.push([a, b, low(km), part, there, mass]);
    } else spread.push(...overPlane(of));
    const total = spread.reduce((sum, row) => sum + (of.pieces ? row[5] : row[0]), 0n);
    return (k) => {
      const costs = of.points.map(() => 0n), d = of.pieces || !measured ? vertices(k) : null;
      if (of.pieces) for (const [a, b, km, part, far, mass] of spread) {
        const [one, other] = [d[a] * ONE + part * km, d[b] * ONE + (ONE - part) * km];
        const here = measured ? (one < other ? one : other) : d[a] * (ONE - part) + d[b] * part;
        costs[a] += here * (ONE - far) * mass;
        costs[b] += here * far * mass;
      } else for (const [mass, corners, shares, place] of spread) {
        const here = d ? corners.reduce((sum, v, n) => sum + d[v] * shares[n], 0n) >> ROOM : of.toOutput(k, place);
        corners.forEach((v, n) => { costs[v] += here * shares[n] * mass; });
      }
      return costs.map((cost) => div(cost >> (of.pieces ? 2n * ROOM : ROOM), total));
    };
  }
  return { mesh, region, anywhere };
};
