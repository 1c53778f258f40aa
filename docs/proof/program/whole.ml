(* Whole numbers of the extracted program: zarith's, with Coq's meaning; to_nat and pow may raise, which ends in no
   verdict. Trusted. *)
type t = Z.t

let zero = Z.zero
let one = Z.one
let same n = n
let neg = Z.neg
let add = Z.add
let sub = Z.sub
let mul = Z.mul
let abs = Z.abs
let max = Z.max
let min = Z.min
let equal = Z.equal
let at_most = Z.leq
let below = Z.lt

(* Rounds down, also below 0; by 0 it is 0. *)
let div a b = if Z.sign b = 0 then Z.zero else Z.fdiv a b
let pow a n = if Z.sign n < 0 then Z.zero else Z.pow a (Z.to_int n)
let sqrt a = if Z.sign a <= 0 then Z.zero else Z.sqrt a
let of_nat = Z.of_int
let to_nat a = if Z.sign a <= 0 then 0 else Z.to_int a
let to_pos a = if Z.sign a <= 0 then Z.one else a
let of_successor n = Z.of_int (n + 1)
let twice p = Z.shift_left p 1
let twice_and_one p = Z.succ (Z.shift_left p 1)

let positive_cases odd even first p =
  if Z.equal p Z.one then first ()
  else if Z.testbit p 0 then odd (Z.shift_right p 1)
  else even (Z.shift_right p 1)

let z_cases none above under a =
  let s = Z.sign a in
  if s = 0 then none () else if s > 0 then above a else under (Z.neg a)

let n_cases none above a = if Z.sign a = 0 then none () else above a
let successor n = n + 1
let of_nat_cases none some n = if n = 0 then none () else some (n - 1)
let nat_sub (a : int) b = if a < b then 0 else a - b
let nat_equal (a : int) b = a = b
let nat_at_most (a : int) b = a <= b
let nat_below (a : int) b = a < b
let nat_div a b = if b = 0 then 0 else a / b
