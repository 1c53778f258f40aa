"""The checker's part for policy DP. It imports only the standard library, the checker and itself."""
