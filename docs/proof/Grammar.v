(** The files' forms, as what is printed: a text is of a form if some structure prints it.

    Tokens, tables and arrays are not parsed here, but printed. Two functions do change what stands in a file,
    [outside] and [full_lines]: they leave out blanks, comments and empty lines of TOML and JSON. *)
From Coq Require Import ZArith Bool String Ascii List.
From Privopt Require Import Spec.
Import ListNotations.
Open Scope Z_scope.

(** The bytes of a string. *)
Definition str (s : string) : bytes := map (fun a => Z.of_N (N_of_ascii a)) (list_ascii_of_string s).

Definition NEWLINE : Z := 10.
Definition is_digit (c : Z) : bool := (48 <=? c) && (c <=? 57).
Definition digits (t : bytes) : bool := negb (Nat.eqb (length t) 0) && forallb is_digit t.
Fixpoint join (sep : bytes) (l : list bytes) : bytes :=
  match l with [] => [] | [x] => x | x :: rest => x ++ sep ++ join sep rest end.

(** ** Whole numbers and decimals *)

Definition digits_value (t : bytes) : Z := fold_left (fun v c => 10 * v + (c - 48)) t 0.

(** A number in digits: the digits of its value. *)
Fixpoint digits_of (fuel : nat) (n : Z) (after : bytes) : bytes :=
  match fuel with
  | O => after
  | S fuel => let rest := (48 + (n - 10 * (n / 10))) :: after in if n <? 10 then rest else digits_of fuel (n / 10) rest
  end.
Definition named (n : nat) : bytes := digits_of 20 (Z.of_nat n) [].

(** A sign, digits, maybe digits behind a point, maybe a power of ten. *)
Record number := { sign : bytes; int : bytes; fraction : option bytes; power : option (bytes * bytes) }.

Definition print_number (n : number) : bytes :=
  sign n ++ int n
  ++ match fraction n with Some f => [46] ++ f | None => [] end
  ++ match power n with Some (e, d) => e ++ d | None => [] end.

Definition is_sign (s : bytes) : bool :=
  existsb (fun t => if list_eq_dec Z.eq_dec s t then true else false) [[]; str "+"; str "-"].
Definition is_power (s : bytes) : bool :=
  existsb (fun t => if list_eq_dec Z.eq_dec s t then true else false)
    [str "e"; str "e+"; str "e-"; str "E"; str "E+"; str "E-"].

Definition good_number (n : number) : bool :=
  is_sign (sign n) && digits (int n)
  && match fraction n with Some f => digits f | None => true end
  && match power n with Some (e, d) => is_power e && digits d && Nat.leb (length d) 3 | None => true end
  && Nat.leb (length (int n)) 999 && match fraction n with Some f => Nat.leb (length f) 999 | None => true end.

Definition minus (s : bytes) : bool := existsb (Z.eqb 45) s.

(** The rational that it is: numerator over a power of ten. *)
Definition number_value (n : number) : rat :=
  let f := match fraction n with Some f => f | None => [] end in
  let m := digits_value (int n ++ f) in
  let m := if minus (sign n) then - m else m in
  let places := Z.of_nat (length f) in
  match power n with
  | Some (e, d) =>
      let k := digits_value d in
      if minus e then (m, 10 ^ (places + k)) else (m * 10 ^ k, 10 ^ places)
  | None => (m, 10 ^ places)
  end.

Definition Decimal (t : bytes) (r : rat) : Prop :=
  exists n, good_number n = true /\ print_number n = t /\ number_value n = r.

(** ** Arrays: .npy files of version 1.0, little-endian, row by row *)

Fixpoint le (width : nat) (z : Z) : bytes :=
  match width with O => [] | S w => (z - 256 * (z / 256)) :: le w (z / 256) end.

Record npy := { kind : bytes; sides : list bytes; spaces : nat; body : bytes }.

Definition print_sides (l : list bytes) : bytes :=
  match l with [n] => str "(" ++ n ++ str ",)" | _ => str "(" ++ join (str ", ") l ++ str ")" end.

Definition header (a : npy) : bytes :=
  str "{'descr': '" ++ kind a ++ str "', 'fortran_order': False, 'shape': " ++ print_sides (sides a) ++ str ", }"
  ++ repeat 32 (spaces a) ++ [NEWLINE].

Definition print_npy (a : npy) : bytes :=
  [147] ++ str "NUMPY" ++ [1; 0] ++ le 2 (Z.of_nat (length (header a))) ++ header a ++ body a.

Definition shape (a : npy) : list nat := map (fun t => Z.to_nat (digits_value t)) (sides a).
Definition good_npy (a : npy) : bool :=
  forallb digits (sides a) && negb (existsb (fun c => (c =? 39) || (c =? NEWLINE)) (kind a))
  && (Z.of_nat (length (header a)) <? 65536).

(** Bytes that are an array of that kind and shape, with that body. *)
Definition Npy (t : bytes) (k : bytes) (s : list nat) (content : bytes) : Prop :=
  exists a, good_npy a = true /\ print_npy a = t /\ kind a = k /\ shape a = s /\ body a = content.

(** A matrix of unsigned numbers of 64 bits. *)
Definition in_word (z : Z) : bool := (0 <=? z) && (z <? 2 ^ 64).
Definition print_words (rows : list (list Z)) : bytes := flat_map (flat_map (le 8)) rows.
Definition Words (t : bytes) (n width : nat) (rows : list (list Z)) : Prop :=
  Npy t (str "<u8") [n; width] (print_words rows) /\ length rows = n /\
  (forall r, In r rows -> length r = width /\ forall z, In z r -> in_word z = true).

(** A matrix of doubles: each the rational that its 64 bits are. *)
Definition double (bits : Z) : option rat :=
  let sign := bits / 2 ^ 63 in
  let e := bits / 2 ^ 52 - sign * 2 ^ 11 in
  let m := bits - (bits / 2 ^ 52) * 2 ^ 52 in
  let m := if e =? 0 then m else m + 2 ^ 52 in
  let m := if sign =? 0 then m else - m in
  if e =? 2047 then None else
  let k := Z.max e 1 - 1075 in
  Some (if 0 <=? k then (m * 2 ^ k, 1) else (m, 2 ^ (- k))).
Definition Doubles (t : bytes) (n width : nat) (rows : list (list rat)) : Prop :=
  exists bits, Npy t (str "<f8") [n; width] (print_words bits) /\ length bits = n /\
    (forall r, In r bits -> length r = width /\ forall z, In z r -> in_word z = true) /\
    Forall2 (Forall2 (fun z r => double z = Some r)) bits rows.

(** Names of ASCII characters, in cells of one width filled with zeros. *)
Definition in_name (c : Z) : bool := (32 <=? c) && (c <? 127).
Definition print_name (width : nat) (t : bytes) : bytes := flat_map (le 4) (t ++ repeat 0 (width - length t)).
Definition Names (t : bytes) (names : list bytes) : Prop :=
  exists width, Npy t (str "<U" ++ named width) [length names] (flat_map (print_name width) names) /\
    forall a, In a names -> (length a <= width)%nat /\ forallb in_name a = true.

(** ** Tables: lines of cells, the first the names of the columns *)

Definition plain_cell (c : bytes) : bool :=
  forallb (fun x => in_name x && negb ((x =? 44) || (x =? 34))) c
  && negb (match c with 32 :: _ => true | _ => false end) && negb (match rev c with 32 :: _ => true | _ => false end).
Definition print_csv (rows : list (list bytes)) : bytes := flat_map (fun r => join [44] r ++ [NEWLINE]) rows.
Definition Csv (t : bytes) (rows : list (list bytes)) : Prop :=
  print_csv rows = t /\
  forall r, In r rows ->
    length r = length (hd [] rows) /\ r <> [] /\ r <> [[]] /\ forall c, In c r -> plain_cell c = true.

(** ** TOML and JSON *)

Inductive value := Text (s : bytes) | Word (w : bytes) | Arr (l : list value) | Tab (l : list (bytes * value)).

Definition is_word (c : Z) : bool :=
  is_digit c || ((65 <=? c) && (c <=? 90)) || ((97 <=? c) && (c <=? 122))
  || (c =? 45) || (c =? 95) || (c =? 46) || (c =? 43).
Definition word (w : bytes) : bool := negb (Nat.eqb (length w) 0) && forallb is_word w.
Definition bare_key (w : bytes) : bool := word w && negb (existsb (fun c => (c =? 46) || (c =? 43)) w).
Definition quoted (s : bytes) : bytes := [34] ++ s ++ [34].

(** The contents of a string: no quotation marks but behind a backslash, no line ends. *)
Fixpoint inside (s : bytes) : bool :=
  match s with
  | [] => true
  | c :: rest =>
      if c =? 92 then match rest with [] => false | _ :: rest => inside rest end
      else negb (c =? 34) && (32 <=? c) && inside rest
  end.

(** Bytes without the blanks (and, in TOML, the comments) that stand outside of strings. Where blanks part two
    words one stays, and the text is of no form. *)
Inductive before := Sign | Letter | Parted.
Fixpoint outside (comments : bool) (blank : Z -> bool) (at_ : before) (t : bytes) : bytes :=
  match t with
  | [] => []
  | c :: rest =>
      if c =? 34 then c :: within_string comments blank rest
      else if comments && (c =? 35) then within_comment comments blank rest
      else if blank c then outside comments blank (match at_ with Sign => Sign | _ => Parted end) rest
      else if is_word c then
        match at_ with Parted => [32] | _ => [] end ++ c :: outside comments blank Letter rest
      else c :: outside comments blank Sign rest
  end
with within_string (comments : bool) (blank : Z -> bool) (t : bytes) : bytes :=
  match t with
  | [] => []
  | c :: rest =>
      if c =? 34 then c :: outside comments blank Sign rest
      else if c =? 92 then match rest with d :: rest => c :: d :: within_string comments blank rest | [] => [c] end
      else c :: within_string comments blank rest
  end
with within_comment (comments : bool) (blank : Z -> bool) (t : bytes) : bytes :=
  match t with
  | [] => []
  | c :: rest => if c =? NEWLINE then c :: outside comments blank Sign rest else within_comment comments blank rest
  end.

Section Values.
  Variables (print_key : bytes -> bytes) (good_key good_text : bytes -> bool).
  Fixpoint print_value (v : value) : bytes :=
    match v with
    | Text s => quoted s
    | Word w => w
    | Arr l => str "[" ++ join (str ",") (map print_value l) ++ str "]"
    | Tab l => str "{" ++ join (str ",") (map (fun kv => print_key (fst kv) ++ print_value (snd kv)) l) ++ str "}"
    end.
  Fixpoint good_value (v : value) : bool :=
    match v with
    | Text s => good_text s
    | Word w => word w
    | Arr l => forallb good_value l
    | Tab l => forallb (fun kv => good_key (fst kv) && good_value (snd kv)) l
    end.
End Values.

Definition json_key (k : bytes) : bytes := quoted k ++ str ":".
Definition blank_json (c : Z) : bool := (c =? 32) || (c =? 10) || (c =? 9) || (c =? 13).
Definition Json (t : bytes) (v : value) : Prop :=
  good_value inside inside v = true /\ print_value json_key v = outside false blank_json Sign t.

(** A TOML file: tables, and the keys of each; strings without backslashes, nothing over several lines. Before them
    may stand what people call the problem, which no claim depends on. *)
Definition toml := list (bytes * list (bytes * value)).
Definition toml_key (k : bytes) : bytes := k ++ str "=".
Definition print_pairs (l : list (bytes * value)) : bytes :=
  flat_map (fun kv => toml_key (fst kv) ++ print_value toml_key (snd kv) ++ [NEWLINE]) l.
Definition plain_text (s : bytes) : bool := inside s && negb (existsb (Z.eqb 92) s).
Definition blank_toml (c : Z) : bool := (c =? 32) || (c =? 9).
Definition print_toml (d : toml) : bytes :=
  flat_map (fun t => str "[" ++ fst t ++ str "]" ++ [NEWLINE] ++ print_pairs (snd t)) d.
Definition good_heading (h : list (bytes * value)) : bool :=
  distinct (map fst h)
  && forallb (fun kv => (same (fst kv) (str "title") || same (fst kv) (str "purpose"))
                        && match snd kv with Text s => plain_text s | _ => false end) h.
Definition good_toml (d : toml) : bool :=
  forallb (fun t => bare_key (fst t)
    && forallb (fun kv => bare_key (fst kv) && good_value bare_key plain_text (snd kv)) (snd t)) d.

(** Lines with nothing on them left out. *)
Fixpoint full_lines (new : bool) (t : bytes) : bytes :=
  match t with
  | [] => []
  | c :: rest => if new && (c =? NEWLINE) then full_lines true rest else c :: full_lines (c =? NEWLINE) rest
  end.
Definition Toml (t : bytes) (d : toml) : Prop :=
  good_toml d = true /\ exists h, good_heading h = true
    /\ print_pairs h ++ print_toml d = full_lines true (outside true blank_toml Sign t).
