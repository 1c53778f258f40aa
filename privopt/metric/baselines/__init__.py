"""What the optimal mechanism is compared with, and that mechanism as a linear program."""
