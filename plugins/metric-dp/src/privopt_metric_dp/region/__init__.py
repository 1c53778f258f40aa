"""Guarantees between any two points of a region, not only between records."""
