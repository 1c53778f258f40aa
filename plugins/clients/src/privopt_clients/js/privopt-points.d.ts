import type { Rounding } from "./privopt-sphere.mjs";

/**
 * Returns outputs for `fromEpsilon`, with which the point nearest to the drawn position is reported.
 *
 * @param points The points, whose ids and positions must be distinct.
 * @param remap Maps the ids of points to the ids of the points that are reported instead; by default, none is replaced.
 */
export function nearestOf(
  points: { id: string; lat: number; lon: number }[],
  remap?: Record<string, string> | Map<string, string>,
): Rounding;
