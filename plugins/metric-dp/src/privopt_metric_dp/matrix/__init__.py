"""Obfuscation matrices of integer weights: their repair, certificate and release."""
