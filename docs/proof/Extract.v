(** The program, as OCaml: [examine], with whole numbers as zarith's (whole.ml says how). *)
From Coq Require Import ZArith NArith List String Ascii Bool Arith.
From Coq Require Extraction ExtrOcamlBasic.
From Privopt Require Import Accept.

Extract Inductive nat => "int" [ "0" "Whole.successor" ] "Whole.of_nat_cases".
Extract Constant Nat.add => "( + )".
Extract Constant Nat.sub => "Whole.nat_sub".
Extract Constant Nat.eqb => "Whole.nat_equal".
Extract Constant Nat.leb => "Whole.nat_at_most".
Extract Constant Nat.ltb => "Whole.nat_below".
Extract Constant Nat.div => "Whole.nat_div".

Extract Inductive positive => "Whole.t" [ "Whole.twice_and_one" "Whole.twice" "Whole.one" ] "Whole.positive_cases".
Extract Inductive Z => "Whole.t" [ "Whole.zero" "Whole.same" "Whole.neg" ] "Whole.z_cases".
Extract Inductive N => "Whole.t" [ "Whole.zero" "Whole.same" ] "Whole.n_cases".
Extract Constant Pos.of_succ_nat => "Whole.of_successor".
Extract Constant Z.add => "Whole.add".
Extract Constant Z.sub => "Whole.sub".
Extract Constant Z.mul => "Whole.mul".
Extract Constant Z.opp => "Whole.neg".
Extract Constant Z.div => "Whole.div".
Extract Constant Z.pow => "Whole.pow".
Extract Constant Z.sqrt => "Whole.sqrt".
Extract Constant Z.abs => "Whole.abs".
Extract Constant Z.max => "Whole.max".
Extract Constant Z.min => "Whole.min".
Extract Constant Z.eqb => "Whole.equal".
Extract Constant Z.leb => "Whole.at_most".
Extract Constant Z.ltb => "Whole.below".
Extract Constant Z.of_nat => "Whole.of_nat".
Extract Constant Z.to_nat => "Whole.to_nat".
Extract Constant Z.to_pos => "Whole.to_pos".
Extract Constant Z.of_N => "Whole.same".

Extraction "proved.ml" examine.
