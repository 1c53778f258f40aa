"""Where the records are: coordinates, roads, distance tables, and the pairs that a guarantee covers."""
