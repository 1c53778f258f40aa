import type { Input, Mechanism, Report } from "./privopt-client.mjs";

/** The last report, and the noisy threshold of the running segment; each undefined where there is none. */
export interface Trace {
  report?: Report;
  level?: string;
}

/** Returns the trace after a report for `input`. `read` gives so many bytes of entropy, each time new ones. */
export function nextReport(
  mechanism: Mechanism,
  trace: Trace,
  input: Input,
  read?: (count: number) => Uint8Array,
): Trace;
