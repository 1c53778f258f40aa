"""Disclosures about a release for registries and regulators, in which each sentence is marked with its evidence."""
