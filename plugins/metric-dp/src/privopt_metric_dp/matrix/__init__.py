"""Obfuscation matrices with integer weights: repair, certification and release."""
