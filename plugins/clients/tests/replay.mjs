// What tests ask of the module, in node and in a browser.

/** Returns lines of text; `files` has the bytes of each file that a task reads, by name. */
export async function replay({ open, task, number, files }) {
  const data = files["mechanism.bin"];
  if (task === "bits") {
    return String(await refused(open, data, number));
  }
  const mechanism = await open(data);
  const lines = new TextDecoder().decode(files["inputs.tsv"]).trimEnd().split("\n").map((line) => line.split("\t"));
  const input = (parts) => (parts.length === 1 ? parts[0] : parts.map(Number));
  if (task === "vectors") {
    const reports = lines.map((parts) => mechanism.reportFrom(input(parts.slice(0, -1)), bytesOf(parts.at(-1))));
    return [mechanism.promise, mechanism.release, ...reports.map((report) => Object.values(report).join("\t"))].join("\n");
  }
  const inputs = lines.map(input);
  return task === "hash" ? hashed(mechanism, inputs, files["entropy.bin"], number) : drawn(mechanism, inputs[0], number);
}

/** Returns the SHA-256 of the ids that strings of so many bytes of entropy lead to, over the inputs in turn. */
async function hashed(mechanism, inputs, entropy, size) {
  const ids = [];
  for (let at = 0; at < entropy.length / size; at += 1) {
    try {
      ids.push(mechanism.reportFrom(inputs[at % inputs.length], entropy.subarray(at * size, (at + 1) * size)).id);
    } catch (error) {
      if (!(error instanceof RangeError)) {
        throw error;
      }
      ids.push("no block counts");
    }
  }
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(`${ids.join("\n")}\n`));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Returns how many of so many artefacts with one bit changed are refused: bits that lie evenly over all of it. */
async function refused(open, data, count) {
  const given = data.slice();
  const opened = await open(given);
  given.fill(0); // after it was checked: nothing changes
  let found = opened.report(opened.ids[0]).id === undefined ? -1 : 0;
  for (let at = 0; at < count; at += 1) {
    const bit = Math.floor((at * data.length * 8) / count);
    const changed = new Uint8Array(data);
    changed[bit >> 3] ^= 1 << (bit & 7);
    try {
      await open(changed);
    } catch (error) {
      found += error.message.startsWith("mechanism.bin must be as it was written") ? 1 : 0;
    }
  }
  return found;
}

/**
 * Returns the nanoseconds of a report of one input, and how often each was drawn: in ten batches, of which the fastest
 * counts, for other programs of the machine take time too.
 */
function drawn(mechanism, input, count) {
  const counts = new Map();
  let least = Infinity;
  for (let batch = 0; batch < 10; batch += 1) {
    const began = performance.now();
    for (let n = 0; n < count / 10; n += 1) {
      const { id } = mechanism.report(input);
      counts.set(id, (counts.get(id) ?? 0) + 1);
    }
    least = Math.min(least, performance.now() - began);
  }
  return [Math.round((least * 1e7) / count), ...[...counts].map(([id, times]) => `${times}\t${id}`)].join("\n");
}

function bytesOf(text) {
  return Uint8Array.from(text.match(/../g), (pair) => parseInt(pair, 16));
}
