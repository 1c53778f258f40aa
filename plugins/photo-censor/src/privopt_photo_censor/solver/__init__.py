"""Choose the photos to keep, by a search that records its proof or by baselines."""
