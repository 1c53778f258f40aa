"""Draft a problem from a table of places, and compare mechanisms to choose epsilon."""
