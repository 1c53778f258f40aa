(** What the statement and the program both speak with: lists, rows of weights, sums. *)
From Coq Require Import ZArith List Bool Reals.
Import ListNotations.

(** ** Bytes and rationals *)

Definition bytes := list Z.

(** A rational as it is written: numerator over denominator. *)
Definition rat : Type := Z * Z.
Definition rv (r : rat) : R := (IZR (fst r) / IZR (snd r))%R.

(** ** Lists *)

Fixpoint same (a b : bytes) : bool :=
  match a, b with [], [] => true | x :: s, y :: t => (x =? y)%Z && same s t | _, _ => false end.

(** Nothing stands twice. *)
Fixpoint distinct (l : list bytes) : bool :=
  match l with [] => true | a :: s => negb (existsb (same a) s) && distinct s end.

(** What stands under a name, the first time. *)
Fixpoint lookup {A} (id : bytes) (t : list (bytes * A)) : option A :=
  match t with [] => None | (a, x) :: s => if same id a then Some x else lookup id s end.

(** Where a name stands, the first time. *)
Fixpoint index (a : bytes) (nodes : list bytes) : option nat :=
  match nodes with
  | [] => None
  | b :: rest => if same a b then Some O else option_map S (index a rest)
  end.

(** All results, if none is missing. *)
Fixpoint map_opt {A B} (f : A -> option B) (l : list A) : option (list B) :=
  match l with
  | [] => Some []
  | a :: s => match f a, map_opt f s with Some b, Some t => Some (b :: t) | _, _ => None end
  end.

(** ** Rows of weights, 2^63-ths *)

Definition TOTAL : Z := (2 ^ 63)%Z.
Fixpoint total (r : list Z) : Z := match r with [] => 0 | x :: s => x + total s end.

(** The row gives every output a probability, and they add up to 1. *)
Definition Distribution (width : nat) (r : list Z) : Prop :=
  length r = width /\ (forall x, In x r -> (0 <= x)%Z) /\ total r = TOTAL.

(** Weight of an event, any set E of outputs (numbered from 0). *)
Fixpoint weight (E : nat -> bool) (r : list Z) : Z :=
  match r with [] => 0 | x :: s => (if E O then x else 0) + weight (fun k => E (S k)) s end.

(** P(E | record): what the row draws. *)
Definition prob (r : list Z) (E : nat -> bool) : R := (IZR (weight E r) / IZR TOTAL)%R.

(** ** Sums *)

Open Scope R_scope.

(** f 0 + ... + f (n - 1). *)
Fixpoint sum (n : nat) (f : nat -> R) : R := match n with O => 0 | S n => sum n f + f n end.

(** sum_i p_i sum_k c_ik z_ik. *)
Definition loss (n width : nat) (p : nat -> R) (c z : nat -> nat -> R) : R :=
  sum n (fun i => p i * sum width (fun k => c i k * z i k)).
