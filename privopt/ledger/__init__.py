"""Privacy budgets of subjects, charged before anything is drawn, in a hash-chained ledger."""
