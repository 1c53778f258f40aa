(** Loss, and a bound below the loss of every private matrix of reals (weak duality).

    A bound is found output by output: the costs p_i c_ik are moved along rows z_i <= u z_j that every
    private matrix keeps, which takes nothing from sum_i p_i c_ik z_ik; then the least that is left to
    each record, over all outputs, adds up to the bound. *)
From Coq Require Import ZArith List Bool Reals Lra Lia FMapPositive.
From Privopt Require Import Exp Rows Sums.
Import ListNotations.
Open Scope R_scope.

(** ** One output *)

(** Factors u / ONE of rows z_i <= (u / ONE) z_j. *)
Definition factors := PositiveMap.t (PositiveMap.t Z).
Definition factor (t : factors) (i j : nat) : option Z :=
  match PositiveMap.find (key i) t with Some m => PositiveMap.find (key j) m | None => None end.

Definition move (t : factors) (i j : nat) (f : Z) (g : zmap) : zmap :=
  match factor t i j with
  | Some u => if (0 <=? f)%Z then add_to j (- up (u * f) ONE) (add_to i f g) else g
  | None => g
  end.

(** What proof.npz says to move: multipliers as they are, or what record i lacks of its price or has
    above it, which goes to the record that it hangs on. *)
Inductive step :=
| Multiplier (i j : nat) (f : Z)
| Lack (i parent : nat) (price : Z)
| Surplus (i parent : nat) (price : Z).

Definition do_step (t : factors) (g : zmap) (s : step) : zmap :=
  match s with
  | Multiplier i j f => move t i j f g
  | Lack i p y => move t i p (y - get g i)%Z g
  | Surplus i p y =>
      match factor t p i with Some u => move t p i ((get g i - y) * ONE / u)%Z g | None => g end
  end.

Definition final (t : factors) (steps : list step) (costs : list Z) : zmap :=
  fold_left (do_step t) steps (of_list O costs).

Section One_output.
  Variable n : nat.
  Variable t : factors.
  Variable r : nat -> R.   (* the output's probability at each record *)
  Hypothesis positive : forall i, (i < n)%nat -> 0 <= r i.
  Hypothesis kept : forall i j u, factor t i j = Some u ->
    (i < n)%nat /\ (j < n)%nat /\ IZR ONE * r i <= IZR u * r j.

  Definition worth (g : zmap) : R := sum n (fun a => IZR (get g a) * r a).

  Lemma move_worth i j f g : worth (move t i j f g) <= worth g.
  Proof.
    unfold move. destruct (factor t i j) as [u|] eqn:E; [|lra].
    destruct (Z.leb_spec 0 f) as [Hf|]; [|lra].
    destruct (kept _ _ _ E) as [Hi [Hj H]]. unfold worth.
    rewrite !sum_add_to by assumption. apply IZR_le in Hf. rewrite opp_IZR.
    pose proof (up_above (u * f) ONE ONE_pos) as U. rewrite mult_IZR in U.
    pose proof (positive j Hj). pose proof ONE_posR.
    assert (IZR f * r i <= IZR (up (u * f) ONE) * r j); [|lra].
    apply Rmult_le_reg_r with (IZR ONE); [auto|].
    apply Rle_trans with (IZR f * (IZR u * r j)); [|nra].
    replace (IZR f * r i * IZR ONE) with (IZR f * (IZR ONE * r i)) by ring.
    apply Rmult_le_compat_l; assumption.
  Qed.

  Lemma final_worth steps costs :
    worth (final t steps costs) <= sum n (fun a => IZR (nth a costs 0%Z) * r a).
  Proof.
    unfold final. replace (sum n (fun a => IZR (nth a costs 0%Z) * r a)) with (worth (of_list O costs)).
    - generalize (of_list O costs). induction steps as [|s rest IH]; intro g; cbn [fold_left]; [lra|].
      eapply Rle_trans; [apply IH|]. destruct s as [i j f|i p y|i p y]; cbn [do_step].
      + apply move_worth.
      + apply move_worth.
      + destruct (factor t p i); [apply move_worth|lra].
    - unfold worth. apply sum_ext. intros a _.
      change (get (of_list 0 costs) a) with (get (of_list 0 costs) (0 + a)). rewrite get_of_list. reflexivity.
  Qed.
End One_output.

(** ** All outputs *)

(** Of an output: its costs, ONE-ths, from below and from above, its weights at each record, its steps. *)
Record column := { low : list Z; high : list Z; weights : list Z; steps : list step }.

Fixpoint map2 (f : Z -> Z -> Z) (a b : list Z) : list Z :=
  match a, b with x :: s, y :: t => f x y :: map2 f s t | _, _ => [] end.

Lemma map2_length f a : forall b, length a = length b -> length (map2 f a b) = length a.
Proof. induction a; intros [|y b] H; try discriminate; simpl; [reflexivity|]. rewrite IHa; auto. Qed.

Lemma map2_nth f a : forall b i, length a = length b -> (i < length a)%nat ->
  nth i (map2 f a b) 0%Z = f (nth i a 0%Z) (nth i b 0%Z).
Proof.
  induction a as [|x s IH]; intros [|y b] i H Hi; try discriminate; simpl in *; [lia|].
  destruct i; [reflexivity|]. apply IH; lia.
Qed.

Definition shared_low (whole p c : Z) : Z := (p * c / whole)%Z.
Definition shared_high (whole p c : Z) : Z := up (p * c) whole.

Record sums := { least : option (list Z); loss_low : Z; loss_high : Z }.

(** The least left to each record, and the loss, TOTAL ONE-ths. *)
Fixpoint evaluate (n : nat) (t : factors) (whole : Z) (p : list Z) (columns : list column) : sums :=
  match columns with
  | [] => {| least := None; loss_low := 0; loss_high := 0 |}
  | c :: rest =>
      let s := evaluate n t whole p rest in
      let costs := map2 (shared_low whole) p (low c) in
      let g := final t (steps c) costs in
      let left := map (get g) (seq 0 n) in
      {| least := Some (match least s with None => left | Some other => map2 Z.min left other end);
         loss_low := dot costs (weights c) + loss_low s;
         loss_high := dot (map2 (shared_high whole) p (high c)) (weights c) + loss_high s |}
  end.

Section All_outputs.
  Variables (n : nat) (t : factors) (whole : Z) (p : list Z) (columns : list column).
  Variable c : nat -> nat -> R.
  Let width := length columns.
  Let share i := IZR (nth i p 0%Z) / IZR whole.
  Let col k := nth k columns {| low := []; high := []; weights := []; steps := [] |}.
  Hypothesis Hp : length p = n.
  Hypothesis Hp0 : forall x, In x p -> (0 <= x)%Z.
  Hypothesis Hw : (0 < whole)%Z.
  Hypothesis Hlow : forall k, (k < width)%nat -> length (low (col k)) = n /\
    forall i, (i < n)%nat -> IZR (nth i (low (col k)) 0%Z) <= IZR ONE * c i k.
  Hypothesis Hhigh : forall k, (k < width)%nat -> length (high (col k)) = n /\
    forall i, (i < n)%nat -> IZR ONE * c i k <= IZR (nth i (high (col k)) 0%Z).
  Hypothesis Hweights : forall k, (k < width)%nat -> length (weights (col k)) = n /\
    forall i, (i < n)%nat -> (0 <= nth i (weights (col k)) 0)%Z.

  Lemma whole_pos : 0 < IZR whole. Proof. apply IZR_lt, Hw. Qed.
  Lemma p_pos i : 0 <= IZR (nth i p 0%Z).
  Proof.
    apply IZR_le. destruct (Nat.lt_ge_cases i (length p)) as [L|G].
    - apply Hp0, nth_In, L.
    - rewrite nth_overflow by exact G. lia.
  Qed.

  Lemma shared_low_sound k i : (k < width)%nat -> (i < n)%nat ->
    IZR (nth i (map2 (shared_low whole) p (low (col k))) 0%Z) <= IZR ONE * (share i * c i k).
  Proof.
    intros Hk Hi. destruct (Hlow k Hk) as [L H]. rewrite map2_nth by lia. unfold shared_low.
    eapply Rle_trans; [apply div_below_over, Hw|]. rewrite mult_IZR. unfold share.
    pose proof whole_pos. pose proof (p_pos i). specialize (H i Hi).
    replace (IZR ONE * (IZR (nth i p 0%Z) / IZR whole * c i k))
      with (IZR (nth i p 0%Z) * (IZR ONE * c i k) / IZR whole) by (field; lra).
    apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; assumption|].
    apply Rmult_le_compat_l; assumption.
  Qed.

  Lemma shared_high_sound k i : (k < width)%nat -> (i < n)%nat ->
    IZR ONE * (share i * c i k) <= IZR (nth i (map2 (shared_high whole) p (high (col k))) 0%Z).
  Proof.
    intros Hk Hi. destruct (Hhigh k Hk) as [L H]. rewrite map2_nth by lia. unfold shared_high.
    eapply Rle_trans; [|apply up_above_over, Hw]. rewrite mult_IZR. unfold share.
    pose proof whole_pos. pose proof (p_pos i). specialize (H i Hi).
    replace (IZR ONE * (IZR (nth i p 0%Z) / IZR whole * c i k))
      with (IZR (nth i p 0%Z) * (IZR ONE * c i k) / IZR whole) by (field; lra).
    apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; assumption|].
    apply Rmult_le_compat_l; assumption.
  Qed.

  (** What is left to record i at output k. *)
  Let left k i := get (final t (steps (col k)) (map2 (shared_low whole) p (low (col k)))) i.

  Lemma least_sound : forall y, least (evaluate n t whole p columns) = Some y ->
    length y = n /\ forall k i, (k < width)%nat -> (i < n)%nat -> (nth i y 0 <= left k i)%Z.
  Proof.
    unfold left, col, width. clear - Hp. induction columns as [|d rest IH]; intros y H; cbn [evaluate least] in H;
      [discriminate|].
    set (here := map (get (final t (steps d) (map2 (shared_low whole) p (low d)))) (seq 0 n)) in *.
    assert (Lh : length here = n) by (unfold here; rewrite map_length, seq_length; reflexivity).
    assert (Nh : forall i, (i < n)%nat ->
      nth i here 0%Z = get (final t (steps d) (map2 (shared_low whole) p (low d))) i).
    { intros i Hi. unfold here. rewrite (nth_indep _ 0%Z (get (final t (steps d) (map2 (shared_low whole) p (low d))) 0%nat))
        by (rewrite map_length, seq_length; exact Hi). rewrite map_nth, seq_nth by exact Hi. reflexivity. }
    injection H as <-. destruct (least (evaluate n t whole p rest)) as [other|] eqn:E.
    - destruct (IH _ eq_refl) as [Lo Ho]. split; [rewrite map2_length; lia|].
      intros k i Hk Hi. rewrite map2_nth by lia. destruct k as [|k]; cbn [nth].
      + rewrite Nh by exact Hi. lia.
      + specialize (Ho k i ltac:(simpl in Hk; lia) Hi). lia.
    - split; [exact Lh|]. intros k i Hk Hi. destruct rest as [|e more]; [|discriminate].
      destruct k; [|simpl in Hk; lia]. cbn [nth]. rewrite Nh by exact Hi. lia.
  Qed.

  (** No matrix z of reals whose rows are distributions and keep the factors loses less. *)
  Theorem bound_sound y : least (evaluate n t whole p columns) = Some y ->
    forall z : nat -> nat -> R,
    (forall i k, (i < n)%nat -> (k < width)%nat -> 0 <= z i k) ->
    (forall i, (i < n)%nat -> sum width (z i) = 1) ->
    (forall i j u, factor t i j = Some u -> (i < n)%nat /\ (j < n)%nat /\
       forall k, (k < width)%nat -> IZR ONE * z i k <= IZR u * z j k) ->
    IZR (total y) <= IZR ONE * loss n width share c z.
  Proof.
    intros Hy z Hz0 Hz1 Hf. destruct (least_sound y Hy) as [Ly Hl].
    rewrite (total_sum y total) by reflexivity. rewrite Ly.
    apply Rle_trans with (sum n (fun i => sum width (fun k => IZR (nth i y 0%Z) * z i k))).
    { right. apply sum_ext. intros i Hi. rewrite sum_scale.
      change (sum width (fun k => z i k)) with (sum width (z i)). rewrite Hz1 by exact Hi. ring. }
    unfold loss. rewrite sum_swap, <- sum_scale.
    rewrite (sum_ext n (fun i => IZR ONE * (share i * sum width (fun k => c i k * z i k)))
      (fun i => sum width (fun k => IZR ONE * (share i * c i k) * z i k))).
    2: { intros i _. rewrite <- !sum_scale. apply sum_ext. intros. ring. }
    rewrite (sum_swap n width). apply sum_le. intros k Hk.
    apply Rle_trans with (worth n (fun i => z i k) (final t (steps (col k)) (map2 (shared_low whole) p (low (col k))))).
    - apply sum_le. intros i Hi. apply Rmult_le_compat_r; [auto|]. apply IZR_le. apply (Hl k i Hk Hi).
    - eapply Rle_trans; [apply final_worth|].
      + intros i Hi. apply Hz0; assumption.
      + intros i j u Hu. destruct (Hf i j u Hu) as [A [B C]]. auto.
      + apply sum_le. intros i Hi. apply Rmult_le_compat_r; [auto|]. apply shared_low_sound; assumption.
  Qed.
End All_outputs.

(** The loss of the weights lies between both sums. *)
Definition weight_of (columns : list column) (i k : nat) : R :=
  IZR (nth i (weights (nth k columns {| low := []; high := []; weights := []; steps := [] |})) 0%Z) / IZR TOTAL.

Theorem loss_sound n t whole p columns c
  (Hp : length p = n) (Hp0 : forall x, In x p -> (0 <= x)%Z) (Hw : (0 < whole)%Z) :
  let col k := nth k columns {| low := []; high := []; weights := []; steps := [] |} in
  (forall k, (k < length columns)%nat -> length (low (col k)) = n /\
    forall i, (i < n)%nat -> IZR (nth i (low (col k)) 0%Z) <= IZR ONE * c i k) ->
  (forall k, (k < length columns)%nat -> length (high (col k)) = n /\
    forall i, (i < n)%nat -> IZR ONE * c i k <= IZR (nth i (high (col k)) 0%Z)) ->
  (forall k, (k < length columns)%nat -> length (weights (col k)) = n /\
    forall i, (i < n)%nat -> (0 <= nth i (weights (col k)) 0)%Z) ->
  let s := evaluate n t whole p columns in
  let value := loss n (length columns) (fun i => IZR (nth i p 0%Z) / IZR whole) c (weight_of columns) in
  IZR (loss_low s) <= IZR TOTAL * IZR ONE * value <= IZR (loss_high s).
Proof.
  intros col Hlow Hhigh Hweights s value.
  assert (Rt : 0 < IZR TOTAL) by (apply IZR_lt, TOTAL_pos).
  set (share i := IZR (nth i p 0%Z) / IZR whole) in *.
  set (w k i := IZR (nth i (weights (col k)) 0%Z)).
  assert (V : IZR TOTAL * IZR ONE * value =
    sum (length columns) (fun k => sum n (fun i => IZR ONE * (share i * c i k) * w k i))).
  { unfold value, loss. rewrite <- sum_scale.
    rewrite (sum_ext n _ (fun i => sum (length columns) (fun k => IZR ONE * (share i * c i k) * w k i))).
    - apply sum_swap.
    - intros i _. rewrite <- !sum_scale. apply sum_ext. intros k _. unfold weight_of, w, col, share. field.
      split; [apply Rgt_not_eq, IZR_lt, Hw|lra]. }
  rewrite V. clear V value.
  assert (E : loss_low s = fold_right Z.add 0%Z (map (fun d => dot (map2 (shared_low whole) p (low d)) (weights d)) columns) /\
    loss_high s = fold_right Z.add 0%Z (map (fun d => dot (map2 (shared_high whole) p (high d)) (weights d)) columns)).
  { unfold s. clear. induction columns as [|d rest [A B]]; [split; reflexivity|].
    cbn [evaluate loss_low loss_high map fold_right]. rewrite A, B. split; reflexivity. }
  destruct E as [-> ->].
  assert (F : forall f : column -> Z, IZR (fold_right Z.add 0%Z (map f columns)) =
    sum (length columns) (fun k => IZR (f (col k)))).
  { intro f. unfold col. clear. induction columns as [|d rest IH]; [reflexivity|].
    cbn [map fold_right length]. rewrite plus_IZR, IH, sum_shift. reflexivity. }
  rewrite !F. split; apply sum_le; intros k Hk; destruct (Hweights k Hk) as [Lw Hw0].
  - destruct (Hlow k Hk) as [Ll _]. rewrite dot_sum by (rewrite map2_length; lia).
    rewrite map2_length by lia. rewrite Hp. apply sum_le. intros i Hi.
    apply Rmult_le_compat_r; [apply IZR_le, Hw0, Hi|].
    apply (shared_low_sound n whole p columns c Hp Hp0 Hw Hlow k i Hk Hi).
  - destruct (Hhigh k Hk) as [Lh _]. rewrite dot_sum by (rewrite map2_length; lia).
    rewrite map2_length by lia. rewrite Hp. apply sum_le. intros i Hi.
    apply Rmult_le_compat_r; [apply IZR_le, Hw0, Hi|].
    apply (shared_high_sound n whole p columns c Hp Hp0 Hw Hhigh k i Hk Hi).
Qed.
