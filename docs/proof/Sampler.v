(** A draw: 8 random bytes are a number below 2^64, one bit is dropped, and what is left is looked up
    among the cumulated weights. Of the 2^64 strings of 8 bytes exactly 2 w_k give output k. *)
From Coq Require Import ZArith List Bool Lia.
From Privopt Require Import Rows.
Import ListNotations.
Open Scope Z_scope.

Fixpoint cumulated (before : Z) (w : list Z) : list Z :=
  match w with [] => [] | x :: s => (before + x) :: cumulated (before + x) s end.

(** How many of the cumulated weights are at most u. *)
Definition look_up (w : list Z) (u : Z) : nat := length (filter (fun c => c <=? u) (cumulated 0 w)).

(** The output that a number below 2^64 gives. *)
Definition draw (w : list Z) (bits : Z) : nat := look_up w (bits / 2).

(** How many of the numbers 0, ..., n - 1 have a property. *)
Fixpoint count (f : Z -> bool) (n : nat) : Z :=
  match n with O => 0 | S n => count f n + (if f (Z.of_nat n) then 1 else 0) end.

Lemma total_pos w : (forall x, In x w -> 0 <= x) -> forall k, 0 <= total (firstn k w).
Proof.
  induction w as [|x s IH]; intros H [|k]; simpl; try lia.
  assert (0 <= x) by (apply H; left; reflexivity).
  assert (0 <= total (firstn k s)) by (apply IH; intros; apply H; right; assumption). lia.
Qed.

Lemma none_below w : (forall x, In x w -> 0 <= x) -> forall before u, u < before -> filter (fun c => c <=? u) (cumulated before w) = [].
Proof.
  induction w as [|x s IH]; intros H before u Hu; simpl; [reflexivity|].
  assert (0 <= x) by (apply H; left; reflexivity). destruct (Z.leb_spec (before + x) u); [lia|].
  apply IH; [intros; apply H; right; assumption|lia].
Qed.

Lemma look_up_iff w : (forall x, In x w -> 0 <= x) -> forall before u, before <= u < before + total w -> forall k,
  length (filter (fun c => c <=? u) (cumulated before w)) = k <->
  (before + total (firstn k w) <= u < before + total (firstn (S k) w)).
Proof.
  induction w as [|x s IH]; intros H before u Hu k; [simpl in Hu; lia|].
  assert (H0 : 0 <= x) by (apply H; left; reflexivity).
  assert (Hs : forall y, In y s -> 0 <= y) by (intros; apply H; right; assumption).
  cbn [cumulated filter total] in *. destruct (Z.leb_spec (before + x) u) as [L|L]; cbn [length].
  - destruct k as [|k].
    + split; [discriminate|]. simpl. lia.
    + specialize (IH Hs (before + x) u ltac:(lia) k). cbn [firstn total] in *. rewrite !Z.add_assoc, <- IH. split; [congruence|lia].
  - rewrite (none_below s Hs) by exact L. cbn [length]. destruct k as [|k].
    + simpl. lia.
    + split; [discriminate|]. pose proof (total_pos s Hs k). cbn [firstn total]. lia.
Qed.

Lemma count_ext f g n : (forall i, 0 <= i < Z.of_nat n -> f i = g i) -> count f n = count g n.
Proof. induction n; intro H; simpl; [reflexivity|]. rewrite IHn by (intros; apply H; lia). rewrite H by lia. reflexivity. Qed.

Lemma count_between a c n : 0 <= a <= c ->
  count (fun i => (a <=? i) && (i <? c)) n = Z.max 0 (Z.min c (Z.of_nat n) - a).
Proof.
  intro H. induction n as [|n IH]; [simpl; lia|]. cbn [count]. rewrite IH, Nat2Z.inj_succ.
  destruct (Z.leb_spec a (Z.of_nat n)); destruct (Z.ltb_spec (Z.of_nat n) c); cbn [andb]; lia.
Qed.

Lemma total_step w : forall k, (k < length w)%nat -> total (firstn (S k) w) = total (firstn k w) + nth k w 0.
Proof.
  induction w as [|x s IH]; intros k Hk; [simpl in Hk; lia|]. destruct k as [|k]; [simpl; lia|].
  simpl in Hk. specialize (IH k ltac:(lia)). cbn [firstn total nth] in *. lia.
Qed.

Lemma total_most w : (forall x, In x w -> 0 <= x) -> forall k, total (firstn k w) <= total w.
Proof.
  induction w as [|x s IH]; intros H [|k]; simpl; try lia.
  - assert (0 <= x) by (apply H; left; reflexivity). specialize (IH ltac:(intros; apply H; right; assumption) O). simpl in IH. lia.
  - specialize (IH ltac:(intros; apply H; right; assumption) k). lia.
Qed.

Theorem sampler width w k : Distribution width w -> (k < width)%nat ->
  forall n, Z.of_nat n = 2 ^ 64 -> count (fun bits => Nat.eqb (draw w bits) k) n = 2 * nth k w 0.
Proof.
  intros [L [P T]] Hk n Hn. rewrite <- L in Hk.
  assert (T' : total w = 2 ^ 63) by exact T. clear T.
  assert (H2 : 2 ^ 64 = 2 * 2 ^ 63) by reflexivity.
  rewrite (count_ext _ (fun i => (2 * total (firstn k w) <=? i) && (i <? 2 * total (firstn (S k) w)))).
  - pose proof (total_pos w P k). pose proof (total_most w P (S k)). rewrite total_step in * by exact Hk.
    assert (0 <= nth k w 0) by (apply P, nth_In, Hk). rewrite count_between by lia. rewrite Hn. lia.
  - intros i Hi. rewrite Hn in Hi. unfold draw, look_up.
    assert (Hd : 2 * (i / 2) <= i < 2 * (i / 2) + 2).
    { pose proof (Z.mul_div_le i 2 ltac:(lia)). pose proof (Z.mul_succ_div_gt i 2 ltac:(lia)). lia. }
    pose proof (look_up_iff w P 0 (i / 2) ltac:(rewrite T'; lia) k) as E. rewrite !Z.add_0_l in E.
    destruct (Nat.eqb_spec (length (filter (fun c => c <=? i / 2) (cumulated 0 w))) k) as [Q|Q].
    + apply E in Q. symmetry. rewrite andb_true_iff, Z.leb_le, Z.ltb_lt. lia.
    + symmetry. apply andb_false_iff. rewrite Z.leb_gt, Z.ltb_ge.
      destruct (Z.le_gt_cases (total (firstn k w)) (i / 2)); [|lia].
      destruct (Z.lt_ge_cases (i / 2) (total (firstn (S k) w))); [|lia]. exfalso. apply Q, E. lia.
Qed.
