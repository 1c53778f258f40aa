(** The distances of a problem, row by row, from its tables. *)
From Coq Require Import ZArith List Bool Reals Lra Lia FMapPositive.
From Privopt Require Import Exp Sums Spec Metric.
Import ListNotations.
Open Scope R_scope.

(** ** Columns of a matrix *)

Fixpoint cons_each {A} (row : list A) (cols : list (list A)) : list (list A) :=
  match row, cols with x :: s, c :: t => (x :: c) :: cons_each s t | _, _ => [] end.
Definition transpose {A} (width : nat) (rows : list (list A)) : list (list A) :=
  fold_right cons_each (repeat [] width) rows.
Definition all_wide {A} (width : nat) (rows : list (list A)) : bool := forallb (fun r => Nat.eqb (length r) width) rows.

Lemma cons_each_sound {A} (row : list A) : forall cols, length row = length cols ->
  length (cons_each row cols) = length cols /\
  forall k c, nth_error cols k = Some c -> exists x, nth_error row k = Some x /\ nth_error (cons_each row cols) k = Some (x :: c).
Proof.
  induction row as [|x s IH]; intros [|c t] H; try discriminate; simpl.
  - split; [reflexivity|]. intros [|k] c Hc; discriminate.
  - destruct (IH t ltac:(simpl in H; lia)) as [L N]. split; [lia|].
    intros [|k] d Hd; simpl in *; [injection Hd as <-; eauto|apply N, Hd].
Qed.

Lemma transpose_sound {A} width (rows : list (list A)) : all_wide width rows = true ->
  length (transpose width rows) = width /\
  forall k, (k < width)%nat -> exists col, nth_error (transpose width rows) k = Some col /\ length col = length rows /\
    forall i row, nth_error rows i = Some row -> nth_error col i = nth_error row k /\ nth_error row k <> None.
Proof.
  induction rows as [|r rest IH]; intro H; cbn [transpose fold_right].
  - split; [apply repeat_length|]. intros k Hk. exists []. split; [|split; [reflexivity|]].
    + rewrite nth_error_repeat by exact Hk. reflexivity.
    + intros [|i] row Hr; discriminate.
  - fold (transpose width rest). simpl in H. apply andb_true_iff in H as [Hr H]. apply Nat.eqb_eq in Hr.
    destruct (IH H) as [L N]. destruct (cons_each_sound r (transpose width rest)) as [L' N']; [lia|].
    split; [lia|]. intros k Hk. destruct (N k Hk) as [col [Hc [Lc Nc]]]. destruct (N' k col Hc) as [x [Hx Hcons]].
    exists (x :: col). split; [exact Hcons|]. split; [simpl; lia|].
    intros [|i] row Hrow; simpl in *.
    + injection Hrow as <-. rewrite Hx. split; [reflexivity|discriminate].
    + apply Nc, Hrow.
Qed.

(** ** Rows of distances *)

(** Every entry is what P says of it, or there is nothing to say. *)
Definition describes (P : nat -> R -> Prop) (n : nat) (row : list (option measured)) : Prop :=
  forall j, (j < n)%nat -> match nth_error row j with
    | Some (Some m) => P j (mv m) | Some None => forall x, ~ P j x | None => False end.

(** Distances of all records from record i, and from output k. *)
Record measures := { own : nat -> list (option measured); ends : nat -> list (option measured) }.

Definition exact (s : Z) (l : Z) : option measured := Some (Exact l s).
Definition lesser (s : Z) (x y : Z) : option measured := Some (Exact (Z.min x y) s).
Fixpoint map2' {A B C} (f : A -> B -> C) (a : list A) (b : list B) : list C :=
  match a, b with x :: s, y :: t => f x y :: map2' f s t | _, _ => [] end.

Lemma map2'_nth {A B C} (f : A -> B -> C) a : forall b j x y,
  nth_error a j = Some x -> nth_error b j = Some y -> nth_error (map2' f a b) j = Some (f x y).
Proof.
  induction a as [|u s IH]; intros b j x y Hx Hy; [destruct j; discriminate|].
  destruct b as [|v t]; [destruct j; discriminate|]. destruct j; simpl in *.
  - injection Hx as <-. injection Hy as <-. reflexivity.
  - apply IH; assumption.
Qed.

Definition row_at {A} (m : list (list A)) (i : nat) : list A := match nth_error m i with Some r => r | None => [] end.
Definition scaled_matrix (s : Z) (m : list (list rat)) : option (list (list Z)) := map_opt (map_opt (scaled s)) m.

Definition euclidean_measures (at_ out : list (list rat)) : option measures :=
  let s := Z.max (largest (concat at_)) (largest (concat out)) in
  match scaled_matrix s at_, scaled_matrix s out with
  | Some a, Some b =>
      let from x := map (fun y => Some (Root (whole_squares y x) s)) a in
      Some {| own := fun i => from (row_at a i); ends := fun k => from (row_at b k) |}
  | _, _ => None
  end.

Definition columns_of_matrix (n width : nat) (m : list (list rat)) : option (Z * list (list Z) * list (list Z)) :=
  let s := largest (concat m) in
  match scaled_matrix s m with
  | Some z => if Nat.eqb (length z) n && all_wide width z then Some (s, z, transpose width z) else None
  | None => None
  end.

Definition matrix_measures (n width : nat) (m : list (list rat)) (across : option (list (list rat))) : option measures :=
  match columns_of_matrix n n m with
  | Some (s, z, t) =>
      let own i := map2' (lesser s) (row_at z i) (row_at t i) in
      match across with
      | None => Some {| own := own; ends := own |}
      | Some other =>
          match columns_of_matrix n width other with
          | Some (s', _, t') => Some {| own := own; ends := fun k => map (exact s') (row_at t' k) |}
          | None => None
          end
      end
  | None => None
  end.

(** Names without those that stand there before. *)
Fixpoint once (l seen : list bytes) : list bytes :=
  match l with
  | [] => seen
  | a :: s => once s (if existsb (same a) seen then seen else a :: seen)
  end.

Definition graph_measures (ids outs : list bytes) (edges : list (bytes * bytes * rat)) : option measures :=
  let nodes := once (concat (map (fun '(a, b, _) => [a; b]) edges)) ids in
  let s := largest (map snd edges) in
  match map_opt (numbered nodes s) edges, map_opt (fun a => index a nodes) ids with
  | Some es, Some at_ =>
      let adj := adjacent es in
      let from name := match index name nodes with
        | Some u => match lengths_from (length nodes) es adj u with
            | Some lab => map (fun v => match label lab v with Some l => exact s l | None => None end) at_
            | None => []
            end
        | None => []
        end in
      if (0 <? s)%Z then
        Some {| own := fun i => match nth_error ids i with Some a => from a | None => [] end;
                ends := fun k => match nth_error outs k with Some a => from a | None => [] end |}
      else None
  | _, _ => None
  end.

Definition measures_of (p : problem) : option measures :=
  match metric p with
  | Euclidean at_ out =>
      if Nat.eqb (length at_) (length (records p)) && Nat.eqb (length out) (length (outputs p))
      then euclidean_measures at_ out else None
  | Matrix m across => matrix_measures (length (records p)) (length (outputs p)) m across
  | Graph edges => graph_measures (records p) (outputs p) edges
  end.

Lemma nth_error_some {A} (l : list A) i : (i < length l)%nat -> exists x, nth_error l i = Some x.
Proof. intro H. destruct (nth_error l i) eqn:E; [eauto|]. apply nth_error_None in E. lia. Qed.

Lemma nth_error_map' {A B} (f : A -> B) l i : nth_error (map f l) i = option_map f (nth_error l i).
Proof. revert i. induction l; intros [|i]; simpl; auto. Qed.

Lemma scaled_entry s m z : scaled_matrix s m = Some z -> forall i k row v, nth_error z i = Some row -> nth_error row k = Some v ->
  entry m i k (IZR v / IZR s).
Proof.
  intros H i k row v Hr Hv. destruct (map_opt_nth _ _ _ H) as [L N].
  assert (Hi : (i < length m)%nat) by (rewrite <- L; apply nth_error_Some; congruence).
  destruct (nth_error_some m i Hi) as [a Ha]. destruct (N i a Ha) as [b [Hb Nb]]. rewrite Hr in Nb. injection Nb as <-.
  destruct (map_opt_nth _ _ _ Hb) as [L' N'].
  assert (Hk : (k < length a)%nat) by (rewrite <- L'; apply nth_error_Some; congruence).
  destruct (nth_error_some a k Hk) as [r Hr']. destruct (N' k r Hr') as [w [Hw Nw]]. rewrite Hv in Nw. injection Nw as <-.
  exists a, r. apply scaled_sound in Hw. intuition auto.
Qed.

Lemma columns_of_matrix_sound n width m s z t : columns_of_matrix n width m = Some (s, z, t) ->
  forall i k, (i < n)%nat -> (k < width)%nat -> exists v,
    nth_error (row_at z i) k = Some v /\ nth_error (row_at t k) i = Some v /\ entry m i k (IZR v / IZR s).
Proof.
  unfold columns_of_matrix. destruct (scaled_matrix _ m) as [y|] eqn:E; [|discriminate].
  destruct (_ && _) eqn:C; [|discriminate]. intro H. injection H as <- <- <-. intros i k Hi Hk.
  apply andb_true_iff in C as [C1 C2]. apply Nat.eqb_eq in C1.
  destruct (transpose_sound width y C2) as [_ T]. destruct (T k Hk) as [col [Hc [Lc Nc]]].
  destruct (nth_error_some y i ltac:(lia)) as [row Hr]. destruct (Nc i row Hr) as [Ecol Nn].
  destruct (nth_error row k) as [v|] eqn:Ev; [|congruence]. exists v. unfold row_at. rewrite Hr, Hc.
  repeat split; auto. eapply scaled_entry; eauto.
Qed.

Lemma mv_min s x y : (0 < s)%Z -> mv (Exact (Z.min x y) s) = Rmin (IZR x / IZR s) (IZR y / IZR s).
Proof.
  intro H. apply IZR_lt in H. cbn [mv]. assert (0 < / IZR s) by (apply Rinv_0_lt_compat; exact H).
  destruct (Z.le_ge_cases x y) as [L|L]; [rewrite Z.min_l by exact L; rewrite Rmin_left|rewrite Z.min_r by exact L; rewrite Rmin_right];
    try reflexivity; unfold Rdiv; apply Rmult_le_compat_r; try lra; apply IZR_le, L.
Qed.

Lemma largest_pos l : (0 < largest l)%Z.
Proof. induction l; simpl; lia. Qed.

Theorem measures_sound p m : measures_of p = Some m ->
  (forall i, (i < length (records p))%nat -> length (own m i) = length (records p) ->
     describes (distance p i) (length (records p)) (own m i)) /\
  (forall k, (k < length (outputs p))%nat -> length (ends m k) = length (records p) ->
     describes (fun i => reported_distance p i k) (length (records p)) (ends m k)).
Proof.
  unfold measures_of, distance, reported_distance. destruct (metric p) as [at_ out|mat across|edges] eqn:Em.
  - destruct (_ && _) eqn:C; [|discriminate]. apply andb_true_iff in C as [C1 C2].
    apply Nat.eqb_eq in C1. apply Nat.eqb_eq in C2. unfold euclidean_measures.
    set (s := Z.max _ _). assert (Hs : (0 < s)%Z) by (unfold s; pose proof (largest_pos (concat at_)); lia). clearbody s.
    destruct (scaled_matrix s at_) as [a|] eqn:Ea; [|discriminate].
    destruct (scaled_matrix s out) as [b|] eqn:Eb; [|discriminate]. intro H. injection H as <-. cbn [own ends].
    destruct (map_opt_nth _ _ _ Ea) as [La Na]. destruct (map_opt_nth _ _ _ Eb) as [Lb Nb].
    split; intros i Hi _ j Hj; rewrite nth_error_map'.
    + destruct (nth_error_some at_ i ltac:(lia)) as [u Hu]. destruct (Na i u Hu) as [u' [Su Nu]].
      destruct (nth_error_some at_ j ltac:(lia)) as [v Hv]. destruct (Na j v Hv) as [v' [Sv Nv]].
      unfold row_at. rewrite Nv, Nu. cbn [option_map]. exists u, v. split; [exact Hu|]. split; [exact Hv|].
      rewrite (root_sound s u v u' v' Hs Su Sv). cbn [mv]. do 2 f_equal. f_equal.
      clear. revert v'. induction u' as [|x s IH]; intros [|y t]; simpl; try reflexivity. rewrite IH. ring.
    + destruct (nth_error_some out i ltac:(lia)) as [u Hu]. destruct (Nb i u Hu) as [u' [Su Nu]].
      destruct (nth_error_some at_ j ltac:(lia)) as [v Hv]. destruct (Na j v Hv) as [v' [Sv Nv]].
      unfold row_at. rewrite Nv, Nu. cbn [option_map]. exists v, u. split; [exact Hv|]. split; [exact Hu|].
      symmetry. apply root_sound; assumption.
  - unfold matrix_measures. destruct (columns_of_matrix _ _ mat) as [[[s z] t]|] eqn:E; [|discriminate].
    pose proof (columns_of_matrix_sound _ _ _ _ _ _ E) as S.
    assert (Hs : (0 < s)%Z).
    { unfold columns_of_matrix in E. destruct (scaled_matrix _ mat); [|discriminate]. destruct (_ && _); [|discriminate].
      injection E as <- _ _. apply largest_pos. }
    assert (O : forall i, (i < length (records p))%nat -> forall j, (j < length (records p))%nat ->
      match nth_error (map2' (lesser s) (row_at z i) (row_at t i)) j with
      | Some (Some m0) => exists y x, entry mat i j y /\ entry mat j i x /\ mv m0 = Rmin y x
      | Some None => False | None => False end).
    { intros i Hi j Hj. destruct (S i j Hi Hj) as [v [Zv [_ Ev]]]. destruct (S j i Hj Hi) as [w [_ [Tw Ew]]].
      rewrite (map2'_nth _ _ _ _ _ _ Zv Tw). exists (IZR v / IZR s), (IZR w / IZR s).
      split; [exact Ev|]. split; [exact Ew|]. apply mv_min, Hs. }
    destruct across as [other|].
    + destruct (columns_of_matrix _ _ other) as [[[s' z'] t']|] eqn:E'; [|discriminate]. intro H. injection H as <-.
      cbn [own ends]. split; intros i Hi _ j Hj.
      * specialize (O i Hi j Hj). destruct (nth_error _ j) as [[m0|]|]; intuition auto.
      * destruct (columns_of_matrix_sound _ _ _ _ _ _ E' j i Hj Hi) as [v [_ [Tv Ev]]].
        rewrite nth_error_map', Tv. cbn. exact Ev.
    + intro H. injection H as <-. cbn [own ends]. split; intros i Hi Hl j Hj.
      * specialize (O i Hi j Hj). destruct (nth_error _ j) as [[m0|]|]; intuition auto.
      * assert (Hi' : (i < length (records p))%nat).
        { unfold row_at in Hl. destruct (nth_error z i) eqn:Z0; [|simpl in Hl; destruct (length (records p)); [lia|discriminate]].
          unfold columns_of_matrix in E. destruct (scaled_matrix _ mat); [|discriminate]. destruct (_ && _) eqn:C; [|discriminate].
          injection E as _ <- _. apply andb_true_iff in C as [C1 _]. apply Nat.eqb_eq in C1. rewrite <- C1.
          apply nth_error_Some. congruence. }
        specialize (O i Hi' j Hj). destruct (nth_error _ j) as [[m0|]|]; try contradiction.
        destruct O as [y [x [Hy [Hx ->]]]]. unfold distance. rewrite Em. exists x, y. split; [exact Hx|]. split; [exact Hy|]. apply Rmin_comm.
  - unfold graph_measures. set (nodes := once _ _). set (s := largest _).
    destruct (map_opt (numbered nodes s) edges) as [es|] eqn:Ee; [|discriminate].
    destruct (map_opt (fun a => index a nodes) (records p)) as [at_|] eqn:Ea; [|discriminate].
    destruct (0 <? s)%Z eqn:Hs; [|discriminate]. apply Z.ltb_lt in Hs. intro H. injection H as <-. cbn [own ends].
    destruct (map_opt_nth _ _ _ Ea) as [La Na].
    assert (G : forall a u lab, index a nodes = Some u -> lengths_from (length nodes) es (adjacent es) u = Some lab ->
      forall j b, nth_error (records p) j = Some b -> exists v, nth_error at_ j = Some v /\
        match label lab v with Some l => shortest edges a b (mv (Exact l s)) | None => forall x, ~ shortest edges a b x end).
    { intros a u lab Hu Hlab j b Hb. destruct (Na j b Hb) as [v [Iv Nv]]. exists v. split; [exact Nv|].
      destruct (lengths_sound es u (length nodes) lab Hlab) as [Ht Hm].
      assert (M : forall y, walk edges a b y -> exists l lv, way es u v l /\ y = IZR l / IZR s /\ label lab v = Some lv /\ (lv <= l)%Z).
      { intros y W. destruct (to_numbers nodes s edges es Ee a b y W u Hu) as [v' [l [Iv' [St ->]]]].
        rewrite Iv in Iv'. injection Iv' as <-. destruct (Hm v l St) as [lv [Hlv Le]]. exists l, lv. auto. }
      destruct (label lab v) as [l|] eqn:El.
      - split.
        + destruct (to_names nodes s edges es Ee u v l (Ht v l El) a (index_nth a nodes u Hu)) as [b' [Hb' W]].
          apply index_nth in Iv. rewrite Iv in Hb'. injection Hb' as <-. exact W.
        + intros y W. destruct (M y W) as [l' [lv [_ [-> [E Le]]]]]. injection E as <-. cbn [mv].
          apply IZR_lt in Hs. unfold Rdiv. apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; exact Hs|apply IZR_le, Le].
      - intros x [W _]. destruct (M x W) as [l' [lv [_ [_ [E _]]]]]. discriminate. }
    set (n := length (records p)) in *.
    split; intros i Hi Hl j Hj.
    + destruct (nth_error_some (records p) i Hi) as [a Ha]. rewrite Ha in *.
      destruct (nth_error_some (records p) j Hj) as [b Hb].
      destruct (index a nodes) as [u|] eqn:Iu; [|simpl in Hl; lia].
      destruct (lengths_from _ es _ u) as [lab|] eqn:Elab; [|simpl in Hl; lia].
      destruct (G a u lab Iu Elab j b Hb) as [v [Nv Gv]]. rewrite nth_error_map', Nv. cbn [option_map].
      destruct (label lab v) as [l|]; cbn [exact].
      * exists a, b. auto.
      * intros x [a' [b' [Ha' [Hb' Sx]]]]. rewrite Hb in Hb'. injection Ha' as <-. injection Hb' as <-. exact (Gv x Sx).
    + destruct (nth_error_some (outputs p) i Hi) as [a Ha]. rewrite Ha in *.
      destruct (nth_error_some (records p) j Hj) as [b Hb].
      destruct (index a nodes) as [u|] eqn:Iu; [|simpl in Hl; lia].
      destruct (lengths_from _ es _ u) as [lab|] eqn:Elab; [|simpl in Hl; lia].
      destruct (G a u lab Iu Elab j b Hb) as [v [Nv Gv]]. rewrite nth_error_map', Nv. cbn [option_map].
      destruct (label lab v) as [l|]; cbn [exact].
      * exists b, a. auto.
      * intros x [b' [a' [Hb' [Ha' Sx]]]]. rewrite Hb in Hb'. injection Ha' as <-. injection Hb' as <-. exact (Gv x Sx).
Qed.

Lemma entry_unique m i k x y : entry m i k x -> entry m i k y -> x = y.
Proof. intros [r [v [A [B ->]]]] [r' [v' [A' [B' ->]]]]. congruence. Qed.

Lemma shortest_unique e a b x y : shortest e a b x -> shortest e a b y -> x = y.
Proof. intros [W M] [W' M']. apply Rle_antisym; auto. Qed.

Lemma distance_unique p i j x y : distance p i j x -> distance p i j y -> x = y.
Proof.
  unfold distance. destruct (metric p).
  - intros [a [b [A [B ->]]]] [a' [b' [A' [B' ->]]]]. congruence.
  - intros [a [b [A [B ->]]]] [a' [b' [A' [B' ->]]]]. f_equal; eapply entry_unique; eauto.
  - intros [a [b [A [B H]]]] [a' [b' [A' [B' H']]]]. replace a' with a in * by congruence. replace b' with b in * by congruence.
    eapply shortest_unique; eauto.
Qed.

Lemma reported_distance_unique p i k x y : reported_distance p i k x -> reported_distance p i k y -> x = y.
Proof.
  unfold reported_distance. destruct (metric p) as [? ?|? [m|]|e].
  - intros [a [b [A [B ->]]]] [a' [b' [A' [B' ->]]]]. congruence.
  - apply entry_unique.
  - apply distance_unique.
  - intros [a [b [A [B H]]]] [a' [b' [A' [B' H']]]]. replace a' with a in * by congruence. replace b' with b in * by congruence.
    eapply shortest_unique; eauto.
Qed.
