(** Finite sums of reals, and maps from numbers of records to whole numbers. *)
From Coq Require Import ZArith List Reals Lra Lia FMapPositive.
From Privopt Require Export Basics.
Import ListNotations.
Open Scope R_scope.

Lemma sum_ext n f g : (forall i, (i < n)%nat -> f i = g i) -> sum n f = sum n g.
Proof. induction n; intro H; simpl; [reflexivity|]. rewrite IHn, H; auto with arith. Qed.

Lemma sum_le n f g : (forall i, (i < n)%nat -> f i <= g i) -> sum n f <= sum n g.
Proof.
  induction n; intro H; simpl; [lra|]. pose proof (H n ltac:(lia)).
  assert (sum n f <= sum n g) by (apply IHn; intros; apply H; lia). lra.
Qed.

Lemma sum_scale n c f : sum n (fun i => c * f i) = c * sum n f.
Proof. induction n; simpl; [lra|]. rewrite IHn. ring. Qed.

Lemma sum_plus n f g : sum n (fun i => f i + g i) = sum n f + sum n g.
Proof. induction n; simpl; [lra|]. rewrite IHn. ring. Qed.

Lemma sum_zero n : sum n (fun _ => 0) = 0.
Proof. induction n; simpl; [lra|]. rewrite IHn. ring. Qed.

Lemma sum_swap n m f : sum n (fun i => sum m (fun k => f i k)) = sum m (fun k => sum n (fun i => f i k)).
Proof.
  induction n; simpl; [symmetry; apply sum_zero|]. rewrite IHn, <- sum_plus. reflexivity.
Qed.

Lemma sum_shift n f : sum (S n) f = f O + sum n (fun i => f (S i)).
Proof. induction n; [simpl; lra|]. change (sum (S (S n)) f) with (sum (S n) f + f (S n)). rewrite IHn. simpl. ring. Qed.

(** Numbers of records as keys. *)
Definition key (i : nat) : positive := Pos.of_succ_nat i.
Lemma key_inj i j : key i = key j -> i = j.
Proof. apply SuccNat2Pos.inj. Qed.

Definition zmap := PositiveMap.t Z.
Definition get (m : zmap) (i : nat) : Z := match PositiveMap.find (key i) m with Some v => v | None => 0%Z end.
Definition put (i : nat) (v : Z) (m : zmap) : zmap := PositiveMap.add (key i) v m.
Definition add_to (i : nat) (v : Z) (m : zmap) : zmap := put i (get m i + v)%Z m.

Lemma get_put i v m j : get (put i v m) j = if Nat.eqb i j then v else get m j.
Proof.
  unfold get, put. destruct (Nat.eqb i j) eqn:E.
  - apply Nat.eqb_eq in E. subst. rewrite PositiveMap.gss. reflexivity.
  - apply Nat.eqb_neq in E. rewrite PositiveMap.gso; [reflexivity|]. intro K. apply E. symmetry. apply key_inj, K.
Qed.

Lemma sum_add_to n i v m r : (i < n)%nat ->
  sum n (fun a => IZR (get (add_to i v m) a) * r a) = sum n (fun a => IZR (get m a) * r a) + IZR v * r i.
Proof.
  unfold add_to. revert i. induction n; intros i Hi; [lia|]. cbn [sum].
  rewrite (get_put i _ m n). destruct (Nat.eqb_spec i n) as [->|Ne].
  - rewrite plus_IZR. rewrite (sum_ext n _ (fun a => IZR (get m a) * r a)); [ring|].
    intros a Ha. rewrite get_put. destruct (Nat.eqb_spec n a); [lia|reflexivity].
  - rewrite IHn by lia. ring.
Qed.

(** A list as a map. *)
Fixpoint of_list (i : nat) (l : list Z) : zmap :=
  match l with [] => PositiveMap.empty Z | x :: s => put i x (of_list (S i) s) end.

Lemma get_of_list l : forall i a, get (of_list i l) (i + a) = nth a l 0%Z.
Proof.
  induction l as [|x s IH]; intros i a; cbn [of_list].
  - unfold get. rewrite PositiveMap.gempty. destruct a; reflexivity.
  - rewrite get_put. destruct (Nat.eqb_spec i (i + a)) as [E|Ne].
    + replace a with O by lia. reflexivity.
    + destruct a; [lia|]. rewrite <- Nat.add_succ_comm, IH. reflexivity.
Qed.

(** Sums over lists. *)
Fixpoint dot (a b : list Z) : Z := match a, b with x :: s, y :: t => (x * y + dot s t)%Z | _, _ => 0%Z end.

Lemma dot_sum a : forall b, length a = length b ->
  IZR (dot a b) = sum (length a) (fun i => IZR (nth i a 0%Z) * IZR (nth i b 0%Z)).
Proof.
  induction a as [|x s IH]; intros [|y t] H; try discriminate; [reflexivity|].
  cbn [dot length]. rewrite sum_shift. cbn [nth]. rewrite plus_IZR, mult_IZR, IH by (simpl in H; lia). reflexivity.
Qed.

Lemma total_sum (r : list Z) (f : list Z -> Z) :
  (f [] = 0%Z) -> (forall x s, f (x :: s) = (x + f s)%Z) ->
  IZR (f r) = sum (length r) (fun i => IZR (nth i r 0%Z)).
Proof.
  intros H0 HS. induction r as [|x s IH]; [simpl; rewrite H0; reflexivity|].
  rewrite HS, plus_IZR, IH. cbn [length]. rewrite sum_shift. reflexivity.
Qed.
