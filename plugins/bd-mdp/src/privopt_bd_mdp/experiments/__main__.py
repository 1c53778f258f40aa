"""``python -m privopt_bd_mdp.experiments``."""

from privopt_bd_mdp.experiments.command import main

main()
