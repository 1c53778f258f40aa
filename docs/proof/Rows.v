(** Rows of whole numbers as distributions, and one row near another for every event. *)
From Coq Require Import ZArith List Bool Reals Lra Lia.
From Privopt Require Export Basics.
From Privopt Require Import Exp.
Import ListNotations.

Lemma TOTAL_pos : (0 < TOTAL)%Z. Proof. reflexivity. Qed.
Global Opaque TOTAL.

Definition is_distribution (width : nat) (r : list Z) : bool :=
  Nat.eqb (length r) width && forallb (Z.leb 0) r && Z.eqb (total r) TOTAL.

Lemma is_distribution_sound width r : is_distribution width r = true -> Distribution width r.
Proof.
  unfold is_distribution. rewrite !andb_true_iff. intros [[H1 H2] H3]. repeat split.
  - apply Nat.eqb_eq. exact H1.
  - intros x Hx. rewrite forallb_forall in H2. apply Z.leb_le, H2, Hx.
  - apply Z.eqb_eq. exact H3.
Qed.

(** a_k ONE <= m b_k at every output. *)
Fixpoint below (m : Z) (a b : list Z) : bool :=
  match a, b with
  | [], [] => true
  | x :: s, y :: t => (x * ONE <=? m * y)%Z && below m s t
  | _, _ => false
  end.

Lemma below_event m a : forall b, below m a b = true -> forall E, (weight E a * ONE <= m * weight E b)%Z.
Proof.
  induction a as [|x s IH]; intros [|y t] H E; simpl in H; try discriminate; cbn [weight]; [lia|].
  apply andb_true_iff in H as [H1 H2]. apply Z.leb_le in H1.
  specialize (IH t H2 (fun k => E (S k))). destruct (E O); lia.
Qed.

(** The event of one output. *)
Lemma weight_one r : forall k, weight (Nat.eqb k) r = nth k r 0%Z.
Proof.
  assert (N : forall r, weight (fun _ => false) r = 0%Z) by (intro s; induction s as [|x s IH]; [reflexivity|exact IH]).
  induction r as [|x s IH]; intros [|k]; try reflexivity.
  - change (x + weight (fun _ => false) s = x)%Z. rewrite N. lia.
  - change (0 + weight (Nat.eqb k) s = nth k s 0)%Z. rewrite IH. lia.
Qed.

Lemma weight_pos r : (forall x, In x r -> (0 <= x)%Z) -> forall E, (0 <= weight E r)%Z.
Proof.
  induction r as [|x s IH]; intros H E; cbn [weight]; [lia|].
  assert (0 <= x)%Z by (apply H; left; reflexivity).
  assert (0 <= weight (fun k => E (S k)) s)%Z by (apply IH; intros; apply H; right; assumption).
  destruct (E O); lia.
Qed.

Open Scope R_scope.

Theorem near_event width m a b t : Distribution width b ->
  below m a b = true -> IZR m <= IZR ONE * exp t -> forall E, prob a E <= exp t * prob b E.
Proof.
  intros [_ [Hb _]] H Hm E. pose proof (below_event _ _ _ H E) as W. apply IZR_le in W.
  rewrite !mult_IZR in W. pose proof (weight_pos b Hb E) as P. apply IZR_le in P.
  pose proof ONE_posR. assert (0 < IZR TOTAL) by (apply IZR_lt, TOTAL_pos).
  unfold prob, Rdiv. rewrite <- Rmult_assoc. apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; assumption|].
  apply Rmult_le_reg_r with (IZR ONE); [auto|]. eapply Rle_trans; [exact W|].
  replace (exp t * IZR (weight E b) * IZR ONE) with (IZR ONE * exp t * IZR (weight E b)) by ring.
  apply Rmult_le_compat_r; assumption.
Qed.
