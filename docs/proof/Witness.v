(** Folders that are accepted: the theorem speaks of something. One of each kind of distance. *)
From Coq Require Import ZArith String List.
From Privopt Require Import Spec Grammar Folder Accept.
Import ListNotations.
Open Scope Z_scope.

Definition lines (l : list string) : bytes := flat_map (fun s => b s ++ [NEWLINE]) l.
Definition array (k : string) (sides : list string) (content : bytes) : bytes :=
  print_npy {| kind := b k; sides := map b sides; spaces := 8; body := content |}.
Definition bits_of (l : list Z) : bytes := flat_map (le 8) l.

(** Two records a and b, 1 apart; each reports itself with probability 0.73, which is below e / (1 + e). *)
Definition weights : bytes := array "<u8" ["2"; "2"]%string (print_words [[6733061586903986176; 2490310449950789632]; [2490310449950789632; 6733061586903986176]]).
Definition names : bytes := array "<U1" ["2"]%string (flat_map (print_name 1) [b "a"; b "b"]).
Definition multipliers : files :=   (* 1/8 on z_a <= e z_b at output a, and on z_b <= e z_a at output b *)
  [(b "proof.npz/pairs.npy", array "<i8" ["2"; "2"]%string (bits_of [0; 1; 1; 0]));
   (b "proof.npz/starts.npy", array "<i8" ["3"]%string (bits_of [0; 1; 2]));
   (b "proof.npz/rows.npy", array "<u4" ["2"]%string (flat_map (le 4) [0; 1]));
   (b "proof.npz/values.npy", array "<f8" ["2"]%string (bits_of [1020 * 2 ^ 52; 1020 * 2 ^ 52]))].

Definition q (s : string) : bytes := quoted (b s).
Definition result (scope : string) : bytes :=
  b "{" ++ q "mechanism" ++ b ": " ++ q "optimal-lp" ++ b ", " ++ q "problem" ++ b ": {" ++ q "file" ++ b ": " ++ q "problem.toml" ++ b "},"
  ++ q "guarantee" ++ b ": {" ++ q "kind" ++ b ": " ++ q "metric-dp" ++ b ", " ++ q "epsilon_text" ++ b ": " ++ q "1.0" ++ b ", "
  ++ q "scope" ++ b ": " ++ q scope ++ b "}, " ++ q "details" ++ b ": {}, "
  ++ q "objective" ++ b ": {" ++ q "value" ++ b ": 0.27, " ++ q "lower_bound" ++ b ": 0.25}}".

Definition folder (scope : string) (problem : bytes) (tables : files) : files :=
  [(b "result.json", result scope); (b "problem/problem.toml", problem);
   (b "mechanism.npz/weights.npy", weights); (b "mechanism.npz/records.npy", names); (b "mechanism.npz/outputs.npy", names)]
  ++ tables ++ multipliers.

Definition file_of (key name : string) : bytes := b key ++ b " = " ++ quoted (b name) ++ [NEWLINE].

Definition euclidean : files := folder "neighbours"
  (lines ["[records]"]%string ++ file_of "points" "points.csv" ++ lines ["[distance]"]%string ++ file_of "kind" "euclidean"
   ++ lines ["[privacy]  # per km"; "epsilon = 1"; "neighbours_within = 1.5"; ""; "[utility]"]%string ++ file_of "kind" "distance")
  [(b "problem/points.csv", lines ["id,x,y"; "a,0.1,0.7"; "b,0.7,1.5"]%string)].

Definition graph : files := folder "all-pairs"
  (lines ["[records]"]%string ++ file_of "points" "points.csv" ++ lines ["[distance]"]%string ++ file_of "kind" "graph"
   ++ file_of "edges" "roads.csv" ++ lines ["[privacy]"; "epsilon = 1.0"; "[utility]"]%string ++ file_of "kind" "travel-cost"
   ++ file_of "prior" "prior.csv")
  [(b "problem/points.csv", lines ["id"; "a"; "b"]%string);
   (b "problem/roads.csv", lines ["from,to,km"; "a,m,0.25"; "b,m,0.75"; "a,b,3"]%string);
   (b "problem/prior.csv", lines ["id,p"; "b,0.5"; "a,5e-1"]%string)].

Definition matrix : files := folder "all-pairs"
  (lines ["[records]"]%string ++ file_of "points" "points.csv" ++ lines ["[distance]"]%string ++ file_of "kind" "matrix"
   ++ file_of "matrix" "d.npy" ++ lines ["[privacy]"; "epsilon = 1.0"; "[utility]"]%string ++ file_of "kind" "matrix" ++ file_of "cost" "d.npy")
  [(b "problem/points.csv", lines ["id"; "a"; "b"]%string);
   (b "problem/d.npy", array "<f8" ["2"; "2"]%string (bits_of [0; 1023 * 2 ^ 52; 1023 * 2 ^ 52; 0]))].

Theorem euclidean_is_accepted : accept euclidean = true. Proof. vm_compute. reflexivity. Qed.
Theorem graph_is_accepted : accept graph = true. Proof. vm_compute. reflexivity. Qed.
Theorem matrix_is_accepted : accept matrix = true. Proof. vm_compute. reflexivity. Qed.

(** And not with more probability on the diagonal than privacy allows: 0.74 is above e / (1 + e). *)
Definition bold : files := map (fun f => if list_eq_dec Z.eq_dec (fst f) (b "mechanism.npz/weights.npy")
  then (fst f, array "<u8" ["2"; "2"]%string (print_words [[6825295307272534016; 2398076729582241792]; [2398076729582241792; 6825295307272534016]])) else f) graph.
Theorem bold_is_refused : examine bold = Fails Privacy_or_form. Proof. vm_compute. reflexivity. Qed.
