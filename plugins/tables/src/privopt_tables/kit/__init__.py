"""Conformance checks that a release which reports traces charges enough for what its reports reveal."""
