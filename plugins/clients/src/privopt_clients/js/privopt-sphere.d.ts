import type { Client } from "./privopt-client.mjs";

/** A rule that rounds positions to reports, as `nearestOf` in privopt-points.mjs returns it. */
export interface Rounding {
  decide(disc: unknown): unknown;
  report(output: unknown): { id: string; lat: number; lon: number };
}

/** The reports: decimal digits of degrees (0 to 9), grid cells whose side in degrees divides 90, or points. */
export type Outputs = { digits: number } | { grid: number | string } | Rounding;

/**
 * Returns a client for any position on Earth, without an artefact. Throws RangeError if an argument is out of range.
 *
 * @param epsilon Epsilon, from "1e-6/km" to "1e6/km". At "1.4/km", reports are off by 1.4 km on average.
 * @param outputs The rule that rounds positions to reports.
 */
export function fromEpsilon(epsilon: string, outputs: Outputs): Client;
