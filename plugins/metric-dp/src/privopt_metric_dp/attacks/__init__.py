"""Attacks on obfuscation matrices, on many reports of one place and on traces."""
