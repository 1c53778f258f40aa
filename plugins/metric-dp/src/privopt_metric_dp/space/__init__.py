"""Places and distances: coordinates, roads, distance tables, and the pairs of records that a guarantee covers."""
