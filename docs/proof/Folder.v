(** What the files of a folder say: the problem, the weights, what is claimed of them.

    [files] are the names and bytes of a folder's files; those of an archive are ARCHIVE/MEMBER. [problem_of] and
    [claims_of] are what keys mean: they are to be read as a specification, and the program runs them as they are. *)
From Coq Require Import ZArith Bool Reals String List.
From Privopt Require Import Spec Claims Grammar.
Import ListNotations.
Open Scope Z_scope.

Definition files := list (bytes * bytes).
Definition File (fs : files) (name content : bytes) : Prop := In (name, content) fs.

(** NumPy takes an array's name with or without its end for the same. *)
Definition stem (name : bytes) : bytes :=
  match rev name with 121 :: 112 :: 110 :: 46 :: rest => rev rest | _ => name end.

(** Letters, digits, - _ . + and /: no sign at which a library cuts a name, or that it takes for another. *)
Definition plain_name (name : bytes) : bool := forallb (fun c => is_word c || (c =? 47)) name.

(** No two files are one to anybody who reads. *)
Definition Distinct (fs : files) : Prop :=
  NoDup (map fst fs) /\ NoDup (map (fun f => stem (fst f)) fs) /\ forall f, In f fs -> plain_name (fst f) = true.

Definition beside (name : bytes) : bytes := str "problem/" ++ name.

(** Who reads numbers, tables and matrices of a folder; faithful where all that they give is what stands there. *)
Record readers := {
  number_of : bytes -> option rat;
  table_of : bytes -> option (list (list bytes));
  matrix_of : bytes -> nat -> nat -> option (list (list rat))
}.
Definition Faithful (fs : files) (r : readers) : Prop :=
  (forall t x, number_of r t = Some x -> Decimal t x) /\
  (forall name rows, table_of r name = Some rows -> exists t, File fs (beside name) t /\ Csv t rows) /\
  (forall name n width m, matrix_of r name n width = Some m ->
     exists t, File fs (beside name) t /\ Doubles t n width m).

Notation "x <- a ;; c" := (match a with Some x => c | None => None end)
  (at level 61, a at next level, right associativity).
Notation "'when' c ;; d" := (if c then d else None) (at level 61, c at next level, right associativity).

(** ** The problem *)

Definition fields := list (bytes * value).
Definition field (t : fields) (name : string) : option value := lookup (str name) t.
Definition has (t : fields) (name : string) : bool := match field t name with Some _ => true | None => false end.
(** No other keys than these, and none twice. *)
Definition only (t : fields) (names : list string) : bool :=
  forallb (fun kv => existsb (fun n => same (fst kv) (str n)) names) t && distinct (map fst t).
Definition is_text (v : option value) (s : string) : bool :=
  match v with Some (Text t) => same t (str s) | _ => false end.

(** As TOML and JSON both write numbers: no plus before them, no 0 before other digits. *)
Definition lean (w : bytes) : bool :=
  match (match w with 45 :: rest => rest | _ => w end) with
  | c :: d :: _ => negb (c =? 43) && negb ((c =? 48) && is_digit d)
  | _ => true
  end.

(** A whole number up to a million. *)
Definition count_of (v : option value) : option nat :=
  match v with
  | Some (Word w) =>
      when lean w && digits w && Nat.leb (length w) 7;;
      let n := digits_value w in when (0 <? n) && (n <=? 1000000);; Some (Z.to_nat n)
  | _ => None
  end.

Definition column (rows : list (list bytes)) (name : string) : option (list bytes) :=
  match rows with
  | head :: (_ :: _) as body =>
      when distinct head;; i <- index (str name) head;; map_opt (fun r => nth_error r i) (tl rows)
  | _ => None
  end.

Section Problem.
  Variable r : readers.

  Definition numbers (l : list bytes) : option (list rat) := map_opt (number_of r) l.
  Definition number_in (v : option value) : option rat :=
    match v with Some (Word w) => when lean w;; number_of r w | _ => None end.
  Definition file_in (v : option value) : option (list (list bytes)) :=
    match v with Some (Text f) => table_of r f | _ => None end.
  (** Of a key that may be left out. *)
  Definition number_if_any (t : fields) (name : string) : option (option rat) :=
    if has t name then x <- number_in (field t name);; Some (Some x) else Some None.

  (** Names with numbers beside them, as a table's columns id and [name] have them. *)
  Definition beside_ids (v : option value) (name : string) : option (list (bytes * rat)) :=
    rows <- file_in v;; ids <- column rows "id";; cells <- column rows name;; xs <- numbers cells;;
    Some (combine ids xs).

  (** Cells of a grid, row by row: their names, and coordinates x and y of their corners. *)
  Definition grid_of (g : fields) : option (list bytes * option (list (list rat))) :=
    when only g ["rows"; "cols"; "cell_km"]%string;;
    n <- count_of (field g "rows");; w <- count_of (field g "cols");; side <- number_in (field g "cell_km");;
    when (Z.of_nat n * Z.of_nat w <=? 1000000) && (0 <? fst side);;
    let cells := flat_map (fun i => map (fun j => (i, j)) (seq 0 w)) (seq 0 n) in
    let at_ k := (Z.of_nat k * fst side, snd side) in
    Some (map (fun c => str "r" ++ named (fst c) ++ str "c" ++ named (snd c)) cells,
          Some (map (fun c => [at_ (snd c); at_ (fst c)]) cells)).

  (** Rows of a table: ids, and coordinates where it has both columns. Of two pairs of coordinates nobody knows
      which is meant. *)
  Definition points_of (v : option value) : option (list bytes * option (list (list rat))) :=
    rows <- file_in v;; ids <- column rows "id";;
    match column rows "x", column rows "y" with
    | Some x, Some y =>
        when match column rows "lat", column rows "lon" with Some _, Some _ => false | _, _ => true end;;
        xs <- numbers x;; ys <- numbers y;;
        Some (ids, Some (map (fun p => [fst p; snd p]) (combine xs ys)))
    | _, _ => Some (ids, None)
    end.

  (** Ids of [records] or [outputs], and coordinates where there are any. *)
  Definition places (t : fields) : option (list bytes * option (list (list rat))) :=
    if has t "points" then when only t ["points"%string];; points_of (field t "points")
    else if has t "grid" then
      match field t "grid" with Some (Tab g) => when only t ["grid"%string];; grid_of g | _ => None end
    else when only t ["count"%string];; n <- count_of (field t "count");; Some (map named (seq 0 n), None).

  Definition uniform (ids : list bytes) : list (bytes * rat) := map (fun id => (id, (1, 1))) ids.

  (** Costs, and the prior. What a kilometre costs its reader (per_km) is told in reports; no claim depends on it. *)
  Definition utility_of (t : fields) (ids : list bytes) (width : nat) : option (utility * list (bytes * rat)) :=
    shares <- (if has t "prior" then beside_ids (field t "prior") "p" else Some (uniform ids));;
    if is_text (field t "kind") "distance" then when only t ["kind"; "prior"; "per_km"]%string;; Some (Distance, shares)
    else if is_text (field t "kind") "travel-cost" then
      when only t ["kind"; "prior"; "targets"; "per_km"]%string;;
      targets <- (if has t "targets" then beside_ids (field t "targets") "weight" else Some (uniform ids));;
      Some (Travel targets, shares)
    else
      when is_text (field t "kind") "matrix" && only t ["kind"; "prior"; "cost"]%string;;
      match field t "cost" with
      | Some (Text f) => m <- matrix_of r f (length ids) width;; Some (CostMatrix m, shares)
      | _ => None
      end.

  Definition edges_of (t : fields) : option space :=
    rows <- file_in (field t "edges");;
    u <- column rows "from";; v <- column rows "to";; km <- column rows "km";; l <- numbers km;;
    Some (Graph (combine (combine u v) l)).

  (** Distances: of ids, and from ids to outs. *)
  Definition metric_of (t : fields) (ids outs : list bytes) (at_ at_out : option (list (list rat)))
      (outputs_given costs_given : bool) : option space :=
    if is_text (field t "kind") "euclidean" then
      when only t ["kind"%string];; a <- at_;; c <- at_out;; Some (Euclidean a c)
    else if is_text (field t "kind") "graph" then when only t ["kind"; "edges"]%string;; edges_of t
    else
      when is_text (field t "kind") "matrix" && only t ["kind"; "matrix"; "output_matrix"]%string;;
      match field t "matrix" with
      | Some (Text f) =>
          m <- matrix_of r f (length ids) (length ids);;
          match outputs_given, field t "output_matrix" with
          | true, Some (Text g) => c <- matrix_of r g (length ids) (length outs);; Some (Matrix m (Some c))
          | true, _ => when costs_given;; Some (Matrix m None)   (* no cost is a distance then *)
          | false, None => Some (Matrix m None)
          | false, _ => None
          end
      | _ => None
      end.

  (** Mechanisms whose matrix is the whole release, and the keys of their tables: these say how a problem is
      solved, and no claim depends on them. *)
  Definition mechanisms : list (string * list string) :=
    [("bd-mdp", ["partition"; "subsets"; "start"; "lagrangian_steps"]);
     ("const-opt", ["radius"]); ("exponential", []); ("optimal-lp", []); ("planar-laplace", [])]%string.
  Definition keys_of (mechanism : bytes) : option (list string) :=
    lookup mechanism (map (fun m => (str (fst m), snd m)) mechanisms).

  Definition parts : list string := ["records"; "outputs"; "distance"; "privacy"; "utility"]%string.
  Definition known_table (t : bytes * fields) : bool :=
    existsb (fun n => same (fst t) (str n)) parts
    || match keys_of (fst t) with Some keys => only (snd t) keys | None => false end.

  Definition problem_of (d : toml) : option problem :=
    when forallb known_table d && distinct (map fst d);;
    recs <- lookup (str "records") d;; dist <- lookup (str "distance") d;;
    priv <- lookup (str "privacy") d;; util <- lookup (str "utility") d;;
    from <- places recs;;
    to <- (match lookup (str "outputs") d with Some t => places t | None => Some from end);;
    let outputs_given := match lookup (str "outputs") d with Some _ => true | None => false end in
    use <- utility_of util (fst from) (length (fst to));;
    let costs_given := match fst use with CostMatrix _ => true | _ => false end in
    m <- metric_of dist (fst from) (fst to) (snd from) (snd to) outputs_given costs_given;;
    when only priv ["epsilon"; "neighbours_within"; "kind"]%string
         && (negb (has priv "kind") || is_text (field priv "kind") "metric-dp");;
    e <- number_in (field priv "epsilon");; w <- number_if_any priv "neighbours_within";;
    Some {| records := fst from; outputs := fst to; metric := m; epsilon := e; within := w;
            prior := snd use; costs := fst use |}.

(** ** The claims of result.json *)

  Record claims := {
    file : bytes;                    (* of the problem *)
    value_of : rat;
    unit_of : option rat;            (* details.value_unit *)
    bound_of : option rat;
    epsilon_of : rat;                (* guarantee.epsilon_text *)
    epsilon_shown : rat;             (* guarantee.epsilon, a double *)
    within_shown : option rat;       (* guarantee.neighbours_within, a double *)
    scope_of : bytes
  }.

  (** Without backslashes, by which one name could be written in two ways. *)
  Definition object (v : option value) : option fields :=
    match v with
    | Some (Tab t) => when distinct (map fst t) && forallb (fun kv => plain_text (fst kv)) t;; Some t
    | _ => None
    end.
  Definition text (v : option value) : option bytes :=
    match v with Some (Text t) => when plain_text t;; Some t | _ => None end.

  Definition claims_of (v : value) : option claims :=
    top <- object (Some v);;
    prob <- object (field top "problem");; obj <- object (field top "objective");;
    guar <- object (field top "guarantee");; det <- object (field top "details");;
    f <- text (field prob "file");; x <- number_in (field obj "value");; u <- number_if_any det "value_unit";;
    bd <- (match field obj "lower_bound" with
           | Some (Word w) => if same w (str "null") then Some None else y <- number_in (Some (Word w));; Some (Some y)
           | _ => None end);;
    mech <- text (field top "mechanism");;
    when match keys_of mech with Some _ => true | None => false end
         && is_text (field guar "kind") "metric-dp" && negb (has obj "bound_over");;
    t <- text (field guar "epsilon_text");; e <- number_of r t;; shown <- number_in (field guar "epsilon");;
    w <- number_if_any guar "neighbours_within";; s <- text (field guar "scope");;
    Some {| file := f; value_of := x; unit_of := u; bound_of := bd; epsilon_of := e; epsilon_shown := shown;
            within_shown := w; scope_of := s |}.
End Problem.

(** ** The form of a folder *)

Definition Format (fs : files) (p : problem) (rows : list (list Z)) (c : claims) : Prop :=
  exists r d j weights names outs result text,
    Faithful fs r /\
    File fs (str "result.json") result /\ Json result j /\ claims_of r j = Some c /\
    File fs (beside (file c)) text /\ Toml text d /\ problem_of r d = Some p /\
    File fs (str "mechanism.npz/weights.npy") weights /\ Words weights (length (records p)) (length (outputs p)) rows /\
    File fs (str "mechanism.npz/records.npy") names /\ Names names (records p) /\
    File fs (str "mechanism.npz/outputs.npy") outs /\ Names outs (outputs p).

(** How far the stated loss may be from the loss: its unit (it is the loss, rounded up to an odd multiple of half
    of that) and |value| / 2^50, four to eight last bits of a double; a relative 1e-9 where no unit is stated. *)
Definition allowance (c : claims) : rat :=
  let (n, d) := value_of c in
  match unit_of c with
  | Some (a, e) => (a * (d * 2 ^ 50) + Z.abs n * e, e * (d * 2 ^ 50))
  | None => (Z.abs n, d * 10 ^ 9)
  end.

Definition scope_is (p : problem) : bytes :=
  match within p with Some _ => str "neighbours" | None => str "all-pairs" end.

Open Scope R_scope.

(** The unit is fine: 2^-30 of the value at most, or of 1 where the value is less. *)
Definition Fine (c : claims) : Prop :=
  forall u, unit_of c = Some u -> 0 < rv u <= Rmax 1 (Rabs (rv (value_of c))) / 2 ^ 30.

(** x is y, as a double is shown. *)
Definition Shown (x y : rat) : Prop := Rabs (rv x - rv y) <= rv y / 2 ^ 52.

(** What the guarantee says of epsilon and of the pairs is what the problem asks. *)
Definition Guaranteed (p : problem) (c : claims) : Prop :=
  rv (epsilon_of c) = rv (epsilon p) /\ Shown (epsilon_shown c) (epsilon p) /\ scope_of c = scope_is p /\
  match within_shown c, within p with Some x, Some y => Shown x y | None, None => True | _, _ => False end.

(** All that a folder claims, and that can be proved of it. *)
Definition Holds (p : problem) (rows : list (list Z)) (c : claims) : Prop :=
  Sound p /\ Shares p /\ Guaranteed p c /\
  (forall r, In r rows -> Distribution (length (outputs p)) r) /\ length rows = length (records p) /\
  Private p rows /\
  (forall z, exists v, Loss p z v /\ forall w, Loss p z w -> w = v) /\
  Fine c /\ (exists v, Loss p (drawn rows) v /\ Rabs (rv (value_of c) - v) <= rv (allowance c)) /\
  Mechanism p (drawn rows) /\
  (forall bd, bound_of c = Some bd -> forall z v, Mechanism p z -> Loss p z v -> rv bd <= v).
