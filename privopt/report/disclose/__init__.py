"""Disclosures about a release for registries and regulators. Each sentence is marked with the evidence for it."""
