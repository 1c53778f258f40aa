"""Disclosures of a release to registries and regulators, in which each sentence is marked with its evidence."""
