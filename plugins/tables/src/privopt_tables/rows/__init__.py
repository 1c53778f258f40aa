"""How a row is drawn for: by its position, by its id, or word by word."""
