"""A hash-chained ledger of subjects' privacy budgets, which are charged before anything is drawn."""
