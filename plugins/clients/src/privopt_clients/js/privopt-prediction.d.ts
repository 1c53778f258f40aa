import type { Input, Mechanism, Report } from "./privopt-client.mjs";

/** The state of a trace: the last report, and the noisy threshold of the current segment. Either may be undefined. */
export interface Trace {
  report?: Report;
  level?: string;
}

/**
 * Returns the trace after the next report, which is the last report again or a new one drawn for `input`.
 *
 * @param read Returns the requested number of bytes of entropy, new ones at each call; by default, the device's.
 */
export function nextReport(
  mechanism: Mechanism,
  trace: Trace,
  input: Input,
  read?: (count: number) => Uint8Array,
): Trace;
