(** Reads the forms of Grammar.v. Nothing is proved here, and nothing need be: what is read is printed
    again and compared with the bytes (Accept.v), and steps of a proof are sound whatever they are. *)
From Coq Require Import ZArith Bool String List FMapPositive.
From Privopt Require Import Exp Spec Sums Bound Metric Check Grammar Folder.
Import ListNotations.
Open Scope Z_scope.

Fixpoint span (p : Z -> bool) (t : bytes) : bytes * bytes :=
  match t with
  | c :: rest => if p c then let (a, z) := span p rest in (c :: a, z) else ([], t)
  | [] => ([], [])
  end.

Fixpoint cut (p : Z -> bool) (t : bytes) : list bytes :=
  match t with
  | [] => [[]]
  | c :: rest => if p c then [] :: cut p rest else match cut p rest with x :: l => (c :: x) :: l | [] => [[c]] end
  end.

Definition read_number (t : bytes) : number :=
  let (s, t) := match t with c :: rest => if (c =? 43) || (c =? 45) then ([c], rest) else ([], t) | [] => ([], []) end in
  let (i, t) := span is_digit t in
  let (f, t) := match t with 46 :: rest => let (f, t) := span is_digit rest in (Some f, t) | _ => (None, t) end in
  let e := match t with [] => None | _ => Some (span (fun c => negb (is_digit c)) t) end in
  {| sign := s; int := i; fraction := f; power := e |}.

(** ** Arrays *)

Definition read_npy (t : bytes) : npy :=
  let n := (nth 8 t 0 + 256 * nth 9 t 0) in
  let rest := skipn 10 t in
  let h := firstn (Z.to_nat n) rest in
  let (k, h) := span (fun c => negb (c =? 39)) (skipn 11 h) in
  let (s, h) := span (fun c => negb (c =? 41)) (skipn 36 h) in
  {| kind := k;
     sides := filter (fun d => negb (Nat.eqb (length d) 0)) (cut (fun c => negb (is_digit c)) s);
     spaces := (length h - 5)%nat; body := skipn (Z.to_nat n) rest |}.

Fixpoint number_le (t : bytes) : Z := match t with [] => 0 | c :: rest => c + 256 * number_le rest end.

Fixpoint take (n : nat) (t : bytes) (got : bytes) : bytes * bytes :=
  match n, t with S n, c :: rest => take n rest (c :: got) | _, _ => (rev' got, t) end.

(** Whole numbers of [width] bytes each. *)
Fixpoint chunks (fuel : bytes) (width : nat) (t : bytes) : list Z :=
  match fuel, t with
  | _ :: fuel, _ :: _ => let (a, z) := take width t [] in number_le a :: chunks fuel width z
  | _, _ => []
  end.

Fixpoint split {A} (count width : nat) (l : list A) : list (list A) :=
  match count with O => [] | S count => firstn width l :: split count width (skipn width l) end.

Definition read_name (l : list Z) : bytes := fst (span (fun c => negb (c =? 0)) l).

(** ** TOML and JSON *)

Fixpoint read_string (t : bytes) : bytes * bytes :=
  match t with
  | 92 :: c :: rest => let (a, z) := read_string rest in (92 :: c :: a, z)
  | c :: rest => if c =? 34 then ([], rest) else let (a, z) := read_string rest in (c :: a, z)
  | [] => ([], [])
  end.

Definition read_key (json : bool) (t : bytes) : bytes * bytes :=
  if json then let (k, t) := read_string (tl t) in (k, tl t)
  else let (k, t) := span (fun c => negb (c =? 61)) t in (k, tl t).

Fixpoint read_value (fuel : bytes) (json : bool) (t : bytes) : value * bytes :=
  match fuel, t with
  | _ :: fuel, c :: rest =>
      if c =? 34 then let (s, t) := read_string rest in (Text s, t)
      else if c =? 91 then
        match rest with 93 :: t => (Arr [], t) | _ => let (l, t) := read_items fuel json rest in (Arr l, t) end
      else if c =? 123 then
        match rest with 125 :: t => (Tab [], t) | _ => let (l, t) := read_pairs fuel json rest in (Tab l, t) end
      else let (w, t) := span is_word t in (Word w, t)
  | _, _ => (Word [], [])
  end
with read_items (fuel : bytes) (json : bool) (t : bytes) : list value * bytes :=
  match fuel with
  | _ :: fuel =>
      let (v, t) := read_value fuel json t in
      match t with 44 :: t => let (l, t) := read_items fuel json t in (v :: l, t) | _ => ([v], tl t) end
  | [] => ([], [])
  end
with read_pairs (fuel : bytes) (json : bool) (t : bytes) : list (bytes * value) * bytes :=
  match fuel with
  | _ :: fuel =>
      let (k, t) := read_key json t in
      let (v, t) := read_value fuel json t in
      match t with 44 :: t => let (l, t) := read_pairs fuel json t in ((k, v) :: l, t) | _ => ([(k, v)], tl t) end
  | [] => ([], [])
  end.

Definition read_json (t : bytes) : value := fst (read_value (0 :: t ++ t) true t).

(** The keys of the first lines, up to a table's name. *)
Fixpoint read_keys (lines : list bytes) : list (bytes * value) :=
  match lines with
  | (c :: _) as line :: more =>
      if c =? 91 then [] else
      let (k, t) := read_key false line in (k, fst (read_value (0 :: t ++ t) false t)) :: read_keys more
  | _ => []
  end.

Fixpoint read_lines (lines : list bytes) : toml :=
  match lines with
  | [] => []
  | line :: rest =>
      match line with
      | 91 :: name => (fst (span (fun c => negb (c =? 93)) name), read_keys rest) :: read_lines rest
      | _ => read_lines rest
      end
  end.

Definition read_toml (t : bytes) : toml := read_lines (cut (Z.eqb NEWLINE) t).
Definition read_heading (t : bytes) : list (bytes * value) := read_keys (cut (Z.eqb NEWLINE) t).

Definition read_csv (t : bytes) : list (list bytes) :=
  map (cut (Z.eqb 44)) (removelast (cut (Z.eqb NEWLINE) t)).

(** ** proof.npz: which factors it uses, and the steps of each output *)

Record plan := { wanted : nat -> list nat; moves : list (list step) }.

Definition pairs_used := PositiveMap.t (PositiveMap.t nat).
Definition use (i j : nat) (m : pairs_used) : pairs_used :=
  let row := match PositiveMap.find (key i) m with Some r => r | None => PositiveMap.empty nat end in
  match PositiveMap.find (key j) row with
  | Some _ => m
  | None => PositiveMap.add (key i) (PositiveMap.add (key j) j row) m
  end.
Definition used (m : pairs_used) (i : nat) : list nat :=
  match PositiveMap.find (key i) m with Some r => map snd (PositiveMap.elements r) | None => [] end.

Definition array (fs : files) (name : string) (width : nat) : option (npy * list Z) :=
  t <- lookup (str "proof.npz/" ++ str name ++ str ".npy") fs;;
  let a := read_npy t in Some (a, chunks (body a) width (body a)).

Definition down (r : option rat) : Z := match r with Some (n, d) => n * ONE / d | None => 0 end.

Definition single (bits : Z) : option rat :=
  let sign := bits / 2 ^ 31 in
  let e := bits / 2 ^ 23 - sign * 2 ^ 8 in
  let m := bits - (bits / 2 ^ 23) * 2 ^ 23 in
  let m := if e =? 0 then m else m + 2 ^ 23 in
  let m := if sign =? 0 then m else - m in
  let k := Z.max e 1 - 150 in
  if e =? 255 then None else Some (if 0 <=? k then (m * 2 ^ k, 1) else (m, 2 ^ (- k))).

(** Steps of a forest, from the leaves: the record that hangs, on which, whether it stands above it. *)
Definition hanging : Type := nat * bool * Z.
Fixpoint from_leaves (fuel : nat) (tree : PositiveMap.t hanging) (waiting : zmap) (free : list nat) : list step :=
  match fuel, free with
  | S fuel, i :: rest =>
      match PositiveMap.find (key i) tree with
      | Some (p, above, y) =>
          let left := get waiting p - 1 in
          (if above : bool then Lack i p y else Surplus i p y)
          :: from_leaves fuel tree (put p left waiting) (if left =? 0 then p :: rest else rest)
      | None => []
      end
  | _, _ => []
  end.

Fixpoint numbered_from {A} (i : nat) (l : list A) : list (nat * A) :=
  match l with [] => [] | x :: s => (i, x) :: numbered_from (S i) s end.

Definition forest (n : nat) (prices : list Z) (codes : list Z) : list step :=
  let hang (e : nat * (Z * Z)) : nat * hanging :=
    let '(i, (code, y)) := e in
    let at_ := Z.of_nat i + code / 2 in
    let p := if at_ <? Z.of_nat n then at_ else at_ - Z.of_nat n in
    (i, (Z.to_nat p, negb (code =? 2 * (code / 2)), y)) in
  let all := map hang (numbered_from 0 (combine codes prices)) in
  let tree := fold_left (fun m e => PositiveMap.add (key (fst e)) (snd e) m) all (PositiveMap.empty hanging) in
  let waiting := fold_left (fun m (e : nat * hanging) => add_to (fst (fst (snd e))) 1 m) all (PositiveMap.empty Z) in
  from_leaves n tree waiting (filter (fun i => get waiting i =? 0) (seq 0 n)).

Definition pair_of (s : step) : nat * nat :=
  match s with Multiplier i j _ => (i, j) | Lack i p _ => (i, p) | Surplus i p _ => (p, i) end.

Definition plan_of (steps : list (list step)) : plan :=
  let m := fold_left (fun m l => fold_left (fun m s => let (i, j) := pair_of s in use i j m) l m) steps (PositiveMap.empty _) in
  {| wanted := used m; moves := steps |}.

Definition read_trees (fs : files) (n width : nat) : option (list (list step)) :=
  prices <- array fs "prices" 8;;
  t <- lookup (str "proof.npz/trees.npy") fs;;
  let a := read_npy t in
  let w := if same (kind a) (str "<u2") then 2%nat else 4%nat in
  let y := map (fun z => down (double z)) (snd prices) in
  Some (map (forest n y) (split width n (chunks (body a) w (body a)))).

Fixpoint slices {A} (at_ : Z) (ends : list Z) (l : list A) : list (list A) :=
  match ends with
  | [] => []
  | e :: rest => let n := Z.to_nat (e - at_) in firstn n l :: slices e rest (skipn n l)
  end.

Definition read_multipliers (fs : files) (n : nat) : option (list (list step)) :=
  pairs <- array fs "pairs" 8;; starts <- array fs "starts" 8;; rows <- array fs "rows" 4;;
  t <- lookup (str "proof.npz/values.npy") fs;;
  let a := read_npy t in
  let values := if same (kind a) (str "<f4")
    then map (fun z => down (single z)) (chunks (body a) 4 (body a))
    else map (fun z => down (double z)) (chunks (body a) 8 (body a)) in
  let table := fold_left (fun m (e : nat * list Z) => PositiveMap.add (key (fst e)) (snd e) m)
    (numbered_from 0 (split (length (snd pairs) / 2) 2 (snd pairs))) (PositiveMap.empty (list Z)) in
  let step_of (e : Z * Z) : step :=
    match PositiveMap.find (Z.to_pos (fst e + 1)) table with
    | Some [i; j] => if (0 <=? i) && (i <? Z.of_nat n) && (0 <=? j) && (j <? Z.of_nat n)
        then Multiplier (Z.to_nat i) (Z.to_nat j) (snd e) else Multiplier 0 0 0
    | _ => Multiplier 0 0 0
    end in
  Some (slices 0 (tl (snd starts)) (map step_of (combine (snd rows) values))).

Definition read_plan (fs : files) (n width : nat) : plan :=
  match read_trees fs n width with
  | Some s => plan_of s
  | None => match read_multipliers fs n with Some s => plan_of s | None => plan_of [] end
  end.
