// privopt client of fl-linear: a location's noisy count, drawn on the device, as the line that the server collects.
//
// The noise is the discrete Laplace distribution of scale 1 / epsilon, drawn exactly (Canonne, Kamath and Steinke 2020,
// Algorithms 1 and 2): whole numbers, comparisons and rejection alone. From the same bytes privopt.numbers.laplace draws
// the same number, and the line has the same bytes as that of `privopt-fl-linear report`.

const FORMAT = "privopt-fl-linear/1";
const WORD = 8; // bytes, the least first
const TWO_64 = 1n << 64n;
const LARGEST_TERM = 1n << 40n; // of epsilon as a fraction: products stay below 2^64, as in Python
const MOST_CLIENTS = 1e12;
const DECIMAL = /^\d{1,7}(\.\d{1,20})?$/;
const ONE_LINE = /^(?:[^\p{C}\p{Z}]| )+$/u;

/** The given bytes have an end that comes before the draw's. */
export class EntropySpentError extends Error {}

/**
 * Draws a location's report from the device's generator: the line to send, and nothing else may leave.
 *
 * A second report of the same round spends a second epsilon: `reportOnce` keeps the first.
 */
export function report(asked) {
  return line(checked(asked), new Words((size) => crypto.getRandomValues(new Uint8Array(size))));
}

/** The same from given bytes, which must be uniform and never used again, or nothing is promised. */
export function reportFrom(asked, entropy) {
  let at = 0;
  return line(checked(asked), new Words((size) => {
    if (at + size > entropy.length) {
      throw new EntropySpentError(`entropy must have more than ${entropy.length} bytes: give more`);
    }
    at += size;
    return entropy.subarray(at - size, at);
  }));
}

/**
 * The line of a round: the one that was sent before, or a new one, kept in `store` before it is returned.
 *
 * `store` has getItem and setItem, as localStorage has.
 */
export function reportOnce(asked, store) {
  const own = checked(asked);
  const key = `${FORMAT} ${JSON.stringify([own.location, own.round])}`;
  const kept = store.getItem(key);
  if (kept === null || kept === undefined) {
    const made = report(asked);
    store.setItem(key, made);
    return made;
  }
  if (JSON.parse(kept).epsilon !== own.epsilon) {
    throw new RangeError("epsilon must be that of the round's first report, got another");
  }
  return kept;
}

/** What was asked, in the form in which a message states it. */
function checked({ location, clients, epsilon, round }) {
  for (const text of [location, round]) {
    if (typeof text !== "string" || !ONE_LINE.test(text) || !/[^ ]/.test(text)) {
      throw new RangeError("location and round must be texts of one line");
    }
  }
  if (!Number.isInteger(clients) || clients < 0 || clients > MOST_CLIENTS) {
    throw new RangeError("clients must be a whole number from 0 to 1e12"); // what is there is secret
  }
  if (typeof epsilon !== "string" || !DECIMAL.test(epsilon)) {
    throw new RangeError(`epsilon must be the text of a decimal like "0.1", got ${epsilon}`);
  }
  const [whole, parts = ""] = epsilon.split(".");
  let [up, down] = [BigInt(whole + parts), 10n ** BigInt(parts.length)];
  const common = divisor(up, down);
  [up, down] = [up / common, down / common];
  if (up * 10n ** 10n < down || up > down * 10n ** 6n || up > LARGEST_TERM || down > LARGEST_TERM) {
    throw new RangeError(`epsilon must be from 1e-10 to 1e6, a fraction of terms up to 2^40, got ${epsilon}`);
  }
  const left = whole.replace(/^0+(?=\d)/, "");
  const right = parts.replace(/0+$/, "");
  const strip = (text) => text.replace(/^ +| +$/g, "");
  return {
    location: strip(location), round: strip(round), clients, epsilon: right ? `${left}.${right}` : left, up, down,
  };
}

/** The greatest common divisor of a number and one above 0. */
function divisor(a, b) {
  while (a) {
    [a, b] = [b % a, a];
  }
  return b;
}

/** The message, as Python's json writes it. */
function line({ location, round, clients, epsilon, up, down }, words) {
  const noisy = BigInt(clients) + laplace(words, up, down);
  const told = [["format", FORMAT], ["location", location], ["round", round], ["epsilon", epsilon], ["noise", "discrete"]];
  const texts = told.map(([name, text]) => `"${name}": ${JSON.stringify(text)}`);
  return `{${[...texts, `"noisy_clients": ${noisy}`].join(", ")}}`;
}

/** Uniform whole numbers of a stream of bytes. */
class Words {
  #read;

  constructor(read) {
    this.#read = read;
  }

  /** A uniform number from 0 to bound - 1, without a bias: words that do not divide evenly are refused. */
  below(bound) {
    const refused = (TWO_64 - bound) % bound;
    for (;;) {
      const word = this.#read(WORD).reduceRight((sum, byte) => sum * 256n + BigInt(byte), 0n);
      if (word >= refused) {
        return word % bound;
      }
    }
  }
}

/** Whether an event of probability exp(-u / t) happens, for 0 <= u <= t (Algorithm 1). */
function survives(words, u, t) {
  for (let k = 1n; ; k += 1n) {
    if (words.below(t * k) >= u) {
      return k % 2n === 1n;
    }
  }
}

/** A draw with P(v) proportional to exp(-|v| s / t) (Algorithm 2). */
function laplace(words, s, t) {
  for (;;) {
    const u = words.below(t);
    if (!survives(words, u, t)) {
      continue;
    }
    let v = 0n;
    while (survives(words, 1n, 1n)) {
      v += 1n;
    }
    const size = (u + t * v) / s;
    if (words.below(2n) === 0n) {
      return size;
    }
    if (size !== 0n) {
      return -size;
    }
  }
}
