"""Where the records are: coordinates, roads, matrices of distances, and the pairs that a guarantee covers."""
