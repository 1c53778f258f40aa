"""Protectors, which draw a report for each row of a table, either by position, by id or word by word."""
