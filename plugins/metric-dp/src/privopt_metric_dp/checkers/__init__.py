"""Programs that check a matrix with the standard library or plain JavaScript alone."""
