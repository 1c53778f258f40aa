(** Distances from tables, enclosed in whole numbers; shortest ways found and proved shortest. *)
From Coq Require Import ZArith List Bool Reals Lra Lia FMapPositive.
From Privopt Require Import Exp Sums Spec.
Import ListNotations.
Open Scope R_scope.

(** ** A distance: l / s, or the root of d over s *)

Inductive measured := Exact (l s : Z) | Root (d s : Z).

Definition mv (m : measured) : R :=
  match m with Exact l s => IZR l / IZR s | Root d s => sqrt (IZR d) / IZR s end.
Definition good (m : measured) : bool :=
  match m with Exact l s => (0 <? s)%Z && (0 <=? l)%Z | Root d s => (0 <? s)%Z && (0 <=? d)%Z end.

Definition lo (m : measured) : Z :=
  match m with Exact l s => l * ONE / s | Root d s => Z.sqrt (d * (ONE * ONE) / (s * s)) end.
Definition hi (m : measured) : Z :=
  match m with
  | Exact l s => up (l * ONE) s
  | Root d s => let r := lo m in if (r * r * (s * s) =? d * (ONE * ONE))%Z then r else r + 1
  end.
Definition is_within (m : measured) (w : rat) : bool :=
  let (a, b) := w in
  match m with
  | Exact l s => (l * b <=? a * s)%Z
  | Root d s => (0 <=? a)%Z && (d * (b * b) <=? a * a * (s * s))%Z
  end.

Lemma good_pos m : good m = true -> match m with
  | Exact l s => (0 < s)%Z /\ (0 <= l)%Z | Root d s => (0 < s)%Z /\ (0 <= d)%Z end.
Proof. destruct m; simpl; rewrite andb_true_iff, Z.ltb_lt, Z.leb_le; tauto. Qed.

Lemma mv_pos m : good m = true -> 0 <= mv m.
Proof.
  intro G. apply good_pos in G. destruct m as [l s|d s]; destruct G as [Hs Hl]; simpl;
  apply IZR_lt in Hs; apply Rmult_le_pos; try (left; apply Rinv_0_lt_compat; exact Hs).
  - apply IZR_le. exact Hl.
  - apply sqrt_pos.
Qed.

Lemma square_root_le a b : 0 <= a -> 0 <= b -> a * a <= b * b -> a <= b.
Proof. intros. nra. Qed.

Lemma sqrt_scaled d s : (0 <= d)%Z -> (0 < s)%Z ->
  (IZR ONE * (sqrt (IZR d) / IZR s)) * (IZR ONE * (sqrt (IZR d) / IZR s)) * IZR (s * s) = IZR (d * (ONE * ONE)).
Proof.
  intros Hd Hs. apply IZR_le in Hd. apply IZR_lt in Hs. rewrite !mult_IZR.
  pose proof (sqrt_sqrt (IZR d) Hd) as Q. rewrite <- Q at 3. field. lra.
Qed.

Lemma lo_pos m : good m = true -> (0 <= lo m)%Z.
Proof.
  intro G. apply good_pos in G. pose proof ONE_pos. destruct m as [l s|d s]; simpl.
  - apply Z.div_pos; [|tauto]. apply Z.mul_nonneg_nonneg; [tauto|lia].
  - apply Z.sqrt_nonneg.
Qed.

Theorem lo_sound m : good m = true -> IZR (lo m) <= IZR ONE * mv m.
Proof.
  intro G. pose proof (mv_pos m G) as Pm. pose proof (lo_pos m G) as Pl. apply IZR_le in Pl. pose proof ONE_posR.
  apply good_pos in G. destruct m as [l s|d s]; destruct G as [Hs Hd]; cbn [lo mv] in *.
  - eapply Rle_trans; [apply div_below_over, Hs|]. right. rewrite mult_IZR. apply IZR_lt in Hs. field. lra.
  - assert (Hss : (0 < s * s)%Z) by nia. assert (Rss : 0 < IZR (s * s)) by (apply IZR_lt, Hss).
    apply square_root_le; [exact Pl|apply Rmult_le_pos; lra|].
    apply Rmult_le_reg_r with (IZR (s * s)); [exact Rss|]. rewrite sqrt_scaled by assumption.
    set (q := (d * (ONE * ONE) / (s * s))%Z) in *.
    assert (Hq : (0 <= q)%Z) by (apply Z.div_pos; [pose proof ONE_pos; nia|exact Hss]).
    pose proof (Z.sqrt_spec q Hq) as [S _]. unfold q in *.
    eapply Rle_trans; [|apply div_below; exact Hss]. apply Rmult_le_compat_r; [lra|].
    rewrite <- mult_IZR. apply IZR_le. exact S.
Qed.

Theorem hi_sound m : good m = true -> IZR ONE * mv m <= IZR (hi m).
Proof.
  intro G. pose proof (mv_pos m G) as Pm. pose proof (lo_pos m G) as Pl. pose proof ONE_posR.
  apply good_pos in G. destruct m as [l s|d s]; destruct G as [Hs Hd]; cbn [hi mv] in *.
  - eapply Rle_trans; [|apply up_above_over, Hs]. right. rewrite mult_IZR. apply IZR_lt in Hs. field. lra.
  - assert (Hss : (0 < s * s)%Z) by nia. assert (Rss : 0 < IZR (s * s)) by (apply IZR_lt, Hss).
    set (r := lo (Root d s)) in *. apply square_root_le.
    + apply Rmult_le_pos; lra.
    + apply IZR_le. destruct (_ =? _)%Z; lia.
    + apply Rmult_le_reg_r with (IZR (s * s)); [exact Rss|]. rewrite sqrt_scaled by assumption.
      rewrite <- !mult_IZR. apply IZR_le. destruct (Z.eqb_spec (r * r * (s * s)) (d * (ONE * ONE))) as [E|_]; [lia|].
      set (q := (d * (ONE * ONE) / (s * s))%Z) in *.
      assert (Hq : (0 <= q)%Z) by (apply Z.div_pos; [pose proof ONE_pos; nia|exact Hss]).
      pose proof (Z.sqrt_spec q Hq) as [_ S]. change (Z.sqrt q) with r in S.
      pose proof (Z.mul_succ_div_gt (d * (ONE * ONE)) (s * s) Hss) as D. fold q in D. unfold Z.succ in *. nia.
Qed.

Theorem is_within_iff m w : good m = true -> (0 < snd w)%Z -> is_within m w = true <-> mv m <= rv w.
Proof.
  intros G Hb. destruct w as [a b]. simpl in Hb. apply good_pos in G. apply IZR_lt in Hb as Rb. unfold rv. cbn [fst snd].
  destruct m as [l s|d s]; destruct G as [Hs Hd]; cbn [is_within mv]; apply IZR_lt in Hs as Rs.
  - rewrite Z.leb_le. split; intro H.
    + apply Rmult_le_reg_r with (IZR s * IZR b); [nra|].
      replace (IZR l / IZR s * (IZR s * IZR b)) with (IZR (l * b)) by (rewrite mult_IZR; field; lra).
      replace (IZR a / IZR b * (IZR s * IZR b)) with (IZR (a * s)) by (rewrite mult_IZR; field; lra).
      apply IZR_le, H.
    + apply le_IZR. rewrite !mult_IZR.
      replace (IZR l * IZR b) with (IZR l / IZR s * (IZR s * IZR b)) by (field; lra).
      replace (IZR a * IZR s) with (IZR a / IZR b * (IZR s * IZR b)) by (field; lra).
      apply Rmult_le_compat_r; [nra|exact H].
  - rewrite andb_true_iff, !Z.leb_le. apply IZR_le in Hd as Rd. pose proof (sqrt_sqrt _ Rd) as Q.
    pose proof (sqrt_pos (IZR d)) as P. split.
    + intros [Ha H]. apply IZR_le in Ha. apply IZR_le in H. rewrite !mult_IZR in H.
      apply Rmult_le_reg_r with (IZR s * IZR b); [nra|].
      replace (sqrt (IZR d) / IZR s * (IZR s * IZR b)) with (sqrt (IZR d) * IZR b) by (field; lra).
      replace (IZR a / IZR b * (IZR s * IZR b)) with (IZR a * IZR s) by (field; lra).
      apply square_root_le; [nra|nra|]. nra.
    + intro H.
      assert (H1 : sqrt (IZR d) * IZR b <= IZR a * IZR s).
      { replace (sqrt (IZR d) * IZR b) with (sqrt (IZR d) / IZR s * (IZR s * IZR b)) by (field; lra).
        replace (IZR a * IZR s) with (IZR a / IZR b * (IZR s * IZR b)) by (field; lra).
        apply Rmult_le_compat_r; [nra|exact H]. }
      assert (H2 : 0 <= sqrt (IZR d) * IZR b) by nra.
      assert (H3 : 0 <= IZR a) by nra. split; [apply le_IZR, H3|].
      apply le_IZR. rewrite !mult_IZR. rewrite <- Q.
      assert ((sqrt (IZR d) * IZR b) * (sqrt (IZR d) * IZR b) <= (IZR a * IZR s) * (IZR a * IZR s))
        by (apply Rmult_le_compat; assumption). lra.
Qed.

(** ** Rationals with a common denominator *)

Definition scaled (s : Z) (r : rat) : option Z :=
  let (n, d) := r in
  if (0 <? s)%Z && (0 <? d)%Z && (s / d * d =? s)%Z then Some (n * (s / d))%Z else None.

Lemma scaled_sound s r z : scaled s r = Some z -> (0 < s)%Z /\ (0 < snd r)%Z /\ rv r = IZR z / IZR s.
Proof.
  unfold scaled, rv. destruct r as [n d]. cbn [fst snd].
  destruct (_ && _) eqn:E; [|discriminate]. intro H. injection H as <-.
  rewrite !andb_true_iff, !Z.ltb_lt, Z.eqb_eq in E. destruct E as [[Hs Hd] E].
  split; [exact Hs|]. split; [exact Hd|]. set (q := (s / d)%Z) in *. clearbody q. subst s.
  apply IZR_lt in Hs. apply IZR_lt in Hd. rewrite !mult_IZR in *. assert (IZR q <> 0) by (intro Z0; rewrite Z0 in Hs; lra).
  field. lra.
Qed.

Definition largest (l : list rat) : Z := fold_right (fun r s => Z.max (snd r) s) 1%Z l.

Lemma map_opt_nth {A B} (f : A -> option B) l : forall r, map_opt f l = Some r ->
  length r = length l /\ forall i a, nth_error l i = Some a -> exists b, f a = Some b /\ nth_error r i = Some b.
Proof.
  induction l as [|a s IH]; intros r H; simpl in H.
  - injection H as <-. split; [reflexivity|]. intros [|i] x Hx; discriminate.
  - destruct (f a) as [b|] eqn:E; [|discriminate]. destruct (map_opt f s) as [t|]; [|discriminate].
    injection H as <-. destruct (IH t eq_refl) as [L N]. split; [simpl; lia|].
    intros [|i] x Hx; simpl in *; [injection Hx as <-; eauto|apply N; exact Hx].
Qed.

Lemma map_opt_back {A B} (f : A -> option B) l r : map_opt f l = Some r ->
  forall b, In b r -> exists a, In a l /\ f a = Some b.
Proof.
  revert r. induction l as [|a s IH]; intros r H b Hb; simpl in H.
  - injection H as <-. destruct Hb.
  - destruct (f a) as [c|] eqn:E; [|discriminate]. destruct (map_opt f s) as [t|]; [|discriminate].
    injection H as <-. destruct Hb as [->|Hb]; [exists a; simpl; auto|].
    destruct (IH t eq_refl b Hb) as [x [Hx Fx]]. exists x. simpl. auto.
Qed.

Lemma map_opt_forth {A B} (f : A -> option B) l r : map_opt f l = Some r ->
  forall a, In a l -> exists b, In b r /\ f a = Some b.
Proof.
  intros H a Ha. apply In_nth_error in Ha as [i Hi]. destruct (map_opt_nth f l r H) as [_ N].
  destruct (N i a Hi) as [b [Fb Nb]]. exists b. split; [eapply nth_error_In; exact Nb|exact Fb].
Qed.

(** ** Coordinates *)

Fixpoint whole_squares (a b : list Z) : Z :=
  match a, b with x :: s, y :: t => ((x - y) * (x - y) + whole_squares s t)%Z | _, _ => 0%Z end.

Lemma whole_squares_pos a : forall b, (0 <= whole_squares a b)%Z.
Proof. induction a; intros [|y b]; simpl; try lia. specialize (IHa b). pose proof (Z.square_nonneg (a - y)). lia. Qed.

Lemma whole_squares_sound s a : forall b x y, (0 < s)%Z ->
  map_opt (scaled s) a = Some x -> map_opt (scaled s) b = Some y ->
  squares a b = IZR (whole_squares x y) / (IZR s * IZR s).
Proof.
  induction a as [|p a IH]; intros b x y Hs Hx Hy; simpl in Hx.
  - injection Hx as <-. simpl. unfold Rdiv. ring.
  - destruct (scaled s p) as [u|] eqn:Eu; [|discriminate]. destruct (map_opt _ a) as [xs|] eqn:Ea; [|discriminate].
    injection Hx as <-. destruct b as [|q b]; simpl in Hy.
    + injection Hy as <-. simpl. unfold Rdiv. ring.
    + destruct (scaled s q) as [v|] eqn:Ev; [|discriminate]. destruct (map_opt _ b) as [ys|] eqn:Eb; [|discriminate].
      injection Hy as <-. cbn [squares whole_squares]. rewrite (IH b xs ys Hs eq_refl Eb).
      apply scaled_sound in Eu as [_ [_ ->]]. apply scaled_sound in Ev as [_ [_ ->]].
      rewrite plus_IZR, mult_IZR, !minus_IZR. apply IZR_lt in Hs. field. lra.
Qed.

Lemma root_sound s a b x y : (0 < s)%Z -> map_opt (scaled s) a = Some x -> map_opt (scaled s) b = Some y ->
  sqrt (squares a b) = mv (Root (whole_squares x y) s).
Proof.
  intros Hs Hx Hy. rewrite (whole_squares_sound s a b x y Hs Hx Hy). cbn [mv]. apply IZR_lt in Hs.
  rewrite sqrt_div_alt by nra. rewrite sqrt_square by lra. reflexivity.
Qed.

(** ** Ways over edges *)

Lemma same_eq a : forall b, same a b = true <-> a = b.
Proof.
  induction a as [|x s IH]; intros [|y t]; simpl; try (split; intro; [discriminate|congruence]); [tauto|].
  rewrite andb_true_iff, Z.eqb_eq, IH. split; [intros [-> ->]; reflexivity|intro H; injection H; auto].
Qed.

Lemma index_nth a nodes : forall n, index a nodes = Some n -> nth_error nodes n = Some a.
Proof.
  induction nodes as [|b rest IH]; intros n H; simpl in H; [discriminate|].
  destruct (same a b) eqn:E.
  - injection H as <-. apply same_eq in E. subst. reflexivity.
  - destruct (index a rest); [|discriminate]. injection H as <-. simpl. apply IH. reflexivity.
Qed.

Definition edge : Type := nat * nat * Z.

Inductive way (es : list edge) (u : nat) : nat -> Z -> Prop :=
| home : way es u u 0
| onward v w l x : way es u v x -> In (v, w, l) es \/ In (w, v, l) es -> way es u w (x + l)%Z.

Definition numbered (nodes : list bytes) (s : Z) (e : bytes * bytes * rat) : option edge :=
  let '(a, b, r) := e in
  match index a nodes, index b nodes, scaled s r with Some u, Some v, Some l => Some (u, v, l) | _, _, _ => None end.

Section Ways.
  Variables (nodes : list bytes) (s : Z) (edges : list (bytes * bytes * rat)) (es : list edge).
  Hypothesis Hes : map_opt (numbered nodes s) edges = Some es.
  Hypothesis Hs : (0 < s)%Z.

  Lemma numbered_sound a b r u v l : numbered nodes s (a, b, r) = Some (u, v, l) ->
    index a nodes = Some u /\ index b nodes = Some v /\ rv r = IZR l / IZR s.
  Proof.
    unfold numbered. destruct (index a nodes), (index b nodes), (scaled s r) eqn:E; try discriminate.
    intro H. injection H as -> -> ->. apply scaled_sound in E. tauto.
  Qed.

  Lemma to_names u v l : way es u v l -> forall a, nth_error nodes u = Some a ->
    exists b, nth_error nodes v = Some b /\ walk edges a b (IZR l / IZR s).
  Proof.
    induction 1 as [|v w l x Hw IH He]; intros a Ha.
    - exists a. split; [exact Ha|]. replace (0 / IZR s) with 0 by (unfold Rdiv; ring). constructor.
    - destruct (IH a Ha) as [b [Hb W]]. rewrite plus_IZR, Rdiv_plus_distr.
      destruct He as [He|He]; apply (map_opt_back _ _ _ Hes) in He as [[[a' b'] r] [Hin Hn]];
        apply numbered_sound in Hn as [H1 [H2 <-]]; apply index_nth in H1; apply index_nth in H2.
      + exists b'. split; [exact H2|]. rewrite Hb in H1. injection H1 as <-. eapply go; eauto.
      + exists a'. split; [exact H1|]. rewrite Hb in H2. injection H2 as <-. eapply go; eauto.
  Qed.

  Lemma to_numbers a b x : walk edges a b x -> forall u, index a nodes = Some u ->
    exists v l, index b nodes = Some v /\ way es u v l /\ x = IZR l / IZR s.
  Proof.
    induction 1 as [|b c l x W IH He]; intros u Hu.
    - exists u, 0%Z. split; [exact Hu|]. split; [constructor|]. unfold Rdiv. ring.
    - destruct (IH u Hu) as [v [m [Hv [St ->]]]].
      destruct He as [He|He]; apply (map_opt_forth _ _ _ Hes) in He as [[[v' w'] k] [Hin Hn]];
        apply numbered_sound in Hn as [H1 [H2 ->]].
      + rewrite Hv in H1. injection H1 as <-. exists w', (m + k)%Z. split; [exact H2|].
        split; [eapply onward; eauto|]. rewrite plus_IZR. unfold Rdiv. ring.
      + rewrite Hv in H2. injection H2 as <-. exists v', (m + k)%Z. split; [exact H1|].
        split; [eapply onward; eauto|]. rewrite plus_IZR. unfold Rdiv. ring.
  Qed.
End Ways.

(** Lengths of ways from a node, improved until nothing changes; whether they are the shortest is then
    checked edge by edge. *)
Definition adjacency := PositiveMap.t (list (nat * Z)).
Definition after (adj : adjacency) (u : nat) : list (nat * Z) :=
  match PositiveMap.find (key u) adj with Some l => l | None => [] end.
Definition add_edge (adj : adjacency) (u v : nat) (l : Z) : adjacency :=
  PositiveMap.add (key u) ((v, l) :: after adj u) adj.
Definition adjacent (es : list edge) : adjacency :=
  fold_right (fun '(u, v, l) adj => add_edge (add_edge adj u v l) v u l) (PositiveMap.empty _) es.

Lemma after_add_edge adj a b m u v l : In (v, l) (after (add_edge adj a b m) u) ->
  (u = a /\ v = b /\ l = m) \/ In (v, l) (after adj u).
Proof.
  unfold after at 1, add_edge. destruct (Nat.eq_dec u a) as [->|Ne].
  - rewrite PositiveMap.gss. intros [H|H]; [injection H as -> ->; auto|right; exact H].
  - rewrite PositiveMap.gso by (intro K; apply Ne, key_inj, K). auto.
Qed.

Lemma adjacent_sound es u v l : In (v, l) (after (adjacent es) u) -> In (u, v, l) es \/ In (v, u, l) es.
Proof.
  induction es as [|[[a b] m] rest IH]; cbn [adjacent fold_right].
  - unfold after. rewrite PositiveMap.gempty. intros [].
  - fold (adjacent rest). intro H. apply after_add_edge in H as [[-> [-> ->]]|H]; [simpl; auto|].
    apply after_add_edge in H as [[-> [-> ->]]|H]; [simpl; auto|]. apply IH in H. simpl. tauto.
Qed.

Definition labels := PositiveMap.t Z.
Definition label (lab : labels) (u : nat) : option Z := PositiveMap.find (key u) lab.

Fixpoint relax (lu : Z) (near : list (nat * Z)) (lab : labels) (changed : list nat) : labels * list nat :=
  match near with
  | [] => (lab, changed)
  | (v, l) :: rest =>
      let better := match label lab v with Some lv => (lu + l <? lv)%Z | None => true end in
      if better then relax lu rest (PositiveMap.add (key v) (lu + l)%Z lab) (v :: changed)
      else relax lu rest lab changed
  end.

Fixpoint relax_all (adj : adjacency) (from : list nat) (lab : labels) (changed : list nat) : labels * list nat :=
  match from with
  | [] => (lab, changed)
  | u :: rest =>
      match label lab u with
      | Some lu => let (lab, changed) := relax lu (after adj u) lab changed in relax_all adj rest lab changed
      | None => relax_all adj rest lab changed
      end
  end.

Fixpoint improve (rounds : nat) (adj : adjacency) (from : list nat) (lab : labels) : labels :=
  match rounds, from with
  | S n, _ :: _ => let (lab, changed) := relax_all adj from lab [] in improve n adj changed lab
  | _, _ => lab
  end.

Definition settled (es : list edge) (lab : labels) : bool :=
  let ok u v l := match label lab u with
    | None => true
    | Some lu => match label lab v with Some lv => (lv <=? lu + l)%Z | None => false end end in
  forallb (fun '(u, v, l) => ok u v l && ok v u l) es.

Definition lengths_from (rounds : nat) (es : list edge) (adj : adjacency) (u : nat) : option labels :=
  let lab := improve rounds adj [u] (PositiveMap.add (key u) 0%Z (PositiveMap.empty Z)) in
  if settled es lab && match label lab u with Some l => (l <=? 0)%Z | None => false end then Some lab else None.

Section Labels.
  Variables (es : list edge) (u : nat).
  Definition true_labels (lab : labels) := forall v l, label lab v = Some l -> way es u v l.

  Lemma true_add lab v l : true_labels lab -> way es u v l -> true_labels (PositiveMap.add (key v) l lab).
  Proof.
    intros H Hs w m. unfold label. destruct (Nat.eq_dec w v) as [->|Ne].
    - rewrite PositiveMap.gss. intro E. injection E as <-. exact Hs.
    - rewrite PositiveMap.gso by (intro K; apply Ne, key_inj, K). apply H.
  Qed.

  Lemma relax_true v lv near : way es u v lv ->
    (forall w l, In (w, l) near -> In (v, w, l) es \/ In (w, v, l) es) ->
    forall lab changed, true_labels lab -> true_labels (fst (relax lv near lab changed)).
  Proof.
    intros Hv. induction near as [|[w l] rest IH]; intros Hn lab changed H; cbn [relax]; [exact H|].
    assert (Hr : forall x m, In (x, m) rest -> In (v, x, m) es \/ In (x, v, m) es) by (intros; apply Hn; right; assumption).
    destruct (match label lab w with Some lw => _ | None => true end); apply IH; auto.
    apply true_add; [exact H|]. eapply onward; [exact Hv|]. apply Hn. left. reflexivity.
  Qed.

  Lemma relax_all_true from : forall lab changed, true_labels lab ->
    true_labels (fst (relax_all (adjacent es) from lab changed)).
  Proof.
    induction from as [|v rest IH]; intros lab changed H; cbn [relax_all]; [exact H|].
    destruct (label lab v) as [lv|] eqn:E; [|apply IH, H].
    destruct (relax lv (after (adjacent es) v) lab changed) as [lab' changed'] eqn:R. apply IH.
    change lab' with (fst (lab', changed')). rewrite <- R. eapply relax_true; [apply H, E| |exact H].
    intros w l Hw. apply adjacent_sound, Hw.
  Qed.

  Lemma improve_true n : forall from lab, true_labels lab -> true_labels (improve n (adjacent es) from lab).
  Proof.
    induction n as [|n IH]; intros [|v rest] lab H; cbn [improve]; auto.
    destruct (relax_all (adjacent es) (v :: rest) lab []) as [lab' changed'] eqn:R. apply IH.
    change lab' with (fst (lab', changed')). rewrite <- R. apply relax_all_true, H.
  Qed.

  Theorem lengths_sound n lab : lengths_from n es (adjacent es) u = Some lab ->
    true_labels lab /\ forall v l, way es u v l -> exists lv, label lab v = Some lv /\ (lv <= l)%Z.
  Proof.
    unfold lengths_from. set (found := improve _ _ _ _). destruct (_ && _) eqn:E; [|discriminate].
    intro H. injection H as <-. apply andb_true_iff in E as [Hc H0]. split.
    - apply improve_true. apply true_add; [|constructor]. intros v l. unfold label. rewrite PositiveMap.gempty. discriminate.
    - unfold settled in Hc. rewrite forallb_forall in Hc. induction 1 as [|v w l x Hs IH He].
      + destruct (label found u) as [l|]; [|discriminate]. exists l. split; [reflexivity|apply Z.leb_le, H0].
      + destruct IH as [lv [Hv L]].
        assert (G : exists lw, label found w = Some lw /\ (lw <= lv + l)%Z).
        { destruct He as [He|He]; apply Hc in He; apply andb_true_iff in He as [A B].
          - rewrite Hv in A. destruct (label found w) as [lw|]; [|discriminate]. exists lw. split; [reflexivity|apply Z.leb_le, A].
          - rewrite Hv in B. destruct (label found w) as [lw|]; [|discriminate]. exists lw. split; [reflexivity|apply Z.leb_le, B]. }
        destruct G as [lw [Hw Lw]]. exists lw. split; [exact Hw|lia].
  Qed.
End Labels.
