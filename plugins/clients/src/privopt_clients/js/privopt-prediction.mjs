// privopt prediction: repeats the last report as long as a private test finds it accurate enough, else draws a new one.
//
// The test is the sparse vector technique: a segment has one noisy threshold, and each test has noise of its own. Noise
// is sampled exactly in integers (Canonne, Kamath and Steinke 2020, Algorithms 1 and 2). The same bytes lead to the
// same reports as in `privopt apply`. The guarantee is in docs/guide/repeated.md, "Prediction".

const BYTES = 8; // of a word, the least first
const WORDS = 1n << 64n; // so many words there are

/**
 * Returns the trace after the next report, which is the last report again or a new one drawn for `input`.
 *
 * A trace is `{ report, level }`: the last report, undefined before the first one, and the noisy threshold of the
 * current segment, undefined between segments. `read` returns the requested number of bytes. They must be uniform and
 * never be reused, or the guarantee is void.
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

/** Draws a uniform integer from 0 to bound - 1. The lowest words are rejected, so that there is no bias. */
function below(read, bound) {
  const refused = WORDS % bound;
  for (;;) {
    const word = read(BYTES).reduceRight((sum, byte) => sum * 256n + BigInt(byte), 0n);
    if (word >= refused) {
      return word % bound;
    }
  }
}

/** Returns true with probability exp(-u / t), for 0 <= u <= t (Algorithm 1). */
function survives(read, u, t) {
  for (let k = 1n; ; k += 1n) {
    if (below(read, t * k) >= u) {
      return k % 2n === 1n;
    }
  }
}

/** Returns true with probability exp(-steps s / t), as a product of events of which the first failure decides. */
function falls(read, steps, [s, t]) {
  const each = t / s;
  for (let left = steps; left > 0n; left -= each) {
    if (!survives(read, (left < each ? left : each) * s, t)) {
      return false;
    }
  }
  return true;
}

/** Draws m >= 0 with a probability proportional to exp(-m s / t) (Algorithm 2 without the sign). */
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
