"""Tables: what stands in them, read in batches that fit memory, protected, written whole or not at all."""
