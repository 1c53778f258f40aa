"""Obfuscation matrices in integers: repaired, certified, released."""
