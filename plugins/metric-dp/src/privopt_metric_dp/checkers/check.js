// Proves, in integers and offline, the privacy between records and the bound of the release that this page contains. It does
// in the reader's browser what the stand-alone checker does with Python's integers. Reals are multiples of 2^-256.
"use strict";
(() => {
  const ROOM = 256n, ONE = 1n << ROOM, TOTAL = 1n << 63n, FLAT = 45n * ONE, RADIUS = 6371n;
  const { readable, decimal, exactly, above, numbers, bytes, npy, csv, lines } = reading;
  let data, tables, result; // the page's content

  class Refused extends Error {} // thrown for a claim that does not hold; other errors mean that something cannot be read here
  const need = (holds, why) => { if (!holds) throw new Refused(why); };
  const div = (a, b) => (a >= 0n ? a / b : -((-a + b - 1n) / b)); // rounds down; b > 0
  const up = (a, b) => -div(-a, b);
  const low = ([n, d]) => div(n << ROOM, d);
  const abs = (x) => (x < 0n ? -x : x);
  const gcd = (a, b) => { while (b) [a, b] = [b, a % b]; return a; };
  const lcm = (numbers) => numbers.reduce((a, b) => (a / gcd(a, b)) * b, 1n);
  const bits = (n) => BigInt(n.toString(2).length);
  function root(n) { // the integer square root, by Newton's method from just above its double
    if (n < 2n) return n;
    const shift = 2n * BigInt(Math.max(0, 2 * n.toString(16).length - 48));
    let x = BigInt(Math.ceil(Math.sqrt(Number((n >> shift) + 1n)) * (1 + 2 ** -50))) << (shift / 2n);
    for (;;) { const y = (x + n / x) >> 1n; if (y >= x) return x; x = y; }
  }

  const whole64 = (text) => numbers(bytes(text), "<i8").map(Number);
  const doubles = (text) => numbers(bytes(text), "<f8");
  function table(name, keys) { // a table in the problem, which must not contain other keys
    const unknown = Object.keys(tables[name]).filter((key) => !keys.split(" ").includes(key));
    readable(!unknown.length, `[${name}]: ${unknown}: unknown here`);
    return tables[name];
  }

  // ---- functions in which each step is rounded towards the same side
  function exponential(x, above) {
    const k = bits(x) > ROOM - 16n ? bits(x) - ROOM + 16n : 0n, more = above ? 1n : 0n, room = ROOM + 64n;
    const t = ((x << 64n) >> k) + more;
    let term = 1n << room, total = term, n = 0n;
    while (term > more) { n++; term = ((term * t) >> room) / n + more; total += term; }
    total += 2n * more;
    for (let i = 0n; i < k; i++) total = ((total * total) >> room) + more;
    return (total >> 64n) + more;
  }
  const arctan = (n) => {
    let total = 0n, power = (1n << 320n) / n;
    for (let m = 1n; power; m += 2n, power /= n * n) total += m % 4n === 1n ? power / m : -(power / m);
    return total;
  };
  const PI = (16n * arctan(5n) - 4n * arctan(239n)) >> 64n;
  const radians = ([n, d]) => div(n * PI, 180n * d);
  function cosine(x) {
    const square = (x * x) >> ROOM;
    readable(square < 144n * ONE, "a place more than once around the earth");
    let term = ONE, total = ONE;
    for (let n = 2n; term; n += 2n) { term = ((term * square) >> ROOM) / (n * (n - 1n)); total += n % 4n ? -term : term; }
    return total;
  }
  function arcsineOfRoot(h) {
    let square = (h < 0n ? 0n : h > ONE ? ONE : h) << ROOM;
    for (let i = 0; i < 8; i++) square = (square << ROOM) / (2n * (ONE + root(ONE * ONE - square)));
    const sine = root(square);
    let power = sine, total = sine;
    for (let n = 1n; power; total += power / n) { power = (((power * sine) >> ROOM) * sine * n) / (ONE * (n + 1n)); n += 2n; }
    return total << 8n;
  }

  // ---- places, distances, losses
  function places(name) {
    // outputs are in the records' unit
    const keys = `grid points vectors ids count columns${name === "records" ? " unit" : ""}`;
    const given = table(name, keys), found = { kind: "plain", at: [] };
    if (given.grid) {
      const { rows, cols, cell_km: side, south_west: corner } = given.grid, [n, d] = decimal(side);
      const cells = Array.from({ length: rows * cols }, (_, at) => [BigInt(Math.floor(at / cols)), BigInt(at % cols)]);
      found.ids = cells.map(([r, c]) => `r${r}c${c}`);
      found.kind = corner ? "geographic" : "planar";
      const [south, west] = (corner || []).map((text) => radians(decimal(text))), step = low([n, d * RADIUS]);
      found.at = cells.map(([r, c]) =>
        corner ? [south + r * step, west + div(c * step * ONE, cosine(south))] : [[c * n, d], [r * n, d]]);
    } else if (given.points) {
      const cells = csv(given.points), names = { id: "id", lat: "lat", lon: "lon", x: "x", y: "y", ...given.columns };
      // headers are published in NFC, but the problem file may use another Unicode form
      const column = (title) => cells[title.normalize("NFC")], parts = [].concat(names.id).map(column);
      found.ids = parts[0].map((_, at) => parts.map((part) => part[at]).join("/"));
      const pick = (one, other) => column(one).map((text, at) => [decimal(text), decimal(column(other)[at])]);
      readable(![names.x, names.y, names.lat, names.lon].every(column), "coordinates of two kinds");
      if (column(names.x) && column(names.y)) Object.assign(found, { kind: "planar", at: pick(names.x, names.y) });
      else if (column(names.lat) && column(names.lon))
        Object.assign(found, { kind: "geographic", at: pick(names.lat, names.lon).map((pair) => pair.map(radians)) });
    } else if (given.vectors) {
      Object.assign(found, { kind: "vector", at: npy(given.vectors).map((row) => row.map(exactly)) });
      found.ids = given.ids ? lines(given.ids) : found.at.map((_, at) => String(at));
    } else found.ids = Array.from({ length: given.count }, (_, at) => String(at));
    readable(!given.unit || found.kind === "planar", `[${name}]: a unit for places that are not on a plane`);
    found.unit = given.unit || "km";
    readable(new Set(found.ids).size === found.ids.length, `[${name}]: a repeated id`);
    const beyond = found.kind === "geographic" && found.at.some(([lat]) => 2n * (lat < 0n ? -lat : lat) > PI);
    readable(!beyond, `[${name}]: a place beyond a pole`);
    readable(!found.at.length || found.at.length === found.ids.length, `[${name}]: not one id for each place`);
    return found;
  }
  function shortest(start, after) { // Dijkstra's algorithm, with a heap of [length, node]
    const found = new Map(), heap = [[0n, start]];
    while (heap.length) {
      const [length, here] = heap[0], last = heap.pop();
      if (heap.length) {
        heap[0] = last;
        for (let at = 0, next; (next = 2 * at + 1) < heap.length; at = next) {
          if (next + 1 < heap.length && heap[next + 1][0] < heap[next][0]) next++;
          if (heap[at][0] <= heap[next][0]) break;
          [heap[at], heap[next]] = [heap[next], heap[at]];
        }
      }
      if (found.has(here)) continue;
      found.set(here, length);
      for (const [there, step] of after(here)) if (!found.has(there)) {
        let at = heap.push([length + step, there]) - 1;
        for (let above; at && heap[at][0] < heap[(above = (at - 1) >> 1)][0]; at = above)
          [heap[at], heap[above]] = [heap[above], heap[at]];
      }
    }
    return found;
  }
  function roads(name) { // the two ends and the length of each road
    const cells = csv(name), km = cells.km.map(decimal);
    readable(km.every(([n]) => n >= 0n), `${name}: a length below 0`);
    return km.map((length, at) => [cells.from[at], cells.to[at], length]);
  }
  function ways(given, oneWay) { // returns a function for the lengths of the shortest paths from each start to an end
    const shared = lcm([...new Set(given.map(([, , [, d]]) => d))]), before = new Map();
    for (const node of given.flatMap(([a, b]) => [a, b])) before.set(node, []);
    for (const [tail, head, [n, d]] of given) {
      before.get(head).push([tail, (n * shared) / d]);
      if (!oneWay) before.get(tail).push([head, (n * shared) / d]);
    }
    return (end, starts) => {
      const found = shortest(end, (node) => before.get(node));
      return starts.map((start) => (found.has(start) ? (found.get(start) << ROOM) / shared : null));
    };
  }
  function metric() {
    const given = table("distance", "kind edges matrix output_matrix"), kind = given.kind, records = places("records");
    const outputs = tables.outputs ? places("outputs") : records, [n, width] = [records.ids.length, outputs.ids.length];
    const unit = kind === "matrix" || records.kind === "vector" ? "unit of distance" : records.unit;
    readable(records.unit === "km" || kind === "euclidean", `records.unit with distance.kind ${kind}`);
    const made = { records, outputs, unit, room: kind === "haversine" ? ONE >> 95n : 1n, roads: null };
    const fits = { euclidean: ["planar", "vector"], haversine: ["geographic"] }[kind];
    const alike = records.kind === outputs.kind && records.at[0]?.length === outputs.at[0]?.length;
    readable(!fits || (fits.includes(records.kind) && alike), `${records.kind} places with distance.kind ${kind}`);
    let here = records.at, there = outputs.at, way;
    const squares = (a, b) => a.reduce((sum, x, at) => sum + (x - b[at]) ** 2n, 0n);
    if (kind === "euclidean") {
      const shared = lcm([10n ** 6n << 64n, ...new Set([...here, ...there].flat().map(([, d]) => d))]);
      made.ready = (at) => at.map(([n, d]) => (n * shared) / d);
      way = (a, b) => root((squares(a, b) << (2n * ROOM)) / (shared * shared));
    } else if (kind === "haversine") { // from the chord between unit vectors
      const flat = (lat, lon) => (cosine(lat) * cosine(lon)) >> ROOM, quarter = PI / 2n;
      made.ready = ([lat, lon]) => [flat(lat, lon), flat(lat, lon - quarter), cosine(lat - quarter)];
      way = (a, b) => {
        if (a.every((x, at) => x === b[at])) return 0n;
        const found = 2n * RADIUS * arcsineOfRoot(squares(a, b) >> (ROOM + 2n)) - (ONE >> 96n);
        return found > 0n ? found : 0n;
      };
    }
    if (way) {
      [here, there] = [here, there].map((at) => at.map(made.ready));
    }
    made.own = (i) => here.map((at) => way(here[i], at));
    made.ends = (k) => here.map((at) => way(there[k], at));
    if (kind === "graph") {
      made.roads = ways(roads(given.edges), false);
      made.own = (i) => made.roads(records.ids[i], records.ids);
      made.ends = (k) => made.roads(outputs.ids[k], records.ids);
    } else if (kind === "matrix") {
      const own = npy(given.matrix, n, n), across = given.output_matrix && npy(given.output_matrix, n, width);
      readable(own.flat().every((d) => d >= 0), `${given.matrix}: a distance below 0`);
      made.own = (i) => own[i].map((d, j) => low(exactly(d < own[j][i] ? d : own[j][i])));
      made.ends = !tables.outputs ? made.own : (k) => across.map((row) => low(exactly(row[k])));
    } else readable(way, `distance.kind ${kind} is unknown to this page`);
    return made;
  }
  function shares(name, column, ids) {
    if (!name) return [ids, ids.map(() => 1n), BigInt(ids.length)];
    const cells = csv(name), given = cells[column].map(decimal), shared = lcm(given.map(([, d]) => d));
    const whole = given.map(([n, d]) => (n * shared) / d);
    readable(whole.every((share) => share >= 0n) && whole.some((share) => share), `${name}: a negative weight, or none above 0`);
    readable(new Set(cells.id).size === cells.id.length, `${name}: a repeated id`);
    const sum = given.reduce((total, [n, d]) => total + Number(n) / Number(d), 0);
    readable(column !== "p" || Math.abs(sum - 1) <= 1e-6, `${name}: probabilities that sum to ${sum}`);
    return [cells.id, whole, whole.reduce((a, b) => a + b, 0n)];
  }
  function losses(of) { // returns a function that gives an output's losses, each at most the true one
    const given = table("utility", "kind prior cost edges directed targets remap");
    readable(typeof (given.remap ?? false) === "boolean", "utility.remap: neither true nor false");
    const records = of.records.ids, outputs = of.outputs.ids;
    of.lossUnit = /^[a-z]{3,}[a-gi-rt-wy]$/.test(of.unit) ? `${of.unit}s` : of.unit.replace("unit of", "units of");
    if (given.kind === "distance") return of.ends;
    if (given.kind === "matrix") {
      const cost = npy(given.cost, records.length, outputs.length);
      of.lossUnit = "units of cost";
      return (k) => cost.map((row) => low(exactly(row[k])));
    }
    readable(given.kind === "travel-cost", `utility.kind ${given.kind} is unknown to this page`);
    if (given.edges) of.lossUnit = "km";
    const [targets, weights, total] = shares(given.targets, "weight", records);
    const travel = given.edges ? ways(roads(given.edges), given.directed === true) : of.roads;
    const turned = (columns) => columns[0].map((_, at) => columns.map((column) => column[at]));
    const own = (row) => targets.map((target) => row[records.indexOf(target)]);
    const near = travel ? turned(targets.map((t) => travel(t, records))) : records.map((_, i) => own(of.own(i)));
    const far = travel ? turned(targets.map((t) => travel(t, outputs))) : outputs.map((_, k) => own(of.ends(k)));
    return (k) => near.map((row) => {
      const sum = row.reduce((s, x, at) => (weights[at] ? s + weights[at] * abs(x - far[k][at]) : s), 0n);
      const found = sum / total - of.room - 1n;
      return found > 0n ? found : 0n;
    });
  }

  // ---- the claims
  const state = {};
  let epsilon, within, limit;
  const same = (ids, found) => ids.length === found.length && ids.every((id, at) => id === found[at]);
  const near = (x, y, by) => Number.isFinite(x) && Math.abs(x - y) <= by * Math.max(Math.abs(x), Math.abs(y));
  function alike(stated, wanted, where, by = 1e-9) { // checks that the keys are the same, and the values equal up to rounding
    const odd = [...Object.keys(stated), ...Object.keys(wanted)].filter((key) => !(Object.hasOwn(stated, key) && Object.hasOwn(wanted, key)));
    need(!odd.length, `${where}: missing or unexpected keys: ${odd}`);
    for (const [key, value] of Object.entries(wanted)) {
      const fits = typeof value === "number" ? near(stated[key], value, by) : stated[key] === value;
      need(fits, `${where}.${key}: ${String(stated[key]).slice(0, 99)} is stated, ${value} found`);
    }
  }
  function load() {
    data = reading.open(document.getElementById("check-data").textContent);
    ({ problem: tables, result } = data);
    const given = table("privacy", "kind epsilon everywhere neighbours_within");
    readable((given.everywhere ?? false) === false, "privacy.everywhere is for the stand-alone checker");
    readable((given.kind ?? "metric-dp") === "metric-dp", `privacy.kind ${given.kind} is unknown to this page`);
    epsilon = decimal(given.epsilon);
    within = given.neighbours_within === undefined ? null : Number(given.neighbours_within);
    readable(within === null || within > 0, "neighbours_within is not above 0");
    limit = within && low(exactly(above(within))) - 1n; // compares as if distances were rounded down to doubles
    readable(epsilon[0] > 0n, "epsilon is not above 0");
  }
  function step([n, d], unit) { // rounds a rational down to an odd multiple of half a unit
    const [top, bottom] = exactly(unit);
    return [(2n * div(2n * n * bottom + d * top, 2n * d * top) - 1n) * top, 2n * bottom];
  }
  const part = (name) => numbers(bytes(data.proof[name][1]), data.proof[name][0]); // an array of proof.npz
  const graph = [];
  function factor(i, j) { // exp(epsilon d) for a row, rounded up; 0 if it exceeds every possible ratio of weights
    need(i !== j && state.required[i] && j in state.required, "a row that is not between two records");
    let d = state.required[i][j];
    if (d === null) {
      const edges = (a) => (graph[a] ||= state.required[a].flatMap((x, b) => (x === null ? [] : [[b, x + state.of.room]])));
      d = shortest(i, edges).get(j);
      need(d !== undefined, "a row whose pair is neither required nor implied");
    }
    const x = up(epsilon[0] * (d + state.of.room), epsilon[1]);
    return x <= FLAT ? exponential(x, true) : 0n;
  }
  function spreading() { // returns a function that turns an output's costs into reduced costs, with multipliers for rows
    const pairs = part("pairs").map(Number), starts = part("starts").map(Number), which = part("rows"), values = part("values");
    need(starts.length === data.outputs.length + 1 && starts[0] === 0 && starts[starts.length - 1] === which.length, "starts: not the offsets of the rows");
    const rows = Array.from({ length: pairs.length / 2 }, (_, p) => [...pairs.slice(2 * p, 2 * p + 2), factor(pairs[2 * p], pairs[2 * p + 1])]);
    return (g, k) => {
      for (let at = starts[k]; at < starts[k + 1]; at++) {
        const [i, j, growth] = rows[which[at]], [n, d] = exactly(values[at]), f = growth ? (n << ROOM) / d : 0n;
        need(n >= 0n, "a multiplier below 0");
        g[i] += f;
        g[j] -= ((growth * f) >> ROOM) + 1n;
      }
      return g;
    };
  }
  function climbing() { // the same with trees: from the leaves up, each record passes on what its cost differs from its price by
    const prices = part("prices").map((price) => low(exactly(price))), codes = part("trees"), n = prices.length, known = new Map();
    need(n === state.rows.length && codes.length === n * data.outputs.length, "trees of the wrong size");
    const growth = (i, p) => {
      const key = i * n + p;
      if (!known.has(key)) known.set(key, factor(i, p));
      need(known.get(key), "a tree with a factor above exp(45)");
      return known.get(key);
    };
    return (costs, k) => {
      const left = costs.map((c, i) => c - prices[i]), own = codes.slice(k * n, (k + 1) * n), waiting = own.map(() => 0);
      const hangs = own.map((code, i) => ((code >> 1) + i) % n);
      hangs.forEach((p, i) => { waiting[p] += p !== i; });
      const free = own.map((_, i) => i).filter((i) => !waiting[i]);
      for (const i of free) { // grows in the loop
        const p = hangs[i], g = left[i], plus = g > 0n ? g : 0n;
        if (p === i) continue;
        left[p] += own[i] % 2 ? ((g - plus) * growth(i, p)) >> ROOM : (plus << ROOM) / growth(i, p);
        left[i] = own[i] % 2 ? plus : g - plus;
        if (!--waiting[p]) free.push(p);
      }
      need(free.length === n, "trees: records form a cycle");
      return left.map((x, i) => x + prices[i]);
    };
  }
  function guesses() { // checks that no other guess loses less than the output itself, by more than 1e-8 of the largest loss
    const columns = [...state.exact, state.exact[0].map((_, i) => state.exact.map((costs) => abs(costs[i])).reduce((a, b) => (a > b ? a : b)))];
    data.outputs.forEach((output, k) => {
      const losses = columns.map((costs) => costs.reduce((sum, c, i) => sum + c * state.rows[i][k], 0n)), most = losses.pop();
      const less = losses.findIndex((loss) => 10n ** 8n * (losses[k] - loss) > most);
      need(less === -1, `utility.remap: ${data.outputs[less]} would lose less than output ${output}`);
    });
  }
  const claims = {
    integers() {
      load();
      state.of = metric();
      const n = state.of.records.ids.length, width = state.of.outputs.ids.length;
      need(same(state.of.records.ids, data.records) && same(state.of.outputs.ids, data.outputs), "records and outputs are not the problem's");
      const flat = numbers(bytes(data.weights), "<u8");
      need(flat.length === n * width, "a table of the wrong size");
      state.rows = Array.from({ length: n }, (_, i) => flat.slice(i * width, (i + 1) * width));
      state.rows.forEach((row, i) =>
        need(row.reduce((a, b) => a + b, 0n) === TOTAL, `the row of ${data.records[i]} does not sum to 2^63`));
      return `${n} rows of ${width} whole numbers, each row sums to 2^63`;
    },
    privacy() {
      const n = state.rows.length, ends = whole64(data.pairs), lengths = doubles(data.distances);
      const after = state.rows.map(() => []), direct = new Map();
      need(ends.length === 2 * lengths.length, "pairs without distances");
      Object.assign(state, { worst: 0, checked: lengths.length * data.outputs.length });
      const held = lengths.map((d, p) => {
        const [i, j] = ends.slice(2 * p, 2 * p + 2), [top, bottom] = exactly(d), x = div((epsilon[0] * top) << ROOM, epsilon[1] * bottom);
        need(i >= 0 && i < n && j >= 0 && j < n && i !== j && d >= 0, "an invalid pair");
        return [i, j, d, () => exponential(x < FLAT ? x : FLAT, false)];
      });
      for (const [i, j, d, growth] of held) {
        const [top, bottom] = exactly(d), most = growth();
        for (const [a, b] of [[i, j], [j, i]]) {
          const one = state.rows[a], other = state.rows[b];
          for (let k = 0; k < one.length; k++) {
            need(one[k] << ROOM <= most * other[k], `${data.records[a]} against ${data.records[b]} at ${data.outputs[k]}: a ratio above exp(epsilon d)`);
            const excess = Number(one[k] - other[k]) / Number(other[k] || TOTAL);
            state.worst = Math.max(state.worst, Math.log1p(Math.max(excess, 0)) / (d || 1));
          }
          const length = one.every((w, k) => w === other[k]) ? 0n : up(top << ROOM, bottom); // equal rows satisfy every inequality
          after[a].push([b, length]);
          direct.set(`${a} ${b}`, length);
        }
      }
      const truth = state.rows.map((_, i) => state.of.own(i)), { room } = state.of;
      for (const [i, j, d] of held) {
        const near = truth[i][j], [top, bottom] = exactly(d), short = near === null ? 0n : near - up(top << ROOM, bottom);
        const fits = short >= -room && short <= (near || 0n) / 10n ** 9n + room;
        need(fits, `${data.records[i]} and ${data.records[j]}: ${d} is stored, which is not their distance`);
      }
      state.required = truth.map((row, i) => row.map((d, j) => (j === i || d === null || (within !== null && d > limit) ? null : d)));
      let implied = 0;
      state.required.forEach((row, i) => {
        const left = row.map((d, j) => j > i && d !== null && !(direct.get(`${i} ${j}`) <= d));
        if (!left.includes(true)) return;
        const reached = shortest(i, (node) => after[node]);
        left.forEach((open, j) => {
          if (!open) return;
          need(reached.get(j) <= row[j], `${data.records[i]} and ${data.records[j]} are a required pair, but no path over stored pairs is as short`);
          implied++;
        });
      });
      return `${lengths.length} pairs at ${data.outputs.length} outputs, both ways, at epsilon ${tables.privacy.epsilon} ` +
        `per ${state.of.unit}; ${implied} more follow from them`;
    },
    loss() {
      const { of } = state, { prior, remap } = tables.utility, records = of.records.ids, column = losses(of);
      const [ids, given, whole] = shares(prior, "p", records), share = new Map(ids.map((id, at) => [id, given[at]]));
      readable(ids.length === records.length && records.every((id) => share.has(id)), "the prior is not of the problem's records");
      const weight = records.map((id) => share.get(id));
      state.exact = data.outputs.map((_, k) => column(k).map((c, i) => weight[i] * c));
      state.costs = state.exact.map((costs) => costs.map((c) => div(c, whole)));
      let total = 0n;
      state.costs.forEach((costs, k) => costs.forEach((c, i) => { total += c * state.rows[i][k]; }));
      const { value: stated } = result.objective, { value_unit: unit } = result.details;
      readable(!(stated > 0 && stated < 2 ** -128), "a loss too small to be checked here");
      let value = Number(total >> 200n) / Number(1n << 119n);
      if ((state.rounded = unit !== undefined)) { // the loss is rounded up to an odd multiple of half the unit, then to a double
        need(2 ** -48 * Math.abs(stated) <= unit && unit <= 2 ** -30 * Math.max(1, Math.abs(stated)), `value_unit: ${unit} is too fine or too coarse for the loss`);
        const [n, d] = step([-total, ONE * TOTAL], unit), [p, q] = exactly(-stated), [r, s] = exactly(above(-stated));
        need(p * d <= n * q && n * s < r * d, `${stated} is stated, ${value} found`);
        value = stated;
      } else need(near(stated, value, 1e-9), `${stated} is stated, ${value} found`);
      state.value = value;
      if (remap) guesses();
      return `${value} ${state.of.lossUnit}`;
    },
    bound() {
      const stated = result.objective.lower_bound;
      if (stated === null) { need(!data.proof, "a proof without a bound"); return "none is stated"; }
      need(data.proof, "a bound is stated without a proof");
      const left = data.proof.trees ? climbing() : spreading(), least = state.rows.map(() => null);
      state.costs.forEach((costs, k) => left(costs.slice(), k).forEach((x, i) => {
        if (least[i] === null || x < least[i]) least[i] = x;
      }));
      // the bound is rounded down to an odd multiple of half the unit, then to a double; without negative costs it is at least 0
      const proved = least.reduce((a, b) => a + b, 0n), [unit] = part("unit"), [top, bottom] = exactly(unit);
      readable(top > 0n, "the proof's unit is not above 0");
      need(abs(proved) * bottom <= (top * ONE) << 48n, "the proof's unit is finer than 2^-48 of the bound");
      let [odd, twice] = step([proved, ONE], unit);
      if (odd < 0n && state.costs.every((costs) => costs.every((c) => c >= 0n))) odd = 0n;
      const shown = Number(proved >> 200n) / Number(1n << 56n), [n, d] = exactly(stated), [m, e] = exactly(above(stated));
      need(n * twice <= odd * d && odd * e < m * twice, `${stated} is stated, ${shown} proved`);
      return `no such mechanism loses less than ${stated} ${state.of.lossUnit}`;
    },
    statements() { // checks what result.json states as objective, guarantee, certificate and status, except for sentences
      const { objective, guarantee, certificate } = result, bound = objective.lower_bound, of = state.of;
      const [n, d] = decimal(guarantee.epsilon_text), text = (words) => (typeof words === "string" ? words : "a text");
      need(n * epsilon[1] === epsilon[0] * d, "epsilon_text is not the problem's epsilon");
      const best = objective.value, gap = bound === null ? null : Math.max(0, (best - bound) / Math.max(Math.abs(best), 1e-12));
      alike(objective, { value: state.value, lower_bound: bound, gap, unit: of.lossUnit }, "objective", state.rounded ? 0 : 1e-9);
      const float = Number(tables.privacy.epsilon), kind = "metric-dp", unit = `per ${of.unit}`;
      const scope = within === null ? { scope: "all-pairs" }
        : { scope: "neighbours", neighbours_within: within };
      const { epsilon_text, statement } = guarantee;
      alike(guarantee, { kind, epsilon: float, epsilon_text: text(epsilon_text), unit, ...scope, statement: text(statement) }, "guarantee", 0);
      const { worst, checked } = state, arithmetic = text(certificate.arithmetic);
      alike(certificate, { worst, allowed: float, checked, arithmetic, kind, holds: true, evidence: "proved" }, "certificate");
      readable(Number.isFinite(result.asked.gap), "asked.gap is not a number");
      need(result.asked.gap > 0 && result.asked.gap < 1, `asked.gap: ${result.asked.gap} is not between 0 and 1`);
      const status = gap !== null && gap <= result.asked.gap ? "optimal" : "feasible";
      need(result.status === status, `status: ${result.status} is stated, ${status} found`);
      return `${scope.scope}, ${status}`;
    },
  };

  const button = document.getElementById("check-run"), list = document.getElementById("check-claims");
  async function run() {
    button.disabled = true;
    list.replaceChildren();
    list.dataset.verdict = "running";
    let verdict = "holds";
    for (const [name, claim] of Object.entries(claims)) {
      const line = list.appendChild(document.createElement("li"));
      line.textContent = `${name}: ...`;
      await new Promise((then) => setTimeout(then, 20)); // lets the browser draw the line
      try { line.textContent = `✓ ${name}: ${claim()}`; }
      catch (error) { // malformed bytes may raise any error
        const false_ = error instanceof Refused;
        verdict = false_ ? "does not hold" : "cannot be read here";
        line.textContent = `${false_ ? "✗" : "?"} ${name}: ${false_ ? "" : "cannot be read here: "}${error.message}`;
        if (false_) line.className = "bad";
        break;
      }
    }
    list.dataset.verdict = verdict;
    button.disabled = false;
  }
  button.addEventListener("click", run);
})();
