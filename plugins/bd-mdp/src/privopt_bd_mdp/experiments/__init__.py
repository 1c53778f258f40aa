"""The paper's tables and figures from one command: ``python -m privopt_bd_mdp.experiments --out FOLDER``."""

from privopt_bd_mdp.experiments.command import main

__all__ = ["main"]
