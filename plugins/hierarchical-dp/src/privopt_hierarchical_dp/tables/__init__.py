"""Several tables of the same individuals under one budget. Tables agree on the attributes they share."""
