"""What the reports say of the truth: estimates of the crowd, with intervals, and answers about one report."""
