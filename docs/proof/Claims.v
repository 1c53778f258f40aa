(** What is claimed of a matrix of weights: a distribution in each row, privacy, a loss, a bound. *)
From Coq Require Import ZArith List Reals.
From Privopt Require Import Spec.
Import ListNotations.
Open Scope R_scope.

(** Both numbers are above 0: the rational is, and is written with a denominator that is. *)
Definition Positive (r : rat) : Prop := (0 < fst r)%Z /\ (0 < snd r)%Z.

(** Without [within] every two records have a distance: roads join them all. With it, records that no walk
    joins are infinitely far from each other, and nothing is asked of them. *)
Definition Connected (p : problem) : Prop := within p = None -> forall i j,
  (i < length (records p))%nat -> (j < length (records p))%nat -> exists x, distance p i j x.

(** Where only distances of records are given, and a cost is one, the outputs are the records. *)
Definition Measured (p : problem) : Prop :=
  match metric p, costs p with
  | Matrix _ None, Distance | Matrix _ None, Travel _ => outputs p = records p
  | _, _ => True
  end.

(** A problem that is one: somebody to protect, something to report, names that say which. *)
Definition Sound (p : problem) : Prop :=
  (0 < length (records p))%nat /\ (0 < length (outputs p))%nat /\
  NoDup (records p) /\ NoDup (outputs p) /\ NoDup (map fst (prior p)) /\
  match costs p with Travel targets => NoDup (map fst targets) | _ => True end /\
  Positive (epsilon p) /\ (forall w, within p = Some w -> Positive w) /\ Connected p /\ Measured p.

(** The prior is a distribution over the records. *)
Definition Shares (p : problem) : Prop :=
  (forall id, In id (map fst (prior p)) <-> In id (records p)) /\
  exists share, (forall i, (i < length (records p))%nat -> share_of p i (share i) /\ 0 <= share i) /\
    sum (length (records p)) share = 1.

(** For every required pair of records and every event E: P(E | i) <= exp (epsilon x) P(E | j). *)
Definition Private (p : problem) (rows : list (list Z)) : Prop :=
  forall i j a b x, nth_error rows i = Some a -> nth_error rows j = Some b -> required p i j x ->
  forall E, prob a E <= exp (rv (epsilon p) * x) * prob b E.

(** A matrix of reals that is a mechanism over the problem's outputs, and as private as asked. *)
Definition Mechanism (p : problem) (z : nat -> nat -> R) : Prop :=
  (forall i k, (i < length (records p))%nat -> (k < length (outputs p))%nat -> 0 <= z i k) /\
  (forall i, (i < length (records p))%nat -> sum (length (outputs p)) (z i) = 1) /\
  (forall i j x k, (i < length (records p))%nat -> (j < length (records p))%nat -> (k < length (outputs p))%nat ->
     required p i j x -> z i k <= exp (rv (epsilon p) * x) * z j k).

(** v is the expected cost of a matrix. *)
Definition Loss (p : problem) (z : nat -> nat -> R) (v : R) : Prop :=
  exists c share,
    (forall i k, (i < length (records p))%nat -> (k < length (outputs p))%nat -> cost_of p i k (c i k)) /\
    (forall i, (i < length (records p))%nat -> share_of p i (share i)) /\
    v = loss (length (records p)) (length (outputs p)) share c z.

(** The probabilities that weights stand for. *)
Definition drawn (rows : list (list Z)) (i k : nat) : R := IZR (nth k (nth i rows []) 0%Z) / IZR TOTAL.
