"""Report pages, figures and maps for obfuscation matrices."""
