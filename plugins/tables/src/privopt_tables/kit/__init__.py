"""Conformance checks of whether a release that reports traces charges enough for what its reports reveal."""
