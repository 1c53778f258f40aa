import type { Client } from "./privopt-client.mjs";

/** How positions are rounded to reports: made by `nearestOf` of privopt-points.mjs. */
export interface Rounding {
  decide(disc: unknown): unknown;
  report(output: unknown): { id: string; lat: number; lon: number };
}

/** Decimal digits of latitude and longitude, 0 to 9; or cells whose side in degrees divides 90; or points. */
export type Outputs = { digits: number } | { grid: number | string } | Rounding;

/**
 * Returns a client for any position on Earth; it needs no artefact. Throws RangeError for arguments out of range.
 *
 * @param epsilon such as "1.4/km", from "1e-6/km" to "1e6/km". At 1.4 per km reports are 1.4 km off on average.
 */
export function fromEpsilon(epsilon: string, outputs: Outputs): Client;
