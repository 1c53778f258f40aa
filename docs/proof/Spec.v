(** What a problem means: distances, required pairs, costs. No program is in this file. *)
From Coq Require Import ZArith List Reals.
From Privopt Require Export Basics.
Import ListNotations.
Open Scope R_scope.

(** Where the distances come from. *)
Inductive space :=
| Euclidean (records outputs : list (list rat))            (* coordinates *)
| Matrix (own : list (list rat)) (across : option (list (list rat)))
| Graph (edges : list (bytes * bytes * rat)).              (* both ways *)

(** What a report costs. *)
Inductive utility :=
| Distance
| CostMatrix (cost : list (list rat))
| Travel (targets : list (bytes * rat)).                   (* sum_t q_t |d(i, t) - d(k, t)| / sum_t q_t *)

Record problem := {
  records : list bytes;
  outputs : list bytes;
  metric : space;
  epsilon : rat;
  within : option rat;
  prior : list (bytes * rat);                              (* shares, not yet divided by their sum *)
  costs : utility
}.

(** ** Distances *)

(** Walks over edges, and their lengths. *)
Inductive walk (edges : list (bytes * bytes * rat)) (a : bytes) : bytes -> R -> Prop :=
| stay : walk edges a a 0
| go b c l x : walk edges a b x -> In (b, c, l) edges \/ In (c, b, l) edges -> walk edges a c (x + rv l).

Definition shortest edges a b (x : R) : Prop :=
  walk edges a b x /\ forall y, walk edges a b y -> x <= y.

Fixpoint squares (a b : list rat) : R :=
  match a, b with x :: s, y :: t => (rv x - rv y) ^ 2 + squares s t | _, _ => 0 end.

Definition entry (m : list (list rat)) (i k : nat) (x : R) : Prop :=
  exists row r, nth_error m i = Some row /\ nth_error row k = Some r /\ x = rv r.

(** x is the distance of records i and j. *)
Definition distance (p : problem) (i j : nat) (x : R) : Prop :=
  match metric p with
  | Euclidean at_ _ => exists a b, nth_error at_ i = Some a /\ nth_error at_ j = Some b /\ x = sqrt (squares a b)
  | Matrix own _ => exists y z, entry own i j y /\ entry own j i z /\ x = Rmin y z
  | Graph edges => exists a b, nth_error (records p) i = Some a /\ nth_error (records p) j = Some b /\
      shortest edges a b x
  end.

(** x is the distance of record i from output k. *)
Definition reported_distance (p : problem) (i k : nat) (x : R) : Prop :=
  match metric p with
  | Euclidean at_ out => exists a b, nth_error at_ i = Some a /\ nth_error out k = Some b /\ x = sqrt (squares a b)
  | Matrix own None => distance p i k x
  | Matrix _ (Some m) => entry m i k x
  | Graph edges => exists a b, nth_error (records p) i = Some a /\ nth_error (outputs p) k = Some b /\
      shortest edges b a x
  end.

(** Records i and j must be told apart no better than exp (epsilon x), x their distance. *)
Definition required (p : problem) (i j : nat) (x : R) : Prop :=
  i <> j /\ distance p i j x /\ match within p with Some w => x <= rv w | None => True end.

(** ** Loss *)

Inductive travel (p : problem) (i k : nat) : list (bytes * rat) -> R -> Prop :=
| arrived : travel p i k [] 0
| target t id q a b rest x : nth_error (records p) t = Some id -> distance p t i a -> reported_distance p t k b ->
    travel p i k rest x -> travel p i k ((id, q) :: rest) (rv q * Rabs (a - b) + x).

Definition sum_of (table : list (bytes * rat)) : R := fold_right (fun e x => rv (snd e) + x) 0 table.

(** x is the cost of output k to record i. *)
Definition cost_of (p : problem) (i k : nat) (x : R) : Prop :=
  match costs p with
  | Distance => reported_distance p i k x
  | CostMatrix m => entry m i k x
  | Travel targets => exists y, travel p i k targets y /\ x = y / sum_of targets
  end.

(** x is the share of record i. *)
Definition share_of (p : problem) (i : nat) (x : R) : Prop :=
  exists id q, nth_error (records p) i = Some id /\ In (id, q) (prior p) /\ x = rv q / sum_of (prior p).
