import type { Rounding } from "./privopt-sphere.mjs";

/** Outputs for `fromEpsilon`: reports are the nearest of these points. Ids and places must be distinct. */
export function nearestOf(points: { id: string; lat: number; lon: number }[]): Rounding;
