(** Privacy of rows of weights, pair by pair, and the factors of rows that a bound may use. *)
From Coq Require Import ZArith List Bool Reals Lra Lia FMapPositive.
From Privopt Require Import Exp Rows Sums Bound Spec Metric Tables.
Import ListNotations.
Open Scope R_scope.

Definition is_required (w : option rat) (m : measured) : bool :=
  match w with Some w => is_within m w | None => true end.

(** Record i, whose row is a, against all others from record j on. *)
Fixpoint row_is_private (e : rat) (w : option rat) (i j : nat) (a : list Z) (ds : list (option measured)) (rows : list (list Z)) : bool :=
  match ds, rows with
  | [], [] => true
  | d :: ds, b :: rest =>
      match d with
      | None => match w with Some _ => true | None => false end   (* no walk joins both *)
      | Some m => good m && (Nat.eqb i j || negb (is_required w m) || below (exp_low (fst e * lo m) (snd e * ONE)) a b)
      end && row_is_private e w i (S j) a ds rest
  | _, _ => false
  end.

(** Factors are found up to exp 64, which is no limit: no ratio of weights is above 2^63. *)
Definition factor_to (e : rat) (w : option rat) (i : nat) (ds : list (option measured)) (j : nat) : option Z :=
  match nth_error ds j with
  | Some (Some m) =>
      let n := (fst e * hi m)%Z in let d := (snd e * ONE)%Z in
      if good m && negb (Nat.eqb i j) && is_required w m && (n <? d * STEPS)%Z && (n <=? 64 * d)%Z
      then Some (exp_up n d) else None
  | _ => None
  end.

Definition factors_of (e : rat) (w : option rat) (i : nat) (ds : list (option measured)) (wanted : list nat) : PositiveMap.t Z :=
  fold_right (fun j t => match factor_to e w i ds j with Some u => PositiveMap.add (key j) u t | None => t end)
    (PositiveMap.empty Z) wanted.

Fixpoint check_rows (p : problem) (m : measures) (wanted : nat -> list nat) (rows : list (list Z)) (i : nat)
  (rest : list (list Z)) : option factors :=
  match rest with
  | [] => Some (PositiveMap.empty _)
  | a :: rest =>
      let ds := own m i in
      if Nat.eqb (length ds) (length (records p)) && row_is_private (epsilon p) (within p) i 0 a ds rows then
        match check_rows p m wanted rows (S i) rest with
        | Some t => Some (PositiveMap.add (key i) (factors_of (epsilon p) (within p) i ds (wanted i)) t)
        | None => None
        end
      else None
  end.

Definition positive (r : rat) : bool := (0 <? fst r)%Z && (0 <? snd r)%Z.
Lemma positive_rv r : positive r = true -> 0 < rv r /\ (0 < fst r)%Z /\ (0 < snd r)%Z.
Proof.
  unfold positive, rv. rewrite andb_true_iff, !Z.ltb_lt. intros [A B]. split; [|auto].
  apply Rmult_lt_0_compat; [apply IZR_lt, A|apply Rinv_0_lt_compat, IZR_lt, B].
Qed.

Lemma some_inj {A} (a b : A) : Some a = Some b -> a = b.
Proof. congruence. Qed.

Lemma required_iff p i j x m : distance p i j x -> x = mv m -> good m = true -> i <> j ->
  (forall w, within p = Some w -> (0 < snd w)%Z) ->
  is_required (within p) m = true <-> required p i j x.
Proof.
  intros A -> G Ne W. unfold is_required, required. destruct (within p) as [w|].
  - rewrite (is_within_iff m w G (W w eq_refl)). tauto.
  - tauto.
Qed.

Lemma exponent e m x : x = mv m -> (0 < snd e)%Z ->
  IZR (fst e * lo m) / IZR (snd e * ONE) = rv e * (IZR (lo m) / IZR ONE) /\
  IZR (fst e * hi m) / IZR (snd e * ONE) = rv e * (IZR (hi m) / IZR ONE).
Proof.
  intros _ H. apply IZR_lt in H. pose proof ONE_posR. unfold rv. rewrite !mult_IZR. split; field; lra.
Qed.

Lemma over_one a x : a <= IZR ONE * x -> a / IZR ONE <= x.
Proof.
  intro H. pose proof ONE_posR. apply Rmult_le_reg_r with (IZR ONE); [assumption|].
  unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra.
Qed.
Lemma under_one a x : IZR ONE * x <= a -> x <= a / IZR ONE.
Proof.
  intro H. pose proof ONE_posR. apply Rmult_le_reg_r with (IZR ONE); [assumption|].
  unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra.
Qed.

Lemma low_factor e m : positive e = true -> good m = true ->
  IZR (exp_low (fst e * lo m) (snd e * ONE)) <= IZR ONE * exp (rv e * mv m).
Proof.
  intros He G. destruct (positive_rv e He) as [Pe [Pn Pd]]. pose proof (lo_pos m G). pose proof ONE_pos. pose proof ONE_posR.
  eapply Rle_trans; [apply exp_low_sound; nia|]. apply Rmult_le_compat_l; [lra|]. apply exp_mono.
  destruct (exponent e m (mv m) eq_refl Pd) as [-> _]. apply Rmult_le_compat_l; [lra|]. apply over_one, lo_sound, G.
Qed.

Section Check_rows.
  Variables (p : problem) (m : measures) (wanted : nat -> list nat) (rows : list (list Z)) (width : nat).
  Let n := length (records p).
  Hypothesis He : positive (epsilon p) = true.
  Hypothesis Hw : forall w, within p = Some w -> (0 < snd w)%Z.
  Hypothesis Hm : forall i, (i < n)%nat -> length (own m i) = n -> describes (distance p i) n (own m i).
  Hypothesis Hd : forall r, In r rows -> Distribution width r.

  Lemma row_is_private_sound i a ds : forall j rs, row_is_private (epsilon p) (within p) i j a ds rs = true ->
    length ds = length rs /\ forall k d b, nth_error ds k = Some (Some d) -> nth_error rs k = Some b ->
      good d = true /\ (i <> (j + k)%nat -> is_required (within p) d = true -> below (exp_low (fst (epsilon p) * lo d) (snd (epsilon p) * ONE)) a b = true).
  Proof.
    induction ds as [|d ds IH]; intros j [|b rs] H; simpl in H; try discriminate.
    - split; [reflexivity|]. intros [|k] d b; discriminate.
    - apply andb_true_iff in H as [H1 H2]. destruct (IH (S j) rs H2) as [L N]. split; [simpl; lia|].
      intros [|k] c r Hc Hr; simpl in Hc, Hr.
      + injection Hc as ->. injection Hr as ->. apply andb_true_iff in H1 as [G H1]. split; [exact G|].
        intros Ne R. rewrite R in H1. rewrite Nat.add_0_r in Ne. apply Nat.eqb_neq in Ne. rewrite Ne in H1. exact H1.
      + rewrite <- Nat.add_succ_comm. apply N; assumption.
  Qed.

  Lemma row_is_private_joined e w i a ds : w = None -> forall j rs, row_is_private e w i j a ds rs = true ->
    forall k, nth_error ds k <> Some None.
  Proof.
    intros ->. induction ds as [|d ds IH]; intros j [|b rs] H k; simpl in H; try discriminate; [destruct k; discriminate|].
    apply andb_true_iff in H as [H1 H2]. destruct k as [|k]; simpl; [|apply (IH (S j) rs H2)].
    destruct d; [discriminate|]. discriminate H1.
  Qed.

  Lemma check_rows_joined rest : within p = None -> forall i t, check_rows p m wanted rows i rest = Some t ->
    (i + length rest <= n)%nat -> forall k j, (k < length rest)%nat -> (j < n)%nat -> exists x, distance p (i + k) j x.
  Proof.
    intro W. induction rest as [|a rest IH]; intros i t H Hi k j Hk Hj; [simpl in Hk; lia|]. cbn [check_rows] in H.
    destruct (_ && _) eqn:C; [|discriminate]. apply andb_true_iff in C as [L C]. apply Nat.eqb_eq in L. fold n in L.
    destruct (check_rows p m wanted rows (S i) rest) as [t'|] eqn:E; [|discriminate]. simpl in Hi, Hk.
    destruct k as [|k].
    - rewrite Nat.add_0_r. pose proof (row_is_private_joined _ _ _ _ _ W _ _ C j) as N.
      pose proof (Hm i ltac:(lia) L j Hj) as T. destruct (nth_error (own m i) j) as [[d|]|]; [eauto|congruence|contradiction].
    - rewrite <- Nat.add_succ_comm. apply (IH (S i) t' E); lia.
  Qed.

  Definition right_factor (i j : nat) (u : Z) : Prop :=
    (i < n)%nat /\ (j < n)%nat /\ exists x, required p i j x /\ IZR ONE * exp (rv (epsilon p) * x) <= IZR u.

  Lemma factor_to_sound i j u : (i < n)%nat -> length (own m i) = n ->
    factor_to (epsilon p) (within p) i (own m i) j = Some u -> right_factor i j u.
  Proof.
    intros Hi L. unfold factor_to. destruct (nth_error (own m i) j) as [[d|]|] eqn:E; try discriminate.
    destruct (_ && _) eqn:C; [|discriminate]. intro H. apply some_inj in H. subst u.
    rewrite !andb_true_iff, negb_true_iff, Nat.eqb_neq, Z.ltb_lt in C. destruct C as [[[[G Ne] Rq] Lt] _].
    assert (Hj : (j < n)%nat) by (rewrite <- L; apply nth_error_Some; congruence).
    pose proof (Hm i Hi L j Hj) as T. rewrite E in T. split; [exact Hi|]. split; [exact Hj|]. exists (mv d). split.
    - apply (required_iff p i j (mv d) d T eq_refl G Ne Hw), Rq.
    - destruct (positive_rv _ He) as [Pe [Pn Pd]]. pose proof ONE_posR. pose proof ONE_pos.
      eapply Rle_trans; [|apply exp_up_sound; [nia|exact Lt]]. apply Rmult_le_compat_l; [lra|]. apply exp_mono.
      destruct (exponent (epsilon p) d (mv d) eq_refl Pd) as [_ ->]. apply Rmult_le_compat_l; [lra|]. apply under_one, hi_sound, G.
  Qed.

  Lemma factors_of_sound i js j u : (i < n)%nat -> length (own m i) = n ->
    PositiveMap.find (key j) (factors_of (epsilon p) (within p) i (own m i) js) = Some u -> right_factor i j u.
  Proof.
    intros Hi L. induction js as [|k rest IH]; cbn [factors_of fold_right].
    - rewrite PositiveMap.gempty. discriminate.
    - fold (factors_of (epsilon p) (within p) i (own m i) rest).
      destruct (factor_to _ _ i (own m i) k) as [v|] eqn:E; [|exact IH].
      destruct (Nat.eq_dec j k) as [->|Ne].
      + rewrite PositiveMap.gss. intro H. injection H as <-. apply factor_to_sound; assumption.
      + rewrite PositiveMap.gso by (intro K; apply Ne, key_inj, K). exact IH.
  Qed.

  Lemma check_rows_sound rest : forall i t, check_rows p m wanted rows i rest = Some t ->
    (i + length rest <= n)%nat ->
    (forall k a, nth_error rest k = Some a -> forall j b x, nth_error rows j = Some b -> required p (i + k) j x ->
       forall E, prob a E <= exp (rv (epsilon p) * x) * prob b E) /\
    (forall a j u, factor t a j = Some u -> right_factor a j u).
  Proof.
    induction rest as [|a rest IH]; intros i t H Hi; cbn [check_rows] in H.
    - injection H as <-. split; [intros [|k] a; discriminate|]. intros a j u. unfold factor. rewrite PositiveMap.gempty. discriminate.
    - destruct (_ && _) eqn:C; [|discriminate]. apply andb_true_iff in C as [L C]. apply Nat.eqb_eq in L. fold n in L.
      destruct (check_rows p m wanted rows (S i) rest) as [t'|] eqn:E; [|discriminate]. injection H as <-.
      simpl in Hi. destruct (IH (S i) t' E ltac:(lia)) as [P F]. assert (Hin : (i < n)%nat) by lia.
      destruct (row_is_private_sound i a (own m i) 0 rows C) as [Ln N]. split.
      + intros [|k] a' Ha j b x Hb Rq Ev; simpl in Ha.
        * injection Ha as <-. rewrite Nat.add_0_r in Rq. destruct Rq as [Ne [A W]].
          assert (Hj : (j < n)%nat) by (rewrite <- L, Ln; apply nth_error_Some; congruence).
          pose proof (Hm i Hin L j Hj) as T. destruct (nth_error (own m i) j) as [[d|]|] eqn:Ed; [|exfalso; exact (T x A)|contradiction].
          destruct (N j d b Ed Hb) as [G B]. assert (x = mv d) as -> by (eapply distance_unique; eauto).
          apply (near_event width (exp_low (fst (epsilon p) * lo d) (snd (epsilon p) * ONE))).
          -- apply Hd. eapply nth_error_In; eauto.
          -- apply B; [exact Ne|]. apply (required_iff p i j (mv d) d T eq_refl G Ne Hw). split; [exact Ne|]. auto.
          -- apply low_factor; assumption.
        * rewrite <- Nat.add_succ_comm in Rq. apply (P k a' Ha j b x Hb Rq Ev).
      + intros c j u. unfold factor. destruct (Nat.eq_dec c i) as [->|Ne].
        * rewrite PositiveMap.gss. apply factors_of_sound; assumption.
        * rewrite PositiveMap.gso by (intro K; apply Ne, key_inj, K). apply F.
  Qed.
End Check_rows.
