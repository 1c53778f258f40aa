"""What the experiments of all plugins share: one command, one table that can be gone on with, one way to draw.

It is in no wheel. ``python plugins/NAME/experiments --quick --out FOLDER`` runs a plugin's own.
"""
