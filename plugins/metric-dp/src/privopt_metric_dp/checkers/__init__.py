"""Programs that check a release using only the Python standard library, or plain JavaScript."""
