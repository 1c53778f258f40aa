"""Protected tables: read in batches that fit memory, written completely or not at all."""
