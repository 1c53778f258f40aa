"""Programs that check a release with only the Python standard library, or in plain JavaScript."""
