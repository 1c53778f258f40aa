"""Register what the distribution brings, as data: nothing heavy is imported."""
