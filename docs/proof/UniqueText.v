(** TOML and JSON are of one form in one way, and so is a folder. *)
From Coq Require Import ZArith Bool String Lia List.
From Privopt Require Import Spec Claims Metric Tables Privacy Check Grammar Folder Unique.
Import ListNotations.
Open Scope Z_scope.

(** ** Strings *)

Lemma inside_unique n : forall s s' x y, (length s <= n)%nat -> inside s = true -> inside s' = true ->
  s ++ 34 :: x = s' ++ 34 :: y -> s = s' /\ x = y.
Proof.
  induction n as [|n IH]; intros [|c s] [|c' s'] x y L I I' E; simpl in L; try lia.
  - injection E as ->. auto.
  - simpl in E. injection E as <- E. simpl in I'. discriminate.
  - injection E as ->. auto.
  - simpl in E. injection E as <- E. simpl in I'. discriminate.
  - simpl in E. injection E as -> E. simpl in I. discriminate.
  - simpl in E. injection E as <- E. simpl in I, I'. destruct (Z.eqb_spec c 92).
    + destruct s as [|d s], s' as [|d' s']; try discriminate. simpl in E. injection E as <- E.
      destruct (IH s s' x y ltac:(simpl in L; lia) I I' E) as [-> ->]. auto.
    + apply andb_true_iff in I as [_ I]. apply andb_true_iff in I' as [_ I'].
      destruct (IH s s' x y ltac:(lia) I I' E) as [-> ->]. auto.
Qed.

Lemma quoted_unique s s' x y : inside s = true -> inside s' = true -> quoted s ++ x = quoted s' ++ y -> s = s' /\ x = y.
Proof.
  unfold quoted. intros I I' E. rewrite <- !app_assoc in E. simpl in E. injection E as E.
  apply (inside_unique (length s)) in E; auto.
Qed.

(** ** Items with commas between them, up to a closing sign *)

Section Items.
  Variables (A : Type) (pr : A -> bytes) (ok : A -> Prop) (close : Z).
  Hypothesis starts : forall a, ok a -> exists c rest, pr a = c :: rest /\ c <> close.
  Hypothesis close_word : is_word close = false.
  Hypothesis close_comma : close <> 44.
  Definition unique (a : A) : Prop := forall a' x y, ok a' -> stops is_word x -> stops is_word y -> pr a ++ x = pr a' ++ y -> a = a' /\ x = y.

  Lemma join_head (a : bytes) l : join [44] (a :: l) = a ++ match l with [] => [] | _ => 44 :: join [44] l end.
  Proof. destruct l; [simpl; rewrite app_nil_r; reflexivity|reflexivity]. Qed.

  Lemma items_unique l : forall l' x y, (forall a, In a l -> ok a /\ unique a) -> (forall a, In a l' -> ok a) ->
    join [44] (map pr l) ++ close :: x = join [44] (map pr l') ++ close :: y -> l = l' /\ x = y.
  Proof.
    induction l as [|a l IH]; intros [|a' l'] x y H H' E; cbn [map] in E.
    - injection E as ->. auto.
    - exfalso. rewrite join_head in E. destruct (starts a' (H' a' (or_introl eq_refl))) as [c [rest [P N]]]. rewrite P in E.
      simpl in E. injection E as E _. congruence.
    - exfalso. rewrite join_head in E. destruct (starts a (proj1 (H a (or_introl eq_refl)))) as [c [rest [P N]]]. rewrite P in E.
      simpl in E. injection E as E _. congruence.
    - rewrite !join_head, <- !app_assoc in E. destruct (H a (or_introl eq_refl)) as [_ U].
      apply U in E; [|apply H'; left; reflexivity|destruct l; [exact close_word|reflexivity]|destruct l'; [exact close_word|reflexivity]].
      destruct E as [-> E]. destruct l as [|b l], l' as [|b' l']; cbn [map] in *; simpl in E.
      + injection E as ->. auto.
      + injection E as E _. congruence.
      + injection E as E _. congruence.
      + injection E as E. destruct (IH (b' :: l') x y) as [-> ->]; auto.
        * intros z Hz. apply H. right. exact Hz.
        * intros z Hz. apply H'. right. exact Hz.
  Qed.
End Items.

(** ** Values *)

Fixpoint size (v : value) : nat :=
  match v with
  | Arr l => S (list_sum (map size l))
  | Tab l => S (list_sum (map (fun kv => size (snd kv)) l))
  | _ => 1%nat
  end.

Lemma in_list_sum {A} (f : A -> nat) a l : In a l -> (f a <= list_sum (map f l))%nat.
Proof.
  induction l as [|c l IH]; [intros []|]. change (list_sum (map f (c :: l))) with (f c + list_sum (map f l))%nat.
  intros [->|H]; [lia|]. specialize (IH H). lia.
Qed.

Section Values.
  Variables (print_key : bytes -> bytes) (good_key good_text : bytes -> bool).
  Hypothesis key_starts : forall k, good_key k = true -> exists c rest, print_key k = c :: rest /\ c <> 125.
  Hypothesis key_unique : forall k k' x y, good_key k = true -> good_key k' = true -> print_key k ++ x = print_key k' ++ y -> k = k' /\ x = y.
  Hypothesis text_inside : forall s, good_text s = true -> inside s = true.
  Notation pr := (print_value print_key).
  Notation good := (good_value good_key good_text).

  Lemma pr_arr l : pr (Arr l) = 91 :: join [44] (map pr l) ++ [93]. Proof. reflexivity. Qed.
  Lemma pr_tab l : pr (Tab l) = 123 :: join [44] (map (fun kv => print_key (fst kv) ++ pr (snd kv)) l) ++ [125]. Proof. reflexivity. Qed.

  Lemma word_head w : word w = true -> exists c rest, w = c :: rest /\ is_word c = true /\ forallb is_word w = true.
  Proof.
    unfold word. rewrite andb_true_iff, negb_true_iff. intros [L F]. destruct w as [|c rest]; [discriminate|].
    exists c, rest. simpl in F. apply andb_true_iff in F as F'. tauto.
  Qed.

  Lemma pr_head v : good v = true -> exists c rest, pr v = c :: rest /\ c <> 93.
  Proof.
    destruct v as [s|w|l|l]; intro G.
    - exists 34, (s ++ [34]). split; [reflexivity|lia].
    - destruct (word_head w G) as [c [rest [-> [Hc _]]]]. exists c, rest. split; [reflexivity|]. intros ->. discriminate.
    - rewrite pr_arr. eexists _, _. split; [reflexivity|lia].
    - rewrite pr_tab. eexists _, _. split; [reflexivity|lia].
  Qed.

  Lemma not_a_word w c x y : word w = true -> is_word c = false -> w ++ x = c :: y -> False.
  Proof. intros W C E. destruct (word_head w W) as [d [rest [-> [D _]]]]. simpl in E. injection E as -> _. congruence. Qed.

  Definition head_of (v : value) : option Z :=
    match v with Text _ => Some 34 | Word _ => None | Arr _ => Some 91 | Tab _ => Some 123 end.
  Lemma not_word_head v c : head_of v = Some c -> exists rest, pr v = c :: rest /\ is_word c = false.
  Proof.
    destruct v; intro H; try discriminate; injection H as <-; [|rewrite pr_arr|rewrite pr_tab]; eexists; split; reflexivity.
  Qed.

  Theorem value_unique n : forall v, (size v < n)%nat -> good v = true -> unique value pr (fun v => good v = true) v.
  Proof.
    induction n as [|n IH]; intros v Hn G v' x y G' Sx Sy E; [lia|].
    destruct v as [s|w|l|l], v' as [s'|w'|l'|l'];
      try (exfalso; match goal with
        | W : good_value _ _ (Word ?w) = true, E : print_value _ (Word ?w) ++ _ = print_value _ ?o ++ _ |- _ =>
            destruct (not_word_head o _ eq_refl) as [rest [P C]]; rewrite P in E; exact (not_a_word w _ _ _ W C E)
        | W : good_value _ _ (Word ?w) = true, E : print_value _ ?o ++ _ = print_value _ (Word ?w) ++ _ |- _ =>
            destruct (not_word_head o _ eq_refl) as [rest [P C]]; rewrite P in E; exact (not_a_word w _ _ _ W C (eq_sym E))
        end);
      try (exfalso; simpl in E; discriminate E).
    - destruct (quoted_unique s s' x y (text_inside s G) (text_inside s' G') E) as [-> ->]. auto.
    - destruct (word_head w G) as [_ [_ [_ [_ W]]]]. destruct (word_head w' G') as [_ [_ [_ [_ W']]]].
      destruct (span_unique is_word w w' x y W W' Sx Sy E) as [-> ->]. auto.
    - rewrite !pr_arr in E. simpl in E. injection E as E. rewrite <- !app_assoc in E. simpl in G, G'. rewrite forallb_forall in G, G'.
      apply (items_unique value pr (fun v => good v = true) 93) in E; try reflexivity; try lia.
      + destruct E as [-> ->]. auto.
      + apply pr_head.
      + intros a Ha. split; [apply G, Ha|]. apply IH; [|apply G, Ha]. pose proof (in_list_sum size a l Ha). simpl in Hn. lia.
      + exact G'.
    - rewrite !pr_tab in E. simpl in E. injection E as E. rewrite <- !app_assoc in E. simpl in G, G'. rewrite forallb_forall in G, G'.
      apply (items_unique (bytes * value) (fun kv => print_key (fst kv) ++ pr (snd kv)) (fun kv => good_key (fst kv) && good (snd kv) = true) 125)
        in E; try reflexivity; try lia.
      + destruct E as [-> ->]. auto.
      + intros [k v] H. apply andb_true_iff in H as [H _]. destruct (key_starts k H) as [c [rest [P N]]]. cbn [fst]. rewrite P.
        eexists _, _. split; [reflexivity|exact N].
      + intros [k v] Ha. split; [apply G, Ha|]. intros [k' v'] x' y' Ok' Sx' Sy' E'. cbn [fst snd] in *. rewrite <- !app_assoc in E'.
        pose proof (G _ Ha) as Gk. cbn [fst snd] in Gk. apply andb_true_iff in Gk as [Gk Gv]. apply andb_true_iff in Ok' as [Gk' Gv'].
        destruct (key_unique k k' _ _ Gk Gk' E') as [-> E2].
        assert (Hs : (size v < n)%nat) by (pose proof (in_list_sum (fun kv => size (snd kv)) _ l Ha) as Q; simpl in Hn, Q; lia).
        destruct (IH v Hs Gv v' x' y' Gv' Sx' Sy' E2) as [-> ->]. auto.
      + exact G'.
  Qed.
End Values.

Lemma Json_unique t v w : Json t v -> Json t w -> v = w.
Proof.
  intros [G P] [G' P']. rewrite <- P' in P.
  destruct (value_unique json_key inside inside) with (n := S (size v)) (v := v) (a' := w) (x := @nil Z) (y := @nil Z) as [E _]; auto; try exact Logic.I.
  - intros k _. exists 34, (k ++ [34] ++ str ":"). split; [unfold json_key, quoted; rewrite <- !app_assoc; reflexivity|lia].
  - intros k k' x y Hk Hk' E. unfold json_key in E. rewrite <- !app_assoc in E. destruct (quoted_unique k k' _ _ Hk Hk' E) as [-> E'].
    injection E' as ->. auto.
  - rewrite !app_nil_r. exact P.
Qed.

(** ** Files of TOML *)

Lemma bare_word k : bare_key k = true -> word k = true.
Proof. unfold bare_key. rewrite andb_true_iff. tauto. Qed.

Lemma toml_key_unique k k' x y : bare_key k = true -> bare_key k' = true -> toml_key k ++ x = toml_key k' ++ y -> k = k' /\ x = y.
Proof.
  intros H H' E. apply bare_word in H, H'. destruct (word_head k H) as [_ [_ [_ [_ W]]]]. destruct (word_head k' H') as [_ [_ [_ [_ W']]]].
  unfold toml_key in E. rewrite <- !app_assoc in E. apply (span_unique is_word) in E as [-> E]; [|exact W|exact W'|reflexivity|reflexivity].
  injection E as ->. auto.
Qed.

Lemma toml_value_unique v v' x y : good_value bare_key plain_text v = true -> good_value bare_key plain_text v' = true ->
  stops is_word x -> stops is_word y -> print_value toml_key v ++ x = print_value toml_key v' ++ y -> v = v' /\ x = y.
Proof.
  intros G G' Sx Sy E. apply (value_unique toml_key bare_key plain_text) with (n := S (size v)); auto.
  - intros k Hk. destruct (word_head k (bare_word k Hk)) as [c [rest [-> [Hc _]]]]. exists c, (rest ++ str "="). split; [reflexivity|].
    intros ->. discriminate.
  - apply toml_key_unique.
  - intros s Hs. unfold plain_text in Hs. apply andb_true_iff in Hs. tauto.
Qed.

Definition print_pair (kv : bytes * value) : bytes := toml_key (fst kv) ++ print_value toml_key (snd kv) ++ [NEWLINE].
Definition good_pair (kv : bytes * value) : bool := bare_key (fst kv) && good_value bare_key plain_text (snd kv).
Definition table_next (t : bytes) : Prop := match t with [] => True | c :: _ => c = 91 end.

Lemma pair_head kv : good_pair kv = true -> forall x, exists c rest, print_pair kv ++ x = c :: rest /\ c <> 91.
Proof.
  intros H x. apply andb_true_iff in H as [H _]. destruct kv as [k v]. cbn [fst] in H. destruct (word_head k (bare_word k H)) as [c [rest [-> [Hc _]]]].
  eexists c, _. split; [reflexivity|]. intros ->. discriminate.
Qed.

Lemma pairs_unique l : forall l' x y, forallb good_pair l = true -> forallb good_pair l' = true -> table_next x -> table_next y ->
  flat_map print_pair l ++ x = flat_map print_pair l' ++ y -> l = l' /\ x = y.
Proof.
  induction l as [|[k v] l IH]; intros [|[k' v'] l'] x y G G' Nx Ny E; cbn [flat_map forallb] in *.
  - auto.
  - exfalso. apply andb_true_iff in G' as [G' _]. rewrite <- app_assoc in E. destruct (pair_head _ G' (flat_map print_pair l' ++ y)) as [c [rest [P N]]].
    rewrite P in E. simpl in E. subst x. simpl in Nx. congruence.
  - exfalso. apply andb_true_iff in G as [G _]. rewrite <- app_assoc in E. destruct (pair_head _ G (flat_map print_pair l ++ x)) as [c [rest [P N]]].
    rewrite P in E. simpl in E. subst y. simpl in Ny. congruence.
  - apply andb_true_iff in G as [G1 G]. apply andb_true_iff in G' as [G1' G']. unfold good_pair in G1, G1'. cbn [fst snd] in *.
    apply andb_true_iff in G1 as [K V]. apply andb_true_iff in G1' as [K' V']. unfold print_pair in E at 1 3. cbn [fst snd] in E.
    rewrite <- !app_assoc in E. destruct (toml_key_unique k k' _ _ K K' E) as [-> E2].
    apply toml_value_unique in E2 as [-> E3]; [|exact V|exact V'|reflexivity|reflexivity]. injection E3 as E3.
    destruct (IH l' x y G G' Nx Ny E3) as [-> ->]. auto.
Qed.

Lemma print_toml_head d : table_next (print_toml d).
Proof. destruct d; [exact Logic.I|reflexivity]. Qed.

Lemma print_toml_cons t d : print_toml (t :: d) = [91] ++ fst t ++ [93; 10] ++ flat_map print_pair (snd t) ++ print_toml d.
Proof. unfold print_toml. cbn [flat_map]. rewrite <- !app_assoc. reflexivity. Qed.

Lemma print_toml_unique d : forall d', good_toml d = true -> good_toml d' = true -> print_toml d = print_toml d' -> d = d'.
Proof.
  induction d as [|[name l] d IH]; intros [|[name' l'] d'] G G' E; try rewrite !print_toml_cons in E; try discriminate; [reflexivity|].
  cbn [fst snd] in E. unfold good_toml in G, G'. cbn [forallb fst snd] in G, G'.
  apply andb_true_iff in G as [G1 G]. apply andb_true_iff in G' as [G1' G']. apply andb_true_iff in G1 as [N P]. apply andb_true_iff in G1' as [N' P'].
  simpl in E. injection E as E. destruct (word_head name (bare_word _ N)) as [_ [_ [_ [_ W]]]]. destruct (word_head name' (bare_word _ N')) as [_ [_ [_ [_ W']]]].
  apply (span_unique is_word) in E as [-> E]; [|exact W|exact W'|reflexivity|reflexivity]. injection E as E.
  destruct (pairs_unique l l' _ _ P P' (print_toml_head d) (print_toml_head d') E) as [-> E']. f_equal. apply IH; assumption.
Qed.

Lemma good_heading_pairs h : good_heading h = true -> forallb good_pair h = true.
Proof.
  unfold good_heading. rewrite andb_true_iff, !forallb_forall. intros [_ H] kv I. specialize (H kv I).
  apply andb_true_iff in H as [K V]. unfold good_pair. apply andb_true_iff. split.
  - apply orb_true_iff in K as [K|K]; apply same_eq in K; rewrite K; reflexivity.
  - destruct (snd kv); try discriminate. exact V.
Qed.

Lemma Toml_unique t d e : Toml t d -> Toml t e -> d = e.
Proof.
  intros [G [h [H P]]] [G' [h' [H' P']]]. apply print_toml_unique; [exact G|exact G'|].
  apply (pairs_unique h h'); [apply good_heading_pairs, H|apply good_heading_pairs, H'|apply print_toml_head|apply print_toml_head|].
  fold (print_pairs h) (print_pairs h'). unfold print_pairs in P, P'. unfold print_pair. congruence.
Qed.

(** ** Readers that are right agree *)

Lemma File_unique fs name x y : NoDup (map fst fs) -> File fs name x -> File fs name y -> x = y.
Proof.
  unfold File. induction fs as [|[n c] fs IH]; simpl; intros D H H'; [destruct H|]. inversion D as [|? ? N D']; subst.
  assert (F : forall v, In (name, v) fs -> In name (map fst fs)) by (intros v Hv; apply (in_map fst _ _ Hv)).
  destruct H as [E|H], H' as [E'|H'].
  - congruence.
  - injection E as -> ->. exfalso. apply N, (F _ H').
  - injection E' as -> ->. exfalso. apply N, (F _ H).
  - apply IH; assumption.
Qed.

Section Agree.
  Variables (fs : files) (r q : readers).
  Hypothesis D : NoDup (map fst fs).
  Hypothesis Rr : Faithful fs r.
  Hypothesis Rq : Faithful fs q.

  Lemma agree_number t x y : number_of r t = Some x -> number_of q t = Some y -> x = y.
  Proof. destruct Rr as [A _], Rq as [B _]. intros H H'. eapply decimal_unique; eauto. Qed.
  Lemma agree_table t x y : table_of r t = Some x -> table_of q t = Some y -> x = y.
  Proof.
    destruct Rr as [_ [A _]], Rq as [_ [B _]]. intros H H'. destruct (A _ _ H) as [u [U C]]. destruct (B _ _ H') as [v [V E]].
    rewrite (File_unique fs _ _ _ D U V) in C. eapply Csv_unique; eauto.
  Qed.
  Lemma agree_matrix t n w x y : matrix_of r t n w = Some x -> matrix_of q t n w = Some y -> x = y.
  Proof.
    destruct Rr as [_ [_ A]], Rq as [_ [_ B]]. intros H H'. destruct (A _ _ _ _ H) as [u [U C]]. destruct (B _ _ _ _ H') as [v [V E]].
    rewrite (File_unique fs _ _ _ D U V) in C. eapply Doubles_unique; eauto.
  Qed.

  Lemma agree_numbers l : forall x y, numbers r l = Some x -> numbers q l = Some y -> x = y.
  Proof.
    unfold numbers. induction l as [|a l IH]; intros x y H H'; simpl in *; [congruence|].
    destruct (number_of r a) eqn:E; [|discriminate]. destruct (number_of q a) eqn:E'; [|discriminate].
    destruct (map_opt (number_of r) l) eqn:F; [|discriminate]. destruct (map_opt (number_of q) l) eqn:F'; [|discriminate].
    injection H as <-. injection H' as <-. f_equal; [eapply agree_number; eauto|apply IH; auto].
  Qed.
  Lemma agree_number_in v x y : number_in r v = Some x -> number_in q v = Some y -> x = y.
  Proof. destruct v as [[|w| |]|]; simpl; try discriminate. destruct (lean w); [apply agree_number|discriminate]. Qed.
  Lemma agree_if_any t n x y : number_if_any r t n = Some x -> number_if_any q t n = Some y -> x = y.
  Proof.
    unfold number_if_any. destruct (has t n); [|congruence]. destruct (number_in r _) eqn:E; [|discriminate].
    destruct (number_in q _) eqn:E'; [|discriminate]. intros H H'. injection H as <-. injection H' as <-. f_equal. eapply agree_number_in; eauto.
  Qed.
  Lemma agree_file_in v x y : file_in r v = Some x -> file_in q v = Some y -> x = y.
  Proof. destruct v as [[| | |]|]; simpl; try discriminate. apply agree_table. Qed.

  (** Goes through two readings of the same: what both found is the same, and so is what follows. *)
  Ltac side by_lemma :=
    match goal with
    | H : (match ?a with Some _ => _ | None => None end) = Some _, H' : (match ?c with Some _ => _ | None => None end) = Some _ |- _ =>
        let u := fresh in let w := fresh in let E := fresh in let E' := fresh in let S := fresh in
        destruct a as [u|] eqn:E; [|discriminate H]; destruct c as [w|] eqn:E'; [|discriminate H'];
        assert (S : u = w) by (eapply by_lemma; [exact E|exact E']); subst w; clear E E'
    end.
  Ltac together := repeat (first
    [ discriminate
    | match goal with H : Some _ = Some _ |- _ => injection H; clear H; intros; subst end
    | match goal with
      | H : (if ?c then _ else _) = Some _, H' : (if ?c then _ else _) = Some _ |- _ => destruct c
      | H : (match ?a with Some _ => _ | None => _ end) = Some _, H' : (match ?a with Some _ => _ | None => _ end) = Some _ |- _ => destruct a
      | H : (match ?a with Text _ => _ | Word _ => _ | Arr _ => _ | Tab _ => _ end) = Some _ |- _ => destruct a
      end
    | side agree_numbers | side agree_number | side agree_number_in | side agree_file_in | side agree_table | side agree_matrix
    ]); try reflexivity; try congruence.

  Lemma agree_beside_ids v n x y : beside_ids r v n = Some x -> beside_ids q v n = Some y -> x = y.
  Proof. unfold beside_ids. intros H H'. together. Qed.

  Lemma agree_points v x y : points_of r v = Some x -> points_of q v = Some y -> x = y.
  Proof. unfold points_of. intros H H'. together. Qed.
  Lemma agree_grid g x y : grid_of r g = Some x -> grid_of q g = Some y -> x = y.
  Proof. unfold grid_of. intros H H'. together. Qed.
  Lemma agree_places t x y : places r t = Some x -> places q t = Some y -> x = y.
  Proof.
    unfold places. intros H H'. destruct (has t "points"); [destruct (only t _); [eapply agree_points; eauto|discriminate]|].
    destruct (has t "grid"); [|together]. destruct (field t "grid") as [[| | |g]|]; try discriminate.
    destruct (only t _); [eapply agree_grid; eauto|discriminate].
  Qed.

  Lemma agree_shares (c : bool) v n ids x y :
    (if c then beside_ids r v n else Some (uniform ids)) = Some x -> (if c then beside_ids q v n else Some (uniform ids)) = Some y -> x = y.
  Proof. destruct c; [apply agree_beside_ids|congruence]. Qed.

  Lemma agree_utility t ids w x y : utility_of r t ids w = Some x -> utility_of q t ids w = Some y -> x = y.
  Proof. unfold utility_of. intros H H'. side agree_shares. together; side agree_shares; together. Qed.

  Lemma agree_edges t x y : edges_of r t = Some x -> edges_of q t = Some y -> x = y.
  Proof. unfold edges_of. intros H H'. together. Qed.
  Lemma agree_metric t ids outs a c o g x y :
    metric_of r t ids outs a c o g = Some x -> metric_of q t ids outs a c o g = Some y -> x = y.
  Proof.
    unfold metric_of. intros H H'. destruct (is_text _ "euclidean"); [together|].
    destruct (is_text _ "graph"); [destruct (only t _); [eapply agree_edges; eauto|discriminate]|together].
  Qed.

  Lemma agree_outputs (o : option fields) (d : list bytes * option (list (list rat))) x y :
    (match o with Some t => places r t | None => Some d end) = Some x -> (match o with Some t => places q t | None => Some d end) = Some y -> x = y.
  Proof. destruct o; [apply agree_places|congruence]. Qed.

  Theorem agree_problem d x y : problem_of r d = Some x -> problem_of q d = Some y -> x = y.
  Proof.
    unfold problem_of. intros H H'.
    repeat (together; first [side agree_places | side agree_outputs | side agree_utility | side agree_metric
      | side agree_number_in | side agree_if_any]); together.
  Qed.

  Lemma agree_bound (v : option value) x y :
    (match v with Some (Word w) => if same w (str "null") then Some None else match number_in r (Some (Word w)) with Some y => Some (Some y) | None => None end | _ => None end) = Some x ->
    (match v with Some (Word w) => if same w (str "null") then Some None else match number_in q (Some (Word w)) with Some y => Some (Some y) | None => None end | _ => None end) = Some y -> x = y.
  Proof. destruct v as [[| | |]|]; try discriminate. intros H H'. together. Qed.

  Theorem agree_claims v x y : claims_of r v = Some x -> claims_of q v = Some y -> x = y.
  Proof. unfold claims_of. intros H H'. together. side agree_if_any. side agree_bound. together. side agree_if_any. together. Qed.
End Agree.

(** The bytes of a folder say one thing. *)
Theorem Format_unique fs p rows c p' rows' c' : NoDup (map fst fs) -> Format fs p rows c -> Format fs p' rows' c' ->
  p = p' /\ rows = rows' /\ c = c'.
Proof.
  intros D [r [d [j [w [n [o [res [t [R [Fr [J [C [Ft [T [P [Fw [W _]]]]]]]]]]]]]]]]]
    [r' [d' [j' [w' [n' [o' [res' [t' [R' [Fr' [J' [C' [Ft' [T' [P' [Fw' [W' _]]]]]]]]]]]]]]]]].
  rewrite (File_unique fs _ _ _ D Fr' Fr) in J'. rewrite (Json_unique _ _ _ J' J) in C'.
  assert (c = c') as <- by exact (agree_claims fs r r' R R' j c c' C C'). rewrite (File_unique fs _ _ _ D Ft' Ft) in T'.
  rewrite (Toml_unique _ _ _ T' T) in P'. assert (p = p') as <- by exact (agree_problem fs r r' D R R' d p p' P P').
  rewrite (File_unique fs _ _ _ D Fw' Fw) in W'. split; [reflexivity|]. split; [eapply Words_unique; eauto|reflexivity].
Qed.
