"""Protectors, which draw reports for rows by position, by id or word by word."""
