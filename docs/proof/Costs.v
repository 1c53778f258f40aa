(** Costs and shares: enclosed in whole numbers, and the only ones. *)
From Coq Require Import ZArith List Bool Reals Lra Lia.
From Privopt Require Import Exp Rows Sums Spec Metric Tables.
Import ListNotations.
Open Scope R_scope.

(** Costs of an output at all records, ONE-ths, from below and from above. *)

Definition enclosed : Type := list Z * list Z.

Definition distances (ds : list (option measured)) : option (list measured) :=
  map_opt (fun d => match d with Some m => if good m then Some m else None | None => None end) ds.

Definition difference_low (a b : measured) : Z := Z.max 0 (Z.max (lo a - hi b) (lo b - hi a)).
Definition difference_high (a b : measured) : Z := Z.max (hi a - lo b) (hi b - lo a).

(** Targets' weights with the distances of all records from them. *)
Fixpoint targets_of (p : problem) (m : measures) (s : Z) (ts : list (bytes * rat)) : option (list (nat * Z * list measured)) :=
  match ts with
  | [] => Some []
  | (id, q) :: rest =>
      match index id (records p), scaled s q, targets_of p m s rest with
      | Some t, Some w, Some more =>
          if (0 <=? w)%Z && Nat.eqb (length (own m t)) (length (records p)) then
            match distances (own m t) with Some ds => Some ((t, w, ds) :: more) | None => None end
          else None
      | _, _, _ => None
      end
  end.

Fixpoint travel_costs (far : list measured) (zero : list Z) (ts : list (nat * Z * list measured)) : option enclosed :=
  match ts with
  | [] => Some (zero, zero)
  | (t, w, ds) :: rest =>
      match nth_error far t, travel_costs far zero rest with
      | Some f, Some (l, h) =>
          Some (map2' (fun d x => w * difference_low d f + x)%Z ds l, map2' (fun d x => w * difference_high d f + x)%Z ds h)
      | _, _ => None
      end
  end.

Definition cost_table (p : problem) (m : measures) : option (nat -> option enclosed) :=
  let n := length (records p) in
  let far k := if Nat.eqb (length (ends m k)) n then distances (ends m k) else None in
  match costs p with
  | Distance => Some (fun k => match far k with Some ds => Some (map lo ds, map hi ds) | None => None end)
  | CostMatrix table =>
      match columns_of_matrix n (length (outputs p)) table with
      | Some (s, _, t) => Some (fun k =>
          let c := row_at t k in
          if Nat.eqb (length c) n then Some (map (fun z => z * ONE / s)%Z c, map (fun z => up (z * ONE) s) c) else None)
      | None => None
      end
  | Travel ts =>
      let s := largest (map snd ts) in
      match targets_of p m s ts with
      | Some known =>
          let whole := total (map (fun t => snd (fst t)) known) in
          if (0 <? whole)%Z then
            Some (fun k => match far k with
              | Some ds => match travel_costs ds (repeat 0%Z n) known with
                  | Some (l, h) => Some (map (fun z => z / whole)%Z l, map (fun z => up z whole) h)
                  | None => None
                  end
              | None => None
              end)
          else None
      | None => None
      end
  end.

(** What an enclosure says of costs x_i. *)
Definition encloses (n : nat) (P : nat -> R -> Prop) (e : enclosed) : Prop :=
  length (fst e) = n /\ length (snd e) = n /\
  forall i, (i < n)%nat -> exists x, P i x /\ IZR (nth i (fst e) 0%Z) <= IZR ONE * x <= IZR (nth i (snd e) 0%Z).

Lemma distances_sound P n ds ms : describes P n ds -> length ds = n -> distances ds = Some ms ->
  length ms = n /\ forall i, (i < n)%nat -> exists m, nth_error ms i = Some m /\ good m = true /\ P i (mv m).
Proof.
  intros T L H. destruct (map_opt_nth _ _ _ H) as [Lm N]. split; [lia|]. intros i Hi.
  specialize (T i Hi). destruct (nth_error_some ds i ltac:(lia)) as [d Hd]. rewrite Hd in T.
  destruct (N i d Hd) as [m [Hm Nm]]. destruct d as [d|]; [|discriminate].
  destruct (good d) eqn:G; [|discriminate]. injection Hm as ->. exists m. auto.
Qed.

Lemma nth_of_error {A} (l : list A) i x d : nth_error l i = Some x -> nth i l d = x.
Proof. intro H. apply nth_error_nth with (d := d) in H. exact H. Qed.

Lemma map2'_length {A B C} (f : A -> B -> C) a : forall b, length a = length b -> length (map2' f a b) = length a.
Proof. induction a; intros [|y b] H; try discriminate; simpl; [reflexivity|]. rewrite IHa; auto. Qed.

Lemma enclosed_map n P ms (f g : measured -> Z) : length ms = n ->
  (forall i m, nth_error ms i = Some m -> exists x, P i x /\ IZR (f m) <= IZR ONE * x <= IZR (g m)) ->
  encloses n P (map f ms, map g ms).
Proof.
  intros L H. split; [cbn; rewrite map_length; exact L|]. split; [cbn; rewrite map_length; exact L|].
  intros i Hi. destruct (nth_error_some ms i ltac:(lia)) as [m Hm]. destruct (H i m Hm) as [x [Px B]]. exists x. split; [exact Px|].
  cbn [fst snd]. rewrite (nth_of_error (map f ms) i (f m)), (nth_of_error (map g ms) i (g m));
    try (rewrite nth_error_map', Hm; reflexivity). exact B.
Qed.

Lemma difference_enclosed a b : good a = true -> good b = true ->
  IZR (difference_low a b) <= IZR ONE * Rabs (mv a - mv b) <= IZR (difference_high a b).
Proof.
  intros Ga Gb. pose proof (lo_sound a Ga). pose proof (hi_sound a Ga). pose proof (lo_sound b Gb). pose proof (hi_sound b Gb).
  pose proof ONE_posR. unfold difference_low, difference_high.
  assert (E : IZR ONE * Rabs (mv a - mv b) = Rabs (IZR ONE * mv a - IZR ONE * mv b)).
  { rewrite <- (Rabs_right (IZR ONE)) at 1 by lra. rewrite <- Rabs_mult. f_equal. ring. }
  rewrite E. split.
  - destruct (Z.max_spec (lo a - hi b) (lo b - hi a)) as [[_ ->]|[_ ->]].
    + destruct (Z.max_spec 0 (lo b - hi a)) as [[_ ->]|[_ ->]]; [rewrite minus_IZR|apply Rabs_pos].
      rewrite Rabs_minus_sym. eapply Rle_trans; [|apply Rle_abs]. lra.
    + destruct (Z.max_spec 0 (lo a - hi b)) as [[_ ->]|[_ ->]]; [rewrite minus_IZR|apply Rabs_pos].
      eapply Rle_trans; [|apply Rle_abs]. lra.
  - apply Rabs_le. assert (M1 : (hi a - lo b <= Z.max (hi a - lo b) (hi b - lo a))%Z) by lia.
    assert (M2 : (hi b - lo a <= Z.max (hi a - lo b) (hi b - lo a))%Z) by lia.
    apply IZR_le in M1. apply IZR_le in M2. rewrite minus_IZR in M1, M2. lra.
Qed.

Section Enclosed.
  Variables (p : problem) (m : measures).
  Let n := length (records p).
  Hypothesis Hown : forall i, (i < n)%nat -> length (own m i) = n -> describes (distance p i) n (own m i).
  Hypothesis Hends : forall k, (k < length (outputs p))%nat -> length (ends m k) = n -> describes (fun i => reported_distance p i k) n (ends m k).

  Definition knows (s : Z) (e : bytes * rat) (t : nat * Z * list measured) : Prop :=
    nth_error (records p) (fst (fst t)) = Some (fst e) /\ rv (snd e) = IZR (snd (fst t)) / IZR s /\ (0 <= snd (fst t))%Z /\
    (fst (fst t) < n)%nat /\ length (snd t) = n /\
    forall i, (i < n)%nat -> exists d, nth_error (snd t) i = Some d /\ good d = true /\ distance p (fst (fst t)) i (mv d).

  Lemma targets_of_sound s ts : forall known, targets_of p m s ts = Some known -> Forall2 (knows s) ts known.
  Proof.
    induction ts as [|[id q] rest IH]; intros known H; cbn [targets_of] in H.
    - injection H as <-. constructor.
    - destruct (index id (records p)) as [t|] eqn:Et; [|discriminate]. destruct (scaled s q) as [w|] eqn:Ew; [|discriminate].
      destruct (targets_of p m s rest) as [more|]; [|discriminate]. destruct (_ && _) eqn:C; [|discriminate].
      destruct (distances (own m t)) as [ds|] eqn:Ed; [|discriminate]. injection H as <-.
      constructor; [|apply IH; reflexivity]. apply andb_true_iff in C as [C L]. apply Z.leb_le in C. apply Nat.eqb_eq in L.
      apply index_nth in Et. assert (Ht : (t < n)%nat) by (apply nth_error_Some; congruence).
      destruct (distances_sound _ n _ _ (Hown t Ht L) L Ed) as [Ld Nd]. apply scaled_sound in Ew as [_ [_ Rq]].
      unfold knows. cbn [fst snd]. repeat split; auto.
  Qed.

  Lemma known_whole s ts known : (0 < s)%Z -> Forall2 (knows s) ts known ->
    sum_of ts = IZR (total (map (fun t => snd (fst t)) known)) / IZR s.
  Proof.
    intros Hs. induction 1 as [|e t ts known K _ IH]; simpl; [unfold Rdiv; ring|].
    fold (sum_of ts). rewrite IH, plus_IZR. destruct K as [_ [-> _]]. unfold Rdiv. ring.
  Qed.

  Lemma travel_sound s k far zero ts known l h : (0 < s)%Z -> Forall2 (knows s) ts known -> length zero = n -> (forall i, nth i zero 0%Z = 0%Z) ->
    (forall t, (t < n)%nat -> exists f, nth_error far t = Some f /\ good f = true /\ reported_distance p t k (mv f)) ->
    travel_costs far zero known = Some (l, h) -> length l = n /\ length h = n /\
    forall i, (i < n)%nat -> exists y, travel p i k ts y /\
      IZR (nth i l 0%Z) <= IZR ONE * (IZR s * y) <= IZR (nth i h 0%Z).
  Proof.
    intros Hs F Lz Z0 Hfar. revert l h. induction F as [|[id q] [[t w] ds] ts known K F IH]; intros l h H; cbn [travel_costs] in H.
    - injection H as <- <-. split; [exact Lz|]. split; [exact Lz|]. intros i Hi. exists 0. split; [constructor|].
      rewrite Z0. lra.
    - destruct (nth_error far t) as [f|] eqn:Ef; [|discriminate]. destruct (travel_costs far zero known) as [[l' h']|]; [|discriminate].
      injection H as <- <-. destruct (IH l' h' eq_refl) as [Ll [Lh N]]. destruct K as [Kid [Kq [K0 [Kt [Kl Kd]]]]]. cbn [fst snd] in *.
      rewrite !map2'_length by lia. split; [exact Kl|]. split; [exact Kl|]. intros i Hi.
      destruct (N i Hi) as [y [Ty By]]. destruct (Kd i Hi) as [d [Hd [Gd Ad]]]. destruct (Hfar t Kt) as [f' [Hf [Gf Rf]]].
      rewrite Ef in Hf. injection Hf as <-. exists (rv q * Rabs (mv d - mv f) + y). split; [econstructor; eauto|].
      destruct (nth_error_some l' i ltac:(lia)) as [vl Hvl]. destruct (nth_error_some h' i ltac:(lia)) as [vh Hvh].
      rewrite (nth_of_error _ _ _ _ (map2'_nth _ _ _ _ _ _ Hd Hvl)), (nth_of_error _ _ _ _ (map2'_nth _ _ _ _ _ _ Hd Hvh)).
      rewrite (nth_of_error _ _ _ 0%Z Hvl), (nth_of_error _ _ _ 0%Z Hvh) in By.
      rewrite !plus_IZR, !mult_IZR, Kq. destruct (difference_enclosed d f Gd Gf) as [A1 A2]. apply IZR_le in K0. apply IZR_lt in Hs.
      replace (IZR ONE * (IZR s * (IZR w / IZR s * Rabs (mv d - mv f) + y)))
        with (IZR w * (IZR ONE * Rabs (mv d - mv f)) + IZR ONE * (IZR s * y)) by (field; lra).
      split; apply Rplus_le_compat; try tauto; apply Rmult_le_compat_l; assumption.
  Qed.

  Theorem cost_table_sound cost : cost_table p m = Some cost ->
    forall k e, (k < length (outputs p))%nat -> cost k = Some e -> encloses n (fun i => cost_of p i k) e.
  Proof.
    unfold cost_table, cost_of. fold n.
    assert (Far : forall k ds, (k < length (outputs p))%nat ->
      (if Nat.eqb (length (ends m k)) n then distances (ends m k) else None) = Some ds ->
      length ds = n /\ forall i, (i < n)%nat -> exists d, nth_error ds i = Some d /\ good d = true /\ reported_distance p i k (mv d)).
    { intros k ds Hk H. destruct (Nat.eqb_spec (length (ends m k)) n) as [L|]; [|discriminate].
      apply (distances_sound (fun i => reported_distance p i k) n _ _ (Hends k Hk L) L H). }
    destruct (costs p) as [|table|ts] eqn:Ec.
    - intro H. injection H as <-. intros k e Hk He. destruct (if Nat.eqb _ _ then _ else _) as [ds|] eqn:Ed; [|discriminate].
      injection He as <-. destruct (Far k ds Hk Ed) as [L N]. apply enclosed_map; [exact L|]. intros i d Hd.
      destruct (N i) as [d' [Hd' [G Rp]]]; [rewrite <- L; apply nth_error_Some; congruence|].
      rewrite Hd in Hd'. injection Hd' as <-. exists (mv d). split; [exact Rp|]. split; [apply lo_sound, G|apply hi_sound, G].
    - destruct (columns_of_matrix n _ table) as [[[s z] t]|] eqn:E; [|discriminate]. intro H. injection H as <-. intros k e Hk He.
      destruct (Nat.eqb_spec (length (row_at t k)) n) as [L|]; [|discriminate]. injection He as <-.
      assert (Hs : (0 < s)%Z).
      { unfold columns_of_matrix in E. destruct (scaled_matrix _ table); [|discriminate]. destruct (_ && _); [|discriminate].
        injection E as <- _ _. apply largest_pos. }
      split; [cbn; rewrite map_length; exact L|]. split; [cbn; rewrite map_length; exact L|]. intros i Hi. cbn [fst snd].
      destruct (columns_of_matrix_sound _ _ _ _ _ _ E i k Hi Hk) as [v [_ [Tv Ev]]]. exists (IZR v / IZR s). split; [exact Ev|].
      rewrite (nth_of_error (map _ (row_at t k)) i (v * ONE / s)%Z), (nth_of_error (map _ (row_at t k)) i (up (v * ONE) s));
        try (rewrite nth_error_map', Tv; reflexivity).
      pose proof (div_below_over (v * ONE) s Hs) as A. pose proof (up_above_over (v * ONE) s Hs) as B. rewrite mult_IZR in A, B.
      apply IZR_lt in Hs. replace (IZR ONE * (IZR v / IZR s)) with (IZR v * IZR ONE / IZR s) by (field; lra). split; assumption.
    - set (s := largest (map snd ts)). assert (Hs : (0 < s)%Z) by apply largest_pos. clearbody s.
      destruct (targets_of p m s ts) as [known|] eqn:Ek; [|discriminate]. set (whole := total _).
      destruct (Z.ltb_spec 0 whole) as [Hw|]; [|discriminate]. intro H. injection H as <-. intros k e Hk He.
      destruct (if Nat.eqb _ _ then _ else _) as [ds|] eqn:Ed; [|discriminate].
      destruct (travel_costs ds (repeat 0%Z n) known) as [[l h]|] eqn:Et; [|discriminate]. injection He as <-.
      pose proof (targets_of_sound s ts known Ek) as F. destruct (Far k ds Hk Ed) as [L N].
      destruct (travel_sound s k ds (repeat 0%Z n) ts known l h Hs F (repeat_length _ _) (fun i => nth_repeat 0%Z n i) N Et) as [Ll [Lh B]].
      split; [cbn; rewrite map_length; exact Ll|]. split; [cbn; rewrite map_length; exact Lh|]. intros i Hi. cbn [fst snd].
      destruct (B i Hi) as [y [Ty By]]. exists (y / sum_of ts). split; [exists y; auto|].
      rewrite (known_whole s ts known Hs F). fold whole.
      destruct (nth_error_some l i ltac:(lia)) as [vl Hvl]. destruct (nth_error_some h i ltac:(lia)) as [vh Hvh].
      rewrite (nth_of_error l i vl 0%Z Hvl), (nth_of_error h i vh 0%Z Hvh) in By.
      rewrite (nth_of_error (map _ l) i (vl / whole)%Z), (nth_of_error (map _ h) i (up vh whole));
        try (rewrite nth_error_map'; first [rewrite Hvl | rewrite Hvh]; reflexivity).
      pose proof (div_below_over vl whole Hw) as A. pose proof (up_above_over vh whole Hw) as C. apply IZR_lt in Hs. apply IZR_lt in Hw.
      replace (IZR ONE * (y / (IZR whole / IZR s))) with (IZR ONE * (IZR s * y) / IZR whole) by (field; lra).
      assert (0 < / IZR whole) by (apply Rinv_0_lt_compat; lra).
      split; [eapply Rle_trans; [exact A|]|eapply Rle_trans; [|exact C]]; unfold Rdiv; apply Rmult_le_compat_r; lra.
  Qed.
End Enclosed.

(** ** No other costs, no other shares *)
Lemma travel_unique p i k ts x : NoDup (records p) -> travel p i k ts x -> forall y, travel p i k ts y -> x = y.
Proof.
  intros D. induction 1 as [|t id q a b rest x Ht Ha Hb _ IH]; intros y Hy; inversion Hy; subst; [reflexivity|].
  match goal with H : nth_error (records p) ?s = Some id |- _ =>
    assert (s = t) as -> by (apply (proj1 (NoDup_nth_error (records p)) D); [apply nth_error_Some; congruence|congruence]) end.
  f_equal; [|apply IH; assumption]. do 3 f_equal; [eapply distance_unique|eapply reported_distance_unique]; eauto.
Qed.

Lemma cost_unique p : NoDup (records p) -> forall i k x z, cost_of p i k x -> cost_of p i k z -> x = z.
Proof.
  intros D i k x z. unfold cost_of. destruct (costs p).
  - apply reported_distance_unique.
  - apply entry_unique.
  - intros [y [T ->]] [y' [T' ->]]. f_equal. eapply travel_unique; eauto.
Qed.

Lemma share_unique p i x y : NoDup (map fst (prior p)) -> share_of p i x -> share_of p i y -> x = y.
Proof.
  intros D [id [q [N [I ->]]]] [id' [q' [N' [I' ->]]]]. assert (id' = id) as -> by congruence. do 2 f_equal.
  revert D I I'. induction (prior p) as [|[a r] rest IH]; simpl; intros D I I'; [destruct I|].
  inversion D as [|? ? Nin D']; subst.
  assert (F : forall v, In (id, v) rest -> In id (map fst rest)) by (intros v Hv; apply (in_map fst _ _ Hv)).
  destruct I as [E|I]; destruct I' as [E'|I'].
  - congruence.
  - injection E as -> ->. exfalso. apply Nin, (F _ I').
  - injection E' as -> ->. exfalso. apply Nin, (F _ I).
  - apply IH; assumption.
Qed.
