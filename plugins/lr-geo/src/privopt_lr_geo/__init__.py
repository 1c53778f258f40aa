"""LR-Geo: locally relevant geo-obfuscation (PoPETs 2025)."""
