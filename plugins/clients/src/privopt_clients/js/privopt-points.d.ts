import type { Rounding } from "./privopt-sphere.mjs";

/**
 * Outputs for `fromEpsilon`: reports are the nearest of these points. Ids and places must be distinct.
 * With `remap`, a point's id may have the id of another point, which is reported in its place.
 */
export function nearestOf(
  points: { id: string; lat: number; lon: number }[],
  remap?: Record<string, string> | Map<string, string>,
): Rounding;
