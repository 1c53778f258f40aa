"""Pages, figures and maps of obfuscation matrices."""
