"""Conformance checks for releases that report traces: charges must cover what the reports reveal."""
