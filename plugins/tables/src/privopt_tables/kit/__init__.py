"""A conformance check for releases that report traces. It checks whether charges cover what the reports reveal."""
