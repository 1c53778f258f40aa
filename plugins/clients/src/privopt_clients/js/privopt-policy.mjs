// privopt policy: decides, for one person over years, when a new report is drawn and when an old one is repeated, with
// a limit per period. A report is stored before it is returned. The theorem is in docs/reference/client.md.

import { nextReport } from "./privopt-prediction.mjs";

const HOUR = 3600000; // milliseconds
const LAST_TIME = Date.UTC(9999, 11, 31); // later times are of another unit: microseconds, nanoseconds
const KM_PER_DEGREE = 111.19;

/** Thrown if the stored state is incomplete, was changed, or belongs to another release. */
export class LostReportsError extends Error {}

/** Returns a storage that lasts as long as the page is open. */
export function inMemory() {
  let held;
  return {
    get: async () => held,
    set: async (state) => {
      held = structuredClone(state);
    },
  };
}

const sealedStorages = new Map();

/** Returns the storage of a given name in IndexedDB, encrypted with a key that the browser hides from scripts. */
export function sealed(name) {
  if (!sealedStorages.has(name)) {
    sealedStorages.set(name, makeSealed(name));
  }
  return sealedStorages.get(name);
}

function makeSealed(name) {
  const parts = (store) => ["key", "state"].map((part) => store.get(part));
  return {
    async get() {
      const [key, state] = await within(name, "readonly", parts);
      if (key === undefined && state === undefined) {
        return undefined; // a first use, or all is lost: nobody can tell
      }
      try {
        const text = await crypto.subtle.decrypt({ name: "AES-GCM", iv: state.iv }, key, state.data);
        return JSON.parse(new TextDecoder().decode(text));
      } catch {
        throw new LostReportsError("kept reports must be complete, got a part: remove this site's data to begin again");
      }
    },
    async set(given) {
      const [stored] = await within(name, "readonly", parts);
      const uses = ["encrypt", "decrypt"];
      const key = stored ?? (await crypto.subtle.generateKey({ name: "AES-GCM", length: 256 }, false, uses));
      const iv = crypto.getRandomValues(new Uint8Array(12));
      const text = new TextEncoder().encode(JSON.stringify(given));
      const data = await crypto.subtle.encrypt({ name: "AES-GCM", iv }, key, text);
      await within(name, "readwrite", (store) => [store.put(key, "key"), store.put({ iv, data }, "state")]);
    },
  };
}

/** Runs the requests that `act` makes in one transaction, and resolves to their results once they are durable. */
async function within(name, mode, act) {
  const base = await new Promise((done, failed) => {
    const asked = indexedDB.open(name, 1);
    asked.onupgradeneeded = () => asked.result.createObjectStore("parts");
    asked.onsuccess = () => done(asked.result);
    asked.onerror = () => failed(asked.error);
  });
  try {
    return await new Promise((done, failed) => {
      const running = base.transaction("parts", mode, { durability: "strict" });
      const asked = act(running.objectStore("parts"));
      running.oncomplete = () => done(asked.map((one) => one.result));
      running.onabort = () => failed(running.error);
    });
  } finally {
    base.close();
  }
}

// The storages in use by this page's policies, if pages and policies cannot wait for one another.
const takenStorages = new WeakSet();

/**
 * A policy that decides when to draw a new report and when to repeat an old one.
 *
 * With `keep` "predictive", the default for predictive releases, the last report is repeated as long as a private test
 * finds it accurate enough. With "time", the default for others, one report is drawn per slot of `hours` hours. With
 * "place", a cell's first report is repeated whenever the position is in the cell or within `km` of its centre. With
 * "nothing", each call draws. At most `limit` reports are drawn per period `per` ("day", "week" or "month", in UTC);
 * after that, the last one is repeated. The clock may be set back by at most `backHours`, which reopens no period.
 *
 * Policies with the same storage wait for one another by means of `navigator.locks`. If this is missing,
 * `canShareStorage` is false, and a second policy with the same storage is rejected.
 */
export class Policy {
  #mechanism;
  #options;
  #name;
  #turn = Promise.resolve();

  constructor(mechanism, { storage, keep, hours = 24, km = 0, limit = 30, per = "month", backHours = 72 } = {}) {
    const predictive = mechanism.prediction !== undefined;
    const chosen = keep ?? (predictive ? "predictive" : "time");
    if (!["predictive", "time", "place", "nothing"].includes(chosen) || !["day", "week", "month"].includes(per)) {
      const wanted = 'be "predictive", "time", "place" or "nothing", and per "day", "week" or "month"';
      throw new RangeError(`keep must ${wanted}, got others`);
    }
    if (chosen === "predictive" && !predictive) {
      throw new RangeError('keep must not be "predictive" for this release: solve predictive and export that');
    }
    const areNumbers = [hours, km, backHours].every((value) => typeof value === "number");
    if (!(areNumbers && Number.isSafeInteger(limit) && limit > 0 && hours > 0 && km >= 0 && backHours >= 0)) {
      const wanted = "a whole number of 1 or more, hours above 0, km and backHours 0 or more";
      throw new RangeError(`limit must be ${wanted}, got others`);
    }
    if (chosen === "place" && km > 0 && (mechanism.isCell || !mechanism.positions.length)) {
      throw new RangeError("km must be omitted if cells are not records with positions");
    }
    this.#name = `privopt ${mechanism.release}`;
    this.#mechanism = mechanism;
    this.#options = { storage: storage ?? sealed(this.#name), keep: chosen, hours, km, limit, per, backHours };
    if (!this.canShareStorage) {
      if (takenStorages.has(this.#options.storage)) {
        throw new RangeError("storage must have one policy if there is no navigator.locks, got a second one");
      }
      takenStorages.add(this.#options.storage);
    }
  }

  /** Whether other policies and pages may use the storage too, because `navigator.locks` makes them wait. */
  get canShareStorage() {
    return globalThis.navigator?.locks !== undefined;
  }

  /**
   * Returns a report as `{ report, drawn, left }`: `drawn` is whether it is new, and `left` is the number of reports
   * that may still be drawn in this period.
   *
   * `now` is the time in milliseconds since 1970. A RangeError is thrown if it is invalid or too far back.
   */
  report(input, now = Date.now()) {
    if (typeof now !== "number" || !(now >= 0 && now <= LAST_TIME)) {
      return Promise.reject(new RangeError("now must be milliseconds since 1970, a number, got another value"));
    }
    const next = this.#turn.then(() =>
      this.canShareStorage // another page of this site waits too
        ? navigator.locks.request(this.#name, () => this.#next(input, now))
        : this.#next(input, now));
    this.#turn = next.catch(() => undefined);
    return next;
  }

  async #next(input, now) {
    const { storage, keep, hours, limit, per, backHours } = this.#options;
    const release = this.#mechanism.release;
    const state = (await storage.get()) ?? { release, time: 0, drawn: 0, kept: [] };
    checkState(state, this.#mechanism);
    if (now < state.time - backHours * HOUR) {
      const wanted = `at most ${backHours} hours before the last report's time`;
      throw new RangeError(`now must be ${wanted}, got an earlier one: is the clock right?`);
    }
    const time = Math.max(now, state.time); // a clock that is set back opens no period and no slot again
    const drawn = periodOf(time, per) === periodOf(state.time, per) ? state.drawn : 0;
    if (keep === "predictive") {
      return this.#predicted(input, state, time, drawn);
    }
    const slot = (moment) => Math.floor(moment / (hours * HOUR));
    const cell = this.#mechanism.cell(input);
    const again = keep === "place" ? state.kept.find((kept) => kept.cell && this.#near(kept.cell, input, cell))
      : keep === "time" && slot(time) === slot(state.time) ? state.kept.at(-1) : undefined;
    const spent = drawn >= limit ? state.kept.at(-1) : undefined;
    if (again ?? spent) {
      return { report: (again ?? spent).report, drawn: false, left: Math.max(limit - drawn, 0) };
    }
    const report = this.#mechanism.report(input);
    const kept = keep === "place" ? [...state.kept, { cell, report }] : [{ report }];
    await storage.set({ release, time, drawn: drawn + 1, kept });
    return { report, drawn: true, left: limit - drawn - 1 };
  }

  /** Continues the period's trace. A segment is counted before its first test, with the report that ends it. */
  async #predicted(input, state, time, drawn) {
    const { storage, limit } = this.#options;
    const before = drawn > 0 ? state.kept.at(-1) : {}; // each period begins with a new report
    const begins = before.level === undefined;
    if (begins && drawn >= limit) {
      return { report: before.report, drawn: false, left: 0 };
    }
    const { report, level } = nextReport(this.#mechanism, before, input);
    const counted = drawn + begins;
    // This is written at each call, so that a storage that fails to write does not reveal the test's result.
    await storage.set({ release: state.release, time, drawn: counted, kept: [{ report, level }] });
    return { report, drawn: level === undefined, left: limit - counted };
  }

  /** Returns whether an input is in a stored cell or near its centre. Cells are public, so no home is a centre. */
  #near(kept, input, cell) {
    const { ids, positions, names } = this.#mechanism;
    if (kept === cell || typeof input === "string" || !this.#options.km) {
      return kept === cell;
    }
    const [first, second] = positions[ids.indexOf(kept)];
    if (names[0] !== "lat") {
      return Math.hypot(input[0] - first, input[1] - second) <= this.#options.km;
    }
    const east = ((((input[1] - second + 180) % 360) + 360) % 360) - 180;
    const across = east * Math.cos((first * Math.PI) / 180);
    return KM_PER_DEGREE * Math.hypot(input[0] - first, across) <= this.#options.km;
  }
}

/**
 * Rejects a state that no policy for this release has stored, because its count of drawn reports may be wrong.
 *
 * A report that was counted is always stored, so that it can be repeated once the limit is reached.
 */
function checkState(state, mechanism) {
  const names = ["release", "time", "drawn", "kept"];
  const hasKeys = isPlain(state) && hasOnly(state, names) && Object.keys(state).length === names.length;
  if (hasKeys && typeof state.release === "string" && state.release !== mechanism.release) {
    throw new LostReportsError("kept reports must be of this release, got another's: remove them to begin again");
  }
  const isWhole = hasKeys && state.release === mechanism.release && Number.isFinite(state.time) && state.time >= 0
    && state.time <= LAST_TIME && Number.isSafeInteger(state.drawn) && state.drawn >= 0 && Array.isArray(state.kept)
    && state.drawn > 0 === state.kept.length > 0 && Array.from(state.kept).every((entry) => isKept(entry, mechanism));
  if (!isWhole) {
    throw new LostReportsError("kept reports must be as a policy stored them, got changes: remove them to begin again");
  }
}

/** Returns whether an entry is a report, with the cell in which it was drawn or with its segment's threshold. */
function isKept(entry, mechanism) {
  if (!isPlain(entry) || !hasOnly(entry, ["report", "cell", "level"]) || !isPlain(entry.report)) {
    return false;
  }
  const { id, ...place } = entry.report;
  const { cell, level } = entry;
  const isCell = mechanism.isCell ?? ((text) => mechanism.ids.includes(text)); // cells of a sphere are no records
  return typeof id === "string" && Object.values(place).every(Number.isFinite)
    && (cell === undefined || (typeof cell === "string" && isCell(cell)))
    && (level === undefined || (typeof level === "string" && /^\d+$/.test(level)));
}

function isPlain(value) {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function hasOnly(value, names) {
  return Object.keys(value).every((name) => names.includes(name));
}

/** Returns the index of the day, week (from Monday) or month in UTC that contains a time. */
function periodOf(now, per) {
  const day = Math.floor(now / (24 * HOUR));
  const date = new Date(now);
  return { day, week: Math.floor((day + 3) / 7), month: 12 * date.getUTCFullYear() + date.getUTCMonth() }[per];
}
