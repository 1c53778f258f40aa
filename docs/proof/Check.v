(** The check of a problem and a matrix, and the theorem about it. *)
From Coq Require Import ZArith List Bool Reals Lra Lia FMapPositive.
From Privopt Require Import Exp Rows Sums Bound Spec Claims Metric Tables Privacy Costs.
Import ListNotations.
Open Scope R_scope.

Lemma distinct_sound l : distinct l = true -> NoDup l.
Proof.
  induction l as [|a s IH]; simpl; [constructor|]. rewrite andb_true_iff, negb_true_iff. intros [H1 H2].
  constructor; [|apply IH, H2]. intro Hin. assert (existsb (same a) s = true); [|congruence].
  apply existsb_exists. exists a. split; [exact Hin|]. apply same_eq. reflexivity.
Qed.

Lemma lookup_in {A} id (t : list (bytes * A)) x : lookup id t = Some x -> In (id, x) t.
Proof.
  induction t as [|[a y] s IH]; simpl; [discriminate|]. destruct (same id a) eqn:E; [|auto].
  intro H. injection H as ->. apply same_eq in E. subst. auto.
Qed.

(** Shares of the records in whole numbers. *)
Definition share (s : Z) (e : bytes * rat) : option (bytes * Z) :=
  match scaled s (snd e) with Some z => if (0 <=? z)%Z then Some (fst e, z) else None | None => None end.

Definition shares_of (p : problem) : option (list Z) :=
  match map_opt (share (largest (map snd (prior p)))) (prior p) with
  | Some t =>
      match map_opt (fun id => lookup id t) (records p) with
      | Some l =>
          if (0 <? total l)%Z && (total l =? total (map snd t))%Z && Nat.eqb (length t) (length l) then Some l else None
      | None => None
      end
  | None => None
  end.

Lemma shares_sound p l : shares_of p = Some l ->
  length l = length (records p) /\ (forall x, In x l -> (0 <= x)%Z) /\ (0 < total l)%Z /\
  (forall i, (i < length (records p))%nat -> share_of p i (IZR (nth i l 0%Z) / IZR (total l))) /\
  (NoDup (records p) -> forall id, In id (map fst (prior p)) <-> In id (records p)).
Proof.
  unfold shares_of. set (s := largest _). assert (Hs : (0 < s)%Z) by apply largest_pos. clearbody s.
  destruct (map_opt (share s) (prior p)) as [t|] eqn:Et; [|discriminate].
  destruct (map_opt _ (records p)) as [l'|] eqn:El; [|discriminate]. destruct (_ && _) eqn:C; [|discriminate].
  intro H. injection H as ->. rewrite !andb_true_iff, Z.ltb_lt, Z.eqb_eq in C. destruct C as [[C1 C2] C3].
  apply Nat.eqb_eq in C3. destruct (map_opt_nth _ _ _ El) as [Ll Nl]. destruct (map_opt_nth _ _ _ Et) as [Lt _]. split; [exact Ll|].
  assert (T : forall id z, In (id, z) t -> (0 <= z)%Z /\ exists q, In (id, q) (prior p) /\ rv q = IZR z / IZR s).
  { intros id z Hin. destruct (map_opt_back _ _ _ Et _ Hin) as [[id' q] [Hq Sq]]. unfold share in Sq. cbn [fst snd] in Sq.
    destruct (scaled s q) as [z'|] eqn:E; [|discriminate]. destruct (Z.leb_spec 0 z'); [|discriminate]. injection Sq as -> ->.
    split; [assumption|]. exists q. split; [exact Hq|]. apply scaled_sound in E. tauto. }
  split.
  - intros x Hx. destruct (map_opt_back _ _ _ El _ Hx) as [id [_ Hl]]. apply lookup_in in Hl. apply T in Hl. tauto.
  - split; [exact C1|]. split; [|intro D; assert (I : incl (records p) (map fst (prior p)))].
    2: { intros id Hid. destruct (map_opt_forth _ _ _ El id Hid) as [z [_ Hz]]. apply lookup_in in Hz.
         destruct (T id z Hz) as [_ [q [Hq _]]]. apply (in_map fst _ _ Hq). }
    2: { intro id. split; [|apply I]. apply (NoDup_length_incl D); [rewrite map_length; lia|exact I]. }
    intros i Hi. destruct (nth_error_some (records p) i Hi) as [id Hid].
    destruct (Nl i id Hid) as [z [Hz Nz]]. apply lookup_in in Hz. destruct (T id z Hz) as [_ [q [Hq Rq]]].
    exists id, q. split; [exact Hid|]. split; [exact Hq|]. rewrite (nth_of_error _ _ _ 0%Z Nz), Rq, C2.
    assert (W : sum_of (prior p) = IZR (total (map snd t)) / IZR s).
    { clear - Et Hs. revert t Et. induction (prior p) as [|e rest IH]; intros t Et; simpl in Et.
      - injection Et as <-. simpl. unfold Rdiv. ring.
      - destruct (share s e) as [[id z]|] eqn:E; [|discriminate]. destruct (map_opt (share s) rest) as [t'|]; [|discriminate].
        injection Et as <-. simpl. fold (sum_of rest). rewrite (IH t' eq_refl), plus_IZR. unfold share in E.
        destruct (scaled s (snd e)) as [z'|] eqn:F; [|discriminate]. destruct (0 <=? z')%Z; [|discriminate]. injection E as _ ->.
        apply scaled_sound in F as [_ [_ ->]]. unfold Rdiv. ring. }
    rewrite W, <- C2. apply IZR_lt in Hs. apply IZR_lt in C1. field. lra.
Qed.

(** Shares of the records are a distribution. *)
Lemma shares_distribution l : (forall x, In x l -> (0 <= x)%Z) -> (0 < total l)%Z ->
  (forall i, 0 <= IZR (nth i l 0%Z) / IZR (total l)) /\ sum (length l) (fun i => IZR (nth i l 0%Z) / IZR (total l)) = 1.
Proof.
  intros P T. apply IZR_lt in T as R. assert (0 < / IZR (total l)) by (apply Rinv_0_lt_compat; exact R). split.
  - intro i. apply Rmult_le_pos; [|lra]. apply IZR_le. destruct (Nat.lt_ge_cases i (length l)) as [L|G].
    + apply P, nth_In, L.
    + rewrite nth_overflow by exact G. lia.
  - rewrite (sum_ext _ _ (fun i => / IZR (total l) * IZR (nth i l 0%Z))) by (intros; unfold Rdiv; ring).
    rewrite sum_scale, <- (total_sum l total) by reflexivity. field. lra.
Qed.

(** Rows that were found private are a mechanism: there is one. *)
Lemma drawn_mechanism p rows : length rows = length (records p) ->
  (forall r, In r rows -> Distribution (length (outputs p)) r) -> Private p rows -> Mechanism p (drawn rows).
Proof.
  intros L D P. assert (T : 0 < IZR TOTAL) by (apply IZR_lt, TOTAL_pos).
  assert (R : forall i, (i < length (records p))%nat -> exists r, nth_error rows i = Some r /\ nth i rows [] = r /\
    Distribution (length (outputs p)) r).
  { intros i Hi. destruct (nth_error_some rows i ltac:(lia)) as [r Hr]. exists r. split; [exact Hr|].
    split; [apply (nth_of_error _ _ _ [] Hr)|]. apply D. eapply nth_error_In; eauto. }
  split; [|split].
  - intros i k Hi Hk. destruct (R i Hi) as [r [_ [N [Lr [Pr _]]]]]. unfold drawn. rewrite N.
    apply Rmult_le_pos; [|left; apply Rinv_0_lt_compat, T]. apply IZR_le, Pr, nth_In. lia.
  - intros i Hi. destruct (R i Hi) as [r [_ [N [Lr [_ Tr]]]]].
    rewrite (sum_ext _ _ (fun k => / IZR TOTAL * IZR (nth k r 0%Z))) by (intros; unfold drawn, Rdiv; rewrite N; ring).
    rewrite sum_scale, <- Lr, <- (total_sum r total) by reflexivity. rewrite Tr. field. lra.
  - intros i j x k Hi Hj Hk Q. destruct (R i Hi) as [a [A [Na _]]]. destruct (R j Hj) as [c [C [Nc _]]].
    pose proof (P i j a c x A C Q (Nat.eqb k)) as E. unfold prob in E. rewrite !weight_one in E.
    unfold drawn. rewrite Na, Nc. exact E.
Qed.

(** Where no distance of an output is given, none is asked for. *)
Definition measured_outputs (p : problem) : bool :=
  match metric p, costs p with
  | Matrix _ None, Distance | Matrix _ None, Travel _ =>
      if list_eq_dec (list_eq_dec Z.eq_dec) (outputs p) (records p) then true else false
  | _, _ => true
  end.

Definition distinct_targets (p : problem) : bool :=
  match costs p with Travel targets => distinct (map fst targets) | _ => true end.

Fixpoint columns_of (cost : nat -> option enclosed) (k : nat) (ws : list (list Z)) (st : list (list step)) : option (list column) :=
  match ws with
  | [] => Some []
  | w :: rest =>
      match cost k, columns_of cost (S k) rest (tl st) with
      | Some (l, h), Some cs => Some ({| low := l; high := h; weights := w; steps := hd [] st |} :: cs)
      | _, _ => None
      end
  end.

Record findings := { proved : Z; at_least : Z; at_most : Z }.

(** What is proved of a problem and rows of weights: a bound, ONE-ths, and between which two numbers
    the loss lies, TOTAL ONE-ths. [wanted] and [st] come from proof.npz and need not be right. *)
Definition check (p : problem) (rows : list (list Z)) (wanted : nat -> list nat) (st : list (list step)) : option findings :=
  let n := length (records p) in let width := length (outputs p) in
  if Nat.ltb 0 n && Nat.ltb 0 width && distinct (records p) && distinct (outputs p) && distinct (map fst (prior p))
     && distinct_targets p && measured_outputs p && positive (epsilon p) && match within p with Some w => positive w | None => true end
     && Nat.eqb (length rows) n && forallb (is_distribution width) rows then
    match measures_of p with
    | Some m =>
        match cost_table p m, shares_of p, check_rows p m wanted rows 0 rows with
        | Some cost, Some share, Some t =>
            match columns_of cost 0 (transpose width rows) st with
            | Some cs =>
                let s := evaluate n t (total share) share cs in
                match least s with
                | Some y => Some {| proved := total y; at_least := loss_low s; at_most := loss_high s |}
                | None => None
                end
            | None => None
            end
        | _, _, _ => None
        end
    | None => None
    end
  else None.

Lemma columns_sound cost ws : forall k st cs, columns_of cost k ws st = Some cs ->
  length cs = length ws /\ forall j, (j < length ws)%nat ->
    let c := nth j cs {| low := []; high := []; weights := []; steps := [] |} in
    cost (k + j)%nat = Some (low c, high c) /\ nth_error ws j = Some (weights c).
Proof.
  induction ws as [|w rest IH]; intros k st cs H; cbn [columns_of] in H.
  - injection H as <-. split; [reflexivity|]. simpl. lia.
  - destruct (cost k) as [[l h]|] eqn:E; [|discriminate]. destruct (columns_of cost (S k) rest (tl st)) as [cs'|] eqn:F; [|discriminate].
    injection H as <-. destruct (IH _ _ _ F) as [L N]. split; [simpl; lia|]. intros [|j] Hj; simpl.
    + rewrite Nat.add_0_r. auto.
    + rewrite <- Nat.add_succ_comm. apply N. simpl in Hj. lia.
Qed.

(** Everything that is claimed follows from the check. *)
Theorem check_sound p rows wanted st f : check p rows wanted st = Some f ->
  Sound p /\ length rows = length (records p) /\
  (forall r, In r rows -> Distribution (length (outputs p)) r) /\
  Private p rows /\ Shares p /\
  (forall z, exists v, Loss p z v) /\
  (exists v, Loss p (drawn rows) v /\ IZR (at_least f) <= IZR TOTAL * IZR ONE * v <= IZR (at_most f)) /\
  (forall z v, Mechanism p z -> Loss p z v -> IZR (proved f) <= IZR ONE * v).
Proof.
  unfold check. set (n := length (records p)). set (width := length (outputs p)).
  match goal with |- context [if ?c then _ else None] => destruct c eqn:C end; [|discriminate].
  rewrite !andb_true_iff, !Nat.ltb_lt, Nat.eqb_eq, forallb_forall in C.
  destruct C as [[[[[[[[[[Hn Hk] Dr] Do] Dp] Dt] Mo'] He] Hw] Hl] Hd].
  destruct (measures_of p) as [m|] eqn:Em; [|discriminate]. destruct (cost_table p m) as [cost|] eqn:Ec; [|discriminate].
  destruct (shares_of p) as [sh|] eqn:Es; [|discriminate]. destruct (check_rows p m wanted rows 0 rows) as [t|] eqn:Et; [|discriminate].
  destruct (columns_of cost 0 (transpose width rows) st) as [cs|] eqn:Ecs; [|discriminate].
  destruct (least (evaluate n t (total sh) sh cs)) as [y|] eqn:Ey; [|discriminate]. intro H. apply some_inj in H. subst f.
  cbn [proved at_least at_most].
  assert (HD : forall r, In r rows -> Distribution width r) by (intros; apply is_distribution_sound, Hd; assumption).
  assert (Hw' : forall w, within p = Some w -> Positive w).
  { intros w E. rewrite E in Hw. apply positive_rv in Hw. unfold Positive. tauto. }
  destruct (positive_rv _ He) as [Pe [Pn Pd]]. destruct (measures_sound p m Em) as [Mo Me].
  destruct (check_rows_sound p m wanted rows width He (fun w E => proj2 (Hw' w E)) Mo HD rows 0 t Et ltac:(rewrite Hl; reflexivity)) as [Pr Fa].
  destruct (shares_sound p sh Es) as [Ls [S0 [Sw [Sh Ids]]]].
  assert (Wide : all_wide width rows = true).
  { apply forallb_forall. intros r Hr. destruct (HD r Hr) as [L _]. apply Nat.eqb_eq, L. }
  destruct (transpose_sound width rows Wide) as [Lt Nt]. destruct (columns_sound _ _ _ _ _ Ecs) as [Lc Nc].
  rewrite Lt in *.
  set (col k := nth k cs {| low := []; high := []; weights := []; steps := [] |}) in *.
  pose proof (fun k e Hk He => cost_table_sound p m Mo Me cost Ec k e Hk He) as CS.
  assert (Enc : forall k, (k < width)%nat -> encloses n (fun i => cost_of p i k) (low (col k), high (col k))).
  { intros k Hkw. apply (CS k _ Hkw). destruct (Nc k Hkw) as [A _]. exact A. }
  (* costs as a function *)
  assert (exists c : nat -> nat -> R, forall k, (k < width)%nat -> forall i, (i < n)%nat -> cost_of p i k (c i k) /\
     IZR (nth i (low (col k)) 0%Z) <= IZR ONE * c i k <= IZR (nth i (high (col k)) 0%Z)) as [c Hc].
  { assert (G : forall w, (w <= width)%nat -> exists c : nat -> nat -> R, forall k, (k < w)%nat -> forall i, (i < n)%nat ->
      cost_of p i k (c i k) /\ IZR (nth i (low (col k)) 0%Z) <= IZR ONE * c i k <= IZR (nth i (high (col k)) 0%Z)).
    { induction w as [|w IH]; intro Hle; [exists (fun _ _ => 0); lia|]. destruct (IH ltac:(lia)) as [c Hc].
      destruct (Enc w ltac:(lia)) as [_ [_ B]]. cbn [fst snd] in B.
      assert (G : forall q, (q <= n)%nat -> exists d : nat -> R, forall i, (i < q)%nat -> cost_of p i w (d i) /\
        IZR (nth i (low (col w)) 0%Z) <= IZR ONE * d i <= IZR (nth i (high (col w)) 0%Z)).
      { induction q as [|q IHq]; intro Hq; [exists (fun _ => 0); lia|]. destruct (IHq ltac:(lia)) as [d Hd'].
        destruct (B q ltac:(lia)) as [x Hx]. exists (fun i => if Nat.eqb i q then x else d i). intros i Hi.
        destruct (Nat.eqb_spec i q) as [->|Ne]; [exact Hx|apply Hd'; lia]. }
      destruct (G n (le_n n)) as [d Hd']. exists (fun i k => if Nat.eqb k w then d i else c i k). intros k Hkw i Hi.
      destruct (Nat.eqb_spec k w) as [->|Ne]; [apply Hd', Hi|apply Hc; [lia|exact Hi]]. }
    apply (G width (le_n _)). }
  assert (Wt : forall k, (k < width)%nat -> length (weights (col k)) = n /\
    forall i, (i < n)%nat -> nth i (weights (col k)) 0%Z = nth k (nth i rows []) 0%Z /\ (0 <= nth i (weights (col k)) 0)%Z).
  { intros k Hkw. destruct (Nc k Hkw) as [_ W]. destruct (Nt k Hkw) as [w [Hw0 [Lw Nw]]]. cbv zeta in W. fold (col k) in W. rewrite Hw0 in W.
    apply some_inj in W. subst w. split; [rewrite Lw; exact Hl|]. intros i Hi.
    destruct (nth_error_some rows i ltac:(lia)) as [row Hrow]. destruct (Nw i row Hrow) as [E Nn].
    destruct (nth_error row k) as [v|] eqn:Ev; [|congruence].
    rewrite (nth_of_error _ _ _ 0%Z E), (nth_of_error _ _ _ [] Hrow), (nth_of_error _ _ _ 0%Z Ev). split; [reflexivity|].
    destruct (HD row (nth_error_In _ _ Hrow)) as [_ [P0 _]]. apply P0. eapply nth_error_In; eauto. }
  assert (Hlow : forall k, (k < length cs)%nat -> length (low (col k)) = n /\
    forall i, (i < n)%nat -> IZR (nth i (low (col k)) 0%Z) <= IZR ONE * c i k).
  { intros k Hkc. rewrite Lc in Hkc. split; [apply (Enc k Hkc)|]. intros i Hi. apply (Hc k Hkc i Hi). }
  assert (Hhigh : forall k, (k < length cs)%nat -> length (high (col k)) = n /\
    forall i, (i < n)%nat -> IZR ONE * c i k <= IZR (nth i (high (col k)) 0%Z)).
  { intros k Hkc. rewrite Lc in Hkc. split; [apply (Enc k Hkc)|]. intros i Hi. apply (Hc k Hkc i Hi). }
  assert (Hweights : forall k, (k < length cs)%nat -> length (weights (col k)) = n /\
    forall i, (i < n)%nat -> (0 <= nth i (weights (col k)) 0)%Z).
  { intros k Hkc. rewrite Lc in Hkc. destruct (Wt k Hkc) as [A B]. split; [exact A|]. intros i Hi. apply B, Hi. }
  assert (Cost_unique : forall i k x z, cost_of p i k x -> cost_of p i k z -> x = z).
  { apply cost_unique. apply distinct_sound, Dr. }
  split; [|split; [exact Hl|split; [exact HD|split; [|split; [|split; [|split]]]]]].
  - unfold Sound. repeat (split; [first [assumption|apply distinct_sound; assumption]|]). split.
    { unfold distinct_targets in Dt. destruct (costs p); [exact Logic.I|exact Logic.I|apply distinct_sound, Dt]. }
    split; [split; assumption|]. split; [exact Hw'|]. split.
    { intros W i j Hi Hj. apply (check_rows_joined p m wanted rows Mo rows W 0 t Et ltac:(lia) i j ltac:(lia) Hj). }
    unfold measured_outputs in Mo'. unfold Measured. destruct (metric p) as [|? [|]|]; try exact Logic.I.
    destruct (costs p); try exact Logic.I; destruct (list_eq_dec (list_eq_dec Z.eq_dec) (outputs p) (records p)); congruence.
  - intros i j a b x Ha Hb R E. apply (Pr i a Ha j b x Hb R E).
  - split; [apply Ids, distinct_sound, Dr|]. destruct (shares_distribution sh S0 Sw) as [S1 S2].
    exists (fun i => IZR (nth i sh 0%Z) / IZR (total sh)). split; [intros i Hi; split; [apply Sh, Hi|apply S1]|].
    rewrite <- Ls. exact S2.
  - intro z. exists (loss n width (fun i => IZR (nth i sh 0%Z) / IZR (total sh)) c z).
    exists c, (fun i => IZR (nth i sh 0%Z) / IZR (total sh)). split; [|split; [exact Sh|reflexivity]].
    intros i k Hi Hkw. apply (Hc k Hkw i Hi).
  - exists (loss n width (fun i => IZR (nth i sh 0%Z) / IZR (total sh)) c (drawn rows)). split.
    + exists c, (fun i => IZR (nth i sh 0%Z) / IZR (total sh)). split; [|split; [exact Sh|reflexivity]].
      intros i k Hi Hkw. apply (Hc k Hkw i Hi).
    + pose proof (loss_sound n t (total sh) sh cs c Ls S0 Sw Hlow Hhigh Hweights) as V. cbv zeta in V. rewrite Lc in V.
      replace (loss n width (fun i => IZR (nth i sh 0%Z) / IZR (total sh)) c (drawn rows))
        with (loss n width (fun i => IZR (nth i sh 0%Z) / IZR (total sh)) c (weight_of cs)); [exact V|].
      unfold loss. apply sum_ext. intros i Hi. f_equal. apply sum_ext. intros k Hkw. f_equal. unfold weight_of, drawn.
      destruct (Wt k Hkw) as [_ W]. destruct (W i Hi) as [W' _]. unfold col in W'. rewrite W'. reflexivity.
  - intros z v [Z0 [Z1 Zp]] [c' [sh' [Hc' [Hs' ->]]]]. fold n width in Z0, Z1, Zp, Hc', Hs' |- *.
    replace (loss n width sh' c' z) with (loss n width (fun i => IZR (nth i sh 0%Z) / IZR (total sh)) c z).
    2: { unfold loss. apply sum_ext. intros i Hi. f_equal.
         - apply (share_unique p i); [apply distinct_sound, Dp|apply Sh, Hi|apply Hs', Hi].
         - apply sum_ext. intros k Hkw. f_equal. apply (Cost_unique i k); [apply (Hc k Hkw i Hi)|apply Hc'; assumption]. }
    rewrite <- Lc. apply (bound_sound n t (total sh) sh cs c Ls S0 Sw Hlow y Ey z).
    + intros i k Hi Hkc. apply Z0; [exact Hi|]. rewrite Lc in Hkc. exact Hkc.
    + intros i Hi. rewrite Lc. apply Z1, Hi.
    + intros i j u Hu. destruct (Fa i j u Hu) as [Hi [Hj [x [Rq Ux]]]]. split; [exact Hi|]. split; [exact Hj|].
      intros k Hkc. rewrite Lc in Hkc. specialize (Zp i j x k Hi Hj Hkc Rq). pose proof ONE_posR.
      assert (0 <= z j k) by (apply Z0; assumption).
      apply Rle_trans with (IZR ONE * (exp (rv (epsilon p) * x) * z j k)); [apply Rmult_le_compat_l; lra|].
      rewrite <- Rmult_assoc. apply Rmult_le_compat_r; assumption.
Qed.

(** A matrix has one loss. *)
Theorem loss_unique p z v w : Sound p -> Loss p z v -> Loss p z w -> v = w.
Proof.
  intros [_ [_ [Dr [_ [Dp _]]]]] [c [s [Hc [Hs ->]]]] [c' [s' [Hc' [Hs' ->]]]].
  unfold loss. apply sum_ext. intros i Hi. f_equal.
  - apply (share_unique p i); auto.
  - apply sum_ext. intros k Hk. f_equal. apply (cost_unique p Dr i k); auto.
Qed.
