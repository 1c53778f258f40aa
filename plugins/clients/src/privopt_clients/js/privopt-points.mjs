// privopt points: a rounding for privopt sphere that reports the nearest of given points, such as towns.

import { cached, exactly, isPosition, min, sineCosineOfDegrees, squareRoot } from "./privopt-sphere.mjs";

/**
 * Returns outputs for fromEpsilon: the nearest of `points`, a list of { id, lat, lon }. With `remap`, an object or Map
 * of ids such as the rows of remap.csv, that point is replaced by the one it is mapped to, if any.
 */
export function nearestOf(points, remap) {
  return new NearestPoint(points, remap);
}

class NearestPoint {
  constructor(points, remap) {
    this.points = points.map(({ id, lat, lon }) => ({ id, lat, lon }));
    const table = remap instanceof Map ? remap : new Map(Object.entries(remap ?? {}));
    const rows = new Map(this.points.map(({ id }, row) => [id, row]));
    this.reports = this.points.map(({ id }) => rows.get(table.get(id) ?? id));
    // A policy stores reports under this name, which must therefore differ for different remaps.
    this.name = JSON.stringify(remap === undefined ? this.points : [this.points, this.reports]);
    this.vectors = cached((w) => this.points.map(({ lat, lon }) => {
      const [sine, cosine] = sineCosineOfDegrees(exactly(lat), w);
      const [east, west] = sineCosineOfDegrees(exactly(Math.abs(lat) === 90 ? 0 : lon < 180 ? lon : lon - 360), w);
      return [(cosine * west) >> w, (cosine * east) >> w, sine];
    }));
    const isDistinct = (values) => new Set(values.map(String)).size === points.length;
    if (!points.length || !points.every(({ id, lat, lon }) => typeof id === "string" && isPosition(lat, lon))
      || !isDistinct(points.map(({ id }) => id)) || !isDistinct(this.vectors(160n))) {
      throw new RangeError("points must be { id, lat, lon } with distinct ids and places, got others");
    }
    if (this.reports.includes(undefined) || [...table.keys()].some((id) => !rows.has(id))) {
      throw new RangeError("remap must map ids of points to ids of points, got others");
    }
  }

  decide({ w, longitude, east, north, up, radius }) {
    const [sine, cosine] = sineCosineOfDegrees(longitude, w);
    const [x, y] = [(north * cosine - east * sine) >> w, (north * sine + east * cosine) >> w];
    const squares = this.vectors(w).map(([a, b, c]) => (a - x) ** 2n + (b - y) ** 2n + (c - up) ** 2n);
    const least = squares.reduce(min);
    const limit = squareRoot(least) + 2n * radius + 512n * w; // a chord changes by no more than the position
    return squares.filter((square) => square < (limit + 1n) ** 2n).length > 1 ? undefined : [squares.indexOf(least)];
  }

  report([number]) {
    return { ...this.points[this.reports[number]] };
  }
}

