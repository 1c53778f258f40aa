(** What the theorems assume: the classical axioms of Coq's reals, and for the draw nothing. *)
From Privopt Require Import Accept Sampler.
Print Assumptions examined.
Print Assumptions sampler.
