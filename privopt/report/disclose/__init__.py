"""What a release discloses to registries and regulators, each sentence resting on a claim."""
