"""Ledgers: what each subject has spent, exactly; limits that no report passes; first reports that are kept."""
