"""What the reports of a certified mechanism say of the truth, with intervals."""
