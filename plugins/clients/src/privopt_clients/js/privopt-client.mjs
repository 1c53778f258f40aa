// privopt client: opens mechanism.bin and draws reports on the device.
//
// The format and the rules of drawing are documented in docs/reference/client.md. All arithmetic is on whole numbers:
// doubles stay below 2^53, 64-bit words are two halves of 32 bits, and what is larger is a BigInt. A draw looks at
// every entry of its row and at every place, whichever the secret is.

const MAGIC = [0x50, 0x52, 0x49, 0x56, 0x4f, 0x50, 0x54, 1]; // "PRIVOPT" and the version
const DIGEST = 32; // bytes of SHA-256
const START = MAGIC.length + DIGEST;

const ROWS = 1; // kinds of mechanism: whole rows,
const COLUMNS = 2; // and a weight a place with a graph
const WORD = 8; // bytes of entropy of a report from a whole row
const TWO_32 = 4294967296;
const ROOM = 2 ** -49; // relative, around squares in doubles
const HALF_TURN = 1800000000; // 180 degrees in units of 1e-7

// By kind of places: 0 ids alone, 1 degrees, 2 a plane.
const DEGREES = 1;
const UNITS = [0, 10000000, 1000000]; // integer units in a degree, in a kilometre
const NAMES = [[], ["lat", "lon"], ["x", "y"]];
const LIMITS = [[], [[-90, 90], [-180, 360]], [[-1000, 1000], [-1000, 1000]]];

/** Bytes that are no artefact, or not as they were written. */
export class DamagedArtefactError extends Error {}

/**
 * Reads an artefact; a change of any bit is found before anything can be drawn.
 *
 * `sha256` is that of the whole file as `privopt export` said it: whoever changes the file can make its inner sum fit
 * again, but not this one.
 */
export async function open(bytes, sha256) {
  // A copy: nobody can change the bytes after they were checked.
  const data = bytes instanceof ArrayBuffer
    ? new Uint8Array(bytes.slice(0))
    : Uint8Array.from(new Uint8Array(bytes.buffer, bytes.byteOffset, bytes.byteLength));
  if (sha256 !== undefined && hex(await digest(data)) !== sha256.toLowerCase()) {
    throw new DamagedArtefactError("mechanism.bin must have the SHA-256 asked for, got another: fetch it again");
  }
  const summed = data.length < START ? new Uint8Array(DIGEST) : await digest(data.subarray(START));
  const stated = data.subarray(MAGIC.length, START);
  if (MAGIC.some((byte, at) => data[at] !== byte) || hex(summed) !== hex(stated)) {
    throw new DamagedArtefactError("mechanism.bin must be as it was written, got changed bytes: fetch it again");
  }
  return new Mechanism(new Reader(data.subarray(START)));
}

class Mechanism {
  #records;
  #outputs;
  #numbers;
  #mechanism;

  constructor(reader) {
    const [kind, places, own, reported] = [reader.byte(), reader.byte(), reader.byte(), reader.byte()];
    if ((kind !== ROWS && kind !== COLUMNS) || places > 2 || own > 1 || reported > 2) {
      throw new DamagedArtefactError(
        `mechanism.bin must be of kind 1 or 2, got ${[kind, places, own, reported]}: update the client`,
      );
    }
    this.promise = reader.text();
    this.release = reader.text();
    this.proof = reader.text();
    const records = reader.whole();
    const outputs = reader.whole();
    this.#records = reader.places(places, records);
    this.#outputs = own ? reader.places(reported, outputs) : this.#records;
    this.#numbers = new Map(this.#records.ids.map((id, row) => [id, row]));
    if (kind === COLUMNS && (own || outputs !== records)) {
      throw new DamagedArtefactError("mechanism.bin must report its records by column weights: export again");
    }
    this.#mechanism = kind === ROWS ? new Rows(reader, records, outputs) : new Columns(reader, records);
    reader.end();
    Object.freeze(this);
  }

  /** Ids of the records. */
  get ids() {
    return [...this.#records.ids];
  }

  /** Names of the records' coordinates: lat and lon, x and y, or none. */
  get names() {
    return [...NAMES[this.#records.kind]];
  }

  /** Positions of the records, degrees or km; none where they have none. */
  get positions() {
    const { ids, kind, points } = this.#records;
    const unit = UNITS[kind];
    return kind === 0 ? [] : ids.map((_, row) => [points[2 * row] / unit, points[2 * row + 1] / unit]);
  }

  /** Bytes of entropy that report() takes. */
  get entropy() {
    return this.#mechanism.entropy;
  }

  /** Draws a report for the id of a record or for a position, from the device's generator. */
  report(input) {
    const row = this.#rowOf(input);
    for (;;) {
      const output = this.#mechanism.draw(row, crypto.getRandomValues(new Uint8Array(this.entropy)));
      if (output >= 0) {
        return this.#reported(output);
      }
    }
  }

  /** The same from given bytes, which must be uniform and never used again, or nothing is promised. */
  reportFrom(input, entropy) {
    const row = this.#rowOf(input);
    const least = this.#mechanism.block;
    if (!(entropy instanceof Uint8Array) || entropy.length < least) {
      throw new RangeError(`entropy must be a Uint8Array of ${least} bytes at least, got ${entropy?.length}`);
    }
    const output = this.#mechanism.draw(row, entropy);
    if (output < 0) {
      throw new RangeError("entropy must have a block that counts, got none: give more blocks");
    }
    return this.#reported(output);
  }

  #rowOf(input) {
    if (typeof input === "string") {
      const row = this.#numbers.get(input);
      if (row === undefined) {
        throw new RangeError("the secret must be the id of a record, got another text");
      }
      return row;
    }
    if (this.#records.kind === 0) {
      throw new RangeError("the secret must be the id of a record, got a position: these records have none");
    }
    if (!Array.isArray(input) || input.length !== 2) {
      throw new RangeError("the secret must be the id of a record or an array of two numbers");
    }
    return nearest(this.#records, input[0], input[1]);
  }

  #reported(output) {
    const { ids, kind, points } = this.#outputs;
    const report = { id: ids[output] };
    NAMES[kind].forEach((name, axis) => {
      report[name] = points[2 * output + axis] / UNITS[kind];
    });
    return report;
  }
}

/** Whole rows of weights that sum to 2^63, as two halves of 32 bits each. */
class Rows {
  #low;
  #high;
  #count;

  constructor(reader, records, outputs) {
    this.entropy = WORD;
    this.block = WORD;
    this.#low = new Uint32Array(records * outputs);
    this.#high = new Uint32Array(records * outputs);
    this.#count = outputs;
    for (let at = 0; at < records * outputs; at += 1) {
      this.#low[at] = reader.whole();
      this.#high[at] = reader.whole();
    }
    for (let row = 0; row < records; row += 1) {
      let low = 0;
      let high = 0;
      for (let at = row * outputs; at < (row + 1) * outputs; at += 1) {
        low += this.#low[at];
        high += this.#high[at];
      }
      if (low % TWO_32 !== 0 || high + low / TWO_32 !== 0x80000000) {
        throw new DamagedArtefactError("mechanism.bin must have rows that sum to 2^63, got another sum: export again");
      }
    }
  }

  /** Returns the index that a word of 63 bits answers to: how many cumulated weights are at most that word. */
  draw(row, entropy) {
    const view = new DataView(entropy.buffer, entropy.byteOffset, WORD);
    const top = view.getUint32(4, true);
    const wordLow = ((view.getUint32(0, true) >>> 1) | ((top & 1) << 31)) >>> 0; // the lowest bit is dropped
    const wordHigh = top >>> 1;
    let low = 0;
    let high = 0;
    let index = 0;
    for (let at = row * this.#count; at < (row + 1) * this.#count; at += 1) {
      low += this.#low[at];
      const carry = Math.floor(low / TWO_32);
      low -= carry * TWO_32;
      high += this.#high[at] + carry;
      index += (high < wordHigh) | ((high === wordHigh) & (low <= wordLow));
    }
    return index;
  }
}

/** One weight a place: row i has weight X_k T[D_ik], D in steps along a graph. */
class Columns {
  #weights;
  #after;
  #table;

  constructor(reader, records) {
    const factor = reader.long();
    const top = reader.long();
    const longest = reader.whole();
    this.block = reader.byte();
    const tries = reader.byte() + 256 * reader.byte();
    const edges = reader.whole();
    if (this.block === 0 || tries === 0) {
      throw new DamagedArtefactError("mechanism.bin must have blocks of entropy, got none: export again");
    }
    const [tails, heads, steps] = [0, 1, 2].map(() => Array.from({ length: edges }, () => reader.whole()));
    this.#weights = Array.from({ length: records }, () => BigInt(reader.whole()));
    this.#after = Array.from({ length: records }, () => []);
    for (let edge = 0; edge < edges; edge += 1) {
      const [tail, head] = [tails[edge], heads[edge]];
      if (tail >= records || head >= records) {
        throw new DamagedArtefactError("mechanism.bin must join places, got an edge beyond them: export again");
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

  /** Returns the output that the first block below the row's sum answers to; -1 where no block is. */
  draw(row, entropy) {
    const steps = this.#stepsFrom(row);
    const cumulated = new Array(steps.length);
    let sum = 0n;
    for (let place = 0; place < steps.length; place += 1) {
      sum += this.#weights[place] * this.#table[steps[place]];
      cumulated[place] = sum;
    }
    if (sum > 1n << BigInt(8 * this.block)) {
      throw new Error("mechanism.bin must have rows that a block of entropy covers, got a greater sum: export again");
    }
    for (let start = 0; start + this.block <= entropy.length; start += this.block) {
      const bytes = Uint8Array.from(entropy.subarray(start, start + this.block)).reverse(); // the last byte counts most
      const number = BigInt(`0x${hex(bytes)}`);
      if (number < sum) {
        return cumulated.reduce((index, above) => index + (above <= number), 0);
      }
    }
    return -1;
  }

  /** Returns the steps of the shortest way to each place: Dijkstra, with a heap of steps and places in one number. */
  #stepsFrom(row) {
    const count = this.#after.length;
    const found = new Array(count).fill(-1);
    const heap = [row];
    while (heap.length) {
      const least = takeLeast(heap);
      const [steps, place] = [Math.floor(least / count), least % count];
      if (found[place] < 0) {
        found[place] = steps;
        for (const [other, length] of this.#after[place]) {
          if (found[other] < 0) {
            putInto(heap, (steps + length) * count + other);
          }
        }
      }
    }
    if (found.some((steps) => steps < 0 || steps >= this.#table.length)) {
      throw new DamagedArtefactError("mechanism.bin must join all its places, got one out of reach: export again");
    }
    return found;
  }
}

/** Puts a number into a binary heap. */
function putInto(heap, number) {
  let at = heap.length;
  while (at > 0 && heap[(at - 1) >> 1] > number) {
    heap[at] = heap[(at - 1) >> 1];
    at = (at - 1) >> 1;
  }
  heap[at] = number;
}

/** Takes the least number from a binary heap. */
function takeLeast(heap) {
  const least = heap[0];
  const last = heap.pop();
  let at = 0;
  let child = 1;
  while (child < heap.length) {
    if (child + 1 < heap.length && heap[child + 1] < heap[child]) {
      child += 1;
    }
    if (heap[child] >= last) {
      break;
    }
    heap[at] = heap[child];
    at = child;
    child = 2 * at + 1;
  }
  if (heap.length) {
    heap[at] = last;
  }
  return least;
}

/** Returns the place nearest to a position, the first of several; all are looked at. */
function nearest(places, first, second) {
  const { ids, kind, points, cosines } = places;
  [first, second].forEach((number, axis) => {
    const [lowest, highest] = LIMITS[kind][axis];
    if (typeof number !== "number" || !(number >= lowest && number <= highest)) {
      throw new RangeError(`a position must lie between ${lowest} and ${highest}, got another number`);
    }
  });
  const a = Math.floor(first * UNITS[kind] + 0.5);
  let b = Math.floor(second * UNITS[kind] + 0.5);
  if (kind === DEGREES && b >= HALF_TURN) {
    b -= 2 * HALF_TURN;
  }
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
  return best;
}

function squared(up, across) {
  return BigInt(up) * BigInt(up) + BigInt(across) * BigInt(across);
}

/** Reads one thing after another, little-endian. */
class Reader {
  #view;
  #at = 0;

  constructor(bytes) {
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  #take(count) {
    const at = this.#at;
    if (at + count > this.#view.byteLength) {
      throw new DamagedArtefactError("mechanism.bin must be whole, got fewer bytes than it speaks of: export again");
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

  /** A text: its length in bytes, then UTF-8. */
  text() {
    const count = this.whole();
    const bytes = new Uint8Array(this.#view.buffer, this.#view.byteOffset + this.#take(count), count);
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  }

  /** Ids, then two coordinates each where there are any, then cosines of latitudes where these are degrees. */
  places(kind, count) {
    const ids = Array.from({ length: count }, () => this.text());
    const points = Array.from({ length: kind === 0 ? 0 : 2 * count }, () => this.signed());
    const cosines = Array.from({ length: kind === DEGREES ? count : 0 }, () => this.whole());
    return { ids, kind, points, cosines };
  }

  end() {
    if (this.#at !== this.#view.byteLength) {
      throw new DamagedArtefactError("mechanism.bin must end with its last row, got more bytes: export again");
    }
  }
}

async function digest(bytes) {
  if (!globalThis.crypto?.subtle) {
    throw new Error("crypto.subtle must be there to check mechanism.bin, got a page without it: serve it by https");
  }
  return new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
}

function hex(bytes) {
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}
