"""The paper's tables and figures. What only reproduces them is here and not in the wheel."""
