"""What the experiments of all plugins share. In no wheel: ``python plugins/NAME/experiments`` runs them."""
