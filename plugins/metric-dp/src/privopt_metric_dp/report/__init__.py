"""Report pages, figures and maps of obfuscation matrices."""
