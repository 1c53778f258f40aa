"""Regions, for guarantees between any two points rather than only between records."""
