// What tests ask of the sphere's modules, in node and in a browser.

/** Returns the reports of cases, in lines of JSON, one line each; or the fastest milliseconds of a draw. */
export function replaySphere({ fromEpsilon, nearestOf, cases, draws }) {
  const clients = new Map();
  const clientOf = ({ epsilon, kind, argument, remap }) => {
    const key = JSON.stringify([epsilon, kind, argument, remap]);
    if (!clients.has(key)) {
      clients.set(key, fromEpsilon(epsilon, kind === "points" ? nearestOf(argument, remap) : { [kind]: argument }));
    }
    return clients.get(key);
  };
  if (draws) {
    const client = clientOf(cases[0]);
    let least = Infinity;
    for (let batch = 0; batch < 10; batch += 1) { // other programs of the machine take time too
      const start = performance.now();
      for (let draw = 0; draw < draws / 10; draw += 1) client.report(cases[0].position);
      least = Math.min(least, performance.now() - start);
    }
    return String((least * 10) / draws);
  }
  return cases.map((given) => JSON.stringify(Object.values(reportOf(clientOf(given), given)))).join("\n");
}

/** Returns a report from exactly the bytes that it takes: with one byte less there must be none. */
function reportOf(client, { position, entropy, size }) {
  const bytes = Uint8Array.from(entropy.match(/../g), (pair) => parseInt(pair, 16));
  try {
    client.reportFrom(position, bytes.subarray(0, size - 1));
  } catch {
    return client.reportFrom(position, bytes.subarray(0, size));
  }
  return ["took fewer bytes"];
}
