"""The conformance kit for releases that report traces: check that their charges cover what they reveal."""
