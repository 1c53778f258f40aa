"""Proofs of lower bounds, stored with a release as dual multipliers from which anyone can recompute the bound."""

from privopt_metric_dp.proof.make_proof import multipliers_of, prove, read_proof
from privopt_metric_dp.proof.proof_file import PROOF, Proof
from privopt_metric_dp.proof.row_proof import Rows
from privopt_metric_dp.proof.street_proof import Streets
from privopt_metric_dp.proof.tree_proof import Trees

__all__ = ["PROOF", "Proof", "Rows", "Streets", "Trees", "multipliers_of", "prove", "read_proof"]
