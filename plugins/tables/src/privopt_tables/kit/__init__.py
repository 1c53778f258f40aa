"""The conformance kit for releases that report traces: their charges cover what they reveal."""
