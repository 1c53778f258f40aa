(** The program: it takes a folder's files, and the theorem about what it takes. *)
From Coq Require Import ZArith Bool Reals Lra Lia String List.
From Privopt Require Import Exp Rows Sums Bound Spec Claims Metric Tables Privacy Check Grammar Folder UniqueText Read.
Import ListNotations.
Open Scope Z_scope.

Definition read_decimal (t : bytes) : option rat :=
  let n := read_number t in when good_number n && same (print_number n) t;; Some (number_value n).

Definition good_row (width : nat) (r : list bytes) : bool :=
  Nat.eqb (length r) width && negb (match r with [] => true | [[]] => true | _ => false end) && forallb plain_cell r.
Definition read_table (fs : files) (name : bytes) : option (list (list bytes)) :=
  t <- lookup (beside name) fs;; let rows := read_csv t in
  when same (print_csv rows) t && forallb (good_row (length (hd [] rows))) rows;; Some rows.

Definition same_shape (a c : list nat) : bool := if list_eq_dec Nat.eq_dec a c then true else false.

(** What is left of a text behind a beginning; nothing is copied, for arrays are long. *)
Fixpoint drop (p t : bytes) : option bytes :=
  match p, t with
  | [], _ => Some t
  | x :: p, y :: t => if x =? y then drop p t else None
  | _, [] => None
  end.
Fixpoint drop_row (r : list Z) (t : bytes) : option bytes :=
  match r with [] => Some t | z :: s => t <- drop (le 8 z) t;; drop_row s t end.
Fixpoint drop_rows (rows : list (list Z)) (t : bytes) : option bytes :=
  match rows with [] => Some t | r :: s => t <- drop_row r t;; drop_rows s t end.

Definition front (a : npy) : bytes := [147] ++ str "NUMPY" ++ [1; 0] ++ le 2 (Z.of_nat (length (header a))) ++ header a.

Definition read_words (k : bytes) (t : bytes) (n width : nat) : option (list (list Z)) :=
  let a := read_npy t in
  when good_npy a && same (kind a) k && same_shape (shape a) [n; width];;
  content <- drop (front a) t;;
  let rows := split n width (chunks content 8 content) in
  when Nat.eqb (length rows) n && forallb (fun r => Nat.eqb (length r) width && forallb in_word r) rows;;
  match drop_rows rows content with Some [] => Some rows | _ => None end.

Definition read_doubles (fs : files) (name : bytes) (n width : nat) : option (list (list rat)) :=
  t <- lookup (beside name) fs;; bits <- read_words (str "<f8") t n width;; map_opt (map_opt double) bits.

Definition reader (fs : files) : readers :=
  {| number_of := read_decimal; table_of := read_table fs; matrix_of := read_doubles fs |}.

Definition are_names (t : bytes) (names : list bytes) : bool :=
  let a := read_npy t in let width := Z.to_nat (digits_value (skipn 2 (kind a))) in
  good_npy a && same (print_npy a) t && same (kind a) (str "<U" ++ named width) && same_shape (shape a) [length names]
  && forallb (fun x => Nat.leb (length x) width && forallb in_name x) names && same (flat_map (print_name width) names) (body a).

Definition as_json (t : bytes) : option value :=
  let t := outside false blank_json Sign t in let v := read_json t in
  when good_value inside inside v && same (print_value json_key v) t;; Some v.
Definition as_toml (t : bytes) : option toml :=
  let t := full_lines true (outside true blank_toml Sign t) in let h := read_heading t in let d := read_toml t in
  when good_toml d && (good_heading h && same (print_pairs h ++ print_toml d) t);; Some d.

Definition read_folder (fs : files) : option (problem * claims * list (list Z)) :=
  let r := reader fs in
  result <- lookup (str "result.json") fs;; j <- as_json result;; c <- claims_of r j;;
  text <- lookup (beside (file c)) fs;; d <- as_toml text;; p <- problem_of r d;;
  weights <- lookup (str "mechanism.npz/weights.npy") fs;;
  rows <- read_words (str "<u8") weights (length (records p)) (length (outputs p));;
  names <- lookup (str "mechanism.npz/records.npy") fs;; outs <- lookup (str "mechanism.npz/outputs.npy") fs;;
  when are_names names (records p) && are_names outs (outputs p);;
  Some (p, c, rows).

(** What is claimed, held to what was found. *)
Definition same_rat (x y : rat) : bool := (0 <? snd x) && (0 <? snd y) && (fst x * snd y =? fst y * snd x).
Definition value_holds (c : claims) (f : findings) : bool :=
  let (n, d) := value_of c in let (a, e) := allowance c in
  (0 <? d) && (0 <? e)
  && ((n * e - a * d) * (TOTAL * ONE) <=? at_least f * (d * e)) && (at_most f * (d * e) <=? (n * e + a * d) * (TOTAL * ONE)).
(** A unit is fine: above 0, and 2^-30 of the value or of 1 at most. *)
Definition unit_holds (c : claims) : bool :=
  let (n, d) := value_of c in
  match unit_of c with
  | Some (u, w) => (0 <? d) && (0 <? u) && (0 <? w) && (u * 2 ^ 30 * d <=? w * Z.max d (Z.abs n))
  | None => true
  end.
(** x is y, as a double is shown. *)
Definition shown (x y : rat) : bool :=
  (0 <? snd x) && (0 <? snd y) && (Z.abs (fst x * snd y - fst y * snd x) * 2 ^ 52 <=? fst y * snd x).
Definition guarantee_holds (p : problem) (c : claims) : bool :=
  same_rat (epsilon_of c) (epsilon p) && shown (epsilon_shown c) (epsilon p) && same (scope_of c) (scope_is p)
  && match within_shown c, within p with Some x, Some y => shown x y | None, None => true | _, _ => false end.
Definition bound_holds (c : claims) (f : findings) : bool :=
  match bound_of c with Some (n, d) => (0 <? d) && (n * ONE <=? proved f * d) | None => true end.
Definition prior_adds_up (p : problem) : bool :=   (* as the other checkers have it: shares add up to 1 within 1e-6 *)
  let s := largest (map snd (prior p)) in
  match map_opt (scaled s) (map snd (prior p)) with
  | Some l =>
      (Z.abs (total l - s) * 10 ^ 6 <=? s) || forallb (fun e => (fst (snd e) =? 1) && (snd (snd e) =? 1)) (prior p)
  | None => false
  end.

Definition names_differ (fs : files) : bool :=
  distinct (map fst fs) && distinct (map (fun f => stem (fst f)) fs) && forallb (fun f => plain_name (fst f)) fs.

Inductive claim := Privacy_or_form | Guarantee | Value | Lower_bound | Prior.
Inductive outcome := Unknown | Fails (what : claim) | Proved (p : problem) (rows : list (list Z)) (c : claims) (f : findings).

Definition examine (fs : files) : outcome :=
  match (when names_differ fs;; read_folder fs) with
  | None => Unknown
  | Some (p, c, rows) =>
      let plan := read_plan fs (length (records p)) (length (outputs p)) in
      match check p rows (wanted plan) (moves plan) with
      | None => Fails Privacy_or_form
      | Some f =>
          if negb (guarantee_holds p c) then Fails Guarantee
          else if negb (unit_holds c && value_holds c f) then Fails Value
          else if negb (bound_holds c f) then Fails Lower_bound
          else if negb (prior_adds_up p) then Fails Prior
          else Proved p rows c f
      end
  end.

(** ** Proofs *)

Lemma read_decimal_sound t x : read_decimal t = Some x -> Decimal t x.
Proof.
  unfold read_decimal. destruct (_ && _) eqn:E; [|discriminate]. intro H. injection H as <-.
  apply andb_true_iff in E as [G S]. exists (read_number t). split; [exact G|]. split; [apply same_eq, S|reflexivity].
Qed.

Lemma read_table_sound fs name rows : read_table fs name = Some rows -> exists t, File fs (beside name) t /\ Csv t rows.
Proof.
  unfold read_table. destruct (lookup _ fs) as [t|] eqn:L; [|discriminate]. destruct (_ && _) eqn:E; [|discriminate].
  intro H. injection H as <-. apply andb_true_iff in E as [P G]. exists t. split; [apply lookup_in, L|].
  split; [apply same_eq, P|]. intros r Hr. rewrite forallb_forall in G. specialize (G r Hr). unfold good_row in G.
  rewrite !andb_true_iff, Nat.eqb_eq, negb_true_iff in G. destruct G as [[G1 G2] G3]. split; [exact G1|].
  split; [intros ->; discriminate|]. split; [intros ->; discriminate|]. rewrite forallb_forall in G3. exact G3.
Qed.

Lemma same_shape_eq a c : same_shape a c = true -> a = c.
Proof. unfold same_shape. destruct (list_eq_dec Nat.eq_dec a c); [auto|discriminate]. Qed.

Lemma drop_sound p : forall t r, drop p t = Some r -> t = p ++ r.
Proof.
  induction p as [|x p IH]; intros [|y t] r H; simpl in H; try discriminate; try (injection H as <-; reflexivity).
  destruct (Z.eqb_spec x y) as [->|]; [|discriminate]. simpl. f_equal. apply IH, H.
Qed.

Lemma drop_row_sound w : forall t r, drop_row w t = Some r -> t = flat_map (le 8) w ++ r.
Proof.
  induction w as [|z w IH]; intros t r H; cbn [drop_row] in H; [injection H as <-; reflexivity|].
  destruct (drop (le 8 z) t) as [u|] eqn:E; [|discriminate]. apply drop_sound in E. apply IH in H. subst.
  cbn [flat_map]. rewrite <- app_assoc. reflexivity.
Qed.

Lemma drop_rows_sound rows : forall t r, drop_rows rows t = Some r -> t = print_words rows ++ r.
Proof.
  induction rows as [|w rows IH]; intros t r H; cbn [drop_rows] in H; [injection H as <-; reflexivity|].
  destruct (drop_row w t) as [u|] eqn:E; [|discriminate]. apply drop_row_sound in E. apply IH in H. subst.
  unfold print_words. cbn [flat_map]. rewrite <- app_assoc. reflexivity.
Qed.

Lemma read_words_sound k t n width rows : read_words k t n width = Some rows ->
  Npy t k [n; width] (print_words rows) /\ length rows = n /\
  (forall r, In r rows -> length r = width /\ forall z, In z r -> in_word z = true).
Proof.
  unfold read_words. cbv zeta. generalize (read_npy t) as a. intro a. destruct (_ && _) eqn:E; [|discriminate].
  destruct (drop (front a) t) as [content|] eqn:D; [|discriminate].
  generalize (split n width (chunks content 8 content)) as got. intro got.
  destruct (Nat.eqb (length got) n && _) eqn:F; [|discriminate].
  destruct (drop_rows got content) as [[|]|] eqn:B; try discriminate. intro H. apply some_inj in H. subst got.
  apply andb_true_iff in E as [E S]. apply andb_true_iff in E as [G K]. apply andb_true_iff in F as [L W].
  apply Nat.eqb_eq in L. apply same_eq in K. apply same_shape_eq in S. apply drop_sound in D. apply drop_rows_sound in B.
  rewrite app_nil_r in B. subst content. split.
  - exists {| kind := kind a; sides := sides a; spaces := spaces a; body := print_words rows |}.
    split; [exact G|]. split; [|auto]. rewrite D. unfold print_npy, front. rewrite <- !app_assoc. reflexivity.
  - split; [exact L|]. intros r Hr. rewrite forallb_forall in W. specialize (W r Hr). apply andb_true_iff in W as [W1 W2].
    apply Nat.eqb_eq in W1. split; [exact W1|]. rewrite forallb_forall in W2. exact W2.
Qed.

Lemma map_opt_forall2 {A B} (f : A -> option B) l r : map_opt f l = Some r -> Forall2 (fun a x => f a = Some x) l r.
Proof.
  revert r. induction l as [|a s IH]; intros r H; simpl in H; [injection H as <-; constructor|].
  destruct (f a) eqn:E; [|discriminate]. destruct (map_opt f s); [|discriminate]. injection H as <-. constructor; auto.
Qed.

Lemma forall2_impl {A B} (P Q : A -> B -> Prop) l r : (forall a x, P a x -> Q a x) -> Forall2 P l r -> Forall2 Q l r.
Proof. intros H. induction 1; constructor; auto. Qed.

Lemma read_doubles_sound fs name n width m : read_doubles fs name n width = Some m ->
  exists t, File fs (beside name) t /\ Doubles t n width m.
Proof.
  unfold read_doubles. destruct (lookup _ fs) as [t|] eqn:L; [|discriminate].
  destruct (read_words _ t n width) as [bits|] eqn:W; [|discriminate]. intro H.
  exists t. split; [apply lookup_in, L|]. exists bits. destruct (read_words_sound _ _ _ _ _ W) as [N [Ln Lr]].
  split; [exact N|]. split; [exact Ln|]. split; [exact Lr|]. apply map_opt_forall2 in H.
  eapply forall2_impl; [|exact H]. intros a x. apply map_opt_forall2.
Qed.

Lemma reader_faithful fs : Faithful fs (reader fs).
Proof.
  split; [|split]; cbn.
  - apply read_decimal_sound.
  - apply read_table_sound.
  - apply read_doubles_sound.
Qed.

Lemma are_names_sound t names : are_names t names = true -> Names t names.
Proof.
  unfold are_names. set (w := Z.to_nat _). rewrite !andb_true_iff. intros [[[[[G P] K] S] L] B].
  exists w. apply same_eq in P. apply same_eq in K. apply same_eq in B. apply same_shape_eq in S. split.
  - exists (read_npy t). auto.
  - intros a Ha. rewrite forallb_forall in L. specialize (L a Ha). apply andb_true_iff in L as [L1 L2].
    apply Nat.leb_le in L1. auto.
Qed.

Theorem read_folder_sound fs p c rows : read_folder fs = Some (p, c, rows) -> Format fs p rows c.
Proof.
  unfold read_folder. intro H.
  destruct (lookup (str "result.json") fs) as [result|] eqn:Lr; [|discriminate].
  destruct (as_json result) as [j|] eqn:J; [|discriminate]. destruct (claims_of (reader fs) j) as [c'|] eqn:C; [|discriminate].
  destruct (lookup (beside (file c')) fs) as [text|] eqn:Lt; [|discriminate]. destruct (as_toml text) as [d|] eqn:T; [|discriminate].
  destruct (problem_of (reader fs) d) as [p'|] eqn:P; [|discriminate].
  destruct (lookup (str "mechanism.npz/weights.npy") fs) as [weights|] eqn:Lw; [|discriminate].
  destruct (read_words _ weights _ _) as [rows'|] eqn:W; [|discriminate].
  destruct (lookup (str "mechanism.npz/records.npy") fs) as [names|] eqn:Ln; [|discriminate].
  destruct (lookup (str "mechanism.npz/outputs.npy") fs) as [outs|] eqn:Lo; [|discriminate].
  destruct (_ && _) eqn:N; [|discriminate]. injection H as <- <- <-. apply andb_true_iff in N as [N1 N2].
  exists (reader fs), d, j, weights, names, outs, result, text.
  split; [apply reader_faithful|]. split; [apply lookup_in, Lr|]. split.
  { unfold as_json in J. destruct (_ && _) eqn:E; [|discriminate]. injection J as <-. apply andb_true_iff in E as [E1 E2].
    split; [exact E1|apply same_eq, E2]. }
  split; [exact C|]. split; [apply lookup_in, Lt|]. split.
  { unfold as_toml in T. destruct (_ && _) eqn:E; [|discriminate]. injection T as <-. apply andb_true_iff in E as [E1 E2].
    apply andb_true_iff in E2 as [E2 E3]. split; [exact E1|]. eexists. split; [exact E2|apply same_eq, E3]. }
  split; [exact P|]. split; [apply lookup_in, Lw|]. split; [apply (read_words_sound _ _ _ _ _ W)|].
  split; [apply lookup_in, Ln|]. split; [apply are_names_sound, N1|]. split; [apply lookup_in, Lo|apply are_names_sound, N2].
Qed.

Open Scope R_scope.

Lemma rat_le (a d c e : Z) : (0 < d)%Z -> (0 < e)%Z -> (a * e <= c * d)%Z -> IZR a / IZR d <= IZR c / IZR e.
Proof.
  intros Hd He H. apply IZR_le in H. rewrite !mult_IZR in H. apply IZR_lt in Hd. apply IZR_lt in He.
  apply Rmult_le_reg_r with (IZR d * IZR e); [nra|].
  replace (IZR a / IZR d * (IZR d * IZR e)) with (IZR a * IZR e) by (field; lra).
  replace (IZR c / IZR e * (IZR d * IZR e)) with (IZR c * IZR d) by (field; lra). exact H.
Qed.

Lemma value_holds_sound c f v : value_holds c f = true ->
  IZR (at_least f) <= IZR TOTAL * IZR ONE * v <= IZR (at_most f) -> Rabs (rv (value_of c) - v) <= rv (allowance c).
Proof.
  unfold value_holds, rv. destruct (value_of c) as [n d]. destruct (allowance c) as [a e]. cbn [fst snd].
  rewrite !andb_true_iff, !Z.ltb_lt, !Z.leb_le. intros [[[Hd He] H1] H2] [V1 V2].
  pose proof TOTAL_pos as T0. pose proof ONE_pos as O0. assert (S0 : (0 < TOTAL * ONE)%Z) by nia.
  assert (D0 : (0 < d * e)%Z) by nia.
  apply (rat_le _ (d * e) _ (TOTAL * ONE) D0 S0) in H1. apply (rat_le _ (TOTAL * ONE) _ (d * e) S0 D0) in H2.
  apply IZR_lt in T0, O0, Hd, He.
  assert (E1 : IZR (n * e - a * d) / IZR (d * e) = IZR n / IZR d - IZR a / IZR e) by (rewrite minus_IZR, !mult_IZR; field; lra).
  assert (E2 : IZR (n * e + a * d) / IZR (d * e) = IZR n / IZR d + IZR a / IZR e) by (rewrite plus_IZR, !mult_IZR; field; lra).
  rewrite E1 in H1. rewrite E2 in H2. rewrite mult_IZR in H1, H2.
  assert (P : 0 < IZR TOTAL * IZR ONE) by nra. assert (Q : 0 < / (IZR TOTAL * IZR ONE)) by (apply Rinv_0_lt_compat; exact P).
  assert (W1 : IZR (at_least f) / (IZR TOTAL * IZR ONE) <= v).
  { apply Rmult_le_reg_r with (IZR TOTAL * IZR ONE); [exact P|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra. }
  assert (W2 : v <= IZR (at_most f) / (IZR TOTAL * IZR ONE)).
  { apply Rmult_le_reg_r with (IZR TOTAL * IZR ONE); [exact P|]. unfold Rdiv. rewrite Rmult_assoc, Rinv_l by lra. lra. }
  apply Rabs_le. lra.
Qed.

Lemma unit_holds_sound c : unit_holds c = true -> Fine c.
Proof.
  unfold unit_holds, Fine, rv. destruct (value_of c) as [n d]. intros H [u w] E. rewrite E in H. cbn [fst snd].
  rewrite !andb_true_iff, !Z.ltb_lt, Z.leb_le in H. destruct H as [[[Hd Hu] Hw] H].
  assert (P : (0 < 2 ^ 30)%Z) by reflexivity. assert (P' : IZR (2 ^ 30) = 2 ^ 30) by (change (2 ^ 30)%Z with (2 ^ Z.of_nat 30)%Z; rewrite <- pow_IZR; reflexivity).
  pose proof (IZR_lt _ _ Hd) as Rd. pose proof (IZR_lt _ _ Hu) as Ru. pose proof (IZR_lt _ _ Hw) as Rw.
  split; [apply Rmult_lt_0_compat; [exact Ru|apply Rinv_0_lt_compat, Rw]|].
  apply Rle_trans with (IZR (Z.max d (Z.abs n)) / IZR (d * 2 ^ 30)); [apply rat_le; nia|].
  rewrite mult_IZR, P'. assert (0 < 2 ^ 30) by (apply pow_lt; lra).
  replace (IZR (Z.max d (Z.abs n)) / (IZR d * 2 ^ 30)) with (IZR (Z.max d (Z.abs n)) / IZR d / 2 ^ 30) by (field; lra).
  unfold Rdiv at 1 3. apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat; assumption|].
  destruct (Z.max_spec d (Z.abs n)) as [[_ ->]|[_ ->]].
  - eapply Rle_trans; [|apply Rmax_r]. right. unfold Rdiv. rewrite Rabs_mult, abs_IZR.
    rewrite (Rabs_right (/ IZR d)); [reflexivity|]. left. apply Rinv_0_lt_compat, Rd.
  - eapply Rle_trans; [|apply Rmax_l]. right. field. lra.
Qed.

Lemma shown_sound x y : shown x y = true -> Shown x y.
Proof.
  unfold shown, Shown, rv. destruct x as [a c], y as [e g]. cbn [fst snd].
  rewrite !andb_true_iff, !Z.ltb_lt, Z.leb_le. intros [[Hc Hg] H]. apply IZR_le in H. rewrite !mult_IZR, abs_IZR, minus_IZR, !mult_IZR in H.
  assert (P : IZR (2 ^ 52) = 2 ^ 52) by (change (2 ^ 52)%Z with (2 ^ Z.of_nat 52)%Z; rewrite <- pow_IZR; reflexivity). rewrite P in H.
  apply IZR_lt in Hc, Hg. assert (0 < 2 ^ 52) by (apply pow_lt; lra). assert (D : 0 < IZR c * IZR g) by nra.
  replace (IZR a / IZR c - IZR e / IZR g) with ((IZR a * IZR g - IZR e * IZR c) * / (IZR c * IZR g)) by (field; lra).
  rewrite Rabs_mult, (Rabs_right (/ _)) by (left; apply Rinv_0_lt_compat, D).
  apply Rmult_le_reg_r with (IZR c * IZR g * 2 ^ 52); [apply Rmult_lt_0_compat; assumption|].
  replace (IZR e / IZR g / 2 ^ 52 * (IZR c * IZR g * 2 ^ 52)) with (IZR e * IZR c) by (field; lra).
  replace (Rabs (IZR a * IZR g - IZR e * IZR c) * / (IZR c * IZR g) * (IZR c * IZR g * 2 ^ 52))
    with (Rabs (IZR a * IZR g - IZR e * IZR c) * 2 ^ 52) by (field; lra). exact H.
Qed.

Lemma same_rat_sound x y : same_rat x y = true -> rv x = rv y.
Proof.
  unfold same_rat, rv. destruct x as [a c], y as [e g]. cbn [fst snd].
  rewrite !andb_true_iff, !Z.ltb_lt, Z.eqb_eq. intros [[Hc Hg] H]. apply (f_equal IZR) in H. rewrite !mult_IZR in H.
  apply IZR_lt in Hc, Hg. apply Rmult_eq_reg_r with (IZR c * IZR g); [|nra].
  replace (IZR a / IZR c * (IZR c * IZR g)) with (IZR a * IZR g) by (field; lra). rewrite H. field. lra.
Qed.

Lemma guarantee_holds_sound p c : guarantee_holds p c = true -> Guaranteed p c.
Proof.
  unfold guarantee_holds, Guaranteed. rewrite !andb_true_iff. intros [[[E S] N] W].
  split; [apply same_rat_sound, E|]. split; [apply shown_sound, S|]. split; [apply same_eq, N|].
  destruct (within_shown c), (within p); try discriminate; [apply shown_sound, W|exact Logic.I].
Qed.

Lemma names_differ_sound fs : names_differ fs = true -> Distinct fs.
Proof.
  unfold names_differ. rewrite !andb_true_iff, forallb_forall. intros [[A B] C].
  split; [apply distinct_sound, A|]. split; [apply distinct_sound, B|exact C].
Qed.

(** Of every folder that the program calls proved there are one problem, one matrix and the claims that its files
    say, no others, and all that is claimed holds. *)
Theorem examined fs p rows c f : examine fs = Proved p rows c f ->
  Distinct fs /\ Format fs p rows c /\ Holds p rows c /\
  forall p' rows' c', Format fs p' rows' c' -> p = p' /\ rows = rows' /\ c = c'.
Proof.
  unfold examine. destruct (names_differ fs) eqn:D; [|discriminate]. apply names_differ_sound in D.
  destruct (read_folder fs) as [[[p' c'] rows']|] eqn:R; [|discriminate].
  destruct (check p' rows' _ _) as [f'|] eqn:C; [|discriminate].
  destruct (negb _) eqn:E1; [discriminate|]. destruct (negb (unit_holds c' && value_holds c' f')) eqn:E2; [discriminate|].
  destruct (negb (bound_holds c' f')) eqn:E3; [discriminate|]. destruct (negb (prior_adds_up p')); [discriminate|].
  intro H. injection H as <- <- <- <-. apply negb_false_iff in E1, E2, E3. apply andb_true_iff in E2 as [Un E2].
  split; [exact D|]. pose proof (read_folder_sound _ _ _ _ R) as F. split; [exact F|].
  split; [|intros p q r G; apply (Format_unique fs); [apply D|assumption|assumption]].
  destruct (check_sound _ _ _ _ _ C) as [S [L [Di [Pr [Sh [Ex [[v [Lv Bv]] Bo]]]]]]].
  split; [exact S|]. split; [exact Sh|]. split; [apply guarantee_holds_sound, E1|]. split; [exact Di|]. split; [exact L|].
  split; [exact Pr|]. split; [|split; [apply unit_holds_sound, Un|split; [|split; [apply drawn_mechanism; assumption|]]]].
  - intro z. destruct (Ex z) as [u Lu]. exists u. split; [exact Lu|]. intros w Lw. apply (loss_unique p' z w u S Lw Lu).
  - exists v. split; [exact Lv|]. apply (value_holds_sound c' f'); assumption.
  - intros [n d] Hb z w Mz Lz. unfold bound_holds in E3. rewrite Hb in E3. apply andb_true_iff in E3 as [D0 B].
    apply Z.ltb_lt in D0. apply Z.leb_le in B. specialize (Bo z w Mz Lz). unfold rv. cbn [fst snd].
    pose proof ONE_pos as O0. apply Rle_trans with (IZR (proved f') / IZR ONE).
    + apply rat_le; assumption.
    + apply over_one. exact Bo.
Qed.
