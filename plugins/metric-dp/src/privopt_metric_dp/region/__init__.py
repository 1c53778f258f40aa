"""Regions: guarantees between any two points, not only between records."""
