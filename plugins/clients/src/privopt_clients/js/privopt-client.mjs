// privopt client: opens mechanism.bin and draws reports on the device.
//
// docs/reference/client.md documents the format and how reports are drawn. All arithmetic is on integers: doubles below
// 2^53, and BigInts for larger ones. A draw visits every entry of its row and every place, whatever the secret is.

const MAGIC = [0x50, 0x52, 0x49, 0x56, 0x4f, 0x50, 0x54, 2]; // "PRIVOPT" and the version
const DIGEST = 32; // bytes of SHA-256
const START = MAGIC.length + DIGEST;

const ROWS = 1; // kinds of mechanism: whole rows,
const COLUMNS = 2; // a weight a place with a graph,
const EVERYWHERE = 3; // whole rows of a region's vertices,
const PREDICTIVE = 4; // and whole rows with the numbers of a test
const WORD = 8; // bytes of entropy of a report from a whole row
const TOTAL = 1n << 63n;
const ROOM = 2 ** -49; // relative, around squares in doubles
const NEAR = 2 ** -40; // the same, around squared distances from sides
const HALF_TURN = 1800000000; // 180 degrees in units of 1e-7

// These are indexed by the kind of places: 0 for ids alone, 1 for degrees, 2 for a plane.
const DEGREES = 1;
const UNITS = [0, 10000000, 1000000]; // integer units in a degree, in a kilometre
const NAMES = [[], ["lat", "lon"], ["x", "y"]];
const LIMITS = [[], [[-90, 90], [-180, 360]], [[-1000, 1000], [-1000, 1000]]];

/** Thrown if the bytes are not an artefact, or were changed after the export. */
export class DamagedArtefactError extends Error {}

/** Thrown if a position is outside the region that the release covers, where a report would be useless. */
export class OutsideRegionError extends RangeError {}

/**
 * Opens an artefact, after checking its digest. A damaged file is rejected before any report is drawn.
 *
 * `sha256` is the digest of the whole file, as `privopt export` prints it. An attacker who changes the file can adapt
 * the digest inside it, but not this one.
 */
export async function open(bytes, sha256) {
  const data = new Uint8Array(bytes).slice(); // a copy: nobody can change the bytes after they were checked
  if (sha256 !== undefined && hex(await digest(data)) !== sha256.toLowerCase()) {
    throw damaged("have the SHA-256 asked for, got another: fetch it again");
  }
  const summed = data.length < START ? new Uint8Array(DIGEST) : await digest(data.subarray(START));
  const stated = data.subarray(MAGIC.length, START);
  if (MAGIC.some((byte, at) => data[at] !== byte) || hex(summed) !== hex(stated)) {
    throw damaged("be as it was written, got changed bytes: fetch it again");
  }
  return new Mechanism(new Reader(data.subarray(START)));
}

class Mechanism {
  #records; #outputs; #numbers; #mechanism; #reach;

  constructor(reader) {
    const [kind, places, own, reported] = [reader.byte(), reader.byte(), reader.byte(), reader.byte()];
    if (kind < ROWS || kind > PREDICTIVE || places > 2 || own > 1 || reported > 2) {
      throw damaged(`be of kind 1 to 4, got ${[kind, places, own, reported]}: update the client`);
    }
    [this.promise, this.release, this.proof] = [reader.text(), reader.text(), reader.text()];
    const [records, outputs] = [reader.whole(), reader.whole()];
    this.#reach = reader.long();
    this.#records = reader.places(places, records);
    this.#outputs = own ? reader.places(reported, outputs) : this.#records;
    this.#numbers = new Map(this.#records.ids.map((id, row) => [id, row]));
    if (kind === COLUMNS && (own || outputs !== records)) {
      throw damaged("report its records by column weights: export again");
    }
    this.#mechanism = kind === COLUMNS ? new Columns(reader, records) : new Rows(reader, records, outputs);
    if (kind === EVERYWHERE) {
      this.#mechanism = new Everywhere(reader, this.#mechanism.rows, places === DEGREES, this.#reach);
    }
    this.prediction = kind === PREDICTIVE ? reader.prediction(records * outputs) : undefined;
    reader.end();
    Object.freeze(this);
  }

  /** The ids of the records. */
  get ids() {
    return [...this.#records.ids];
  }

  /** The names of the records' coordinates: lat and lon, or x and y; empty if records have no coordinates. */
  get names() {
    return [...NAMES[this.#records.kind]];
  }

  /** The positions of the records, in degrees or km; empty if records have no coordinates. */
  get positions() {
    const { ids, kind, points } = this.#records;
    const unit = UNITS[kind];
    return kind === 0 ? [] : ids.map((_, row) => [points[2 * row] / unit, points[2 * row + 1] / unit]);
  }

  /** The number of bytes of entropy that report() reads per attempt. */
  get entropy() {
    return this.#mechanism.entropy;
  }

  /** Returns whether report() accepts an input: the id of a record, or a position within the artefact's reach. */
  covers(input) {
    try {
      return this.#where(input).length > 0;
    } catch {
      return false;
    }
  }

  /** Returns the id of the record nearest to an input, which names a public cell. It is as secret as the input. */
  cell(input) {
    this.#where(input); // refuses what is outside
    if (typeof input === "string") return input.normalize("NFC");
    return this.#records.ids[nearest(this.#records, ...this.#inUnits(input)).row];
  }

  /** Returns the distance, in steps, from an input's record to an output. It is as secret as the input. */
  steps(input, output) {
    const { ids } = this.#outputs, column = ids.indexOf(output);
    if (column < 0) throw new RangeError("a kept report must be one of this artefact's, got another: remove it");
    return BigInt(this.prediction.steps[this.#where(input)[0][0] * ids.length + column]);
  }

  /** Draws a report for the id of a record or for a position, using the device's random generator. */
  report(input) {
    const where = this.#where(input);
    let output;
    do {
      output = this.#mechanism.draw(where, crypto.getRandomValues(new Uint8Array(this.entropy)));
    } while (output < 0);
    return this.#reported(output);
  }

  /** Draws a report from the given bytes. They must be uniform and never be reused, or the guarantee is void. */
  reportFrom(input, entropy) {
    const where = this.#where(input);
    const least = this.#mechanism.block;
    if (!(entropy instanceof Uint8Array) || entropy.length < least) {
      throw new RangeError(`entropy must be a Uint8Array of ${least} bytes at least, got ${entropy?.length}`);
    }
    const output = this.#mechanism.draw(where, entropy);
    if (output < 0) {
      throw new RangeError("entropy must have a usable block, got none: give more blocks");
    }
    return this.#reported(output);
  }

  /** Returns the rows from which an input's report is drawn, with their shares: one, or those around a position. */
  #where(input) {
    if (typeof input === "string") {
      const row = this.#numbers.get(input.normalize("NFC")); // the form of all ids
      if (row === undefined) throw new RangeError("the secret must be the id of a record, got another text");
      return [[row, 1n]];
    }
    const [first, second] = this.#inUnits(input);
    if (this.#mechanism.at) return this.#mechanism.at(first, second);
    const { row, square } = nearest(this.#records, first, second);
    if (square > this.#reach ** 2n) throw outside();
    return [[row, 1n]];
  }

  /** Converts a position to the artefact's integer units. */
  #inUnits(position) {
    const { kind } = this.#records;
    if (kind === 0) {
      throw new RangeError("the secret must be the id of a record, got a position: these records have none");
    }
    const within = (axis) => Number.isFinite(position[axis])
      && LIMITS[kind][axis][0] <= position[axis] && position[axis] <= LIMITS[kind][axis][1];
    if (!Array.isArray(position) || position.length !== 2 || !within(0) || !within(1)) {
      const [one, other] = LIMITS[kind].map((limits) => limits.join(" and "));
      throw new RangeError(`the secret must be an id, or two numbers between ${one}, ${other}, got another position`);
    }
    const [a, b] = position.map((number) => Math.floor(number * UNITS[kind] + 0.5));
    return [a, kind === DEGREES && b >= HALF_TURN ? b - 2 * HALF_TURN : b];
  }

  #reported(output) {
    const { ids, kind, points } = this.#outputs;
    const place = NAMES[kind].map((name, axis) => [name, points[2 * output + axis] / UNITS[kind]]);
    return { id: ids[output], ...Object.fromEntries(place) };
  }
}

/** A mechanism stored as whole rows, whose weights sum to 2^63. */
class Rows {
  constructor(reader, records, outputs) {
    this.entropy = this.block = WORD;
    this.rows = Array.from({ length: records }, () => BigUint64Array.from({ length: outputs }, () => reader.long()));
    if (this.rows.some((row) => row.reduce((sum, weight) => sum + weight, 0n) !== TOTAL)) {
      throw damaged("have rows that sum to 2^63, got another sum: export again");
    }
  }

  /** Returns the index of the output that the upper 63 bits of a word select. */
  draw([[row]], entropy) {
    const word = new DataView(entropy.buffer, entropy.byteOffset, WORD).getBigUint64(0, true);
    return indexBelow(word >> 1n, this.rows[row]); // the lowest bit is dropped
  }
}

/** A mechanism with one weight per place: row i has weights X_k T[D_ik], where D_ik are path lengths in steps. */
class Columns {
  #weights; #after; #table;

  constructor(reader, records) {
    const [factor, top, longest] = [reader.long(), reader.long(), reader.whole()];
    this.block = reader.byte();
    const tries = reader.byte() + 256 * reader.byte();
    const edges = reader.whole();
    if (this.block === 0 || tries === 0) {
      throw damaged("have blocks of entropy, got none: export again");
    }
    const [tails, heads, steps] = [0, 1, 2].map(() => Array.from({ length: edges }, () => reader.whole()));
    this.#weights = Array.from({ length: records }, () => BigInt(reader.whole()));
    this.#after = Array.from({ length: records }, () => []);
    for (let edge = 0; edge < edges; edge += 1) {
      const [tail, head] = [tails[edge], heads[edge]];
      if (tail >= records || head >= records) {
        throw damaged("have edges between its places, got another edge: export again");
      }
      this.#after[tail].push([head, steps[edge]]);
      this.#after[head].push([tail, steps[edge]]);
    }
    this.#table = [top];
    for (let step = 0; step < longest; step += 1) {
      this.#table.push((this.#table[step] * factor + 0xffffffffffffffffn) >> 64n);
    }
    this.entropy = this.block * tries;
  }

  /** Returns the output that the first block below the row's sum selects, or -1 if there is no such block. */
  draw([[row]], entropy) {
    const steps = this.#stepsFrom(row);
    return drawByBlocks(steps.map((step, place) => this.#weights[place] * this.#table[step]), this.block, entropy, 1n);
  }

  /** Returns the length of the shortest path to each place. A place is revisited whenever a shorter path is found. */
  #stepsFrom(row) {
    const found = new Array(this.#after.length).fill(Infinity);
    found[row] = 0;
    const waiting = new Set([row]); // in the order in which they came
    for (const place of waiting) {
      waiting.delete(place);
      for (const [other, steps] of this.#after[place]) {
        if (found[place] + steps < found[other]) {
          found[other] = found[place] + steps;
          waiting.add(other);
        }
      }
    }
    if (found.some((steps) => steps >= this.#table.length)) {
      throw damaged("connect all its places, got one out of reach: export again");
    }
    return found;
  }
}

/** A mechanism for a region: a position's row is the sum of the rows for the vertices around it, times integers. */
class Everywhere {
  #rows; #steps; #earth; #triangles; #sides; #whole; #reaches; #reach;

  constructor(reader, rows, degrees, reach) {
    [this.#rows, this.#reach] = [rows, reach];
    const corners = reader.byte();
    this.#steps = BigInt(reader.byte());
    this.entropy = this.block = reader.byte() + 256 * reader.byte();
    this.#earth = degrees && [reader.signed(), reader.signed(), reader.long(), reader.long()];
    const vertices = rows.map((_, row) => ({ row, x: reader.signed(), y: reader.signed() }));
    const groups = (size) =>
      Array.from({ length: reader.whole() }, () => Array.from({ length: size }, () => vertices[reader.whole()]));
    const [simplices, rim] = [groups(corners), groups(2)];
    this.#triangles = corners === 3 ? simplices : [];
    this.#sides = corners === 2 ? simplices : rim;
    if ((corners !== 2 && corners !== 3) || !this.#sides.length || [...simplices, ...rim].flat().includes(undefined)) {
      throw damaged("have streets or triangles, got others: export again");
    }
    this.#whole = this.#steps ? reader.large() : 1n;
    this.#reaches = this.#steps ? simplices.map(() => reader.large()) : [];
  }

  /** Returns the rows that are mixed at a position in integer units, each with its integer share. */
  at(first, second) {
    const at = this.#inMillimetres(first, second);
    for (const corners of this.#triangles) {
      const shares = insideShares(corners, at);
      if (shares) {
        return corners.map(({ row }, corner) => [row, shares[corner]]);
      }
    }
    const { side, gone, length, square } = nearestSide(this.#sides, at);
    if (square > this.#reach ** 2n * length) throw outside();
    const [share, of] = this.#steps ? this.#curved(gone, length, this.#reaches[side]) : [gone, length];
    return [[this.#sides[side][0].row, of - share], [this.#sides[side][1].row, share]];
  }

  draw(where, entropy) {
    const weights = Array.from(this.#rows[0], (_, k) =>
      where.reduce((sum, [row, share]) => sum + share * this.#rows[row][k], 0n));
    const fit = (1n << BigInt(8 * this.block)) / weights.reduce((sum, weight) => sum + weight, 0n);
    return drawByBlocks(weights, this.block, entropy, fit);
  }

  #inMillimetres(first, second) {
    if (!this.#earth) {
      return { x: first, y: second };
    }
    const [south, middle, east, north] = this.#earth;
    const scaled = (units, scale) => Number((BigInt(units) * scale + 0x800000n) >> 24n);
    const turns = Math.floor((second - middle + HALF_TURN) / (2 * HALF_TURN));
    return { x: scaled(second - middle - 2 * HALF_TURN * turns, east), y: scaled(first - south, north) };
  }

  /** Converts a position along a street to the S-shaped share of its far end, a ratio of integers. */
  #curved(gone, length, reach) {
    if (2n * gone > length) {
      const [near, of] = this.#curved(length - gone, length, reach);
      return [of - near, of];
    }
    if (reach === 0n) {
      return [gone, length];
    }
    const n = this.#steps;
    const d = 2n * n * this.#whole;
    const pieces = (2n * n * gone) / length;
    const piece = pieces < n ? pieces : n - 1n;
    const rest = 2n * n * gone - piece * length;
    const risen = (d + reach) ** piece * (length * d + rest * reach) - length * d ** (piece + 1n);
    return [risen * d ** (n - 1n - piece), 2n * length * ((d + reach) ** n - d ** n)];
  }
}

/** Returns a point's barycentric coordinates times twice the triangle's area; undefined outside the triangle. */
function insideShares([a, b, c], at) {
  const beyond = (axis) =>
    at[axis] < Math.min(a[axis], b[axis], c[axis]) || at[axis] > Math.max(a[axis], b[axis], c[axis]);
  if (beyond("x") || beyond("y")) {
    return undefined;
  }
  const twice = (p, q) => BigInt(p.x - at.x) * BigInt(q.y - at.y) - BigInt(p.y - at.y) * BigInt(q.x - at.x);
  const shares = [twice(b, c), twice(c, a), twice(a, b)];
  return shares.every((share) => share >= 0n) ? shares : undefined;
}

/** Returns the side nearest to a point, the first if several tie, and the position of the nearest point along it. */
function nearestSide(sides, at) {
  let reach = 0;
  const squares = sides.map(([a, b]) => { // in doubles
    const [tx, ty, wx, wy] = [a.x - at.x, a.y - at.y, b.x - a.x, b.y - a.y];
    const length = wx * wx + wy * wy;
    const gone = length ? Math.min(Math.max(-(tx * wx + ty * wy) / length, 0), 1) : 0;
    reach = Math.max(reach, length);
    return (tx + gone * wx) ** 2 + (ty + gone * wy) ** 2;
  });
  const least = squares.reduce((low, square) => Math.min(low, square));
  let best;
  squares.forEach((square, side) => {
    if (square <= least + (least + reach) * NEAR) { // whole numbers decide
      const foot = footOn(sides[side], at);
      if (!best || foot.square * best.length < best.square * foot.length) {
        best = { side, ...foot };
      }
    }
  });
  return best;
}

/** Returns the position of a side's nearest point as a fraction, and the squared distance times its denominator. */
function footOn([a, b], at) {
  const [tx, ty, wx, wy] = [a.x - at.x, a.y - at.y, b.x - a.x, b.y - a.y].map(BigInt);
  const [length, along, square] = [wx * wx + wy * wy, -(tx * wx + ty * wy), tx * tx + ty * ty];
  if (length === 0n) {
    return { gone: 0n, length: 1n, square };
  }
  const gone = along < 0n ? 0n : along < length ? along : length;
  return { gone, length, square: square * length - 2n * gone * along + gone * gone };
}

/**
 * Returns the output that the first accepted block of entropy selects, or -1 if all are rejected. Each unit of weight
 * corresponds to the same number of block values; all further values are rejected.
 */
function drawByBlocks(weights, size, entropy, each) {
  const sum = weights.reduce((so, weight) => so + weight, 0n);
  if (each === 0n || sum > 1n << BigInt(8 * size)) {
    throw damaged("have rows that a block of entropy covers, got a larger sum: export again");
  }
  for (let start = 0; start + size <= entropy.length; start += size) {
    const bytes = Uint8Array.from(entropy.subarray(start, start + size)).reverse(); // the last byte counts most
    const number = BigInt(`0x${hex(bytes)}`) / each;
    if (number < sum) {
      return indexBelow(number, weights);
    }
  }
  return -1;
}

/** Returns the number of cumulative weights that are at most a number below their sum. All weights are visited. */
function indexBelow(number, weights) {
  let [above, index] = [0n, 0];
  for (const weight of weights) {
    above += weight;
    index += above <= number;
  }
  return index;
}

/** Returns the place nearest to a position in integer units, the first if several tie, and its squared distance. */
function nearest(places, a, b) {
  const { ids, kind, points, cosines } = places;
  let best = 0;
  let least = Infinity;
  let [leastUp, leastAcross] = [0, 0];
  for (let row = 0; row < ids.length; row += 1) {
    const up = a - points[2 * row];
    let across = b - points[2 * row + 1];
    if (kind === DEGREES) {
      across += 2 * HALF_TURN * ((across < -HALF_TURN) - (across >= HALF_TURN));
      across = Math.floor((across * cosines[row]) / 65536); // below 2^53: degrees east as long as at the place
    }
    const square = up * up + across * across; // off by 2^-51 of itself at most; nearer to another, whole numbers decide
    const surely = square < least * (1 - ROOM);
    const perhaps = !surely && square <= least * (1 + ROOM);
    if (surely || (perhaps && squared(up, across) < squared(leastUp, leastAcross))) {
      best = row;
      least = square;
      [leastUp, leastAcross] = [up, across];
    }
  }
  return { row: best, square: squared(leastUp, leastAcross) };
}

function squared(up, across) {
  return BigInt(up) * BigInt(up) + BigInt(across) * BigInt(across);
}

/** A sequential reader for the parts of an artefact, which are little-endian. */
class Reader {
  #view; #at = 0;

  constructor(bytes) {
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  #take(count) {
    const at = this.#at;
    if (at + count > this.#view.byteLength) {
      throw damaged("be complete, got fewer bytes than it announces: export again");
    }
    this.#at += count;
    return at;
  }

  byte() {
    return this.#view.getUint8(this.#take(1));
  }

  whole() {
    return this.#view.getUint32(this.#take(4), true);
  }

  long() {
    return this.#view.getBigUint64(this.#take(8), true);
  }

  signed() {
    return this.#view.getInt32(this.#take(4), true);
  }

  /** Reads an integer of arbitrary size, stored as a one-byte length followed by that many bytes. */
  large() {
    const size = this.byte();
    return Array.from({ length: size }, () => BigInt(this.byte())).reduceRight((sum, byte) => sum * 256n + byte, 0n);
  }

  /** Reads a string, stored as its length in bytes followed by UTF-8. */
  text() {
    const count = this.whole();
    const bytes = new Uint8Array(this.#view.buffer, this.#view.byteOffset + this.#take(count), count);
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  }

  /** Reads places: their ids, two coordinates each unless they are ids alone, and for degrees cosines of latitudes. */
  places(kind, count) {
    const ids = Array.from({ length: count }, () => this.text());
    const points = Array.from({ length: kind === 0 ? 0 : 2 * count }, () => this.signed());
    const cosines = Array.from({ length: kind === DEGREES ? count : 0 }, () => this.whole());
    return { ids, kind, points, cosines };
  }

  /** Reads the parameters, in steps, of the test that decides whether to repeat the last report. */
  prediction(count) {
    const [good, ...rates] = Array.from({ length: 5 }, () => this.long());
    const steps = Uint32Array.from({ length: count }, () => this.whole());
    return { good, threshold: rates.slice(0, 2), test: rates.slice(2), steps };
  }

  end() {
    if (this.#at !== this.#view.byteLength) {
      throw damaged("end with its last row, got more bytes: export again");
    }
  }
}

function outside() {
  return new OutsideRegionError("the secret must lie in the region of this release, got a position outside");
}

function damaged(wanted) {
  return new DamagedArtefactError(`mechanism.bin must ${wanted}`);
}

async function digest(bytes) {
  if (!globalThis.crypto?.subtle) {
    throw new Error("crypto.subtle must be there to check mechanism.bin, got a page without it: serve it over https");
  }
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
}

function hex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
