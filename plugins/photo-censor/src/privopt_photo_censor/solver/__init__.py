"""Choose the photos to keep: the search that writes its proof, the mixed-integer program, and the baselines."""
