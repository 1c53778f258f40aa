import type { Input, Mechanism } from "./privopt-client.mjs";
import type { Given, Storage } from "./privopt-policy.mjs";

/**
 * The element `<privopt-location src sha256>`, or `<privopt-location epsilon="1.4/km" digits="3">` for any position on
 * Earth.
 *
 * It dispatches the event "report", whose detail is `Given` and the promise, and the event "refused", whose detail is
 * `{ message, outside }`. `outside` is true if the position is outside the region of the release.
 */
export class PrivoptLocation extends HTMLElement {
  /** Opens an artefact that the page has loaded itself. With `src`, the element loads it, and no call is needed. */
  start(bytes: ArrayBuffer | Uint8Array, storage?: Storage): Promise<Mechanism>;
  /** Returns the report for an id or a position, as the policy decides; undefined if the input is refused. */
  report(input: Input): Promise<(Given & { promise: string }) | undefined>;
}
