(** Folders that are proved, one of each kind of distance: the theorem speaks of something. And some that are not. *)
From Coq Require Import ZArith String List.
From Privopt Require Import Spec Grammar Folder Accept.
Import ListNotations.
Open Scope Z_scope.

Definition lines (l : list string) : bytes := flat_map (fun s => str s ++ [NEWLINE]) l.
Definition array (k : string) (sides : list string) (content : bytes) : bytes :=
  print_npy {| kind := str k; sides := map str sides; spaces := 8; body := content |}.
Definition bits_of (l : list Z) : bytes := flat_map (le 8) l.

(** Two records a and b, 1 apart, and weights (w, 2^63 - w), (2^63 - w, w). *)
Definition weights (w : Z) : bytes := array "<u8" ["2"; "2"]%string (print_words [[w; 2 ^ 63 - w]; [2 ^ 63 - w; w]]).
(** Each reports itself with probability 0.73, which is below e / (1 + e); 0.74 is above. *)
Definition modest : Z := 6733061586903986176.
Definition bold : Z := 6825295307272534016.
Definition names : bytes := array "<U1" ["2"]%string (flat_map (print_name 1) [str "a"; str "b"]).
Definition multipliers : files :=   (* 1/8 on z_a <= e z_b at output a, and on z_b <= e z_a at output b *)
  [(str "proof.npz/pairs.npy", array "<i8" ["2"; "2"]%string (bits_of [0; 1; 1; 0]));
   (str "proof.npz/starts.npy", array "<i8" ["3"]%string (bits_of [0; 1; 2]));
   (str "proof.npz/rows.npy", array "<u4" ["2"]%string (flat_map (le 4) [0; 1]));
   (str "proof.npz/values.npy", array "<f8" ["2"]%string (bits_of [1020 * 2 ^ 52; 1020 * 2 ^ 52]))].

Definition q (s : string) : bytes := quoted (str s).
Definition object (l : list (string * bytes)) : bytes :=
  str "{" ++ join (str ", ") (map (fun kv => q (fst kv) ++ str ": " ++ snd kv) l) ++ str "}".
Definition result (mechanism : string) (guarantee : list (string * bytes)) : bytes := object
  [("mechanism", q mechanism); ("problem", object [("file", q "problem.toml")]);
   ("guarantee", object ([("kind", q "metric-dp"); ("epsilon_text", q "1.0")] ++ guarantee)); ("details", object []);
   ("objective", object [("value", str "0.27"); ("lower_bound", str "0.25")])]%string.
Definition all_pairs : list (string * bytes) := [("epsilon", str "1.0"); ("scope", q "all-pairs")]%string.
Definition neighbours (limit : string) : list (string * bytes) :=
  [("epsilon", str "1.0"); ("scope", q "neighbours"); ("neighbours_within", str limit)]%string.

Definition folder (result : bytes) (w : Z) (problem : bytes) (tables : files) : files :=
  [(str "result.json", result); (str "problem/problem.toml", problem);
   (str "mechanism.npz/weights.npy", weights w); (str "mechanism.npz/records.npy", names);
   (str "mechanism.npz/outputs.npy", names)] ++ tables ++ multipliers.

Definition file_of (key name : string) : bytes := str key ++ str " = " ++ q name ++ [NEWLINE].

Definition euclidean (guarantee : list (string * bytes)) : files := folder (result "optimal-lp" guarantee) modest
  (lines ["[records]"]%string ++ file_of "points" "points.csv" ++ lines ["[distance]"]%string ++ file_of "kind" "euclidean"
   ++ lines ["[privacy]  # per km"; "epsilon = 1"; "neighbours_within = 1.5"; ""; "[utility]"]%string
   ++ file_of "kind" "distance")
  [(str "problem/points.csv", lines ["id,x,y"; "a,0.1,0.7"; "b,0.7,1.5"]%string)].

Definition graph (result : bytes) (w : Z) (loss : string) (roads : list string) : files := folder result w
  (lines ["[records]"]%string ++ file_of "points" "points.csv" ++ lines ["[distance]"]%string ++ file_of "kind" "graph"
   ++ file_of "edges" "roads.csv" ++ lines ["[privacy]"; "epsilon = 1.0"; "[utility]"]%string ++ file_of "kind" loss
   ++ (if string_dec loss "matrix" then file_of "cost" "d.npy" else file_of "prior" "prior.csv"))
  [(str "problem/points.csv", lines ["id"; "a"; "b"]%string); (str "problem/roads.csv", lines roads);
   (str "problem/prior.csv", lines ["id,p"; "b,0.5"; "a,5e-1"]%string);
   (str "problem/d.npy", array "<f8" ["2"; "2"]%string (bits_of [0; 1023 * 2 ^ 52; 1023 * 2 ^ 52; 0]))].
Definition joined : list string := ["from,to,km"; "a,m,0.25"; "b,m,0.75"; "a,b,3"]%string.
Definition parted : list string := ["from,to,km"; "a,m,0.25"; "b,n,0.75"]%string.

Definition matrix : files := folder (result "optimal-lp" all_pairs) modest
  (lines ["[records]"]%string ++ file_of "points" "points.csv" ++ lines ["[distance]"]%string ++ file_of "kind" "matrix"
   ++ file_of "matrix" "d.npy" ++ lines ["[privacy]"; "epsilon = 1.0"; "[utility]"]%string
   ++ file_of "kind" "matrix" ++ file_of "cost" "d.npy")
  [(str "problem/points.csv", lines ["id"; "a"; "b"]%string);
   (str "problem/d.npy", array "<f8" ["2"; "2"]%string (bits_of [0; 1023 * 2 ^ 52; 1023 * 2 ^ 52; 0]))].

Definition is_proved (fs : files) : bool := match examine fs with Proved _ _ _ _ => true | _ => false end.
Ltac decide_it := vm_compute; reflexivity.

Theorem euclidean_is_proved : is_proved (euclidean (neighbours "1.5")) = true. Proof. decide_it. Qed.
Theorem graph_is_proved : is_proved (graph (result "optimal-lp" all_pairs) modest "travel-cost" joined) = true.
Proof. decide_it. Qed.
Theorem matrix_is_proved : is_proved matrix = true. Proof. decide_it. Qed.

(** Not with more probability on the diagonal than privacy allows. *)
Theorem bold_is_not : examine (graph (result "optimal-lp" all_pairs) bold "travel-cost" joined) = Fails Privacy_or_form.
Proof. decide_it. Qed.

(** Nor where no road joins the records: told apart at any distance there is. *)
Theorem parted_is_not : examine (graph (result "optimal-lp" all_pairs) modest "matrix" parted) = Fails Privacy_or_form.
Proof. decide_it. Qed.

(** Nor with another epsilon beside the right one, or another limit. *)
Theorem other_epsilon_is_not : examine (graph
  (result "optimal-lp" [("epsilon", str "0.001"); ("scope", q "all-pairs")]%string) modest "travel-cost" joined) = Fails Guarantee.
Proof. decide_it. Qed.
Theorem other_limit_is_not : examine (euclidean (neighbours "7")) = Fails Guarantee. Proof. decide_it. Qed.

(** Nor lr-geo, whose users have matrices of their own, however its name is written. *)
Theorem lr_geo_is_not :
  map (fun name => examine (graph (result name all_pairs) modest "travel-cost" joined)) ["lr-geo"; "lr\u002dgeo"]%string
  = [Unknown; Unknown].
Proof. decide_it. Qed.

(** Nor with a second array whose name a library cuts to the name of the first. *)
Theorem two_arrays_are_not :
  examine ((str "mechanism.npz/weights.npy" ++ [0; 122], weights bold) :: matrix) = Unknown.
Proof. decide_it. Qed.
