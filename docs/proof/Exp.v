(** The exponential enclosed from both sides, in whole numbers.

    A real x is a whole number of units, ONE = 2^256 of them to 1. Both enclosures square 1 + x / 2^128
    or 1 / (1 - x / 2^128), rounded outwards each time, and rest on 1 + x <= exp x alone. *)
From Coq Require Import ZArith Reals Lra Lia.
Open Scope R_scope.

Definition ONE : Z := (2 ^ 256)%Z.
Definition SQUARINGS : nat := 128.
(** Exponents are cut here, downwards: exp 45 is above 2^64, which no ratio of two weights reaches. *)
Definition FLAT : Z := 45.

Lemma ONE_pos : (0 < ONE)%Z. Proof. reflexivity. Qed.
Lemma ONE_posR : 0 < IZR ONE. Proof. apply IZR_lt, ONE_pos. Qed.
Global Opaque ONE.
#[global] Hint Resolve ONE_pos ONE_posR : core.

(** a / b rounded up. *)
Definition up (a b : Z) : Z := (- ((- a) / b))%Z.

Lemma div_below a b : (0 < b)%Z -> IZR (a / b) * IZR b <= IZR a.
Proof. intro H. rewrite <- mult_IZR. apply IZR_le. pose proof (Z.mul_div_le a b H). lia. Qed.

Lemma up_above a b : (0 < b)%Z -> IZR a <= IZR (up a b) * IZR b.
Proof.
  intro H. rewrite <- mult_IZR. apply IZR_le. unfold up. pose proof (Z.mul_div_le (- a) b H). lia.
Qed.

Lemma div_below_over a b : (0 < b)%Z -> IZR (a / b) <= IZR a / IZR b.
Proof.
  intro H. assert (0 < IZR b) by (apply IZR_lt; exact H).
  apply Rmult_le_reg_r with (IZR b); [assumption|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l, Rmult_1_r by lra.
  apply div_below; exact H.
Qed.

Lemma up_above_over a b : (0 < b)%Z -> IZR a / IZR b <= IZR (up a b).
Proof.
  intro H. assert (0 < IZR b) by (apply IZR_lt; exact H).
  apply Rmult_le_reg_r with (IZR b); [assumption|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l, Rmult_1_r by lra.
  apply up_above; exact H.
Qed.

Fixpoint squares_low (k : nat) (y : Z) : Z :=
  match k with O => y | S k => squares_low k (y * y / ONE)%Z end.

Fixpoint squares_up (k : nat) (y : Z) : Z :=
  match k with O => y | S k => squares_up k (up (y * y) ONE) end.

Lemma square_exp x k : exp (x * 2 ^ S k) = exp ((x + x) * 2 ^ k).
Proof. f_equal. simpl. ring. Qed.

Lemma squares_low_sound k : forall y x, (0 <= y)%Z ->
  IZR y <= IZR ONE * exp x -> IZR (squares_low k y) <= IZR ONE * exp (x * 2 ^ k).
Proof.
  induction k as [|k IH]; intros y x Hy H; cbn [squares_low].
  - simpl. rewrite Rmult_1_r. exact H.
  - rewrite square_exp. pose proof ONE_posR. apply IH.
    + apply Z.div_pos; [nia|auto].
    + apply Rmult_le_reg_r with (IZR ONE); [auto|].
      eapply Rle_trans; [apply div_below; auto|]. rewrite mult_IZR, exp_plus.
      apply IZR_le in Hy. pose proof (exp_pos x).
      replace (IZR ONE * (exp x * exp x) * IZR ONE) with ((IZR ONE * exp x) * (IZR ONE * exp x)) by ring.
      apply Rmult_le_compat; lra.
Qed.

Lemma squares_up_sound k : forall y x,
  IZR ONE * exp x <= IZR y -> IZR ONE * exp (x * 2 ^ k) <= IZR (squares_up k y).
Proof.
  induction k as [|k IH]; intros y x H; cbn [squares_up].
  - simpl. rewrite Rmult_1_r. exact H.
  - rewrite square_exp. pose proof ONE_posR. apply IH.
    apply Rmult_le_reg_r with (IZR ONE); [auto|].
    eapply Rle_trans; [|apply up_above; auto]. rewrite mult_IZR, exp_plus.
    pose proof (exp_pos x).
    replace (IZR ONE * (exp x * exp x) * IZR ONE) with ((IZR ONE * exp x) * (IZR ONE * exp x)) by ring.
    assert (0 <= IZR ONE * exp x) by (apply Rmult_le_pos; lra).
    apply Rmult_le_compat; assumption.
Qed.

Definition STEPS : Z := (2 ^ Z.of_nat SQUARINGS)%Z.
Lemma STEPS_pos : (0 < STEPS)%Z. Proof. reflexivity. Qed.
Lemma STEPS_pow : IZR STEPS = 2 ^ SQUARINGS.
Proof. unfold STEPS. rewrite <- pow_IZR. reflexivity. Qed.
Global Opaque STEPS.

(** At most ONE exp (n / d), for n >= 0 and d > 0. *)
Definition exp_low (n d : Z) : Z :=
  let n := Z.min n (FLAT * d) in
  squares_low SQUARINGS (ONE * (d * STEPS + n) / (d * STEPS)).

(** At least ONE exp (n / d), for n < d STEPS and d > 0. *)
Definition exp_up (n d : Z) : Z := squares_up SQUARINGS (up (ONE * (d * STEPS)) (d * STEPS - n)).

Lemma exp_mono x y : x <= y -> exp x <= exp y.
Proof. intros [H|H]; [left; apply exp_increasing; exact H|right; f_equal; exact H]. Qed.

Lemma steps_split n d : (0 < d)%Z -> IZR n / IZR d = IZR n / IZR (d * STEPS) * 2 ^ SQUARINGS.
Proof.
  intro H. rewrite <- STEPS_pow, mult_IZR. assert (0 < IZR d) by (apply IZR_lt; exact H).
  assert (0 < IZR STEPS) by (apply IZR_lt, STEPS_pos). field. lra.
Qed.

Theorem exp_low_sound n d : (0 <= n)%Z -> (0 < d)%Z -> IZR (exp_low n d) <= IZR ONE * exp (IZR n / IZR d).
Proof.
  intros Hn Hd. unfold exp_low. set (c := Z.min n (FLAT * d)).
  assert (Hc : (0 <= c <= n)%Z) by (unfold c, FLAT; lia). clearbody c.
  assert (Rd : 0 < IZR d) by (apply IZR_lt; exact Hd). pose proof STEPS_pos as Hs.
  apply Rle_trans with (IZR ONE * exp (IZR c / IZR d)).
  2: { apply Rmult_le_compat_l; [left; auto|]. apply exp_mono. apply Rmult_le_compat_r.
       - left. apply Rinv_0_lt_compat. exact Rd.
       - apply IZR_le. lia. }
  rewrite (steps_split c d Hd). assert (Hds : (0 < d * STEPS)%Z) by nia.
  assert (Rds : 0 < IZR (d * STEPS)) by (apply IZR_lt; exact Hds).
  pose proof ONE_pos. apply squares_low_sound.
  - apply Z.div_pos; nia.
  - eapply Rle_trans; [apply div_below_over; exact Hds|].
    pose proof (exp_ineq1_le (IZR c / IZR (d * STEPS))) as E.
    replace (IZR (ONE * (d * STEPS + c)) / IZR (d * STEPS)) with (IZR ONE * (1 + IZR c / IZR (d * STEPS)))
      by (rewrite (mult_IZR ONE), (plus_IZR (d * STEPS)); field; lra).
    apply Rmult_le_compat_l; [left; auto|exact E].
Qed.

Theorem exp_up_sound n d : (0 < d)%Z -> (n < d * STEPS)%Z -> IZR ONE * exp (IZR n / IZR d) <= IZR (exp_up n d).
Proof.
  intros Hd Hn. unfold exp_up. rewrite (steps_split n d Hd). pose proof STEPS_pos as Hs.
  assert (Rds : 0 < IZR (d * STEPS)) by (apply IZR_lt; nia). pose proof ONE_posR.
  apply squares_up_sound. eapply Rle_trans; [|apply up_above_over; lia].
  set (t := IZR n / IZR (d * STEPS)).
  assert (Ht : IZR (d * STEPS - n) = IZR (d * STEPS) * (1 - t)) by (unfold t; rewrite minus_IZR; field; lra).
  assert (0 < IZR (d * STEPS - n)) as Pos by (apply IZR_lt; lia).
  rewrite Ht in *. rewrite mult_IZR. assert (0 < 1 - t) by nra.
  replace (IZR ONE * IZR (d * STEPS) / (IZR (d * STEPS) * (1 - t))) with (IZR ONE * / (1 - t)) by (field; lra).
  apply Rmult_le_compat_l; [lra|].
  pose proof (exp_ineq1_le (- t)) as E. rewrite exp_Ropp in E. pose proof (exp_pos t).
  rewrite <- (Rinv_inv (exp t)) by lra. apply Rinv_le_contravar; lra.
Qed.
Global Opaque exp_low exp_up.
