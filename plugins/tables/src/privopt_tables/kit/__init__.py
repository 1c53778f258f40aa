"""The conformance check for releases that report traces: whether charges cover what their reports reveal."""
