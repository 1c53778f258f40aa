// Proves the privacy and the bound of the release that this page carries, in whole numbers, offline: what
// privopt/checker.py does with Python's integers, in the reader's own browser. Reals are multiples of 2^-256.
"use strict";
(() => {
  const ROOM = 256n, ONE = 1n << ROOM, TOTAL = 1n << 63n, FLAT = 45n * ONE, RADIUS = 6371n;
  const data = JSON.parse(document.getElementById("check-data").textContent);
  const tables = data.problem, result = data.result;

  const need = (holds, why) => { if (!holds) throw new Error(why); };
  const div = (a, b) => (a >= 0n ? a / b : -((-a + b - 1n) / b)); // rounded down, b > 0
  const up = (a, b) => -div(-a, b);
  const low = ([n, d]) => div(n << ROOM, d);
  const abs = (x) => (x < 0n ? -x : x);
  const gcd = (a, b) => { while (b) [a, b] = [b, a % b]; return a; };
  const lcm = (numbers) => numbers.reduce((a, b) => (a / gcd(a, b)) * b, 1n);
  const bits = (n) => BigInt(n.toString(2).length);
  function root(n) { // the integer square root
    if (n < 2n) return n;
    let x = 1n << ((bits(n) + 1n) >> 1n);
    for (;;) { const y = (x + n / x) >> 1n; if (y >= x) return x; x = y; }
  }

  // ---- numbers as they are written
  function decimal(value) { // a rational: [numerator, denominator]
    const parts = /^([+-]?)(\d*)\.?(\d*)(?:[eE]([+-]?\d{1,3}))?$/.exec(String(value).trim());
    need(parts && parts[2] + parts[3] !== "", `${value} is no number`);
    const power = parts[3].length - Number(parts[4] || 0), whole = BigInt(parts[2] + parts[3]);
    const signed = parts[1] === "-" ? -whole : whole;
    return power >= 0 ? [signed, 10n ** BigInt(power)] : [signed * 10n ** BigInt(-power), 1n];
  }
  function exactly(x) { // the rational that a double is
    need(Number.isFinite(x), `${x} is no number`);
    const view = new DataView(new ArrayBuffer(8));
    view.setFloat64(0, x);
    const word = view.getBigUint64(0), power = Number((word >> 52n) & 2047n);
    const part = (word & ((1n << 52n) - 1n)) | (power ? 1n << 52n : 0n), shift = BigInt((power || 1) - 1075);
    const signed = word >> 63n ? -part : part;
    return shift >= 0n ? [signed << shift, 1n] : [signed, 1n << -shift];
  }
  const bytes = (text) => Uint8Array.from(atob(text), (sign) => sign.charCodeAt(0));
  function numbers(raw, kind) { // of little-endian bytes
    const view = new DataView(raw.buffer, raw.byteOffset, raw.byteLength), found = [];
    const read = {
      f8: (at) => view.getFloat64(at, true), f4: (at) => view.getFloat32(at, true), u4: (at) => view.getUint32(at, true),
      u8: (at) => view.getBigUint64(at, true), i8: (at) => Number(view.getBigInt64(at, true)),
      i4: (at) => view.getInt32(at, true),
    }[kind];
    need(read, `numbers of type ${kind}`);
    for (let at = 0; at < raw.length; at += Number(kind[1])) found.push(read(at));
    return found;
  }
  function npy(name) { // an array of a file: its rows
    const raw = bytes(data.files[name]), head = String.fromCharCode(...raw.slice(0, 10 + raw[8] + 256 * raw[9]));
    const form = /'descr': '<(\w+)', 'fortran_order': (\w+), 'shape': \((\d+), (\d+)\)/.exec(head);
    need(form && form[2] === "False", `${name}: an array that this page does not read`);
    const flat = numbers(raw.slice(head.length), form[1]), width = Number(form[4]);
    need(flat.length === Number(form[3]) * width, `${name}: not as long as its header says`);
    return Array.from({ length: Number(form[3]) }, (_, i) => flat.slice(i * width, (i + 1) * width));
  }
  function csv(name) { // columns by name
    const text = new TextDecoder().decode(bytes(data.files[name])), rows = [[""]];
    let quoted = false;
    for (let at = text.charCodeAt(0) === 0xfeff ? 1 : 0; at < text.length; at++) {
      const sign = text[at], row = rows[rows.length - 1];
      if (quoted && sign === '"' && text[at + 1] === '"') { row[row.length - 1] += '"'; at++; }
      else if (sign === '"' && (quoted || row[row.length - 1] === "")) quoted = !quoted;
      else if (!quoted && sign === ",") row.push("");
      else if (!quoted && sign === "\n") rows.push([""]);
      else if (quoted || sign !== "\r") row[row.length - 1] += sign;
    }
    const [head, ...lines] = rows.filter((row) => row.length > 1 || row[0] !== "");
    return Object.fromEntries(head.map((title, at) => [title.trim(), lines.map((row) => row[at].trim())]));
  }

  // ---- functions, each step rounded to one side
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
    const table = tables[name], found = { kind: "plain", at: [] };
    if (table.grid) {
      const { rows, cols, cell_km: side, south_west: corner } = table.grid, [n, d] = decimal(side);
      const cells = Array.from({ length: rows * cols }, (_, at) => [BigInt(Math.floor(at / cols)), BigInt(at % cols)]);
      found.ids = cells.map(([r, c]) => `${r}-${c}`);
      found.kind = corner ? "geographic" : "planar";
      const [south, west] = (corner || []).map((text) => radians(decimal(text))), step = low([n, d * RADIUS]);
      found.at = cells.map(([r, c]) =>
        corner ? [south + r * step, west + div(c * step * ONE, cosine(south))] : [[c * n, d], [r * n, d]]);
    } else if (table.points) {
      const cells = csv(table.points), names = { id: "id", lat: "lat", lon: "lon", x: "x", y: "y", ...table.columns };
      const parts = [].concat(names.id).map((part) => cells[part]);
      found.ids = parts[0].map((_, at) => parts.map((part) => part[at]).join("/"));
      const pick = (one, other) => cells[one].map((text, at) => [decimal(text), decimal(cells[other][at])]);
      if (cells[names.x] && cells[names.y]) Object.assign(found, { kind: "planar", at: pick(names.x, names.y) });
      else if (cells[names.lat] && cells[names.lon])
        Object.assign(found, { kind: "geographic", at: pick(names.lat, names.lon).map((pair) => pair.map(radians)) });
    } else if (table.vectors) {
      Object.assign(found, { kind: "vector", at: npy(table.vectors).map((row) => row.map(exactly)) });
      const text = table.ids && new TextDecoder().decode(bytes(data.files[table.ids])).replace(/^\ufeff|\s+$/g, "");
      found.ids = table.ids ? text.split(/\r?\n/).map((line) => line.trim()) : found.at.map((_, at) => String(at));
    } else found.ids = Array.from({ length: table.count }, (_, at) => String(at));
    return found;
  }
  function shortest(start, after) { // a heap of [length, node]
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
  function roads(name, oneWay) {
    const cells = csv(name), km = cells.km.map(decimal), shared = lcm(km.map(([, d]) => d)), before = new Map();
    for (const node of [...cells.from, ...cells.to]) before.set(node, []);
    km.forEach(([n, d], at) => {
      need(n >= 0n, `${name}: a length below 0`);
      before.get(cells.to[at]).push([cells.from[at], (n * shared) / d]);
      if (!oneWay) before.get(cells.from[at]).push([cells.to[at], (n * shared) / d]);
    });
    return (end, starts) => {
      const found = shortest(end, (node) => before.get(node));
      return starts.map((start) => (found.has(start) ? (found.get(start) << ROOM) / shared : null));
    };
  }
  function metric() {
    const kind = tables.distance.kind, records = places("records"), outputs = tables.outputs ? places("outputs") : records;
    const made = { records, outputs, room: kind === "haversine" ? ONE >> 95n : 1n, roads: null };
    let here = records.at, there = outputs.at, way;
    if (kind === "euclidean") {
      const shared = lcm([...here, ...there].flat().map(([, d]) => d)), whole = (at) => at.map(([n, d]) => (n * shared) / d);
      [here, there] = [here.map(whole), there.map(whole)];
      const squares = (a, b) => a.reduce((sum, x, at) => sum + (x - b[at]) ** 2n, 0n);
      way = (a, b) => root((squares(a, b) << (2n * ROOM)) / (shared * shared));
    } else if (kind === "haversine") {
      [here, there] = [here, there].map((points) => points.map(([lat, lon]) => [lat, lon, cosine(lat)]));
      way = (a, b) => {
        if (a[0] === b[0] && a[1] === b[1]) return 0n;
        const turn = (((a[2] * b[2]) >> ROOM) * (ONE - cosine(abs(a[1] - b[1])))) >> ROOM;
        const found = 2n * RADIUS * arcsineOfRoot((ONE - cosine(abs(a[0] - b[0])) + turn) >> 1n) - (ONE >> 96n);
        return found > 0n ? found : 0n;
      };
    }
    made.own = (i) => here.map((at) => way(here[i], at));
    made.ends = (k) => here.map((at) => way(there[k], at));
    if (kind === "graph") {
      const ways = (made.roads = roads(tables.distance.edges, false));
      made.own = (i) => ways(records.ids[i], records.ids);
      made.ends = (k) => ways(outputs.ids[k], records.ids);
    } else if (kind === "matrix") {
      const given = npy(tables.distance.matrix);
      made.own = made.ends = (i) => given[i].map((d, j) => low(exactly(Math.min(d, given[j][i]))));
      if (tables.outputs && tables.distance.output_matrix) {
        const across = npy(tables.distance.output_matrix);
        made.ends = (k) => across.map((row) => low(exactly(row[k])));
      }
    } else need(way, `distance.kind ${kind} is unknown to this page`);
    return made;
  }
  function shares(name, column, ids) {
    if (!name) return [ids, ids.map(() => 1n), BigInt(ids.length)];
    const cells = csv(name), given = cells[column].map(decimal), shared = lcm(given.map(([, d]) => d));
    const whole = given.map(([n, d]) => (n * shared) / d);
    need(whole.every((share) => share >= 0n), `${name}: a share below 0`);
    return [cells.id, whole, whole.reduce((a, b) => a + b, 0n)];
  }
  function losses(of) { // by output: each at most the true one
    const table = tables.utility, records = of.records.ids, outputs = of.outputs.ids;
    if (table.kind === "distance") return of.ends;
    if (table.kind === "matrix") { const cost = npy(table.cost); return (k) => cost.map((row) => low(exactly(row[k]))); }
    need(table.kind === "travel-cost", `utility.kind ${table.kind} is unknown to this page`);
    const [targets, weights, total] = shares(table.targets, "weight", records);
    const ways = table.edges ? roads(table.edges, table.directed === true) : of.roads;
    const turned = (columns) => columns[0].map((_, at) => columns.map((column) => column[at]));
    const own = (row) => targets.map((target) => row[records.indexOf(target)]);
    const near = ways ? turned(targets.map((t) => ways(t, records))) : records.map((_, i) => own(of.own(i)));
    const far = ways ? turned(targets.map((t) => ways(t, outputs))) : outputs.map((_, k) => own(of.ends(k)));
    return (k) => near.map((row) => {
      const sum = row.reduce((s, x, at) => (weights[at] ? s + weights[at] * abs(x - far[k][at]) : s), 0n);
      const found = sum / total - of.room - 1n;
      return found > 0n ? found : 0n;
    });
  }

  // ---- the claims
  const state = {};
  const epsilon = decimal(tables.privacy.epsilon);
  const within = tables.privacy.neighbours_within === undefined ? null : low(decimal(tables.privacy.neighbours_within));
  const named = (ids, found) => ids.length === found.length && ids.every((id, at) => id === found[at]);
  const near = (x, y) => Math.abs(x - y) <= 1e-9 * Math.max(Math.abs(x), Math.abs(y));
  const claims = {
    integers() {
      state.of = metric();
      const n = state.of.records.ids.length, width = state.of.outputs.ids.length;
      need(named(state.of.records.ids, data.records) && named(state.of.outputs.ids, data.outputs), "other records or outputs");
      const flat = numbers(bytes(data.weights), "u8");
      need(flat.length === n * width, "a table of another size");
      state.rows = Array.from({ length: n }, (_, i) => flat.slice(i * width, (i + 1) * width));
      state.rows.forEach((row, i) =>
        need(row.reduce((a, b) => a + b, 0n) === TOTAL, `the row of ${data.records[i]} does not sum to 2^63`));
      return `${n} rows of ${width} whole numbers, each row sums to 2^63`;
    },
    privacy() {
      const n = state.rows.length, ends = numbers(bytes(data.pairs), "i8"), lengths = numbers(bytes(data.distances), "f8");
      const after = state.rows.map(() => []), direct = new Map();
      need(ends.length === 2 * lengths.length, "pairs without distances");
      lengths.forEach((d, p) => {
        const [i, j] = ends.slice(2 * p, 2 * p + 2), [top, bottom] = exactly(d);
        need(i >= 0 && i < n && j >= 0 && j < n && i !== j && d >= 0, "a pair that is none");
        const x = div((epsilon[0] * top) << ROOM, epsilon[1] * bottom), most = exponential(x < FLAT ? x : FLAT, false);
        for (const [a, b] of [[i, j], [j, i]]) {
          const one = state.rows[a], other = state.rows[b];
          for (let k = 0; k < one.length; k++)
            need(one[k] << ROOM <= most * other[k], `${data.records[a]} against ${data.records[b]} at ${data.outputs[k]}`);
          const length = up(top << ROOM, bottom);
          after[a].push([b, length]);
          direct.set(`${a} ${b}`, length);
        }
      });
      state.required = state.rows.map((_, i) => state.of.own(i).map((d, j) =>
        (j === i || d === null || (within !== null && d > within) ? null : d)));
      let implied = 0;
      state.required.forEach((row, i) => {
        const left = row.map((d, j) => j > i && d !== null && !(direct.get(`${i} ${j}`) <= d));
        if (!left.includes(true)) return;
        const reached = shortest(i, (node) => after[node]);
        left.forEach((open, j) => {
          if (!open) return;
          need(reached.get(j) <= row[j], `${data.records[i]} and ${data.records[j]} are left out`);
          implied++;
        });
      });
      return `${lengths.length} pairs at ${data.outputs.length} outputs, both ways, at epsilon ${tables.privacy.epsilon} ` +
        `${result.guarantee.unit}; ${implied} more follow from them`;
    },
    loss() {
      const [ids, given, whole] = shares(tables.utility.prior, "p", state.of.records.ids), column = losses(state.of);
      const share = new Map(ids.map((id, at) => [id, given[at]]));
      state.costs = data.outputs.map((_, k) => column(k).map((c, i) => div(share.get(data.records[i]) * c, whole)));
      let total = 0n;
      state.costs.forEach((costs, k) => costs.forEach((c, i) => { total += c * state.rows[i][k]; }));
      const value = Number(total >> 200n) / Number(1n << 119n), stated = result.objective.value;
      need(near(value, stated), `${stated} is stated, ${value} found`);
      return `${value.toPrecision(12)} ${result.objective.unit}`;
    },
    bound() {
      const stated = result.objective.lower_bound;
      if (stated === null) { need(!data.proof, "a proof beside no bound"); return "none is stated"; }
      need(data.proof, "stated without a proof");
      const pairs = numbers(bytes(data.proof.pairs), "i8"), starts = numbers(bytes(data.proof.starts), "i8");
      const which = numbers(bytes(data.proof.rows), "u4"), values = numbers(bytes(data.proof.values), data.proof.kind);
      const factors = [], graph = [];
      for (let p = 0; p < pairs.length; p += 2) {
        const [i, j] = pairs.slice(p, p + 2);
        need(i !== j && state.required[i] && j in state.required, "a row of no two records");
        let d = state.required[i][j];
        if (d === null) {
          const edges = (a) => (graph[a] ||= state.required[a].flatMap((x, b) => (x === null ? [] : [[b, x + state.of.room]])));
          d = shortest(i, edges).get(j);
          need(d !== undefined, "a row that is neither required nor implied");
        }
        const x = up(epsilon[0] * (d + state.of.room), epsilon[1]);
        factors.push([i, j, x <= FLAT ? exponential(x, true) : 0n]);
      }
      need(starts.length === data.outputs.length + 1 && starts[0] === 0 && starts[starts.length - 1] === which.length, "starts");
      const least = state.rows.map(() => null);
      state.costs.forEach((costs, k) => {
        const g = costs.slice();
        for (let at = starts[k]; at < starts[k + 1]; at++) {
          const [i, j, growth] = factors[which[at]], [n, d] = exactly(values[at]), f = growth ? (n << ROOM) / d : 0n;
          need(n >= 0n, "a multiplier below 0");
          g[i] += f;
          g[j] -= ((growth * f) >> ROOM) + 1n;
        }
        g.forEach((x, i) => { if (least[i] === null || x < least[i]) least[i] = x; });
      });
      const proved = least.reduce((a, b) => a + b, 0n), [n, d] = exactly(stated);
      const shown = Number(proved >> 200n) / Number(1n << 56n);
      need(n << ROOM <= proved * d, `${stated} is stated, ${shown} proved`);
      return `no such mechanism loses less than ${shown.toPrecision(12)} ${result.objective.unit}`;
    },
    statements() {
      const [n, d] = decimal(result.guarantee.epsilon_text), gap = result.objective.gap;
      need(n * epsilon[1] === epsilon[0] * d, "epsilon_text is not the problem's epsilon");
      need(result.guarantee.scope === (within === null ? "all-pairs" : "neighbours"), "another scope");
      need(result.status === (gap !== null && gap <= result.asked.gap ? "optimal" : "feasible"), "another status");
      return `${result.guarantee.scope}, ${result.status}`;
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
      await new Promise((then) => setTimeout(then, 20)); // so that it is drawn
      try { line.textContent = `✓ ${name}: ${claim()}`; }
      catch (error) {
        line.textContent = `✗ ${name}: ${error.message}`;
        line.className = "bad";
        verdict = "does not hold";
        break;
      }
    }
    list.dataset.verdict = verdict;
    button.disabled = false;
  }
  button.addEventListener("click", run);
})();
