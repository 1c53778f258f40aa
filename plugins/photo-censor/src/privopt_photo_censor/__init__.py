"""Photo censor: which photos to delete so that a place stays hidden (AAAI 2020)."""
