/** Id of a record, or a position: latitude and longitude in degrees, or x and y in km. */
export type Input = string | [number, number];

/** An output: its id, with coordinates where outputs have any. */
export interface Report {
  id: string;
  lat?: number;
  lon?: number;
  x?: number;
  y?: number;
}

/** What draws reports: of an artefact, or of `fromEpsilon` in privopt-sphere.mjs. */
export interface Client {
  /** The guarantee in one sentence. */
  readonly promise: string;
  /** SHA-256 of the SHA256SUMS of the release that was exported; of `fromEpsilon` its arguments. */
  readonly release: string;
  /** SHA-256 of its proof.npz; empty where there is none. */
  readonly proof: string;
  /** Ids of the records; of `fromEpsilon` those of its points, if it has any. */
  readonly ids: string[];
  /** Names of the records' coordinates: lat and lon, x and y, or none. */
  readonly names: string[];
  /** Positions of the records, degrees or km; none where they have none. */
  readonly positions: [number, number][];
  /** Bytes of entropy that report() takes; of `fromEpsilon` nearly always. */
  readonly entropy: number;
  /** Whether report() takes an input: false outside the region, and for what is neither an id nor a position. */
  covers(input: Input): boolean;
  /** The id of the record nearest to an input, or a square of `fromEpsilon`: a public cell, as secret as the input. */
  cell(input: Input): string;
  /** Draws a report from crypto.getRandomValues. Throws OutsideRegionError, and RangeError for what is no input. */
  report(input: Input): Report;
  /** The same from given bytes: uniform and never used again, or nothing is promised. */
  reportFrom(input: Input, entropy: Uint8Array): Report;
}

/** The mechanism of an artefact. */
export interface Mechanism extends Client {
  /** Numbers of the test whether a last report is still good, in steps; undefined if the release is not predictive. */
  readonly prediction?: {
    readonly good: bigint;
    readonly threshold: [bigint, bigint];
    readonly test: [bigint, bigint];
    readonly steps: Uint32Array;
  };
  /** Steps from the record of an input to an output, which that test goes by. They are as secret as the input. */
  steps(input: Input, output: string): bigint;
}

/** A position outside the region that the release is about. No report was drawn. */
export class OutsideRegionError extends RangeError {}

/** Bytes that are no artefact, or not as they were written. */
export class DamagedArtefactError extends Error {}

/**
 * Reads mechanism.bin; a change of any bit is found before anything can be drawn.
 *
 * @param sha256 of the whole file, as `privopt export` said it.
 */
export function open(bytes: ArrayBuffer | Uint8Array, sha256?: string): Promise<Mechanism>;
