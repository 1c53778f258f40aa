from __future__ import annotations
class MilpSearch:
    name="milp"; spent=True
    def __init__(self, shared, solver): self.shared=shared
    def turn(self, seconds): return False
    def bound(self): return self.shared.cap
