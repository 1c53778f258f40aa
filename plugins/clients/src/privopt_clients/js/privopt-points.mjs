// privopt points: reports of privopt sphere that are the nearest of some points, such as towns.

import { cached, exactly, isPosition, min, sineCosineOfDegrees, squareRoot } from "./privopt-sphere.mjs";

/** Returns outputs for fromEpsilon: the nearest of `points`, a list of { id, lat, lon }. */
export function nearestOf(points) {
  return new NearestPoint(points);
}

class NearestPoint {
  constructor(points) {
    this.points = points.map(({ id, lat, lon }) => ({ id, lat, lon }));
    this.name = JSON.stringify(this.points);
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
    return { ...this.points[number] };
  }
}

