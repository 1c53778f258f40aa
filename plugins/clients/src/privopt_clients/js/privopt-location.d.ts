import type { Input, Mechanism } from "./privopt-client.mjs";
import type { Given, Storage } from "./privopt-policy.mjs";

/**
 * `<privopt-location src sha256>`, or `<privopt-location epsilon="1.4/km" digits="3">` for any position on Earth.
 *
 * Its events are "report", with `Given` and the promise, and "refused", with `{ message, outside }`: `outside` is true
 * for a position outside the region of the release.
 */
export class PrivoptLocation extends HTMLElement {
  /** Opens an artefact that the page has; `src` and `sha256` are read by the element itself. */
  start(bytes: ArrayBuffer | Uint8Array, storage?: Storage): Promise<Mechanism>;
  /** Gives the report of an id or a position, as the policy decides; nothing where it was refused. */
  report(input: Input): Promise<(Given & { promise: string }) | undefined>;
}
