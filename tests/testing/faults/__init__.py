"""Small mechanisms to try the conformance kit on: one right for each guarantee kind, and many with one fault each."""
