(** Bytes are of one form in one way: what is printed alike is alike. *)
From Coq Require Import ZArith Bool String Lia List.
From Privopt Require Import Spec Claims Metric Tables Privacy Check Grammar Folder.
Import ListNotations.
Open Scope Z_scope.

(** Whether a text goes on with something else than P. *)
Definition stops (P : Z -> bool) (t : bytes) : Prop := match t with [] => True | c :: _ => P c = false end.

Lemma span_unique P u v x y : forallb P u = true -> forallb P v = true -> stops P x -> stops P y ->
  u ++ x = v ++ y -> u = v /\ x = y.
Proof.
  revert v. induction u as [|a u IH]; intros [|c v] Hu Hv Hx Hy E; simpl in *.
  - auto.
  - subst x. simpl in Hx. apply andb_true_iff in Hv as [Hv _]. congruence.
  - subst y. simpl in Hy. apply andb_true_iff in Hu as [Hu _]. congruence.
  - injection E as -> E. apply andb_true_iff in Hu as [_ Hu]. apply andb_true_iff in Hv as [_ Hv].
    destruct (IH v Hu Hv Hx Hy E) as [-> ->]. auto.
Qed.

Lemma forallb_weaker (P Q : Z -> bool) l : (forall c, P c = true -> Q c = true) -> forallb P l = true -> forallb Q l = true.
Proof. intros H. rewrite !forallb_forall. auto. Qed.

Lemma app_same {A} (u v x y : list A) : length u = length v -> u ++ x = v ++ y -> u = v /\ x = y.
Proof.
  revert v. induction u as [|a u IH]; intros [|c v] L E; simpl in *; try discriminate; [auto|].
  injection E as -> E. destruct (IH v ltac:(lia) E) as [-> ->]. auto.
Qed.

(** ** Numbers *)

Definition sign_char (c : Z) : bool := (c =? 43) || (c =? 45).

Lemma digits_split t : digits t = true -> exists c rest, t = c :: rest /\ is_digit c = true /\ forallb is_digit t = true.
Proof.
  unfold digits. rewrite andb_true_iff, negb_true_iff. intros [L D]. destruct t as [|c rest]; [discriminate|].
  exists c, rest. simpl in D. apply andb_true_iff in D as D'. tauto.
Qed.

Lemma digit_no_sign c : is_digit c = true -> sign_char c = false.
Proof. unfold is_digit, sign_char. rewrite andb_true_iff, !Z.leb_le, orb_false_iff, !Z.eqb_neq. lia. Qed.

Lemma sign_chars s : is_sign s = true -> forallb sign_char s = true.
Proof.
  unfold is_sign. rewrite existsb_exists. intros [x [Hx E]]. destruct (list_eq_dec Z.eq_dec s x) as [->|]; [|discriminate].
  destruct Hx as [<-|[<-|[<-|[]]]]; reflexivity.
Qed.

Definition not_digit (c : Z) : bool := negb (is_digit c).
Lemma power_chars s : is_power s = true -> forallb not_digit s = true /\ exists c rest, s = c :: rest /\ (c = 101 \/ c = 69).
Proof.
  unfold is_power. rewrite existsb_exists. intros [x [Hx E]]. destruct (list_eq_dec Z.eq_dec s x) as [->|]; [|discriminate].
  simpl in Hx. repeat (destruct Hx as [<-|Hx]; [split; [reflexivity|vm_compute; eauto]|]). destruct Hx.
Qed.

Lemma number_unique n m : good_number n = true -> good_number m = true -> print_number n = print_number m -> n = m.
Proof.
  destruct n as [s i f p], m as [s' i' f' p']. unfold good_number, print_number. cbn [sign int fraction power].
  rewrite !andb_true_iff. intros [[[[[S I] F] P] _] _] [[[[[S' I'] F'] P'] _] _] E.
  destruct (digits_split i I) as [c [r [Ei [Dc Di]]]]. destruct (digits_split i' I') as [c' [r' [Ei' [Dc' Di']]]].
  apply (span_unique sign_char) in E as [-> E]; [|apply sign_chars, S|apply sign_chars, S'|subst i; simpl; apply digit_no_sign, Dc|
    subst i'; simpl; apply digit_no_sign, Dc'].
  assert (Hp : forall q : option (bytes * bytes), match q with Some (e, d) => is_power e && digits d && Nat.leb (length d) 3 | None => true end = true ->
    match match q with Some (e, d) => e ++ d | None => [] end with [] => q = None | c :: _ => c = 101 \/ c = 69 end).
  { intros [[e d]|] H; [|reflexivity]. rewrite !andb_true_iff in H. destruct H as [[He _] _].
    destruct (power_chars e He) as [_ [x [w [-> Hx]]]]. exact Hx. }
  pose proof (Hp p P) as Q. pose proof (Hp p' P') as Q'.
  assert (St : forall (g : option bytes) (q : bytes), match q with [] => True | c :: _ => c = 101 \/ c = 69 end ->
    stops is_digit (match g with Some f => [46] ++ f | None => [] end ++ q)).
  { intros [g|] q Hq; simpl; [reflexivity|]. destruct q as [|x w]; [exact Logic.I|]. destruct Hq as [-> | ->]; reflexivity. }
  set (t := match p with Some (e, d) => e ++ d | None => [] end) in *. set (t' := match p' with Some (e, d) => e ++ d | None => [] end) in *.
  apply (span_unique is_digit) in E as [-> E]; [|exact Di|exact Di'|apply St; destruct t; tauto|apply St; destruct t'; tauto].
  assert (Et : f = f' /\ t = t').
  { destruct f as [f|], f' as [f'|]; simpl in E.
    - injection E as E. destruct (digits_split f F) as [? [? [_ [_ Df]]]]. destruct (digits_split f' F') as [? [? [_ [_ Df']]]].
      apply (span_unique is_digit) in E as [-> E]; [auto|exact Df|exact Df'| |];
        [destruct t as [|z w]|destruct t' as [|z w]]; simpl; auto; [destruct Q as [-> | ->]|destruct Q' as [-> | ->]]; reflexivity.
    - destruct t' as [|z w]; [discriminate|]. injection E as <- _. destruct Q'; discriminate.
    - destruct t as [|z w]; [discriminate|]. injection E as -> _. destruct Q; discriminate.
    - auto. }
  destruct Et as [-> Et]. f_equal. subst t t'. destruct p as [[e d]|], p' as [[e' d']|]; auto.
  - rewrite !andb_true_iff in P, P'. destruct P as [[Pe Pd] _], P' as [[Pe' Pd'] _].
    destruct (digits_split d Pd) as [z [w [-> [Dz _]]]]. destruct (digits_split d' Pd') as [z' [w' [-> [Dz' _]]]].
    apply (span_unique not_digit) in Et as [-> Et]; [congruence|apply power_chars, Pe|apply power_chars, Pe'| |]; simpl; unfold not_digit;
      [rewrite Dz|rewrite Dz']; reflexivity.
  - exfalso. rewrite Et in Q. discriminate.
  - exfalso. rewrite <- Et in Q'. discriminate.
Qed.

Lemma decimal_unique t x y : Decimal t x -> Decimal t y -> x = y.
Proof. intros [n [G [P <-]]] [m [G' [P' <-]]]. f_equal. apply number_unique; congruence. Qed.

(** ** Arrays *)

Lemma le_unique w : forall a c, 0 <= a < 256 ^ Z.of_nat w -> 0 <= c < 256 ^ Z.of_nat w -> le w a = le w c -> a = c.
Proof.
  induction w as [|w IH]; intros a c Ha Hc E; [change (256 ^ Z.of_nat 0) with 1 in *; lia|].
  rewrite Nat2Z.inj_succ, Z.pow_succ_r in * by lia. cbn [le] in E. injection E as E1 E2.
  assert (Da : 0 <= a / 256 < 256 ^ Z.of_nat w) by (split; [apply Z.div_pos; lia|apply Z.div_lt_upper_bound; lia]).
  assert (Dc : 0 <= c / 256 < 256 ^ Z.of_nat w) by (split; [apply Z.div_pos; lia|apply Z.div_lt_upper_bound; lia]).
  specialize (IH _ _ Da Dc E2). rewrite IH in E1. lia.
Qed.

Lemma le_length w : forall a, length (le w a) = w.
Proof. induction w; intro a; simpl; auto. Qed.

Lemma npy_unique a c : good_npy a = true -> good_npy c = true -> print_npy a = print_npy c -> body a = body c.
Proof.
  unfold good_npy, print_npy. rewrite !andb_true_iff, !Z.ltb_lt. intros [_ La] [_ Lc] E.
  apply app_inv_head in E. apply app_inv_head in E. apply app_inv_head in E.
  apply app_same in E as [E1 E2]; [|rewrite !le_length; reflexivity].
  apply le_unique in E1; [|change (256 ^ Z.of_nat 2) with 65536; lia|change (256 ^ Z.of_nat 2) with 65536; lia].
  apply Nat2Z.inj in E1. apply app_same in E2 as [_ E2]; assumption.
Qed.

Lemma words_unique n width : forall rows rows', length rows = n -> length rows' = n ->
  (forall r, In r rows -> length r = width /\ forall z, In z r -> in_word z = true) ->
  (forall r, In r rows' -> length r = width /\ forall z, In z r -> in_word z = true) ->
  print_words rows = print_words rows' -> rows = rows'.
Proof.
  assert (R : forall r r', length r = length r' -> (forall z, In z r -> in_word z = true) -> (forall z, In z r' -> in_word z = true) ->
    forall x y, flat_map (le 8) r ++ x = flat_map (le 8) r' ++ y -> r = r' /\ x = y).
  { induction r as [|a r IH]; intros [|c r'] L H H' x y E; try discriminate; [auto|]. cbn [flat_map] in E. rewrite <- !app_assoc in E.
    apply app_same in E as [E1 E2]; [|rewrite !le_length; reflexivity].
    assert (W : forall z, in_word z = true -> 0 <= z < 256 ^ Z.of_nat 8).
    { intro z. unfold in_word. rewrite andb_true_iff, Z.leb_le, Z.ltb_lt. intro B. change (256 ^ Z.of_nat 8) with (2 ^ 64). exact B. }
    apply le_unique in E1; [|apply W, H; left; reflexivity|apply W, H'; left; reflexivity]. subst c.
    destruct (IH r' ltac:(simpl in L; lia) (fun z Hz => H z (or_intror Hz)) (fun z Hz => H' z (or_intror Hz)) x y E2) as [-> ->]. auto. }
  intros rows. revert n. induction rows as [|r rows IH]; intros n [|r' rows'] L L' H H' E; simpl in *; subst; try discriminate; [reflexivity|].
  destruct (H r (or_introl eq_refl)) as [Lr Wr]. destruct (H' r' (or_introl eq_refl)) as [Lr' Wr'].
  apply R in E as [-> E]; [|lia|exact Wr|exact Wr']. f_equal. apply (IH (length rows)); auto.
Qed.

Lemma npy_body t k k' s s' x y : Npy t k s x -> Npy t k' s' y -> x = y.
Proof. intros [a [G [P [_ [_ <-]]]]] [c [G' [P' [_ [_ <-]]]]]. apply npy_unique; congruence. Qed.

Lemma Words_unique t n width x y : Words t n width x -> Words t n width y -> x = y.
Proof. intros [N [L H]] [N' [L' H']]. apply (words_unique n width); auto. eapply npy_body; eauto. Qed.

Lemma Doubles_unique t n width x y : Doubles t n width x -> Doubles t n width y -> x = y.
Proof.
  intros [a [N [L [H F]]]] [c [N' [L' [H' F']]]].
  assert (a = c) as -> by (apply (words_unique n width); auto; eapply npy_body; eauto). clear - F F'.
  revert y F'. induction F as [|r s rs ss R _ IH]; intros y F'; inversion F' as [|? q ? qs R' F'']; subst; [reflexivity|].
  f_equal; [|apply IH; assumption]. clear - R R'. revert q R'.
  induction R as [|z w zs ws E _ IH]; intros q R'; inversion R'; subst; [reflexivity|]. f_equal; [congruence|apply IH; assumption].
Qed.

(** ** Tables *)

Definition not_comma (c : Z) : bool := negb (c =? 44).
Definition not_line (c : Z) : bool := negb (c =? 10).

Lemma join_unique r : forall r', r <> [] -> r' <> [] ->
  (forall c, In c r -> forallb not_comma c = true) -> (forall c, In c r' -> forallb not_comma c = true) ->
  join [44] r = join [44] r' -> r = r'.
Proof.
  induction r as [|a r IH]; intros [|c r'] N N' H H' E; try congruence.
  assert (Ha : forallb not_comma a = true) by (apply H; left; reflexivity).
  assert (Hc : forallb not_comma c = true) by (apply H'; left; reflexivity).
  assert (X : forall (a : bytes) l, join [44] (a :: l) = a ++ match l with [] => [] | _ => 44 :: join [44] l end).
  { intros u l. destruct l; [simpl; rewrite app_nil_r; reflexivity|reflexivity]. }
  rewrite !X in E. apply (span_unique not_comma) in E as [-> E]; [|exact Ha|exact Hc|destruct r; reflexivity|destruct r'; reflexivity].
  f_equal. destruct r as [|x r], r' as [|y r']; try discriminate; [reflexivity|]. injection E as E.
  apply IH; try discriminate; try exact E; intros; [apply H|apply H']; right; assumption.
Qed.

Lemma plain_chars c : plain_cell c = true -> forallb not_comma c = true /\ forallb not_line c = true.
Proof.
  unfold plain_cell. rewrite !andb_true_iff. intros [[H _] _]. split; (eapply forallb_weaker; [|exact H]); intros x Hx;
  apply andb_true_iff in Hx as [A B]; unfold in_name in A; rewrite negb_true_iff, orb_false_iff, !Z.eqb_neq in B;
  apply andb_true_iff in A as [A _]; apply Z.leb_le in A; unfold not_comma, not_line; rewrite negb_true_iff, Z.eqb_neq; lia.
Qed.

Lemma join_lines r : (forall c, In c r -> forallb not_line c = true) -> forallb not_line (join [44] r) = true.
Proof.
  induction r as [|a r IH]; intro H; [reflexivity|]. destruct r as [|x r]; [apply H; left; reflexivity|].
  change (join [44] (a :: x :: r)) with (a ++ [44] ++ join [44] (x :: r)). rewrite !forallb_app. rewrite (H a) by (left; reflexivity).
  rewrite IH by (intros; apply H; right; assumption). reflexivity.
Qed.

Lemma Csv_unique t x y : Csv t x -> Csv t y -> x = y.
Proof.
  intros [<- H] [E H'].
  assert (G : forall r, In r x -> r <> [] /\ forall c, In c r -> plain_cell c = true) by (intros r Hr; specialize (H r Hr); tauto).
  assert (G' : forall r, In r y -> r <> [] /\ forall c, In c r -> plain_cell c = true) by (intros r Hr; specialize (H' r Hr); tauto).
  clear H H'. symmetry in E. revert y G' E. induction x as [|r x IH]; intros [|r' y] G' E; simpl in E; try reflexivity.
  - destruct (join [44] r'); discriminate.
  - destruct (join [44] r); discriminate.
  - destruct (G r (or_introl eq_refl)) as [N P]. destruct (G' r' (or_introl eq_refl)) as [N' P']. rewrite <- !app_assoc in E.
    apply (span_unique not_line) in E as [Ej E]; [|apply join_lines; intros; apply plain_chars, P; assumption|
      apply join_lines; intros; apply plain_chars, P'; assumption|reflexivity|reflexivity].
    injection E as E. f_equal.
    + apply join_unique; auto; intros; apply plain_chars; auto.
    + apply IH; auto; intros; [apply G|apply G']; right; assumption.
Qed.
