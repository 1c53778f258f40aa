import type { Client, Input, Mechanism, Report } from "./privopt-client.mjs";

/**
 * A place to store reports. `get` resolves to undefined or null if nothing has been stored; `set` resolves once the
 * state is stored durably.
 */
export interface Storage {
  get(): Promise<unknown>;
  set(state: unknown): Promise<void>;
}

/** The options of a policy. */
export interface Options {
  /** Where reports are stored; by default, in the storage that `sealed` returns for the release. */
  storage?: Storage;
  /**
   * When a report is repeated. "predictive", the default for predictive releases: as long as a private test finds the
   * last report accurate enough. "time", the default for others: until the next slot of `hours` hours begins, by the
   * clock. "place": whenever the position is in the same cell. "nothing": never.
   */
  keep?: "predictive" | "time" | "place" | "nothing";
  /** The length, in hours, of the slots in which "time" repeats a report; 24 by default. */
  hours?: number;
  /** The distance from a cell's centre, in km, within which "place" repeats its report too; 0 by default. */
  km?: number;
  /** The largest number of reports drawn per period; 30 by default. After that, the last one is repeated. */
  limit?: number;
  /** The period, in UTC; "month" by default. */
  per?: "day" | "week" | "month";
  /** The largest number of hours by which the clock may be set back; 72 by default. report() rejects earlier times. */
  backHours?: number;
}

/** A report as a policy returns it. */
export interface Given {
  report: Report;
  /** Whether the report is new rather than repeated. */
  drawn: boolean;
  /** The number of reports that may still be drawn in this period. */
  left: number;
}

/** A policy that decides when to draw a new report and when to repeat an old one. */
export class Policy {
  constructor(mechanism: Mechanism | Client, options?: Options);
  /** Whether policies and pages may share a storage. False without `navigator.locks`; a second policy then throws. */
  readonly canShareStorage: boolean;
  /** Returns the report for an input at the time `now`, in milliseconds since 1970; by default, the current time. */
  report(input: Input, now?: number): Promise<Given>;
}

/** Thrown if the stored state is incomplete, was changed, or belongs to another release. */
export class LostReportsError extends Error {}

/** Returns a storage that lasts as long as the page is open. */
export function inMemory(): Storage;

/**
 * Returns the storage with a given name in IndexedDB, encrypted with a key that the browser does not reveal to scripts.
 * Calls with the same name return the same object.
 */
export function sealed(name: string): Storage;
