"""BD-mDP: Benders decomposition for metric differential privacy (IJCAI 2024)."""
