"""The baselines that come with privopt."""
