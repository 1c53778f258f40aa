import type { Client, Input, Mechanism, Report } from "./privopt-client.mjs";

/** Where kept reports lie. `get` gives undefined or null at first; `set` ends when they are durable. */
export interface Storage {
  get(): Promise<unknown>;
  set(state: unknown): Promise<void>;
}

export interface Options {
  /** By default `sealed` under the release's name. */
  storage?: Storage;
  /**
   * "predictive" (default of predictive releases): the last one while a private test finds it good; "time" (default of
   * others): one report for each `hours`; "place": a cell's first, for good; "nothing": each call draws.
   */
  keep?: "predictive" | "time" | "place" | "nothing";
  /** Of a report kept by time; 24 by default. */
  hours?: number;
  /** From a kept cell's centre, within which its report is given again; 0 by default: in the cell alone. */
  km?: number;
  /** Reports that are drawn in a period, at most; 30 by default. After that the last one is given again. */
  limit?: number;
  /** Period, of UTC; "month" by default. */
  per?: "day" | "week" | "month";
  /** How far the clock may be set back; 72 by default. An earlier time is a RangeError. */
  backHours?: number;
}

export interface Given {
  report: Report;
  /** Whether it was drawn now. */
  drawn: boolean;
  /** How many more may be drawn in this period. */
  left: number;
}

export class Policy {
  constructor(mechanism: Mechanism | Client, options?: Options);
  /** Whether policies and pages may share the storage: false without `navigator.locks`, and a second one is refused. */
  readonly canShareStorage: boolean;
  /** `now` is in milliseconds since 1970. */
  report(input: Input, now?: number): Promise<Given>;
}

/** Storage that has only part of what was stored, or was changed, or belongs to another release. */
export class LostReportsError extends Error {}

/** Storage for as long as the page is open. */
export function inMemory(): Storage;

/** Storage in IndexedDB, sealed by a key that the browser keeps and never shows; one object for each name. */
export function sealed(name: string): Storage;
