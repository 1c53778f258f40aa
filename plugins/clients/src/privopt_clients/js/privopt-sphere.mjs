// privopt sphere: reports for any position on Earth, drawn exactly on the device, without an artefact.
//
// The noise around x has the density exp(-epsilon d(x, y)) / Z: an angle G^-1(U) and a bearing 2 pi V, of whose uniform
// U and V n bits are read. The possible positions lie in a disc; n is doubled until all of it rounds to one output.
// The same bytes give the same report as in Python. Proof: docs/reference/proof.md, "The sphere".
// A number x is an integer near x 2^w; `/` rounds towards 0, `>>` down.

/** Returns a client for an epsilon such as "1.4/km", and { digits }, { grid } or nearestOf() of privopt-points. */
export const fromEpsilon = (epsilon, outputs) => new Sphere(epsilon, outputs);

class Sphere {
  #rate; #side; #rounding;

  constructor(epsilon, outputs) {
    const number = /^\s*(\S+?)\s*\/\s*km\s*$/.exec(epsilon)?.[1];
    const [n, d] = toFraction(number);
    if (n * 1000000n < d || n > d * 1000000n) {
      throw new RangeError('epsilon must be a text from "1e-6/km" to "1e6/km", such as "1.4/km"');
    }
    this.#rate = [n * 63710088n, d * 10000n]; // times the radius, 6371.0088 km
    this.#side = 1 / (111.19 * number);
    this.#rounding = makeRounding(outputs);
    const { points = [], name = JSON.stringify(outputs) } = this.#rounding;
    this.promise = `Whatever else is known, a report is at most exp(${number} d) times as likely from one `
      + `position on Earth as from another d km away, twice at ${(0.69 / number).toPrecision(4)} km.`;
    this.release = `spherical-laplace ${Number(number)}/km ${name}`;
    this.proof = "";
    this.names = ["lat", "lon"];
    this.ids = points.map(({ id }) => id);
    this.positions = points.map(({ lat, lon }) => [lat, lon]);
    this.entropy = 16;
    Object.freeze(this);
  }

  covers(input) {
    return Boolean(this.#find(input));
  }

  /** A square of 1 / epsilon km, narrower far from the equator. */
  cell(input) {
    return this.#position(input).map((degrees) => Math.floor(degrees / this.#side)).join();
  }

  /** Whether a text is a cell. */
  isCell(text) {
    return /^-?\d+,-?\d+$/.test(text);
  }

  report(input) {
    return this.#draw(input, () => crypto.getRandomValues(new BigUint64Array(1))[0]);
  }

  reportFrom(input, entropy) {
    let start = -8;
    return this.#draw(input, () => {
      start += 8;
      if (entropy instanceof Uint8Array && start + 8 <= entropy.length) {
        return new DataView(entropy.buffer, entropy.byteOffset + start, 8).getBigUint64(0, true);
      }
      throw new RangeError("entropy must be a Uint8Array of 16 bytes, rarely more, got fewer");
    });
  }

  #draw(input, word) {
    const place = this.#position(input).map(exactly);
    const append = (number, n) => (n ? append((number << 64n) | word(), n - 64n) : number);
    for (let [n, u, v] = [64n, word(), word()]; ; n *= 2n) {
      const output = this.#rounding.decide(locate(u, v, n, place, this.#rate));
      if (output) return this.#rounding.report(output);
      [u, v] = [append(u, n), append(v, n)];
    }
  }

  #position(input) {
    const position = this.#find(input);
    if (position) return position;
    throw new RangeError("the secret must be a latitude and a longitude in degrees, got another");
  }

  #find(input) {
    const [lat, lon, ...more] = this.positions[this.ids.indexOf(input)] ?? (Array.isArray(input) ? input : []);
    return isPosition(lat, lon) && !more.length ? [lat, lon > 180 ? lon - 360 : lon] : undefined;
  }
}

export function isPosition(lat, lon) {
  return [lat, lon].every(Number.isFinite) && Math.abs(lat) <= 90 && lon >= -180 && lon <= 360;
}

function makeRounding(outputs = {}) {
  if (outputs.decide) return outputs;
  const { digits, grid } = outputs;
  const [n, d] = toFraction(grid);
  if (Object.keys(outputs).length === 1) {
    if (/^\d$/.test(digits)) return new Cells(1n, 10n ** BigInt(digits), digits);
    if (n * 1000000000n >= d && (90n * d) % n === 0n) return new Cells(n, d);
  }
  throw new RangeError("outputs must have digits (0 to 9) or grid (degrees that divide 90), got others");
}

/** Degrees rounded to digits, or cells of a grid by row from the south and column from -180; n / d is their side. */
class Cells {
  constructor(n, d, digits) {
    const isGrid = digits === undefined;
    Object.assign(this, { n, d, digits, offsets: isGrid ? [180n * d, 360n * d] : [n, n] });
    [this.lastRow, this.origin] = isGrid ? [(180n * d) / n - 1n, 0n] : [90n * d, 180n * d];
  }

  decide(disc) {
    const { n, d, origin, offsets: [south, west] } = this;
    const cell = (offset) => (bound) => floorDivide(2n * d * bound + (offset << disc.w), (2n * n) << disc.w);
    const [bounds, cosine] = boundsOfLatitude(disc);
    const [row, other] = bounds.map(cell(south)).map((number) => min(number, this.lastRow));
    if (row !== other) return undefined;
    if (origin && abs(row) === 90n * d) return [row, 0n]; // a pole has one longitude
    const [column, last] = boundsOfLongitude(disc, cosine).map(cell(west));
    return column === last ? [row, modulo(column + origin, (360n * d) / n) - origin] : undefined;
  }

  report(output) {
    if (this.origin) {
      const [lat, lon] = output.map((number) => Number(number) / Number(this.d));
      return { id: [lat, lon].map((degrees) => degrees.toFixed(this.digits)).join(), lat, lon };
    }
    const [lat, lon] = output.map((number) => Number((2n * number + 1n) * this.n) / Number(2n * this.d));
    return { id: output.join("-"), lat: lat - 90, lon: lon - 180 };
  }
}

/** Returns bounds of the latitude in degrees, and the centre's distance from the axis. */
function boundsOfLatitude({ w, east, north, up, radius }) {
  const cosine = squareRoot(east * east + north * north);
  const latitude = toDegrees(arctangent(up, cosine, w), w);
  const [margin, pole] = [60n * radius + 512n * w, 90n << w];
  return [[-min(margin - latitude, pole), min(latitude + margin, pole)], cosine];
}

/** Returns bounds of the longitude, far apart near a pole. */
function boundsOfLongitude({ w, east, north, radius, longitude: [n, d] }, cosine) {
  if (4n * radius > cosine) return [0n, 180n << w];
  const longitude = floorDivide(n << w, d) + toDegrees(arctangent(east, north, w), w);
  const margin = 60n * (((2n * radius) << w) / cosine) + 512n * w;
  return [longitude - margin, longitude + margin];
}

/** Returns a disc with all positions for U in [u, u + 1] / 2^n and V in [v, v + 1] / 2^n. */
function locate(u, v, n, [latitude, longitude], rate) {
  const w = n + 96n;
  const [angle, width] = invert(u, n, rate, w);
  const [sine, cosine] = sineCosine(angle, w);
  const [middle, quarter] = [2n * v + 1n, 1n << (n - 1n)]; // of the bearing's turn
  let [aside, outward] = sineCosine(((middle % quarter) * pi(w)) >> n, w);
  for (let turns = middle / quarter; turns; turns -= 1n) [aside, outward] = [outward, -aside];
  const [latSine, latCosine] = sineCosineOfDegrees(latitude, w);
  outward = (sine * outward) >> w;
  return {
    w,
    longitude,
    east: (sine * aside) >> w,
    north: (cosine * latCosine - outward * latSine) >> w,
    up: (cosine * latSine + outward * latCosine) >> w,
    radius: width + ((angle * pi(w)) >> (w + n)) + (w << 8n),
  };
}

/** Returns an angle and a width within which G^-1 of [u, u + 1] / 2^n lies. */
function invert(u, n, [a, b], w) {
  const [halfTurn, one, steepness] = [pi(w), 1n << w, a * a + b * b];
  const total = one + expMinus((a * halfTurn) / b, w);
  const evaluate = (angle) => { // 1 - exp(-lambda t) (cos t + lambda sin t), and sin(t) exp(-lambda t)
    const [sine, cosine] = sineCosine(angle, w);
    const decay = expMinus((a * angle) / b, w);
    return [one - ((decay * (cosine + floorDivide(a * sine, b))) >> w), (decay * sine) >> w];
  };
  const target = ((2n * u + 1n) * total) >> (n + 1n);
  let [lower, upper, slope] = [0n, halfTurn, 0n];
  let angle = min((b << w) / a, halfTurn >> 1n); // near the mode of the density
  for (let step = 0; step < 256; step += 1) {
    const [value, density] = evaluate(angle);
    slope = floorDivide(density * steepness, b * b);
    const excess = value - target;
    if (abs(excess) <= 1n << (w - n - 2n)) break;
    if (excess > 0n) upper = angle;
    else lower = angle;
    const next = slope > 0n ? angle - floorDivide(excess << w, slope) : -1n;
    angle = lower < next && next < upper ? next : (lower + upper) >> 1n;
  }
  // Newton's steps prove nothing; the signs of G - U at both ends do.
  let width = slope > 0n ? (2n << (2n * w - n)) / slope + 1n : halfTurn;
  const [first, last] = [((u * total) >> n) - (w << 40n), (((u + 1n) * total) >> n) + (w << 40n)];
  while (!((angle <= width || evaluate(angle - width)[0] <= first)
    && (angle + width >= halfTurn || evaluate(angle + width)[0] >= last))) width *= 2n;
  return [angle, width];
}

const logTwo = cached((w) => (2n * inverseSeries(3n, w, 1n)) >> 16n);
const pi = cached((w) => (4n * (4n * inverseSeries(5n, w, -1n) - inverseSeries(239n, w, -1n))) >> 16n);

export function cached(compute) {
  const results = new Map();
  return (w) => results.get(w) ?? results.set(w, compute(w)).get(w);
}

/** Returns artanh(1/n) for sign 1, arctan(1/n) for sign -1, with 16 more bits. */
function inverseSeries(n, w, sign) {
  let power = (1n << (w + 16n)) / n;
  let total = power;
  for (let k = 3n; power; k += 2n) {
    power /= n * n;
    total += sign ** (k / 2n) * (power / k);
  }
  return total;
}

function expMinus(exponent, w) {
  const [halvings, rest] = [exponent / logTwo(w), exponent % logTwo(w)];
  let [term, total] = [1n << w, 1n << w];
  for (let k = 1n; term && halvings <= w; k += 1n) {
    term = ((term * rest) >> w) / k;
    total += k & 1n ? -term : term;
  }
  return halvings > w ? 0n : total >> halvings;
}

/** Returns sine and cosine of an angle from 0 to pi. */
function sineCosine(angle, w) {
  const square = (angle * angle) >> w;
  let [sine, sineTerm, cosine, cosineTerm] = [angle, angle, 1n << w, 1n << w];
  for (let k = 2n; cosineTerm || sineTerm; k += 2n) {
    cosineTerm = ((cosineTerm * square) >> w) / (k * (k - 1n));
    sineTerm = ((sineTerm * square) >> w) / (k * (k + 1n));
    cosine += k & 2n ? -cosineTerm : cosineTerm;
    sine += k & 2n ? -sineTerm : sineTerm;
  }
  return [sine, cosine];
}

export function sineCosineOfDegrees([n, d], w) {
  const [sine, cosine] = sineCosine((abs(n) * pi(w)) / (180n * d), w);
  return [n < 0n ? -sine : sine, cosine];
}

/** Returns the angle of (x, y), as atan2 does. */
function arctangent(y, x, w) {
  const [high, wide] = [abs(y), abs(x)];
  let tangent = (min(high, wide) << w) / (high > wide ? high : wide || 1n);
  for (let step = 0; step < 3; step += 1) { // arctan(z) = 2 arctan(z / (1 + sqrt(1 + z^2)))
    tangent = (tangent << w) / ((1n << w) + squareRoot((1n << (2n * w)) + tangent * tangent));
  }
  const square = (tangent * tangent) >> w;
  let [total, power] = [tangent, tangent];
  for (let k = 3n; power; k += 2n) {
    power = (power * square) >> w;
    total += k & 2n ? -(power / k) : power / k;
  }
  let angle = total << 3n;
  if (high > wide) angle = (pi(w) >> 1n) - angle;
  if (x < 0n) angle = pi(w) - angle;
  return y < 0n ? -angle : angle;
}

const toDegrees = (angle, w) => floorDivide((angle * 180n) << w, pi(w));

/** Returns a square root, rounded down. */
export function squareRoot(square) {
  let [root, next] = [0n, 1n << BigInt(2 * square.toString(16).length)];
  do {
    root = next;
    next = (root + square / root) >> 1n; // Newton's step, from above
  } while (next < root);
  return root;
}

const floorDivide = (a, b) => a / b - (a < 0n && a % b ? 1n : 0n);
const modulo = (a, b) => ((a % b) + b) % b;
const abs = (a) => (a < 0n ? -a : a);
export const min = (a, b) => (b < a ? b : a);

/** Returns a double as a fraction. */
export function exactly(number) {
  let d = 1n;
  for (; !Number.isInteger(number); number *= 2) d *= 2n;
  return [BigInt(number), d];
}

/** Returns a decimal text as a fraction, or 0. */
function toFraction(text) {
  const [, whole = 0, decimals = "", exponent = 0] = /^(\d+)\.?(\d*)(?:e([+-]?\d\d?))?$/i.exec(text) ?? [];
  const power = Number(exponent) - decimals.length;
  return [BigInt(whole + decimals) * 10n ** BigInt(Math.max(power, 0)), 10n ** BigInt(Math.max(-power, 0))];
}
