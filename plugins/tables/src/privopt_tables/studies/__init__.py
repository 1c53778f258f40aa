"""From a table of places to a problem, and which epsilon to choose."""
