// privopt client of fl-linear: a location's noisy count, drawn on the device, as the line that the server collects.
//
// The noise has the discrete Laplace distribution of scale 1 / epsilon. It is drawn exactly, using only integers,
// comparisons and rejection (Canonne, Kamath and Steinke 2020, Algorithms 1 and 2). Given the same bytes,
// privopt.numbers.laplace draws the same number, and `privopt-fl-linear report` writes the same line, byte for byte.

const FORMAT = "privopt-fl-linear/1";
const WORD = 8; // bytes per word, in little-endian order
const TWO_64 = 1n << 64n;
const LARGEST_TERM = 1n << 40n; // largest numerator and denominator of epsilon: products stay below 2^64, as in Python
const MOST_CLIENTS = 1e12; // largest count that a location can have
const DECIMAL = /^\d{1,7}(\.\d{1,20})?$/;
const ONE_LINE = /^(?:[^\p{C}\p{Z}]| )+$/u;

/** Thrown if a draw needs more bytes than were given. */
export class EntropySpentError extends Error {}

/**
 * Draws a location's report with the device's random generator, and returns the line to send.
 *
 * Only this line may leave the device. `request` has the strings `location`, `epsilon` (a decimal) and `round`, and the
 * integer `clients`, which is secret. A second report in the same round spends epsilon again; `reportOnce` repeats the
 * first one instead.
 */
export function report(request) {
  return line(check(request), new Words((size) => crypto.getRandomValues(new Uint8Array(size))));
}

/** Draws a report as `report` does, from given bytes. For privacy they must be uniformly random and used only once. */
export function reportFrom(request, entropy) {
  let offset = 0;
  return line(check(request), new Words((size) => {
    if (offset + size > entropy.length) {
      throw new EntropySpentError(`entropy must have more than ${entropy.length} bytes: give more`);
    }
    offset += size;
    return entropy.subarray(offset - size, offset);
  }));
}

/**
 * Returns the line that was sent in a round, or a new one, which is stored in `store` before it is returned.
 *
 * `store` has the methods getItem and setItem of localStorage.
 */
export function reportOnce(request, store) {
  const fields = check(request);
  const key = `${FORMAT} ${JSON.stringify([fields.location, fields.round])}`;
  const sentLine = store.getItem(key);
  if (sentLine === null || sentLine === undefined) {
    const newLine = report(request);
    store.setItem(key, newLine);
    return newLine;
  }
  // A second line with another epsilon would spend both budgets.
  if (JSON.parse(sentLine).epsilon !== fields.epsilon) {
    throw new RangeError("epsilon must be that of the round's first report, got another");
  }
  return sentLine;
}

/**
 * Checks a request, and returns its fields in the format of a message.
 *
 * The result also has epsilon as a reduced fraction, `up` / `down`. Throws a RangeError if a field is invalid.
 */
function check({ location, clients, epsilon, round }) {
  for (const text of [location, round]) {
    if (typeof text !== "string" || !ONE_LINE.test(text) || !/[^ ]/.test(text)) {
      throw new RangeError("location and round must be texts of one line");
    }
  }
  if (!Number.isInteger(clients) || clients < 0 || clients > MOST_CLIENTS) {
    throw new RangeError("clients must be a whole number from 0 to 1e12"); // the value is secret, so it is not quoted
  }
  if (typeof epsilon !== "string" || !DECIMAL.test(epsilon)) {
    throw new RangeError(`epsilon must be the text of a decimal like "0.1", got ${epsilon}`);
  }
  const [whole, parts = ""] = epsilon.split(".");
  let [up, down] = [BigInt(whole + parts), 10n ** BigInt(parts.length)];
  const common = greatestDivisor(up, down);
  [up, down] = [up / common, down / common];
  if (up * 10n ** 10n < down || up > down * 10n ** 6n || up > LARGEST_TERM || down > LARGEST_TERM) {
    throw new RangeError(`epsilon must be from 1e-10 to 1e6, a fraction of terms up to 2^40, got ${epsilon}`);
  }
  // Python writes a decimal without leading and trailing zeros.
  const left = whole.replace(/^0+(?=\d)/, "");
  const right = parts.replace(/0+$/, "");
  const strip = (text) => text.replace(/^ +| +$/g, "");
  return {
    location: strip(location), round: strip(round), clients, epsilon: right ? `${left}.${right}` : left, up, down,
  };
}

/** Returns the greatest common divisor of a number a >= 0 and a number b > 0, by Euclid's algorithm. */
function greatestDivisor(a, b) {
  while (a) {
    [a, b] = [b % a, a];
  }
  return b;
}

/** Draws the noise, and returns the message in the format of Python's json module. */
function line({ location, round, clients, epsilon, up, down }, words) {
  const noisy = BigInt(clients) + laplace(words, up, down);
  const entries = [["format", FORMAT], ["location", location], ["round", round], ["epsilon", epsilon], ["noise", "discrete"]];
  const texts = entries.map(([name, text]) => `"${name}": ${JSON.stringify(text)}`);
  return `{${[...texts, `"noisy_clients": ${noisy}`].join(", ")}}`;
}

/** Draws uniform whole numbers from a stream of bytes. `read(size)` returns the next `size` bytes. */
class Words {
  #read;

  constructor(read) {
    this.#read = read;
  }

  /**
   * Returns a uniform number from 0 to bound - 1.
   *
   * The lowest 2^64 mod bound words are rejected, so that equally many words remain for each number.
   */
  below(bound) {
    const rejected = (TWO_64 - bound) % bound;
    for (;;) {
      const word = this.#read(WORD).reduceRight((sum, byte) => sum * 256n + BigInt(byte), 0n);
      if (word >= rejected) {
        return word % bound;
      }
    }
  }
}

/** Returns true with probability exp(-u / t), for 0 <= u <= t (Algorithm 1). */
function survives(words, u, t) {
  // The first k at which a draw of probability u / (t k) fails is odd with probability exp(-u / t).
  for (let k = 1n; ; k += 1n) {
    if (words.below(t * k) >= u) {
      return k % 2n === 1n;
    }
  }
}

/** Returns a draw with P(v) proportional to exp(-|v| s / t) (Algorithm 2). */
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
    // u + t v is geometric with rate 1 / t; its quotient by s, rounded down, has the rate s / t.
    const size = (u + t * v) / s;
    if (words.below(2n) === 0n) {
      return size;
    }
    // A negative 0 is rejected, because 0 would otherwise be twice as likely.
    if (size !== 0n) {
      return -size;
    }
  }
}
