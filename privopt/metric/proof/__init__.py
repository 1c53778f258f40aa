"""The proof of a lower bound: what of multipliers is stored beside a release, from which anybody evaluates it again."""

from privopt.metric.proof.base import PROOF, Proof
from privopt.metric.proof.in_time import prove_in_time
from privopt.metric.proof.making import multipliers_of, prove, read_proof
from privopt.metric.proof.nearby import prove_nearby
from privopt.metric.proof.rows import Rows
from privopt.metric.proof.trees import Trees

__all__ = ["PROOF", "Proof", "Rows", "Trees", "multipliers_of", "prove", "prove_in_time", "prove_nearby", "read_proof"]
