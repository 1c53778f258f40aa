/** The id of a record, or a position: latitude and longitude in degrees, or x and y in km. */
export type Input = string | [number, number];

/** A report: the id of an output and, if outputs have coordinates, those of the output. */
export interface Report {
  id: string;
  lat?: number;
  lon?: number;
  x?: number;
  y?: number;
}

/** A client that draws reports, from an artefact or from `fromEpsilon` in privopt-sphere.mjs. */
export interface Client {
  /** The guarantee in one sentence. */
  readonly promise: string;
  /** The SHA-256 of the exported release's SHA256SUMS; for `fromEpsilon`, a string that contains its arguments. */
  readonly release: string;
  /** The SHA-256 of the release's proof.npz; an empty string if there is no proof. */
  readonly proof: string;
  /** The ids of the records; for `fromEpsilon`, the ids of its points, if there are any. */
  readonly ids: string[];
  /** The names of the records' coordinates: lat and lon, or x and y; empty if records have no coordinates. */
  readonly names: string[];
  /** The positions of the records, in degrees or km; empty if records have no coordinates. */
  readonly positions: [number, number][];
  /** The number of bytes of entropy that report() reads per draw. With `fromEpsilon`, a few draws need more. */
  readonly entropy: number;
  /** Whether report() accepts an input: false if it is outside the region, or neither an id nor a position. */
  covers(input: Input): boolean;
  /**
   * Returns the cell that contains an input: the id of the nearest record or, for `fromEpsilon`, a square. The cells
   * are public, but the one that contains an input is as secret as the input.
   */
  cell(input: Input): string;
  /**
   * Draws a report, using crypto.getRandomValues.
   *
   * Throws OutsideRegionError if the position is outside the region, and RangeError if the input is invalid.
   */
  report(input: Input): Report;
  /** Draws a report from the given bytes. They must be uniform and never be reused, or the guarantee is void. */
  reportFrom(input: Input, entropy: Uint8Array): Report;
}

/** The client for an artefact. */
export interface Mechanism extends Client {
  /**
   * The parameters of the test that decides whether to repeat the last report, with distances in steps; undefined if
   * the release is not predictive.
   */
  readonly prediction?: {
    readonly good: bigint;
    readonly threshold: [bigint, bigint];
    readonly test: [bigint, bigint];
    readonly steps: Uint32Array;
  };
  /**
   * Returns the distance, in steps, from an input's record to an output, which that test compares with a threshold. It
   * is as secret as the input.
   */
  steps(input: Input, output: string): bigint;
}

/** Thrown if a position is outside the region that the release covers. No report was drawn. */
export class OutsideRegionError extends RangeError {}

/** Thrown if the bytes are not an artefact, or were changed after the export. */
export class DamagedArtefactError extends Error {}

/**
 * Opens mechanism.bin, after checking its digest. A file with a damaged bit is rejected before any report is drawn.
 *
 * @param bytes The contents of the file.
 * @param sha256 The SHA-256 of the whole file in hexadecimal digits, as `privopt export` prints it.
 */
export function open(bytes: ArrayBuffer | Uint8Array, sha256?: string): Promise<Mechanism>;
