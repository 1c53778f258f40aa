"""Attacks on obfuscation matrices and on many reports from one place, and explanations of what they reveal."""
