// privopt prediction: gives the last report again while a private test finds it good, else draws a new one.
//
// The test is the sparse vector technique: a segment has one noisy threshold, and each test noise of its own. Whole
// numbers, comparisons and rejection alone (Canonne, Kamath and Steinke 2020, Algorithms 1 and 2). The same bytes lead
// to the same reports as in `privopt apply`. What it promises: docs/guide/repeated.md, Prediction.

const BYTES = 8; // of a word, the least first
const WORDS = 1n << 64n; // so many words there are

/**
 * Goes on with a trace, `{ report, level }`: the last report, undefined before the first, and the noisy threshold of
 * the running segment, undefined where none runs. Returns the trace after a report for `input`.
 *
 * `read` gives so many bytes, each time new ones: uniform and never used again, or nothing is promised.
 */
export function nextReport(mechanism, { report, level }, input, read = fromDevice) {
  const { good, threshold, test } = mechanism.prediction;
  if (report !== undefined) {
    const reached = level === undefined ? good + geometric(read, threshold) : BigInt(level);
    const over = reached - mechanism.steps(input, report.id);
    if (over > 0n && !falls(read, over, test)) {
      return { report, level: String(reached) };
    }
  }
  return { report: mechanism.reportFrom(input, read(BYTES)), level: undefined };
}

function fromDevice(count) {
  return crypto.getRandomValues(new Uint8Array(count));
}

/** A uniform number from 0 to bound - 1, without a bias: words that do not divide evenly are refused. */
function below(read, bound) {
  const refused = WORDS % bound;
  for (;;) {
    const word = read(BYTES).reduceRight((sum, byte) => sum * 256n + BigInt(byte), 0n);
    if (word >= refused) {
      return word % bound;
    }
  }
}

/** Whether an event of probability exp(-u / t) happens, for 0 <= u <= t (Algorithm 1). */
function survives(read, u, t) {
  for (let k = 1n; ; k += 1n) {
    if (below(read, t * k) >= u) {
      return k % 2n === 1n;
    }
  }
}

/** Whether an event of probability exp(-steps s / t) happens: a product, and the first factor that fails ends it. */
function falls(read, steps, [s, t]) {
  const each = t / s;
  for (let left = steps; left > 0n; left -= each) {
    if (!survives(read, (left < each ? left : each) * s, t)) {
      return false;
    }
  }
  return true;
}

/** A draw with P(m) proportional to exp(-m s / t), m >= 0 (Algorithm 2 without the sign). */
function geometric(read, [s, t]) {
  for (;;) {
    const u = below(read, t);
    if (survives(read, u, t)) {
      let v = 0n;
      while (survives(read, 1n, 1n)) {
        v += 1n;
      }
      return (u + t * v) / s;
    }
  }
}
