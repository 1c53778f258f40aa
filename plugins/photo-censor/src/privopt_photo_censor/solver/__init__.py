"""Choose the photos to keep: the search that writes its proof, and the baselines."""
